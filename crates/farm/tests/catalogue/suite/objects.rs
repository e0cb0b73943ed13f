//! Making, changing and deleting objects.
use farm::catalogue::{Catalogue, CatalogueError};
use farm::filter::Filter;
use farm::model::{
    AutoMerge, ByteSize, ChainLimit, Chap, Device, DeviceKind, DeviceLimits, Farm, Grant, Id, LocalDisk,
    Macs, MergeResult, ObjectKind, PersistentCache, Personality, Revision, Role, Scope, Stored, Token,
    TokenDigest, User, VersionNumber, View, ViewOf, WriteCacheKind, WriteCacheOverride,
};

use super::Case;
use crate::sample::{at, base, booting, change, collection, device, mac, site, small, text, vdisk};

pub(super) const CASES: &[Case] = &[
    ("object_is_read_as_it_was_written", object_is_read_as_it_was_written),
    ("change_for_an_older_revision_is_refused", change_for_an_older_revision_is_refused),
    ("change_to_the_same_value_leaves_the_revision", change_to_the_same_value_leaves_the_revision),
    ("name_that_differs_in_case_alone_is_taken", name_that_differs_in_case_alone_is_taken),
    ("address_of_another_device_is_refused_and_named", address_of_another_device_is_refused_and_named),
    ("object_that_others_name_cannot_be_deleted", object_that_others_name_cannot_be_deleted),
    ("reference_to_nothing_is_refused", reference_to_nothing_is_refused),
    ("change_that_fails_in_its_middle_leaves_nothing", change_that_fails_in_its_middle_leaves_nothing),
    ("number_of_a_deleted_object_is_not_used_again", number_of_a_deleted_object_is_not_used_again),
    ("second_farm_is_refused", second_farm_is_refused),
];

fn object_is_read_as_it_was_written(catalogue: &Catalogue) {
    let s = small(catalogue);
    let mut full = booting(7, &s);
    full.description = text("near the\nwindow; \"öäü\"");
    full.macs = Macs::new(vec![mac(9), mac(7), mac(8)]).unwrap();
    full.uuid = Some("4c4c4544-0042-3510-8051-b4c04f4d3132".parse().unwrap());
    full.address = Some("10.0.0.20".parse().unwrap());
    full.initiator = Some(text("iqn.2026-11.org.example:x"));
    full.chap = Some(Chap { user: text("Ann B"), secret: text("lab-secret") });
    full.disabled = true;
    full.profile.kind = DeviceKind::Maintenance;
    full.profile.local_disk = LocalDisk::Offered;
    full.profile.write_cache = WriteCacheOverride {
        kind: Some(WriteCacheKind::ServerMemory),
        limit: Some(ByteSize::new(1 << 40).unwrap()),
    };
    full.profile.limits = DeviceLimits {
        bytes_per_second: Some(ByteSize::new(1).unwrap()),
        requests_per_second: Some(u32::MAX),
    };
    let values = [("Room", "B 12"), ("Printer", "\\\\srv\\p1=x")].map(|(k, v)| (text(k), text(v)));
    full.profile.personality = Personality::new(values.into_iter().collect()).unwrap();
    let device = change(catalogue, |change| change.create(full.clone())).unwrap();
    assert_eq!(device.value, full);
    let cache = PersistentCache {
        device: device.id,
        vdisk: s.vdisk,
        version: VersionNumber::BASE,
        server: s.server,
        stays: true,
        made_at: at(5),
    };
    let farm = Farm {
        name: text("Farm"),
        description: text(""),
        auto_merge: Some(AutoMerge { above: ChainLimit::DEFAULT, result: MergeResult::Test }),
    };
    let mut group = collection("Büro", s.site);
    group.template = Some(device.id);
    group.newcomers = Some("buero-###".parse().unwrap());
    let view = View {
        name: text("Disabled"),
        description: text(""),
        site: Some(s.site),
        of: ViewOf::Devices,
        filter: "disabled and name ~ \"lab *\"".parse().unwrap(),
    };
    let (cache, farm, group, view) = change(catalogue, |change| {
        Ok((
            change.create(cache.clone())?,
            change.create(farm.clone())?,
            change.create(group.clone())?,
            change.create(view.clone())?,
        ))
    })
    .unwrap();
    catalogue
        .read(|reader| {
            assert_eq!(reader.get(device.id)?, device);
            assert_eq!(reader.device_by_mac(mac(8))?.as_ref(), Some(&device));
            assert_eq!(reader.device(&device.name)?, device);
            assert_eq!(reader.persistent_cache(device.id, s.vdisk)?, Some(cache.clone()));
            assert_eq!(reader.farm()?, Some(farm.clone()));
            assert_eq!(reader.collection(s.site, &text("BÜRO"))?, group);
            assert_eq!(reader.newcomers(s.site)?, Some(group.clone()));
            assert_eq!(reader.view(&text("disabled"))?, view);
            assert_eq!(reader.all()?, vec![device.clone()]);
            assert_eq!(reader.versions(s.vdisk)?[0].value, base(s.vdisk, "golden"));
            Ok(())
        })
        .unwrap();
    people_are_read_as_they_were_written(catalogue, &s);
}

fn people_are_read_as_they_were_written(catalogue: &Catalogue, s: &crate::sample::Small) {
    let user = User {
        name: text("ann"),
        description: text(""),
        password: Some(text("$argon2id$v=19$m=1,t=1,p=1$c2FsdA$aGFzaA")),
        must_change_password: true,
        disabled: false,
    };
    let user = change(catalogue, |change| change.create(user.clone())).unwrap();
    let token = Token {
        user: user.id,
        name: text("ci"),
        digest: TokenDigest([0xA5; 32]),
        role: Role::Operator,
        scope: Scope::Site(s.site),
        made_at: at(0),
        expires_at: Some(at(10)),
        disabled: false,
    };
    let grant = Grant { user: user.id, role: Role::Administrator, scope: Scope::Collection(s.collection) };
    let (token, grant) =
        change(catalogue, |change| Ok((change.create(token.clone())?, change.create(grant.clone())?)))
            .unwrap();
    let again = change(catalogue, |change| change.create(grant.value.clone())).unwrap_err();
    assert!(matches!(again, CatalogueError::Taken { kind: ObjectKind::Grant, .. }), "{again}");
    catalogue
        .read(|reader| {
            assert_eq!(reader.user(&text("ann"))?, user);
            assert_eq!(reader.token(TokenDigest([0xA5; 32]))?, Some(token.clone()));
            assert_eq!(reader.token(TokenDigest([0xA6; 32]))?, None);
            assert_eq!(reader.grants(user.id)?, vec![grant.clone()]);
            Ok(())
        })
        .unwrap();
}

fn change_for_an_older_revision_is_refused(catalogue: &Catalogue) {
    let s = small(catalogue);
    let renamed = |name: &str| site(name);
    let first = change(catalogue, |change| change.update(s.site, Revision::FIRST, renamed("Bonn"))).unwrap();
    assert_eq!(first.revision.get(), 2);
    let second =
        change(catalogue, |change| change.update(s.site, Revision::FIRST, renamed("Köln"))).unwrap_err();
    let CatalogueError::Outdated { expected, found, name, .. } = &second else { panic!("{second}") };
    assert_eq!((expected.get(), found.get(), name.as_str()), (1, 2, "Bonn"));
    let gone = change(catalogue, |change| change.delete(s.site, Revision::FIRST)).unwrap_err();
    assert!(matches!(gone, CatalogueError::Outdated { .. }), "{gone}");
    assert_eq!(catalogue.read(|reader| reader.get(s.site)).unwrap(), first);
}

fn change_to_the_same_value_leaves_the_revision(catalogue: &Catalogue) {
    let s = small(catalogue);
    let before = catalogue.latest_change().unwrap();
    let same = change(catalogue, |change| change.update(s.site, Revision::FIRST, site("Berlin"))).unwrap();
    assert_eq!(same.revision, Revision::FIRST);
    assert_eq!(catalogue.latest_change().unwrap(), before);
}

fn name_that_differs_in_case_alone_is_taken(catalogue: &Catalogue) {
    let s = small(catalogue);
    change(catalogue, |change| change.create(site("Köln"))).unwrap();
    let error = change(catalogue, |change| change.create(site("KÖLN"))).unwrap_err();
    assert_eq!(error.to_string(), "the name \"köln\" is taken by site Köln");
    let error = change(catalogue, |change| change.create(vdisk("GOLDEN", s.store))).unwrap_err();
    assert_eq!(error.to_string(), "the name \"golden\" is taken by vDisk golden");
    // In another site, a collection may have the name.
    let bonn = change(catalogue, |change| change.create(site("Bonn"))).unwrap();
    change(catalogue, |change| change.create(collection("lab", bonn.id))).unwrap();
    let error = change(catalogue, |change| change.create(collection("lab", s.site))).unwrap_err();
    assert!(matches!(error, CatalogueError::Taken { kind: ObjectKind::Collection, .. }), "{error}");
}

fn address_of_another_device_is_refused_and_named(catalogue: &Catalogue) {
    let s = small(catalogue);
    change(catalogue, |change| change.create(booting(1, &s))).unwrap();
    let mut other = device(2, s.collection);
    other.macs = Macs::new(vec![mac(2), mac(1)]).unwrap();
    let error = change(catalogue, |change| change.create(other.clone())).unwrap_err();
    assert_eq!(error.to_string(), "the MAC address \"52:54:00:00:00:01\" is taken by device lab-00001");
    // Its own addresses, in another order, are no others'.
    let stored = change(catalogue, |change| {
        other.macs = Macs::new(vec![mac(2), mac(3)]).unwrap();
        change.create(other.clone())
    })
    .unwrap();
    let mut turned = stored.value.clone();
    turned.macs = Macs::new(vec![mac(3), mac(2)]).unwrap();
    let turned =
        change(catalogue, |change| change.update(stored.id, stored.revision, turned.clone())).unwrap();
    assert_eq!(catalogue.read(|reader| reader.get(stored.id)).unwrap(), turned);
}

fn object_that_others_name_cannot_be_deleted(catalogue: &Catalogue) {
    let s = small(catalogue);
    let devices: Vec<Stored<_>> = (1..=7)
        .map(|number| change(catalogue, |change| change.create(booting(number, &s))).unwrap())
        .collect();
    let error = change(catalogue, |change| change.delete(s.vdisk, Revision::FIRST)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "vDisk golden is in use by 1 version (golden 0) and 7 devices (lab-00001, lab-00002, lab-00003, lab-00004, \
         lab-00005, ...)"
    );
    let error = change(catalogue, |change| change.delete(s.server, Revision::FIRST)).unwrap_err();
    assert_eq!(error.to_string(), "server one is in use by 1 store (local)");
    change(catalogue, |change| {
        devices.iter().try_for_each(|device| change.delete(device.id, device.revision))
    })
    .unwrap();
    assert_eq!(catalogue.read(|reader| reader.count::<Device>(&Filter::Everything)).unwrap(), 0);
}

fn reference_to_nothing_is_refused(catalogue: &Catalogue) {
    let s = small(catalogue);
    let mut lost = booting(1, &s);
    lost.collection = Id::new(4711).unwrap();
    let error = change(catalogue, |change| change.create(lost.clone())).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the collection of device lab-00001 is #4711, and there is no such collection"
    );
    let mut lost = booting(1, &s);
    lost.profile.disks = farm::model::Disks::one(Id::new(4712).unwrap());
    let error = change(catalogue, |change| change.create(lost.clone())).unwrap_err();
    assert_eq!(error.to_string(), "the vDisk of device lab-00001 is #4712, and there is no such vDisk");
}

fn change_that_fails_in_its_middle_leaves_nothing(catalogue: &Catalogue) {
    let s = small(catalogue);
    let before = catalogue.latest_change().unwrap();
    let error = change(catalogue, |change| {
        change.create(booting(1, &s))?;
        change.update(s.site, Revision::FIRST, site("Bonn"))?;
        change.create(booting(1, &s))
    })
    .unwrap_err();
    assert!(matches!(error, CatalogueError::Taken { .. }), "{error}");
    catalogue
        .read(|reader| {
            assert_eq!(reader.all::<Device>()?, vec![]);
            assert_eq!(reader.get(s.site)?.name, text("Berlin"));
            Ok(())
        })
        .unwrap();
    assert_eq!(catalogue.latest_change().unwrap(), before);
}

fn number_of_a_deleted_object_is_not_used_again(catalogue: &Catalogue) {
    let s = small(catalogue);
    let first = change(catalogue, |change| change.create(booting(1, &s))).unwrap();
    change(catalogue, |change| change.delete(first.id, first.revision)).unwrap();
    let second = change(catalogue, |change| change.create(booting(1, &s))).unwrap();
    assert!(second.id > first.id);
    let missing = catalogue.read(|reader| reader.get(first.id)).unwrap_err();
    assert_eq!(missing.to_string(), format!("there is no device #{}", first.id));
}

fn second_farm_is_refused(catalogue: &Catalogue) {
    let farm = |name: &str| Farm { name: text(name), description: text(""), auto_merge: None };
    change(catalogue, |change| change.create(farm("one"))).unwrap();
    let error = change(catalogue, |change| change.create(farm("two"))).unwrap_err();
    assert!(matches!(error, CatalogueError::Taken { kind: ObjectKind::Farm, .. }), "{error}");
}
