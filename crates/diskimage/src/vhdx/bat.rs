//! The block allocation table: where each payload block is ([MS-VHDX] §2.5).
//!
//! The table has one entry for each payload block and, after every `chunk_ratio` of them, one for a sector bitmap
//! block: also in files that have no parent and so no sector bitmaps. The entry of payload block `b` is therefore at
//! `b + b / chunk_ratio`. Who forgets that reads the right bytes in the first chunk (4 GiB of 512-byte sectors) and
//! wrong ones behind it.
//!
//! # In a differencing file
//! A payload block that is not present is the parent's. One that is *partially present* has, in the sector bitmap block
//! of its chunk, one bit for each of its sectors: set where the sector is in this file, else the parent has it. One that
//! is fully present is all in this file, and its bits mean nothing. The states *zero*, *unmapped* and *undefined* hide
//! the parent: the first must; of the second the old contents may come back or zeros, and of the third anything; zeros
//! are the one answer that tells nobody what was deleted, and the one that merges keep.
use block::{ByteRange, Patience};

use super::layout::{BatLayout, Part, Slot, state};
use super::region::Region;
use super::{MIB, Metadata, Owned};
use crate::bitmap::{BitOrder, Bitmap, Scratch};
use crate::error::{Damage, Refusal, ResolveError};
use crate::extent::{Held, LayerExtent};
use crate::storage::Storage;
use crate::table::{Table, Width, claims_overlap, is_read_at_opening};

const NAME: &str = "BAT entry";
const RULE: &str = "[MS-VHDX] §2.5.1";
const STATE_RULE: &str = "[MS-VHDX] §2.5.1.1";
const BITMAP_RULE: &str = "[MS-VHDX] §2.5.1.2";
/// [MS-VHDX] §2.4.2.
const BITMAP_BLOCK_BYTES: u64 = MIB;

/// The table of a file.
#[derive(Debug)]
pub(super) struct Bat {
    table: Table,
    layout: BatLayout,
    file_bytes: u64,
    /// Where no block may lie.
    owned: Vec<Owned>,
}

/// What an entry says of its payload block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PayloadBlock {
    /// Reads as zeros.
    Zero,
    /// Is the parent's.
    Parent,
    /// Lies at this place in the file.
    Present { at: u64 },
    /// Lies at this place in the file, as far as its sector bitmap says so.
    Partial { at: u64 },
}

impl PayloadBlock {
    fn place(self) -> Option<u64> {
        match self {
            Self::Zero | Self::Parent => None,
            Self::Present { at } | Self::Partial { at } => Some(at),
        }
    }
}

/// Three bits of state, 17 reserved, then the place in MiB ([MS-VHDX] §2.5.1): the state and the place in bytes.
fn fields(entry: u64) -> Result<(u64, u64), Broken> {
    let (state, reserved, mib) = (entry & 7, (entry >> 3) & 0x1_FFFF, entry >> 20);
    if reserved != 0 {
        return Err((RULE, format!("reserved bits are set in {entry:#018x}")));
    }
    Ok((state, mib.saturating_mul(MIB)))
}

/// A rule that an entry breaks, and how.
type Broken = (&'static str, String);

impl Bat {
    pub(super) fn open(
        storage: &dyn Storage,
        region: Region,
        metadata: &Metadata,
        owned: Vec<Owned>,
    ) -> Result<Self, Refusal> {
        let layout = BatLayout::of(metadata);
        let entries = layout.entries();
        let table = Table::new(region.at, entries, Width::Le64);
        if table.bytes().get() > region.length {
            return Err(layout.does_not_fit(region).into());
        }
        let bat = Self { table, layout, file_bytes: storage.len().get(), owned };
        if is_read_at_opening(&bat.table) {
            bat.check_all(storage, entries)?;
        }
        Ok(bat)
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
        let Part { block, within, length: left } = self.layout.part(range);
        let (held, left) = match self.payload_block(block, storage, patience)? {
            PayloadBlock::Zero => (Held::Zero, left),
            PayloadBlock::Parent => (Held::Parent, left),
            PayloadBlock::Present { at } => (Held::File { at: at.saturating_add(within) }, left),
            PayloadBlock::Partial { at } => {
                let bitmap = self.bitmap(block, storage, patience)?;
                let sector_bytes = self.layout.sector_bytes();
                let run = bitmap.run(within / sector_bytes, storage, patience, scratch)?;
                let length = run.sectors.saturating_mul(sector_bytes.get());
                let held = if run.held { Held::File { at: at.saturating_add(within) } } else { Held::Parent };
                (held, left.min(length))
            }
        };
        Ok(LayerExtent::head_of(range, left, held))
    }

    fn payload_block(
        &self,
        block: u64,
        storage: &dyn Storage,
        patience: Patience,
    ) -> Result<PayloadBlock, ResolveError> {
        let index = self.layout.index_of(block);
        let entry = self.table.get(index, storage, patience, &|index, entry| self.check(index, entry))?;
        self.payload_of_entry(entry).map_err(|(rule, problem)| self.damage(index, rule, problem).into())
    }

    /// The bits of a partially present block.
    fn bitmap(&self, block: u64, storage: &dyn Storage, patience: Patience) -> Result<Bitmap, ResolveError> {
        let index = self.layout.index_of_bitmap(self.layout.chunk_of(block));
        let entry = self.table.get(index, storage, patience, &|index, entry| self.check(index, entry))?;
        let place = bitmap_of_entry(entry).map_err(|(rule, problem)| self.damage(index, rule, problem))?;
        let Some(at) = place else {
            let problem =
                format!("there is no sector bitmap for payload block {block}, which is partially present");
            return Err(self.damage(index, BITMAP_RULE, problem).into());
        };
        let (within, bytes) = (self.layout.bitmap_offset(block), self.layout.bitmap_bytes());
        Ok(Bitmap { at: at.saturating_add(within), bytes, order: BitOrder::Lsb })
    }

    fn payload_of_entry(&self, entry: u64) -> Result<PayloadBlock, Broken> {
        let (state, at) = fields(entry)?;
        match (state, self.layout.is_differencing()) {
            (state::NOT_PRESENT, true) => Ok(PayloadBlock::Parent),
            // Without a parent, a block that is not present may hold anything, zeros among them. On the other states
            // see the head of this module.
            (state::NOT_PRESENT..=state::UNMAPPED, _) => Ok(PayloadBlock::Zero),
            (state::FULLY_PRESENT, _) => Ok(PayloadBlock::Present { at }),
            (state::PARTIALLY_PRESENT, true) => Ok(PayloadBlock::Partial { at }),
            (state::PARTIALLY_PRESENT, false) => {
                Err((STATE_RULE, "it is partially present, in a file without a parent".into()))
            }
            (other, _) => Err((STATE_RULE, format!("it has the reserved state {other}"))),
        }
    }

    /// Where in the file lies what the entry at `index` stands for. Of a payload block as far as the disk has bytes in
    /// it: a file may end with those. Entries of sector bitmap blocks are not used in a file without a parent, and not
    /// looked at.
    fn claim(&self, index: u64, entry: u64) -> Result<Option<(u64, u64)>, Broken> {
        match self.layout.slot(index) {
            Slot::Bitmap(_) => {
                let place = if self.layout.is_differencing() { bitmap_of_entry(entry)? } else { None };
                Ok(place.map(|at| (at, at.saturating_add(BITMAP_BLOCK_BYTES))))
            }
            Slot::Payload(block) => {
                let used = self.layout.used_bytes(block);
                // Entries behind the last block, in a file with a parent, stand for nothing.
                let place = self.payload_of_entry(entry)?.place().filter(|_| used > 0);
                Ok(place.map(|at| (at, at.saturating_add(used))))
            }
        }
    }

    /// Whether the entry at `index` may be what it is.
    fn check(&self, index: u64, entry: u64) -> Result<(), Damage> {
        let claim = self.claim(index, entry);
        let claim = claim.map_err(|(rule, problem)| self.damage(index, rule, problem))?;
        let Some((start, end)) = claim else { return Ok(()) };
        // [MS-VHDX] §2.1: the objects of a file do not lie over each other.
        if let Some(owned) = self.owned.iter().find(|owned| start < owned.end && owned.start < end) {
            let problem = format!("{} at {start:#x} lies over {}", self.layout.slot(index), owned.what);
            return Err(self.damage(index, RULE, problem));
        }
        if end > self.file_bytes {
            let problem = format!(
                "{} at {start:#x} ends at {end:#x}, behind the end of the file at {:#x}",
                self.layout.slot(index),
                self.file_bytes
            );
            return Err(self.damage(index, RULE, problem));
        }
        Ok(())
    }

    /// Reads the whole table and checks that no two blocks lie over each other.
    fn check_all(&self, storage: &dyn Storage, entries: u64) -> Result<(), Refusal> {
        let mut claims = Vec::new();
        for index in 0..entries {
            let check = |index, entry| self.check(index, entry);
            let entry = self.table.get(index, storage, Patience::Blocking, &check).map_err(Refusal::from)?;
            if let Ok(Some((start, end))) = self.claim(index, entry) {
                claims.push((start, end, index));
            }
        }
        match claims_overlap(claims) {
            None => Ok(()),
            Some((one, other)) => {
                let problem = format!("{} lies over {}", self.layout.slot(other), self.layout.slot(one));
                Err(self.damage(other, RULE, problem).into())
            }
        }
    }

    fn damage(&self, index: u64, rule: &'static str, problem: String) -> Damage {
        Damage::new(NAME, self.table.place_of(index), rule, problem)
    }
}

/// Where the sector bitmap block of an entry lies, if there is one.
fn bitmap_of_entry(entry: u64) -> Result<Option<u64>, Broken> {
    match fields(entry)? {
        (state::NOT_PRESENT, _) => Ok(None),
        (state::FULLY_PRESENT, at) => Ok(Some(at)),
        (other, _) => {
            Err((BITMAP_RULE, format!("a sector bitmap block has the state {other}, neither 0 nor 6")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guid::Guid;
    use crate::storage::MemoryStorage;
    use crate::vhdx::locator::Locator;
    use block::{ByteLength, ByteOffset, LogicalBlockSize};

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

    fn differencing(block_bytes: u32, virtual_bytes: u64) -> Metadata {
        let parent = Locator {
            parent_linkage: Guid::from_u128(1),
            parent_linkage2: None,
            relative_path: Some("base.vhdx".into()),
            volume_path: None,
            absolute_win32_path: None,
            other: Vec::new(),
        };
        let sectors = (LogicalBlockSize::B512, 512);
        Metadata::new(block_bytes, false, virtual_bytes, Guid::NIL, sectors, Some(parent))
    }

    fn held_at(bat: &Bat, file: &MemoryStorage, at: u64) -> Held {
        let range = ByteRange::new(ByteOffset::new(at), ByteLength::new(512)).unwrap();
        bat.extent(file, range, Patience::Now, &mut Scratch::default()).unwrap().held
    }

    #[test]
    fn entries_of_sector_bitmaps_are_stepped_over() {
        for (sector, chunk) in [(LogicalBlockSize::B512, 4_u64 << 30), (LogicalBlockSize::B4096, 32 << 30)] {
            let metadata = metadata(sector, 32 << 20, 3 * chunk);
            let ratio = chunk / (32 << 20);
            // The first block of the third chunk; where a reader would look that forgets the bitmaps, another.
            let entries = [(2 * ratio + 2, (10 * MIB) | 6), (2 * ratio, (50 * MIB) | 6)];
            let (bat, file) = open(&entries, &metadata).unwrap();
            assert_eq!(held_at(&bat, &file, 2 * chunk + 512), Held::File { at: 10 * MIB + 512 });
            assert_eq!(bat.table.bytes().get(), (3 * ratio + 2) * 8);
        }
    }

    #[test]
    fn every_state_reads_as_the_specification_says() {
        let metadata = metadata(LogicalBlockSize::B512, 1 << 20, 16 << 20);
        let states = [(0, 0), (1, 1), (2, 2), (3, 3), (4, (7 * MIB) | 3), (5, (8 * MIB) | 6)];
        let (bat, file) = open(&states, &metadata).unwrap();
        for block in 0..5 {
            assert_eq!(held_at(&bat, &file, block * MIB), Held::Zero);
        }
        assert_eq!(held_at(&bat, &file, 5 * MIB), Held::File { at: 8 * MIB });
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

    #[test]
    fn states_of_a_differencing_file_hide_the_parent_or_ask_it() {
        let metadata = differencing(1 << 20, 16 << 20);
        let chunk_ratio = 4096;
        let states = [(0, 0), (1, 1), (2, 2), (3, (7 * MIB) | 3), (4, (8 * MIB) | 6), (5, (9 * MIB) | 7)];
        let bitmap = (chunk_ratio, (10 * MIB) | 6);
        let (bat, mut file) = open(&[&states[..], &[bitmap]].concat(), &metadata).unwrap();
        assert_eq!(bat.table.bytes().get(), (chunk_ratio + 1) * 8);
        assert_eq!(held_at(&bat, &file, 0), Held::Parent);
        for block in 1..4 {
            assert_eq!(held_at(&bat, &file, block * MIB), Held::Zero);
        }
        // The bits of block 4 are not looked at; those of block 5 are its 2048 bits, least significant first.
        file.put(ByteOffset::new(10 * MIB + 5 * 256), &[0b0000_0110]);
        assert_eq!(held_at(&bat, &file, 4 * MIB), Held::File { at: 8 * MIB });
        let block = 5 * MIB;
        assert_eq!(held_at(&bat, &file, block), Held::Parent);
        assert_eq!(held_at(&bat, &file, block + 512), Held::File { at: 9 * MIB + 512 });
        assert_eq!(held_at(&bat, &file, block + 1024), Held::File { at: 9 * MIB + 1024 });
        assert_eq!(held_at(&bat, &file, block + 1536), Held::Parent);
    }

    #[test]
    fn sector_bitmaps_that_break_a_rule_are_refused() {
        let metadata = differencing(1 << 20, 16 << 20);
        let partial = (0, (50 * MIB) | 7);
        let cases: [(&str, u64); 6] = [
            ("has the state 2, neither 0 nor 6", (60 * MIB) | 2),
            ("reserved bits", (60 * MIB) | 6 | 16),
            ("the sector bitmap block of chunk 0 at 0x200000 lies over the BAT", (2 * MIB) | 6),
            ("behind the end of the file", (100 * MIB) | 6),
            ("the sector bitmap block of chunk 0 lies over payload block 0", (50 * MIB) | 6),
            ("behind the end of the file", (1 << 43) | 6),
        ];
        for (expected, entry) in cases {
            let error = open(&[partial, (4096, entry)], &metadata).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let (bat, file) = open(&[partial], &metadata).unwrap();
        let range = ByteRange::new(ByteOffset::ZERO, ByteLength::new(512)).unwrap();
        let error = bat.extent(&file, range, Patience::Now, &mut Scratch::default()).unwrap_err();
        assert!(error.to_string().contains("no sector bitmap for payload block 0"), "{error}");
    }
}
