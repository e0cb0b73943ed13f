//! The repair of VHDX files: what is mended is sound afterwards and holds the same disk, a crash in between does no
//! harm, and what cannot be mended without a guess is left as it is.
use std::path::Path;
use std::sync::Arc;

use block::{ByteLength, ByteOffset, Patience};
use diskimage::check::{check, repair};
use diskimage::storage::{CrashStorage, FileStorage, MemoryStorage, Storage, Survival};
use diskimage::{Format, Image, OpenOptions, Report};
use mutate::Rng;

use crate::builder::{Change, Entry, LOG_GUID, METADATA_AT, MIB, Vhdx};
use crate::samples::unpack;
use crate::tools::{assert_same, open, qemu_img, qemu_raw, read};

/// A disk of four blocks, two of them present, and a log that moves one of them to the file's end.
fn dirty() -> Vhdx {
    let mut vhdx = Vhdx::new(4 * MIB, 2 * MIB);
    let at = vhdx.payload_at();
    vhdx.bat = vec![(0, at | 6), (1, 2), (2, (at + MIB) | 6), (3, 2)];
    vhdx.data = vec![(at, vec![1; 4096]), (at + MIB, vec![2; 4096])];
    let mut table = vec![0; 4096];
    for (index, entry) in [(at + 2 * MIB) | 6, at | 6, (at + MIB) | 6, 2].into_iter().enumerate() {
        table[index * 8..][..8].copy_from_slice(&entry.to_le_bytes());
    }
    let changes = vec![
        Change::Data { at: crate::builder::BAT_AT, sector: table },
        Change::Data { at: at + 2 * MIB + 4096, sector: vec![3; 4096] },
        Change::Zero { at, length: MIB },
    ];
    let (flushed, last) = (vhdx.file_bytes, vhdx.file_bytes + MIB);
    let entry = Entry { sequence: 5, tail: 0, guid: LOG_GUID, flushed, last, changes };
    vhdx.dirty = true;
    vhdx.log = vec![(0, entry.build())];
    vhdx
}

/// The file, with the flags on its items as they should be.
fn built(vhdx: &Vhdx) -> MemoryStorage {
    let mut file = vhdx.build();
    file.put(ByteOffset::new(METADATA_AT + 32 + 24), &[4]);
    file
}

fn clean() -> MemoryStorage {
    let mut vhdx = dirty();
    (vhdx.dirty, vhdx.log) = (false, Vec::new());
    built(&vhdx)
}

fn contents(file: &MemoryStorage) -> Vec<u8> {
    let image = Image::from_storage(Box::new(file.clone()), OpenOptions::default());
    let image = image.unwrap_or_else(|error| panic!("{}", error.refusal));
    let mut bytes = vec![9; 4 * MIB as usize];
    read(&image, 0, &mut bytes);
    bytes
}

/// The code of each finding, and whether it is said to be repairable, and repaired.
fn verdicts(report: &Report) -> Vec<(&'static str, bool, bool)> {
    report.findings().iter().map(|finding| (finding.code, finding.repairable, finding.repaired)).collect()
}

fn check_file(file: &MemoryStorage) -> Report {
    check(file, Format::Vhdx).unwrap()
}

/// The identifiers of both headers: of what was last written, and of the data that children hold on to.
fn identifiers(file: &MemoryStorage) -> [[[u8; 16]; 2]; 2] {
    [0x10000, 0x20000].map(|at| {
        [16, 32].map(|field| {
            let mut bytes = [0; 16];
            file.read_at(ByteOffset::new(at + field), &mut bytes, Patience::Now).unwrap();
            bytes
        })
    })
}

#[test]
fn what_the_file_holds_twice_is_restored() {
    type Break = fn(&mut MemoryStorage);
    let cases: [(&str, Break); 7] = [
        ("vhdx-header-damaged", |file| file.put(ByteOffset::new(0x10000), &[0])),
        ("vhdx-header-damaged", |file| file.put(ByteOffset::new(0x20000), &[0])),
        ("vhdx-region-table-damaged", |file| file.put(ByteOffset::new(0x30000), &[0; 65536])),
        ("vhdx-region-table-damaged", |file| file.put(ByteOffset::new(0x40001), &[0])),
        ("vhdx-tail-unused", |file| file.set_len(ByteLength::new(file.len().get() + 3 * MIB))),
        ("vhdx-length-unaligned", |file| file.set_len(ByteLength::new(file.len().get() - 512))),
        ("vhdx-log-dirty", |file| *file = built(&dirty())),
    ];
    for (code, damage) in cases {
        let mut file = clean();
        damage(&mut file);
        if code == "vhdx-length-unaligned" {
            // The last block is cut short by the disk's end.
            file.put(ByteOffset::new(METADATA_AT + 0x10008), &(3 * MIB - 512).to_le_bytes());
        }
        let before = check_file(&file);
        assert_eq!(verdicts(&before), [(code, true, false)], "{:?}", before.findings());
        let expected = (code != "vhdx-length-unaligned").then(|| contents(&file));
        let storage = CrashStorage::new(file.clone());
        let report = repair(&storage, Format::Vhdx).unwrap();
        assert_eq!(verdicts(&report), [(code, true, true)]);
        let repaired = storage.now();
        assert_eq!(check_file(&repaired), Report::default(), "{code}");
        assert!(expected.is_none_or(|expected| contents(&repaired) == expected), "{code}");
        // [MS-VHDX] §2.2.2: the file was written, the disk's contents were not.
        let [[file_write, data_write], other] = identifiers(&repaired);
        assert_eq!([file_write, data_write], other);
        assert_ne!(file_write, [0x11; 16]);
        assert_eq!(data_write, [0x11; 16]);
    }
}

#[test]
fn sound_file_and_file_beyond_repair_are_not_touched() {
    type Break = fn(&mut MemoryStorage);
    let cases: [Break; 5] = [
        |_| (),
        // A log that cannot be replayed, with a damaged header besides.
        |file| {
            *file = built(&dirty());
            file.put(ByteOffset::new(crate::builder::LOG_AT + 100), &[7]);
            file.put(ByteOffset::new(0x10000), &[0]);
        },
        // Both headers.
        |file| [0x10000, 0x20000].into_iter().for_each(|at| file.put(ByteOffset::new(at), &[0])),
        // A block over another, and an end that may not be one.
        |file| {
            let at = dirty().payload_at();
            file.put(ByteOffset::new(crate::builder::BAT_AT + 8), &(at | 6).to_le_bytes());
            file.set_len(ByteLength::new(file.len().get() + 3 * MIB));
        },
        |file| file.put(ByteOffset::new(METADATA_AT), &[0]),
    ];
    for (number, damage) in cases.into_iter().enumerate() {
        let mut file = clean();
        damage(&mut file);
        let storage = CrashStorage::new(file);
        let report = repair(&storage, Format::Vhdx).unwrap();
        assert_eq!(report.repaired(), 0, "case {number}: {:?}", report.findings());
        assert_eq!(storage.moments(), 0, "case {number}");
    }
}

#[test]
fn crash_while_repairing_leaves_the_same_disk() {
    let mut rng = Rng::new(7);
    let mut file = built(&dirty());
    let expected = contents(&file);
    file.put(ByteOffset::new(0x30000), &[0]);
    file.put(ByteOffset::new(0x10000), &[0]);
    let storage = Arc::new(CrashStorage::new(file));
    repair(&*storage, Format::Vhdx).unwrap();
    for moment in 0..=storage.moments() {
        for _ in 0..20 {
            let crashed = storage.crashed(moment, |_| match rng.below(4) {
                0 => Survival::Lost,
                1 => Survival::Head(rng.below(9) as usize),
                2 => Survival::Tail(rng.below(9) as usize),
                _ => Survival::Whole,
            });
            assert!(contents(&crashed) == expected, "after {moment} events");
            let again = CrashStorage::new(crashed);
            repair(&again, Format::Vhdx).unwrap();
            assert_eq!(check_file(&again.now()), Report::default());
            assert!(contents(&again.now()) == expected, "repaired after {moment} events");
        }
    }
}

#[test]
fn repaired_sample_with_a_dirty_log_is_what_qemu_makes_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let Some(path) = unpack("iotest-dirtylog-10G-4M.vhdx.bz2", directory.path()) else { return };
    let theirs = directory.path().join("theirs.vhdx");
    std::fs::copy(&path, &theirs).unwrap();
    qemu_img(&["check", "-q", "-r", "all", "-f", "vhdx"], &[&theirs]);
    let report = repair(&FileStorage::open_writable(&path).unwrap(), Format::Vhdx).unwrap();
    assert_eq!(verdicts(&report)[0], ("vhdx-log-dirty", true, true));
    let compare =
        |one: &Path, other: &Path| qemu_img(&["compare", "-q", "-f", "vhdx", "-F", "vhdx"], &[one, other]);
    compare(&path, &theirs);
    qemu_img(&["check", "-q", "-f", "vhdx"], &[&path]);
    let image = open(&path);
    assert!(!image.info().log_replayed);
    assert_same(&image, &qemu_raw("vhdx", &path));
}
