//! What a site may set.
use std::time::Duration;

use connections::CongestionControl;

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
    /// Write data that initiators may be asked for at a time, of all sessions together; one write of the greatest length
    /// at least. A session alone never has more than 4 MiB, or one write, in flight.
    pub max_write_bytes_in_flight: u64,
    /// How fast TCP connections send.
    pub congestion_control: CongestionControl,
    /// From the connection to the end of the login, but for the time that the directory takes.
    pub login_deadline: Duration,
    /// After this long without a word, initiators that have shown that they know pings are pinged; those that do not
    /// answer for as long again are dropped. TCP keep-alive watches over the others.
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
            max_write_bytes_in_flight: 1 << 30,
            login_deadline: Duration::from_secs(10),
            ping_after: Duration::from_secs(30),
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
