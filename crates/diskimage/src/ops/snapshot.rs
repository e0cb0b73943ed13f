//! Making a child: an empty differencing image, in which what is written from now on goes.
use std::path::Path;

use block::{BlockDevice, ByteLength};

use super::error::OpError;
use super::parent::link_to;
use super::partial::{Partial, Replace, place_of};
use crate::chain::MAX_LAYERS;
use crate::format::Format;
use crate::image::{Image, OpenOptions, Subtype};
use crate::new_image::{self, NewImageSpec};

/// How much of the disk a payload block of a child holds where nothing else is said: small, as what a child gets are
/// small writes, and twice the unit in which blocks lie.
const CHILD_BLOCK_BYTES: u64 = 2 << 20;

/// How to make a child.
#[derive(Clone, Debug, Default)]
pub struct SnapshotOptions {
    /// How much of the disk one payload block holds; `None` is 2 MiB.
    pub payload_block: Option<ByteLength>,
    /// What to do where there is something with the child's name.
    pub replace: Replace,
    /// How the parent is opened.
    pub open: OpenOptions,
}

/// Makes a child of the image at `parent` at `child`: as large as that, with its identity (VHDX), and naming it by the
/// path from one to the other. From then on the parent must not change.
///
/// # Errors
/// [`OpError`]; nothing is left of the child then.
pub fn snapshot(parent: &Path, child: &Path, options: &SnapshotOptions) -> Result<(), OpError> {
    let child = &place_of(child, options.replace)?;
    let image = Image::open(parent, Clone::clone(&options.open))?;
    let layers = image.layers();
    let Some(leaf) = layers.last() else { return Err(OpError::unfit("the parent has no file")) };
    if layers.len() >= MAX_LAYERS {
        return Err(OpError::unfit(format!(
            "the chain of {parent:?} has {} files, as many as can be opened; merge some of its versions first",
            layers.len()
        )));
    }
    let geometry = image.geometry();
    let format = image.format();
    let spec = NewImageSpec {
        format,
        subtype: Subtype::Differencing,
        virtual_size: geometry.size,
        logical_block: geometry.logical_block,
        physical_block: geometry.physical_block,
        payload_block: Some(options.payload_block.unwrap_or(ByteLength::new(CHILD_BLOCK_BYTES))),
        identity: image.identity().filter(|_| format == Format::Vhdx),
        linkage: None,
        parent: Some(link_to(&image, leaf, child)?),
        carried: image.carried()?,
    };
    if child
        .metadata()
        .is_ok_and(|there| parent.metadata().is_ok_and(|file| super::partial::is_same_file(&file, &there)))
    {
        return Err(OpError::IsSource { path: child.clone() });
    }
    let (partial, storage) = Partial::create(child, options.replace)?;
    new_image::create(Box::new(storage), &spec)
        .and_then(new_image::NewImage::finish)
        .map_err(|source| OpError::Target { path: child.clone(), source })?;
    partial.swap_in()
}
