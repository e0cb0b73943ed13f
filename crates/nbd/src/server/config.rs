//! What a site may set.
use std::time::Duration;

use connections::CongestionControl;

use super::tls::TlsServer;
use crate::exports::PeerAddress;
use crate::handshake::TlsPolicy;

/// How the server runs. [`Default`] suits one machine with thousands of connections, without TLS.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Event loop threads; 0: one for each core.
    pub threads: usize,
    /// Threads that wait for storage; 0: four for each core, at least 8. More are started while all of them wait.
    pub io_workers: usize,
    /// Threads that wait for the [`Exports`](crate::exports::Exports).
    pub question_workers: usize,
    /// Connections in all.
    pub max_connections: usize,
    /// Connections from one address. Machines behind one address (NAT) need more; so do clients that use several
    /// connections each.
    pub max_connections_per_address: usize,
    /// How fast TCP connections send.
    pub congestion_control: CongestionControl,
    /// From the connection to the choice of an export, but for the time that the owner takes.
    pub handshake_deadline: Duration,
    /// Bytes of requests that are with the workers, of all connections together; some 16 MiB at least. A connection that
    /// finds no room stands in line. Exports of one store get no more than they leave free.
    pub max_waiting_bytes: u64,
    /// Bytes of answers that are ready and that clients do not take, of all connections together, above which each
    /// connection prepares one answer at a time.
    pub max_unsent_bytes: usize,
    /// Bytes of requests that have begun to arrive, of all connections together, above which each connection takes what is
    /// written in small pieces and keeps no large buffer for it.
    pub max_arriving_bytes: u64,
    /// Encryption: what clients may and must do, and with which certificates.
    pub tls: Tls,
}

/// Encryption.
#[derive(Clone, Debug, Default)]
pub enum Tls {
    /// None.
    #[default]
    Off,
    /// For clients that ask for it.
    Allowed(TlsServer),
    /// For all over TCP. Through a socket of this machine's file system, which has owners and a mode, it is for clients
    /// that ask for it.
    Required(TlsServer),
}

impl Tls {
    pub(super) fn policy(&self, peer: PeerAddress) -> TlsPolicy {
        match self {
            Self::Off => TlsPolicy::Off,
            Self::Required(_) if peer == PeerAddress::Unix => TlsPolicy::Allowed,
            Self::Allowed(_) => TlsPolicy::Allowed,
            Self::Required(_) => TlsPolicy::Required,
        }
    }

    pub(super) fn server(&self) -> Option<&TlsServer> {
        match self {
            Self::Off => None,
            Self::Allowed(server) | Self::Required(server) => Some(server),
        }
    }
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            threads: 0,
            io_workers: 0,
            question_workers: 4,
            max_connections: 8192,
            max_connections_per_address: 256,
            congestion_control: CongestionControl::default(),
            handshake_deadline: Duration::from_secs(10),
            max_waiting_bytes: 512 << 20,
            max_unsent_bytes: 256 << 20,
            max_arriving_bytes: 256 << 20,
            tls: Tls::Off,
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
