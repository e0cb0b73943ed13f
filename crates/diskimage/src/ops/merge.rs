//! Merging versions, always into a new file: *merged updates* (several differencing images become one, with the same
//! parent as the lowest of them) and *merged base* (base and differences become a new base).
//!
//! What of the sources makes which state of the new image's blocks ([MS-VHDX] §2.5.1.1), a file over what is below it:
//!
//! | the upper file says | the new base has | the new difference has |
//! |---|---|---|
//! | fully present | its bytes | its bytes, held whole |
//! | partially present | its sectors over what is below | its sectors and those held below; held whole once none is left to the parent |
//! | not present | what is below | what is below |
//! | zero, unmapped, undefined | zero | zero, held: it hides the parent |
//!
//! A block that is held in part, with zeros held among it, needs no more than its bits: the sectors count as held and
//! are holes of the new file.
//!
//! The disk keeps its identity (VHDX), so that an operating system takes it for the disk it knows. What children
//! recognise the file by is new: the new file is another parent than any of its sources. (VHD has one identifier for
//! both, so there it is new.)
use std::path::{Path, PathBuf};

use block::{BlockDevice, ByteLength};

use super::error::OpError;
use super::job::Job;
use super::parent::link_to;
use super::partial::{Replace, place_of};
use super::zeros::FindZeros;
use crate::extent::LayerIndex;
use crate::format::Format;
use crate::image::{Image, LayerInfo, OpenOptions, Subtype};
use crate::new_image::NewImageSpec;

/// How to merge.
#[derive(Clone, Debug, Default)]
pub struct MergeOptions {
    /// How much of the disk one payload block of the new image holds; `None`: as much as of the file that it takes the
    /// place of: the base, or the leaf of the updates.
    pub payload_block: Option<ByteLength>,
    /// What to do where there is something with the target's name. A file that is merged is never replaced.
    pub replace: Replace,
    /// Whether the new image is read back and compared with the source before it gets its name.
    pub verify: bool,
    /// How the chain was opened; needed to open the new difference as one of it, to verify it.
    pub reopen: OpenOptions,
}

/// The merge of all files of `leaf`'s chain into a new base at `target`, in the format and subtype of the base.
///
/// # Errors
/// [`OpError::Unfit`].
pub fn merge_base<'a>(leaf: &'a Image, target: &Path, options: &MergeOptions) -> Result<Job<'a>, OpError> {
    let layers = leaf.layers();
    let [base, _, ..] = layers.as_slice() else { return Err(nothing_to_merge()) };
    let spec = spec(leaf, base, options)?;
    Ok(job(leaf, None, spec, place_of(target, options.replace)?, options))
}

/// The merge of the files of `leaf`'s chain from `first` to the leaf into one differencing image at `target`, whose
/// parent is the file below `first`.
///
/// # Errors
/// [`OpError::Unfit`]: `first` is the base, or the leaf; [`OpError`] where the parent cannot be named.
pub fn merge_updates<'a>(
    leaf: &'a Image,
    first: LayerIndex,
    target: &Path,
    options: &MergeOptions,
) -> Result<Job<'a>, OpError> {
    let layers = leaf.layers();
    let Some(below) = first.get().checked_sub(1).map(LayerIndex::new) else {
        return Err(OpError::unfit("updates are merged above a base; to merge that too, make a new base"));
    };
    let floor = layers.iter().find(|file| file.layer == below);
    let (Some(floor), Some(top)) = (floor, layers.last().filter(|top| top.layer > first)) else {
        return Err(nothing_to_merge());
    };
    let target = place_of(target, options.replace)?;
    let parent = link_to(leaf, floor, &target)?;
    let spec =
        NewImageSpec { subtype: Subtype::Differencing, parent: Some(parent), ..spec(leaf, top, options)? };
    Ok(job(leaf, Some(below), spec, target, options))
}

fn nothing_to_merge() -> OpError {
    OpError::unfit("there is nothing to merge: that takes two files of a chain at least")
}

/// As large as the leaf, and else like `model`.
fn spec(leaf: &Image, model: &LayerInfo, options: &MergeOptions) -> Result<NewImageSpec, OpError> {
    let geometry = leaf.geometry();
    let format = model.info.format;
    Ok(NewImageSpec {
        format,
        subtype: model.info.subtype,
        virtual_size: geometry.size,
        logical_block: geometry.logical_block,
        physical_block: geometry.physical_block,
        payload_block: options.payload_block.or(model.info.payload_block),
        identity: leaf.identity().filter(|_| format == Format::Vhdx),
        linkage: None,
        parent: None,
        carried: leaf.carried()?,
    })
}

fn job<'a>(
    leaf: &'a Image,
    floor: Option<LayerIndex>,
    spec: NewImageSpec,
    target: PathBuf,
    options: &MergeOptions,
) -> Job<'a> {
    Job {
        image: leaf,
        floor,
        spec,
        target,
        replace: options.replace,
        in_place: false,
        zeros: FindZeros::Nowhere,
        verify: options.verify,
        reopen: Clone::clone(&options.reopen),
    }
}
