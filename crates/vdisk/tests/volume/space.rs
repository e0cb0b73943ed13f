//! Full and simple file systems, mounted for this test alone: the test program starts itself again in a mount
//! namespace of its own (`unshare`, from util-linux), where the file system goes with the last process.
use std::process::Command;

use block::conformance::pattern;
use block::{BlockError, LogicalBlockSize};

use crate::fixture::{CLUSTER, Fixture, Zeros, discard, image, read, write, write_zeroes};

const DIRECTORY: &str = "VDISK_TEST_SPACE_DIRECTORY";

/// Runs the test `name` of this module in a namespace with a file system mounted by `mount` on the directory.
fn run_on_mount(name: &str, mount: &str) {
    let directory = tempfile::tempdir().unwrap();
    let root = std::fs::metadata("/proc/self").map(|m| std::os::unix::fs::MetadataExt::uid(&m)).unwrap() == 0;
    let output = Command::new("unshare")
        .args(if root { &["--mount"][..] } else { &["--map-root-user", "--mount"][..] })
        .args(["--propagation", "private", "sh", "-c"])
        .arg(format!("{mount} none \"${DIRECTORY}\" && exec \"$0\" --exact \"$1\" --nocapture"))
        .arg(std::env::current_exe().unwrap())
        .arg(format!("space::{name}"))
        .env(DIRECTORY, directory.path())
        .output()
        .expect("this test needs the program unshare (util-linux)");
    let text = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&text));
}

#[test]
fn full_file_system_is_a_clean_error_and_harms_nothing() {
    run_on_mount("child_on_a_tiny_tmpfs", "mount -t tmpfs -o size=1m,mode=700");
}

#[test]
fn file_system_without_holes_still_discards_and_zeroes() {
    run_on_mount("child_on_a_ramfs", "mount -t ramfs");
}

/// Not a test of its own.
#[test]
fn child_on_a_tiny_tmpfs() {
    let Ok(directory) = std::env::var(DIRECTORY) else { return };
    let fixture = Fixture::new(directory.as_ref(), Zeros::of_size(64 << 20));
    let volume = fixture.begin("boot-1").unwrap();
    let blocks =
        || std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(fixture.config.path()).unwrap());
    let mut accepted = 0;
    let mut blocks_before;
    let refused = loop {
        blocks_before = blocks();
        match write(&volume, accepted * 8 * CLUSTER, &[accepted as u8 + 1; 8 * 4096]) {
            Ok(()) => accepted += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(blocks(), blocks_before, "the refused write keeps space");
    assert!((20..32).contains(&accepted), "{accepted} writes of 32 KiB into 1 MiB");
    match &refused {
        BlockError::NoSpace { what } => {
            assert!(what.contains("lab-07") && what.contains("is full"), "{what}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(volume.usage().used.get(), accepted * 8 * CLUSTER, "the refused write is not counted");
    let told = fixture.heard.take();
    assert!(told.len() == 1 && told[0].contains("full (FileSystem)"), "{told:?}");
    // What is there stays as it is and can be written; what was refused reads as before.
    for index in 0..accepted {
        assert_eq!(read(&volume, index * 8 * CLUSTER, 32768).unwrap(), [index as u8 + 1; 32768]);
    }
    assert_eq!(read(&volume, accepted * 8 * CLUSTER, 32768).unwrap(), [0; 32768]);
    write(&volume, 0, &[0xAA; 32768]).unwrap();
    volume.abandon();
    let volume = fixture.resume("boot-1").unwrap();
    assert_eq!(read(&volume, 0, 32768).unwrap(), [0xAA; 32768]);
    assert_eq!(volume.usage().used.get(), accepted * 8 * CLUSTER);
    // Discarding makes room again, of which nothing was lost to the refused writes.
    discard(&volume, 0, 16 * CLUSTER).unwrap();
    write(&volume, accepted * 8 * CLUSTER, &[0xBB; 32768]).unwrap();
    assert_eq!(read(&volume, accepted * 8 * CLUSTER, 32768).unwrap(), [0xBB; 32768]);
}

/// Not a test of its own.
#[test]
fn child_on_a_ramfs() {
    let Ok(directory) = std::env::var(DIRECTORY) else { return };
    let fixture = Fixture::new(directory.as_ref(), image(pattern(1 << 20), LogicalBlockSize::B512));
    let volume = fixture.begin("boot-1").unwrap();
    write(&volume, 0, &[1; 8 * 4096]).unwrap();
    // Data stays (a discard is a hint), what is absent turns into zeros.
    discard(&volume, 0, 16 * CLUSTER).unwrap();
    assert_eq!(read(&volume, 0, 32768).unwrap(), [1; 32768]);
    assert_eq!(read(&volume, 8 * CLUSTER, 32768).unwrap(), [0; 32768]);
    assert_eq!(volume.usage().used.get(), 8 * CLUSTER);
    write_zeroes(&volume, 512, 20 * CLUSTER).unwrap();
    assert_eq!(read(&volume, 0, 512).unwrap(), [1; 512]);
    assert_eq!(read(&volume, 512, 20 * 4096).unwrap(), [0; 20 * 4096]);
    volume.abandon();
    let volume = fixture.resume("boot-1").unwrap();
    assert_eq!(read(&volume, 512, 20 * 4096).unwrap(), [0; 20 * 4096]);
    // The edge of the range took one more cluster.
    assert_eq!(volume.usage().used.get(), 9 * CLUSTER);
}
