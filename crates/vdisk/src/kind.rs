//! The kinds of write caches: where one lies, and what it outlives.
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use block::ByteLength;

/// Where a write cache lies, and what it outlives.
#[derive(Clone, Debug, Default)]
pub enum WriteCacheKind {
    /// In a file of the server; gone at the device's next boot. Outlives the server's process.
    #[default]
    Volatile,
    /// In a file of the server, and there at the device's next boot. What was flushed outlives everything but the
    /// disk.
    Persistent,
    /// In the server's memory; gone at the device's next boot, and with the server's process.
    Memory(Arc<MemoryBudget>),
}

impl WriteCacheKind {
    /// Ends the name of the file; the kinds do not share one, so that a device that is given another kind does not
    /// lose what it has in the old one.
    pub(crate) fn suffix(&self) -> &'static str {
        match self {
            Self::Volatile | Self::Memory(_) => ".cache",
            Self::Persistent => ".persistent",
        }
    }

    pub(crate) fn budget(&self) -> Option<&Arc<MemoryBudget>> {
        match self {
            Self::Memory(budget) => Some(budget),
            Self::Volatile | Self::Persistent => None,
        }
    }
}

impl PartialEq for WriteCacheKind {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Volatile, Self::Volatile) | (Self::Persistent, Self::Persistent) => true,
            (Self::Memory(one), Self::Memory(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

impl Eq for WriteCacheKind {}

/// What all write caches in the server's memory may take together.
#[derive(Debug)]
pub struct MemoryBudget {
    limit_bytes: u64,
    used_bytes: AtomicU64,
}

impl MemoryBudget {
    /// A budget of `limit`, nothing of which is used.
    #[must_use]
    pub fn new(limit: ByteLength) -> Self {
        Self { limit_bytes: limit.get(), used_bytes: AtomicU64::new(0) }
    }

    /// What is used, and the limit.
    #[must_use]
    pub fn usage(&self) -> (ByteLength, ByteLength) {
        (ByteLength::new(self.used_bytes.load(Ordering::Acquire)), ByteLength::new(self.limit_bytes))
    }

    /// Takes `bytes`, all or none; whether that was possible.
    pub(crate) fn take(&self, bytes: u64) -> bool {
        let grow = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= self.limit_bytes);
        self.used_bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, grow).is_ok()
    }

    /// Gives `bytes` back.
    pub(crate) fn give_back(&self, bytes: u64) {
        let shrink = |used: u64| Some(used.saturating_sub(bytes));
        // The closure never declines.
        let _ = self.used_bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, shrink);
    }
}
