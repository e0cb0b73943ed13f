//! Images opened for writing.
//!
//! A [`MutableImage`] is a block device on one file: the disk's only writer, with whatever the file's parent chain
//! holds below it as a device that does not change. Each format brings a [`Writer`] that keeps the file right at
//! every moment: what a flush has acknowledged survives a crash, what was written after it is there or not, block by
//! block. All that the formats share is here: the checks of the contract, patience (what changes a file always
//! waits), and the rule that after a failed flush nothing more is written ([`Stopping`]).
//!
//! # Who may open
//! A published image never changes, and an image that others have as their parent least of all: they hold on to its
//! contents by an identifier that changes with the first write. Only the store knows which images those are, so
//! [`MutableImage::open`] asks it, by way of [`Children`], before it touches the file.
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use block::{Allocation, BlockDevice, BlockError, ByteLength, ByteOffset, ByteRange, Geometry, Patience};

use crate::error::{OpenError, Refusal};
use crate::format::{self, Format};
use crate::guid::Guid;
use crate::image::Info;
use crate::new_image::ParentLink;
use crate::storage::{EditLock, FileStorage, FileStorageError, Storage, WritableStorage};
use crate::vhd::{self, Footer};
use crate::vhdx::{self, VhdxWriter};

mod below;
mod edit;
mod raw;
mod stopping;

pub(crate) use below::Below;
pub use edit::EditError;
use raw::RawWriter;
use stopping::Stopping;

/// An image, opened for reading and writing.
///
/// Dropping it without [`close`](Self::close) leaves the file as a crash would: what was flushed is safe, and the next
/// opening may have to replay the file's log.
#[derive(Debug)]
pub struct MutableImage {
    format: Format,
    geometry: Geometry,
    writer: Box<dyn Writer>,
    /// Of a file: nobody else changes it meanwhile.
    _lock: Option<EditLock>,
}

/// Knows which images have which as their parent: a store of images.
pub trait Children {
    /// An image whose parent is the image at `path`, if there is one. `linkage` is what children recognise it by: of
    /// VHDX its `DataWriteGuid`, of VHD its unique identifier; a raw image has none.
    ///
    /// # Errors
    /// Whatever keeps the store from knowing; the image is then not opened.
    fn child_of(&self, path: &Path, linkage: Option<Guid>) -> io::Result<Option<PathBuf>>;
}

/// For who knows that no image has this one as its parent: one that was just made, or one that lies in no store.
#[derive(Clone, Copy, Debug, Default)]
pub struct Childless;

impl Children for Childless {
    fn child_of(&self, _: &Path, _: Option<Guid>) -> io::Result<Option<PathBuf>> {
        Ok(None)
    }
}

/// How a range becomes zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Zeroing {
    /// It must read as zeros.
    Zeros,
    /// Its contents are not needed: each logical block reads as zeros or as before, and keeps doing so.
    Discard,
}

/// A format's side of an image opened for writing. Ranges have been checked against the geometry and are not empty;
/// buffers are as long as their ranges. What changes the file waits as long as it takes.
pub(crate) trait Writer: std::fmt::Debug + Send + Sync {
    /// What the disk is like. Does not change.
    fn geometry(&self) -> Geometry;

    /// What is known of the image now.
    fn info(&self) -> Info;

    /// As [`BlockDevice::read`].
    fn read(&self, range: ByteRange, buffer: &mut [u8], patience: Patience) -> Result<(), BlockError>;

    /// As [`BlockDevice::write`].
    fn write(&self, range: ByteRange, data: &[u8]) -> Result<(), BlockError>;

    /// As [`BlockDevice::write_zeroes`] or [`BlockDevice::discard`].
    fn zero(&self, range: ByteRange, zeroing: Zeroing) -> Result<(), BlockError>;

    /// As [`BlockDevice::flush`].
    fn flush(&self) -> Result<(), BlockError>;

    /// As [`BlockDevice::allocation`].
    fn allocation(
        &self,
        range: ByteRange,
        patience: Patience,
    ) -> Result<(Allocation, ByteLength), BlockError>;

    /// As [`MutableImage::resize`], which has checked that the size is another one in whole blocks, and that nothing is
    /// lost. Nothing but [`close`](Self::close) is asked of the writer afterwards.
    fn resize(&self, _size: ByteLength) -> Result<(), EditError> {
        let what = "is not resized in place; convert it into a new image of another size";
        Err(EditError::Unsupported { format: self.info().format, what })
    }

    /// As [`MutableImage::relink`]. Nothing but [`close`](Self::close) is asked of the writer afterwards.
    fn relink(&self, _link: &ParentLink) -> Result<(), EditError> {
        let what = "has no link to a parent that could be changed in place";
        Err(EditError::Unsupported { format: self.info().format, what })
    }

    /// Flushes, and leaves the file as one that nobody has to repair. Nothing is asked of the writer afterwards.
    fn close(&self) -> Result<(), BlockError>;
}

impl MutableImage {
    /// Opens the image file at `path` for writing. Without a `format`, contents and ending decide which it is. `parent`
    /// is what shows through where a differencing image holds nothing: its parent's contents, opened and verified by
    /// who knows the chain ([`Image::open_parent_of`](crate::Image::open_parent_of)). Where the image is larger than
    /// that, zeros show through. The file is [locked](EditLock) until the image is closed.
    ///
    /// # Errors
    /// [`OpenError`], which names the path: the image is refused, is a differencing one and has been given no parent
    /// (or the other way round), `children` knows one, or another process has it open for writing.
    pub fn open(
        path: &Path,
        format: Option<Format>,
        parent: Option<Arc<dyn BlockDevice>>,
        children: &dyn Children,
    ) -> Result<Self, OpenError> {
        let open = || {
            let lock = EditLock::try_take(path)?;
            let storage = FileStorage::open_writable(path).map_err(|error| match error {
                FileStorageError::Access(source) => Refusal::Access(source),
                FileStorageError::NotAFile { found } => Refusal::NotAFile { found },
            })?;
            let format = format_of(&storage, format, Format::of_ending(path))?;
            let linkage = linkage_of(&storage, format)?;
            if let Some(child) = children.child_of(path, linkage).map_err(Refusal::Access)? {
                return Err(Refusal::HasChild { child });
            }
            Ok(Self { _lock: Some(lock), ..Self::open_as(Box::new(storage), format, parent)? })
        };
        open().map_err(|refusal: Refusal| refusal.about(Some(path.to_owned())))
    }

    /// Opens an image that lies in any storage for writing. Nobody is asked for its children.
    ///
    /// # Errors
    /// As of [`open`](Self::open), without a path.
    pub fn from_storage(
        storage: Box<dyn WritableStorage>,
        format: Option<Format>,
        parent: Option<Arc<dyn BlockDevice>>,
    ) -> Result<Self, OpenError> {
        let format = format_of(&*storage, format, None);
        format
            .and_then(|format| Self::open_as(storage, format, parent))
            .map_err(|refusal| refusal.about(None))
    }

    fn open_as(
        storage: Box<dyn WritableStorage>,
        format: Format,
        parent: Option<Arc<dyn BlockDevice>>,
    ) -> Result<Self, Refusal> {
        let storage: Box<dyn WritableStorage> = Box::new(Stopping::new(storage));
        let below = Below::new(parent);
        if below.is_some() && format == Format::Raw {
            return Err(Refusal::unsupported("raw", "a raw image with a parent"));
        }
        let writer: Box<dyn Writer> = match format {
            Format::Raw => Box::new(RawWriter::open(storage)?),
            Format::Vhd => vhd::open_writer(storage, below)?,
            Format::Vhdx => Box::new(VhdxWriter::open(storage, below)?),
            Format::Qcow2 | Format::Vmdk => return Err(Refusal::OnlyRead { format }),
        };
        let geometry = writer.geometry();
        Ok(Self { format, geometry, writer, _lock: None })
    }

    /// The format.
    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }

    /// What is known of the image now. The parent's part in it is not counted.
    #[must_use]
    pub fn info(&self) -> Info {
        self.writer.info()
    }

    /// Flushes, and leaves the file as one that nobody has to repair.
    ///
    /// # Errors
    /// Those of a flush. The file is then as after a crash: the next opening repairs it.
    pub fn close(self) -> Result<(), BlockError> {
        self.writer.close()
    }
}

impl BlockDevice for MutableImage {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn read(&self, at: ByteOffset, buffer: &mut [u8], patience: Patience) -> Result<(), BlockError> {
        let range = self.geometry.check(at, ByteLength::of(buffer))?;
        if range.is_empty() { Ok(()) } else { self.writer.read(range, buffer, patience) }
    }

    fn write(&self, at: ByteOffset, data: &[u8], patience: Patience) -> Result<(), BlockError> {
        let range = self.geometry.check_writable(at, ByteLength::of(data))?;
        if range.is_empty() {
            return Ok(());
        }
        waits(patience)?;
        self.writer.write(range, data)
    }

    fn flush(&self, patience: Patience) -> Result<(), BlockError> {
        waits(patience)?;
        self.writer.flush()
    }

    fn discard(&self, range: ByteRange, patience: Patience) -> Result<(), BlockError> {
        self.zero(range, Zeroing::Discard, patience)
    }

    fn write_zeroes(&self, range: ByteRange, patience: Patience) -> Result<(), BlockError> {
        self.zero(range, Zeroing::Zeros, patience)
    }

    fn allocation(
        &self,
        range: ByteRange,
        patience: Patience,
    ) -> Result<(Allocation, ByteLength), BlockError> {
        let range = self.geometry.check(range.start(), range.length())?;
        if range.is_empty() {
            return Err(BlockError::OutOfRange { range, size: self.geometry.size });
        }
        self.writer.allocation(range, patience)
    }
}

impl MutableImage {
    fn zero(&self, range: ByteRange, zeroing: Zeroing, patience: Patience) -> Result<(), BlockError> {
        let range = self.geometry.check_writable(range.start(), range.length())?;
        if range.is_empty() {
            return Ok(());
        }
        waits(patience)?;
        self.writer.zero(range, zeroing)
    }
}

/// What changes a file waits for it.
fn waits(patience: Patience) -> Result<(), BlockError> {
    match patience {
        Patience::Now => Err(BlockError::WouldBlock),
        Patience::Blocking => Ok(()),
    }
}

fn format_of(
    storage: &dyn Storage,
    format: Option<Format>,
    ending: Option<Format>,
) -> Result<Format, Refusal> {
    match format {
        Some(format) => Ok(format),
        None => format::probe(storage, ending),
    }
}

/// What children recognise the image by.
pub(crate) fn linkage_of(storage: &dyn Storage, format: Format) -> Result<Option<Guid>, Refusal> {
    match format {
        Format::Raw => Ok(None),
        Format::Qcow2 | Format::Vmdk => Err(Refusal::OnlyRead { format }),
        Format::Vhd => Footer::read(storage).map(|(footer, _)| Some(footer.unique_id)),
        Format::Vhdx => vhdx::linkage(storage).map(Some),
    }
}
