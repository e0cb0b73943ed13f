//! How much of a file system the files of a vDisk's versions take, and how much of that they share with other files.
//!
//! A file system with reflinks (XFS, Btrfs) keeps blocks that several files have in common once: after a merge by clones
//! the old base and the new one take hardly more than one of them. What is shared is asked of the kernel (`FIEMAP`,
//! Linux `Documentation/filesystems/fiemap.rst`), which walks the extents of a file; so an answer is good for a while.
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use farm::model::{ObjectKind, Store, Stored, Vdisk, VdiskId, VersionNumber};
use farm::rules::permission::{Action, Place};
use fiemap::FiemapExtentFlags;

use crate::caller::Caller;
use crate::error::ControlError;
use crate::places::store_folder;
use crate::whole::Control;

/// For how long an answer is good.
const FRESH: Duration = Duration::from_secs(60);
/// The most files whose answers are kept.
const MAX_KEPT: usize = 4096;
/// The most extents of a file that are walked: a file in more pieces than that is told without what it shares.
const MAX_EXTENTS: usize = 262_144;
/// What `st_blocks` counts in (inode(7)).
const BLOCK_BYTES: u64 = 512;

/// What a file takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileUsage {
    /// What is allocated for it, in bytes, shared or not.
    pub allocated: u64,
    /// How much of that other files have too; `None`: the file system does not say.
    pub shared: Option<u64>,
}

/// What the file of a version takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionUsage {
    /// Which version.
    pub number: VersionNumber,
    /// What its file takes; or why that cannot be told, in words.
    pub usage: Result<FileUsage, String>,
}

/// The last answers.
#[derive(Debug, Default)]
pub(crate) struct Usages(Mutex<HashMap<PathBuf, (Instant, FileUsage)>>);

impl Usages {
    fn of(&self, path: &Path) -> Result<FileUsage, String> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, usage)) = known.get(path)
            && at.elapsed() < FRESH
        {
            return Ok(*usage);
        }
        let usage = look(path).map_err(|error| error.to_string())?;
        if known.len() >= MAX_KEPT {
            known.retain(|_, (at, _)| at.elapsed() < FRESH);
        }
        if known.len() < MAX_KEPT {
            known.insert(path.to_owned(), (Instant::now(), usage));
        }
        Ok(usage)
    }
}

/// What the files of a vDisk's versions take on this server, newest version first; of the last minute. Waits for the file
/// system.
///
/// # Errors
/// [`Code::StoreUnreachable`](crate::Code::StoreUnreachable) where this server has no path to the store,
/// [`Code::Denied`](crate::Code::Denied), or the database's.
pub fn of_vdisk(control: &Control, by: &Caller, vdisk: VdiskId) -> Result<Vec<VersionUsage>, ControlError> {
    let (folder, versions) = control.read(|reader| {
        by.may(Action::See, ObjectKind::Version, Place::Farm)?;
        let vdisk: Stored<Vdisk> = reader.get(vdisk)?;
        let store: Stored<Store> = reader.get(vdisk.store)?;
        Ok((store_folder(reader, control.server(), &store)?, reader.versions(vdisk.id)?))
    })?;
    let mut usages: Vec<VersionUsage> = versions
        .iter()
        .map(|version| VersionUsage {
            number: version.number,
            usage: control.known_usages().of(&folder.join(version.file.as_str())),
        })
        .collect();
    usages.sort_by_key(|usage| std::cmp::Reverse(usage.number));
    Ok(usages)
}

fn look(path: &Path) -> std::io::Result<FileUsage> {
    let allocated = std::fs::symlink_metadata(path)?.blocks().saturating_mul(BLOCK_BYTES);
    let extents = fiemap::fiemap(path)?.map(|extent| {
        extent.map(|extent| (extent.fe_length, extent.fe_flags.contains(FiemapExtentFlags::SHARED)))
    });
    // A file system that has no extents to tell of (tmpfs, NFS) is no error: what the file takes is known.
    Ok(FileUsage { allocated, shared: shared(extents) })
}

/// The bytes of shared extents, which come as length and whether it is one; `None` where not all can be told.
fn shared(extents: impl Iterator<Item = std::io::Result<(u64, bool)>>) -> Option<u64> {
    let mut sum = 0_u64;
    for (walked, extent) in extents.enumerate() {
        let (length, is_shared) = extent.ok()?;
        if walked >= MAX_EXTENTS {
            return None;
        }
        sum = sum.saturating_add(if is_shared { length } else { 0 });
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_extents_are_summed_and_what_cannot_be_told_is_not() {
        let all = |extents: &[(u64, bool)]| shared(extents.iter().copied().map(Ok));
        assert_eq!(all(&[]), Some(0));
        assert_eq!(all(&[(4096, true), (8192, false), (4096, true)]), Some(8192));
        let broken = [Ok((4096, true)), Err(std::io::ErrorKind::Unsupported.into())];
        assert_eq!(shared(broken.into_iter()), None);
        assert_eq!(shared(std::iter::repeat_n((1, true), MAX_EXTENTS).map(Ok)), Some(MAX_EXTENTS as u64));
        assert_eq!(shared(std::iter::repeat_n((1, true), MAX_EXTENTS + 1).map(Ok)), None);
    }

    #[test]
    fn file_takes_what_is_allocated_and_a_missing_one_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        let file = std::fs::File::create(&path).unwrap();
        file.set_len(1 << 30).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &[1; 65_536], 0).unwrap();
        file.sync_all().unwrap();
        let usages = Usages::default();
        let usage = usages.of(&path).unwrap();
        assert!((65_536..1 << 30).contains(&usage.allocated), "{usage:?}");
        assert!(usage.shared.is_none_or(|shared| shared == 0), "{usage:?}");
        let gone = usages.of(&dir.path().join("gone")).unwrap_err();
        assert!(gone.contains("No such file"), "{gone}");
    }
}
