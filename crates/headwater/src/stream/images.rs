//! The golden images that are open: each once, as long as somebody uses it, for all who do.
//!
//! A vDisk is the leaf of a chain as a rule: a version on older ones, whose files lie in its store. All devices of a version
//! share one opening of it, with its map; what versions have in common they share in the page cache, being the same files.
//! The first boot of a version opens it, and the last that ends closes it. Each file is locked for reading meanwhile, so
//! that nobody changes it in place, and held to its [mark](mod@mark) when it is opened: a file that somebody changed behind
//! the catalogue's back is not served.
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use anyhow::Context;
use block::{
    Allocation, BlockDevice, BlockError, ByteLength, ByteOffset, ByteRange, FileSpan, Geometry, Patience,
};
use diskimage::chain::Parents;
use diskimage::storage::ReadLock;
use diskimage::{Format, Image, OpenOptions};
use serde::{Deserialize, Serialize};
use vdisk::ImageFingerprint;

use super::mark::{self, Marks};
use super::names::fnv1a_128;
use crate::config::ImageFormat;

/// Where an image is, and how it is opened.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ImageAt {
    /// Its file.
    pub path: PathBuf,
    /// The store that it lies in, out of which none of its parents may lie; `None`: its own folder.
    pub store: Option<PathBuf>,
    /// Its format; `None`: what the file's contents say.
    pub format: Option<ImageFormat>,
}

impl ImageAt {
    /// How it is opened: its parents lie in its store and nowhere else.
    #[must_use]
    pub fn options(&self) -> OpenOptions {
        let format = self.format.map(|format| match format {
            ImageFormat::Raw => Format::Raw,
            ImageFormat::Vhd => Format::Vhd,
            ImageFormat::Vhdx => Format::Vhdx,
        });
        let parents = self.store.clone().map_or(Parents::Beside, Parents::In);
        OpenOptions { format, parents, ..OpenOptions::default() }
    }

    /// Opens it for reading, with its files locked for as long as the locks are kept.
    ///
    /// # Errors
    /// It is damaged, is being changed, or of a format that devices are not served from.
    pub fn open(&self) -> anyhow::Result<(Image, Vec<ReadLock>)> {
        // What the files say of each other is only sure once nobody can change them any more: they are opened to know
        // which they are, locked, and opened again.
        let locks = self.locks(&Image::open(&self.path, self.options())?)?;
        let image = Image::open(&self.path, self.options())?;
        // A disk in several files has no one file that tells when its contents change, and expanding clusters at every
        // device's every read helps nobody.
        let format = image.format();
        anyhow::ensure!(
            matches!(format, Format::Raw | Format::Vhd | Format::Vhdx),
            "it is a {format} image; devices are served from raw, VHD and VHDX images: convert it to VHDX"
        );
        Ok((image, locks))
    }

    fn locks(&self, image: &Image) -> anyhow::Result<Vec<ReadLock>> {
        let layers = image.layers();
        let paths = layers.iter().map(|layer| layer.path.as_deref().unwrap_or(&self.path));
        paths.map(|path| Ok(ReadLock::take(path)?)).collect()
    }
}

/// An open image, as long as somebody uses it.
#[derive(Debug)]
pub struct GoldenImage {
    image: Image,
    /// Stands for its contents.
    pub fingerprint: ImageFingerprint,
    /// Of every file: nobody changes it while it is served.
    _locks: Vec<ReadLock>,
}

/// All open images.
#[derive(Debug, Default)]
pub struct Images {
    /// Locked for moments; each entry for as long as its image is opened, so that openings of different images do not wait
    /// for each other, and a thousand devices that boot at once open theirs once.
    open: Mutex<HashMap<ImageAt, Arc<Mutex<Weak<GoldenImage>>>>>,
}

impl Images {
    /// The image, opened unless it is open. May wait for storage.
    ///
    /// # Errors
    /// It cannot be opened, or a file of it is not what its mark says.
    pub fn open(&self, at: &ImageAt, marks: &Marks) -> anyhow::Result<Arc<GoldenImage>> {
        let entry = {
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            // An entry that is being opened has a second owner.
            open.retain(|_, entry| {
                Arc::strong_count(entry) > 1
                    || entry.try_lock().is_ok_and(|image| Weak::strong_count(&image) > 0)
            });
            Arc::clone(open.entry(at.clone()).or_default())
        };
        let mut entry = entry.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(image) = entry.upgrade() {
            return Ok(image);
        }
        let about = || format!("the image {} cannot be used", at.path.display());
        let image = Arc::new(open(at, marks).with_context(about)?);
        *entry = Arc::downgrade(&image);
        Ok(image)
    }
}

fn open(at: &ImageAt, marks: &Marks) -> anyhow::Result<GoldenImage> {
    let (image, locks) = at.open()?;
    mark::check(&image, marks)?;
    let fingerprint = fingerprint(&at.path, &image)?;
    let info = image.info();
    tracing::info!(
        file = %at.path.display(),
        format = ?info.format,
        size = %info.virtual_size,
        files = image.layers().len(),
        log_replayed = info.log_replayed,
        "image opened"
    );
    Ok(GoldenImage { image, fingerprint, _locks: locks })
}

impl BlockDevice for GoldenImage {
    fn geometry(&self) -> Geometry {
        self.image.geometry()
    }

    fn read(&self, at: ByteOffset, buffer: &mut [u8], patience: Patience) -> Result<(), BlockError> {
        self.image.read(at, buffer, patience)
    }

    fn write(&self, at: ByteOffset, data: &[u8], patience: Patience) -> Result<(), BlockError> {
        self.image.write(at, data, patience)
    }

    fn flush(&self, patience: Patience) -> Result<(), BlockError> {
        self.image.flush(patience)
    }

    fn discard(&self, range: ByteRange, patience: Patience) -> Result<(), BlockError> {
        self.image.discard(range, patience)
    }

    fn write_zeroes(&self, range: ByteRange, patience: Patience) -> Result<(), BlockError> {
        self.image.write_zeroes(range, patience)
    }

    fn allocation(
        &self,
        range: ByteRange,
        patience: Patience,
    ) -> Result<(Allocation, ByteLength), BlockError> {
        self.image.allocation(range, patience)
    }

    fn file_span(&self, range: ByteRange, patience: Patience) -> Option<FileSpan> {
        self.image.file_span(range, patience)
    }
}

/// What changes whenever the contents do: the disk's own id, and of its file the length and time of modification; of a
/// chain, a hash of those of all files.
fn fingerprint(path: &Path, image: &Image) -> std::io::Result<ImageFingerprint> {
    let identity = image.identity().unwrap_or_default();
    let layers = image.layers();
    let of_contents = match layers.as_slice() {
        [] | [_] => length_and_time(path)?,
        files => {
            let mut all = Vec::new();
            for file in files {
                all.extend(length_and_time(file.path.as_deref().unwrap_or(path))?);
            }
            fnv1a_128(&all).to_be_bytes()
        }
    };
    let mut bytes = [0; 32];
    bytes.iter_mut().zip(identity.into_iter().chain(of_contents)).for_each(|(byte, part)| *byte = part);
    Ok(ImageFingerprint(bytes))
}

fn length_and_time(path: &Path) -> std::io::Result<[u8; 16]> {
    let file = std::fs::metadata(path)?;
    let modified_s = i128::from(file.mtime());
    let modified_ns = modified_s.saturating_mul(1_000_000_000).saturating_add(i128::from(file.mtime_nsec()));
    #[allow(clippy::cast_possible_truncation, reason = "the low 64 bits tell times apart for centuries")]
    let modified = modified_ns as u64;
    Ok(((u128::from(file.len()) << 64) | u128::from(modified)).to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(directory: &Path) -> ImageAt {
        let path = directory.join("golden.raw");
        std::fs::File::create(&path).unwrap().set_len(1 << 20).unwrap();
        ImageAt { path, store: None, format: Some(ImageFormat::Raw) }
    }

    #[test]
    fn image_is_opened_once_for_all_and_closed_with_its_last_user() {
        let directory = tempfile::tempdir().unwrap();
        let (images, at) = (Images::default(), raw(directory.path()));
        let one = images.open(&at, &Marks::default()).unwrap();
        let two = images.open(&at, &Marks::default()).unwrap();
        assert!(Arc::ptr_eq(&one, &two));
        let locked = || diskimage::storage::EditLock::take(&at.path).is_err();
        drop(one);
        assert!(locked(), "somebody uses it");
        drop(two);
        assert!(!locked(), "nobody uses it");
        assert!(images.open(&at, &Marks::default()).is_ok(), "opened anew");
    }
}
