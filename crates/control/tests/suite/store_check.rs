//! Whether files are what the catalogue says they are.
use control::{Code, inspect};
use diskimage::Format;
use farm::model::VersionState;

use crate::sample::{Farm, blank, write};

#[test]
fn file_that_vanished_or_was_written_to_is_found_and_comes_back() {
    let farm = Farm::new();
    let vdisk = farm.vdisk("golden", Format::Vhdx);
    let update = farm.update(vdisk, 0, 2);
    let look = || inspect::store(&farm.control, &farm.by(), farm.store).unwrap();
    let report = look();
    assert_eq!((report.sound, report.findings.len(), report.unreachable.clone()), (2, 0, None));
    assert!(report.free_bytes > 0 && report.free_bytes <= report.size_bytes);

    std::fs::rename(farm.path("golden.1.avhdx"), farm.path("moved.avhdx")).unwrap();
    let report = look();
    assert_eq!(report.findings[0].name, "vDisk \"golden\", version 1");
    assert_eq!(report.findings[0].state, VersionState::Missing);
    assert_eq!(report.strangers, ["moved.avhdx"]);
    assert_eq!(farm.version(vdisk, 1).state, VersionState::Missing);

    std::fs::rename(farm.path("moved.avhdx"), farm.path("golden.1.avhdx")).unwrap();
    assert_eq!(look().findings[0].state, VersionState::Ready);
    assert_eq!(farm.version(vdisk, 1).mark, update.mark);

    write(&farm.path("golden.1.avhdx"), 0, 9);
    let report = look();
    assert_eq!(report.findings[0].state, VersionState::Changed);
    assert!(report.findings[0].differences[0].contains("DataWriteGuid"), "{report:?}");
    let changed = farm.version(vdisk, 1);
    let accepted = inspect::accept(&farm.control, &farm.by(), changed.id, changed.revision).unwrap();
    assert_eq!(accepted.state, VersionState::Ready);
    assert_eq!(look().sound, 2);
    let again = inspect::accept(&farm.control, &farm.by(), accepted.id, accepted.revision).unwrap_err();
    assert_eq!(again.code, Code::Refused);
}

#[test]
fn file_that_is_no_image_any_more_is_told_as_changed() {
    let farm = Farm::new();
    let vdisk = farm.vdisk("golden", Format::Vhdx);
    std::fs::write(farm.path("golden.vhdx"), vec![0; 4096]).unwrap();
    let report = inspect::store(&farm.control, &farm.by(), farm.store).unwrap();
    assert_eq!(report.findings[0].state, VersionState::Changed, "{report:?}");
    let changed = farm.version(vdisk, 0);
    let error = inspect::accept(&farm.control, &farm.by(), changed.id, changed.revision).unwrap_err();
    assert_eq!(error.code, Code::FileDamaged);
}

#[test]
fn folder_that_vanished_or_lost_its_file_system_condemns_no_version() {
    let farm = Farm::new();
    let vdisk = farm.vdisk("golden", Format::Vhdx);
    let away = farm.root().join("away");
    std::fs::create_dir(farm.path("lost+found")).unwrap();
    std::fs::rename(&farm.folder, &away).unwrap();
    let report = inspect::store(&farm.control, &farm.by(), farm.store).unwrap();
    assert!(report.unreachable.unwrap().contains("No such file"));
    // As a mount point does without its file system.
    std::fs::create_dir_all(farm.path("lost+found")).unwrap();
    let report = inspect::store(&farm.control, &farm.by(), farm.store).unwrap();
    assert!(report.unreachable.unwrap().contains("is its file system mounted?"));
    assert_eq!(farm.version(vdisk, 0).state, VersionState::Ready);
    std::fs::remove_dir_all(&farm.folder).unwrap();
    std::fs::rename(&away, &farm.folder).unwrap();
    assert_eq!(inspect::store(&farm.control, &farm.by(), farm.store).unwrap().sound, 1);
}

#[test]
fn file_of_a_maintenance_version_may_change_and_may_not_vanish() {
    let farm = Farm::new();
    let vdisk = farm.vdisk("golden", Format::Vhdx);
    let text = farm::model::Text::new("").unwrap();
    control::versions::new_maintenance(&farm.control, &farm.by(), vdisk, None, &text).unwrap();
    write(&farm.path("golden.1.avhdx"), 0, 9);
    blank(&farm.path("other.vhdx"), Format::Vhdx);
    let report = inspect::store(&farm.control, &farm.by(), farm.store).unwrap();
    assert_eq!((report.sound, report.strangers.as_slice()), (2, &["other.vhdx".to_owned()][..]));
    std::fs::remove_file(farm.path("golden.1.avhdx")).unwrap();
    let report = inspect::store(&farm.control, &farm.by(), farm.store).unwrap();
    assert_eq!(report.findings[0].state, VersionState::Missing);
}

#[test]
fn image_of_another_format_is_left_to_who_opens_it() {
    let farm = Farm::new();
    let vdisk = farm.vdisk("golden", Format::Vhdx);
    let old = farm.version(vdisk, 0);
    // A raw disk that begins like something else: its format stands in the configuration of its server.
    let raw =
        farm::model::Version { file: farm::model::Text::new("golden.img").unwrap(), ..old.value.clone() };
    farm.control.change(&farm.by(), |change| Ok(change.update(old.id, old.revision, raw.clone())?)).unwrap();
    std::fs::rename(farm.path("golden.vhdx"), farm.path("golden.img")).unwrap();
    inspect::store(&farm.control, &farm.by(), farm.store).unwrap();
    assert_eq!(farm.version(vdisk, 0).state, VersionState::Ready);
}

#[test]
fn file_that_others_stand_on_is_not_taken_for_what_it_became() {
    let farm = Farm::new();
    let vdisk = farm.vdisk("golden", Format::Vhdx);
    farm.update(vdisk, 1 << 20, 2);
    let as_published = std::fs::read(farm.path("golden.vhdx")).unwrap();
    write(&farm.path("golden.vhdx"), 2 << 20, 9);
    inspect::store(&farm.control, &farm.by(), farm.store).unwrap();
    let changed = farm.version(vdisk, 0);
    assert_eq!(changed.state, VersionState::Changed);
    let error = inspect::accept(&farm.control, &farm.by(), changed.id, changed.revision).unwrap_err();
    assert!(error.code == Code::Refused && error.message.contains("version 1 stands on"), "{error}");
    std::fs::write(farm.path("golden.vhdx"), as_published).unwrap();
    inspect::store(&farm.control, &farm.by(), farm.store).unwrap();
    assert_eq!(farm.version(vdisk, 0).state, VersionState::Ready);
}

#[test]
fn room_of_a_store_is_told_and_a_folder_that_is_gone_says_so() {
    let farm = Farm::new();
    let rooms = farm.control.rooms();
    let room = rooms.iter().find(|room| room.store == Some(farm.store)).unwrap();
    let bytes = room.bytes.clone().unwrap();
    assert!(room.folder == farm.folder && bytes.free > 0 && bytes.free <= bytes.total, "{room:?}");

    let lost = Farm::new();
    std::fs::remove_dir_all(&lost.folder).unwrap();
    let rooms = lost.control.rooms();
    let why = rooms[0].bytes.clone().unwrap_err();
    assert!(why.contains("cannot be used"), "{why}");
    assert_eq!(lost.control.rooms(), rooms, "what was asked is not asked again at once");
}
