//! Naming the parent of a differencing image anew: it was moved or renamed, or another file with the same contents is
//! to take its place.
//!
//! A child holds differences; over anything but what it was made on, they are damage. So the new parent must be the one
//! that the child knows ([MS-VHDX] §2.6.2.6.3), or be compared with it byte for byte. The child's own contents do not
//! change, and its children stay valid.
use std::path::Path;
use std::sync::Arc;

use block::BlockDevice;

use super::compare::{CompareError, CompareOptions, compare};
use super::error::OpError;
use super::parent::link_to;
use super::partial::is_same_file;
use crate::image::{Image, OpenOptions};
use crate::layer::Layer;
use crate::mutable::{Childless, MutableImage};
use crate::storage::FileStorage;
use crate::watch::Watch;

/// Why a file is believed to be the parent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// It has the identifier that the child knows its parent by.
    #[default]
    Linkage,
    /// It holds the same as the child's present parent, with which it is compared.
    Contents,
    /// The caller says so. Nothing is checked: if that is wrong, the child's disk is damaged.
    Caller,
}

/// Makes the image at `parent` the parent of the one at `child`.
///
/// # Errors
/// [`OpError`]; the child is then as it was.
pub fn rebase(
    child: &Path,
    parent: &Path,
    trust: Trust,
    open: &OpenOptions,
    watch: &Watch,
) -> Result<(), OpError> {
    let new = Image::open(parent, open.clone())?;
    let storage = FileStorage::open(child).map_err(|error| match error {
        crate::storage::FileStorageError::Access(source) => OpError::file(child, "opened", source),
        crate::storage::FileStorageError::NotAFile { found } => {
            OpError::unfit(format!("{child:?} is {found}, not an image"))
        }
    })?;
    let layer = Layer::open(Some(child), Box::new(storage), open.format);
    let layer = layer.map_err(|refusal| refusal.about(Some(child.into())))?;
    check_fits(&layer, child, &new, parent)?;
    let Some(reference) = layer.parent() else {
        return Err(OpError::unfit(format!("{child:?} has no parent that could be named anew")));
    };
    let layers = new.layers();
    let Some(leaf) = layers.last() else { return Err(OpError::unfit("the parent has no file")) };
    let link = link_to(&new, leaf, child)?;
    let is_known = reference.accepts(link.linkage);
    match trust {
        Trust::Caller => {}
        _ if is_known => {}
        Trust::Linkage => {
            return Err(OpError::unfit(format!(
                "{parent:?} is not the parent that {child:?} was made from: the child wants {}, and the file is {}; if \
                 it holds the same, have the contents compared (--compare)",
                reference.linkage, link.linkage
            )));
        }
        Trust::Contents => compare_with_old(child, &new, parent, open, watch)?,
    }
    let format = layer.format();
    drop(layer);
    let image = MutableImage::open(child, Some(format), Some(Arc::new(new)), &Childless)?;
    image.relink(&link).map_err(|source| OpError::Edit { path: child.into(), source })
}

/// Formats and sectors agree, and the new parent is not a descendant of the child.
fn check_fits(layer: &Layer, child: &Path, new: &Image, parent: &Path) -> Result<(), OpError> {
    let (ours, theirs) = (layer.format(), new.format());
    if ours != theirs {
        return Err(OpError::unfit(format!(
            "{child:?} is {}, and {parent:?} is {}",
            ours.title(),
            theirs.title()
        )));
    }
    let (ours, theirs) = (layer.logical_block().bytes(), new.geometry().logical_block.bytes());
    if ours != theirs {
        let problem = format!("{child:?} has sectors of {ours} bytes, and {parent:?} of {theirs}");
        return Err(OpError::unfit(problem));
    }
    let Ok(metadata) = child.metadata() else { return Ok(()) };
    let files = new.layers();
    let mut files = files.iter().filter_map(|file| new.layer_storage(file.layer)?.file()?.metadata().ok());
    if files.any(|file| is_same_file(&file, &metadata)) {
        return Err(OpError::unfit(format!("{parent:?} is {child:?} or lies above it")));
    }
    Ok(())
}

fn compare_with_old(
    child: &Path,
    new: &Image,
    parent: &Path,
    open: &OpenOptions,
    watch: &Watch,
) -> Result<(), OpError> {
    let mut layers = Image::open(child, open.clone())?.layers();
    layers.pop();
    let Some(old_path) = layers.pop().and_then(|file| file.path) else {
        return Err(OpError::unfit(format!("the present parent of {child:?} lies in no file")));
    };
    let old = Image::open(&old_path, open.clone())?;
    let options = CompareOptions { stop_at_first: true, ..CompareOptions::default() };
    let found = compare(&old, new, &options, watch).map_err(|error| match error {
        CompareError::Cancelled(cancelled) => OpError::Cancelled(cancelled),
        CompareError::First(source) => OpError::reading(&old, source),
        CompareError::Second(source) => OpError::reading(new, source),
    })?;
    match found.first_difference {
        None => Ok(()),
        Some(at) => Err(OpError::unfit(format!(
            "{parent:?} differs from the present parent, {old_path:?}, at {at}: the child's disk would be damaged"
        ))),
    }
}
