//! File systems to run a test on: the one of temporary files, and, as root, XFS and btrfs, both of which share extents,
//! in files mounted where nobody else sees them.
//!
//! For those the test program starts itself again in a mount namespace of its own, for the one test. The mounts end
//! with it, however it ends.
use std::path::Path;

use crate::tools::{program, run};

const PLACE: &str = "HEADWATER_TEST_PLACE";
const SHARES: &str = "HEADWATER_TEST_SHARES";
/// The file systems take no more space than what is put into them.
const BYTES: u64 = 1 << 30;

/// A folder on a file system.
pub(crate) struct Place<'a> {
    pub(crate) folder: &'a Path,
    /// Whether extents can be shared there; `None` where that is not known.
    pub(crate) shares: Option<bool>,
}

/// Runs `body` on each file system. `test` is the whole name of the test that calls this.
pub(crate) fn everywhere(test: &str, body: impl Fn(&Place<'_>)) {
    if let Some(folder) = std::env::var_os(PLACE) {
        let shares = std::env::var_os(SHARES).map(|_| true);
        return body(&Place { folder: Path::new(&folder), shares });
    }
    let directory = tempfile::tempdir().unwrap();
    body(&Place { folder: directory.path(), shares: None });
    if !rustix::process::geteuid().is_root() {
        println!("skipped: {test} on XFS and btrfs, which only root can mount");
        return;
    }
    for (make, package, options) in
        [("mkfs.xfs", "xfsprogs", &["-q", "-m", "reflink=1"][..]), ("mkfs.btrfs", "btrfs-progs", &["-q"])]
    {
        mounted(test, make, package, options);
    }
}

fn mounted(test: &str, make: &str, package: &str, options: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    let (image, folder) = (directory.path().join("file-system"), directory.path().join("mounted"));
    std::fs::File::create(&image).unwrap().set_len(BYTES).unwrap();
    std::fs::create_dir(&folder).unwrap();
    run(program(make, package).args(options).arg(&image));
    // The shell gives way to the test, so that the namespace ends with that.
    let script = r#"mount -o loop "$1" "$2" && shift 2 && exec "$@""#;
    run(program("unshare", "util-linux")
        .args(["--mount", "sh", "-c", script, "sh"])
        .args([&image, &folder])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(PLACE, &folder)
        .env(SHARES, "1"));
}
