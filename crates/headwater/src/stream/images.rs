//! The golden images: opened once, when the server starts, and shared by all devices.
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use block::BlockDevice;
use diskimage::{Format, Image, OpenOptions};
use vdisk::ImageFingerprint;

use crate::config::{ImageFormat, Vdisk};

/// An open image.
#[derive(Clone, Debug)]
pub struct GoldenImage {
    /// The vDisk's name.
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
}

impl Images {
    /// Opens every vDisk's image.
    ///
    /// # Errors
    /// The first that cannot be opened, with vDisk, file and reason.
    pub fn open(vdisks: &[Vdisk]) -> anyhow::Result<Self> {
        let mut by_name = HashMap::new();
        for vdisk in vdisks {
            let image = open(vdisk).with_context(|| {
                let (name, path) = (&vdisk.name, vdisk.path.display());
                format!("vDisk \"{name}\": its image {path} cannot be used")
            })?;
            by_name.insert(vdisk.name.clone(), image);
        }
        Ok(Self { by_name })
    }

    /// The names of all vDisks, in order.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.by_name.keys().cloned().collect();
        names.sort_unstable();
        names
    }

    /// The image of a vDisk.
    #[must_use]
    pub fn get(&self, vdisk: &str) -> Option<&GoldenImage> {
        self.by_name.get(vdisk)
    }
}

fn open(vdisk: &Vdisk) -> anyhow::Result<GoldenImage> {
    let format = vdisk.format.map(|format| match format {
        ImageFormat::Raw => Format::Raw,
        ImageFormat::Vhd => Format::Vhd,
        ImageFormat::Vhdx => Format::Vhdx,
    });
    let image = Image::open(&vdisk.path, OpenOptions { format, ..OpenOptions::default() })?;
    let info = image.info();
    // A disk in several files has no one file that tells when its contents change, and expanding clusters at every
    // device's every read helps nobody.
    anyhow::ensure!(
        matches!(info.format, Format::Raw | Format::Vhd | Format::Vhdx),
        "it is a {} image; devices are served from raw, VHD and VHDX images: convert it to VHDX",
        info.format
    );
    let fingerprint = fingerprint(&vdisk.path, image.identity())?;
    tracing::info!(
        vdisk = vdisk.name,
        file = %vdisk.path.display(),
        format = ?info.format,
        size = %info.virtual_size,
        log_replayed = info.log_replayed,
        "image opened"
    );
    Ok(GoldenImage { name: vdisk.name.clone(), device: Arc::new(image), fingerprint })
}

/// What changes whenever the contents do: the disk's own id, and the file's length and time of modification.
fn fingerprint(path: &Path, identity: Option<[u8; 16]>) -> std::io::Result<ImageFingerprint> {
    let file = std::fs::metadata(path)?;
    let modified_s = i128::from(file.mtime());
    let modified_ns = modified_s.saturating_mul(1_000_000_000).saturating_add(i128::from(file.mtime_nsec()));
    #[allow(clippy::cast_possible_truncation, reason = "the low 64 bits tell times apart for centuries")]
    let modified = (modified_ns as u64).to_be_bytes();
    let parts = identity.unwrap_or_default().into_iter().chain(file.len().to_be_bytes()).chain(modified);
    let mut bytes = [0; 32];
    bytes.iter_mut().zip(parts).for_each(|(byte, part)| *byte = part);
    Ok(ImageFingerprint(bytes))
}
