//! Locks of the write path. A volume has a fixed number of them; segments of 1 MiB share them in turn.
//!
//! A write into clusters that all hold data already changes no state and goes ahead of the *shared* lock, beside its
//! like. Whatever changes the state of a cluster (a first write, which may have to fill up a cluster from the image;
//! a discard) holds the *exclusive* lock of its segment, so that states stand still while it works. No thread ever
//! holds two of them. Reads take none.
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};

/// How many locks: writers of more threads than this would meet by chance anyway.
const COUNT: u64 = 64;

/// The locks of one volume.
#[derive(Debug)]
pub(crate) struct Stripes(Vec<RwLock<()>>);

impl Stripes {
    pub(crate) fn new() -> Self {
        Self((0..COUNT).map(|_| RwLock::new(())).collect())
    }

    /// The shared lock of a segment. A panic of another holder leaves nothing half-changed here: states are set last.
    pub(crate) fn shared(&self, segment: u64) -> Option<RwLockReadGuard<'_, ()>> {
        self.lock(segment).map(|lock| lock.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The shared lock of a segment, if it is free at once.
    pub(crate) fn try_shared(&self, segment: u64) -> Option<RwLockReadGuard<'_, ()>> {
        match self.lock(segment)?.try_read() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The exclusive lock of a segment.
    pub(crate) fn exclusive(&self, segment: u64) -> Option<RwLockWriteGuard<'_, ()>> {
        self.lock(segment).map(|lock| lock.write().unwrap_or_else(PoisonError::into_inner))
    }

    fn lock(&self, segment: u64) -> Option<&RwLock<()>> {
        self.0.get(usize::try_from(segment % COUNT).ok()?)
    }
}
