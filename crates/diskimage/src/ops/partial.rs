//! A file in the making: under another name beside its target until it is whole, then swapped in.
//!
//! The file is called like its target with `.partial` behind, and is locked (`flock`) by the process that makes it.
//! The lock ends with the process, however that ends: an unlocked file of that name is what a killed process left,
//! and the next one that makes the same target removes it. Until the rename nobody sees the target change, after it
//! everybody sees all of the new file; readers that have the old one open keep it.
use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FlockOperation, RenameFlags};
use rustix::io::Errno;

use super::error::OpError;
use crate::storage::{FileStorage, FileStorageError, Storage, unlock};

/// What to do where there is something with the target's name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Replace {
    /// Leave it and refuse.
    #[default]
    Never,
    /// Put the new file in its place, once that is whole.
    Swap,
}

/// What the unfinished file's name ends with.
const ENDING: &str = ".partial";
/// How often another process may remove the file between its creation and its locking before that is an error.
const MAX_TRIES: u32 = 16;

/// The unfinished file. Dropped before it is swapped in, it is removed.
#[derive(Debug)]
pub(super) struct Partial {
    path: PathBuf,
    target: PathBuf,
    replace: Replace,
    /// Holds the lock.
    file: Option<Arc<File>>,
    removed_leftover: bool,
}

impl Partial {
    /// Makes the unfinished file of `target`, empty, and gives it to be written.
    pub(super) fn create(target: &Path, replace: Replace) -> Result<(Self, FileStorage), OpError> {
        if target.file_name().is_none() {
            return Err(OpError::unfit(format!("{target:?} names no file")));
        }
        if replace == Replace::Never && target.symlink_metadata().is_ok() {
            return Err(OpError::Exists { path: target.into() });
        }
        let path = name_of(target);
        let mut removed_leftover = false;
        for _ in 0..MAX_TRIES {
            match FileStorage::create_new(&path) {
                Ok(storage) => {
                    let file = storage.file().cloned();
                    if file.as_ref().is_some_and(|file| holds(file, &path)) {
                        let target = target.into();
                        return Ok((Self { path, target, replace, file, removed_leftover }, storage));
                    }
                    // Somebody took it for a stale one in the moment before it was locked.
                }
                Err(FileStorageError::Access(error)) if error.kind() == io::ErrorKind::AlreadyExists => {
                    removed_leftover |= remove_stale(target, &path)?;
                }
                Err(FileStorageError::Access(error)) => return Err(OpError::file(path, "made", error)),
                Err(FileStorageError::NotAFile { .. }) => return Err(OpError::Exists { path }),
            }
        }
        Err(OpError::Busy { path: target.into(), partial: path })
    }

    /// Where the unfinished file lies.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether a process that was killed had left an unfinished file, which was removed.
    pub(super) fn removed_leftover(&self) -> bool {
        self.removed_leftover
    }

    /// Gives the file, which is whole and on disk, its name, and makes that lasting.
    pub(super) fn swap_in(mut self) -> Result<(), OpError> {
        self.keep_mode()?;
        match self.replace {
            Replace::Swap => std::fs::rename(&self.path, &self.target),
            Replace::Never => rename_new(&self.path, &self.target),
        }
        .map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => OpError::Exists { path: self.target.clone() },
            _ => OpError::file(&self.target, "given its name", error),
        })?;
        // It is whole: who opens it next may change it, though a child process that starts shares our opening.
        if let Some(file) = self.file.take() {
            unlock(&file);
        }
        let directory = directory_of(&self.target);
        File::open(directory)
            .and_then(|folder| folder.sync_all())
            .map_err(|error| OpError::file(directory, "made lasting", error))
    }

    /// A file that takes another's place is as open to others as that was.
    fn keep_mode(&self) -> Result<(), OpError> {
        let (Replace::Swap, Some(file)) = (self.replace, &self.file) else { return Ok(()) };
        let Ok(old) = self.target.metadata() else { return Ok(()) };
        let result = file.set_permissions(old.permissions());
        result.map_err(|error| OpError::file(&self.path, "given the mode of the old file", error))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // Only what is still ours: a name that was swapped in, or taken by another process, is not.
        if self.file.as_ref().is_some_and(|file| is_at(file, &self.path)) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Removes the unfinished file of `target` that a process left which was killed while it made it; says whether there was
/// one.
///
/// # Errors
/// [`OpError::Busy`] where a process is making it, or what the system says.
pub fn remove_leftover(target: &Path) -> Result<bool, OpError> {
    remove_stale(target, &name_of(target))
}

/// Where the new file `target` shall lie: a symlink that may be replaced is followed, so that it goes on leading to
/// the image. What is no file there, a device or a pipe, is never replaced: programs know it by its name.
pub(super) fn place_of(target: &Path, replace: Replace) -> Result<PathBuf, OpError> {
    let Ok(there) = target.metadata() else { return Ok(target.into()) };
    if !there.is_file() {
        return Err(OpError::unfit(format!(
            "{target:?} is no file, and a new image can only be made as one; give the name of a file"
        )));
    }
    match replace {
        Replace::Never => Ok(target.into()),
        Replace::Swap => target.canonicalize().map_err(|error| OpError::file(target, "followed", error)),
    }
}

/// The folder of `path`, which has a file name.
pub(super) fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// Whether the two are one file.
pub(crate) fn is_same_file(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

fn name_of(target: &Path) -> PathBuf {
    let mut name = OsString::from(target);
    name.push(ENDING);
    name.into()
}

/// Locks `file`, and says whether it is then still the one at `path`.
fn holds(file: &File, path: &Path) -> bool {
    rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive).is_ok() && is_at(file, path)
}

fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), path.symlink_metadata()) {
        (Ok(ours), Ok(there)) => is_same_file(&ours, &there),
        _ => false,
    }
}

/// Removes the unfinished file of a process that is no more, and says whether there was one.
fn remove_stale(target: &Path, path: &Path) -> Result<bool, OpError> {
    let stale = match FileStorage::open_writable(path) {
        Ok(stale) => stale,
        Err(FileStorageError::Access(error)) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(FileStorageError::Access(error)) => return Err(OpError::file(path, "opened", error)),
        Err(FileStorageError::NotAFile { .. }) => return Err(OpError::Exists { path: path.into() }),
    };
    let Some(file) = stale.file() else { return Ok(false) };
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::AGAIN) => {
            return Err(OpError::Busy { path: target.into(), partial: path.into() });
        }
        Err(errno) => return Err(OpError::file(path, "locked", errno)),
    }
    // With the lock held, the name cannot pass to another unfinished file unless it has already.
    let is_there = is_at(file, path);
    if is_there {
        std::fs::remove_file(path).map_err(|error| OpError::file(path, "removed", error))?;
    }
    unlock(file);
    Ok(is_there)
}

/// Renames to a name that must be free, in one step where the file system can.
fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    let cwd = rustix::fs::CWD;
    match rustix::fs::renameat_with(cwd, from, cwd, to, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            if to.symlink_metadata().is_ok() {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            std::fs::rename(from, to)
        }
        result => Ok(result?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::EditLock;

    fn folder() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("new.vhdx");
        (directory, target)
    }

    fn names(directory: &Path) -> Vec<OsString> {
        let mut names: Vec<_> =
            directory.read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    }

    #[test]
    fn unfinished_file_is_removed_unless_it_is_swapped_in() {
        let (directory, target) = folder();
        drop(Partial::create(&target, Replace::Never).unwrap());
        assert_eq!(names(directory.path()), [""; 0]);
        let (partial, _) = Partial::create(&target, Replace::Never).unwrap();
        assert_eq!(names(directory.path()), ["new.vhdx.partial"]);
        partial.swap_in().unwrap();
        assert_eq!(names(directory.path()), ["new.vhdx"]);
    }

    #[test]
    fn file_that_was_swapped_in_can_be_changed_at_once() {
        let (_directory, target) = folder();
        let (partial, storage) = Partial::create(&target, Replace::Never).unwrap();
        partial.swap_in().unwrap();
        EditLock::take(&target).unwrap();
        drop(storage);
    }

    #[test]
    fn target_is_replaced_only_where_that_was_said_also_if_it_came_meanwhile() {
        let (directory, target) = folder();
        let (partial, _) = Partial::create(&target, Replace::Never).unwrap();
        std::fs::write(&target, b"old").unwrap();
        assert!(matches!(partial.swap_in(), Err(OpError::Exists { .. })));
        assert!(matches!(Partial::create(&target, Replace::Never), Err(OpError::Exists { .. })));
        let (partial, _) = Partial::create(&target, Replace::Swap).unwrap();
        assert_eq!(std::fs::read(&target).unwrap(), b"old", "until it is whole");
        partial.swap_in().unwrap();
        assert_eq!(std::fs::read(&target).unwrap(), b"");
        assert_eq!(names(directory.path()), ["new.vhdx"]);
    }

    #[test]
    fn replaced_file_hands_on_its_mode() {
        use std::os::unix::fs::PermissionsExt;
        let (_directory, target) = folder();
        std::fs::write(&target, b"old").unwrap();
        std::fs::set_permissions(&target, std::fs::Permissions::from_mode(0o440)).unwrap();
        Partial::create(&target, Replace::Swap).unwrap().0.swap_in().unwrap();
        assert_eq!(target.metadata().unwrap().permissions().mode() & 0o777, 0o440);
    }

    #[test]
    fn file_of_a_living_owner_is_left_alone_and_a_stale_one_is_removed() {
        let (directory, target) = folder();
        let (partial, _) = Partial::create(&target, Replace::Never).unwrap();
        let error = Partial::create(&target, Replace::Never).unwrap_err();
        assert!(matches!(error, OpError::Busy { .. }), "{error:?}");
        assert_eq!(names(directory.path()), ["new.vhdx.partial"]);
        drop(partial);
        // As a killed process leaves it: there, and not locked.
        std::fs::write(directory.path().join("new.vhdx.partial"), b"half of an image").unwrap();
        let (partial, storage) = Partial::create(&target, Replace::Never).unwrap();
        assert!(storage.is_empty());
        assert_eq!(partial.path(), directory.path().join("new.vhdx.partial"));
    }

    #[test]
    fn leftover_is_removed_unless_its_maker_lives() {
        let (directory, target) = folder();
        assert!(!remove_leftover(&target).unwrap());
        let (partial, _) = Partial::create(&target, Replace::Never).unwrap();
        assert!(matches!(remove_leftover(&target), Err(OpError::Busy { .. })));
        drop(partial);
        std::fs::write(directory.path().join("new.vhdx.partial"), b"half of an image").unwrap();
        assert!(remove_leftover(&target).unwrap());
        assert_eq!(names(directory.path()), [""; 0]);
    }

    #[test]
    fn partial_name_that_is_no_file_is_left_alone() {
        let (directory, target) = folder();
        std::fs::create_dir(directory.path().join("new.vhdx.partial")).unwrap();
        assert!(Partial::create(&target, Replace::Never).is_err());
        assert_eq!(names(directory.path()), ["new.vhdx.partial"]);
        assert!(matches!(Partial::create(Path::new("/"), Replace::Never), Err(OpError::Unfit { .. })));
    }
}
