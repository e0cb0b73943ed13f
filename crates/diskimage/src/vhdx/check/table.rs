//! The check of the block allocation table, of sector bitmaps, and of the space that blocks leave.
//!
//! The table is read from front to back, a page at a time. What must be known of all blocks at once, where they lie,
//! is kept as one bit for each MiB of the file.
use block::{ByteOffset, Patience};

use super::super::layout::{BatLayout, Slot, state};
use super::super::overlay::View;
use super::super::region::Region;
use super::super::{MIB, Metadata, Owned};
use super::space::Space;
use crate::check::{Finding, Report, Severity};
use crate::error::{Damage, Refusal};
use crate::storage::{Storage, StorageError};

const PAGE_BYTES: usize = 64 << 10;
/// For how many overlaps the other block is looked for: each reads the table once more.
const MAX_SEARCHES: u32 = 16;
const NAME: &str = "BAT entry";
const LAYOUT_RULE: &str = "[MS-VHDX] §2.1";
const ENTRY_RULE: &str = "[MS-VHDX] §2.5.1";
const PAYLOAD_RULE: &str = "[MS-VHDX] §2.5.1.1";
const BITMAP_RULE: &str = "[MS-VHDX] §2.5.1.2";

/// The check of a table, and what it has learnt so far.
pub(super) struct TableCheck<'a> {
    view: &'a View<'a>,
    layout: BatLayout,
    region: Region,
    is_fixed: bool,
    is_differencing: bool,
    file_bytes: u64,
    /// Sorted by where they begin.
    owned: Vec<Owned>,
    /// What blocks and structures take of the file.
    used: Space,
    /// What is not used, but named: blocks that are gone may keep their place.
    named: Space,
    /// What the last block, whole, takes behind the disk's last byte.
    rest: Option<(u64, u64)>,
    /// How many payload blocks have no place.
    absent: u64,
    /// A partially present block of the chunk whose entries are read.
    partial: Option<u64>,
    /// How many overlapping blocks may still be looked for in the table.
    searches: u32,
}

impl<'a> TableCheck<'a> {
    pub(super) fn new(
        view: &'a View<'a>,
        metadata: &Metadata,
        region: Region,
        mut owned: Vec<Owned>,
    ) -> Result<Self, Refusal> {
        let file_bytes = view.len().get();
        let (Some(mut used), Some(named)) = (Space::new(file_bytes), Space::new(file_bytes)) else {
            let what = format!("the check of a file of {file_bytes} bytes (the limit is 128 TiB)");
            return Err(Refusal::unsupported(LAYOUT_RULE, what));
        };
        owned.sort_unstable_by_key(|owned| owned.start);
        for owned in &owned {
            used.take(owned.start, owned.end);
        }
        Ok(Self {
            view,
            layout: BatLayout::of(metadata),
            region,
            is_fixed: metadata.leave_blocks_allocated,
            is_differencing: metadata.parent.is_some(),
            file_bytes,
            owned,
            used,
            named,
            rest: None,
            absent: 0,
            partial: None,
            searches: MAX_SEARCHES,
        })
    }

    /// Checks it, and says where the last object of the file ends, in whole MiB.
    pub(super) fn run(mut self, report: &mut Report) -> Result<u64, Refusal> {
        let entries = self.layout.entries();
        let stored = self.region.end().min(self.file_bytes).saturating_sub(self.region.at) / 8;
        if entries.saturating_mul(8) > self.region.length {
            let damage = self.layout.does_not_fit(self.region);
            report.add(Finding::new("vhdx-bat-cut", Severity::Error, damage));
        }
        let entries = entries.min(stored);
        let (view, region) = (self.view, self.region);
        each_entry(view, region, entries, &mut |index, entry| self.check_entry(index, entry, report))?;
        Ok(self.check_space(report))
    }

    fn check_entry(&mut self, index: u64, entry: u64, report: &mut Report) -> Result<(), Refusal> {
        if (entry >> 3) & 0x1_FFFF != 0 {
            let problem = format!("reserved bits are set in {entry:#018x}");
            report.add(self.finding("vhdx-bat-reserved-bits", Severity::Error, index, ENTRY_RULE, problem));
        }
        let (state, at) = (entry & 7, entry & !(MIB.saturating_sub(1)));
        match self.layout.slot(index) {
            Slot::Payload(block) if block < self.layout.blocks() => {
                self.check_payload(index, block, (state, at), report)
            }
            Slot::Payload(block) => {
                if entry != 0 {
                    let problem = format!("it is of payload block {block}, and the disk ends before");
                    let code = "vhdx-block-behind-disk";
                    report.add(self.finding(code, Severity::Warning, index, "[MS-VHDX] §2.5", problem));
                }
                Ok(())
            }
            Slot::Bitmap(chunk) => self.check_bitmap(index, chunk, (state, at), report),
        }
    }

    fn check_payload(
        &mut self,
        index: u64,
        block: u64,
        (state, at): (u64, u64),
        report: &mut Report,
    ) -> Result<(), Refusal> {
        let is_present = match state {
            state::FULLY_PRESENT => true,
            state::PARTIALLY_PRESENT if self.is_differencing => {
                self.partial = Some(block);
                true
            }
            state::PARTIALLY_PRESENT => {
                let problem =
                    format!("payload block {block} is partially present, in a file without a parent");
                report.add(self.finding("vhdx-block-state", Severity::Error, index, PAYLOAD_RULE, problem));
                true
            }
            state::NOT_PRESENT..=state::UNMAPPED => false,
            _ => {
                let problem = format!("payload block {block} has the reserved state {state}");
                report.add(self.finding("vhdx-block-state", Severity::Error, index, PAYLOAD_RULE, problem));
                return Ok(());
            }
        };
        let whole_end = at.saturating_add(self.layout.block_bytes().get());
        if !is_present {
            if at != 0 {
                self.named.take(at, whole_end);
            }
            self.absent = self.absent.saturating_add(1);
            return Ok(());
        }
        // A file may end with the disk's last byte.
        let used = self.layout.used_bytes(block);
        let what = format!("payload block {block}");
        self.check_place(index, &what, (at, at.saturating_add(used)), report)?;
        if used < self.layout.block_bytes().get() {
            self.rest = Some((at.saturating_add(used.next_multiple_of(MIB)), whole_end));
        }
        Ok(())
    }

    fn check_bitmap(
        &mut self,
        index: u64,
        chunk: u64,
        (state, at): (u64, u64),
        report: &mut Report,
    ) -> Result<(), Refusal> {
        let partial = self.partial.take();
        let what = format!("the sector bitmap block of chunk {chunk}");
        match state {
            _ if !self.is_differencing => {
                if state != 0 || at != 0 {
                    let problem = format!("{what} has state {state}, in a file without a parent");
                    let code = "vhdx-bitmap-unused";
                    report.add(self.finding(code, Severity::Warning, index, BITMAP_RULE, problem));
                    self.named.take(at, at.saturating_add(MIB));
                }
            }
            state::NOT_PRESENT => {
                if let Some(block) = partial {
                    let problem = format!("{what} is missing: payload block {block} is partially present");
                    let code = "vhdx-bitmap-missing";
                    report.add(self.finding(code, Severity::Error, index, BITMAP_RULE, problem));
                }
                if at != 0 {
                    self.named.take(at, at.saturating_add(MIB));
                }
            }
            state::FULLY_PRESENT => {
                let is_placed = self.check_place(index, &what, (at, at.saturating_add(MIB)), report)?;
                match partial {
                    None => {
                        let problem = format!("{what} is not used: none of its blocks is partially present");
                        let code = "vhdx-bitmap-idle";
                        report.add(self.finding(code, Severity::Note, index, BITMAP_RULE, problem));
                    }
                    Some(block) if is_placed => self.check_bits(block, at, report)?,
                    Some(_) => {}
                }
            }
            _ => {
                let problem = format!("{what} has the state {state}, neither 0 nor 6");
                report.add(self.finding("vhdx-bitmap-state", Severity::Error, index, BITMAP_RULE, problem));
            }
        }
        Ok(())
    }

    /// Whether an object lies in the file, over nothing else.
    fn check_place(
        &mut self,
        index: u64,
        what: &str,
        (start, end): (u64, u64),
        report: &mut Report,
    ) -> Result<bool, Refusal> {
        if end > self.file_bytes {
            let problem = format!(
                "{what} at {start:#x} ends at {end:#x}, behind the end of the file at {:#x}",
                self.file_bytes
            );
            report.add(self.finding("vhdx-block-cut", Severity::Error, index, ENTRY_RULE, problem));
        }
        if !self.used.take(start, end) {
            return Ok(end <= self.file_bytes);
        }
        // The last structure that begins before the object's end reaches furthest, unless structures lie over each other.
        let before = self.owned.partition_point(|owned| owned.start < end);
        let owned = before.checked_sub(1).and_then(|last| self.owned.get(last));
        let finding = match owned.filter(|owned| start < owned.end) {
            Some(owned) => {
                let problem = format!("{what} at {start:#x} lies over {}", owned.what);
                self.finding("vhdx-block-over-structure", Severity::Error, index, ENTRY_RULE, problem)
            }
            None => {
                let other = self.first_over(index, (start, end))?;
                let other = other.map_or_else(|| "another block".to_owned(), |slot| slot.to_string());
                let problem = format!("{what} at {start:#x} lies over {other}");
                self.finding("vhdx-blocks-overlap", Severity::Error, index, ENTRY_RULE, problem)
            }
        };
        report.add(finding);
        Ok(false)
    }

    /// Whose the first entry of the table is, before the one at `index`, that names a part of this place. The table is
    /// read again for it, a limited number of times.
    fn first_over(&mut self, index: u64, (start, end): (u64, u64)) -> Result<Option<Slot>, Refusal> {
        let Some(left) = self.searches.checked_sub(1) else { return Ok(None) };
        self.searches = left;
        let layout = self.layout;
        let mut found = None;
        each_entry(self.view, self.region, index, &mut |other, entry| {
            let at = entry & !(MIB.saturating_sub(1));
            let slot = layout.slot(other);
            let length = match (slot, entry & 7) {
                (Slot::Payload(block), state::FULLY_PRESENT | state::PARTIALLY_PRESENT) => {
                    layout.used_bytes(block)
                }
                (Slot::Bitmap(_), state::FULLY_PRESENT) => MIB,
                _ => 0,
            };
            let overlaps =
                at < end.checked_next_multiple_of(MIB).unwrap_or(end) && start < at.saturating_add(length);
            if found.is_none() && length > 0 && overlaps {
                found = Some(slot);
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Bits of sectors behind the disk's end, which may be set in the last block only.
    fn check_bits(&self, block: u64, bitmap_at: u64, report: &mut Report) -> Result<(), StorageError> {
        if block.saturating_add(1) != self.layout.blocks() {
            return Ok(());
        }
        let at = bitmap_at.saturating_add(self.layout.bitmap_offset(block));
        let mut bits = vec![0; usize::try_from(self.layout.bitmap_bytes()).unwrap_or_default()];
        self.view.read_at(ByteOffset::new(at), &mut bits, Patience::Blocking)?;
        let (within, _) = super::super::layout::within_disk(&bits, self.layout.sectors_in(block));
        if within != bits {
            let problem = "bits are set of sectors behind the end of the disk";
            let damage = Damage::new("sector bitmap block", bitmap_at, "[MS-VHDX] §2.4.2", problem);
            report.add(Finding::new("vhdx-bitmap-behind-disk", Severity::Warning, damage));
        }
        Ok(())
    }

    /// What no object takes of the file.
    fn check_space(&mut self, report: &mut Report) -> u64 {
        // qemu makes such images, and every reader takes them. The room that is missing may be so when it is wanted.
        if self.is_fixed && self.absent > 0 {
            let problem =
                format!("{} payload blocks of the image, which is fixed, have no place", self.absent);
            let damage = Damage::new("BAT region", self.region.at, "[MS-VHDX] §2.6.2.1", problem);
            report.add(Finding::new("vhdx-fixed-blocks-absent", Severity::Note, damage));
        }
        let shared = self.used.shared_with(&self.named);
        if shared > 0 {
            let problem = format!("{shared} MiB of the file are named by absent blocks, and used by others");
            let damage = Damage::new("BAT region", self.region.at, ENTRY_RULE, problem);
            report.add(Finding::new("vhdx-place-named-twice", Severity::Warning, damage));
        }
        if let Some((start, end)) = self.rest {
            self.named.take(start, end);
        }
        let (free, end) = self.used.left_by(&self.named);
        let tail = self.file_bytes.saturating_sub(end);
        let inner = free.saturating_sub(tail.div_ceil(MIB));
        if inner > 0 {
            let problem = format!("{inner} MiB between its objects belong to none of them");
            let damage = Damage::new("file", 0, LAYOUT_RULE, problem);
            report.add(Finding::new("vhdx-space-unused", Severity::Note, damage));
        }
        end
    }

    fn place_of(&self, index: u64) -> u64 {
        self.region.at.saturating_add(index.saturating_mul(8))
    }

    fn finding(
        &self,
        code: &'static str,
        severity: Severity,
        index: u64,
        rule: &'static str,
        problem: String,
    ) -> Finding {
        Finding::new(code, severity, Damage::new(NAME, self.place_of(index), rule, problem))
    }
}

/// Reads the first `entries` entries of the table, a page at a time.
fn each_entry(
    view: &View<'_>,
    region: Region,
    entries: u64,
    visit: &mut dyn FnMut(u64, u64) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let mut page = vec![0; PAGE_BYTES];
    let mut index: u64 = 0;
    while index < entries {
        let bytes = usize::try_from(entries.saturating_sub(index).saturating_mul(8)).unwrap_or(usize::MAX);
        let bytes = page.get_mut(..bytes.min(PAGE_BYTES)).unwrap_or_default();
        let at = region.at.saturating_add(index.saturating_mul(8));
        view.read_at(ByteOffset::new(at), bytes, Patience::Blocking)?;
        for &entry in bytes.as_chunks().0 {
            visit(index, u64::from_le_bytes(entry))?;
            index = index.saturating_add(1);
        }
    }
    Ok(())
}
