//! The programs that put load on the servers, and what they print.
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::{Bench, Sample};
use crate::bench::process::Server;
use crate::run::{output, run};

/// What a client counted.
pub(super) struct Counted {
    pub(super) requests_per_second: f64,
    requests: f64,
    p50_us: f64,
    /// Of the connection whose requests take longest, and of the one whose take least.
    pub(super) p99_us: (f64, f64),
}

/// A kind of load.
#[derive(Clone, Copy)]
pub(super) struct Load {
    pub(super) bytes: u32,
    pub(super) depth: u32,
    pub(super) random: bool,
    pub(super) writes: bool,
    /// Only `nbd_blast` has more than one.
    pub(super) connections: u32,
}

/// 4 KiB at random places.
pub(super) const fn random(depth: u32) -> Load {
    Load { bytes: 4096, depth, random: true, writes: false, connections: 1 }
}

/// 1 MiB after the other, eight at a time.
pub(super) const SEQUENTIAL: Load =
    Load { bytes: 1 << 20, depth: 8, random: false, writes: false, connections: 1 };

/// An NBD export.
#[derive(Clone, Copy)]
pub(super) struct NbdExport {
    pub(super) port: u16,
    pub(super) name: &'static str,
}

/// An iSCSI disk.
#[derive(Clone, Copy)]
pub(super) struct IscsiDisk {
    pub(super) port: u16,
    pub(super) target: &'static str,
    pub(super) lun: u32,
    pub(super) initiator: &'static str,
}

/// Has `client` count, and holds it against what `server` spent meanwhile.
pub(super) fn sample(server: &Server, client: impl FnOnce() -> Result<Counted>) -> Result<Sample> {
    let before = server.settled_cpu()?;
    let Counted { requests_per_second, requests, p50_us, p99_us } = client()?;
    let cpu = server.settled_cpu()?.saturating_sub(before);
    Ok(Sample { requests_per_second, cpu_us_per_request: cpu.as_secs_f64() * 1e6 / requests, p50_us, p99_us })
}

impl Counted {
    /// Where the client says no more than this.
    fn plain(requests_per_second: f64, requests: f64) -> Self {
        Self { requests_per_second, requests, p50_us: f64::NAN, p99_us: (f64::NAN, f64::NAN) }
    }
}

/// Our own client, which costs little.
pub(super) fn blast(bench: &Bench, export: NbdExport, load: Load, seconds: u32) -> Result<Counted> {
    let order = if load.random { "random" } else { "sequential" };
    let what = if load.writes { "write" } else { "read" };
    let text = output(
        Command::new(bench.example("examples/nbd_blast"))
            .arg(format!("127.0.0.1:{}", export.port))
            .args([what, order, &load.bytes.to_string(), &load.depth.to_string(), &seconds.to_string()])
            .args([export.name, &load.connections.to_string()]),
    )?;
    blasted(&text)
}

/// `nbd_blast`'s sister over iSCSI.
pub(super) fn iscsi_blast(bench: &Bench, disk: IscsiDisk, load: Load, seconds: u32) -> Result<Counted> {
    let IscsiDisk { port, target, lun, initiator } = disk;
    let order = if load.random { "random" } else { "sequential" };
    let what = if load.writes { "write" } else { "read" };
    let text = output(
        Command::new(bench.example("examples/iscsi_blast"))
            .arg(format!("127.0.0.1:{port}"))
            .args([target, &lun.to_string(), initiator, what, order])
            .args([&load.bytes.to_string(), &load.depth.to_string(), &seconds.to_string()]),
    )?;
    blasted(&text)
}

/// What both of them print.
fn blasted(text: &str) -> Result<Counted> {
    let found: serde_json::Value = serde_json::from_str(text).context("the cheap client printed no JSON")?;
    let number =
        |name: &str| found[name].as_f64().with_context(|| format!("the cheap client printed no {name}"));
    Ok(Counted {
        requests_per_second: number("requests_per_second")?,
        requests: number("requests")?,
        p50_us: number("latency_us_p50")?,
        p99_us: (number("latency_us_p99_most")?, number("latency_us_p99_least")?),
    })
}

/// fio over NBD.
pub(super) fn fio(export: NbdExport, load: Load, seconds: u32) -> Result<Counted> {
    let uri = format!("--uri={}", uri(export));
    fio_with(load, &["--ioengine=nbd", &uri, "--time_based", &format!("--runtime={seconds}")])
}

/// fio with more arguments.
pub(super) fn fio_with(load: Load, more: &[&str]) -> Result<Counted> {
    let order = if load.random { "randread" } else { "read" };
    let text = output(
        Command::new("fio")
            .args(["--name=bench", "--norandommap", "--randrepeat=0", "--output-format=json"])
            .args([format!("--bs={}", load.bytes), format!("--iodepth={}", load.depth)])
            .args([format!("--rw={order}"), "--size=100%".to_owned()])
            .args(more),
    )?;
    // Before the JSON fio says that it is connected.
    let json = text.find('{').and_then(|start| text.get(start..)).unwrap_or_default();
    let found: serde_json::Value = serde_json::from_str(json).context("fio printed no JSON")?;
    let read = &found["jobs"][0]["read"];
    let number = |name: &str| read[name].as_f64().with_context(|| format!("fio printed no {name}"));
    Ok(Counted::plain(number("iops")?, number("total_ios")?))
}

/// nbdcopy of the whole export to nowhere, as often as fits in the time, at least once.
pub(super) fn nbdcopy(export: NbdExport, load: Load, seconds: u32) -> Result<Counted> {
    let uri = uri(export);
    let size = output(Command::new("nbdinfo").args(["--size", &uri]))?;
    let Ok(size) = size.trim().parse::<f64>() else { bail!("nbdinfo printed no size:\n{size}") };
    let started = Instant::now();
    let mut copies = 0.0;
    while copies < 1.0 || started.elapsed().as_secs_f64() < f64::from(seconds) {
        let (depth, request) = (load.depth.to_string(), format!("--request-size={}", load.bytes));
        run(Command::new("nbdcopy").args(["-C", "1", "-R", &depth, &request, &uri, "null:"]))?;
        copies += 1.0;
    }
    let requests = copies * size / f64::from(load.bytes);
    Ok(Counted::plain(requests / started.elapsed().as_secs_f64(), requests))
}

/// qemu-img bench, reading in order. It takes a number of requests and no time: a short run says how many fit into that.
pub(super) fn qemu_nbd(export: NbdExport, load: Load, seconds: u32) -> Result<Counted> {
    let image = format!("driver=nbd,host=127.0.0.1,port={},export={}", export.port, export.name);
    let run = |count: u64| -> Result<f64> {
        let text = output(
            Command::new("qemu-img")
                .args(["bench", "-t", "none", "-c", &count.to_string(), "-d", &load.depth.to_string()])
                .args(["-s", &load.bytes.to_string(), "-S", &load.bytes.to_string()])
                .args(["--image-opts", &image]),
        )?;
        let time =
            text.rsplit_once("completed in ").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
        time.with_context(|| format!("qemu-img bench printed no time:\n{text}"))
    };
    let trial = 64;
    let trial_seconds = run(trial)?;
    let count = (f64::from(seconds) * trial as f64 / trial_seconds).clamp(trial as f64, 2e6);
    let took = run(count as u64)?;
    // The trial is part of what the server did.
    Ok(Counted::plain(count.floor() / took, count.floor() + trial as f64))
}

/// iscsi-perf, which only reads.
pub(super) fn iscsi_perf(disk: IscsiDisk, load: Load, seconds: u32) -> Result<Counted> {
    let IscsiDisk { port, target, lun, initiator } = disk;
    let mut command = Command::new("iscsi-perf");
    command.args(["-i", initiator, "-m", &load.depth.to_string(), "-b", &(load.bytes / 512).to_string()]);
    command.args(["-t", &seconds.to_string()]).args(load.random.then_some("-r"));
    let text = output(command.arg(format!("iscsi://127.0.0.1:{port}/{target}/{lun}")))?;
    let Some(rate) = average(&text) else { bail!("iscsi-perf printed no average:\n{text}") };
    let counted = Counted::plain(rate, rate * f64::from(seconds));
    let p50_us = if load.depth == 1 { 1e6 / rate } else { f64::NAN };
    Ok(Counted { p50_us, ..counted })
}

/// How often iperf3 is asked: its server needs a moment to forget a connection that was only to see whether it listens.
const IPERF3_TRIES: usize = 20;

/// What one stream of TCP moves on this machine, in bytes a second.
pub(super) fn iperf3(port: u16, seconds: u32) -> Result<f64> {
    let (port, seconds) = (port.to_string(), seconds.to_string());
    for _ in 0..IPERF3_TRIES {
        let client = Command::new("iperf3")
            .args(["-c", "127.0.0.1", "-J", "-p", &port, "-t", &seconds, "-l", "1M"])
            .output()
            .context("cannot start iperf3")?;
        let found = serde_json::from_slice::<serde_json::Value>(&client.stdout).unwrap_or_default();
        if let Some(bits) = found["end"]["sum_received"]["bits_per_second"].as_f64() {
            return Ok(bits / 8.0);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    bail!("iperf3 gives no rate after {IPERF3_TRIES} tries")
}

pub(super) fn uri(export: NbdExport) -> String {
    format!("nbd://127.0.0.1:{}/{}", export.port, export.name)
}

/// Reads the last `iops average 38179 (149 MB/s)` of iscsi-perf's output.
fn average(text: &str) -> Option<f64> {
    text.rsplit_once("iops average ")?.1.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_average_of_iscsi_perf_is_read() {
        let text = "lba 1, iops current 5 (1 MB/s), iops average 7 (0 MB/s), in_flight 1\rx\niops average 38179 (149 MB/s)  \n\nfinished.\n";
        assert_eq!(average(text), Some(38179.0));
    }
}
