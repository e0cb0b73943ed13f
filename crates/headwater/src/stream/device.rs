//! One device: which of its boots counts, and the disk of that boot.
use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use block::{BlockDevice, Geometry};
use iscsi::directory::IscsiName;
use scsi::LogicalUnit;
use vdisk::{BootId, CacheObserver, CacheUsage, FullCause, OpenError, ResumeError, Volume, WriteCacheConfig};

use super::images::GoldenImage;
use super::names::unit_identity;
use super::private::{PrivateImage, PrivateUse};
use crate::config::Device;
use crate::state::{DeviceState, DeviceStates};

/// The most scripts that are remembered as handed out and not used: a machine that fetches script after script
/// without logging in loses the oldest.
const MAX_HANDED_OUT: usize = 8;

/// Ends the sessions of a target. Implemented by the iSCSI server.
pub trait SessionEnder: Send + Sync {
    /// Ends them, and waits a while until none of their requests runs any more.
    fn end_target(&self, name: &IscsiName);
}

/// One device at run time.
pub struct DeviceSlot {
    /// What the configuration says.
    pub device: Device,
    backing: Backing,
    states: DeviceStates,
    /// Locked for moments.
    state: Mutex<DeviceState>,
    /// Held while the state's file is written, so that the last state is the last one written.
    saving: Mutex<()>,
    /// Held while the disk is opened.
    disk: Mutex<Disk>,
}

/// What a device's disk is made of.
#[derive(Debug)]
pub enum Backing {
    /// A golden image, and a write cache.
    Cached(Cached),
    /// An image of its own.
    Private(Arc<PrivateImage>),
}

/// A golden image, and where what the device writes goes.
#[derive(Debug)]
pub struct Cached {
    /// The image.
    pub image: GoldenImage,
    /// Where the write cache is.
    pub write_cache: WriteCacheConfig,
}

/// The disk of one boot.
#[derive(Clone)]
enum Attached {
    Cached(Arc<Volume>),
    Private(Arc<PrivateUse>),
}

impl Attached {
    fn device(&self) -> Arc<dyn BlockDevice> {
        match self {
            Self::Cached(volume) => Arc::clone(volume) as _,
            Self::Private(private) => Arc::clone(private) as _,
        }
    }

    /// Lets nothing more be written through it.
    fn abandon(&self) {
        match self {
            Self::Cached(volume) => volume.abandon(),
            Self::Private(private) => private.end(),
        }
    }
}

/// The disk of the current boot.
#[derive(Default)]
struct Disk {
    open: Option<OpenDisk>,
    /// The targets that have been granted for it.
    granted: BTreeSet<IscsiName>,
}

struct OpenDisk {
    boot: BootId,
    attached: Attached,
    unit: Arc<LogicalUnit>,
}

impl OpenDisk {
    fn opened(&self, began: bool) -> Opened {
        let (device, unit) = (self.attached.device(), Arc::clone(&self.unit));
        Opened { boot: self.boot.clone(), device, unit, began }
    }
}

/// What a login gets.
#[derive(Clone)]
pub struct Opened {
    /// The boot that it belongs to.
    pub boot: BootId,
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

/// What is to be done about a login.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Decision {
    /// Go on with the current boot.
    Continue(BootId),
    /// Begin this boot.
    Begin(BootId),
    /// The boot has been replaced by this later one.
    Removed(String),
    /// There never was such a boot, or it has been forgotten.
    Unknown,
}

/// A decision that lets in.
enum Settled {
    Continue(BootId),
    Begin(BootId),
}

fn attach(image: &PrivateImage) -> Result<Attached, NotOpened> {
    let private =
        image.attach().ok_or_else(|| NotOpened::Unavailable("the server is stopping".to_owned()))?;
    Ok(Attached::Private(Arc::new(private)))
}

/// Decides about a login from what is remembered. `fresh` is the id of a boot that may begin now.
fn decide(state: &DeviceState, wanted: Option<&BootId>, fresh: &BootId) -> Decision {
    let current = state.current.as_deref();
    let Some(wanted) = wanted else {
        let current = current.and_then(|id| BootId::new(id).ok());
        return current.map_or_else(|| Decision::Begin(fresh.clone()), Decision::Continue);
    };
    if current == Some(wanted.as_str()) {
        return Decision::Continue(wanted.clone());
    }
    if state.handed_out.iter().any(|id| id == wanted.as_str()) {
        return Decision::Begin(wanted.clone());
    }
    match current {
        Some(current) if wanted.as_str() < current => Decision::Removed(current.to_owned()),
        _ => Decision::Unknown,
    }
}

impl DeviceSlot {
    /// A device with what is remembered of it.
    ///
    /// # Errors
    /// Its state file cannot be read.
    pub fn new(device: Device, backing: Backing, states: DeviceStates) -> std::io::Result<Self> {
        let state = states.load(&device.name)?;
        let (state, saving, disk) = (Mutex::new(state), Mutex::default(), Mutex::default());
        Ok(Self { device, backing, states, state, saving, disk })
    }

    /// Remembers a boot whose script is being handed out. Quick: [`save_state`](Self::save_state) follows.
    pub fn hand_out(&self, boot: &BootId) {
        let mut state = self.state();
        if state.handed_out.len() >= MAX_HANDED_OUT {
            state.handed_out.remove(0);
        }
        state.handed_out.push(boot.as_str().to_owned());
    }

    /// Writes what is remembered.
    ///
    /// # Errors
    /// What the operating system said.
    pub fn save_state(&self) -> std::io::Result<()> {
        let _last_wins = self.saving.lock().unwrap_or_else(PoisonError::into_inner);
        let state = self.state().clone();
        self.states.save(&self.device.name, &state)
    }

    /// The disk for whoever comes to use the boot `wanted`, or, without one, the current boot, or else `fresh`. `target`
    /// is the iSCSI target that it is used as; NBD has none. May wait for storage.
    ///
    /// # Errors
    /// Why there is none.
    pub fn open(
        &self,
        wanted: Option<&BootId>,
        target: Option<&IscsiName>,
        fresh: &BootId,
        ender: Option<&dyn SessionEnder>,
    ) -> Result<Opened, NotOpened> {
        let mut disk = self.disk();
        let decision = decide(&self.state(), wanted, fresh);
        let opened = match self.settle(decision)? {
            Settled::Continue(boot) => self.go_on(&mut disk, boot)?,
            Settled::Begin(boot) => self.begin(&mut disk, boot)?,
        };
        // One machine, one disk: sessions under the device's other names are those of its past.
        let others: Vec<IscsiName> =
            disk.granted.iter().filter(|other| Some(*other) != target).cloned().collect();
        disk.granted = target.cloned().into_iter().collect();
        if let Some(ender) = ender {
            others.iter().for_each(|other| ender.end_target(other));
        }
        Ok(opened)
    }

    /// What the disk of this boot is like, were it to be [opened](Self::open). Nothing begins by it.
    ///
    /// # Errors
    /// Why it would not be.
    pub fn look(&self, wanted: Option<&BootId>, fresh: &BootId) -> Result<Geometry, NotOpened> {
        let decision = decide(&self.state(), wanted, fresh);
        self.settle(decision).map(|_| match &self.backing {
            Backing::Cached(cached) => Volume::geometry_on(&*cached.image.device),
            Backing::Private(image) => image.geometry(),
        })
    }

    /// A decision as what to do, or why not.
    fn settle(&self, decision: Decision) -> Result<Settled, NotOpened> {
        let device = &self.device.name;
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

    /// Forgets the current boot: the next login under the plain name begins another. Gives the targets whose sessions
    /// must be ended.
    ///
    /// # Errors
    /// What is remembered could not be written.
    pub fn reset(&self) -> std::io::Result<Vec<IscsiName>> {
        let mut disk = self.disk();
        if let Some(old) = disk.open.take() {
            old.attached.abandon();
        }
        self.state().current = None;
        self.save_state()?;
        Ok(std::mem::take(&mut disk.granted).into_iter().collect())
    }

    /// Removes the device's persistent write cache, which no boot may be using: the next one begins with an empty one.
    ///
    /// # Errors
    /// It is in use, or cannot be removed; in words.
    pub fn discard_persistent(&self) -> std::io::Result<()> {
        let _disk = self.disk();
        let Backing::Cached(Cached { write_cache, .. }) = &self.backing else {
            return Err(std::io::Error::other("the device writes its vDisk itself: it has no write cache"));
        };
        vdisk::discard_persistent(write_cache).map_err(|error| std::io::Error::other(describe(&error)))
    }

    /// How full the write cache is; `None` while it is not open. Does not wait for an opening.
    #[must_use]
    pub fn usage(&self) -> Option<CacheUsage> {
        let disk = self.disk.try_lock().ok()?;
        match &disk.open.as_ref()?.attached {
            Attached::Cached(volume) => Some(volume.usage()),
            Attached::Private(_) => None,
        }
    }

    /// Makes what the device wrote last, so that the boot can go on after a restart of server and host. Nobody opens the
    /// disk afterwards.
    pub fn close(&self) {
        let mut disk = self.disk();
        let open = disk.open.take();
        let device = self.device.name.as_str();
        match (&self.backing, open.as_ref().map(|open| &open.attached)) {
            (Backing::Private(image), attached) => {
                if let Some(attached) = attached {
                    attached.abandon();
                }
                let closed = image.close();
                if let Err(error) = closed {
                    let error = format!("{error:#}");
                    tracing::error!(device, error, "private image not closed cleanly: restart the device");
                } else if open.is_some() {
                    self.set_unsettled(false);
                }
            }
            (Backing::Cached(_), Some(Attached::Cached(volume))) => {
                if let Err(error) = volume.close() {
                    tracing::error!(device, error = describe(&error), "write cache not closed cleanly");
                }
            }
            (Backing::Cached(_), _) => {}
        }
    }

    /// Begins a boot: the write cache is discarded.
    fn begin(&self, disk: &mut Disk, boot: BootId) -> Result<Opened, NotOpened> {
        if let Some(old) = disk.open.take() {
            // Its sessions may still be there; they must not write any more.
            old.attached.abandon();
        }
        let attached = match &self.backing {
            Backing::Cached(cached) => Attached::Cached(Arc::new(self.begin_cache(cached, &boot)?)),
            Backing::Private(image) => attach(image)?,
        };
        {
            let mut state = self.state();
            state.handed_out.retain(|id| id.as_str() > boot.as_str());
            state.current = Some(boot.as_str().to_owned());
            state.unsettled = matches!(attached, Attached::Private(_));
        }
        if let Err(error) = self.save_state() {
            let device = self.device.name.as_str();
            tracing::error!(device, %error, "cannot remember the device's boot; it is refused");
            attached.abandon();
            self.state().current = None;
            return Err(NotOpened::Unavailable("the server cannot store its state".to_owned()));
        }
        Ok(self.keep(disk, boot, attached, true))
    }

    fn begin_cache(&self, cached: &Cached, boot: &BootId) -> Result<Volume, NotOpened> {
        // A server that died between beginning the boot and remembering it has left the write cache of this very boot,
        // maybe with the device's writes. Whatever it says otherwise, it is to be discarded.
        let stored = vdisk::stored_boot(&cached.write_cache).ok().flatten();
        let (image, mark) = (Arc::clone(&cached.image.device), cached.image.fingerprint);
        if stored.as_ref() == Some(boot) {
            Volume::resume(image, mark, &cached.write_cache, boot.clone(), self.observer())
                .map_err(|error| self.lost(boot, &error))
        } else {
            Volume::begin_boot(image, mark, &cached.write_cache, boot.clone(), self.observer())
                .map_err(|error| self.closed(&error))
        }
    }

    /// Goes on with a boot: with the open disk, or with what an earlier server process has left.
    fn go_on(&self, disk: &mut Disk, boot: BootId) -> Result<Opened, NotOpened> {
        if let Some(open) = disk.open.as_ref().filter(|open| open.boot == boot) {
            return Ok(open.opened(false));
        }
        let attached = match &self.backing {
            Backing::Cached(cached) => {
                let (image, mark) = (Arc::clone(&cached.image.device), cached.image.fingerprint);
                let volume = Volume::resume(image, mark, &cached.write_cache, boot.clone(), self.observer())
                    .map_err(|error| self.lost(&boot, &error))?;
                Attached::Cached(Arc::new(volume))
            }
            Backing::Private(image) => self.attach_again(image, &boot)?,
        };
        tracing::info!(
            device = self.device.name.as_str(),
            boot = boot.as_str(),
            "disk of a running boot opened again"
        );
        Ok(self.keep(disk, boot, attached, false))
    }

    /// The private image for a boot that an earlier server process served: only if that has closed it.
    fn attach_again(&self, image: &PrivateImage, boot: &BootId) -> Result<Attached, NotOpened> {
        if self.state().unsettled {
            let device = self.device.name.as_str();
            let text = "the server ended before it had stored all that the boot wrote to its private image";
            tracing::error!(
                device,
                boot = boot.as_str(),
                "{text}: restart the device (one whose initiator is configured by hand also needs: headwater device reset {device})"
            );
            return Err(NotOpened::Unavailable(text.to_owned()));
        }
        let attached = attach(image)?;
        if !self.set_unsettled(true) {
            attached.abandon();
            return Err(NotOpened::Unavailable("the server cannot store its state".to_owned()));
        }
        Ok(attached)
    }

    /// Remembers whether a private image may lack what its device wrote; `false` where that cannot be stored.
    fn set_unsettled(&self, unsettled: bool) -> bool {
        self.state().unsettled = unsettled;
        let saved = self.save_state();
        if let Err(error) = &saved {
            tracing::error!(device = self.device.name.as_str(), %error, "cannot remember how the private image is");
        }
        saved.is_ok()
    }

    fn keep(&self, disk: &mut Disk, boot: BootId, attached: Attached, began: bool) -> Opened {
        let name = match &self.backing {
            Backing::Cached(cached) => &cached.image.name,
            Backing::Private(image) => &image.name,
        };
        let unit = LogicalUnit::new(attached.device(), unit_identity(&self.device.name, name));
        disk.open.insert(OpenDisk { boot, attached, unit: Arc::new(unit) }).opened(began)
    }

    fn observer(&self) -> Arc<dyn CacheObserver> {
        Arc::new(CacheLog)
    }

    /// The refusal for a boot that cannot begin.
    fn closed(&self, error: &OpenError) -> NotOpened {
        let text = describe(error);
        tracing::error!(device = self.device.name.as_str(), error = text, "no write cache for the device");
        NotOpened::Unavailable(text)
    }

    /// The refusal for a boot that cannot go on.
    fn lost(&self, boot: &BootId, error: &ResumeError) -> NotOpened {
        let (device, text) = (self.device.name.as_str(), describe(error));
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

    fn state(&self) -> MutexGuard<'_, DeviceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for DeviceSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceSlot").field("device", &self.device).finish_non_exhaustive()
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
fn describe(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> BootId {
        BootId::new(text).unwrap()
    }

    fn state(current: Option<&str>, handed_out: &[&str]) -> DeviceState {
        DeviceState {
            current: current.map(str::to_owned),
            handed_out: handed_out.iter().map(|id| (*id).to_owned()).collect(),
            unsettled: false,
        }
    }

    #[test]
    fn first_login_to_a_handed_out_name_begins_its_boot() {
        let state = state(Some("b1"), &["b2", "b3"]);
        assert_eq!(decide(&state, Some(&id("b2")), &id("b9")), Decision::Begin(id("b2")));
        assert_eq!(decide(&state, Some(&id("b3")), &id("b9")), Decision::Begin(id("b3")));
    }

    #[test]
    fn later_login_to_the_same_name_goes_on() {
        assert_eq!(decide(&state(Some("b1"), &[]), Some(&id("b1")), &id("b9")), Decision::Continue(id("b1")));
    }

    #[test]
    fn name_of_a_replaced_boot_is_removed_and_one_never_handed_out_is_unknown() {
        let state = state(Some("b5"), &["b6"]);
        assert_eq!(decide(&state, Some(&id("b4")), &id("b9")), Decision::Removed("b5".into()));
        assert_eq!(decide(&state, Some(&id("b7")), &id("b9")), Decision::Unknown);
    }

    #[test]
    fn plain_name_goes_on_with_the_current_boot_or_begins_one() {
        assert_eq!(decide(&state(Some("b5"), &["b6"]), None, &id("b9")), Decision::Continue(id("b5")));
        assert_eq!(decide(&state(None, &["b6"]), None, &id("b9")), Decision::Begin(id("b9")));
    }
}
