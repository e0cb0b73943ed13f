//! `cargo xtask bench storm`: a thousand devices are switched on together.
//!
//! A real `headwater serve` in a network of its own, and simulated devices beside it, each with a card, an address and an initiator
//! of its own. Each does what a BIOS machine does: DHCP twice, the boot file, the script (and waits if it is told to), a login,
//! the recorded reads of a first stage one at a time, a second login by another program, those of the second stage some at a
//! time, and the ready beacon. They read as fast as they get, without the pauses in which a real machine computes: this is the worst that
//! so many machines can do. One that fails fails the bench.
//!
//! Then the reads alone, against tgt, which is given the same disk as a raw file: there is no other server that does the rest.
mod devices;
mod firmware;
mod session;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use lab::{Network, SERVER_ADDRESS, Server, ServerSpec, Service};
use serde_json::Value;

use super::{Aim, Measure};
use crate::run::{build_program, root, run};
pub(crate) use devices::DeviceArguments;
pub(crate) use devices::run as run_devices;
use devices::{STEPS, TOTAL, mac};

/// How large the storm is.
#[derive(Args)]
pub(crate) struct StormArguments {
    /// Devices
    #[arg(long, default_value_t = 1000)]
    devices: u32,
    /// Over how many milliseconds they are switched on
    #[arg(long, default_value_t = 10_000)]
    within_ms: u64,
    /// How many may boot at a time; 0: all
    #[arg(long, default_value_t = 0)]
    at_once: u32,
    /// The trace that they replay, as `headwater trace record` writes it
    #[arg(long)]
    trace: Option<PathBuf>,
    /// Without tgt
    #[arg(long)]
    alone: bool,
    /// The program to measure; by default its release build
    #[arg(long)]
    program: Option<PathBuf>,
}

/// Memory that the server may have at most, in MiB: it must not grow with what devices read.
const MEMORY_AIM_MIB: f64 = 1024.0;
const TGT_PORT: u16 = 3261;
const TGT_NAME: &str = "iqn.2026-01.lab.peer:storm";

/// What a round of all devices gave.
struct Round {
    /// Of each device that got to the end.
    steps: Vec<Value>,
    bytes: u64,
    seconds: f64,
    cost: Cost,
}

/// What the kernel counts of a process.
#[derive(Clone, Copy)]
struct Cost {
    cpu_s: f64,
    disk_bytes: u64,
}

/// Measures.
///
/// # Errors
/// Where something needed is missing, or a device fails.
pub(crate) fn measure(arguments: &StormArguments) -> Result<Vec<Measure>> {
    lab::packages::ensure(lab::packages::DEMO)?;
    lab::packages::ensure(lab::packages::BENCH)?;
    let program = arguments.program.clone().map_or_else(build_program, Ok)?;
    let image = lab::golden::golden()?;
    let network = Network::begin("bench-storm")?;
    let crowd = network.crowd()?;
    let configuration = configuration(&network, &image.vhdx, arguments);
    let mut server = Server::start(&network, ServerSpec::new(program, configuration))?;
    let pid = server.service().pid();
    let devices = |target: Option<&str>| {
        let mut command = crowd.command(std::env::current_exe()?);
        command.args(["storm-devices", "--server", SERVER_ADDRESS]);
        command.arg("--devices").arg(arguments.devices.to_string());
        command.arg("--within-ms").arg(arguments.within_ms.to_string());
        command.arg("--trace").arg(trace_file(arguments));
        if let Some(target) = target {
            command.arg("--target").arg(target);
        }
        Ok::<Command, anyhow::Error>(command)
    };
    super::forget_pages(&image.vhdx)?;
    let storm = round(devices(None)?, pid).context("the storm")?;
    let mut measures = of_storm(&storm, arguments.devices);
    measures.push(told("server memory at most, MiB", peak_mib(pid)?, "MiB", Aim::OursAtMost(MEMORY_AIM_MIB)));
    if !arguments.alone {
        let tgt = start_tgt(&network, &image.vhdx)?;
        let ours = round(devices(Some("3260/0/iqn.2026-11.org.headwater:storm-NUMBER"))?, pid);
        let peer = round(devices(Some(&format!("{TGT_PORT}/1/{TGT_NAME}")))?, tgt.pid());
        measures.extend(against(
            &ours.context("reads")?,
            &peer.context("reads from tgt")?,
            arguments.devices,
        ));
    }
    Ok(measures)
}

fn trace_file(arguments: &StormArguments) -> PathBuf {
    arguments.trace.clone().unwrap_or_else(|| root().join("bench/traces/bios.csv.gz"))
}

/// Runs all devices to their end, and looks what that cost the server.
fn round(mut devices: Command, server: u32) -> Result<Round> {
    let (before, began) = (Cost::of(server)?, Instant::now());
    let output = devices.stderr(Stdio::inherit()).output().context("cannot start the devices")?;
    let (after, seconds) = (Cost::of(server)?, began.elapsed().as_secs_f64());
    ensure!(output.status.success(), "the devices ended with {}", output.status);
    let (mut steps, mut bytes, mut failures) = (Vec::new(), 0, Vec::new());
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let told: Value = serde_json::from_str(line).with_context(|| format!("no device: {line}"))?;
        match told["failure"].as_str() {
            Some(failure) => failures.push(failure.to_owned()),
            None => {
                bytes += told["bytes"].as_u64().unwrap_or(0);
                steps.push(told["steps_ms"].clone());
            }
        }
    }
    if let Some(first) = failures.first() {
        bail!("{} devices failed of {}, the first: {first}", failures.len(), failures.len() + steps.len());
    }
    let cost = Cost { cpu_s: after.cpu_s - before.cpu_s, disk_bytes: after.disk_bytes - before.disk_bytes };
    Ok(Round { steps, bytes, seconds, cost })
}

impl Round {
    /// A percentile of a step, in seconds.
    fn percentile(&self, step: &str, percent: usize) -> f64 {
        let mut values: Vec<f64> = self.steps.iter().filter_map(|steps| steps[step].as_f64()).collect();
        values.sort_by(f64::total_cmp);
        let place = (values.len() * percent).div_ceil(100).saturating_sub(1);
        values.get(place).map_or(f64::NAN, |ms| ms / 1000.0)
    }

    fn cpu_ms(&self, devices: u32) -> f64 {
        self.cost.cpu_s * 1000.0 / f64::from(devices)
    }

    #[allow(clippy::cast_precision_loss, reason = "a figure for people")]
    fn mib_per_s(&self) -> f64 {
        self.bytes as f64 / f64::from(1 << 20) / self.seconds
    }
}

#[allow(clippy::cast_precision_loss, reason = "figures for people")]
fn of_storm(storm: &Round, devices: u32) -> Vec<Measure> {
    let mut measures = Vec::new();
    for step in STEPS.into_iter().chain([TOTAL]) {
        for percent in [50, 95, 99] {
            let name = format!("{step}: p{percent}");
            measures.push(told(&name, storm.percentile(step, percent), "s", Aim::Told));
        }
    }
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let from_disk = storm.cost.disk_bytes;
    let from_memory = mib(storm.bytes.saturating_sub(from_disk));
    measures.extend([
        told("read by the devices", mib(storm.bytes), "MiB", Aim::Told),
        told("of that from disk", mib(from_disk), "MiB", Aim::Told),
        told("of that from the page cache", from_memory, "MiB", Aim::Told),
        told("read a second", storm.mib_per_s(), "MiB/s", Aim::Told),
        told("server CPU a boot", storm.cpu_ms(devices), "ms", Aim::Told),
    ]);
    measures
}

fn against(ours: &Round, peer: &Round, devices: u32) -> Vec<Measure> {
    let row = |measure: &str, ours: f64, peer: f64, unit, aim| Measure {
        measure: format!("reads alone: {measure}"),
        ours,
        peer,
        peer_name: "tgt".to_owned(),
        unit,
        aim,
    };
    let of = |percent| (ours.percentile(TOTAL, percent), peer.percentile(TOTAL, percent));
    let [(p50, peer50), (p99, peer99)] = [of(50), of(99)];
    vec![
        row("a boot's reads, p50", p50, peer50, "s", Aim::AtMost(1.0)),
        row("a boot's reads, p99", p99, peer99, "s", Aim::AtMost(1.0)),
        row("read a second", ours.mib_per_s(), peer.mib_per_s(), "MiB/s", Aim::AtLeast(1.0)),
        row("server CPU a boot", ours.cpu_ms(devices), peer.cpu_ms(devices), "ms", Aim::AtMost(1.0)),
    ]
}

/// A figure of ours that nobody else has.
fn told(measure: &str, ours: f64, unit: &'static str, aim: Aim) -> Measure {
    let (measure, peer_name) = (format!("storm: {measure}"), "none".to_owned());
    Measure { measure, ours, peer: f64::NAN, peer_name, unit, aim }
}

impl Cost {
    fn of(pid: u32) -> Result<Self> {
        let read = |file: &str| {
            let path = format!("/proc/{pid}/{file}");
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))
        };
        let stat = read("stat")?;
        // proc(5): utime and stime are fields 14 and 15, in hundredths of a second; the command name may hold spaces.
        let times = stat.rsplit_once(") ").context("unexpected /proc/PID/stat")?.1.split(' ');
        let ticks: u32 = times.skip(11).take(2).filter_map(|field| field.parse::<u32>().ok()).sum();
        let io = read("io")?;
        let disk = io.lines().find_map(|line| line.strip_prefix("read_bytes: ")?.parse().ok());
        Ok(Self {
            cpu_s: f64::from(ticks) / 100.0,
            disk_bytes: disk.context("no read_bytes in /proc/PID/io")?,
        })
    }
}

/// The most memory that a process has had.
fn peak_mib(pid: u32) -> Result<f64> {
    let path = format!("/proc/{pid}/status");
    let status = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib: Option<f64> = line.and_then(|line| line.trim().split(' ').next()?.parse().ok());
    Ok(kib.with_context(|| format!("no VmHWM in {path}"))? / 1024.0)
}

fn start_tgt(network: &Network, vhdx: &Path) -> Result<Service> {
    let raw = network.folder().join("storm.raw");
    run(Command::new("qemu-img").args(["convert", "-f", "vhdx", "-O", "raw"]).arg(vhdx).arg(&raw))?;
    // tgtd's control socket is the machine's, not the namespace's: give it a number of its own.
    let control = (std::process::id() % 30_000).to_string();
    let mut command = network.command("tgtd");
    command.args(["-f", "-C", &control, "--iscsi", &format!("portal={SERVER_ADDRESS}:{TGT_PORT}")]);
    let mut tgt = network.service("tgtd", command)?;
    tgt.wait_until_listening(&[TGT_PORT], &[])?;
    let raw = raw.to_string_lossy().into_owned();
    let orders: [&[&str]; 3] = [
        &["--mode", "target", "--op", "new", "--tid", "1", "-T", TGT_NAME],
        &["--mode", "logicalunit", "--op", "new", "--tid", "1", "--lun", "1", "-b", &raw],
        &["--mode", "target", "--op", "bind", "--tid", "1", "-I", "ALL"],
    ];
    for order in orders {
        run(network.command("tgtadm").args(["-C", &control, "--lld", "iscsi"]).args(order))?;
    }
    Ok(tgt)
}

fn configuration(network: &Network, image: &Path, arguments: &StormArguments) -> String {
    let folder = network.folder().display();
    let mut text = format!(
        "state_dir = \"{folder}/state\"\nadmin_socket = \"{}\"\n[admission]\nat_once = {}\n[[interface]]\nname = \"{}\"\n\
         mode = \"dhcp\"\nrange = \"10.78.0.1-10.78.127.254\"\nnetmask = \"255.252.0.0\"\n[[vdisk]]\nname = \"golden\"\nfile = \"{}\"\n",
        network.socket("headwater").display(),
        arguments.at_once,
        lab::INTERFACE,
        image.display(),
    );
    for number in 0..arguments.devices {
        let mac = mac(number).map(|byte| format!("{byte:02x}")).join(":");
        text.push_str(&format!(
            "[[device]]\nname = \"storm-{number}\"\nmac = \"{mac}\"\nvdisk = \"golden\"\n"
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_devices_in_order() {
        let steps = (1..=100).rev().map(|ms| serde_json::json!({ TOTAL: f64::from(ms) * 1000.0 })).collect();
        let round = Round { steps, bytes: 0, seconds: 1.0, cost: Cost { cpu_s: 1.0, disk_bytes: 0 } };
        let told = [50, 95, 99].map(|percent| format!("{:.0}", round.percentile(TOTAL, percent)));
        assert_eq!(told, ["50", "95", "99"]);
        assert!(round.percentile("nothing", 50).is_nan());
    }
}
