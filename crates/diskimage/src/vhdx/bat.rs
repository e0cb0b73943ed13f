//! The block allocation table: where each payload block is ([MS-VHDX] §2.5).
//!
//! The table has one entry for each payload block and, after every `chunk_ratio` of them, one for a sector bitmap
//! block: also in files that have no parent and so no sector bitmaps. The entry of payload block `b` is therefore at
//! `b + b / chunk_ratio`. Who forgets that reads the right bytes in the first chunk (4 GiB of 512-byte sectors) and
//! wrong ones behind it.
use std::num::NonZeroU64;

use block::{ByteOffset, ByteRange, Patience};

use super::region::Region;
use super::{MIB, Metadata, Owned};
use crate::error::{Damage, Refusal, ResolveError};
use crate::extent::{Extent, LayerIndex, Source};
use crate::storage::Storage;
use crate::table::{Table, Width, claims_overlap, is_read_at_opening};

/// A sector bitmap block has 2^23 bits, one for each sector of its chunk ([MS-VHDX] §2.4.2).
const SECTORS_PER_CHUNK: u64 = 1 << 23;
const NAME: &str = "BAT entry";
const RULE: &str = "[MS-VHDX] §2.5.1";
const STATE_RULE: &str = "[MS-VHDX] §2.5.1.1";

/// The table of a file without a parent.
#[derive(Debug)]
pub(super) struct Bat {
    table: Table,
    block_bytes: NonZeroU64,
    /// How many payload blocks a chunk has: a power of two, at least 16.
    chunk_ratio: NonZeroU64,
    virtual_bytes: u64,
    file_bytes: u64,
    /// Where no block may lie.
    owned: Vec<Owned>,
}

/// What an entry says of its payload block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PayloadBlock {
    /// Reads as zeros.
    Zero,
    /// Lies at this place in the file.
    Present { at: u64 },
}

impl PayloadBlock {
    /// Three bits of state, 17 reserved, then the place in MiB ([MS-VHDX] §2.5.1).
    fn of_entry(entry: u64) -> Result<Self, (&'static str, String)> {
        let (state, reserved, mib) = (entry & 7, (entry >> 3) & 0x1_FFFF, entry >> 20);
        if reserved != 0 {
            return Err((RULE, format!("reserved bits are set in {entry:#018x}")));
        }
        match state {
            // Not present and undefined: without a parent the contents may be anything, zeros among them. Zero: must
            // read as zeros. Unmapped: the old contents or zeros, and zeros tell nobody what was deleted.
            0..=3 => Ok(Self::Zero),
            6 => Ok(Self::Present { at: mib.saturating_mul(MIB) }),
            7 => Err((STATE_RULE, "it is partially present, in a file without a parent".into())),
            other => Err((STATE_RULE, format!("it has the reserved state {other}"))),
        }
    }
}

impl Bat {
    pub(super) fn open(
        storage: &dyn Storage,
        region: Region,
        metadata: &Metadata,
        owned: Vec<Owned>,
    ) -> Result<Self, Refusal> {
        let block_bytes = NonZeroU64::new(u64::from(metadata.block_bytes)).unwrap_or(NonZeroU64::MIN);
        let chunk_bytes = SECTORS_PER_CHUNK.saturating_mul(metadata.logical_block.bytes());
        let chunk_ratio = NonZeroU64::new(chunk_bytes / block_bytes).unwrap_or(NonZeroU64::MIN);
        let blocks = metadata.virtual_bytes.div_ceil(block_bytes.get());
        // [MS-VHDX] §2.5: the last entry of a file without a parent is that of the last payload block.
        let entries = blocks.saturating_add(blocks.saturating_sub(1) / chunk_ratio);
        let table = Table::new(region.at, entries, Width::Le64);
        if table.bytes().get() > region.length {
            let problem = format!(
                "a table of {entries} entries for {blocks} blocks does not fit into {} bytes",
                region.length
            );
            return Err(Damage::new("BAT region", region.at, "[MS-VHDX] §2.5", problem).into());
        }
        let bat = Self {
            table,
            block_bytes,
            chunk_ratio,
            virtual_bytes: metadata.virtual_bytes,
            file_bytes: storage.len().get(),
            owned,
        };
        if is_read_at_opening(&bat.table) {
            bat.check_all(storage, blocks)?;
        }
        Ok(bat)
    }

    pub(super) fn extent(
        &self,
        storage: &dyn Storage,
        range: ByteRange,
        patience: Patience,
    ) -> Result<Extent, ResolveError> {
        let start = range.start().get();
        let (block, within) = (start / self.block_bytes, start % self.block_bytes);
        let left = self.block_bytes.get().saturating_sub(within);
        let source = match self.payload_block(block, storage, patience)? {
            PayloadBlock::Zero => Source::Zero,
            PayloadBlock::Present { at } => {
                Source::File { layer: LayerIndex::BASE, at: ByteOffset::new(at.saturating_add(within)) }
            }
        };
        Ok(Extent::head_of(range, left, source))
    }

    fn payload_block(
        &self,
        block: u64,
        storage: &dyn Storage,
        patience: Patience,
    ) -> Result<PayloadBlock, ResolveError> {
        let index = self.index_of(block);
        let entry = self.table.get(index, storage, patience, &|index, entry| self.check(index, entry))?;
        PayloadBlock::of_entry(entry).map_err(|(rule, problem)| self.damage(index, rule, problem).into())
    }

    /// Which entry is that of payload block `block`.
    fn index_of(&self, block: u64) -> u64 {
        block.saturating_add(block / self.chunk_ratio)
    }

    /// Which payload block's the entry at `index` is; `None` where it is a sector bitmap block's.
    fn block_of(&self, index: u64) -> Option<u64> {
        let stride = self.chunk_ratio.saturating_add(1);
        let (chunk, place) = (index / stride, index % stride);
        (place < self.chunk_ratio.get()).then(|| index.saturating_sub(chunk))
    }

    /// Where the block lies in the file, as far as the disk has bytes in it: a file may end with those.
    fn claim(&self, block: u64, at: u64) -> (u64, u64) {
        let before = block.saturating_mul(self.block_bytes.get());
        let used = self.virtual_bytes.saturating_sub(before).min(self.block_bytes.get());
        (at, at.saturating_add(used))
    }

    /// Whether the entry at `index` may be what it is. That of a sector bitmap block is not used in a file without a
    /// parent, and not looked at.
    fn check(&self, index: u64, entry: u64) -> Result<(), Damage> {
        let Some(block) = self.block_of(index) else { return Ok(()) };
        let state = PayloadBlock::of_entry(entry);
        let state = state.map_err(|(rule, problem)| self.damage(index, rule, problem))?;
        let PayloadBlock::Present { at } = state else { return Ok(()) };
        let (start, end) = self.claim(block, at);
        // [MS-VHDX] §2.1: the objects of a file do not lie over each other.
        if let Some(owned) = self.owned.iter().find(|owned| start < owned.end && owned.start < end) {
            let problem = format!("payload block {block} at {start:#x} lies over {}", owned.what);
            return Err(self.damage(index, RULE, problem));
        }
        if end > self.file_bytes {
            let problem = format!(
                "payload block {block} at {start:#x} ends at {end:#x}, behind the end of the file at {:#x}",
                self.file_bytes
            );
            return Err(self.damage(index, RULE, problem));
        }
        Ok(())
    }

    /// Reads the whole table and checks that no two blocks lie over each other.
    fn check_all(&self, storage: &dyn Storage, blocks: u64) -> Result<(), Refusal> {
        let mut claims = Vec::new();
        for block in 0..blocks {
            if let PayloadBlock::Present { at } = self.payload_block(block, storage, Patience::Blocking)? {
                let (start, end) = self.claim(block, at);
                claims.push((start, end, block));
            }
        }
        match claims_overlap(claims) {
            None => Ok(()),
            Some((one, other)) => {
                let problem = format!("payload block {other} lies over payload block {one}");
                Err(self.damage(self.index_of(other), RULE, problem).into())
            }
        }
    }

    fn damage(&self, index: u64, rule: &'static str, problem: String) -> Damage {
        Damage::new(NAME, self.table.place_of(index), rule, problem)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guid::Guid;
    use crate::storage::MemoryStorage;
    use block::{ByteLength, LogicalBlockSize};

    const REGION: Region = Region { at: MIB, length: 2 * MIB };

    fn metadata(logical_block: LogicalBlockSize, block_bytes: u32, virtual_bytes: u64) -> Metadata {
        Metadata::new(block_bytes, false, virtual_bytes, Guid::NIL, (logical_block, 512), None)
    }

    fn open(entries: &[(u64, u64)], metadata: &Metadata) -> Result<(Bat, MemoryStorage), Refusal> {
        let mut file = MemoryStorage::sparse(ByteLength::new(100 * MIB));
        for (index, entry) in entries {
            file.put(ByteOffset::new(REGION.at + index * 8), &entry.to_le_bytes());
        }
        let owned = vec![Owned { what: "the BAT", start: REGION.at, end: REGION.end() }];
        Bat::open(&file, REGION, metadata, owned).map(|bat| (bat, file))
    }

    fn source_at(bat: &Bat, file: &MemoryStorage, at: u64) -> Source {
        let range = ByteRange::new(ByteOffset::new(at), ByteLength::new(512)).unwrap();
        bat.extent(file, range, Patience::Now).unwrap().source
    }

    #[test]
    fn entries_of_sector_bitmaps_are_stepped_over() {
        for (sector, chunk) in [(LogicalBlockSize::B512, 4_u64 << 30), (LogicalBlockSize::B4096, 32 << 30)] {
            let metadata = metadata(sector, 32 << 20, 3 * chunk);
            let ratio = chunk / (32 << 20);
            // The first block of the third chunk; where a reader would look that forgets the bitmaps, another.
            let entries = [(2 * ratio + 2, (10 * MIB) | 6), (2 * ratio, (50 * MIB) | 6)];
            let (bat, file) = open(&entries, &metadata).unwrap();
            let at = ByteOffset::new(10 * MIB + 512);
            assert_eq!(source_at(&bat, &file, 2 * chunk + 512), Source::File { layer: LayerIndex::BASE, at });
            assert_eq!(bat.block_of(2 * ratio + 2), Some(2 * ratio));
            assert_eq!(bat.block_of(ratio), None);
            assert_eq!(bat.table.bytes().get(), (3 * ratio + 2) * 8);
        }
    }

    #[test]
    fn every_state_reads_as_the_specification_says() {
        let metadata = metadata(LogicalBlockSize::B512, 1 << 20, 16 << 20);
        let states = [(0, 0), (1, 1), (2, 2), (3, 3), (4, (7 * MIB) | 3), (5, (8 * MIB) | 6)];
        let (bat, file) = open(&states, &metadata).unwrap();
        for block in 0..5 {
            assert_eq!(source_at(&bat, &file, block * MIB), Source::Zero);
        }
        assert_eq!(
            source_at(&bat, &file, 5 * MIB),
            Source::File { layer: LayerIndex::BASE, at: ByteOffset::new(8 * MIB) }
        );
    }

    #[test]
    fn entries_that_break_a_rule_are_refused() {
        let metadata = metadata(LogicalBlockSize::B512, 1 << 20, 8 << 20);
        let cases: [(&str, u64); 9] = [
            ("reserved state 4", 4),
            ("reserved state 5", 5),
            ("partially present", (9 * MIB) | 7),
            ("reserved bits", (9 * MIB) | 8 | 6),
            ("lies over the BAT", (2 * MIB) | 6),
            ("behind the end of the file", (100 * MIB) | 6),
            ("behind the end of the file", (!(MIB - 1)) | 6),
            ("payload block 1 lies over payload block 0", (50 * MIB) | 6),
            ("behind the end of the file", (1 << 43) | 6),
        ];
        for (expected, entry) in cases {
            let error = open(&[(0, (50 * MIB) | 6), (1, entry)], &metadata).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
            assert!(error.contains("BAT entry at 0x100008"), "{error}");
        }
    }

    #[test]
    fn last_block_may_end_with_the_disk() {
        let metadata = metadata(LogicalBlockSize::B512, 2 << 20, (2 << 20) + 512);
        open(&[(1, (99 * MIB) | 6)], &metadata).unwrap();
    }

    #[test]
    fn table_that_does_not_fit_its_region_is_refused() {
        let metadata = metadata(LogicalBlockSize::B512, 1 << 20, 64 << 40);
        let error = open(&[], &metadata).unwrap_err().to_string();
        assert!(error.contains("does not fit into 2097152 bytes"), "{error}");
    }
}
