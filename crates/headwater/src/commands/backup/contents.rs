//! What belongs into a backup: which files, under which names, and the manifest of them.
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::config::{Config, NbdTls};

/// Says what a manifest is of, and which programs can read it.
pub(super) const FORMAT: &str = "headwater-backup 1";
/// The member that says what must be in the archive.
pub(super) const MANIFEST: &str = "manifest.json";
/// The configuration's member.
pub(super) const CONFIG: &str = "headwater.toml";
/// The catalogue's member.
pub(super) const CATALOGUE: &str = super::super::CATALOGUE_FILE;
/// The largest manifest: a thousand bytes for each file.
pub(super) const MAX_MANIFEST_BYTES: u64 = 256 << 20;
/// The most files: 50 boots of each of 5,000 devices.
pub(super) const MAX_FILES: usize = 250_000;
/// How deep directories lie in the state directory.
const MAX_DEPTH: usize = 8;

/// What is in the state directory and not in a backup: made anew by the server, or far too large.
const LEFT_OUT: &[&str] = &["kernels", "write-cache", "exchange"];

/// What a backup says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    pub(super) format: String,
    /// The version of the program.
    pub(super) program: String,
    /// RFC 3339.
    pub(super) made_at: String,
    pub(super) host: String,
    /// Where the configuration was.
    pub(super) config: PathBuf,
    pub(super) state_dir: PathBuf,
    /// Whether the catalogue is in it; otherwise it is in a database server, which has backups of its own.
    pub(super) has_catalogue: bool,
    pub(super) files: Vec<Entry>,
}

/// A member of the archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) length: u64,
    pub(super) crc32c: u32,
    /// Where it was, of a file that is neither the configuration nor in the state directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) place: Option<PathBuf>,
}

/// Files of the state directory, by their path in it, in order.
///
/// # Errors
/// A directory that cannot be read, or too many files.
pub(super) fn state_files(config: &Config) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    walk(config, Path::new(""), 0, &mut files)?;
    files.sort_unstable();
    Ok(files)
}

fn walk(config: &Config, below: &Path, depth: usize, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let directory = config.state_dir.join(below);
    let unreadable = |error| anyhow::anyhow!("{} cannot be read: {error}", directory.display());
    let entries = match std::fs::read_dir(&directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(unreadable(error)),
    };
    for entry in entries {
        let entry = entry.map_err(unreadable)?;
        let path = below.join(entry.file_name());
        if !belongs(config, &path) {
            continue;
        }
        let kind = entry.file_type().map_err(unreadable)?;
        if kind.is_dir() && depth < MAX_DEPTH {
            walk(config, &path, depth.saturating_add(1), files)?;
        } else if kind.is_file() {
            anyhow::ensure!(files.len() < MAX_FILES, "the state directory has more than {MAX_FILES} files");
            files.push(path);
        }
    }
    Ok(())
}

/// Whether a path in the state directory belongs into a backup. The catalogue goes its own way.
pub(super) fn belongs(config: &Config, path: &Path) -> bool {
    let plain = path.components().all(|part| matches!(part, Component::Normal(_)));
    let Some(text) = path.to_str().filter(|_| plain) else { return false };
    let first = text.split('/').next().unwrap_or_default();
    let unfinished = [".new", ".part"].iter().any(|end| text.ends_with(end));
    !text.is_empty()
        && !LEFT_OUT.contains(&first)
        && !is_of_restore(first)
        && !first.starts_with(CATALOGUE)
        && !unfinished
        && !config.state_dir.join(path).starts_with(&config.write_cache.directory)
}

/// Directories of `headwater restore` itself.
fn is_of_restore(name: &str) -> bool {
    name.starts_with("before-restore-") || name.starts_with("restoring-")
}

/// Files that the configuration names and that are not in the state directory: certificates and keys.
pub(super) fn outside_files(config: &Config) -> Vec<PathBuf> {
    let mut files = Vec::new();
    if let Some(NbdTls::Allowed(tls) | NbdTls::Required(tls)) = config.nbd.as_ref().map(|nbd| &nbd.tls) {
        files.extend([&tls.certificate, &tls.key, &tls.client_ca].map(Clone::clone));
    }
    if let Some((certificate, key)) = config.api.as_ref().and_then(|api| api.certificate.clone()) {
        files.extend([certificate, key]);
    }
    files.retain(|file| !file.starts_with(&config.state_dir));
    files.sort_unstable();
    files.dedup();
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_is_taken_and_what_is_large_or_unfinished_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let text =
            format!("state_dir = \"{}\"\n[write_cache]\ndirectory = \"{0}/wc\"\n", folder.path().display());
        let config = crate::config::parse(&text, "x".as_ref()).unwrap();
        for file in [
            "devices/lab-01.json",
            "leases/eth1.leases",
            "last-known",
            "farm.db",
            "farm.db-wal",
            "kernels/a/vmlinuz",
            "wc/a",
            "devices/lab-02.json.new",
            "before-restore-1/farm.db",
            "exchange/a.vhdx",
        ] {
            let path = folder.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join("link")).unwrap();
        let files: Vec<String> =
            state_files(&config).unwrap().iter().map(|path| path.display().to_string()).collect();
        assert_eq!(files, ["devices/lab-01.json", "last-known", "leases/eth1.leases"]);
        for bad in ["", "../x", "/etc/passwd", "devices/../../x", "farm.db"] {
            assert!(!belongs(&config, Path::new(bad)), "{bad}");
        }
    }
}
