//! How a snapshot comes to be, and keeps up with the catalogue.
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::{Snapshot, VdiskFacts};
use crate::catalogue::{Catalogue, CatalogueError, Reader, Record};
use crate::model::{
    ChangeNumber, Device, DeviceId, Id, ObjectKind, PersistentCache, Stored, Vdisk, VdiskId, Version,
    VersionId,
};

/// From this many changes on, everything is read anew: that takes a fifth of a second for 10,000 devices, and one object
/// after the other would take longer.
const MANY_CHANGES: i64 = 2000;

impl Snapshot {
    /// Reads everything.
    ///
    /// # Errors
    /// The database's.
    pub fn load(catalogue: &Catalogue) -> Result<Self, CatalogueError> {
        catalogue.read(load)
    }

    /// What this one becomes by the changes since; `None`: there were none.
    ///
    /// # Errors
    /// The database's.
    pub fn refreshed(&self, catalogue: &Catalogue) -> Result<Option<Self>, CatalogueError> {
        catalogue.read(|reader| {
            let latest = reader.latest_change()?;
            if latest == self.change {
                return Ok(None);
            }
            let behind = latest.0.saturating_sub(self.change.0);
            // A database that is behind us was restored from a backup: nothing of ours is sure.
            if !(0..=MANY_CHANGES).contains(&behind) {
                return load(reader).map(Some);
            }
            let Some(changed) = reader.changed_since(self.change)? else { return load(reader).map(Some) };
            let mut next = self.clone();
            for (kind, id) in changed {
                next.reread(reader, kind, id)?;
            }
            next.change = latest;
            Ok(Some(next))
        })
    }

    fn reread(&mut self, reader: &mut Reader<'_>, kind: ObjectKind, id: i64) -> Result<(), CatalogueError> {
        match kind {
            ObjectKind::Farm => self.farm = reader.farm()?.map(Arc::new),
            ObjectKind::Site => reread(reader, &mut self.sites, id)?,
            ObjectKind::Server => reread(reader, &mut self.servers, id)?,
            ObjectKind::Store => reread(reader, &mut self.stores, id)?,
            ObjectKind::Collection => reread(reader, &mut self.collections, id)?,
            ObjectKind::Vdisk => self.reread_vdisk(reader, Id::new(id)?)?,
            ObjectKind::Version => self.reread_version(reader, Id::new(id)?)?,
            ObjectKind::Device => {
                self.remove_device(Id::new(id)?);
                reader.find(Id::new(id)?)?.into_iter().for_each(|device| self.add_device(device));
            }
            ObjectKind::PersistentCache => {
                self.remove_cache(Id::new(id)?);
                reader.find(Id::new(id)?)?.into_iter().for_each(|cache| self.add_cache(cache));
            }
            // No boot depends on them.
            ObjectKind::View
            | ObjectKind::User
            | ObjectKind::Grant
            | ObjectKind::Token
            | ObjectKind::Task
            | ObjectKind::Lease => {}
        }
        Ok(())
    }

    fn reread_vdisk(&mut self, reader: &mut Reader<'_>, id: VdiskId) -> Result<(), CatalogueError> {
        match reader.find::<Vdisk>(id)? {
            None => self.vdisks.remove(&id),
            Some(vdisk) => {
                let versions = reader.versions(id)?;
                self.vdisks.insert(id, Arc::new(VdiskFacts { vdisk, versions }))
            }
        };
        Ok(())
    }

    /// One that is gone does not say whose it was: the snapshot does.
    fn reread_version(&mut self, reader: &mut Reader<'_>, id: VersionId) -> Result<(), CatalogueError> {
        let has = |facts: &&Arc<VdiskFacts>| facts.versions.iter().any(|version| version.id == id);
        let known = self.vdisks.values().find(has).map(|facts| facts.vdisk.id);
        let vdisk = reader.find::<Version>(id)?.map(|version| version.vdisk).or(known);
        vdisk.map_or(Ok(()), |vdisk| self.reread_vdisk(reader, vdisk))
    }

    fn add_device(&mut self, device: Stored<Device>) {
        let id = device.id;
        self.by_mac.extend(device.macs.as_slice().iter().map(|mac| (*mac, id)));
        self.by_uuid.extend(device.uuid.map(|uuid| (uuid, id)));
        self.by_name.insert(device.name.as_str().to_owned(), id);
        self.by_initiator
            .extend(device.initiator.iter().map(|initiator| (initiator.as_str().to_owned(), id)));
        self.devices.insert(id, Arc::new(device));
    }

    fn remove_device(&mut self, id: DeviceId) {
        let Some(device) = self.devices.remove(&id) else { return };
        // Another device may have taken over what was its own, and may have been read before it.
        let mine = |owner: &DeviceId| *owner == id;
        for mac in device.macs.as_slice() {
            if self.by_mac.get(mac).is_some_and(mine) {
                self.by_mac.remove(mac);
            }
        }
        if let Some(uuid) = device.uuid.filter(|uuid| self.by_uuid.get(uuid).is_some_and(mine)) {
            self.by_uuid.remove(&uuid);
        }
        if self.by_name.get(device.name.as_str()).is_some_and(mine) {
            self.by_name.remove(device.name.as_str());
        }
        if let Some(initiator) = &device.initiator
            && self.by_initiator.get(initiator.as_str()).is_some_and(mine)
        {
            self.by_initiator.remove(initiator.as_str());
        }
    }

    fn add_cache(&mut self, cache: Stored<PersistentCache>) {
        self.by_device_and_vdisk.insert((cache.device, cache.vdisk), cache.id);
        self.caches.insert(cache.id, Arc::new(cache));
    }

    fn remove_cache(&mut self, id: Id<PersistentCache>) {
        let Some(cache) = self.caches.remove(&id) else { return };
        let key = (cache.device, cache.vdisk);
        if self.by_device_and_vdisk.get(&key) == Some(&id) {
            self.by_device_and_vdisk.remove(&key);
        }
    }

    /// Puts a snapshot together out of its parts.
    pub(super) fn of(parts: Parts) -> Self {
        let mut versions: HashMap<VdiskId, Vec<Stored<Version>>> = HashMap::new();
        for version in parts.versions {
            versions.entry(version.vdisk).or_default().push(version);
        }
        let vdisks = parts.vdisks.into_iter().map(|vdisk| {
            let mut versions = versions.remove(&vdisk.id).unwrap_or_default();
            versions.sort_by_key(|version| version.number);
            (vdisk.id, Arc::new(VdiskFacts { vdisk, versions }))
        });
        let mut snapshot = Self {
            change: parts.change,
            farm: parts.farm.map(Arc::new),
            sites: by_id(parts.sites),
            servers: by_id(parts.servers),
            stores: by_id(parts.stores),
            vdisks: vdisks.collect(),
            collections: by_id(parts.collections),
            ..Self::default()
        };
        parts.devices.into_iter().for_each(|device| snapshot.add_device(device));
        parts.caches.into_iter().for_each(|cache| snapshot.add_cache(cache));
        snapshot
    }
}

/// What a snapshot is made of.
#[derive(Debug, serde::Deserialize)]
pub(super) struct Parts {
    pub(super) change: ChangeNumber,
    pub(super) farm: Option<Stored<crate::model::Farm>>,
    pub(super) sites: Vec<Stored<crate::model::Site>>,
    pub(super) servers: Vec<Stored<crate::model::Server>>,
    pub(super) stores: Vec<Stored<crate::model::Store>>,
    pub(super) vdisks: Vec<Stored<Vdisk>>,
    pub(super) versions: Vec<Stored<Version>>,
    pub(super) collections: Vec<Stored<crate::model::Collection>>,
    pub(super) devices: Vec<Stored<Device>>,
    pub(super) caches: Vec<Stored<PersistentCache>>,
}

fn load(reader: &mut Reader<'_>) -> Result<Snapshot, CatalogueError> {
    Ok(Snapshot::of(Parts {
        change: reader.latest_change()?,
        farm: reader.farm()?,
        sites: reader.all()?,
        servers: reader.all()?,
        stores: reader.all()?,
        vdisks: reader.all()?,
        versions: reader.all()?,
        collections: reader.all()?,
        devices: reader.all()?,
        caches: reader.all()?,
    }))
}

fn by_id<T>(objects: Vec<Stored<T>>) -> HashMap<Id<T>, Arc<Stored<T>>> {
    objects.into_iter().map(|object| (object.id, Arc::new(object))).collect()
}

fn reread<T: Record>(
    reader: &mut Reader<'_>,
    known: &mut HashMap<Id<T>, Arc<Stored<T>>>,
    id: i64,
) -> Result<(), CatalogueError> {
    let id = Id::new(id)?;
    match reader.find(id)? {
        Some(object) => known.insert(id, Arc::new(object)),
        None => known.remove(&id),
    };
    Ok(())
}

/// Objects, each once.
pub(crate) type Changed = BTreeSet<(ObjectKind, i64)>;
