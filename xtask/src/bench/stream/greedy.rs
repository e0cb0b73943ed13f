//! Modest clients beside a greedy one: what those wait who ask for little, while somebody else always has 32 MiB asked for.
//!
//! A server that serves whoever asks most serves the greedy one. Ours gives each connection a turn of bounded length, and
//! can hold a device to a rate; here are both, beside nbdkit, which has a thread for each request and leaves the matter
//! to the kernel. The greedy client takes a part of the same processors, so that not all that the modest ones lose is
//! the server's doing: the ratio between two servers counts.
use std::thread::ScopedJoinHandle;

use anyhow::{Result, bail};

use super::Bench;
use super::clients::{self, Load, NbdExport};
use super::nbd::{self, Contender};
use crate::bench::{Aim, Measure, median};

/// Connections that read 4 KiB at random places, one at a time each.
const MODEST: Load = Load { connections: 8, ..clients::random(1) };

/// One that reads 1 MiB after the other, 32 at a time.
const GREEDY: Load = Load { depth: 32, ..clients::SEQUENTIAL };

/// What the rate leaves to a greedy device, as `nbd_serve` takes it: what a link of 1 Gbit/s carries, twice over.
pub(super) const LIMIT_MIB: u32 = 250;

/// What one run gave.
struct Shared {
    /// Of the modest client that waits longest.
    p99_us: f64,
    /// Of the modest ones together, in requests a second.
    rate: f64,
    /// What the greedy one got meanwhile, in MB a second.
    greedy: f64,
}

/// Which of the runs it is.
#[derive(Clone, Copy)]
enum Beside {
    Nobody,
    Greedy,
    Limited,
}

/// Beside nbdkit, and beside ourselves without the greedy one and with a limit on it.
pub(super) fn measure(bench: &Bench) -> Result<Vec<Measure>> {
    let (ours, nbdkit) = (nbd::start_ours(bench)?, nbd::start_nbdkit(bench)?);
    let runs = [
        (&ours, Beside::Greedy),
        (&nbdkit, Beside::Greedy),
        (&ours, Beside::Limited),
        (&ours, Beside::Nobody),
    ];
    let samples =
        bench.alternate(&runs, |&(server, beside), seconds| share(bench, server, beside, seconds))?;
    let [fair, peer, limited, alone] = samples.as_slice() else { return Ok(Vec::new()) };
    let peer_name = |beside: &str| format!("ourselves, {beside}");
    let mut rows = modest_rows("beside a greedy one", fair, peer, &nbdkit.name, (1.0, 1.0));
    let greedy = |shared: &Shared| shared.greedy;
    rows.push(Measure {
        measure: "NBD sequential 1 MiB, depth 32, the greedy one meanwhile".to_owned(),
        ours: of(fair, greedy),
        peer: of(peer, greedy),
        peer_name: nbdkit.name.clone(),
        unit: "MB/s",
        aim: Aim::AtLeast(1.0),
    });
    let unlimited = peer_name("the greedy one not limited");
    let name = format!("beside one limited to {LIMIT_MIB} MiB/s");
    rows.extend(modest_rows(&name, limited, fair, &unlimited, (1.0, 1.0)));
    rows.push(Measure {
        measure: "NBD sequential 1 MiB, depth 32, the limited one meanwhile".to_owned(),
        ours: of(limited, greedy),
        peer: f64::from(LIMIT_MIB) * 1.048_576,
        peer_name: "its limit".to_owned(),
        unit: "MB/s",
        aim: Aim::AtLeast(0.9),
    });
    rows.extend(modest_rows(&name, limited, alone, &peer_name("nobody beside them"), (2.0, 0.5)));
    Ok(rows)
}

/// The modest ones of two runs: the p99 of the one that waits longest, and what all of them get.
fn modest_rows(
    name: &str,
    ours: &[Shared],
    peer: &[Shared],
    peer_name: &str,
    (p99_aim, rate_aim): (f64, f64),
) -> Vec<Measure> {
    let row = |what: &str, take: fn(&Shared) -> f64, unit: &'static str, aim: Aim| Measure {
        measure: format!("NBD random 4 KiB, 8 modest clients {name}: {what}"),
        ours: of(ours, take),
        peer: of(peer, take),
        peer_name: peer_name.to_owned(),
        unit,
        aim,
    };
    vec![
        row("p99", |shared| shared.p99_us, "us", Aim::AtMost(p99_aim)),
        row("together", |shared| shared.rate, "requests/s", Aim::AtLeast(rate_aim)),
    ]
}

fn share(bench: &Bench, server: &Contender, beside: Beside, seconds: u32) -> Result<Shared> {
    let export = match beside {
        Beside::Nobody => None,
        Beside::Greedy => Some(server.export),
        Beside::Limited => Some(NbdExport { name: "limited", ..server.export }),
    };
    std::thread::scope(|scope| {
        // It begins with them and ends after them.
        let greedy =
            export.map(|export| scope.spawn(move || clients::blast(bench, export, GREEDY, seconds + 1)));
        let modest = clients::blast(bench, server.export, MODEST, seconds)?;
        let greedy = match greedy.map(ScopedJoinHandle::join) {
            None => 0.0,
            Some(Ok(counted)) => counted?.requests_per_second * f64::from(GREEDY.bytes) / 1e6,
            Some(Err(_)) => bail!("the greedy client panicked"),
        };
        Ok(Shared { p99_us: modest.p99_us.0, rate: modest.requests_per_second, greedy })
    })
}

fn of(samples: &[Shared], what: impl Fn(&Shared) -> f64) -> f64 {
    median(samples.iter().map(what).collect())
}
