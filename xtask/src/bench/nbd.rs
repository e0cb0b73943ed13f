//! The NBD rows of `cargo xtask bench stream`: reads from a raw image that is hot in the page cache, against nbdkit,
//! qemu-nbd and nbd-server.
//!
//! All four serve the same file on loopback at once; ours is the example `nbd_serve` of the crate `nbd`, so that the protocol
//! is measured and nothing else. `nbd_blast`, an example of the same crate, is a pipelined client that costs little, and so
//! shows what the servers can; fio and nbdcopy show what usual clients get. Runs go round the servers in turn. CPU time
//! is that of the server's process and its children, kernel time on its behalf included, divided by what the client
//! counted.
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use super::process::Server;
use super::stream::StreamArguments;
use super::{Aim, Measure, median};
use crate::run::{cargo, output, run, target};

const OUR_PORT: u16 = 13_270;
const NBDKIT_PORT: u16 = 13_271;
const QEMU_PORT: u16 = 13_272;
const NBD_SERVER_PORT: u16 = 13_273;

/// A server that is measured.
struct Contender {
    name: String,
    port: u16,
    server: Server,
    /// How often ours must be as fast in small random reads.
    small_aim: f64,
}

/// One way to read, and the client for it.
struct Workload {
    name: &'static str,
    client: Client,
    bytes: u32,
    depth: u32,
    random: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Client {
    /// So many connections.
    Blast(u32),
    Fio,
    Nbdcopy,
}

const WORKLOADS: [Workload; 5] = [
    Workload {
        name: "random 4 KiB, depth 32",
        client: Client::Blast(1),
        bytes: 4096,
        depth: 32,
        random: true,
    },
    Workload { name: "random 4 KiB, depth 1", client: Client::Blast(1), bytes: 4096, depth: 1, random: true },
    Workload {
        name: "sequential 1 MiB, depth 8",
        client: Client::Blast(1),
        bytes: 1 << 20,
        depth: 8,
        random: false,
    },
    Workload {
        name: "random 4 KiB, depth 32, fio",
        client: Client::Fio,
        bytes: 4096,
        depth: 32,
        random: true,
    },
    Workload {
        name: "sequential 1 MiB, depth 8, nbdcopy",
        client: Client::Nbdcopy,
        bytes: 1 << 20,
        depth: 8,
        random: false,
    },
];

/// What one run gave.
#[derive(Clone, Copy)]
struct Sample {
    requests_per_second: f64,
    cpu_us_per_request: f64,
    /// Of the connection whose requests take longest, and of the one whose take least: their p99.
    p99_us: (f64, f64),
}

/// Measures and compares.
pub(super) fn measure(arguments: &StreamArguments, folder: &Path, raw: &Path) -> Result<Vec<Measure>> {
    run(&mut cargo(&["build", "--release", "--package", "nbd", "--examples"]))?;
    let blast = target().join("release/examples/nbd_blast");
    let contenders = start(folder, raw)?;
    let mut measures = Vec::new();
    for workload in &WORKLOADS {
        let mut samples: Vec<Vec<Sample>> = contenders.iter().map(|_| Vec::new()).collect();
        for contender in &contenders {
            // One uncounted run each brings the whole path, and the image, into memory.
            sample(contender, &blast, workload, 1)?;
        }
        for round in 0..arguments.rounds {
            eprintln!("NBD {}: round {} of {}", workload.name, round + 1, arguments.rounds);
            for (contender, samples) in contenders.iter().zip(&mut samples) {
                samples.push(sample(contender, &blast, workload, arguments.seconds)?);
            }
        }
        let Some((ours, of_peers)) = samples.split_first() else { continue };
        for (peer, samples) in contenders.iter().skip(1).zip(of_peers) {
            measures.extend(compare(workload, peer, ours, samples));
        }
    }
    if let Some(ours) = contenders.first() {
        measures.extend(crowd(ours, &blast, arguments)?);
    }
    Ok(measures)
}

fn compare(workload: &Workload, peer: &Contender, ours: &[Sample], theirs: &[Sample]) -> [Measure; 2] {
    let mb = f64::from(workload.bytes) / 1e6;
    let (unit, scale) = if workload.random { ("requests/s", 1.0) } else { ("MB/s", mb) };
    let rate = |samples: &[Sample]| median(samples.iter().map(|s| s.requests_per_second * scale).collect());
    // CPU seconds per GB where that is what counts.
    let (cost_unit, per) = if workload.random { ("us/request", 1.0) } else { ("CPU ms/GB", 1.0 / mb) };
    let cost = |samples: &[Sample]| median(samples.iter().map(|s| s.cpu_us_per_request * per).collect());
    let (rate_aim, cost_aim) = match (workload.client, workload.random, workload.depth) {
        (Client::Blast(_), true, 1) => (1.0, 1.0),
        // 2.5 us where nbdkit needs 9.9.
        (Client::Blast(_), true, _) => (peer.small_aim, 0.25),
        // 0.10 CPU s/GB where nbdkit needs 0.52.
        (_, false, _) => (1.5, 0.2),
        (Client::Fio, ..) => (1.6, 1.0),
        (Client::Nbdcopy, ..) => (1.0, 1.0),
    };
    let short = peer.name.split(' ').next().unwrap_or_default();
    let row = |measure: String, unit, ours, peer_value, aim| Measure {
        measure,
        ours,
        peer: peer_value,
        peer_name: peer.name.clone(),
        unit,
        aim,
    };
    [
        row(
            format!("NBD {} (against {short})", workload.name),
            unit,
            rate(ours),
            rate(theirs),
            Aim::AtLeast(rate_aim),
        ),
        row(
            format!("NBD {}: server CPU (against {short})", workload.name),
            cost_unit,
            cost(ours),
            cost(theirs),
            Aim::AtMost(cost_aim),
        ),
    ]
}

/// 256 connections at once beside 4, both ours.
fn crowd(ours: &Contender, blast: &Path, arguments: &StreamArguments) -> Result<[Measure; 2]> {
    let workload = |connections| Workload {
        name: "random 4 KiB",
        client: Client::Blast(connections),
        bytes: 4096,
        depth: 8,
        random: true,
    };
    let (mut few, mut many) = (Vec::new(), Vec::new());
    for round in 0..arguments.rounds {
        eprintln!("NBD, 4 and 256 connections: round {} of {}", round + 1, arguments.rounds);
        few.push(sample(ours, blast, &workload(4), arguments.seconds)?);
        many.push(sample(ours, blast, &workload(256), arguments.seconds)?);
    }
    let rate = |samples: &[Sample]| median(samples.iter().map(|s| s.requests_per_second).collect());
    let peer_name = "ourselves with 4 connections".to_owned();
    let worst = median(many.iter().map(|s| s.p99_us.0).collect());
    let best = median(many.iter().map(|s| s.p99_us.1).collect());
    Ok([
        Measure {
            measure: "NBD random 4 KiB, 256 connections (beside 4)".to_owned(),
            ours: rate(&many),
            peer: rate(&few),
            peer_name,
            unit: "requests/s",
            aim: Aim::AtLeast(1.0),
        },
        Measure {
            measure: "NBD p99 of 256 connections, worst beside best".to_owned(),
            ours: worst,
            peer: best,
            peer_name: "the best of the 256".to_owned(),
            unit: "us",
            aim: Aim::AtMost(2.0),
        },
    ])
}

/// Starts all four; ours is the first.
fn start(folder: &Path, raw: &Path) -> Result<Vec<Contender>> {
    let raw = raw.to_str().context("the path of the image is not UTF-8")?;
    let version = |program: &str| -> Result<String> {
        let text = output(Command::new(program).arg("--version"))?;
        Ok(text.lines().next().unwrap_or_default().trim().to_owned())
    };
    let contender = |name: String, port: u16, small_aim: f64, command: &mut Command| -> Result<Contender> {
        let log = folder.join(format!("nbd-{port}.log"));
        Ok(Contender { name, port, server: Server::start(command, port, &log)?, small_aim })
    };
    let serve: PathBuf = target().join("release/examples/nbd_serve");
    let ours = format!("127.0.0.1:{OUR_PORT}");
    let (config, pid_file) = (folder.join("nbd-server.conf"), folder.join("nbd-server.pid"));
    std::fs::write(
        &config,
        format!(
            "[generic]\nuser = root\ngroup = root\nlistenaddr = 127.0.0.1\nport = {NBD_SERVER_PORT}\nallowlist = true\n[image]\nexportname = {raw}\nreadonly = true\n"
        ),
    )?;
    let (nbdkit, qemu) = (NBDKIT_PORT.to_string(), QEMU_PORT.to_string());
    Ok(vec![
        contender(
            "Headwater".to_owned(),
            OUR_PORT,
            1.0,
            Command::new(serve).args([&ours, raw, "--read-only"]),
        )?,
        contender(
            version("nbdkit")?,
            NBDKIT_PORT,
            4.5,
            Command::new("nbdkit").args([
                "-f",
                "-r",
                "-i",
                "127.0.0.1",
                "-e",
                "image",
                "-p",
                &nbdkit,
                "file",
                raw,
            ]),
        )?,
        contender(
            version("qemu-nbd")?.replace("version ", ""),
            QEMU_PORT,
            7.0,
            Command::new("qemu-nbd").args([
                "-f",
                "raw",
                "-r",
                "-t",
                "-e",
                "300",
                "-b",
                "127.0.0.1",
                "-x",
                "image",
                "-p",
                &qemu,
                raw,
            ]),
        )?,
        Contender {
            name: version_of_nbd_server()?,
            port: NBD_SERVER_PORT,
            server: Server::start_daemon(
                Command::new("nbd-server").arg("-C").arg(&config).arg("-p").arg(&pid_file),
                NBD_SERVER_PORT,
                &pid_file,
            )?,
            small_aim: 7.0,
        },
    ])
}

/// `This is nbd-server version 3.24`, with success or without.
fn version_of_nbd_server() -> Result<String> {
    let output = Command::new("nbd-server").arg("-V").output().context("cannot start nbd-server")?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let version = text.split("nbd-server version ").nth(1).and_then(|rest| rest.split_whitespace().next());
    Ok(format!("nbd-server {}", version.unwrap_or("of unknown version")))
}

fn sample(contender: &Contender, blast: &Path, workload: &Workload, seconds: u32) -> Result<Sample> {
    let before = contender.server.settled_cpu()?;
    let (requests_per_second, requests, p99_us) = match workload.client {
        Client::Blast(connections) => with_blast(contender, blast, workload, seconds, connections)?,
        Client::Fio => with_fio(contender, workload, seconds)?,
        Client::Nbdcopy => with_nbdcopy(contender, workload, seconds)?,
    };
    let cpu = contender.server.settled_cpu()?.saturating_sub(before);
    Ok(Sample { requests_per_second, cpu_us_per_request: cpu.as_secs_f64() * 1e6 / requests, p99_us })
}

type Counted = (f64, f64, (f64, f64));

fn uri(contender: &Contender) -> String {
    let export = if contender.port == OUR_PORT { "disk" } else { "image" };
    format!("nbd://127.0.0.1:{}/{export}", contender.port)
}

fn with_blast(
    contender: &Contender,
    blast: &Path,
    workload: &Workload,
    seconds: u32,
    connections: u32,
) -> Result<Counted> {
    let order = if workload.random { "random" } else { "sequential" };
    let export = if contender.port == OUR_PORT { "disk" } else { "image" };
    let text = output(
        Command::new(blast)
            .arg(format!("127.0.0.1:{}", contender.port))
            .args(["read", order, &workload.bytes.to_string(), &workload.depth.to_string()])
            .args([&seconds.to_string(), export, &connections.to_string()]),
    )?;
    let found: serde_json::Value = serde_json::from_str(&text).context("blast printed no JSON")?;
    let number = |name: &str| found[name].as_f64().with_context(|| format!("blast printed no {name}"));
    let p99 = (number("latency_us_p99_most")?, number("latency_us_p99_least")?);
    Ok((number("requests_per_second")?, number("requests")?, p99))
}

fn with_fio(contender: &Contender, workload: &Workload, seconds: u32) -> Result<Counted> {
    let text = output(
        Command::new("fio")
            .args(["--name=bench", "--ioengine=nbd", "--rw=randread", "--time_based", "--norandommap"])
            .args(["--randrepeat=0", "--output-format=json", &format!("--uri={}", uri(contender))])
            .args([format!("--bs={}", workload.bytes), format!("--iodepth={}", workload.depth)])
            .args([format!("--runtime={seconds}"), "--size=100%".to_owned()]),
    )?;
    // Before the JSON fio says that it is connected.
    let json = text.find('{').and_then(|start| text.get(start..)).unwrap_or_default();
    let found: serde_json::Value = serde_json::from_str(json).context("fio printed no JSON")?;
    let read = &found["jobs"][0]["read"];
    let number = |name: &str| read[name].as_f64().with_context(|| format!("fio printed no {name}"));
    Ok((number("iops")?, number("total_ios")?, (f64::NAN, f64::NAN)))
}

/// Copies the whole image as often as fits in the time, at least once.
fn with_nbdcopy(contender: &Contender, workload: &Workload, seconds: u32) -> Result<Counted> {
    let uri = uri(contender);
    let size = output(Command::new("nbdinfo").args(["--size", &uri]))?;
    let Ok(size) = size.trim().parse::<f64>() else { bail!("nbdinfo printed no size:\n{size}") };
    let started = Instant::now();
    let mut copies = 0.0;
    while copies < 1.0 || started.elapsed().as_secs_f64() < f64::from(seconds) {
        let (depth, request) = (workload.depth.to_string(), format!("--request-size={}", workload.bytes));
        run(Command::new("nbdcopy").args(["-C", "1", "-R", &depth, &request, &uri, "null:"]))?;
        copies += 1.0;
    }
    let requests = copies * size / f64::from(workload.bytes);
    Ok((requests / started.elapsed().as_secs_f64(), requests, (f64::NAN, f64::NAN)))
}
