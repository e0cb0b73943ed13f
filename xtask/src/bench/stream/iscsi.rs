//! Reads over iSCSI against tgt, by libiscsi's `iscsi-perf`: we serve a dynamic VHDX through a device's write cache, as
//! a machine gets it; tgt serves the raw file.
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::clients::{self, IscsiDisk, Load, SEQUENTIAL};
use super::{Bench, Sample, of};
use crate::bench::process::Server;
use crate::bench::{Aim, Measure};
use crate::run::{output, run};

const OUR_PORT: u16 = 13_260;
const OUR_HTTP_PORT: u16 = 13_262;
const TGT_PORT: u16 = 13_261;
const TGT_CONTROL: &str = "61";
const INITIATOR: &str = "iqn.2026-11.org.headwater.bench:client";
const OUR_TARGET: &str = "iqn.2026-11.org.headwater:bench";
const TGT_TARGET: &str = "iqn.2026-11.org.headwater.bench:tgt";

/// A server that is measured.
pub(super) struct Contender {
    pub(super) disk: IscsiDisk,
    pub(super) server: Server,
}

/// Small reads.
pub(super) fn random(bench: &Bench) -> Result<Vec<Measure>> {
    let load = clients::random(32);
    let [ours, tgt] = compared(bench, load)?;
    let rate = |sample: &Sample| sample.requests_per_second;
    let cost = |sample: &Sample| sample.cpu_us_per_request;
    let name = "iSCSI random 4 KiB, depth 32";
    Ok(vec![
        beside_tgt(name.to_owned(), of(&ours, rate), of(&tgt, rate), "requests/s", Aim::AtLeast(2.0))?,
        beside_tgt(
            format!("{name}: server CPU"),
            of(&ours, cost),
            of(&tgt, cost),
            "us/request",
            Aim::AtMost(1.0),
        )?,
    ])
}

/// One small read at a time.
pub(super) fn latency(bench: &Bench) -> Result<Vec<Measure>> {
    let [ours, tgt] = compared(bench, clients::random(1))?;
    let p50 = |sample: &Sample| sample.p50_us;
    let name = "iSCSI random 4 KiB, depth 1: mean latency".to_owned();
    Ok(vec![beside_tgt(name, of(&ours, p50), of(&tgt, p50), "us", Aim::AtMost(1.0))?])
}

/// Large reads.
pub(super) fn sequential(bench: &Bench) -> Result<Vec<Measure>> {
    let [ours, tgt] = compared(bench, SEQUENTIAL)?;
    let megabytes = f64::from(SEQUENTIAL.bytes) / 1e6;
    let rate = |sample: &Sample| sample.requests_per_second * megabytes;
    let cost = |sample: &Sample| sample.cpu_us_per_request / megabytes;
    let name = "iSCSI sequential 1 MiB, depth 8";
    Ok(vec![
        beside_tgt(name.to_owned(), of(&ours, rate), of(&tgt, rate), "MB/s", Aim::AtLeast(3.0))?,
        beside_tgt(
            format!("{name}: server CPU"),
            of(&ours, cost),
            of(&tgt, cost),
            "CPU ms/GB",
            Aim::AtMost(0.1),
        )?,
    ])
}

/// A row against tgt.
pub(super) fn beside_tgt(
    measure: String,
    ours: f64,
    peer: f64,
    unit: &'static str,
    aim: Aim,
) -> Result<Measure> {
    let peer_name = format!("tgt {}", output(Command::new("tgtd").arg("--version"))?.trim());
    Ok(Measure { measure, ours, peer, peer_name, unit, aim })
}

fn compared(bench: &Bench, load: Load) -> Result<[Vec<Sample>; 2]> {
    let contenders = [start_ours(bench)?, start_tgt(bench, &bench.raw)?];
    let samples = bench.alternate(&contenders, |contender, seconds| {
        clients::sample(&contender.server, || clients::iscsi_perf(contender.disk, load, seconds))
    })?;
    <[Vec<Sample>; 2]>::try_from(samples).ok().context("two contenders have two lists of samples")
}

/// Our server with one device, whose write cache is empty.
pub(super) fn start_ours(bench: &Bench) -> Result<Contender> {
    let (folder, state) = (bench.folder.display(), bench.folder.join("state"));
    if state.exists() {
        std::fs::remove_dir_all(&state).context("cannot empty the state of an earlier run")?;
    }
    let vhdx = bench.vhdx.display();
    let text = format!(
        r#"state_dir = "{folder}/state"
admin_socket = "{folder}/headwater.sock"
[iscsi]
listen = ["127.0.0.1:{OUR_PORT}"]
[http]
listen = "127.0.0.1:{OUR_HTTP_PORT}"
[[vdisk]]
name = "image"
file = "{vhdx}"
[[device]]
name = "bench"
mac = "52:54:00:00:00:01"
vdisk = "image"
initiator = "{INITIATOR}"
"#
    );
    let config = bench.folder.join("headwater.toml");
    std::fs::write(&config, text)?;
    let mut command = Command::new(&bench.program);
    command.arg("serve").arg("--config").arg(&config);
    let server = Server::start(&mut command, OUR_PORT, &bench.folder.join("headwater.log"))?;
    let disk = IscsiDisk { port: OUR_PORT, target: OUR_TARGET, lun: 0, initiator: INITIATOR };
    Ok(Contender { disk, server })
}

/// tgt with a raw file.
pub(super) fn start_tgt(bench: &Bench, raw: &Path) -> Result<Contender> {
    let portal = format!("portal=127.0.0.1:{TGT_PORT}");
    let mut command = Command::new("tgtd");
    command.args(["-f", "-C", TGT_CONTROL, "--iscsi", &portal]);
    let server = Server::start(&mut command, TGT_PORT, &bench.folder.join("tgt.log"))?;
    let admin = |arguments: &[&str]| {
        run(Command::new("tgtadm").args(["-C", TGT_CONTROL, "--lld", "iscsi"]).args(arguments))
    };
    admin(&["--op", "new", "--mode", "target", "--tid", "1", "-T", TGT_TARGET])?;
    let raw = raw.to_str().context("the path of the image is not UTF-8")?;
    admin(&["--op", "new", "--mode", "logicalunit", "--tid", "1", "--lun", "1", "-b", raw])?;
    admin(&["--op", "bind", "--mode", "target", "--tid", "1", "-I", "ALL"])?;
    let disk = IscsiDisk { port: TGT_PORT, target: TGT_TARGET, lun: 1, initiator: INITIATOR };
    Ok(Contender { disk, server })
}
