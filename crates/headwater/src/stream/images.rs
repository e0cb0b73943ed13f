//! The golden images: opened once, when the server starts, and shared by all devices.
//!
//! A vDisk is the leaf of a chain as a rule: a version on older ones, whose files lie in its store. All devices of a version
//! share one opening of it, with its map; what versions have in common they share in the page cache, being the same files.
//! Each file is locked for reading while it is served, so that nobody changes it in place.
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use block::BlockDevice;
use diskimage::chain::Parents;
use diskimage::storage::ReadLock;
use diskimage::{Format, Image, OpenOptions};
use vdisk::ImageFingerprint;

use super::names::fnv1a_128;
use super::private::PrivateImage;
use crate::config::{Config, ImageFormat, Vdisk};

/// An open image.
#[derive(Clone, Debug)]
pub struct GoldenImage {
    /// The vDisk's name, without a version: what the disk is recognised by is the same for all of them.
    pub name: String,
    /// The image.
    pub device: Arc<dyn BlockDevice>,
    /// Stands for its contents.
    pub fingerprint: ImageFingerprint,
}

/// All open images, by the names of their vDisks.
#[derive(Debug, Default)]
pub struct Images {
    by_name: HashMap<String, GoldenImage>,
    /// Those that a device writes itself.
    private: HashMap<String, Arc<PrivateImage>>,
    /// Of every file: nobody changes it while it is served.
    _locks: Vec<ReadLock>,
}

impl Images {
    /// Opens every vDisk's image: each file that is a vDisk once, however many names it has.
    ///
    /// # Errors
    /// The first that cannot be opened, with vDisk, file and reason.
    pub fn open(config: &Config) -> anyhow::Result<Self> {
        let mut images = Self::default();
        for vdisk in config.vdisks.iter().filter(|vdisk| is_written(config, vdisk)) {
            // A file of several names is opened for the one that its device knows.
            if config.devices.iter().any(|device| device.is_private() && device.vdisk == vdisk.name) {
                let image = PrivateImage::open(base_name(&vdisk.name).to_owned(), vdisk)
                    .with_context(|| about(vdisk))?;
                images.private.insert(vdisk.name.clone(), Arc::new(image));
            }
        }
        let mut by_path: HashMap<&Path, GoldenImage> = HashMap::new();
        for vdisk in config.vdisks.iter().filter(|vdisk| !is_written(config, vdisk)) {
            let image = match by_path.get(vdisk.path.as_path()) {
                Some(image) => image.clone(),
                None => {
                    let (image, locks) = open(vdisk).with_context(|| about(vdisk))?;
                    images._locks.extend(locks);
                    by_path.insert(&vdisk.path, image.clone());
                    image
                }
            };
            let name = base_name(&vdisk.name).to_owned();
            images.by_name.insert(vdisk.name.clone(), GoldenImage { name, ..image });
        }
        Ok(images)
    }

    /// Opens every vDisk's image for reading, to tell whether a server could; private ones may be in use by one.
    ///
    /// # Errors
    /// The first that cannot be opened, with vDisk, file and reason.
    pub fn check(config: &Config) -> anyhow::Result<()> {
        for vdisk in &config.vdisks {
            let checked = if is_written(config, vdisk) {
                Image::open(&vdisk.path, options(vdisk)).map(drop).map_err(anyhow::Error::from)
            } else {
                open(vdisk).map(drop)
            };
            checked.with_context(|| about(vdisk))?;
        }
        Ok(())
    }

    /// The image that a device writes itself.
    #[must_use]
    pub fn private(&self, vdisk: &str) -> Option<&Arc<PrivateImage>> {
        self.private.get(vdisk)
    }

    /// The names of all vDisks that are read alone, in order.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.by_name.keys().cloned().collect();
        names.sort_unstable();
        names
    }

    /// The image of a vDisk that is read alone.
    #[must_use]
    pub fn get(&self, vdisk: &str) -> Option<&GoldenImage> {
        self.by_name.get(vdisk)
    }
}

fn about(vdisk: &Vdisk) -> String {
    format!("vDisk \"{}\": its image {} cannot be used", vdisk.name, vdisk.path.display())
}

/// Whether a device writes the file of this vDisk.
fn is_written(config: &Config, vdisk: &Vdisk) -> bool {
    let mut private = config.devices.iter().filter(|device| device.is_private());
    private.any(|device| config.vdisk(&device.vdisk).is_some_and(|own| own.path == vdisk.path))
}

/// A vDisk's name without its version.
fn base_name(vdisk: &str) -> &str {
    vdisk.split_once('@').map_or(vdisk, |(name, _)| name)
}

/// An image for all that boot it, and the locks of its files.
fn open(vdisk: &Vdisk) -> anyhow::Result<(GoldenImage, Vec<ReadLock>)> {
    let options = options(vdisk);
    // What the files say of each other is only sure once nobody can change them any more: they are opened to know which
    // they are, locked, and opened again.
    let locks = locks(vdisk, &Image::open(&vdisk.path, options.clone())?)?;
    let image = Image::open(&vdisk.path, options)?;
    let info = image.info();
    // A disk in several files has no one file that tells when its contents change, and expanding clusters at every
    // device's every read helps nobody.
    anyhow::ensure!(
        matches!(info.format, Format::Raw | Format::Vhd | Format::Vhdx),
        "it is a {} image; devices are served from raw, VHD and VHDX images: convert it to VHDX",
        info.format
    );
    let fingerprint = fingerprint(&vdisk.path, &image)?;
    tracing::info!(
        vdisk = vdisk.name,
        file = %vdisk.path.display(),
        format = ?info.format,
        size = %info.virtual_size,
        files = image.layers().len(),
        log_replayed = info.log_replayed,
        "image opened"
    );
    Ok((GoldenImage { name: vdisk.name.clone(), device: Arc::new(image), fingerprint }, locks))
}

/// How a vDisk's image is opened: its parents lie in its store and nowhere else.
pub(super) fn options(vdisk: &Vdisk) -> OpenOptions {
    let format = vdisk.format.map(|format| match format {
        ImageFormat::Raw => Format::Raw,
        ImageFormat::Vhd => Format::Vhd,
        ImageFormat::Vhdx => Format::Vhdx,
    });
    let parents = vdisk.store.clone().map_or(Parents::Beside, Parents::In);
    OpenOptions { format, parents, ..OpenOptions::default() }
}

fn locks(vdisk: &Vdisk, image: &Image) -> anyhow::Result<Vec<ReadLock>> {
    let layers = image.layers();
    let paths = layers.iter().map(|layer| layer.path.as_deref().unwrap_or(&vdisk.path));
    paths.map(|path| Ok(ReadLock::take(path)?)).collect()
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
