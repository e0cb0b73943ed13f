//! Writing into VHD images.
//!
//! The format has no log. What keeps a file right is the order in which its parts reach the disk:
//! 1. the payload, and the bitmaps of new blocks, at places that no table in the file names; then a flush;
//! 2. the bitmaps of blocks that the table names, and the entries of new blocks; then a flush.
//!
//! Until the second step a crash leaves the old contents: bits that are not set hide what was written, and entries
//! that are not there hide new blocks. In between, the memory of the writer knows more than the file: it answers
//! reads, and a flush of the disk makes both steps. Each part of the second step stands for itself (a bit, an entry),
//! so whichever of them a crash lets through, every sector is old or new. The footer's place changes by a rule of its
//! own: see [`space`].
use super::footer::{DiskType, FooterBytes, FooterPlace};
use super::shape::footer_behind;
use super::{Footer, SECTOR_BYTES};
use crate::error::Refusal;
use crate::layer::readable;
use crate::mutable::{Below, Writer};
use crate::storage::{StorageError, WritableStorage};
use crate::vhd::file_map::FileMap;
use block::{ByteLength, ByteOffset, LogicalBlockSize};

mod bitmaps;
mod edit;
mod fixed;
mod pieces;
mod space;
mod sparse;

use fixed::FixedWriter;
use sparse::SparseWriter;

/// Blktap's files may have a map of full blocks that we do not keep right.
const TAPDISK: [u8; 4] = *b"tap\0";

/// Opens the VHD in `storage` for writing. A footer that is lost, or a copy that is not the footer's, is put right.
pub(crate) fn open_writer(
    storage: Box<dyn WritableStorage>,
    below: Below,
) -> Result<Box<dyn Writer>, Refusal> {
    let (footer, place, bytes) = Footer::read_with_bytes(&*storage)?;
    let refuse = |what: &str| Err(Refusal::unsupported("[VHD] Hard Disk Footer Format, \"Disk Type\"", what));
    match (footer.disk_type, below.is_some()) {
        (DiskType::Fixed | DiskType::Dynamic, true) => {
            return refuse("a VHD with a parent that is not a differencing one");
        }
        (DiskType::Differencing, false) => {
            return refuse("writing into a differencing VHD without its parent");
        }
        _ => {}
    }
    below.check(LogicalBlockSize::B512)?;
    if footer.creator == TAPDISK {
        return Err(Refusal::unsupported("blktap vhd.h, \"tdbatmap\"", "writing into a VHD of tapdisk"));
    }
    if footer.disk_type == DiskType::Fixed {
        return Ok(Box::new(FixedWriter::open(storage, footer, place, bytes)?));
    }
    let map = FileMap::read(&*storage, footer, place)?.verified()?;
    let footer_at = restore_footers(&*storage, &map, place, &bytes)?;
    Ok(Box::new(SparseWriter::new(storage, below, map, footer_at, bytes)))
}

/// Makes both footers the one that counts, and says where the one at the end begins. A crash can have left any tail
/// behind the last block: it is cut off with a lost footer.
pub(super) fn restore_footers(
    storage: &dyn WritableStorage,
    map: &FileMap,
    place: FooterPlace,
    footer: &FooterBytes,
) -> Result<u64, StorageError> {
    match place {
        FooterPlace::End(at) => {
            let copy = Footer::copy_at_start(storage)?;
            if copy.as_ref() != Some(footer) {
                storage.write_at(ByteOffset::ZERO, footer)?;
                storage.flush()?;
            }
            Ok(at)
        }
        FooterPlace::Start => {
            let at = footer_behind(map.used_end());
            storage.write_at(ByteOffset::new(at), footer)?;
            storage.flush()?;
            storage.set_len(ByteLength::new(at.saturating_add(SECTOR_BYTES)))?;
            storage.flush()?;
            Ok(at)
        }
    }
}

/// The creator of the file, fit to be shown.
fn creator_of(footer: &Footer) -> Option<String> {
    readable(&String::from_utf8_lossy(&footer.creator))
}
