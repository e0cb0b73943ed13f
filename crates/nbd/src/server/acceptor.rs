//! The thread that accepts connections and spreads them over the event loops by load.
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mio::net::{TcpListener, UnixListener};
use mio::{Events, Interest, Poll, Token, Waker};
use socket2::SockRef;

use super::channel::Socket;
use super::listener::Listener;
use super::mailbox::{Arrival, Mailbox, Message};
use super::shared::Shared;
use crate::exports::PeerAddress;
use connections::{Slots, TcpSetup};

/// The token of the stop signal.
const STOP: Token = Token(usize::MAX);

/// How long to wait after the operating system had no room for a connection.
const RETRY: Duration = Duration::from_millis(100);

/// Room for several large answers, so that a thread can turn to other connections meanwhile.
const SEND_BUFFER_BYTES: usize = 1024 * 1024;

/// Accepts until it is stopped.
pub(super) struct Acceptor {
    poll: Poll,
    listeners: Vec<Watched>,
    loops: Vec<Arc<Mailbox>>,
    shared: Arc<Shared>,
    slots: Arc<Slots>,
    stop: Arc<AtomicBool>,
    setup: TcpSetup,
}

/// A listener of this thread's poll.
enum Watched {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// Stops an acceptor.
pub(super) struct StopSignal {
    stop: Arc<AtomicBool>,
    waker: Waker,
}

impl StopSignal {
    pub(super) fn send(&self) {
        self.stop.store(true, Ordering::Release);
        if let Err(error) = self.waker.wake() {
            tracing::error!(%error, "cannot wake the acceptor");
        }
    }
}

impl Acceptor {
    pub(super) fn new(
        listeners: Vec<Listener>,
        loops: Vec<Arc<Mailbox>>,
        shared: Arc<Shared>,
    ) -> io::Result<(Self, StopSignal)> {
        let poll = Poll::new()?;
        let signal = StopSignal { stop: Arc::default(), waker: Waker::new(poll.registry(), STOP)? };
        let mut watched = Vec::new();
        for (number, listener) in listeners.into_iter().enumerate() {
            let token = Token(number);
            watched.push(match listener {
                Listener::Tcp(listener) => {
                    listener.set_nonblocking(true)?;
                    let mut listener = TcpListener::from_std(listener);
                    poll.registry().register(&mut listener, token, Interest::READABLE)?;
                    Watched::Tcp(listener)
                }
                Listener::Unix(listener) => {
                    listener.set_nonblocking(true)?;
                    let mut listener = UnixListener::from_std(listener);
                    poll.registry().register(&mut listener, token, Interest::READABLE)?;
                    Watched::Unix(listener)
                }
            });
        }
        let config = &shared.config;
        let setup =
            TcpSetup { send_buffer_bytes: send_buffer(), congestion_control: config.congestion_control };
        let slots = Slots::new(config.max_connections, config.max_connections_per_address);
        let stop = Arc::clone(&signal.stop);
        Ok((Self { poll, listeners: watched, loops, shared, slots, stop, setup }, signal))
    }

    pub(super) fn run(mut self) {
        let mut events = Events::with_capacity(16);
        let mut timeout = None;
        loop {
            if let Err(error) = self.poll.poll(&mut events, timeout)
                && error.kind() != io::ErrorKind::Interrupted
            {
                tracing::error!(%error, "the acceptor cannot wait for connections and ends");
                return;
            }
            if self.stop.load(Ordering::Acquire) {
                return;
            }
            let mut all_taken = true;
            for listener in &self.listeners {
                all_taken &= self.accept_all(listener);
            }
            timeout = (!all_taken).then_some(RETRY);
        }
    }

    /// Accepts what waits; `false` where the operating system has no room, so that it must be tried again.
    fn accept_all(&self, listener: &Watched) -> bool {
        loop {
            let accepted = match listener {
                Watched::Tcp(listener) => {
                    listener.accept().map(|(stream, peer)| (Socket::Tcp(stream), PeerAddress::Ip(peer)))
                }
                Watched::Unix(listener) => {
                    listener.accept().map(|(stream, _)| (Socket::Unix(stream), PeerAddress::Unix))
                }
            };
            match accepted {
                Ok((socket, peer)) => self.admit(socket, peer),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot accept an NBD connection");
                    return false;
                }
            }
        }
    }

    fn admit(&self, socket: Socket, peer: PeerAddress) {
        let slot = match self.slots.take(peer.ip()) {
            Ok(slot) => slot,
            Err(reason) => return self.shared.complaints.log(peer, &reason),
        };
        if let Err(error) = self.set_up(&socket) {
            tracing::debug!(%peer, %error, "cannot set socket options");
        }
        let Some(mailbox) = self.loops.iter().min_by_key(|mailbox| mailbox.load()) else {
            return;
        };
        mailbox.connections().fetch_add(1, Ordering::Relaxed);
        mailbox.post(Message::Adopt(Arrival { socket, peer, slot }));
    }

    fn set_up(&self, socket: &Socket) -> io::Result<()> {
        match (socket, self.setup.send_buffer_bytes) {
            (Socket::Tcp(stream), _) => self.setup.apply(stream),
            (Socket::Unix(stream), Some(bytes)) => SockRef::from(stream).set_send_buffer_size(bytes),
            (Socket::Unix(_), None) => Ok(()),
        }
    }
}

/// The send buffer that sockets get; `None` where the system would give less than its own tuning reaches: a size that is
/// set ends that tuning.
fn send_buffer() -> Option<usize> {
    let limit = std::fs::read_to_string("/proc/sys/net/core/wmem_max").ok()?;
    let limit: usize = limit.trim().parse().ok()?;
    (limit >= SEND_BUFFER_BYTES).then_some(SEND_BUFFER_BYTES)
}
