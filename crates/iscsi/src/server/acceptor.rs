//! The thread that accepts connections and spreads them over the event loops by load.
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};

use super::mailbox::{Arrival, Mailbox, Message};
use super::shared::Shared;
use crate::limits::SEND_BUFFER_BYTES;
use connections::{Slots, TcpSetup};

/// The token of the stop signal.
const STOP: Token = Token(usize::MAX);

/// How long to wait after the operating system had no room for a connection.
const RETRY: Duration = Duration::from_millis(100);

/// Accepts until it is stopped.
pub(super) struct Acceptor {
    poll: Poll,
    listeners: Vec<TcpListener>,
    loops: Vec<Arc<Mailbox>>,
    shared: Arc<Shared>,
    slots: Arc<Slots>,
    stop: Arc<AtomicBool>,
    arrivals: AtomicU64,
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
        listeners: Vec<std::net::TcpListener>,
        loops: Vec<Arc<Mailbox>>,
        shared: Arc<Shared>,
    ) -> io::Result<(Self, StopSignal)> {
        let poll = Poll::new()?;
        let signal = StopSignal { stop: Arc::default(), waker: Waker::new(poll.registry(), STOP)? };
        let mut watched = Vec::new();
        for (number, listener) in listeners.into_iter().enumerate() {
            listener.set_nonblocking(true)?;
            let mut listener = TcpListener::from_std(listener);
            poll.registry().register(&mut listener, Token(number), Interest::READABLE)?;
            watched.push(listener);
        }
        let config = &shared.config;
        let slots = Slots::new(config.max_connections, config.max_connections_per_address);
        let stop = Arc::clone(&signal.stop);
        Ok((
            Self { poll, listeners: watched, loops, shared, slots, stop, arrivals: AtomicU64::new(0) },
            signal,
        ))
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
    fn accept_all(&self, listener: &TcpListener) -> bool {
        loop {
            match listener.accept() {
                Ok((stream, peer)) => self.admit(stream, peer),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot accept an iSCSI connection");
                    return false;
                }
            }
        }
    }

    fn admit(&self, stream: TcpStream, peer: SocketAddr) {
        let slot = match self.slots.take(peer.ip()) {
            Ok(slot) => slot,
            Err(reason) => return self.shared.complaints.log(peer, &reason),
        };
        let Ok(local) = stream.local_addr() else {
            return; // It is gone already.
        };
        let setup = TcpSetup {
            send_buffer_bytes: Some(SEND_BUFFER_BYTES),
            congestion_control: self.shared.config.congestion_control,
        };
        if let Err(error) = setup.apply(&stream) {
            tracing::debug!(%peer, %error, "cannot set socket options");
        }
        let Some(mailbox) = self.loops.iter().min_by_key(|mailbox| mailbox.load()) else {
            return;
        };
        mailbox.connections().fetch_add(1, Ordering::Relaxed);
        let number = self.arrivals.fetch_add(1, Ordering::Relaxed);
        mailbox.post(Message::Adopt(Arrival { stream, peer, local, slot, number }));
    }
}
