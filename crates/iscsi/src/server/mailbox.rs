//! What other threads tell an event loop.
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::link::Work;
use super::registry::SessionLife;
use crate::directory::{Authentication, IscsiName, Portal, Refusal, SessionEnd};
use crate::login::NotOpened;
use connections::{Share, Slot};

/// A connection of one event loop. Never used again for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ConnectionId(pub(super) usize);

/// A message to an event loop.
pub(super) enum Message {
    /// Serve this connection.
    Adopt(Arrival),
    /// For one connection.
    To(ConnectionId, Letter),
    /// Have all sessions log out, and end at this time.
    Shutdown(Instant),
}

/// A message to one connection.
pub(super) enum Letter {
    /// The directory's answers.
    Authentication(Result<Authentication, Refusal>),
    Opened(Result<Opened, NotOpened>),
    Targets(Vec<IscsiName>, Vec<Portal>),
    /// A worker is done with a task.
    Done(Completion),
    /// Memory that the connection waited for may be there.
    TryAgain,
    /// Have the initiator log out within so many seconds.
    WantLogout(u16),
    /// End the session.
    End(SessionEnd),
    /// Abort the tasks of these LUNs for another session, which waits for the fence.
    Abort {
        luns: Vec<[u8; 8]>,
        tell: bool,
        fence: Arc<Fence>,
    },
    /// The other sessions have aborted what request `itt` asked for.
    OthersAreDone {
        itt: u32,
    },
}

/// What a session waits for that reaches into others: each of them holds it until its tasks have ended. When the last
/// one lets go, or is gone, the waiting session is told.
pub(super) struct Fence {
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) connection: ConnectionId,
    pub(super) itt: u32,
}

impl Drop for Fence {
    fn drop(&mut self) {
        self.mailbox.post(Message::To(self.connection, Letter::OthersAreDone { itt: self.itt }));
    }
}

/// A connection that was accepted.
pub(super) struct Arrival {
    pub(super) stream: mio::net::TcpStream,
    pub(super) peer: SocketAddr,
    pub(super) local: SocketAddr,
    pub(super) slot: Slot,
    /// Counts all connections of the server in the order in which they came.
    pub(super) number: u64,
}

/// A session that may begin.
pub(super) struct Opened {
    pub(super) tsih: u16,
    pub(super) units: Arc<scsi::Units>,
    /// `None` in a discovery session.
    pub(super) life: Option<SessionLife>,
    pub(super) account: meter::Account,
}

/// A task that comes back from a worker.
pub(super) struct Completion {
    pub(super) itt: u32,
    pub(super) work: Work,
    pub(super) result: Worked,
}

/// What a worker did.
pub(super) enum Worked {
    /// It carried the task out.
    Ran(Result<(), scsi::Failure>),
    /// It read the next bytes of the Data-In; the memory that they take is the server's until they are queued.
    Read(Result<Vec<u8>, scsi::Failure>, Share),
}

/// Where an event loop takes its messages from.
pub(super) struct Mailbox {
    /// `None` when the loop has ended.
    messages: Mutex<Option<VecDeque<Message>>>,
    waker: mio::Waker,
    connections: AtomicUsize,
}

impl Mailbox {
    pub(super) fn new(waker: mio::Waker) -> Self {
        Self { messages: Mutex::new(Some(VecDeque::new())), waker, connections: AtomicUsize::new(0) }
    }

    /// Adds a message and wakes the loop, where it may sleep.
    pub(super) fn post(&self, message: Message) {
        let mut locked = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(messages) = &mut *locked else {
            drop(locked);
            return; // The message is dropped here, and ends the session that it may bring.
        };
        let first = messages.is_empty();
        messages.push_back(message);
        drop(locked);
        if first && let Err(error) = self.waker.wake() {
            tracing::error!(%error, "cannot wake an event loop");
        }
    }

    /// Takes all messages out.
    pub(super) fn take(&self) -> VecDeque<Message> {
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        messages.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The loop has ended: what is there and what still comes is dropped.
    pub(super) fn close(&self) {
        let rest = self.messages.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(rest);
    }

    /// Connections that were given to the loop and are still there.
    pub(super) fn connections(&self) -> &AtomicUsize {
        &self.connections
    }

    /// The loop's load.
    pub(super) fn load(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}
