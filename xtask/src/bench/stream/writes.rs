//! Writes into the write cache: over NBD against nbdkit's cow filter, over iSCSI against tgt on a raw file.
//!
//! Every run begins with an empty write cache and an empty overlay, on the same file system: what is measured is first
//! writes, and what an operating system does most, writing again where it has written.
use std::process::Command;

use anyhow::{Context, Result};

use super::clients::{self, Load, NbdExport, SEQUENTIAL};
use super::iscsi::{beside_tgt, start_ours, start_tgt};
use super::nbd::{Contender, rates, version};
use super::{Bench, Sample, of, volume};
use crate::bench::process::Server;
use crate::bench::{Aim, Measure};

const NBDKIT_PORT: u16 = 13_281;

const WRITES: [(&str, Load); 2] = [
    ("random 4 KiB, depth 32, writes", Load { writes: true, ..clients::random(32) }),
    ("sequential 1 MiB, depth 8, writes", Load { writes: true, ..SEQUENTIAL }),
];

/// By the cheap client.
pub(super) fn over_nbd(bench: &Bench) -> Result<Vec<Measure>> {
    let starters: [fn(&Bench) -> Result<Contender>; 2] = [volume::start_empty, start_nbdkit];
    let mut rows = Vec::new();
    for (name, load) in WRITES {
        let mut last = Vec::new();
        let samples = bench.alternate(&starters, |start, seconds| {
            let contender = start(bench)?;
            let sample =
                clients::sample(&contender.server, || clients::blast(bench, contender.export, load, seconds));
            last.retain(|other: &Contender| other.name != contender.name);
            last.push(contender);
            sample
        })?;
        last.sort_by_key(|contender| contender.short() != "Headwater");
        rows.extend(rates(&format!("NBD {name}"), load, &last, &samples, |_| 2.0));
    }
    Ok(rows)
}

/// By the cheap initiator, since iscsi-perf only reads, and qemu-img spends more on a small write than either server: it
/// got the same rate from both.
pub(super) fn over_iscsi(bench: &Bench) -> Result<Vec<Measure>> {
    let scratch = bench.folder.join("tgt.raw");
    std::fs::copy(&bench.raw, &scratch).with_context(|| format!("cannot write {}", scratch.display()))?;
    let mut rows = Vec::new();
    for (name, load) in WRITES {
        let samples = bench.alternate(&[true, false], |ours, seconds| {
            let contender = if *ours { start_ours(bench)? } else { start_tgt(bench, &scratch)? };
            clients::sample(&contender.server, || clients::iscsi_blast(bench, contender.disk, load, seconds))
        })?;
        let (unit, scale) =
            if load.random { ("requests/s", 1.0) } else { ("MB/s", f64::from(load.bytes) / 1e6) };
        let rate = |sample: &Sample| sample.requests_per_second * scale;
        if let [ours, tgt] = samples.as_slice() {
            let name = format!("iSCSI {name}");
            let cpu = format!("{name}: server CPU");
            rows.push(beside_tgt(name, of(ours, rate), of(tgt, rate), unit, Aim::AtLeast(2.0))?);
            let cost = |sample: &Sample| sample.cpu_us_per_request;
            rows.push(beside_tgt(cpu, of(ours, cost), of(tgt, cost), "us/request", Aim::AtMost(1.0))?);
        }
    }
    std::fs::remove_file(&scratch)?;
    Ok(rows)
}

fn start_nbdkit(bench: &Bench) -> Result<Contender> {
    let mut command = Command::new("nbdkit");
    // The overlay goes where ours is.
    command.env("TMPDIR", &bench.folder);
    command.args(["-f", "-i", "127.0.0.1", "-e", "image", "-p", &NBDKIT_PORT.to_string()]);
    command.args(["--filter=cow", "file"]).arg(&bench.raw);
    let server = Server::start(&mut command, NBDKIT_PORT, &bench.folder.join("nbdkit-cow.log"))?;
    let export = NbdExport { port: NBDKIT_PORT, name: "image" };
    Ok(Contender { name: version("nbdkit")?, export, server })
}
