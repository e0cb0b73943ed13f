//! Reads of an image that is not in memory, beside fio on the file itself: how near a read over the network comes to
//! what the disk gives.
//!
//! The pages of the image are dropped before each run (`posix_fadvise`); other files stay where they are.
use std::fs::File;

use anyhow::Result;

use super::clients::{self, Load, SEQUENTIAL};
use super::{Bench, Sample, nbd, of};
use crate::bench::{Aim, Measure};

/// Small reads are random, and so few that most find nothing in memory.
const LOADS: [(&str, Load, f64); 2] = [
    ("cold, sequential 1 MiB, depth 8", SEQUENTIAL, 1.0),
    ("cold, random 64 KiB, depth 32", Load { bytes: 65_536, ..clients::random(32) }, 1.0),
];

/// nbd_blast beside fio with io_uring, through the page cache both.
pub(super) fn measure(bench: &Bench) -> Result<Vec<Measure>> {
    let ours = nbd::start_ours(bench)?;
    let file = File::open(&bench.raw)?;
    file.sync_all()?;
    let name = format!("--filename={}", bench.raw.display());
    let mut rows = Vec::new();
    for (measure, load, seconds) in LOADS {
        let seconds_argument = format!("--runtime={seconds}");
        let samples = bench.alternate(&[true, false], |over_nbd, _| {
            super::super::forget_pages(&bench.raw)?;
            clients::sample(&ours.server, || match over_nbd {
                true => clients::blast(bench, ours.export, load, seconds as u32),
                false => clients::fio_with(
                    load,
                    &[&name, "--ioengine=io_uring", "--invalidate=0", "--readonly", &seconds_argument],
                ),
            })
        })?;
        let [over_nbd, itself] = samples.as_slice() else { continue };
        let rate = |sample: &Sample| sample.requests_per_second * f64::from(load.bytes) / 1e6;
        rows.push(Measure {
            measure: format!("NBD {measure} (against fio on the file itself)"),
            ours: of(over_nbd, rate),
            peer: of(itself, rate),
            peer_name: nbd::version("fio")?,
            unit: "MB/s",
            aim: Aim::AtLeast(0.95),
        });
    }
    // For whatever is measured next.
    std::io::copy(&mut &file, &mut std::io::sink())?;
    Ok(rows)
}
