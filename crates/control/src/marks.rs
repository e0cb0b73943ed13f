//! What a version's file looks like from outside, and whether it is what it was.
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use block::BlockDevice;
use diskimage::{Childless, Format, Image, LayerInfo, MutableImage, Refusal};
use farm::model::{ByteSize, FileMark, Stored, Uuid, Version, VersionState};
use farm::rules::files::compare;

use crate::error::{Code, ControlError};
use crate::places::reading;

/// The mark of a file of an image.
///
/// # Errors
/// [`Code::BadValue`] of sizes that no catalogue can hold.
pub fn of_layer(layer: &LayerInfo) -> Result<FileMark, ControlError> {
    let uuid = |bytes: [u8; 16]| Uuid::new(bytes).ok();
    let data_write = layer.linkage.filter(|_| layer.info.format == Format::Vhdx);
    Ok(FileMark {
        length: ByteSize::new(layer.info.file_size.get())?,
        disk_size: ByteSize::new(layer.info.virtual_size.get())?,
        image: layer.info.identity.and_then(uuid),
        // Of a VHD, what children recognise it by is its id, which no write changes.
        data_write: data_write.and_then(|guid| uuid(guid.to_be_bytes())),
    })
}

/// The mark of the file at `path`, whose parents are neither looked for nor needed.
///
/// # Errors
/// [`Code::FileChanged`] where it is not there, [`Code::FileDamaged`] where it is no image.
pub fn of_file(path: &Path) -> Result<FileMark, ControlError> {
    of_layer(&LayerInfo::of_file(path, None)?)
}

/// As [`of_file`]; `None` of a file that is not there.
///
/// # Errors
/// As [`of_file`].
pub fn look(path: &Path) -> Result<Option<FileMark>, ControlError> {
    match LayerInfo::of_file(path, None) {
        Ok(layer) => of_layer(&layer).map(Some),
        Err(error) => match &error.refusal {
            Refusal::Access(source) if source.kind() == io::ErrorKind::NotFound => Ok(None),
            _ => Err(error.into()),
        },
    }
}

/// Refuses files that are not what their versions' marks say. `versions` are the chain of `image`, the leaf first.
pub(crate) fn verify(image: &Image, versions: &[Stored<Version>]) -> Result<(), ControlError> {
    let layers = image.layers();
    if layers.len() != versions.len() {
        let why = format!(
            "the file of version {} stands on {} others, and the catalogue lists {}",
            versions.first().map_or(0, |leaf| leaf.number.get()),
            layers.len().saturating_sub(1),
            versions.len().saturating_sub(1)
        );
        return Err(ControlError::new(Code::FileChanged, why));
    }
    for (layer, version) in layers.iter().rev().zip(versions) {
        let name = layer.path.as_deref().and_then(Path::file_name).and_then(|name| name.to_str());
        if name != Some(version.file.as_str()) {
            let why =
                format!("version {} should be in {:?} and is in {name:?}", version.number, version.file);
            return Err(ControlError::new(Code::FileChanged, why));
        }
        let Some(mark) = version.mark else { continue };
        if let (VersionState::Changed, differences) = compare(&mark, Some(&of_layer(layer)?)) {
            let (number, file, how) = (version.number, &version.file, differences.join(", "));
            let why = format!("somebody wrote to {file:?}, the file of version {number}: {how}");
            return Err(ControlError::new(Code::FileChanged, why).hint("restore it, or accept it as it is"));
        }
    }
    Ok(())
}

/// Makes the file of a version that was written to one that never changes again: all of it on the disk, its log played
/// back. Nobody may have it open.
pub(crate) fn settle(path: &Path, folder: &Path) -> Result<FileMark, ControlError> {
    File::open(path)
        .and_then(|file| file.sync_all())
        .map_err(|error| ControlError::file(path, "made lasting", &error))?;
    let layer = LayerInfo::of_file(path, None)?;
    if !layer.info.log_replayed {
        return of_layer(&layer);
    }
    let parent = Image::open_parent_of(path, reading(folder))?;
    let parent = parent.map(|image| Arc::new(image) as Arc<dyn BlockDevice>);
    let image = MutableImage::open(path, None, parent, &Childless)?;
    image.close().map_err(|error| {
        ControlError::new(Code::FileFailed, format!("the log of {path:?} cannot be played back: {error}"))
    })?;
    of_file(path)
}
