//! An open image: one reader for all formats, and for chains of files as for one.
use std::path::Path;
use std::sync::Arc;

use block::{
    Access, Allocation, BlockDevice, BlockError, ByteLength, ByteOffset, ByteRange, FileSpan, Geometry,
    Patience,
};

use crate::bitmap::Scratch;
use crate::chain::{self, Chain, Parents};
use crate::error::{OpenError, Refusal, ResolveError};
use crate::extent::{Extent, LayerIndex, Source, tail_of};
use crate::format::Format;
use crate::layer::Layer;
pub use crate::layer::{Info, LayerInfo, Subtype};
use crate::new_image::MetadataItem;
use crate::storage::{FileStorage, FileStorageError, Storage};

/// How many extents one answer about allocation may put together.
const MAX_ALLOCATION_EXTENTS: usize = 64;

/// How to open an image.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// The format, where it is known. Without it, contents and ending decide.
    pub format: Option<Format>,
    /// Where the parents of a differencing image may lie.
    pub parents: Parents,
    /// Whether a qcow2 image may have a backing file. It is looked for as parents are; but nothing in the image says
    /// *which* contents belong under it, so a file that was changed since is not noticed. Refused unless the caller
    /// says that it is wanted.
    pub backing_files: bool,
}

/// An image, opened for reading: a block device that takes no writes.
///
/// Of a differencing image, the whole chain: what one file does not hold comes from the one below it.
#[derive(Debug)]
pub struct Image {
    chain: Chain,
    geometry: Geometry,
}

impl Image {
    /// Opens the image file at `path`, of a differencing image with all its parents.
    ///
    /// # Errors
    /// [`OpenError`], which names the path.
    pub fn open(path: &Path, options: OpenOptions) -> Result<Self, OpenError> {
        let storage = FileStorage::open(path).map_err(|error| match error {
            FileStorageError::Access(source) => Refusal::Access(source),
            FileStorageError::NotAFile { found } => Refusal::NotAFile { found },
        });
        storage
            .and_then(|storage| Self::open_as(Some(path), Box::new(storage), options))
            .map_err(|refusal| refusal.about(Some(path.to_owned())))
    }

    /// Opens an image that lies in any storage.
    ///
    /// # Errors
    /// [`OpenError`] without a path.
    pub fn from_storage(storage: Box<dyn Storage>, options: OpenOptions) -> Result<Self, OpenError> {
        Self::open_as(None, storage, options).map_err(|refusal| refusal.about(None))
    }

    /// Opens what shows through the differencing image at `path`: the chain of its parent. `None` where the image has
    /// no parent. What [`MutableImage::open`](crate::MutableImage::open) wants below a leaf.
    ///
    /// # Errors
    /// [`OpenError`], which names `path`.
    pub fn open_parent_of(path: &Path, options: OpenOptions) -> Result<Option<Self>, OpenError> {
        let image = Self::open(path, options)?;
        Ok(image.chain.without_leaf().map(|chain| {
            let geometry = geometry_of(chain.leaf());
            Self { chain, geometry }
        }))
    }

    fn open_as(
        path: Option<&Path>,
        storage: Box<dyn Storage>,
        options: OpenOptions,
    ) -> Result<Self, Refusal> {
        let leaf = Layer::open(path, storage, options.format)?;
        let geometry = geometry_of(&leaf);
        Ok(Self { chain: chain::open(leaf, options.parents, options.backing_files)?, geometry })
    }

    /// The format, which all files of a chain share.
    #[must_use]
    pub fn format(&self) -> Format {
        self.chain.leaf().format()
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
        self.chain.leaf().identity()
    }

    /// What the disk's metadata holds besides, and nobody here knows: who makes a version or a copy of the disk hands it
    /// on ([MS-VHDX] §2.6.1.2). Of a chain, the leaf's. Other formats than VHDX have no such items.
    ///
    /// # Errors
    /// [`OpenError`]: the items cannot be read, or are more than a new image can hold.
    pub fn carried(&self) -> Result<Vec<MetadataItem>, OpenError> {
        let leaf = self.chain.leaf();
        leaf.carried().map_err(|refusal| refusal.about(leaf.path().map(Path::to_owned)))
    }

    /// What is known of the image without reading it through; of a chain, of its leaf.
    #[must_use]
    pub fn info(&self) -> Info {
        self.chain.leaf().info()
    }

    /// The files that make up the image, the base first. [`LayerIndex`] counts them in this order.
    #[must_use]
    pub fn layers(&self) -> Vec<LayerInfo> {
        let about = |(index, layer): (_, &Layer)| layer.about(index);
        self.chain.layers().map(about).collect()
    }

    /// The storage of a file of the image, which [`Source::File`] and [`Source::Replayed`] count their places in. It
    /// answers with the bytes of a replayed log, where there was one.
    #[must_use]
    pub fn layer_storage(&self, layer: LayerIndex) -> Option<&dyn Storage> {
        self.chain.layer(layer).map(Layer::storage)
    }

    /// The extent with which `range` begins: where that run of the disk comes from. Ask again for the rest of the
    /// range, from the extent's end on; a map of the image is the extents from start to end.
    ///
    /// # Errors
    /// Those of a read of `range`. With [`Patience::Now`], [`BlockError::WouldBlock`] where the part of the image's
    /// table that tells it is not in memory. An empty range has no extent and is [`BlockError::OutOfRange`].
    pub fn extent(&self, range: ByteRange, patience: Patience) -> Result<Extent, BlockError> {
        let range = self.check(range)?;
        self.chain.extent(range, patience, &mut Scratch::default()).map_err(|error| error.on(range))
    }

    /// As [`extent`](Self::extent), of what the files above `floor` say alone: what they hold, zeros that hide what is
    /// below among it. `None` is a run that they leave to `floor` and the files below it. What a merge of versions
    /// asks, which keeps the parent.
    ///
    /// # Errors
    /// As `extent`.
    pub fn extent_above(
        &self,
        floor: LayerIndex,
        range: ByteRange,
        patience: Patience,
    ) -> Result<(ByteRange, Option<Source>), BlockError> {
        let range = self.check(range)?;
        self.chain.walk(range, Some(floor), patience).map_err(|error| error.on(range))
    }

    /// The range as one that lies in the disk and is not empty.
    fn check(&self, range: ByteRange) -> Result<ByteRange, BlockError> {
        let range = self.geometry.check(range.start(), range.length())?;
        if range.is_empty() {
            return Err(BlockError::OutOfRange { range, size: self.geometry.size });
        }
        Ok(range)
    }

    /// Moves the bytes of `range`, which lies in the disk, to `buffer`, which is as long.
    fn fill(&self, range: ByteRange, buffer: &mut [u8], patience: Patience) -> Result<(), ResolveError> {
        let mut scratch = Scratch::default();
        let mut rest = buffer;
        let mut left = range;
        while !rest.is_empty() {
            let extent = self.chain.extent(left, patience, &mut scratch)?;
            let count = extent.range.length().in_memory().unwrap_or(usize::MAX).min(rest.len());
            let (piece, tail) = rest.split_at_mut(count);
            self.chain.read(extent, piece, patience)?;
            rest = tail;
            left = tail_of(left, extent.range.end());
        }
        Ok(())
    }

    /// How the extent at the start of `range` is stored. It may end inside a logical block.
    fn stored_as(&self, range: ByteRange, patience: Patience) -> Result<(Allocation, ByteRange), BlockError> {
        let extent = self.chain.extent(range, patience, &mut Scratch::default());
        let extent = extent.map_err(|error| error.on(range))?;
        let allocation = match extent.source {
            Source::Zero => Allocation::Hole,
            Source::File { .. } | Source::Replayed { .. } | Source::Encoded { .. } => Allocation::Data,
        };
        Ok((allocation, extent.range))
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

    /// What the image's tables say: runs that no file of the image stores are holes. Holes of the files themselves (of
    /// a sparse raw file, of a fixed image) are not looked for, and count as data.
    fn allocation(
        &self,
        range: ByteRange,
        patience: Patience,
    ) -> Result<(Allocation, ByteLength), BlockError> {
        let range = self.check(range)?;
        let unit = self.geometry.logical_block.bytes();
        let (allocation, first) = self.stored_as(range, patience)?;
        let mut end = first.end();
        for _ in 1..MAX_ALLOCATION_EXTENTS {
            let left = tail_of(range, end);
            if left.is_empty() {
                break;
            }
            // What is known is an answer: what more there is may wait, or fail, when it is asked for itself.
            match self.stored_as(left, patience) {
                Ok((next, run)) if next == allocation => end = run.end(),
                _ => break,
            }
        }
        let known = end.get().saturating_sub(range.start().get());
        match known.saturating_sub(known.checked_rem(unit).unwrap_or_default()) {
            // A raw file that ends inside a block: the block is data.
            0 => Ok((Allocation::Data, ByteLength::new(unit))),
            whole => Ok((allocation, ByteLength::new(whole))),
        }
    }

    /// Only for runs that lie in a file byte for byte. With [`Patience::Now`] the first and the last byte are asked for,
    /// of the page cache: a span of a few pages is then in memory as a rule, because pages come and go in groups; of
    /// those in between nothing is known.
    fn file_span(&self, range: ByteRange, patience: Patience) -> Option<FileSpan> {
        let range = self.check(range).ok()?;
        let extent = self.chain.extent(range, patience, &mut Scratch::default()).ok()?;
        let Source::File { layer, at } = extent.source else { return None };
        let storage = self.chain.layer(layer)?.storage();
        let file = storage.file()?;
        let length = extent.range.length();
        if patience == Patience::Now {
            let last = at.get().saturating_add(length.get()).saturating_sub(1);
            for place in [at, ByteOffset::new(last)] {
                storage.read_at(place, &mut [0], Patience::Now).ok()?;
            }
        }
        Some(FileSpan { file: Arc::clone(file), at, length })
    }
}

fn geometry_of(leaf: &Layer) -> Geometry {
    Geometry {
        size: leaf.size(),
        logical_block: leaf.logical_block(),
        physical_block: leaf.physical_block(),
        discard_granularity: None,
        access: Access::ReadOnly,
    }
}
