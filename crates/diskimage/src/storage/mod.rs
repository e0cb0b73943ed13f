//! Files as image formats see them: bytes at places, with the caller's patience.
use std::fmt;
use std::io;

use block::{ByteLength, ByteOffset, Patience};

mod file;
mod memory;

pub use file::{FileStorage, FileStorageError};
pub use memory::MemoryStorage;

/// A file that is read at places. Its bytes and its length do not change while it is open.
pub trait Storage: fmt::Debug + Send + Sync {
    /// How long the file is.
    fn len(&self) -> ByteLength;

    /// Whether there is no byte in it.
    fn is_empty(&self) -> bool {
        self.len() == ByteLength::ZERO
    }

    /// Fills all of `buffer` with the bytes from `at` on.
    ///
    /// # Errors
    /// [`StorageError`]; the buffer's contents are then unspecified.
    fn read_at(&self, at: ByteOffset, buffer: &mut [u8], patience: Patience) -> Result<(), StorageError>;

    /// How much of the file takes space, where that can be known cheaply.
    fn allocated(&self) -> Option<ByteLength> {
        None
    }
}

/// Why bytes of a file could not be read.
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
    /// The operating system answered with an error.
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
