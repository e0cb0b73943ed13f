//! The decoders survive what a mutator makes of sound images: the part of fuzzing that every test run affords.
use block::{ByteOffset, Patience};
use diskimage::fuzz;
use diskimage::storage::{MemoryStorage, Storage};
use mutate::Mutator;

use crate::builder::{Change, Entry, LOG_GUID, MIB, Vhdx};
use crate::tools::{qemu_img, qemu_io};

/// A file as the list of its parts that are not zeros.
fn parts(file: &MemoryStorage) -> Vec<u8> {
    let mut list = Vec::new();
    for at in (0..file.len().get()).step_by(4096) {
        let mut page = vec![0; 4096.min((file.len().get() - at) as usize)];
        file.read_at(ByteOffset::new(at), &mut page, Patience::Now).unwrap();
        let Some(first) = page.iter().position(|&byte| byte != 0) else { continue };
        let last = page.iter().rposition(|&byte| byte != 0).unwrap();
        list.extend((at + first as u64).to_le_bytes());
        list.extend(((last - first + 1) as u16).to_le_bytes());
        list.extend(&page[first..=last]);
    }
    // The last byte makes the file as long as it was.
    list.extend((file.len().get() - 1).to_le_bytes());
    list.extend([1, 0, 0]);
    list
}

fn vhdx(dirty: bool) -> MemoryStorage {
    let mut vhdx = Vhdx::new(6 * MIB, 2 * MIB);
    let at = vhdx.payload_at();
    vhdx.bat = vec![(0, at | 6), (1, 2), (2, 3), (3, (at + MIB) | 6)];
    vhdx.dirty = dirty;
    let change = |n: u64| match n % 2 {
        0 => Change::Zero { at: at + n * 4096, length: 8192 },
        _ => Change::Data { at: at + n * 4096, sector: vec![7; 4096] },
    };
    let entry = |sequence: u64| Entry {
        sequence,
        tail: 0,
        guid: LOG_GUID,
        flushed: vhdx.file_bytes,
        last: vhdx.file_bytes + MIB,
        changes: (0..3).map(change).collect(),
    };
    if dirty {
        vhdx.log = vec![(0, entry(5).build()), (8192, entry(6).build()), (16384, entry(7).build())];
    }
    vhdx.build()
}

fn vhd(options: &str) -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("seed.vhd");
    qemu_img(&["create", "-q", "-f", "vpc", "-o", options], &[&path, "64k".as_ref()]);
    qemu_io("vpc", &path, &["write -P 1 0 512"]);
    std::fs::read(path).unwrap()
}

#[test]
fn changed_parts_of_images_do_not_break_the_readers() {
    let vhd = parts(&MemoryStorage::new(&vhd("subformat=dynamic")));
    let seeds = vec![parts(&vhdx(false)), parts(&vhdx(true)), vhd];
    for seed in &seeds {
        fuzz::open_parts(seed);
    }
    Mutator::new(seeds, 64 << 10).run(4000, fuzz::open_parts);
}

#[test]
fn changed_bytes_of_images_do_not_break_the_readers() {
    let seeds = vec![vhd("subformat=fixed"), vhd("subformat=dynamic")[..4096].to_vec(), vec![0; 600]];
    Mutator::new(seeds, 128 << 10).run(4000, fuzz::open_bytes);
}
