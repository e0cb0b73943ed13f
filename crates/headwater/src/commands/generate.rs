//! `headwater generate`: completions and man pages, made of the command line's own description.
use std::path::Path;

use anyhow::Context;

use crate::cli::{Cli, GenerateArgs, GenerateWhat};

/// Runs the command; what it prints.
///
/// # Errors
/// Where the pages cannot be written.
pub fn run(args: &GenerateArgs) -> anyhow::Result<String> {
    match &args.what {
        GenerateWhat::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command_with_help(), "headwater", &mut script);
            Ok(String::from_utf8(script)?)
        }
        GenerateWhat::ManPages { directory } => man_pages(directory).map(|()| String::new()),
    }
}

fn man_pages(directory: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(directory).with_context(|| format!("{directory:?} cannot be made"))?;
    clap_mangen::generate_to(Cli::command_with_help(), directory)
        .with_context(|| format!("the man pages cannot be written to {directory:?}"))
}
