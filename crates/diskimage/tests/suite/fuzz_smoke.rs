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
    Mutator::new(seeds, 64 << 10).seeding("image_parts").run(4000, fuzz::open_parts);
}

/// A small image of each kind, as the list of its parts.
fn made(format: &str, kinds: &[&str], commands: &[&str]) -> Vec<Vec<u8>> {
    let directory = tempfile::tempdir().unwrap();
    let (raw, path) = (directory.path().join("seed.raw"), directory.path().join(format!("seed.{format}")));
    std::fs::write(&raw, vec![0; 512 << 10]).unwrap();
    qemu_io("raw", &raw, &["write -P 1 0 5k", "write -P 2 200k 60k"]);
    let made = kinds.iter().map(|options| {
        let (compress, options) = match options.strip_prefix("-c ") {
            Some(options) => (&["-c"][..], options),
            None => (&[][..], *options),
        };
        let convert = [&["convert"], compress, &["-f", "raw", "-O", format, "-o", options]].concat();
        qemu_img(&convert, &[&raw, &path]);
        if !commands.is_empty() {
            qemu_io(format, &path, commands);
        }
        parts(&MemoryStorage::new(&std::fs::read(&path).unwrap()))
    });
    made.collect()
}

#[test]
fn changed_parts_of_qcow2_images_do_not_break_the_reader() {
    let kinds = ["compat=0.10,cluster_size=512", "cluster_size=4k", "extended_l2=on,cluster_size=16k"];
    let mut seeds = made("qcow2", &kinds, &["write -z 64k 32k"]);
    let packed = ["-c cluster_size=4k", "-c compression_type=zstd", "-c extended_l2=on"];
    seeds.extend(made("qcow2", &packed, &[]));
    for seed in &seeds {
        fuzz::open_qcow2_parts(seed);
    }
    Mutator::new(seeds, 64 << 10).seeding("image_qcow2").run(4000, fuzz::open_qcow2_parts);
}

#[test]
fn changed_parts_of_vmdk_images_do_not_break_the_reader() {
    let mut seeds = made("vmdk", &["subformat=monolithicSparse,zeroed_grain=on"], &["write -z 64k 64k"]);
    seeds.extend(made("vmdk", &["subformat=streamOptimized"], &[]));
    // The same sparse extent twice, and a flat one, behind a descriptor.
    let descriptor = "# Disk DescriptorFile\nversion=1\nparentCID=ffffffff\ncreateType=\"custom\"\n\
        RW 1024 SPARSE \"1\"\nRW 1024 SPARSE \"2\"\nRW 8 FLAT \"3\" 1\nRW 63 ZERO\n";
    let mut split = parts(&MemoryStorage::new(descriptor.as_bytes()));
    for (file, bytes) in [(1_u64, &seeds[0]), (2, &seeds[1]), (3, &parts(&MemoryStorage::new(&[3; 4608])))] {
        split.extend(in_file(bytes, file));
    }
    seeds.push(split);
    for seed in &seeds {
        fuzz::open_vmdk_parts(seed);
    }
    Mutator::new(seeds, 64 << 10).seeding("image_vmdk").run(4000, fuzz::open_vmdk_parts);
}

/// The same parts in another file.
fn in_file(parts: &[u8], file: u64) -> Vec<u8> {
    let (mut moved, mut rest) = (Vec::new(), parts);
    while let Some((place, behind)) = rest.split_first_chunk() {
        let (length, behind) = behind.split_first_chunk().unwrap();
        let (bytes, behind) = behind.split_at(usize::from(u16::from_le_bytes(*length)));
        moved.extend((u64::from_le_bytes(*place) | file << 62).to_le_bytes());
        moved.extend(length);
        moved.extend(bytes);
        rest = behind;
    }
    moved
}

#[test]
fn changed_bytes_of_images_do_not_break_the_readers() {
    let seeds = vec![vhd("subformat=fixed"), vhd("subformat=dynamic")[..4096].to_vec(), vec![0; 600]];
    Mutator::new(seeds, 128 << 10).seeding("image_bytes").run(4000, fuzz::open_bytes);
}

/// A parent and a leaf with blocks in every state.
fn chain() -> Vec<u8> {
    let mut parent = Vhdx::new(6 * MIB, 2 * MIB);
    let at = parent.payload_at();
    parent.bat = vec![(0, at | 6), (1, 2), (3, (at + MIB) | 6)];
    parent.data = vec![(at, vec![1; 600]), (at + MIB, vec![2; 600])];
    let mut leaf = Vhdx::new(7 * MIB, 4 * MIB);
    leaf.has_parent = true;
    leaf.bat =
        vec![(0, at | 7), (1, (at + MIB) | 6), (2, 2), (3, (at + 2 * MIB) | 7), (4096, (at + 3 * MIB) | 6)];
    leaf.data =
        vec![(at, vec![3; 600]), (at + 3 * MIB, vec![0x5A; 300]), (at + 3 * MIB + 768, vec![0x0F; 256])];
    let parent = parts(&parent.build());
    [&(parent.len() as u32).to_le_bytes(), &parent[..], &parts(&leaf.build())].concat()
}

#[test]
fn changed_chains_do_not_break_the_readers() {
    let seed = chain();
    fuzz::open_chain(&seed);
    Mutator::new(vec![seed], 64 << 10).seeding("image_chain").run(4000, fuzz::open_chain);
}

#[test]
fn changed_operations_leave_every_image_as_its_model() {
    let mut seeds = Vec::new();
    for kind in 0..64 {
        let mut rng = mutate::Rng::new(u64::from(kind) + 1);
        let operations = (0..12).flat_map(|_| rng.next().to_le_bytes());
        seeds.push([kind].into_iter().chain(operations).collect::<Vec<u8>>());
        fuzz::operations(seeds.last().unwrap());
    }
    Mutator::new(seeds, 512).seeding("image_operations").run(60, fuzz::operations);
}

#[test]
fn changed_histories_of_versions_leave_every_disk_as_its_model() {
    // In memory where that can be: a history flushes its files many times.
    let memory = std::path::Path::new("/dev/shm");
    let place = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let folder = tempfile::tempdir_in(place).unwrap();
    let run = |history: &[u8]| fuzz::versions(history, folder.path());
    let mut seeds = Vec::new();
    for kind in 0..32 {
        let mut rng = mutate::Rng::new(u64::from(kind) + 1);
        let operations = (0..24).flat_map(|_| rng.next().to_le_bytes());
        seeds.push([kind].into_iter().chain(operations).collect::<Vec<u8>>());
        run(seeds.last().unwrap());
    }
    Mutator::new(seeds, 512).seeding("image_versions").run(16, run);
}

#[test]
fn changed_logs_are_replayed_into_a_file_as_in_memory() {
    let seeds = vec![parts(&vhdx(true)), parts(&vhdx(false))];
    seeds.iter().for_each(|seed| fuzz::replay_parts(seed));
    Mutator::new(seeds, 64 << 10).seeding("image_replay").run(1000, fuzz::replay_parts);
}
