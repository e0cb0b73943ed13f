//! Versions and their files.
use control::tasks::cancel;
use control::versions::{delete, delete_obsolete, hold, new_maintenance, promote, revert};
use control::{Code, merge};
use diskimage::Format;
use farm::model::{
    Access, Device, DeviceProfile, Disks, Fence, Mac, Macs, Owner, Purpose, Sharing, Subject, TaskState,
    VersionState,
};
use farm::rules::leases::Wanted;
use farm::rules::lifecycle::{Deletion, MergeKind, Promotion, Reversion};

use crate::sample::{Farm, n, text, write};

/// A device of the farm that has the version leased, as one that runs on it.
fn runs_on(
    farm: &Farm,
    vdisk: farm::model::VdiskId,
    version: farm::model::VersionId,
    sharing: Sharing,
) -> Fence {
    let made = farm.control.change(&farm.by(), |change| {
        let site = change.site(&text("Berlin"))?.id;
        let collection = farm::model::Collection::plain(text("Lab"), site, text(""));
        let collection = change.create(collection)?.id;
        let device = change.create(Device {
            macs: Macs::new(vec![Mac::new([0x52, 0x54, 0, 0, 0, 7])?])?,
            profile: DeviceProfile { disks: Disks::one(vdisk), ..DeviceProfile::default() },
            ..Device::plain(text("lab-07"), collection, text(""))
        })?;
        let wanted = Wanted {
            subject: Subject::Contents(version),
            sharing,
            purpose: Purpose::Boot,
            owner: Owner::Device(device.id),
        };
        Ok(change.lease(&wanted, farm.server)?.fence)
    });
    made.unwrap()
}

#[test]
fn maintenance_version_is_an_empty_difference_of_the_newest_one() {
    let farm = Farm::new();
    let vdisk = farm.vdisk("golden", Format::Vhdx);
    let made = new_maintenance(&farm.control, &farm.by(), vdisk, None, &text("Office")).unwrap();
    assert_eq!((made.number, made.state, made.mark), (n(1), VersionState::Ready, None));
    assert_eq!(farm.files(), ["golden.1.avhdx", "golden.vhdx"]);
    assert_eq!(farm.contents(&made)[..2], [1, 0]);
    let known = farm.control.snapshot();
    assert_eq!(known.vdisk(vdisk).unwrap().versions.len(), 2);
    // It is the only one of its kind.
    let error = new_maintenance(&farm.control, &farm.by(), vdisk, None, &text("")).unwrap_err();
    assert_eq!(error.code, Code::Refused);
    assert!(error.message.contains("version 1 is under maintenance"), "{error}");
}

#[test]
fn version_whose_file_cannot_be_made_is_not_in_the_catalogue() {
    let farm = Farm::new();
    let vdisk = farm.vdisk("golden", Format::Vhdx);
    std::fs::write(farm.path("golden.1.avhdx"), b"of somebody else").unwrap();
    let error = new_maintenance(&farm.control, &farm.by(), vdisk, None, &text("")).unwrap_err();
    assert_eq!(error.code, Code::Conflict);
    assert_eq!(farm.numbers(vdisk), [0]);
    std::fs::remove_file(farm.path("golden.1.avhdx")).unwrap();
    // Behind the catalogue: the parent is damaged, which is found when the version is listed already.
    std::fs::write(farm.path("golden.vhdx"), b"no image any more").unwrap();
    let error = new_maintenance(&farm.control, &farm.by(), vdisk, None, &text("")).unwrap_err();
    assert_eq!(error.code, Code::FileDamaged, "{error}");
    assert_eq!(farm.numbers(vdisk), [0]);
    assert_eq!(farm.files(), ["golden.vhdx"]);
    let tasks = control::tasks::list(&farm.control, &farm::catalogue::ListQuery::default()).unwrap();
    assert_eq!(tasks.items[0].task.state, TaskState::Failed);
}

#[test]
fn version_that_was_refused_leaves_no_task_behind_that_later_ones_are_taken_for() {
    let farm = Farm::new();
    let vdisk = farm.vdisk("golden", Format::Vhdx);
    farm.update(vdisk, 0, 2);
    let merge = merge::begin(&farm.control, &farm.by(), vdisk, &base_merge()).unwrap();
    // The chain is leased to the merge: found when the task of the new version has a number already.
    let error = new_maintenance(&farm.control, &farm.by(), vdisk, None, &text("")).unwrap_err();
    assert_eq!(error.code, Code::InUse);
    assert!(error.message.contains(&format!("task #{}", merge.id)), "{error}");
    let other = farm.vdisk("other", Format::Vhdx);
    farm.update(other, 0, 2);
    let ids = (0..6).map(|_| {
        let task = merge::begin(&farm.control, &farm.by(), other, &base_merge()).unwrap();
        assert_eq!(cancel(&farm.control, &farm.by(), task.id).unwrap().state, TaskState::Cancelled);
    });
    ids.for_each(drop);
}

fn base_merge() -> merge::Request {
    merge::Request { kind: MergeKind::Base, ..merge::Request::default() }
}

#[test]
fn parent_that_was_written_to_carries_no_new_version() {
    let farm = Farm::new();
    let vdisk = farm.vdisk("golden", Format::Vhdx);
    write(&farm.path("golden.vhdx"), 0, 9);
    let error = new_maintenance(&farm.control, &farm.by(), vdisk, None, &text("")).unwrap_err();
    assert_eq!(error.code, Code::FileChanged);
    assert!(error.message.contains("DataWriteGuid"), "{error}");
    assert_eq!(farm.numbers(vdisk), [0]);
}

#[test]
fn promoted_version_has_the_mark_of_its_file_and_its_file_no_log() {
    let farm = Farm::new();
    let vdisk = farm.vdisk("golden", Format::Vhdx);
    let made = new_maintenance(&farm.control, &farm.by(), vdisk, None, &text("")).unwrap();
    write(&farm.path("golden.1.avhdx"), 1 << 20, 2);
    let test = promote(&farm.control, &farm.by(), made.id, made.revision, Promotion::Test).unwrap();
    assert_eq!(test.version.access, Access::Test);
    let mark = control::marks::of_file(&farm.path("golden.1.avhdx")).unwrap();
    assert_eq!(test.version.mark, Some(mark));
    let layer = diskimage::LayerInfo::of_file(&farm.path("golden.1.avhdx"), None).unwrap();
    assert!(!layer.info.log_replayed);
    // A release that is scheduled, and moved.
    let later = farm.control.now().after(std::time::Duration::from_secs(3600));
    let to = Promotion::Production(later);
    let scheduled = promote(&farm.control, &farm.by(), made.id, test.version.revision, to).unwrap().version;
    assert_eq!(scheduled.access, Access::Production { released: later });
    let stale = promote(&farm.control, &farm.by(), made.id, test.version.revision, to).unwrap_err();
    assert_eq!(stale.code, Code::Stale);
    // Back, and changed again: the mark is gone with the promise.
    let back =
        revert(&farm.control, &farm.by(), made.id, scheduled.revision, Reversion::Maintenance).unwrap();
    assert_eq!((back.access, back.mark), (Access::Maintenance, None));
}

#[test]
fn version_that_a_device_writes_to_is_not_promoted_and_the_device_is_named() {
    let farm = Farm::new();
    let vdisk = farm.vdisk("golden", Format::Vhdx);
    let made = new_maintenance(&farm.control, &farm.by(), vdisk, None, &text("")).unwrap();
    let fence = runs_on(&farm, vdisk, made.id, Sharing::Exclusive);
    let to = Promotion::Test;
    let error = promote(&farm.control, &farm.by(), made.id, made.revision, to).unwrap_err();
    assert_eq!(error.code, Code::InUse);
    assert!(error.message.contains("device lab-07"), "{error}");
    farm.control.change(&farm.by(), |change| Ok(change.end_lease(fence)?)).unwrap();
    promote(&farm.control, &farm.by(), made.id, made.revision, to).unwrap();
}

#[test]
fn version_changed_behind_our_back_is_not_promoted_to_production() {
    let farm = Farm::new();
    let vdisk = farm.vdisk("golden", Format::Vhdx);
    let made = new_maintenance(&farm.control, &farm.by(), vdisk, None, &text("")).unwrap();
    let test = promote(&farm.control, &farm.by(), made.id, made.revision, Promotion::Test).unwrap().version;
    write(&farm.path("golden.1.avhdx"), 0, 7);
    let to = Promotion::Production(farm.control.now());
    let error = promote(&farm.control, &farm.by(), made.id, test.revision, to).unwrap_err();
    assert_eq!(error.code, Code::FileChanged);
    assert!(error.message.contains("vDisk \"golden\", version 1"), "{error}");
}

#[test]
fn deleted_version_goes_with_its_file_when_the_last_user_has_ended() {
    let farm = Farm::new();
    let vdisk = farm.vdisk("golden", Format::Vhdx);
    let update = farm.update(vdisk, 0, 2);
    let fence = runs_on(&farm, vdisk, update.id, Sharing::Shared);
    let deletion = delete(&farm.control, &farm.by(), update.id, update.revision).unwrap();
    let Deletion::WhenFree(conflict) = deletion else { panic!("{deletion:?}") };
    assert!(conflict.to_string().contains("device lab-07"), "{conflict}");
    assert_eq!(farm.version(vdisk, 1).state, VersionState::Leaving);
    assert_eq!(farm.files(), ["golden.1.avhdx", "golden.vhdx"]);
    farm.control.change(&farm.by(), |change| Ok(change.end_lease(fence)?)).unwrap();
    let runner = farm.control.start().unwrap();
    assert_eq!(farm.numbers(vdisk), [0]);
    assert_eq!(farm.files(), ["golden.vhdx"]);
    drop(runner);
}

#[test]
fn version_that_others_need_is_not_deleted() {
    let farm = Farm::new();
    let vdisk = farm.vdisk("golden", Format::Vhdx);
    farm.update(vdisk, 0, 2);
    let base = farm.version(vdisk, 0);
    let error = delete(&farm.control, &farm.by(), base.id, base.revision).unwrap_err();
    assert_eq!(error.code, Code::Refused);
    assert!(error.message.contains("version 0 is the parent of version 1"), "{error}");
    assert_eq!(farm.files().len(), 2);
}

#[test]
fn versions_that_a_merge_replaced_go_from_the_top_down() {
    let farm = Farm::new();
    let vdisk = farm.vdisk("golden", Format::Vhdx);
    farm.update(vdisk, 1 << 20, 2);
    farm.update(vdisk, 2 << 20, 3);
    let _runner = farm.control.start().unwrap();
    let request = merge::Request { kind: MergeKind::Base, verify: true, ..merge::Request::default() };
    let task = merge::begin(&farm.control, &farm.by(), vdisk, &request).unwrap();
    let status = farm.ended(task.id);
    assert_eq!(status.task.state, TaskState::Done, "{status:?}");
    let merged = farm.version(vdisk, 3);
    assert_eq!(farm.contents(&merged)[..4], [1, 2, 3, 0]);
    // Held at an old one: that one and what it stands on stays.
    let of = farm.control.read(|reader| Ok(reader.get(vdisk)?)).unwrap();
    let held = hold(&farm.control, &farm.by(), vdisk, of.revision, Some(n(1))).unwrap();
    assert_eq!(delete_obsolete(&farm.control, &farm.by(), vdisk).unwrap(), [n(2)]);
    hold(&farm.control, &farm.by(), vdisk, held.revision, None).unwrap();
    assert_eq!(delete_obsolete(&farm.control, &farm.by(), vdisk).unwrap(), [n(1), n(0)]);
    assert_eq!(farm.files(), ["golden.3.vhdx"]);
    assert_eq!(farm.contents(&merged)[..4], [1, 2, 3, 0]);
}
