//! Random chains of two small generators that share nothing with our code (Python, not in this tree): whatever verb
//! reads them, it reads what the generators' flat model says.
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::bench::{
    Bench, Part, assert_same_as_7z, assert_same_files, assert_same_parts, has_data, qemu_img, run, shared,
};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// How many random chains are tried, if not as many as by default.
const COUNT: &str = "HEADWATER_TEST_CHAINS";
const DEFAULT_COUNT: u64 = 8;

/// A chain to be made.
#[derive(Clone, Debug)]
struct Shape {
    format: &'static str,
    sector: u64,
    seed: u64,
    /// The disk's size and that of its blocks, of each file, the base first.
    files: Vec<(u64, u64)>,
}

/// Numbers that a seed decides (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

impl Shape {
    fn random(seed: u64) -> Self {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        for _ in 0..8 {
            random.below(2);
        }
        let format = random.pick(&["vhdx", "vhdx", "vhd"]);
        let sector = if format == "vhdx" { random.pick(&[512, 4096]) } else { 512 };
        let several_chunks = random.below(5) == 0;
        let depth = random.pick(if several_chunks { &[2, 3] } else { &[2, 3, 4, 5, 8, 13, 30] });
        let blocks: &[u64] = match (format, depth) {
            ("vhd", 13..) => &[64 * KIB, 512 * KIB, 2 * MIB],
            ("vhd", _) if several_chunks => &[512 * KIB, 2 * MIB],
            (_, _) if several_chunks => &[MIB, 2 * MIB, 4 * MIB],
            ("vhd", _) => &[512 * KIB, 2 * MIB, 4 * MIB, 16 * MIB],
            (_, 13..) => &[MIB, 2 * MIB],
            _ => &[MIB, 2 * MIB, 4 * MIB, 8 * MIB, 16 * MIB],
        };
        let size = |random: &mut Random| match (several_chunks, sector) {
            (true, 512) => 4 * GIB + random.below(9 * GIB / sector) * sector,
            (true, _) => 33 * GIB + random.below(33 * GIB / sector) * sector,
            (false, _) => 3 * MIB + random.below(if depth > 8 { 9 } else { 25 } * MIB / sector) * sector,
        };
        let common = size(&mut random);
        let is_uneven = random.below(3) == 0;
        let files = (0..depth).map(|_| {
            let own = if is_uneven { size(&mut random) } else { common };
            (own, random.pick(blocks))
        });
        Self { format, sector, seed, files: files.collect() }
    }

    /// Makes the chain: its leaf's name, and the raw file that it must read as.
    fn make(&self, bench: &Bench) -> Option<(String, PathBuf)> {
        let scripts = shared("oracles")?;
        let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../diskimage/tests/suite/python");
        let raw = bench.path("expected.raw");
        let mut generator = Command::new("python3");
        generator
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .arg(python.join("chains.py"))
            .args([&scripts, &python])
            .arg(self.format)
            .args([bench.folder.path(), &raw])
            .args([self.sector, self.seed].map(|number| number.to_string()))
            .args(self.files.iter().map(|(size, block)| format!("{size}:{block}")));
        run(&mut generator, "python3");
        Some((format!("{}.{}", self.files.len() - 1, self.format), raw))
    }

    fn is_small(&self) -> bool {
        self.files.iter().all(|&(size, _)| size < GIB)
    }

    /// Whether 7-Zip reads such a chain: of a parent that is smaller than its child it reads only as much as there is,
    /// and no disk that ends inside a page.
    fn suits_7z(&self) -> bool {
        let (first, _) = self.files[0];
        self.is_small() && first.is_multiple_of(8192) && self.files.iter().all(|&(size, _)| size == first)
    }
}

/// Holds every verb that reads against the flat model of a chain. `false` where there is no generator.
fn hold(shape: &Shape) -> bool {
    println!("{shape:?}");
    let bench = Bench::new();
    let Some((leaf, raw)) = shape.make(&bench) else { return false };
    assert_told(&bench, &leaf, shape);
    assert_map(&bench, &leaf, &raw);
    assert_converted(&bench, &leaf, shape);
    assert_compared(&bench, &leaf, &raw);
    assert_merged(&bench, &leaf, shape);
    true
}

fn assert_told(bench: &Bench, leaf: &str, shape: &Shape) {
    let info = bench.json(&["info", leaf]);
    assert_eq!(info["logical_sector_bytes"], shape.sector);
    let chain = info["chain"].as_array().unwrap();
    assert_eq!(chain.len(), shape.files.len());
    for (file, &(size, block)) in chain.iter().zip(&shape.files) {
        assert_eq!(
            (&file["virtual_size_bytes"], &file["block_bytes"]),
            (&size.into(), &block.into()),
            "{file}"
        );
    }
    for number in 0..shape.files.len() {
        let check = bench.json(&["check", &format!("{number}.{}", shape.format)]);
        assert_eq!(check["errors"], 0, "{check}");
    }
}

/// What the map says is all that is needed to read the disk: data where it says, zeros where it says, nothing besides.
fn assert_map(bench: &Bench, leaf: &str, raw: &Path) {
    let expected = File::open(raw).unwrap();
    let size = expected.metadata().unwrap().len();
    let mut at = 0;
    for line in bench.ok(&["map", leaf, "--output", "json"]).lines() {
        let run: Value = serde_json::from_str(line).unwrap();
        let (start, length) = (run["start"].as_u64().unwrap(), run["length"].as_u64().unwrap());
        assert_eq!(start, at, "{line}");
        at += length;
        match run["kind"].as_str().unwrap() {
            "zero" => assert_zero(&expected, start, length),
            _ => {
                let file = File::open(bench.path(run["file"].as_str().unwrap())).unwrap();
                let offset = run["offset"].as_u64().unwrap();
                let stored = Part { file: &file, at: offset };
                assert_same_parts(stored, Part { file: &expected, at: start }, length);
            }
        }
    }
    assert_eq!(at, size);
}

fn assert_zero(file: &File, start: u64, length: u64) {
    let mut window = vec![0; MIB as usize];
    for at in (start..start + length).step_by(window.len()) {
        let part = &mut window[..MIB.min(start + length - at) as usize];
        if has_data(file, at, part.len() as u64) {
            file.read_exact_at(part, at).unwrap();
            assert!(part.iter().all(|&byte| byte == 0), "near byte {at:#x}");
        }
    }
}

fn assert_converted(bench: &Bench, leaf: &str, shape: &Shape) {
    let raw = bench.path("expected.raw");
    // A raw image cannot say that its sectors are large.
    let words = ["convert", leaf, "out.raw", "--sector-size", "512"];
    bench.ok(&words);
    assert_same_files(&bench.path("out.raw"), &raw);
    bench.ok(&[&words[..], &["--find-zeros", "--verify", "--force"]].concat());
    assert_same_files(&bench.path("out.raw"), &raw);
    std::fs::remove_file(bench.path("out.raw")).unwrap();
    // VHD knows no sectors of 4096 bytes.
    let to = match (shape.format, shape.sector) {
        ("vhdx", 512) => "out.vhd",
        _ => "out.vhdx",
    };
    bench.ok(&["convert", leaf, to]);
    assert_sound_and_same(bench, to, shape);
    std::fs::remove_file(bench.path(to)).unwrap();
}

/// A single image, which programs that are not ours read as well.
fn assert_sound_and_same(bench: &Bench, name: &str, shape: &Shape) {
    let check = bench.json(&["check", name]);
    assert_eq!((&check["errors"], &check["warnings"]), (&0.into(), &0.into()), "{check}");
    bench.ok(&["compare", name, "expected.raw", "--strict"]);
    let (format, size) = (if name.ends_with("vhd") { "vpc" } else { "vhdx" }, shape.files.last().unwrap().0);
    // qemu-img reads no sectors of 4096 bytes, and 7-Zip no odd number of them. It gives all the zeros of a large disk.
    if bench.json(&["info", name])["logical_sector_bytes"] == 512 {
        let words = ["compare", "-f", format, "-F", "raw", name, "expected.raw"];
        assert!(qemu_img(&words, bench.folder.path()), "{name} of {shape:?}");
    } else if shape.is_small() && size.is_multiple_of(8192) {
        assert_same_as_7z(&bench.path(name), &bench.path("expected.raw"));
    }
}

fn assert_compared(bench: &Bench, leaf: &str, raw: &Path) {
    bench.ok(&["compare", leaf, "expected.raw", "--strict"]);
    bench.ok(&["compare", "expected.raw", leaf, "--strict"]);
    let file = OpenOptions::new().read(true).write(true).open(raw).unwrap();
    let size = file.metadata().unwrap().len();
    for place in [0, size / 3, size - 1] {
        let mut byte = [0];
        file.read_exact_at(&mut byte, place).unwrap();
        file.write_all_at(&[!byte[0]], place).unwrap();
        let (code, out, err) = bench.run(&["compare", leaf, "expected.raw", "--output", "json"]);
        assert_eq!(code, Some(3), "byte {place:#x}: {out}{err}");
        let found: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(found["first_difference"], place, "{found}");
        file.write_all_at(&byte, place).unwrap();
    }
}

fn assert_merged(bench: &Bench, leaf: &str, shape: &Shape) {
    let base = format!("merged.{}", shape.format);
    bench.ok(&["merge", leaf, "--into", &base, "--base", "--verify"]);
    assert_sound_and_same(bench, &base, shape);
    std::fs::remove_file(bench.path(&base)).unwrap();
    if shape.files.len() < 3 {
        return;
    }
    let updates = format!("updates.a{}", shape.format);
    bench.ok(&["merge", leaf, "--into", &updates, "--updates"]);
    let check = bench.json(&["check", &updates]);
    assert_eq!((&check["errors"], &check["warnings"]), (&0.into(), &0.into()), "{check}");
    assert_eq!(bench.json(&["info", &updates])["chain"].as_array().unwrap().len(), 2);
    bench.ok(&["convert", &updates, "out.raw", "--sector-size", "512"]);
    assert_same_files(&bench.path("out.raw"), &bench.path("expected.raw"));
    if shape.suits_7z() {
        assert_same_as_7z(&bench.path(&updates), &bench.path("expected.raw"));
    }
}

#[test]
fn random_chains_read_as_the_flat_model_whatever_verb_reads_them() {
    let count = std::env::var(COUNT).map_or(DEFAULT_COUNT, |count| count.parse().unwrap());
    for seed in 1..=count {
        if !hold(&Shape::random(seed)) {
            return;
        }
    }
}

#[test]
fn deepest_chains_of_both_formats_read_as_the_flat_model() {
    for (format, sector) in [("vhdx", 512), ("vhdx", 4096), ("vhd", 512)] {
        let files =
            (0..30).map(|layer| (9 * MIB + 4096, if layer % 7 == 3 { 2 * MIB } else { MIB })).collect();
        if !hold(&Shape { format, sector, seed: 30 + sector, files }) {
            return;
        }
    }
}

#[test]
fn chain_of_the_largest_and_the_smallest_blocks_reads_as_the_flat_model() {
    let size = 257 * MIB + 512;
    let files = vec![(size, 256 * MIB), (size, MIB), (size, 64 * MIB), (size, 2 * MIB)];
    hold(&Shape { format: "vhdx", sector: 512, seed: 256, files });
}
