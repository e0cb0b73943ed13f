//! `cargo xtask bench stream`: reads over iSCSI from an image that is hot in the page cache, against tgt; and those over
//! NBD, which `nbd` measures.
//!
//! Both servers run at once on loopback and serve the same bytes: we a dynamic VHDX through a write cache, as a device
//! gets it; tgt the raw file. The client is libiscsi's `iscsi-perf` for both, and runs alternate between the two. CPU
//! time is that of the server process, kernel time on its behalf included, divided by what the client counted.
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};

use super::process::Server;
use super::{Aim, Measure, median, nbd};
use crate::run::{build_program, output, run, target};

/// How long and how often.
#[derive(Args)]
pub(crate) struct StreamArguments {
    /// Runs of each server for each measure
    #[arg(long, default_value_t = 5)]
    pub(super) rounds: usize,
    /// Seconds a run
    #[arg(long, default_value_t = 3)]
    pub(super) seconds: u32,
    /// Size of the image in MiB
    #[arg(long, default_value_t = 1024)]
    image_mib: u64,
    /// Only this protocol
    #[arg(long, value_enum)]
    only: Option<Protocol>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Protocol {
    Iscsi,
    Nbd,
}

const OUR_PORT: u16 = 13_260;
const OUR_HTTP_PORT: u16 = 13_262;
const TGT_PORT: u16 = 13_261;
const TGT_CONTROL: &str = "61";
const INITIATOR: &str = "iqn.2026-11.org.headwater.bench:client";
const OUR_TARGET: &str = "iqn.2026-11.org.headwater:bench";
const TGT_TARGET: &str = "iqn.2026-11.org.headwater.bench:tgt";

/// One way to read.
struct Workload {
    name: &'static str,
    depth: u32,
    /// In logical blocks of 512 bytes.
    blocks: u32,
    random: bool,
}

const WORKLOADS: [Workload; 3] = [
    Workload { name: "random 4 KiB, depth 32", depth: 32, blocks: 8, random: true },
    Workload { name: "random 4 KiB, depth 1", depth: 1, blocks: 8, random: true },
    Workload { name: "sequential 1 MiB, depth 8", depth: 8, blocks: 2048, random: false },
];

/// What one run gave.
struct Sample {
    requests_per_second: f64,
    cpu_us_per_request: f64,
}

/// Measures and compares.
pub(super) fn measure(arguments: &StreamArguments) -> Result<Vec<Measure>> {
    lab::packages::ensure(lab::packages::BENCH)?;
    let folder = target().join("bench");
    std::fs::create_dir_all(&folder)?;
    let raw = image(&folder, arguments.image_mib)?;
    let mut measures = Vec::new();
    if arguments.only != Some(Protocol::Nbd) {
        measures.extend(iscsi(arguments, &folder, &raw)?);
    }
    if arguments.only != Some(Protocol::Iscsi) {
        measures.extend(nbd::measure(arguments, &folder, &raw)?);
    }
    Ok(measures)
}

fn iscsi(arguments: &StreamArguments, folder: &Path, raw: &Path) -> Result<Vec<Measure>> {
    let program = build_program()?;
    let ours = start_ours(&program, folder)?;
    let tgt = start_tgt(folder, raw)?;
    let peer_name = format!("tgt {}", output(Command::new("tgtd").arg("--version"))?.trim());
    let our_url = format!("iscsi://127.0.0.1:{OUR_PORT}/{OUR_TARGET}/0");
    let tgt_url = format!("iscsi://127.0.0.1:{TGT_PORT}/{TGT_TARGET}/1");
    let mut measures = Vec::new();
    for workload in &WORKLOADS {
        let (mut of_ours, mut of_tgt) = (Vec::new(), Vec::new());
        // One uncounted run each brings the whole path, and the image, into memory.
        sample(&ours, &our_url, workload, 1)?;
        sample(&tgt, &tgt_url, workload, 1)?;
        for round in 0..arguments.rounds {
            eprintln!("{}: round {} of {}", workload.name, round + 1, arguments.rounds);
            of_ours.push(sample(&ours, &our_url, workload, arguments.seconds)?);
            of_tgt.push(sample(&tgt, &tgt_url, workload, arguments.seconds)?);
        }
        measures.extend(compare(workload, &of_ours, &of_tgt, &peer_name));
    }
    Ok(measures)
}

fn compare(workload: &Workload, ours: &[Sample], tgt: &[Sample], peer_name: &str) -> [Measure; 2] {
    let mib = f64::from(workload.blocks) / 2048.0;
    let (unit, scale) = if workload.random { ("requests/s", 1.0) } else { ("MiB/s", mib) };
    let rate = |samples: &[Sample]| median(samples.iter().map(|s| s.requests_per_second * scale).collect());
    let cost = |samples: &[Sample]| median(samples.iter().map(|s| s.cpu_us_per_request).collect());
    let peer_name = peer_name.to_owned();
    [
        Measure {
            measure: format!("iSCSI {}", workload.name),
            ours: rate(ours),
            peer: rate(tgt),
            peer_name: peer_name.clone(),
            unit,
            aim: Aim::AtLeast(1.0),
        },
        Measure {
            measure: format!("iSCSI {}: server CPU", workload.name),
            ours: cost(ours),
            peer: cost(tgt),
            peer_name,
            unit: "us/request",
            aim: Aim::AtMost(1.0),
        },
    ]
}

/// The image in both forms: incompressible bytes, so that no server finds zeros to skip.
fn image(folder: &Path, mib: u64) -> Result<PathBuf> {
    let (raw, vhdx) = (folder.join("image.raw"), folder.join("image.vhdx"));
    if raw.metadata().is_ok_and(|metadata| metadata.len() == mib << 20) && vhdx.exists() {
        return Ok(raw);
    }
    eprintln!("making an image of {mib} MiB");
    let mut random = std::fs::File::open("/dev/urandom").context("cannot open /dev/urandom")?;
    let mut file = std::fs::File::create(&raw).with_context(|| format!("cannot write {}", raw.display()))?;
    std::io::copy(&mut std::io::Read::take(&mut random, mib << 20), &mut file)?;
    run(Command::new("qemu-img").args(["convert", "-f", "raw", "-O", "vhdx"]).arg(&raw).arg(&vhdx))?;
    Ok(raw)
}

fn start_ours(program: &Path, folder: &Path) -> Result<Server> {
    let config = folder.join("headwater.toml");
    std::fs::write(&config, our_config(folder))?;
    let mut command = Command::new(program);
    command.arg("serve").arg("--config").arg(&config);
    Server::start(&mut command, OUR_PORT, &folder.join("headwater.log"))
}

fn our_config(folder: &Path) -> String {
    let folder = folder.display();
    format!(
        r#"state_dir = "{folder}/state"
admin_socket = "{folder}/headwater.sock"
[iscsi]
listen = ["127.0.0.1:{OUR_PORT}"]
[http]
listen = "127.0.0.1:{OUR_HTTP_PORT}"
[[vdisk]]
name = "image"
file = "{folder}/image.vhdx"
[[device]]
name = "bench"
mac = "52:54:00:00:00:01"
vdisk = "image"
initiator = "{INITIATOR}"
"#
    )
}

fn start_tgt(folder: &Path, raw: &Path) -> Result<Server> {
    let portal = format!("portal=127.0.0.1:{TGT_PORT}");
    let mut command = Command::new("tgtd");
    command.args(["-f", "-C", TGT_CONTROL, "--iscsi", &portal]);
    let server = Server::start(&mut command, TGT_PORT, &folder.join("tgt.log"))?;
    let admin = |arguments: &[&str]| {
        run(Command::new("tgtadm").args(["-C", TGT_CONTROL, "--lld", "iscsi"]).args(arguments))
    };
    admin(&["--op", "new", "--mode", "target", "--tid", "1", "-T", TGT_TARGET])?;
    let raw = raw.to_str().context("the path of the image is not UTF-8")?;
    admin(&["--op", "new", "--mode", "logicalunit", "--tid", "1", "--lun", "1", "-b", raw])?;
    admin(&["--op", "bind", "--mode", "target", "--tid", "1", "-I", "ALL"])?;
    Ok(server)
}

fn sample(server: &Server, url: &str, workload: &Workload, seconds: u32) -> Result<Sample> {
    let mut command = Command::new("iscsi-perf");
    command.args(["-i", INITIATOR, "-m", &workload.depth.to_string(), "-b", &workload.blocks.to_string()]);
    command.args(["-t", &seconds.to_string()]).args(workload.random.then_some("-r")).arg(url);
    let before = server.cpu()?;
    let text = output(&mut command)?;
    let cpu = server.cpu()?.saturating_sub(before);
    let Some(requests_per_second) = average(&text) else { bail!("iscsi-perf printed no average:\n{text}") };
    let requests = requests_per_second * f64::from(seconds);
    Ok(Sample { requests_per_second, cpu_us_per_request: cpu.as_secs_f64() * 1e6 / requests })
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
