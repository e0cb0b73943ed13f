//! The footer: the 512 bytes that end every VHD file, of which a dynamic image keeps a copy at its start.
//!
//! # Which size is right
//! The footer gives the size twice: as `current_size`, and as cylinders, heads and sectors. Virtual PC, and QEMU when
//! it writes for it, address the disk by the latter, which may be smaller; all others by the former. The creator's
//! name decides, except where the geometry is the largest there is and says nothing.
//!
//! Programs keep tables of creators, and qemu takes whom it does not know for Virtual PC. A name of our own would cost
//! every disk the sectors that its geometry does not reach; so the footers that we write say [`WINDOWS`], whose
//! meaning all programs agree on: the size is `current_size`. The geometry beside it is the honest one.
use std::time::{Duration, SystemTime};

use block::{ByteOffset, Patience};

use super::geometry::DiskGeometry;
use super::{SECTOR_BYTES, checksum, put_fields, seal};
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
pub(super) const RULE: &str = "[VHD] Hard Disk Footer Format";

/// Reserved, and always set: the only feature bit in use ([VHD] "Features").
const FEATURES: u32 = 2;
const VERSION: u32 = 0x0001_0000;
/// What a fixed image has as its data offset.
const NO_OFFSET: u64 = u64::MAX;
/// The creator of the footers that we write, its version and its host, as Windows 10 writes them.
const WINDOWS: ([u8; 4], u32, [u8; 4]) = (*b"win ", 0x000A_0000, *b"Wi2k");
/// Timestamps count the seconds since 1 January 2000, 00:00 UTC; so many are that since 1970.
const EPOCH: Duration = Duration::from_secs(946_684_800);

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
    pub(crate) features: u32,
    /// When the file was made, in seconds since 2000.
    pub(crate) timestamp: u32,
    pub(crate) creator: [u8; 4],
    pub(crate) creator_version: u32,
    pub(crate) creator_host: [u8; 4],
    /// How large the disk was when it was made.
    pub(crate) original_bytes: u64,
    /// How large it is, for most creators.
    pub(crate) current_bytes: u64,
    pub(crate) geometry: DiskGeometry,
    pub(crate) unique_id: Guid,
}

/// A footer's bytes.
pub(crate) type FooterBytes = [u8; SECTOR_BYTES as usize];

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
    pub(crate) fn find_at_end(storage: &dyn Storage) -> Result<Option<(u64, FooterBytes)>, StorageError> {
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
        Self::read_with_bytes(storage).map(|(footer, place, _)| (footer, place))
    }

    /// As [`read`](Self::read), with the footer's bytes.
    pub(super) fn read_with_bytes(
        storage: &dyn Storage,
    ) -> Result<(Self, FooterPlace, FooterBytes), Refusal> {
        let missing = Refusal::NotThisFormat {
            format: Format::Vhd,
            problem: "it has no VHD footer, at its end or start",
        };
        let at_end = match Self::find_at_end(storage)? {
            Some((at, bytes)) => match Self::parse(&bytes, at) {
                Err(Refusal::Damaged(damage)) => Refusal::Damaged(damage),
                result => return Ok((result?, FooterPlace::End(at), bytes)),
            },
            None => missing,
        };
        match Self::copy_at_start(storage)? {
            // A fixed image keeps no copy: what looks like one is the first sector of the disk, and a guest's.
            Some(copy) => match Self::parse(&copy, 0)? {
                footer if footer.disk_type == DiskType::Fixed => Err(at_end),
                footer => Ok((footer, FooterPlace::Start, copy)),
            },
            None => Err(at_end),
        }
    }

    /// The bytes of the copy at the start, if there is one.
    pub(super) fn copy_at_start(storage: &dyn Storage) -> Result<Option<FooterBytes>, StorageError> {
        let mut copy = [0; SECTOR_BYTES as usize];
        match storage.read_at(ByteOffset::ZERO, &mut copy, Patience::Blocking) {
            Ok(()) => Ok(Some(copy).filter(|copy| Self::is_signed(copy))),
            Err(StorageError::EndOfFile { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The footer of a disk that is made at `now`.
    pub(crate) fn new(disk_type: DiskType, bytes: u64, unique_id: Guid, now: SystemTime) -> Self {
        let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().saturating_sub(EPOCH);
        let (creator, creator_version, creator_host) = WINDOWS;
        Self {
            disk_type,
            data_offset: match disk_type {
                DiskType::Fixed => NO_OFFSET,
                DiskType::Dynamic | DiskType::Differencing => SECTOR_BYTES,
            },
            features: FEATURES,
            timestamp: u32::try_from(since.as_secs()).unwrap_or(u32::MAX),
            creator,
            creator_version,
            creator_host,
            original_bytes: bytes,
            current_bytes: bytes,
            geometry: DiskGeometry::of_sectors(bytes / SECTOR_BYTES),
            unique_id,
        }
    }

    /// As it is, of a disk of another size. Where the creator has everybody count by the geometry, and no geometry
    /// makes just this size, the footer's creator is changed with it.
    pub(crate) fn resized(&self, bytes: u64) -> Self {
        let geometry = DiskGeometry::of_sectors(bytes / SECTOR_BYTES);
        let mut footer = Self { current_bytes: bytes, geometry, ..self.clone() };
        if footer.counts_by_geometry() && geometry.sectors().saturating_mul(SECTOR_BYTES) != bytes {
            (footer.creator, footer.creator_version, footer.creator_host) = WINDOWS;
        }
        footer
    }

    /// Whether the geometry says how large the disk is, because of who made the file.
    fn counts_by_geometry(&self) -> bool {
        CHS_CREATORS.contains(&self.creator) && self.geometry != DiskGeometry::MAX
    }

    pub(crate) fn encode(&self) -> FooterBytes {
        let mut bytes = [0; SECTOR_BYTES as usize];
        self.encode_over(&mut bytes);
        bytes
    }

    /// Puts the fields into `bytes`, and the checksum; what `bytes` has besides stays.
    pub(crate) fn encode_over(&self, bytes: &mut FooterBytes) {
        let disk_type: u32 = match self.disk_type {
            DiskType::Fixed => 2,
            DiskType::Dynamic => 3,
            DiskType::Differencing => 4,
        };
        let DiskGeometry { cylinders, heads, sectors_per_track } = self.geometry;
        let fields: [&[u8]; 15] = [
            COOKIE,
            &self.features.to_be_bytes(),
            &VERSION.to_be_bytes(),
            &self.data_offset.to_be_bytes(),
            &self.timestamp.to_be_bytes(),
            &self.creator,
            &self.creator_version.to_be_bytes(),
            &self.creator_host,
            &self.original_bytes.to_be_bytes(),
            &self.current_bytes.to_be_bytes(),
            &cylinders.to_be_bytes(),
            &[heads, sectors_per_track],
            &disk_type.to_be_bytes(),
            &[0; 4],
            &self.unique_id.to_be_bytes(),
        ];
        put_fields(bytes, &fields);
        seal(bytes, CHECKSUM_FIELD);
    }

    pub(super) fn parse(bytes: &FooterBytes, at: u64) -> Result<Self, Refusal> {
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
            features: fields.features,
            timestamp: fields.timestamp,
            creator: fields.creator,
            creator_version: fields.creator_version,
            creator_host: fields.creator_host,
            original_bytes: fields.original_bytes,
            current_bytes: fields.current_bytes,
            geometry: fields.geometry,
            unique_id: Guid::from_be_bytes(fields.unique_id),
        })
    }

    /// How large the disk is. See the head of this module.
    pub(crate) fn virtual_bytes(&self, place: FooterPlace) -> Result<u64, Refusal> {
        let by_geometry = self.counts_by_geometry();
        let bytes = if by_geometry {
            self.geometry.sectors().saturating_mul(SECTOR_BYTES)
        } else {
            self.current_bytes
        };
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
    features: u32,
    version: u32,
    data_offset: u64,
    timestamp: u32,
    creator: [u8; 4],
    creator_version: u32,
    creator_host: [u8; 4],
    original_bytes: u64,
    current_bytes: u64,
    geometry: DiskGeometry,
    disk_type: u32,
    checksum: u32,
    unique_id: [u8; 16],
}

impl Fields {
    fn take(cursor: &mut Cursor<'_>) -> Option<Self> {
        cursor.skip(COOKIE.len())?;
        let features = cursor.be_u32()?;
        let version = cursor.be_u32()?;
        let data_offset = cursor.be_u64()?;
        let timestamp = cursor.be_u32()?;
        let creator = cursor.array()?;
        let creator_version = cursor.be_u32()?;
        let creator_host = cursor.array()?;
        let original_bytes = cursor.be_u64()?;
        let current_bytes = cursor.be_u64()?;
        let cylinders = cursor.be_u16()?;
        let heads = cursor.u8()?;
        let geometry = DiskGeometry { cylinders, heads, sectors_per_track: cursor.u8()? };
        let disk_type = cursor.be_u32()?;
        let checksum = cursor.be_u32()?;
        let unique_id = cursor.array()?;
        Some(Self {
            features,
            version,
            data_offset,
            timestamp,
            creator,
            creator_version,
            creator_host,
            original_bytes,
            current_bytes,
            geometry,
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

    fn hyper_v() -> FooterBytes {
        let mut bytes = [0; 512];
        bytes[..HYPER_V.len()].copy_from_slice(&HYPER_V);
        bytes
    }

    fn resealed(mut bytes: FooterBytes) -> FooterBytes {
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
                features: 2,
                timestamp: 0x1E59_8EF7,
                creator: *b"win ",
                creator_version: 0x0006_0003,
                creator_host: *b"Wi2k",
                original_bytes: 136_365_211_648,
                current_bytes: 136_365_211_648,
                geometry: DiskGeometry { cylinders: 65278, heads: 16, sectors_per_track: 255 },
                unique_id: Guid::from_u128(0x6D2D_5FC8_EEBA_DE4C_8CEE_DE3A_12DB_7C98),
            }
        );
        assert_eq!(footer.virtual_bytes(FooterPlace::Start).unwrap(), 136_365_211_648);
    }

    #[test]
    fn encoded_footer_is_the_one_that_hyper_v_wrote() {
        assert_eq!(Footer::parse(&hyper_v(), 0).unwrap().encode(), hyper_v());
    }

    #[test]
    fn new_footer_is_the_one_that_windows_wrote_at_that_time() {
        // dfvfs' `fat-differential.vhd`: Windows 10, 4 MiB, made on 15 October 2020.
        let windows: [u8; 84] = [
            0x63, 0x6F, 0x6E, 0x65, 0x63, 0x74, 0x69, 0x78, 0, 0, 0, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0,
            0x27, 0x19, 0x8E, 0x1B, 0x77, 0x69, 0x6E, 0x20, 0, 0x0A, 0, 0, 0x57, 0x69, 0x32, 0x6B, 0, 0, 0,
            0, 0, 0x40, 0, 0, 0, 0, 0, 0, 0, 0x40, 0, 0, 0, 0x78, 4, 0x11, 0, 0, 0, 4, 0xFF, 0xFF, 0xF0,
            0x2C, 0xF8, 0x4F, 0x16, 0x36, 0xCD, 0x9E, 0x90, 0x41, 0xA6, 0x9E, 0xDC, 0xC2, 0x38, 0x0E, 0x41,
            0x6A,
        ];
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(0x2719_8E1B + 946_684_800);
        let id = Guid::from_u128(0xF84F_1636_CD9E_9041_A69E_DCC2_380E_416A);
        let footer = Footer::new(DiskType::Differencing, 4 << 20, id, now);
        assert_eq!(footer.encode()[..84], windows);
        assert_eq!(footer.encode()[84..], [0; 428]);
        let fixed = Footer::new(DiskType::Fixed, 4 << 20, id, SystemTime::UNIX_EPOCH);
        assert_eq!((fixed.data_offset, fixed.timestamp), (u64::MAX, 0), "times before 2000 count as 2000");
    }

    #[test]
    fn resized_footer_keeps_what_it_does_not_know() {
        let mut bytes = hyper_v();
        bytes[300] = 7;
        let bytes = resealed(bytes);
        let mut changed = bytes;
        Footer::parse(&bytes, 0).unwrap().resized(4 << 20).encode_over(&mut changed);
        let footer = Footer::parse(&changed, 0).unwrap();
        assert_eq!((footer.current_bytes, footer.original_bytes), (4 << 20, 136_365_211_648));
        assert_eq!(footer.geometry, DiskGeometry { cylinders: 120, heads: 4, sectors_per_track: 17 });
        assert_eq!(changed[300], 7);
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
    fn first_sector_of_a_fixed_disk_is_no_copy_of_its_footer() {
        let mut file = Footer::parse(&hyper_v(), 0).unwrap();
        file.disk_type = DiskType::Fixed;
        let mut bytes = file.encode().to_vec();
        bytes.extend_from_slice(&[0; 4096]);
        let refused = Footer::read(&MemoryStorage::new(&bytes));
        assert!(matches!(refused, Err(Refusal::NotThisFormat { .. })), "{refused:?}");
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
