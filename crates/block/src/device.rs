//! The contract as a trait. Its terms stand in the crate's documentation.
use std::fmt;
use std::fs::File;
use std::sync::Arc;

use crate::error::BlockError;
use crate::units::{ByteLength, ByteOffset, ByteRange, LogicalBlockSize};

/// Whether an operation may wait. See the crate's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// Do it without waiting for storage, or answer [`BlockError::WouldBlock`] and change nothing.
    Now,
    /// Wait as long as it takes.
    Blocking,
}

/// Whether a device takes writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Writes, discards and zeroing are refused with [`BlockError::ReadOnly`]; a flush succeeds.
    ReadOnly,
    /// All operations.
    ReadWrite,
}

/// What a device is like. Does not change while it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// A whole number of logical blocks.
    pub size: ByteLength,
    /// The unit of addressing.
    pub logical_block: LogicalBlockSize,
    /// The smallest write that needs no read-modify-write below, in bytes: a power of two, at least the logical
    /// block.
    pub physical_block: u32,
    /// The smallest aligned run whose discard frees space, in bytes: a power of two; `None` where discard does
    /// nothing.
    pub discard_granularity: Option<u32>,
    /// Whether writes are taken.
    pub access: Access,
}

impl Geometry {
    /// Checks the caller's side of the contract and gives the range as a value.
    ///
    /// # Errors
    /// [`BlockError::OutOfRange`] or [`BlockError::Unaligned`].
    pub fn check(&self, at: ByteOffset, length: ByteLength) -> Result<ByteRange, BlockError> {
        let out_of_range = |range| BlockError::OutOfRange { range, size: self.size };
        let Some(range) = ByteRange::new(at, length) else {
            // Not representable: report the longest range that starts there.
            let rest = ByteLength::new(u64::MAX.saturating_sub(at.get()));
            return Err(ByteRange::new(at, rest).map_or(BlockError::Closed, out_of_range));
        };
        if range.end().get() > self.size.get() {
            return Err(out_of_range(range));
        }
        if !range.is_aligned(self.logical_block.bytes()) {
            return Err(BlockError::Unaligned { range, block_size: self.logical_block });
        }
        Ok(range)
    }

    /// As [`check`](Self::check), for an operation that changes the device.
    ///
    /// # Errors
    /// Those of `check`, and [`BlockError::ReadOnly`].
    pub fn check_writable(&self, at: ByteOffset, length: ByteLength) -> Result<ByteRange, BlockError> {
        match self.access {
            Access::ReadOnly => Err(BlockError::ReadOnly),
            Access::ReadWrite => self.check(at, length),
        }
    }
}

/// How a run of a device is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// Space is taken for it.
    Data,
    /// Space is taken for it, and it reads as zeros.
    Zero,
    /// No space is taken for it, and it reads as zeros.
    Hole,
}

/// Where the bytes of a run lie in a file of the operating system, one after the other: for `sendfile`.
#[derive(Clone, Debug)]
pub struct FileSpan {
    /// The file.
    pub file: Arc<File>,
    /// The place of the run's first byte in it.
    pub at: ByteOffset,
    /// How long the run is. Not empty.
    pub length: ByteLength,
}

/// A block device. The two sides of the contract, and how waiting crosses it, are written in the crate's
/// documentation; [`conformance`](crate::conformance) holds every implementation to them.
pub trait BlockDevice: fmt::Debug + Send + Sync {
    /// What the device is like.
    fn geometry(&self) -> Geometry;

    /// Fills `buffer` with the bytes from `at` on.
    ///
    /// # Errors
    /// Any [`BlockError`]; the buffer's contents are then unspecified.
    fn read(&self, at: ByteOffset, buffer: &mut [u8], patience: Patience) -> Result<(), BlockError>;

    /// Stores `data` from `at` on.
    ///
    /// # Errors
    /// Any [`BlockError`].
    fn write(&self, at: ByteOffset, data: &[u8], patience: Patience) -> Result<(), BlockError>;

    /// Makes what was acknowledged before lasting, as far as this kind of device promises.
    ///
    /// # Errors
    /// Any [`BlockError`] but `ReadOnly`, `OutOfRange` and `Unaligned`.
    fn flush(&self, patience: Patience) -> Result<(), BlockError>;

    /// Says that the contents of the range are not needed any more.
    ///
    /// # Errors
    /// Any [`BlockError`].
    fn discard(&self, range: ByteRange, patience: Patience) -> Result<(), BlockError>;

    /// Makes the range read as zeros, without storing them where that can be had.
    ///
    /// # Errors
    /// Any [`BlockError`].
    fn write_zeroes(&self, range: ByteRange, patience: Patience) -> Result<(), BlockError>;

    /// How the start of `range`, which is not empty, is stored, and how many bytes of it are stored that way (at least
    /// a logical block, at most the range). Ask again for the rest.
    ///
    /// A device that does not know calls everything data. The answer holds until the range is changed.
    ///
    /// # Errors
    /// Those of a read.
    fn allocation(&self, range: ByteRange, _: Patience) -> Result<(Allocation, ByteLength), BlockError> {
        let range = self.geometry().check(range.start(), range.length())?;
        Ok((Allocation::Data, range.length()))
    }

    /// Where the start of `range`, which is not empty, lies in a file whose bytes there do not change while the device
    /// is open; `None` where it does not lie in such a file, or that cannot be told with this patience. Whoever asks
    /// falls back on [`read`](Self::read), for as much as it likes of the range, and asks again for the rest.
    ///
    /// With [`Patience::Now`], the span is one whose pages were in memory when it was asked for, as far as the device
    /// can tell.
    fn file_span(&self, _range: ByteRange, _patience: Patience) -> Option<FileSpan> {
        None
    }
}
