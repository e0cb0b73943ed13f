//! The blocks of a dynamic image: from a range of the disk to an extent, by way of the block allocation table and
//! the block's bitmap.
//!
//! A block whose bitmap was seen to miss no sector is marked in the table's page, so that its later reads do not look
//! at the bitmap again: blocks in use are full, or nearly always.
use std::num::NonZeroU64;

use block::{ByteOffset, ByteRange, Patience};

use super::dynamic::HEADER_BYTES;
use super::{DynamicHeader, SECTOR_BYTES};
use crate::error::{Damage, Refusal, ResolveError};
use crate::extent::{Extent, LayerIndex, Source};
use crate::storage::Storage;
use crate::table::{Table, Width, claims_overlap, is_read_at_opening};

/// An entry of the table for a block that was never written.
const ABSENT: u64 = 0xFFFF_FFFF;
/// The mark of an entry whose block misses no sector.
const FULL: u64 = 1 << 63;
/// How much of a bitmap is looked at in one go: all of it in a block of 2 MiB.
const BITMAP_WINDOW_BYTES: u64 = 512;

const TABLE_RULE: &str = "[VHD] Block Allocation Table and Data Blocks";
const TABLE_NAME: &str = "block allocation table entry";

/// The blocks of an image.
#[derive(Debug)]
pub(super) struct Blocks {
    table: Table,
    block_bytes: NonZeroU64,
    bitmap_bytes: u64,
    virtual_bytes: u64,
    /// Behind the last byte that a block may have.
    end: u64,
    /// Where no block may lie: the structures, as first and behind-last byte.
    structures: [(u64, u64); 3],
}

impl Blocks {
    /// `header_at` is where `header` stands, `end` where the file's footer begins, or the file ends without one.
    pub(super) fn open(
        storage: &dyn Storage,
        header: &DynamicHeader,
        header_at: u64,
        virtual_bytes: u64,
        end: u64,
    ) -> Result<Self, Refusal> {
        let header_damage = |problem: String| {
            Refusal::from(Damage::new(
                "dynamic disk header",
                header_at,
                "[VHD] Dynamic Disk Header Format",
                problem,
            ))
        };
        let Some(block_bytes) = NonZeroU64::new(u64::from(header.block_bytes)) else {
            return Err(header_damage("the block size is zero".into()));
        };
        let blocks = virtual_bytes.div_ceil(block_bytes.get());
        if blocks > u64::from(header.table_entries) {
            let problem = format!("the table has {} entries for {blocks} blocks", header.table_entries);
            return Err(header_damage(problem));
        }
        let table = Table::new(header.table_offset, blocks, Width::Be32);
        let table_end = header.table_offset.checked_add(table.bytes().get());
        let Some(table_end) = table_end.filter(|&table_end| table_end <= end) else {
            let problem = format!(
                "the table of {blocks} entries at {:#x} does not lie in the {end} bytes before the footer",
                header.table_offset
            );
            return Err(header_damage(problem));
        };
        let header_end = header_at.saturating_add(HEADER_BYTES as u64);
        let opened = Self {
            // [VHD] "Data Blocks": one bit for each sector, padded to a whole sector.
            bitmap_bytes: (block_bytes.get() / SECTOR_BYTES).div_ceil(8).next_multiple_of(SECTOR_BYTES),
            table,
            block_bytes,
            virtual_bytes,
            end,
            structures: [(0, SECTOR_BYTES), (header_at, header_end), (header.table_offset, table_end)],
        };
        if is_read_at_opening(&opened.table) {
            opened.check_all(storage, blocks)?;
        }
        Ok(opened)
    }

    pub(super) fn block_bytes(&self) -> u64 {
        self.block_bytes.get()
    }

    pub(super) fn extent(
        &self,
        storage: &dyn Storage,
        range: ByteRange,
        patience: Patience,
    ) -> Result<Extent, ResolveError> {
        let start = range.start().get();
        let (block, within) = (start / self.block_bytes, start % self.block_bytes);
        let left = self.block_bytes.get().saturating_sub(within).min(range.length().get());
        let entry = self.table.get(block, storage, patience, &|block, entry| self.check(block, entry))?;
        if entry == ABSENT {
            return Ok(Extent::head_of(range, left, Source::Zero));
        }
        let bitmap_at = (entry & ABSENT).saturating_mul(SECTOR_BYTES);
        let data_at = bitmap_at.saturating_add(self.bitmap_bytes).saturating_add(within);
        let data = Source::File { layer: LayerIndex::BASE, at: ByteOffset::new(data_at) };
        if entry & FULL != 0 {
            return Ok(Extent::head_of(range, left, data));
        }

        let mut buffer = [0; BITMAP_WINDOW_BYTES as usize];
        let window = Window::around(within / SECTOR_BYTES, self.bitmap_bytes);
        let bitmap = buffer.get_mut(..window.bytes).unwrap_or_default();
        storage.read_at(ByteOffset::new(bitmap_at.saturating_add(window.at)), bitmap, patience)?;
        if self.covers_block(window) && self.misses_nothing(block, bitmap) {
            self.table.mark(block, FULL);
            return Ok(Extent::head_of(range, left, data));
        }
        let first = (within / SECTOR_BYTES).saturating_sub(window.at.saturating_mul(8));
        let (present, sectors) = run(bitmap, first);
        let length = left.min(sectors.saturating_mul(SECTOR_BYTES));
        // [VHD] "Data Blocks": a sector whose bit is 0 was never written.
        Ok(Extent::head_of(range, length, if present { data } else { Source::Zero }))
    }

    fn covers_block(&self, window: Window) -> bool {
        window.at == 0 && u64::try_from(window.bytes) == Ok(self.bitmap_bytes)
    }

    /// How much of the disk lies in the block.
    fn used_bytes(&self, block: u64) -> u64 {
        let start = block.saturating_mul(self.block_bytes.get());
        self.virtual_bytes.saturating_sub(start).min(self.block_bytes.get())
    }

    fn misses_nothing(&self, block: u64, bitmap: &[u8]) -> bool {
        let sectors = self.used_bytes(block) / SECTOR_BYTES;
        matches!(run(bitmap, 0), (true, present) if present >= sectors)
    }

    /// The place of the block in the file: its bitmap and as much data as the disk has there.
    fn claim(&self, block: u64, entry: u64) -> Option<(u64, u64)> {
        let start = entry.checked_mul(SECTOR_BYTES)?;
        let end = start.checked_add(self.bitmap_bytes)?.checked_add(self.used_bytes(block))?;
        Some((start, end))
    }

    fn check(&self, block: u64, entry: u64) -> Result<(), Damage> {
        if entry == ABSENT {
            return Ok(());
        }
        let damage = |problem| Damage::new(TABLE_NAME, self.table.place_of(block), TABLE_RULE, problem);
        match self.claim(block, entry) {
            Some((start, end)) if end <= self.end => {
                if self.structures.iter().any(|&(from, to)| start < to && from < end) {
                    let problem = format!("block {block} at {start:#x} lies over a structure of the file");
                    return Err(damage(problem));
                }
                Ok(())
            }
            _ => {
                let problem = format!(
                    "block {block} at sector {entry:#x} does not lie in the {} bytes before the footer",
                    self.end
                );
                Err(damage(problem))
            }
        }
    }

    /// Reads the whole table and checks that no two blocks lie over each other.
    fn check_all(&self, storage: &dyn Storage, blocks: u64) -> Result<(), Refusal> {
        let mut claims = Vec::new();
        for block in 0..blocks {
            let check = |block, entry| self.check(block, entry);
            let entry = self.table.get(block, storage, Patience::Blocking, &check)?;
            if entry != ABSENT
                && let Some((start, end)) = self.claim(block, entry)
            {
                claims.push((start, end, block));
            }
        }
        match claims_overlap(claims) {
            None => Ok(()),
            Some((one, other)) => {
                let problem = format!("block {other} lies over block {one}");
                Err(Damage::new(TABLE_NAME, self.table.place_of(other), TABLE_RULE, problem).into())
            }
        }
    }
}

/// The part of a bitmap that is looked at, in bytes from its start.
#[derive(Clone, Copy, Debug)]
struct Window {
    at: u64,
    bytes: usize,
}

impl Window {
    /// The window in which the bit of `sector` lies.
    fn around(sector: u64, bitmap_bytes: u64) -> Self {
        let byte = sector / 8;
        let at = byte.saturating_sub(byte % BITMAP_WINDOW_BYTES);
        let bytes = bitmap_bytes.saturating_sub(at).min(BITMAP_WINDOW_BYTES);
        Self { at, bytes: usize::try_from(bytes).unwrap_or_default() }
    }
}

/// How the bit `first` stands (most significant first), and how many bits from it on stand the same way.
fn run(bitmap: &[u8], first: u64) -> (bool, u64) {
    let bit = |place: u64| {
        let byte = usize::try_from(place / 8).ok().and_then(|byte| bitmap.get(byte))?;
        Some(byte.rotate_left(u32::try_from(place % 8).unwrap_or_default()) & 0x80 != 0)
    };
    let present = bit(first).unwrap_or(false);
    let mut end = first.saturating_add(1);
    while bit(end) == Some(present) {
        end = end.saturating_add(1);
    }
    (present, end.saturating_sub(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_counted_from_the_most_significant_bit() {
        let bitmap = [0b1110_0000, 0b0000_0001, 0xFF];
        assert_eq!(run(&bitmap, 0), (true, 3));
        assert_eq!(run(&bitmap, 2), (true, 1));
        assert_eq!(run(&bitmap, 3), (false, 12));
        assert_eq!(run(&bitmap, 15), (true, 9));
    }

    #[test]
    fn window_holds_the_sector_and_stays_in_the_bitmap() {
        let window = Window::around(4095, 512);
        assert_eq!((window.at, window.bytes), (0, 512));
        let window = Window::around(4096 * 3 + 5, 4096);
        assert_eq!((window.at, window.bytes), (1536, 512));
    }
}
