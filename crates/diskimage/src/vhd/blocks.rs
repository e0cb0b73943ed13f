//! The blocks of a dynamic image: from a range of the disk to an extent, by way of the block allocation table and
//! the block's bitmap.
//!
//! A block whose bitmap was seen to miss no sector is marked in the table's page, so that its later reads do not look
//! at the bitmap again: blocks in use are full, or nearly always.
use std::num::NonZeroU64;

use block::{ByteRange, Patience};

use super::dynamic::HEADER_BYTES;
use super::{DynamicHeader, SECTOR_BYTES};
use crate::bitmap::{BitOrder, Bitmap, Run, Scratch};
use crate::error::{Damage, Refusal, ResolveError};
use crate::extent::{Held, LayerExtent};
use crate::storage::Storage;
use crate::table::{Table, Width, claims_overlap, is_read_at_opening};

/// An entry of the table for a block that was never written.
const ABSENT: u64 = 0xFFFF_FFFF;
/// The mark of an entry whose block misses no sector.
const FULL: u64 = 1 << 63;

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
    /// What holds of a sector that is not in the file: zeros, or the parent tells.
    missing: Held,
}

impl Blocks {
    /// `header_at` is where `header` stands, `end` where the file's footer begins, or the file ends without one,
    /// `missing` what holds of a sector that is not in the file.
    pub(super) fn open(
        storage: &dyn Storage,
        header: &DynamicHeader,
        header_at: u64,
        virtual_bytes: u64,
        end: u64,
        missing: Held,
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
            missing,
        };
        if is_read_at_opening(&opened.table) {
            opened.check_all(storage, blocks)?;
        }
        Ok(opened)
    }

    pub(super) fn block_bytes(&self) -> u64 {
        self.block_bytes.get()
    }

    pub(super) fn share_table(&mut self, tables: usize) {
        self.table.share(tables);
    }

    pub(super) fn extent(
        &self,
        storage: &dyn Storage,
        range: ByteRange,
        patience: Patience,
        scratch: &mut Scratch,
    ) -> Result<LayerExtent, ResolveError> {
        let start = range.start().get();
        let (block, within) = (start / self.block_bytes, start % self.block_bytes);
        let left = self.block_bytes.get().saturating_sub(within).min(range.length().get());
        let entry = self.table.get(block, storage, patience, &|block, entry| self.check(block, entry))?;
        if entry == ABSENT {
            return Ok(LayerExtent::head_of(range, left, self.missing));
        }
        let bitmap_at = (entry & ABSENT).saturating_mul(SECTOR_BYTES);
        let data = Held::File { at: bitmap_at.saturating_add(self.bitmap_bytes).saturating_add(within) };
        if entry & FULL != 0 {
            return Ok(LayerExtent::head_of(range, left, data));
        }

        let bitmap = Bitmap { at: bitmap_at, bytes: self.bitmap_bytes, order: BitOrder::Msb };
        let sectors = self.used_bytes(block) / SECTOR_BYTES;
        if bitmap.is_small()
            && matches!(bitmap.run(0, storage, patience, scratch)?, Run { held: true, sectors: held } if held >= sectors)
        {
            self.table.mark(block, FULL);
            return Ok(LayerExtent::head_of(range, left, data));
        }
        let run = bitmap.run(within / SECTOR_BYTES, storage, patience, scratch)?;
        let length = left.min(run.sectors.saturating_mul(SECTOR_BYTES));
        // [VHD] "Data Blocks": a sector whose bit is 0 was never written here.
        Ok(LayerExtent::head_of(range, length, if run.held { data } else { self.missing }))
    }

    /// How much of the disk lies in the block.
    fn used_bytes(&self, block: u64) -> u64 {
        let start = block.saturating_mul(self.block_bytes.get());
        self.virtual_bytes.saturating_sub(start).min(self.block_bytes.get())
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
