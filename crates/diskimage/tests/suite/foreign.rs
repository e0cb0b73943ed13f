//! qcow2 and VMDK in every kind that qemu-img makes, against their source.
use std::fs::File;
use std::path::{Path, PathBuf};

use block::{BlockDevice, ByteOffset, Patience};
use diskimage::ops::{ConvertOptions, FindZeros, Replace, convert};
use diskimage::{Format, Image, OpenOptions, Source, Subtype, Watch};

use crate::tools::{assert_same, assert_same_sparse, extents, open, qemu_img, qemu_io, qemu_raw};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// What `qemu-img convert` is told to make.
struct Kind {
    format: &'static str,
    options: &'static str,
    compressed: bool,
}

const fn qcow2(options: &'static str) -> Kind {
    Kind { format: "qcow2", options, compressed: false }
}

const fn packed(options: &'static str) -> Kind {
    Kind { format: "qcow2", options, compressed: true }
}

const fn vmdk(options: &'static str) -> Kind {
    Kind { format: "vmdk", options, compressed: false }
}

const KINDS: [Kind; 42] = [
    qcow2("compat=0.10"),
    qcow2("compat=1.1"),
    qcow2("compat=0.10,cluster_size=512"),
    qcow2("cluster_size=512"),
    qcow2("cluster_size=4k"),
    qcow2("cluster_size=2M"),
    qcow2("compat=0.10,cluster_size=2M"),
    qcow2("lazy_refcounts=on"),
    qcow2("refcount_bits=64"),
    qcow2("refcount_bits=1"),
    qcow2("preallocation=metadata"),
    qcow2("preallocation=falloc"),
    qcow2("preallocation=full"),
    qcow2("extended_l2=on"),
    qcow2("extended_l2=on,cluster_size=16k"),
    qcow2("extended_l2=on,cluster_size=2M"),
    qcow2("extended_l2=on,preallocation=metadata"),
    qcow2("extended_l2=on,preallocation=falloc"),
    packed("compat=0.10"),
    packed("compat=1.1"),
    packed("compat=0.10,cluster_size=512"),
    packed("cluster_size=512"),
    packed("cluster_size=4k"),
    packed("cluster_size=2M"),
    packed("compression_type=zstd"),
    packed("compression_type=zstd,cluster_size=512"),
    packed("compression_type=zstd,cluster_size=4k"),
    packed("compression_type=zstd,cluster_size=2M"),
    packed("extended_l2=on"),
    packed("extended_l2=on,cluster_size=16k"),
    packed("extended_l2=on,compression_type=zstd"),
    packed("extended_l2=on,compression_type=zstd,cluster_size=2M"),
    vmdk("subformat=monolithicSparse"),
    vmdk("subformat=monolithicSparse,zeroed_grain=on"),
    vmdk("subformat=monolithicSparse,compat6=on"),
    vmdk("subformat=monolithicSparse,adapter_type=lsilogic,hwversion=13"),
    vmdk("subformat=monolithicFlat"),
    vmdk("subformat=monolithicFlat,adapter_type=buslogic"),
    vmdk("subformat=twoGbMaxExtentSparse"),
    vmdk("subformat=twoGbMaxExtentFlat,adapter_type=legacyESX"),
    vmdk("subformat=streamOptimized"),
    vmdk("subformat=streamOptimized,adapter_type=lsilogic"),
];

impl Kind {
    fn create(&self, source: &Path, folder: &Path) -> PathBuf {
        let image = folder.join(format!("image.{}", self.format));
        let compress: &[&str] = if self.compressed { &["-c"] } else { &[] };
        let arguments = [&["convert"], compress, &["-f", "raw", "-O", self.format, "-o", self.options]];
        qemu_img(&arguments.concat(), &[source, &image]);
        println!("{} {}{}", self.format, self.options, if self.compressed { ", compressed" } else { "" });
        image
    }

    fn is_encoded(&self) -> bool {
        self.compressed || self.options.contains("streamOptimized")
    }
}

/// Bytes that compress by half, or not at all.
fn noise(length: usize, seed: u64, mask: u8) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8 & mask
    };
    (0..length).map(|_| next()).collect()
}

/// A raw file of `size` bytes: packed data, data that does not compress, single sectors, runs that end nowhere near a
/// cluster.
fn source(folder: &Path, size: u64) -> PathBuf {
    let path = folder.join("source.raw");
    let file = File::create(&path).unwrap();
    file.set_len(size).unwrap();
    let runs = [
        (0, block::conformance::pattern(5000)),
        (MIB - 512, noise(3 << 20, 7, 0x0F)),
        (9 * MIB + 77, noise(700_000, 11, 0xFF)),
        (17 * MIB + 3 * KIB, vec![0xA5; 600 << 10]),
        (size / 2 - 100, noise(100_000, 13, 0x3F)),
        (size - 1024, noise(1024, 17, 0xFF)),
    ];
    for (at, bytes) in runs {
        rustix::io::pwrite(&file, &bytes, at).unwrap();
    }
    path
}

#[test]
fn every_kind_reads_as_its_source() {
    let folder = tempfile::tempdir().unwrap();
    // Not a multiple of any cluster or grain.
    let source = source(folder.path(), 40 * MIB + 37 * KIB + 512);
    for kind in KINDS {
        let image = kind.create(&source, folder.path());
        let opened = open(&image);
        assert_eq!(opened.format().to_string(), kind.format);
        assert_same(&opened, &source);
        let size = opened.virtual_size().get();
        let is_encoded = |extent: &diskimage::Extent| matches!(extent.source, Source::Encoded { .. });
        assert_eq!(extents(&opened, 0, size).iter().any(is_encoded), kind.is_encoded());
        let flat = kind.options.contains("Flat");
        assert_eq!(opened.info().subtype, if flat { Subtype::Fixed } else { Subtype::Dynamic });
    }
}

#[test]
fn every_kind_keeps_the_contract() {
    let folder = tempfile::tempdir().unwrap();
    let source = source(folder.path(), 22 * MIB + 512);
    let bytes = std::fs::read(&source).unwrap();
    for kind in KINDS.iter().filter(|kind| !kind.options.contains("lazy") && !kind.options.contains("bits")) {
        let image = kind.create(&source, folder.path());
        block::conformance::read_only(&open(&image), &bytes);
    }
}

#[test]
fn data_beyond_four_gigabytes_reads_as_its_source() {
    let folder = tempfile::tempdir().unwrap();
    let source = source(folder.path(), 9 * GIB + 512);
    let file = File::options().write(true).open(&source).unwrap();
    rustix::io::pwrite(&file, &noise(3 << 20, 19, 0x1F), 4 * GIB - MIB - 77).unwrap();
    // Flat and preallocated ones take all of it on the disk.
    let sparse = |kind: &&Kind| {
        !["Flat", "prealloc", "cluster_size=512", "lazy", "bits"]
            .iter()
            .any(|word| kind.options.contains(word))
    };
    for kind in KINDS.iter().filter(sparse) {
        let image = kind.create(&source, folder.path());
        assert_same_sparse(&open(&image), &image, &source);
    }
}

#[test]
fn flat_files_beyond_two_gigabytes_read_as_their_source() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("split.vmdk");
    qemu_img(
        &["create", "-q", "-f", "vmdk", "-o", "subformat=twoGbMaxExtentFlat"],
        &[&image, Path::new("5G")],
    );
    let writes = ["write -P 17 2047M 2M", "write -P 18 4000M 200M", "write -P 19 5119M 1M"];
    qemu_io("vmdk", &image, &writes);
    let opened = open(&image);
    assert_eq!(opened.info().file_size.get(), 5 * GIB);
    assert_same_sparse_split(&opened, &qemu_raw("vmdk", &image));
}

/// Of an image in several files, whose holes are not looked for: only what its source has, and a few places besides.
fn assert_same_sparse_split(image: &Image, raw: &Path) {
    let file = File::open(raw).unwrap();
    let (mut ours, mut theirs) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    for at in (0..image.virtual_size().get()).step_by(1 << 20) {
        let has_data =
            rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(at)).is_ok_and(|data| data < at + MIB);
        if has_data || at.is_multiple_of(512 * MIB) {
            image.read(ByteOffset::new(at), &mut ours, Patience::Blocking).unwrap();
            rustix::io::pread(&file, &mut theirs[..], at).unwrap();
            assert!(ours == theirs, "the megabyte at {at:#x} differs");
        }
    }
}

#[test]
fn images_that_qemu_writes_into_read_as_qemu_reads_them() {
    let folder = tempfile::tempdir().unwrap();
    for (format, options) in [
        ("qcow2", "compat=0.10"),
        ("qcow2", "compat=1.1"),
        ("qcow2", "cluster_size=512"),
        ("qcow2", "extended_l2=on"),
        ("qcow2", "extended_l2=on,cluster_size=2M"),
        ("qcow2", "preallocation=metadata"),
        ("vmdk", "subformat=monolithicSparse,zeroed_grain=on"),
        ("vmdk", "subformat=monolithicSparse"),
        ("vmdk", "subformat=twoGbMaxExtentSparse"),
    ] {
        println!("{format} {options}");
        let image = folder.path().join(format!("written.{format}"));
        qemu_img(&["create", "-q", "-f", format, "-o", options], &[&image, Path::new("5G")]);
        let writes = [
            "write -P 17 1000k 3M",
            "write -P 18 2047M 9M",
            "write -P 19 4609M 512",
            "write -P 20 3G 2k",
            "write -z 2048M 128k",
            "write -z 3G 512",
            "discard 2050M 1M",
        ];
        qemu_io(format, &image, &writes);
        assert_same_sparse(&open(&image), &image, &qemu_raw(format, &image));
    }
}

#[test]
fn small_reads_of_a_compressed_cluster_expand_it_once() {
    let folder = tempfile::tempdir().unwrap();
    let source = source(folder.path(), 8 * MIB);
    for kind in [packed("compression_type=zstd"), packed("compat=1.1"), vmdk("subformat=streamOptimized")] {
        let image = open(&kind.create(&source, folder.path()));
        let mut buffer = vec![0; 4096];
        let at = 2 * MIB;
        // Expanding is for those who wait: what can be had at once was expanded before.
        let read = |at, buffer: &mut [u8], patience| image.read(ByteOffset::new(at), buffer, patience);
        assert!(matches!(read(at, &mut buffer, Patience::Now), Err(block::BlockError::WouldBlock)));
        read(at, &mut buffer, Patience::Blocking).unwrap();
        for at in (at..at + 64 * KIB).step_by(4096) {
            read(at, &mut buffer, Patience::Now).unwrap();
        }
        let next = read(at + 64 * KIB, &mut buffer, Patience::Now);
        assert!(matches!(next, Err(block::BlockError::WouldBlock)), "{next:?}");
    }
}

#[test]
fn internal_snapshots_leave_the_disk_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let source = source(folder.path(), 30 * MIB);
    let image = qcow2("compat=1.1").create(&source, folder.path());
    qemu_img(&["snapshot", "-c", "before"], &[&image]);
    qemu_io("qcow2", &image, &["write -P 33 1M 5M", "write -z 9M 1M"]);
    assert_same(&open(&image), &qemu_raw("qcow2", &image));
}

fn refusal(path: &Path) -> String {
    let error = Image::open(path, OpenOptions::default()).map(|image| image.info()).unwrap_err();
    assert!(error.to_string().contains(&format!("{path:?}")), "{error}");
    error.refusal.to_string()
}

#[test]
fn kinds_that_are_not_read_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let create = |format: &str, options: &str, image: &Path| {
        qemu_img(&["create", "-q", "-f", format, "-o", options], &[image, Path::new("20M")]);
    };
    create("qcow2", "data_file_raw=on,data_file=data.raw", &path("data.qcow2"));
    let external = refusal(&path("data.qcow2"));
    assert!(external.contains("a qcow2 image with an external data file"), "{external}");
    qemu_img(&["create", "-q", "-f", "qcow"], &[&path("old.qcow"), Path::new("20M")]);
    assert!(refusal(&path("old.qcow")).contains("qcow version 1"));
    create("qcow2", "compat=1.1", &path("base.qcow2"));
    create("qcow2", "backing_file=base.qcow2,backing_fmt=qcow2", &path("child.qcow2"));
    let child = refusal(&path("child.qcow2"));
    assert!(child.contains("has the backing file \"base.qcow2\", which is followed only where"), "{child}");
    create("vmdk", "subformat=monolithicSparse", &path("base.vmdk"));
    create("vmdk", "backing_file=base.vmdk,backing_fmt=vmdk", &path("child.vmdk"));
    let child = refusal(&path("child.vmdk"));
    assert!(child.contains("a differencing VMDK"), "{child}");
    create("vmdk", "subformat=twoGbMaxExtentSparse", &path("split.vmdk"));
    let extent = refusal(&path("split-s001.vmdk"));
    assert!(extent.contains("one extent of a VMDK by itself"), "{extent}");
    std::fs::write(path("esx.vmdk"), b"COWD\x01\0\0\0\x03\0\0\0").unwrap();
    assert!(refusal(&path("esx.vmdk")).contains("vmfsSparse (COWD)"));
    std::fs::write(path("se.vmdk"), b"\xBE\xBA\xFE\xCA\0\0\0\0\x01\0\0\0").unwrap();
    assert!(refusal(&path("se.vmdk")).contains("seSparse"));
}

/// A chain of three qcow2 images on a base of the format, each larger than the one below.
fn backed(folder: &Path, base: &Path, format: &str) -> PathBuf {
    let mut below = (base.to_owned(), format);
    for (number, size, options) in
        [(1, "20M", "compat=1.1"), (2, "24M", "extended_l2=on"), (3, "30M", "cluster_size=4k")]
    {
        let image = folder.join(format!("{number}.qcow2"));
        let name = below.0.file_name().unwrap().to_str().unwrap().to_owned();
        let create = ["create", "-q", "-f", "qcow2", "-o", options, "-b", &name, "-F", below.1];
        qemu_img(&create, &[&image, Path::new(size)]);
        let at = number * 3;
        let writes = [
            format!("write -P {} {at}M 300k", number + 50),
            format!("write -z {}M 100k", at + 1),
            // Zeros over what the base holds hide it.
            format!("write -z {}k 6k", 1100 + 100 * number),
            format!("write -z {}k 81k", 2000 + 300 * number),
            format!("write -P 77 {} 512", at * 1_100_000 / 512 * 512),
        ];
        qemu_io("qcow2", &image, &writes.each_ref().map(String::as_str));
        below = (image, "qcow2");
    }
    below.0
}

#[test]
fn backing_files_are_followed_where_the_caller_wants_it() {
    let folder = tempfile::tempdir().unwrap();
    let source = source(folder.path(), 16 * MIB);
    for format in ["raw", "qcow2", "vmdk", "vhdx"] {
        let base = folder.path().join(format!("base.{format}"));
        qemu_img(&["convert", "-f", "raw", "-O", format], &[&source, &base]);
        let leaf = backed(folder.path(), &base, format);
        let options = OpenOptions { backing_files: true, ..OpenOptions::default() };
        let image = Image::open(&leaf, options).unwrap_or_else(|error| panic!("{}", error.refusal));
        assert_eq!((image.layers().len(), image.info().subtype), (4, Subtype::Differencing));
        assert_same(&image, &qemu_raw("qcow2", &leaf));
    }
}

#[test]
fn backing_files_that_must_not_be_followed_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("store").join("child.qcow2");
    std::fs::create_dir(folder.path().join("store")).unwrap();
    std::fs::write(folder.path().join("outside.raw"), vec![1; 1 << 20]).unwrap();
    for (name, format, expected) in [
        ("../outside.raw", "raw", "leads out of the store"),
        ("/etc/passwd", "raw", "is no relative path"),
        ("nbd://localhost/x", "raw", "is not there"),
        ("child.qcow2", "qcow2", "which is one of its own children"),
        ("child.qcow2", "vdi", "is of the format \"vdi\""),
    ] {
        qemu_img(&["create", "-q", "-f", "qcow2"], &[&image, Path::new("1M")]);
        qemu_img(&["rebase", "-u", "-f", "qcow2", "-b", name, "-F", format], &[&image]);
        let options = OpenOptions { backing_files: true, ..OpenOptions::default() };
        let error = Image::open(&image, options).map(|image| image.info()).unwrap_err();
        let refusal = error.refusal.to_string();
        assert!(refusal.contains(expected), "{name}: {refusal}");
    }
}

#[test]
fn extents_that_leave_the_folder_are_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("disk.vmdk");
    qemu_img(&["create", "-q", "-f", "vmdk", "-o", "subformat=monolithicFlat"], &[&image, Path::new("1M")]);
    assert_eq!(open(&image).format(), Format::Vmdk);
    let text = std::fs::read_to_string(&image).unwrap();
    for (name, expected) in [
        ("/etc/passwd", "only plain names"),
        ("../disk-flat.vmdk", "only plain names"),
        ("absent.vmdk", "cannot be opened"),
        ("link.vmdk", "cannot be opened"),
    ] {
        std::fs::remove_file(folder.path().join("link.vmdk")).ok();
        std::os::unix::fs::symlink("disk-flat.vmdk", folder.path().join("link.vmdk")).unwrap();
        std::fs::write(&image, text.replace("disk-flat.vmdk", name)).unwrap();
        let refusal = refusal(&image);
        assert!(refusal.contains(expected) && refusal.contains(name), "{refusal}");
    }
}

#[test]
fn formats_that_are_read_only_are_not_opened_for_writing() {
    let folder = tempfile::tempdir().unwrap();
    for (format, title) in [("qcow2", "qcow2"), ("vmdk", "VMDK")] {
        let image = folder.path().join(format!("disk.{format}"));
        qemu_img(&["create", "-q", "-f", format], &[&image, Path::new("1M")]);
        let result = diskimage::MutableImage::open(&image, None, None, &diskimage::Childless);
        let refusal = result.map(|image| image.info()).unwrap_err().refusal.to_string();
        assert!(refusal.contains(&format!("{title} images are read, not written; convert")), "{refusal}");
    }
}

#[test]
fn conversion_to_vhdx_holds_what_the_source_held() {
    let folder = tempfile::tempdir().unwrap();
    let source = source(folder.path(), 40 * MIB + 37 * KIB + 512);
    let target = folder.path().join("converted.vhdx");
    for kind in [
        qcow2("cluster_size=512"),
        qcow2("extended_l2=on"),
        packed("compression_type=zstd"),
        packed("compat=0.10"),
        vmdk("subformat=monolithicSparse"),
        vmdk("subformat=monolithicFlat"),
        vmdk("subformat=twoGbMaxExtentSparse"),
        vmdk("subformat=streamOptimized"),
    ] {
        let image = open(&kind.create(&source, folder.path()));
        let options =
            ConvertOptions { replace: Replace::Swap, verify: true, ..ConvertOptions::to(Format::Vhdx) };
        convert(&image, &target, &options).unwrap().run(&Watch::default()).unwrap();
        assert_same(&open(&target), &source);
        let identical = qemu_img(&["compare", "-f", "vhdx", "-F", "raw"], &[&target, &source]);
        assert!(identical.contains("identical"), "{identical}");
    }
}

#[test]
fn conversion_of_a_disk_in_several_flat_files_holds_what_the_source_held() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("split.vmdk");
    qemu_img(
        &["create", "-q", "-f", "vmdk", "-o", "subformat=twoGbMaxExtentFlat"],
        &[&image, Path::new("2100M")],
    );
    qemu_io("vmdk", &image, &["write -P 17 2047M 2M", "write -P 18 2098M 2M"]);
    let target = folder.path().join("converted.vhdx");
    let options = ConvertOptions { zeros: FindZeros::Everywhere, ..ConvertOptions::to(Format::Vhdx) };
    convert(&open(&image), &target, &options).unwrap().run(&Watch::default()).unwrap();
    assert_same_sparse(&open(&target), &target, &qemu_raw("vmdk", &image));
}

#[test]
fn formats_that_are_read_only_are_no_targets() {
    let folder = tempfile::tempdir().unwrap();
    let source = source(folder.path(), 22 * MIB);
    for format in [Format::Qcow2, Format::Vmdk] {
        let target = folder.path().join(format!("target.{format}"));
        let image = open(&source);
        let result = convert(&image, &target, &ConvertOptions::to(format));
        let result = result.and_then(|job| job.run(&Watch::default()).map(|_| ()));
        let mut error: &dyn std::error::Error = &result.unwrap_err();
        let mut message = error.to_string();
        while let Some(source) = error.source() {
            message.push_str(&format!(": {source}"));
            error = source;
        }
        assert!(message.contains("images are read, not written; make a VHDX instead"), "{message}");
        let left: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(left, std::slice::from_ref(&source));
    }
}
