//! The service that answers router solicitations on one interface.
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::time::{Duration, Instant};

use tokio::net::UdpSocket;

use crate::limits::LogGate;
use crate::router_advertisement::{ALL_NODES, MAX_SOLICITATION_BYTES, advertisement, answer_to};

/// Between two advertisements to all nodes (RFC 4861 §10, MIN_DELAY_BETWEEN_RAS).
const MIN_GAP: Duration = Duration::from_secs(3);

/// Answers on `socket`, a raw ICMPv6 socket of the interface with this index, until its task is aborted.
pub(crate) async fn run(socket: UdpSocket, interface: u32) {
    let mut buffer = [0; MAX_SOLICITATION_BYTES];
    let mut gate = LogGate::default();
    let mut last_to_all: Option<Instant> = None;
    loop {
        let (length, source) = match socket.recv_from(&mut buffer).await {
            Ok(received) => received,
            Err(error) => {
                crate::service::receive_failed("router advertisements", &error, &mut gate).await;
                continue;
            }
        };
        let IpAddr::V6(source) = source.ip() else { continue };
        let Some(to) = answer_to(buffer.get(..length).unwrap_or_default(), source) else { continue };
        let now = Instant::now();
        if to == ALL_NODES {
            if last_to_all.is_some_and(|last| now.saturating_duration_since(last) < MIN_GAP) {
                continue;
            }
            last_to_all = Some(now);
        }
        let to = SocketAddr::V6(SocketAddrV6::new(to, 0, 0, interface));
        match socket.send_to(&advertisement(), to).await {
            Ok(_) => tracing::debug!(%to, "router advertisement sent"),
            Err(error) => {
                if let Some(suppressed) = gate.open(now) {
                    tracing::warn!(%to, %error, suppressed, "router advertisement not sent");
                }
            }
        }
    }
}
