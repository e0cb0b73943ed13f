//! The books of all disks: what the servers count of each device and each vDisk, over each protocol, and the limits that
//! they hold them to.
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use meter::{Account, Limiter, Meter, Rates, StoreId, Totals};

use crate::config::{Config, DeviceName};

/// How a disk is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// iSCSI.
    Iscsi,
    /// NBD.
    Nbd,
}

impl Protocol {
    /// Its name, as metrics and commands show it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Iscsi => "iscsi",
            Self::Nbd => "nbd",
        }
    }
}

/// Whose requests are counted together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holder {
    /// The device; `None`: readers of the vDisk itself.
    pub device: Option<DeviceName>,
    /// The vDisk.
    pub vdisk: String,
    /// How they come.
    pub protocol: Protocol,
}

/// All books. There are as many as devices and vDisks have been used, times the protocols.
#[derive(Debug)]
pub struct Accounts {
    /// What devices may have that have no limits of their own.
    usual: Rates,
    /// By vDisk: the folder of its image, numbered.
    stores: HashMap<String, StoreId>,
    books: Mutex<Books>,
}

#[derive(Debug, Default)]
struct Books {
    meters: BTreeMap<Holder, Arc<Meter>>,
    limiters: HashMap<DeviceName, Arc<Limiter>>,
}

impl Accounts {
    /// Empty books for what the configuration names.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let mut folders: Vec<&Path> = Vec::new();
        let mut stores = HashMap::new();
        for vdisk in &config.vdisks {
            let folder = vdisk.path.parent().unwrap_or(&vdisk.path);
            let number = folders.iter().position(|other| *other == folder).unwrap_or_else(|| {
                folders.push(folder);
                folders.len().saturating_sub(1)
            });
            stores.insert(vdisk.name.clone(), StoreId(u32::try_from(number).unwrap_or(u32::MAX)));
        }
        Self { usual: config.limits, stores, books: Mutex::default() }
    }

    /// The account of a device, which may have `rates` where they are its own.
    #[must_use]
    pub fn of_device(
        &self,
        device: &DeviceName,
        vdisk: &str,
        protocol: Protocol,
        rates: Option<Rates>,
    ) -> Account {
        let mut books = self.books();
        let fresh = || Arc::new(Limiter::new(rates.unwrap_or(self.usual)));
        let limiter = Arc::clone(books.limiters.entry(device.clone()).or_insert_with(fresh));
        let holder = Holder { device: Some(device.clone()), vdisk: vdisk.to_owned(), protocol };
        Account { meter: books.meter(holder), limiter, store: self.store(vdisk) }
    }

    /// The account of those who read a vDisk itself.
    #[must_use]
    pub fn of_vdisk(&self, vdisk: &str, protocol: Protocol) -> Account {
        let holder = Holder { device: None, vdisk: vdisk.to_owned(), protocol };
        Account { meter: self.books().meter(holder), limiter: Arc::default(), store: self.store(vdisk) }
    }

    /// Changes what a device may have, from now on: requests that wait go on within a second.
    pub fn limit(&self, device: &DeviceName, rates: Rates) {
        let mut books = self.books();
        books.limiters.entry(device.clone()).or_default().set(rates);
    }

    /// All counts now.
    #[must_use]
    pub fn totals(&self) -> Vec<(Holder, Totals)> {
        let meters: Vec<_> =
            self.books().meters.iter().map(|(holder, meter)| (holder.clone(), Arc::clone(meter))).collect();
        meters.into_iter().map(|(holder, meter)| (holder, meter.totals())).collect()
    }

    fn store(&self, vdisk: &str) -> StoreId {
        self.stores.get(vdisk).copied().unwrap_or_default()
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Books {
    fn meter(&mut self, holder: Holder) -> Arc<Meter> {
        Arc::clone(self.meters.entry(holder).or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_has_one_limit_over_all_protocols_and_books_for_each() {
        let config = crate::config::parse(
            "[limits]\niops = 7\n[[vdisk]]\nname = \"a\"\nfile = \"/x/a.raw\"\n[[vdisk]]\nname = \"b\"\nfile = \"/y/b.raw\"\n",
            Path::new("test.toml"),
        )
        .unwrap();
        let accounts = Accounts::new(&config);
        let name = DeviceName::parse("lab-01").unwrap();
        let iscsi = accounts.of_device(&name, "a", Protocol::Iscsi, None);
        let nbd = accounts.of_device(&name, "a", Protocol::Nbd, None);
        assert!(Arc::ptr_eq(&iscsi.limiter, &nbd.limiter) && !Arc::ptr_eq(&iscsi.meter, &nbd.meter));
        assert_eq!(iscsi.limiter.rates().requests_per_second, Some(7));
        accounts.limit(&name, Rates::UNLIMITED);
        assert_eq!(nbd.limiter.rates(), Rates::UNLIMITED);
        let vdisk = accounts.of_vdisk("b", Protocol::Nbd);
        assert_ne!(vdisk.store, nbd.store);
        let holders: Vec<_> = accounts.totals().into_iter().map(|(holder, _)| holder.device).collect();
        assert_eq!(holders, [None, Some(name.clone()), Some(name)]);
    }
}
