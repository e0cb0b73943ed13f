//! Locks of the write path. A volume has a fixed number of them; segments of 1 MiB share them in turn.
//!
//! A write into clusters that all hold data already changes no state and goes ahead of the *shared* lock, beside its
//! like. Whatever changes the state of a cluster (a first write, which may have to fill up a cluster from the image;
//! a discard) holds the *exclusive* lock of its segment, so that states stand still while it works. No thread ever
//! holds two of them. Reads take none.
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError, TryLockResult};

use block::Patience;

/// How many locks: writers of more threads than this would meet by chance anyway.
const COUNT: u64 = 64;

/// The locks of one volume.
#[derive(Debug)]
pub(crate) struct Stripes(Vec<RwLock<()>>);

impl Stripes {
    pub(crate) fn new() -> Self {
        Self((0..COUNT).map(|_| RwLock::new(())).collect())
    }

    /// The shared lock of a segment; `None` where it is not free and is not to be waited for. A panic of another
    /// holder leaves nothing half-changed here: states are set last.
    pub(crate) fn shared(&self, segment: u64, patience: Patience) -> Option<RwLockReadGuard<'_, ()>> {
        let lock = self.lock(segment)?;
        match patience {
            Patience::Blocking => Some(lock.read().unwrap_or_else(PoisonError::into_inner)),
            Patience::Now => at_once(lock.try_read()),
        }
    }

    /// The exclusive lock of a segment, as [`shared`](Self::shared).
    pub(crate) fn exclusive(&self, segment: u64, patience: Patience) -> Option<RwLockWriteGuard<'_, ()>> {
        let lock = self.lock(segment)?;
        match patience {
            Patience::Blocking => Some(lock.write().unwrap_or_else(PoisonError::into_inner)),
            Patience::Now => at_once(lock.try_write()),
        }
    }

    fn lock(&self, segment: u64) -> Option<&RwLock<()>> {
        self.0.get(usize::try_from(segment % COUNT).ok()?)
    }
}

fn at_once<G>(result: TryLockResult<G>) -> Option<G> {
    match result {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
