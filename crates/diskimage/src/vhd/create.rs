//! New VHD files.
//!
//! # The order of writes
//! While a file is made, it has no footer: not at its start, and not at its end, behind which nothing but zeros is
//! kept whatever the payload holds. Every reader refuses such a file. [`NewImage::finish`] then
//! 1. writes the header, the parent's paths and the table, gives the file its length, and flushes: all that the
//!    image consists of is lasting, and the file still is no image;
//! 2. writes the copy of the footer at the start, and the footer, and flushes.
//!
//! A crash in the second step leaves no footer, either one, or both: no image, or a whole one whose other footer
//! [`check::repair`](crate::check::repair) puts back. A fixed image has one footer, written last.
//!
//! # Layout
//! Footer copy, dynamic header, the parent's paths (in a differencing image), table, blocks, footer; see
//! `docs/design/vhd.md`. How blocks lie: [`super::shape`].
use std::time::SystemTime;

use block::{ByteLength, ByteOffset, ByteRange};

use super::dynamic::{BLOCK_BYTES_RANGE, HEADER_BYTES};
use super::footer::DiskType;
use super::locator::{self, Locator, ParentReference};
use super::shape::{ALIGNMENT, BlockPlace, BlockShape, footer_behind};
use super::{BlockTable, DynamicHeader, Footer, SECTOR_BYTES};
use crate::format::Format;
use crate::guid::Guid;
use crate::image::Subtype;
use crate::new_image::{NewImage, NewImageError, NewImageSpec, NewPlace, ParentLink, SectorBitmap};
use crate::storage::{StorageError, WritableStorage};

/// The largest disk that Microsoft's programs take ([VHD] "Overview": 2040 GB), in whole GiB.
pub(super) const MAX_NEW_BYTES: u64 = 2040 << 30;
pub(super) const SIZE_RULE: &str = "[VHD] Overview: 2040 GiB";
/// The default of all programs.
const DEFAULT_BLOCK_BYTES: u64 = 2 << 20;
/// Where the table of a dynamic image stands: right behind the header.
const TABLE_AT: u64 = SECTOR_BYTES + HEADER_BYTES as u64;
/// Where the first of the parent's paths stands, and the least room that each of them has: it may become longer.
const PATHS_AT: u64 = 4096;
const MIN_PATH_ROOM: u64 = 4096;
/// The file is made longer in steps of this: its end then is zeros while payload is written.
const GROWTH_BYTES: u64 = 1 << 30;

/// Begins the image that `spec` describes, in the empty file `storage`, at the time `now`.
///
/// Where `spec` gives a differencing image the identifier of its parent, it gets a new one all the same: children
/// recognise a VHD by it, so no two files of a chain can share it.
pub(crate) fn create(
    storage: Box<dyn WritableStorage>,
    spec: &NewImageSpec,
    now: SystemTime,
) -> Result<Box<dyn NewImage>, NewImageError> {
    let bytes = spec.virtual_size.get();
    check_size(bytes)?;
    if spec.logical_block.bytes() != SECTOR_BYTES {
        let what = format!("logical sectors of {} bytes: they have 512", spec.logical_block.bytes());
        return Err(unsupported(what, "[VHD] Overview"));
    }
    let parent_id = spec.parent.as_ref().map(|parent| parent.linkage);
    let identity =
        spec.linkage.or(spec.identity.map(Guid::from_be_bytes)).filter(|&id| Some(id) != parent_id);
    let unique_id = match identity {
        Some(id) => id,
        None => Guid::random().map_err(|error| StorageError::Io {
            at: ByteOffset::ZERO,
            source: std::io::Error::other(error),
        })?,
    };
    let disk_type = match (spec.subtype, &spec.parent) {
        (Subtype::Fixed, None) => {
            let footer = Footer::new(DiskType::Fixed, bytes, unique_id, now);
            return Ok(Box::new(NewFixed::begin(storage, footer)?));
        }
        (Subtype::Dynamic, None) => DiskType::Dynamic,
        (Subtype::Differencing, Some(_)) => DiskType::Differencing,
        (Subtype::Differencing, None) => {
            return Err(unsupported(
                "a differencing image without a parent".into(),
                "[VHD] Differencing Hard Disk Image",
            ));
        }
        (Subtype::Fixed | Subtype::Dynamic, Some(_)) => {
            return Err(unsupported(
                "a parent, unless it is a differencing one".into(),
                "[VHD] Differencing Hard Disk Image",
            ));
        }
    };
    let footer = Footer::new(disk_type, bytes, unique_id, now);
    let block_bytes = spec.payload_block.map_or(DEFAULT_BLOCK_BYTES, ByteLength::get);
    let header = header(bytes, block_bytes, spec.parent.as_ref())?;
    Ok(Box::new(NewSparse::begin(storage, footer, header, spec.parent.as_ref())?))
}

/// Whether a disk may be this large.
pub(super) fn check_size(bytes: u64) -> Result<(), NewImageError> {
    if bytes == 0 || bytes > MAX_NEW_BYTES || !bytes.is_multiple_of(SECTOR_BYTES) {
        let size = ByteLength::new(bytes);
        let what = format!("{size}: it has whole sectors of 512 bytes, from one to 2040 GiB; make a VHDX");
        return Err(unsupported(what, SIZE_RULE));
    }
    Ok(())
}

fn unsupported(what: String, rule: &'static str) -> NewImageError {
    NewImageError::Unsupported { format: Format::Vhd, what, rule }
}

/// The header of a new image, its table behind all that stands at its start.
fn header(bytes: u64, block_bytes: u64, parent: Option<&ParentLink>) -> Result<DynamicHeader, NewImageError> {
    let in_range = |bytes: &u32| bytes.is_power_of_two() && BLOCK_BYTES_RANGE.contains(bytes);
    let Some(block_bytes) = u32::try_from(block_bytes).ok().filter(in_range) else {
        let what = format!("payload blocks of {block_bytes} bytes: a power of two from 4 KiB to 256 MiB");
        return Err(unsupported(what, "[VHD] Dynamic Disk Header Format"));
    };
    let entries = bytes.div_ceil(u64::from(block_bytes));
    let table_entries = BlockTable::check_entries(entries).ok_or_else(|| {
        let what =
            format!("a table of {entries} entries for blocks of {block_bytes} bytes: take larger blocks");
        unsupported(what, "Headwater: tables up to 16 MiB are written")
    })?;
    let parent = parent.map(parent_reference).transpose()?;
    let paths_end =
        parent.iter().flat_map(|parent| &parent.locators).map(|path| path.at.saturating_add(path.room));
    let table_offset = paths_end.max().unwrap_or(TABLE_AT);
    Ok(DynamicHeader { table_offset, table_entries, block_bytes, parent })
}

/// What a child says of the parent that `link` names, the paths one behind the other from [`PATHS_AT`] on.
fn parent_reference(link: &ParentLink) -> Result<ParentReference, NewImageError> {
    let paths = ParentPaths::of(link)?;
    let mut at = PATHS_AT;
    let locators = paths.in_order().map(|(platform, path)| {
        let length = u32::try_from(path.len()).unwrap_or(u32::MAX);
        let room = u64::from(length).next_multiple_of(ALIGNMENT).max(MIN_PATH_ROOM);
        let locator = Locator { platform, at, length, room };
        at = at.saturating_add(room);
        locator
    });
    Ok(ParentReference { locators: locators.collect(), ..paths.reference(link.linkage) })
}

/// The paths that a child keeps of its parent, as its locators have them.
pub(super) struct ParentPaths {
    relative: (String, Vec<u8>),
    absolute: Option<(String, Vec<u8>)>,
}

impl ParentPaths {
    pub(super) fn of(link: &ParentLink) -> Result<Self, NewImageError> {
        let keep = |path: String| match locator::path_bytes(&path) {
            Some(bytes) => Ok((path, bytes)),
            None => {
                let what = format!(
                    "a parent path of {} characters, or an empty one, or one with a zero",
                    path.len()
                );
                Err(unsupported(what, locator::RULE))
            }
        };
        let absolute = link.absolute_path.as_ref().map(|path| keep(path.replace('/', "\\")));
        Ok(Self {
            relative: keep(locator::windows_relative(&link.relative_path))?,
            absolute: absolute.transpose()?,
        })
    }

    /// Platform codes and paths in the order in which Windows has them: the absolute one first.
    pub(super) fn in_order(&self) -> impl Iterator<Item = ([u8; 4], &[u8])> {
        let absolute = self.absolute.iter().map(|(_, bytes)| (locator::ABSOLUTE, bytes.as_slice()));
        absolute.chain([(locator::RELATIVE, self.relative.1.as_slice())])
    }

    /// What the header says of the parent, without locators.
    pub(super) fn reference(&self, unique_id: Guid) -> ParentReference {
        let (relative, absolute) = (&self.relative.0, self.absolute.as_ref().map(|(path, _)| path));
        ParentReference {
            unique_id,
            name: absolute.unwrap_or(relative).clone(),
            relative_path: Some(relative.clone()),
            absolute_path: absolute.cloned(),
            locators: Vec::new(),
        }
    }
}

/// A dynamic or differencing image in the making.
#[derive(Debug)]
struct NewSparse {
    storage: Box<dyn WritableStorage>,
    footer: Footer,
    header: DynamicHeader,
    shape: BlockShape,
    table: BlockTable,
    /// Behind all that has a place.
    end: u64,
}

impl NewSparse {
    fn begin(
        storage: Box<dyn WritableStorage>,
        footer: Footer,
        header: DynamicHeader,
        link: Option<&ParentLink>,
    ) -> Result<Self, NewImageError> {
        let table = BlockTable::absent(header.table_entries);
        let end = header.table_offset.saturating_add(table.bytes_in_file());
        let shape = BlockShape::of(&header);
        let new = Self { storage, footer, header, shape, table, end };
        if let (Some(link), Some(parent)) = (link, &new.header.parent) {
            let paths = ParentPaths::of(link)?;
            for (locator, (_, path)) in parent.locators.iter().zip(paths.in_order()) {
                new.storage.write_at(ByteOffset::new(locator.at), path)?;
            }
        }
        new.keep_end_clear()?;
        Ok(new)
    }

    /// Makes the file so long that its last bytes are no payload: they could look like a footer.
    fn keep_end_clear(&self) -> Result<(), StorageError> {
        if self.storage.len().get() <= self.end {
            self.storage.set_len(ByteLength::new(self.end.saturating_add(GROWTH_BYTES)))?;
        }
        Ok(())
    }

    fn check(&self, block: u64) -> Result<u32, NewImageError> {
        let blocks = u64::from(self.header.table_entries);
        let index = u32::try_from(block).ok().filter(|&index| index < self.header.table_entries);
        index.ok_or(NewImageError::NoSuchBlock { block, blocks })
    }

    /// The place of `block`, the one it has or the next, and where in the file its lead begins.
    fn take_place(&mut self, block: u32) -> Result<(BlockPlace, u64), NewImageError> {
        if let Some(sector) = self.table.get(block) {
            let place = self.shape.at_sector(sector);
            return Ok((place, place.bitmap_at));
        }
        let lead_at = self.end;
        let place = self.shape.behind(self.end);
        let Some(sector) = place.sector() else {
            let what = format!("a block at {:#x} of the file: its table reaches 2 TiB", place.bitmap_at);
            return Err(unsupported(what, "[VHD] Block Allocation Table and Data Blocks"));
        };
        self.end = place.end;
        self.keep_end_clear()?;
        self.table.set(block, Some(sector));
        Ok((place, lead_at))
    }

    fn put_lead(&self, place: &NewPlace) -> Result<(), StorageError> {
        let length = u64::try_from(place.lead.len()).unwrap_or_default();
        self.storage.write_at(ByteOffset::new(place.at.get().saturating_sub(length)), &place.lead)
    }

    /// The bitmap of a block that holds these sectors, or all.
    fn bitmap(&self, held: Option<&SectorBitmap>) -> Vec<u8> {
        let bytes = usize::try_from(self.shape.bitmap_bytes).unwrap_or_default();
        let Some(held) = held else { return vec![0xFF; bytes] };
        // A bit for each sector, the first in the most significant one: theirs turned round. What is behind the
        // block's sectors is padding.
        let sectors = usize::try_from(self.shape.data_bytes / SECTOR_BYTES / 8).unwrap_or_default();
        let mut bitmap: Vec<_> = held.iter().take(sectors).map(|byte| byte.reverse_bits()).collect();
        bitmap.resize(bytes, 0);
        bitmap
    }
}

impl NewImage for NewSparse {
    fn payload_block(&self) -> ByteLength {
        ByteLength::new(self.shape.data_bytes)
    }

    fn storage(&self) -> &dyn WritableStorage {
        &*self.storage
    }

    fn place(&mut self, block: u64) -> Result<ByteOffset, NewImageError> {
        let place = self.place_with_lead(block, None)?;
        self.put_lead(&place)?;
        Ok(place.at)
    }

    fn place_partly(&mut self, block: u64, held: &SectorBitmap) -> Result<ByteOffset, NewImageError> {
        let place = self.place_with_lead(block, Some(held))?;
        self.put_lead(&place)?;
        Ok(place.at)
    }

    fn place_with_lead(
        &mut self,
        block: u64,
        held: Option<&SectorBitmap>,
    ) -> Result<NewPlace, NewImageError> {
        if held.is_some() && self.header.parent.is_none() {
            return Err(NewImageError::NotDifferencing);
        }
        let block = self.check(block)?;
        let (place, lead_at) = self.take_place(block)?;
        let padding = usize::try_from(place.bitmap_at.saturating_sub(lead_at)).unwrap_or_default();
        let mut lead = vec![0; padding];
        lead.extend(self.bitmap(held));
        Ok(NewPlace { at: ByteOffset::new(place.data_at), lead: lead.into() })
    }

    fn zero(&mut self, block: u64) -> Result<(), NewImageError> {
        let block = self.check(block)?;
        if self.header.parent.is_none() && self.table.get(block).is_none() {
            return Ok(());
        }
        // A block of zeros that hides the parent's takes a place, but no space: a hole.
        let (place, _) = self.take_place(block)?;
        self.storage.write_at(ByteOffset::new(place.bitmap_at), &self.bitmap(None))?;
        let data = ByteRange::new(ByteOffset::new(place.data_at), ByteLength::new(self.shape.data_bytes));
        Ok(data.map_or(Ok(()), |data| self.storage.punch(data))?)
    }

    fn finish(self: Box<Self>) -> Result<(), NewImageError> {
        let footer_at = footer_behind(self.end);
        let footer = self.footer.encode();
        self.storage.write_at(ByteOffset::new(SECTOR_BYTES), &self.header.encode())?;
        self.storage.write_at(ByteOffset::new(self.header.table_offset), &self.table.encode())?;
        self.storage.set_len(ByteLength::new(footer_at.saturating_add(SECTOR_BYTES)))?;
        self.storage.flush()?;
        self.storage.write_at(ByteOffset::ZERO, &footer)?;
        self.storage.write_at(ByteOffset::new(footer_at), &footer)?;
        Ok(self.storage.flush()?)
    }
}

/// A fixed image in the making: the disk's bytes lie where they lie on the disk.
#[derive(Debug)]
struct NewFixed {
    storage: Box<dyn WritableStorage>,
    footer: Footer,
}

impl NewFixed {
    fn begin(storage: Box<dyn WritableStorage>, footer: Footer) -> Result<Self, StorageError> {
        storage.set_len(ByteLength::new(footer.current_bytes.saturating_add(SECTOR_BYTES)))?;
        Ok(Self { storage, footer })
    }

    fn range_of(&self, block: u64) -> Result<ByteRange, NewImageError> {
        let blocks = self.footer.current_bytes.div_ceil(DEFAULT_BLOCK_BYTES);
        let at = block.saturating_mul(DEFAULT_BLOCK_BYTES);
        let left = self.footer.current_bytes.saturating_sub(at).min(DEFAULT_BLOCK_BYTES);
        let range = ByteRange::new(ByteOffset::new(at), ByteLength::new(left));
        range.filter(|range| !range.is_empty()).ok_or(NewImageError::NoSuchBlock { block, blocks })
    }
}

impl NewImage for NewFixed {
    fn payload_block(&self) -> ByteLength {
        ByteLength::new(DEFAULT_BLOCK_BYTES)
    }

    fn storage(&self) -> &dyn WritableStorage {
        &*self.storage
    }

    fn place(&mut self, block: u64) -> Result<ByteOffset, NewImageError> {
        Ok(self.range_of(block)?.start())
    }

    fn place_partly(&mut self, _: u64, _: &SectorBitmap) -> Result<ByteOffset, NewImageError> {
        Err(NewImageError::NotDifferencing)
    }

    fn zero(&mut self, block: u64) -> Result<(), NewImageError> {
        Ok(self.storage.punch(self.range_of(block)?)?)
    }

    fn finish(self: Box<Self>) -> Result<(), NewImageError> {
        let end = self.footer.current_bytes;
        self.storage.set_len(ByteLength::new(end.saturating_add(SECTOR_BYTES)))?;
        self.storage.flush()?;
        self.storage.write_at(ByteOffset::new(end), &self.footer.encode())?;
        Ok(self.storage.flush()?)
    }
}
