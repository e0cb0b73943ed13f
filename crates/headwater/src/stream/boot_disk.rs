//! What a boot runs on: decided when it begins, remembered as long as it goes on, also over restarts of the server.
use std::path::PathBuf;

use farm::catalogue::Change;
use farm::model::{
    Access, AccessMode, Choice as _, DeviceId, DeviceKind, Owner, PersistentCache, Purpose, ServerId,
    Sharing, StorePath, Stored, Subject, Timestamp, VdiskId, Version, VersionId, VersionNumber, VersionState,
    WriteCacheKind, WriteCacheOverride,
};
use farm::rules::boot::Entry;
use farm::rules::entitlement::{Writes, entitled};
use farm::rules::leases::Wanted;
use farm::snapshot::{Snapshot, VdiskFacts};
use serde::{Deserialize, Serialize};

use super::images::ImageAt;
use crate::catalogue::leases::Checked;
use crate::catalogue::local::Local;

/// The disk of a boot: a version of a vDisk, and where writes go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootDisk {
    /// The vDisk.
    pub vdisk: VdiskId,
    /// Its name.
    pub name: String,
    /// The version.
    pub version: VersionId,
    /// Its number.
    pub number: VersionNumber,
    /// Its image.
    pub image: ImageAt,
    /// Where the device's writes go.
    pub writes: Writes,
    /// When this was decided.
    pub since: Timestamp,
}

impl BootDisk {
    /// The disk of an entry of what a device is offered; `pinned`: in this version.
    ///
    /// # Errors
    /// In words, why it cannot be used.
    pub fn of(
        snapshot: &Snapshot,
        local: &Local,
        entry: &Entry,
        pinned: Option<VersionNumber>,
        now: Timestamp,
    ) -> Result<Self, String> {
        let facts = snapshot.vdisk(entry.vdisk).ok_or("the vDisk is gone")?;
        let number = pinned.filter(|_| matches!(entry.writes, Writes::Cache(_))).unwrap_or(entry.number);
        Self::version_of(snapshot, local, facts, number, &entry.path, entry.writes, now)
    }

    /// A vDisk as production devices get it now, or a version of it by number, to be read; `None`: it has no such version.
    ///
    /// # Errors
    /// In words, why it cannot be used.
    pub fn to_read(
        snapshot: &Snapshot,
        local: &Local,
        facts: &VdiskFacts,
        number: Option<VersionNumber>,
        server: ServerId,
        now: Timestamp,
    ) -> Result<Option<Self>, String> {
        let VdiskFacts { vdisk, versions } = facts;
        let AccessMode::Standard(cache) = vdisk.mode else { return Ok(None) };
        let number = match number {
            Some(number) => number,
            None => {
                let usual = WriteCacheOverride::default();
                let found = entitled(DeviceKind::Production, usual, vdisk, versions, now);
                found.map_err(|why| why.to_string())?.version.number
            }
        };
        let served = |version: &&Stored<Version>| {
            version.number == number && version.access != Access::Maintenance && version.mark.is_some()
        };
        if !versions.iter().any(|version| served(&version)) {
            return Ok(None);
        }
        let path = snapshot.store(vdisk.store).and_then(|store| store.paths.get(&server));
        let path = path.ok_or("its store has no path on this server")?;
        Self::version_of(snapshot, local, facts, number, path, Writes::Cache(cache), now).map(Some)
    }

    fn version_of(
        snapshot: &Snapshot,
        local: &Local,
        facts: &VdiskFacts,
        number: VersionNumber,
        path: &StorePath,
        writes: Writes,
        now: Timestamp,
    ) -> Result<Self, String> {
        let version = facts.versions.iter().find(|version| version.number == number);
        let version = version.ok_or_else(|| format!("vDisk {} has no version {number}", facts.vdisk.name))?;
        if version.state != VersionState::Ready {
            return Err(format!("version {number} of vDisk {} cannot be used now", facts.vdisk.name));
        }
        let own = local.vdisk(snapshot, &facts.vdisk);
        let folder = PathBuf::from(path.as_str());
        let image = ImageAt {
            path: folder.join(version.file.as_str()),
            store: Some(own.and_then(|own| own.store.clone()).unwrap_or(folder)),
            format: own.and_then(|own| own.format),
        };
        Ok(Self {
            vdisk: facts.vdisk.id,
            name: facts.vdisk.name.to_string(),
            version: version.id,
            number,
            image,
            writes,
            since: now,
        })
    }

    /// Whether the device writes the image itself.
    #[must_use]
    pub fn is_written(&self) -> bool {
        !matches!(self.writes, Writes::Cache(_))
    }

    /// Whether what it writes is in the server's memory alone.
    #[must_use]
    pub fn is_in_memory(&self) -> bool {
        matches!(self.writes, Writes::Cache(cache) if cache.kind == WriteCacheKind::ServerMemory)
    }

    /// The lease that a device needs for it.
    #[must_use]
    pub fn wanted(&self, device: DeviceId) -> Wanted {
        let (sharing, purpose) = match self.writes {
            Writes::Cache(_) => (Sharing::Shared, Purpose::Boot),
            Writes::Maintenance => (Sharing::Exclusive, Purpose::Maintenance),
            Writes::Private => (Sharing::Exclusive, Purpose::Private),
        };
        let subject = Subject::Contents(self.version);
        Wanted { subject, sharing, purpose, owner: Owner::Device(device) }
    }

    /// Looks, in the transaction that takes the lease, whether the version is still what was decided on, and writes down
    /// what a boot with a persistent write cache leaves behind; `begins`: the boot begins by it.
    ///
    /// # Errors
    /// The database's.
    pub fn check(
        &self,
        change: &mut Change<'_>,
        device: DeviceId,
        server: ServerId,
        begins: bool,
    ) -> Checked {
        let Some(version) = change.find(self.version)? else {
            return Ok(Err(format!(
                "version {} of vDisk {} was deleted: restart the device",
                self.number, self.name
            )));
        };
        if let Err(why) = self.still_fits(&version) {
            return Ok(Err(why));
        }
        // A boot that goes on may do so on a version that is to go, or whose file is looked at when it is opened.
        if begins && version.state != VersionState::Ready {
            let state = version.state.word();
            return Ok(Err(format!("version {} of vDisk {} is {state}", self.number, self.name)));
        }
        let mode = change.get(self.vdisk)?.mode;
        if (mode == AccessMode::Private) != (self.writes == Writes::Private) {
            return Ok(Err(format!("vDisk {} is used in another way now: restart the device", self.name)));
        }
        let persistent =
            matches!(self.writes, Writes::Cache(cache) if cache.kind == WriteCacheKind::ServerDiskPersistent);
        if persistent && change.persistent_cache(device, self.vdisk)?.is_none() {
            let (vdisk, version, made_at) = (self.vdisk, self.number, change.now());
            change.create(PersistentCache { device, vdisk, version, server, stays: false, made_at })?;
        }
        Ok(Ok(()))
    }

    fn still_fits(&self, version: &Stored<Version>) -> Result<(), String> {
        let maintenance = version.access == Access::Maintenance;
        let written = self.writes == Writes::Maintenance;
        if maintenance == written || self.writes == Writes::Private {
            return Ok(());
        }
        let became = if written { "was promoted" } else { "went back to maintenance" };
        Err(format!("version {} of vDisk {} {became} meanwhile: restart the device", self.number, self.name))
    }
}
