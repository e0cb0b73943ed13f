//! Admission: how many devices boot at a time, and in which order the others wait.
//!
//! A thousand machines that are switched on together share the server's disk and network. Served all at once each of them is as slow
//! as the slowest, and some give up; served some at a time, the same work is done in the same time, and most are up much
//! earlier. So a *place* is needed to begin a boot, and whoever gets none waits in a queue: iPXE is told its place, shows it, and
//! asks again ([`Answer::Wait`]). Nothing else is gated: who has the script of a boot may log in.
//!
//! - **Order** is that of the first asking. With `n` places free, the first `n` of the queue may go, whenever they ask. Nobody is
//!   overtaken for longer than one such question takes.
//! - A device that is **restarted** while it waits keeps its turn; one that is restarted while it boots keeps its place, but
//!   not for ever: after [`Rules::longest`] it is at the end of the queue like anybody else.
//! - A **dead** one frees what it has: a waiting device that does not ask for [`GIVEN_UP_AFTER`] has no turn any more, a booting one
//!   of which nothing is heard for [`Rules::quiet`] has no place. A device that says that it is ready has none from then on;
//!   one without the beacon is taken to be up when it is quiet.
//! - **Bounds:** [`MAX_WAITING`] devices wait with a turn; beyond that they are told to come back, and get none.
//!
//! The queue does not outlive the server: after a restart, devices ask again within seconds, and those that boot go on.
//! Clocks and devices are the caller's: this is a state machine.
use std::collections::{HashMap, VecDeque};
use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::config::DeviceName;

/// The most devices that wait with a turn: more than one server has.
pub const MAX_WAITING: usize = 16_384;

/// How long a waiting device may be silent: three times as long as it is told to wait at most.
pub const GIVEN_UP_AFTER: Duration = Duration::from_secs(30);

/// Between two questions of a device. The first in the queue ask often, so that a place is not free for long.
const ASK_AGAIN_S: std::ops::RangeInclusive<u32> = 2..=10;

/// How long a boot is taken to last before one was seen.
const USUAL: Duration = Duration::from_secs(30);

/// What an administrator decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// How many devices boot at a time; `None`: all that come.
    pub at_once: Option<NonZeroUsize>,
    /// After which silence a booting device is taken for dead, or for up.
    pub quiet: Duration,
    /// How long a device keeps its place, whatever it does.
    pub longest: Duration,
}

impl Default for Rules {
    fn default() -> Self {
        Self { at_once: None, quiet: Duration::from_secs(60), longest: Duration::from_secs(600) }
    }
}

/// What a device that wants to boot is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It may.
    Go,
    /// Not yet.
    Wait {
        /// How many are before it, and itself; `None`: so many wait that it has no turn.
        place: Option<usize>,
        /// How long it will take, as far as can be told.
        about: Duration,
        /// When it is to ask again.
        again_s: u32,
    },
}

/// What is seen of a boot.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// The device.
    pub device: &'a str,
    /// The boot.
    pub boot: &'a str,
    /// Differs whenever the device did something.
    pub activity: u64,
    /// Whether the device said that it is up.
    pub ready: bool,
}

/// What administrators are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// How many may boot at a time; `None`: all that come.
    pub at_once: Option<usize>,
    /// How many boot.
    pub booting: usize,
    /// How many wait.
    pub waiting: usize,
    /// How long the first of them has waited.
    pub longest_wait: Duration,
    /// How many were let in since the server's start.
    pub admitted: u64,
    /// How many of those had to wait.
    pub queued: u64,
    /// How many waiting devices were not heard of again.
    pub given_up: u64,
    /// How many booting devices lost their place by silence or time.
    pub expired: u64,
}

/// Who boots and who waits.
#[derive(Debug)]
pub struct Queue {
    rules: Rules,
    booting: HashMap<DeviceName, Place>,
    waiting: VecDeque<Waiting>,
    /// How long boots have lasted of late.
    usual: Duration,
    figures: Figures,
}

#[derive(Debug)]
struct Place {
    since: Instant,
    boot: Option<String>,
    activity: u64,
    heard: Instant,
}

#[derive(Debug)]
struct Waiting {
    device: DeviceName,
    since: Instant,
    asked: Instant,
}

/// The queue of a server.
#[derive(Debug)]
pub struct Admission(Mutex<Queue>);

impl Admission {
    /// An empty one.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        Self(Mutex::new(Queue::new(rules)))
    }

    /// It, for a moment.
    pub fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    /// An empty one.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        let (booting, waiting) = (HashMap::new(), VecDeque::new());
        let figures = Figures { at_once: rules.at_once.map(NonZeroUsize::get), ..Figures::default() };
        Self { rules, booting, waiting, usual: USUAL, figures }
    }

    /// Goes by other rules from now on. Who boots goes on, even where fewer may now.
    pub fn set_rules(&mut self, rules: Rules) {
        (self.rules, self.figures.at_once) = (rules, rules.at_once.map(NonZeroUsize::get));
    }

    /// A device wants to boot.
    pub fn ask(&mut self, device: &DeviceName, now: Instant) -> Answer {
        if let Some(place) = self.booting.get_mut(device) {
            if now.saturating_duration_since(place.since) < self.rules.longest {
                place.heard = now;
                return Answer::Go;
            }
            self.booting.remove(device);
            self.figures.expired = self.figures.expired.saturating_add(1);
        }
        self.forget_silent(now);
        let free = self.free();
        let turn = self.waiting.iter_mut().position(|waiting| {
            let found = waiting.device == *device;
            if found {
                waiting.asked = now;
            }
            found
        });
        let before = turn.unwrap_or(self.waiting.len());
        if before < free {
            let waited = turn.and_then(|turn| self.waiting.remove(turn)).is_some();
            self.admit(device, now, waited);
            return Answer::Go;
        }
        if turn.is_none() && self.waiting.len() >= MAX_WAITING {
            return Answer::Wait { place: None, about: self.wait_of(before), again_s: *ASK_AGAIN_S.end() };
        }
        if turn.is_none() {
            self.waiting.push_back(Waiting { device: device.clone(), since: now, asked: now });
        }
        let about = self.wait_of(before);
        // Whoever may be let in by the next boots that end asks most often.
        let quarter = u32::try_from(about.as_secs() / 4).unwrap_or(u32::MAX);
        let again_s = quarter.clamp(*ASK_AGAIN_S.start(), *ASK_AGAIN_S.end());
        Answer::Wait { place: Some(before.saturating_add(1)), about, again_s }
    }

    /// The boot that a device was let in for.
    pub fn began(&mut self, device: &DeviceName, boot: &str) {
        if let Some(place) = self.booting.get_mut(device) {
            place.boot = Some(boot.to_owned());
        }
    }

    /// Looks after those who boot; to be called every second or so.
    pub fn watch<'a>(&mut self, now: Instant, seen: impl Iterator<Item = Seen<'a>>) {
        let mut ready = Vec::new();
        for seen in seen {
            let Ok(device) = DeviceName::parse(seen.device) else { continue };
            let Some(place) = self.booting.get_mut(&device) else { continue };
            if place.boot.as_deref() != Some(seen.boot) {
                continue;
            }
            if place.activity != seen.activity {
                (place.activity, place.heard) = (seen.activity, now);
            }
            if seen.ready {
                ready.push(device);
            }
        }
        for device in ready {
            if let Some(place) = self.booting.remove(&device) {
                let took = now.saturating_duration_since(place.since);
                // An average that follows: an eighth of each new one.
                self.usual = self.usual.saturating_mul(7).saturating_add(took).checked_div(8).unwrap_or(took);
            }
        }
        let Rules { quiet, longest, .. } = self.rules;
        let before = self.booting.len();
        self.booting.retain(|_, place| {
            let since = |then| now.saturating_duration_since(then);
            since(place.heard) < quiet && since(place.since) < longest
        });
        let expired = before.saturating_sub(self.booting.len());
        self.figures.expired = self.figures.expired.saturating_add(expired as u64);
        self.forget_silent(now);
    }

    /// What is to be shown.
    #[must_use]
    pub fn figures(&self, now: Instant) -> Figures {
        let first = self.waiting.front();
        Figures {
            booting: self.booting.len(),
            waiting: self.waiting.len(),
            longest_wait: first.map_or(Duration::ZERO, |first| now.saturating_duration_since(first.since)),
            ..self.figures
        }
    }

    fn free(&self) -> usize {
        self.rules.at_once.map_or(usize::MAX, |limit| limit.get().saturating_sub(self.booting.len()))
    }

    fn admit(&mut self, device: &DeviceName, now: Instant, waited: bool) {
        let place = Place { since: now, boot: None, activity: 0, heard: now };
        self.booting.insert(device.clone(), place);
        self.figures.admitted = self.figures.admitted.saturating_add(1);
        self.figures.queued = self.figures.queued.saturating_add(u64::from(waited));
    }

    fn forget_silent(&mut self, now: Instant) {
        let before = self.waiting.len();
        self.waiting.retain(|waiting| now.saturating_duration_since(waiting.asked) < GIVEN_UP_AFTER);
        let gone = before.saturating_sub(self.waiting.len());
        self.figures.given_up = self.figures.given_up.saturating_add(gone as u64);
    }

    /// As long as it takes until `before` others and then this one have a place: each place is free once in a boot's time.
    fn wait_of(&self, before: usize) -> Duration {
        let places = self.rules.at_once.map_or(1, NonZeroUsize::get);
        let turns = before.saturating_add(1);
        let ms = self.usual.as_millis().saturating_mul(turns as u128).checked_div(places as u128);
        Duration::from_millis(ms.and_then(|ms| u64::try_from(ms).ok()).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: Duration = Duration::from_secs(60);

    struct Hall {
        queue: Queue,
        now: Instant,
    }

    impl Hall {
        fn with(at_once: usize) -> Self {
            let rules = Rules { at_once: NonZeroUsize::new(at_once), ..Rules::default() };
            Self { queue: Queue::new(rules), now: Instant::now() }
        }

        fn ask(&mut self, number: usize) -> Answer {
            self.queue.ask(&name(number), self.now)
        }

        fn place(&mut self, number: usize) -> Option<usize> {
            match self.ask(number) {
                Answer::Go => {
                    self.queue.began(&name(number), &format!("b{number}"));
                    None
                }
                Answer::Wait { place, .. } => Some(place.unwrap()),
            }
        }

        fn pass(&mut self, seconds: u64) {
            self.now += Duration::from_secs(seconds);
        }

        fn see(&mut self, number: usize, activity: u64, ready: bool) {
            let (device, boot) = (name(number).to_string(), format!("b{number}"));
            let seen = Seen { device: &device, boot: &boot, activity, ready };
            self.queue.watch(self.now, std::iter::once(seen));
        }

        fn figures(&self) -> Figures {
            self.queue.figures(self.now)
        }
    }

    fn name(number: usize) -> DeviceName {
        DeviceName::parse(&format!("lab-{number}")).unwrap()
    }

    #[test]
    fn devices_beyond_the_limit_wait_and_go_in_the_order_of_their_first_asking() {
        let mut hall = Hall::with(2);
        let places: Vec<_> = (0..5).map(|number| hall.place(number)).collect();
        assert_eq!(places, [None, None, Some(1), Some(2), Some(3)]);
        hall.pass(1);
        // Who asks most often does not get ahead.
        assert_eq!([hall.place(4), hall.place(4), hall.place(3)], [Some(3), Some(3), Some(2)]);
        hall.see(0, 1, true);
        assert_eq!([hall.place(4), hall.place(3), hall.place(2)], [Some(3), Some(2), None]);
        assert_eq!([hall.place(3), hall.place(4)], [Some(1), Some(2)]);
        let figures = hall.figures();
        assert_eq!((figures.booting, figures.waiting, figures.admitted, figures.queued), (2, 2, 3, 1));
        assert_eq!(figures.longest_wait, Duration::from_secs(1));
    }

    #[test]
    fn other_rules_count_from_the_next_question_on_and_end_no_boot() {
        let mut hall = Hall::with(1);
        assert_eq!([0, 1, 2, 3].map(|number| hall.place(number)), [None, Some(1), Some(2), Some(3)]);
        hall.queue.set_rules(Rules { at_once: NonZeroUsize::new(3), ..Rules::default() });
        assert_eq!([1, 2, 3].map(|number| hall.place(number)), [None, None, Some(1)]);
        hall.queue.set_rules(Rules { at_once: NonZeroUsize::new(2), ..Rules::default() });
        let figures = hall.figures();
        assert_eq!((figures.at_once, figures.booting, hall.place(3)), (Some(2), 3, Some(1)));
    }

    #[test]
    fn as_many_as_places_are_free_go_in_any_order() {
        let mut hall = Hall::with(2);
        for number in 0..6 {
            hall.place(number);
        }
        hall.see(0, 1, true);
        hall.see(1, 1, true);
        assert_eq!([hall.place(4), hall.place(3), hall.place(2)], [Some(3), None, None]);
    }

    #[test]
    fn device_restarted_while_it_boots_or_waits_keeps_what_it_has_but_not_for_ever() {
        let mut hall = Hall::with(1);
        assert_eq!([hall.place(0), hall.place(1), hall.place(2)], [None, Some(1), Some(2)]);
        // One is restarted again and again, and never gets ready; the others are restarted while they wait.
        for _ in 0..23 {
            hall.pass(25);
            assert_eq!([hall.place(1), hall.place(2), hall.place(0)], [Some(1), Some(2), None]);
        }
        hall.pass(25);
        assert_eq!([hall.place(0), hall.place(1)], [Some(3), None]);
        assert_eq!(hall.figures().expired, 1);
    }

    #[test]
    fn dead_ones_free_their_place_and_their_turn() {
        let mut hall = Hall::with(1);
        assert_eq!([hall.place(0), hall.place(1), hall.place(2)], [None, Some(1), Some(2)]);
        hall.pass(20);
        assert_eq!(hall.place(2), Some(2));
        hall.pass(20);
        assert_eq!(hall.place(2), Some(1), "the first in the queue has not been heard of");
        hall.see(0, 1, false);
        hall.pass(25);
        assert_eq!(hall.place(2), Some(1));
        hall.see(0, 1, false);
        assert_eq!(hall.figures().booting, 1, "its last request was 25 s ago");
        hall.pass(20);
        assert_eq!(hall.place(2), Some(1));
        hall.pass(15);
        hall.see(0, 1, false);
        assert_eq!(hall.place(2), None);
        let figures = hall.figures();
        assert_eq!((figures.given_up, figures.expired), (1, 1));
        // Nothing but the boot that it was let in for counts.
        hall.pass(QUIET.as_secs() - 1);
        hall.queue
            .watch(hall.now, [Seen { device: "lab-2", boot: "b1", activity: 9, ready: true }].into_iter());
        assert_eq!(hall.figures().booting, 1);
    }

    #[test]
    fn wait_is_told_by_how_long_boots_last_and_questions_are_rarer_far_behind() {
        let mut hall = Hall::with(2);
        for number in 0..2 {
            hall.place(number);
        }
        let Answer::Wait { about, again_s, .. } = hall.ask(2) else { panic!() };
        assert_eq!((about, again_s), (Duration::from_secs(15), 3));
        for number in 3..50 {
            hall.ask(number);
        }
        let Answer::Wait { place, about, again_s } = hall.ask(49) else { panic!() };
        assert_eq!((place, about, again_s), (Some(48), Duration::from_secs(720), 10));
        hall.pass(10);
        hall.see(0, 1, true);
        let Answer::Wait { about, .. } = hall.ask(49) else { panic!() };
        assert!(about < Duration::from_secs(720), "a quick boot shortens it: {about:?}");
    }

    #[test]
    fn without_a_limit_all_go_and_the_queue_is_bounded_with_one() {
        let mut hall = Hall::with(0);
        assert!((0..1000).all(|number| hall.ask(number) == Answer::Go));
        assert_eq!(hall.figures().booting, 1000);
        let mut hall = Hall::with(1);
        // Scanning the queue for each of so many takes a debug build long: it is filled by hand.
        let (since, asked) = (hall.now, hall.now);
        hall.queue.waiting.extend((1..=MAX_WAITING).map(|number| Waiting {
            device: name(number),
            since,
            asked,
        }));
        assert!(matches!(hall.ask(0), Answer::Wait { place: None, .. }));
        assert_eq!(hall.figures().waiting, MAX_WAITING);
    }
}
