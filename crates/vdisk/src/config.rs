//! Where a write cache lies and how large it may get.
use std::path::PathBuf;

use block::ByteLength;

use crate::identity::{MAX_DEVICE_BYTES, is_device_name};
use crate::kind::WriteCacheKind;

/// Ends the name of a write cache that is being made, behind that of its kind.
pub(crate) const HALF_MADE_SUFFIX: &str = ".new";

/// Where the write cache of a device lies, and how large it may get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteCacheConfig {
    /// Where it lies, and what it outlives.
    pub kind: WriteCacheKind,
    /// The directory of the write caches, on a local file system. It must exist, unless the kind needs none.
    pub directory: PathBuf,
    /// The device's name: 1 to 128 bytes, without `/` and control characters, not starting with a dot. The file is
    /// `<directory>/<device>.cache`, of a persistent one `<device>.persistent`.
    pub device: String,
    /// What the clusters of 4 KiB that hold data may take together.
    pub limit: ByteLength,
    /// The part of the limit, 1 to 100 percent, from which on the observer is warned.
    pub warn_percent: u8,
}

/// What [`WriteCacheConfig::warn_percent`] is where nothing is configured.
pub const DEFAULT_WARN_PERCENT: u8 = 80;

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum BadConfig {
    /// The device's name cannot be a file name.
    #[error(
        "the device's name {0:?} cannot name a file: that takes 1 to {MAX_DEVICE_BYTES} bytes without \"/\" and \
         control characters, not starting with a dot"
    )]
    Device(String),
    /// The warning level is not a percentage.
    #[error("the write cache's warning level of {0} % is not between 1 and 100 %")]
    WarnPercent(u8),
}

impl WriteCacheConfig {
    /// The write cache's file.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.directory.join(format!("{}{}", self.device, self.kind.suffix()))
    }

    pub(crate) fn half_made_path(&self) -> PathBuf {
        self.directory.join(format!("{}{}{HALF_MADE_SUFFIX}", self.device, self.kind.suffix()))
    }

    pub(crate) fn check(&self) -> Result<(), BadConfig> {
        if !is_device_name(&self.device) {
            return Err(BadConfig::Device(self.device.chars().take(MAX_DEVICE_BYTES).collect()));
        }
        if !(1..=100).contains(&self.warn_percent) {
            return Err(BadConfig::WarnPercent(self.warn_percent));
        }
        Ok(())
    }
}
