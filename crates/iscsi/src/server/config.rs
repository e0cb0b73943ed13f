//! What a site may set.
use std::time::Duration;

use connections::CongestionControl;

use crate::limits::DATA_DEADLINE;

/// How the target server runs. [`Default`] suits one machine with thousands of sessions.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Event loop threads; 0: one for each core.
    pub threads: usize,
    /// Threads that wait for storage; 0: four for each core, at least 8. More are started while all of them wait.
    pub io_workers: usize,
    /// Threads that wait for the [`Directory`](crate::directory::Directory).
    pub login_workers: usize,
    /// Connections in all.
    pub max_connections: usize,
    /// Connections from one address. Machines behind one address (NAT) need more.
    pub max_connections_per_address: usize,
    /// Memory for write data that initiators are asked for, of all sessions together, in bytes; some 42 MiB at least. A
    /// session alone never has more than 4 MiB, or one write, in flight, and 10 MiB for what it may send unasked meanwhile.
    pub max_solicited_bytes: u64,
    /// Memory for what initiators send unasked (immediate and unsolicited data, PDUs that have begun), of all sessions
    /// together, in bytes; some MiB at least. Where it is used up, sessions are read when there is room again.
    pub max_arriving_bytes: u64,
    /// Memory for what workers read, from before they read it until it is queued for its initiator, of all sessions
    /// together, in bytes; half a MiB at least. Where it is used up, reads that wait for storage stand in line.
    pub max_reading_bytes: u64,
    /// How long write data that was asked for or announced may be due, and a PDU that has begun may take to arrive: then
    /// the connection is ended.
    pub data_deadline: Duration,
    /// How fast TCP connections send.
    pub congestion_control: CongestionControl,
    /// From the connection to the end of the login, but for the time that the directory takes.
    pub login_deadline: Duration,
    /// After this long without a word, initiators that are known to answer pings (Linux's, and all that have sent one) are
    /// pinged; those that do not answer for as long again are dropped. TCP keep-alive watches over the others: firmware,
    /// which takes part in nothing while a boot menu waits.
    pub ping_after: Duration,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            threads: 0,
            io_workers: 0,
            login_workers: 4,
            max_connections: 8192,
            max_connections_per_address: 64,
            congestion_control: CongestionControl::default(),
            max_solicited_bytes: 1 << 30,
            max_arriving_bytes: 512 << 20,
            max_reading_bytes: 512 << 20,
            data_deadline: DATA_DEADLINE,
            login_deadline: Duration::from_secs(10),
            ping_after: Duration::from_secs(15),
        }
    }
}

impl ServerConfig {
    pub(super) fn loop_threads(&self) -> usize {
        if self.threads == 0 { cores() } else { self.threads }
    }

    pub(super) fn io_threads(&self) -> usize {
        if self.io_workers == 0 { cores().saturating_mul(4).max(8) } else { self.io_workers }
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
