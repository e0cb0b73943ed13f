//! `cargo xtask bench image`: work on images, against qemu-img and cp, on two file systems.
//!
//! A base of 20 GiB (of which some GiB hold incompressible bytes) and a difference of 2.5 GiB on it, a fifth of whose
//! blocks are partial, lie on the file system of the build folder and on an XFS with reflink that the bench mounts, as
//! VHDX and as VHD. Every run ends with the result on stable storage: our commands flush by themselves, qemu-img is
//! told to (`-t writeback`; without that it never flushes), cp is followed by `sync FILE`. Runs begin with the sources
//! in the page cache, or with neither side's sources there (`cold`). What a chain costs by its depth is measured on
//! the library ([`chains`]).
mod chains;
mod contest;
mod conversions;
mod foreign;
mod material;
mod merges;
mod opening;
mod sandbox;
mod stopwatch;
mod volumes;

use std::process::Command;

use anyhow::Result;
use clap::{Args, ValueEnum};

use self::contest::Contest;
use self::material::{Kind, Material};
use self::volumes::Volume;
use super::Measure;
use crate::run::{build_program, output, target};

/// How large and how often.
#[derive(Args)]
pub(crate) struct ImageArguments {
    /// Runs of each side for each measure, besides an uncounted one
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// How many GiB of the base of 20 GiB hold data
    #[arg(long, default_value_t = 3)]
    filled_gib: u64,
    /// How many MiB the difference holds
    #[arg(long, default_value_t = 2560)]
    difference_mib: u64,
    /// Only these parts
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Part::Convert, Part::Foreign, Part::Merge, Part::Chains, Part::Opening])]
    only: Vec<Part>,
}

/// What can be measured by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// convert, compare and check, against qemu-img
    Convert,
    /// Conversion from qcow2 and VMDK, compressed and not, against qemu-img
    Foreign,
    /// merges of VHDX and VHD, against cp of the bytes that must move
    Merge,
    /// Opening and reading of chains of depth 1, 8 and 30, against qcow2 chains
    Chains,
    /// Opening an image of 64 TiB
    Opening,
}

/// Measures and compares.
pub(super) fn measure(arguments: &ImageArguments) -> Result<Vec<Measure>> {
    lab::packages::ensure(lab::packages::BENCH)?;
    sandbox::enter()?;
    let program = build_program()?;
    let folder = target().join("bench/image");
    std::fs::create_dir_all(&folder)?;
    let version = output(Command::new("qemu-img").arg("--version"))?;
    let qemu = version.split_whitespace().take(3).collect::<Vec<_>>().join(" ");
    let contest = Contest { program: &program, rounds: arguments.rounds, qemu };
    let asked = |part| arguments.only.contains(&part);
    let mut measures = Vec::new();
    if asked(Part::Convert) || asked(Part::Merge) {
        volumes::check_room(&folder, arguments.filled_gib, arguments.difference_mib)?;
        for make in [Volume::here, Volume::xfs] {
            let volume = make(&folder, arguments.filled_gib)?;
            let made = |kind| {
                Material::make(&program, &volume, kind, arguments.filled_gib, arguments.difference_mib)
            };
            let vhdx = made(Kind::Vhdx)?;
            if asked(Part::Convert) {
                measures.extend(conversions::measure(&contest, &volume, &vhdx)?);
            }
            if asked(Part::Merge) {
                measures.extend(merges::measure(&contest, &volume, &vhdx)?);
                let vhd = made(Kind::Vhd)?;
                measures.extend(merges::measure(&contest, &volume, &vhd)?);
                vhd.remove()?;
            }
        }
    }
    if asked(Part::Foreign) {
        measures.extend(foreign::measure(&contest, &Volume::here(&folder, arguments.filled_gib)?)?);
    }
    if asked(Part::Chains) {
        measures.extend(chains::measure(&contest, &folder)?);
    }
    if asked(Part::Opening) {
        measures.extend(opening::measure(&contest, &folder)?);
    }
    Ok(measures)
}
