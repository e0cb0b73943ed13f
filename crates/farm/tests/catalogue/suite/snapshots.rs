//! The snapshot: what it decides, and that it keeps up with every change.
use farm::catalogue::Catalogue;
use farm::model::{
    AccessMode, Device, DeviceKind, LocalDisk, PersistentCache, Purpose, Sharing, Timestamp, VersionNumber,
    VersionState, WriteCacheKind, WriteCacheOverride,
};
use farm::rules::boot::{Decision, NoBoot, Offer};
use farm::rules::entitlement::Writes;
use farm::rules::lifecycle::Promotion;
use farm::snapshot::{Answer, SharedSnapshot, Snapshot, stored};

use super::Case;
use crate::sample::{Small, actor, at, base, booting, change, device, mac, small, text};

pub(super) const CASES: &[Case] = &[
    ("device_is_offered_what_it_is_entitled_to", device_is_offered_what_it_is_entitled_to),
    ("what_is_disabled_anywhere_does_not_boot", what_is_disabled_anywhere_does_not_boot),
    ("persistent_cache_of_another_version_is_refused", persistent_cache_of_another_version_is_refused),
    ("machine_that_nobody_knows_joins_or_is_ignored", machine_that_nobody_knows_joins_or_is_ignored),
    ("refreshed_snapshot_is_the_loaded_one", refreshed_snapshot_is_the_loaded_one),
    ("snapshot_on_disk_decides_as_the_one_in_memory", snapshot_on_disk_decides_as_the_one_in_memory),
];

fn answer(snapshot: &Snapshot, s: &Small, number: u32, now: Timestamp) -> Answer {
    snapshot.decide(mac(number), None, s.server, now)
}

fn offer(catalogue: &Catalogue, s: &Small, number: u32, now: Timestamp) -> Offer {
    match answer(&Snapshot::load(catalogue).unwrap(), s, number, now) {
        Answer::Known(Decision::Boot(offer)) => offer,
        other => panic!("{other:?}"),
    }
}

fn refusal(catalogue: &Catalogue, s: &Small, number: u32) -> NoBoot {
    match answer(&Snapshot::load(catalogue).unwrap(), s, number, at(0)) {
        Answer::Known(Decision::Nothing(why)) => why,
        other => panic!("{other:?}"),
    }
}

fn device_is_offered_what_it_is_entitled_to(catalogue: &Catalogue) {
    let s = small(catalogue);
    change(catalogue, |change| {
        for (number, kind) in [(1, DeviceKind::Production), (2, DeviceKind::Maintenance)] {
            let mut device = booting(number, &s);
            device.profile.kind = kind;
            change.create(device)?;
        }
        let made = change.new_maintenance(s.vdisk, None, text(""))?;
        change.set_version_state(made.id, made.revision, VersionState::Ready, None)
    })
    .unwrap();
    let first = &offer(catalogue, &s, 1, at(0)).entries[0];
    assert_eq!((first.number, first.menu_text.as_str()), (VersionNumber::BASE, "golden"));
    assert_eq!((first.path.as_str(), first.files[0].as_str()), ("/srv/vdisks", "golden.vhdx"));
    assert!(matches!(first.writes, Writes::Cache(_)));
    assert_eq!((first.lease.1, first.lease.2), (Sharing::Shared, Purpose::Boot));
    let second = &offer(catalogue, &s, 2, at(0)).entries[0];
    assert_eq!((second.number.get(), second.menu_text.as_str()), (1, "golden (version 1, maintenance)"));
    let files: Vec<&str> = second.files.iter().map(|file| file.as_str()).collect();
    assert_eq!(files, ["golden.1.avhdx", "golden.vhdx"]);
    assert_eq!((second.writes, second.lease.1), (Writes::Maintenance, Sharing::Exclusive));
    // A scheduled release takes effect at its moment, without anything being read again.
    let version = catalogue.read(|reader| reader.versions(s.vdisk)).unwrap().remove(1);
    let mark = base(s.vdisk, "golden").mark.unwrap_or(farm::model::FileMark {
        length: farm::model::ByteSize::new(1).unwrap(),
        disk_size: farm::model::ByteSize::new(1).unwrap(),
        image: None,
        data_write: None,
    });
    let to = Promotion::Production(at(500));
    change(catalogue, |change| change.promote(version.id, version.revision, to, mark)).unwrap();
    assert_eq!(offer(catalogue, &s, 1, at(499)).entries[0].number.get(), 0);
    assert_eq!(offer(catalogue, &s, 1, at(500)).entries[0].number.get(), 1);
}

fn what_is_disabled_anywhere_does_not_boot(catalogue: &Catalogue) {
    let s = small(catalogue);
    let id = change(catalogue, |change| change.create(booting(1, &s))).unwrap().id;
    macro_rules! disabled {
        ($id:expr) => {{
            let old = catalogue.read(|reader| reader.get($id)).unwrap();
            let mut off = old.value.clone();
            off.disabled = true;
            let off = change(catalogue, |change| change.update($id, old.revision, off.clone())).unwrap();
            let why = refusal(catalogue, &s, 1).to_string();
            change(catalogue, |change| change.update($id, off.revision, old.value.clone())).unwrap();
            why
        }};
    }
    assert_eq!(disabled!(id), "device lab-00001 is disabled");
    assert_eq!(disabled!(s.collection), "collection Lab is disabled");
    assert_eq!(disabled!(s.site), "site Berlin is disabled");
    assert_eq!(disabled!(s.vdisk), "vDisk golden is disabled");
    assert_eq!(disabled!(s.store), "the store of vDisk golden is disabled");
    assert_eq!(disabled!(s.server), "server one does not serve vDisk golden: the server is disabled");
    assert_eq!(offer(catalogue, &s, 1, at(0)).entries.len(), 1);
    change(catalogue, |change| change.create(device(2, s.collection))).unwrap();
    assert_eq!(refusal(catalogue, &s, 2).to_string(), "device lab-00002 has no vDisk: assign one");
    let mut local = device(3, s.collection);
    local.profile.local_disk = LocalDisk::First;
    let local = change(catalogue, |change| change.create(local.clone())).unwrap();
    let decided = answer(&Snapshot::load(catalogue).unwrap(), &s, 3, at(0));
    assert_eq!(decided, Answer::Known(Decision::LocalDisk(local.id)));
}

fn persistent_cache_of_another_version_is_refused(catalogue: &Catalogue) {
    let s = small(catalogue);
    let mut persistent = booting(1, &s);
    persistent.profile.write_cache =
        WriteCacheOverride { kind: Some(WriteCacheKind::ServerDiskPersistent), limit: None };
    let device = change(catalogue, |change| change.create(persistent.clone())).unwrap().id;
    let cache = PersistentCache {
        device,
        vdisk: s.vdisk,
        version: VersionNumber::BASE,
        server: s.server,
        stays: false,
        made_at: at(0),
    };
    let cache = change(catalogue, |change| {
        let mut newer = base(s.vdisk, "golden");
        newer.number = VersionNumber::new(1)?;
        newer.lineage = farm::model::Lineage::Difference { parent: VersionNumber::BASE };
        newer.file = text("golden.1.avhdx");
        change.create(newer)?;
        change.create(cache.clone())
    })
    .unwrap();
    let why = refusal(catalogue, &s, 1);
    assert!(matches!(why, NoBoot::CacheOfOtherVersion { .. }), "{why}");
    let mut stays = cache.value.clone();
    stays.stays = true;
    change(catalogue, |change| change.update(cache.id, cache.revision, stays.clone())).unwrap();
    assert_eq!(offer(catalogue, &s, 1, at(0)).entries[0].number, VersionNumber::BASE);
    change(catalogue, |change| change.delete(cache.id, cache.revision.next())).unwrap();
    assert_eq!(offer(catalogue, &s, 1, at(0)).entries[0].number.get(), 1);
}

fn machine_that_nobody_knows_joins_or_is_ignored(catalogue: &Catalogue) {
    let s = small(catalogue);
    assert_eq!(answer(&Snapshot::load(catalogue).unwrap(), &s, 99, at(0)), Answer::Unknown);
    change(catalogue, |change| {
        let mut open = change.get(s.collection)?;
        open.value.newcomers = Some("pc-##".parse()?);
        change.update(open.id, open.revision, open.value)
    })
    .unwrap();
    assert_eq!(answer(&Snapshot::load(catalogue).unwrap(), &s, 99, at(0)), Answer::Newcomer(s.collection));
}

/// Every kind of change, one after the other: the snapshot that follows them must be the one that is read anew.
fn refreshed_snapshot_is_the_loaded_one(catalogue: &Catalogue) {
    let s = small(catalogue);
    let shared = SharedSnapshot::new(Snapshot::load(catalogue).unwrap());
    let keep_up = |what: &str| {
        let refreshed = shared.get().refreshed(catalogue).unwrap().unwrap();
        shared.put(std::sync::Arc::new(refreshed));
        let loaded = Snapshot::load(catalogue).unwrap();
        assert_eq!(*shared.get(), loaded, "{what}");
        assert!(shared.get().refreshed(catalogue).unwrap().is_none());
    };
    let first = change(catalogue, |change| change.create(booting(1, &s))).unwrap();
    keep_up("a device was made");
    // Two devices swap their addresses in one change.
    let second = change(catalogue, |change| change.create(booting(2, &s))).unwrap();
    change(catalogue, |change| {
        let none = Device { macs: Default::default(), ..first.value.clone() };
        let freed = change.update(first.id, first.revision, none)?;
        let taken = Device { macs: first.macs.clone(), ..second.value.clone() };
        change.update(second.id, second.revision, taken)?;
        let swapped = Device { macs: second.macs.clone(), ..first.value.clone() };
        change.update(first.id, freed.revision, swapped)
    })
    .unwrap();
    keep_up("two devices swapped addresses");
    let made = change(catalogue, |change| change.new_maintenance(s.vdisk, None, text(""))).unwrap();
    keep_up("a version was made");
    change(catalogue, |change| change.delete(made.id, made.revision)).unwrap();
    keep_up("a version was deleted");
    change(catalogue, |change| {
        let mut private = change.get(s.vdisk)?;
        private.value.mode = AccessMode::Private;
        change.update(private.id, private.revision, private.value)
    })
    .unwrap();
    keep_up("a vDisk was changed");
    let cache = PersistentCache {
        device: first.id,
        vdisk: s.vdisk,
        version: VersionNumber::BASE,
        server: s.server,
        stays: true,
        made_at: at(0),
    };
    let cache = change(catalogue, |change| change.create(cache.clone())).unwrap();
    keep_up("a cache was made");
    change(catalogue, |change| change.delete(cache.id, cache.revision)).unwrap();
    keep_up("a cache was deleted");
    change(catalogue, |change| {
        let device = change.get(first.id)?;
        change.delete(device.id, device.revision)
    })
    .unwrap();
    keep_up("a device was deleted");
    catalogue.change(&actor(), at(9), |change| change.archive_audit(at(5))).unwrap();
    let old = Snapshot::default().refreshed(catalogue).unwrap().unwrap();
    assert_eq!(
        old,
        Snapshot::load(catalogue).unwrap(),
        "entries that are gone are no reason to miss a change"
    );
}

fn snapshot_on_disk_decides_as_the_one_in_memory(catalogue: &Catalogue) {
    let s = small(catalogue);
    change(catalogue, |change| change.create(booting(1, &s))).unwrap();
    let snapshot = Snapshot::load(catalogue).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("last");
    stored::save(&snapshot, &path).unwrap();
    let read = stored::load(&path).unwrap();
    assert_eq!(read, snapshot);
    assert_eq!(answer(&read, &s, 1, at(0)), answer(&snapshot, &s, 1, at(0)));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
}
