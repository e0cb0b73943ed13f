//! libiscsi's conformance suite, each test in a process of its own with a time limit, on disks of several kinds.
//!
//! A test that skips itself counts as passed nowhere, and only where a table here says why may it skip itself at all.
mod common;

use std::collections::BTreeSet;
use std::sync::Arc;

use block::{Access, BlockDevice, ByteLength, Geometry, LogicalBlockSize, MemoryDevice, WatchDevice};
use common::{Lab, Rules, memory, run, text};

const PACKAGE: &str = "libiscsi-bin";

/// What is not run at all, by name, and why.
const EXCLUDED: [(&str, &str); 4] = [
    ("ExtendedCopy", "third-party copy is deliberately absent: it reaches other disks"),
    ("ReceiveCopyResults", "third-party copy is deliberately absent"),
    ("WriteAtomic16", "a block device promises each block alone to be written wholly or not at all"),
    ("Sanitize", "what a golden image holds cannot be erased through a disk on it; deleting is the owner's"),
];

/// Run on disks made for them alone.
const ON_OTHER_DISKS: [(&str, &str); 5] = [
    ("PreventAllow", "wants a removable medium"),
    ("NoMedia", "wants a removable medium"),
    ("StartStopUnit.Simple", "wants a removable medium"),
    ("ReadOnly", "wants a write-protected disk"),
    ("MultipathIO", "wants two portals"),
];

/// Tests that skip themselves on every disk of this target.
const SKIPPED: [(&str, &str); 2] = [
    (
        "WriteSame10.ZeroBlocks",
        "WSNZ: a length of 0 is refused, as no initiator should mean the rest of a disk by it",
    ),
    ("WriteSame16.ZeroBlocks", "the same"),
];

/// Tests that skip themselves where logical and physical blocks are of one size.
const WANT_LARGE_PHYSICAL_BLOCKS: [&str; 5] = [
    "CompareAndWrite.InvalidDataOutSize",
    "WriteSame10.UnmapUnaligned",
    "WriteSame10.InvalidDataOutSize",
    "WriteSame16.UnmapUnaligned",
    "WriteSame16.InvalidDataOutSize",
];

/// Further tests that skip themselves on a disk that is not thinly provisioned.
const WANT_THIN: [&str; 11] = [
    "Inquiry.BlockLimits",
    "GetLBAStatus.UnmapSingle",
    "Unmap.Simple",
    "Unmap.VPD",
    "Unmap.ZeroBlocks",
    "WriteSame10.Unmap",
    "WriteSame10.UnmapUntilEnd",
    "WriteSame10.UnmapVPD",
    "WriteSame16.Unmap",
    "WriteSame16.UnmapUntilEnd",
    "WriteSame16.UnmapVPD",
];

/// Not run on a disk of 4096-byte blocks, and why.
const MEANT_FOR_512: [(&str, &str); 2] = [
    ("ProutReserve", "the tests of access send one block of 512 bytes; run with 512-byte blocks"),
    ("WriteSame16.Unmap", "writes 65536 blocks at once: beyond MAXIMUM TRANSFER LENGTH with this block size"),
];

/// A suite whose tests pass only one after the other: in libiscsi 1.19, LUNResetSimpleAsync looks at what
/// AbortTaskSimpleAsync left behind (upstream's 5553d6b mends it).
const WHOLE: (&str, usize) = ("iSCSITMF", 2);

/// What became of tests.
#[derive(Default)]
struct Tally {
    passed: BTreeSet<String>,
    skipped: usize,
    failed: Vec<String>,
}

impl Tally {
    /// Runs one test, or one suite, of which no test may skip itself but where `may_skip`.
    fn run(&mut self, name: &str, urls: &[String], may_skip: bool) {
        let full = format!("ALL.{name}");
        let mut arguments = vec!["--dataloss", "--allow-sanitize", "--fail", "--normal", "-t", &full];
        arguments.extend(urls.iter().map(String::as_str));
        let output = run(PACKAGE, "iscsi-test-cu", &arguments);
        let seen = text(&output);
        // The program says this once before and once after its tests, whichever they are.
        let skips =
            seen.lines().filter(|line| line.contains("[SKIPPED]") && !line.contains("PERSISTENT RESERVE IN"));
        match (output.status.success(), skips.count() > 0) {
            (true, false) => {
                self.passed.insert(name.to_owned());
            }
            (true, true) if may_skip => self.skipped += 1,
            _ => self.failed.push(format!("{name}: {}\n{seen}", output.status)),
        }
    }

    fn run_all(&mut self, names: &[String], urls: &[String]) {
        names.iter().for_each(|name| self.run(name, urls, false));
    }

    fn count(&self) -> usize {
        self.passed.len() + if self.passed.contains(WHOLE.0) { WHOLE.1 - 1 } else { 0 }
    }

    fn check(&self, what: &str, fewest: usize) {
        let (passed, failed) = (self.count(), self.failed.len());
        println!("libiscsi, {what}: {passed} passed, {} skipped themselves, {failed} failed", self.skipped);
        assert!(self.failed.is_empty(), "{what}: {}", self.failed.join("\n\n"));
        assert!(passed >= fewest, "{what}: only {passed} tests passed");
    }
}

/// Whether a test may skip itself on an ordinary disk.
fn may_skip(name: &str) -> bool {
    WANT_LARGE_PHYSICAL_BLOCKS.contains(&name) || is_in(name, &SKIPPED)
}

fn is_in(name: &str, suites: &[(&str, &str)]) -> bool {
    suites.iter().any(|(suite, _)| name == *suite || name.starts_with(&format!("{suite}.")))
}

/// The names of all tests of these suites (all suites, where none is named).
fn tests_of(url: &str, suites: &[&str]) -> Vec<String> {
    let list = text(&run(PACKAGE, "iscsi-test-cu", &["--list", url]));
    let names = list.lines().filter_map(|line| line.strip_prefix("ALL.")).filter(|name| name.contains('.'));
    let wanted = |name: &&str| suites.is_empty() || suites.iter().any(|suite| name.starts_with(suite));
    let names: Vec<String> = names.filter(wanted).map(str::to_owned).collect();
    assert!(!names.is_empty() && (!suites.is_empty() || names.len() > 200), "{list}");
    names
}

/// Every test that this target is to pass on an ordinary disk.
fn ordinary_tests(url: &str) -> Vec<String> {
    let mut names = tests_of(url, &[]);
    names.retain(|name| {
        !is_in(name, &EXCLUDED) && !is_in(name, &ON_OTHER_DISKS) && !is_in(name, &[(WHOLE.0, "")])
    });
    names.push(WHOLE.0.to_owned());
    names
}

/// `inner` as a device of another shape.
fn shaped(inner: Arc<dyn BlockDevice>, shape: impl FnOnce(&mut Geometry)) -> Arc<dyn BlockDevice> {
    Arc::new(WatchDevice::new(inner).shaped(shape))
}

#[test]
fn thin_disk_passes_every_test_but_those_excluded() {
    let lab = Lab::serve(memory(256), Rules::default());
    let urls = [lab.url("")];
    let mut tally = Tally::default();
    for name in ordinary_tests(&urls[0]) {
        tally.run(&name, &urls, may_skip(&name));
    }
    // The rest of them, each on the disk that it wants.
    let physical =
        Lab::serve(shaped(memory(256), |geometry| geometry.physical_block = 4096), Rules::default());
    tally.run_all(&WANT_LARGE_PHYSICAL_BLOCKS.map(str::to_owned), &[physical.url("")]);
    let removable = Lab::serve(memory(64), Rules { removable: true, ..Rules::default() });
    let url = removable.url("");
    tally.run_all(&tests_of(&url, &["PreventAllow", "NoMedia", "StartStopUnit.Simple"]), &[url]);
    let bytes = vec![0; 16 << 20];
    let golden = MemoryDevice::with_contents(bytes, LogicalBlockSize::B512, Access::ReadOnly).unwrap();
    let golden = Lab::serve(Arc::new(golden), Rules::default());
    tally.run_all(&tests_of(&urls[0], &["ReadOnly"]), &[golden.url("")]);
    let two_portals = Lab::serve(memory(64), Rules { portals: 2, ..Rules::default() });
    tally.run_all(&tests_of(&urls[0], &["MultipathIO"]), &two_portals.urls());
    tally.check("thin", 200);
}

#[test]
fn thick_disk_passes_every_test_that_a_thick_disk_can() {
    let thick = shaped(memory(256), |geometry| geometry.discard_granularity = None);
    let lab = Lab::serve(thick, Rules::default());
    let urls = [lab.url("")];
    let mut tally = Tally::default();
    for name in ordinary_tests(&urls[0]) {
        tally.run(&name, &urls, may_skip(&name) || WANT_THIN.contains(&&*name));
    }
    tally.check("thick", 170);
}

#[test]
fn disk_with_4096_byte_blocks_passes_every_test() {
    let size = ByteLength::new(256 << 20);
    let disk = MemoryDevice::zeroed(size, LogicalBlockSize::B4096).unwrap();
    let lab = Lab::serve(Arc::new(disk), Rules::default());
    let urls = [lab.url("")];
    let mut tally = Tally::default();
    for name in ordinary_tests(&urls[0]).iter().filter(|name| !is_in(name, &MEANT_FOR_512)) {
        tally.run(name, &urls, may_skip(name));
    }
    tally.check("4096-byte blocks", 165);
}

#[test]
fn every_test_of_reservations_and_resets_passes_over_two_portals() {
    let lab = Lab::serve(memory(64), Rules { portals: 2, ..Rules::default() });
    let urls = lab.urls();
    let suites =
        ["MultipathIO", "Prin", "Prout", "Reserve6", "CompareAndWrite.Simple", "CompareAndWrite.Mis"];
    let mut tally = Tally::default();
    tally.run_all(&tests_of(&urls[0], &suites), &urls);
    tally.check("two portals", 30);
}
