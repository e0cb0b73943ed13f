//! What it costs to open a VHDX of 64 TiB, whose table is 513 MiB long.
use std::path::Path;

use anyhow::Result;

use super::super::{Aim, Measure, median};
use super::contest::{Contest, clean, qemu_img};
use super::stopwatch::{Cost, cost};
use crate::run::run;

pub(super) fn measure(contest: &Contest<'_>, folder: &Path) -> Result<Vec<Measure>> {
    let huge = folder.join("huge.vhdx");
    clean(&huge)?;
    run(contest.ours(&["image", "create", "--quiet", "--size", "64T", "--block-size", "1M"]).arg(&huge))?;
    let (mut of_ours, mut of_qemu) = (Vec::new(), Vec::new());
    for _ in 0..contest.rounds.max(5) {
        of_ours.push(cost(contest.ours(&["image", "info"]).arg(&huge))?);
        of_qemu.push(cost(qemu_img(&["info", "-f", "vhdx"]).arg(&huge))?);
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
        let peer_name = contest.qemu.clone();
        let against_qemu =
            Measure { measure: measure.into(), ours, peer, peer_name, unit, aim: Aim::AtMost(1.0) };
        [against_limit, against_qemu]
    };
    let mut measures =
        Vec::from(measure("info of a 64 TiB VHDX: time", |cost| cost.seconds * 1e3, "ms", 50.0));
    measures.extend(measure("info of a 64 TiB VHDX: memory", |cost| cost.peak_mib, "MiB", 20.0));
    Ok(measures)
}
