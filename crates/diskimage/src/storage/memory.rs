//! A file in memory, of which only the pages that hold something take space: for tests and fuzzing, where images of
//! many terabytes must cost nothing.
use std::collections::BTreeMap;

use block::{ByteLength, ByteOffset, ByteRange, Patience};

use super::{Storage, StorageError, check_inside};

const PAGE_BYTES: u64 = 4096;

/// A sparse file in memory.
#[derive(Clone, Debug, Default)]
pub struct MemoryStorage {
    len: ByteLength,
    pages: BTreeMap<u64, Box<[u8]>>,
}

impl MemoryStorage {
    /// A file of `len` zeros.
    #[must_use]
    pub fn sparse(len: ByteLength) -> Self {
        Self { len, pages: BTreeMap::new() }
    }

    /// A file that holds `bytes`.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        let mut file = Self::default();
        file.put(ByteOffset::ZERO, bytes);
        file
    }

    /// Puts `bytes` at `at`, and makes the file as much longer as that takes. What would lie behind the last place
    /// that an offset can name is dropped.
    pub fn put(&mut self, at: ByteOffset, bytes: &[u8]) {
        let mut place = at.get();
        let mut rest = bytes;
        while !rest.is_empty() && place < u64::MAX {
            let (page, within) = split(place);
            let count = room(within)
                .min(rest.len())
                .min(usize::try_from(u64::MAX.wrapping_sub(place)).unwrap_or(usize::MAX));
            let (piece, tail) = rest.split_at(count);
            let page = self.pages.entry(page).or_insert_with(|| vec![0; room(0)].into());
            if let Some(target) = page.get_mut(within..).and_then(|page| page.get_mut(..count)) {
                target.copy_from_slice(piece);
            }
            place = place.saturating_add(u64::try_from(count).unwrap_or_default());
            rest = tail;
        }
        self.len = self.len.max(ByteLength::new(place));
    }

    /// Makes the part of the range that lies in the file zeros.
    pub fn zero(&mut self, range: ByteRange) {
        let (start, end) = (range.start().get(), range.end().get());
        let (first, last) = (start / PAGE_BYTES, end / PAGE_BYTES);
        let whole = start.div_ceil(PAGE_BYTES)..last;
        self.pages.retain(|page, _| !whole.contains(page));
        for page in [first, last] {
            let Some(bytes) = self.pages.get_mut(&page) else { continue };
            let at = page.saturating_mul(PAGE_BYTES);
            let within =
                |place: u64| usize::try_from(place.saturating_sub(at)).unwrap_or(usize::MAX).min(room(0));
            if let Some(zeroed) = bytes.get_mut(within(start)..within(end)) {
                zeroed.fill(0);
            }
        }
    }

    /// Makes the file `len` bytes long.
    pub fn set_len(&mut self, len: ByteLength) {
        let mut cut: Vec<u64> = Vec::new();
        for (&page, bytes) in &mut self.pages {
            let start = page.saturating_mul(PAGE_BYTES);
            match usize::try_from(len.get().saturating_sub(start)) {
                Ok(0) => cut.push(page),
                Ok(kept) => bytes.iter_mut().skip(kept).for_each(|byte| *byte = 0),
                Err(_) => {}
            }
        }
        for page in cut {
            self.pages.remove(&page);
        }
        self.len = len;
    }
}

impl Storage for MemoryStorage {
    fn len(&self) -> ByteLength {
        self.len
    }

    fn read_at(&self, at: ByteOffset, buffer: &mut [u8], _: Patience) -> Result<(), StorageError> {
        check_inside(at, buffer.len(), self.len)?;
        let mut place = at.get();
        let mut rest = buffer;
        while !rest.is_empty() {
            let (page, within) = split(place);
            let count = room(within).min(rest.len());
            let (piece, tail) = rest.split_at_mut(count);
            match self.pages.get(&page).and_then(|page| page.get(within..)?.get(..count)) {
                Some(bytes) => piece.copy_from_slice(bytes),
                None => piece.fill(0),
            }
            place = place.saturating_add(u64::try_from(count).unwrap_or_default());
            rest = tail;
        }
        Ok(())
    }

    fn allocated(&self) -> Option<ByteLength> {
        u64::try_from(self.pages.len()).ok()?.checked_mul(PAGE_BYTES).map(ByteLength::new)
    }
}

fn split(place: u64) -> (u64, usize) {
    (place / PAGE_BYTES, usize::try_from(place % PAGE_BYTES).unwrap_or_default())
}

/// How much of a page lies behind `within`.
fn room(within: usize) -> usize {
    usize::try_from(PAGE_BYTES).unwrap_or_default().saturating_sub(within)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_across_pages_read_back() {
        let mut file = MemoryStorage::sparse(ByteLength::new(1 << 40));
        let bytes = block::conformance::pattern(10_000);
        file.put(ByteOffset::new((1 << 39) - 77), &bytes);
        let mut buffer = vec![1; 10_010];
        file.read_at(ByteOffset::new((1 << 39) - 82), &mut buffer, Patience::Now).unwrap();
        assert_eq!(buffer[..5], [0; 5]);
        assert_eq!(buffer[5..10_005], bytes);
        assert_eq!(buffer[10_005..], [0; 5]);
        assert_eq!(file.len().get(), 1 << 40);
    }

    #[test]
    fn bytes_behind_a_cut_are_gone() {
        let mut file = MemoryStorage::new(&[9; 9000]);
        file.set_len(ByteLength::new(5000));
        file.set_len(ByteLength::new(9000));
        let mut buffer = [1; 9000];
        file.read_at(ByteOffset::ZERO, &mut buffer, Patience::Now).unwrap();
        assert_eq!(buffer[..5000], [9; 5000]);
        assert_eq!(buffer[5000..], [0; 4000]);
    }
}
