//! Compacting: a new file with the same disk, in which blocks of zeros and trimmed blocks take no room, put in the
//! place of the old one.
//!
//! The disk is the same byte for byte, so the new file *is* the old one to everybody: it keeps identity, parent and
//! what children recognise it by ([MS-VHDX] §2.2.2: `DataWriteGuid` changes with the data that a user sees, and that
//! does not change here). Children stay valid, and whoever has the old file open reads on in it.
use super::error::OpError;
use super::job::Job;
use super::parent::link_to;
use super::partial::{Replace, place_of};
use super::zeros::FindZeros;
use crate::extent::LayerIndex;
use crate::image::{Image, OpenOptions, Subtype};
use crate::mutable::linkage_of;
use crate::new_image::NewImageSpec;
use crate::storage::EditLock;
use block::BlockDevice;

/// How to compact.
#[derive(Clone, Debug, Default)]
pub struct CompactOptions {
    /// Whether only what the image's tables and the file system call unused is dropped: fast, as nothing is read.
    /// Without it, all that is stored is read, to find blocks of zeros.
    pub trimmed_only: bool,
    /// Whether the new image is read back and compared with the old one before it takes its place.
    pub verify: bool,
    /// How the image was opened.
    pub reopen: OpenOptions,
}

/// The compaction of the leaf of `image`, which was opened under `lock`: what anybody wrote into the old file
/// meanwhile would be lost.
///
/// # Errors
/// [`OpError::Unfit`]: a fixed image, which has all of its blocks; one of a format that is not written; a block device.
pub fn compact<'a>(
    image: &'a Image,
    lock: &'a EditLock,
    options: &CompactOptions,
) -> Result<Job<'a>, OpError> {
    let layers = image.layers();
    let Some((leaf, path)) = layers.last().and_then(|leaf| leaf.path.clone().map(|path| (leaf, path))) else {
        return Err(OpError::unfit("the image lies in no file that could be replaced"));
    };
    let storage = image.layer_storage(leaf.layer);
    let file = storage.and_then(|storage| storage.file());
    if !file.is_some_and(|file| lock.is_of(file)) {
        return Err(OpError::unfit(format!("{path:?} is another file than the one that is locked")));
    }
    let path = place_of(&path, Replace::Swap)?;
    let info = &leaf.info;
    let is_raw = info.payload_block.is_none();
    if info.subtype == Subtype::Fixed && !is_raw {
        return Err(OpError::unfit(format!(
            "{path:?} is fixed: all of its blocks have a place; convert it to a dynamic image to drop some"
        )));
    }
    let floor = leaf.layer.get().checked_sub(1).map(LayerIndex::new);
    let parent = match layers.iter().find(|file| Some(file.layer) == floor) {
        Some(parent) => Some(link_to(image, parent, &path)?),
        None => None,
    };
    let linkage = storage.map(|storage| linkage_of(storage, info.format)).transpose();
    let linkage = linkage.map_err(|refusal| refusal.about(Some(path.clone())))?.flatten();
    let geometry = image.geometry();
    let spec = NewImageSpec {
        format: info.format,
        subtype: info.subtype,
        virtual_size: geometry.size,
        logical_block: geometry.logical_block,
        physical_block: info.physical_block,
        payload_block: info.payload_block,
        identity: info.identity,
        linkage,
        parent,
        carried: image.carried()?,
    };
    Ok(Job {
        image,
        floor,
        spec,
        target: path,
        replace: Replace::Swap,
        in_place: true,
        zeros: if options.trimmed_only { FindZeros::Nowhere } else { FindZeros::Everywhere },
        verify: options.verify,
        reopen: Clone::clone(&options.reopen),
    })
}
