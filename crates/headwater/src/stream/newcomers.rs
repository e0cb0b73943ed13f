//! Machines that ask to be added: how many may join in a minute, and who waits until somebody lets them in.
//!
//! Anybody on the network can send any MAC address, so all of it is bounded: so many join in a minute, so many wait, so many
//! refusals are remembered. Who waits is kept in memory: a machine asks again each minute, and is on the list again after a
//! restart. Each has the name that it would get, which no device has and nobody else who waits.
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::live::Newcomer;
use farm::model::{CollectionId, DeviceName, Mac, Timestamp, Uuid};

/// The most machines that join, or begin to wait, in a minute: a room full of new machines, and no flood.
const MAX_PER_MINUTE: usize = 60;
/// What that is counted over.
const MINUTE: Duration = Duration::from_secs(60);
/// The most machines that wait.
const MAX_WAITING: usize = 256;
/// How long a machine that does not ask any more is kept on the list when others want its place: three times what it takes
/// to ask again.
const AWAY_AFTER: Duration = Duration::from_secs(180);
/// The most refusals that are remembered; the oldest makes room.
const MAX_REFUSED: usize = 1024;
/// How long a refusal counts.
const REFUSED_FOR: Duration = Duration::from_secs(24 * 60 * 60);

/// A machine that asks.
#[derive(Clone, Copy, Debug)]
pub struct Asking {
    /// Its address.
    pub mac: Mac,
    /// Its SMBIOS UUID.
    pub uuid: Option<Uuid>,
    /// The collection that it is to join.
    pub collection: CollectionId,
}

/// Why a machine does not join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotYet {
    /// It waits, to be called this.
    Waits(DeviceName),
    /// Somebody refused it.
    Refused,
    /// Too many ask.
    TooMany,
    /// There is no name for it; in words.
    NoName(String),
}

/// The list.
#[derive(Debug, Default)]
pub struct Newcomers(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    waiting: HashMap<Mac, Newcomer>,
    refused: VecDeque<(Mac, Timestamp)>,
    joined: VecDeque<Timestamp>,
}

impl Newcomers {
    /// Whether a machine may join at once, where nobody has to let it in.
    ///
    /// # Errors
    /// [`NotYet::Refused`], [`NotYet::TooMany`].
    pub fn join(&self, mac: Mac, now: Timestamp) -> Result<(), NotYet> {
        let mut table = self.lock();
        if table.is_refused(mac, now) {
            return Err(NotYet::Refused);
        }
        if table.counts(now) { Ok(()) } else { Err(NotYet::TooMany) }
    }

    /// A machine asks that somebody must let in; `name` gives one for it, which is none of those that are handed to it.
    pub fn ask(
        &self,
        asking: Asking,
        now: Timestamp,
        name: impl FnOnce(&[String]) -> Result<DeviceName, String>,
    ) -> NotYet {
        let Asking { mac, uuid, collection } = asking;
        let mut table = self.lock();
        if table.is_refused(mac, now) {
            return NotYet::Refused;
        }
        if let Some(known) = table.waiting.get_mut(&mac).filter(|known| known.collection == collection) {
            known.seen = now;
            known.uuid = uuid.or(known.uuid);
            return NotYet::Waits(known.name.clone());
        }
        table.waiting.remove(&mac);
        if !table.has_room(now) || !table.counts(now) {
            return NotYet::TooMany;
        }
        let taken: Vec<String> = table.waiting.values().map(|other| other.name.to_string()).collect();
        match name(&taken) {
            Ok(name) => {
                let newcomer = Newcomer { mac, uuid, collection, name: name.clone(), since: now, seen: now };
                table.waiting.insert(mac, newcomer);
                NotYet::Waits(name)
            }
            Err(why) => NotYet::NoName(why),
        }
    }

    /// Who waits, by name.
    #[must_use]
    pub fn waiting(&self) -> Vec<Newcomer> {
        let mut waiting: Vec<Newcomer> = self.lock().waiting.values().cloned().collect();
        waiting.sort_by(|a, b| a.name.cmp(&b.name));
        waiting
    }

    /// Takes a machine off the list: it was let in.
    pub fn let_in(&self, mac: Mac) {
        let mut table = self.lock();
        table.waiting.remove(&mac);
        table.refused.retain(|(other, _)| *other != mac);
    }

    /// Refuses a machine for a day. Whether it waited.
    pub fn refuse(&self, mac: Mac, now: Timestamp) -> bool {
        let mut table = self.lock();
        if table.waiting.remove(&mac).is_none() {
            return false;
        }
        if table.refused.len() >= MAX_REFUSED {
            table.refused.pop_front();
        }
        table.refused.push_back((mac, now));
        true
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // Valid between any two statements.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn is_refused(&mut self, mac: Mac, now: Timestamp) -> bool {
        self.refused.retain(|(_, at)| at.until(now) < REFUSED_FOR);
        self.refused.iter().any(|(other, _)| *other == mac)
    }

    /// Counts one more in this minute, if it may be.
    fn counts(&mut self, now: Timestamp) -> bool {
        self.joined.retain(|at| at.until(now) < MINUTE);
        if self.joined.len() >= MAX_PER_MINUTE {
            return false;
        }
        self.joined.push_back(now);
        true
    }

    /// Whether one more can wait; those that are away make room.
    fn has_room(&mut self, now: Timestamp) -> bool {
        if self.waiting.len() >= MAX_WAITING {
            self.waiting.retain(|_, newcomer| newcomer.seen.until(now) < AWAY_AFTER);
        }
        self.waiting.len() < MAX_WAITING
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farm::model::Id;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_ms(seconds * 1000)
    }

    fn mac(number: u32) -> Mac {
        let [a, b, c, d] = number.to_be_bytes();
        Mac::new([0x52, 0x54, a, b, c, d]).unwrap()
    }

    fn asking(number: u32) -> Asking {
        Asking { mac: mac(number), uuid: None, collection: Id::new(1).unwrap() }
    }

    /// `lab-` and the first number that nobody has who waits.
    fn name(taken: &[String]) -> Result<DeviceName, String> {
        let names = (1..).map(|number| format!("lab-{number}"));
        let free = names.into_iter().find(|name| !taken.contains(name)).unwrap();
        DeviceName::new(&free).map_err(|bad| bad.to_string())
    }

    fn waits(newcomers: &Newcomers, number: u32, now: i64) -> Result<String, NotYet> {
        match newcomers.ask(asking(number), at(now), name) {
            NotYet::Waits(name) => Ok(name.to_string()),
            other => Err(other),
        }
    }

    #[test]
    fn machines_wait_under_names_of_their_own_and_keep_them() {
        let newcomers = Newcomers::default();
        assert_eq!(waits(&newcomers, 1, 0).unwrap(), "lab-1");
        assert_eq!(waits(&newcomers, 2, 1).unwrap(), "lab-2");
        assert_eq!(waits(&newcomers, 1, 60).unwrap(), "lab-1");
        let listed: Vec<_> = newcomers.waiting().iter().map(|one| (one.since.ms(), one.seen.ms())).collect();
        assert_eq!(listed, [(0, 60_000), (1000, 1000)]);
        newcomers.let_in(mac(1));
        assert_eq!(newcomers.waiting().len(), 1);
    }

    #[test]
    fn refused_machine_stays_out_for_a_day_unless_it_is_let_in() {
        let newcomers = Newcomers::default();
        waits(&newcomers, 1, 0).unwrap();
        assert!(newcomers.refuse(mac(1), at(1)));
        assert!(!newcomers.refuse(mac(2), at(1)), "nobody waits there");
        assert_eq!(waits(&newcomers, 1, 2), Err(NotYet::Refused));
        assert_eq!(newcomers.join(mac(1), at(2)), Err(NotYet::Refused));
        assert!(waits(&newcomers, 1, 24 * 60 * 60 + 2).is_ok());
        newcomers.refuse(mac(1), at(100_000));
        newcomers.let_in(mac(1));
        assert_eq!(newcomers.join(mac(1), at(100_001)), Ok(()));
    }

    #[test]
    fn flood_of_made_up_machines_is_bounded_in_pace_and_number() {
        let newcomers = Newcomers::default();
        let first_minute = (0..10_000).filter(|number| waits(&newcomers, *number, 0).is_ok()).count();
        assert_eq!(first_minute, MAX_PER_MINUTE);
        let mut number = 20_000;
        for minute in 1..100 {
            for _ in 0..MAX_PER_MINUTE {
                number += 1;
                // All of the list go on asking.
                for one in newcomers.waiting() {
                    newcomers.ask(Asking { mac: one.mac, ..asking(0) }, at(minute * 60), name);
                }
                let _ = waits(&newcomers, number, minute * 60);
            }
            if newcomers.waiting().len() == MAX_WAITING {
                break;
            }
        }
        assert_eq!(newcomers.waiting().len(), MAX_WAITING);
        assert_eq!(
            waits(&newcomers, 1_000_000, 6000),
            Ok("lab-1".to_owned()),
            "those that are away make room"
        );
        for number in 0..2 * MAX_REFUSED {
            let mut table = newcomers.lock();
            let newcomer = table.waiting.values().next().cloned();
            let (number, newcomer) = (u32::try_from(number).unwrap(), newcomer.unwrap());
            table.waiting.insert(mac(number), Newcomer { mac: mac(number), ..newcomer });
            drop(table);
            newcomers.refuse(mac(number), at(6001));
            let _ = waits(&newcomers, 2_000_000, 6001);
        }
        assert!(newcomers.lock().refused.len() <= MAX_REFUSED);
    }

    #[test]
    fn machines_that_join_at_once_are_held_to_the_pace_too() {
        let newcomers = Newcomers::default();
        let joined = (0..1000).filter(|number| newcomers.join(mac(*number), at(0)).is_ok()).count();
        assert_eq!(joined, MAX_PER_MINUTE);
        assert_eq!(newcomers.join(mac(5000), at(61)), Ok(()));
    }
}
