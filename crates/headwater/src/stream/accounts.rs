//! The books of all disks: what the servers count of each device and each vDisk, over each protocol, and the limits that
//! they hold them to.
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use meter::{Account, Limiter, Meter, Rates, StoreId, Totals};

use crate::config::DeviceName;

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
#[derive(Debug, Default)]
pub struct Accounts {
    books: Mutex<Books>,
}

#[derive(Debug, Default)]
struct Books {
    meters: BTreeMap<Holder, Arc<Meter>>,
    limiters: HashMap<DeviceName, Arc<Limiter>>,
    /// The folders of images, numbered in the order in which they were first used.
    folders: HashMap<PathBuf, StoreId>,
}

impl Accounts {
    /// The account of a device that uses an image and may have `rates` from now on.
    #[must_use]
    pub fn of_device(
        &self,
        device: &DeviceName,
        vdisk: &str,
        image: &Path,
        protocol: Protocol,
        rates: Rates,
    ) -> Account {
        let mut books = self.books();
        let limiter = Arc::clone(books.limiters.entry(device.clone()).or_default());
        if limiter.rates() != rates {
            limiter.set(rates);
        }
        let holder = Holder { device: Some(device.clone()), vdisk: vdisk.to_owned(), protocol };
        Account { meter: books.meter(holder), limiter, store: books.store(image) }
    }

    /// The account of those who read a vDisk itself.
    #[must_use]
    pub fn of_vdisk(&self, vdisk: &str, image: &Path, protocol: Protocol) -> Account {
        let holder = Holder { device: None, vdisk: vdisk.to_owned(), protocol };
        let mut books = self.books();
        Account { meter: books.meter(holder), limiter: Arc::default(), store: books.store(image) }
    }

    /// All counts now.
    #[must_use]
    pub fn totals(&self) -> Vec<(Holder, Totals)> {
        let meters: Vec<_> =
            self.books().meters.iter().map(|(holder, meter)| (holder.clone(), Arc::clone(meter))).collect();
        meters.into_iter().map(|(holder, meter)| (holder, meter.totals())).collect()
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Books {
    fn meter(&mut self, holder: Holder) -> Arc<Meter> {
        Arc::clone(self.meters.entry(holder).or_default())
    }

    /// The number of the folder that an image lies in.
    fn store(&mut self, image: &Path) -> StoreId {
        let number = StoreId(u32::try_from(self.folders.len()).unwrap_or(u32::MAX));
        let folder = image.parent().unwrap_or(image);
        *self.folders.entry(folder.to_owned()).or_insert(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_has_one_limit_over_all_protocols_and_books_for_each() {
        let accounts = Accounts::default();
        let name = DeviceName::parse("lab-01").unwrap();
        let seven = Rates { requests_per_second: Some(7), ..Rates::UNLIMITED };
        let of = |protocol, rates| accounts.of_device(&name, "a", Path::new("/x/a.raw"), protocol, rates);
        let iscsi = of(Protocol::Iscsi, seven);
        assert_eq!(iscsi.limiter.rates().requests_per_second, Some(7));
        let nbd = of(Protocol::Nbd, Rates::UNLIMITED);
        assert!(Arc::ptr_eq(&iscsi.limiter, &nbd.limiter) && !Arc::ptr_eq(&iscsi.meter, &nbd.meter));
        assert_eq!(iscsi.limiter.rates(), Rates::UNLIMITED);
        let vdisk = accounts.of_vdisk("b", Path::new("/y/b.raw"), Protocol::Nbd);
        assert_ne!(vdisk.store, nbd.store);
        assert_eq!(accounts.of_vdisk("c", Path::new("/x/c.raw"), Protocol::Nbd).store, nbd.store);
        let holders: Vec<_> = accounts.totals().into_iter().map(|(holder, _)| holder.device).collect();
        assert_eq!(holders, [None, None, Some(name.clone()), Some(name.clone())]);
    }
}
