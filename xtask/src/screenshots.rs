//! `cargo xtask screenshots`: pictures of every page of the console, for whoever changes one or writes about it.
//!
//! They come of the test that holds every page to the rules of accessibility, so what is pictured is what is tested.
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use crate::run::{cargo, root, run, target};

/// The test that looks at every page.
const TEST: &str = "pages::every_page_is_accessible_in_both_themes_and_fits_a_narrow_screen";

/// Where the pictures go.
#[derive(Args)]
pub(crate) struct ScreenshotArguments {
    /// The folder; without it, `screenshots` in the target folder
    folder: Option<PathBuf>,
}

/// Takes them.
///
/// # Errors
/// Where something is missing that it takes, or a page is not as it should be.
pub(crate) fn screenshots(arguments: &ScreenshotArguments) -> Result<()> {
    lab::packages::ensure(lab::packages::SCREENSHOTS)?;
    let folder =
        arguments.folder.as_ref().map_or_else(|| target().join("screenshots"), |own| root().join(own));
    let mut test = cargo(&["test", "--package", "headwater", "--test", "browser", "--", "--exact", TEST]);
    run(test.env("HEADWATER_SCREENSHOTS", &folder))?;
    println!("the pictures are in {}", folder.display());
    Ok(())
}
