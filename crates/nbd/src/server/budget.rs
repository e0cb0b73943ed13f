//! Bytes that all connections together may have with the workers.
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::mailbox::{ConnectionId, Letter, Mailbox, Message};

/// What is left, and who waits for more.
pub(super) struct Budget {
    left: AtomicU64,
    waiting: AtomicUsize,
    waiters: Mutex<Vec<(Arc<Mailbox>, ConnectionId)>>,
}

/// Some bytes of a budget; given back when dropped.
pub(super) struct Share {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Budget {
    pub(super) fn new(bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            left: AtomicU64::new(bytes),
            waiting: AtomicUsize::new(0),
            waiters: Mutex::default(),
        })
    }

    /// `bytes` of it. Where there are not as many left, the connection is remembered, and gets a
    /// [`Letter::TryAgain`] when some are given back.
    pub(super) fn take(
        self: &Arc<Self>,
        bytes: u64,
        mailbox: &Arc<Mailbox>,
        id: ConnectionId,
    ) -> Option<Share> {
        if let Some(share) = self.try_take(bytes) {
            return Some(share);
        }
        let mut waiters = self.waiters.lock().unwrap_or_else(PoisonError::into_inner);
        if !waiters.iter().any(|(at, waiter)| *waiter == id && Arc::ptr_eq(at, mailbox)) {
            waiters.push((Arc::clone(mailbox), id));
        }
        self.waiting.store(waiters.len(), Ordering::SeqCst);
        drop(waiters);
        // What was given back since the first try may have found nobody waiting.
        self.try_take(bytes)
    }

    fn try_take(self: &Arc<Self>, bytes: u64) -> Option<Share> {
        let take = |left: u64| left.checked_sub(bytes);
        let taken = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_ok();
        taken.then(|| Share { budget: Arc::clone(self), bytes })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.left.fetch_add(self.bytes, Ordering::SeqCst);
        if self.budget.waiting.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut waiters = self.budget.waiters.lock().unwrap_or_else(PoisonError::into_inner);
        let woken = std::mem::take(&mut *waiters);
        self.budget.waiting.store(0, Ordering::SeqCst);
        drop(waiters);
        for (mailbox, id) in woken {
            mailbox.post(Message::To(id, Letter::TryAgain));
        }
    }
}
