//! What a persistent write cache holds, read without a volume on it: to make a version of what a device wrote.
use block::{ByteLength, ByteOffset, ByteRange};

use crate::cluster::{ClusterRun, State};
use crate::config::WriteCacheConfig;
use crate::directory::{self, failed};
use crate::error::{FileError, OpenError};
use crate::file::CacheFile;
use crate::identity::HostBoot;
use crate::kind::WriteCacheKind;
use crate::persistent::{self, Kept};
use crate::presence::PresenceMap;

/// A device's persistent write cache, open for reading. As long as it is, no boot of the device can use it.
#[derive(Debug)]
pub struct StoredCache {
    file: CacheFile,
    map: PresenceMap,
    size: ByteLength,
    path: std::path::PathBuf,
}

/// What a write cache holds of a range of the disk, in place of what the image holds there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// What the device wrote.
    Data,
    /// Zeros: the device discarded it.
    Zeros,
}

impl StoredCache {
    /// Opens the device's persistent write cache; `None` where it has none. After a crash of the host, what was flushed
    /// counts, else everything, as at the device's next boot.
    ///
    /// # Errors
    /// [`OpenError::InUse`] while the device runs on it; [`OpenError::Damaged`]; [`OpenError::Io`].
    pub fn open(config: &WriteCacheConfig) -> Result<Option<Self>, OpenError> {
        config.check()?;
        let config = WriteCacheConfig { kind: WriteCacheKind::Persistent, ..config.clone() };
        let path = config.path();
        let Some(file) = directory::take(&config)? else { return Ok(None) };
        let host_boot = HostBoot::current().map_err(failed("reading the boot of the host for", &path))?;
        let (header, which) = persistent::stored(&file, &path, &config.device, host_boot)?;
        let Kept { map, .. } = Kept::load(&file, &path, &header, which)?;
        Ok(Some(Self { file, map, size: ByteLength::new(header.image.size_bytes), path }))
    }

    /// How large the device's disk is.
    #[must_use]
    pub fn size(&self) -> ByteLength {
        self.size
    }

    /// What the device has changed, in the order of the disk; everything else the image holds.
    pub fn changes(&self) -> impl Iterator<Item = (ByteRange, Held)> + '_ {
        let all = ClusterRun { start: 0, end: self.map.clusters() };
        self.map.runs(all).filter_map(|(state, run)| {
            let held = match state {
                State::Absent => return None,
                State::Data => Held::Data,
                State::Hole => Held::Zeros,
            };
            // The disk may end within its last cluster.
            let end = run.end_offset().min(self.size.get());
            let length = end.checked_sub(run.start_offset())?;
            Some((ByteRange::new(ByteOffset::new(run.start_offset()), ByteLength::new(length))?, held))
        })
    }

    /// Fills `buffer` with what the device wrote from `at` on: a part of a range that [`changes`](Self::changes) calls
    /// data.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn read(&self, at: ByteOffset, buffer: &mut [u8]) -> Result<(), FileError> {
        self.file.read(at.get(), buffer).map_err(failed("reading", &self.path))
    }
}
