//! UEFI machines on the way to their own disk.
//!
//! UEFI firmware is sent on to the next entry of its boot order, and that may be the network once more: firmware lists a card
//! several times (PXE, HTTP Boot, IPv6). So a machine that has just been sent to its own disk and asks again is sent on, after
//! a moment for somebody who has switched it off and on to ask for something else.
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use netboot::director::MacAddress;

/// How long firmware may take through its list of network entries.
const ON_THE_WAY_FOR: Duration = Duration::from_secs(180);
/// How many seconds somebody has to call for the menu instead.
pub const MOMENT_S: u16 = 3;
/// The most machines that are on their way at once; the oldest makes room.
const MAX_MACHINES: usize = 1024;

/// Who was sent to their own disks, latest last.
#[derive(Debug, Default)]
pub struct OwnDisks(Mutex<VecDeque<(MacAddress, Instant)>>);

impl OwnDisks {
    /// A machine is sent to its own disk.
    pub fn sent(&self, mac: MacAddress, now: Instant) {
        let mut sent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sent.retain(|(other, _)| *other != mac);
        if sent.len() >= MAX_MACHINES {
            sent.pop_front();
        }
        sent.push_back((mac, now));
    }

    /// A machine has chosen something else, or has been called to its menu.
    pub fn elsewhere(&self, mac: MacAddress) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|(other, _)| *other != mac);
    }

    /// Whether a machine is on its way.
    #[must_use]
    pub fn is_on_the_way(&self, mac: MacAddress, now: Instant) -> bool {
        let sent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = sent.iter().find(|(other, _)| *other == mac);
        found.is_some_and(|(_, at)| now.saturating_duration_since(*at) < ON_THE_WAY_FOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_is_on_its_way_for_a_while_and_until_it_chooses_otherwise() {
        let (disks, now) = (OwnDisks::default(), Instant::now());
        let mac = |last| MacAddress([2, 0, 0, 0, 0, last]);
        assert!(!disks.is_on_the_way(mac(1), now));
        disks.sent(mac(1), now);
        assert!(disks.is_on_the_way(mac(1), now) && !disks.is_on_the_way(mac(2), now));
        assert!(!disks.is_on_the_way(mac(1), now + ON_THE_WAY_FOR));
        disks.elsewhere(mac(1));
        assert!(!disks.is_on_the_way(mac(1), now));
    }

    #[test]
    fn flood_of_machines_takes_bounded_memory() {
        let (disks, now) = (OwnDisks::default(), Instant::now());
        for number in 0..2 * MAX_MACHINES as u64 {
            let [_, _, mac @ ..] = number.to_be_bytes();
            disks.sent(MacAddress(mac), now);
        }
        assert_eq!(disks.0.lock().unwrap().len(), MAX_MACHINES);
    }
}
