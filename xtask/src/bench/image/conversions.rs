//! convert, compare and check, against qemu-img.
use anyhow::Result;

use super::super::Measure;
use super::contest::{Contest, Take, evict, qemu_img};
use super::material::Material;
use super::volumes::Volume;

pub(super) fn measure(contest: &Contest<'_>, volume: &Volume, material: &Material) -> Result<Vec<Measure>> {
    let (raw, vhdx) = (&material.raw, &material.base);
    let named = |what: &str| format!("{what}, {}", volume.name);
    let hot = || Ok(());
    let cold = || evict(raw).and_then(|()| evict(vhdx));
    let to_vhdx = contest.against_qemu(
        named("convert raw to VHDX"),
        volume,
        "vhdx",
        &hot,
        [&|out| contest.ours(&["image", "convert", "--quiet"]).arg(raw).arg(out).take(), &|out| {
            qemu_img(&["convert", "-t", "writeback", "-f", "raw", "-O", "vhdx"]).arg(raw).arg(out).take()
        }],
    )?;
    let to_raw = contest.against_qemu(
        named("convert VHDX to raw"),
        volume,
        "raw",
        &hot,
        [&|out| contest.ours(&["image", "convert", "--quiet"]).arg(vhdx).arg(out).take(), &|out| {
            qemu_img(&["convert", "-t", "writeback", "-f", "vhdx", "-O", "raw"]).arg(vhdx).arg(out).take()
        }],
    )?;
    let compare = |name: &str, prepare: &dyn Fn() -> Result<()>| {
        contest.against_qemu(
            named(name),
            volume,
            "none",
            prepare,
            [&|_| contest.ours(&["image", "compare", "--quiet"]).arg(raw).arg(vhdx).take(), &|_| {
                qemu_img(&["compare", "-f", "raw", "-F", "vhdx"]).arg(raw).arg(vhdx).take()
            }],
        )
    };
    let compares = [compare("compare raw with VHDX", &hot)?, compare("compare raw with VHDX, cold", &cold)?];
    let check = contest.against_qemu(
        named("check a VHDX"),
        volume,
        "none",
        &hot,
        [&|_| contest.ours(&["image", "check", "--quiet"]).arg(vhdx).take(), &|_| {
            qemu_img(&["check", "-f", "vhdx"]).arg(vhdx).take()
        }],
    )?;
    Ok([to_vhdx, to_raw].into_iter().chain(compares).chain([check]).collect())
}
