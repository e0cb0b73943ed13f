//! Images of others written by us, images of ours written by qemu: whoever reads them reads the same.
use std::path::Path;

use block::conformance::pattern;
use block::{BlockDevice, ByteLength, ByteOffset, ByteRange, Patience};
use diskimage::check::{self, Severity};
use diskimage::storage::FileStorage;
use diskimage::{Childless, Format, MutableImage};

use crate::samples::unpack;
use crate::tools::{assert_same, assert_same_as_7z, open, qemu_img, qemu_io, qemu_raw};

const MIB: u64 = 1 << 20;

fn range(at: u64, length: u64) -> ByteRange {
    ByteRange::new(ByteOffset::new(at), ByteLength::new(length)).unwrap()
}

/// Writes, zeroes and discards here and there, and closes the image, or flushes it and leaves its log.
fn work(path: &Path, closes: bool) {
    let image = MutableImage::open(path, None, None, &Childless).unwrap();
    let size = image.geometry().size.get();
    for at in [0, size / 3, size / 2 - size / 2 % 512, size - 4096] {
        let at = at - at % 4096;
        let data = pattern((size - at).min(MIB + 4096) as usize);
        image.write(ByteOffset::new(at), &data, Patience::Blocking).unwrap();
    }
    image.write_zeroes(range(512, 8192), Patience::Blocking).unwrap();
    image.flush(Patience::Blocking).unwrap();
    image.discard(range(0, size / 4 - size / 4 % 512), Patience::Blocking).unwrap();
    image.write(ByteOffset::new(4096), &pattern(5000 / 512 * 512), Patience::Blocking).unwrap();
    if closes { image.close().unwrap() } else { image.flush(Patience::Blocking).unwrap() }
}

fn assert_sound(path: &Path) {
    let report = check::check(&FileStorage::open(path).unwrap(), Format::Vhdx).unwrap();
    assert_eq!(report.count(Severity::Error), 0, "{path:?}: {:?}", report.findings());
}

/// qemu replays the log that we left, and writes into the image itself; both read the same throughout.
fn held_against_qemu(path: &Path, logs: bool, with_7z: bool) {
    work(path, true);
    assert_sound(path);
    assert!(!open(path).info().log_replayed);
    qemu_img(&["check", "-q"], &[path]);
    assert_same(&open(path), &qemu_raw("vhdx", path));
    if with_7z {
        assert_same_as_7z(&open(path), path);
    }
    work(path, false);
    let ours = open(path);
    // Where no whole block was discarded, no table has changed.
    assert_eq!(ours.info().log_replayed, logs);
    let copy = path.with_extension("copy.vhdx");
    std::fs::copy(path, &copy).unwrap();
    qemu_img(&["check", "-q", "-r", "all"], &[&copy]);
    assert_same(&ours, &qemu_raw("vhdx", &copy));
    qemu_io("vhdx", &copy, &["write -P 0x21 1M 2M", "write -P 0x22 70000 3000", "write -z 8M 1M"]);
    assert_same(&open(&copy), &qemu_raw("vhdx", &copy));
    work(&copy, true);
    assert_sound(&copy);
    assert_same(&open(&copy), &qemu_raw("vhdx", &copy));
}

#[test]
fn images_of_qemu_that_we_write_into_read_alike() {
    let directory = tempfile::tempdir().unwrap();
    for options in [
        "block_size=1M",
        "block_size=2M,log_size=4M",
        "block_size=32M,block_state_zero=off",
        "subformat=fixed",
    ] {
        println!("{options}");
        let path = directory.path().join("image.vhdx");
        qemu_img(&["create", "-q", "-f", "vhdx", "-o", options], &[&path, "70M".as_ref()]);
        let logs = options.contains("=1M") || options.contains("=2M");
        held_against_qemu(&path, logs, options.contains("=2M"));
    }
}

#[test]
fn images_of_windows_that_we_write_into_read_alike() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["iotest-dynamic-1G.vhdx.bz2", "test-disk2vhd.vhdx.bz2", "iotest-dirtylog-10G-4M.vhdx.bz2"] {
        println!("{name}");
        let Some(path) = unpack(name, directory.path()) else { return };
        held_against_qemu(&path, true, name.starts_with("test-disk2vhd"));
    }
}
