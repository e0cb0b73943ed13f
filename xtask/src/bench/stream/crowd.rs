//! Many connections at once beside a few, all of them ours and driven by one thread of the client.
use anyhow::Result;

use super::clients::{self, Load};
use super::{Bench, Sample, nbd, of};
use crate::bench::{Aim, Measure};

const FEW: u32 = 4;
const MANY: u32 = 256;

/// Throughput, and how alike the connections are served.
pub(super) fn measure(bench: &Bench) -> Result<Vec<Measure>> {
    let ours = nbd::start_ours(bench)?;
    let samples = bench.alternate(&[MANY, FEW], |&connections, seconds| {
        let load = Load { connections, ..clients::random(8) };
        clients::sample(&ours.server, || clients::blast(bench, ours.export, load, seconds))
    })?;
    let [many, few] = samples.as_slice() else { return Ok(Vec::new()) };
    let rate = |sample: &Sample| sample.requests_per_second;
    Ok(vec![
        Measure {
            measure: format!("NBD random 4 KiB, {MANY} connections (beside {FEW})"),
            ours: of(many, rate),
            peer: of(few, rate),
            peer_name: "ourselves with 4 connections".to_owned(),
            unit: "requests/s",
            aim: Aim::AtLeast(1.0),
        },
        Measure {
            measure: format!("NBD p99 of {MANY} connections, worst beside best"),
            ours: of(many, |sample| sample.p99_us.0),
            peer: of(many, |sample| sample.p99_us.1),
            peer_name: "the best of the 256".to_owned(),
            unit: "us",
            aim: Aim::AtMost(2.0),
        },
    ])
}
