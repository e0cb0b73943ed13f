//! The DHCP service of one interface: the sockets of port 67 and 4011 around [`Server`] or [`proxy`].
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use tokio::net::UdpSocket;
use tokio::sync::watch;

use super::boot::BootServer;
use super::client::ClientMessage;
use super::leases::UnixSeconds;
use super::lookout::Lookout;
use super::packet::MAX_PACKET_BYTES;
use super::server::Server;
use super::{Outcome, proxy};
use crate::director::BootStep;
use crate::http::Services;
use crate::limits::{LogGate, MacLimiter};

/// Between two looks at whether leases changed and are to be written.
const SAVE_INTERVAL: Duration = Duration::from_secs(1);

/// What answers on port 67.
pub(crate) enum Role {
    /// The network's DHCP server, and the file that keeps its leases.
    Server(Box<Server>, Option<PathBuf>),
    /// Boot information beside the site's DHCP server.
    Proxy,
}

/// The service of one interface.
pub(crate) struct DhcpService {
    pub(crate) interface: String,
    pub(crate) socket: UdpSocket,
    pub(crate) pxe_socket: UdpSocket,
    pub(crate) boot: BootServer,
    pub(crate) role: Role,
    pub(crate) services: Services,
    pub(crate) guard: Guard,
    pub(crate) lookout: Lookout,
}

/// What keeps a peer from costing too much.
#[derive(Default)]
pub(crate) struct Guard {
    limiter: MacLimiter,
    gate: LogGate,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Port {
    Server,
    Pxe,
}

impl DhcpService {
    /// Serves until `stop` changes.
    pub(crate) async fn run(mut self, mut stop: watch::Receiver<bool>) {
        // One byte more than a packet may have, so that a longer one is seen to be longer.
        let (mut buffer, mut pxe_buffer) = ([0; MAX_PACKET_BYTES + 1], [0; MAX_PACKET_BYTES + 1]);
        let mut save = tokio::time::interval(SAVE_INTERVAL);
        loop {
            tokio::select! {
                received = self.socket.recv_from(&mut buffer) => match received {
                    Ok((length, peer)) => self.take(buffer.get(..length).unwrap_or_default(), peer, Port::Server).await,
                    Err(error) => crate::service::receive_failed("dhcp", &error, &mut self.guard.gate).await,
                },
                received = self.pxe_socket.recv_from(&mut pxe_buffer) => match received {
                    Ok((length, peer)) => self.take(pxe_buffer.get(..length).unwrap_or_default(), peer, Port::Pxe).await,
                    Err(error) => crate::service::receive_failed("pxe", &error, &mut self.guard.gate).await,
                },
                _ = save.tick() => self.save().await,
                _ = stop.changed() => break,
            }
        }
        self.save().await;
    }

    async fn take(&mut self, packet: &[u8], peer: SocketAddr, port: Port) {
        let now = Instant::now();
        let message = match ClientMessage::decode(packet) {
            Ok(message) => message,
            Err(reason) => {
                if let Some(suppressed) = self.guard.gate.open(now) {
                    tracing::warn!(interface = self.interface, %peer, %reason, suppressed, "DHCP packet dropped");
                }
                return;
            }
        };
        if !self.guard.limiter.admit(message.mac, now) {
            if let Some(suppressed) = self.guard.gate.open(now) {
                tracing::warn!(interface = self.interface, mac = %message.mac, suppressed, "too many DHCP packets: dropped");
            }
            return;
        }
        tracing::debug!(
            interface = self.interface, mac = %message.mac, kind = ?message.kind, firmware = ?message.firmware, "DHCP packet"
        );
        if let Some(oddity) = self.lookout.hear(&message, now) {
            self.services.director.oddity(&self.interface, &oddity);
            if let Some(suppressed) = self.guard.gate.open(now) {
                tracing::warn!(interface = self.interface, suppressed, "{oddity}");
            }
        }
        let director = &*self.services.director;
        let outcome = match (&mut self.role, port) {
            (_, Port::Pxe) => proxy::handle_boot_request(&self.boot, &message, director),
            (Role::Server(server, _), Port::Server) => server.handle(&message, director, unix_now()),
            (Role::Proxy, Port::Server) => {
                if let Some(address) = proxy::heard_address(&message) {
                    self.services.neighbours.learn(address, message.mac);
                }
                proxy::handle_broadcast(&self.boot, &message, director)
            }
        };
        self.carry_out(outcome, peer, port, now).await;
    }

    async fn carry_out(&mut self, outcome: Outcome, peer: SocketAddr, port: Port, now: Instant) {
        if let Some(note) = outcome.note
            && let Some(suppressed) = self.guard.gate.open(now)
        {
            tracing::warn!(interface = self.interface, %peer, note, suppressed, "DHCP");
        }
        if let Some(reply) = outcome.reply {
            let sent = match port {
                Port::Server => self.socket.send_to(&reply.bytes, reply.to).await,
                // PXE 2.1 §2.2.2: a boot server answers whence it was asked.
                Port::Pxe => self.pxe_socket.send_to(&reply.bytes, peer).await,
            };
            if let Err(error) = sent
                && let Some(suppressed) = self.guard.gate.open(now)
            {
                tracing::warn!(interface = self.interface, to = %reply.to, %error, suppressed, "DHCP answer not sent");
            }
        }
        for (mac, step) in outcome.steps {
            if let BootStep::Ack(Some(address)) = step {
                self.services.neighbours.learn(address, mac);
                tracing::info!(interface = self.interface, %mac, %address, "address given");
            }
            self.services.director.step(mac, step);
        }
    }

    /// Writes the leases if they changed. A failure costs memory of the leases after a restart, and nothing now.
    async fn save(&mut self) {
        let Role::Server(server, Some(path)) = &mut self.role else { return };
        let Some(text) = server.changed_leases() else { return };
        let target = path.clone();
        let written = tokio::task::spawn_blocking(move || {
            let new = target.with_extension("new");
            std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, &target))
        });
        if let Ok(Err(error)) = written.await
            && let Some(suppressed) = self.guard.gate.open(Instant::now())
        {
            tracing::error!(path = %path.display(), %error, suppressed, "DHCP leases not written: check the directory");
        }
    }
}

/// Now, as leases count it.
fn unix_now() -> UnixSeconds {
    UnixSeconds(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs()))
}
