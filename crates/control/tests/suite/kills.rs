//! Tasks whose server is killed in their midst: the next start begins them again or takes them back, and nothing is left of
//! the first try. (`task_ends` has merges.)
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::time::Duration;

use control::transfer::{Importing, MANIFEST, export, import};
use control::{Options, merge, tasks};
use diskimage::Format;
use farm::catalogue::ListQuery;
use farm::model::{AccessMode, Stored, Task, TaskState};

use crate::sample::{Farm, text};
use crate::task_ends::{CHILD, child, heavy_in, until};

/// So slow that a task of 12 MiB takes some seconds.
fn slowly(options: Options) -> Options {
    Options { task_rate: NonZeroU64::new(2 << 20), ..options }
}

#[test]
fn child_that_works_until_it_is_killed() {
    let Some(root) = std::env::var_os(CHILD) else { return };
    let farm = Farm::reopened(Path::new(&root), slowly);
    let _runner = farm.control.start().unwrap();
    farm.control.changes().blocking_recv().unwrap();
    std::thread::park_timeout(Duration::from_secs(120));
}

/// Has another process work on a task, and kills it when it has begun to write.
fn killed(farm: &Farm, task: &Stored<Task>, has_begun: impl Fn() -> bool) {
    let mut child = child("kills::child_that_works_until_it_is_killed", farm.root());
    until("the task has begun to write", has_begun);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(tasks::get(&farm.control, task.id).unwrap().task.state, TaskState::Running);
}

/// Ends a task that was killed, and sees to it that nobody holds anything any more.
fn finished(farm: &Farm, task: &Stored<Task>) {
    let runner = farm.control.start().unwrap();
    let status = farm.ended(task.id);
    drop(runner);
    assert_eq!(status.task.state, TaskState::Done, "{status:?}");
    assert!(farm.log(task.id).contains("begun again"), "{}", farm.log(task.id));
    nothing_is_held(farm);
}

fn nothing_is_held(farm: &Farm) {
    let leases = farm.control.read(|reader| Ok(reader.list_leases(&ListQuery::default())?.items)).unwrap();
    assert_eq!(leases, []);
}

/// The folder that a task copies into.
fn own_folder(parent: &Path, task: &Stored<Task>) -> PathBuf {
    parent.join(format!(".headwater-task-{}", task.id.get()))
}

/// Whether something was written into a folder.
fn is_filled(folder: &Path) -> bool {
    let files = folder.read_dir().into_iter().flatten().flatten();
    files.filter_map(|file| file.metadata().ok()).any(|file| file.len() > 0)
}

/// An export of a farm's vDisk.
fn exported(farm: &Farm) -> PathBuf {
    let vdisk = heavy_in(farm, Format::Vhdx);
    let task = export(&farm.control, &farm.by(), vdisk, None, "golden").unwrap();
    let _runner = farm.control.start().unwrap();
    assert_eq!(farm.ended(task.id).task.state, TaskState::Done);
    farm.root().join("exchange/golden")
}

fn begin_import(farm: &Farm, from: &Path) -> Stored<Task> {
    let importing =
        Importing { name: Some(text("copy")), mode: AccessMode::Private, description: None, in_test: false };
    import(&farm.control, &farm.by(), farm.store, from.to_str().unwrap(), &importing).unwrap()
}

#[test]
fn import_that_was_killed_is_finished_by_the_next_start() {
    let (here, there) = (Farm::new(), Farm::new());
    let folder = exported(&here);
    let task = begin_import(&there, &folder);
    let own = own_folder(&there.folder, &task);
    killed(&there, &task, || is_filled(&own));
    assert!(own.exists(), "else nothing is proven");
    finished(&there, &task);
    assert_eq!(there.files(), ["golden.1.avhdx", "golden.vhdx"]);
    let vdisk = there.control.read(|reader| Ok(reader.vdisk(there.store, &text("copy"))?)).unwrap();
    assert_eq!(there.contents(&there.version(vdisk.id, 1))[..5], [1, 0, 0, 0, 7]);
}

#[test]
fn import_that_was_killed_and_cancelled_leaves_nothing() {
    let (here, there) = (Farm::new(), Farm::new());
    let folder = exported(&here);
    let task = begin_import(&there, &folder);
    let own = own_folder(&there.folder, &task);
    killed(&there, &task, || is_filled(&own));
    tasks::cancel(&there.control, &there.by(), task.id).unwrap();
    let _runner = there.control.start().unwrap();
    assert_eq!(there.ended(task.id).task.state, TaskState::Cancelled);
    assert_eq!(there.files(), [""; 0]);
    nothing_is_held(&there);
}

#[test]
fn export_that_was_killed_is_finished_by_the_next_start() {
    let farm = Farm::new();
    let vdisk = heavy_in(&farm, Format::Vhdx);
    let task = export(&farm.control, &farm.by(), vdisk, None, "golden").unwrap();
    let exchange = farm.root().join("exchange");
    let own = own_folder(&exchange, &task);
    killed(&farm, &task, || is_filled(&own));
    finished(&farm, &task);
    assert!(!own.exists());
    let mut files: Vec<_> =
        exchange.join("golden").read_dir().unwrap().map(|file| file.unwrap().file_name()).collect();
    files.sort();
    assert_eq!(files, ["golden.1.avhdx", "golden.vhdx", MANIFEST]);
}

#[test]
fn conversion_that_was_killed_is_finished_by_the_next_start() {
    let farm = Farm::new();
    let vdisk = heavy_in(&farm, Format::Vhd);
    let task = merge::begin_conversion(&farm.control, &farm.by(), vdisk, false, &text("")).unwrap();
    let partial = farm.path("golden.2.vhdx.partial");
    killed(&farm, &task, || partial.metadata().is_ok_and(|file| file.len() > 4 << 20));
    finished(&farm, &task);
    assert_eq!(farm.files(), ["golden.1.avhd", "golden.2.vhdx", "golden.vhd"]);
    assert_eq!(farm.contents(&farm.version(vdisk, 2))[..5], [1, 0, 0, 0, 7]);
}
