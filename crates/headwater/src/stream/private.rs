//! A private image: a vDisk, or a version under maintenance, that one device writes itself, without a write cache.
//!
//! The image is open for writing as long as a boot of the device has it, and locked: nobody else reads or changes it. Each
//! boot gets a [`PrivateUse`] of it, which ends with the boot, so that what an earlier one has still under way cannot reach
//! the disk of the next. A version under maintenance is such an image too.
//!
//! What a flush has acknowledged survives anything; what came after it lies partly in this process's memory. A device that
//! runs must not go on with a disk that lost writes without its knowledge: after a server that ended without
//! [closing](PrivateImage::close) the image, [`device`](super::device) refuses the boot that ran, and a new one begins.
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, TryLockError};

use anyhow::Context;
use block::{Allocation, BlockDevice, BlockError, ByteLength, ByteOffset, ByteRange, Geometry, Patience};
use diskimage::chain::Store;
use diskimage::storage::ReadLock;
use diskimage::{Image, MutableImage};

use super::images::ImageAt;
use super::mark::{self, Marks};
use crate::config::ImageFormat;

/// An image that one device writes.
#[derive(Debug)]
pub struct PrivateImage {
    geometry: Geometry,
    image: Mutex<Option<Arc<MutableImage>>>,
    /// Of its parents.
    _locks: Vec<ReadLock>,
}

impl PrivateImage {
    /// Opens an image for writing.
    ///
    /// # Errors
    /// It is damaged, in use, or the parent of another; or one below it is not what its mark says.
    pub fn open(at: &ImageAt, marks: &Marks) -> anyhow::Result<Self> {
        let options = at.options();
        let parent = match at.format {
            Some(ImageFormat::Raw) => None,
            _ => Image::open_parent_of(&at.path, options.clone())?,
        };
        let layers = parent.as_ref().map(Image::layers).unwrap_or_default();
        let paths = layers.iter().filter_map(|layer| layer.path.as_deref());
        let locks = paths.map(ReadLock::take).collect::<Result<_, _>>()?;
        if let Some(parent) = &parent {
            mark::check(parent, marks)?;
        }
        let store = match &at.store {
            Some(root) => Store::open(root),
            None => Store::around(&at.path),
        };
        let parent = parent.map(|parent| Arc::new(parent) as Arc<dyn BlockDevice>);
        let image = MutableImage::open(&at.path, options.format, parent, &store?)?;
        tracing::info!(file = %at.path.display(), "image opened for writing");
        Ok(Self { geometry: image.geometry(), image: Mutex::new(Some(Arc::new(image))), _locks: locks })
    }

    /// What the disk is like.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The disk for one boot; `None` once it is closed.
    #[must_use]
    pub fn attach(&self) -> Option<PrivateUse> {
        let image = self.image().clone()?;
        Some(PrivateUse { geometry: self.geometry, image: RwLock::new(Some(image)) })
    }

    /// Writes what is in memory and leaves the file as one that nobody has to repair. All uses must have ended.
    ///
    /// # Errors
    /// What could not be written.
    pub fn close(&self) -> anyhow::Result<()> {
        let Some(image) = self.image().take() else { return Ok(()) };
        let image = Arc::into_inner(image).context("it is still in use")?;
        image.close().context("it cannot be written")
    }

    fn image(&self) -> MutexGuard<'_, Option<Arc<MutableImage>>> {
        self.image.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A private image, as long as one boot has it.
#[derive(Debug)]
pub struct PrivateUse {
    geometry: Geometry,
    image: RwLock<Option<Arc<MutableImage>>>,
}

impl PrivateUse {
    /// Ends it: waits for requests under way, and refuses those that come later with [`BlockError::Closed`].
    pub fn end(&self) {
        drop(self.image.write().unwrap_or_else(PoisonError::into_inner).take());
    }

    fn with<T>(
        &self,
        patience: Patience,
        work: impl FnOnce(&MutableImage) -> Result<T, BlockError>,
    ) -> Result<T, BlockError> {
        let image = match patience {
            Patience::Blocking => self.image.read().unwrap_or_else(PoisonError::into_inner),
            Patience::Now => match self.image.try_read() {
                Ok(image) => image,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return Err(BlockError::WouldBlock),
            },
        };
        image.as_deref().map_or(Err(BlockError::Closed), work)
    }
}

impl BlockDevice for PrivateUse {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn read(&self, at: ByteOffset, buffer: &mut [u8], patience: Patience) -> Result<(), BlockError> {
        self.with(patience, |image| image.read(at, buffer, patience))
    }

    fn write(&self, at: ByteOffset, data: &[u8], patience: Patience) -> Result<(), BlockError> {
        self.with(patience, |image| image.write(at, data, patience))
    }

    fn flush(&self, patience: Patience) -> Result<(), BlockError> {
        self.with(patience, |image| image.flush(patience))
    }

    fn discard(&self, range: ByteRange, patience: Patience) -> Result<(), BlockError> {
        self.with(patience, |image| image.discard(range, patience))
    }

    fn write_zeroes(&self, range: ByteRange, patience: Patience) -> Result<(), BlockError> {
        self.with(patience, |image| image.write_zeroes(range, patience))
    }

    fn allocation(
        &self,
        range: ByteRange,
        patience: Patience,
    ) -> Result<(Allocation, ByteLength), BlockError> {
        self.with(patience, |image| image.allocation(range, patience))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn raw(path: &Path, size_bytes: u64) -> PrivateImage {
        std::fs::File::create(path).unwrap().set_len(size_bytes).unwrap();
        let at = ImageAt { path: path.to_owned(), store: None, format: Some(ImageFormat::Raw) };
        PrivateImage::open(&at, &Marks::default()).unwrap()
    }

    #[test]
    fn private_image_keeps_the_contract_of_a_block_device() {
        let directory = tempfile::tempdir().unwrap();
        let number = std::cell::Cell::new(0);
        block::conformance::writable(&|| {
            number.set(number.get() + 1);
            let image = raw(&directory.path().join(format!("{}.raw", number.get())), 4 << 20);
            Box::new(image.attach().unwrap())
        });
    }

    #[test]
    fn use_that_has_ended_is_closed_and_the_next_sees_what_it_wrote() {
        let directory = tempfile::tempdir().unwrap();
        let image = raw(&directory.path().join("own.raw"), 1 << 20);
        let (first, block) = (image.attach().unwrap(), [7; 512]);
        first.write(ByteOffset::ZERO, &block, Patience::Blocking).unwrap();
        assert!(image.close().is_err(), "closed while in use");
        let image = raw(&directory.path().join("other.raw"), 1 << 20);
        let first = image.attach().unwrap();
        first.write(ByteOffset::ZERO, &block, Patience::Blocking).unwrap();
        first.end();
        for patience in [Patience::Now, Patience::Blocking] {
            let late = first.write(ByteOffset::ZERO, &[8; 512], patience);
            assert!(matches!(late, Err(BlockError::Closed)), "{late:?}");
        }
        let (second, mut read) = (image.attach().unwrap(), [0; 512]);
        second.read(ByteOffset::ZERO, &mut read, Patience::Blocking).unwrap();
        assert_eq!(read, block);
        second.end();
        image.close().unwrap();
        assert!(image.attach().is_none());
    }
}
