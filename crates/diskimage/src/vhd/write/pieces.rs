//! A range of the disk, cut where blocks end.
use std::num::NonZeroU64;

use block::ByteRange;

/// The part of a range that lies in one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) block: u32,
    /// Where it begins, seen from the block's start.
    pub(super) within: u64,
    /// How long it is, in bytes. Not zero.
    pub(super) length: u64,
}

/// The pieces of `range`, in their order. The disk has no more blocks than a table can have.
pub(super) fn pieces(range: ByteRange, block_bytes: NonZeroU64) -> impl Iterator<Item = Piece> {
    let end = range.end().get();
    let mut at = range.start().get();
    std::iter::from_fn(move || {
        let left = end.checked_sub(at).filter(|&left| left > 0)?;
        let (block, within) = (at / block_bytes, at % block_bytes);
        let length = block_bytes.get().saturating_sub(within).min(left);
        at = at.saturating_add(length);
        Some(Piece { block: u32::try_from(block).ok()?, within, length })
    })
}

impl Piece {
    /// All of the piece but its first `bytes` bytes; `None` if nothing is left.
    pub(super) fn behind(self, bytes: u64) -> Option<Self> {
        let length = self.length.checked_sub(bytes).filter(|&length| length > 0)?;
        Some(Self { within: self.within.saturating_add(bytes), length, ..self })
    }
}

#[cfg(test)]
mod tests {
    use block::{ByteLength, ByteOffset};

    use super::*;

    #[test]
    fn range_is_cut_where_blocks_end() {
        let range = ByteRange::new(ByteOffset::new(3000), ByteLength::new(6000)).unwrap();
        let cut: Vec<_> = pieces(range, NonZeroU64::new(4096).unwrap()).collect();
        let piece = |block, within, length| Piece { block, within, length };
        assert_eq!(cut, [piece(0, 3000, 1096), piece(1, 0, 4096), piece(2, 0, 808)]);
        assert_eq!(cut[0].behind(1000), Some(piece(0, 4000, 96)));
        assert_eq!(cut[0].behind(1096), None);
    }
}
