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

#[cfg(test)]
mod tests {
    use super::*;
    use clap_complete::Shell;

    #[test]
    fn completions_and_man_pages_cover_every_noun() {
        let nouns = [
            "site",
            "vdisk",
            "version",
            "device",
            "write-cache",
            "task",
            "lock",
            "token",
            "audit",
            "init",
            "doctor",
        ];
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let what = GenerateWhat::Completions { shell };
            let script = run(&GenerateArgs { what }).unwrap();
            assert!(nouns.iter().all(|noun| script.contains(noun)), "{shell}");
            assert!(script.contains("promote") && script.contains("copy-profile"), "{shell}");
        }
        let folder = tempfile::tempdir().unwrap();
        let what = GenerateWhat::ManPages { directory: folder.path().to_owned() };
        run(&GenerateArgs { what }).unwrap();
        for noun in nouns {
            assert!(folder.path().join(format!("headwater-{noun}.1")).exists(), "{noun}");
        }
        let page = std::fs::read_to_string(folder.path().join("headwater-device-create.1")).unwrap();
        assert!(page.contains("personality"), "what can be set is told: {page}");
    }
}
