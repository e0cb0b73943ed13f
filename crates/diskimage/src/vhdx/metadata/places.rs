//! Where an edit of the metadata has to write.
use super::super::read_bytes;
use super::super::region::Region;
use super::entry::{Entry, PARENT_LOCATOR, TABLE_BYTES};
use super::items::Items;
use crate::error::Refusal;
use crate::storage::Storage;

/// Where in the file stands what an edit of the metadata changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Places {
    pub(in super::super) virtual_disk_size_at: u64,
    pub(in super::super) locator: Option<LocatorPlace>,
    /// What no item takes, behind the last one.
    pub(in super::super) free: Region,
}

/// The place of the parent locator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct LocatorPlace {
    /// Where its entry gives its offset in the region and, behind that, its length, both in 32 bits.
    pub(in super::super) fields_at: u64,
    pub(in super::super) at: u64,
    pub(in super::super) length: u32,
}

/// Finds the places in the metadata region of a file.
pub(in super::super) fn places(storage: &dyn Storage, region: Region) -> Result<Places, Refusal> {
    let table = read_bytes::<TABLE_BYTES>(storage, region.at)?;
    let entries = Entry::all(&table[..], region)?;
    let items = Items::find(&entries, region)?;
    let place = |offset: u32| region.at.saturating_add(offset.into());
    let locator = (0_u64..).zip(&entries).find(|(_, entry)| entry.id == PARENT_LOCATOR && !entry.is_user());
    let ends = entries.iter().map(|entry| place(entry.offset).saturating_add(entry.length.into()));
    let free_at = ends.fold(place(TABLE_BYTES as u32), u64::max).next_multiple_of(8);
    Ok(Places {
        virtual_disk_size_at: items.virtual_disk_size.at,
        locator: locator.map(|(index, entry)| LocatorPlace {
            // Behind the table's header of 32 bytes, entries of 32 bytes, which begin with the identifier.
            fields_at: region.at.saturating_add(index.saturating_mul(32)).saturating_add(32 + 16),
            at: place(entry.offset),
            length: entry.length,
        }),
        free: Region { at: free_at, length: region.end().saturating_sub(free_at) },
    })
}
