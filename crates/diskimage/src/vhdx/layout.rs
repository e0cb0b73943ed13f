//! Which entry of the block allocation table is whose ([MS-VHDX] §2.5), and what an entry says.
//!
//! Payload blocks come in chunks. A chunk has as many as one sector bitmap block has bits for: 2^23 sectors. After the
//! entries of a chunk's payload blocks stands that of its sector bitmap block, in every file, also in those that have
//! no parent and so no sector bitmaps.
use std::fmt;
use std::num::NonZeroU64;

use block::ByteRange;

use super::region::Region;
use super::{MIB, Metadata};
use crate::error::Damage;

/// A sector bitmap block has 2^23 bits, one for each sector of its chunk ([MS-VHDX] §2.4.2).
const SECTORS_PER_CHUNK: u64 = 1 << 23;

/// What the lowest three bits of an entry say ([MS-VHDX] §2.5.1.1, §2.5.1.2).
pub(super) mod state {
    pub(in super::super) const NOT_PRESENT: u64 = 0;
    pub(in super::super) const ZERO: u64 = 2;
    pub(in super::super) const UNMAPPED: u64 = 3;
    pub(in super::super) const FULLY_PRESENT: u64 = 6;
    pub(in super::super) const PARTIALLY_PRESENT: u64 = 7;
}

/// How the table of an image is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BatLayout {
    block_bytes: NonZeroU64,
    sector_bytes: NonZeroU64,
    chunk_ratio: NonZeroU64,
    virtual_bytes: u64,
    is_differencing: bool,
}

/// Whose an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    /// Of this payload block.
    Payload(u64),
    /// Of the sector bitmap block of this chunk.
    Bitmap(u64),
}

/// The part of a range that lies in one payload block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) block: u64,
    /// From the start of the block, in bytes.
    pub(super) within: u64,
    pub(super) length: u64,
}

impl fmt::Display for Slot {
    /// What the entry stands for.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Payload(block) => write!(f, "payload block {block}"),
            Self::Bitmap(chunk) => write!(f, "the sector bitmap block of chunk {chunk}"),
        }
    }
}

impl BatLayout {
    pub(super) fn of(metadata: &Metadata) -> Self {
        let block_bytes = NonZeroU64::new(u64::from(metadata.block_bytes)).unwrap_or(NonZeroU64::MIN);
        let sector_bytes = NonZeroU64::new(metadata.logical_block.bytes()).unwrap_or(NonZeroU64::MIN);
        let chunk_bytes = SECTORS_PER_CHUNK.saturating_mul(sector_bytes.get());
        Self {
            block_bytes,
            sector_bytes,
            chunk_ratio: NonZeroU64::new(chunk_bytes / block_bytes).unwrap_or(NonZeroU64::MIN),
            virtual_bytes: metadata.virtual_bytes,
            is_differencing: metadata.parent.is_some(),
        }
    }

    /// The layout of a disk of another size.
    pub(super) fn resized(&self, virtual_bytes: u64) -> Self {
        Self { virtual_bytes, ..*self }
    }

    /// How many payload blocks the disk has.
    pub(super) fn blocks(&self) -> u64 {
        self.virtual_bytes.div_ceil(self.block_bytes.get())
    }

    /// How many entries the table has: of a file with a parent all entries of the last chunk, else none behind that of
    /// the last payload block ([MS-VHDX] §2.5).
    pub(super) fn entries(&self) -> u64 {
        let blocks = self.blocks();
        if self.is_differencing {
            blocks.div_ceil(self.chunk_ratio.get()).saturating_mul(self.stride().get())
        } else {
            blocks.saturating_add(blocks.saturating_sub(1) / self.chunk_ratio)
        }
    }

    /// How long the table's region is: whole MiB.
    pub(super) fn region_bytes(&self) -> u64 {
        self.entries().saturating_mul(8).next_multiple_of(MIB)
    }

    /// Which entry is that of payload block `block`.
    pub(super) fn index_of(&self, block: u64) -> u64 {
        block.saturating_add(block / self.chunk_ratio)
    }

    /// Which entry is that of the sector bitmap of chunk `chunk`.
    pub(super) fn index_of_bitmap(&self, chunk: u64) -> u64 {
        chunk.saturating_mul(self.stride().get()).saturating_add(self.chunk_ratio.get())
    }

    /// The chunk to which payload block `block` belongs.
    pub(super) fn chunk_of(&self, block: u64) -> u64 {
        block / self.chunk_ratio
    }

    /// Whose the entry at `index` is. Behind the disk's end there are slots of payload blocks that it does not have.
    pub(super) fn slot(&self, index: u64) -> Slot {
        let (chunk, place) = (index / self.stride(), index % self.stride());
        if place == self.chunk_ratio.get() {
            Slot::Bitmap(chunk)
        } else {
            Slot::Payload(index.saturating_sub(chunk))
        }
    }

    pub(super) fn block_bytes(&self) -> NonZeroU64 {
        self.block_bytes
    }

    pub(super) fn sector_bytes(&self) -> NonZeroU64 {
        self.sector_bytes
    }

    pub(super) fn virtual_bytes(&self) -> u64 {
        self.virtual_bytes
    }

    /// Whether the file has a parent.
    pub(super) fn is_differencing(&self) -> bool {
        self.is_differencing
    }

    /// The part with which `range` begins.
    pub(super) fn part(&self, range: ByteRange) -> Part {
        let start = range.start().get();
        let (block, within) = (start / self.block_bytes, start % self.block_bytes);
        let left = self.block_bytes.get().saturating_sub(within);
        Part { block, within, length: left.min(range.length().get()) }
    }

    /// That the table is longer than its region.
    pub(super) fn does_not_fit(&self, region: Region) -> Damage {
        let problem = format!(
            "a table of {} entries for {} blocks does not fit into {} bytes",
            self.entries(),
            self.blocks(),
            region.length
        );
        Damage::new("BAT region", region.at, "[MS-VHDX] §2.5", problem)
    }

    /// How many bytes of the disk payload block `block` has: the last block may have fewer than the others.
    pub(super) fn used_bytes(&self, block: u64) -> u64 {
        let before = block.saturating_mul(self.block_bytes.get());
        self.virtual_bytes.saturating_sub(before).min(self.block_bytes.get())
    }

    /// How many sectors of the disk payload block `block` has.
    pub(super) fn sectors_in(&self, block: u64) -> u64 {
        self.used_bytes(block) / self.sector_bytes
    }

    /// How many bytes the bits of a payload block take in its sector bitmap block. At least 32: a block of 1 MiB in
    /// sectors of 4096 bytes.
    pub(super) fn bitmap_bytes(&self) -> u64 {
        self.block_bytes.get() / self.sector_bytes / 8
    }

    /// Where in its sector bitmap block the bits of payload block `block` begin, in bytes.
    pub(super) fn bitmap_offset(&self, block: u64) -> u64 {
        (block % self.chunk_ratio).saturating_mul(self.bitmap_bytes())
    }

    fn stride(&self) -> NonZeroU64 {
        self.chunk_ratio.saturating_add(1)
    }
}

/// The bits of the sectors that the disk has, and whether all of those are set.
pub(super) fn within_disk(held: &[u8], sectors: u64) -> (Vec<u8>, bool) {
    let mut bits = held.to_vec();
    let mut is_full = true;
    for (first, byte) in (0_u64..).step_by(8).zip(&mut bits) {
        let valid = match sectors.saturating_sub(first) {
            0 => 0,
            left @ 1..=7 => 0xFF_u8 >> 8_u64.saturating_sub(left),
            _ => 0xFF,
        };
        *byte &= valid;
        is_full &= *byte == valid;
    }
    (bits, is_full)
}

#[cfg(test)]
mod tests {
    use block::LogicalBlockSize;

    use super::*;
    use crate::guid::Guid;

    fn layout(sector: LogicalBlockSize, block_bytes: u32, virtual_bytes: u64) -> BatLayout {
        let metadata = Metadata::new(block_bytes, false, virtual_bytes, Guid::NIL, (sector, 4096), None);
        BatLayout::of(&metadata)
    }

    #[test]
    fn entries_of_sector_bitmaps_stand_behind_those_of_their_chunk() {
        // 4 GiB of 512-byte sectors are a chunk of 128 blocks of 32 MiB.
        let layout = layout(LogicalBlockSize::B512, 32 << 20, 9 << 30);
        assert_eq!((layout.blocks(), layout.entries()), (288, 290));
        assert_eq!([0, 127, 128, 256].map(|block| layout.index_of(block)), [0, 127, 129, 258]);
        assert_eq!([0, 1].map(|chunk| layout.index_of_bitmap(chunk)), [128, 257]);
        for index in 0..400 {
            match layout.slot(index) {
                Slot::Payload(block) => assert_eq!(layout.index_of(block), index),
                Slot::Bitmap(chunk) => assert_eq!(layout.index_of_bitmap(chunk), index),
            }
        }
        let child = BatLayout { is_differencing: true, ..layout };
        assert_eq!(child.entries(), 3 * 129);
    }

    #[test]
    fn bits_of_a_block_lie_where_its_sectors_are_counted() {
        let layout = layout(LogicalBlockSize::B4096, 1 << 20, (40 << 30) + 8192);
        assert_eq!(
            (layout.bitmap_bytes(), layout.bitmap_offset(1), layout.bitmap_offset(32768)),
            (32, 32, 0)
        );
        assert_eq!((layout.sectors_in(0), layout.sectors_in(40 << 10)), (256, 2));
    }

    #[test]
    fn largest_table_has_513_mib() {
        let layout = layout(LogicalBlockSize::B512, 1 << 20, 64 << 40);
        assert_eq!(layout.region_bytes(), 513 << 20);
    }
}
