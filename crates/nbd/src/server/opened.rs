//! An export in use by one connection.
use std::sync::atomic::{AtomicU8, Ordering};

use crate::exports::{ConnectionEnd, Export, Purpose};
use crate::transmission::Shape;

/// An export, opened for a connection. Its owner hears of the end when the last reference goes: the connection's, or
/// that of the last of its jobs.
pub(super) struct Opened {
    pub(super) name: String,
    pub(super) purpose: Purpose,
    pub(super) export: Export,
    pub(super) shape: Shape,
    how: AtomicU8,
}

impl Opened {
    pub(super) fn new(name: String, purpose: Purpose, export: Export) -> Self {
        let shape = Shape::new(&export);
        // Whoever only looked at it leaves in peace.
        Self { name, purpose, export, shape, how: AtomicU8::new(0) }
    }

    /// Says how the use will have ended.
    pub(super) fn ends(&self, how: ConnectionEnd) {
        let code = match how {
            ConnectionEnd::Disconnected => 0,
            ConnectionEnd::Lost => 1,
            ConnectionEnd::Shutdown => 2,
        };
        self.how.store(code, Ordering::Relaxed);
    }

    /// How it ends, as far as is known.
    pub(super) fn end(&self) -> ConnectionEnd {
        match self.how.load(Ordering::Relaxed) {
            0 => ConnectionEnd::Disconnected,
            1 => ConnectionEnd::Lost,
            _ => ConnectionEnd::Shutdown,
        }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.export.observer.ended(self.end());
    }
}
