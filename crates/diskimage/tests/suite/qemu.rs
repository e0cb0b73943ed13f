//! Images that qemu-img makes, against their source, against qemu-img's own reading and against 7-Zip's.
use std::fs::File;
use std::path::{Path, PathBuf};

use block::LogicalBlockSize;
use diskimage::{Format, Subtype};

use crate::tools::{
    assert_same, assert_same_as_7z, assert_same_sparse, open, open_as, qemu_img, qemu_io, qemu_raw, qemu_size,
};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// A kind of image that qemu-img makes.
struct Kind {
    format: Format,
    subtype: Subtype,
    /// What qemu-img is told besides the subformat.
    options: &'static str,
}

const fn kind(format: Format, subtype: Subtype, options: &'static str) -> Kind {
    Kind { format, subtype, options }
}

const KINDS: [Kind; 11] = [
    kind(Format::Vhdx, Subtype::Dynamic, ""),
    kind(Format::Vhdx, Subtype::Dynamic, ",block_size=1M"),
    kind(Format::Vhdx, Subtype::Dynamic, ",block_size=2M,log_size=4M"),
    kind(Format::Vhdx, Subtype::Dynamic, ",block_size=32M"),
    kind(Format::Vhdx, Subtype::Dynamic, ",block_size=256M"),
    kind(Format::Vhdx, Subtype::Fixed, ""),
    kind(Format::Vhdx, Subtype::Fixed, ",block_size=1M"),
    kind(Format::Vhd, Subtype::Dynamic, ""),
    kind(Format::Vhd, Subtype::Dynamic, ",force_size=on"),
    kind(Format::Vhd, Subtype::Fixed, ""),
    kind(Format::Vhd, Subtype::Fixed, ",force_size=on"),
];

impl Kind {
    fn qemu_format(&self) -> &'static str {
        match self.format {
            Format::Vhd => "vpc",
            Format::Vhdx => "vhdx",
            Format::Qcow2 => "qcow2",
            Format::Vmdk => "vmdk",
            Format::Raw => "raw",
        }
    }

    fn qemu_options(&self) -> String {
        let subformat = match self.subtype {
            Subtype::Fixed => "fixed",
            // qemu knows no differencing images.
            Subtype::Dynamic | Subtype::Differencing => "dynamic",
        };
        format!("subformat={subformat}{}", self.options)
    }

    fn convert(&self, source: &Path, directory: &Path) -> PathBuf {
        let image = directory.join(format!("image.{}", self.format));
        let options = self.qemu_options();
        qemu_img(&["convert", "-f", "raw", "-O", self.qemu_format(), "-o", &options], &[source, &image]);
        image
    }
}

/// A raw file of `size` bytes with runs of data, whose ends are not those of blocks.
fn source(directory: &Path, size: u64, runs: &[(u64, usize)]) -> PathBuf {
    let path = directory.join("source.raw");
    let file = File::create(&path).unwrap();
    file.set_len(size).unwrap();
    for &(at, length) in runs {
        rustix::io::pwrite(&file, &block::conformance::pattern(length), at).unwrap();
    }
    path
}

fn assert_read_right(kind: &Kind, image: &Path, with_7z: bool) {
    println!("{} {}", kind.format, kind.qemu_options());
    let opened = open(image);
    assert_eq!(opened.format(), kind.format);
    assert_eq!(opened.virtual_size().get(), qemu_size(kind.qemu_format(), image));
    let info = opened.info();
    assert_eq!(info.subtype, kind.subtype);
    assert_eq!(info.logical_block, LogicalBlockSize::B512);
    assert!(!info.log_replayed);
    assert!(info.identity.is_some());
    assert_same_sparse(&opened, image, &qemu_raw(kind.qemu_format(), image));
    if with_7z {
        assert_same_as_7z(&opened, image);
    }
}

#[test]
fn every_kind_that_qemu_makes_reads_as_its_source() {
    let directory = tempfile::tempdir().unwrap();
    let size = 70 * MIB;
    let runs = [(0, 5000), (MIB - 512, 3 << 20), (33 * MIB + 77, 100_000), (size - 4096, 4096)];
    let source = source(directory.path(), size, &runs);
    for kind in KINDS {
        let image = kind.convert(&source, directory.path());
        assert_same_as_source(&kind, &image, &source);
        assert_read_right(&kind, &image, true);
    }
}

#[test]
fn data_beyond_the_first_chunk_reads_as_its_source() {
    let directory = tempfile::tempdir().unwrap();
    let size = 5 * GIB;
    let runs = [(0, 4096), (4 * GIB - MIB, 2 << 20), (4 * GIB + 37 * MIB, 1 << 20), (5 * GIB - MIB, 1 << 20)];
    let source = source(directory.path(), size, &runs);
    for kind in KINDS {
        let image = kind.convert(&source, directory.path());
        assert_same_as_source(&kind, &image, &source);
        // 7-Zip gives all five gigabytes: once for each format is enough.
        let options = (kind.subtype, kind.options);
        let with_7z = matches!(options, (Subtype::Dynamic, ",block_size=1M" | ",force_size=on"));
        assert_read_right(&kind, &image, with_7z);
    }
}

/// Where VHD's geometry makes the disk larger than its source, the rest is zeros.
fn assert_same_as_source(kind: &Kind, image: &Path, source: &Path) {
    let file = File::options().write(true).open(source).unwrap();
    let size = file.metadata().unwrap().len();
    file.set_len(qemu_size(kind.qemu_format(), image)).unwrap();
    assert_same_sparse(&open(image), image, source);
    file.set_len(size).unwrap();
}

#[test]
fn images_that_qemu_writes_into_read_as_qemu_reads_them() {
    let directory = tempfile::tempdir().unwrap();
    for kind in KINDS {
        let image = directory.path().join(format!("written.{}", kind.format));
        let create = ["create", "-q", "-f", kind.qemu_format(), "-o"];
        qemu_img(&[&create[..], &[&kind.qemu_options()]].concat(), &[&image, Path::new("5G")]);
        let writes =
            ["write -P 17 1000k 3M", "write -P 18 4608M 9M", "write -P 19 4609M 512", "write -z 4610M 64k"];
        qemu_io(kind.qemu_format(), &image, &writes);
        assert_read_right(&kind, &image, false);
    }
}

#[test]
fn disk_that_ends_inside_a_block_and_page_is_read_to_its_end() {
    let directory = tempfile::tempdir().unwrap();
    let size = 37 * MIB + 1536;
    let source = source(directory.path(), size, &[(36 * MIB, (1 << 20) + 1536)]);
    let image = KINDS[1].convert(&source, directory.path());
    assert_same(&open(&image), &source);
    let image = KINDS[8].convert(&source, directory.path());
    assert_same(&open(&image), &source);
}

#[test]
fn raw_file_reads_as_itself() {
    let directory = tempfile::tempdir().unwrap();
    let source = source(directory.path(), 5 * GIB, &[(MIB, 9999), (5 * GIB - 512, 512)]);
    assert_same_sparse(&open(&source), &source, &source);
    assert_same_sparse(&open_as(&source, Some(Format::Raw)), &source, &source);
}
