//! Merging a difference into a new base. Without clones a merge must move the merged file's bytes, so the peer is the
//! plainest program that moves them, `cp`, with the flush that makes both results equally lasting.
use std::process::Command;

use anyhow::Result;

use super::super::{Aim, Measure};
use super::contest::{Contest, Medians, clean, evict, seconds};
use super::material::Material;
use super::stopwatch::time;
use super::volumes::Volume;

/// The peer, as it is named in a measure.
const PEER: &str = "cp --reflink=never of the merged file, and sync";
/// The aim where blocks are shared.
const ONE_SECOND: f64 = 1.0;

pub(super) fn measure(contest: &Contest<'_>, volume: &Volume, material: &Material) -> Result<Vec<Measure>> {
    let kind = material.kind;
    let measure =
        format!("merge {} MiB into a {} base, {}", material.difference_mib, kind.name(), volume.name);
    let medians = turns(contest, volume, material, &measure, false)?;
    let mut measures = Vec::new();
    if volume.clones {
        let against_aim = Medians { ours: medians.ours, peer: ONE_SECOND };
        let name = format!("{measure}, in one second");
        measures.push(seconds(name, &against_aim, "the aim".into(), Aim::AtMost(1.0)));
    }
    let aim = if volume.clones { Aim::AtMost(0.05) } else { Aim::AtMost(1.0) };
    measures.push(seconds(measure.clone(), &medians, PEER.into(), aim));
    if !volume.clones {
        let measure = format!("{measure}, cold");
        let medians = turns(contest, volume, material, &measure, true)?;
        measures.push(seconds(measure, &medians, PEER.into(), aim));
    }
    Ok(measures)
}

fn turns(
    contest: &Contest<'_>,
    volume: &Volume,
    material: &Material,
    measure: &str,
    cold: bool,
) -> Result<Medians> {
    let ending = material.kind.ending();
    let merged = volume.path("merged").with_extension(ending);
    let copy = volume.path("copy").with_extension(ending);
    let medians = contest.in_turns(
        measure,
        || {
            clean(&merged)?;
            if cold {
                evict(&material.base)?;
                evict(&material.leaf)?;
            }
            let mut merge = contest.ours(&["image", "merge", "--quiet"]);
            time(merge.arg(&material.leaf).arg("--into").arg(&merged))
        },
        || {
            clean(&copy)?;
            if cold {
                evict(&merged)?;
            }
            let mut copying = Command::new("sh");
            copying.args(["-c", "cp --reflink=never --sparse=auto \"$0\" \"$1\" && sync \"$1\""]);
            time(copying.arg(&merged).arg(&copy))
        },
    )?;
    clean(&merged)?;
    clean(&copy)?;
    Ok(medians)
}
