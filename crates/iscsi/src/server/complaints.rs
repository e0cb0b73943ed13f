//! Log lines about a peer's mistakes and about storage that fails, not more often than makes sense.
use std::net::SocketAddr;
use std::time::Instant;

use block::BlockError;
use connections::Quiet;

use crate::limits::COMPLAINT_INTERVAL;

/// What was complained about last, and when.
pub(super) struct Complaints {
    peers: Quiet,
    storage: Quiet,
}

impl Default for Complaints {
    fn default() -> Self {
        Self { peers: Quiet::new(COMPLAINT_INTERVAL), storage: Quiet::new(COMPLAINT_INTERVAL) }
    }
}

impl Complaints {
    /// Logs what `peer` did wrong, unless it did something wrong a moment ago.
    pub(super) fn log(&self, peer: SocketAddr, reason: &str) {
        if let Some(quiet) = self.peers.due(peer.ip(), Instant::now()) {
            tracing::warn!(%peer, reason, not_logged_before = quiet, "iSCSI initiator refused or disconnected");
        }
    }

    /// Logs that storage failed a request of `peer`, unless it did a moment ago. What the device's owner reports
    /// himself (a full write cache), or only the peer can mend (a write to a read-only disk), is no complaint.
    pub(super) fn log_storage(&self, peer: SocketAddr, target: &str, cause: &BlockError) {
        if !matches!(cause, BlockError::Storage { .. } | BlockError::Corrupt { .. }) {
            return;
        }
        if let Some(quiet) = self.storage.due(peer.ip(), Instant::now()) {
            let source = std::error::Error::source(cause).map(ToString::to_string).unwrap_or_default();
            tracing::error!(%peer, target_name = target, %cause, source, not_logged_before = quiet, "storage failed a device's request");
        }
    }
}
