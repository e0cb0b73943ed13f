//! Every format is the block device that the contract says.
use std::path::Path;

use block::conformance::{pattern, read_only};
use diskimage::storage::MemoryStorage;
use diskimage::{Format, Image, OpenOptions};

use crate::builder::{MIB, Vhdx};
use crate::tools::{open, qemu_img};

#[test]
fn raw_image_conforms() {
    let bytes = pattern(3 << 20);
    let options = OpenOptions { format: Some(Format::Raw), ..OpenOptions::default() };
    let image = Image::from_storage(Box::new(MemoryStorage::new(&bytes)), options).unwrap();
    read_only(&image, &bytes);
}

#[test]
fn raw_image_that_ends_inside_a_block_is_filled_up_with_zeros() {
    let mut bytes = pattern(100_000);
    let options = OpenOptions { format: Some(Format::Raw), ..OpenOptions::default() };
    let image = Image::from_storage(Box::new(MemoryStorage::new(&bytes)), options).unwrap();
    bytes.resize(100_352, 0);
    read_only(&image, &bytes);
}

#[test]
fn vhdx_with_either_sector_size_conforms() {
    for sector in [512, 4096] {
        let mut vhdx = Vhdx::new(5 * MIB, 3 * MIB);
        vhdx.sector = sector;
        let at = vhdx.payload_at();
        let contents = pattern(2 << 20);
        vhdx.bat = vec![(1, at | 6), (2, 2), (3, (at + 2 * MIB) | 6), (4, 3)];
        vhdx.data = vec![(at, contents[..1 << 20].to_vec()), (at + 2 * MIB, contents[1 << 20..].to_vec())];
        let mut expected = vec![0; 5 << 20];
        expected[1 << 20..2 << 20].copy_from_slice(&contents[..1 << 20]);
        expected[3 << 20..4 << 20].copy_from_slice(&contents[1 << 20..]);
        read_only(&vhdx.open().unwrap(), &expected);
    }
}

#[test]
fn images_of_qemu_conform() {
    let directory = tempfile::tempdir().unwrap();
    let raw = directory.path().join("source.raw");
    let mut bytes = pattern(6 << 20);
    bytes[3 << 20..4 << 20].fill(0);
    std::fs::write(&raw, &bytes).unwrap();
    for (format, name, options) in [
        ("vhdx", "dynamic.vhdx", "subformat=dynamic,block_size=1M"),
        ("vhdx", "fixed.vhdx", "subformat=fixed"),
        ("vpc", "dynamic.vhd", "subformat=dynamic,force_size=on"),
        ("vpc", "fixed.vhd", "subformat=fixed,force_size=on"),
    ] {
        let path = directory.path().join(name);
        qemu_img(&["convert", "-f", "raw", "-O", format, "-o", options], &[Path::new(&raw), &path]);
        read_only(&open(&path), &bytes);
    }
}
