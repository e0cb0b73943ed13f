//! `cargo xtask bench console`: what the web console costs, at the size of a large farm.
//!
//! A server with a farm of 10,000 devices is asked for pages over HTTPS, on a connection that stays, as a browser does: first
//! with nothing else to do, then while 200 boots a second begin, each of which every open console is told of. At last a
//! device reads its disk over iSCSI while consoles are open (each listens to the events, and reads the live part of the overview
//! anew every second) and while none is, in turn. There is no peer that runs here; what is asked of us stands in the peer's column.
//! In between a real Chromium watches boots begin ([`browser`]).
mod browser;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use lab::free_port;

use super::process::Server;
use super::{Aim, Measure, median};
use crate::run::{build_program, cargo, output, run, target};

/// How large the farm is, and how long is measured.
#[derive(Args)]
pub(crate) struct ConsoleArguments {
    /// Devices of the farm
    #[arg(long, default_value_t = 10_000)]
    devices: u32,
    /// How often each page is asked for
    #[arg(long, default_value_t = 100)]
    rounds: usize,
    /// Consoles that are open in the last part
    #[arg(long, default_value_t = 20)]
    consoles: u32,
    /// Seconds of each run of the last part, of which there are three with consoles and three without
    #[arg(long, default_value_t = 5)]
    seconds: u32,
    /// Seconds for which a browser watches boots begin, on each of three pages
    #[arg(long, default_value_t = 12)]
    watched: u32,
}

/// The pages: name, address.
const PAGES: &[(&str, &str)] = &[
    ("overview", "/"),
    ("devices", "/devices"),
    ("devices, a search", "/devices?q=077"),
    ("boots of the last day", "/boots"),
    ("a device", "/devices/pc-05000"),
    ("vDisks", "/vdisks"),
    ("audit", "/audit"),
    ("table of devices alone", "/devices/table"),
];

/// The pages that a browser shows while boots begin, each of which is renewed by every boot: name, address.
const WATCHED: &[(&str, &str)] =
    &[("the boots", "/boots"), ("the devices", "/devices"), ("the overview", "/")];

/// How often a page is asked for that reads what devices do.
const SELDOM_ROUNDS: usize = 20;

/// What a page may take.
const PAGE_MS: f64 = 30.0;
/// How many boots begin in a second while pages are asked for.
const UPDATES_A_SECOND: u32 = 200;
const PATIENCE: Duration = Duration::from_secs(60);
const ASKED: &str = "what is asked";
const PASSWORD: &str = "correct-horse-battery";
const WELCOME: &str = "sets a password with the token ";
/// The device that reads, and its initiator.
const DEVICE: &str = "bench-reader";
const MAC: &str = "52:54:00:be:4c:01";
const INITIATOR: &str = "iqn.2026-11.org.headwater:bench-reader:initiator";
const IMAGE: &str = "256M";

/// Measures.
///
/// # Errors
/// Where something needed is missing, or the server does not answer.
pub(super) fn measure(arguments: &ConsoleArguments) -> Result<Vec<Measure>> {
    lab::packages::ensure(lab::packages::BENCH)?;
    lab::packages::ensure(lab::packages::SCREENSHOTS)?;
    let farm = Farm::start(arguments)?;
    let mut measures = Vec::new();
    for (name, path) in PAGES {
        measures.extend(farm.page(&format!("page: {name}"), path, arguments.rounds, Asked::AtOnce)?);
    }
    let updates = Updates::begin(farm.http, arguments.devices, 0);
    for (name, path) in
        PAGES.iter().filter(|(name, _)| ["overview", "devices", "boots of the last day"].contains(name))
    {
        let name = format!("page: {name}, while {UPDATES_A_SECOND} boots a second begin");
        measures.extend(farm.page(&name, path, arguments.rounds, Asked::AtOnce)?);
    }
    let (told, _) = updates.end()?;
    measures.push(Measure {
        measure: "boots that began in a second meanwhile".to_owned(),
        ours: told,
        peer: f64::from(UPDATES_A_SECOND),
        peer_name: ASKED.to_owned(),
        unit: "1/s",
        aim: Aim::AtLeast(0.95),
    });
    let watcher = browser::Watcher::open(&farm.url(""));
    // Devices that have not booted yet: one that asks again goes on with the boot that it began.
    let (mut from, mut boots) = (arguments.devices / 5, 0);
    for (name, path) in WATCHED {
        watcher.watch(path);
        let begun = farm.boots(arguments, from)?;
        from += begun.boots + begun.boots / 10;
        boots += begun.boots;
        measures.extend(watcher.seen(name, &begun)?);
    }
    let name = format!("page: overview, its figures read anew, with {boots} boots under way");
    measures.extend(farm.page(&name, "/overview/live", SELDOM_ROUNDS, Asked::Seldom)?);
    measures.push(farm.reads(arguments)?);
    Ok(measures)
}

/// How a page is asked for again and again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// At once: what devices do is read once a second, so the others have it already.
    AtOnce,
    /// So seldom that each time it is read anew.
    Seldom,
}

/// A server with a large farm, and somebody logged in.
struct Farm {
    folder: PathBuf,
    http: u16,
    iscsi: u16,
    api: u16,
    server: Server,
}

impl Farm {
    fn start(arguments: &ConsoleArguments) -> Result<Self> {
        let program = build_program()?;
        run(&mut cargo(&["build", "--release", "--package", "iscsi", "--examples"]))?;
        let folder = target().join("bench-console");
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        std::fs::create_dir_all(folder.join("boot"))?;
        std::fs::create_dir_all(folder.join("store"))?;
        let mut figures =
            cargo(&["run", "--quiet", "--release", "--package", "farm", "--example", "figures", "--"]);
        output(figures.args([arguments.devices.to_string(), "1".to_owned()]).arg(&folder))?;
        let image = folder.join("store/bench.vhdx");
        run(Command::new("qemu-img").args(["create", "-q", "-f", "vhdx"]).arg(&image).arg(IMAGE))?;
        run(Command::new("qemu-io").args(["-f", "vhdx", "-c", "write -q -P 0x5a 0 256M"]).arg(&image))?;
        let [iscsi, http, api] = [free_port(), free_port(), free_port()];
        let file = folder.join("headwater.toml");
        std::fs::write(&file, configuration(&folder, [iscsi, http, api])?)?;
        let mut command = Command::new(program);
        command.args(["serve", "--log", "info", "--config"]).arg(&file);
        let log = folder.join("server.log");
        let server = Server::start(&mut command, api, &log)?;
        let farm = Self { folder, http, iscsi, api, server };
        farm.log_in(&token(&log)?)?;
        Ok(farm)
    }

    /// `curl` as whoever is logged in.
    fn curl(&self) -> Command {
        let mut command = Command::new("curl");
        command
            .args(["--silent", "--show-error", "--fail", "--insecure", "--cookie"])
            .arg(self.folder.join("cookies"));
        command
    }

    fn url(&self, path: &str) -> String {
        format!("https://127.0.0.1:{}{path}", self.api)
    }

    fn log_in(&self, token: &str) -> Result<()> {
        let mut command = self.curl();
        command.arg("--cookie-jar").arg(self.folder.join("cookies"));
        for field in [format!("token={token}"), format!("password={PASSWORD}"), format!("again={PASSWORD}")] {
            command.args(["--data-urlencode", &field]);
        }
        output(command.arg(self.url("/first-log-in"))).map(drop)
    }

    /// How long a page takes: p95 and median, on one connection.
    fn page(&self, name: &str, path: &str, rounds: usize, asked: Asked) -> Result<[Measure; 2]> {
        let mut command = self.curl();
        if asked == Asked::Seldom {
            command.args(["--rate", "50/m"]);
        }
        command.args(["--write-out", "%{time_total} %{http_code}\\n"]);
        // The first pays for the connection, and is not counted.
        for _ in 0..=rounds {
            command.args(["--output", "/dev/null"]).arg(self.url(path));
        }
        let text = output(&mut command)?;
        // A page that leads elsewhere is quick, and none.
        let other = text.lines().find(|line| !line.ends_with(" 200"));
        ensure!(other.is_none(), "{path} was not answered with a page: {}", other.unwrap_or_default());
        let times: Option<Vec<f64>> =
            text.lines().skip(1).map(|line| line.split(' ').next()?.parse::<f64>().ok()).collect();
        let mut times = times.with_context(|| format!("curl told no times of {path}:\n{text}"))?;
        ensure!(times.len() == rounds, "{path} was answered {} of {rounds} times", times.len());
        times.iter_mut().for_each(|seconds| *seconds *= 1e3);
        times.sort_by(f64::total_cmp);
        let p95 = times.get(rounds * 95 / 100).copied().unwrap_or(f64::NAN);
        let told = |what: &str, ours, aim| Measure {
            measure: format!("{name}: {what}"),
            ours,
            peer: PAGE_MS,
            peer_name: ASKED.to_owned(),
            unit: "ms",
            aim,
        };
        Ok([told("p95", p95, Aim::AtMost(1.0)), told("median", median(times), Aim::Told)])
    }

    /// Has boots begin for a while.
    fn boots(&self, arguments: &ConsoleArguments, from: u32) -> Result<browser::Begun> {
        let cpu = self.server.cpu()?;
        let updates = Updates::begin(self.http, arguments.devices, from);
        std::thread::sleep(Duration::from_secs(u64::from(arguments.watched)));
        let (a_second, boots) = updates.end()?;
        let processors = (self.server.cpu()? - cpu).as_secs_f64() * a_second / f64::from(boots);
        Ok(browser::Begun { boots, a_second, processors })
    }

    /// What a device reads in a second while consoles are open, beside while none is.
    fn reads(&self, arguments: &ConsoleArguments) -> Result<Measure> {
        let [mut with, mut without] = [Vec::new(), Vec::new()];
        self.blast(1)?;
        for _ in 0..3 {
            without.push(self.blast(arguments.seconds)?);
            let mut open = Consoles::open(self, arguments)?;
            with.push(self.blast(arguments.seconds)?);
            open.are_served()?;
        }
        Ok(Measure {
            measure: format!("iSCSI random 4 KiB, depth 8, while {} consoles are open", arguments.consoles),
            ours: median(with),
            peer: median(without),
            peer_name: "ourselves without a console".to_owned(),
            unit: "requests/s",
            aim: Aim::AtLeast(0.97),
        })
    }

    fn blast(&self, seconds: u32) -> Result<f64> {
        let script = ask(self.http, &format!("/v1/boot/script?mac={MAC}&platform=pcbios"))?;
        let target = script.split(":iqn.").nth(1).and_then(|rest| rest.split_whitespace().next());
        let target = format!("iqn.{}", target.with_context(|| format!("no target in:\n{script}"))?);
        let mut command = Command::new(crate::run::target().join("release/examples/iscsi_blast"));
        command.arg(format!("127.0.0.1:{}", self.iscsi));
        command.args([target.as_str(), "0", INITIATOR, "read", "random", "4096", "8", &seconds.to_string()]);
        let told: serde_json::Value = serde_json::from_str(&output(&mut command)?)?;
        told["requests_per_second"].as_f64().context("the client printed no requests_per_second")
    }
}

/// Consoles that listen, and read the live part of the overview anew every second.
struct Consoles(Vec<Child>);

impl Consoles {
    fn open(farm: &Farm, arguments: &ConsoleArguments) -> Result<Self> {
        let mut children = Vec::new();
        for _ in 0..arguments.consoles {
            let mut listens = farm.curl();
            listens.arg("--no-buffer").arg(farm.url("/live"));
            let mut reads = farm.curl();
            reads.args(["--rate", "60/m"]);
            for _ in 0..arguments.seconds + 2 {
                reads.arg(farm.url("/overview/live"));
            }
            for mut command in [listens, reads] {
                children.push(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
            }
        }
        Ok(Self(children))
    }

    /// That none of them was refused.
    fn are_served(&mut self) -> Result<()> {
        for child in &mut self.0 {
            let ended = child.try_wait()?;
            ensure!(
                ended.is_none_or(|status| status.success()),
                "a console was refused: curl ended with {ended:?}"
            );
        }
        Ok(())
    }
}

impl Drop for Consoles {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // Those that only read may have ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Boots that begin, so many a second, until it is ended.
struct Updates {
    ending: std::sync::Arc<AtomicBool>,
    begun: std::sync::Arc<AtomicU32>,
    since: Instant,
    threads: Vec<std::thread::JoinHandle<Result<()>>>,
}

impl Updates {
    /// How many machines ask at once: on a busy machine each waits for its answer.
    const AT_ONCE: u32 = 32;

    fn begin(http: u16, devices: u32, from: u32) -> Self {
        let (ending, begun) = <(std::sync::Arc<AtomicBool>, std::sync::Arc<AtomicU32>)>::default();
        let since = Instant::now();
        let thread = |first: u32| {
            let (ending, begun) = (ending.clone(), begun.clone());
            std::thread::spawn(move || {
                let mut number = first;
                while !ending.load(Ordering::Relaxed) {
                    let due = Duration::from_secs(1) * number / UPDATES_A_SECOND;
                    std::thread::sleep(due.saturating_sub(since.elapsed()));
                    // Each fiftieth device is one for tests, which is shown a menu: that is no boot.
                    let device = (from + number + number / 49) % devices.max(1) + 1;
                    let script = ask(http, &format!("/v1/boot/script?mac={}&platform=pcbios", mac(device)))?;
                    begun.fetch_add(u32::from(script.contains(":iqn.")), Ordering::Relaxed);
                    number += Self::AT_ONCE;
                }
                Ok(())
            })
        };
        let threads = (0..Self::AT_ONCE).map(thread).collect();
        Self { ending, begun, since, threads }
    }

    /// How many began in a second, and how many in all.
    fn end(self) -> Result<(f64, u32)> {
        let rate = f64::from(self.begun.load(Ordering::Relaxed)) / self.since.elapsed().as_secs_f64();
        self.ending.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a machine's thread panicked")))?;
        }
        Ok((rate, self.begun.load(Ordering::Relaxed)))
    }
}

fn configuration(folder: &Path, [iscsi, http, api]: [u16; 3]) -> Result<String> {
    for name in ["undionly.kpxe", "ipxe.efi"] {
        std::fs::write(folder.join("boot").join(name), name)?;
    }
    let folder = folder.display();
    Ok(format!(
        "state_dir = \"{folder}\"\nadmin_socket = \"{folder}/socket\"\n[server]\nname = \"one\"\n\
         [iscsi]\nlisten = \"127.0.0.1:{iscsi}\"\n[http]\nlisten = \"127.0.0.1:{http}\"\n\
         [netboot]\nboot_files = \"{folder}/boot\"\n[api]\nlisten = \"127.0.0.1:{api}\"\n\
         [stores]\nbench = \"{folder}/store\"\n[[vdisk]]\nname = \"bench\"\nfile = \"bench.vhdx\"\n\
         [[device]]\nname = \"{DEVICE}\"\nmac = \"{MAC}\"\nvdisk = \"bench\"\n"
    ))
}

/// The token of the first log-in, as the server's log tells it.
fn token(log: &Path) -> Result<String> {
    let began = Instant::now();
    loop {
        let text = std::fs::read_to_string(log)?;
        let token = text.split(WELCOME).nth(1).and_then(|rest| rest.split_whitespace().next());
        if let Some(token) = token {
            return Ok(token.to_owned());
        }
        ensure!(began.elapsed() < PATIENCE, "the server's log {} has no token", log.display());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// One request over plain HTTP; its answer.
fn ask(port: u16, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: headwater\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// The address of a device, as the figures give them out.
fn mac(number: u32) -> String {
    let [a, b, c, d] = number.to_be_bytes();
    format!("52:54:{a:02x}:{b:02x}:{c:02x}:{d:02x}")
}
