//! A file that is written no more once a flush has failed.
//!
//! After a failed flush nobody knows what of the earlier writes has reached the disk: the kernel may have thrown the
//! pages away and called them clean, and the next flush succeeds without them. Whoever went on would build on bytes
//! that are not there. So the file is left as a crash would leave it, and opening it again repairs it.
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use block::{ByteLength, ByteOffset, ByteRange, Patience};

use crate::storage::{Storage, StorageError, WritableStorage};

/// Passes everything on until a flush fails; from then on only reads.
#[derive(Debug)]
pub(super) struct Stopping {
    under: Box<dyn WritableStorage>,
    stopped: AtomicBool,
}

impl Stopping {
    pub(super) fn new(under: Box<dyn WritableStorage>) -> Self {
        Self { under, stopped: AtomicBool::new(false) }
    }

    fn check(&self, at: ByteOffset) -> Result<(), StorageError> {
        if !self.stopped.load(Ordering::Acquire) {
            return Ok(());
        }
        let reason = "an earlier flush failed, so nothing more is written; close the image and open it again";
        Err(StorageError::Write { at, source: io::Error::other(reason) })
    }
}

impl Storage for Stopping {
    fn len(&self) -> ByteLength {
        self.under.len()
    }

    fn file(&self) -> Option<&Arc<File>> {
        self.under.file()
    }

    fn read_at(&self, at: ByteOffset, buffer: &mut [u8], patience: Patience) -> Result<(), StorageError> {
        self.under.read_at(at, buffer, patience)
    }

    fn allocated(&self) -> Option<ByteLength> {
        self.under.allocated()
    }
}

impl WritableStorage for Stopping {
    fn write_at(&self, at: ByteOffset, data: &[u8]) -> Result<(), StorageError> {
        self.check(at)?;
        self.under.write_at(at, data)
    }

    fn set_len(&self, len: ByteLength) -> Result<(), StorageError> {
        self.check(ByteOffset::new(len.get()))?;
        self.under.set_len(len)
    }

    fn punch(&self, range: ByteRange) -> Result<(), StorageError> {
        self.check(range.start())?;
        self.under.punch(range)
    }

    fn flush(&self) -> Result<(), StorageError> {
        self.check(ByteOffset::ZERO)?;
        self.under.flush().inspect_err(|_| self.stopped.store(true, Ordering::Release))
    }
}
