//! A block allocation table that is loaded page by page.
//!
//! Both formats keep one array in the file that gives the place of each block: of a 64 TiB disk up to half a
//! gigabyte. A page of it is read when one of its entries is first asked for, decoded and checked once, and kept;
//! from then on a lookup is two loads and no lock. Pages whose entries are all alike, as on a sparse disk most are,
//! keep no entries. Past [`MAX_RESIDENT_PAGES`] nothing more is kept: each lookup then reads its one entry, out of
//! the page cache.
//!
//! A format may mark an entry once it has learnt more about its block (VHD: that no sector of it is missing); marks
//! live in bits that no entry of the file can have.
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use block::{ByteLength, ByteOffset, Patience};

use crate::error::{Damage, ResolveError};
use crate::storage::Storage;

/// How much of the table one page holds, in bytes of the file.
const PAGE_BYTES: u64 = 64 << 10;
/// How many pages with differing entries are kept: 16 MiB of the table, which is 64 TiB in blocks of 32 MiB. In
/// memory they take 16 MiB (VHDX) or 32 MiB (VHD).
const MAX_RESIDENT_PAGES: usize = 256;

/// Tables up to this size are read and checked as a whole when the image is opened: 4 TiB in blocks of 32 MiB.
const MAX_OPENING_BYTES: u64 = 1 << 20;

/// How an entry is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    /// 32 bits, little-endian: VMDK.
    Le32,
    /// 64 bits, big-endian: qcow2.
    Be64,
    /// 32 bits, big-endian: VHD.
    Be32,
    /// 64 bits, little-endian: VHDX.
    Le64,
}

/// Says whether the entry at an index may have the value that was read for it.
pub(crate) type Check<'a> = &'a dyn Fn(u64, u64) -> Result<(), Damage>;

/// A table in a file.
#[derive(Debug)]
pub(crate) struct Table {
    at: u64,
    entries: u64,
    width: Width,
    pages: Box<[OnceLock<Page>]>,
    resident: AtomicUsize,
    /// How many pages may be kept.
    max_resident: usize,
}

#[derive(Debug)]
enum Page {
    /// All entries have this value.
    Uniform(u64),
    Entries(Box<[AtomicU64]>),
}

/// Whether a table is small enough to be read and checked as a whole when its image is opened. Of a larger one each
/// entry is checked when its page is read; two blocks over each other are then not found.
pub(crate) fn is_read_at_opening(table: &Table) -> bool {
    table.bytes().get() <= MAX_OPENING_BYTES
}

/// Two blocks whose places in the file, given as first byte, behind-last byte and block, lie over each other.
pub(crate) fn claims_overlap(mut claims: Vec<(u64, u64, u64)>) -> Option<(u64, u64)> {
    claims.sort_unstable();
    let neighbours = claims.iter().zip(claims.iter().skip(1));
    neighbours
        .filter(|((_, end, _), (start, ..))| end > start)
        .map(|((.., one), (.., other))| (*one, *other))
        .next()
}

impl Width {
    const fn bytes(self) -> u64 {
        match self {
            Self::Be32 | Self::Le32 => 4,
            Self::Be64 | Self::Le64 => 8,
        }
    }

    const fn entries_per_page(self) -> u64 {
        match self {
            Self::Be32 | Self::Le32 => PAGE_BYTES / 4,
            Self::Be64 | Self::Le64 => PAGE_BYTES / 8,
        }
    }

    fn decode(self, bytes: &[u8]) -> Vec<u64> {
        match self {
            Self::Be32 => bytes.as_chunks().0.iter().map(|&b| u64::from(u32::from_be_bytes(b))).collect(),
            Self::Le32 => bytes.as_chunks().0.iter().map(|&b| u64::from(u32::from_le_bytes(b))).collect(),
            Self::Be64 => bytes.as_chunks().0.iter().map(|&b| u64::from_be_bytes(b)).collect(),
            Self::Le64 => bytes.as_chunks().0.iter().map(|&b| u64::from_le_bytes(b)).collect(),
        }
    }
}

impl Table {
    /// The table of `entries` entries at `at` of a file. The caller has checked that the file holds it: that bounds
    /// what is allocated here, 1/2000 of the table.
    pub(crate) fn new(at: u64, entries: u64, width: Width) -> Self {
        let pages = entries.checked_div(width.entries_per_page()).unwrap_or_default().saturating_add(1);
        let pages = (0..pages).map(|_| OnceLock::new()).collect();
        Self { at, entries, width, pages, resident: AtomicUsize::new(0), max_resident: MAX_RESIDENT_PAGES }
    }

    /// Keeps no more pages than one of `tables` tables may that share the room of one.
    pub(crate) fn share(&mut self, tables: usize) {
        self.max_resident = MAX_RESIDENT_PAGES.checked_div(tables).unwrap_or_default();
        if *self.resident.get_mut() > self.max_resident {
            self.pages.fill_with(OnceLock::new);
            *self.resident.get_mut() = 0;
        }
    }

    /// Where in the file the entry at `index` stands.
    pub(crate) fn place_of(&self, index: u64) -> u64 {
        self.at.saturating_add(index.saturating_mul(self.width.bytes()))
    }

    /// How long the table is in the file.
    pub(crate) fn bytes(&self) -> ByteLength {
        ByteLength::new(self.entries.saturating_mul(self.width.bytes()))
    }

    /// The entry at `index`, with its marks.
    pub(crate) fn get(
        &self,
        index: u64,
        storage: &dyn Storage,
        patience: Patience,
        check: Check<'_>,
    ) -> Result<u64, ResolveError> {
        let (page, within) = self.locate(index);
        let Some(slot) = self.pages.get(page).filter(|_| index < self.entries) else {
            let problem = format!("entry {index} of {} was asked for", self.entries);
            return Err(Damage::new("block allocation table", self.at, "bounds", problem).into());
        };
        if let Some(page) = slot.get() {
            return Ok(page.entry(within));
        }
        if self.resident.load(Ordering::Relaxed) >= self.max_resident {
            return self.read_one(index, storage, patience, check);
        }
        let loaded = self.load(page, storage, patience, check)?;
        // Where two threads load the same page at once, one of them wins; both have read the same.
        if matches!(loaded, Page::Entries(_)) && slot.get().is_none() {
            self.resident.fetch_add(1, Ordering::Relaxed);
        }
        Ok(slot.get_or_init(|| loaded).entry(within))
    }

    /// Adds `marks` to the entry at `index`, if its page is kept.
    pub(crate) fn mark(&self, index: u64, marks: u64) {
        let (page, within) = self.locate(index);
        if let Some(Page::Entries(entries)) = self.pages.get(page).and_then(OnceLock::get)
            && let Some(entry) = entries.get(within)
        {
            entry.fetch_or(marks, Ordering::Relaxed);
        }
    }

    fn locate(&self, index: u64) -> (usize, usize) {
        let per_page = self.width.entries_per_page();
        let page = index.checked_div(per_page).and_then(|page| usize::try_from(page).ok());
        let within = index.checked_rem(per_page).and_then(|within| usize::try_from(within).ok());
        (page.unwrap_or(usize::MAX), within.unwrap_or(usize::MAX))
    }

    fn load(
        &self,
        page: usize,
        storage: &dyn Storage,
        patience: Patience,
        check: Check<'_>,
    ) -> Result<Page, ResolveError> {
        let first = u64::try_from(page).unwrap_or(u64::MAX).saturating_mul(self.width.entries_per_page());
        let count = self.entries.saturating_sub(first).min(self.width.entries_per_page());
        let length = usize::try_from(count.saturating_mul(self.width.bytes())).unwrap_or_default();
        let mut bytes = vec![0; length];
        storage.read_at(ByteOffset::new(self.place_of(first)), &mut bytes, patience)?;
        let entries = self.width.decode(&bytes);
        for (index, &entry) in (first..).zip(&entries) {
            check(index, entry)?;
        }
        let value = entries.first().copied().unwrap_or_default();
        if entries.iter().all(|&entry| entry == value) {
            return Ok(Page::Uniform(value));
        }
        Ok(Page::Entries(entries.into_iter().map(AtomicU64::new).collect()))
    }

    fn read_one(
        &self,
        index: u64,
        storage: &dyn Storage,
        patience: Patience,
        check: Check<'_>,
    ) -> Result<u64, ResolveError> {
        let mut bytes = [0; 8];
        let length = usize::try_from(self.width.bytes()).unwrap_or_default();
        let bytes = bytes.get_mut(..length).unwrap_or_default();
        storage.read_at(ByteOffset::new(self.place_of(index)), bytes, patience)?;
        let entry = self.width.decode(bytes).first().copied().unwrap_or_default();
        check(index, entry)?;
        Ok(entry)
    }
}

impl Page {
    fn entry(&self, within: usize) -> u64 {
        match self {
            Self::Uniform(value) => *value,
            // A page has all entries that its table has in that place: `get` has checked the index.
            Self::Entries(entries) => entries.get(within).map_or(0, |entry| entry.load(Ordering::Relaxed)),
        }
    }
}
