//! Conversion from qcow2 and VMDK, with compressed clusters and plain ones, to VHDX, against qemu-img.
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::super::Measure;
use super::contest::{Contest, Take, clean, qemu_img};
use super::material::Noise;
use super::volumes::Volume;
use crate::run::run;

const MIB: usize = 1 << 20;
/// The disk: so much of it holds data, in stretches with as much between them.
const FILLED_MIB: u64 = 1024;
const STRETCH_MIB: u64 = 64;

/// An image that qemu-img makes.
struct Foreign {
    /// How the table calls it.
    name: &'static str,
    format: &'static str,
    /// How it is made: options of `qemu-img convert`.
    options: &'static [&'static str],
}

const FOREIGN: [Foreign; 4] = [
    Foreign { name: "qcow2", format: "qcow2", options: &[] },
    Foreign { name: "qcow2 (zlib)", format: "qcow2", options: &["-c", "-o", "compression_type=zlib"] },
    Foreign { name: "qcow2 (zstd)", format: "qcow2", options: &["-c", "-o", "compression_type=zstd"] },
    Foreign {
        name: "VMDK (stream-optimized)",
        format: "vmdk",
        options: &["-o", "subformat=streamOptimized"],
    },
];

pub(super) fn measure(contest: &Contest<'_>, volume: &Volume) -> Result<Vec<Measure>> {
    let raw = volume.path("half-compressible.raw");
    fill(&raw)?;
    let measures = FOREIGN.iter().map(|foreign| one(contest, volume, &raw, foreign)).collect();
    clean(&raw)?;
    measures
}

fn one(contest: &Contest<'_>, volume: &Volume, raw: &Path, foreign: &Foreign) -> Result<Measure> {
    let source: PathBuf = volume.path("foreign").with_extension(foreign.format);
    let mut make = qemu_img(&["convert", "-f", "raw", "-O", foreign.format]);
    run(make.args(foreign.options).arg(raw).arg(&source))?;
    let measure = contest.against_qemu(
        format!("convert {} to VHDX, {}", foreign.name, volume.name),
        volume,
        "vhdx",
        &|| Ok(()),
        [&|out| contest.ours(&["image", "convert", "--quiet"]).arg(&source).arg(out).take(), &|out| {
            let mut convert = qemu_img(&["convert", "-t", "writeback", "-f", foreign.format, "-O", "vhdx"]);
            convert.arg(&source).arg(out).take()
        }],
    );
    clean(&source)?;
    measure
}

/// Every other MiB holds noise, as packed files do, the others its hexadecimal digits, which pack to about half.
fn fill(raw: &Path) -> Result<()> {
    let file = std::fs::File::create(raw).with_context(|| format!("cannot write {}", raw.display()))?;
    let mut noise = Noise::new();
    let (mut data, mut text) = (vec![0; MIB], vec![0; MIB]);
    for count in 0..FILLED_MIB {
        noise.fill(&mut data);
        if count % 2 == 1 {
            for (digit, byte) in text.iter_mut().zip(&data) {
                *digit = b"0123456789abcdef"[usize::from(byte & 15)];
            }
        }
        let at = (count / STRETCH_MIB * 2 * STRETCH_MIB + count % STRETCH_MIB) << 20;
        file.write_all_at(if count % 2 == 1 { &text } else { &data }, at)?;
    }
    Ok(file.sync_all()?)
}
