//! Images that other programs made, with the hashes of what they hold.
//!
//! Sources: qemu's test images (`tests/qemu-iotests/sample_images`), DiscUtils' (`Tests/LibraryTests`) and dfvfs'
//! (`test_data`). The hashes are those on which qemu-img and 7-Zip agree; of the file with a dirty log, qemu-img's after
//! it replayed the log into a copy.
use std::path::{Path, PathBuf};

use diskimage::chain::ChainError;
use diskimage::{Format, Image, Info, OpenOptions, Refusal, Subtype};

use crate::tools::{assert_same, assert_same_sparse, open, program, qemu_img, qemu_raw, run, sha256, shared};

/// Unpacks a sample into `directory`.
pub(crate) fn unpack(name: &str, directory: &Path) -> Option<PathBuf> {
    let packed = shared("samples")?.join(name);
    let target = directory.join(packed.file_stem().unwrap());
    let script = "import bz2,gzip,shutil,sys\n\
        opener=bz2.open if sys.argv[1].endswith('bz2') else gzip.open\n\
        shutil.copyfileobj(opener(sys.argv[1]),open(sys.argv[2],'wb'))";
    run(program("python3", "python3").args(["-c", script]).arg(packed).arg(&target));
    Some(target)
}

fn facts(info: &Info) -> (Format, Subtype, u64, Option<u64>, bool) {
    let block = info.payload_block.map(block::ByteLength::get);
    (info.format, info.subtype, info.virtual_size.get(), block, info.log_replayed)
}

#[test]
fn samples_hold_what_their_hashes_say() {
    use Format::{Vhd, Vhdx};
    let dynamic = Subtype::Dynamic;
    let cases = [
        (
            "iotest-dynamic-1G.vhdx.bz2",
            (Vhdx, dynamic, 1 << 30, Some(32 << 20), false),
            "d3d112d8dab7fd360609f7d5a7b769904b7a2a7d7b6b8c535f65a23293c05478",
        ),
        (
            "test-disk2vhd.vhdx.bz2",
            (Vhdx, dynamic, 256 << 20, Some(2 << 20), false),
            "96d964042be9b58dda1725567abfb0cf9fd8380e2118754afa979c2ad445938a",
        ),
        (
            "swap.vhdx.gz",
            (Vhdx, dynamic, 10 << 30, Some(32 << 20), false),
            "60dd30b4c74361427d1089510cabb36e2eeda0cc4747f467ea43173acd358c49",
        ),
        (
            "d2v-zerofilled.vhd.bz2",
            (Vhd, dynamic, 263_454_720, Some(2 << 20), false),
            "1ba076be94a8a64541c25aae8d5a5f8b0da758c3797af597e03acb431ff8d143",
        ),
    ];
    let directory = tempfile::tempdir().unwrap();
    for (name, expected, hash) in cases {
        let Some(path) = unpack(name, directory.path()) else { return };
        let image = open(&path);
        println!("{name}: {:?}", image.info());
        assert_eq!(facts(&image.info()), expected, "{name}");
        assert_eq!(sha256(&image), hash, "{name}");
        assert_same(&image, &qemu_raw(if expected.0 == Vhd { "vpc" } else { "vhdx" }, &path));
    }
}

#[test]
fn dirty_log_is_replayed_in_memory_and_the_file_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let Some(path) = unpack("iotest-dirtylog-10G-4M.vhdx.bz2", directory.path()) else { return };
    let before = std::fs::read(&path).unwrap();
    let image = open(&path);
    assert_eq!(facts(&image.info()), (Format::Vhdx, Subtype::Dynamic, 10 << 30, Some(1 << 20), true));
    assert_eq!(sha256(&image), "179cefe8b0587f123393eedf2aa7aa8d25798591178e6bc3950a09762f38f96f");
    assert!(std::fs::read(&path).unwrap() == before, "the file was changed");
    let copy = directory.path().join("copy.vhdx");
    std::fs::copy(&path, &copy).unwrap();
    qemu_img(&["check", "-q", "-r", "all"], &[&copy]);
    let replayed = open(&copy);
    assert!(!replayed.info().log_replayed);
    let raw = qemu_raw("vhdx", &copy);
    assert_same(&image, &raw);
    assert_same(&replayed, &raw);
}

#[test]
fn size_of_a_vhd_follows_its_creator() {
    let directory = tempfile::tempdir().unwrap();
    // Both say 136365211648 bytes and the same geometry; Virtual PC means the geometry.
    for (name, size) in
        [("hyperv2012r2-dynamic.vhd.bz2", 136_365_211_648), ("virtualpc-dynamic.vhd.bz2", 136_363_130_880)]
    {
        let Some(path) = unpack(name, directory.path()) else { return };
        let image = open(&path);
        assert_eq!(image.virtual_size().get(), size, "{name}");
        assert_same(&image, &qemu_raw("vpc", &path));
    }
}

/// Made by VMware's own tools: version 3, a grain directory at the end, markers of every kind.
#[test]
fn stream_optimized_vmdk_of_vmware_reads_as_qemu_reads_it() {
    let directory = tempfile::tempdir().unwrap();
    let Some(path) = unpack("iotest-version3.vmdk.bz2", directory.path()) else { return };
    let image = open(&path);
    assert_eq!(facts(&image.info()), (Format::Vmdk, Subtype::Dynamic, 16 << 30, Some(64 << 10), false));
    assert_same_sparse(&image, &path, &qemu_raw("vmdk", &path));
}

#[test]
fn differencing_vhd_of_windows_without_its_parent_says_what_was_looked_for() {
    let directory = tempfile::tempdir().unwrap();
    let Some(path) = unpack("dfvfs-fat-differential.vhd.gz", directory.path()) else { return };
    let error = Image::open(&path, OpenOptions::default()).unwrap_err();
    let message = error.refusal.to_string();
    assert!(message.contains(r#"".\\fat-parent.vhd" is not there"#), "{message}");
    assert!(message.contains(r#"fat-parent.vhd" is not there"#), "{message}");
    // Once as it is seen from the child, once as an absolute path, which the file has twice.
    assert_eq!(message.matches("fat-parent.vhd").count(), 2, "{message}");
    // Any file in its place is not taken for it.
    let parent = directory.path().join("fat-parent.vhd");
    crate::tools::qemu_img(&["create", "-q", "-f", "vpc"], &[&parent, "4M".as_ref()]);
    let error = Image::open(&path, OpenOptions::default()).unwrap_err();
    let message = error.refusal.to_string();
    let Refusal::Chain(error) = error.refusal else { panic!("{message}") };
    assert!(matches!(*error, ChainError::Linkage { .. }), "{message}");
    assert!(message.contains("5fa2"), "{message}");
}
