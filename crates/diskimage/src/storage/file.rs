//! A file of the operating system.
//!
//! With [`Patience::Now`] a read asks the kernel for what the page cache holds and nothing more (`preadv2` with
//! `RWF_NOWAIT`). Some file systems cannot answer that; the first refusal is remembered, and from then on every
//! impatient read is told to come back with patience, which costs no system call.
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::num::NonZeroU64;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use block::{ByteLength, ByteOffset, ByteRange, Patience};
use rustix::fs::{Advice, FallocateFlags, OFlags};
use rustix::io::{Errno, ReadWriteFlags};

use super::{Storage, StorageError, WritableStorage, check_inside};

/// Of one call of posix_fadvise(2) the kernel reads no more than the largest request of the disk or the size of its
/// read-ahead, whichever is more, and forgets the rest without a word. Of today's disks the lesser of those is 512 KiB.
const ADVICE_BYTES: u64 = 512 << 10;

/// A regular file or block device.
#[derive(Debug)]
pub struct FileStorage {
    file: Arc<File>,
    len: AtomicU64,
    is_regular: bool,
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
        Self::open_with(path, File::options().read(true))
    }

    /// Opens the file at `path` for reading, if it is a regular file itself: a symbolic link is not followed, a device
    /// is not opened.
    ///
    /// # Errors
    /// [`FileStorageError`].
    pub(crate) fn open_regular(path: &Path) -> Result<Self, FileStorageError> {
        let storage = Self::open_flagged(path, File::options().read(true), OFlags::NOFOLLOW)?;
        if !storage.is_regular {
            return Err(FileStorageError::NotAFile { found: "a block device" });
        }
        Ok(storage)
    }

    /// Opens the file at `path`, which is there, for reading and writing.
    ///
    /// # Errors
    /// [`FileStorageError`].
    pub fn open_writable(path: &Path) -> Result<Self, FileStorageError> {
        Self::open_with(path, File::options().read(true).write(true))
    }

    /// Creates an empty file at `path`, where there must be nothing.
    ///
    /// # Errors
    /// [`FileStorageError`].
    pub fn create_new(path: &Path) -> Result<Self, FileStorageError> {
        Self::open_with(path, File::options().read(true).write(true).create_new(true))
    }

    fn open_with(path: &Path, options: &mut std::fs::OpenOptions) -> Result<Self, FileStorageError> {
        Self::open_flagged(path, options, OFlags::empty())
    }

    fn open_flagged(
        path: &Path,
        options: &mut std::fs::OpenOptions,
        flags: OFlags,
    ) -> Result<Self, FileStorageError> {
        // Without O_NONBLOCK the opening of a named pipe would wait for a writer; files and disks ignore it.
        let flags = i32::try_from((flags | OFlags::NONBLOCK).bits()).unwrap_or_default();
        let file = options.custom_flags(flags).open(path).map_err(FileStorageError::Access)?;
        Self::of_file(file)
    }

    /// The open file, which was opened without waiting.
    pub(crate) fn of_file(file: File) -> Result<Self, FileStorageError> {
        let metadata = file.metadata().map_err(FileStorageError::Access)?;
        let kind = metadata.file_type();
        let len = if kind.is_file() {
            metadata.len()
        } else if kind.is_block_device() {
            let end = rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0));
            end.map_err(|errno| FileStorageError::Access(errno.into()))?
        } else {
            let found = if kind.is_dir() { "a directory" } else { "a special file" };
            return Err(FileStorageError::NotAFile { found });
        };
        let always_waits = AtomicBool::new(false);
        Ok(Self { file: Arc::new(file), len: AtomicU64::new(len), is_regular: kind.is_file(), always_waits })
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

    /// How long the file is now, whatever it was.
    fn present_len(&self) -> u64 {
        let present = self.file.metadata().ok().filter(|_| self.is_regular);
        present.map_or(self.len().get(), |metadata| metadata.len())
    }

    fn read_patiently(&self, at: ByteOffset, buffer: &mut [u8]) -> Result<(), StorageError> {
        self.fill(at, buffer, |rest, place| rustix::io::pread(&self.file, rest, place))
    }

    /// For file systems without holes.
    fn write_zeros(&self, range: ByteRange) -> Result<(), StorageError> {
        const ZEROS: &[u8] = &[0; 64 << 10];
        let mut at = range.start();
        while at < range.end() {
            let left = range.end().get().saturating_sub(at.get());
            let count = usize::try_from(left).unwrap_or(usize::MAX).min(ZEROS.len());
            self.write_at(at, ZEROS.get(..count).unwrap_or(ZEROS))?;
            at = ByteOffset::new(at.get().saturating_add(u64::try_from(count).unwrap_or_default()));
        }
        Ok(())
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
                Ok(0) => return Err(StorageError::EndOfFile { at, wanted, len: self.present_len() }),
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
        ByteLength::new(self.len.load(Ordering::Acquire))
    }

    fn file(&self) -> Option<&Arc<File>> {
        Some(&self.file)
    }

    fn read_at(&self, at: ByteOffset, buffer: &mut [u8], patience: Patience) -> Result<(), StorageError> {
        check_inside(at, buffer.len(), self.len())?;
        match patience {
            Patience::Now => self.read_cached(at, buffer),
            Patience::Blocking => self.read_patiently(at, buffer),
        }
    }

    fn will_read(&self, range: ByteRange) {
        let end = range.end().get();
        let mut at = range.start().get();
        while at < end {
            let length = end.saturating_sub(at).min(ADVICE_BYTES);
            // Advice: who reads finds out what is wrong, and no advice is no worse than what was.
            let _ = rustix::fs::fadvise(&self.file, at, NonZeroU64::new(length), Advice::WillNeed);
            at = at.saturating_add(length);
        }
    }

    fn allocated(&self) -> Option<ByteLength> {
        if !self.is_regular {
            return None;
        }
        // st_blocks counts units of 512 bytes whatever the file system's own unit is: stat(2).
        self.file.metadata().ok()?.blocks().checked_mul(512).map(ByteLength::new)
    }
}

impl WritableStorage for FileStorage {
    fn write_at(&self, at: ByteOffset, data: &[u8]) -> Result<(), StorageError> {
        self.file.write_all_at(data, at.get()).map_err(|source| StorageError::Write { at, source })?;
        let end = at.get().saturating_add(u64::try_from(data.len()).unwrap_or(u64::MAX));
        self.len.fetch_max(end, Ordering::AcqRel);
        Ok(())
    }

    fn set_len(&self, len: ByteLength) -> Result<(), StorageError> {
        let at = ByteOffset::new(len.get());
        self.file.set_len(len.get()).map_err(|source| StorageError::Write { at, source })?;
        self.len.store(len.get(), Ordering::Release);
        Ok(())
    }

    fn punch(&self, range: ByteRange) -> Result<(), StorageError> {
        if range.is_empty() {
            return Ok(());
        }
        let (at, length) = (range.start(), range.length());
        check_inside(at, length.in_memory().unwrap_or(usize::MAX), self.len())?;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(&self.file, flags, at.get(), length.get()) {
            Ok(()) => Ok(()),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.write_zeros(range),
            Err(errno) => Err(StorageError::Write { at, source: errno.into() }),
        }
    }

    fn flush(&self) -> Result<(), StorageError> {
        // The length is metadata that a read needs: fdatasync writes it, too.
        self.file.sync_data().map_err(|source| StorageError::Write { at: ByteOffset::ZERO, source })
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
    fn written_bytes_are_read_back_and_a_punched_range_is_zeros() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new");
        let storage = FileStorage::create_new(&path).unwrap();
        assert!(FileStorage::create_new(&path).is_err(), "it is there already");
        let bytes = block::conformance::pattern(70_000);
        storage.write_at(ByteOffset::new(5), &bytes).unwrap();
        assert_eq!(storage.len().get(), 70_005);
        let range = |at, length| ByteRange::new(ByteOffset::new(at), ByteLength::new(length)).unwrap();
        storage.punch(range(100, 60_000)).unwrap();
        storage.flush().unwrap();
        assert!(storage.punch(range(70_000, 6)).is_err(), "behind the end");
        storage.set_len(ByteLength::new(65_000)).unwrap();
        let reopened = FileStorage::open_writable(&path).unwrap();
        let mut buffer = vec![1; 65_000];
        reopened.read_at(ByteOffset::ZERO, &mut buffer, Patience::Blocking).unwrap();
        assert_eq!(buffer[5..100], bytes[..95]);
        assert_eq!(buffer[100..60_100], [0; 60_000]);
        assert_eq!(buffer[60_100..], bytes[60_095..64_995]);
        let write = FileStorage::open(&path).unwrap().write_at(ByteOffset::ZERO, &[1]);
        assert!(matches!(write, Err(StorageError::Write { .. })), "opened for reading");
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
