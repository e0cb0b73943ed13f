//! Lets requests that change a volume in until it is closed, and makes the closing wait for those inside.
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, TryLockError};

use block::{BlockError, Patience};

/// The gate of one volume.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    closed: RwLock<bool>,
    /// The same for readers, who take no lock.
    closed_for_readers: AtomicBool,
}

impl Gate {
    /// Holds the gate open for one change.
    pub(crate) fn enter(&self, patience: Patience) -> Result<RwLockReadGuard<'_, bool>, BlockError> {
        let guard = match patience {
            Patience::Blocking => self.closed.read().unwrap_or_else(PoisonError::into_inner),
            Patience::Now => match self.closed.try_read() {
                Ok(guard) => guard,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return Err(BlockError::WouldBlock),
            },
        };
        if *guard { Err(BlockError::Closed) } else { Ok(guard) }
    }

    /// Lets a read pass.
    pub(crate) fn pass(&self) -> Result<(), BlockError> {
        if self.closed_for_readers.load(Ordering::Acquire) { Err(BlockError::Closed) } else { Ok(()) }
    }

    /// Closes the gate when all changes are through, and then does `last` before anybody hears of it; `None` where it
    /// was closed already.
    pub(crate) fn close<T>(&self, last: impl FnOnce() -> T) -> Option<T> {
        let mut closed = self.closed.write().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut *closed, true) {
            return None;
        }
        self.closed_for_readers.store(true, Ordering::Release);
        Some(last())
    }
}
