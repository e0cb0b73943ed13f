//! Files as image formats see them: bytes at places, with the caller's patience.
//!
//! [`Storage`] is the reading side, all that images opened for reading need. [`WritableStorage`] adds the writing
//! side; its operations always wait. What is written may be lost or arrive in any order until a flush has returned:
//! a format that promises more keeps an order of its own, and [`CrashStorage`] shows whether it does.
use std::fmt;
use std::fs::File;
use std::io;
use std::sync::Arc;

use block::{ByteLength, ByteOffset, ByteRange, Patience};

mod crash;
mod edit_lock;
mod file;
mod joined;
mod memory;

pub use crash::{CrashStorage, Event, Survival};
pub(crate) use edit_lock::unlock;
pub use edit_lock::{EditLock, ReadLock};
pub use file::{FileStorage, FileStorageError};
pub(crate) use joined::JoinedStorage;
pub use memory::MemoryStorage;

/// A file that is read at places. Unless it is written through [`WritableStorage`] by who reads it, its bytes and
/// its length do not change while it is open.
pub trait Storage: fmt::Debug + Send + Sync {
    /// How long the file is.
    fn len(&self) -> ByteLength;

    /// The operating system's file, where the bytes of this storage are the bytes of one: what `sendfile` and
    /// cloning start from.
    fn file(&self) -> Option<&Arc<File>> {
        None
    }

    /// Whether there is no byte in it.
    fn is_empty(&self) -> bool {
        self.len() == ByteLength::ZERO
    }

    /// Fills all of `buffer` with the bytes from `at` on.
    ///
    /// # Errors
    /// [`StorageError`]; the buffer's contents are then unspecified.
    fn read_at(&self, at: ByteOffset, buffer: &mut [u8], patience: Patience) -> Result<(), StorageError>;

    /// Says that the range will be read soon, so that what is not in memory can be on its way. Returns before it is
    /// there; where that is not possible, or the range reaches behind the end, nothing happens.
    fn will_read(&self, range: ByteRange) {
        let _ = range;
    }

    /// How much of the file takes space, where that can be known cheaply.
    fn allocated(&self) -> Option<ByteLength> {
        None
    }
}

/// A file that is also written at places. Writes to places that no other write touches may run at once on several
/// threads.
pub trait WritableStorage: Storage {
    /// Stores all of `data` from `at` on. The file grows where it must; what lies between its old end and `at` reads
    /// as zeros.
    ///
    /// # Errors
    /// [`StorageError`]; any part of `data` may have been stored.
    fn write_at(&self, at: ByteOffset, data: &[u8]) -> Result<(), StorageError>;

    /// Makes the file `len` bytes long. What it gains reads as zeros.
    ///
    /// # Errors
    /// [`StorageError`]; the length is then as it was.
    fn set_len(&self, len: ByteLength) -> Result<(), StorageError>;

    /// Makes the range, which lies in the file, read as zeros, and gives its space back where the file system can.
    ///
    /// # Errors
    /// [`StorageError`]; any part of the range may have become zeros.
    fn punch(&self, range: ByteRange) -> Result<(), StorageError>;

    /// Makes lasting what was written, and the length.
    ///
    /// # Errors
    /// [`StorageError`]. Nothing is known then of what was written since the last flush that succeeded, and a second
    /// flush that succeeds proves nothing: who must know, stops.
    fn flush(&self) -> Result<(), StorageError>;
}

impl<S: Storage + ?Sized> Storage for Arc<S> {
    fn len(&self) -> ByteLength {
        S::len(self)
    }

    fn file(&self) -> Option<&Arc<File>> {
        S::file(self)
    }

    fn read_at(&self, at: ByteOffset, buffer: &mut [u8], patience: Patience) -> Result<(), StorageError> {
        S::read_at(self, at, buffer, patience)
    }

    fn will_read(&self, range: ByteRange) {
        S::will_read(self, range);
    }

    fn allocated(&self) -> Option<ByteLength> {
        S::allocated(self)
    }
}

impl<S: WritableStorage + ?Sized> WritableStorage for Arc<S> {
    fn write_at(&self, at: ByteOffset, data: &[u8]) -> Result<(), StorageError> {
        S::write_at(self, at, data)
    }

    fn set_len(&self, len: ByteLength) -> Result<(), StorageError> {
        S::set_len(self, len)
    }

    fn punch(&self, range: ByteRange) -> Result<(), StorageError> {
        S::punch(self, range)
    }

    fn flush(&self) -> Result<(), StorageError> {
        S::flush(self)
    }
}

/// Why bytes of a file could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// Only with [`Patience::Now`]: the bytes are not in memory.
    #[error("this would have to wait for storage")]
    WouldBlock,
    /// The file ends before the bytes that were asked for.
    #[error("the file is cut short: it ends after {len} bytes, before the end of the {wanted} bytes at {at}")]
    EndOfFile {
        /// Where the read began.
        at: ByteOffset,
        /// How many bytes were asked for.
        wanted: usize,
        /// How long the file is.
        len: u64,
    },
    /// The operating system answered a write, a change of the length or a flush with an error.
    #[error("the file cannot be written at {at}")]
    Write {
        /// Where the write began; the start of the file, of a flush.
        at: ByteOffset,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// The operating system answered a read with an error.
    #[error("the file cannot be read at {at}")]
    Io {
        /// Where the read began.
        at: ByteOffset,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
}

/// Whether `wanted` bytes from `at` lie in a file of `len` bytes.
pub(crate) fn check_inside(at: ByteOffset, wanted: usize, len: ByteLength) -> Result<(), StorageError> {
    let end = u64::try_from(wanted).ok().and_then(|wanted| at.get().checked_add(wanted));
    match end {
        Some(end) if end <= len.get() => Ok(()),
        _ => Err(StorageError::EndOfFile { at, wanted, len: len.get() }),
    }
}
