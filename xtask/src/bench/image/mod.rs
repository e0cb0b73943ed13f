//! `cargo xtask bench image`: work on images, against qemu-img and cp, on two file systems.
//!
//! A base of 20 GiB (of which some GiB hold incompressible bytes) and a difference of 2.5 GiB on it, a fifth of whose
//! blocks are partial, lie on the file system of the build folder and on an XFS with reflink that the bench mounts.
//! Every run starts with the sources in the page cache and ends with the result on stable storage: our commands flush
//! by themselves, qemu-img is told to (`-t writeback`; without that it never flushes), cp is followed by `sync FILE`.
mod material;
mod stopwatch;
mod volumes;

use std::path::Path;
use std::process::Command;

use anyhow::Result;
use clap::Args;

use self::material::Material;
use self::stopwatch::{Cost, time};
use self::volumes::Volume;
use super::{Aim, Measure, median};
use crate::run::{build_program, output, run, target};

/// How large and how often.
#[derive(Args)]
pub(crate) struct ImageArguments {
    /// Runs of each side for each measure
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// How many GiB of the base of 20 GiB hold data
    #[arg(long, default_value_t = 5)]
    filled_gib: u64,
    /// How many MiB the difference holds
    #[arg(long, default_value_t = 2560)]
    difference_mib: u64,
}

/// Two programs, and how often they run.
struct Contest<'a> {
    program: &'a Path,
    rounds: usize,
    qemu: String,
}

/// Measures and compares.
pub(super) fn measure(arguments: &ImageArguments) -> Result<Vec<Measure>> {
    lab::packages::ensure(lab::packages::BENCH)?;
    let program = build_program()?;
    let folder = target().join("bench/image");
    std::fs::create_dir_all(&folder)?;
    let version = output(Command::new("qemu-img").arg("--version"))?;
    let qemu = version.split_whitespace().take(3).collect::<Vec<_>>().join(" ");
    let contest = Contest { program: &program, rounds: arguments.rounds, qemu };
    let mut measures = Vec::new();
    for volume in [Volume::here(&folder)?, Volume::xfs(&folder, arguments.filled_gib)?] {
        let material = Material::make(&program, &volume, arguments.filled_gib, arguments.difference_mib)?;
        measures.extend(contest.conversions(&volume, &material)?);
        measures.extend(contest.merges(&volume, &material)?);
    }
    measures.extend(contest.opening(&folder)?);
    Ok(measures)
}

impl Contest<'_> {
    fn conversions(&self, volume: &Volume, material: &Material) -> Result<Vec<Measure>> {
        let (raw, vhdx) = (&material.raw, &material.base);
        let to_vhdx = self.against_qemu(
            format!("convert raw to VHDX, {}", volume.name),
            volume,
            |out| self.ours(&["image", "convert", "--quiet"]).arg(raw).arg(out).take(),
            |out| {
                qemu_img(&["convert", "-t", "writeback", "-f", "raw", "-O", "vhdx"]).arg(raw).arg(out).take()
            },
            "vhdx",
        )?;
        let to_raw = self.against_qemu(
            format!("convert VHDX to raw, {}", volume.name),
            volume,
            |out| self.ours(&["image", "convert", "--quiet"]).arg(vhdx).arg(out).take(),
            |out| {
                qemu_img(&["convert", "-t", "writeback", "-f", "vhdx", "-O", "raw"]).arg(vhdx).arg(out).take()
            },
            "raw",
        )?;
        let compare = self.against_qemu(
            format!("compare raw with VHDX, {}", volume.name),
            volume,
            |_| self.ours(&["image", "compare", "--quiet"]).arg(raw).arg(vhdx).take(),
            |_| qemu_img(&["compare", "-f", "raw", "-F", "vhdx"]).arg(raw).arg(vhdx).take(),
            "none",
        )?;
        let check = self.against_qemu(
            format!("check a VHDX, {}", volume.name),
            volume,
            |_| self.ours(&["image", "check", "--quiet"]).arg(vhdx).take(),
            |_| qemu_img(&["check", "-f", "vhdx"]).arg(vhdx).take(),
            "none",
        )?;
        Ok(vec![to_vhdx, to_raw, compare, check])
    }

    /// Ours against qemu-img, in turns; lower is better.
    fn against_qemu(
        &self,
        measure: String,
        volume: &Volume,
        ours: impl Fn(&Path) -> Command,
        peer: impl Fn(&Path) -> Command,
        ending: &str,
    ) -> Result<Measure> {
        let (our_out, peer_out) =
            (volume.path("ours").with_extension(ending), volume.path("peer").with_extension(ending));
        let (ours, peer) = self.in_turns(
            &measure,
            || clean(&our_out).and_then(|()| time(&mut ours(&our_out))),
            || clean(&peer_out).and_then(|()| time(&mut peer(&peer_out))),
        )?;
        clean(&our_out)?;
        clean(&peer_out)?;
        Ok(seconds(measure, ours, peer, self.qemu.clone(), Aim::AtMost(1.0)))
    }

    fn merges(&self, volume: &Volume, material: &Material) -> Result<Vec<Measure>> {
        let merged = volume.path("merged.vhdx");
        let copy = volume.path("copy.vhdx");
        let measure = format!("merge {} MiB into a base, {}", material.difference_mib, volume.name);
        let (ours, peer) = self.in_turns(
            &measure,
            || {
                clean(&merged)?;
                let mut merge = self.ours(&["image", "merge", "--quiet"]);
                time(merge.arg(&material.leaf).arg("--into").arg(&merged))
            },
            // What a merge without clones must move at least: the merged file's bytes.
            || {
                clean(&copy)?;
                let mut copying = Command::new("sh");
                copying.args(["-c", "cp --reflink=never --sparse=auto \"$0\" \"$1\" && sync \"$1\""]);
                time(copying.arg(&merged).arg(&copy))
            },
        )?;
        let peer_name = "cp --reflink=never of the merged file".to_owned();
        let mut measures = Vec::new();
        if volume.clones {
            measures.push(seconds(
                format!("{measure}, in one second"),
                ours,
                1.0,
                "the aim".into(),
                Aim::AtMost(1.0),
            ));
        }
        let aim = if volume.clones { Aim::AtMost(0.05) } else { Aim::AtMost(1.0) };
        measures.push(seconds(measure, ours, peer, peer_name, aim));
        clean(&merged)?;
        clean(&copy)?;
        Ok(measures)
    }

    fn opening(&self, folder: &Path) -> Result<Vec<Measure>> {
        let huge = folder.join("huge.vhdx");
        clean(&huge)?;
        run(self.ours(&["image", "create", "--quiet", "--size", "64T", "--block-size", "1M"]).arg(&huge))?;
        let mut of_ours = Vec::new();
        let mut of_qemu = Vec::new();
        for _ in 0..self.rounds.max(5) {
            of_ours.push(stopwatch::cost(self.ours(&["image", "info"]).arg(&huge))?);
            of_qemu.push(stopwatch::cost(qemu_img(&["info", "-f", "vhdx"]).arg(&huge))?);
        }
        clean(&huge)?;
        let of = |costs: &[Cost], what: fn(&Cost) -> f64| median(costs.iter().map(what).collect());
        let measure = |measure: &str, what: fn(&Cost) -> f64, unit, limit: f64| {
            let (ours, peer) = (of(&of_ours, what), of(&of_qemu, what));
            let against_limit = Measure {
                measure: format!("{measure}, limit"),
                ours,
                peer: limit,
                peer_name: "the aim".into(),
                unit,
                aim: Aim::AtMost(1.0),
            };
            let peer_name = self.qemu.clone();
            let against_qemu =
                Measure { measure: measure.into(), ours, peer, peer_name, unit, aim: Aim::AtMost(1.0) };
            [against_limit, against_qemu]
        };
        let mut measures =
            Vec::from(measure("info of a 64 TiB VHDX: time", |cost| cost.seconds * 1e3, "ms", 50.0));
        measures.extend(measure("info of a 64 TiB VHDX: memory", |cost| cost.peak_mib, "MiB", 20.0));
        Ok(measures)
    }

    fn in_turns(
        &self,
        measure: &str,
        ours: impl Fn() -> Result<f64>,
        peer: impl Fn() -> Result<f64>,
    ) -> Result<(f64, f64)> {
        let (mut of_ours, mut of_peer) = (Vec::new(), Vec::new());
        // One uncounted run brings the sources into memory.
        ours()?;
        for round in 0..self.rounds {
            eprintln!("{measure}: round {} of {}", round + 1, self.rounds);
            of_ours.push(ours()?);
            of_peer.push(peer()?);
        }
        Ok((median(of_ours), median(of_peer)))
    }

    fn ours(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.program);
        command.args(arguments);
        command
    }
}

/// Lets a command be built in one expression.
trait Take {
    fn take(&mut self) -> Command;
}

impl Take for Command {
    fn take(&mut self) -> Command {
        std::mem::replace(self, Command::new("true"))
    }
}

fn seconds(measure: String, ours: f64, peer: f64, peer_name: String, aim: Aim) -> Measure {
    Measure { measure, ours, peer, peer_name, unit: "s", aim }
}

fn qemu_img(arguments: &[&str]) -> Command {
    let mut command = Command::new("qemu-img");
    command.args(arguments);
    command
}

/// Removes what an earlier run left, and waits until nothing of it is being written any more.
fn clean(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    run(&mut Command::new("sync"))
}
