//! Exports and imports.
use control::transfer::{Importing, MANIFEST, export, import, look};
use control::{Caller, Code};
use diskimage::Format;
use farm::model::{
    Access, AccessMode, ByteSize, Percent, Site, Stored, Task, TaskState, Text, User, Vdisk, VdiskId,
    WriteCache, WriteCacheKind,
};

use crate::sample::{Farm, n, text, write};
use crate::task_ends::{CHILD, on_a_small_disk};

fn three_versions(farm: &Farm) -> VdiskId {
    let vdisk = farm.vdisk("golden", Format::Vhdx);
    farm.update(vdisk, 1 << 20, 2);
    farm.update(vdisk, 2 << 20, 3);
    vdisk
}

fn exported(farm: &Farm, vdisk: VdiskId, folder: &str) {
    let task = export(&farm.control, &farm.by(), vdisk, None, folder).unwrap();
    let status = farm.ended(task.id);
    assert_eq!(status.task.state, TaskState::Done, "{status:?}");
    assert!(status.progress.done <= status.progress.total);
}

fn importing() -> Importing {
    Importing { name: Some(text("copy")), mode: AccessMode::Private, description: None, in_test: false }
}

fn begin_import(farm: &Farm, folder: &str) -> Stored<Task> {
    import(&farm.control, &farm.by(), farm.store, folder, &importing()).unwrap()
}

fn names(folder: &std::path::Path) -> Vec<String> {
    let mut names: Vec<_> =
        folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn chain_travels_to_another_farm_and_holds_the_same() {
    let (here, there) = (Farm::new(), Farm::new());
    let vdisk = three_versions(&here);
    let _runners = (here.control.start().unwrap(), there.control.start().unwrap());
    exported(&here, vdisk, "golden");
    let folder = here.root().join("exchange/golden");
    assert_eq!(names(&folder), ["golden.1.avhdx", "golden.2.avhdx", "golden.vhdx", MANIFEST]);
    let manifest = look(&here.control, &here.by(), "golden").unwrap();
    assert_eq!((manifest.vdisk.as_str(), manifest.versions.len()), ("golden", 3));

    let task = begin_import(&there, folder.to_str().unwrap());
    let status = there.ended(task.id);
    assert_eq!(status.task.state, TaskState::Done, "{status:?}");
    let vdisk = there.control.read(|reader| Ok(reader.vdisk(there.store, &text("copy"))?)).unwrap();
    assert_eq!(vdisk.mode, AccessMode::Private);
    assert_eq!(there.files(), ["golden.1.avhdx", "golden.2.avhdx", "golden.vhdx"]);
    let newest = there.version(vdisk.id, 2);
    assert_eq!(there.contents(&newest)[..4], [1, 2, 3, 0]);
    assert!(matches!(newest.access, Access::Production { .. }));
    assert_eq!(control::inspect::store(&there.control, &there.by(), there.store).unwrap().sound, 3);
    // The names are taken now.
    let again = import(&there.control, &there.by(), there.store, folder.to_str().unwrap(), &importing());
    assert_eq!(again.unwrap_err().code, Code::Conflict);
    let other = Importing { name: Some(text("other")), ..importing() };
    let again = import(&there.control, &there.by(), there.store, folder.to_str().unwrap(), &other);
    assert_eq!(again.unwrap_err().code, Code::Conflict);
    let again = export(&here.control, &here.by(), vdisk_of(&here), None, "golden").unwrap_err();
    assert_eq!(again.code, Code::Conflict);
}

fn vdisk_of(farm: &Farm) -> VdiskId {
    farm.control.read(|reader| Ok(reader.vdisk(farm.store, &text("golden"))?)).unwrap().id
}

#[test]
fn one_version_is_exported_with_what_it_stands_on() {
    let farm = Farm::new();
    let vdisk = three_versions(&farm);
    let _runner = farm.control.start().unwrap();
    let task = export(&farm.control, &farm.by(), vdisk, Some(n(1)), "part").unwrap();
    assert_eq!(farm.ended(task.id).task.state, TaskState::Done);
    assert_eq!(names(&farm.root().join("exchange/part")), ["golden.1.avhdx", "golden.vhdx", MANIFEST]);
}

#[test]
fn export_that_was_damaged_on_its_way_is_not_imported_and_leaves_nothing() {
    let (here, there) = (Farm::new(), Farm::new());
    let vdisk = three_versions(&here);
    let _runners = (here.control.start().unwrap(), there.control.start().unwrap());
    exported(&here, vdisk, "golden");
    let folder = here.root().join("exchange/golden");
    // A byte of a payload block, which no structure tells of.
    let path = folder.join("golden.2.avhdx");
    let mut bytes = std::fs::read(&path).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let task = begin_import(&there, folder.to_str().unwrap());
    let status = there.ended(task.id);
    assert_eq!(status.task.state, TaskState::Failed);
    let why = status.task.result.clone().unwrap();
    assert!(why.contains("golden.2.avhdx") && why.contains("SHA-256"), "{why}");
    assert_eq!(there.files(), [""; 0]);
    assert_eq!(there.control.read(|reader| Ok(reader.all::<Vdisk>()?.len())).unwrap(), 0);
    std::fs::remove_file(&path).unwrap();
    let task = begin_import(&there, folder.to_str().unwrap());
    assert_eq!(there.ended(task.id).task.state, TaskState::Failed);
    assert_eq!(there.files(), [""; 0]);
}

#[test]
fn name_that_is_taken_while_the_import_waits_undoes_it_whole() {
    let (here, there) = (Farm::new(), Farm::new());
    let vdisk = three_versions(&here);
    let _runner = here.control.start().unwrap();
    exported(&here, vdisk, "golden");
    let folder = here.root().join("exchange/golden");
    let folder = folder.to_str().unwrap();
    // Two imports of the same: both found the files' names free.
    let first = begin_import(&there, folder);
    let other = Importing { name: Some(text("other")), ..importing() };
    let second = import(&there.control, &there.by(), there.store, folder, &other).unwrap();
    let third = there.vdisk("third", Format::Vhdx);
    let runner = there.control.start().unwrap();
    assert_eq!(there.ended(first.id).task.state, TaskState::Done);
    let status = there.ended(second.id);
    assert_eq!(status.task.state, TaskState::Failed, "{status:?}");
    drop(runner);
    assert_eq!(there.files(), ["golden.1.avhdx", "golden.2.avhdx", "golden.vhdx", "third.vhdx"]);
    assert_eq!(control::inspect::store(&there.control, &there.by(), there.store).unwrap().sound, 4);
    assert_eq!(there.numbers(third), [0]);
}

#[test]
fn export_of_a_file_that_somebody_wrote_to_fails_and_leaves_nothing() {
    let farm = Farm::new();
    let vdisk = three_versions(&farm);
    write(&farm.path("golden.2.avhdx"), 0, 9);
    let task = export(&farm.control, &farm.by(), vdisk, None, "golden").unwrap();
    let _runner = farm.control.start().unwrap();
    let status = farm.ended(task.id);
    assert_eq!(status.task.state, TaskState::Failed);
    assert!(status.task.result.clone().unwrap().contains("vDisk \"golden\", version 2"), "{status:?}");
    assert_eq!(names(&farm.root().join("exchange")), [""; 0]);
}

#[test]
fn folder_outside_of_the_exchange_is_for_root_alone() {
    let farm = Farm::new();
    let vdisk = three_versions(&farm);
    let user = User {
        name: text("eve"),
        description: text(""),
        password: None,
        must_change_password: false,
        disabled: false,
    };
    let eve = Caller::user(user, &[], None, "10.0.0.9".to_owned(), None, farm.control.now());
    let denied = export(&farm.control, &eve, vdisk, None, "/etc/golden").unwrap_err();
    assert_eq!(denied.code, Code::Denied);
    for folder in ["../golden", "a/b", "", ".hidden"] {
        let bad = export(&farm.control, &farm.by(), vdisk, None, folder).unwrap_err();
        assert_eq!((bad.code, bad.field.as_deref()), (Code::BadValue, Some("folder")), "{folder}");
    }
    assert_eq!(export(&farm.control, &eve, vdisk, None, "golden").unwrap_err().code, Code::Denied);
    let sites = farm.control.read(|reader| Ok(reader.all::<Site>()?)).unwrap();
    assert_eq!(sites[0].name, Text::new("Berlin").unwrap());
}

/// Into the vDisk that has its name, as it was.
fn adding() -> Importing {
    let cache = WriteCache {
        kind: WriteCacheKind::ServerDisk,
        limit: ByteSize::new(1 << 30).unwrap(),
        warn_at: Percent::new(80).unwrap(),
    };
    let mode = AccessMode::Standard(cache);
    Importing { name: None, mode, description: None, in_test: true }
}

#[test]
fn versions_that_were_added_elsewhere_are_added_here_and_nothing_else() {
    let (here, there) = (Farm::new(), Farm::new());
    let vdisk = three_versions(&here);
    let _runners = (here.control.start().unwrap(), there.control.start().unwrap());
    exported(&here, vdisk, "first");
    let import = |folder: &str| {
        let folder = here.root().join("exchange").join(folder);
        import(&there.control, &there.by(), there.store, folder.to_str().unwrap(), &adding())
    };
    assert_eq!(there.ended(import("first").unwrap().id).task.state, TaskState::Done);
    let error = import("first").unwrap_err();
    assert!(error.code == Code::Conflict && error.message.contains("has all versions"), "{error}");

    here.update(vdisk, 3 << 20, 4);
    exported(&here, vdisk, "second");
    let status = there.ended(import("second").unwrap().id);
    assert_eq!(status.task.state, TaskState::Done, "{status:?}");
    let there_vdisk = vdisk_of(&there);
    let newest = there.version(there_vdisk, 3);
    assert_eq!((newest.access, &there.contents(&newest)[..4]), (Access::Test, &[1, 2, 3, 4][..]));
    assert_eq!(there.files(), ["golden.1.avhdx", "golden.2.avhdx", "golden.3.avhdx", "golden.vhdx"]);

    // Both go on by themselves: what is number 4 there is not number 4 here.
    here.update(vdisk, 4 << 20, 5);
    there.update(there_vdisk, 4 << 20, 6);
    exported(&here, vdisk, "third");
    let error = import("third").unwrap_err();
    assert!(error.message.contains("version 4 is another one here"), "{error}");
    assert_eq!(error.code, Code::Conflict);
}

#[test]
fn child_on_a_disk_that_is_too_small_for_an_import() {
    let Some(root) = std::env::var_os(CHILD) else { return };
    let (here, there) = (Farm::new(), Farm::at(std::path::Path::new(&root), |options| options));
    let vdisk = three_versions(&here);
    let _runners = (here.control.start().unwrap(), there.control.start().unwrap());
    exported(&here, vdisk, "golden");
    let folder = here.root().join("exchange/golden");
    std::fs::write(there.path("ballast"), vec![1; 15 << 20]).unwrap();
    let status = there.ended(begin_import(&there, folder.to_str().unwrap()).id);
    assert_eq!(status.task.state, TaskState::Failed, "{status:?}");
    assert!(status.task.result.clone().unwrap().contains("bytes free"), "{status:?}");
    assert_eq!(there.files(), ["ballast"]);
    std::fs::remove_file(there.path("ballast")).unwrap();
    let status = there.ended(begin_import(&there, folder.to_str().unwrap()).id);
    assert_eq!(status.task.state, TaskState::Done, "{status:?}");
    println!("the small disk was survived");
}

#[test]
fn import_to_a_full_disk_is_told_and_leaves_nothing() {
    on_a_small_disk("transfers::child_on_a_disk_that_is_too_small_for_an_import");
}
