//! Built things, kept by what went into them.
//!
//! An entry is a folder named after its kind and a hash over its inputs. It is built beside its final place and
//! renamed there when it is whole: whatever is found under a final name is complete. A lock per kind keeps two
//! processes from building at once; whoever gets it removes what a killed build left.
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result, bail};
use rustix::fs::FlockOperation;
use sha2::{Digest, Sha256};

/// How many entries of a kind stay: the one in use here, and some for other branches that share the folder.
const ENTRIES_KEPT: usize = 3;

/// Everything that decides how a built thing turns out, by name.
pub(crate) struct Inputs(Vec<(&'static str, String)>);

impl Inputs {
    pub(crate) fn new() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn add(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.0.push((name, value.into()));
        self
    }

    /// The first 64 bits of SHA-256 over all names and values, each with its length before it.
    fn key(&self) -> String {
        let mut hash = Sha256::new();
        for text in self.0.iter().flat_map(|(name, value)| [*name, value]) {
            hash.update(u64::try_from(text.len()).unwrap_or(u64::MAX).to_le_bytes());
            hash.update(text);
        }
        hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Gives the entry of this kind and these inputs in `folder`, and builds it first when it is not there.
pub(crate) fn entry(
    folder: &Path,
    kind: &str,
    inputs: &Inputs,
    build: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let entry = folder.join(format!("{kind}-{}", inputs.key()));
    if entry.is_dir() {
        return Ok(entry);
    }
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let lock = File::create(folder.join(format!("{kind}.lock")))?;
    rustix::fs::flock(&lock, FlockOperation::LockExclusive).context("cannot lock the image cache")?;
    if entry.is_dir() {
        return Ok(entry);
    }
    let unfinished = format!(".building-{kind}-");
    for leftover in folders_beginning_with(folder, &unfinished)? {
        remove_tree(&leftover)?;
    }
    let workplace = folder.join(format!("{unfinished}{}", inputs.key()));
    fs::create_dir(&workplace)?;
    if let Err(error) = build(&workplace) {
        let log = workplace.join(BUILD_LOG);
        if log.exists() {
            fs::rename(log, folder.join(format!("{kind}-failed.log")))?;
        }
        remove_tree(&workplace)?;
        return Err(error);
    }
    fs::rename(&workplace, &entry)?;
    drop_old_entries(folder, kind, &entry)?;
    Ok(entry)
}

/// The name of the log that a build writes in its workplace; it is kept when the build fails.
pub(crate) const BUILD_LOG: &str = "build.log";

fn folders_beginning_with(folder: &Path, prefix: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() && entry.file_name().to_string_lossy().starts_with(prefix) {
            found.push(entry.path());
        }
    }
    Ok(found)
}

fn drop_old_entries(folder: &Path, kind: &str, newest: &Path) -> Result<()> {
    let mut others = folders_beginning_with(folder, &format!("{kind}-"))?;
    others.retain(|path| path != newest);
    others.sort_by_key(|path| {
        fs::metadata(path).and_then(|data| data.modified()).unwrap_or(SystemTime::UNIX_EPOCH)
    });
    let surplus = others.len().saturating_sub(ENTRIES_KEPT - 1);
    others.iter().take(surplus).try_for_each(|path| remove_tree(path))
}

/// Removes a folder, unless something is mounted in it: a root folder can hold a mounted /dev.
pub(crate) fn remove_tree(folder: &Path) -> Result<()> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let whole = fs::canonicalize(folder).with_context(|| format!("cannot find {}", folder.display()))?;
    if let Some(place) = mount_inside(&mounts, &whole) {
        bail!("{place} is still mounted; unmount it (`umount {place}`), then try again");
    }
    fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))
}

fn mount_inside<'a>(mounts: &'a str, folder: &Path) -> Option<&'a str> {
    mounts
        .lines()
        .filter_map(|line| line.split(' ').nth(1))
        .find(|place| Path::new(place).starts_with(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs(script: &str) -> Inputs {
        Inputs::new().add("schema", "1").add("script", script)
    }

    #[test]
    fn key_depends_on_every_name_value_and_boundary() {
        let key = inputs("a").key();
        assert_eq!(key, inputs("a").key());
        assert_ne!(key, inputs("b").key());
        let (left, right) = (Inputs::new().add("ab", "c"), Inputs::new().add("a", "bc"));
        assert_ne!(left.key(), right.key());
        assert_eq!(key.len(), 16);
    }

    #[test]
    fn entry_is_built_once_and_again_when_an_input_changes() {
        let folder = tempfile::tempdir().unwrap();
        let mut builds = 0;
        for script in ["a", "a", "b"] {
            entry(folder.path(), "image", &inputs(script), |_| {
                builds += 1;
                Ok(())
            })
            .unwrap();
        }
        assert_eq!(builds, 2);
    }

    #[test]
    fn failed_build_leaves_no_entry_but_its_log() {
        let folder = tempfile::tempdir().unwrap();
        let result = entry(folder.path(), "image", &inputs("a"), |workplace| {
            fs::write(workplace.join(BUILD_LOG), "why")?;
            bail!("no")
        });
        result.unwrap_err();
        assert_eq!(fs::read_to_string(folder.path().join("image-failed.log")).unwrap(), "why");
        assert!(folders_beginning_with(folder.path(), "image-").unwrap().is_empty());
    }

    #[test]
    fn killed_build_is_not_mistaken_for_an_entry_and_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let leftover = folder.path().join(format!(".building-image-{}", inputs("a").key()));
        fs::create_dir(&leftover).unwrap();
        fs::write(leftover.join("half"), "").unwrap();
        let built = entry(folder.path(), "image", &inputs("a"), |place| {
            assert!(!place.join("half").exists());
            Ok(fs::write(place.join("whole"), "")?)
        });
        assert!(built.unwrap().join("whole").exists());
        assert!(!leftover.exists());
    }

    #[test]
    fn old_entries_go_and_the_newest_stays() {
        let folder = tempfile::tempdir().unwrap();
        for script in ["a", "b", "c", "d", "e"] {
            entry(folder.path(), "image", &inputs(script), |_| Ok(())).unwrap();
        }
        assert_eq!(folders_beginning_with(folder.path(), "image-").unwrap().len(), ENTRIES_KEPT);
        entry(folder.path(), "image", &inputs("e"), |_| bail!("was dropped")).unwrap();
    }

    #[test]
    fn mounted_place_in_a_folder_is_seen() {
        let mounts = "proc /proc proc rw 0 0\nudev /a/root/dev devtmpfs rw 0 0\n";
        assert_eq!(mount_inside(mounts, Path::new("/a/root")), Some("/a/root/dev"));
        assert_eq!(mount_inside(mounts, Path::new("/a/roo")), None);
    }
}
