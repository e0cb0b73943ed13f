//! The numbers of an image that say which entry of the block allocation table and which bits of a sector bitmap
//! belong to what of the disk ([MS-VHDX] §2.4, §2.5).
use std::num::NonZeroU64;

use block::ByteRange;

use super::super::Metadata;
use super::super::region::Region;

/// A sector bitmap block has 2^23 bits, one for each sector of its chunk ([MS-VHDX] §2.4.2).
const SECTORS_PER_CHUNK: u64 = 1 << 23;
const ENTRY_BYTES: u64 = 8;

/// How disk and file are divided.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) block_bytes: NonZeroU64,
    pub(super) sector_bytes: NonZeroU64,
    pub(super) virtual_bytes: u64,
    pub(super) has_parent: bool,
    /// Whether the image is of the fixed kind, whose blocks keep their places.
    pub(super) is_fixed: bool,
    pub(super) bat: Region,
    /// How many payload blocks a chunk has.
    ratio: NonZeroU64,
}

/// The part of a range that lies in one payload block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) block: u64,
    /// From the start of the block, in bytes.
    pub(super) within: u64,
    pub(super) length: u64,
}

impl Shape {
    pub(super) fn new(metadata: &Metadata, bat: Region) -> Self {
        let block_bytes = NonZeroU64::new(u64::from(metadata.block_bytes)).unwrap_or(NonZeroU64::MIN);
        let sector_bytes = NonZeroU64::new(metadata.logical_block.bytes()).unwrap_or(NonZeroU64::MIN);
        let chunk_bytes = SECTORS_PER_CHUNK.saturating_mul(sector_bytes.get());
        Self {
            block_bytes,
            sector_bytes,
            virtual_bytes: metadata.virtual_bytes,
            has_parent: metadata.parent.is_some(),
            is_fixed: metadata.leave_blocks_allocated,
            bat,
            ratio: NonZeroU64::new(chunk_bytes / block_bytes).unwrap_or(NonZeroU64::MIN),
        }
    }

    /// How many payload blocks the disk has.
    pub(super) fn blocks(&self) -> u64 {
        self.virtual_bytes.div_ceil(self.block_bytes.get())
    }

    /// How many entries the table has ([MS-VHDX] §2.5).
    pub(super) fn entries(&self) -> u64 {
        let blocks = self.blocks();
        if self.has_parent {
            blocks.div_ceil(self.ratio.get()).saturating_mul(self.ratio.get().saturating_add(1))
        } else {
            blocks.saturating_add(blocks.saturating_sub(1) / self.ratio)
        }
    }

    /// How long the table is, in bytes.
    pub(super) fn table_bytes(&self) -> u64 {
        self.entries().saturating_mul(ENTRY_BYTES)
    }

    /// Where in the file the entry of payload block `block` stands.
    pub(super) fn entry_at(&self, block: u64) -> u64 {
        self.entry_place(block.saturating_add(block / self.ratio))
    }

    /// Where in the file the entry stands of the sector bitmap block that `block` has its bits in.
    pub(super) fn bitmap_entry_at(&self, block: u64) -> u64 {
        let stride = self.ratio.get().saturating_add(1);
        let chunk = block / self.ratio;
        self.entry_place(chunk.saturating_mul(stride).saturating_add(self.ratio.get()))
    }

    /// Where in the file the entry at `index` of the table stands.
    pub(super) fn entry_place(&self, index: u64) -> u64 {
        self.bat.at.saturating_add(index.saturating_mul(ENTRY_BYTES))
    }

    /// Which payload block's the entry at `index` is; `None` where it is a sector bitmap block's.
    pub(super) fn block_of(&self, index: u64) -> Option<u64> {
        let stride = NonZeroU64::new(self.ratio.get().saturating_add(1)).unwrap_or(NonZeroU64::MIN);
        let (chunk, place) = (index / stride, index % stride);
        (place < self.ratio.get()).then(|| index.saturating_sub(chunk))
    }

    /// How many bytes of `block` the disk has.
    pub(super) fn used_bytes(&self, block: u64) -> u64 {
        let before = block.saturating_mul(self.block_bytes.get());
        self.virtual_bytes.saturating_sub(before).min(self.block_bytes.get())
    }

    /// Whether `part` is all that the disk has of its block.
    pub(super) fn is_whole(&self, part: Part) -> bool {
        part.within == 0 && part.length >= self.used_bytes(part.block)
    }

    /// The part with which `range` begins.
    pub(super) fn part(&self, range: ByteRange) -> Part {
        let start = range.start().get();
        let (block, within) = (start / self.block_bytes, start % self.block_bytes);
        let left = self.block_bytes.get().saturating_sub(within);
        Part { block, within, length: left.min(range.length().get()) }
    }

    /// The bits of `part` in the sector bitmap block of its chunk: first and behind-last.
    pub(super) fn bits(&self, part: Part) -> (u64, u64) {
        let per_block = self.block_bytes.get() / self.sector_bytes;
        let before = (part.block % self.ratio).saturating_mul(per_block);
        let first = before.saturating_add(part.within / self.sector_bytes);
        (first, first.saturating_add(part.length / self.sector_bytes))
    }

    /// All that the disk has of `block`.
    pub(super) fn whole(&self, block: u64) -> Part {
        Part { block, within: 0, length: self.used_bytes(block) }
    }

    /// All of `block`, also what lies behind the end of the disk.
    pub(super) fn block(&self, block: u64) -> Part {
        Part { block, within: 0, length: self.block_bytes.get() }
    }
}
