//! Thousands of sessions that are held, and what an idle one takes of the server's memory.
//!
//! Each session reads once, so that it has had the buffers that a reading session has. Memory is what the server's
//! process holds (resident), before the first session and with all of them.
use std::net::SocketAddr;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use nbd::client::{Client, ConnectOptions, ServerAddress};
use rustix::process::{Resource, getrlimit, setrlimit};

use super::initiator::{self, Session};
use super::{Bench, nbd as over_nbd};
use crate::bench::process::Server;
use crate::bench::{Aim, Measure};

const SESSIONS: u32 = 4000;
/// What an idle session may take.
const SESSION_KIB: f64 = 64.0;
const ISCSI_PORT: u16 = 13_290;
/// What `iscsi_serve`, an example of the crate `iscsi`, calls its target.
const ISCSI_TARGET: &str = "iqn.2026-01.io.headwater:serve";

/// Both protocols.
pub(super) fn measure(bench: &Bench) -> Result<Vec<Measure>> {
    allow_many_files()?;
    let mut rows = nbd(bench)?;
    rows.extend(iscsi(bench)?);
    Ok(rows)
}

fn nbd(bench: &Bench) -> Result<Vec<Measure>> {
    let ours = over_nbd::start_ours(bench)?;
    let address = ServerAddress::Ip(SocketAddr::from(([127, 0, 0, 1], ours.export.port)));
    let options = ConnectOptions { export: ours.export.name.to_owned(), ..ConnectOptions::default() };
    let before = ours.server.resident_kib()?;
    let mut clients = Vec::new();
    let mut buffer = vec![0; 16 * 1024];
    for number in 0..SESSIONS {
        let client = Client::connect(&address, &options);
        let mut client = client.with_context(|| format!("session {number} failed"))?;
        client.read(0, &mut buffer)?;
        clients.push(client);
    }
    // They are all still there.
    for client in &mut clients {
        client.read(4096, &mut buffer)?;
    }
    let after = ours.server.resident_kib()?;
    Ok(rows("NBD", clients.len(), before, after))
}

fn iscsi(bench: &Bench) -> Result<Vec<Measure>> {
    let mut command = Command::new(bench.example("examples/iscsi_serve"));
    let address = SocketAddr::from(([127, 0, 0, 1], ISCSI_PORT));
    command.arg(address.to_string()).arg(&bench.raw);
    let server = Server::start(&mut command, ISCSI_PORT, &bench.folder.join("iscsi-serve.log"))?;
    let before = server.resident_kib()?;
    let mut sessions = Vec::new();
    for number in 0..SESSIONS {
        let stream = initiator::connect(address, number)?;
        let session = Session::log_in(stream, ISCSI_TARGET, number);
        sessions.push(session.with_context(|| format!("session {number} failed"))?);
    }
    for session in &mut sessions {
        session.read()?;
    }
    let after = server.resident_kib()?;
    Ok(rows("iSCSI", sessions.len(), before, after))
}

fn rows(protocol: &str, sessions: usize, before_kib: u64, after_kib: u64) -> Vec<Measure> {
    let peer_name = || "none: what is aimed at".to_owned();
    let each = after_kib.saturating_sub(before_kib) as f64 / sessions as f64;
    vec![
        Measure {
            measure: format!("{protocol} sessions held"),
            ours: sessions as f64,
            peer: f64::from(SESSIONS),
            peer_name: peer_name(),
            unit: "sessions",
            aim: Aim::AtLeast(1.0),
        },
        Measure {
            measure: format!("{protocol} memory of an idle session"),
            ours: each,
            peer: SESSION_KIB,
            peer_name: peer_name(),
            unit: "KiB",
            aim: Aim::AtMost(1.0),
        },
    ]
}

/// This process is the other end of all of them.
fn allow_many_files() -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let needed = u64::from(SESSIONS) + 100;
    ensure!(
        limit.maximum.is_none_or(|most| most >= needed),
        "{needed} open files are needed and {:?} allowed: raise the limit (ulimit -Hn)",
        limit.maximum
    );
    Ok(setrlimit(Resource::Nofile, rustix::process::Rlimit { current: limit.maximum, ..limit })?)
}
