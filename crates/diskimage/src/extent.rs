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

/// Where a run's bytes come from. Read them through [`Image`](crate::Image), whatever the source; `File` alone is a
/// place from which they may also be taken without it.
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
    /// The run lies in a file compressed, or else not byte for byte: only the image itself can read it.
    Encoded {
        /// In which file.
        layer: LayerIndex,
    },
}

/// A run of the disk as one file of a chain has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LayerExtent {
    /// The run, in bytes of the disk. Not empty.
    pub(crate) range: ByteRange,
    pub(crate) held: Held,
}

/// What one file says of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// It reads as zeros, whatever a parent holds.
    Zero,
    /// It lies in this file, from here on.
    File { at: u64 },
    /// It belongs here in this file, but lies in the file's log.
    Replayed { at: u64 },
    /// It lies in this file in a form that only the reader of its format can make bytes of.
    Encoded,
    /// The parent tells. Only a differencing image says so.
    Parent,
}

impl Held {
    /// What continues this run `bytes` further on: only then are two pieces one extent.
    pub(crate) fn advanced(self, bytes: u64) -> Self {
        match self {
            Self::File { at } => Self::File { at: at.saturating_add(bytes) },
            Self::Replayed { at } => Self::Replayed { at: at.saturating_add(bytes) },
            Self::Zero | Self::Encoded | Self::Parent => self,
        }
    }
}

impl LayerExtent {
    /// The first `length` bytes of `range`, or all of it if it is shorter.
    pub(crate) fn head_of(range: ByteRange, length: u64, held: Held) -> Self {
        Self { range: head_of(range, length), held }
    }

    /// As the extent of an image, of which this is the layer `layer`. What would be the parent's is zeros: who calls
    /// this has asked the parents, or there are none.
    pub(crate) fn in_layer(self, layer: LayerIndex) -> Extent {
        let source = match self.held {
            Held::Zero | Held::Parent => Source::Zero,
            Held::File { at } => Source::File { layer, at: ByteOffset::new(at) },
            Held::Replayed { at } => Source::Replayed { layer, at: ByteOffset::new(at) },
            Held::Encoded => Source::Encoded { layer },
        };
        Extent { range: self.range, source }
    }
}

/// The first `length` bytes of `range`, or all of it if it is shorter.
pub(crate) fn head_of(range: ByteRange, length: u64) -> ByteRange {
    let length = ByteLength::new(length.min(range.length().get()));
    // A head of a range is a range.
    ByteRange::new(range.start(), length).unwrap_or(range)
}

/// What of `range` lies from `from` on.
pub(crate) fn tail_of(range: ByteRange, from: ByteOffset) -> ByteRange {
    let length = ByteLength::new(range.end().get().saturating_sub(from.get()));
    ByteRange::new(from, length).unwrap_or(range)
}
