//! Random chains of differencing images, made by the small generators that share nothing with this crate, read as the
//! flat model says, and as 7-Zip reads them.
use std::path::{Path, PathBuf};

use block::LogicalBlockSize;
use diskimage::{Format, Image, Subtype};

use crate::tools::{assert_same, assert_same_as_7z, open, program, run, shared};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// A file of a chain: the disk's size, and that of its blocks.
pub(crate) type Shape = (u64, u64);

/// The chain's leaf, and the raw file that it must read as.
pub(crate) fn generate(
    format: Format,
    sector: u64,
    seed: u64,
    shapes: &[Shape],
    folder: &Path,
) -> Option<(PathBuf, PathBuf)> {
    let scripts = shared("oracles")?;
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/python");
    let raw = folder.join("expected.raw");
    run(program("python3", "python3")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .arg(python.join("chains.py"))
        .args([&scripts, &python])
        .arg(format.to_string())
        .args([folder, &raw])
        .args([sector, seed].map(|number| number.to_string()))
        .args(shapes.iter().map(|(size, block)| format!("{size}:{block}"))));
    Some((folder.join(format!("{}.{format}", shapes.len() - 1)), raw))
}

fn check(format: Format, sector: u64, seed: u64, shapes: &[Shape]) -> Option<Image> {
    let folder = tempfile::tempdir().unwrap();
    let (leaf, raw) = generate(format, sector, seed, shapes, folder.path())?;
    let image = open(&leaf);
    let layers = image.layers();
    assert_eq!(layers.len(), shapes.len());
    for (layer, (size, block)) in layers.iter().zip(shapes) {
        assert_eq!(layer.info.virtual_size.get(), *size);
        assert_eq!(layer.info.payload_block.map(block::ByteLength::get), Some(*block));
        let is_base = layer.layer.get() == 0;
        assert_eq!(layer.info.subtype == Subtype::Dynamic, is_base);
        assert_eq!(layer.parent.is_none(), is_base);
    }
    assert_same(&image, &raw);
    // 7-Zip reads no disk that ends inside a page, gives all the zeros of a large one, and of a parent that is smaller
    // than its child only as much as there is.
    let same_sizes = shapes.iter().all(|(size, _)| *size == shapes[0].0);
    if shapes[0].0.is_multiple_of(MIB) && shapes[0].0 < GIB && same_sizes {
        assert_same_as_7z(&image, &leaf);
    }
    Some(image)
}

#[test]
fn random_vhdx_chains_read_as_the_flat_model_and_as_7zip() {
    let blocks = [MIB, 2 * MIB, 4 * MIB, 8 * MIB];
    for sector in [512, 4096] {
        for depth in 1..=8_u64 {
            let block_of = |layer: u64| blocks[((layer * 3 + depth) % 4) as usize];
            let shapes: Vec<Shape> = (0..depth).map(|layer| (24 * MIB, block_of(layer))).collect();
            let Some(image) = check(Format::Vhdx, sector, depth * 7919 + sector, &shapes) else { return };
            assert_eq!(Some(image.info().logical_block), LogicalBlockSize::from_bytes(sector));
        }
    }
}

#[test]
fn vhdx_chains_of_several_chunks_read_as_the_flat_model() {
    for (seed, sector, size) in [(1, 512, 13 * GIB), (2, 512, 9 * GIB + 512), (3, 4096, 66 * GIB)] {
        let shapes = [(size, 2 * MIB), (size, 32 * MIB), (size, 2 * MIB), (size, MIB)];
        if check(Format::Vhdx, sector, seed, &shapes).is_none() {
            return;
        }
    }
}

#[test]
fn chains_of_files_with_different_sizes_read_zeros_behind_a_parents_end() {
    for seed in 0..3 {
        let odd = 512 * (seed % 3);
        let sizes = [20 * MIB, 9 * MIB + odd, 30 * MIB, 41 * MIB + 7 * odd, 33 * MIB];
        let shapes: Vec<Shape> = sizes.iter().map(|&size| (size, MIB << (seed % 3))).collect();
        for depth in 2..=shapes.len() {
            if check(Format::Vhdx, 512, seed * 10 + depth as u64, &shapes[..depth]).is_none() {
                return;
            }
            let _ = check(Format::Vhd, 512, seed * 10 + depth as u64, &shapes[..depth]);
        }
    }
}

#[test]
fn random_vhd_chains_read_as_the_flat_model_and_as_7zip() {
    for depth in 1..=8_u64 {
        let block_of = |layer: u64| [2 * MIB, 512 << 10, 16 * MIB][((layer + depth) % 3) as usize];
        let shapes: Vec<Shape> = (0..depth).map(|layer| (20 * MIB, block_of(layer))).collect();
        if check(Format::Vhd, 512, depth * 104_729, &shapes).is_none() {
            return;
        }
    }
    let _ = check(Format::Vhd, 512, 5, &[(9 * GIB, 2 * MIB), (9 * GIB, 2 * MIB), (9 * GIB, 16 * MIB)]);
}
