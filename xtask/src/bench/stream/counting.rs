//! What counting costs: the meter is always on, and has no switch to measure it by. So its calls are timed by themselves
//! (`meter_cost`, an example of the crate `meter`: one request counted in and out, and its part of a look at the
//! clock), and held against the CPU time of a whole small read.
use std::process::Command;

use anyhow::{Context, Result};

use super::{Bench, clients, nbd, of};
use crate::bench::{Aim, Measure, median};
use crate::run::output;

/// The part of a small read's CPU time that counting may take.
const PART: f64 = 0.02;

/// Beside a small read.
pub(super) fn measure(bench: &Bench) -> Result<Vec<Measure>> {
    let ours = nbd::start_ours(bench)?;
    let load = clients::random(32);
    let reads = bench.alternate(&[()], |(), seconds| {
        clients::sample(&ours.server, || clients::blast(bench, ours.export, load, seconds))
    })?;
    drop(ours);
    let costs = bench.alternate(&[()], |(), _| cost_ns(bench))?;
    let (Some(reads), Some(costs)) = (reads.first(), costs.into_iter().next()) else { return Ok(Vec::new()) };
    Ok(vec![Measure {
        measure: "counting a request (beside NBD random 4 KiB, depth 32: server CPU)".to_owned(),
        ours: median(costs),
        peer: of(reads, |sample| sample.cpu_us_per_request * 1000.0),
        peer_name: "ourselves, all of a small read".to_owned(),
        unit: "ns",
        aim: Aim::AtMost(PART),
    }])
}

fn cost_ns(bench: &Bench) -> Result<f64> {
    let text = output(&mut Command::new(bench.example("examples/meter_cost")))?;
    let cost = text.split(" ns a request").next().and_then(|cost| cost.trim().parse().ok());
    cost.with_context(|| format!("meter_cost printed no cost:\n{text}"))
}
