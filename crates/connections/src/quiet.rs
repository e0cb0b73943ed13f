//! Log lines that come again and again, not more often than makes sense.
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Addresses that are remembered; when there are more, all are forgotten.
const MAX_ADDRESSES: usize = 1024;

/// When each address last had to do with a log line of one kind. For peers of TCP connections, which cannot make up their
/// address; what anybody may send from any address is limited for all together (`netboot::limits::LogGate`).
#[derive(Debug)]
pub struct Quiet {
    interval: Duration,
    last: Mutex<HashMap<IpAddr, Last>>,
}

#[derive(Debug)]
struct Last {
    at: Instant,
    quiet: u64,
}

impl Quiet {
    /// Lets one through for each address in `interval`.
    #[must_use]
    pub fn new(interval: Duration) -> Self {
        Self { interval, last: Mutex::default() }
    }

    /// How many complaints were swallowed since the last one that was logged; `None` where this one is too.
    pub fn due(&self, address: IpAddr, now: Instant) -> Option<u64> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.len() >= MAX_ADDRESSES && !last.contains_key(&address) {
            last.clear();
        }
        match last.get_mut(&address) {
            Some(entry) if now.saturating_duration_since(entry.at) < self.interval => {
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
        let interval = Duration::from_secs(10);
        let complaints = Quiet::new(interval);
        let (address, now) = (IpAddr::from([10, 0, 0, 1]), Instant::now());
        assert_eq!(complaints.due(address, now), Some(0));
        assert_eq!(complaints.due(address, now), None);
        assert_eq!(complaints.due(address, now + interval), Some(1));
    }
}
