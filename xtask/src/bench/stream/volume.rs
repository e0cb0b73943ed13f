//! A server for the bench: one vDisk, of one file or of a chain, with an empty write cache, over NBD.
//!
//! It is this program started anew (`cargo xtask serve-volume`), so that its CPU time can be told from the bench's.
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result};
use block::{BlockDevice, ByteLength, ByteOffset, Patience};
use clap::Args;
use diskimage::{Image, MutableImage, OpenOptions};
use nbd::exports::{
    ConnectionEnd, Export, ExportObserver, Exports, Listed, Peer, Purpose, Refusal, RequestDone,
};
use nbd::server::{Listener, NbdServer, ServerConfig};
use vdisk::{
    BootId, CacheObserver, CacheUsage, DEFAULT_WARN_PERCENT, FullCause, ImageFingerprint, Volume,
    WriteCacheConfig, WriteCacheKind,
};

use super::clients::{self, NbdExport, SEQUENTIAL};
use super::nbd::Contender;
use super::{Bench, Sample, of};
use crate::bench::process::Server;
use crate::bench::{Aim, Measure};
use crate::run::run;

const PORT: u16 = 13_280;
const CHAIN_PORT: u16 = 13_282;

/// How many differences lie over the base.
const DIFFERENCES: u64 = 30;
/// What each of them holds: so many runs, each so long, spread over the disk.
const RUNS: u64 = 64;
const RUN_BYTES: u64 = 128 * 1024;

/// What to serve.
#[derive(Args)]
pub(crate) struct VolumeArguments {
    port: u16,
    image: PathBuf,
    /// For the write cache; made where it is missing
    folder: PathBuf,
}

/// Serves until it is killed.
pub(crate) fn serve(arguments: &VolumeArguments) -> Result<()> {
    let image: Arc<dyn BlockDevice> = Arc::new(Image::open(&arguments.image, OpenOptions::default())?);
    std::fs::create_dir_all(&arguments.folder)?;
    let config = WriteCacheConfig {
        kind: WriteCacheKind::Volatile,
        directory: arguments.folder.clone(),
        device: format!("bench-{}", arguments.port),
        limit: ByteLength::new(1 << 40),
        warn_percent: DEFAULT_WARN_PERCENT,
    };
    let (fingerprint, boot) = (ImageFingerprint([0; 32]), BootId::new("bench")?);
    let volume = Volume::begin_boot(image, fingerprint, &config, boot, Arc::new(Unheard))?;
    let listener = TcpListener::bind(("127.0.0.1", arguments.port))?;
    let exports = Arc::new(OneVolume(Arc::new(volume)));
    let _server = NbdServer::start(vec![Listener::Tcp(listener)], ServerConfig::default(), exports)?;
    loop {
        std::thread::park();
    }
}

struct OneVolume(Arc<Volume>);

#[derive(Debug)]
struct Unheard;

impl Exports for OneVolume {
    fn list(&self, _: &Peer) -> Vec<Listed> {
        Vec::new()
    }

    fn open(&self, _: &str, _: Purpose, _: &Peer) -> Result<Export, Refusal> {
        Ok(Export {
            device: Arc::clone(&self.0) as Arc<dyn BlockDevice>,
            description: String::new(),
            read_only: false,
            multi_conn: true,
            fast_zero: true,
            observer: Arc::new(Unheard),
            account: meter::Account::default(),
        })
    }
}

impl ExportObserver for Unheard {
    fn request_done(&self, _: &RequestDone) {}
    fn ended(&self, _: ConnectionEnd) {}
}

impl CacheObserver for Unheard {
    fn warning(&self, _: &str, _: CacheUsage) {}
    fn full(&self, _: &str, _: CacheUsage, _: FullCause) {}
}

/// The base alone, with an empty write cache.
pub(super) fn start_empty(bench: &Bench) -> Result<Contender> {
    start(bench, PORT, bench.vhdx.clone())
}

fn start(bench: &Bench, port: u16, image: PathBuf) -> Result<Contender> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["serve-volume", &port.to_string()]).arg(image).arg(bench.folder.join("volumes"));
    let server = Server::start(&mut command, port, &bench.folder.join(format!("volume-{port}.log")))?;
    Ok(Contender { name: "Headwater".to_owned(), export: NbdExport { port, name: "disk" }, server })
}

/// A chain of differences beside the raw image.
pub(super) fn chain(bench: &Bench) -> Result<Vec<Measure>> {
    let leaf = make_chain(bench)?;
    // Both through a write cache, as a device has it.
    let contenders = [start(bench, CHAIN_PORT, leaf)?, start(bench, PORT, bench.raw.clone())?];
    let mut rows = Vec::new();
    for (name, load) in
        [("random 4 KiB, depth 32", clients::random(32)), ("sequential 1 MiB, depth 8", SEQUENTIAL)]
    {
        let samples = bench.alternate(&contenders, |contender, seconds| {
            clients::sample(&contender.server, || clients::blast(bench, contender.export, load, seconds))
        })?;
        let [chain, raw] = samples.as_slice() else { continue };
        let (unit, scale) =
            if load.random { ("requests/s", 1.0) } else { ("MB/s", f64::from(load.bytes) / 1e6) };
        let rate = |sample: &Sample| sample.requests_per_second * scale;
        let cost = |sample: &Sample| sample.cpu_us_per_request;
        let peer_name = || "ourselves with a raw image".to_owned();
        let name = format!("NBD {name}, {DIFFERENCES} differences on a VHDX (beside raw)");
        let (ours, peer, aim) = (of(chain, rate), of(raw, rate), Aim::AtLeast(0.95));
        rows.push(Measure { measure: name.clone(), ours, peer, peer_name: peer_name(), unit, aim });
        let (measure, aim) = (format!("{name}: server CPU"), Aim::AtMost(1.05));
        let (ours, peer, unit) = (of(chain, cost), of(raw, cost), "us/request");
        rows.push(Measure { measure, ours, peer, peer_name: peer_name(), unit, aim });
    }
    Ok(rows)
}

/// Makes the chain, or takes that of an earlier run; its leaf.
fn make_chain(bench: &Bench) -> Result<PathBuf> {
    let folder = bench.folder.join("chain");
    let name = |number: u64| folder.join(format!("image.{number}.vhdx"));
    let done = folder.join("done");
    if !done.exists() {
        eprintln!("making a chain of {DIFFERENCES} differences");
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder)?;
        std::fs::copy(&bench.vhdx, name(0))?;
        for number in 1..=DIFFERENCES {
            let (parent, leaf) = (name(number - 1), name(number));
            let mut snapshot = Command::new(&bench.program);
            run(snapshot.args(["image", "snapshot", "--quiet"]).arg(&parent).arg(&leaf))?;
            change(&parent, &leaf, number).context("cannot fill a difference")?;
        }
        std::fs::write(&done, "")?;
    }
    for number in 0..=DIFFERENCES {
        std::io::copy(&mut std::fs::File::open(name(number))?, &mut std::io::sink())?;
    }
    Ok(name(DIFFERENCES))
}

/// Writes the runs of one difference. Those of all lie between each other.
fn change(parent: &std::path::Path, leaf: &std::path::Path, number: u64) -> Result<()> {
    let parent: Arc<dyn BlockDevice> = Arc::new(Image::open(parent, OpenOptions::default())?);
    let stride = parent.geometry().size.get() / RUNS;
    let image = MutableImage::open(leaf, None, Some(parent), &diskimage::Childless)?;
    let data: Vec<u8> = (0..RUN_BYTES).map(|at| (at * number % 251) as u8).collect();
    for run in 0..RUNS {
        let start = (run * stride + number * RUN_BYTES) % (stride * RUNS - RUN_BYTES) / 4096 * 4096;
        image.write(ByteOffset::new(start), &data, Patience::Blocking)?;
    }
    image.close()?;
    Ok(())
}
