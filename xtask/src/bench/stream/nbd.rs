//! Reads over NBD from a raw image, against nbdkit, qemu-nbd and nbd-server.
//!
//! Ours is `nbd_serve`, a program of the crate `nbd`, so that the protocol is measured and nothing else. `nbd_blast`, an
//! example of the same crate, is a pipelined client that costs little, and so shows what the servers can; fio, nbdcopy
//! and qemu-img show what usual clients get.
use std::process::Command;

use anyhow::{Context, Result};

use super::clients::{self, Counted, Load, NbdExport, SEQUENTIAL};
use super::{Bench, Sample, greedy, of};
use crate::bench::process::Server;
use crate::bench::{Aim, Measure, median};
use crate::run::output;

const OUR_PORT: u16 = 13_270;
const NBDKIT_PORT: u16 = 13_271;
const QEMU_PORT: u16 = 13_272;
const NBD_SERVER_PORT: u16 = 13_273;
const IPERF_PORT: u16 = 13_274;

/// What our server may spend on a small read.
const SMALL_READ_CPU_US: f64 = 2.5;
/// What our server may spend on a GB of large reads.
const LARGE_READ_CPU_MS_PER_GB: f64 = 100.0;

/// Counts what an export gives under a load in so many seconds.
type Client = fn(NbdExport, Load, u32) -> Result<Counted>;

/// A server that is measured.
pub(super) struct Contender {
    pub(super) name: String,
    pub(super) export: NbdExport,
    pub(super) server: Server,
}

impl Contender {
    /// The name without the version.
    pub(super) fn short(&self) -> &str {
        self.name.split(' ').next().unwrap_or_default()
    }
}

/// Small reads by the cheap client.
pub(super) fn random(bench: &Bench) -> Result<Vec<Measure>> {
    let contenders = start(bench)?;
    let load = clients::random(32);
    let samples =
        bench.alternate(&contenders, |contender, seconds| blast(bench, contender, load, seconds))?;
    let aim = |peer: &Contender| if peer.short() == "nbdkit" { 4.5 } else { 7.0 };
    let mut rows = rates("NBD random 4 KiB, depth 32", load, &contenders, &samples, aim);
    rows.extend(costs(
        "NBD random 4 KiB, depth 32: server CPU",
        load,
        &contenders,
        &samples,
        SMALL_READ_CPU_US,
    ));
    Ok(rows)
}

/// One small read at a time.
pub(super) fn latency(bench: &Bench) -> Result<Vec<Measure>> {
    let contenders = start(bench)?;
    let load = clients::random(1);
    let samples =
        bench.alternate(&contenders, |contender, seconds| blast(bench, contender, load, seconds))?;
    Ok(against_each(&contenders, &samples, |peer, ours, theirs| Measure {
        measure: format!("NBD random 4 KiB, depth 1: median latency (against {})", peer.short()),
        ours: of(ours, |sample| sample.p50_us),
        peer: of(theirs, |sample| sample.p50_us),
        peer_name: peer.name.clone(),
        unit: "us",
        aim: Aim::AtMost(1.0),
    }))
}

/// Small reads by fio.
pub(super) fn fio(bench: &Bench) -> Result<Vec<Measure>> {
    let contenders = start(bench)?;
    let load = clients::random(32);
    let samples = bench.alternate(&contenders, |contender, seconds| {
        clients::sample(&contender.server, || clients::fio(contender.export, load, seconds))
    })?;
    Ok(rates("NBD random 4 KiB, depth 32, fio", load, &contenders, &samples, |_| 1.6))
}

/// Large reads by the cheap client, and what TCP gives by itself.
pub(super) fn sequential(bench: &Bench) -> Result<Vec<Measure>> {
    let contenders = start(bench)?;
    let mut iperf3 = Command::new("iperf3");
    iperf3.args(["-s", "-p", &IPERF_PORT.to_string()]);
    let _tcp = Server::start(&mut iperf3, IPERF_PORT, &bench.folder.join("iperf3.log"))?;
    let mut streams = Vec::new();
    let samples = bench.alternate(&contenders, |contender, seconds| {
        if contender.export.port == OUR_PORT {
            streams.push(clients::iperf3(IPERF_PORT, seconds)? / 1e6);
        }
        blast(bench, contender, SEQUENTIAL, seconds)
    })?;
    let name = "NBD sequential 1 MiB, depth 8";
    let mut rows = rates(name, SEQUENTIAL, &contenders, &samples, |_| 1.0);
    let megabytes = f64::from(SEQUENTIAL.bytes) / 1e6;
    rows.push(Measure {
        measure: format!("{name} (against one stream of TCP)"),
        ours: samples.first().map_or(f64::NAN, |ours| of(ours, |s| s.requests_per_second * megabytes)),
        peer: median(streams.split_off(1)),
        peer_name: "iperf3".to_owned(),
        unit: "MB/s",
        aim: Aim::AtLeast(0.9),
    });
    let cpu = format!("{name}: server CPU");
    rows.extend(costs(&cpu, SEQUENTIAL, &contenders, &samples, LARGE_READ_CPU_MS_PER_GB));
    Ok(rows)
}

/// Large reads by qemu-img and nbdcopy.
pub(super) fn usual_clients(bench: &Bench) -> Result<Vec<Measure>> {
    let contenders = start(bench)?;
    let clients: [(&str, Client); 2] = [("qemu-img bench", clients::qemu_nbd), ("nbdcopy", clients::nbdcopy)];
    let mut rows = Vec::new();
    for (client, count) in clients {
        let samples = bench.alternate(&contenders, |contender, seconds| {
            clients::sample(&contender.server, || count(contender.export, SEQUENTIAL, seconds))
        })?;
        let name = format!("NBD sequential 1 MiB, depth 8, {client}");
        rows.extend(rates(&name, SEQUENTIAL, &contenders, &samples, |_| 1.5));
        let cpu = format!("{name}: server CPU");
        rows.extend(costs(&cpu, SEQUENTIAL, &contenders, &samples, LARGE_READ_CPU_MS_PER_GB));
    }
    Ok(rows)
}

fn blast(bench: &Bench, contender: &Contender, load: Load, seconds: u32) -> Result<Sample> {
    clients::sample(&contender.server, || clients::blast(bench, contender.export, load, seconds))
}

/// Ours, the first, beside each of the others.
fn against_each(
    contenders: &[Contender],
    samples: &[Vec<Sample>],
    row: impl Fn(&Contender, &[Sample], &[Sample]) -> Measure,
) -> Vec<Measure> {
    let Some((ours, others)) = samples.split_first() else { return Vec::new() };
    contenders.iter().skip(1).zip(others).map(|(peer, theirs)| row(peer, ours, theirs)).collect()
}

/// Requests a second where they are small, bytes where they are large.
pub(super) fn rates(
    name: &str,
    load: Load,
    contenders: &[Contender],
    samples: &[Vec<Sample>],
    aim: impl Fn(&Contender) -> f64,
) -> Vec<Measure> {
    let (unit, scale) =
        if load.bytes < 65_536 { ("requests/s", 1.0) } else { ("MB/s", f64::from(load.bytes) / 1e6) };
    against_each(contenders, samples, |peer, ours, theirs| Measure {
        measure: format!("{name} (against {})", peer.short()),
        ours: of(ours, |sample| sample.requests_per_second * scale),
        peer: of(theirs, |sample| sample.requests_per_second * scale),
        peer_name: peer.name.clone(),
        unit,
        aim: Aim::AtLeast(aim(peer)),
    })
}

/// CPU time of the servers; what is aimed at is ours alone.
fn costs(
    name: &str,
    load: Load,
    contenders: &[Contender],
    samples: &[Vec<Sample>],
    most: f64,
) -> Vec<Measure> {
    let (unit, per) =
        if load.bytes < 65_536 { ("us/request", 1.0) } else { ("CPU ms/GB", 1e6 / f64::from(load.bytes)) };
    against_each(contenders, samples, |peer, ours, theirs| Measure {
        measure: format!("{name} (against {})", peer.short()),
        ours: of(ours, |sample| sample.cpu_us_per_request * per),
        peer: of(theirs, |sample| sample.cpu_us_per_request * per),
        peer_name: peer.name.clone(),
        unit,
        aim: Aim::OursAtMost(most),
    })
}

/// Starts ours.
pub(super) fn start_ours(bench: &Bench) -> Result<Contender> {
    let address = format!("127.0.0.1:{OUR_PORT}");
    let mut command = Command::new(bench.example("nbd_serve"));
    command.arg(&address).arg(&bench.raw).args(["--read-only", "--limit", &greedy::LIMIT_MIB.to_string()]);
    let server = Server::start(&mut command, OUR_PORT, &bench.folder.join("nbd-serve.log"))?;
    let export = NbdExport { port: OUR_PORT, name: "disk" };
    Ok(Contender { name: "Headwater".to_owned(), export, server })
}

/// Starts nbdkit.
pub(super) fn start_nbdkit(bench: &Bench) -> Result<Contender> {
    let port = NBDKIT_PORT.to_string();
    let mut command = Command::new("nbdkit");
    command.args(["-f", "-r", "-i", "127.0.0.1", "-e", "image", "-p", &port, "file"]).arg(&bench.raw);
    let server = Server::start(&mut command, NBDKIT_PORT, &bench.folder.join("nbdkit.log"))?;
    let export = NbdExport { port: NBDKIT_PORT, name: "image" };
    Ok(Contender { name: version("nbdkit")?, export, server })
}

/// Starts all four; ours is the first.
fn start(bench: &Bench) -> Result<Vec<Contender>> {
    let raw = bench.raw.to_str().context("the path of the image is not UTF-8")?;
    let folder = &bench.folder;
    let contender = |name: String, port: u16, command: &mut Command| -> Result<Contender> {
        let log = folder.join(format!("nbd-{port}.log"));
        let export = NbdExport { port, name: "image" };
        Ok(Contender { name, export, server: Server::start(command, port, &log)? })
    };
    let qemu = QEMU_PORT.to_string();
    let qemu_arguments = ["-f", "raw", "-r", "-t", "-e", "300", "-b", "127.0.0.1", "-x", "image", "-p"];
    let (config, pid_file) = (folder.join("nbd-server.conf"), folder.join("nbd-server.pid"));
    std::fs::write(
        &config,
        format!(
            "[generic]\nuser = root\ngroup = root\nlistenaddr = 127.0.0.1\nport = {NBD_SERVER_PORT}\nallowlist = true\n[image]\nexportname = {raw}\nreadonly = true\n"
        ),
    )?;
    let mut nbd_server = Command::new("nbd-server");
    nbd_server.arg("-C").arg(&config).arg("-p").arg(&pid_file);
    Ok(vec![
        start_ours(bench)?,
        start_nbdkit(bench)?,
        contender(
            version("qemu-nbd")?.replace("version ", ""),
            QEMU_PORT,
            Command::new("qemu-nbd").args(qemu_arguments).args([qemu.as_str(), raw]),
        )?,
        Contender {
            name: version_of_nbd_server()?,
            export: NbdExport { port: NBD_SERVER_PORT, name: "image" },
            server: Server::start_daemon(&mut nbd_server, NBD_SERVER_PORT, &pid_file)?,
        },
    ])
}

/// The first line of what a program says to `--version`.
pub(super) fn version(program: &str) -> Result<String> {
    let text = output(Command::new(program).arg("--version"))?;
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}

/// `This is nbd-server version 3.24`, with success or without.
fn version_of_nbd_server() -> Result<String> {
    let output = Command::new("nbd-server").arg("-V").output().context("cannot start nbd-server")?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let version = text.split("nbd-server version ").nth(1).and_then(|rest| rest.split_whitespace().next());
    Ok(format!("nbd-server {}", version.unwrap_or("of unknown version")))
}
