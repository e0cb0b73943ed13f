//! The table of devices: what the catalogue says of each, and what runs of it.
//!
//! What a device is, is looked up in the catalogue's [snapshot](farm::snapshot) each time: a change of it counts from the
//! next look on, and for what a device runs on, from its next boot on. What runs of a device has a [`DeviceSlot`], from the first
//! time that it is asked for.
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use block::ByteLength;
use farm::catalogue::CatalogueError;
use farm::model::{CollectionId, DeviceId, Mac, Stored, Uuid, VdiskId, VersionNumber};
use farm::rules::newcomers::next_name;
use farm::snapshot::{Answer, Snapshot, VdiskFacts};
use iscsi::directory::IscsiName;
use meter::Rates;
use netboot::director::MacAddress;
use vdisk::MemoryBudget;

use super::accounts::{Accounts, Protocol};
use super::boot_disk::BootDisk;
use super::device::{DeviceSlot, Running, Workshop};
use super::images::{GoldenImage, Images};
use super::known::KnownDevice;
use super::mark::Marks;
use super::menu::{Picked, Turn};
use super::names::base_name;
use super::newcomers::{Asking, Newcomers, NotYet};
use crate::catalogue::import::{self, UNKNOWN};
use crate::catalogue::leases::{Leases, Lost};
use crate::catalogue::local::Local;
use crate::catalogue::{FarmLink, now};
use crate::config::{Config, DeviceName, UnknownDevices};
use crate::secrets::Secrets;
use crate::state::DeviceStates;
use api::live::KeptOut;

/// The most machines that nothing names and that are served all the same.
const MAX_UNKNOWN_DEVICES: usize = 4096;

/// All devices.
pub struct Devices {
    config: Arc<Config>,
    farm: Arc<FarmLink>,
    local: Local,
    secrets: Secrets,
    workshop: Arc<Workshop>,
    accounts: Accounts,
    slots: Mutex<HashMap<DeviceName, Arc<DeviceSlot>>>,
    newcomers: Newcomers,
    /// What each device may have that has no limits of its own.
    limits: Mutex<Rates>,
}

/// A device, and what runs of it.
#[derive(Clone, Debug)]
pub struct Served {
    /// What is known of it.
    pub device: KnownDevice,
    /// What runs.
    pub slot: Arc<DeviceSlot>,
}

/// Why a machine gets nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotServed {
    /// Nobody expects it.
    Unknown,
    /// Too many that nobody named.
    TooManyUnknown,
    /// The server cannot read what it remembers of it.
    Unreadable,
    /// It cannot be made known now.
    NotAdded(String),
    /// Somebody must let it in first, by this name.
    Waits(String),
    /// Somebody refused it.
    Refused,
}

/// A machine that is served.
#[derive(Clone, Debug)]
pub enum Recognised {
    /// As this device.
    Known(Box<KnownDevice>),
    /// As a device that it will be once it boots; with this name, where that is certain.
    Stranger(Option<DeviceName>),
}

impl Devices {
    /// The devices of a farm.
    ///
    /// # Errors
    /// A folder of the configuration that no store can be; secrets that cannot be read.
    pub fn new(config: Arc<Config>, farm: Arc<FarmLink>) -> anyhow::Result<Self> {
        let local = Local::of(&config)?;
        let secrets = Secrets::load(&config.state_dir)?;
        let workshop = Arc::new(Workshop {
            leases: Leases::new(Arc::clone(&farm)),
            farm: Arc::clone(&farm),
            images: Images::default(),
            states: DeviceStates::new(&config.state_dir),
            memory: Arc::new(MemoryBudget::new(ByteLength::new(config.write_cache.memory_limit.0))),
            cache_directory: config.write_cache.directory.clone(),
        });
        Ok(Self {
            limits: Mutex::new(config.limits),
            config,
            farm,
            local,
            secrets,
            workshop,
            accounts: Accounts::default(),
            slots: Mutex::default(),
            newcomers: Newcomers::default(),
        })
    }

    /// What write caches in memory take, and what they may take together.
    #[must_use]
    pub fn cache_memory(&self) -> (ByteLength, ByteLength) {
        self.workshop.memory.usage()
    }

    /// The machine with this MAC address, or else this UUID, were it to boot: whether it is served, and as which device.
    ///
    /// # Errors
    /// Why it is not.
    pub fn recognise(&self, mac: MacAddress, uuid: Option<&str>) -> Result<Recognised, NotServed> {
        let snapshot = self.farm.snapshot();
        let own = Mac::new(mac.0).map_err(|_| NotServed::Unknown)?;
        let uuid = uuid.and_then(|text| text.parse().ok());
        if let Some(device) = snapshot.device_of(own, uuid) {
            let known = self.known(&snapshot, device).ok_or(NotServed::Unknown)?;
            return Ok(Recognised::Known(Box::new(known)));
        }
        match (snapshot.decide(own, uuid, self.farm.server(), now()), &self.config.unknown_devices) {
            (Answer::Newcomer(_), _) => Ok(Recognised::Stranger(None)),
            (_, UnknownDevices::Vdisk(_)) => Ok(Recognised::Stranger(Some(DeviceName::of_unknown(mac)))),
            (_, UnknownDevices::Ignore) => Err(NotServed::Unknown),
        }
    }

    /// The device of this machine, which is made if it is expected. That waits for the catalogue.
    ///
    /// # Errors
    /// Why there is none.
    pub fn by_machine(&self, mac: MacAddress, uuid: Option<&str>) -> Result<Served, NotServed> {
        match self.recognise(mac, uuid)? {
            Recognised::Known(device) => self.served(*device).ok_or(NotServed::Unreadable),
            Recognised::Stranger(_) => {
                let id = self.add(mac, uuid)?;
                let snapshot = self.farm.snapshot();
                let device = snapshot.device(id).and_then(|device| self.known(&snapshot, device));
                device.and_then(|device| self.served(device)).ok_or(NotServed::Unreadable)
            }
        }
    }

    /// The device with this name.
    #[must_use]
    pub fn by_name(&self, name: &DeviceName) -> Option<Served> {
        let snapshot = self.farm.snapshot();
        let device = snapshot.device_named(name.as_str())?;
        self.served(self.known(&snapshot, device)?)
    }

    /// The device whose initiator has this name.
    #[must_use]
    pub fn by_initiator(&self, initiator: &IscsiName) -> Option<KnownDevice> {
        let snapshot = self.farm.snapshot();
        let named = || {
            let rest = initiator.as_str().strip_prefix(&self.config.iscsi.iqn_prefix)?.strip_prefix(':')?;
            snapshot.device_named(rest.strip_suffix(":initiator")?)
        };
        let device = snapshot.device_with_initiator(initiator.as_str()).or_else(named)?;
        self.known(&snapshot, device).filter(|device| device.initiator == *initiator)
    }

    /// The CHAP secrets that this server keeps.
    #[must_use]
    pub fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// What is made of each device, by name. One after the other: there may be ten thousand.
    pub fn map<R>(&self, each: impl FnMut(KnownDevice) -> R) -> Vec<R> {
        let snapshot = self.farm.snapshot();
        let mut all: Vec<_> = snapshot.devices().collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all.into_iter().filter_map(|device| self.known(&snapshot, device)).map(each).collect()
    }

    /// What runs, or ran, of devices since the server started, by name.
    #[must_use]
    pub fn slots(&self) -> Vec<Arc<DeviceSlot>> {
        let mut slots: Vec<_> = self.table().values().map(Arc::clone).collect();
        slots.sort_by(|a, b| a.name.cmp(&b.name));
        slots
    }

    /// What runs of a device, if anything ever did.
    #[must_use]
    pub fn slot(&self, name: &DeviceName) -> Option<Arc<DeviceSlot>> {
        self.table().get(name).map(Arc::clone)
    }

    /// Which device runs on which version, by name: those whose disks are open on this server.
    #[must_use]
    pub fn running(&self) -> Vec<Running> {
        self.slots().iter().filter_map(|slot| slot.running()).collect()
    }

    /// What a device runs on that boots now what was picked for it, or without a choice.
    ///
    /// # Errors
    /// Why on nothing, in words.
    pub fn decide(&self, device: DeviceId, picked: Option<Picked>) -> Result<BootDisk, String> {
        self.turn(device).disk(picked)
    }

    /// What a device that asks now is told.
    #[must_use]
    pub fn turn(&self, device: DeviceId) -> Turn<'_> {
        let (snapshot, local, server) = (self.farm.snapshot(), &self.local, self.farm.server());
        Turn { snapshot, local, device, server, now: now() }
    }

    /// The names of all vDisks that are read alone, in order: of each, and of its versions.
    #[must_use]
    pub fn vdisk_names(&self) -> Vec<String> {
        let snapshot = self.farm.snapshot();
        let mut names = Vec::new();
        for facts in snapshot.vdisks() {
            let name = &facts.vdisk.name;
            if facts.vdisk.mode != farm::model::AccessMode::Private {
                names.push(name.to_string());
                if facts.versions.len() > 1 {
                    names.extend(facts.versions.iter().map(|version| format!("{name}@{}", version.number)));
                }
            }
        }
        names.sort_unstable();
        names
    }

    /// A vDisk, or of it the version behind an `@`, to be read; `None`: there is no such vDisk. May wait for storage.
    ///
    /// # Errors
    /// Why it cannot be had, in words.
    pub fn to_read(&self, name: &str) -> Result<Option<(BootDisk, Arc<GoldenImage>)>, String> {
        let snapshot = self.farm.snapshot();
        let number = match name.split_once('@').map(|(_, number)| number.parse()) {
            None => None,
            Some(Ok(number)) => Some(number),
            Some(Err(_)) => return Ok(None),
        };
        let mut of_name = snapshot.vdisks().filter(|facts| facts.vdisk.name.as_str() == base_name(name));
        of_name.next().map_or(Ok(None), |facts| self.read_vdisk(facts, number))
    }

    /// A vDisk, or of it the version with this number, to be read; `None`: there is no such version to be read. May wait for
    /// storage.
    ///
    /// # Errors
    /// Why it cannot be had, in words.
    pub fn read_vdisk(
        &self,
        facts: &VdiskFacts,
        number: Option<VersionNumber>,
    ) -> Result<Option<(BootDisk, Arc<GoldenImage>)>, String> {
        let snapshot = self.farm.snapshot();
        let disk = BootDisk::to_read(&snapshot, &self.local, facts, number, self.farm.server(), now())?;
        let Some(disk) = disk else { return Ok(None) };
        let image = self.workshop.images.open(&disk.image, &Marks::of(&facts.versions));
        image.map(|image| Some((disk, image))).map_err(|error| format!("{error:#}"))
    }

    /// The image of what a device boots, to be read. May wait for storage.
    ///
    /// # Errors
    /// Why it cannot be had, in words.
    pub fn open_image(&self, disk: &BootDisk) -> Result<Arc<GoldenImage>, String> {
        let snapshot = self.farm.snapshot();
        let marks = snapshot.vdisk(disk.vdisk).map(|facts| Marks::of(&facts.versions)).unwrap_or_default();
        self.workshop.images.open(&disk.image, &marks).map_err(|error| format!("{error:#}"))
    }

    /// The farm.
    #[must_use]
    pub fn farm(&self) -> &Arc<FarmLink> {
        &self.farm
    }

    /// What this server knows besides.
    #[must_use]
    pub fn local(&self) -> &Local {
        &self.local
    }

    /// What is counted of all disks, and their limits.
    #[must_use]
    pub fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    /// The account of a device that uses a disk.
    #[must_use]
    pub fn account(&self, device: &KnownDevice, disk: &BootDisk, protocol: Protocol) -> meter::Account {
        self.accounts.of_device(&device.name, &disk.name, &disk.image.path, protocol, device.rates)
    }

    /// What the server was configured with.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Closes the disks of devices that have had no session for long enough; `busy` are the names of those that have one.
    pub fn rest(&self, busy: &HashSet<String>, now: Instant) {
        for slot in self.slots() {
            if slot.rest(busy.contains(slot.name.as_str()), now) {
                tracing::info!(device = slot.name.as_str(), "the device is away: its disk is closed");
            }
        }
    }

    /// The devices that could not log in of late because of what others have; who waits longest first.
    #[must_use]
    pub fn kept_out(&self) -> Vec<KeptOut> {
        self.workshop.leases.kept_out()
    }

    /// Renews leases; gives the devices that have lost theirs, with what runs of them.
    #[must_use]
    pub fn renew_leases(&self) -> Vec<(Lost, Arc<DeviceSlot>)> {
        let lost = self.workshop.leases.renew();
        if lost.is_empty() {
            return Vec::new();
        }
        let slots: HashMap<DeviceId, Arc<DeviceSlot>> =
            self.slots().into_iter().map(|slot| (slot.id, slot)).collect();
        lost.into_iter()
            .filter_map(|lost| Some((lost.clone(), Arc::clone(slots.get(&lost.device)?))))
            .collect()
    }

    /// What each device may have from its next boot on that has no limits of its own.
    pub fn set_limits(&self, limits: Rates) {
        *self.limits.lock().unwrap_or_else(PoisonError::into_inner) = limits;
    }

    fn known(&self, snapshot: &Snapshot, device: &Stored<farm::model::Device>) -> Option<KnownDevice> {
        KnownDevice::of(
            device,
            snapshot,
            &self.local,
            &self.secrets,
            &self.config.iscsi.iqn_prefix,
            *self.limits.lock().unwrap_or_else(PoisonError::into_inner),
        )
    }

    fn served(&self, device: KnownDevice) -> Option<Served> {
        if let Some(slot) = self.slot(&device.name).filter(|slot| slot.id == device.id) {
            return Some(Served { device, slot });
        }
        let slot = match DeviceSlot::new(device.id, device.name.clone(), Arc::clone(&self.workshop)) {
            Ok(slot) => Arc::new(slot),
            Err(error) => {
                tracing::error!(device = device.name.as_str(), %error, "what is remembered of a device cannot be read");
                return None;
            }
        };
        let mut table = self.table();
        let entry = table.entry(device.name.clone()).or_insert_with(|| Arc::clone(&slot));
        // Another thread was quicker; or a device of this name was deleted and made anew.
        if entry.id != device.id {
            *entry = slot;
        }
        let slot = Arc::clone(entry);
        Some(Served { device, slot })
    }

    /// Makes a device of a machine that nobody named.
    fn add(&self, mac: MacAddress, uuid: Option<&str>) -> Result<DeviceId, NotServed> {
        let snapshot = self.farm.snapshot();
        let own = Mac::new(mac.0).map_err(|_| NotServed::Unknown)?;
        let uuid: Option<Uuid> = uuid.and_then(|text| text.parse().ok());
        let added = match snapshot.decide(own, uuid, self.farm.server(), now()) {
            Answer::Newcomer(collection) => {
                self.may_join(&snapshot, Asking { mac: own, uuid, collection })?;
                self.farm.change(|change| change.admit(own, uuid, collection))
            }
            Answer::Known(_) | Answer::Unknown => {
                let (collection, vdisk) = self.place_of_strangers(&snapshot).ok_or(NotServed::Unknown)?;
                let strangers = snapshot.devices().filter(|device| device.collection == collection).count();
                if strangers >= MAX_UNKNOWN_DEVICES {
                    return Err(NotServed::TooManyUnknown);
                }
                let name = DeviceName::of_unknown(mac);
                self.farm.change(|change| match change.device_by_mac(own)? {
                    Some(known) => Ok(known),
                    None => change.create(import::stranger(&name, own, collection, vdisk)?),
                })
            }
        };
        added.map(|device| device.id).map_err(|error: CatalogueError| NotServed::NotAdded(error.to_string()))
    }

    /// Whether a machine that nobody knows may join now.
    fn may_join(&self, snapshot: &Snapshot, asking: Asking) -> Result<(), NotServed> {
        let collection = snapshot.collection(asking.collection);
        let approves = collection.is_some_and(|collection| collection.approves_newcomers);
        let pattern = collection.and_then(|collection| collection.newcomers.as_ref());
        let not_yet = match (approves, pattern) {
            (false, _) | (_, None) => match self.newcomers.join(asking.mac, now()) {
                Ok(()) => return Ok(()),
                Err(not_yet) => not_yet,
            },
            (true, Some(pattern)) => self.newcomers.ask(asking, now(), |waiting| {
                let devices = snapshot.devices().map(|device| device.name.as_str());
                let taken = devices.chain(waiting.iter().map(String::as_str));
                next_name(pattern, taken).map_err(|refusal| refusal.to_string())
            }),
        };
        Err(match not_yet {
            NotYet::Waits(name) => NotServed::Waits(name.to_string()),
            NotYet::Refused => NotServed::Refused,
            NotYet::TooMany => NotServed::TooManyUnknown,
            NotYet::NoName(why) => NotServed::NotAdded(why),
        })
    }

    /// Machines that wait to be let in.
    #[must_use]
    pub fn newcomers(&self) -> &Newcomers {
        &self.newcomers
    }

    /// Where machines that nothing names are put, and what they boot.
    fn place_of_strangers(&self, snapshot: &Snapshot) -> Option<(CollectionId, VdiskId)> {
        let UnknownDevices::Vdisk(vdisk) = &self.config.unknown_devices else { return None };
        let site = snapshot.server(self.farm.server())?.site;
        let collection = snapshot
            .collections()
            .find(|collection| collection.site == site && collection.name.as_str() == UNKNOWN)?;
        let mut named = snapshot.vdisks().filter(|facts| {
            let own = self.local.vdisk(snapshot, &facts.vdisk);
            own.is_some_and(|own| own.name == base_name(vdisk))
        });
        Some((collection.id, named.next()?.vdisk.id))
    }

    fn table(&self) -> MutexGuard<'_, HashMap<DeviceName, Arc<DeviceSlot>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Devices").finish_non_exhaustive()
    }
}
