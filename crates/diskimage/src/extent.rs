//! Where a run of a disk's bytes comes from.
use std::fmt;

use block::{ByteLength, ByteOffset, ByteRange};

/// Which file of an image's chain: 0 is the base, the last one the leaf. An image without a parent is layer 0 alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LayerIndex(u16);

impl LayerIndex {
    /// The base.
    pub const BASE: Self = Self(0);

    /// The layer `index` files above the base.
    #[must_use]
    pub const fn new(index: u16) -> Self {
        Self(index)
    }

    /// How many files above the base.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl fmt::Display for LayerIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

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
    /// The run lies in a file of the image, byte for byte.
    File {
        /// In which.
        layer: LayerIndex,
        /// The place of its first byte in the file.
        at: ByteOffset,
    },
    /// The run belongs at a place in the image file that still holds older bytes: its own lie in the file's log,
    /// which was replayed into memory.
    Replayed {
        /// In which file.
        layer: LayerIndex,
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
