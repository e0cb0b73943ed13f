//! The throttle of log-ins: who fails too often waits, each time twice as long.
//!
//! Failures are counted for each user and for each address (of IPv6, for each /64, which one customer has), in a table of
//! fixed size. Some are free; from then on the next try is refused for a second, two, four, up to a limit. A user who is
//! attacked by others waits a minute at most: long enough to make guessing hopeless, short enough not to be a weapon. When
//! the table is full, whoever is free soonest makes room: nobody is let off by a flood of made-up names.
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use farm::model::Timestamp;

/// The most users and addresses that are remembered.
const MAX_ENTRIES: usize = 8192;
/// How long after the end of a wait failures are forgotten.
const FORGET_AFTER: Duration = Duration::from_secs(15 * 60);

/// Who is counted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key {
    /// A user, whether there is one of that name or not.
    User(String),
    /// An address.
    Address(IpAddr),
}

impl Key {
    /// The address of whoever asks.
    pub(super) fn address(address: IpAddr) -> Self {
        Self::Address(match address.to_canonical() {
            IpAddr::V6(v6) => {
                let network = u128::from(v6) & (u128::MAX << 64);
                IpAddr::V6(network.into())
            }
            v4 @ IpAddr::V4(_) => v4,
        })
    }

    /// How many failures are free, and the longest wait.
    const fn limits(&self) -> (u32, Duration) {
        match self {
            Self::User(_) => (5, Duration::from_secs(60)),
            // Several people may sit behind one address.
            Self::Address(_) => (20, FORGET_AFTER),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    failures: u32,
    free_from: Timestamp,
}

/// Failures of the near past.
#[derive(Debug, Default)]
pub(super) struct Throttle {
    entries: HashMap<Key, Entry>,
}

impl Throttle {
    /// Lets these try, and counts that as a failure until it is known to be none: many tries at once are as many.
    ///
    /// # Errors
    /// How long they must wait.
    pub(super) fn begin(&mut self, keys: &[Key], now: Timestamp) -> Result<(), Duration> {
        match self.wait(keys, now) {
            Duration::ZERO => {
                self.failed(keys, now);
                Ok(())
            }
            wait => Err(wait),
        }
    }

    /// How long all of these must wait; zero: they may try now.
    fn wait(&self, keys: &[Key], now: Timestamp) -> Duration {
        let waits =
            keys.iter().filter_map(|key| self.entries.get(key)).map(|entry| now.until(entry.free_from));
        waits.max().unwrap_or_default()
    }

    /// Counts a failure of all of these.
    fn failed(&mut self, keys: &[Key], now: Timestamp) {
        for key in keys {
            if !self.entries.contains_key(key) {
                self.make_room(now);
            }
            let (free, longest) = key.limits();
            let entry = self.entries.entry(key.clone()).or_insert(Entry { failures: 0, free_from: now });
            if entry.free_from.until(now) >= FORGET_AFTER {
                entry.failures = 0;
            }
            entry.failures = entry.failures.saturating_add(1);
            let wait = match entry.failures.checked_sub(free.saturating_add(1)) {
                None => Duration::ZERO,
                Some(times) => Duration::from_secs(1u64 << times.min(20)).min(longest),
            };
            entry.free_from = now.after(wait);
        }
    }

    /// Forgets the failures of a user who got in, and takes back what was counted of the address: what it failed before
    /// stays, since it may be guessing others' passwords.
    pub(super) fn succeeded(&mut self, keys: &[Key], now: Timestamp) {
        for key in keys {
            match key {
                Key::User(_) => drop(self.entries.remove(key)),
                Key::Address(_) => {
                    if let Some(entry) = self.entries.get_mut(key) {
                        *entry = Entry { failures: entry.failures.saturating_sub(1), free_from: now };
                    }
                }
            }
        }
    }

    fn make_room(&mut self, now: Timestamp) {
        if self.entries.len() < MAX_ENTRIES {
            return;
        }
        self.entries.retain(|_, entry| entry.free_from.until(now) < FORGET_AFTER);
        while self.entries.len() >= MAX_ENTRIES {
            let soonest = self.entries.iter().min_by_key(|(_, entry)| (entry.free_from, entry.failures));
            let Some(key) = soonest.map(|(key, _)| key.clone()) else { return };
            self.entries.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_ms(seconds * 1000)
    }

    fn user(name: &str) -> Key {
        Key::User(name.to_owned())
    }

    #[test]
    fn waits_begin_after_the_free_failures_and_double_up_to_their_limit() {
        let mut throttle = Throttle::default();
        let keys = [user("ann")];
        let waits: Vec<u64> = (0..14)
            .map(|_| {
                throttle.failed(&keys, at(0));
                throttle.wait(&keys, at(0)).as_secs()
            })
            .collect();
        assert_eq!(waits, [0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(throttle.wait(&keys, at(60)), Duration::ZERO);
        assert_eq!(throttle.wait(&[user("bob")], at(0)), Duration::ZERO);
    }

    #[test]
    fn one_address_is_held_back_over_all_users() {
        let mut throttle = Throttle::default();
        let address = Key::address("2001:db8::1".parse().unwrap());
        for number in 0..21 {
            throttle.failed(&[user(&number.to_string()), address.clone()], at(0));
        }
        let neighbour = Key::address("2001:db8::ffff:1".parse().unwrap());
        assert_eq!(throttle.wait(&[user("new"), neighbour], at(0)), Duration::from_secs(1));
        let other = Key::address("2001:db8:0:1::1".parse().unwrap());
        assert_eq!(throttle.wait(&[user("new"), other], at(0)), Duration::ZERO);
        assert_eq!(
            Key::address("::ffff:10.0.0.1".parse().unwrap()),
            Key::address("10.0.0.1".parse().unwrap())
        );
    }

    #[test]
    fn failures_are_forgotten_after_success_or_time() {
        let mut throttle = Throttle::default();
        let keys = [user("ann")];
        (0..6).for_each(|_| throttle.failed(&keys, at(0)));
        throttle.succeeded(&keys, at(0));
        assert_eq!(throttle.wait(&keys, at(0)), Duration::ZERO);
        (0..6).for_each(|_| throttle.failed(&keys, at(0)));
        throttle.failed(&keys, at(2000));
        assert_eq!(throttle.wait(&keys, at(2000)), Duration::ZERO);
    }

    #[test]
    fn tries_at_once_count_before_they_fail() {
        let mut throttle = Throttle::default();
        let keys = [user("ann"), Key::address("10.0.0.1".parse().unwrap())];
        let begun = (0..100).filter(|_| throttle.begin(&keys, at(0)).is_ok()).count();
        assert_eq!(begun, 6, "five are free, and the sixth begins the wait");
        throttle.succeeded(&keys, at(0));
        assert_eq!(throttle.begin(&keys, at(0)), Ok(()));
        assert_eq!(throttle.entries[&keys[1]].failures, 6, "the address is not cleared by one success");
    }

    #[test]
    fn flood_of_names_does_not_let_off_who_waits() {
        let mut throttle = Throttle::default();
        (0..20).for_each(|_| throttle.failed(&[user("ann")], at(0)));
        for number in 0..MAX_ENTRIES + 10 {
            throttle.failed(&[user(&format!("made-up-{number}"))], at(1));
        }
        assert_eq!(throttle.entries.len(), MAX_ENTRIES);
        assert!(throttle.wait(&[user("ann")], at(1)) > Duration::ZERO);
    }
}
