//! Where a run of a disk's bytes comes from.
use block::{ByteLength, ByteOffset, ByteRange};

/// A run of the disk that comes from one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The run, in bytes of the disk. Not empty.
    pub range: ByteRange,
    /// Where its bytes come from.
    pub source: Source,
}

/// Where a run's bytes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Nothing is stored: the run reads as zeros.
    Zero,
    /// The run lies in the image file.
    File {
        /// The place of its first byte in the file.
        at: ByteOffset,
    },
    /// The run belongs at a place in the image file that still holds older bytes: its own lie in the file's log,
    /// which was replayed into memory.
    Replayed {
        /// The place in the file where the log puts its first byte.
        at: ByteOffset,
    },
}

impl Extent {
    /// The first `length` bytes of `range`, or all of it if it is shorter, from `source`.
    pub(crate) fn head_of(range: ByteRange, length: u64, source: Source) -> Self {
        let length = ByteLength::new(length.min(range.length().get()));
        // A head of a range is a range.
        Self { range: ByteRange::new(range.start(), length).unwrap_or(range), source }
    }
}
