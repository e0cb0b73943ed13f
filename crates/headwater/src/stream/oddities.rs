//! What is odd about the networks that machines boot on: other DHCP servers, two machines with one MAC address.
//!
//! The boot services hear of it and tell it once an hour as long as it goes on; here it is kept for those who look at the server's
//! status and metrics.
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use netboot::dhcp::lookout::{Oddity, TELL_AGAIN};

/// How long a thing is told of after it was heard last: it is heard again in half that time if it goes on.
const KEPT: Duration = TELL_AGAIN.saturating_mul(2);

/// The most that are kept. Anybody can make such things up.
const MAX_KEPT: usize = 64;

/// What was heard of late.
#[derive(Debug, Default)]
pub struct Oddities(Mutex<HashMap<String, Heard>>);

#[derive(Debug)]
struct Heard {
    at: Instant,
    is_server: bool,
}

/// How many things are odd.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// DHCP servers that are not to be there.
    pub other_servers: u64,
    /// MAC addresses that two machines have.
    pub shared_macs: u64,
}

impl Oddities {
    /// Something was heard on an interface.
    pub fn hear(&self, interface: &str, oddity: &Oddity, now: Instant) {
        let is_server = !matches!(oddity, Oddity::TwoMachines { .. });
        let mut kept = self.fresh(now);
        if kept.len() < MAX_KEPT {
            // Whoever took the offer changes; the server is the same.
            let what = match oddity {
                Oddity::OtherServer { server, .. } => {
                    format!("another DHCP server is on this network: {server}")
                }
                Oddity::TwoServers { first, server, .. } => {
                    format!("two DHCP servers give addresses on this network: {first} and {server}")
                }
                Oddity::TwoMachines { mac, before, now } => {
                    format!("two machines have the MAC address {mac}: those with UUID {before} and {now}")
                }
            };
            kept.insert(format!("{interface}: {what}"), Heard { at: now, is_server });
        }
    }

    /// In lines for people.
    #[must_use]
    pub fn lines(&self, now: Instant) -> Vec<String> {
        let mut lines: Vec<String> = self.fresh(now).keys().cloned().collect();
        lines.sort();
        lines
    }

    /// How many there are.
    #[must_use]
    pub fn counts(&self, now: Instant) -> Counts {
        let kept = self.fresh(now);
        let servers = kept.values().filter(|heard| heard.is_server).count();
        let shared = kept.len().saturating_sub(servers);
        Counts { other_servers: servers as u64, shared_macs: shared as u64 }
    }

    fn fresh(&self, now: Instant) -> MutexGuard<'_, HashMap<String, Heard>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|_, heard| now.saturating_duration_since(heard.at) < KEPT);
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netboot::director::MacAddress;
    use std::net::Ipv4Addr;

    #[test]
    fn other_server_is_one_thing_whoever_takes_its_offer_and_forgotten_when_it_is_silent() {
        let (oddities, start) = (Oddities::default(), Instant::now());
        let other = |last| Oddity::OtherServer {
            server: Ipv4Addr::new(10, 0, 0, 66),
            mac: MacAddress([2, 0, 0, 0, 0, last]),
        };
        oddities.hear("eth1", &other(1), start);
        oddities.hear("eth1", &other(2), start + TELL_AGAIN);
        assert_eq!(oddities.counts(start + TELL_AGAIN), Counts { other_servers: 1, shared_macs: 0 });
        let later = start + TELL_AGAIN * 2;
        assert_eq!(oddities.lines(later), ["eth1: another DHCP server is on this network: 10.0.0.66"]);
        assert!(oddities.lines(later + TELL_AGAIN).is_empty());
    }

    #[test]
    fn made_up_machines_do_not_fill_the_memory() {
        let (oddities, now) = (Oddities::default(), Instant::now());
        for last in 0..200 {
            let mac = MacAddress([2, 0, 0, 0, 0, last]);
            let oddity = Oddity::TwoMachines { mac, before: "a".to_owned(), now: "b".to_owned() };
            oddities.hear("eth1", &oddity, now);
        }
        assert_eq!(oddities.counts(now), Counts { other_servers: 0, shared_macs: MAX_KEPT as u64 });
    }
}
