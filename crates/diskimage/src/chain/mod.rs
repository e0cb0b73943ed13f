//! The files of an image, from the leaf down to its base, as one map of the disk.
//!
//! A differencing image holds what differs from its parent, which may be one itself. `open` finds the parents,
//! confined to a [`Store`], and holds each to what its child says of it. From then on the chain is one map of the disk
//! (`flat`): which file a run comes from is decided once. A chain does not change while it is open; who writes into
//! its leaf opens that for writing, with the rest of the chain below it.
use block::{ByteRange, Patience};

use crate::bitmap::Scratch;
use crate::error::ResolveError;
use crate::extent::{Extent, Held, LayerIndex, Source, head_of};
use crate::layer::Layer;

mod error;
mod flat;
mod open;
mod parent;
mod scan;
mod store;
mod vicinity;

pub use error::{ChainError, FileName, Tried};
use flat::FlatMap;
pub(crate) use open::open;
pub use parent::{FoundParent, ParentReference, ParentResolver, Parents};
pub use scan::{Scan, StoredImage};
pub use store::Store;
pub use vicinity::Vicinity;

/// How many files a chain may have, the base among them. Versions are merged long before; a file that claims more is
/// up to something.
pub const MAX_LAYERS: usize = 128;

/// The files of an image.
#[derive(Debug)]
pub(crate) struct Chain {
    leaf: Layer,
    /// The leaf's parents, the base first.
    parents: Vec<Layer>,
    /// Of an image with parents. A single file's own table is as good.
    flat: Option<FlatMap>,
}

impl Chain {
    /// `parents` are the leaf's, the base first; fewer than [`MAX_LAYERS`].
    pub(crate) fn new(leaf: Layer, parents: Vec<Layer>) -> Self {
        let flat = (!parents.is_empty()).then(|| FlatMap::new(leaf.size().get()));
        let mut chain = Self { leaf, parents, flat };
        // What the map has is not asked of the tables again: together they keep no more than that of one file.
        let layers = chain.parents.len().saturating_add(1);
        chain.parents.iter_mut().chain([&mut chain.leaf]).for_each(|layer| layer.share_tables(layers));
        chain
    }

    /// What is below the leaf, if anything is.
    pub(crate) fn without_leaf(self) -> Option<Self> {
        let mut parents = self.parents;
        parents.pop().map(|leaf| Self::new(leaf, parents))
    }

    pub(crate) fn leaf(&self) -> &Layer {
        &self.leaf
    }

    /// All files, the base first.
    pub(crate) fn layers(&self) -> impl DoubleEndedIterator<Item = (LayerIndex, &Layer)> {
        let layers = (0..=self.leaf_index().get()).map(LayerIndex::new);
        layers.filter_map(|index| self.layer(index).map(|layer| (index, layer)))
    }

    fn leaf_index(&self) -> LayerIndex {
        LayerIndex::new(u16::try_from(self.parents.len()).unwrap_or(u16::MAX))
    }

    pub(crate) fn layer(&self, index: LayerIndex) -> Option<&Layer> {
        let index = usize::from(index.get());
        self.parents.get(index).or_else(|| (index == self.parents.len()).then_some(&self.leaf))
    }

    /// The extent with which `range` begins, which lies in the disk and is not empty. `scratch` is kept by the caller
    /// from one extent to the next.
    pub(crate) fn extent(
        &self,
        range: ByteRange,
        patience: Patience,
        scratch: &mut Scratch,
    ) -> Result<Extent, ResolveError> {
        let Some(flat) = &self.flat else {
            let extent = self.leaf.extent(range, patience, scratch)?;
            return Ok(extent.in_layer(LayerIndex::BASE));
        };
        match flat.extent(self, range, patience)? {
            Some(extent) => Ok(extent),
            None => {
                let (range, source) = self.walk(range, None, patience)?;
                Ok(Extent { range, source: source.unwrap_or(Source::Zero) })
            }
        }
    }

    /// Fills `buffer`, which is not longer, with the first bytes of `extent`.
    pub(crate) fn read(
        &self,
        extent: Extent,
        buffer: &mut [u8],
        patience: Patience,
    ) -> Result<(), ResolveError> {
        match extent.source {
            Source::Zero => {
                buffer.fill(0);
                Ok(())
            }
            // The storage of a file with a replayed log answers with the log's bytes where it has any.
            Source::File { layer, at } | Source::Replayed { layer, at } => {
                let layer = self.layer(layer).unwrap_or(&self.leaf);
                Ok(layer.storage().read_at(at, buffer, patience)?)
            }
            Source::Encoded { layer } => {
                let layer = self.layer(layer).unwrap_or(&self.leaf);
                layer.decode(extent.range.start(), buffer, patience)
            }
        }
    }

    /// Asks one file after the other, from the leaf down to the one above `floor` or, without one, to the base. No
    /// source: `floor` and what is below it tell.
    pub(crate) fn walk(
        &self,
        range: ByteRange,
        floor: Option<LayerIndex>,
        patience: Patience,
    ) -> Result<(ByteRange, Option<Source>), ResolveError> {
        let mut range = range;
        for (index, layer) in self.layers().rev() {
            if floor.is_some_and(|floor| index <= floor) {
                return Ok((range, None));
            }
            // A parent may be smaller than its child, which then reads as zeros from the parent's end on.
            let inside = layer.size().get().saturating_sub(range.start().get());
            if inside == 0 {
                return Ok((range, Some(Source::Zero)));
            }
            let extent = layer.extent(head_of(range, inside), patience, &mut Scratch::default())?;
            range = extent.range;
            if extent.held != Held::Parent {
                return Ok((range, Some(extent.in_layer(index).source)));
            }
        }
        Ok((range, Some(Source::Zero)))
    }
}
