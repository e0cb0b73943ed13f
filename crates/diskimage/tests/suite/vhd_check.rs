//! Checks and repairs of VHD files: each kind of damage has its code, and what can be mended is.
use std::sync::Arc;

use block::{ByteLength, ByteOffset, Patience};
use diskimage::storage::{CrashStorage, FileStorage, MemoryStorage, Storage};
use diskimage::{Format, Guid, NewImageSpec, ParentLink, Refusal, Severity, Subtype, check, create};

use crate::samples::unpack;
use crate::vhd_create::spec;

const MIB: u64 = 1 << 20;

fn image(subtype: Subtype) -> MemoryStorage {
    let parent = (subtype == Subtype::Differencing).then(|| ParentLink {
        linkage: Guid::from_u128(7),
        relative_path: "base.vhd".into(),
        absolute_path: Some("/disks/base.vhd".into()),
    });
    let storage = Arc::new(CrashStorage::new(MemoryStorage::default()));
    let spec = NewImageSpec { parent, ..spec(subtype, 20 * MIB) };
    let mut new = create(Box::new(Arc::clone(&storage)), &spec).unwrap();
    for block in [3, 5] {
        new.place(block).unwrap();
    }
    new.finish().unwrap();
    storage.now()
}

fn put(file: &mut MemoryStorage, at: u64, bytes: &[u8]) {
    file.put(ByteOffset::new(at), bytes);
}

/// Makes the checksum right of the structure of `length` bytes at `at`, whose field is at `field`.
fn seal(file: &mut MemoryStorage, at: u64, length: usize, field: usize) {
    let mut bytes = vec![0; length];
    file.read_at(ByteOffset::new(at), &mut bytes, Patience::Now).unwrap();
    bytes[field..field + 4].fill(0);
    let sum = !bytes.iter().map(|&byte| u32::from(byte)).sum::<u32>();
    put(file, at + field as u64, &sum.to_be_bytes());
}

type Change = fn(&mut MemoryStorage, u64);

/// Makes the change to an image, given where its footer is, and holds the findings against codes: of the check, and
/// of the check after a repair.
#[track_caller]
fn assert_codes(subtype: Subtype, change: Change, found: &[(&str, Severity)], left: &[&str]) {
    let mut file = image(subtype);
    let end = file.len().get() - 512;
    change(&mut file, end);
    let report = check::check(&file, Format::Vhd).unwrap();
    let codes: Vec<_> = report.findings().iter().map(|finding| (finding.code, finding.severity)).collect();
    assert_eq!(codes, found, "{:?}", report.findings());
    let storage = CrashStorage::new(file);
    let repaired = check::repair(&storage, Format::Vhd).unwrap();
    for (one, other) in report.findings().iter().zip(repaired.findings()) {
        assert_eq!((one.code, one.at, &one.problem), (other.code, other.at, &other.problem));
        assert!(!one.repaired && one.repairable != left.contains(&one.code), "{one:?}");
        assert_eq!(other.repaired, !left.contains(&other.code), "{other:?}");
    }
    let report = check::check(&storage, Format::Vhd).unwrap();
    let codes: Vec<_> = report.findings().iter().map(|finding| finding.code).collect();
    assert_eq!(codes, left, "{:?}", report.findings());
}

#[test]
fn sound_images_have_no_findings() {
    for subtype in [Subtype::Fixed, Subtype::Dynamic, Subtype::Differencing] {
        assert_codes(subtype, |_, _| {}, &[], &[]);
    }
}

#[test]
fn what_is_there_twice_is_mended() {
    use Severity::{Note, Warning};
    for subtype in [Subtype::Dynamic, Subtype::Differencing] {
        let mended = |change: Change, code, severity| assert_codes(subtype, change, &[(code, severity)], &[]);
        mended(|file, end| file.set_len(ByteLength::new(end)), "vhd-footer-lost", Warning);
        mended(|file, end| file.set_len(ByteLength::new(end + 300)), "vhd-footer-lost", Warning);
        mended(|file, end| put(file, end + 50, &[9]), "vhd-footer-damaged", Warning);
        mended(|file, _| put(file, 0, &[0; 512]), "vhd-copy-lost", Warning);
        mended(|file, _| put(file, 90, &[1]), "vhd-copy-differs", Warning);
        // The tail that a crash leaves: the file has grown, and has a footer at its new end.
        let grown = |file: &mut MemoryStorage, end: u64| {
            let mut footer = [0; 512];
            file.read_at(ByteOffset::new(end), &mut footer, Patience::Now).unwrap();
            put(file, end + (32 << 20), &footer);
        };
        mended(grown, "vhd-tail-unused", Note);
    }
}

#[test]
fn what_nobody_can_know_is_found_and_left() {
    use Severity::{Error, Note, Warning};
    let left = |change: Change, code: &'static str, severity| {
        assert_codes(Subtype::Dynamic, change, &[(code, severity)], &[code]);
    };
    left(|file, _| put(file, 512 + 30, &[9]), "vhd-header-damaged", Error);
    // Block 0 where block 3 is, and behind the end.
    left(|file, _| put(file, 0x600, &[0, 0, 0, 7]), "vhd-overlap", Error);
    // The header, the table and block 3.
    let on_header: Change = |file, _| put(file, 0x600, &[0, 0, 0, 1]);
    assert_codes(Subtype::Dynamic, on_header, &[("vhd-overlap", Error); 3], &["vhd-overlap"; 3]);
    left(|file, _| put(file, 0x600, &[0x10, 0, 0, 0]), "vhd-outside", Error);
    let odd_place = |file: &mut MemoryStorage, end: u64| {
        let mut footer = [0; 512];
        file.read_at(ByteOffset::new(end), &mut footer, Patience::Now).unwrap();
        put(file, 0x600, &((end / 512) as u32 + 3).to_be_bytes());
        put(file, end + (2 << 20) + 512 * 7, &footer);
        put(file, end, &[0; 512]);
    };
    left(odd_place, "vhd-misaligned", Note);
    let large = |file: &mut MemoryStorage, end: u64| {
        for at in [0, end] {
            put(file, at + 56, &[0xFF, 0, 16, 63]);
            seal(file, at, 512, 64);
        }
    };
    left(large, "vhd-geometry", Note);
    left(|file, end| file.set_len(ByteLength::new(end + 511)), "vhd-footer-short", Note);
    let of_child = |change: Change, code: &'static str, severity| {
        assert_codes(Subtype::Differencing, change, &[(code, severity)], &[code]);
    };
    let far_path = |file: &mut MemoryStorage, _| {
        put(file, 512 + 576 + 16, &[0x7F; 8]);
        seal(file, 512, 1024, 36);
    };
    of_child(far_path, "vhd-locator-damaged", Error);
    // A path that nobody here reads, in a place that no file has.
    let far_unread = |file: &mut MemoryStorage, _| {
        put(file, 512 + 576 + 48, b"MacX\0\0\0\x09\0\0\0\x09\0\0\0\0\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xF0");
        seal(file, 512, 1024, 36);
    };
    of_child(far_unread, "vhd-outside", Error);
    let no_path = |file: &mut MemoryStorage, _| {
        put(file, 512 + 576, &[0; 48]);
        seal(file, 512, 1024, 36);
    };
    of_child(no_path, "vhd-no-parent-path", Warning);
}

#[test]
fn footer_of_a_fixed_image_has_no_copy_to_mend_it_from() {
    let change: Change = |file, end| put(file, end + 50, &[9]);
    assert_codes(Subtype::Fixed, change, &[("vhd-footer-damaged", Severity::Error)], &["vhd-footer-damaged"]);
    let mut file = image(Subtype::Fixed);
    let end = file.len().get() - 512;
    file.set_len(ByteLength::new(end));
    let refused = check::check(&file, Format::Vhd);
    assert!(matches!(refused, Err(Refusal::NotThisFormat { .. })), "{refused:?}");
}

#[test]
fn files_of_other_programs_are_sound() {
    let directory = tempfile::tempdir().unwrap();
    for name in [
        "dfvfs-fat-differential.vhd.gz",
        "hyperv2012r2-dynamic.vhd.bz2",
        "virtualpc-dynamic.vhd.bz2",
        "d2v-zerofilled.vhd.bz2",
    ] {
        let Some(path) = unpack(name, directory.path()) else { return };
        let report = check::check(&FileStorage::open(&path).unwrap(), Format::Vhd).unwrap();
        println!("{name}: {:?}", report.findings());
        assert!(report.is_clean(), "{name}: {:?}", report.findings());
    }
}
