//! How tasks end: done, failed, cancelled, and after the death of their server.
use std::num::NonZeroU64;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use block::{BlockDevice, ByteOffset, Patience};
use control::tasks::Runner;
use control::{Code, Options, merge, tasks};
use diskimage::Format;
use farm::catalogue::ListQuery;
use farm::model::{
    AutoMerge, ChainLimit, Farm as FarmRecord, MergeResult, Owner, Stored, Task, TaskState, VersionState,
};
use farm::rules::lifecycle::{MergeKind, Promotion};

use crate::sample::{Farm, edit, n, text, write};

/// A vDisk with a base and two updates.
fn three_versions(farm: &Farm, format: Format) -> farm::model::VdiskId {
    let vdisk = farm.vdisk("golden", format);
    farm.update(vdisk, 1 << 20, 2);
    farm.update(vdisk, 2 << 20, 3);
    vdisk
}

fn request(kind: MergeKind) -> merge::Request {
    merge::Request { kind, ..merge::Request::default() }
}

#[test]
fn merged_updates_stand_on_the_base_and_hold_the_same() {
    let farm = Farm::new();
    let vdisk = three_versions(&farm, Format::Vhdx);
    let task = merge::begin(&farm.control, &farm.by(), vdisk, &request(MergeKind::Updates)).unwrap();
    assert_eq!(farm.version(vdisk, 3).state, VersionState::Making);
    // Another one would meet this one.
    let error = merge::begin(&farm.control, &farm.by(), vdisk, &request(MergeKind::Base)).unwrap_err();
    assert_eq!(error.code, Code::InUse);
    assert!(error.message.contains(&format!("task #{}", task.id)), "{error}");
    let _runner = farm.control.start().unwrap();
    let status = farm.ended(task.id);
    assert_eq!(status.task.state, TaskState::Done, "{status:?}");
    assert!(status.task.result.as_ref().unwrap().contains("golden.3.avhdx"), "{status:?}");
    assert_eq!(status.task.actor.as_str(), "root");
    assert!(farm.log(task.id).contains("3 files into \"golden.3.avhdx\""));
    let merged = farm.version(vdisk, 3);
    assert_eq!((merged.state, merged.lineage.parent()), (VersionState::Ready, Some(n(0))));
    assert_eq!(merged.mark, Some(control::marks::of_file(&farm.path("golden.3.avhdx")).unwrap()));
    assert_eq!(farm.contents(&merged)[..4], [1, 2, 3, 0]);
    let leases = farm.control.read(|reader| Ok(reader.list_leases(&ListQuery::default())?.items)).unwrap();
    assert_eq!(leases, []);
}

#[test]
fn vhd_is_converted_to_vhdx_for_the_same_devices() {
    let farm = Farm::new();
    let vdisk = three_versions(&farm, Format::Vhd);
    let _runner = farm.control.start().unwrap();
    let task = merge::begin_conversion(&farm.control, &farm.by(), vdisk, true, &text("")).unwrap();
    assert_eq!(task.kind.as_str(), "convert");
    let status = farm.ended(task.id);
    assert_eq!(status.task.state, TaskState::Done, "{status:?}");
    let made = farm.version(vdisk, 3);
    assert_eq!(
        (made.file.as_str(), made.access.kind()),
        ("golden.3.vhdx", farm::model::AccessKind::Production)
    );
    assert_eq!(farm.contents(&made)[..4], [1, 2, 3, 0]);
    let identity = |file| diskimage::LayerInfo::of_file(&farm.path(file), None).unwrap().info.identity;
    assert_eq!(identity("golden.3.vhdx"), identity("golden.2.avhd"));
    let again = merge::begin_conversion(&farm.control, &farm.by(), vdisk, true, &text("")).unwrap_err();
    assert_eq!(again.code, Code::Refused);
}

#[test]
fn promotion_that_makes_the_chain_too_long_begins_a_merge() {
    let farm = Farm::new();
    let vdisk = farm.vdisk("golden", Format::Vhdx);
    farm.control
        .change(&farm.by(), |change| {
            let auto_merge = Some(AutoMerge { above: ChainLimit::new(3)?, result: MergeResult::Production });
            let farm = FarmRecord { name: text("Farm"), description: text(""), auto_merge };
            Ok(change.create(farm)?)
        })
        .unwrap();
    farm.update(vdisk, 1 << 20, 2);
    farm.update(vdisk, 2 << 20, 3);
    assert_eq!(farm.numbers(vdisk), [0, 1, 2]);
    farm.update(vdisk, 3 << 20, 4);
    assert_eq!(farm.numbers(vdisk), [0, 1, 2, 3, 4]);
    let tasks = farm.control.read(|reader| Ok(reader.list::<Task>(&ListQuery::default())?.items)).unwrap();
    let merge = tasks.iter().find(|task| task.kind.as_str() == "merge").unwrap();
    assert_eq!(merge.actor.as_str(), "system");
    let _runner = farm.control.start().unwrap();
    assert_eq!(farm.ended(merge.id).task.state, TaskState::Done);
    assert_eq!(farm.contents(&farm.version(vdisk, 4))[..5], [1, 2, 3, 4, 0]);
}

#[test]
fn merge_of_a_file_that_somebody_wrote_to_fails_and_leaves_nothing() {
    let farm = Farm::new();
    let vdisk = three_versions(&farm, Format::Vhdx);
    write(&farm.path("golden.2.avhdx"), 0, 9);
    let _runner = farm.control.start().unwrap();
    let task = merge::begin(&farm.control, &farm.by(), vdisk, &request(MergeKind::Base)).unwrap();
    let status = farm.ended(task.id);
    assert_eq!(status.task.state, TaskState::Failed);
    assert!(status.task.result.clone().unwrap().contains("somebody wrote to"));
    assert!(farm.log(task.id).contains("what was begun is undone"));
    assert_eq!(farm.numbers(vdisk), [0, 1, 2]);
    assert_eq!(farm.files(), ["golden.1.avhdx", "golden.2.avhdx", "golden.vhdx"]);
}

#[test]
fn task_that_waits_is_cancelled_at_once_and_one_that_has_ended_is_not() {
    let farm = Farm::new();
    let vdisk = three_versions(&farm, Format::Vhdx);
    let task = merge::begin(&farm.control, &farm.by(), vdisk, &request(MergeKind::Base)).unwrap();
    let unended = tasks::forget(&farm.control, &farm.by(), task.id).unwrap_err();
    assert_eq!(unended.code, Code::Refused);
    let ended = tasks::cancel(&farm.control, &farm.by(), task.id).unwrap();
    assert_eq!(ended.state, TaskState::Cancelled);
    assert_eq!(farm.numbers(vdisk), [0, 1, 2]);
    let error = tasks::cancel(&farm.control, &farm.by(), task.id).unwrap_err();
    assert_eq!(error.code, Code::Refused);
    tasks::forget(&farm.control, &farm.by(), task.id).unwrap();
    assert_eq!(tasks::get(&farm.control, task.id).unwrap_err().code, Code::NotFound);
    // The chain is free again.
    merge::begin(&farm.control, &farm.by(), vdisk, &request(MergeKind::Base)).unwrap();
}

/// A vDisk with an update that holds 12 MiB, in pieces that no file system shares between files: they must be copied.
fn heavy(farm: &Farm) -> farm::model::VdiskId {
    heavy_in(farm, Format::Vhdx)
}

/// The same in another format.
pub(crate) fn heavy_in(farm: &Farm, format: Format) -> farm::model::VdiskId {
    let vdisk = farm.vdisk("golden", format);
    let made = control::versions::new_maintenance(&farm.control, &farm.by(), vdisk, None, &text("")).unwrap();
    edit(&farm.path(made.file.as_str()), |image| {
        for piece in (4 << 20..16 << 20).step_by(64 << 10) {
            image.write(ByteOffset::new(piece), &[7; 60 << 10], Patience::Blocking).unwrap();
        }
    });
    let to = Promotion::Production(farm.control.now());
    control::versions::promote(&farm.control, &farm.by(), made.id, made.revision, to).unwrap();
    vdisk
}

/// Waits for a level, which a bound that is never reached keeps from being for ever.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::yield_now();
    }
}

fn partial_is_there(farm: &Farm) -> bool {
    farm.path("golden.2.vhdx.partial").metadata().is_ok_and(|file| file.len() > 4 << 20)
}

/// A base merge that is at work, and takes its time.
fn slow_merge(farm: &Farm) -> (farm::model::VdiskId, Stored<Task>, Runner) {
    let vdisk = heavy(farm);
    let runner = farm.control.start().unwrap();
    let task = merge::begin(&farm.control, &farm.by(), vdisk, &request(MergeKind::Base)).unwrap();
    until("the merge has begun to move", || partial_is_there(farm));
    (vdisk, task, runner)
}

/// So slow that a merge of 12 MiB takes a minute.
fn slowly(options: Options) -> Options {
    Options { task_rate: NonZeroU64::new(200 << 10), ..options }
}

#[test]
fn cancelled_merge_leaves_nothing() {
    let farm = Farm::with(slowly);
    let (vdisk, task, _runner) = slow_merge(&farm);
    let status = tasks::get(&farm.control, task.id).unwrap();
    assert_eq!(status.task.state, TaskState::Running);
    tasks::cancel(&farm.control, &farm.by(), task.id).unwrap();
    let status = farm.ended(task.id);
    assert_eq!(status.task.state, TaskState::Cancelled);
    assert_eq!(farm.numbers(vdisk), [0, 1]);
    assert_eq!(farm.files(), ["golden.1.avhdx", "golden.vhdx"]);
}

#[test]
fn throttled_merge_goes_on_at_full_speed_when_it_may() {
    let farm = Farm::with(slowly);
    let (vdisk, task, _runner) = slow_merge(&farm);
    tasks::throttle(&farm.control, &farm.by(), task.id, None).unwrap();
    let status = farm.ended(task.id);
    assert_eq!(status.task.state, TaskState::Done, "{status:?}");
    assert_eq!(farm.contents(&farm.version(vdisk, 2))[4..], [7; 12]);
    let error = tasks::throttle(&farm.control, &farm.by(), task.id, None).unwrap_err();
    assert_eq!(error.code, Code::Refused);
}

#[test]
fn merge_whose_lease_an_administrator_breaks_stops_and_leaves_nothing() {
    let farm = Farm::with(slowly);
    let (vdisk, task, _runner) = slow_merge(&farm);
    farm.control
        .change(&farm.by(), |change| {
            let leases = change.leases_of(Owner::Task(task.id))?;
            assert_eq!(leases.len(), 2);
            Ok(change.break_lease(leases[0].fence, "in the way")?)
        })
        .unwrap();
    // Whoever does not hear of it at once is held up by its last step.
    tasks::throttle(&farm.control, &farm.by(), task.id, None).unwrap();
    let status = farm.ended(task.id);
    assert_eq!(status.task.state, TaskState::Failed, "{status:?}");
    assert_eq!(farm.numbers(vdisk), [0, 1]);
    assert_eq!(farm.files(), ["golden.1.avhdx", "golden.vhdx"]);
}

#[test]
fn merge_is_begun_again_when_its_server_was_stopped() {
    let farm = Farm::with(slowly);
    let (vdisk, task, runner) = slow_merge(&farm);
    drop(runner);
    assert_eq!(tasks::get(&farm.control, task.id).unwrap().task.state, TaskState::Waiting);
    assert_eq!(farm.version(vdisk, 2).state, VersionState::Making);
    assert_eq!(farm.files(), ["golden.1.avhdx", "golden.vhdx"]);
    let farm = farm.restarted(|options| options);
    let _runner = farm.control.start().unwrap();
    assert_eq!(farm.ended(task.id).task.state, TaskState::Done);
    assert_eq!(farm.contents(&farm.version(vdisk, 2))[..5], [1, 0, 0, 0, 7]);
    assert!(farm.log(task.id).contains("begun again"));
}

/// Runs the test `name` of this program on a farm in `root`, and gives it when it has begun.
pub(crate) fn child(name: &str, root: &std::path::Path) -> std::process::Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]).env(CHILD, root);
    command.stdout(Stdio::null()).stderr(Stdio::inherit()).spawn().unwrap()
}

/// The folder in which a child finds its farm.
pub(crate) const CHILD: &str = "HEADWATER_CONTROL_CHILD";

#[test]
fn child_that_merges_until_it_is_killed() {
    let Some(root) = std::env::var_os(CHILD) else { return };
    let farm = Farm::reopened(std::path::Path::new(&root), slowly);
    let _runner = farm.control.start().unwrap();
    farm.control.changes().blocking_recv().unwrap();
    std::thread::park_timeout(Duration::from_secs(120));
}

#[test]
fn merge_is_begun_again_when_its_server_was_killed_and_given_up_when_it_kills_it() {
    let farm = Farm::new();
    let vdisk = heavy(&farm);
    let task = merge::begin(&farm.control, &farm.by(), vdisk, &request(MergeKind::Base)).unwrap();
    for kill in 1..=3 {
        let mut child = child("task_ends::child_that_merges_until_it_is_killed", farm.root());
        until("the merge has begun to move", || partial_is_there(&farm));
        child.kill().unwrap();
        child.wait().unwrap();
        let status = tasks::get(&farm.control, task.id).unwrap();
        assert_eq!(status.task.state, TaskState::Running, "after kill {kill}");
        // Left behind; the next child is to make it grow from nothing.
        std::fs::File::options()
            .write(true)
            .open(farm.path("golden.2.vhdx.partial"))
            .unwrap()
            .set_len(9)
            .unwrap();
    }
    // As often as this, and it may be what the server dies of.
    let _runner = farm.control.start().unwrap();
    let status = farm.ended(task.id);
    assert_eq!(status.task.state, TaskState::Failed);
    assert!(status.task.result.clone().unwrap().contains("the server ended 3 times"));
    assert_eq!(farm.numbers(vdisk), [0, 1]);
    assert_eq!(farm.files(), ["golden.1.avhdx", "golden.vhdx"]);
    // A new one finds nothing in its way.
    let task = merge::begin(&farm.control, &farm.by(), vdisk, &request(MergeKind::Base)).unwrap();
    assert_eq!(farm.ended(task.id).task.state, TaskState::Done);
}

#[test]
fn merge_killed_once_is_finished_by_the_next_start() {
    let farm = Farm::new();
    let vdisk = heavy(&farm);
    let task = merge::begin(&farm.control, &farm.by(), vdisk, &request(MergeKind::Base)).unwrap();
    let mut child = child("task_ends::child_that_merges_until_it_is_killed", farm.root());
    until("the merge has begun to move", || partial_is_there(&farm));
    child.kill().unwrap();
    child.wait().unwrap();
    let _runner = farm.control.start().unwrap();
    assert_eq!(farm.ended(task.id).task.state, TaskState::Done);
    assert!(farm.log(task.id).contains("begun again"));
    assert_eq!(farm.contents(&farm.version(vdisk, 2))[..5], [1, 0, 0, 0, 7]);
    assert_eq!(farm.files(), ["golden.1.avhdx", "golden.2.vhdx", "golden.vhdx"]);
}

#[test]
fn child_on_a_disk_that_is_too_small() {
    let Some(root) = std::env::var_os(CHILD) else { return };
    let farm = Farm::at(std::path::Path::new(&root), |options| options);
    let vdisk = heavy(&farm);
    let _runner = farm.control.start().unwrap();
    let task = merge::begin(&farm.control, &farm.by(), vdisk, &request(MergeKind::Base)).unwrap();
    let status = farm.ended(task.id);
    assert_eq!(status.task.state, TaskState::Failed, "{status:?}");
    assert!(status.task.result.clone().unwrap().contains("bytes free"), "{}", farm.log(task.id));
    assert_eq!(farm.numbers(vdisk), [0, 1]);
    assert_eq!(farm.files(), ["golden.1.avhdx", "golden.vhdx"]);
    // Too little even for an empty difference.
    let free = farm.path("ballast");
    let mut ballast = std::fs::File::create(&free).unwrap();
    while std::io::Write::write_all(&mut ballast, &[1; 4096]).is_ok() {}
    let error = control::versions::new_maintenance(&farm.control, &farm.by(), vdisk, None, &text(""));
    assert!(matches!(error.unwrap_err().code, Code::NoSpace));
    drop(ballast);
    std::fs::remove_file(free).unwrap();
    assert_eq!(farm.numbers(vdisk), [0, 1]);
    assert_eq!(farm.files(), ["golden.1.avhdx", "golden.vhdx"]);
    control::versions::new_maintenance(&farm.control, &farm.by(), vdisk, None, &text("")).unwrap();
    println!("the small disk was survived");
}

#[test]
fn full_disk_is_told_and_leaves_nothing_half_made() {
    on_a_small_disk("task_ends::child_on_a_disk_that_is_too_small");
}

/// Runs the test `child` on a farm whose store is a file system of 20 MiB; it says so when it has survived.
pub(crate) fn on_a_small_disk(child: &str) {
    let root = tempfile::tempdir().unwrap();
    // The catalogue lies elsewhere than the store, as it does on real servers.
    let script = r#"mkdir -p "$1/store" && mount -t tmpfs -o size=20m none "$1/store" && shift && exec "$@""#;
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"])
        .arg(root.path())
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", child, "--nocapture"])
        .env(CHILD, root.path())
        .output()
        .expect("this test needs the program unshare (util-linux)");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        said.contains("the small disk was survived"),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
