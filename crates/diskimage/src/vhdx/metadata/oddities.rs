//! What a check says of metadata that a reader takes all the same.
use super::super::read_bytes;
use super::super::region::Region;
use super::entry::{
    Entry, FILE_PARAMETERS, IS_REQUIRED, IS_VIRTUAL_DISK, LOGICAL_SECTOR_SIZE, PARENT_LOCATOR,
    PHYSICAL_SECTOR_SIZE, TABLE_BYTES, VIRTUAL_DISK_ID, VIRTUAL_DISK_SIZE,
};
use crate::error::Refusal;
use crate::storage::Storage;

/// What is odd about items that a reader can do without: a code and the problem.
pub(in super::super) fn oddities(
    storage: &dyn Storage,
    region: Region,
) -> Result<Vec<(&'static str, String)>, Refusal> {
    let table = read_bytes::<TABLE_BYTES>(storage, region.at)?;
    let mut entries = Entry::all(&table[..], region)?;
    let mut odd = Vec::new();
    for entry in entries.iter().filter(|entry| !entry.is_user()) {
        // [MS-VHDX] §2.6.2: what other programs must carry along with the disk, and must not ignore.
        let expected = match entry.id {
            FILE_PARAMETERS | PARENT_LOCATOR => IS_REQUIRED,
            VIRTUAL_DISK_SIZE | VIRTUAL_DISK_ID | LOGICAL_SECTOR_SIZE | PHYSICAL_SECTOR_SIZE => {
                IS_VIRTUAL_DISK | IS_REQUIRED
            }
            _ => continue,
        };
        if entry.flags & (IS_VIRTUAL_DISK | IS_REQUIRED) != expected {
            odd.push((
                "vhdx-item-flags",
                format!("item {} has the flags {:#x}, not {expected:#x}", entry.id, entry.flags),
            ));
        }
    }
    entries.retain(|entry| entry.length != 0);
    entries.sort_unstable_by_key(|entry| entry.offset);
    for (one, other) in entries.iter().zip(entries.iter().skip(1)) {
        if one.offset.saturating_add(one.length) > other.offset {
            odd.push(("vhdx-items-overlap", format!("item {} lies over item {}", other.id, one.id)));
        }
    }
    Ok(odd)
}
