//! One file of an image: its bytes, and what its format says of where the disk lies in them.
//!
//! A layer resolves what *it* holds; where it says that the parent tells, the chain asks the layer below. Nothing
//! here knows of other layers.
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use block::{ByteLength, ByteOffset, ByteRange, LogicalBlockSize, Patience};

use crate::beside;
use crate::bitmap::Scratch;
use crate::chain::ParentReference;
use crate::error::{Damage, OpenError, Refusal, ResolveError};
use crate::extent::{LayerExtent, LayerIndex};
use crate::format::{self, Format};
use crate::guid::Guid;
use crate::new_image::MetadataItem;
use crate::qcow2::{Backing, Qcow2};
use crate::raw::Raw;
use crate::storage::{FileStorage, FileStorageError, Storage};
use crate::vhd::Vhd;
use crate::vhdx::Vhdx;
use crate::vmdk::Vmdk;

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

/// What is known of an image file without reading it through.
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
    /// The disk's own identifier. See [`Image::identity`](crate::Image::identity).
    pub identity: Option<[u8; 16]>,
    /// The program that made the file, as the file says.
    pub creator: Option<String>,
    /// Whether the file was not closed cleanly, so that its log had to be replayed in memory.
    pub log_replayed: bool,
}

/// One file of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerInfo {
    /// Which of the chain.
    pub layer: LayerIndex,
    /// The file, where it was opened by its path.
    pub path: Option<PathBuf>,
    /// What is known of it by itself.
    pub info: Info,
    /// What children recognise it by: VHDX's `DataWriteGuid`, VHD's unique identifier; raw has nothing.
    pub linkage: Option<Guid>,
    /// Of a differencing image: what it says of its parent. Where the parent was found, the layer below says.
    pub parent: Option<ParentReference>,
}

impl LayerInfo {
    /// What is known of the file at `path` by itself: its parents are neither looked for nor needed. Without a `format`,
    /// contents and ending decide.
    ///
    /// # Errors
    /// [`OpenError`], which names the path.
    pub fn of_file(path: &Path, format: Option<Format>) -> Result<Self, OpenError> {
        let storage = FileStorage::open(path).map_err(|error| match error {
            FileStorageError::Access(source) => Refusal::Access(source),
            FileStorageError::NotAFile { found } => Refusal::NotAFile { found },
        });
        storage
            .and_then(|storage| Layer::open(Some(path), Box::new(storage), format))
            .map(|layer| layer.about(LayerIndex::BASE))
            .map_err(|refusal| refusal.about(Some(path.to_owned())))
    }
}

/// Device and inode: what two openings of one file have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId(u64, u64);

impl FileId {
    pub(crate) fn of(storage: &dyn Storage) -> Option<Self> {
        let metadata = storage.file()?.metadata().ok()?;
        Some(Self(metadata.dev(), metadata.ino()))
    }
}

/// An open file of an image.
#[derive(Debug)]
pub(crate) struct Layer {
    path: Option<PathBuf>,
    file_id: Option<FileId>,
    storage: Box<dyn Storage>,
    layout: Layout,
    size: ByteLength,
    logical_block: LogicalBlockSize,
    physical_block: u32,
}

#[derive(Debug)]
enum Layout {
    Raw(Raw),
    Vhd(Box<Vhd>),
    Vhdx(Box<Vhdx>),
    Qcow2(Box<Qcow2>),
    Vmdk(Vmdk),
}

impl Layer {
    /// Opens the file in `storage`. Without a `format`, its contents and the ending of `path` decide which it is.
    pub(crate) fn open(
        path: Option<&Path>,
        mut storage: Box<dyn Storage>,
        format: Option<Format>,
    ) -> Result<Self, Refusal> {
        let file_id = FileId::of(&*storage);
        let format = match format {
            Some(format) => format,
            None => format::probe(&*storage, path.and_then(Format::of_ending))?,
        };
        let (mut logical_block, mut physical_block) = (LogicalBlockSize::B512, 512);
        let (layout, bytes) = match format {
            Format::Raw => {
                let raw = Raw::open(storage.len().get())?;
                let bytes = raw.virtual_bytes();
                (Layout::Raw(raw), bytes)
            }
            Format::Vhd => {
                let vhd = Vhd::open(&*storage)?;
                let bytes = vhd.virtual_bytes();
                (Layout::Vhd(Box::new(vhd)), bytes)
            }
            Format::Vhdx => {
                let vhdx;
                (vhdx, storage) = Vhdx::open(storage)?;
                let metadata = vhdx.metadata();
                logical_block = metadata.logical_block;
                // The contract wants a physical block to be at least a logical one; a file may say otherwise.
                physical_block = metadata.physical_block.max(metadata.logical_block_u32());
                let bytes = metadata.virtual_bytes;
                (Layout::Vhdx(Box::new(vhdx)), bytes)
            }
            Format::Qcow2 => {
                let qcow2 = Qcow2::open(&*storage)?;
                let bytes = qcow2.virtual_bytes();
                (Layout::Qcow2(Box::new(qcow2)), bytes)
            }
            Format::Vmdk => {
                let vmdk;
                (vmdk, storage) = Vmdk::open(storage, &|name| beside::open(path, name))?;
                let bytes = vmdk.virtual_bytes();
                (Layout::Vmdk(vmdk), bytes)
            }
        };
        let size = ByteLength::new(bytes);
        Ok(Self {
            path: path.map(Path::to_owned),
            file_id,
            storage,
            layout,
            size,
            logical_block,
            physical_block,
        })
    }

    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    pub(crate) fn file_id(&self) -> Option<FileId> {
        self.file_id
    }

    /// The file, as the disk's bytes must be read from it: with a replayed log laid over it, where there was one.
    pub(crate) fn storage(&self) -> &dyn Storage {
        &*self.storage
    }

    pub(crate) fn format(&self) -> Format {
        match self.layout {
            Layout::Raw(_) => Format::Raw,
            Layout::Vhd(_) => Format::Vhd,
            Layout::Vhdx(_) => Format::Vhdx,
            Layout::Qcow2(_) => Format::Qcow2,
            Layout::Vmdk(_) => Format::Vmdk,
        }
    }

    pub(crate) fn size(&self) -> ByteLength {
        self.size
    }

    pub(crate) fn logical_block(&self) -> LogicalBlockSize {
        self.logical_block
    }

    pub(crate) fn physical_block(&self) -> u32 {
        self.physical_block
    }

    pub(crate) fn identity(&self) -> Option<[u8; 16]> {
        let guid = match &self.layout {
            Layout::Raw(_) | Layout::Qcow2(_) | Layout::Vmdk(_) => return None,
            Layout::Vhd(vhd) => vhd.footer().unique_id,
            Layout::Vhdx(vhdx) => vhdx.metadata().virtual_disk_id,
        };
        guid.non_nil().map(Guid::to_be_bytes)
    }

    /// See [`Image::carried`](crate::Image::carried).
    pub(crate) fn carried(&self) -> Result<Vec<MetadataItem>, Refusal> {
        match &self.layout {
            Layout::Raw(_) | Layout::Vhd(_) | Layout::Qcow2(_) | Layout::Vmdk(_) => Ok(Vec::new()),
            Layout::Vhdx(vhdx) => vhdx.metadata().carried(&*self.storage),
        }
    }

    /// What children recognise the file by: VHDX's `DataWriteGuid`, VHD's unique identifier.
    pub(crate) fn linkage(&self) -> Option<Guid> {
        match &self.layout {
            Layout::Raw(_) | Layout::Qcow2(_) | Layout::Vmdk(_) => None,
            Layout::Vhd(vhd) => Some(vhd.footer().unique_id),
            Layout::Vhdx(vhdx) => Some(vhdx.data_write_guid()),
        }
    }

    /// What a differencing image says of its parent.
    pub(crate) fn parent(&self) -> Option<ParentReference> {
        match &self.layout {
            Layout::Raw(_) | Layout::Qcow2(_) | Layout::Vmdk(_) => None,
            Layout::Vhd(vhd) => vhd.parent().map(ParentReference::of_vhd),
            Layout::Vhdx(vhdx) => vhdx.metadata().parent.as_ref().map(ParentReference::of_vhdx),
        }
    }

    /// The backing file that a qcow2 image names.
    pub(crate) fn backing(&self) -> Option<&Backing> {
        match &self.layout {
            Layout::Qcow2(qcow2) => qcow2.backing(),
            Layout::Raw(_) | Layout::Vhd(_) | Layout::Vhdx(_) | Layout::Vmdk(_) => None,
        }
    }

    pub(crate) fn info(&self) -> Info {
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
            Layout::Qcow2(qcow2) => (Subtype::Dynamic, Some(qcow2.cluster_bytes()), None, false),
            Layout::Vmdk(vmdk) => {
                let grain = vmdk.grain_bytes();
                let subtype = if grain.is_some() { Subtype::Dynamic } else { Subtype::Fixed };
                (subtype, grain, None, false)
            }
        };
        let subtype =
            if self.parent().is_some() || self.backing().is_some() { Subtype::Differencing } else { subtype };
        Info {
            format: self.format(),
            subtype,
            virtual_size: self.size,
            logical_block: self.logical_block,
            physical_block: self.physical_block,
            payload_block: payload_block.map(ByteLength::new),
            file_size: self.storage.len(),
            allocated: self.storage.allocated(),
            identity: self.identity(),
            creator,
            log_replayed,
        }
    }

    pub(crate) fn about(&self, layer: LayerIndex) -> LayerInfo {
        LayerInfo {
            layer,
            path: self.path.clone(),
            info: self.info(),
            linkage: self.linkage(),
            parent: self.parent(),
        }
    }

    /// Keeps of the format's table no more in memory than one of `layers` files may that share the room.
    pub(crate) fn share_tables(&mut self, layers: usize) {
        match &mut self.layout {
            // Raw has no table; those of the others are small, or pages of them bounded by themselves.
            Layout::Raw(_) | Layout::Qcow2(_) | Layout::Vmdk(_) => {}
            Layout::Vhd(vhd) => vhd.share_table(layers),
            Layout::Vhdx(vhdx) => vhdx.share_table(layers),
        }
    }

    /// The extent with which `range` begins, which lies in this layer's disk and is not empty.
    pub(crate) fn extent(
        &self,
        range: ByteRange,
        patience: Patience,
        scratch: &mut Scratch,
    ) -> Result<LayerExtent, ResolveError> {
        match &self.layout {
            Layout::Raw(raw) => Ok(raw.extent(range)),
            Layout::Vhd(vhd) => vhd.extent(&*self.storage, range, patience, scratch),
            Layout::Vhdx(vhdx) => vhdx.extent(&*self.storage, range, patience, scratch),
            Layout::Qcow2(qcow2) => qcow2.extent(&*self.storage, range, patience),
            Layout::Vmdk(vmdk) => vmdk.extent(&*self.storage, range, patience),
        }
    }

    /// Fills `buffer` with the bytes of the disk from `at` on, which this layer called encoded.
    pub(crate) fn decode(
        &self,
        at: ByteOffset,
        buffer: &mut [u8],
        patience: Patience,
    ) -> Result<(), ResolveError> {
        match &self.layout {
            Layout::Qcow2(qcow2) => qcow2.decode(&*self.storage, at.get(), buffer, patience),
            Layout::Vmdk(vmdk) => vmdk.decode(&*self.storage, at.get(), buffer, patience),
            Layout::Raw(_) | Layout::Vhd(_) | Layout::Vhdx(_) => {
                let problem =
                    format!("the run at {at} of the disk is encoded, in a format that knows no such runs");
                Err(Damage::new("extent", 0, "bounds", problem).into())
            }
        }
    }
}

/// A name out of a file, fit to be shown: without what could move a terminal's cursor, and not endless.
pub(crate) fn readable(name: &str) -> Option<String> {
    const MAX_CHARS: usize = 128;
    let shown: String = name.chars().filter(|c| !c.is_control()).take(MAX_CHARS).collect();
    let shown = shown.trim();
    (!shown.is_empty()).then(|| shown.to_owned())
}
