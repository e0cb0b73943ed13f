//! The TFTP service of one interface: requests on port 69, one task and one socket for each transfer.
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use axum::body::Bytes;
use tokio::net::UdpSocket;
use tokio::task::JoinSet;

use super::packet::{ClientPacket, ErrorCode, MAX_REQUEST_BYTES, Mode, ReadRequest, error};
use super::transfer::{End, Transfer};
use crate::boot_files::BootFiles;
use crate::director::{BootStep, Director, TftpFigures};
use crate::limits::LogGate;
use crate::neighbours::Neighbours;

/// Transfers at once, in all. Each has a socket, a task and no buffer of its own. What is more is not answered: the client
/// asks again, and finds room.
const MAX_TRANSFERS: usize = 2048;
/// Transfers at once to one address: a relay of some kind may stand before several machines.
const MAX_TRANSFERS_PER_ADDRESS: usize = 16;

/// What the TFTP service needs.
pub(crate) struct TftpService {
    /// Port 69 on the interface.
    pub(crate) socket: UdpSocket,
    /// Our address there; transfers are sent from it.
    pub(crate) address: Ipv4Addr,
    pub(crate) files: Arc<BootFiles>,
    pub(crate) neighbours: Arc<Neighbours>,
    pub(crate) director: Arc<dyn Director>,
}

/// The clients that have a transfer running, with their number for each address.
#[derive(Debug, Default)]
struct Active(Mutex<HashMap<IpAddr, Vec<u16>>>);

/// Keeps a client's place while its transfer runs.
struct Place {
    active: Arc<Active>,
    peer: SocketAddr,
}

/// Why there is no place for a transfer.
#[derive(Debug, PartialEq, Eq)]
enum NoPlace {
    /// This very client has one: it repeated its request.
    Repeated,
    /// A limit is reached.
    Full,
}

impl Active {
    fn enter(self: &Arc<Self>, peer: SocketAddr) -> Result<Place, NoPlace> {
        let mut map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let total = map.values().map(Vec::len).fold(0, usize::saturating_add);
        let ports = map.get(&peer.ip()).map_or(&[][..], Vec::as_slice);
        if ports.contains(&peer.port()) {
            return Err(NoPlace::Repeated);
        }
        if total >= MAX_TRANSFERS || ports.len() >= MAX_TRANSFERS_PER_ADDRESS {
            return Err(NoPlace::Full);
        }
        map.entry(peer.ip()).or_default().push(peer.port());
        Ok(Place { active: Arc::clone(self), peer })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut map = self.active.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ports) = map.get_mut(&self.peer.ip()) {
            ports.retain(|&port| port != self.peer.port());
            if ports.is_empty() {
                map.remove(&self.peer.ip());
            }
        }
    }
}

impl TftpService {
    /// Serves until its task is aborted; running transfers end with it.
    pub(crate) async fn run(self) {
        let active = Arc::new(Active::default());
        let mut transfers = JoinSet::new();
        let mut gate = LogGate::default();
        // Of transfers that ended badly: a flood of requests whose senders vanish ends in as many.
        let failures = Arc::new(Mutex::new(LogGate::default()));
        // One byte more than a request may have, so that a longer one is seen to be longer.
        let mut buffer = [0; MAX_REQUEST_BYTES + 1];
        loop {
            while transfers.try_join_next().is_some() {}
            let (length, peer) = match self.socket.recv_from(&mut buffer).await {
                Ok(received) => received,
                Err(error) => {
                    crate::service::receive_failed("tftp", &error, &mut gate).await;
                    continue;
                }
            };
            let now = Instant::now();
            let request = match ClientPacket::decode(buffer.get(..length).unwrap_or_default()) {
                Ok(ClientPacket::Read(request)) => request,
                Ok(ClientPacket::Write) => {
                    self.refuse(peer, ErrorCode::AccessViolation, "this server is for reading only").await;
                    continue;
                }
                Ok(ClientPacket::Ack(_) | ClientPacket::Error { .. }) => continue,
                Err(reason) => {
                    if let Some(suppressed) = gate.open(now) {
                        tracing::warn!(%peer, %reason, suppressed, "malformed TFTP request dropped");
                    }
                    continue;
                }
            };
            let place = match active.enter(peer) {
                Ok(place) => place,
                Err(NoPlace::Repeated) => continue,
                Err(NoPlace::Full) => {
                    if let Some(suppressed) = gate.open(now) {
                        tracing::warn!(%peer, file = request.file, suppressed, "TFTP request dropped: too many transfers");
                    }
                    continue;
                }
            };
            if let Some(file) = self.file(&request, peer, now, &mut gate).await {
                transfers.spawn(self.transfer(request, file, peer, place, Arc::clone(&failures)));
            }
        }
    }

    async fn refuse(&self, peer: SocketAddr, code: ErrorCode, text: &str) {
        if let Err(error) = self.socket.send_to(&error(code, text), peer).await {
            tracing::debug!(%peer, %error, "TFTP error packet not sent");
        }
    }

    async fn file(
        &self,
        request: &ReadRequest,
        peer: SocketAddr,
        now: Instant,
        gate: &mut LogGate,
    ) -> Option<Bytes> {
        let name = &request.file;
        if request.mode != Mode::Octet {
            if let Some(suppressed) = gate.open(now) {
                tracing::warn!(%peer, name, suppressed, "TFTP request refused: mode is not octet");
            }
            self.refuse(peer, ErrorCode::IllegalOperation, "only mode octet (binary) is served").await;
            return None;
        }
        let found = self.files.get(name);
        if found.is_none() {
            if let Some(suppressed) = gate.open(now) {
                tracing::warn!(%peer, name, suppressed, "TFTP request refused: no such boot file");
            }
            self.refuse(peer, ErrorCode::NotFound, "no such boot file").await;
        }
        found
    }

    fn transfer(
        &self,
        request: ReadRequest,
        file: Bytes,
        peer: SocketAddr,
        place: Place,
        failures: Arc<Mutex<LogGate>>,
    ) -> impl Future<Output = ()> + Send + 'static {
        let (address, neighbours, director) =
            (self.address, Arc::clone(&self.neighbours), Arc::clone(&self.director));
        async move {
            let began = Instant::now();
            let size_bytes = file.len() as u64;
            let end = drive(address, peer, file, &request).await;
            let took = began.elapsed();
            drop(place);
            let may_log = || failures.lock().unwrap_or_else(PoisonError::into_inner).open(Instant::now());
            let name = request.file.trim_start_matches('/').to_owned();
            let step = match end {
                Ok((End::Complete, tftp)) => {
                    tracing::info!(%peer, file = request.file, size_bytes, ?took, ?tftp, "boot file sent by TFTP");
                    BootStep::BootFile { name, protocol: "tftp", size_bytes, took, tftp: Some(tftp) }
                }
                Ok((End::ClientStopped { code, text }, _)) => {
                    tracing::debug!(%peer, file = request.file, code, text, "client stopped the TFTP transfer");
                    return;
                }
                Ok((End::Silent { acknowledged_bytes }, tftp)) => {
                    if let Some(suppressed) = may_log() {
                        tracing::warn!(%peer, file = request.file, acknowledged_bytes, ?tftp, suppressed, "client fell silent in a TFTP transfer");
                    }
                    BootStep::BootFileLost { name, size_bytes, acknowledged_bytes, took, tftp }
                }
                Ok((End::TooSlow { acknowledged_bytes }, tftp)) => {
                    if let Some(suppressed) = may_log() {
                        tracing::warn!(%peer, file = request.file, acknowledged_bytes, ?tftp, suppressed, "TFTP transfer took too long");
                    }
                    BootStep::BootFileLost { name, size_bytes, acknowledged_bytes, took, tftp }
                }
                Err(error) => {
                    if let Some(suppressed) = may_log() {
                        tracing::warn!(%peer, file = request.file, %error, suppressed, "TFTP transfer failed");
                    }
                    return;
                }
            };
            if let Some(mac) = neighbours.mac_of(peer.ip()) {
                director.step(mac, step);
            }
        }
    }
}

/// Runs a transfer from a port of its own (RFC 1350 §4); the kernel keeps other peers' datagrams away from it.
async fn drive(
    address: Ipv4Addr,
    peer: SocketAddr,
    file: Bytes,
    request: &ReadRequest,
) -> std::io::Result<(End, TftpFigures)> {
    let socket = UdpSocket::bind((address, 0)).await?;
    socket.connect(peer).await?;
    let mut out = Vec::new();
    let mut transfer = Transfer::start(file, request.options, Instant::now(), &mut out);
    let mut buffer = [0; MAX_REQUEST_BYTES];
    loop {
        for datagram in out.drain(..) {
            match socket.send(&datagram).await {
                Ok(_) => {}
                // The client's host says that nobody listens: it went away without an ERROR.
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {}
                Err(error) => return Err(error),
            }
        }
        if let Some(end) = transfer.end() {
            return Ok((end.clone(), transfer.figures()));
        }
        match tokio::time::timeout_at(transfer.deadline().into(), socket.recv(&mut buffer)).await {
            Ok(Ok(length)) => {
                transfer.on_datagram(buffer.get(..length).unwrap_or_default(), Instant::now(), &mut out);
            }
            Ok(Err(error)) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                let end = End::ClientStopped { code: 0, text: "port closed".to_owned() };
                return Ok((end, transfer.figures()));
            }
            Ok(Err(error)) => return Err(error),
            Err(_elapsed) => transfer.on_time(Instant::now(), &mut out),
        }
    }
}
