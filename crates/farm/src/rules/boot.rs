//! What a machine that asks is given: its boot menu, or why it gets nothing.
//!
//! The decision takes nothing but what it is handed. It grants no lease: [`Entry::lease`] says which one whoever boots
//! the device must get first.
use super::entitlement::{Entitlement, Writes, chain, entitled, find, others};
use super::refusal::Refusal;
use crate::model::{
    AccessKind, Choice as _, Collection, Device, DeviceDisk, DeviceId, FileName, LocalDisk, MenuText,
    PersistentCache, Purpose, Server, ServerId, Sharing, Site, Store, StorePath, Stored, Subject, Timestamp,
    Vdisk, VdiskId, Version, VersionId, VersionNumber, WriteCacheKind,
};

/// All that a decision needs to know.
#[derive(Clone, Debug)]
pub struct Asking<'a> {
    /// The device that asks.
    pub device: &'a Stored<Device>,
    /// The collection that it is in.
    pub collection: &'a Stored<Collection>,
    /// The site of that.
    pub site: &'a Stored<Site>,
    /// The server that is asked.
    pub server: &'a Stored<Server>,
}

/// What there is to know about one vDisk of a device.
#[derive(Clone, Copy, Debug)]
pub struct DiskFacts<'a> {
    /// The vDisk.
    pub vdisk: &'a Stored<Vdisk>,
    /// The store that it lies in.
    pub store: &'a Stored<Store>,
    /// Its versions, in the order of their numbers.
    pub versions: &'a [Stored<Version>],
    /// The device's persistent write cache on it, if it has one.
    pub cache: Option<&'a PersistentCache>,
}

/// What a device is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// These choices.
    Boot(Offer),
    /// Its own disk, as there is no vDisk that it could boot.
    LocalDisk(DeviceId),
    /// Nothing.
    Nothing(NoBoot),
}

/// The choices of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Which device.
    pub device: DeviceId,
    /// vDisks that it can boot, in its boot order; never empty. Without a choice, it boots the first.
    pub entries: Vec<Entry>,
    /// Other versions of them that it may choose, in the same order, newest first.
    pub others: Vec<Entry>,
    /// Whether its own disk is a choice too, and whether that is the one without a choice.
    pub local_disk: LocalDisk,
    /// vDisks that it cannot boot at present, and why.
    pub left_out: Vec<(VdiskId, NoBoot)>,
}

/// A vDisk that a device can boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Which vDisk.
    pub vdisk: VdiskId,
    /// Which version of it.
    pub version: VersionId,
    /// The number of that.
    pub number: VersionNumber,
    /// Where the store lies on the server that is asked.
    pub path: StorePath,
    /// The files of the version's chain in the store, its own first.
    pub files: Vec<FileName>,
    /// Where its writes go.
    pub writes: Writes,
    /// What the menu calls it.
    pub menu_text: String,
    /// Whether somebody must log in before it boots.
    pub asks_login: bool,
    /// The lease that the device needs to run on it.
    pub lease: (Subject, Sharing, Purpose),
}

/// Why a device gets nothing, or not this vDisk.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoBoot {
    /// Somebody disabled it.
    #[error("{what} {name} is disabled")]
    Disabled {
        /// What: `device`, `site`, ...
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// It has no vDisks.
    #[error("device {0} has no vDisk: assign one")]
    NoVdisk(String),
    /// The server that is asked may not, or cannot, serve it.
    #[error("server {server} does not serve vDisk {vdisk}: {why}")]
    NotHere {
        /// Which vDisk.
        vdisk: String,
        /// Which server.
        server: String,
        /// Why.
        why: &'static str,
    },
    /// There is no version for it.
    #[error("vDisk {vdisk}: {why}")]
    NoVersion {
        /// Which vDisk.
        vdisk: String,
        /// Why.
        why: Refusal,
    },
    /// Its persistent write cache belongs to another version.
    #[error(
        "device {device} has a persistent write cache that was made on version {made_on} of vDisk {vdisk}, and would boot \
         version {entitled}: let it stay on version {made_on}, or discard its write cache: headwater device reset {device} \
         --discard-persistent"
    )]
    CacheOfOtherVersion {
        /// Which device.
        device: String,
        /// Which vDisk.
        vdisk: String,
        /// Its write cache's version.
        made_on: VersionNumber,
        /// The version that it is entitled to.
        entitled: VersionNumber,
    },
    /// Its persistent write cache lies on another server.
    #[error(
        "the persistent write cache of device {device} on vDisk {vdisk} lies on server #{server}: boot it from there"
    )]
    CacheElsewhere {
        /// Which device.
        device: String,
        /// Which vDisk.
        vdisk: String,
        /// On which server.
        server: ServerId,
    },
}

/// Decides what a device is given. `facts` knows its vDisks; a vDisk that it does not know is not in the catalogue, and
/// passed over.
pub fn decide<'a>(
    asking: &Asking<'a>,
    facts: impl Fn(VdiskId) -> Option<DiskFacts<'a>>,
    now: Timestamp,
) -> Decision {
    let device = asking.device;
    let switches = [
        (device.disabled, "device", device.name.as_str()),
        (asking.collection.disabled, "collection", asking.collection.name.as_str()),
        (asking.site.disabled, "site", asking.site.name.as_str()),
    ];
    if let Some((_, what, name)) = switches.into_iter().find(|(disabled, ..)| *disabled) {
        return Decision::Nothing(NoBoot::Disabled { what, name: name.to_owned() });
    }
    let (mut entries, mut others, mut left_out) = (Vec::new(), Vec::new(), Vec::new());
    for disk in device.profile.disks.as_slice() {
        let Some(facts) = facts(disk.vdisk) else { continue };
        match entry(asking, disk, &facts, now) {
            Ok((entry, more)) => {
                entries.push(entry);
                others.extend(more);
            }
            Err(why) => left_out.push((disk.vdisk, why)),
        }
    }
    let local_disk = device.profile.local_disk;
    if !entries.is_empty() {
        return Decision::Boot(Offer { device: device.id, entries, others, local_disk, left_out });
    }
    // Its own disk is what it was allowed, and not what it gets in place of a vDisk that is broken.
    match (local_disk, left_out.into_iter().next()) {
        (LocalDisk::First, _) | (LocalDisk::Offered, None) => Decision::LocalDisk(device.id),
        (_, Some((_, why))) => Decision::Nothing(why),
        (LocalDisk::No, None) => Decision::Nothing(NoBoot::NoVdisk(device.name.to_string())),
    }
}

/// What a vDisk is for the device: what it boots without a choice, and what else it may choose.
fn entry(
    asking: &Asking<'_>,
    disk: &DeviceDisk,
    facts: &DiskFacts<'_>,
    now: Timestamp,
) -> Result<(Entry, Vec<Entry>), NoBoot> {
    let DiskFacts { vdisk, store, versions, cache } = *facts;
    let device = asking.device;
    let name = vdisk.name.to_string();
    let switches = [
        (disk.disabled, "the use by this device of vDisk"),
        (vdisk.disabled, "vDisk"),
        (store.disabled, "the store of vDisk"),
    ];
    if let Some((_, what)) = switches.into_iter().find(|(disabled, _)| *disabled) {
        return Err(NoBoot::Disabled { what, name });
    }
    let path = served(asking.server, vdisk, store)?;
    let no_version = |why| NoBoot::NoVersion { vdisk: name.clone(), why };
    let profile = &device.profile;
    let mut found = entitled(profile.kind, profile.write_cache, vdisk, versions, now).map_err(no_version)?;
    let persistent =
        matches!(found.writes, Writes::Cache(cache) if cache.kind == WriteCacheKind::ServerDiskPersistent);
    if let Some(cache) = cache.filter(|_| persistent) {
        if cache.version != found.version.number {
            if !cache.stays {
                return Err(NoBoot::CacheOfOtherVersion {
                    device: device.name.to_string(),
                    vdisk: name,
                    made_on: cache.version,
                    entitled: found.version.number,
                });
            }
            let kept = find(versions, cache.version).and_then(super::entitlement::ready);
            found.version = kept.map_err(no_version)?;
        }
        if cache.server != asking.server.id {
            let device = device.name.to_string();
            return Err(NoBoot::CacheElsewhere { device, vdisk: name, server: cache.server });
        }
    }
    let usual = found.version.number;
    let more = others(profile.kind, profile.write_cache, vdisk, versions, usual);
    // A version whose chain is broken is no choice; of the usual one that must be told.
    let more = more.into_iter().filter_map(|other| entry_of(disk, facts, &path, other, true).ok()).collect();
    let numbered = found.version.access.kind() != AccessKind::Production;
    Ok((entry_of(disk, facts, &path, found, numbered).map_err(no_version)?, more))
}

/// The entry of a version; `numbered`: its text names the version.
fn entry_of(
    disk: &DeviceDisk,
    facts: &DiskFacts<'_>,
    path: &StorePath,
    found: Entitlement<'_>,
    numbered: bool,
) -> Result<Entry, Refusal> {
    let DiskFacts { vdisk, versions, .. } = *facts;
    let files = chain(versions, found.version)?;
    let (sharing, purpose) = match found.writes {
        Writes::Cache(_) => (Sharing::Shared, Purpose::Boot),
        Writes::Maintenance => (Sharing::Exclusive, Purpose::Maintenance),
        Writes::Private => (Sharing::Exclusive, Purpose::Private),
    };
    let menu = disk.menu_text.as_ref().or(vdisk.menu_text.as_ref()).map(MenuText::to_string);
    let menu = menu.unwrap_or_else(|| vdisk.name.to_string());
    let access = found.version.access.kind().word();
    let menu_text =
        if numbered { format!("{menu} (version {}, {access})", found.version.number) } else { menu };
    Ok(Entry {
        vdisk: vdisk.id,
        version: found.version.id,
        number: found.version.number,
        path: path.clone(),
        files: files.into_iter().map(|version| version.file.clone()).collect(),
        writes: found.writes,
        menu_text,
        asks_login: vdisk.asks_login,
        lease: (Subject::Contents(found.version.id), sharing, purpose),
    })
}

/// Where the server reaches the store of a vDisk that it may serve.
fn served(server: &Stored<Server>, vdisk: &Vdisk, store: &Store) -> Result<StorePath, NoBoot> {
    let not_here =
        |why| NoBoot::NotHere { vdisk: vdisk.name.to_string(), server: server.name.to_string(), why };
    if server.disabled {
        return Err(not_here("the server is disabled"));
    }
    if vdisk.server.is_some_and(|only| only != server.id) {
        return Err(not_here("it is bound to another server"));
    }
    if store.site.is_some_and(|site| site != server.site) {
        return Err(not_here("its store belongs to another site"));
    }
    store.paths.get(&server.id).cloned().ok_or_else(|| not_here("its store has no path on the server"))
}
