//! Chains that we write, at random and up to the deepest, read by programs that are not ours.
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use block::{BlockDevice, ByteLength, ByteOffset, ByteRange, Patience};
use diskimage::{Childless, Image, MutableImage, OpenOptions};

use crate::bench::{Bench, assert_same_as_7z, assert_same_files, qemu_img, run};

const MIB: u64 = 1 << 20;
const SECTOR: u64 = 512;

/// A chain in the making, and what its leaf must read as.
struct Written {
    bench: Bench,
    format: &'static str,
    depth: u64,
    size: u64,
    expected: File,
    state: u64,
}

impl Written {
    /// A base of `size` bytes.
    fn new(format: &'static str, size: u64, sector: u64, seed: u64) -> Self {
        let bench = Bench::new();
        let (size_text, sector_text) = (size.to_string(), sector.to_string());
        let mut words =
            vec!["create", "0.base", "--format", format, "--size", &size_text, "--block-size", "2M"];
        if sector != SECTOR {
            words.extend(["--sector-size", &sector_text]);
        }
        let base = format!("0.{format}");
        words[1] = &base;
        bench.ok(&words);
        let expected =
            File::options().read(true).write(true).create_new(true).open(bench.path("expected.raw")).unwrap();
        expected.set_len(size).unwrap();
        Self { bench, format, depth: 1, size, expected, state: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1 }
    }

    fn name(&self, depth: u64) -> String {
        format!("{depth}.{}", self.format)
    }

    fn leaf(&self) -> String {
        self.name(self.depth - 1)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 11) % end
    }

    fn snapshot(&mut self) {
        let block = ["1M", "2M", "4M"][self.below(3) as usize];
        self.bench.ok(&["snapshot", &self.leaf(), &self.name(self.depth), "--block-size", block]);
        self.depth += 1;
    }

    fn open(&self) -> MutableImage {
        let leaf = self.bench.path(&self.leaf());
        let parent = Image::open_parent_of(&leaf, OpenOptions::default()).unwrap();
        let parent = parent.map(|parent| Arc::new(parent) as Arc<dyn BlockDevice>);
        MutableImage::open(&leaf, None, parent, &Childless).unwrap()
    }

    /// Writes at random into the leaf: data, zeros and discards that begin and end at any sector, or data alone that
    /// begins and ends at multiples of `grain` bytes.
    fn write(&mut self, count: u64, grain: Option<u64>) {
        let image = self.open();
        let sector = image.geometry().logical_block.bytes();
        let unit = grain.unwrap_or(sector);
        for _ in 0..count {
            let most = if self.below(4) == 0 { 5 * MIB } else { 64 << 10 };
            let at = self.below(self.size / unit) * unit;
            let length = ((1 + self.below(most / unit)) * unit).min(self.size - at);
            let range = ByteRange::new(ByteOffset::new(at), ByteLength::new(length)).unwrap();
            let kind = if grain.is_some() { 0 } else { self.below(6) };
            match kind {
                0..4 => {
                    let data: Vec<u8> =
                        (0..length).map(|place| (self.state >> (place / 512 % 56)) as u8 | 1).collect();
                    image.write(range.start(), &data, Patience::Blocking).unwrap();
                    self.expected.write_all_at(&data, at).unwrap();
                }
                _ => {
                    if kind == 4 {
                        image.write_zeroes(range, Patience::Blocking).unwrap();
                    } else {
                        image.discard(range, Patience::Blocking).unwrap();
                    }
                    // What a discard leaves may be zeros or the old bytes: whatever it is now, it must stay.
                    let mut now = vec![0; length as usize];
                    image.read(range.start(), &mut now, Patience::Blocking).unwrap();
                    assert!(kind == 5 || now.iter().all(|&byte| byte == 0));
                    self.expected.write_all_at(&now, at).unwrap();
                }
            }
            if self.below(4) == 0 {
                image.flush(Patience::Blocking).unwrap();
            }
        }
        image.close().unwrap();
    }

    fn raw(&self) -> std::path::PathBuf {
        self.bench.path("expected.raw")
    }

    /// Holds the leaf, and what it merges into, against the model.
    fn hold(&self) {
        let bench = &self.bench;
        let leaf = self.leaf();
        assert!(bench.ok(&["check", &leaf]).ends_with("sound\n"), "{leaf}");
        bench.ok(&["convert", &leaf, "out.raw", "--sector-size", "512", "--force"]);
        assert_same_files(&bench.path("out.raw"), &self.raw());
        // 7-Zip follows the parents that the files name.
        assert_same_as_7z(&bench.path(&leaf), &self.raw());
        let merged = format!("merged.{}", self.format);
        bench.ok(&["merge", &leaf, "--into", &merged, "--base", "--force"]);
        let format = if self.format == "vhd" { "vpc" } else { "vhdx" };
        if bench.json(&["info", &merged])["logical_sector_bytes"] == SECTOR {
            let words = ["compare", "-f", format, "-F", "raw", &merged, "expected.raw"];
            assert!(qemu_img(&words, bench.folder.path()), "{merged} at depth {}", self.depth);
        }
        assert_same_as_7z(&bench.path(&merged), &self.raw());
    }
}

#[test]
fn chains_written_at_random_read_alike_in_7zip_and_merged_in_qemu() {
    for (seed, (format, sector)) in (1..).zip([("vhdx", 512), ("vhd", 512), ("vhdx", 4096)]) {
        let mut chain = Written::new(format, 23 * MIB, sector, seed);
        chain.write(6, None);
        while chain.depth < 30 {
            chain.snapshot();
            chain.write(5, None);
            if matches!(chain.depth, 4 | 5 | 13 | 30) {
                println!("{format}, sectors of {sector}, depth {}", chain.depth);
                chain.hold();
            }
        }
        let refused = chain.bench.json(&["info", &chain.leaf()]);
        assert_eq!(refused["chain"].as_array().unwrap().len(), 30);
    }
}

/// A folder in which libvhdi shows a chain's disks as files: `vhdi1` the base's, and so on.
struct Mounted<'a>(&'a Path);

impl<'a> Mounted<'a> {
    fn new(leaf: &Path, at: &'a Path) -> Self {
        run(Command::new("vhdimount").arg(leaf).arg(at), "libvhdi-utils");
        Self(at)
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}

/// libvhdi reads a VHD right as long as runs of sectors begin and end with a byte of the bitmap. (Of a VHDX it finds the
/// parent by an absolute path of Windows alone, which no version that is made here has.)
#[test]
fn vhd_chain_of_whole_pages_reads_alike_in_libvhdi() {
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        println!("skipped: libvhdi shows images through FUSE, which only root can unmount");
        return;
    }
    let mut chain = Written::new("vhd", 23 * MIB, SECTOR, 100);
    chain.write(6, Some(4096));
    while chain.depth < 5 {
        chain.snapshot();
        chain.write(6, Some(4096));
    }
    let at = chain.bench.path("mounted");
    std::fs::create_dir(&at).unwrap();
    let mounted = Mounted::new(&chain.bench.path(&chain.leaf()), &at);
    let shown = mounted.0.join(format!("vhdi{}", chain.depth));
    assert_same_files(&shown, &chain.raw());
}
