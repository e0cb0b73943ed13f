//! `cargo xtask bench stream`: the data plane, row by row against its peers, in one run.
//!
//! All servers of a row run at once on loopback and serve the same bytes; runs go round them in turn, and medians are
//! compared. CPU time is that of the server's process and its children, kernel time on its behalf included, divided by
//! what the client counted. Everything runs in a network namespace of its own ([`namespace`]), so that every server gets
//! the same TCP, whatever the machine's settings are.
mod clients;
mod cold;
mod counting;
mod crowd;
mod greedy;
mod held;
mod initiator;
mod iscsi;
mod namespace;
mod nbd;
mod volume;
mod writes;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;

use super::{Measure, median};
use crate::run::{build_program, cargo, run, target};
pub(crate) use volume::VolumeArguments;
pub(crate) use volume::serve as serve_volume;

/// How long, how often, and what.
#[derive(Args)]
pub(crate) struct StreamArguments {
    /// Runs of each server for each measure
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds a run
    #[arg(long, default_value_t = 2)]
    seconds: u32,
    /// Size of the image in MiB
    #[arg(long, default_value_t = 1024)]
    image_mib: u64,
    /// Only the rows whose names begin so, such as `nbd`, `iscsi-sequential` or `held,cold`
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
}

/// What the rows work with.
struct Bench {
    rounds: usize,
    seconds: u32,
    /// For what the bench makes.
    folder: PathBuf,
    /// The image: bytes that nothing can compress.
    raw: PathBuf,
    /// The same as a dynamic VHDX.
    vhdx: PathBuf,
    /// The release build of `headwater`.
    program: PathBuf,
}

/// A row of the table, or a few that are measured together.
struct Row {
    name: &'static str,
    measure: fn(&Bench) -> Result<Vec<Measure>>,
}

const ROWS: [Row; 15] = [
    Row { name: "nbd-random", measure: nbd::random },
    Row { name: "nbd-latency", measure: nbd::latency },
    Row { name: "nbd-fio", measure: nbd::fio },
    Row { name: "nbd-sequential", measure: nbd::sequential },
    Row { name: "nbd-clients", measure: nbd::usual_clients },
    Row { name: "nbd-writes", measure: writes::over_nbd },
    Row { name: "iscsi-random", measure: iscsi::random },
    Row { name: "iscsi-latency", measure: iscsi::latency },
    Row { name: "iscsi-sequential", measure: iscsi::sequential },
    Row { name: "iscsi-writes", measure: writes::over_iscsi },
    Row { name: "chain", measure: volume::chain },
    Row { name: "crowd", measure: crowd::measure },
    Row { name: "greedy", measure: greedy::measure },
    Row { name: "counting", measure: counting::measure },
    Row { name: "held", measure: held::measure },
];

/// Apart from the others, and last: it takes the image out of memory.
const COLD: Row = Row { name: "cold", measure: cold::measure };

/// Measures and compares.
pub(super) fn measure(arguments: &StreamArguments) -> Result<Vec<Measure>> {
    let rows: Vec<&Row> = ROWS.iter().chain([&COLD]).filter(|row| arguments.takes(row.name)).collect();
    if rows.is_empty() {
        let names: Vec<&str> = ROWS.iter().chain([&COLD]).map(|row| row.name).collect();
        bail!("no row is called that; there are {}", names.join(", "));
    }
    if namespace::is_outside() {
        lab::packages::ensure(lab::packages::BENCH)?;
        build_program()?;
        run(&mut cargo(&["build", "--release", "--package", "nbd", "--bins", "--examples"]))?;
        run(&mut cargo(&["build", "--release", "--package", "iscsi", "--package", "meter", "--examples"]))?;
    }
    namespace::enter()?;
    let folder = target().join("bench");
    std::fs::create_dir_all(&folder)?;
    let (raw, vhdx) = image(&folder, arguments.image_mib)?;
    let program = target().join("release/headwater");
    let StreamArguments { rounds, seconds, .. } = *arguments;
    let bench = Bench { rounds, seconds, folder, raw, vhdx, program };
    let mut measures = Vec::new();
    for row in rows {
        eprintln!("{}", row.name);
        measures.extend((row.measure)(&bench).with_context(|| format!("the row {} failed", row.name))?);
    }
    Ok(measures)
}

impl StreamArguments {
    fn takes(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|start| name.starts_with(start.as_str()))
    }
}

impl Bench {
    /// One of the programs that belong to a crate.
    fn example(&self, name: &str) -> PathBuf {
        target().join("release").join(name)
    }

    /// Runs `sample` for each of the contenders in turn, so often as there are rounds, after one that is not counted;
    /// the samples by contender.
    fn alternate<C, S>(
        &self,
        contenders: &[C],
        mut sample: impl FnMut(&C, u32) -> Result<S>,
    ) -> Result<Vec<Vec<S>>> {
        for contender in contenders {
            // Brings the whole path, and the image, into memory.
            sample(contender, 1)?;
        }
        let mut samples: Vec<Vec<S>> = contenders.iter().map(|_| Vec::new()).collect();
        for _ in 0..self.rounds {
            for (contender, samples) in contenders.iter().zip(&mut samples) {
                samples.push(sample(contender, self.seconds)?);
            }
        }
        Ok(samples)
    }
}

/// What one run gave.
#[derive(Clone, Copy)]
struct Sample {
    requests_per_second: f64,
    cpu_us_per_request: f64,
    /// Half of the requests took less; where the client tells.
    p50_us: f64,
    /// Of the connection whose requests take longest, and of the one whose take least: their p99.
    p99_us: (f64, f64),
}

/// The median of something of all samples.
fn of(samples: &[Sample], what: impl Fn(&Sample) -> f64) -> f64 {
    median(samples.iter().map(what).collect())
}

/// The image in both forms, in memory.
fn image(folder: &Path, mib: u64) -> Result<(PathBuf, PathBuf)> {
    let (raw, vhdx) = (folder.join("image.raw"), folder.join("image.vhdx"));
    if !raw.metadata().is_ok_and(|metadata| metadata.len() == mib << 20) || !vhdx.exists() {
        eprintln!("making an image of {mib} MiB");
        let mut random = std::fs::File::open("/dev/urandom").context("cannot open /dev/urandom")?;
        let mut file =
            std::fs::File::create(&raw).with_context(|| format!("cannot write {}", raw.display()))?;
        std::io::copy(&mut std::io::Read::take(&mut random, mib << 20), &mut file)?;
        run(Command::new("qemu-img").args(["convert", "-f", "raw", "-O", "vhdx"]).arg(&raw).arg(&vhdx))?;
        file.sync_all()?;
        std::fs::File::open(&vhdx)?.sync_all()?;
    }
    for path in [&raw, &vhdx] {
        // As readahead brings them, and not in the small pieces in which they were written: sending those costs half as much again.
        super::forget_pages(path)?;
        std::io::copy(&mut std::fs::File::open(path)?, &mut std::io::sink())?;
    }
    Ok((raw, vhdx))
}
