//! What all threads of the server share.
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use super::complaints::Complaints;
use super::config::ServerConfig;
use crate::exports::Exports;
use connections::{Budget, Workers};

/// The parts that connections on every thread need.
pub(super) struct Shared {
    pub(super) config: ServerConfig,
    pub(super) exports: Arc<dyn Exports>,
    pub(super) complaints: Complaints,
    /// What may be with `io` at a time.
    pub(super) budget: Arc<Budget>,
    /// Answers that wait in the connections' outputs.
    pub(super) unsent_bytes: AtomicUsize,
    /// Large buffers with a rest of input, in bytes.
    pub(super) arriving_bytes: AtomicUsize,
    /// Wait for storage.
    pub(super) io: Workers,
    /// Wait for the owner.
    pub(super) questions: Workers,
}
