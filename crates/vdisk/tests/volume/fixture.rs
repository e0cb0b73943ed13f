//! A directory with a write cache, images to put it on, and an observer that remembers.
use std::path::Path;
use std::sync::{Arc, Mutex};

use block::{
    Access, BlockDevice, BlockError, ByteLength, ByteOffset, ByteRange, LogicalBlockSize, MemoryDevice,
    Patience,
};
use vdisk::{
    BootId, CacheObserver, CacheUsage, FullCause, ImageFingerprint, OpenError, ResumeError, Volume,
    WriteCacheConfig,
};

pub(crate) const FINGERPRINT: ImageFingerprint = ImageFingerprint([7; 32]);
pub(crate) const CLUSTER: u64 = 4096;

/// Remembers what it was told.
#[derive(Debug, Default)]
pub(crate) struct Heard(Mutex<Vec<String>>);

impl Heard {
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl CacheObserver for Heard {
    fn warning(&self, device: &str, usage: CacheUsage) {
        self.0.lock().unwrap().push(format!("{device}: warning, {} of {}", usage.used, usage.limit));
    }

    fn full(&self, device: &str, usage: CacheUsage, cause: FullCause) {
        self.0.lock().unwrap().push(format!("{device}: full ({cause:?}), {} of {}", usage.used, usage.limit));
    }
}

/// What it takes to open volumes of one device.
#[derive(Clone, Debug)]
pub(crate) struct Fixture {
    pub(crate) image: Arc<dyn BlockDevice>,
    pub(crate) config: WriteCacheConfig,
    pub(crate) heard: Arc<Heard>,
}

impl Fixture {
    pub(crate) fn new(directory: &Path, image: Arc<dyn BlockDevice>) -> Self {
        let config = WriteCacheConfig {
            kind: vdisk::WriteCacheKind::Volatile,
            directory: directory.to_owned(),
            device: "lab-07".into(),
            limit: ByteLength::new(1 << 40),
            warn_percent: 80,
        };
        Self { image, config, heard: Arc::default() }
    }

    pub(crate) fn begin(&self, boot: &str) -> Result<Volume, OpenError> {
        let (image, observer) = (Arc::clone(&self.image), Arc::clone(&self.heard));
        Volume::begin_boot(image, FINGERPRINT, &self.config, boot_id(boot), observer)
    }

    pub(crate) fn resume(&self, boot: &str) -> Result<Volume, ResumeError> {
        let (image, observer) = (Arc::clone(&self.image), Arc::clone(&self.heard));
        Volume::resume(image, FINGERPRINT, &self.config, boot_id(boot), observer)
    }
}

pub(crate) fn boot_id(text: &str) -> BootId {
    BootId::new(text).unwrap()
}

/// An image that holds `bytes`.
pub(crate) fn image(bytes: Vec<u8>, block: LogicalBlockSize) -> Arc<dyn BlockDevice> {
    Arc::new(MemoryDevice::with_contents(bytes, block, Access::ReadOnly).unwrap())
}

pub(crate) fn range(at: u64, length: u64) -> ByteRange {
    ByteRange::new(ByteOffset::new(at), ByteLength::new(length)).unwrap()
}

/// Does it at once if that goes, else with waiting: as a front end does.
pub(crate) fn patiently(
    mut operation: impl FnMut(Patience) -> Result<(), BlockError>,
) -> Result<(), BlockError> {
    match operation(Patience::Now) {
        Err(BlockError::WouldBlock) => operation(Patience::Blocking),
        done => done,
    }
}

pub(crate) fn write(volume: &dyn BlockDevice, at: u64, data: &[u8]) -> Result<(), BlockError> {
    patiently(|patience| volume.write(ByteOffset::new(at), data, patience))
}

pub(crate) fn read(volume: &dyn BlockDevice, at: u64, length: usize) -> Result<Vec<u8>, BlockError> {
    let mut buffer = vec![0xEE; length];
    patiently(|patience| volume.read(ByteOffset::new(at), &mut buffer, patience))?;
    Ok(buffer)
}

pub(crate) fn discard(volume: &dyn BlockDevice, at: u64, length: u64) -> Result<(), BlockError> {
    patiently(|patience| volume.discard(range(at, length), patience))
}

pub(crate) fn write_zeroes(volume: &dyn BlockDevice, at: u64, length: u64) -> Result<(), BlockError> {
    patiently(|patience| volume.write_zeroes(range(at, length), patience))
}

/// An image of zeros of any size, which takes no memory.
#[derive(Debug)]
pub(crate) struct Zeros(pub(crate) block::Geometry);

impl Zeros {
    pub(crate) fn of_size(bytes: u64) -> Arc<dyn BlockDevice> {
        Arc::new(Self(block::Geometry {
            size: ByteLength::new(bytes),
            logical_block: LogicalBlockSize::B512,
            physical_block: 512,
            discard_granularity: None,
            access: Access::ReadOnly,
        }))
    }
}

impl BlockDevice for Zeros {
    fn geometry(&self) -> block::Geometry {
        self.0
    }

    fn read(&self, at: ByteOffset, buffer: &mut [u8], _: Patience) -> Result<(), BlockError> {
        self.0.check(at, ByteLength::of(buffer))?;
        buffer.fill(0);
        Ok(())
    }

    fn write(&self, _: ByteOffset, _: &[u8], _: Patience) -> Result<(), BlockError> {
        Err(BlockError::ReadOnly)
    }

    fn flush(&self, _: Patience) -> Result<(), BlockError> {
        Ok(())
    }

    fn discard(&self, _: ByteRange, _: Patience) -> Result<(), BlockError> {
        Err(BlockError::ReadOnly)
    }

    fn write_zeroes(&self, _: ByteRange, _: Patience) -> Result<(), BlockError> {
        Err(BlockError::ReadOnly)
    }
}
