//! The footer: the 512 bytes that end every VHD file, of which a dynamic image keeps a copy at its start.
//!
//! # Which size is right
//! The footer gives the size twice: as `current_size`, and as cylinders, heads and sectors. Virtual PC, and QEMU when
//! it writes for it, address the disk by the latter, which may be smaller; all others by the former. The creator's
//! name decides, except where the geometry is the largest there is and says nothing.
use block::{ByteOffset, Patience};

use super::{SECTOR_BYTES, checksum};
use crate::cursor::Cursor;
use crate::error::{Damage, Refusal};
use crate::format::Format;
use crate::guid::Guid;
use crate::storage::{Storage, StorageError};

const FOOTER_BYTES: u64 = 512;
/// Virtual PC before 2004 wrote one byte less.
const OLD_FOOTER_BYTES: u64 = 511;
const COOKIE: &[u8] = b"conectix";
const CHECKSUM_FIELD: usize = 64;
const RULE: &str = "[VHD] Hard Disk Footer Format";

/// The largest geometry: 65535 cylinders, 16 heads, 255 sectors.
const MAX_CHS_SECTORS: u64 = 65535 * 16 * 255;
/// Creators whose disks have the size of the geometry.
const CHS_CREATORS: [[u8; 4]; 2] = [*b"vpc ", *b"qemu"];
/// A tapdisk of this version wrote its bitmaps least significant bit first, and says so nowhere else.
const REVERSED_BITMAP_CREATOR: ([u8; 4], u32) = (*b"tap\0", 1);
/// Sector numbers of the block allocation table have 32 bits, and fixed images keep the same limit: 2 TiB.
const MAX_DISK_BYTES: u64 = 2 << 40;

/// What the footer says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) disk_type: DiskType,
    /// Where the dynamic header stands.
    pub(crate) data_offset: u64,
    pub(crate) creator: [u8; 4],
    pub(crate) unique_id: Guid,
    current_bytes: u64,
    chs_sectors: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiskType {
    Fixed,
    Dynamic,
    Differencing,
}

/// Which of the footers was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FooterPlace {
    /// The one at the end of the file, and where that begins.
    End(u64),
    /// The copy at the start: the one at the end is lost.
    Start,
}

impl FooterPlace {
    pub(crate) fn at(self) -> u64 {
        match self {
            Self::End(at) => at,
            Self::Start => 0,
        }
    }
}

impl Footer {
    /// Whether these bytes begin as a footer does.
    pub(crate) fn is_signed(bytes: &[u8]) -> bool {
        bytes.starts_with(COOKIE)
    }

    /// The bytes of the footer at the end of the file, and its place, if there is one.
    pub(crate) fn find_at_end(storage: &dyn Storage) -> Result<Option<(u64, [u8; 512])>, StorageError> {
        for length in [FOOTER_BYTES, OLD_FOOTER_BYTES] {
            let Some(at) = storage.len().get().checked_sub(length) else { continue };
            // The byte that the old footer lacks is reserved, and zero.
            let mut bytes = [0; 512];
            let stored = usize::try_from(length).ok().and_then(|length| bytes.get_mut(..length));
            storage.read_at(ByteOffset::new(at), stored.unwrap_or_default(), Patience::Blocking)?;
            if Self::is_signed(&bytes) {
                return Ok(Some((at, bytes)));
            }
        }
        Ok(None)
    }

    /// The footer that counts: the one at the end; where that is missing or damaged, the copy at the start.
    pub(crate) fn read(storage: &dyn Storage) -> Result<(Self, FooterPlace), Refusal> {
        let missing = Refusal::NotThisFormat {
            format: Format::Vhd,
            problem: "it has no VHD footer, at its end or start",
        };
        let at_end = match Self::find_at_end(storage)? {
            Some((at, bytes)) => match Self::parse(&bytes, at) {
                Err(Refusal::Damaged(damage)) => Refusal::Damaged(damage),
                result => return Ok((result?, FooterPlace::End(at))),
            },
            None => missing,
        };
        let mut copy = [0; 512];
        match storage.read_at(ByteOffset::ZERO, &mut copy, Patience::Blocking) {
            Ok(()) if Self::is_signed(&copy) => Ok((Self::parse(&copy, 0)?, FooterPlace::Start)),
            Ok(()) | Err(StorageError::EndOfFile { .. }) => Err(at_end),
            Err(error) => Err(error.into()),
        }
    }

    fn parse(bytes: &[u8; 512], at: u64) -> Result<Self, Refusal> {
        let damage = |problem: String| Damage::new("footer", at, RULE, problem);
        let computed = checksum(bytes, CHECKSUM_FIELD);
        let Some(fields) = Fields::take(&mut Cursor::new(bytes)) else {
            return Err(damage("it is cut short".into()).into());
        };
        if fields.checksum != computed {
            let problem = format!("the checksum is {computed:#x}, not {:#x} as stored", fields.checksum);
            return Err(damage(problem).into());
        }
        // The upper half is the major version: an unknown one may mean anything.
        if fields.version >> 16 != 1 {
            return Err(Refusal::unsupported(RULE, format!("VHD file format version {:#x}", fields.version)));
        }
        let disk_type = match fields.disk_type {
            2 => DiskType::Fixed,
            3 => DiskType::Dynamic,
            4 => DiskType::Differencing,
            other => return Err(Refusal::unsupported(RULE, format!("VHD disk type {other}"))),
        };
        if (fields.creator, fields.creator_version) == REVERSED_BITMAP_CREATOR {
            return Err(Refusal::unsupported(
                "blktap vhd.h",
                "a VHD of tapdisk 0.1, whose bitmaps are reversed",
            ));
        }
        Ok(Self {
            disk_type,
            data_offset: fields.data_offset,
            creator: fields.creator,
            unique_id: Guid::from_be_bytes(fields.unique_id),
            current_bytes: fields.current_bytes,
            chs_sectors: fields.chs_sectors,
        })
    }

    /// How large the disk is. See the head of this module.
    pub(crate) fn virtual_bytes(&self, place: FooterPlace) -> Result<u64, Refusal> {
        let by_geometry = CHS_CREATORS.contains(&self.creator) && self.chs_sectors < MAX_CHS_SECTORS;
        let bytes =
            if by_geometry { self.chs_sectors.saturating_mul(SECTOR_BYTES) } else { self.current_bytes };
        if bytes == 0 {
            return Err(Refusal::Empty);
        }
        if bytes > MAX_DISK_BYTES || !bytes.is_multiple_of(SECTOR_BYTES) {
            let problem =
                format!("the disk's size, {bytes} bytes, is not a number of whole sectors up to 2 TiB");
            return Err(Damage::new("footer", place.at(), RULE, problem).into());
        }
        Ok(bytes)
    }
}

/// The fields as they are stored.
struct Fields {
    version: u32,
    data_offset: u64,
    creator: [u8; 4],
    creator_version: u32,
    current_bytes: u64,
    chs_sectors: u64,
    disk_type: u32,
    checksum: u32,
    unique_id: [u8; 16],
}

impl Fields {
    fn take(cursor: &mut Cursor<'_>) -> Option<Self> {
        cursor.skip(COOKIE.len())?;
        let _features = cursor.be_u32()?;
        let version = cursor.be_u32()?;
        let data_offset = cursor.be_u64()?;
        let _timestamp = cursor.be_u32()?;
        let creator = cursor.array()?;
        let creator_version = cursor.be_u32()?;
        let _creator_host = cursor.be_u32()?;
        let _original_bytes = cursor.be_u64()?;
        let current_bytes = cursor.be_u64()?;
        let cylinders = u64::from(cursor.be_u16()?);
        let heads = u64::from(cursor.u8()?);
        let sectors = u64::from(cursor.u8()?);
        let chs_sectors = cylinders.saturating_mul(heads).saturating_mul(sectors);
        let disk_type = cursor.be_u32()?;
        let checksum = cursor.be_u32()?;
        let unique_id = cursor.array()?;
        Some(Self {
            version,
            data_offset,
            creator,
            creator_version,
            current_bytes,
            chs_sectors,
            disk_type,
            checksum,
            unique_id,
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::storage::MemoryStorage;

    /// The footer of a disk that Hyper-V 2012 R2 made (qemu's test images, `hyperv2012r2-dynamic.vhd`), without the
    /// zeros that fill it up.
    pub(crate) const HYPER_V: [u8; 85] = [
        0x63, 0x6F, 0x6E, 0x65, 0x63, 0x74, 0x69, 0x78, 0, 0, 0, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0x1E,
        0x59, 0x8E, 0xF7, 0x77, 0x69, 0x6E, 0x20, 0, 6, 0, 3, 0x57, 0x69, 0x32, 0x6B, 0, 0, 0, 0x1F, 0xC0, 0,
        0, 0, 0, 0, 0, 0x1F, 0xC0, 0, 0, 0, 0xFE, 0xFE, 0x10, 0xFF, 0, 0, 0, 3, 0xFF, 0xFF, 0xE9, 0xDB, 0x6D,
        0x2D, 0x5F, 0xC8, 0xEE, 0xBA, 0xDE, 0x4C, 0x8C, 0xEE, 0xDE, 0x3A, 0x12, 0xDB, 0x7C, 0x98, 0,
    ];

    fn hyper_v() -> [u8; 512] {
        let mut bytes = [0; 512];
        bytes[..HYPER_V.len()].copy_from_slice(&HYPER_V);
        bytes
    }

    fn resealed(mut bytes: [u8; 512]) -> [u8; 512] {
        let sum = checksum(&bytes, CHECKSUM_FIELD);
        bytes[CHECKSUM_FIELD..CHECKSUM_FIELD + 4].copy_from_slice(&sum.to_be_bytes());
        bytes
    }

    #[test]
    fn footer_of_hyper_v_parses() {
        let footer = Footer::parse(&hyper_v(), 0).unwrap();
        assert_eq!(
            footer,
            Footer {
                disk_type: DiskType::Dynamic,
                data_offset: 0x200,
                creator: *b"win ",
                unique_id: Guid::from_u128(0x6D2D_5FC8_EEBA_DE4C_8CEE_DE3A_12DB_7C98),
                current_bytes: 136_365_211_648,
                chs_sectors: 65278 * 16 * 255,
            }
        );
        assert_eq!(footer.virtual_bytes(FooterPlace::Start).unwrap(), 136_365_211_648);
    }

    #[test]
    fn creator_decides_which_size_counts() {
        let mut footer = Footer::parse(&hyper_v(), 0).unwrap();
        for creator in [b"vpc ", b"qemu"] {
            footer.creator = *creator;
            assert_eq!(footer.virtual_bytes(FooterPlace::Start).unwrap(), 136_363_130_880);
        }
        for creator in [b"qem2", b"d2v ", b"tap\0", b"CTXS", b"wa\0\0", b"vbox"] {
            footer.creator = *creator;
            assert_eq!(footer.virtual_bytes(FooterPlace::Start).unwrap(), 136_365_211_648);
        }
    }

    #[test]
    fn largest_geometry_says_nothing_about_the_size() {
        let mut bytes = hyper_v();
        bytes[28..32].copy_from_slice(b"vpc ");
        bytes[56..60].copy_from_slice(&[0xFF, 0xFF, 16, 255]);
        let footer = Footer::parse(&resealed(bytes), 0).unwrap();
        assert_eq!(footer.virtual_bytes(FooterPlace::Start).unwrap(), 136_365_211_648);
    }

    #[test]
    fn any_changed_byte_breaks_the_checksum() {
        for place in (8..85).chain([511]) {
            let mut bytes = hyper_v();
            bytes[place] ^= 0x40;
            let result = Footer::parse(&bytes, 0);
            assert!(matches!(result, Err(Refusal::Damaged(_))), "byte {place}: {result:?}");
        }
    }

    #[test]
    fn footer_of_511_bytes_is_found() {
        let mut file = vec![7; 1000];
        file.extend_from_slice(&hyper_v()[..511]);
        let (footer, place) = Footer::read(&MemoryStorage::new(&file)).unwrap();
        assert_eq!(place, FooterPlace::End(1000));
        assert_eq!(footer.creator, *b"win ");
    }

    #[test]
    fn damaged_footer_at_the_end_gives_way_to_the_copy() {
        let mut file = hyper_v().to_vec();
        file.extend_from_slice(&[0; 512]);
        file.extend_from_slice(&hyper_v());
        let last = file.len() - 1;
        file[last] = 1;
        let (_, place) = Footer::read(&MemoryStorage::new(&file)).unwrap();
        assert_eq!(place, FooterPlace::Start);
    }

    #[test]
    fn footers_that_are_not_read_here_are_refused_by_name() {
        let refusal_of = |at: usize, value: &[u8]| {
            let mut bytes = hyper_v();
            bytes[at..at + value.len()].copy_from_slice(value);
            Footer::parse(&resealed(bytes), 0).unwrap_err().to_string()
        };
        assert!(refusal_of(60, &[0, 0, 0, 6]).contains("disk type 6"));
        assert!(refusal_of(12, &[0, 2, 0, 0]).contains("version 0x20000"));
        assert!(refusal_of(28, b"tap\0\0\0\0\x01").contains("tapdisk 0.1"));
    }

    #[test]
    fn sizes_that_are_no_disk_are_refused() {
        let mut footer = Footer::parse(&hyper_v(), 0).unwrap();
        footer.current_bytes = 0;
        assert!(matches!(footer.virtual_bytes(FooterPlace::Start), Err(Refusal::Empty)));
        for bytes in [513, MAX_DISK_BYTES + 512, u64::MAX] {
            footer.current_bytes = bytes;
            assert!(matches!(footer.virtual_bytes(FooterPlace::Start), Err(Refusal::Damaged(_))), "{bytes}");
        }
    }
}
