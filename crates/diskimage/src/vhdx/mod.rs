//! VHDX, the format of Hyper-V ("Virtual Hard Disk v2 (VHDX) File Format", cited here as `[MS-VHDX]` with its section).
//!
//! Everything is little-endian. The first MiB holds the file type identifier, two headers of which the one with the
//! greater sequence number counts, and two copies of the region table. That gives the places of the metadata region
//! (how large the disk, its blocks and its sectors are) and of the block allocation table (where each block is). All
//! changes to metadata pass through a log of the file first; a file that was not closed cleanly holds its newest
//! metadata only there. Nobody may read it without replaying the log, which a reader does in memory ([`overlay`]).
use std::sync::Arc;

use block::{ByteOffset, ByteRange, Patience};

use crate::bitmap::Scratch;
use crate::error::{Damage, Refusal, ResolveError};
use crate::extent::{Held, LayerExtent};
use crate::guid::Guid;
use crate::storage::Storage;

mod bat;
mod check;
mod create;
mod file_type;
mod header;
mod layout;
mod locator;
mod log;
mod metadata;
mod new_bat;
mod overlay;
mod region;
mod replay;
mod write;

use bat::Bat;
pub(crate) use check::{check, repair};
pub(crate) use create::NewVhdx;
pub(crate) use file_type::is_signed;
use header::Header;
pub(crate) use locator::Locator;
pub(crate) use metadata::Metadata;
use overlay::{Overlaid, Overlay, Piece};
use region::RegionTable;
pub(crate) use write::VhdxWriter;

pub(crate) const MIB: u64 = 1 << 20;

/// An open VHDX image.
#[derive(Debug)]
pub(crate) struct Vhdx {
    creator: String,
    metadata: Metadata,
    data_write_guid: Guid,
    bat: Bat,
    replayed: Option<Arc<Overlay>>,
}

/// A part of the file that something owns: first and behind-last byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owned {
    what: &'static str,
    start: u64,
    end: u64,
}

impl Vhdx {
    /// Opens the image in `storage`, and gives the storage to read it through: with the log replayed over it, if it
    /// had to be.
    pub(crate) fn open(storage: Box<dyn Storage>) -> Result<(Self, Box<dyn Storage>), Refusal> {
        let creator = file_type::read(&*storage)?;
        let header = header::read_current(&*storage)?;
        let (storage, replayed) = replayed(storage, &header)?;
        let regions = RegionTable::read(&*storage)?;
        let mut owned = vec![Owned { what: "the header section", start: 0, end: MIB }];
        owned.extend(header.log());
        owned.extend(regions.owned());
        check_disjoint(&owned, storage.len().get())?;
        let metadata = Metadata::read(&*storage, regions.metadata)?;
        let bat = Bat::open(&*storage, regions.bat, &metadata, owned)?;
        Ok((Self { creator, metadata, data_write_guid: header.data_write_guid, bat, replayed }, storage))
    }

    pub(crate) fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// What children recognise the image by ([MS-VHDX] §2.6.2.6.3).
    pub(crate) fn data_write_guid(&self) -> Guid {
        self.data_write_guid
    }

    pub(crate) fn creator(&self) -> &str {
        &self.creator
    }

    pub(crate) fn is_replayed(&self) -> bool {
        self.replayed.is_some()
    }

    /// See [`Table::share`](crate::table::Table::share).
    pub(crate) fn share_table(&mut self, tables: usize) {
        self.bat.share_table(tables);
    }

    /// The extent with which `range` begins.
    pub(crate) fn extent(
        &self,
        storage: &dyn Storage,
        range: ByteRange,
        patience: Patience,
        scratch: &mut Scratch,
    ) -> Result<LayerExtent, ResolveError> {
        let extent = self.bat.extent(storage, range, patience, scratch)?;
        let (Some(overlay), Held::File { at }) = (&self.replayed, extent.held) else {
            return Ok(extent);
        };
        let (piece, end) = overlay.at(at);
        let held = match piece {
            None => extent.held,
            Some(Piece::Zero) => Held::Zero,
            Some(Piece::Sector(_)) => Held::Replayed { at },
        };
        Ok(LayerExtent::head_of(extent.range, end.saturating_sub(at), held))
    }
}

/// A file, with its log laid over it if that had to be.
type Replayed = (Box<dyn Storage>, Option<Arc<Overlay>>);

fn replayed(storage: Box<dyn Storage>, header: &Header) -> Result<Replayed, Refusal> {
    // [MS-VHDX] §2.3.3: a file with a log identifier must not be read before its log is replayed.
    if header.log_guid.non_nil().is_none() {
        return Ok((storage, None));
    }
    let overlay = Arc::new(replay::replay(&*storage, header)?);
    Ok((Box::new(Overlaid::new(storage, Arc::clone(&overlay))), Some(overlay)))
}

/// What children recognise the image by, and what it says of its own parent: without looking at its tables.
pub(crate) fn relations(storage: Box<dyn Storage>) -> Result<(Guid, Option<Locator>), Refusal> {
    let header = header::read_current(&*storage)?;
    let (storage, _) = replayed(storage, &header)?;
    let regions = RegionTable::read(&*storage)?;
    let metadata = Metadata::read(&*storage, regions.metadata)?;
    Ok((header.data_write_guid, metadata.parent))
}

/// What children recognise the image by: the `DataWriteGuid` of the header that counts ([MS-VHDX] §2.6.2.6.3).
pub(crate) fn linkage(storage: &dyn Storage) -> Result<Guid, Refusal> {
    header::read_current(storage).map(|header| header.data_write_guid)
}

/// [MS-VHDX] §2.1: the log and the regions lie in the file, behind the header section, and not over each other.
fn check_disjoint(owned: &[Owned], file_bytes: u64) -> Result<(), Damage> {
    const RULE: &str = "[MS-VHDX] §2.1";
    let mut sorted = owned.to_vec();
    sorted.sort_unstable_by_key(|owned| (owned.start, owned.end));
    for (one, other) in sorted.iter().zip(sorted.iter().skip(1)) {
        if other.start < one.end {
            let problem = format!("it begins inside {}, which ends at {:#x}", one.what, one.end);
            return Err(Damage::new(other.what, other.start, RULE, problem));
        }
    }
    match sorted.iter().find(|owned| owned.end > file_bytes) {
        Some(owned) => {
            let problem =
                format!("it ends at {:#x}, behind the end of the file at {file_bytes:#x}", owned.end);
            Err(Damage::new(owned.what, owned.start, RULE, problem))
        }
        None => Ok(()),
    }
}

/// The CRC-32C of `structure`, whose own field, the four bytes at 4, counts as zero: the rule of all structures with
/// a checksum ([MS-VHDX] §2.2.2, §2.2.3.1, §2.3.1.1).
pub(crate) fn checksum(structure: &[u8]) -> u32 {
    checksum_of_parts(structure, &[])
}

/// The structure with its checksum.
fn sealed(mut structure: Vec<u8>) -> Vec<u8> {
    let sum = checksum(&structure).to_le_bytes();
    for (target, byte) in structure.iter_mut().skip(4).zip(sum) {
        *target = byte;
    }
    structure
}

/// As [`checksum`], of a structure in two parts, the first of which holds the field.
fn checksum_of_parts(first: &[u8], second: &[u8]) -> u32 {
    let (signature, rest) = first.split_at_checked(4).unwrap_or((first, &[]));
    let (_, rest) = rest.split_at_checked(4).unwrap_or_default();
    let sum = crc32c::crc32c_append(crc32c::crc32c(signature), &[0; 4]);
    crc32c::crc32c_append(crc32c::crc32c_append(sum, rest), second)
}

/// Reads `N` bytes at `at`.
fn read_bytes<const N: usize>(storage: &dyn Storage, at: u64) -> Result<Box<[u8; N]>, Refusal> {
    let mut bytes = Box::new([0; N]);
    storage.read_at(ByteOffset::new(at), &mut *bytes, Patience::Blocking)?;
    Ok(bytes)
}
