//! One device: which of its boots counts, and the disk of that boot.
mod decision;
mod opening;

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use block::{BlockDevice, ByteLength, Geometry};
use diskimage::Image;
use farm::model::{DeviceId, VersionId};
use iscsi::directory::IscsiName;
use scsi::LogicalUnit;
use vdisk::{BootId, CacheUsage, MemoryBudget, Volume, WriteCacheConfig, WriteCacheKind};

use self::decision::{Decision, decide};
use self::opening::describe;
use super::boot_disk::BootDisk;
use super::images::Images;
use super::menu::Picked;
use super::private::{PrivateImage, PrivateUse};
use crate::catalogue::FarmLink;
use crate::catalogue::leases::Leases;
use crate::config::DeviceName;
use crate::state::{DeviceState, DeviceStates};

/// The most scripts that are remembered as handed out and not used: a machine that fetches script after script
/// without logging in loses the oldest.
const MAX_HANDED_OUT: usize = 8;

/// How long the disk of a device that writes its vDisk itself stays open without a session: whoever promotes the version
/// waits as long. A device that comes back later opens it again, if it is still there to be had.
pub const WRITER_RESTS_AFTER: Duration = Duration::from_secs(20);

/// How long the disk of any other device stays open without a session, and its version in use.
pub const READER_RESTS_AFTER: Duration = Duration::from_secs(15 * 60);

/// Ends the use of a boot's disk. Implemented by the servers.
pub trait SessionEnder: Send + Sync {
    /// Ends the NBD connections that use this disk, without waiting: nothing more is read or written through it.
    fn end_disk(&self, disk: &Arc<dyn BlockDevice>);

    /// Ends them, and waits a while until none of their requests runs any more.
    fn end_target(&self, name: &IscsiName);
}

/// What all devices' disks are made with.
#[derive(Debug)]
pub struct Workshop {
    /// The farm.
    pub farm: Arc<FarmLink>,
    /// The open images.
    pub images: Images,
    /// The devices' leases.
    pub leases: Leases,
    /// What is remembered of devices.
    pub states: DeviceStates,
    /// What all write caches in memory may take together.
    pub memory: Arc<MemoryBudget>,
    /// Where write caches lie.
    pub cache_directory: PathBuf,
}

/// One device at run time.
pub struct DeviceSlot {
    /// Names it in the catalogue.
    pub id: DeviceId,
    /// Its name.
    pub name: DeviceName,
    workshop: Arc<Workshop>,
    /// Locked for moments.
    state: Mutex<DeviceState>,
    /// Held while the state's file is written, so that the last state is the last one written.
    saving: Mutex<()>,
    /// Held while the disk is opened.
    disk: Mutex<Disk>,
}

/// The disk of one boot, with what keeps it open.
#[derive(Clone)]
enum Attached {
    Cached(Arc<Volume>),
    Written(Arc<PrivateUse>, Arc<PrivateImage>),
}

impl Attached {
    fn device(&self) -> Arc<dyn BlockDevice> {
        match self {
            Self::Cached(volume) => Arc::clone(volume) as _,
            Self::Written(private, _) => Arc::clone(private) as _,
        }
    }

    /// Lets nothing more be written through it.
    fn abandon(&self) {
        match self {
            Self::Cached(volume) => volume.abandon(),
            Self::Written(private, _) => private.end(),
        }
    }
}

/// The disk of the current boot.
#[derive(Default)]
struct Disk {
    open: Option<OpenDisk>,
    /// The targets that have been granted for it.
    granted: BTreeSet<IscsiName>,
    /// Since when it is open without a session.
    idle_since: Option<Instant>,
}

impl Disk {
    /// What is left of the use of `old`, which is open no more.
    fn past(&mut self, old: Option<OpenDisk>) -> Past {
        let targets = std::mem::take(&mut self.granted).into_iter().collect();
        Past { targets, disk: old.map(|old| old.attached.device()) }
    }
}

/// Who may still be connected to a disk that nothing is read or written through any more.
#[must_use]
pub struct Past {
    targets: Vec<IscsiName>,
    disk: Option<Arc<dyn BlockDevice>>,
}

impl Past {
    /// Ends their sessions and connections.
    pub fn end(&self, ender: Option<&dyn SessionEnder>) {
        let Some(ender) = ender else { return };
        if let Some(disk) = &self.disk {
            ender.end_disk(disk);
        }
        self.targets.iter().for_each(|target| ender.end_target(target));
    }
}

struct OpenDisk {
    boot: BootId,
    disk: BootDisk,
    attached: Attached,
    unit: Arc<LogicalUnit>,
}

impl OpenDisk {
    fn opened(&self, began: bool) -> Opened {
        let (device, unit) = (self.attached.device(), Arc::clone(&self.unit));
        Opened { boot: self.boot.clone(), disk: self.disk.clone(), device, unit, began }
    }
}

/// What a device runs on.
#[derive(Clone, Debug)]
pub struct Running {
    /// The device.
    pub device: DeviceName,
    /// Its boot.
    pub boot: BootId,
    /// The version, and since when.
    pub disk: BootDisk,
    /// The size of the disk in bytes.
    pub disk_bytes: u64,
    /// How full its write cache is, where it has one.
    pub write_cache: Option<CacheUsage>,
}

/// Says what a boot that begins now runs on, for which this was chosen.
pub type Decide<'a> = dyn Fn(Option<Picked>) -> Result<BootDisk, String> + 'a;

/// What a login is about.
#[derive(Clone, Copy)]
pub struct Wish<'a> {
    /// The boot that it names; `None`: the current one.
    pub boot: Option<&'a BootId>,
    /// The iSCSI target that the disk is used as; NBD has none.
    pub target: Option<&'a IscsiName>,
    /// The id of a boot that may begin now.
    pub fresh: &'a BootId,
    /// Says what a boot that begins now runs on.
    pub decide: &'a Decide<'a>,
}

/// What a login gets.
#[derive(Clone)]
pub struct Opened {
    /// The boot that it belongs to.
    pub boot: BootId,
    /// What that runs on.
    pub disk: BootDisk,
    /// The disk.
    pub device: Arc<dyn BlockDevice>,
    /// The disk as SCSI shows it.
    pub unit: Arc<LogicalUnit>,
    /// Whether the boot began with this login.
    pub began: bool,
}

/// Why a disk is not opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotOpened {
    /// A later boot of the device has replaced this one.
    Removed(String),
    /// There never was such a boot, or it has been forgotten.
    Unknown(String),
    /// It cannot be had now.
    Unavailable(String),
}

/// A decision that lets in.
enum Settled {
    Continue(BootId),
    Begin(BootId),
}

impl DeviceSlot {
    /// A device with what is remembered of it.
    ///
    /// # Errors
    /// Its state file cannot be read.
    pub fn new(id: DeviceId, name: DeviceName, workshop: Arc<Workshop>) -> std::io::Result<Self> {
        let state = workshop.states.load(&name)?;
        let (state, saving, disk) = (Mutex::new(state), Mutex::default(), Mutex::default());
        Ok(Self { id, name, workshop, state, saving, disk })
    }

    /// Remembers a boot whose script is being handed out, and what was chosen for it. Quick:
    /// [`save_state`](Self::save_state) follows.
    pub fn hand_out(&self, boot: &BootId, picked: Option<Picked>) {
        let mut state = self.state();
        if state.handed_out.len() >= MAX_HANDED_OUT {
            let oldest = state.handed_out.remove(0);
            state.picked.remove(&oldest);
        }
        if let Some(picked) = picked {
            state.picked.insert(boot.as_str().to_owned(), picked);
        }
        state.handed_out.push(boot.as_str().to_owned());
    }

    /// Whether this boot is the device's current one, or may still become it.
    #[must_use]
    pub fn counts(&self, boot: &BootId) -> bool {
        let state = self.state();
        state.current.as_deref() == Some(boot.as_str())
            || state.handed_out.iter().any(|id| id == boot.as_str())
    }

    /// What this boot runs on, once it has begun.
    #[must_use]
    pub fn disk_of(&self, boot: &BootId) -> Option<BootDisk> {
        let state = self.state();
        state.disk.clone().filter(|_| state.current.as_deref() == Some(boot.as_str()))
    }

    /// Whether this boot has been told its secrets.
    #[must_use]
    pub fn secrets_told(&self, boot: &str) -> bool {
        self.state().secrets_told.as_deref() == Some(boot)
    }

    /// Remembers, beyond a crash, that this boot is told its secrets; `false` where it has been told before.
    ///
    /// # Errors
    /// What is remembered could not be written: nothing may be told.
    pub fn tell_secrets(&self, boot: &BootId) -> std::io::Result<bool> {
        let before = {
            let mut state = self.state();
            if state.secrets_told.as_deref() == Some(boot.as_str()) {
                return Ok(false);
            }
            state.secrets_told.replace(boot.as_str().to_owned())
        };
        self.save_state().inspect_err(|_| self.state().secrets_told = before)?;
        Ok(true)
    }

    /// Writes what is remembered.
    ///
    /// # Errors
    /// What the operating system said.
    pub fn save_state(&self) -> std::io::Result<()> {
        let _last_wins = self.saving.lock().unwrap_or_else(PoisonError::into_inner);
        let state = self.state().clone();
        self.workshop.states.save(&self.name, &state)
    }

    /// The disk for whoever comes to use it. May wait for storage and for the catalogue.
    ///
    /// # Errors
    /// Why there is none.
    pub fn open(&self, wish: &Wish<'_>, ender: Option<&dyn SessionEnder>) -> Result<Opened, NotOpened> {
        let mut disk = self.disk();
        disk.idle_since = None;
        let decision = decide(&self.state(), wish.boot, wish.fresh);
        let before = disk.open.as_ref().map(|open| open.attached.device());
        let opened = match self.settle(decision)? {
            Settled::Continue(boot) => self.go_on(&mut disk, boot, wish.decide)?,
            Settled::Begin(boot) => self.begin(&mut disk, boot, wish.decide)?,
        };
        // One machine, one disk: sessions under the device's other names are those of its past.
        let others: Vec<IscsiName> =
            disk.granted.iter().filter(|other| Some(*other) != wish.target).cloned().collect();
        disk.granted = wish.target.cloned().into_iter().collect();
        let disk = before.filter(|_| opened.began);
        Past { targets: others, disk }.end(ender);
        Ok(opened)
    }

    /// What the disk of this boot is like, were it to be [opened](Self::open). Nothing begins by it. May wait for storage.
    ///
    /// # Errors
    /// Why it would not be.
    pub fn look(&self, wish: &Wish<'_>) -> Result<(Geometry, BootDisk), NotOpened> {
        let disk = self.disk();
        let decision = decide(&self.state(), wish.boot, wish.fresh);
        let wanted = match self.settle(decision)? {
            Settled::Continue(boot) => {
                if let Some(open) = disk.open.as_ref().filter(|open| open.boot == boot) {
                    return Ok((open.attached.device().geometry(), open.disk.clone()));
                }
                self.remembered(wish.decide)?
            }
            Settled::Begin(boot) => (wish.decide)(self.picked(&boot)).map_err(NotOpened::Unavailable)?,
        };
        if !wanted.is_written() {
            return Ok((Volume::geometry_on(&*self.golden(&wanted)?), wanted));
        }
        match Image::open(&wanted.image.path, wanted.image.options()) {
            Ok(image) => Ok((image.geometry(), wanted)),
            Err(error) => Err(self.no_image(&wanted, &error.into())),
        }
    }

    /// A decision as what to do, or why not.
    fn settle(&self, decision: Decision) -> Result<Settled, NotOpened> {
        let device = &self.name;
        match decision {
            Decision::Continue(boot) => Ok(Settled::Continue(boot)),
            Decision::Begin(boot) => Ok(Settled::Begin(boot)),
            Decision::Removed(by) => {
                Err(NotOpened::Removed(format!("boot {by} of device \"{device}\" has replaced it")))
            }
            Decision::Unknown => {
                Err(NotOpened::Unknown(format!("device \"{device}\" has no such boot; restart it")))
            }
        }
    }

    /// Forgets the current boot: the next login under the plain name begins another. Gives what must be ended.
    ///
    /// # Errors
    /// What is remembered could not be written.
    pub fn reset(&self) -> std::io::Result<Past> {
        let mut disk = self.disk();
        let old = disk.open.take();
        if let Some(old) = &old {
            self.end(old);
        }
        self.workshop.leases.give_back(self.id);
        {
            let mut state = self.state();
            (state.current, state.disk) = (None, None);
        }
        self.save_state()?;
        Ok(disk.past(old))
    }

    /// Lets nothing more be read or written, since the device may not use its version any longer. The boot is not forgotten,
    /// but goes on only if its lease can be had again. Gives what must be ended.
    pub fn fence_off(&self) -> Past {
        let mut disk = self.disk();
        let old = disk.open.take();
        if let Some(old) = &old {
            self.end(old);
        }
        disk.past(old)
    }

    /// Removes the device's persistent write cache, which no boot may be using: the next one begins with an empty one.
    ///
    /// # Errors
    /// It is in use, or cannot be removed; in words.
    pub fn discard_persistent(&self) -> std::io::Result<()> {
        let _disk = self.disk();
        let write_cache = WriteCacheConfig {
            kind: WriteCacheKind::Persistent,
            directory: self.workshop.cache_directory.clone(),
            device: self.name.to_string(),
            limit: ByteLength::new(0),
            warn_percent: vdisk::DEFAULT_WARN_PERCENT,
        };
        vdisk::discard_persistent(&write_cache).map_err(|error| std::io::Error::other(describe(&error)))?;
        let forgotten = self.workshop.farm.change(|change| {
            // All of them: there is one file for each device.
            let of_device = farm::catalogue::ListQuery {
                filter: farm::filter::Filter::equal("device-id", self.id),
                limit: farm::catalogue::MAX_PAGE,
                ..farm::catalogue::ListQuery::default()
            };
            let caches = change.list::<farm::model::PersistentCache>(&of_device)?;
            caches.items.iter().try_for_each(|cache| change.delete(cache.id, cache.revision))
        });
        forgotten.map_err(std::io::Error::other)
    }

    /// How full the write cache is; `None` while it is not open. Does not wait for an opening.
    #[must_use]
    pub fn usage(&self) -> Option<CacheUsage> {
        self.running()?.write_cache
    }

    /// What it runs on; `None` where its disk is not open. Does not wait for an opening.
    #[must_use]
    pub fn running(&self) -> Option<Running> {
        let disk = self.disk.try_lock().ok()?;
        let open = disk.open.as_ref()?;
        let write_cache = match &open.attached {
            Attached::Cached(volume) => Some(volume.usage()),
            Attached::Written(..) => None,
        };
        let (device, boot, disk) = (self.name.clone(), open.boot.clone(), open.disk.clone());
        let disk_bytes = open.attached.device().geometry().size.get();
        Some(Running { device, boot, disk, disk_bytes, write_cache })
    }

    /// The disk that it writes itself, where it is open and of this version: nobody else can open it meanwhile.
    #[must_use]
    pub fn written_disk(&self, version: VersionId) -> Option<Arc<dyn BlockDevice>> {
        let disk = self.disk();
        let open =
            disk.open.as_ref().filter(|open| open.disk.is_written() && open.disk.version == version)?;
        Some(open.attached.device())
    }

    /// Makes what the device wrote last, so that the boot can go on after a restart of server and host. Nobody opens the
    /// disk afterwards. Its lease stands until it ends by itself, so that nobody takes the version away meanwhile.
    pub fn close(&self) {
        if let Some(open) = self.disk().open.take() {
            self.put_away(&open);
        }
    }

    /// Closes the disk of a device that has had no session for long enough, and gives its lease back. Whether it did.
    pub fn rest(&self, has_session: bool, now: Instant) -> bool {
        // One that is being opened does not rest.
        let Ok(mut disk) = self.disk.try_lock() else { return false };
        let Some(open) = disk.open.as_ref().filter(|open| !has_session && !open.disk.is_in_memory()) else {
            disk.idle_since = None;
            return false;
        };
        let after = if open.disk.is_written() { WRITER_RESTS_AFTER } else { READER_RESTS_AFTER };
        let since = *disk.idle_since.get_or_insert(now);
        if now.saturating_duration_since(since) < after {
            return false;
        }
        if let Some(open) = disk.open.take() {
            self.put_away(&open);
        }
        self.workshop.leases.give_back(self.id);
        true
    }

    /// Ends a disk whose boot has ended: what the device still wants to write does not count.
    fn end(&self, open: &OpenDisk) {
        open.attached.abandon();
        if let Attached::Written(_, image) = &open.attached {
            self.close_image(image);
        }
    }

    /// Makes what a device wrote last.
    fn put_away(&self, open: &OpenDisk) {
        let device = self.name.as_str();
        match &open.attached {
            Attached::Written(private, image) => {
                private.end();
                self.close_image(image);
            }
            Attached::Cached(volume) => {
                if let Err(error) = volume.close() {
                    tracing::error!(device, error = describe(&error), "write cache not closed cleanly");
                }
            }
        }
    }

    fn close_image(&self, image: &PrivateImage) {
        match image.close() {
            Ok(()) => drop(self.set_unsettled(false)),
            Err(error) => {
                let error = format!("{error:#}");
                tracing::error!(
                    device = self.name.as_str(),
                    error,
                    "the image that the device writes is not closed cleanly: restart the device"
                );
            }
        }
    }

    /// What was picked for a boot whose script was handed out, and that has not begun.
    #[must_use]
    pub fn picked(&self, boot: &BootId) -> Option<Picked> {
        self.state().picked.get(boot.as_str()).copied()
    }

    fn state(&self) -> MutexGuard<'_, DeviceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for DeviceSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceSlot").field("name", &self.name).finish_non_exhaustive()
    }
}
