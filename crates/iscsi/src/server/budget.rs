//! How much solicited write data may be on its way to the whole server: each session has a budget of its own, and all
//! of them together have this one. A connection that finds it used up asks for data later.
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The server's budget.
#[derive(Debug)]
pub(super) struct Budget {
    limit_bytes: u64,
    used_bytes: AtomicU64,
}

/// What one connection has of it; given back when dropped.
#[derive(Debug)]
pub(super) struct Share {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Budget {
    pub(super) fn new(limit_bytes: u64) -> Arc<Self> {
        Arc::new(Self { limit_bytes, used_bytes: AtomicU64::new(0) })
    }

    /// Nothing of it yet.
    pub(super) fn share(self: &Arc<Self>) -> Share {
        Share { budget: Arc::clone(self), bytes: 0 }
    }
}

impl Share {
    /// What this connection may have in all. Connections of other threads may take of it at the same moment: the limit
    /// is passed by one session's budget for each thread at most.
    pub(super) fn allowance(&self) -> u64 {
        let used = self.budget.used_bytes.load(Ordering::Relaxed);
        self.budget.limit_bytes.saturating_sub(used.saturating_sub(self.bytes))
    }

    /// The connection has so much of it now.
    pub(super) fn set(&mut self, bytes: u64) {
        match bytes.checked_sub(self.bytes) {
            Some(more) => self.budget.used_bytes.fetch_add(more, Ordering::Relaxed),
            None => self.budget.used_bytes.fetch_sub(self.bytes.saturating_sub(bytes), Ordering::Relaxed),
        };
        self.bytes = bytes;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_may_grow_by_what_the_others_leave_and_is_given_back() {
        let budget = Budget::new(100);
        let (mut one, mut other) = (budget.share(), budget.share());
        one.set(60);
        assert_eq!((one.allowance(), other.allowance()), (100, 40));
        other.set(50);
        one.set(10);
        assert_eq!((one.allowance(), other.allowance()), (50, 90));
        drop(other);
        assert_eq!(one.allowance(), 100);
    }
}
