//! A file of the operating system.
//!
//! With [`Patience::Now`] a read asks the kernel for what the page cache holds and nothing more (`preadv2` with
//! `RWF_NOWAIT`). Some file systems cannot answer that; the first refusal is remembered, and from then on every
//! impatient read is told to come back with patience, which costs no system call.
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use block::{ByteLength, ByteOffset, Patience};
use rustix::fs::OFlags;
use rustix::io::{Errno, ReadWriteFlags};

use super::{Storage, StorageError, check_inside};

/// A regular file or block device, opened for reading.
#[derive(Debug)]
pub struct FileStorage {
    file: File,
    len: ByteLength,
    allocated: Option<ByteLength>,
    /// Whether the file system has said that it cannot answer at once.
    always_waits: AtomicBool,
}

/// Why a path could not be opened as storage.
#[derive(Debug, thiserror::Error)]
pub enum FileStorageError {
    /// The operating system refused.
    #[error("the file cannot be opened")]
    Access(#[source] io::Error),
    /// Neither a regular file nor a block device.
    #[error("this is {found}, not a file or block device")]
    NotAFile {
        /// What it is.
        found: &'static str,
    },
}

impl FileStorage {
    /// Opens the file at `path` for reading.
    ///
    /// # Errors
    /// [`FileStorageError`].
    pub fn open(path: &Path) -> Result<Self, FileStorageError> {
        // Without O_NONBLOCK the opening of a named pipe would wait for a writer; files and disks ignore it.
        let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
        let file =
            File::options().read(true).custom_flags(flags).open(path).map_err(FileStorageError::Access)?;
        let metadata = file.metadata().map_err(FileStorageError::Access)?;
        let kind = metadata.file_type();
        let (len, allocated) = if kind.is_file() {
            // st_blocks counts units of 512 bytes whatever the file system's own unit is: stat(2).
            (metadata.len(), metadata.blocks().checked_mul(512).map(ByteLength::new))
        } else if kind.is_block_device() {
            let end = rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0));
            (end.map_err(|errno| FileStorageError::Access(errno.into()))?, None)
        } else {
            let found = if kind.is_dir() { "a directory" } else { "a special file" };
            return Err(FileStorageError::NotAFile { found });
        };
        Ok(Self { file, len: ByteLength::new(len), allocated, always_waits: AtomicBool::new(false) })
    }

    fn read_cached(&self, at: ByteOffset, buffer: &mut [u8]) -> Result<(), StorageError> {
        if self.always_waits.load(Ordering::Relaxed) {
            return Err(StorageError::WouldBlock);
        }
        self.fill(at, buffer, |rest, place| {
            let mut slices = [IoSliceMut::new(rest)];
            let read = rustix::io::preadv2(&self.file, &mut slices, place, ReadWriteFlags::NOWAIT);
            read.map_err(|errno| match errno {
                Errno::OPNOTSUPP | Errno::NOSYS => {
                    self.always_waits.store(true, Ordering::Relaxed);
                    Errno::AGAIN
                }
                other => other,
            })
        })
    }

    fn read_patiently(&self, at: ByteOffset, buffer: &mut [u8]) -> Result<(), StorageError> {
        self.fill(at, buffer, |rest, place| rustix::io::pread(&self.file, rest, place))
    }

    /// Calls `read` until the buffer is full: the kernel may give less than it was asked for.
    fn fill(
        &self,
        at: ByteOffset,
        buffer: &mut [u8],
        mut read: impl FnMut(&mut [u8], u64) -> Result<usize, Errno>,
    ) -> Result<(), StorageError> {
        let wanted = buffer.len();
        let (mut rest, mut place) = (buffer, at.get());
        while !rest.is_empty() {
            let count = match read(rest, place) {
                // The file has become shorter since it was opened.
                Ok(0) => return Err(StorageError::EndOfFile { at, wanted, len: self.len.get() }),
                Ok(count) => count.min(rest.len()),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Err(StorageError::WouldBlock),
                Err(errno) => return Err(StorageError::Io { at, source: errno.into() }),
            };
            rest = rest.split_at_mut(count).1;
            place = place.saturating_add(u64::try_from(count).unwrap_or_default());
        }
        Ok(())
    }
}

impl Storage for FileStorage {
    fn len(&self) -> ByteLength {
        self.len
    }

    fn read_at(&self, at: ByteOffset, buffer: &mut [u8], patience: Patience) -> Result<(), StorageError> {
        check_inside(at, buffer.len(), self.len)?;
        match patience {
            Patience::Now => self.read_cached(at, buffer),
            Patience::Blocking => self.read_patiently(at, buffer),
        }
    }

    fn allocated(&self) -> Option<ByteLength> {
        self.allocated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(bytes: &[u8]) -> (tempfile::TempDir, std::path::PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("bytes");
        std::fs::write(&path, bytes).unwrap();
        (directory, path)
    }

    #[test]
    fn cached_bytes_are_read_with_either_patience() {
        let bytes = block::conformance::pattern(70_000);
        let (_directory, path) = file(&bytes);
        let storage = FileStorage::open(&path).unwrap();
        let mut buffer = vec![0; 66_000];
        storage.read_at(ByteOffset::new(3), &mut buffer, Patience::Blocking).unwrap();
        assert_eq!(buffer, bytes[3..66_003]);
        buffer.fill(0);
        match storage.read_at(ByteOffset::new(3), &mut buffer, Patience::Now) {
            Ok(()) => assert_eq!(buffer, bytes[3..66_003]),
            // A file system that cannot answer at once says so, always.
            Err(error) => {
                assert!(matches!(error, StorageError::WouldBlock), "{error:?}");
                assert!(storage.always_waits.load(Ordering::Relaxed));
            }
        }
    }

    #[test]
    fn read_past_the_end_is_an_error_with_its_place() {
        let (_directory, path) = file(&[1, 2, 3]);
        let storage = FileStorage::open(&path).unwrap();
        for (at, patience) in [(2, Patience::Now), (3, Patience::Blocking), (u64::MAX, Patience::Now)] {
            let result = storage.read_at(ByteOffset::new(at), &mut [0; 2], patience);
            assert!(matches!(result, Err(StorageError::EndOfFile { len: 3, .. })), "{result:?}");
        }
    }

    #[test]
    fn file_that_shrinks_after_opening_is_an_error_not_a_hang() {
        let (_directory, path) = file(&[7; 4096]);
        let storage = FileStorage::open(&path).unwrap();
        std::fs::write(&path, [7; 10]).unwrap();
        let result = storage.read_at(ByteOffset::ZERO, &mut [0; 4096], Patience::Blocking);
        assert!(matches!(result, Err(StorageError::EndOfFile { .. })), "{result:?}");
    }

    #[test]
    fn directory_and_named_pipe_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let refused = FileStorage::open(directory.path());
        assert!(matches!(refused, Err(FileStorageError::NotAFile { found: "a directory" })), "{refused:?}");
        let pipe = directory.path().join("pipe");
        let mode = rustix::fs::Mode::RUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let refused = FileStorage::open(&pipe);
        assert!(
            matches!(refused, Err(FileStorageError::NotAFile { found: "a special file" })),
            "{refused:?}"
        );
    }
}
