//! The metadata region: what the disk is like ([MS-VHDX] §2.6).
use block::{ByteOffset, LogicalBlockSize, Patience};

use super::locator::Locator;
use super::region::Region;
use super::{MIB, read_bytes};
use crate::cursor::Cursor;
use crate::error::{Damage, Refusal};
use crate::guid::Guid;
use crate::new_image::MetadataItem;
use crate::storage::Storage;

const TABLE_BYTES: usize = 64 << 10;
const SIGNATURE: &[u8] = b"metadata";
/// As many entries as fit behind the table's header of 32 bytes ([MS-VHDX] §2.6.1.1).
const MAX_ENTRIES: u16 = 2047;
/// [MS-VHDX] §2.6.1.2.
const MAX_ITEM_BYTES: u32 = 1 << 20;
/// [MS-VHDX] §2.6.2.2.
pub(super) const MAX_DISK_BYTES: u64 = 64 << 40;
/// The most that is carried along of items that are not known: they lie in a region of 1 MiB, as a rule.
const MAX_CARRIED_BYTES: u64 = 512 << 10;
const NAME: &str = "metadata table";
const RULE: &str = "[MS-VHDX] §2.6";

const FILE_PARAMETERS: Guid = Guid::from_u128(0xCAA1_6737_FA36_4D43_B3B6_33F0_AA44_E76B);
const VIRTUAL_DISK_SIZE: Guid = Guid::from_u128(0x2FA5_4224_CD1B_4876_B211_5DBE_D83B_F4B8);
const VIRTUAL_DISK_ID: Guid = Guid::from_u128(0xBECA_12AB_B2E6_4523_93EF_C309_E000_C746);
const LOGICAL_SECTOR_SIZE: Guid = Guid::from_u128(0x8141_BF1D_A96F_4709_BA47_F233_A8FA_AB5F);
const PHYSICAL_SECTOR_SIZE: Guid = Guid::from_u128(0xCDA3_48C7_445D_4471_9CC9_E988_5251_C556);
const PARENT_LOCATOR: Guid = Guid::from_u128(0xA8D3_5F2D_B30B_454D_ABF7_D3D8_4834_AB0C);
/// Our own: the file is being made. Nobody else knows the item, and since it is required, everybody must refuse it.
const INCOMPLETE: Guid = Guid::from_u128(0x94DE_C938_64E1_44BE_BDFA_45CF_05B7_306C);

/// Bits of an item's flags ([MS-VHDX] §2.6.1.2).
const IS_USER: u32 = 1;
const IS_VIRTUAL_DISK: u32 = 2;
const IS_REQUIRED: u32 = 4;
/// Bits of the file parameters ([MS-VHDX] §2.6.2.1).
const LEAVE_BLOCKS_ALLOCATED: u32 = 1;
const HAS_PARENT: u32 = 2;

/// What the disk is like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Metadata {
    /// How much of the disk a payload block holds: a power of two from 1 to 256 MiB.
    pub(crate) block_bytes: u32,
    /// Whether the image is of the fixed kind.
    pub(crate) leave_blocks_allocated: bool,
    /// A whole number of logical blocks, at least one, at most 64 TiB.
    pub(crate) virtual_bytes: u64,
    /// What a SCSI disk shows in its vital product data, page 83h; the same along a chain of versions.
    pub(crate) virtual_disk_id: Guid,
    pub(crate) logical_block: LogicalBlockSize,
    /// 512 or 4096.
    pub(crate) physical_block: u32,
    /// Of a differencing file: what it says of its parent.
    pub(crate) parent: Option<Locator>,
    /// Items that are not known, and that belong to the disk.
    carried: Vec<CarriedItem>,
}

/// What a file that we make says of itself besides [`Metadata`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Making<'a> {
    /// It is being made: it has the mark, and not yet the items that are carried over.
    Incomplete,
    /// It is whole, with these items from elsewhere.
    Complete { carried: &'a [MetadataItem] },
}

/// An item that is not known, and that belongs to the disk rather than to the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CarriedItem {
    id: Guid,
    is_user: bool,
    at: u64,
    length: u32,
}

impl Metadata {
    pub(super) fn read(storage: &dyn Storage, region: Region) -> Result<Self, Refusal> {
        let table = read_bytes::<TABLE_BYTES>(storage, region.at)?;
        let items = Items::parse(&table[..], region)?;
        Self::of_items(&items, storage)
    }

    /// The metadata of a file that we make.
    pub(super) fn new(
        block_bytes: u32,
        leave_blocks_allocated: bool,
        virtual_bytes: u64,
        virtual_disk_id: Guid,
        (logical_block, physical_block): (LogicalBlockSize, u32),
        parent: Option<Locator>,
    ) -> Self {
        Self {
            block_bytes,
            leave_blocks_allocated,
            virtual_bytes,
            virtual_disk_id,
            logical_block,
            physical_block,
            parent,
            carried: Vec::new(),
        }
    }

    /// Whether the system's item `id` is one that this crate reads and writes itself.
    pub(super) fn is_known_item(id: Guid) -> bool {
        [
            FILE_PARAMETERS,
            VIRTUAL_DISK_SIZE,
            VIRTUAL_DISK_ID,
            LOGICAL_SECTOR_SIZE,
            PHYSICAL_SECTOR_SIZE,
            PARENT_LOCATOR,
            INCOMPLETE,
        ]
        .contains(&id)
    }

    /// The items that this crate does not know and that belong to the disk: [MS-VHDX] §2.6.1.2 wants them copied
    /// wherever the disk goes.
    pub(crate) fn carried(&self, storage: &dyn Storage) -> Result<Vec<MetadataItem>, Refusal> {
        let total = self.carried.iter().fold(0_u64, |sum, item| sum.saturating_add(item.length.into()));
        if total > MAX_CARRIED_BYTES {
            let what =
                format!("copying {total} bytes of unknown metadata (the limit is {MAX_CARRIED_BYTES})");
            return Err(Refusal::unsupported("[MS-VHDX] §2.6.1.2", what));
        }
        let read = |item: &CarriedItem| {
            let bytes = read_vec(storage, item.at, item.length)?;
            Ok(MetadataItem { id: item.id, is_user: item.is_user, bytes })
        };
        self.carried.iter().map(read).collect()
    }

    /// The table and the items behind it, as they are stored; `None` where the locator cannot be stored.
    ///
    /// The entries that say what the disk is like, and the mark of an incomplete file, lie in the table's first 512
    /// bytes. A disk writes those wholly or not at all: the mark cannot get lost on its own.
    pub(super) fn encode(&self, making: Making<'_>) -> Option<Vec<u8>> {
        let bit = |is_set: bool, bit: u32| if is_set { bit } else { 0 };
        let flags =
            bit(self.leave_blocks_allocated, LEAVE_BLOCKS_ALLOCATED) | bit(self.parent.is_some(), HAS_PARENT);
        let parameters = [self.block_bytes.to_le_bytes(), flags.to_le_bytes()].concat();
        let of_disk = IS_VIRTUAL_DISK | IS_REQUIRED;
        let mut items = vec![
            (FILE_PARAMETERS, IS_REQUIRED, parameters),
            (VIRTUAL_DISK_SIZE, of_disk, self.virtual_bytes.to_le_bytes().to_vec()),
            (LOGICAL_SECTOR_SIZE, of_disk, self.logical_block_u32().to_le_bytes().to_vec()),
            (PHYSICAL_SECTOR_SIZE, of_disk, self.physical_block.to_le_bytes().to_vec()),
            (VIRTUAL_DISK_ID, of_disk, self.virtual_disk_id.to_le_bytes().to_vec()),
        ];
        if let Some(parent) = &self.parent {
            items.push((PARENT_LOCATOR, IS_REQUIRED, parent.encode()?));
        }
        match making {
            Making::Incomplete => items.push((INCOMPLETE, IS_REQUIRED, Vec::new())),
            Making::Complete { carried } => {
                items.extend(
                    carried.iter().map(|item| {
                        (item.id, bit(item.is_user, IS_USER) | IS_VIRTUAL_DISK, item.bytes.clone())
                    }),
                );
            }
        }
        let mut table = SIGNATURE.to_vec();
        table.extend([0; 2]);
        let count = u16::try_from(items.len()).ok().filter(|&count| count <= MAX_ENTRIES)?;
        table.extend(count.to_le_bytes());
        table.extend([0; 20]);
        let mut stored = Vec::new();
        for (id, flags, bytes) in items {
            // [MS-VHDX] §2.6.1.2: an item without bytes is nowhere.
            let at = if bytes.is_empty() { 0 } else { TABLE_BYTES.checked_add(stored.len())? };
            let entry = Entry {
                id,
                offset: u32::try_from(at).ok()?,
                length: u32::try_from(bytes.len()).ok()?,
                flags,
            };
            entry.put(&mut table);
            stored.extend(bytes);
        }
        table.resize(TABLE_BYTES, 0);
        table.extend(stored);
        Some(table)
    }

    /// The logical block size as the geometry counts physical blocks.
    pub(crate) fn logical_block_u32(&self) -> u32 {
        match self.logical_block {
            LogicalBlockSize::B512 => 512,
            LogicalBlockSize::B4096 => 4096,
        }
    }

    fn of_items(items: &Items, storage: &dyn Storage) -> Result<Self, Refusal> {
        // [MS-VHDX] §2.6.2.1: the block size, then bits: 0 the blocks stay allocated, 1 there is a parent.
        let [b0, b1, b2, b3, f0, f1, f2, f3] = items.file_parameters.read(storage)?;
        let block_bytes = u32::from_le_bytes([b0, b1, b2, b3]);
        let flags = u32::from_le_bytes([f0, f1, f2, f3]);
        if !block_bytes.is_power_of_two() || !(MIB..=256 * MIB).contains(&u64::from(block_bytes)) {
            let problem =
                format!("the block size, {block_bytes} bytes, is no power of two from 1 to 256 MiB");
            return Err(items.file_parameters.damage("[MS-VHDX] §2.6.2.1", problem).into());
        }
        let logical = u32::from_le_bytes(items.logical_sector_size.read(storage)?);
        let Some(logical_block) = LogicalBlockSize::from_bytes(u64::from(logical)) else {
            let problem = format!("the logical sector size is {logical}, neither 512 nor 4096");
            return Err(items.logical_sector_size.damage("[MS-VHDX] §2.6.2.4", problem).into());
        };
        let physical_block = u32::from_le_bytes(items.physical_sector_size.read(storage)?);
        if !matches!(physical_block, 512 | 4096) {
            let problem = format!("the physical sector size is {physical_block}, neither 512 nor 4096");
            return Err(items.physical_sector_size.damage("[MS-VHDX] §2.6.2.5", problem).into());
        }
        let virtual_bytes = u64::from_le_bytes(items.virtual_disk_size.read(storage)?);
        if virtual_bytes == 0 {
            return Err(Refusal::Empty);
        }
        if virtual_bytes > MAX_DISK_BYTES || !virtual_bytes.is_multiple_of(logical_block.bytes()) {
            let problem = format!(
                "the disk's size, {virtual_bytes} bytes, is no number of whole sectors of {logical} up to 64 TiB"
            );
            return Err(items.virtual_disk_size.damage("[MS-VHDX] §2.6.2.2", problem).into());
        }
        // [MS-VHDX] §2.6.2.6: a file with a parent has a locator. One in a file without a parent says nothing.
        let parent = match (flags & HAS_PARENT != 0, &items.parent_locator) {
            (false, _) => None,
            (true, Some((at, length))) => Some(Locator::parse(&read_vec(storage, *at, *length)?, *at)?),
            (true, None) => {
                let problem = "HasParent is set, but there is no parent locator".into();
                return Err(items.file_parameters.damage("[MS-VHDX] §2.6.2.6", problem).into());
            }
        };
        Ok(Self {
            block_bytes,
            leave_blocks_allocated: flags & LEAVE_BLOCKS_ALLOCATED != 0,
            virtual_bytes,
            virtual_disk_id: Guid::from_le_bytes(items.virtual_disk_id.read(storage)?),
            logical_block,
            physical_block,
            parent,
            carried: items.carried.clone(),
        })
    }
}

/// What is odd about items that a reader can do without: a code and the problem.
pub(super) fn oddities(
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

/// Where the items are that every file must have.
#[derive(Debug)]
struct Items {
    file_parameters: Item<8>,
    virtual_disk_size: Item<8>,
    virtual_disk_id: Item<16>,
    logical_sector_size: Item<4>,
    physical_sector_size: Item<4>,
    /// Place and length.
    parent_locator: Option<(u64, u32)>,
    carried: Vec<CarriedItem>,
}

/// The place of an item of `N` bytes in the file.
#[derive(Clone, Copy, Debug)]
struct Item<const N: usize> {
    at: u64,
}

impl<const N: usize> Item<N> {
    fn read(self, storage: &dyn Storage) -> Result<[u8; N], Refusal> {
        let mut bytes = [0; N];
        storage.read_at(ByteOffset::new(self.at), &mut bytes, Patience::Blocking)?;
        Ok(bytes)
    }

    fn damage(self, rule: &'static str, problem: String) -> Damage {
        Damage::new("metadata item", self.at, rule, problem)
    }
}

/// Where in the file stands what an edit of the metadata changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Places {
    pub(super) virtual_disk_size_at: u64,
    pub(super) locator: Option<LocatorPlace>,
    /// What no item takes, behind the last one.
    pub(super) free: Region,
}

/// The place of the parent locator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LocatorPlace {
    /// Where its entry gives its offset in the region and, behind that, its length, both in 32 bits.
    pub(super) fields_at: u64,
    pub(super) at: u64,
    pub(super) length: u32,
}

/// Finds the places in the metadata region of a file.
pub(super) fn places(storage: &dyn Storage, region: Region) -> Result<Places, Refusal> {
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

impl Items {
    fn parse(table: &[u8], region: Region) -> Result<Self, Refusal> {
        Self::find(&Entry::all(table, region)?, region)
    }

    fn find(entries: &[Entry], region: Region) -> Result<Self, Refusal> {
        if entries.iter().any(|entry| entry.id == INCOMPLETE && !entry.is_user()) {
            return Err(Refusal::Incomplete);
        }
        // [MS-VHDX] §2.6.1.2: a file with an unknown item that is required must not be opened.
        let strange =
            |entry: &&Entry| entry.is_required() && (entry.is_user() || !Metadata::is_known_item(entry.id));
        if let Some(entry) = entries.iter().find(strange) {
            let whose = if entry.is_user() { "user" } else { "system" };
            return Err(Refusal::unsupported(
                RULE,
                format!("the required {whose} metadata item {}", entry.id),
            ));
        }
        let is_known = |entry: &&Entry| !entry.is_user() && Metadata::is_known_item(entry.id);
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

/// The `length` bytes at `at`: an item, whose entry was checked, has at most 1 MiB.
fn read_vec(storage: &dyn Storage, at: u64, length: u32) -> Result<Vec<u8>, Refusal> {
    let mut bytes = vec![0; usize::try_from(length.min(MAX_ITEM_BYTES)).unwrap_or_default()];
    storage.read_at(ByteOffset::new(at), &mut bytes, Patience::Blocking)?;
    Ok(bytes)
}

/// An entry as it is stored ([MS-VHDX] §2.6.1.2).
#[derive(Debug)]
struct Entry {
    id: Guid,
    offset: u32,
    length: u32,
    flags: u32,
}

impl Entry {
    /// All entries of the table.
    fn all(table: &[u8], region: Region) -> Result<Vec<Self>, Damage> {
        let damage = |problem: String| Damage::new(NAME, region.at, RULE, problem);
        let short = || damage("it is cut short".into());
        let mut cursor = Cursor::new(table);
        if cursor.slice(SIGNATURE.len()) != Some(SIGNATURE) {
            return Err(damage("the signature \"metadata\" is missing".into()));
        }
        cursor.skip(2).ok_or_else(short)?;
        let count = cursor.le_u16().ok_or_else(short)?;
        cursor.skip(20).ok_or_else(short)?;
        if count > MAX_ENTRIES {
            return Err(damage(format!("it says that it has {count} entries, of at most {MAX_ENTRIES}")));
        }
        let mut entries = Vec::with_capacity(usize::from(count));
        for _ in 0..count {
            let entry = Entry::take(&mut cursor).ok_or_else(short)?;
            entry.check(region).map_err(damage)?;
            entries.push(entry);
        }
        let mut names: Vec<_> =
            entries.iter().map(|entry| (entry.id.to_be_bytes(), entry.is_user())).collect();
        names.sort_unstable();
        // [MS-VHDX] §2.6.1.2: an identifier stands once among the system's items and once among the user's.
        if names.iter().zip(names.iter().skip(1)).any(|(one, other)| one == other) {
            return Err(damage("an item is listed twice".into()));
        }
        Ok(entries)
    }

    fn take(cursor: &mut Cursor<'_>) -> Option<Self> {
        let id = Guid::from_le_bytes(cursor.array()?);
        let offset = cursor.le_u32()?;
        let length = cursor.le_u32()?;
        let flags = cursor.le_u32()?;
        let _reserved = cursor.le_u32()?;
        Some(Self { id, offset, length, flags })
    }

    fn put(&self, table: &mut Vec<u8>) {
        table.extend(self.id.to_le_bytes());
        table.extend(self.offset.to_le_bytes());
        table.extend(self.length.to_le_bytes());
        table.extend(self.flags.to_le_bytes());
        table.extend([0; 4]);
    }

    fn is_user(&self) -> bool {
        self.flags & IS_USER != 0
    }

    fn is_required(&self) -> bool {
        self.flags & IS_REQUIRED != 0
    }

    fn check(&self, region: Region) -> Result<(), String> {
        if self.length == 0 {
            return Ok(());
        }
        let end = u64::from(self.offset).saturating_add(u64::from(self.length));
        if (self.offset as usize) < TABLE_BYTES || end > region.length || self.length > MAX_ITEM_BYTES {
            return Err(format!(
                "item {}, {} bytes at {:#x} of the region, does not lie between the table and the region's end",
                self.id, self.length, self.offset
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::MemoryStorage;

    /// What a refusal says, and the change that brings it about.
    type Case = (&'static str, fn(&mut [u8]));

    /// The metadata table of a file that Windows 6.2.9200 made (qemu's test images, `iotest-dynamic-1G.vhdx`), up to
    /// and with a sixth entry that is left over and does not count.
    const TABLE: &str = "6d65746164617461000005000000000000000000000000000000000000000000\
        3767a1ca36fa434db3b633f0aa44e76b00000100080000000400000000000000\
        2442a52f1bcd7648b2115dbed83bf4b808000100080000000600000000000000\
        1dbf41816fa90947ba47f233a8faab5f10000100040000000600000000000000\
        c748a3cd5d4471449cc9e9885251c55614000100040000000600000000000000\
        ab12cabee6b2234593efc309e000c74618000100100000000600000000000000\
        ab12cabee6b2234593efc309e000c74618000100100000000600000000000000";
    /// The items of the same file.
    const ITEMS: &str = "00000002000000000000004000000000 0002000000100000f10972fcebf61646 9b77e994e3017ddd";
    const REGION: Region = Region { at: 2 << 20, length: 1 << 20 };

    fn bytes_of(hex: &str) -> Vec<u8> {
        let digits: Vec<u32> = hex.chars().filter_map(|c| c.to_digit(16)).collect();
        digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
    }

    fn read(change: impl FnOnce(&mut [u8], &mut [u8])) -> Result<Metadata, Refusal> {
        let (mut table, mut items) = (bytes_of(TABLE), bytes_of(ITEMS));
        change(&mut table, &mut items);
        let mut file = MemoryStorage::sparse(block::ByteLength::new(3 << 20));
        file.put(ByteOffset::new(REGION.at), &table);
        file.put(ByteOffset::new(REGION.at + TABLE_BYTES as u64), &items);
        Metadata::read(&file, REGION)
    }

    fn of_windows() -> Metadata {
        let id = Guid::from_u128(0xFC72_09F1_F6EB_4616_9B77_E994_E301_7DDD);
        Metadata::new(32 << 20, false, 1 << 30, id, (LogicalBlockSize::B512, 4096), None)
    }

    #[test]
    fn metadata_of_windows_parses() {
        assert_eq!(read(|_, _| ()).unwrap(), of_windows());
    }

    #[test]
    fn metadata_encodes_to_the_bytes_of_windows() {
        let encoded = of_windows().encode(Making::Complete { carried: &[] }).unwrap();
        let mut expected = bytes_of(TABLE);
        // Without the entry that is left over.
        expected.truncate(192);
        expected.resize(TABLE_BYTES, 0);
        expected.extend(bytes_of(ITEMS));
        assert_eq!(encoded, expected);
    }

    fn reread(bytes: &[u8]) -> Result<(Metadata, MemoryStorage), Refusal> {
        let mut file = MemoryStorage::sparse(block::ByteLength::new(3 << 20));
        file.put(ByteOffset::new(REGION.at), bytes);
        Metadata::read(&file, REGION).map(|metadata| (metadata, file))
    }

    fn locator() -> Locator {
        Locator {
            parent_linkage: Guid::from_u128(5),
            parent_linkage2: None,
            relative_path: Some("base.vhdx".into()),
            volume_path: None,
            absolute_win32_path: None,
            other: Vec::new(),
        }
    }

    #[test]
    fn parent_locator_is_read_and_must_be_there() {
        let differencing = Metadata { parent: Some(locator()), ..of_windows() };
        let bytes = differencing.encode(Making::Complete { carried: &[] }).unwrap();
        assert_eq!(reread(&bytes).unwrap().0, differencing);
        // Without HasParent the locator says nothing.
        let mut orphan = bytes.clone();
        orphan[TABLE_BYTES + 4] = 0;
        assert_eq!(reread(&orphan).unwrap().0, of_windows());
        let mut lost = bytes;
        lost[10] = 5;
        let error = reread(&lost).unwrap_err().to_string();
        assert!(error.contains("HasParent is set, but there is no parent locator"), "{error}");
    }

    #[test]
    fn incomplete_file_is_refused_as_such() {
        let bytes = of_windows().encode(Making::Incomplete).unwrap();
        let error = reread(&bytes).unwrap_err();
        assert!(matches!(error, Refusal::Incomplete), "{error}");
        assert!(error.to_string().contains("its making was interrupted"), "{error}");
        // The mark is the last entry, in the first 512 bytes, and required: others must refuse it.
        assert_eq!(bytes[192..208], INCOMPLETE.to_le_bytes());
        assert_eq!(bytes[208..224], [0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn unknown_items_of_the_disk_are_carried_and_others_are_not() {
        let item = |id: u128, is_user, bytes: &[u8]| MetadataItem {
            id: Guid::from_u128(id),
            is_user,
            bytes: bytes.to_vec(),
        };
        let carried = [item(1, true, b"abc"), item(1, false, b"x"), item(2, true, b"")];
        let bytes = of_windows().encode(Making::Complete { carried: &carried }).unwrap();
        let (metadata, file) = reread(&bytes).unwrap();
        assert_eq!(metadata.carried(&file).unwrap(), carried);
        // Without IsVirtualDisk the first belongs to the file, which stays behind.
        let mut of_file = bytes;
        of_file[192 + 24] = 1;
        let (metadata, file) = reread(&of_file).unwrap();
        assert_eq!(metadata.carried(&file).unwrap(), carried[1..]);
    }

    #[test]
    fn endless_unknown_metadata_is_not_carried() {
        let item = MetadataItem { id: Guid::from_u128(1), is_user: true, bytes: vec![1; (512 << 10) + 1] };
        let bytes = of_windows().encode(Making::Complete { carried: &[item] }).unwrap();
        let (metadata, file) = reread(&bytes).unwrap();
        let error = metadata.carried(&file).unwrap_err().to_string();
        assert!(error.contains("524289 bytes of unknown metadata"), "{error}");
    }

    #[test]
    fn tables_that_break_a_rule_are_refused() {
        let cases: [Case; 8] = [
            ("signature \"metadata\" is missing", |table| table[0] = b'M'),
            ("2048 entries", |table| table[10..12].copy_from_slice(&2048_u16.to_le_bytes())),
            ("listed twice", |table| table[10] = 6),
            ("does not lie between", |table| table[50] = 0),
            ("does not lie between", |table| table[48..52].copy_from_slice(&[0xFC, 0xFF, 0xFF, 0xFF])),
            ("there is no virtual disk identifier", |table| table[10] = 4),
            ("the file parameters has 4 bytes, not 8", |table| table[52] = 4),
            ("required system metadata item a1cabe37-", |table| {
                // The entry that is left over, with an identifier that nobody knows.
                table[10] = 6;
                table[192..196].copy_from_slice(&[0x37, 0xBE, 0xCA, 0xA1]);
            }),
        ];
        for (expected, change) in cases {
            let error = read(|table, _| change(table)).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn unknown_item_that_is_not_required_is_passed_over() {
        let with_sixth = |flags: u8| {
            read(|table, _| {
                table[10] = 6;
                table[192] = 0xFF;
                table[216] = flags;
            })
        };
        with_sixth(0).unwrap();
        with_sixth(1).unwrap();
        let error = with_sixth(5).unwrap_err().to_string();
        assert!(error.contains("required user metadata item"), "{error}");
    }

    #[test]
    fn items_that_break_a_rule_are_refused() {
        let cases: [Case; 8] = [
            ("block size, 0 bytes", |items| items[3] = 0),
            ("block size, 50331648 bytes", |items| items[3] = 3),
            ("block size, 536870912 bytes", |items| items[3] = 0x20),
            ("there is no parent locator", |items| items[4] = 2),
            ("logical sector size is 513", |items| items[16] = 1),
            ("physical sector size is 0", |items| items[21] = 0),
            ("the disk is empty", |items| items[11] = 0),
            ("no number of whole sectors", |items| items[8] = 1),
        ];
        for (expected, change) in cases {
            let error = read(|_, items| change(items)).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let error = read(|_, items| items[8..16].fill(0xFE)).unwrap_err().to_string();
        assert!(error.contains("up to 64 TiB"), "{error}");
    }
}
