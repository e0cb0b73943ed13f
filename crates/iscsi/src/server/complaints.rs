//! The log line about a peer's mistake, not more often than makes sense.
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::limits::COMPLAINT_INTERVAL;

/// Addresses that are remembered; when there are more, all are forgotten.
const MAX_ADDRESSES: usize = 1024;

/// When each address was last complained about.
#[derive(Default)]
pub(super) struct Complaints {
    last: Mutex<HashMap<IpAddr, Last>>,
}

struct Last {
    at: Instant,
    quiet: u64,
}

impl Complaints {
    /// Logs what `peer` did wrong, unless it did something wrong a moment ago.
    pub(super) fn log(&self, peer: SocketAddr, reason: &str) {
        if let Some(quiet) = self.due(peer.ip(), Instant::now()) {
            tracing::warn!(%peer, reason, not_logged_before = quiet, "iSCSI initiator refused or disconnected");
        }
    }

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
        let complaints = Complaints::default();
        let (address, now) = (IpAddr::from([10, 0, 0, 1]), Instant::now());
        assert_eq!(complaints.due(address, now), Some(0));
        assert_eq!(complaints.due(address, now), None);
        assert_eq!(complaints.due(address, now + COMPLAINT_INTERVAL), Some(1));
    }
}
