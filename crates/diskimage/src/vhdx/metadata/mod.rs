//! The metadata region: what the disk is like ([MS-VHDX] §2.6).
use block::{ByteLength, LogicalBlockSize};

use super::locator::Locator;
use super::region::Region;
use super::{MIB, read_bytes};
use crate::error::Refusal;
use crate::guid::Guid;
use crate::new_image::MetadataItem;
use crate::storage::Storage;

mod encode;
mod entry;
mod items;
mod oddities;
mod places;

use entry::TABLE_BYTES;
use items::{CarriedItem, Items, read_vec};

pub(super) use encode::Making;
pub(super) use entry::is_known_item;
pub(super) use oddities::oddities;
pub(super) use places::places;

/// [MS-VHDX] §2.6.2.2.
pub(super) const MAX_DISK_BYTES: u64 = 64 << 40;
/// The most that is carried along of items that are not known: they lie in a region of 1 MiB, as a rule.
const MAX_CARRIED_BYTES: u64 = 512 << 10;
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
                "the disk's size, {}, is no number of whole sectors of {logical} up to 64 TiB",
                ByteLength::new(virtual_bytes)
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

#[cfg(test)]
mod tests {
    use super::entry::INCOMPLETE;
    use super::*;
    use crate::storage::MemoryStorage;
    use block::ByteOffset;

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
