//! The block allocation table of a file in the making.
//!
//! A few pages of it are in memory. When there are more, all of them go to the file, from which a page comes back if
//! it is changed once more: the table of the largest disk, 513 MiB, never is in memory as a whole, and one that is
//! filled from front to back is written once. What nobody has set has a value that follows from its index.
use std::collections::BTreeMap;

use block::{ByteOffset, Patience};

use super::layout::{BatLayout, Slot, state};
use crate::storage::{StorageError, WritableStorage};

const PAGE_BYTES: usize = 64 << 10;
const ENTRY_BYTES: u64 = 8;
const ENTRIES_PER_PAGE: u64 = PAGE_BYTES as u64 / ENTRY_BYTES;
/// 4 MiB of the table.
const MAX_RESIDENT_PAGES: usize = 64;

/// What an entry is that nobody has set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unset {
    /// The parent's contents are the block's.
    NotPresent,
    /// Zeros: in a file without a parent a block that is not present may hold anything ([MS-VHDX] §2.5.1.1).
    Zero,
    /// The blocks lie one behind the other, from this place on.
    Present { at: u64 },
}

/// The table in the making.
#[derive(Debug)]
pub(super) struct NewBat {
    at: u64,
    layout: BatLayout,
    unset: Unset,
    resident: BTreeMap<u64, Vec<u8>>,
    /// Which pages have been written to the file.
    written: Vec<bool>,
}

impl NewBat {
    /// The table that is to lie at `at` of the file.
    pub(super) fn new(at: u64, layout: BatLayout, unset: Unset) -> Self {
        let pages = layout.entries().div_ceil(ENTRIES_PER_PAGE);
        let written = vec![false; usize::try_from(pages).unwrap_or_default()];
        Self { at, layout, unset, resident: BTreeMap::new(), written }
    }

    /// The entry at `index`.
    pub(super) fn get(&mut self, index: u64, storage: &dyn WritableStorage) -> Result<u64, StorageError> {
        self.entry(index, storage).map(|entry| u64::from_le_bytes(*entry))
    }

    /// Sets the entry at `index`, which the table has.
    pub(super) fn set(
        &mut self,
        index: u64,
        value: u64,
        storage: &dyn WritableStorage,
    ) -> Result<(), StorageError> {
        self.entry(index, storage).map(|entry| *entry = value.to_le_bytes())
    }

    /// Writes all that is not yet in the file.
    pub(super) fn finish(mut self, storage: &dyn WritableStorage) -> Result<(), StorageError> {
        self.spill(storage)?;
        // In a new file zeros are there already.
        if self.unset == Unset::NotPresent {
            return Ok(());
        }
        for (page, is_written) in (0..).zip(&self.written) {
            if !is_written {
                storage.write_at(self.place(page), &self.unset_page(page))?;
            }
        }
        Ok(())
    }

    fn entry(&mut self, index: u64, storage: &dyn WritableStorage) -> Result<&mut [u8; 8], StorageError> {
        let (page, within) = (index / ENTRIES_PER_PAGE, index % ENTRIES_PER_PAGE);
        if !self.resident.contains_key(&page) {
            if self.resident.len() >= MAX_RESIDENT_PAGES {
                self.spill(storage)?;
            }
            let bytes = self.load(page, storage)?;
            self.resident.insert(page, bytes);
        }
        let end_of_file = StorageError::EndOfFile { at: self.place_of(index), wanted: 8, len: 0 };
        let entries = self.resident.get_mut(&page).map(|bytes| bytes.as_chunks_mut().0).unwrap_or_default();
        let within = usize::try_from(within).unwrap_or(usize::MAX);
        entries.get_mut(within).ok_or(end_of_file)
    }

    fn load(&self, page: u64, storage: &dyn WritableStorage) -> Result<Vec<u8>, StorageError> {
        let slot = usize::try_from(page).ok().and_then(|page| self.written.get(page));
        if slot != Some(&true) {
            return Ok(self.unset_page(page));
        }
        let mut bytes = vec![0; self.page_bytes(page)];
        storage.read_at(self.place(page), &mut bytes, Patience::Blocking)?;
        Ok(bytes)
    }

    /// Writes the pages in memory, and forgets them.
    fn spill(&mut self, storage: &dyn WritableStorage) -> Result<(), StorageError> {
        for (&page, bytes) in &self.resident {
            storage.write_at(self.place(page), bytes)?;
            let slot = usize::try_from(page).ok().and_then(|page| self.written.get_mut(page));
            if let Some(slot) = slot {
                *slot = true;
            }
        }
        self.resident.clear();
        Ok(())
    }

    fn unset_page(&self, page: u64) -> Vec<u8> {
        let first = page.saturating_mul(ENTRIES_PER_PAGE);
        let count = u64::try_from(self.page_bytes(page)).unwrap_or_default() / ENTRY_BYTES;
        let entries = (first..).zip(0..count).map(|(index, _)| self.unset_entry(index));
        entries.flat_map(u64::to_le_bytes).collect()
    }

    fn unset_entry(&self, index: u64) -> u64 {
        let Slot::Payload(block) = self.layout.slot(index) else { return 0 };
        match self.unset {
            Unset::NotPresent => state::NOT_PRESENT,
            Unset::Zero => state::ZERO,
            // Both are whole MiB: the state's bits are free.
            Unset::Present { at } => {
                at.saturating_add(block.saturating_mul(self.layout.block_bytes().get()))
                    | state::FULLY_PRESENT
            }
        }
    }

    fn page_bytes(&self, page: u64) -> usize {
        let before = page.saturating_mul(ENTRIES_PER_PAGE);
        let left = self.layout.entries().saturating_sub(before).saturating_mul(ENTRY_BYTES);
        usize::try_from(left).unwrap_or(usize::MAX).min(PAGE_BYTES)
    }

    fn place(&self, page: u64) -> ByteOffset {
        self.place_of(page.saturating_mul(ENTRIES_PER_PAGE))
    }

    fn place_of(&self, index: u64) -> ByteOffset {
        ByteOffset::new(self.at.saturating_add(index.saturating_mul(ENTRY_BYTES)))
    }
}

#[cfg(test)]
mod tests {
    use block::{ByteLength, LogicalBlockSize};

    use super::*;
    use crate::guid::Guid;
    use crate::storage::{CrashStorage, MemoryStorage, Storage};
    use crate::vhdx::Metadata;

    /// Nine chunks of 8192 blocks: more pages than stay in memory.
    fn layout() -> BatLayout {
        let metadata =
            Metadata::new(1 << 20, false, 600 << 30, Guid::NIL, (LogicalBlockSize::B512, 512), None);
        BatLayout::of(&metadata)
    }

    #[test]
    fn table_agrees_with_a_flat_one_in_whatever_order_it_is_filled() {
        for (unset, seed) in [(Unset::NotPresent, 1), (Unset::Zero, 2), (Unset::Present { at: 9 << 20 }, 3)] {
            let layout = layout();
            let file = CrashStorage::new(MemoryStorage::sparse(ByteLength::new(16 << 20)));
            let mut bat = NewBat::new(1 << 20, layout, unset);
            let mut model: Vec<u64> = (0..layout.entries()).map(|index| bat.unset_entry(index)).collect();
            let mut rng = mutate::Rng::new(seed);
            for _ in 0..2000 {
                let index = rng.below(layout.entries());
                assert_eq!(bat.get(index, &file).unwrap(), model[index as usize]);
                let value = rng.below(u64::MAX);
                bat.set(index, value, &file).unwrap();
                model[index as usize] = value;
            }
            assert!(bat.resident.len() <= MAX_RESIDENT_PAGES);
            bat.finish(&file).unwrap();
            let mut bytes = vec![0; model.len() * 8];
            file.read_at(ByteOffset::new(1 << 20), &mut bytes, Patience::Now).unwrap();
            let stored: Vec<u64> =
                bytes.as_chunks().0.iter().map(|&entry| u64::from_le_bytes(entry)).collect();
            assert!(stored == model, "{unset:?}");
        }
    }

    #[test]
    fn table_filled_from_front_to_back_is_written_once() {
        let layout = layout();
        let file = CrashStorage::new(MemoryStorage::default());
        let mut bat = NewBat::new(0, layout, Unset::Zero);
        for block in 0..layout.blocks() {
            bat.set(layout.index_of(block), block << 20, &file).unwrap();
        }
        bat.finish(&file).unwrap();
        assert_eq!(file.moments() as u64, layout.entries().div_ceil(ENTRIES_PER_PAGE));
        assert_eq!(file.len().get(), layout.entries() * 8);
    }
}
