//! What the configuration names, in the catalogue: stores, vDisks with their versions, and devices.
//!
//! The import is made at every start. It makes what is not there and brings what is there to what the file says; it never
//! takes anything away, and leaves alone what the file cannot say (a device's kind, its further vDisks, versions that were
//! made later). What contradicts something else in the catalogue is skipped and told, so that the server starts.
use farm::catalogue::{CatalogueError, Change};
use farm::model::{
    Access, AccessMode, BadValue, ByteSize, Chap, ChapUser, Collection, CollectionId, Description, Device,
    DeviceDisk, DeviceLimits, DeviceName, Disks, InitiatorName, Lineage, Mac, Macs, Name, Percent,
    SecretName, Server, Store, StoreId, StorePath, Stored, SubnetAffinity, Timestamp, Vdisk, VdiskId,
    VdiskName, Version, VersionState, WriteCache, WriteCacheKind, WriteCacheOverride,
};
use meter::Rates;

use super::survey::{self, FileVdisk, FileVersion};
use crate::config::{self, CacheKind, Config, UnknownDevices, derived_initiator};
use crate::stream::names::base_name;

/// The collection of the machines that `[[device]]` names.
const IMPORTED: &str = "imported";

/// The collection of those that nothing names, where `unknown_devices` serves them.
pub const UNKNOWN: &str = "unknown";

/// What is written down of what the import makes.
const FROM_FILE: &str = "from headwater.toml";

/// Imports everything; why something was left out is told.
///
/// # Errors
/// The database's, or a value that the catalogue cannot hold.
pub(super) fn import(
    config: &Config,
    found: &[FileVdisk],
    server: &Stored<Server>,
    change: &mut Change<'_>,
) -> Result<Vec<String>, CatalogueError> {
    let mut import = Import { config, server, change, skipped: Vec::new() };
    for (name, path) in &config.stores {
        // A path that is not UTF-8 cannot be written in TOML.
        let path = StorePath::new(&path.to_string_lossy())?;
        import.store(survey::store_name(name)?, path)?;
    }
    let mut vdisks = Vec::new();
    for vdisk in found {
        vdisks.push((vdisk.name.clone(), import.vdisk(vdisk)?));
    }
    let id_of = |name: &str| {
        vdisks.iter().find(|(known, _)| known.as_str() == base_name(name)).map(|(_, vdisk)| *vdisk)
    };
    if !config.devices.is_empty() {
        let collection = import.collection(IMPORTED)?;
        for device in &config.devices {
            // The configuration was refused if it named one that it does not define.
            let Some(vdisk) = id_of(&device.vdisk) else { continue };
            import.device(device, collection, vdisk)?;
        }
    }
    if let UnknownDevices::Vdisk(_) = &config.unknown_devices {
        import.collection(UNKNOWN)?;
    }
    Ok(import.skipped)
}

struct Import<'a, 'c> {
    config: &'a Config,
    server: &'a Stored<Server>,
    change: &'a mut Change<'c>,
    skipped: Vec<String>,
}

impl Import<'_, '_> {
    fn store(&mut self, name: Name, path: StorePath) -> Result<StoreId, CatalogueError> {
        let server = self.server.id;
        let Some(old) = found(self.change.store(&name))? else {
            let made = Store {
                name,
                description: Description::new(FROM_FILE)?,
                site: None,
                disabled: false,
                paths: [(server, path)].into(),
            };
            return Ok(self.change.create(made)?.id);
        };
        let mut store = old.value.clone();
        store.paths.insert(server, path);
        Ok(self.change.update_as("import", old.id, old.revision, store)?.id)
    }

    fn vdisk(&mut self, file: &FileVdisk) -> Result<VdiskId, CatalogueError> {
        let (name, path) = file.store.clone();
        let store = self.store(name, path)?;
        let mode = self.mode(file)?;
        let vdisk = match found(self.change.vdisk(store, &file.name))? {
            Some(old) => {
                let mut vdisk = old.value.clone();
                vdisk.mode = mode;
                self.change.update_as("import", old.id, old.revision, vdisk)?
            }
            None => self.change.create(fresh_vdisk(file.name.clone(), store, mode)?)?,
        };
        let known = self.change.versions(vdisk.id)?;
        for version in &file.versions {
            self.version(vdisk.id, &known, file, version)?;
        }
        if !file.lists_versions {
            return Ok(vdisk.id);
        }
        let newest = self.change.versions(vdisk.id)?.iter().map(|version| version.number).max();
        let held = (newest != Some(file.current)).then_some(file.current);
        if vdisk.override_version != held {
            self.change.hold(vdisk.id, vdisk.revision, held)?;
        }
        Ok(vdisk.id)
    }

    fn mode(&self, file: &FileVdisk) -> Result<AccessMode, BadValue> {
        if file.is_private {
            return Ok(AccessMode::Private);
        }
        let write_cache = &self.config.write_cache;
        Ok(AccessMode::Standard(WriteCache {
            kind: cache_kind(write_cache.kind).unwrap_or(WriteCacheKind::ServerDisk),
            limit: ByteSize::new(write_cache.limit.0)?,
            warn_at: Percent::new(write_cache.warn_percent)?,
        }))
    }

    fn version(
        &mut self,
        vdisk: VdiskId,
        known: &[Stored<Version>],
        file: &FileVdisk,
        version: &FileVersion,
    ) -> Result<(), CatalogueError> {
        // A private vDisk's file changes as its device writes.
        let mark = (!file.is_private).then_some(version.mark);
        let Some(old) = known.iter().find(|old| old.number == version.number) else {
            // A base that was merged away does not come back by its being in the file still.
            if !known.is_empty() && !file.lists_versions {
                return Ok(());
            }
            let lineage = version.parent.map_or(Lineage::Base, |parent| Lineage::Difference { parent });
            self.change.create(Version {
                vdisk,
                number: version.number,
                lineage,
                access: Access::Production { released: Timestamp::from_ms(0) },
                file: version.file.clone(),
                mark,
                state: VersionState::Ready,
                comment: Description::new(FROM_FILE)?,
                made_at: self.change.now(),
            })?;
            return Ok(());
        };
        // An image that stands alone may be exchanged for another while the server is down. Where versions stand on it,
        // or it was made here, a change is what the mark is to find.
        let alone = known.len() == 1 && old.lineage == Lineage::Base;
        if alone && old.access != Access::Maintenance {
            let new =
                Version { file: version.file.clone(), mark, state: VersionState::Ready, ..old.value.clone() };
            self.change.update_as("import", old.id, old.revision, new)?;
        }
        Ok(())
    }

    fn collection(&mut self, name: &str) -> Result<CollectionId, CatalogueError> {
        let name = Name::new(name)?;
        let site = self.server.site;
        if let Some(old) = found(self.change.collection(site, &name))? {
            return Ok(old.id);
        }
        let description = Description::new(FROM_FILE)?;
        let made = Collection::plain(name, site, description);
        Ok(self.change.create(made)?.id)
    }

    fn device(
        &mut self,
        file: &config::Device,
        collection: CollectionId,
        vdisk: VdiskId,
    ) -> Result<(), CatalogueError> {
        let name = DeviceName::new(file.name.as_str())?;
        let mac = Mac::new(file.mac.0)?;
        let old = found(self.change.device(&name))?;
        let holder = self.change.device_by_mac(mac)?;
        if let Some(holder) = holder.filter(|holder| holder.name != name) {
            let other = &holder.name;
            self.skipped.push(format!(
                "device \"{name}\" is left out: the catalogue knows the machine with its MAC address as \"{other}\""
            ));
            return Ok(());
        }
        let done = match old {
            None => {
                let device = blank(name.clone(), collection)?;
                self.filled(device, file, mac, vdisk)
                    .map_err(Into::into)
                    .and_then(|device| self.change.create(device).map(drop))
            }
            Some(old) => {
                let device = self.filled(old.value.clone(), file, mac, vdisk)?;
                self.change.update_as("import", old.id, old.revision, device).map(drop)
            }
        };
        match done {
            Err(taken @ CatalogueError::Taken { .. }) => {
                self.skipped.push(format!("device \"{name}\" is not changed: {taken}"));
                Ok(())
            }
            other => other,
        }
    }

    /// The device with what the file says of it; all else stays.
    fn filled(
        &self,
        mut device: Device,
        file: &config::Device,
        mac: Mac,
        vdisk: VdiskId,
    ) -> Result<Device, BadValue> {
        if !device.macs.as_slice().contains(&mac) {
            device.macs = Macs::new(vec![mac])?;
        }
        device.address = file.address;
        let derived = derived_initiator(&self.config.iscsi.iqn_prefix, &file.name);
        device.initiator = match derived {
            Some(derived) if derived == file.initiator => None,
            _ => Some(InitiatorName::new(file.initiator.as_str())?),
        };
        let own_secret = SecretName::new(device.name.as_str())?;
        device.chap = match &file.chap {
            Some(chap) => Some(Chap { user: ChapUser::new(&chap.user)?, secret: own_secret }),
            None => device.chap.filter(|chap| chap.secret != own_secret),
        };
        let first = device.profile.disks.as_slice().first().map(|disk| disk.vdisk);
        if first != Some(vdisk) {
            let others = device.profile.disks.as_slice().iter().filter(|disk| disk.vdisk != vdisk).cloned();
            let own = DeviceDisk { vdisk, menu_text: None, disabled: false };
            device.profile.disks = Disks::new(std::iter::once(own).chain(others).collect())?;
        }
        let limit = file.write_cache_limit.map(|limit| ByteSize::new(limit.0)).transpose()?;
        device.profile.write_cache =
            WriteCacheOverride { kind: file.write_cache.and_then(cache_kind), limit };
        device.profile.limits = file.limits.map(limits).transpose()?.unwrap_or_default();
        Ok(device)
    }
}

/// A machine that nothing names, as a device.
///
/// # Errors
/// A name that the catalogue cannot hold.
pub fn stranger(
    name: &config::DeviceName,
    mac: Mac,
    collection: CollectionId,
    vdisk: VdiskId,
) -> Result<Device, BadValue> {
    let mut device = blank(DeviceName::new(name.as_str())?, collection)?;
    device.macs = Macs::new(vec![mac])?;
    device.profile.disks = Disks::one(vdisk);
    Ok(device)
}

fn blank(name: DeviceName, collection: CollectionId) -> Result<Device, BadValue> {
    Ok(Device::plain(name, collection, Description::new(FROM_FILE)?))
}

fn fresh_vdisk(name: VdiskName, store: StoreId, mode: AccessMode) -> Result<Vdisk, BadValue> {
    Ok(Vdisk {
        name,
        store,
        description: Description::new(FROM_FILE)?,
        menu_text: None,
        asks_login: false,
        mode,
        override_version: None,
        server: None,
        affinity: SubnetAffinity::None,
        disabled: false,
    })
}

fn cache_kind(kind: CacheKind) -> Option<WriteCacheKind> {
    match kind {
        CacheKind::Disk => Some(WriteCacheKind::ServerDisk),
        CacheKind::Memory => Some(WriteCacheKind::ServerMemory),
        CacheKind::Persistent => Some(WriteCacheKind::ServerDiskPersistent),
        CacheKind::None => None,
    }
}

fn limits(rates: Rates) -> Result<DeviceLimits, BadValue> {
    Ok(DeviceLimits {
        bytes_per_second: rates.bytes_per_second.map(ByteSize::new).transpose()?,
        requests_per_second: rates.requests_per_second.map(|n| u32::try_from(n).unwrap_or(u32::MAX)),
    })
}

/// Nothing where there is no such object.
fn found<T>(looked_up: Result<Stored<T>, CatalogueError>) -> Result<Option<Stored<T>>, CatalogueError> {
    match looked_up {
        Ok(object) => Ok(Some(object)),
        Err(CatalogueError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
