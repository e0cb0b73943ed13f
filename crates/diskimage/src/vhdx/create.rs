//! A new VHDX file: fixed, dynamic or differencing, in the layout that Windows writes.
//!
//! The header section, the log of 1 MiB at 1 MiB, the metadata region of 1 MiB at 2 MiB, the block allocation table at
//! 3 MiB, and behind it the blocks in the order in which they are placed. The metadata first has the mark of an
//! incomplete file. [`finish`](NewImage::finish) makes all the rest lasting before it takes the mark away, which is
//! one write of 512 bytes: a crash leaves a file that is marked, or one that is whole.
use block::{ByteLength, ByteOffset, ByteRange};

use super::header::{self, Header};
use super::layout::{BatLayout, state, within_disk};
use super::locator::Locator;
use super::metadata::{MAX_DISK_BYTES, Making, Metadata, is_known_item};
use super::new_bat::{NewBat, Unset};
use super::region::{self, Region, RegionTable};
use super::{MIB, file_type};
use crate::format::Format;
use crate::guid::Guid;
use crate::image::Subtype;
use crate::new_image::{MetadataItem, NewImage, NewImageError, NewImageSpec, ParentLink, SectorBitmap};
use crate::storage::WritableStorage;

const CREATOR: &str = concat!("Headwater ", env!("CARGO_PKG_VERSION"));
const LOG: Region = Region { at: MIB, length: MIB };
const METADATA: Region = Region { at: 2 * MIB, length: MIB };
const BAT_AT: u64 = 3 * MIB;
/// How much of the metadata a disk writes wholly or not at all, and all that tells an incomplete file from a whole one.
const MARK_BYTES: usize = 512;
/// As Windows: large blocks for few entries, and small ones where a changed sector costs a sector bitmap's lookup.
const DEFAULT_BLOCK_BYTES: u64 = 32 * MIB;
const DEFAULT_DIFFERENCING_BLOCK_BYTES: u64 = 2 * MIB;
/// A sector bitmap block ([MS-VHDX] §2.4.2).
const BITMAP_BLOCK_BYTES: u64 = MIB;
/// [MS-VHDX] §2.6.1.1: that many of the entries can be the user's.
const MAX_USER_ITEMS: usize = 1024;
const MAX_CARRIED_ITEMS: usize = 1024;

/// A VHDX file in the making.
#[derive(Debug)]
pub(crate) struct NewVhdx {
    storage: Box<dyn WritableStorage>,
    metadata: Metadata,
    carried: Vec<MetadataItem>,
    layout: BatLayout,
    subtype: Subtype,
    bat: NewBat,
    /// Where blocks begin.
    payload_at: u64,
    /// Where the next block goes, and how long the file is so far.
    next: u64,
}

impl NewVhdx {
    /// Begins a file that is to be as `spec` says, in `storage`, which is empty.
    pub(crate) fn begin(
        storage: Box<dyn WritableStorage>,
        spec: &NewImageSpec,
    ) -> Result<Self, NewImageError> {
        let len = storage.len();
        if len != ByteLength::ZERO {
            return Err(NewImageError::NotEmpty { len });
        }
        let metadata = metadata_of(spec)?;
        check_carried(&metadata, &spec.carried)?;
        let layout = BatLayout::of(&metadata);
        let payload_at = BAT_AT.saturating_add(layout.region_bytes());
        let (unset, next) = match spec.subtype {
            Subtype::Differencing => (Unset::NotPresent, payload_at),
            Subtype::Dynamic => (Unset::Zero, payload_at),
            Subtype::Fixed => {
                let payload_bytes = layout.blocks().saturating_mul(layout.block_bytes().get());
                (Unset::Present { at: payload_at }, payload_at.saturating_add(payload_bytes))
            }
        };
        let new = Self {
            storage,
            metadata,
            carried: spec.carried.clone(),
            layout,
            subtype: spec.subtype,
            bat: NewBat::new(BAT_AT, layout, unset),
            payload_at,
            next,
        };
        new.write_structures(spec.linkage)?;
        Ok(new)
    }

    fn write_structures(&self, linkage: Option<Guid>) -> Result<(), NewImageError> {
        let write = |at: u64, bytes: &[u8]| self.storage.write_at(ByteOffset::new(at), bytes);
        // The mark first: whatever else gets into the file, it is never without it.
        write(METADATA.at, &self.encoded(Making::Incomplete)?)?;
        let bat = Region { at: BAT_AT, length: self.layout.region_bytes() };
        let regions = RegionTable::new(bat, METADATA).encode();
        for at in region::PLACES {
            write(at, &regions)?;
        }
        // [MS-VHDX] §2.2.2: both headers are current, one number apart; there is no log to replay. Where nobody wants
        // the file to stand in for another, no child can take it for one.
        let file_write = Guid::random()?;
        let data_write = linkage.map_or_else(Guid::random, Ok)?;
        let log_length = u32::try_from(LOG.length).unwrap_or(u32::MAX);
        for (sequence_number, at) in (1..).zip(header::PLACES) {
            let header = Header::new(sequence_number, file_write, data_write, LOG.at, log_length);
            write(at, &header.encode())?;
        }
        write(0, &file_type::encode(CREATOR))?;
        Ok(self.storage.set_len(ByteLength::new(self.payload_at))?)
    }

    fn encoded(&self, making: Making<'_>) -> Result<Vec<u8>, NewImageError> {
        let fits = |bytes: &Vec<u8>| ByteLength::of(bytes).get() <= METADATA.length;
        let bytes = self.metadata.encode(making).filter(fits);
        bytes.ok_or_else(|| unsupported("[MS-VHDX] §2.6", "metadata of more than 1 MiB".into()))
    }

    fn check_block(&self, block: u64) -> Result<(), NewImageError> {
        let blocks = self.layout.blocks();
        if block < blocks { Ok(()) } else { Err(NewImageError::NoSuchBlock { block, blocks }) }
    }

    /// Gives `block` the next place in the file, with this state.
    fn allocate(&mut self, block: u64, state: u64) -> Result<ByteOffset, NewImageError> {
        let index = self.layout.index_of(block);
        if self.bat.get(index, &*self.storage)? > state::UNMAPPED {
            return Err(NewImageError::PlacedAlready { block });
        }
        let at = self.next;
        self.bat.set(index, at | state, &*self.storage)?;
        self.next = at.saturating_add(self.layout.block_bytes().get());
        Ok(ByteOffset::new(at))
    }

    /// Where the sector bitmap block of `chunk` is. It gets its place when it is first needed.
    fn bitmap_block(&mut self, chunk: u64) -> Result<u64, NewImageError> {
        let index = self.layout.index_of_bitmap(chunk);
        let entry = self.bat.get(index, &*self.storage)?;
        if entry != 0 {
            return Ok(entry & !state::FULLY_PRESENT);
        }
        let at = self.next;
        self.bat.set(index, at | state::FULLY_PRESENT, &*self.storage)?;
        self.next = at.saturating_add(BITMAP_BLOCK_BYTES);
        Ok(at)
    }
}

impl NewImage for NewVhdx {
    fn payload_block(&self) -> ByteLength {
        ByteLength::new(self.layout.block_bytes().get())
    }

    fn storage(&self) -> &dyn WritableStorage {
        &*self.storage
    }

    fn place(&mut self, block: u64) -> Result<ByteOffset, NewImageError> {
        self.check_block(block)?;
        match self.subtype {
            Subtype::Fixed => {
                let before = block.saturating_mul(self.layout.block_bytes().get());
                Ok(ByteOffset::new(self.payload_at.saturating_add(before)))
            }
            Subtype::Dynamic | Subtype::Differencing => self.allocate(block, state::FULLY_PRESENT),
        }
    }

    fn place_partly(&mut self, block: u64, held: &SectorBitmap) -> Result<ByteOffset, NewImageError> {
        if self.subtype != Subtype::Differencing {
            return Err(NewImageError::NotDifferencing);
        }
        self.check_block(block)?;
        let expected = usize::try_from(self.layout.bitmap_bytes()).unwrap_or(usize::MAX);
        if held.len() != expected {
            return Err(NewImageError::WrongBitmap { found: held.len(), expected });
        }
        let (bits, is_full) = within_disk(held, self.layout.sectors_in(block));
        if is_full {
            return self.place(block);
        }
        let at = self.allocate(block, state::PARTIALLY_PRESENT)?;
        let bitmap_at = self.bitmap_block(self.layout.chunk_of(block))?;
        let bits_at = bitmap_at.saturating_add(self.layout.bitmap_offset(block));
        self.storage.write_at(ByteOffset::new(bits_at), &bits)?;
        Ok(at)
    }

    fn zero(&mut self, block: u64) -> Result<(), NewImageError> {
        self.check_block(block)?;
        if self.subtype == Subtype::Fixed {
            let length = self.payload_block();
            let end = ByteRange::new(self.place(block)?, length).map(|range| (range, range.end()));
            return match end {
                Some((range, end)) if end.get() <= self.storage.len().get() => {
                    Ok(self.storage.punch(range)?)
                }
                // Behind the end of the file so far, which will be zeros.
                _ => Ok(()),
            };
        }
        let index = self.layout.index_of(block);
        if self.bat.get(index, &*self.storage)? > state::UNMAPPED {
            return Err(NewImageError::PlacedAlready { block });
        }
        Ok(self.bat.set(index, state::ZERO, &*self.storage)?)
    }

    fn finish(self: Box<Self>) -> Result<(), NewImageError> {
        let metadata = self.encoded(Making::Complete { carried: &self.carried })?;
        let Self { storage, bat, next, .. } = *self;
        // Payload may have been moved into the file behind the storage's back: whatever its length is, this is right.
        storage.set_len(ByteLength::new(next))?;
        bat.finish(&*storage)?;
        let (mark, rest) = metadata.split_at_checked(MARK_BYTES).unwrap_or((&metadata, &[]));
        let mark_at = ByteOffset::new(METADATA.at);
        let rest_at = mark_at.checked_add(ByteLength::of(mark)).unwrap_or(mark_at);
        storage.write_at(rest_at, rest)?;
        storage.flush()?;
        storage.write_at(mark_at, mark)?;
        storage.flush()?;
        Ok(())
    }
}

fn unsupported(rule: &'static str, what: String) -> NewImageError {
    NewImageError::Unsupported { format: Format::Vhdx, what, rule }
}

/// What the new disk is like, if VHDX can express it.
fn metadata_of(spec: &NewImageSpec) -> Result<Metadata, NewImageError> {
    let block_bytes = match (spec.payload_block, spec.subtype) {
        (Some(length), _) => length.get(),
        (None, Subtype::Differencing) => DEFAULT_DIFFERENCING_BLOCK_BYTES,
        (None, Subtype::Fixed | Subtype::Dynamic) => DEFAULT_BLOCK_BYTES,
    };
    let valid = block_bytes.is_power_of_two() && (MIB..=256 * MIB).contains(&block_bytes);
    let Some(block_bytes) = u32::try_from(block_bytes).ok().filter(|_| valid) else {
        let what =
            format!("payload blocks of {block_bytes} bytes: their size is a power of two from 1 to 256 MiB");
        return Err(unsupported("[MS-VHDX] §2.6.2.1", what));
    };
    let (logical, physical) = (spec.logical_block.bytes(), spec.physical_block);
    if !matches!(physical, 512 | 4096) || u64::from(physical) < logical {
        let what = format!(
            "physical sectors of {physical} bytes under logical ones of {logical}: they have 512 or 4096, and are \
             no smaller"
        );
        return Err(unsupported("[MS-VHDX] §2.6.2.5", what));
    }
    let virtual_bytes = spec.virtual_size.get();
    if virtual_bytes == 0 || virtual_bytes > MAX_DISK_BYTES || !virtual_bytes.is_multiple_of(logical) {
        let what = format!(
            "a disk of {}: its size is a number of whole sectors of {logical}, from one to 64 TiB",
            spec.virtual_size
        );
        return Err(unsupported("[MS-VHDX] §2.6.2.2", what));
    }
    let parent = locator_of(spec)?;
    let identity = match (spec.identity, &parent) {
        (Some(bytes), _) => Guid::from_be_bytes(bytes),
        (None, None) => Guid::random()?,
        (None, Some(_)) => {
            let what = "a parent without its disk's identifier: a version of a disk is the same disk".into();
            return Err(unsupported("[MS-VHDX] §2.6.1.2", what));
        }
    };
    let is_fixed = spec.subtype == Subtype::Fixed;
    let sectors = (spec.logical_block, physical);
    Ok(Metadata::new(block_bytes, is_fixed, virtual_bytes, identity, sectors, parent))
}

fn locator_of(spec: &NewImageSpec) -> Result<Option<Locator>, NewImageError> {
    const RULE: &str = "[MS-VHDX] §2.6.2.6.3";
    let link = match (spec.subtype, &spec.parent) {
        (Subtype::Differencing, Some(link)) => link,
        (Subtype::Differencing, None) => {
            return Err(unsupported(RULE, "subtype differencing without a parent".into()));
        }
        (Subtype::Fixed | Subtype::Dynamic, Some(_)) => {
            return Err(unsupported(RULE, "a parent, unless its subtype is differencing".into()));
        }
        (Subtype::Fixed | Subtype::Dynamic, None) => return Ok(None),
    };
    locator(link).map(Some)
}

/// The locator that says what `link` does.
pub(super) fn locator(link: &ParentLink) -> Result<Locator, NewImageError> {
    const RULE: &str = "[MS-VHDX] §2.6.2.6.3";
    let Some(relative_path) = windows_path(&link.relative_path) else {
        let what = format!("the parent path {:?}: it is relative, without \\ and NUL", link.relative_path);
        return Err(unsupported(RULE, what));
    };
    let locator = Locator {
        parent_linkage: link.linkage,
        // [MS-VHDX] §2.6.2.6.3: it is there only while a parent is changed in place.
        parent_linkage2: None,
        relative_path: Some(relative_path),
        volume_path: None,
        absolute_win32_path: absolute_win32_path(link),
        other: Vec::new(),
    };
    if locator.encode().is_none() {
        return Err(unsupported(
            "[MS-VHDX] §2.6.2.6.2",
            "a parent path of more than 32767 characters".into(),
        ));
    }
    Ok(locator)
}

/// As Windows writes a relative path: with `\`, and `.\` before a name in the child's folder.
fn windows_path(path: &str) -> Option<String> {
    if path.is_empty() || path.starts_with('/') || path.contains(['\\', '\0']) {
        return None;
    }
    let path = path.replace('/', "\\");
    let has_dots = path.starts_with(".\\") || path.starts_with("..\\");
    Some(if has_dots { path } else { format!(".\\{path}") })
}

/// An absolute path, if it is one of Windows: one of another system would lead nowhere there.
fn absolute_win32_path(link: &ParentLink) -> Option<String> {
    let path = link.absolute_path.as_ref()?;
    let has_drive = matches!(path.as_bytes(), [drive, b':', b'\\', ..] if drive.is_ascii_alphabetic());
    (has_drive || path.starts_with(r"\\")).then(|| path.clone())
}

fn check_carried(metadata: &Metadata, carried: &[MetadataItem]) -> Result<(), NewImageError> {
    const RULE: &str = "[MS-VHDX] §2.6.1";
    let users = carried.iter().filter(|item| item.is_user).count();
    if carried.len() > MAX_CARRIED_ITEMS || users > MAX_USER_ITEMS {
        return Err(unsupported(RULE, format!("{} further items of metadata", carried.len())));
    }
    let mut names: Vec<_> = carried.iter().map(|item| (item.id.to_be_bytes(), item.is_user)).collect();
    names.sort_unstable();
    if names.iter().zip(names.iter().skip(1)).any(|(one, other)| one == other) {
        return Err(unsupported(RULE, "an item of metadata twice".into()));
    }
    if let Some(item) = carried.iter().find(|item| !item.is_user && is_known_item(item.id)) {
        return Err(unsupported(RULE, format!("the item {} among those that nobody knows", item.id)));
    }
    let fits = |bytes: &Vec<u8>| ByteLength::of(bytes).get() <= METADATA.length;
    match metadata.encode(Making::Complete { carried }).filter(fits) {
        Some(_) => Ok(()),
        None => Err(unsupported("[MS-VHDX] §2.6", "metadata of more than 1 MiB".into())),
    }
}
