//! libiscsi's conformance suite: every test that a boot disk needs, each in a process of its own with a time limit.
mod common;

use common::{Lab, Rules, memory, run, succeed, text};

const PACKAGE: &str = "libiscsi-bin";

/// What is not run, by name, and why a boot disk can do without.
const EXCLUDED: [(&str, &str); 14] = [
    ("CompareAndWrite", "VMware's lock primitive; the disk does not claim it"),
    ("ExtendedCopy", "third-party copy is deliberately absent"),
    ("ReceiveCopyResults", "third-party copy is deliberately absent"),
    ("OrWrite", "not claimed; no operating system boots with it"),
    ("WriteAtomic16", "not claimed"),
    ("Sanitize", "not claimed; an image is deleted by its administrator"),
    ("ReadDefectData10", "there is no defect list"),
    ("ReadDefectData12", "there is no defect list"),
    ("Prin", "reservations are a later issue: one device, one disk"),
    ("Prout", "reservations are a later issue"),
    ("Reserve6", "reservations are a later issue"),
    ("PreventAllow", "for removable media"),
    ("MultipathIO", "wants two portals; its tests need COMPARE AND WRITE and reservations"),
    ("ReadOnly", "wants a write-protected disk: has a test of its own below"),
];

/// Tests that skip themselves on this disk, and why.
const SKIPPED: [(&str, &str); 7] = [
    ("StartStopUnit.Simple", "the medium is not removable"),
    ("WriteSame10.ZeroBlocks", "WSNZ: a length of 0 is refused"),
    ("WriteSame10.UnmapUnaligned", "logical and physical blocks are the same size"),
    ("WriteSame10.InvalidDataOutSize", "logical and physical blocks are the same size"),
    ("WriteSame16.ZeroBlocks", "WSNZ: a length of 0 is refused"),
    ("WriteSame16.UnmapUnaligned", "logical and physical blocks are the same size"),
    ("WriteSame16.InvalidDataOutSize", "logical and physical blocks are the same size"),
];

/// A suite whose tests pass only one after the other: in libiscsi 1.19, LUNResetSimpleAsync looks at what
/// AbortTaskSimpleAsync left behind (upstream's 5553d6b mends it).
const WHOLE: &str = "iSCSITMF";

/// The fewest tests that must really pass.
const MIN_PASSED: usize = 130;

#[test]
fn every_test_of_libiscsi_that_a_boot_disk_needs_passes() {
    let lab = Lab::serve(memory(256), Rules::default());
    let list = text(&run(PACKAGE, "iscsi-test-cu", &["--list", &lab.url("")]));
    let mut names: Vec<String> = list
        .lines()
        .filter(|line| line.starts_with("ALL.") && line.matches('.').count() == 2)
        .map(str::to_owned)
        .collect();
    assert!(names.len() > 200, "only {} tests in the suite", names.len());
    names.retain(|name| !name.starts_with(&format!("ALL.{WHOLE}.")));
    names.push(format!("ALL.{WHOLE}"));

    let (mut passed, mut failed) = (0, Vec::new());
    for name in &names {
        let short = name.trim_start_matches("ALL.");
        if EXCLUDED.iter().any(|(suite, _)| short.starts_with(suite)) {
            continue;
        }
        let output =
            run(PACKAGE, "iscsi-test-cu", &["--dataloss", "--fail", "--normal", "-t", name, &lab.url("")]);
        let seen = text(&output);
        // The program says this once before and once after its tests, whichever they are.
        let skips =
            seen.lines().filter(|line| line.contains("[SKIPPED]") && !line.contains("PERSISTENT RESERVE IN"));
        let expected = SKIPPED.iter().any(|(test, _)| *test == short);
        match (output.status.success(), skips.count() > 0) {
            (true, false) if !expected => passed += 1,
            (true, true) if expected => {}
            _ => failed.push(format!("{name}: {}\n{seen}", output.status)),
        }
    }
    println!("libiscsi: {passed} passed, {} skipped themselves, {} failed", SKIPPED.len(), failed.len());
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
    assert!(passed >= MIN_PASSED, "only {passed} tests passed");
}

#[test]
fn write_protected_disk_passes_its_test() {
    let bytes = vec![0; 16 << 20];
    let device =
        block::MemoryDevice::with_contents(bytes, block::LogicalBlockSize::B512, block::Access::ReadOnly)
            .unwrap();
    let lab = Lab::serve(std::sync::Arc::new(device), Rules::default());
    let arguments = ["--dataloss", "--fail", "--normal", "-t", "ALL.ReadOnly", &lab.url("")];
    let seen = succeed(PACKAGE, "iscsi-test-cu", &arguments);
    assert!(!seen.contains("not write-protected"), "{seen}");
}
