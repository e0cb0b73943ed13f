//! What all threads of the server share.
use std::sync::Arc;

use super::complaints::Complaints;
use super::config::ServerConfig;
use super::memory::Budgets;
use super::registry::Registry;
use crate::directory::Directory;
use connections::Workers;

/// The parts that connections on every thread need.
pub(super) struct Shared {
    pub(super) config: ServerConfig,
    pub(super) directory: Arc<dyn Directory>,
    pub(super) registry: Arc<Registry>,
    /// For write data, of all connections.
    pub(super) memory: Budgets,
    pub(super) complaints: Arc<Complaints>,
    /// Wait for storage.
    pub(super) io: Workers,
    /// Wait for the directory.
    pub(super) logins: Workers,
}
