//! VHDX files made from scratch, held against qemu-img, 7-Zip and libvhdi, none of which is ours, and against a model
//! of what was put in.
use std::collections::BTreeSet;
use std::path::Path;

use block::{ByteLength, ByteOffset, LogicalBlockSize};
use diskimage::storage::{FileStorage, WritableStorage};
use diskimage::{Format, Image, NewImage, NewImageSpec, Subtype, create};
use mutate::Rng;

use crate::tools::{assert_same_as_7z, assert_same_sparse, open, qemu_img};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// An image to be, without a parent.
pub(crate) fn spec(subtype: Subtype, virtual_bytes: u64) -> NewImageSpec {
    NewImageSpec {
        format: Format::Vhdx,
        subtype,
        virtual_size: ByteLength::new(virtual_bytes),
        logical_block: LogicalBlockSize::B512,
        physical_block: 4096,
        payload_block: None,
        identity: None,
        linkage: None,
        parent: None,
        carried: Vec::new(),
    }
}

fn begin(path: &Path, spec: &NewImageSpec) -> Box<dyn NewImage> {
    create(Box::new(FileStorage::create_new(path).unwrap()), spec).unwrap()
}

/// Some blocks by chance, first and last always, and both sides of the chunks' borders at 4 and 32 GiB; in any order.
fn some_blocks(block_bytes: u64, blocks: u64, rng: &mut Rng) -> Vec<u64> {
    let borders = [0, blocks - 1, 4 * GIB / block_bytes, 32 * GIB / block_bytes];
    let mut chosen: BTreeSet<u64> =
        borders.into_iter().flat_map(|block| [block.saturating_sub(1), block]).collect();
    chosen.extend((0..6).map(|_| rng.below(blocks)));
    let mut order: Vec<(u64, u64)> = chosen
        .into_iter()
        .filter(|&block| block < blocks)
        .map(|block| (rng.below(u64::MAX), block))
        .collect();
    order.sort_unstable();
    order.into_iter().map(|(_, block)| block).collect()
}

/// Fills an image with blocks by chance and a raw file with what it must read as.
fn fill(image: &mut dyn NewImage, raw: &FileStorage, virtual_bytes: u64, rng: &mut Rng) {
    let block_bytes = image.payload_block().get();
    let blocks = virtual_bytes.div_ceil(block_bytes);
    raw.set_len(ByteLength::new(virtual_bytes)).unwrap();
    for block in some_blocks(block_bytes, blocks, rng) {
        if rng.below(4) == 0 {
            image.zero(block).unwrap();
            continue;
        }
        let at = image.place(block).unwrap().get();
        let left = (virtual_bytes - block * block_bytes).min(block_bytes);
        for _ in 0..3 {
            let within = rng.below(left) / 512 * 512;
            let length = (rng.below(64) * 512 + 512).min(left - within);
            let bytes = block::conformance::pattern((length + block % 7) as usize);
            let bytes = &bytes[(block % 7) as usize..];
            image.storage().write_at(ByteOffset::new(at + within), bytes).unwrap();
            raw.write_at(ByteOffset::new(block * block_bytes + within), bytes).unwrap();
        }
    }
}

#[test]
fn image_by_chance_reads_the_same_here_and_elsewhere() {
    let directory = tempfile::tempdir().unwrap();
    let shapes = [
        (Subtype::Dynamic, 40 * MIB, MIB, 512),
        (Subtype::Dynamic, 41 * MIB + 512, 2 * MIB, 512),
        (Subtype::Dynamic, 13 * GIB, 2 * MIB, 512),
        (Subtype::Dynamic, 9 * GIB, 256 * MIB, 512),
        (Subtype::Dynamic, 66 * GIB, 4 * MIB, 4096),
        (Subtype::Dynamic, 65 * GIB + 4096, 64 * MIB, 4096),
        (Subtype::Fixed, 40 * MIB + 512, 2 * MIB, 512),
        (Subtype::Fixed, 9 * GIB, 32 * MIB, 512),
        (Subtype::Fixed, 33 * GIB, 16 * MIB, 4096),
    ];
    for (seed, (subtype, virtual_bytes, block_bytes, sector)) in (1..).zip(shapes) {
        let path = directory.path().join(format!("{seed}.vhdx"));
        let raw = directory.path().join(format!("{seed}.raw"));
        let spec = NewImageSpec {
            payload_block: Some(ByteLength::new(block_bytes)),
            logical_block: LogicalBlockSize::from_bytes(sector).unwrap(),
            ..spec(subtype, virtual_bytes)
        };
        let mut image = begin(&path, &spec);
        let raw_storage = FileStorage::create_new(&raw).unwrap();
        fill(&mut *image, &raw_storage, virtual_bytes, &mut Rng::new(seed));
        image.finish().unwrap();
        let image = open(&path);
        assert_eq!(image.info().subtype, subtype);
        assert_same_sparse(&image, &path, &raw);
        check_elsewhere(&path, &raw, &image, sector, virtual_bytes);
    }
}

fn check_elsewhere(path: &Path, raw: &Path, image: &Image, sector: u64, virtual_bytes: u64) {
    // qemu reads no 4096-byte sectors; 7-Zip no disks of odd sizes, and gives all the zeros.
    if sector == 512 {
        qemu_img(&["check", "-q", "-f", "vhdx"], &[path]);
        qemu_img(&["compare", "-q", "-f", "vhdx", "-F", "raw"], &[path, raw]);
    }
    if virtual_bytes < GIB && virtual_bytes.is_multiple_of(MIB) {
        assert_same_as_7z(image, path);
    }
}
