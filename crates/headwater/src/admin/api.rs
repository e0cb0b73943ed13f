//! What the server answers, as the commands of this program read it.
use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::timeline::BootRecord;

/// `GET /v1/boots`, `GET /v1/boots/{device or id}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BootsAnswer {
    /// The boots: the latest of each device, or those of one device, latest first, or one.
    pub boots: Vec<BootRecord>,
}

/// `GET /v1/status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusAnswer {
    /// The server's version.
    pub version: String,
    /// Since when it runs.
    pub uptime_s: u64,
    /// Where disks are served over iSCSI.
    pub iscsi: Vec<SocketAddr>,
    /// Where they are served over NBD, by TCP.
    #[serde(default)]
    pub nbd: Vec<SocketAddr>,
    /// Where scripts are served.
    pub http: SocketAddr,
    /// How many devices there are.
    pub devices: usize,
    /// The number of the last change of the catalogue that boots are decided by.
    #[serde(default)]
    pub catalogue_change: i64,
    /// Why the farm's database cannot be used; none: it can.
    #[serde(default)]
    pub catalogue_trouble: Option<String>,
    /// How many sessions are open.
    pub sessions: u64,
    /// Who boots and who waits.
    #[serde(default)]
    pub admission: ::api::live::AdmissionStatus,
    /// What is odd about the networks that machines boot on.
    #[serde(default)]
    pub network: Vec<String>,
}

/// `GET /v1/stats`: counters since the server's start. Rates are the differences of two answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatsAnswer {
    /// When the counters were read.
    pub uptime_us: u64,
    /// One for each device or vDisk, and protocol.
    pub accounts: Vec<AccountAnswer>,
}

/// What is counted of one disk over one protocol; `docs/metrics.md` describes the figures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountAnswer {
    /// The device; none: readers of the vDisk itself.
    pub device: Option<String>,
    /// The vDisk.
    pub vdisk: String,
    /// `iscsi` or `nbd`.
    pub protocol: String,
    /// Sessions and connections ever opened.
    pub connections: u64,
    /// Those that came after one had been lost.
    pub reconnects: u64,
    /// Those that are open.
    pub connections_open: u64,
    /// Requests not answered yet.
    pub in_flight: u64,
    /// Requests that were aborted or cut off.
    pub unanswered: u64,
    /// Requests that a limit held back.
    pub held_back: u64,
    /// By kind: `read`, `write`, `flush`, `unmap`, `other`; those that occurred.
    pub kinds: BTreeMap<String, KindAnswer>,
}

/// What is counted of one kind of request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KindAnswer {
    /// Requests that were answered.
    pub requests: u64,
    /// Those with an error.
    pub errors: u64,
    /// Bytes that the others moved.
    pub bytes: u64,
    /// Requests that storage had to be waited for.
    pub waited: u64,
    /// The sum of all latencies.
    pub latency_ns: u64,
    /// Bucket and count: bucket 0 holds what took less than 1024 ns; bucket `b` begins at
    /// `(8 + (b - 1) % 8) << (7 + (b - 1) / 8)` ns and ends where the next one begins.
    pub latency_buckets: Vec<(usize, u64)>,
}
