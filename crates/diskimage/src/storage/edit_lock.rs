//! One process at a time changes an image file.
//!
//! Two that write tables into one file destroy it, and what one writes while another puts a new file in its place is
//! lost without a word. So whoever is going to change a file in place, or to replace it by one made from it, holds an
//! advisory lock (`flock`) on it, from before it reads the first byte. The lock ends with the process, however that
//! ends. Who reads for a moment takes none: a file that is replaced stays what it was for those who have it open. Who
//! serves a file to machines holds a lock that readers share.
//!
//! `flock` locks an opening of a file, which a child process shares from its `fork` until its `exec` closes what is to be
//! closed (`O_CLOEXEC`): if closing were all that ends a lock, a program that starts another at that moment would find
//! its own lock held. So a lock is [given up](unlock) before its file is closed, for whoever shares it.
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;

use crate::error::{OpenError, Refusal};
use crate::ops::is_same_file;

/// How often the file may be replaced between its opening and its locking before it counts as in use.
const MAX_TRIES: u32 = 16;

/// Keeps others from changing a file, until it is dropped: of one that is served to machines for as long as they run.
/// Any number of readers may have it at a time.
#[derive(Debug)]
pub struct ReadLock {
    _file: Locked,
}

impl ReadLock {
    /// Takes the lock of the file at `path`. On a file system without locks there is none to take.
    ///
    /// # Errors
    /// [`Refusal::InUse`], if somebody changes the file; [`Refusal::Access`].
    pub fn take(path: &Path) -> Result<Self, OpenError> {
        let file = lock(path, FlockOperation::NonBlockingLockShared);
        file.map(|file| Self { _file: file }).map_err(|refusal| refusal.about(Some(path.into())))
    }
}

/// The right to change a file, until it is dropped.
#[derive(Debug)]
pub struct EditLock {
    file: Locked,
}

impl EditLock {
    /// Takes the lock of the file at `path`. On a file system without locks there is none to take, and nothing to be
    /// told of others.
    ///
    /// # Errors
    /// [`Refusal::InUse`], if somebody has it; [`Refusal::Access`].
    pub fn take(path: &Path) -> Result<Self, OpenError> {
        Self::try_take(path).map_err(|refusal| refusal.about(Some(path.into())))
    }

    pub(crate) fn try_take(path: &Path) -> Result<Self, Refusal> {
        lock(path, FlockOperation::NonBlockingLockExclusive).map(|file| Self { file })
    }

    /// Whether it is the lock of `file`.
    pub(crate) fn is_of(&self, file: &File) -> bool {
        let (Ok(ours), Ok(theirs)) = (self.file.0.metadata(), file.metadata()) else { return false };
        is_same_file(&ours, &theirs)
    }
}

/// A file whose lock ends when it is dropped.
#[derive(Debug)]
struct Locked(File);

impl Drop for Locked {
    fn drop(&mut self) {
        unlock(&self.0);
    }
}

/// Gives up the lock of `file`, also for a child process that shares it.
pub(crate) fn unlock(file: &File) {
    // Where there are no locks there is none to give up, and the closing ends every other.
    let _ = rustix::fs::flock(file, FlockOperation::Unlock);
}

/// The file at `path`, locked.
fn lock(path: &Path, how: FlockOperation) -> Result<Locked, Refusal> {
    // Without O_NONBLOCK the opening of a named pipe would wait for a writer.
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    for _ in 0..MAX_TRIES {
        let open = || File::options().read(true).custom_flags(flags).open(path);
        let file = open().map_err(Refusal::Access)?;
        if rustix::fs::flock(&file, how) == Err(Errno::AGAIN) {
            return Err(Refusal::InUse);
        }
        // The last holder may have put another file there.
        if path.metadata().is_ok_and(|there| file.metadata().is_ok_and(|ours| is_same_file(&ours, &there))) {
            return Ok(Locked(file));
        }
    }
    Err(Refusal::InUse)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_share_a_file_and_keep_changes_from_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk.vhdx");
        std::fs::write(&path, b"image").unwrap();
        let (one, other) = (ReadLock::take(&path).unwrap(), ReadLock::take(&path).unwrap());
        drop(one);
        assert!(matches!(EditLock::take(&path).unwrap_err().refusal, Refusal::InUse));
        drop(other);
        let edit = EditLock::take(&path).unwrap();
        assert!(matches!(ReadLock::take(&path).unwrap_err().refusal, Refusal::InUse));
        drop(edit);
    }

    #[test]
    fn dropped_lock_is_free_though_a_starting_child_still_has_the_file_open() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk.vhdx");
        std::fs::write(&path, b"image").unwrap();
        let edit = EditLock::take(&path).unwrap();
        // What a fork makes of it: another descriptor of one opening.
        let _of_child = edit.file.0.try_clone().unwrap();
        drop(edit);
        let read = ReadLock::take(&path).unwrap();
        let _of_child = read._file.0.try_clone().unwrap();
        drop(read);
        EditLock::take(&path).unwrap();
    }

    #[test]
    fn lock_is_held_by_one_until_it_is_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let (path, link) = (directory.path().join("disk.vhdx"), directory.path().join("link.vhdx"));
        std::fs::write(&path, b"image").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let lock = EditLock::take(&path).unwrap();
        assert!(lock.is_of(&File::open(&link).unwrap()));
        assert!(matches!(EditLock::take(&link).unwrap_err().refusal, Refusal::InUse));
        // Replaced, it is the lock of a file that nobody finds any more.
        std::fs::write(directory.path().join("new"), b"image").unwrap();
        std::fs::rename(directory.path().join("new"), &path).unwrap();
        assert!(!lock.is_of(&File::open(&path).unwrap()));
        let next = EditLock::take(&path).unwrap();
        assert!(EditLock::take(&path).is_err());
        drop(next);
        assert!(EditLock::take(&path).is_ok());
    }
}
