//! The second level of a table of tables: qcow2's L2 tables and VMDK's grain tables.
//!
//! The first level ([`crate::table::Table`]) gives the place of each second-level table. Those are read in pages, when
//! one of their entries is first asked for, and kept; from then on a lookup is a few loads and no lock. Past
//! [`MAX_RESIDENT_BYTES`] nothing more is kept: each lookup then reads its one entry, out of the page cache. Slots for
//! pages are made in groups, so that a disk that is mostly empty takes next to nothing.
//!
//! Pages hold the file's bytes; entries are decoded and checked at each lookup, which is cheaper than the memory that
//! decoded ones would take.
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use block::{ByteOffset, Patience};

use crate::storage::{Storage, StorageError};

/// How much of a table one page holds at most: 128 MiB of disk in clusters of 64 KiB.
const MAX_PAGE_BYTES: u64 = 16 << 10;
/// How many slots of pages are made at once.
const GROUP_PAGES: u64 = 256;
/// How much memory pages and their slots may take: the tables of 128 GiB of disk in clusters of 64 KiB.
const MAX_RESIDENT_BYTES: u64 = 16 << 20;
/// What a slot takes.
const SLOT_BYTES: u64 = 32;

type Page = OnceLock<Box<[u8]>>;

/// The second-level tables of an image, all of one length.
#[derive(Debug)]
pub(crate) struct SecondLevel {
    table_bytes: u64,
    page_bytes: u64,
    pages_per_table: u64,
    groups: Box<[OnceLock<Box<[Page]>>]>,
    budget: Budget,
}

/// How much memory the tables of one image take, of all its files together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Budget(Arc<AtomicU64>);

impl Budget {
    fn has_room(&self, bytes: u64) -> bool {
        self.0.load(Ordering::Relaxed).saturating_add(bytes) <= MAX_RESIDENT_BYTES
    }

    fn take(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Which entry of which table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryPlace {
    /// The table's index in the first level.
    pub(crate) table: u64,
    /// Where that table stands in the file.
    pub(crate) table_at: u64,
    /// The entry's first byte, from the start of the table.
    pub(crate) within: u64,
}

impl EntryPlace {
    /// Where the entry stands in the file.
    pub(crate) fn at(self) -> u64 {
        self.table_at.saturating_add(self.within)
    }
}

impl SecondLevel {
    /// For `tables` tables of `table_bytes` bytes each. The caller has bounded `tables` by the length of a first level
    /// that lies in the file, and `table_bytes` by [`crate::compressed::MAX_UNIT_BYTES`].
    pub(crate) fn new(tables: u64, table_bytes: u64, budget: Budget) -> Self {
        let page_bytes = table_bytes.clamp(1, MAX_PAGE_BYTES);
        let pages_per_table = table_bytes.div_ceil(page_bytes);
        let groups = tables.saturating_mul(pages_per_table).div_ceil(GROUP_PAGES);
        let groups = (0..groups).map(|_| OnceLock::new()).collect();
        Self { table_bytes, page_bytes, pages_per_table, groups, budget }
    }

    /// The entry's bytes.
    pub(crate) fn entry<const N: usize>(
        &self,
        place: EntryPlace,
        storage: &dyn Storage,
        patience: Patience,
    ) -> Result<[u8; N], StorageError> {
        let first =
            place.within.saturating_sub(place.within.checked_rem(self.page_bytes).unwrap_or_default());
        let within_page = usize::try_from(place.within.saturating_sub(first)).unwrap_or(usize::MAX);
        if let Some(slot) = self.slot(place) {
            let page = match slot.get() {
                Some(page) => Some(page),
                None if self.budget.has_room(self.page_bytes) => {
                    let length = self.table_bytes.saturating_sub(first).min(self.page_bytes);
                    let mut bytes = vec![0; usize::try_from(length).unwrap_or_default()];
                    let at = place.table_at.saturating_add(first);
                    storage.read_at(ByteOffset::new(at), &mut bytes, patience)?;
                    // Where two threads load a page at once, one of them wins; both have read the same.
                    self.budget.take(self.page_bytes);
                    Some(slot.get_or_init(|| bytes.into()))
                }
                None => None,
            };
            let entry = page.and_then(|page| page.get(within_page..)?.first_chunk::<N>());
            if let Some(entry) = entry {
                return Ok(*entry);
            }
        }
        let mut entry = [0; N];
        storage.read_at(ByteOffset::new(place.at()), &mut entry, patience)?;
        Ok(entry)
    }

    /// The page's slot, if its group is there or can be made.
    fn slot(&self, place: EntryPlace) -> Option<&Page> {
        let in_table = place.within.checked_div(self.page_bytes)?;
        let page = place.table.checked_mul(self.pages_per_table)?.checked_add(in_table)?;
        let group = self.groups.get(usize::try_from(page / GROUP_PAGES).ok()?)?;
        let slots = match group.get() {
            Some(slots) => slots,
            None => {
                let bytes = GROUP_PAGES.saturating_mul(SLOT_BYTES);
                if !self.budget.has_room(bytes) {
                    return None;
                }
                self.budget.take(bytes);
                group.get_or_init(|| (0..GROUP_PAGES).map(|_| OnceLock::new()).collect())
            }
        };
        slots.get(usize::try_from(page % GROUP_PAGES).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use block::ByteLength;

    use super::*;
    use crate::storage::MemoryStorage;

    /// 4096 tables of 16 KiB: four times what is kept. Each entry names itself.
    fn tables() -> MemoryStorage {
        let mut file = MemoryStorage::sparse(ByteLength::new(4096 << 14));
        for table in 0..4096_u64 {
            for within in [0, 8, 16 << 9, (16 << 10) - 8] {
                let at = (table << 14) + within;
                file.put(ByteOffset::new(at), &at.to_be_bytes());
            }
        }
        file
    }

    #[test]
    fn entries_read_right_with_and_without_room_to_keep_their_page() {
        let file = tables();
        let level = SecondLevel::new(4096, 16 << 10, Budget::default());
        for pass in 0..2 {
            for table in 0..4096 {
                for within in [0, 8, 16 << 9, (16 << 10) - 8] {
                    let place = EntryPlace { table, table_at: table << 14, within };
                    let entry = level.entry::<8>(place, &file, Patience::Now).unwrap();
                    assert_eq!(u64::from_be_bytes(entry), place.at(), "pass {pass}");
                }
            }
        }
        assert!(level.budget.has_room(0));
    }

    #[test]
    fn kept_page_is_not_read_again() {
        let level = SecondLevel::new(2, 2048, Budget::default());
        let place = EntryPlace { table: 1, table_at: 4096, within: 2044 };
        let mut file = MemoryStorage::sparse(ByteLength::new(1 << 20));
        file.put(ByteOffset::new(place.at()), &[1, 2, 3, 4]);
        assert_eq!(level.entry(place, &file, Patience::Now).unwrap(), [1, 2, 3, 4]);
        assert_eq!(level.entry(place, &MemoryStorage::default(), Patience::Now).unwrap(), [1, 2, 3, 4]);
    }
}
