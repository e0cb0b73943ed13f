//! Puts a chain together: from the leaf to its parent, and on, until a file has none. Each step is checked before the
//! next: that the file found is the parent that the child was made from, in the same format and the same sectors, and
//! not one of its own children.
//!
//! A qcow2 image's backing file has no identifier to be recognised by, and any format; it is followed only where the
//! caller wants it, and its format is never guessed at: the image must name it.
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::FileName;
use super::{Chain, ChainError, FoundParent, MAX_LAYERS, ParentReference, ParentResolver, Parents, Store};
use crate::error::Refusal;
use crate::format::{self, Format};
use crate::guid::Guid;
use crate::layer::{FileId, Layer};

/// The chain of which `leaf` is the leaf.
pub(crate) fn open(leaf: Layer, parents: Parents, backing_files: bool) -> Result<Chain, Refusal> {
    if link_of(&leaf, backing_files)?.is_none() {
        return Ok(Chain::new(leaf, Vec::new()));
    }
    let resolver: Arc<dyn ParentResolver> = match parents {
        Parents::Beside => Arc::new(Store::around(leaf.path().ok_or(ChainError::NoStore)?)?),
        Parents::In(root) => Arc::new(Store::open(&root)?),
        Parents::By(resolver) => resolver,
    };
    // From the leaf downwards.
    let mut layers = vec![leaf];
    while let Some(child) = layers.last()
        && let Some((reference, kind)) = link_of(child, backing_files)?
    {
        if layers.len() >= MAX_LAYERS {
            return Err(ChainError::TooDeep.into());
        }
        let found = resolver.resolve(child.path(), &reference)?;
        let id = FileId::of(&*found.storage);
        let is_found = |layer: &Layer| match (layer.file_id(), id) {
            (Some(known), Some(found)) => known == found,
            _ => layer.path() == Some(&found.path),
        };
        if layers.iter().any(is_found) {
            return Err(ChainError::Cycle { child: name_of(child), parent: found.path }.into());
        }
        let parent = match kind {
            Kind::Parent => open_parent(child, &reference, found)?,
            Kind::Backing(format) => open_backing(child, format, found)?,
        };
        layers.push(parent);
    }
    let mut layers = layers.into_iter();
    let leaf = layers.next().ok_or(ChainError::NoStore)?;
    Ok(Chain::new(leaf, layers.rev().collect()))
}

/// What a file says of the one below it.
enum Kind {
    Parent,
    /// A backing file of this format.
    Backing(Format),
}

fn link_of(child: &Layer, backing_files: bool) -> Result<Option<(ParentReference, Kind)>, ChainError> {
    let Some(backing) = child.backing() else {
        return Ok(child.parent().map(|reference| (reference, Kind::Parent)));
    };
    if !backing_files {
        return Err(ChainError::Backing { child: name_of(child), name: backing.name.clone() });
    }
    // The names that qemu gives to formats.
    let format = match backing.format.as_deref() {
        Some("raw") => Format::Raw,
        Some("vpc") => Format::Vhd,
        Some("vhdx") => Format::Vhdx,
        Some("qcow2") => Format::Qcow2,
        Some("vmdk") => Format::Vmdk,
        other => {
            let format = other.unwrap_or_default().to_owned();
            return Err(ChainError::BackingFormat {
                child: name_of(child),
                name: backing.name.clone(),
                format,
            });
        }
    };
    let reference = ParentReference {
        linkage: Guid::NIL,
        linkage2: None,
        relative_path: Some(backing.name.clone()),
        absolute_paths: vec![backing.name.clone()],
    };
    Ok(Some((reference, Kind::Backing(format))))
}

fn open_backing(child: &Layer, format: Format, found: FoundParent) -> Result<Layer, ChainError> {
    let path = found.path;
    let parent = Layer::open(Some(&path), found.storage, Some(format))
        .map_err(|refusal| ChainError::Parent { path: path.clone(), refusal: Box::new(refusal) })?;
    check_sectors(child, path, parent)
}

fn open_parent(child: &Layer, reference: &ParentReference, found: FoundParent) -> Result<Layer, ChainError> {
    let path = found.path;
    let refused = |refusal| ChainError::Parent { path: path.clone(), refusal: Box::new(refusal) };
    let format = format::probe(&*found.storage, Format::of_ending(&path)).map_err(refused)?;
    if format != child.format() {
        let (child, format, found) = (name_of(child), child.format(), format);
        return Err(ChainError::Mixed { child, format, parent: path, found });
    }
    let parent = Layer::open(Some(&path), found.storage, Some(format)).map_err(refused)?;
    // [MS-VHDX] §2.6.2.6.3: whoever opens a child checks that its parent is the one that it was made from.
    let linkage = parent.linkage().unwrap_or_default();
    if !reference.accepts(linkage) {
        return Err(ChainError::Linkage {
            child: name_of(child),
            parent: path,
            expected: reference.linkage,
            expected2: reference.linkage2,
            found: linkage,
        });
    }
    check_sectors(child, path, parent)
}

fn check_sectors(child: &Layer, path: PathBuf, parent: Layer) -> Result<Layer, ChainError> {
    let (sectors, found) = (child.logical_block(), parent.logical_block());
    if sectors != found {
        return Err(ChainError::SectorSize { child: name_of(child), sectors, parent: path, found });
    }
    Ok(parent)
}

fn name_of(layer: &Layer) -> FileName {
    FileName(layer.path().map(Path::to_owned))
}
