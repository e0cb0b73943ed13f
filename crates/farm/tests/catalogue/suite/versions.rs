//! The life of versions and the leases on them, from end to end.
use farm::catalogue::{Catalogue, CatalogueError, ListQuery, VersionSummary};
use farm::model::{
    Access, AccessKind, ByteSize, DeviceId, FileMark, MergeResult, Owner, Purpose, Revision, Sharing, Stored,
    Subject, Timestamp, Version, VersionNumber, VersionState,
};
use farm::rules::Refusal;
use farm::rules::leases::Wanted;
use farm::rules::lifecycle::{Deletion, MergeKind, Promotion, Reversion};

use super::Case;
use crate::sample::{Small, actor, at, base, booting, change, small, text, vdisk};

pub(super) const CASES: &[Case] = &[
    ("version_lives_from_maintenance_to_its_merge", version_lives_from_maintenance_to_its_merge),
    ("versions_of_many_vdisks_are_added_up", versions_of_many_vdisks_are_added_up),
    ("version_in_use_is_deleted_when_it_is_free", version_in_use_is_deleted_when_it_is_free),
    ("leases_exclude_each_other_until_they_end", leases_exclude_each_other_until_they_end),
    ("owner_that_hung_is_fenced_off", owner_that_hung_is_fenced_off),
    ("broken_lease_is_written_down", broken_lease_is_written_down),
    ("newcomer_is_named_and_gets_the_template", newcomer_is_named_and_gets_the_template),
];

fn mark() -> FileMark {
    let size = ByteSize::new(4 << 20).unwrap();
    FileMark { length: size, disk_size: size, image: None, data_write: None }
}

fn ready(catalogue: &Catalogue, version: &Stored<Version>) -> Stored<Version> {
    change(catalogue, |change| {
        change.set_version_state(version.id, version.revision, VersionState::Ready, None)
    })
    .unwrap()
}

fn wanted(version: &Stored<Version>, device: DeviceId, sharing: Sharing) -> Wanted {
    let purpose = if sharing == Sharing::Shared { Purpose::Boot } else { Purpose::Maintenance };
    Wanted { subject: Subject::Contents(version.id), sharing, purpose, owner: Owner::Device(device) }
}

/// A version under maintenance, whose file is there.
fn maintenance(catalogue: &Catalogue, s: &Small) -> Stored<Version> {
    let made = change(catalogue, |change| change.new_maintenance(s.vdisk, None, text("patches"))).unwrap();
    assert_eq!(made.state, VersionState::Making);
    ready(catalogue, &made)
}

fn production(catalogue: &Catalogue, s: &Small) -> Stored<Version> {
    let made = maintenance(catalogue, s);
    let to = Promotion::Production(at(0));
    change(catalogue, |change| change.promote(made.id, made.revision, to, mark())).unwrap()
}

fn version_lives_from_maintenance_to_its_merge(catalogue: &Catalogue) {
    let s = small(catalogue);
    let device = change(catalogue, |change| change.create(booting(1, &s))).unwrap();
    let made = maintenance(catalogue, &s);
    assert_eq!((made.number.get(), made.file.as_str()), (1, "golden.1.avhdx"));
    let second = change(catalogue, |change| change.new_maintenance(s.vdisk, None, text(""))).unwrap_err();
    assert!(matches!(second, CatalogueError::Refused(Refusal::UnderMaintenance(_))), "{second}");
    // While a maintenance device writes to it, it cannot be promoted; the refusal names the device.
    let lease =
        change(catalogue, |change| change.lease(&wanted(&made, device.id, Sharing::Exclusive), s.server))
            .unwrap();
    let promote = |version: &Stored<Version>, to| {
        change(catalogue, |change| change.promote(version.id, version.revision, to, mark()))
    };
    let refused = promote(&made, Promotion::Test).unwrap_err();
    assert!(refused.to_string().contains("device lab-00001 (changes it under maintenance"), "{refused}");
    change(catalogue, |change| change.end_lease(lease.fence)).unwrap();
    let tested = promote(&made, Promotion::Test).unwrap();
    let scheduled = promote(&tested, Promotion::Production(at(100))).unwrap();
    let outdated = promote(&tested, Promotion::Production(at(1))).unwrap_err();
    assert!(matches!(outdated, CatalogueError::Outdated { .. }), "{outdated}");
    assert_eq!(change(catalogue, |change| change.next_release()).unwrap(), Some(at(100)));
    // Held at the base, gone back to test, and released after all.
    let base = VersionNumber::BASE;
    let held = change(catalogue, |change| change.hold(s.vdisk, Revision::FIRST, Some(base))).unwrap();
    assert_eq!(held.override_version, Some(base));
    let back =
        change(catalogue, |change| change.revert(scheduled.id, scheduled.revision, Reversion::Test)).unwrap();
    assert_eq!(back.access, Access::Test);
    let released = promote(&back, Promotion::Production(at(0))).unwrap();
    change(catalogue, |change| change.hold(s.vdisk, held.revision, None)).unwrap();
    production(catalogue, &s);
    let (plan, merged) = change(catalogue, |change| {
        change.begin_merge(s.vdisk, MergeKind::Updates, MergeResult::Production, text("auto"))
    })
    .unwrap();
    assert_eq!(plan.sources.iter().map(|number| number.get()).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(ready(catalogue, &merged).file.as_str(), "golden.3.avhdx");
    let parent =
        change(catalogue, |change| change.delete_version(released.id, released.revision)).unwrap_err();
    assert!(matches!(parent, CatalogueError::Refused(Refusal::HasChildren { .. })), "{parent}");
}

fn versions_of_many_vdisks_are_added_up(catalogue: &Catalogue) {
    let s = small(catalogue);
    let empty = change(catalogue, |change| change.create(vdisk("empty", s.store))).unwrap().id;
    // More vDisks than one statement asks about.
    let mut all = vec![s.vdisk, empty];
    for number in 0..120 {
        let name = format!("other-{number}");
        let other = change(catalogue, |change| {
            let other = change.create(vdisk(&name, s.store))?.id;
            change.create(base(other, &name))?;
            Ok(other)
        });
        all.push(other.unwrap());
    }
    let promoted = production(catalogue, &s);
    let made = maintenance(catalogue, &s);
    change(catalogue, |change| {
        change.set_version_state(promoted.id, promoted.revision, VersionState::Missing, None)
    })
    .unwrap();
    let found = catalogue.read(|reader| reader.version_summaries(&all)).unwrap();
    assert_eq!((found.len(), found.get(&empty)), (121, None));
    let of_golden = VersionSummary {
        versions: 3,
        damaged: 1,
        files_bytes: 4 << 20,
        newest: made.number,
        newest_access: AccessKind::Maintenance,
        disk_bytes: Some(4 << 20),
    };
    assert_eq!(found.get(&s.vdisk), Some(&of_golden));
    let of_other = VersionSummary {
        versions: 1,
        damaged: 0,
        files_bytes: 0,
        newest: VersionNumber::BASE,
        newest_access: AccessKind::Production,
        disk_bytes: None,
    };
    assert_eq!(found.get(&all[121]), Some(&of_other));
    assert!(catalogue.read(|reader| reader.version_summaries(&[])).unwrap().is_empty());
}

fn version_in_use_is_deleted_when_it_is_free(catalogue: &Catalogue) {
    let s = small(catalogue);
    let device = change(catalogue, |change| change.create(booting(1, &s))).unwrap();
    let version = production(catalogue, &s);
    change(catalogue, |change| change.lease(&wanted(&version, device.id, Sharing::Shared), s.server))
        .unwrap();
    let deletion = change(catalogue, |change| change.delete_version(version.id, version.revision)).unwrap();
    let Deletion::WhenFree(conflict) = &deletion else { panic!("{deletion:?}") };
    assert_eq!(conflict.names, ["lab-00001"]);
    let leaving = catalogue.read(|reader| reader.get(version.id)).unwrap();
    assert_eq!(leaving.state, VersionState::Leaving);
    // The device's server is gone, and with it the lease.
    let deleted =
        catalogue.change(&actor(), at(60_000), |change| change.delete_version(version.id, leaving.revision));
    assert_eq!(deleted.unwrap(), Deletion::Now);
    assert!(catalogue.read(|reader| reader.get(version.id)).is_err());
}

fn leases_exclude_each_other_until_they_end(catalogue: &Catalogue) {
    let s = small(catalogue);
    let [one, two] =
        [1, 2].map(|number| change(catalogue, |change| change.create(booting(number, &s))).unwrap().id);
    let version = catalogue.read(|reader| reader.version(s.vdisk, VersionNumber::BASE)).unwrap();
    let take = |device, sharing, now: Timestamp| {
        catalogue.change(&actor(), now, |change| change.lease(&wanted(&version, device, sharing), s.server))
    };
    let first = take(one, Sharing::Shared, at(0)).unwrap();
    let second = take(two, Sharing::Shared, at(1)).unwrap();
    assert!(second.fence > first.fence);
    let refused = take(two, Sharing::Exclusive, at(2)).unwrap_err();
    assert!(refused.to_string().contains("device lab-00001 (runs on it"), "{refused}");
    // A device that boots again takes what it had, under a new number.
    let again = take(one, Sharing::Shared, at(3)).unwrap();
    assert!(again.fence > second.fence);
    let lost = catalogue.read(|reader| reader.held_lease(first.fence, at(4))).unwrap_err();
    assert!(matches!(lost, CatalogueError::LeaseLost(fence) if fence == first.fence), "{lost}");
    assert_eq!(catalogue.read(|reader| reader.held_lease(again.fence, at(4))).unwrap(), again);
    let listed = catalogue.read(|reader| reader.list_leases(&ListQuery::default())).unwrap();
    assert_eq!((listed.total, &listed.items[1]), (2, &again));
    assert_eq!(catalogue.read(|reader| reader.leases_of(Owner::Device(two))).unwrap().len(), 1);
    // Renewed ones go on, others end by themselves.
    let kept = catalogue.change(&actor(), at(20_000), |change| change.renew_leases(s.server)).unwrap();
    assert_eq!(kept.len(), 3 - 1);
    change(catalogue, |change| change.end_lease(second.fence)).unwrap();
    assert!(take(two, Sharing::Exclusive, at(54_000)).is_err());
    let taken = take(two, Sharing::Exclusive, at(55_000)).unwrap();
    let cleared = catalogue.change(&actor(), at(200_000), |change| change.clear_ended_leases()).unwrap();
    assert_eq!(cleared.iter().map(|lease| lease.fence).collect::<Vec<_>>(), [taken.fence]);
}

fn owner_that_hung_is_fenced_off(catalogue: &Catalogue) {
    let s = small(catalogue);
    let device = change(catalogue, |change| change.create(booting(1, &s))).unwrap().id;
    let made = maintenance(catalogue, &s);
    let lease =
        change(catalogue, |change| change.lease(&wanted(&made, device, Sharing::Exclusive), s.server))
            .unwrap();
    // Long after its end, the version is published; then the server wakes up and wants to go on writing.
    let promoted = catalogue.change(&actor(), at(60_000), |change| {
        change.promote(made.id, made.revision, Promotion::Test, mark())
    });
    promoted.unwrap();
    let kept = catalogue.change(&actor(), at(60_001), |change| change.renew_leases(s.server)).unwrap();
    assert_eq!(kept, []);
    assert!(catalogue.read(|reader| reader.held_lease(lease.fence, at(60_001))).is_err());
}

fn broken_lease_is_written_down(catalogue: &Catalogue) {
    let s = small(catalogue);
    let device = change(catalogue, |change| change.create(booting(1, &s))).unwrap().id;
    let version = catalogue.read(|reader| reader.version(s.vdisk, VersionNumber::BASE)).unwrap();
    let lease =
        change(catalogue, |change| change.lease(&wanted(&version, device, Sharing::Shared), s.server))
            .unwrap();
    let broken =
        change(catalogue, |change| change.break_lease(lease.fence, "the device burnt down")).unwrap();
    assert_eq!(broken, lease);
    let again = change(catalogue, |change| change.break_lease(lease.fence, "again")).unwrap_err();
    assert!(matches!(again, CatalogueError::LeaseLost(_)), "{again}");
    let query = ListQuery { filter: "kind = lease".parse().unwrap(), ..ListQuery::default() };
    let entry = catalogue.read(|reader| reader.audit(&query)).unwrap().items.remove(0);
    assert_eq!((entry.action.as_str(), entry.name.as_str()), ("break", "lab-00001 on golden 0"));
    assert_eq!(entry.before.unwrap()["reason"], "the device burnt down");
}

fn newcomer_is_named_and_gets_the_template(catalogue: &Catalogue) {
    let s = small(catalogue);
    let template = change(catalogue, |change| change.create(booting(1, &s))).unwrap();
    let mac = crate::sample::mac(77);
    let refused = change(catalogue, |change| change.admit(mac, None, s.collection)).unwrap_err();
    assert!(matches!(refused, CatalogueError::Refused(Refusal::NoNewcomers)), "{refused}");
    change(catalogue, |change| {
        let mut open = change.get(s.collection)?;
        open.value.newcomers = Some("pc-##".parse()?);
        open.value.template = Some(template.id);
        change.update(open.id, open.revision, open.value)
    })
    .unwrap();
    let uuid = Some("4c4c4544-0042-3510-8051-b4c04f4d3132".parse().unwrap());
    let admitted = change(catalogue, |change| change.admit(mac, uuid, s.collection)).unwrap();
    assert_eq!((admitted.name.as_str(), admitted.uuid), ("pc-01", uuid));
    assert_eq!(admitted.profile, template.profile);
    let again = change(catalogue, |change| change.admit(mac, None, s.collection)).unwrap();
    assert_eq!(again, admitted);
    let next = change(catalogue, |change| change.admit(crate::sample::mac(78), uuid, s.collection)).unwrap();
    assert_eq!((next.name.as_str(), next.uuid), ("pc-02", None));
    // Two collections of one site cannot both take newcomers.
    let mut other = crate::sample::collection("Other", s.site);
    other.newcomers = Some("x-#".parse().unwrap());
    let error = change(catalogue, |change| change.create(other.clone())).unwrap_err();
    assert!(matches!(error, CatalogueError::Taken { .. }), "{error}");
}
