//! The block allocation table in memory, all of it: what writers need.
//!
//! A reader looks up what it is asked for and may meet any table; whoever writes must know all blocks, to give new ones
//! a place that no other has. So the size of tables that are written is bounded: 16 MiB, which is a disk of 2040 GiB in
//! blocks of 512 KiB; the default of 2 MiB needs a quarter of it.
use super::SECTOR_BYTES;

/// How many entries a table may have that is written here.
const MAX_ENTRIES: u32 = 4 << 20;
/// The entry of a block that has no place.
const ABSENT: u32 = u32::MAX;
const ENTRY_BYTES: u64 = 4;

/// The sector of the file at which each block begins, if it has a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BlockTable {
    entries: Vec<u32>,
}

impl BlockTable {
    /// `entries`, if a table may have so many.
    pub(super) fn check_entries(entries: u64) -> Option<u32> {
        u32::try_from(entries).ok().filter(|&entries| entries <= MAX_ENTRIES)
    }

    /// The table of `entries` blocks without a place. The caller has checked the number.
    pub(super) fn absent(entries: u32) -> Self {
        Self { entries: vec![ABSENT; usize::try_from(entries).unwrap_or_default()] }
    }

    /// The table whose bytes these are.
    pub(super) fn decode(bytes: &[u8]) -> Self {
        Self { entries: bytes.as_chunks().0.iter().map(|&entry| u32::from_be_bytes(entry)).collect() }
    }

    /// The table's bytes, to the end of its last sector: what is behind the last entry counts as absent.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> = self.entries.iter().flat_map(|entry| entry.to_be_bytes()).collect();
        bytes.resize(usize::try_from(self.bytes_in_file()).unwrap_or(bytes.len()), 0xFF);
        bytes
    }

    /// How many entries there are.
    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.entries.len()).unwrap_or(u32::MAX)
    }

    /// How much of the file the table takes ([VHD] "Block Allocation Table": whole sectors).
    pub(super) fn bytes_in_file(&self) -> u64 {
        Self::bytes_of(self.len())
    }

    /// How much of the file a table of `entries` entries takes.
    pub(super) fn bytes_of(entries: u32) -> u64 {
        u64::from(entries).saturating_mul(ENTRY_BYTES).next_multiple_of(SECTOR_BYTES)
    }

    /// Where `block` begins.
    pub(super) fn get(&self, block: u32) -> Option<u32> {
        let index = usize::try_from(block).ok()?;
        self.entries.get(index).copied().filter(|&entry| entry != ABSENT)
    }

    pub(super) fn set(&mut self, block: u32, sector: Option<u32>) {
        let entry = usize::try_from(block).ok().and_then(|index| self.entries.get_mut(index));
        if let Some(entry) = entry {
            *entry = sector.unwrap_or(ABSENT);
        }
    }

    /// Blocks that have a place, and it.
    pub(super) fn placed(&self) -> impl Iterator<Item = (u32, u32)> {
        (0..).zip(self.entries.iter().copied()).filter(|&(_, sector)| sector != ABSENT)
    }

    /// Where the entry of `block` stands, seen from the table's start, and its bytes.
    pub(super) fn entry_bytes(&self, block: u32) -> (u64, [u8; ENTRY_BYTES as usize]) {
        let at = u64::from(block).saturating_mul(ENTRY_BYTES);
        (at, self.get(block).unwrap_or(ABSENT).to_be_bytes())
    }

    /// Gives the table `entries` entries; new ones have no place.
    pub(super) fn resize(&mut self, entries: u32) {
        self.entries.resize(usize::try_from(entries).unwrap_or_default(), ABSENT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_table_fills_its_last_sector_and_reads_as_it_was() {
        let mut table = BlockTable::absent(130);
        table.set(0, Some(0x9F));
        table.set(129, Some(7));
        table.set(130, Some(1));
        let bytes = table.encode();
        assert_eq!((bytes.len(), &bytes[..8]), (1024, &[0, 0, 0, 0x9F, 0xFF, 0xFF, 0xFF, 0xFF][..]));
        assert_eq!((&bytes[516..520], &bytes[520..524]), (&[0, 0, 0, 7][..], &[0xFF; 4][..]));
        assert_eq!(BlockTable::decode(&bytes[..520]), table);
        assert_eq!(table.placed().collect::<Vec<_>>(), [(0, 0x9F), (129, 7)]);
        assert_eq!(table.entry_bytes(129), (516, [0, 0, 0, 7]));
        assert_eq!(table.entry_bytes(1), (4, [0xFF; 4]));
    }

    #[test]
    fn number_of_entries_has_a_limit() {
        assert_eq!(BlockTable::check_entries(4 << 20), Some(4 << 20));
        assert_eq!(BlockTable::check_entries((4 << 20) + 1), None);
        assert_eq!(BlockTable::check_entries(1 << 40), None);
    }
}
