//! The table of devices: those of the configuration, and, where it allows them, machines that it does not name.
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Context;
use block::ByteLength;
use iscsi::directory::IscsiName;
use netboot::director::MacAddress;
use vdisk::{MemoryBudget, WriteCacheConfig, WriteCacheKind};

use super::accounts::{Accounts, Protocol};
use super::device::{Backing, Cached, DeviceSlot};
use super::images::Images;
use crate::config::{CacheKind, Config, Device, DeviceName, Position, UnknownDevices, derived_initiator};
use crate::state::DeviceStates;

/// The most machines that the configuration does not name and that are served all the same.
const MAX_UNKNOWN_DEVICES: usize = 4096;

/// All devices.
pub struct Devices {
    config: Arc<Config>,
    images: Images,
    states: DeviceStates,
    memory: Arc<MemoryBudget>,
    accounts: Accounts,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    by_name: HashMap<DeviceName, Arc<DeviceSlot>>,
    by_mac: HashMap<MacAddress, Arc<DeviceSlot>>,
    by_initiator: HashMap<IscsiName, Arc<DeviceSlot>>,
    unknown: usize,
}

/// Why a machine gets nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotServed {
    /// No `[[device]]` names it, and `unknown_devices` is "ignore".
    Unknown,
    /// Too many that no `[[device]]` names.
    TooManyUnknown,
    /// The server cannot read what it remembers of it.
    Unreadable,
}

impl Devices {
    /// The devices of a configuration, with the images of their vDisks.
    ///
    /// # Errors
    /// What is remembered of a device cannot be read.
    pub fn new(config: Arc<Config>, images: Images) -> anyhow::Result<Self> {
        let states = DeviceStates::new(&config.state_dir);
        let memory = Arc::new(MemoryBudget::new(ByteLength::new(config.write_cache.memory_limit.0)));
        let accounts = Accounts::new(&config);
        let devices = Self { config, images, states, memory, accounts, table: Mutex::default() };
        for device in &devices.config.devices {
            let slot =
                devices.make(device.clone()).context("what is remembered of a device cannot be read")?;
            devices.table().insert(slot);
        }
        Ok(devices)
    }

    /// The machine with this MAC address, were it to boot: whether it is served, and as which device.
    ///
    /// # Errors
    /// Why it is not.
    pub fn recognise(&self, mac: MacAddress) -> Result<Recognised, NotServed> {
        if let Some(slot) = self.table().by_mac.get(&mac) {
            return Ok(Recognised::Known(Arc::clone(slot)));
        }
        match &self.config.unknown_devices {
            UnknownDevices::Ignore => Err(NotServed::Unknown),
            UnknownDevices::Vdisk(_) => Ok(Recognised::Stranger(DeviceName::of_unknown(mac))),
        }
    }

    /// The device with this MAC address, which is made if the configuration allows.
    ///
    /// # Errors
    /// Why there is none.
    pub fn by_mac(&self, mac: MacAddress) -> Result<Arc<DeviceSlot>, NotServed> {
        match self.recognise(mac)? {
            Recognised::Known(slot) => Ok(slot),
            Recognised::Stranger(_) => self.add_stranger(mac),
        }
    }

    /// The device with this name. A machine that the configuration does not name is known again after a restart of the
    /// server if something is remembered of it.
    #[must_use]
    pub fn by_name(&self, name: &DeviceName) -> Option<Arc<DeviceSlot>> {
        if let Some(slot) = self.table().by_name.get(name) {
            return Some(Arc::clone(slot));
        }
        let mac = MacAddress::parse(name.as_str().strip_prefix("mac-")?)?;
        let remembered =
            self.states.load(name).is_ok_and(|state| state != crate::state::DeviceState::default());
        if remembered && DeviceName::of_unknown(mac) == *name { self.by_mac(mac).ok() } else { None }
    }

    /// The device whose initiator has this name.
    #[must_use]
    pub fn by_initiator(&self, initiator: &IscsiName) -> Option<Arc<DeviceSlot>> {
        self.table().by_initiator.get(initiator).map(Arc::clone)
    }

    /// All devices, by name.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<DeviceSlot>> {
        let mut slots: Vec<_> = self.table().by_name.values().map(Arc::clone).collect();
        slots.sort_by(|a, b| a.device.name.cmp(&b.device.name));
        slots
    }

    /// The images of the vDisks.
    #[must_use]
    pub fn images(&self) -> &Images {
        &self.images
    }

    /// What is counted of all disks, and their limits.
    #[must_use]
    pub fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    /// The account of a device.
    #[must_use]
    pub fn account(&self, device: &Device, protocol: Protocol) -> meter::Account {
        self.accounts.of_device(&device.name, &device.vdisk, protocol, device.limits)
    }

    /// What the server was configured with.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    fn add_stranger(&self, mac: MacAddress) -> Result<Arc<DeviceSlot>, NotServed> {
        let UnknownDevices::Vdisk(vdisk) = &self.config.unknown_devices else {
            return Err(NotServed::Unknown);
        };
        if self.table().unknown >= MAX_UNKNOWN_DEVICES {
            return Err(NotServed::TooManyUnknown);
        }
        let name = DeviceName::of_unknown(mac);
        let device = Device {
            initiator: derived_initiator(&self.config.iscsi.iqn_prefix, &name).ok_or(NotServed::Unknown)?,
            name,
            mac,
            vdisk: vdisk.clone(),
            address: None,
            chap: None,
            certificate: None,
            write_cache: None,
            write_cache_limit: None,
            limits: None,
            defined_at: Position::default(),
        };
        let slot = self.make(device).map_err(|error| {
            tracing::error!(%mac, %error, "what is remembered of a machine cannot be read");
            NotServed::Unreadable
        })?;
        let mut table = self.table();
        if let Some(other) = table.by_mac.get(&mac) {
            return Ok(Arc::clone(other)); // another thread was quicker
        }
        table.unknown = table.unknown.saturating_add(1);
        Ok(table.insert(slot))
    }

    fn make(&self, device: Device) -> std::io::Result<Arc<DeviceSlot>> {
        let backing = self.backing(&device).ok_or_else(|| {
            std::io::Error::other(format!("the image of vDisk \"{}\" is not open", device.vdisk))
        })?;
        DeviceSlot::new(device, backing, self.states.clone()).map(Arc::new)
    }

    /// What a device's disk is made of.
    fn backing(&self, device: &Device) -> Option<Backing> {
        let write_cache = &self.config.write_cache;
        let kind = match device.write_cache.unwrap_or(write_cache.kind) {
            CacheKind::Disk => WriteCacheKind::Volatile,
            CacheKind::Memory => WriteCacheKind::Memory(Arc::clone(&self.memory)),
            CacheKind::Persistent => WriteCacheKind::Persistent,
            CacheKind::None => return self.images.private(&device.vdisk).cloned().map(Backing::Private),
        };
        let limit = device.write_cache_limit.unwrap_or(write_cache.limit);
        let write_cache = WriteCacheConfig {
            kind,
            directory: write_cache.directory.clone(),
            device: device.name.as_str().to_owned(),
            limit: ByteLength::new(limit.0),
            warn_percent: write_cache.warn_percent,
        };
        let image = self.images.get(&device.vdisk)?.clone();
        Some(Backing::Cached(Cached { image, write_cache }))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn insert(&mut self, slot: Arc<DeviceSlot>) -> Arc<DeviceSlot> {
        let device = &slot.device;
        self.by_name.insert(device.name.clone(), Arc::clone(&slot));
        self.by_mac.insert(device.mac, Arc::clone(&slot));
        self.by_initiator.insert(device.initiator.clone(), Arc::clone(&slot));
        slot
    }
}

impl fmt::Debug for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Devices").finish_non_exhaustive()
    }
}

/// A machine that is served.
#[derive(Clone, Debug)]
pub enum Recognised {
    /// As this device.
    Known(Arc<DeviceSlot>),
    /// As a device that will have this name.
    Stranger(DeviceName),
}
