//! The simulated devices: a process of its own beside the server's network, a thread for each device.
//!
//! Its words on standard output are one line of JSON for each device: what each step took in milliseconds, or why it failed.
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use serde_json::json;
use trace::{Kind, Stage, Trace};

use super::firmware::{Cards, MacBytes, connect, fetch_by_tftp, http};
use super::session::{Range, Session};

/// A thread does little more than wait: it needs no megabytes of stack.
const STACK_BYTES: usize = 256 << 10;
/// Requests that an operating system has open while it boots.
const SECOND_STAGE_DEPTH: usize = 4;
/// The ports of the server.
const HTTP_PORT: u16 = 8080;

/// What the devices do.
#[derive(Args)]
pub(crate) struct DeviceArguments {
    /// How many there are
    #[arg(long)]
    devices: u32,
    /// Over how many milliseconds they are switched on
    #[arg(long)]
    within_ms: u64,
    /// The server
    #[arg(long)]
    server: Ipv4Addr,
    /// The trace that they replay
    #[arg(long)]
    trace: PathBuf,
    /// Only reads, from this target of another server: PORT/LUN/NAME
    #[arg(long)]
    target: Option<String>,
}

/// The card of a device.
pub(super) fn mac(number: u32) -> MacBytes {
    let [_, high, middle, low] = number.to_be_bytes();
    [0x52, 0x54, 0x01, high, middle, low]
}

/// The address that it has where DHCP is left out.
fn own_address(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 79, 0, 1)) + number)
}

struct Replay {
    first: Vec<Range>,
    second: Vec<Range>,
}

impl Replay {
    fn of(trace: &Trace) -> Self {
        let reads = |stage: Stage| {
            let of_stage =
                trace.requests.iter().filter(|request| request.kind == Kind::Read && request.stage == stage);
            of_stage.map(|request| Range { offset: request.offset, length: request.length }).collect()
        };
        Self { first: reads(Stage::First), second: reads(Stage::Second) }
    }
}

/// Boots all devices.
///
/// # Errors
/// Where the trace cannot be read or the network is not as it should be. What fails for a device is a line.
pub(crate) fn run(arguments: &DeviceArguments) -> Result<()> {
    let file = &arguments.trace;
    let bytes = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let trace = trace::read(&bytes).with_context(|| format!("{} is no trace", file.display()))?;
    let replay = Replay::of(&trace);
    let cards = arguments.target.is_none().then(Cards::begin).transpose()?;
    let pause = Duration::from_millis(arguments.within_ms) / arguments.devices.max(1);
    std::thread::scope(|scope| {
        for number in 0..arguments.devices {
            let (cards, replay) = (cards.clone(), &replay);
            let body = move || {
                std::thread::sleep(pause * number);
                let mut steps = Steps::begin();
                let result = match (&cards, &arguments.target) {
                    (Some(cards), None) => boot(cards, arguments.server, number, replay, &mut steps),
                    (_, target) => {
                        let target = target.as_deref().unwrap_or_default();
                        read_only(arguments.server, target, number, replay, &mut steps)
                    }
                };
                let failure = result.err().map(|error| format!("{error:#}"));
                println!("{}", json!({ "steps_ms": steps.took, "bytes": steps.bytes, "failure": failure }));
            };
            std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, body)?;
        }
        Ok(())
    })
}

/// What each step took.
struct Steps {
    began: Instant,
    last: Instant,
    took: BTreeMap<&'static str, f64>,
    bytes: u64,
}

impl Steps {
    fn begin() -> Self {
        let now = Instant::now();
        Self { began: now, last: now, took: BTreeMap::new(), bytes: 0 }
    }

    fn done(&mut self, step: &'static str) {
        let now = Instant::now();
        self.took.insert(step, (now - self.last).as_secs_f64() * 1000.0);
        self.took.insert(TOTAL, (now - self.began).as_secs_f64() * 1000.0);
        self.last = now;
    }
}

/// The name of all steps together.
pub(super) const TOTAL: &str = "total";

/// The steps in their order.
pub(super) const STEPS: [&str; 9] = [
    "DHCP of the firmware",
    "boot file (TFTP)",
    "DHCP of iPXE",
    "script, queue included",
    "login",
    "first stage reads",
    "hand-over login",
    "second stage reads",
    "ready beacon",
];

fn boot(cards: &Arc<Cards>, server: Ipv4Addr, number: u32, replay: &Replay, steps: &mut Steps) -> Result<()> {
    let [dhcp, file, ipxe, script, login, first, hand_over, second, ready] = STEPS;
    let mac = mac(number);
    let lease = cards.lease(mac, false)?;
    steps.done(dhcp);
    fetch_by_tftp(lease.address, server, &lease.file).context(file)?;
    steps.done(file);
    let lease = cards.lease(mac, true)?;
    steps.done(ipxe);
    let own = lease.address;
    let plan = fetch_script(own, server, &lease.file).context(script)?;
    steps.done(script);
    let portal = SocketAddrV4::new(server, plan.port);
    let log_in = |isid| Session::log_in(connect(own, portal)?, &plan.initiator, &plan.target, plan.lun, isid);
    // RFC 7143 §11.12.5: iPXE's kind of session id, and the one of another program.
    let mut session = log_in([0x40, 0, 0x01, 0x37, 0, 0]).context(login)?;
    steps.done(login);
    steps.bytes += session.read_all(&replay.first, 1).context(first)?;
    steps.done(first);
    session.log_out().context(hand_over)?;
    let mut session = log_in([0, 0x02, 0x3d, 0, 0, 1]).context(hand_over)?;
    steps.done(hand_over);
    steps.bytes += session.read_all(&replay.second, SECOND_STAGE_DEPTH).context(second)?;
    steps.done(second);
    let text = mac.map(|byte| format!("{byte:02x}")).join(":");
    let at = SocketAddrV4::new(server, HTTP_PORT);
    http(own, at, "POST /v1/ready", &format!("{{\"mac\":\"{text}\"}}")).context(ready)?;
    steps.done(ready);
    session.log_out()
}

/// The reads of a boot alone, from any server.
fn read_only(server: Ipv4Addr, target: &str, number: u32, replay: &Replay, steps: &mut Steps) -> Result<()> {
    let [_, _, _, _, login, first, _, second, _] = STEPS;
    let mut parts = target.splitn(3, '/');
    let mut part = || parts.next().with_context(|| format!("\"{target}\" is not PORT/LUN/NAME"));
    let (port, lun, name) =
        (part()?.parse()?, part()?.parse()?, part()?.replace("NUMBER", &number.to_string()));
    let (own, portal) = (own_address(number), SocketAddrV4::new(server, port));
    let initiator = format!("iqn.2026-11.org.headwater:storm-{number}:initiator");
    let isid = [0, 0x02, 0x3d, 0, 0, 1];
    let mut session = Session::log_in(connect(own, portal)?, &initiator, &name, lun, isid).context(login)?;
    steps.done(login);
    steps.bytes += session.read_all(&replay.first, 1).context(first)?;
    steps.done(first);
    steps.bytes += session.read_all(&replay.second, SECOND_STAGE_DEPTH).context(second)?;
    steps.done(second);
    session.log_out()
}

/// What a script says.
#[derive(Debug, PartialEq, Eq)]
struct Plan {
    port: u16,
    lun: u8,
    target: String,
    initiator: String,
}

/// Fetches the script, and waits as often as it says.
fn fetch_script(own: Ipv4Addr, server: Ipv4Addr, url: &str) -> Result<Plan> {
    let path = url
        .find("/v1/")
        .and_then(|start| url.get(start..))
        .with_context(|| format!("no script in {url:?}"))?;
    loop {
        let script = http(own, SocketAddrV4::new(server, HTTP_PORT), &format!("GET {path}"), "")?;
        if let Some(plan) = read_plan(&script) {
            return Ok(plan);
        }
        let pause =
            script.lines().find_map(|line| line.strip_prefix("sleep ")?.split(' ').next()?.parse().ok());
        let pause = pause.with_context(|| format!("neither a disk nor a wait in\n{script}"))?;
        std::thread::sleep(Duration::from_secs(pause));
    }
}

/// `sanboot --drive 0x80 iscsi:10.77.0.1::3260:0:NAME ||`, and `set initiator-iqn NAME`.
fn read_plan(script: &str) -> Option<Plan> {
    let uri = script.split_whitespace().find_map(|word| word.strip_prefix("iscsi:"))?;
    let mut parts = uri.splitn(5, ':');
    let (_address, _protocol) = (parts.next()?, parts.next()?);
    let (port, lun) = (parts.next()?.parse().ok()?, u8::from_str_radix(parts.next()?, 16).ok()?);
    let target = parts.next()?.to_owned();
    let initiator = script.lines().find_map(|line| line.strip_prefix("set initiator-iqn "))?.to_owned();
    Some(Plan { port, lun, target, initiator })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_tells_the_disk_or_to_wait() {
        let script = "#!ipxe\nset initiator-iqn iqn.i:a\nsanboot --drive 0x80 iscsi:10.77.0.1::3260:0:iqn.t:a:b0 || echo x\n";
        let plan = Plan { port: 3260, lun: 0, target: "iqn.t:a:b0".into(), initiator: "iqn.i:a".into() };
        assert_eq!(read_plan(script), Some(plan));
        assert_eq!(read_plan("#!ipxe\nsleep 3 ||\n"), None);
    }
}
