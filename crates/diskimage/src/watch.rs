//! Long work, watched: how far it is, whether it shall stop, and how fast it may go.
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How far long work is, in bytes of payload. Shared between the one that works and the one that shows it; both sides
/// are cheap.
#[derive(Debug, Default)]
pub struct Watch {
    total_bytes: AtomicU64,
    done_bytes: AtomicU64,
    cancelled: AtomicBool,
    /// Bytes a second; 0 is no limit.
    limit: AtomicU64,
}

/// The work was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cancelled")]
pub struct Cancelled;

impl Watch {
    /// Asks the work to stop at its next step. It cleans up behind itself.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Limits the bytes that are moved in a second; `None` takes the limit away. Bytes that are cloned or skipped do
    /// not count.
    pub fn set_limit(&self, bytes_per_second: Option<std::num::NonZeroU64>) {
        self.limit.store(bytes_per_second.map_or(0, std::num::NonZeroU64::get), Ordering::Relaxed);
    }

    /// How many bytes are done, of how many. The total is 0 until it is known, and may grow.
    #[must_use]
    pub fn progress(&self) -> (u64, u64) {
        (self.done_bytes.load(Ordering::Relaxed), self.total_bytes.load(Ordering::Relaxed))
    }

    /// The worker's side: this many bytes are to be done besides.
    pub fn expect(&self, bytes: u64) {
        self.total_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The worker's side: this many bytes are done.
    ///
    /// # Errors
    /// [`Cancelled`], if it shall stop.
    pub fn advance(&self, bytes: u64) -> Result<(), Cancelled> {
        self.done_bytes.fetch_add(bytes, Ordering::Relaxed);
        if self.cancelled.load(Ordering::Relaxed) { Err(Cancelled) } else { Ok(()) }
    }

    /// The worker's side: the limit in force, in bytes a second.
    #[must_use]
    pub fn limit(&self) -> Option<std::num::NonZeroU64> {
        std::num::NonZeroU64::new(self.limit.load(Ordering::Relaxed))
    }
}
