//! The snapshot: all that boots are decided from, in memory and immutable.
//!
//! A boot decision is one look-up and a walk over a handful of versions: no database, no lock that is held while it is
//! made. A [`SharedSnapshot`] is swapped as a whole when the catalogue changed, and is written to a [file](stored), so
//! that known devices boot when the database is gone, also after a restart.
//!
//! Audit entries are numbered without gaps in the order in which changes became true. They are what a snapshot
//! [follows](Snapshot::refreshed): it reads which objects changed since its own number, reads those anew, and shares all
//! others with the snapshot before it. What other servers change arrives the same way.
mod follow;
pub mod stored;

pub(crate) use follow::Changed;

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use crate::model::{
    ChangeNumber, Collection, CollectionId, Device, DeviceId, Farm, Id, Mac, PersistentCache, Server,
    ServerId, Site, SiteId, Store, StoreId, Stored, Timestamp, Uuid, Vdisk, VdiskId, Version,
};
use crate::rules::boot::{Asking, Decision, DiskFacts, decide};

/// All that boots are decided from, as it was after one change.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    change: ChangeNumber,
    farm: Option<Arc<Stored<Farm>>>,
    sites: HashMap<SiteId, Arc<Stored<Site>>>,
    servers: HashMap<ServerId, Arc<Stored<Server>>>,
    stores: HashMap<StoreId, Arc<Stored<Store>>>,
    vdisks: HashMap<VdiskId, Arc<VdiskFacts>>,
    collections: HashMap<CollectionId, Arc<Stored<Collection>>>,
    devices: HashMap<DeviceId, Arc<Stored<Device>>>,
    caches: HashMap<Id<PersistentCache>, Arc<Stored<PersistentCache>>>,
    by_mac: HashMap<Mac, DeviceId>,
    by_uuid: HashMap<Uuid, DeviceId>,
    by_name: HashMap<String, DeviceId>,
    by_initiator: HashMap<String, DeviceId>,
    by_device_and_vdisk: HashMap<(DeviceId, VdiskId), Id<PersistentCache>>,
}

/// A vDisk with its versions.
#[derive(Clone, Debug, PartialEq)]
pub struct VdiskFacts {
    /// The vDisk.
    pub vdisk: Stored<Vdisk>,
    /// Its versions, in the order of their numbers.
    pub versions: Vec<Stored<Version>>,
}

/// What is to be done with a machine that asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is known: this is what it gets.
    Known(Decision),
    /// It is not known, and joins this collection. That is a change, which takes the database.
    Newcomer(CollectionId),
    /// It is not known, and nobody is expected.
    Unknown,
}

impl Snapshot {
    /// After which change it is.
    #[must_use]
    pub const fn change(&self) -> ChangeNumber {
        self.change
    }

    /// The farm.
    #[must_use]
    pub fn farm(&self) -> Option<&Stored<Farm>> {
        self.farm.as_deref()
    }

    /// The device with one of these: by its network card first, since boards with the same UUID exist.
    #[must_use]
    pub fn device_of(&self, mac: Mac, uuid: Option<Uuid>) -> Option<&Stored<Device>> {
        let by_uuid = || uuid.and_then(|uuid| self.by_uuid.get(&uuid));
        self.device(*self.by_mac.get(&mac).or_else(by_uuid)?)
    }

    /// A device by its name.
    #[must_use]
    pub fn device_named(&self, name: &str) -> Option<&Stored<Device>> {
        self.device(*self.by_name.get(name)?)
    }

    /// The device whose initiator was given this name.
    #[must_use]
    pub fn device_with_initiator(&self, initiator: &str) -> Option<&Stored<Device>> {
        self.device(*self.by_initiator.get(initiator)?)
    }

    /// A device.
    #[must_use]
    pub fn device(&self, id: DeviceId) -> Option<&Stored<Device>> {
        self.devices.get(&id).map(AsRef::as_ref)
    }

    /// A vDisk with its versions.
    #[must_use]
    pub fn vdisk(&self, id: VdiskId) -> Option<&VdiskFacts> {
        self.vdisks.get(&id).map(AsRef::as_ref)
    }

    /// A site.
    #[must_use]
    pub fn site(&self, id: SiteId) -> Option<&Stored<Site>> {
        self.sites.get(&id).map(AsRef::as_ref)
    }

    /// A server.
    #[must_use]
    pub fn server(&self, id: ServerId) -> Option<&Stored<Server>> {
        self.servers.get(&id).map(AsRef::as_ref)
    }

    /// A store.
    #[must_use]
    pub fn store(&self, id: StoreId) -> Option<&Stored<Store>> {
        self.stores.get(&id).map(AsRef::as_ref)
    }

    /// A collection.
    #[must_use]
    pub fn collection(&self, id: CollectionId) -> Option<&Stored<Collection>> {
        self.collections.get(&id).map(AsRef::as_ref)
    }

    /// All sites, in no order.
    pub fn sites(&self) -> impl Iterator<Item = &Stored<Site>> {
        self.sites.values().map(AsRef::as_ref)
    }

    /// All servers, in no order.
    pub fn servers(&self) -> impl Iterator<Item = &Stored<Server>> {
        self.servers.values().map(AsRef::as_ref)
    }

    /// All stores, in no order.
    pub fn stores(&self) -> impl Iterator<Item = &Stored<Store>> {
        self.stores.values().map(AsRef::as_ref)
    }

    /// All collections, in no order.
    pub fn collections(&self) -> impl Iterator<Item = &Stored<Collection>> {
        self.collections.values().map(AsRef::as_ref)
    }

    /// All vDisks, in no order.
    pub fn vdisks(&self) -> impl Iterator<Item = &VdiskFacts> {
        self.vdisks.values().map(AsRef::as_ref)
    }

    /// All devices, in no order.
    pub fn devices(&self) -> impl Iterator<Item = &Stored<Device>> {
        self.devices.values().map(AsRef::as_ref)
    }

    /// Decides what a machine gets that asks `server` at the moment `now`.
    #[must_use]
    pub fn decide(&self, mac: Mac, uuid: Option<Uuid>, server: ServerId, now: Timestamp) -> Answer {
        let Some(server) = self.server(server) else { return Answer::Unknown };
        let Some(device) = self.device_of(mac, uuid) else {
            let takes = |collection: &&Arc<Stored<Collection>>| {
                collection.site == server.site && collection.newcomers.is_some() && !collection.disabled
            };
            let open = self.sites.get(&server.site).is_some_and(|site| !site.disabled);
            let collection = self.collections.values().find(takes).filter(|_| open);
            return collection.map_or(Answer::Unknown, |collection| Answer::Newcomer(collection.id));
        };
        self.decide_for(device.id, server.id, now).map_or(Answer::Unknown, Answer::Known)
    }

    /// Decides what a device gets that asks `server` at the moment `now`, however it was recognised; `None` where one of
    /// the two is not known.
    #[must_use]
    pub fn decide_for(&self, device: DeviceId, server: ServerId, now: Timestamp) -> Option<Decision> {
        let (device, server) = (self.device(device)?, self.server(server)?);
        let collection = self.collections.get(&device.collection)?;
        let site = self.sites.get(&collection.site)?;
        let asking = Asking { device, collection, site, server };
        Some(decide(&asking, |vdisk| self.facts(device.id, vdisk), now))
    }

    fn facts(&self, device: DeviceId, vdisk: VdiskId) -> Option<DiskFacts<'_>> {
        let VdiskFacts { vdisk, versions } = self.vdisks.get(&vdisk)?.as_ref();
        let store = self.stores.get(&vdisk.store)?;
        let cache =
            self.by_device_and_vdisk.get(&(device, vdisk.id)).and_then(|cache| self.caches.get(cache));
        Some(DiskFacts { vdisk, store, versions, cache: cache.map(|cache| &cache.value) })
    }
}

/// The present snapshot, for any number of threads.
#[derive(Debug, Default)]
pub struct SharedSnapshot(RwLock<Arc<Snapshot>>);

impl SharedSnapshot {
    /// Begins with this one.
    #[must_use]
    pub fn new(snapshot: Snapshot) -> Self {
        Self(RwLock::new(Arc::new(snapshot)))
    }

    /// The present one, which stays what it is for as long as it is held.
    #[must_use]
    pub fn get(&self) -> Arc<Snapshot> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts a newer one in its place; an older one is left out, so that threads that refresh at the same time cannot turn
    /// the time back.
    pub fn put(&self, snapshot: Arc<Snapshot>) {
        let mut present = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if snapshot.change >= present.change {
            *present = snapshot;
        }
    }
}
