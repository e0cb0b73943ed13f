//! Images in the making: what create, convert, merge and snapshot write, whatever the format.
//!
//! A new image is made in an empty file and is none until it is finished: until then a reader refuses it (VHDX: the
//! *incomplete file* item; VHD: no footer). Nobody reads it meanwhile, so nothing needs a log; blocks get their places
//! one after the other, whoever makes it moves the payload to those places as it likes (clone, copy in the kernel,
//! write), and the tables are written at the end.
use std::sync::Arc;
use std::time::SystemTime;

use block::{ByteLength, ByteOffset, LogicalBlockSize};

use crate::format::Format;
use crate::guid::Guid;
use crate::image::Subtype;
use crate::raw::NewRaw;
use crate::storage::{StorageError, WritableStorage};
use crate::vhd;
use crate::vhdx::NewVhdx;

/// Begins a new image in `storage`, which is empty. What is in the file before [`NewImage::finish`] is no image.
///
/// A VHD is recognised by its children by its identifier; so a differencing one whose `identity` is its parent's gets
/// a new one.
///
/// # Errors
/// [`NewImageError`]: the format cannot be what `spec` says, or the file cannot be written.
pub fn create(
    storage: Box<dyn WritableStorage>,
    spec: &NewImageSpec,
) -> Result<Box<dyn NewImage>, NewImageError> {
    match spec.format {
        Format::Raw => Ok(Box::new(NewRaw::create(storage, spec)?)),
        Format::Vhd => vhd::create(storage, spec, SystemTime::now()),
        Format::Vhdx => Ok(Box::new(NewVhdx::begin(storage, spec)?)),
        Format::Qcow2 | Format::Vmdk => Err(NewImageError::ReadOnlyFormat { format: spec.format }),
    }
}

/// What a new image is to be.
#[derive(Clone, Debug)]
pub struct NewImageSpec {
    /// The format. Not every format can be written.
    pub format: Format,
    /// How it keeps its blocks.
    pub subtype: Subtype,
    /// How large the disk is: a whole number of logical blocks.
    pub virtual_size: ByteLength,
    /// The unit in which the disk is addressed. Only VHDX knows others than 512.
    pub logical_block: LogicalBlockSize,
    /// The unit in which the disk says that it is stored, in bytes: 512 or 4096. Only VHDX keeps it.
    pub physical_block: u32,
    /// How much of the disk one payload block holds; `None` is the format's default.
    pub payload_block: Option<ByteLength>,
    /// The disk's own identifier, in the byte order of the text form; `None` makes a new one.
    pub identity: Option<[u8; 16]>,
    /// What children of the new image shall recognise it by; `None` makes a new one. Given only by who puts a file in
    /// another's place that holds the same disk, byte for byte: VHDX's `DataWriteGuid`. (VHD's is the identity.)
    pub linkage: Option<Guid>,
    /// Of a differencing image: its parent.
    pub parent: Option<ParentLink>,
    /// What the disk's metadata holds besides, and nobody here knows: a version or a copy of a disk carries on what
    /// its source has. Only VHDX has such items.
    pub carried: Vec<MetadataItem>,
}

/// An item of VHDX metadata that this crate does not know, and that belongs to the virtual disk rather than to one
/// file of it ([MS-VHDX] §2.6.1.2, `IsVirtualDisk`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataItem {
    /// What it is.
    pub id: Guid,
    /// Whether it is an item of the user rather than of the system: the same identifier can stand for both.
    pub is_user: bool,
    /// What it holds, at most 1 MiB.
    pub bytes: Vec<u8>,
}

/// How a differencing image names its parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParentLink {
    /// What the parent must be recognised by: of VHDX its `DataWriteGuid`, of VHD its unique identifier.
    pub linkage: Guid,
    /// Where the parent lies, seen from the child's folder, with `/` between names: `base.vhdx`, `../base.vhdx`.
    pub relative_path: String,
    /// Where it lies on the machine that makes the child, as an absolute path.
    pub absolute_path: Option<String>,
}

/// Which sectors of a payload block a differencing image holds: one bit for each logical block, the first in the
/// least significant bit of the first byte (VHDX's order; VHD writers turn it round).
pub type SectorBitmap = [u8];

/// A new image in the making. Payload blocks are numbered from 0. Each is placed or zeroed at most once (of a fixed
/// image, whose blocks all have their places, as often as one likes); one that is neither placed nor zeroed stays absent:
/// zeros without a parent, the parent's contents with one.
pub trait NewImage: std::fmt::Debug + Send {
    /// How much of the disk one payload block holds. Of a raw image, and a fixed VHD: any sensible unit in which to
    /// work.
    fn payload_block(&self) -> ByteLength;

    /// The file, to move payload into.
    fn storage(&self) -> &dyn WritableStorage;

    /// Gives `block` a place and says where its first byte goes: all of its sectors count as held here. What is not
    /// written there reads as zeros. (The last block is given as much room as the disk has bytes in it, at least.)
    ///
    /// # Errors
    /// [`StorageError`], and a block behind the end of the disk.
    fn place(&mut self, block: u64) -> Result<ByteOffset, NewImageError>;

    /// As [`place`](Self::place), in a differencing image, of a block of which only the sectors in `held` count.
    ///
    /// # Errors
    /// As `place`; [`NewImageError::NotDifferencing`].
    fn place_partly(&mut self, block: u64, held: &SectorBitmap) -> Result<ByteOffset, NewImageError>;

    /// As [`place`](Self::place), or [`place_partly`](Self::place_partly) where sectors are given, and leaves to the
    /// caller what must stand right before the block's data in the file, so that both are written as one.
    ///
    /// # Errors
    /// As those.
    fn place_with_lead(
        &mut self,
        block: u64,
        held: Option<&SectorBitmap>,
    ) -> Result<NewPlace, NewImageError> {
        let at = match held {
            None => self.place(block)?,
            Some(held) => self.place_partly(block, held)?,
        };
        Ok(NewPlace { at, lead: Arc::default() })
    }

    /// Makes `block` zeros, whatever the parent holds, without room in the file where the format can.
    ///
    /// # Errors
    /// As `place`.
    fn zero(&mut self, block: u64) -> Result<(), NewImageError>;

    /// Writes all tables, makes everything lasting, and last takes away the mark that the image is incomplete.
    ///
    /// # Errors
    /// [`NewImageError`]; the file is then incomplete, and marked so. Only where nothing but the very last flush
    /// failed can it look whole; whoever made it removes it either way.
    fn finish(self: Box<Self>) -> Result<(), NewImageError>;
}

/// Where a block of a new image has its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewPlace {
    /// Where its first byte goes.
    pub at: ByteOffset,
    /// What the caller writes right before that byte: of a dynamic VHD, the block's sector bitmap and the zeros
    /// between it and what lies before.
    pub lead: Arc<[u8]>,
}

/// A new image could not be made.
#[derive(Debug, thiserror::Error)]
pub enum NewImageError {
    /// The format is one that others write.
    #[error("{} images are read, not written; make a VHDX instead", format.title())]
    ReadOnlyFormat {
        /// The format.
        format: Format,
    },
    /// The format cannot express this.
    #[error("a {} image cannot have {what} ({rule})", format.title())]
    Unsupported {
        /// The format.
        format: Format,
        /// What was asked for, with its value and the limit.
        what: String,
        /// Where the limit is written.
        rule: &'static str,
    },
    /// A block that the disk does not have.
    #[error("the image has {blocks} blocks, there is no block {block}")]
    NoSuchBlock {
        /// The block.
        block: u64,
        /// How many there are.
        blocks: u64,
    },
    /// The block has a place already: giving it another, or none, would lose that one.
    #[error("block {block} has its place in the image already")]
    PlacedAlready {
        /// The block.
        block: u64,
    },
    /// A sector bitmap that is not as long as the payload block has sectors.
    #[error("a payload block's sector bitmap has {expected} bytes here, not {found}")]
    WrongBitmap {
        /// How long it is.
        found: usize,
        /// How long it must be.
        expected: usize,
    },
    /// A file that holds something.
    #[error(
        "a new image is made in an empty file, and this one has {len} bytes: remove it, or take another name"
    )]
    NotEmpty {
        /// How long it is.
        len: ByteLength,
    },
    /// The operating system gives no random numbers.
    #[error("there are no random numbers to make identifiers of ({0})")]
    Random(getrandom::Error),
    /// A partly held block, in an image without a parent.
    #[error("only a differencing image can hold part of a block")]
    NotDifferencing,
    /// The file cannot be written.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl From<getrandom::Error> for NewImageError {
    fn from(error: getrandom::Error) -> Self {
        Self::Random(error)
    }
}
