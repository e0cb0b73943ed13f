//! The metadata region: what the disk is like ([MS-VHDX] §2.6).
use block::{ByteOffset, LogicalBlockSize, Patience};

use super::region::Region;
use super::{MIB, read_bytes};
use crate::cursor::Cursor;
use crate::error::{Damage, Refusal};
use crate::guid::Guid;
use crate::storage::Storage;

const TABLE_BYTES: usize = 64 << 10;
const SIGNATURE: &[u8] = b"metadata";
/// As many entries as fit behind the table's header of 32 bytes ([MS-VHDX] §2.6.1.1).
const MAX_ENTRIES: u16 = 2047;
/// [MS-VHDX] §2.6.1.2.
const MAX_ITEM_BYTES: u32 = 1 << 20;
/// [MS-VHDX] §2.6.2.2.
const MAX_DISK_BYTES: u64 = 64 << 40;
const NAME: &str = "metadata table";
const RULE: &str = "[MS-VHDX] §2.6";

const FILE_PARAMETERS: Guid = Guid::from_u128(0xCAA1_6737_FA36_4D43_B3B6_33F0_AA44_E76B);
const VIRTUAL_DISK_SIZE: Guid = Guid::from_u128(0x2FA5_4224_CD1B_4876_B211_5DBE_D83B_F4B8);
const VIRTUAL_DISK_ID: Guid = Guid::from_u128(0xBECA_12AB_B2E6_4523_93EF_C309_E000_C746);
const LOGICAL_SECTOR_SIZE: Guid = Guid::from_u128(0x8141_BF1D_A96F_4709_BA47_F233_A8FA_AB5F);
const PHYSICAL_SECTOR_SIZE: Guid = Guid::from_u128(0xCDA3_48C7_445D_4471_9CC9_E988_5251_C556);
const PARENT_LOCATOR: Guid = Guid::from_u128(0xA8D3_5F2D_B30B_454D_ABF7_D3D8_4834_AB0C);

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
}

impl Metadata {
    pub(super) fn read(storage: &dyn Storage, region: Region) -> Result<Self, Refusal> {
        let table = read_bytes::<TABLE_BYTES>(storage, region.at)?;
        let items = Items::parse(&table[..], region)?;
        Self::of_items(&items, storage)
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
        if flags & 2 != 0 {
            return Err(Refusal::unsupported("[MS-VHDX] §2.6.2.1", "a differencing VHDX (HasParent is set)"));
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
        Ok(Self {
            block_bytes,
            leave_blocks_allocated: flags & 1 != 0,
            virtual_bytes,
            virtual_disk_id: Guid::from_le_bytes(items.virtual_disk_id.read(storage)?),
            logical_block,
            physical_block,
        })
    }
}

/// Where the items are that every file must have.
#[derive(Debug)]
struct Items {
    file_parameters: Item<8>,
    virtual_disk_size: Item<8>,
    virtual_disk_id: Item<16>,
    logical_sector_size: Item<4>,
    physical_sector_size: Item<4>,
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

impl Items {
    fn parse(table: &[u8], region: Region) -> Result<Self, Refusal> {
        let damage = |problem: String| Damage::new(NAME, region.at, RULE, problem);
        let short = || damage("it is cut short".into());
        let mut cursor = Cursor::new(table);
        if cursor.slice(SIGNATURE.len()) != Some(SIGNATURE) {
            return Err(damage("the signature \"metadata\" is missing".into()).into());
        }
        cursor.skip(2).ok_or_else(short)?;
        let count = cursor.le_u16().ok_or_else(short)?;
        cursor.skip(20).ok_or_else(short)?;
        if count > MAX_ENTRIES {
            return Err(
                damage(format!("it says that it has {count} entries, of at most {MAX_ENTRIES}")).into()
            );
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
            return Err(damage("an item is listed twice".into()).into());
        }
        Self::find(&entries, region)
    }

    fn find(entries: &[Entry], region: Region) -> Result<Self, Refusal> {
        let known = [
            FILE_PARAMETERS,
            VIRTUAL_DISK_SIZE,
            VIRTUAL_DISK_ID,
            LOGICAL_SECTOR_SIZE,
            PHYSICAL_SECTOR_SIZE,
            PARENT_LOCATOR,
        ];
        // [MS-VHDX] §2.6.1.2: a file with an unknown item that is required must not be opened.
        let strange = |entry: &&Entry| entry.is_required() && (entry.is_user() || !known.contains(&entry.id));
        if let Some(entry) = entries.iter().find(strange) {
            let whose = if entry.is_user() { "user" } else { "system" };
            return Err(Refusal::unsupported(
                RULE,
                format!("the required {whose} metadata item {}", entry.id),
            ));
        }
        Ok(Self {
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

/// An entry as it is stored ([MS-VHDX] §2.6.1.2).
#[derive(Debug)]
struct Entry {
    id: Guid,
    offset: u32,
    length: u32,
    flags: u32,
}

impl Entry {
    fn take(cursor: &mut Cursor<'_>) -> Option<Self> {
        let id = Guid::from_le_bytes(cursor.array()?);
        let offset = cursor.le_u32()?;
        let length = cursor.le_u32()?;
        let flags = cursor.le_u32()?;
        let _reserved = cursor.le_u32()?;
        Some(Self { id, offset, length, flags })
    }

    fn is_user(&self) -> bool {
        self.flags & 1 != 0
    }

    fn is_required(&self) -> bool {
        self.flags & 4 != 0
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

    #[test]
    fn metadata_of_windows_parses() {
        assert_eq!(
            read(|_, _| ()).unwrap(),
            Metadata {
                block_bytes: 32 << 20,
                leave_blocks_allocated: false,
                virtual_bytes: 1 << 30,
                virtual_disk_id: Guid::from_u128(0xFC72_09F1_F6EB_4616_9B77_E994_E301_7DDD),
                logical_block: LogicalBlockSize::B512,
                physical_block: 4096,
            }
        );
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
            ("differencing VHDX", |items| items[4] = 2),
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
