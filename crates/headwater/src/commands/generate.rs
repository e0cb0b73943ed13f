//! `headwater generate`: completions and man pages, made of the command line's own description.
use std::os::unix::fs::PermissionsExt as _;
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
        GenerateWhat::GuestService { directory } => guest_service(directory),
        GenerateWhat::ManPages { directory } => man_pages(directory).map(|()| String::new()),
    }
}

/// What an image needs for its devices to be restarted, shut down and sent messages.
const GUEST_SERVICE: [(&str, &str, u32); 2] = [
    ("headwater-guest", include_str!("../../../../packaging/guest/headwater-guest"), 0o755),
    ("headwater-guest.service", include_str!("../../../../packaging/guest/headwater-guest.service"), 0o644),
];

fn guest_service(directory: &Path) -> anyhow::Result<String> {
    std::fs::create_dir_all(directory).with_context(|| format!("{directory:?} cannot be made"))?;
    let mut told = String::new();
    for (name, text, mode) in GUEST_SERVICE {
        let path = directory.join(name);
        let written = std::fs::write(&path, text)
            .and_then(|()| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)));
        written.with_context(|| format!("{} cannot be written", path.display()))?;
        told.push_str(&format!("{}\n", path.display()));
    }
    Ok(told)
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
    fn guest_service_is_written_so_that_it_can_be_installed() {
        let folder = tempfile::tempdir().unwrap();
        let what = GenerateWhat::GuestService { directory: folder.path().join("guest") };
        let told = run(&GenerateArgs { what }).unwrap();
        assert_eq!(told.lines().count(), 2);
        let program = told.lines().next().unwrap();
        assert_eq!(std::fs::metadata(program).unwrap().permissions().mode() & 0o777, 0o755);
        let checked = std::process::Command::new("sh").args(["-n", program]).status().unwrap();
        assert!(checked.success(), "a shell does not understand it");
    }

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
