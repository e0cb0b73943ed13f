//! The numbers of an image that say which entry of the block allocation table and which bits of a sector bitmap
//! belong to what of the disk ([MS-VHDX] §2.4, §2.5).
use super::super::Metadata;
use super::super::layout::{BatLayout, Part, Slot};
use super::super::region::Region;

const ENTRY_BYTES: u64 = 8;

/// How disk and file are divided.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) layout: BatLayout,
    /// Whether the image is of the fixed kind, whose blocks keep their places.
    pub(super) is_fixed: bool,
    pub(super) bat: Region,
}

impl Shape {
    pub(super) fn new(metadata: &Metadata, bat: Region) -> Self {
        Self { layout: BatLayout::of(metadata), is_fixed: metadata.leave_blocks_allocated, bat }
    }

    /// Of a disk of another size, its table in the same place.
    pub(super) fn resized(&self, virtual_bytes: u64) -> Self {
        Self { layout: self.layout.resized(virtual_bytes), ..*self }
    }

    /// Of the same disk, its table in another region.
    pub(super) fn moved_to(&self, bat: Region) -> Self {
        Self { bat, ..*self }
    }

    /// How long the table is, in bytes.
    pub(super) fn table_bytes(&self) -> u64 {
        self.layout.entries().saturating_mul(ENTRY_BYTES)
    }

    /// Where in the file the byte behind the table is.
    pub(super) fn table_end(&self) -> u64 {
        self.entry_place(self.layout.entries())
    }

    /// Where in the file the entry of payload block `block` stands.
    pub(super) fn entry_at(&self, block: u64) -> u64 {
        self.entry_place(self.layout.index_of(block))
    }

    /// Where in the file the entry stands of the sector bitmap block that `block` has its bits in.
    pub(super) fn bitmap_entry_at(&self, block: u64) -> u64 {
        self.entry_place(self.layout.index_of_bitmap(self.layout.chunk_of(block)))
    }

    /// Where in the file the entry at `index` of the table stands.
    pub(super) fn entry_place(&self, index: u64) -> u64 {
        self.bat.at.saturating_add(index.saturating_mul(ENTRY_BYTES))
    }

    /// Which payload block's the entry at `index` is; `None` where it is a sector bitmap block's.
    pub(super) fn block_of(&self, index: u64) -> Option<u64> {
        match self.layout.slot(index) {
            Slot::Payload(block) => Some(block),
            Slot::Bitmap(_) => None,
        }
    }

    /// Whether `part` is all that the disk has of its block.
    pub(super) fn is_whole(&self, part: Part) -> bool {
        part.within == 0 && part.length >= self.layout.used_bytes(part.block)
    }

    /// The bits of `part` in the sector bitmap block of its chunk: first and behind-last.
    pub(super) fn bits(&self, part: Part) -> (u64, u64) {
        let sector_bytes = self.layout.sector_bytes();
        let before = self.layout.bitmap_offset(part.block).saturating_mul(8);
        let first = before.saturating_add(part.within / sector_bytes);
        (first, first.saturating_add(part.length / sector_bytes))
    }

    /// All that the disk has of `block`.
    pub(super) fn whole(&self, block: u64) -> Part {
        Part { block, within: 0, length: self.layout.used_bytes(block) }
    }

    /// All of `block`, also what lies behind the end of the disk.
    pub(super) fn block(&self, block: u64) -> Part {
        Part { block, within: 0, length: self.layout.block_bytes().get() }
    }
}
