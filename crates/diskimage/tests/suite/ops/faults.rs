//! Cancels, kills and full disks in the middle of a merge: nothing is left, or what is left is removed by the next one.
use std::ffi::OsString;
use std::num::NonZeroU64;
use std::path::Path;
use std::process::Command;

use diskimage::ops::{ConvertOptions, MergeOptions, OpError, Replace, convert, merge_base};
use diskimage::storage::StorageError;
use diskimage::{Cancelled, Format, NewImageError, Watch};

use super::disks::raw_disk;
use crate::chains::generate;
use crate::tools::{assert_same, open, program, run};

const MIB: u64 = 1 << 20;
const FOLDER: &str = "HEADWATER_TEST_FAULTS";

fn chain(folder: &Path) -> Option<(std::path::PathBuf, std::path::PathBuf)> {
    generate(Format::Vhdx, 512, 77, &[(24 * MIB, 2 * MIB), (24 * MIB, MIB), (24 * MIB, 2 * MIB)], folder)
}

fn names(folder: &Path) -> Vec<OsString> {
    let mut names: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    names
}

#[test]
fn cancelled_merge_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let Some((leaf, _)) = chain(directory.path()) else { return };
    let (leaf, before) = (open(&leaf), names(directory.path()));
    let target = directory.path().join("merged.vhdx");
    let options = MergeOptions::default();
    // Cancelled before it begins, and while it waits for its turn to move the second step.
    let watch = Watch::default();
    watch.cancel();
    let result = merge_base(&leaf, &target, &options).unwrap().run(&watch);
    assert!(matches!(result, Err(OpError::Cancelled(Cancelled))), "{result:?}");
    assert_eq!(names(directory.path()), before);
    let watch = Watch::default();
    watch.set_limit(NonZeroU64::new(1));
    std::thread::scope(|scope| {
        let work = scope.spawn(|| merge_base(&leaf, &target, &options).unwrap().run(&watch));
        wait_for(|| directory.path().join("merged.vhdx.partial").exists());
        watch.cancel();
        let result = work.join().unwrap();
        assert!(matches!(result, Err(OpError::Cancelled(Cancelled))), "{result:?}");
    });
    assert_eq!(names(directory.path()), before);
}

/// Waits for something that another thread or process does soon.
fn wait_for(happened: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !happened() {
        assert!(begun.elapsed() < std::time::Duration::from_secs(60), "it does not happen");
        std::thread::yield_now();
    }
}

/// In the process that is killed: a merge so slow that it does not end.
fn merge_slowly(folder: &Path) {
    let leaf = open(&folder.join("2.vhdx"));
    let watch = Watch::default();
    watch.set_limit(NonZeroU64::new(1));
    let _ = merge_base(&leaf, &folder.join("merged.vhdx"), &MergeOptions::default()).unwrap().run(&watch);
}

#[test]
fn what_a_killed_merge_leaves_is_removed_by_the_next_one() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return merge_slowly(Path::new(&folder));
    }
    let directory = tempfile::tempdir().unwrap();
    let Some((leaf, raw)) = chain(directory.path()) else { return };
    let partial = directory.path().join("merged.vhdx.partial");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "ops::faults::what_a_killed_merge_leaves_is_removed_by_the_next_one"])
        .env(FOLDER, directory.path())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    // It has begun to write, and holds its lock.
    wait_for(|| partial.metadata().is_ok_and(|metadata| metadata.len() > MIB));
    let leaf = open(&leaf);
    let target = directory.path().join("merged.vhdx");
    let merge = || merge_base(&leaf, &target, &MergeOptions::default()).unwrap().run(&Watch::default());
    let busy = merge();
    assert!(matches!(busy, Err(OpError::Busy { .. })), "{busy:?}");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(partial.exists() && !target.exists());
    assert!(merge().unwrap().removed_leftover);
    assert!(!partial.exists());
    assert_same(&open(&target), &raw);
}

/// On a file system of 8 MiB: a disk of 16 MiB of noise does not go in.
#[test]
fn full_disk_is_a_clean_error_and_leaves_nothing() {
    const TEST: &str = "ops::faults::full_disk_is_a_clean_error_and_leaves_nothing";
    if let Some(folder) = std::env::var_os(FOLDER) {
        return fill_up(Path::new(&folder));
    }
    if !rustix::process::geteuid().is_root() {
        println!("skipped: {TEST}, which only root can mount a small file system for");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("small")).unwrap();
    let script = r#"mount -t tmpfs -o size=8m none "$1/small" && shift && exec "$@""#;
    run(program("unshare", "util-linux")
        .args(["--mount", "sh", "-c", script, "sh"])
        .arg(directory.path())
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", TEST, "--nocapture"])
        .env(FOLDER, directory.path()));
}

fn fill_up(folder: &Path) {
    let (raw, small) = (folder.join("disk.raw"), folder.join("small"));
    raw_disk(&raw, 64 * MIB, 5);
    let before = std::fs::read(&raw).unwrap();
    let source = open(&raw);
    for format in [Format::Raw, Format::Vhd, Format::Vhdx] {
        let target = small.join(format!("new.{format}"));
        std::fs::write(&target, b"what was there").unwrap();
        let options = ConvertOptions { replace: Replace::Swap, ..ConvertOptions::to(format) };
        let result = convert(&source, &target, &options).unwrap().run(&Watch::default());
        let Err(OpError::Target { source: NewImageError::Storage(error), .. }) = result else {
            panic!("{format}: {result:?}");
        };
        let StorageError::Write { source: error, .. } = error else { panic!("{format}: {error:?}") };
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull, "{format}");
        assert_eq!(std::fs::read(&target).unwrap(), b"what was there");
        assert_eq!(names(&small).len(), 1, "{:?}", names(&small));
        std::fs::remove_file(&target).unwrap();
    }
    assert!(std::fs::read(&raw).unwrap() == before);
}
