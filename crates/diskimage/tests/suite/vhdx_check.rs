//! The check of VHDX files: what is sound is called so, whoever made it, and each way to break a file has its code.
use std::sync::Arc;

use block::{ByteLength, ByteOffset, Patience};
use diskimage::check::check;
use diskimage::storage::{CrashStorage, FileStorage, MemoryStorage, Storage};
use diskimage::{Format, Guid, NewImage, NewImageSpec, ParentLink, Report, Severity, Subtype, create};

use crate::builder::{BAT_AT, LOG_AT, METADATA_AT, MIB, Vhdx, sealed};
use crate::samples::unpack;
use crate::tools::{qemu_img, qemu_io};
use crate::vhdx_create::spec;

fn codes(report: &Report) -> Vec<&'static str> {
    report.findings().iter().map(|finding| finding.code).collect()
}

fn check_file(file: &MemoryStorage) -> Report {
    check(file, Format::Vhdx).unwrap()
}

/// A child of 5 GiB, two chunks, with a block that is whole, one that is partial, and one that is zeros.
fn child() -> MemoryStorage {
    let child = NewImageSpec {
        identity: Some([7; 16]),
        parent: Some(ParentLink {
            linkage: Guid::from_u128(1),
            relative_path: "base.vhdx".into(),
            absolute_path: None,
        }),
        ..spec(Subtype::Differencing, 5 << 30 | 512)
    };
    make(&child, |image| {
        image.place(0).unwrap();
        let mut held = vec![0; 512];
        held[0] = 1;
        image.place_partly(2047, &held).unwrap();
        image.place_partly(2560, &[]).unwrap_err();
        image.zero(2048).unwrap();
    })
}

pub(crate) fn make(spec: &NewImageSpec, fill: impl FnOnce(&mut dyn NewImage)) -> MemoryStorage {
    let file = Arc::new(CrashStorage::new(MemoryStorage::default()));
    let mut image = create(Box::new(Arc::clone(&file)), spec).unwrap();
    fill(&mut *image);
    image.finish().unwrap();
    file.now()
}

#[test]
fn files_of_other_programs_are_clean() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("qemu.vhdx");
    for options in
        ["subformat=dynamic", "subformat=fixed", "subformat=dynamic,block_size=1M,block_state_zero=off"]
    {
        let _ = std::fs::remove_file(&path);
        qemu_img(&["create", "-q", "-f", "vhdx", "-o", options], &[&path, "40M".as_ref()]);
        qemu_io("vhdx", &path, &["write -P 1 0 1M", "write -P 2 35M 4M"]);
        let report = check(&FileStorage::open(&path).unwrap(), Format::Vhdx).unwrap();
        assert!(report.is_clean(), "{options}: {:?}", report.findings());
    }
    for name in ["iotest-dynamic-1G.vhdx.bz2", "test-disk2vhd.vhdx.bz2", "swap.vhdx.gz"] {
        let Some(path) = unpack(name, directory.path()) else { return };
        let report = check(&FileStorage::open(&path).unwrap(), Format::Vhdx).unwrap();
        println!("{name}: {:?}", report.findings());
        assert!(report.is_clean(), "{name}: {:?}", report.findings());
    }
    let Some(path) = unpack("iotest-dirtylog-10G-4M.vhdx.bz2", directory.path()) else { return };
    let report = check(&FileStorage::open(&path).unwrap(), Format::Vhdx).unwrap();
    assert_eq!(codes(&report)[0], "vhdx-log-dirty", "{:?}", report.findings());
    assert_eq!((report.count(Severity::Error), report.count(Severity::Warning)), (0, 1));
}

#[test]
fn files_that_we_make_have_no_finding_at_all() {
    for subtype in [Subtype::Dynamic, Subtype::Fixed] {
        let file = make(&spec(subtype, 70 * MIB + 512), |image| {
            image.place(2).unwrap();
            image.zero(1).unwrap();
        });
        assert_eq!(check_file(&file), Report::default());
    }
    assert_eq!(check_file(&child()), Report::default());
}

/// A disk of four blocks, two of them present.
fn vhdx() -> Vhdx {
    let mut vhdx = Vhdx::new(4 * MIB, 2 * MIB);
    let at = vhdx.payload_at();
    vhdx.bat = vec![(0, at | 6), (1, 2), (2, (at + MIB) | 6), (3, 2)];
    vhdx
}

fn put(file: &mut MemoryStorage, at: u64, bytes: &[u8]) {
    file.put(ByteOffset::new(at), bytes);
}

fn get<const N: usize>(file: &MemoryStorage, at: u64) -> [u8; N] {
    let mut bytes = [0; N];
    file.read_at(ByteOffset::new(at), &mut bytes, Patience::Now).unwrap();
    bytes
}

/// Changes a structure with a checksum, and makes that right.
fn reseal<const N: usize>(file: &mut MemoryStorage, at: u64, change: impl FnOnce(&mut [u8])) {
    let mut bytes = get::<N>(file, at).to_vec();
    change(&mut bytes);
    put(file, at, &sealed(bytes));
}

/// The codes that a file has after a change, worst first in the file's order.
type Case = (&'static [&'static str], fn(&mut MemoryStorage));

#[test]
fn each_way_to_break_a_structure_has_its_code() {
    const LOCATION: usize = 48 + 16;
    let cases: [Case; 17] = [
        (&["vhdx-header-damaged"], |file| put(file, 0x10100, &[1])),
        (&["vhdx-header-damaged"], |file| put(file, 0x20000, &[0])),
        (&["vhdx-headers-lost"], |file| {
            put(file, 0x10000, &[0]);
            put(file, 0x20000, &[0]);
        }),
        (&["vhdx-headers-ambiguous"], |file| {
            reseal::<4096>(file, 0x10000, |header| (header[8], header[40]) = (8, 1));
        }),
        (&["vhdx-header-broken"], |file| reseal::<4096>(file, 0x20000, |header| header[69] = 1)),
        (&["vhdx-log-broken"], |file| reseal::<4096>(file, 0x20000, |header| header[48] = 1)),
        (&["vhdx-region-table-damaged"], |file| put(file, 0x30000, &[0])),
        (&["vhdx-region-table-damaged"], |file| put(file, 0x4FFFF, &[1])),
        (&["vhdx-region-tables-lost"], |file| {
            put(file, 0x30000, &[0]);
            put(file, 0x40000, &[0]);
        }),
        (&["vhdx-region-tables-differ"], |file| reseal::<65536>(file, 0x40000, |table| table[100] = 1)),
        (&["vhdx-region-tables-differ", "vhdx-region-table-broken"], |file| {
            reseal::<65536>(file, 0x30000, |table| table[8] = 1);
        }),
        // The metadata region where the log is: nothing there is metadata.
        (&["vhdx-region-tables-differ", "vhdx-regions-overlap", "vhdx-metadata-broken"], |file| {
            reseal::<65536>(file, 0x30000, |table| table[LOCATION + 2] = 0x10);
        }),
        // Far behind the file's end.
        (&["vhdx-region-tables-differ", "vhdx-region-cut", "vhdx-metadata-broken"], |file| {
            reseal::<65536>(file, 0x30000, |table| table[LOCATION + 5] = 1);
        }),
        (&["vhdx-metadata-broken"], |file| put(file, METADATA_AT, &[0])),
        (&["vhdx-disk-empty"], |file| put(file, METADATA_AT + 0x10008, &[0; 8])),
        (&["vhdx-item-flags"], |file| put(file, METADATA_AT + 32 + 24, &[2])),
        (&["vhdx-items-overlap"], |file| put(file, METADATA_AT + 96 + 16, &[0x18])),
    ];
    let good = vhdx().build();
    let found = codes(&check_file(&good));
    // The builder sets IsVirtualDisk on the file parameters, too.
    assert_eq!(found, ["vhdx-item-flags"]);
    let mut good = good;
    put(&mut good, METADATA_AT + 32 + 24, &[4]);
    assert_eq!(codes(&check_file(&good)), [""; 0]);
    for (number, (expected, change)) in cases.into_iter().enumerate() {
        let mut file = good.clone();
        change(&mut file);
        assert_eq!(codes(&check_file(&file)), expected, "case {number}");
    }
}

#[test]
fn each_way_to_break_a_table_has_its_code() {
    let payload = BAT_AT + MIB;
    let cases: [(&[&str], u64, u64); 13] = [
        (&["vhdx-bat-reserved-bits"], 1, 2 | 8),
        (&["vhdx-block-state"], 1, 4),
        (&["vhdx-block-state"], 1, 5),
        (&["vhdx-block-state", "vhdx-blocks-overlap"], 1, payload | 7),
        (&["vhdx-block-over-structure"], 1, 6),
        (&["vhdx-block-over-structure"], 1, LOG_AT | 6),
        (&["vhdx-block-over-structure"], 1, METADATA_AT | 6),
        (&["vhdx-block-over-structure"], 1, BAT_AT | 6),
        (&["vhdx-blocks-overlap"], 1, payload | 6),
        (&["vhdx-block-cut"], 1, (payload + 2 * MIB) | 6),
        (&["vhdx-block-cut"], 1, (u64::MAX << 20) | 6),
        (&["vhdx-place-named-twice"], 1, payload | 3),
        (&["vhdx-tail-unused"], 2, 2),
    ];
    for (expected, index, entry) in cases {
        let mut file = vhdx().build();
        put(&mut file, METADATA_AT + 32 + 24, &[4]);
        put(&mut file, BAT_AT + index * 8, &entry.to_le_bytes());
        assert_eq!(codes(&check_file(&file)), expected, "{entry:#x}");
    }
    let mut file = vhdx().build();
    put(&mut file, BAT_AT + 8, &(payload | 6).to_le_bytes());
    let report = check_file(&file);
    let overlap = report.findings().iter().find(|finding| finding.code == "vhdx-blocks-overlap").unwrap();
    let expected = format!("payload block 1 at {payload:#x} lies over payload block 0");
    assert_eq!((&overlap.problem, overlap.at.get()), (&expected, BAT_AT + 8));
    let mut file = vhdx().build();
    put(&mut file, METADATA_AT + 32 + 24, &[4]);
    put(&mut file, BAT_AT, &2_u64.to_le_bytes());
    assert_eq!(codes(&check_file(&file)), ["vhdx-space-unused"]);
    file.set_len(ByteLength::new(payload + 2 * MIB + 5));
    assert_eq!(codes(&check_file(&file)), ["vhdx-space-unused", "vhdx-length-unaligned", "vhdx-tail-unused"]);
}

#[test]
fn each_way_to_break_sector_bitmaps_has_its_code() {
    // The bitmap entries of both chunks of 2048 blocks, and the last block's, which has one sector.
    let (first, second, last) = (BAT_AT + 2048 * 8, BAT_AT + 4097 * 8, BAT_AT + 2561 * 8);
    let good = child();
    let bitmap = u64::from_le_bytes(get(&good, first));
    let end = good.len().get();
    let cases: [(&[&str], u64, u64); 6] = [
        (&["vhdx-bitmap-missing", "vhdx-tail-unused"], first, 0),
        (&["vhdx-bitmap-state", "vhdx-tail-unused"], first, bitmap & !2),
        (&["vhdx-blocks-overlap", "vhdx-bitmap-idle"], second, bitmap),
        (&["vhdx-block-behind-disk"], last + 8, 2),
        (&["vhdx-blocks-overlap", "vhdx-bitmap-missing"], last, (end - 4 * MIB) | 7),
        (&["vhdx-block-cut", "vhdx-bitmap-idle"], second, end | 6),
    ];
    for (expected, at, entry) in cases {
        let mut file = good.clone();
        put(&mut file, at, &entry.to_le_bytes());
        let found = check_file(&file);
        assert_eq!(codes(&found), expected, "{:?}", found.findings());
    }
    // A bitmap for the last block, with the bit of a sector that the disk does not have.
    let mut file = good.clone();
    file.set_len(ByteLength::new(end + 3 * MIB));
    put(&mut file, last, &(end | 7).to_le_bytes());
    put(&mut file, second, &((end + 2 * MIB) | 6).to_le_bytes());
    put(&mut file, end + 2 * MIB + 512 * 512, &[1]);
    assert_eq!(codes(&check_file(&file)), [""; 0]);
    put(&mut file, end + 2 * MIB + 512 * 512, &[3]);
    assert_eq!(codes(&check_file(&file)), ["vhdx-bitmap-behind-disk"]);
    // Without a partial block nobody needs it.
    put(&mut file, last, &(end | 6).to_le_bytes());
    assert_eq!(codes(&check_file(&file)), ["vhdx-bitmap-idle"]);
}

#[test]
fn sector_bitmaps_without_a_parent_and_holes_in_fixed_images_are_found() {
    let mut file = make(&spec(Subtype::Fixed, 5 << 30), |_| ());
    // Blocks of 32 MiB: the bitmap entry of the first chunk is that behind 128 blocks.
    put(&mut file, BAT_AT + 128 * 8, &6_u64.to_le_bytes());
    assert_eq!(codes(&check_file(&file)), ["vhdx-bitmap-unused", "vhdx-place-named-twice"]);
    put(&mut file, BAT_AT + 128 * 8, &0_u64.to_le_bytes());
    put(&mut file, BAT_AT + 5 * 8, &2_u64.to_le_bytes());
    assert_eq!(codes(&check_file(&file)), ["vhdx-fixed-blocks-absent", "vhdx-space-unused"]);
}

#[test]
fn file_cut_anywhere_gets_a_report() {
    let whole = vhdx().build();
    for len in (8..BAT_AT + 4 * MIB).step_by(0x8000 - 8) {
        let mut cut = whole.clone();
        cut.set_len(ByteLength::new(len));
        match check(&cut, Format::Vhdx) {
            Ok(report) => assert!(!report.is_clean() || len >= BAT_AT + 3 * MIB, "cut after {len:#x}"),
            Err(refusal) => assert!(len < 520, "cut after {len:#x}: {refusal}"),
        }
    }
}

#[test]
fn largest_table_is_checked_in_bounded_memory() {
    let mut vhdx = Vhdx::new(64 << 40, 0);
    let at = vhdx.payload_at();
    vhdx.file_bytes = at + 2 * MIB;
    // One good block, one over it in the table's last page, and one behind the file's end.
    let last = (64 << 20) + (64 << 20) / 4096 - 2;
    vhdx.bat =
        vec![(0, at | 6), ((1 << 25) + 1, (at + MIB) | 6), (last, at | 6), (last - 1, (at + 2 * MIB) | 6)];
    let report = check_file(&vhdx.build());
    let found = codes(&report);
    assert_eq!(found[1..], ["vhdx-block-cut", "vhdx-blocks-overlap"], "{:?}", report.findings());
}
