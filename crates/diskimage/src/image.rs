//! An open image: one reader for all formats.
use std::path::Path;

use block::{
    Access, BlockDevice, BlockError, ByteLength, ByteOffset, ByteRange, Geometry, LogicalBlockSize, Patience,
};

use crate::error::{OpenError, Refusal, ResolveError};
use crate::extent::{Extent, Source};
use crate::format::{self, Format};
use crate::raw::Raw;
use crate::storage::{FileStorage, FileStorageError, Storage};
use crate::vhd::Vhd;
use crate::vhdx::Vhdx;

/// How to open an image.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenOptions {
    /// The format, where it is known. Without it, contents and ending decide.
    pub format: Option<Format>,
}

/// An image, opened for reading: a block device that takes no writes.
#[derive(Debug)]
pub struct Image {
    storage: Box<dyn Storage>,
    layout: Layout,
    geometry: Geometry,
}

/// How an image keeps its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subtype {
    /// All of the disk has its place in the file.
    Fixed,
    /// Blocks get a place when they are first written.
    Dynamic,
    /// Holds what differs from a parent.
    Differencing,
}

/// What is known of an image without reading it through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// The format.
    pub format: Format,
    /// How it keeps its blocks.
    pub subtype: Subtype,
    /// How large the disk is.
    pub virtual_size: ByteLength,
    /// The unit in which the disk is addressed.
    pub logical_block: LogicalBlockSize,
    /// The unit in which the disk says that it is stored.
    pub physical_block: u32,
    /// How much of the disk one block of the image holds, where there are blocks.
    pub payload_block: Option<ByteLength>,
    /// How long the file is.
    pub file_size: ByteLength,
    /// How much of the file takes space, where the storage knows.
    pub allocated: Option<ByteLength>,
    /// The disk's own identifier. See [`Image::identity`].
    pub identity: Option<[u8; 16]>,
    /// The program that made the file, as the file says.
    pub creator: Option<String>,
    /// Whether the file was not closed cleanly, so that its log had to be replayed in memory.
    pub log_replayed: bool,
}

#[derive(Debug)]
enum Layout {
    Raw(Raw),
    Vhd(Vhd),
    Vhdx(Box<Vhdx>),
}

impl Image {
    /// Opens the image file at `path`.
    ///
    /// # Errors
    /// [`OpenError`], which names the path.
    pub fn open(path: &Path, options: OpenOptions) -> Result<Self, OpenError> {
        let storage = FileStorage::open(path).map_err(|error| match error {
            FileStorageError::Access(source) => Refusal::Access(source),
            FileStorageError::NotAFile { found } => Refusal::NotAFile { found },
        });
        storage
            .and_then(|storage| Self::open_as(Box::new(storage), options, Format::of_ending(path)))
            .map_err(|refusal| refusal.about(Some(path.to_owned())))
    }

    /// Opens an image that lies in any storage.
    ///
    /// # Errors
    /// [`OpenError`] without a path.
    pub fn from_storage(storage: Box<dyn Storage>, options: OpenOptions) -> Result<Self, OpenError> {
        Self::open_as(storage, options, None).map_err(|refusal| refusal.about(None))
    }

    fn open_as(
        mut storage: Box<dyn Storage>,
        options: OpenOptions,
        ending: Option<Format>,
    ) -> Result<Self, Refusal> {
        let format = match options.format {
            Some(format) => format,
            None => format::probe(&*storage, ending)?,
        };
        let mut geometry = Geometry {
            size: ByteLength::ZERO,
            logical_block: LogicalBlockSize::B512,
            physical_block: 512,
            discard_granularity: None,
            access: Access::ReadOnly,
        };
        let (layout, bytes) = match format {
            Format::Raw => {
                let raw = Raw::open(storage.len().get())?;
                let bytes = raw.virtual_bytes();
                (Layout::Raw(raw), bytes)
            }
            Format::Vhd => {
                let vhd = Vhd::open(&*storage)?;
                let bytes = vhd.virtual_bytes();
                (Layout::Vhd(vhd), bytes)
            }
            Format::Vhdx => {
                let vhdx;
                (vhdx, storage) = Vhdx::open(storage)?;
                let metadata = vhdx.metadata();
                geometry.logical_block = metadata.logical_block;
                // The contract wants a physical block to be at least a logical one; a file may say otherwise.
                geometry.physical_block = metadata.physical_block.max(metadata.logical_block_u32());
                let bytes = metadata.virtual_bytes;
                (Layout::Vhdx(Box::new(vhdx)), bytes)
            }
        };
        geometry.size = ByteLength::new(bytes);
        Ok(Self { storage, layout, geometry })
    }

    /// The format.
    #[must_use]
    pub fn format(&self) -> Format {
        match self.layout {
            Layout::Raw(_) => Format::Raw,
            Layout::Vhd(_) => Format::Vhd,
            Layout::Vhdx(_) => Format::Vhdx,
        }
    }

    /// How large the disk is.
    #[must_use]
    pub fn virtual_size(&self) -> ByteLength {
        self.geometry.size
    }

    /// The disk's own identifier, which stays the same along its versions: VHDX's virtual disk identifier, VHD's
    /// unique identifier. In the byte order of the text form. `None` where the format has none, or it is all zeros.
    #[must_use]
    pub fn identity(&self) -> Option<[u8; 16]> {
        let guid = match &self.layout {
            Layout::Raw(_) => return None,
            Layout::Vhd(vhd) => vhd.footer().unique_id,
            Layout::Vhdx(vhdx) => vhdx.metadata().virtual_disk_id,
        };
        guid.non_nil().map(crate::Guid::to_be_bytes)
    }

    /// What is known of the image without reading it through.
    #[must_use]
    pub fn info(&self) -> Info {
        let (subtype, payload_block, creator, log_replayed) = match &self.layout {
            Layout::Raw(_) => (Subtype::Fixed, None, None, false),
            Layout::Vhd(vhd) => {
                let block = vhd.block_bytes();
                let subtype = if block.is_some() { Subtype::Dynamic } else { Subtype::Fixed };
                (subtype, block, readable(&String::from_utf8_lossy(&vhd.footer().creator)), false)
            }
            Layout::Vhdx(vhdx) => {
                let metadata = vhdx.metadata();
                let subtype = if metadata.leave_blocks_allocated { Subtype::Fixed } else { Subtype::Dynamic };
                let creator = readable(vhdx.creator());
                (subtype, Some(u64::from(metadata.block_bytes)), creator, vhdx.is_replayed())
            }
        };
        Info {
            format: self.format(),
            subtype,
            virtual_size: self.geometry.size,
            logical_block: self.geometry.logical_block,
            physical_block: self.geometry.physical_block,
            payload_block: payload_block.map(ByteLength::new),
            file_size: self.storage.len(),
            allocated: self.storage.allocated(),
            identity: self.identity(),
            creator,
            log_replayed,
        }
    }

    /// The extent with which `range` begins: where that run of the disk comes from. Ask again for the rest of the
    /// range, from the extent's end on; a map of the image is the extents from start to end.
    ///
    /// # Errors
    /// Those of a read of `range`. With [`Patience::Now`], [`BlockError::WouldBlock`] where the part of the image's
    /// table that tells it is not in memory. An empty range has no extent and is [`BlockError::OutOfRange`].
    pub fn extent(&self, range: ByteRange, patience: Patience) -> Result<Extent, BlockError> {
        let range = self.geometry.check(range.start(), range.length())?;
        if range.is_empty() {
            return Err(BlockError::OutOfRange { range, size: self.geometry.size });
        }
        self.resolve(range, patience).map_err(|error| error.on(range))
    }

    fn resolve(&self, range: ByteRange, patience: Patience) -> Result<Extent, ResolveError> {
        match &self.layout {
            Layout::Raw(raw) => Ok(raw.extent(range)),
            Layout::Vhd(vhd) => vhd.extent(&*self.storage, range, patience),
            Layout::Vhdx(vhdx) => vhdx.extent(&*self.storage, range, patience),
        }
    }

    /// Moves the bytes of `range`, which lies in the disk, to `buffer`, which is as long.
    fn fill(&self, range: ByteRange, buffer: &mut [u8], patience: Patience) -> Result<(), ResolveError> {
        let mut rest = buffer;
        let mut left = range;
        while !rest.is_empty() {
            let extent = self.resolve(left, patience)?;
            let count = extent.range.length().in_memory().unwrap_or(usize::MAX).min(rest.len());
            let (piece, tail) = rest.split_at_mut(count);
            match extent.source {
                Source::Zero => piece.fill(0),
                // The storage of an image with a replayed log answers with the log's bytes where it has any.
                Source::File { at, .. } | Source::Replayed { at, .. } => {
                    self.storage.read_at(at, piece, patience)?;
                }
            }
            rest = tail;
            let length = ByteLength::new(range.end().get().saturating_sub(extent.range.end().get()));
            left = ByteRange::new(extent.range.end(), length).unwrap_or(left);
        }
        Ok(())
    }
}

impl BlockDevice for Image {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn read(&self, at: ByteOffset, buffer: &mut [u8], patience: Patience) -> Result<(), BlockError> {
        let range = self.geometry.check(at, ByteLength::of(buffer))?;
        self.fill(range, buffer, patience).map_err(|error| error.on(range))
    }

    fn write(&self, _: ByteOffset, _: &[u8], _: Patience) -> Result<(), BlockError> {
        Err(BlockError::ReadOnly)
    }

    fn flush(&self, _: Patience) -> Result<(), BlockError> {
        Ok(())
    }

    fn discard(&self, _: ByteRange, _: Patience) -> Result<(), BlockError> {
        Err(BlockError::ReadOnly)
    }

    fn write_zeroes(&self, _: ByteRange, _: Patience) -> Result<(), BlockError> {
        Err(BlockError::ReadOnly)
    }
}

/// A name out of a file, fit to be shown: without what could move a terminal's cursor, and not endless.
fn readable(name: &str) -> Option<String> {
    const MAX_CHARS: usize = 128;
    let shown: String = name.chars().filter(|c| !c.is_control()).take(MAX_CHARS).collect();
    let shown = shown.trim();
    (!shown.is_empty()).then(|| shown.to_owned())
}
