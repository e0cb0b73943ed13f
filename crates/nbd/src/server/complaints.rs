//! Log lines about a peer's mistakes and about storage that fails, not more often than makes sense.
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use block::BlockError;

use crate::exports::PeerAddress;
use crate::limits::COMPLAINT_INTERVAL;

/// Addresses that are remembered; when there are more, all are forgotten.
const MAX_ADDRESSES: usize = 1024;

/// What was complained about last, and when.
#[derive(Default)]
pub(super) struct Complaints {
    peers: Latest,
    storage: Latest,
}

/// When each address last had to do with a complaint of one kind.
#[derive(Default)]
struct Latest {
    last: Mutex<HashMap<IpAddr, Last>>,
}

struct Last {
    at: Instant,
    quiet: u64,
}

impl Complaints {
    /// Logs what `peer` did wrong, unless it did something wrong a moment ago.
    pub(super) fn log(&self, peer: PeerAddress, reason: &str) {
        if let Some(quiet) = self.peers.due(peer.ip(), Instant::now()) {
            tracing::warn!(%peer, reason, not_logged_before = quiet, "NBD client refused or disconnected");
        }
    }

    /// Logs that storage failed a request of `peer`, unless it did a moment ago. What the device's owner reports
    /// himself (a full write cache), or only the peer can mend (a write to a read-only disk), is no complaint.
    pub(super) fn log_storage(&self, peer: PeerAddress, export: &str, cause: &BlockError) {
        if !matches!(cause, BlockError::Storage { .. } | BlockError::Corrupt { .. }) {
            return;
        }
        if let Some(quiet) = self.storage.due(peer.ip(), Instant::now()) {
            let source = std::error::Error::source(cause).map(ToString::to_string).unwrap_or_default();
            tracing::error!(%peer, export, %cause, source, not_logged_before = quiet, "storage failed a device's request");
        }
    }
}

impl Latest {
    /// How many complaints were swallowed since the last one that was logged; `None` where this one is too.
    fn due(&self, address: IpAddr, now: Instant) -> Option<u64> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.len() >= MAX_ADDRESSES && !last.contains_key(&address) {
            last.clear();
        }
        match last.get_mut(&address) {
            Some(entry) if now.saturating_duration_since(entry.at) < COMPLAINT_INTERVAL => {
                entry.quiet = entry.quiet.saturating_add(1);
                None
            }
            Some(entry) => {
                entry.at = now;
                Some(std::mem::take(&mut entry.quiet))
            }
            None => {
                last.insert(address, Last { at: now, quiet: 0 });
                Some(0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_complaints_are_counted_instead_of_logged() {
        let complaints = Latest::default();
        let (address, now) = (IpAddr::from([10, 0, 0, 1]), Instant::now());
        assert_eq!(complaints.due(address, now), Some(0));
        assert_eq!(complaints.due(address, now), None);
        assert_eq!(complaints.due(address, now + COMPLAINT_INTERVAL), Some(1));
    }
}
