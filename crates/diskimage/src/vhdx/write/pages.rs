//! The pages of the file's tables (block allocation table, sector bitmaps) that are in memory.
//!
//! A page is the unit of the log: 4 KiB of the file at a multiple of 4 KiB. What an operation changes, it changes here;
//! a commit takes all changed pages at once, brings them through the log into the file, and only then forgets them:
//! until they stand in the file they are found among the *captured* ones.
use std::collections::{BTreeMap, BTreeSet, HashMap};

use block::{ByteOffset, Patience};

use super::super::log::SECTOR_BYTES;
use crate::storage::{Storage, StorageError};

/// A page's bytes.
pub(super) type Page = [u8; SECTOR_BYTES as usize];

/// How many unchanged pages are kept: 16 MiB, the whole table of 64 TiB in blocks of 32 MiB.
const MAX_KEPT: usize = 4096;

/// Pages by their place in the file.
#[derive(Debug, Default)]
pub(super) struct Pages {
    loaded: HashMap<u64, Box<Page>>,
    changed: BTreeSet<u64>,
    captured: BTreeMap<u64, Box<Page>>,
}

/// Where the page begins that holds `place`.
pub(super) fn page_of(place: u64) -> u64 {
    place.saturating_sub(place % SECTOR_BYTES)
}

impl Pages {
    /// The page at `at`, if it is in memory.
    pub(super) fn get(&self, at: u64) -> Option<&Page> {
        self.loaded.get(&at).map(|page| &**page)
    }

    /// The page at `at`, to be changed, if it is in memory.
    pub(super) fn get_mut(&mut self, at: u64) -> Option<&mut Page> {
        let page = self.loaded.get_mut(&at)?;
        self.changed.insert(at);
        Some(page)
    }

    /// Brings the page at `at` into memory.
    pub(super) fn load(
        &mut self,
        at: u64,
        storage: &dyn Storage,
        patience: Patience,
    ) -> Result<(), StorageError> {
        if self.loaded.contains_key(&at) {
            return Ok(());
        }
        let page = match self.captured.get(&at) {
            Some(page) => page.clone(),
            None => {
                let mut page = Box::new([0; SECTOR_BYTES as usize]);
                storage.read_at(ByteOffset::new(at), &mut *page, patience)?;
                page
            }
        };
        self.loaded.insert(at, page);
        Ok(())
    }

    /// How many pages wait for a commit.
    pub(super) fn changed(&self) -> usize {
        self.changed.len()
    }

    /// Takes all changed pages for a commit. Those of the commit before must have been [`settled`](Self::settled).
    pub(super) fn capture(&mut self) -> Vec<(u64, Box<Page>)> {
        for at in std::mem::take(&mut self.changed) {
            if let Some(page) = self.loaded.get(&at) {
                self.captured.insert(at, page.clone());
            }
        }
        self.captured()
    }

    /// The pages that a commit took and that may not stand in the file yet.
    pub(super) fn captured(&self) -> Vec<(u64, Box<Page>)> {
        self.captured.iter().map(|(&at, page)| (at, page.clone())).collect()
    }

    /// The captured pages stand in the file.
    pub(super) fn settled(&mut self) {
        self.captured.clear();
    }

    /// The captured pages did not get into the log: they wait for the next commit.
    pub(super) fn restore(&mut self) {
        for (at, page) in std::mem::take(&mut self.captured) {
            self.loaded.entry(at).or_insert(page);
            self.changed.insert(at);
        }
    }

    /// Forgets unchanged pages where there are too many. Not while an operation counts on pages that it has loaded.
    pub(super) fn trim(&mut self) {
        if self.loaded.len() > MAX_KEPT.saturating_add(self.changed.len()) {
            let changed = &self.changed;
            self.loaded.retain(|at, _| changed.contains(at));
        }
    }
}
