//! How the disk of a boot is opened: with a write cache begun anew or found again, or as an image that the device writes.
use std::sync::Arc;

use block::{BlockDevice, ByteLength};
use farm::model::WriteCache;
use farm::rules::entitlement::Writes;
use scsi::LogicalUnit;
use vdisk::{
    BootId, CacheObserver, CacheUsage, FullCause, OpenError, ResumeError, Volume, WriteCacheConfig,
    WriteCacheKind,
};

use super::{Attached, Decide, DeviceSlot, Disk, NotOpened, OpenDisk, Opened, Workshop};
use crate::stream::boot_disk::BootDisk;
use crate::stream::images::GoldenImage;
use crate::stream::mark::Marks;
use crate::stream::names::unit_identity;
use crate::stream::private::PrivateImage;

impl DeviceSlot {
    /// Begins a boot: the write cache is discarded.
    pub(super) fn begin(
        &self,
        disk: &mut Disk,
        boot: BootId,
        decide: &Decide<'_>,
    ) -> Result<Opened, NotOpened> {
        let wanted = decide(self.picked(&boot)).map_err(|why| self.refused(&boot, why))?;
        if let Some(old) = disk.open.take() {
            // Its sessions may still be there; they must not write any more.
            self.end(&old);
        }
        self.lease(&wanted, true).map_err(|why| self.refused(&boot, why))?;
        let attached = match wanted.writes {
            Writes::Cache(cache) => {
                let image = self.golden(&wanted)?;
                let config = self.write_cache(cache);
                Attached::Cached(Arc::new(self.begin_cache(&image, &config, &boot)?))
            }
            Writes::Maintenance | Writes::Private => self.attach(&wanted)?,
        };
        {
            let mut state = self.state();
            state.handed_out.retain(|id| id.as_str() > boot.as_str());
            state.picked.retain(|id, _| id.as_str() > boot.as_str());
            state.current = Some(boot.as_str().to_owned());
            state.disk = Some(wanted.clone());
            state.unsettled = wanted.is_written();
        }
        if let Err(error) = self.save_state() {
            let device = self.name.as_str();
            tracing::error!(device, %error, "cannot remember the device's boot; it is refused");
            attached.abandon();
            self.state().current = None;
            return Err(NotOpened::Unavailable("the server cannot store its state".to_owned()));
        }
        Ok(self.keep(disk, boot, wanted, attached, true))
    }

    fn begin_cache(
        &self,
        image: &Arc<GoldenImage>,
        config: &WriteCacheConfig,
        boot: &BootId,
    ) -> Result<Volume, NotOpened> {
        // A server that died between beginning the boot and remembering it has left the write cache of this very boot,
        // maybe with the device's writes. Whatever it says otherwise, it is to be discarded.
        let stored = vdisk::stored_boot(config).ok().flatten();
        let (image, mark) = (Arc::clone(image) as Arc<dyn BlockDevice>, image.fingerprint);
        if stored.as_ref() == Some(boot) {
            Volume::resume(image, mark, config, boot.clone(), self.observer())
                .map_err(|error| self.lost(boot, &error))
        } else {
            Volume::begin_boot(image, mark, config, boot.clone(), self.observer())
                .map_err(|error| self.closed(&error))
        }
    }

    /// Goes on with a boot: with the open disk, or with what an earlier server process has left.
    pub(super) fn go_on(
        &self,
        disk: &mut Disk,
        boot: BootId,
        decide: &Decide<'_>,
    ) -> Result<Opened, NotOpened> {
        if let Some(open) = disk.open.as_ref().filter(|open| open.boot == boot) {
            return Ok(open.opened(false));
        }
        let wanted = self.remembered(decide)?;
        self.lease(&wanted, false).map_err(|why| self.refused(&boot, why))?;
        let attached = match wanted.writes {
            Writes::Cache(cache) => {
                let image = self.golden(&wanted)?;
                let mark = image.fingerprint;
                let config = self.write_cache(cache);
                let volume = Volume::resume(image, mark, &config, boot.clone(), self.observer())
                    .map_err(|error| self.lost(&boot, &error))?;
                Attached::Cached(Arc::new(volume))
            }
            Writes::Maintenance | Writes::Private => self.attach_again(&wanted, &boot)?,
        };
        tracing::info!(
            device = self.name.as_str(),
            boot = boot.as_str(),
            "disk of a running boot opened again"
        );
        Ok(self.keep(disk, boot, wanted, attached, false))
    }

    /// What the current boot runs on. One that began before that was remembered runs on what it would boot now.
    pub(super) fn remembered(&self, decide: &Decide<'_>) -> Result<BootDisk, NotOpened> {
        let remembered = self.state().disk.clone();
        remembered.map_or_else(|| decide(None).map_err(NotOpened::Unavailable), Ok)
    }

    fn lease(&self, wanted: &BootDisk, begins: bool) -> Result<(), String> {
        let Workshop { leases, farm, .. } = &*self.workshop;
        let server = farm.server();
        leases.take(self.id, wanted.wanted(self.id), |change| wanted.check(change, self.id, server, begins))
    }

    pub(super) fn golden(&self, wanted: &BootDisk) -> Result<Arc<GoldenImage>, NotOpened> {
        let image = self.workshop.images.open(&wanted.image, &self.marks(wanted));
        image.map_err(|error| self.no_image(wanted, &error))
    }

    fn attach(&self, wanted: &BootDisk) -> Result<Attached, NotOpened> {
        let image = PrivateImage::open(&wanted.image, &self.marks(wanted));
        let image = Arc::new(image.map_err(|error| self.no_image(wanted, &error))?);
        let private = image.attach();
        let private = private.ok_or_else(|| NotOpened::Unavailable("the server is stopping".to_owned()))?;
        Ok(Attached::Written(Arc::new(private), image))
    }

    /// The image that a device writes for a boot that an earlier server process served: only if that has closed it.
    fn attach_again(&self, wanted: &BootDisk, boot: &BootId) -> Result<Attached, NotOpened> {
        if self.state().unsettled {
            let device = self.name.as_str();
            let text = "the server ended before it had stored all that the boot wrote to its private image";
            tracing::error!(
                device,
                boot = boot.as_str(),
                "{text}: restart the device (one whose initiator is configured by hand also needs: headwater device reset {device})"
            );
            return Err(NotOpened::Unavailable(text.to_owned()));
        }
        let attached = self.attach(wanted)?;
        if !self.set_unsettled(true) {
            attached.abandon();
            return Err(NotOpened::Unavailable("the server cannot store its state".to_owned()));
        }
        Ok(attached)
    }

    /// What the catalogue says of the files below this disk.
    fn marks(&self, wanted: &BootDisk) -> Marks {
        let snapshot = self.workshop.farm.snapshot();
        snapshot.vdisk(wanted.vdisk).map(|facts| Marks::of(&facts.versions)).unwrap_or_default()
    }

    fn write_cache(&self, cache: WriteCache) -> WriteCacheConfig {
        WriteCacheConfig {
            kind: match cache.kind {
                farm::model::WriteCacheKind::ServerDisk => WriteCacheKind::Volatile,
                farm::model::WriteCacheKind::ServerDiskPersistent => WriteCacheKind::Persistent,
                farm::model::WriteCacheKind::ServerMemory => {
                    WriteCacheKind::Memory(Arc::clone(&self.workshop.memory))
                }
            },
            directory: self.workshop.cache_directory.clone(),
            device: self.name.to_string(),
            limit: ByteLength::new(cache.limit.bytes()),
            warn_percent: cache.warn_at.get(),
        }
    }

    /// Remembers whether a private image may lack what its device wrote; `false` where that cannot be stored.
    pub(super) fn set_unsettled(&self, unsettled: bool) -> bool {
        self.state().unsettled = unsettled;
        let saved = self.save_state();
        if let Err(error) = &saved {
            tracing::error!(device = self.name.as_str(), %error, "cannot remember how the private image is");
        }
        saved.is_ok()
    }

    fn keep(
        &self,
        disk: &mut Disk,
        boot: BootId,
        wanted: BootDisk,
        attached: Attached,
        began: bool,
    ) -> Opened {
        let unit = LogicalUnit::new(attached.device(), unit_identity(&self.name, &wanted.name));
        disk.open.insert(OpenDisk { boot, disk: wanted, attached, unit: Arc::new(unit) }).opened(began)
    }

    /// The refusal of a boot that the rules are against.
    fn refused(&self, boot: &BootId, why: String) -> NotOpened {
        tracing::warn!(device = self.name.as_str(), boot = boot.as_str(), why, "the device cannot boot");
        NotOpened::Unavailable(why)
    }

    /// The refusal of a boot whose image cannot be used.
    pub(super) fn no_image(&self, wanted: &BootDisk, error: &anyhow::Error) -> NotOpened {
        let text = format!("version {} of vDisk {}: {error:#}", wanted.number, wanted.name);
        tracing::error!(device = self.name.as_str(), error = text, "no image for the device");
        NotOpened::Unavailable(text)
    }

    fn observer(&self) -> Arc<dyn CacheObserver> {
        Arc::new(CacheLog)
    }

    /// The refusal for a boot that cannot begin.
    fn closed(&self, error: &OpenError) -> NotOpened {
        let (device, text) = (self.name.as_str(), describe(error));
        match error {
            OpenError::ImageChanged { .. } | OpenError::Damaged { .. } => tracing::error!(
                device,
                error = text,
                "no write cache for the device; what discards it: headwater device reset {device} --discard-persistent"
            ),
            _ => tracing::error!(device, error = text, "no write cache for the device"),
        }
        NotOpened::Unavailable(text)
    }

    /// The refusal for a boot that cannot go on.
    fn lost(&self, boot: &BootId, error: &ResumeError) -> NotOpened {
        let (device, text) = (self.name.as_str(), describe(error));
        match error {
            ResumeError::Config(_) | ResumeError::InUse(_) | ResumeError::Io(_) => {
                tracing::error!(
                    device,
                    boot = boot.as_str(),
                    error = text,
                    "write cache cannot be opened now"
                );
            }
            ResumeError::NoCache { .. }
            | ResumeError::NotKept { .. }
            | ResumeError::OtherBoot(_)
            | ResumeError::Lost { .. }
            | ResumeError::ImageChanged { .. }
            | ResumeError::Damaged { .. } => {
                tracing::error!(
                    device,
                    boot = boot.as_str(),
                    error = text,
                    "the write cache of a running boot is lost: restart the device (one whose initiator is configured by \
                     hand also needs: headwater device reset {device})"
                );
            }
        }
        NotOpened::Unavailable(text)
    }
}

/// Logs what a write cache reports.
#[derive(Debug)]
struct CacheLog;

impl CacheObserver for CacheLog {
    fn warning(&self, device: &str, usage: CacheUsage) {
        let (used, limit) = (usage.used, usage.limit);
        tracing::warn!(device, %used, %limit, "write cache nearly full");
    }

    fn full(&self, device: &str, usage: CacheUsage, cause: FullCause) {
        let (used, limit) = (usage.used, usage.limit);
        match cause {
            FullCause::Limit => {
                tracing::error!(device, %used, %limit, "write cache full: the device's writes fail");
            }
            FullCause::FileSystem => tracing::error!(
                device, %used, %limit,
                "the file system under the write cache is full before its limit: the device's writes fail"
            ),
            FullCause::Memory => tracing::error!(
                device, %used, %limit,
                "all write caches in memory together have reached memory_limit: the device's writes fail"
            ),
        }
    }
}

/// An error with its sources.
pub(super) fn describe(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}
