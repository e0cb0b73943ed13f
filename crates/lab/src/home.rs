//! Where the lab keeps its images, runs and logs.
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

/// The lab's folder: `$HEADWATER_LAB`, else `.lab` in the workspace's root.
///
/// It holds `images` (the cache), `runs` (what is in use) and `failed` (logs of runs that ended badly).
#[must_use]
pub fn home() -> PathBuf {
    if let Some(folder) = std::env::var_os("HEADWATER_LAB").filter(|folder| !folder.is_empty()) {
        return PathBuf::from(folder);
    }
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    crate_folder.ancestors().nth(2).unwrap_or(crate_folder).join(".lab")
}

/// Checks for the privilege that network namespaces, taps and mmdebstrap need.
///
/// # Errors
/// Where we are not root.
pub(crate) fn require_root(what_for: &str) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("{what_for} needs root: run this as root, for example with `sudo --preserve-env=PATH`");
    }
    Ok(())
}
