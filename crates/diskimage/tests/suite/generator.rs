//! Images of two small generators that share nothing with this crate (Python, not in this tree), in the shapes that
//! qemu-img does not make: 4096-byte sectors, every payload state, VHD blocks with missing sectors, other block sizes.
use std::path::{Path, PathBuf};

use block::LogicalBlockSize;
use diskimage::{Format, Image};

use crate::tools::{assert_same, assert_same_as_7z, open, program, qemu_raw, run, shared};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

struct Shape {
    format: Format,
    size: u64,
    block_bytes: u64,
    sector: u64,
}

/// The generated image, opened, and the raw file that it must read as.
fn generate(shape: &Shape, seed: u64, directory: &Path) -> Option<(Image, PathBuf, PathBuf)> {
    let scripts = shared("oracles")?;
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/python");
    let image = directory.join(format!("generated.{}", shape.format));
    let raw = directory.join("generated.raw");
    let numbers = [shape.size, shape.block_bytes, shape.sector, seed].map(|number| number.to_string());
    run(program("python3", "python3")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .arg(python.join("generate.py"))
        .args([&scripts, &python])
        .arg(shape.format.to_string())
        .args([&image, &raw])
        .args(numbers));
    Some((open(&image), image, raw))
}

#[test]
fn generated_vhdx_reads_as_its_generator_says() {
    let directory = tempfile::tempdir().unwrap();
    let shapes = [
        (40 * MIB, MIB, 512),
        (41 * MIB + 512, 2 * MIB, 512),
        (13 * GIB, 2 * MIB, 512),
        (9 * GIB, 16 * MIB, 512),
        (40 * MIB, MIB, 4096),
        (40 * MIB + 4096, MIB, 4096),
        (66 * GIB, 4 * MIB, 4096),
        (65 * GIB, 16 * MIB, 4096),
    ];
    for (seed, (size, block_bytes, sector)) in (1..).zip(shapes) {
        let shape = Shape { format: Format::Vhdx, size, block_bytes, sector };
        let Some((image, path, raw)) = generate(&shape, seed, directory.path()) else { return };
        assert_eq!(Some(image.info().logical_block), LogicalBlockSize::from_bytes(sector));
        assert_eq!(image.info().physical_block, 4096);
        assert_same(&image, &raw);
        // qemu-img reads no 4096-byte sectors; 7-Zip no disks of odd sizes, and gives all the zeros.
        if sector == 512 {
            assert_same(&image, &qemu_raw("vhdx", &path));
        }
        if size < GIB && size.is_multiple_of(MIB) {
            assert_same_as_7z(&image, &path);
        }
    }
}

#[test]
fn generated_vhd_reads_as_its_generator_says() {
    let directory = tempfile::tempdir().unwrap();
    let shapes = [
        (10 * MIB, 2 * MIB),
        (11 * MIB + 512, 2 * MIB),
        (50 * MIB, 16 * MIB),
        (9 * GIB, 2 * MIB),
        (3 * MIB, 64 << 10),
    ];
    for (seed, (size, block_bytes)) in (0..).zip(shapes.into_iter().flat_map(|shape| [shape; 4])) {
        let shape = Shape { format: Format::Vhd, size, block_bytes, sector: 512 };
        let Some((image, path, raw)) = generate(&shape, seed, directory.path()) else { return };
        assert_eq!(image.info().payload_block.map(block::ByteLength::get), Some(block_bytes));
        assert_same(&image, &raw);
        // Noise in sectors whose bit is not set: 7-Zip calls it an error, and qemu-img never looks at the bits.
        if seed % 2 == 1 {
            assert_same(&image, &qemu_raw("vpc", &path));
            if size < GIB {
                assert_same_as_7z(&image, &path);
            }
        }
    }
}
