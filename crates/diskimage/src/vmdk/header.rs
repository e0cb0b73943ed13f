//! The header of a sparse extent: how large its grains are, and where the grain directory stands. A stream-optimized
//! extent, written from start to end, has the true one as a footer.
use block::{ByteOffset, Patience};

use crate::cursor::Cursor;
use crate::error::{Damage, Refusal};
use crate::storage::Storage;

pub(super) const HEADER_BYTES: usize = 512;
pub(super) const SECTOR_BYTES: u64 = 512;
const MAGIC: &[u8] = b"KDMV";
const RULE: &str = "[VMDK] Hosted Sparse Extents";
const STREAM_RULE: &str = "[VMDK] Stream-Optimized Compressed Sparse Extents";

/// `gdOffset` of a header whose footer has it.
const AT_END: u64 = u64::MAX;
/// A footer with the markers around it, at the end of the file.
const FOOTER_BYTES: u64 = 3 * SECTOR_BYTES;
/// What a marker says that it is.
const MARKER_END_OF_STREAM: u32 = 0;
const MARKER_FOOTER: u32 = 3;

/// Powers of two from 4 KiB ([VMDK]: a grain has at least 8 sectors) to 2 MiB. All known writers make grains of 64 KiB.
const GRAIN_SECTORS_RANGE: std::ops::RangeInclusive<u64> = 8..=4096;
/// [VMDK] has 512 always; qemu reads fewer.
const MAX_TABLE_ENTRIES: u32 = 512;
/// The largest extent: no disk that is read here is larger.
const MAX_CAPACITY_SECTORS: u64 = (64 << 40) / SECTOR_BYTES;

mod flag {
    /// The four bytes that show whether line ends were changed are valid.
    pub(super) const NEWLINES: u32 = 1 << 0;
    pub(super) const REDUNDANT_TABLES: u32 = 1 << 1;
    pub(super) const ZEROED_GRAINS: u32 = 1 << 2;
    pub(super) const COMPRESSED: u32 = 1 << 16;
    pub(super) const MARKERS: u32 = 1 << 17;
    pub(super) const KNOWN: u32 = NEWLINES | REDUNDANT_TABLES | ZEROED_GRAINS | COMPRESSED | MARKERS;
}

/// What the header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// How much of the disk the extent holds: not zero, up to [`MAX_CAPACITY_SECTORS`].
    pub(super) capacity_sectors: u64,
    /// In [`GRAIN_SECTORS_RANGE`].
    pub(super) grain_sectors: u64,
    /// Where an embedded descriptor stands, and how long it is; both zero where there is none.
    pub(super) descriptor_at: u64,
    pub(super) descriptor_bytes: u64,
    /// How many entries a grain table has.
    pub(super) table_entries: u64,
    /// Where the grain directory stands.
    pub(super) directory_at: u64,
    /// Whether the entry 1 means a grain of zeros.
    pub(super) has_zeroed_grains: bool,
    /// Whether grains are compressed, each behind a marker.
    pub(super) is_compressed: bool,
}

/// Whether these first bytes of a file are those of a sparse extent.
pub(super) fn is_signed(head: &[u8]) -> bool {
    head.starts_with(MAGIC)
}

impl Header {
    pub(super) fn grain_bytes(&self) -> u64 {
        self.grain_sectors.saturating_mul(SECTOR_BYTES)
    }

    /// Reads the header of the extent, or its footer where the header says so.
    pub(super) fn read(storage: &dyn Storage) -> Result<Self, Refusal> {
        let header = Self::read_at(storage, 0)?;
        if header.directory_at != AT_END {
            return Ok(header);
        }
        let damage = |problem: &str| Refusal::from(Damage::new("footer", 0, STREAM_RULE, problem));
        let Some(marker_at) = storage.len().get().checked_sub(FOOTER_BYTES) else {
            return Err(damage("the file is too short for one"));
        };
        let kind = read_marker(storage, marker_at)?;
        let end = read_marker(storage, marker_at.saturating_add(2 * SECTOR_BYTES))?;
        if kind != (0, MARKER_FOOTER) || end != (0, MARKER_END_OF_STREAM) {
            return Err(Damage::new(
                "footer",
                marker_at,
                STREAM_RULE,
                "the markers of a footer are not before and behind it; the file may be cut short",
            )
            .into());
        }
        let footer = Self::read_at(storage, marker_at.saturating_add(SECTOR_BYTES))?;
        if footer.directory_at == AT_END {
            return Err(Damage::new(
                "footer",
                marker_at,
                STREAM_RULE,
                "it does not say where the grain directory is",
            )
            .into());
        }
        // The embedded descriptor is found by the header; the footer is a copy in this.
        Ok(Self { descriptor_at: header.descriptor_at, descriptor_bytes: header.descriptor_bytes, ..footer })
    }

    fn read_at(storage: &dyn Storage, at: u64) -> Result<Self, Refusal> {
        let mut bytes = [0; HEADER_BYTES];
        storage.read_at(ByteOffset::new(at), &mut bytes, Patience::Blocking)?;
        Self::parse(&bytes, at)
    }

    fn parse(bytes: &[u8; HEADER_BYTES], at: u64) -> Result<Self, Refusal> {
        let damage = |problem: String| Refusal::from(Damage::new("sparse extent header", at, RULE, problem));
        if !is_signed(bytes) {
            return Err(damage("the signature \"KDMV\" is missing".into()));
        }
        let Some(fields) = Fields::parse(&mut Cursor::new(bytes)) else {
            return Err(damage("it is cut short".into()));
        };
        fields.check_features()?;
        if fields.flags & flag::NEWLINES != 0 && fields.newlines != *b"\n \r\n" {
            return Err(damage("line ends were changed: the file was copied as if it were text".into()));
        }
        if fields.capacity == 0 || fields.capacity > MAX_CAPACITY_SECTORS {
            return Err(damage(format!(
                "the capacity, {} sectors, is not from 1 to 64 TiB",
                fields.capacity
            )));
        }
        if !fields.grain.is_power_of_two() || !GRAIN_SECTORS_RANGE.contains(&fields.grain) {
            let problem = format!("grains of {} sectors are no power of two from 8 to 4096", fields.grain);
            return Err(damage(problem));
        }
        if fields.table_entries == 0 || fields.table_entries > MAX_TABLE_ENTRIES {
            let problem = format!("grain tables of {} entries, not 1 to 512", fields.table_entries);
            return Err(damage(problem));
        }
        let bytes_of = |sectors: u64, what: &str| {
            sectors.checked_mul(SECTOR_BYTES).ok_or_else(|| damage(format!("{what}: {sectors} sectors")))
        };
        let directory_at = match fields.directory {
            AT_END => AT_END,
            0 => return Err(damage("it does not say where the grain directory is".into())),
            sector => bytes_of(sector, "the grain directory's place")?,
        };
        Ok(Self {
            capacity_sectors: fields.capacity,
            grain_sectors: fields.grain,
            descriptor_at: bytes_of(fields.descriptor, "the descriptor's place")?,
            descriptor_bytes: bytes_of(fields.descriptor_sectors, "the descriptor's length")?,
            table_entries: u64::from(fields.table_entries),
            directory_at,
            has_zeroed_grains: fields.flags & flag::ZEROED_GRAINS != 0,
            is_compressed: fields.flags & flag::COMPRESSED != 0,
        })
    }
}

/// The fields of the header as they stand.
#[derive(Debug)]
struct Fields {
    version: u32,
    flags: u32,
    capacity: u64,
    grain: u64,
    descriptor: u64,
    descriptor_sectors: u64,
    table_entries: u32,
    directory: u64,
    newlines: [u8; 4],
    compression: u16,
}

impl Fields {
    fn parse(cursor: &mut Cursor<'_>) -> Option<Self> {
        cursor.skip(MAGIC.len())?;
        let version = cursor.le_u32()?;
        let flags = cursor.le_u32()?;
        let capacity = cursor.le_u64()?;
        let grain = cursor.le_u64()?;
        let descriptor = cursor.le_u64()?;
        let descriptor_sectors = cursor.le_u64()?;
        let table_entries = cursor.le_u32()?;
        let _redundant_directory = cursor.le_u64()?;
        let directory = cursor.le_u64()?;
        let _overhead = cursor.le_u64()?;
        // Set while a program has the disk open for writing. What was written by then is in the tables or lost.
        let _unclean_shutdown = cursor.u8()?;
        let newlines = cursor.array()?;
        let compression = cursor.le_u16()?;
        Some(Self {
            version,
            flags,
            capacity,
            grain,
            descriptor,
            descriptor_sectors,
            table_entries,
            directory,
            newlines,
            compression,
        })
    }

    fn check_features(&self) -> Result<(), Refusal> {
        let unsupported = |what: String| Err(Refusal::unsupported(RULE, what));
        // Version 2 brought zeroed grains, version 3 tracks changes beside the disk.
        if !(1..=3).contains(&self.version) {
            return unsupported(format!("VMDK version {}", self.version));
        }
        let unknown = self.flags & !flag::KNOWN;
        if unknown != 0 {
            return unsupported(format!("a VMDK with unknown flags ({unknown:#x})"));
        }
        let (compressed, markers) = (self.flags & flag::COMPRESSED != 0, self.flags & flag::MARKERS != 0);
        match (compressed, self.compression) {
            (false, 0) | (true, 1) if compressed == markers => Ok(()),
            (false, 0) | (true, 1) => {
                unsupported("a VMDK that has markers or compression, but not both".into())
            }
            (_, method) => unsupported(format!("a VMDK of compression method {method}")),
        }
    }
}

/// The size and the type of the marker at `at`.
fn read_marker(storage: &dyn Storage, at: u64) -> Result<(u32, u32), Refusal> {
    let mut bytes = [0; 16];
    storage.read_at(ByteOffset::new(at), &mut bytes, Patience::Blocking)?;
    let mut cursor = Cursor::new(&bytes);
    let _sectors = cursor.le_u64();
    Ok(cursor.le_u32().zip(cursor.le_u32()).unwrap_or_default())
}
