//! Writing log entries ([MS-VHDX] §2.3.1).
//!
//! An entry holds at most as many pages as have room for their descriptors in its first sector: qemu 7.2 fails to
//! replay larger ones, and a replay by it must give the same file as one by us.
use super::super::log::SECTOR_BYTES;
use super::super::sealed;
use super::pages::Page;
use crate::guid::Guid;

/// 64 bytes of header and 126 descriptors of 32 bytes fill a sector.
pub(super) const MAX_PAGES: usize = 126;

/// What an entry says besides its pages.
#[derive(Clone, Copy, Debug)]
pub(super) struct EntryFrame {
    pub(super) guid: Guid,
    pub(super) sequence_number: u64,
    /// Where in the log the oldest entry is that a replay of this one needs.
    pub(super) tail: u32,
    /// How long the file is for certain.
    pub(super) file_bytes: u64,
}

/// How much of the log an entry with this many pages takes, in bytes.
pub(super) fn entry_bytes(pages: usize) -> u64 {
    u64::try_from(pages).unwrap_or(u64::MAX).saturating_add(1).saturating_mul(SECTOR_BYTES)
}

/// The entry with these pages, at most [`MAX_PAGES`], as it is stored.
pub(super) fn encode(frame: EntryFrame, pages: &[(u64, Box<Page>)]) -> Vec<u8> {
    let length = u32::try_from(entry_bytes(pages.len())).unwrap_or(u32::MAX);
    let mut entry = b"loge".to_vec();
    entry.extend([0; 4]);
    entry.extend(length.to_le_bytes());
    entry.extend(frame.tail.to_le_bytes());
    entry.extend(frame.sequence_number.to_le_bytes());
    entry.extend(u32::try_from(pages.len()).unwrap_or(u32::MAX).to_le_bytes());
    entry.extend([0; 4]);
    entry.extend(frame.guid.to_le_bytes());
    // [MS-VHDX] §2.3.1.1: the file was this long on disk when the entry was written, and is to be this long after its
    // replay. A commit makes the file's growth lasting before it writes an entry, so both are the same.
    entry.extend(frame.file_bytes.to_le_bytes());
    entry.extend(frame.file_bytes.to_le_bytes());
    for (at, page) in pages {
        let (leading, _, trailing) = split(page);
        entry.extend(b"desc");
        entry.extend(trailing);
        entry.extend(leading);
        entry.extend(at.to_le_bytes());
        entry.extend(frame.sequence_number.to_le_bytes());
    }
    entry.resize(SECTOR_BYTES as usize, 0);
    let [s0, s1, s2, s3, s4, s5, s6, s7] = frame.sequence_number.to_le_bytes();
    for (_, page) in pages {
        entry.extend(b"data");
        entry.extend([s4, s5, s6, s7]);
        entry.extend(split(page).1);
        entry.extend([s0, s1, s2, s3]);
    }
    sealed(entry)
}

/// [MS-VHDX] §2.3.1.3: the first 8 and the last 4 bytes of a page stand in its descriptor.
fn split(page: &Page) -> (&[u8], &[u8], &[u8]) {
    let (leading, rest) = page.split_at_checked(8).unwrap_or_default();
    let (middle, trailing) = rest.split_at_checked(4084).unwrap_or_default();
    (leading, middle, trailing)
}

#[cfg(test)]
mod tests {
    use super::super::super::log::{Descriptor, EntryHeader, data_sector};
    use super::*;

    #[test]
    fn entry_parses_to_the_pages_it_was_made_of() {
        let guid = Guid::from_u128(7);
        for count in [0, 1, MAX_PAGES] {
            let page = |n: usize| {
                let bytes = block::conformance::pattern(4096 * (n + 1));
                (n as u64 * 8192, Box::new(*bytes.last_chunk().unwrap()))
            };
            let pages: Vec<(u64, Box<Page>)> = (0..count).map(page).collect();
            let sequence_number = 0x1234_5678_9ABC_DEF0;
            let frame = EntryFrame { guid, sequence_number, tail: 8192, file_bytes: 5 << 20 };
            let entry = encode(frame, &pages);
            assert_eq!(entry.len() as u64, entry_bytes(count));
            let header = EntryHeader::parse(&entry, guid, 1 << 20).unwrap();
            assert!(header.is_intact(&entry, &[]));
            assert_eq!((header.tail, header.sequence_number), (8192, sequence_number));
            assert_eq!((header.flushed_file_offset, header.last_file_offset), (5 << 20, 5 << 20));
            assert_eq!((header.descriptors, header.descriptor_sectors()), (count as u64, 1));
            for (n, (at, page)) in pages.iter().enumerate() {
                let descriptor = entry[64 + 32 * n..].first_chunk().unwrap();
                let descriptor = Descriptor::parse(descriptor, sequence_number).unwrap();
                let Descriptor::Data { at: place, leading, trailing } = descriptor else { panic!() };
                let stored = &entry[4096 * (n + 1)..][..4096];
                assert_eq!(place, *at);
                assert_eq!(*data_sector(stored, leading, trailing, sequence_number).unwrap(), page[..]);
            }
        }
    }
}
