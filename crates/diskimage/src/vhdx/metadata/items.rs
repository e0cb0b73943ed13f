//! The items of a file, found by their identifiers ([MS-VHDX] §2.6.2).
use block::{ByteOffset, Patience};

use super::super::region::Region;
use super::entry::{
    Entry, FILE_PARAMETERS, INCOMPLETE, IS_VIRTUAL_DISK, LOGICAL_SECTOR_SIZE, MAX_ITEM_BYTES, NAME,
    PARENT_LOCATOR, PHYSICAL_SECTOR_SIZE, RULE, VIRTUAL_DISK_ID, VIRTUAL_DISK_SIZE, is_known_item,
};
use crate::error::{Damage, Refusal};
use crate::guid::Guid;
use crate::storage::Storage;

/// Where the items are that every file must have.
#[derive(Debug)]
pub(super) struct Items {
    pub(super) file_parameters: Item<8>,
    pub(super) virtual_disk_size: Item<8>,
    pub(super) virtual_disk_id: Item<16>,
    pub(super) logical_sector_size: Item<4>,
    pub(super) physical_sector_size: Item<4>,
    /// Place and length.
    pub(super) parent_locator: Option<(u64, u32)>,
    pub(super) carried: Vec<CarriedItem>,
}

/// The place of an item of `N` bytes in the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item<const N: usize> {
    pub(super) at: u64,
}

impl<const N: usize> Item<N> {
    pub(super) fn read(self, storage: &dyn Storage) -> Result<[u8; N], Refusal> {
        let mut bytes = [0; N];
        storage.read_at(ByteOffset::new(self.at), &mut bytes, Patience::Blocking)?;
        Ok(bytes)
    }

    pub(super) fn damage(self, rule: &'static str, problem: String) -> Damage {
        Damage::new("metadata item", self.at, rule, problem)
    }
}

impl Items {
    pub(super) fn parse(table: &[u8], region: Region) -> Result<Self, Refusal> {
        Self::find(&Entry::all(table, region)?, region)
    }

    pub(super) fn find(entries: &[Entry], region: Region) -> Result<Self, Refusal> {
        if entries.iter().any(|entry| entry.id == INCOMPLETE && !entry.is_user()) {
            return Err(Refusal::Incomplete);
        }
        // [MS-VHDX] §2.6.1.2: a file with an unknown item that is required must not be opened.
        let strange = |entry: &&Entry| entry.is_required() && (entry.is_user() || !is_known_item(entry.id));
        if let Some(entry) = entries.iter().find(strange) {
            let whose = if entry.is_user() { "user" } else { "system" };
            return Err(Refusal::unsupported(
                RULE,
                format!("the required {whose} metadata item {}", entry.id),
            ));
        }
        let is_known = |entry: &&Entry| !entry.is_user() && is_known_item(entry.id);
        let place = |entry: &Entry| match entry.length {
            0 => region.at,
            _ => region.at.saturating_add(entry.offset.into()),
        };
        let carried = entries.iter().filter(|entry| !is_known(entry) && entry.flags & IS_VIRTUAL_DISK != 0);
        let carried = carried.map(|entry| CarriedItem {
            id: entry.id,
            is_user: entry.is_user(),
            at: place(entry),
            length: entry.length,
        });
        let locator = entries.iter().find(|entry| entry.id == PARENT_LOCATOR && !entry.is_user());
        Ok(Self {
            parent_locator: locator.map(|entry| (place(entry), entry.length)),
            carried: carried.collect(),
            file_parameters: item("file parameters", FILE_PARAMETERS, entries, region)?,
            virtual_disk_size: item("virtual disk size", VIRTUAL_DISK_SIZE, entries, region)?,
            virtual_disk_id: item("virtual disk identifier", VIRTUAL_DISK_ID, entries, region)?,
            logical_sector_size: item("logical sector size", LOGICAL_SECTOR_SIZE, entries, region)?,
            physical_sector_size: item("physical sector size", PHYSICAL_SECTOR_SIZE, entries, region)?,
        })
    }
}

/// The system's item `id`, which must have `N` bytes.
fn item<const N: usize>(name: &str, id: Guid, entries: &[Entry], region: Region) -> Result<Item<N>, Damage> {
    let damage = |problem: String| Damage::new(NAME, region.at, RULE, problem);
    let found = entries.iter().find(|entry| entry.id == id && !entry.is_user());
    let entry = found.ok_or_else(|| damage(format!("there is no {name} ({id})")))?;
    if usize::try_from(entry.length) != Ok(N) {
        return Err(damage(format!("the {name} has {} bytes, not {N}", entry.length)));
    }
    Ok(Item { at: region.at.saturating_add(u64::from(entry.offset)) })
}

/// An item that is not known, and that belongs to the disk rather than to the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CarriedItem {
    pub(super) id: Guid,
    pub(super) is_user: bool,
    pub(super) at: u64,
    pub(super) length: u32,
}

/// The `length` bytes at `at`: an item, whose entry was checked, has at most 1 MiB.
pub(super) fn read_vec(storage: &dyn Storage, at: u64, length: u32) -> Result<Vec<u8>, Refusal> {
    let mut bytes = vec![0; usize::try_from(length.min(MAX_ITEM_BYTES)).unwrap_or_default()];
    storage.read_at(ByteOffset::new(at), &mut bytes, Patience::Blocking)?;
    Ok(bytes)
}
