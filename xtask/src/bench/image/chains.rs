//! What the depth of a chain costs: opening it, mapping it, reading through it.
//!
//! Chains of 1, 8 and 30 files on a dense disk of 1 GiB, each file above the base with the same small changes at
//! places of its own: VHDX here, qcow2 for qemu, which cannot open differencing VHDX. Opening and mapping are whole
//! programs on both sides. Reading is a call of our library against `qemu-img bench` at depth 1, in the same order, all
//! in memory: the two do not carry the same load around them, so what counts there is what each loses with depth.
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use block::{BlockDevice, ByteOffset, Patience};
use diskimage::{Image, MutableImage, OpenOptions};

use super::super::{Aim, Measure, median};
use super::contest::{Contest, Take, qemu_img};
use super::material::Noise;
use super::stopwatch::{Cost, cost};
use crate::run::{output, run};

const DEPTHS: [usize; 3] = [1, 8, 30];
const DISK_BYTES: u64 = 1 << 30;
const MIB: u64 = 1 << 20;
/// What each file above the base changes: so many runs of so many bytes.
const CHANGES: u64 = 64;
const CHANGE_BYTES: u64 = 64 << 10;
/// How far one random read lies from the one before: an odd number of pages, so that all pages get their turn.
const STRIDE_BYTES: u64 = 77_777 * 4096;
const RANDOM_READS: u64 = 50_000;
/// What depth may cost.
const MAX_GROWTH: f64 = 1.25;

/// What was measured of one depth and one side.
struct Figures {
    open_ms: f64,
    map_ms: f64,
    map_mib: f64,
    random_us: f64,
    sequential_mib: f64,
}

pub(super) fn measure(contest: &Contest<'_>, folder: &Path) -> Result<Vec<Measure>> {
    let folder = folder.join("chains");
    make(contest, &folder)?;
    let mut measures = Vec::new();
    let mut ours_by_depth = Vec::new();
    for depth in DEPTHS {
        let (ours, peer) = (name(&folder, depth - 1, "vhdx"), name(&folder, depth - 1, "qcow2"));
        let mut rounds = Vec::new();
        // The first round is not counted.
        for _ in 0..=contest.rounds.max(1) {
            rounds.push([of_ours(contest, &ours)?, of_qemu(&peer)?]);
        }
        let rounds = rounds.get(1..).unwrap_or_default();
        let of = |side: usize, what: fn(&Figures) -> f64| {
            median(rounds.iter().filter_map(|round| round.get(side)).map(what).collect())
        };
        let against_qemu = |what: &str, unit, figure: fn(&Figures) -> f64, aim| Measure {
            measure: format!("chain of {depth}: {what}"),
            ours: of(0, figure),
            peer: of(1, figure),
            peer_name: contest.qemu.clone(),
            unit,
            aim,
        };
        measures.extend([
            against_qemu("open (info)", "ms", |figures| figures.open_ms, Aim::AtMost(1.0)),
            against_qemu("map of all", "ms", |figures| figures.map_ms, Aim::AtMost(1.0)),
            against_qemu("map of all: memory", "MiB", |figures| figures.map_mib, Aim::AtMost(1.0)),
            against_qemu("random 4 KiB", "us", |figures| figures.random_us, Aim::AtMost(1.0)),
            against_qemu("sequential 1 MiB", "MiB/s", |figures| figures.sequential_mib, Aim::AtLeast(1.0)),
        ]);
        let figures: [fn(&Figures) -> f64; 2] = [|figures| figures.random_us, |figures| figures.map_mib];
        ours_by_depth.push(figures.map(|figure| of(0, figure)));
    }
    if let (Some(shallow), Some(deep)) = (ours_by_depth.first(), ours_by_depth.last()) {
        let growth = [("random 4 KiB", "us"), ("map of all: memory", "MiB")];
        measures.extend(growth.iter().zip(deep.iter().zip(shallow)).map(
            |(&(what, unit), (&ours, &peer))| {
                let measure = format!("chain of 30 against one of 1: {what}");
                Measure {
                    measure,
                    ours,
                    peer,
                    peer_name: "ours at depth 1".into(),
                    unit,
                    aim: Aim::AtMost(MAX_GROWTH),
                }
            },
        ));
    }
    Ok(measures)
}

fn of_ours(contest: &Contest<'_>, leaf: &Path) -> Result<Figures> {
    let open = cost(contest.ours(&["image", "info"]).arg(leaf))?;
    let map = cost(contest.ours(&["image", "map"]).arg(leaf))?;
    let image = Image::open(leaf, OpenOptions::default())?;
    let mut buffer = vec![0; usize::try_from(MIB)?];
    let begun = Instant::now();
    for at in 0..DISK_BYTES / MIB {
        image.read(ByteOffset::new(at * MIB), &mut buffer, Patience::Blocking)?;
    }
    let sequential = begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    for read in 0..RANDOM_READS {
        let at = read * STRIDE_BYTES % DISK_BYTES;
        image.read(ByteOffset::new(at), &mut buffer[..4096], Patience::Blocking)?;
    }
    Ok(figures(&open, &map, begun.elapsed().as_secs_f64(), sequential))
}

fn of_qemu(leaf: &Path) -> Result<Figures> {
    let open = cost(qemu_img(&["info", "--backing-chain", "-f", "qcow2"]).arg(leaf))?;
    let map = cost(qemu_img(&["map", "-f", "qcow2"]).arg(leaf))?;
    let bench = |count: u64, size: u64, step: u64| {
        let numbers = [("-c", count), ("-s", size), ("-S", step)];
        let numbers = numbers.iter().flat_map(|(option, value)| [(*option).to_owned(), value.to_string()]);
        let mut command = qemu_img(&["bench", "-d", "1", "-f", "qcow2"]);
        let printed = output(command.args(numbers).arg(leaf))?;
        let seconds = printed.split_once("completed in ").and_then(|(_, rest)| rest.split(' ').next());
        seconds
            .and_then(|seconds| seconds.parse::<f64>().ok())
            .with_context(|| format!("qemu-img bench: {printed}"))
    };
    let sequential = bench(DISK_BYTES / MIB, MIB, MIB)?;
    let random = bench(RANDOM_READS, 4096, STRIDE_BYTES % DISK_BYTES)?;
    Ok(figures(&open, &map, random, sequential))
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
fn figures(open: &Cost, map: &Cost, random_s: f64, sequential_s: f64) -> Figures {
    Figures {
        open_ms: open.seconds * 1e3,
        map_ms: map.seconds * 1e3,
        map_mib: map.peak_mib,
        random_us: random_s * 1e6 / RANDOM_READS as f64,
        sequential_mib: (DISK_BYTES / MIB) as f64 / sequential_s,
    }
}

/// The file of both chains that has so many below it.
fn name(folder: &Path, below: usize, format: &str) -> PathBuf {
    folder.join(format!("disk.{below}.{format}"))
}

/// Makes both chains, or takes those of an earlier run.
fn make(contest: &Contest<'_>, folder: &Path) -> Result<()> {
    let done = folder.join("done");
    if done.exists() {
        return Ok(());
    }
    eprintln!("making the chains");
    if folder.exists() {
        std::fs::remove_dir_all(folder)?;
    }
    std::fs::create_dir_all(folder)?;
    let raw = folder.join("disk.raw");
    let mut noise = Noise::new();
    let mut data = vec![0; usize::try_from(MIB)?];
    let mut file = std::fs::File::create(&raw)?;
    for _ in 0..DISK_BYTES / MIB {
        noise.fill(&mut data);
        std::io::Write::write_all(&mut file, &data)?;
    }
    drop(file);
    run(contest.ours(&["image", "convert", "--quiet"]).arg(&raw).arg(name(folder, 0, "vhdx")))?;
    run(qemu_img(&["convert", "-f", "raw", "-O", "qcow2"]).arg(&raw).arg(name(folder, 0, "qcow2")))?;
    let deepest = DEPTHS.iter().copied().max().unwrap_or(1);
    for below in 1..deepest {
        grow_ours(contest, folder, below, &mut noise)?;
        grow_qcow2(folder, below)?;
    }
    std::fs::remove_file(&raw)?;
    run(&mut Command::new("sync"))?;
    Ok(std::fs::write(done, "")?)
}

fn grow_ours(contest: &Contest<'_>, folder: &Path, below: usize, noise: &mut Noise) -> Result<()> {
    let (parent, leaf) = (name(folder, below - 1, "vhdx"), name(folder, below, "vhdx"));
    run(&mut contest.ours(&["image", "snapshot", "--quiet"]).arg(&parent).arg(&leaf).take())?;
    let parent: Arc<dyn BlockDevice> = Arc::new(Image::open(&parent, OpenOptions::default())?);
    let image = MutableImage::open(&leaf, None, Some(parent), &diskimage::Childless)?;
    let mut data = vec![0; usize::try_from(CHANGE_BYTES)?];
    for at in places(below) {
        noise.fill(&mut data);
        image.write(ByteOffset::new(at), &data, Patience::Blocking)?;
    }
    Ok(image.close()?)
}

fn grow_qcow2(folder: &Path, below: usize) -> Result<()> {
    let (parent, leaf) = (name(folder, below - 1, "qcow2"), name(folder, below, "qcow2"));
    run(qemu_img(&["create", "-q", "-f", "qcow2", "-F", "qcow2", "-b"]).arg(&parent).arg(&leaf))?;
    let writes = places(below).flat_map(|at| ["-c".to_owned(), format!("write -q {at} {CHANGE_BYTES}")]);
    run(Command::new("qemu-io")
        .args(["-t", "writeback", "-f", "qcow2"])
        .args(writes)
        .arg(&leaf)
        .stdout(Stdio::null()))
}

/// Where the file with so many below it has changes: spread over the disk, at places of its own.
fn places(below: usize) -> impl Iterator<Item = u64> {
    let below = below as u64;
    (0..CHANGES).map(move |change| (change * 257 + below * 37) % (DISK_BYTES / CHANGE_BYTES) * CHANGE_BYTES)
}
