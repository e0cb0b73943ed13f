//! What other threads tell an event loop.
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::channel::Socket;
use super::jobs::Done;
use super::opened::Opened;
use crate::exports::{Listed, PeerAddress, Refusal};
use connections::Slot;

/// A connection of one event loop. Never used again for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ConnectionId(pub(super) usize);

/// A message to an event loop.
pub(super) enum Message {
    /// Serve this connection.
    Adopt(Arrival),
    /// For one connection.
    To(ConnectionId, Letter),
    /// End the connections that use the device at this address.
    EndDevice(usize),
    /// Finish what is under way, and end at this time.
    Shutdown(Instant),
}

/// A message to one connection.
pub(super) enum Letter {
    /// The owner's answers.
    Listed(Vec<Listed>),
    Opened(Result<Arc<Opened>, Refusal>),
    /// A worker is done with a job.
    Done(Done),
    /// What the connection waited for may be there.
    TryAgain,
}

/// A connection that was accepted.
pub(super) struct Arrival {
    pub(super) socket: Socket,
    pub(super) peer: PeerAddress,
    pub(super) slot: Slot,
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
            return; // The message is dropped here, and ends the use of the export that it may bring.
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
