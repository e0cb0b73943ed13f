//! How long an event loop stays awake when it has nothing to do.
//!
//! To fall asleep and to be woken is dear: two switches of context, and where a processor halts meanwhile, as idle ones of
//! virtual machines do, an exit to the host on both sides; some 20 us altogether, a part of which whoever sends pays for
//! the wake-up. A client whose next request comes sooner than that is served at half the latency, and sends at a lower
//! cost itself, if the loop has not gone to sleep. One that is silent must cost nothing.
//!
//! So a loop looks on for as long as a sleep would cost, and does that only while requests have come that soon of late.
//! In the worst case it thus spends twice what it would without. What does not come from a client (a worker's results,
//! room in a socket) is never waited for awake: whoever brings it may need the processor.
use std::time::{Duration, Instant};

/// How long a loop looks on, and the usual pause up to which it does: what falling asleep and waking cost.
const LOOK_ON: Duration = Duration::from_micros(50);

/// A longer pause counts as one of this length, so that a client that comes back after a silence is soon seen to have.
const LONGEST_PAUSE: Duration = Duration::from_micros(400);

/// The weight of the last pause in the usual one: an eighth.
const WEIGHT: u32 = 8;

/// What came after a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Came {
    /// Bytes from a client.
    Requests,
    /// Something else, or nothing.
    Other,
}

/// Watches the pauses of one event loop.
#[derive(Debug)]
pub struct Vigil {
    /// With one processor, whoever is waited for could not run meanwhile.
    may_look_on: bool,
    usual_pause: Duration,
}

impl Vigil {
    /// For a loop on a machine with so many processors.
    #[must_use]
    pub fn new(processors: usize) -> Self {
        Self { may_look_on: processors > 1, usual_pause: LONGEST_PAUSE }
    }

    /// Waits by `poll`, which waits for as long as it is told and says what came, until something did or the time is
    /// up: awake first, where that is worth it and `may_look_on` allows it. It does not while others of this process
    /// work for the loop, who may need the processor.
    ///
    /// # Errors
    /// Those of `poll`.
    pub fn wait<E>(
        &mut self,
        timeout: Duration,
        may_look_on: bool,
        mut poll: impl FnMut(Duration) -> Result<Option<Came>, E>,
    ) -> Result<(), E> {
        if timeout.is_zero() {
            return poll(timeout).map(drop);
        }
        let began = Instant::now();
        let awake = if may_look_on { self.look_on().min(timeout) } else { Duration::ZERO };
        let mut came = None;
        while came.is_none() && began.elapsed() < awake {
            came = poll(Duration::ZERO)?;
        }
        if came.is_none() {
            came = poll(timeout.saturating_sub(began.elapsed()))?;
        }
        self.note(began.elapsed(), came.unwrap_or(Came::Other));
        Ok(())
    }

    /// How long to look on before the next sleep.
    fn look_on(&self) -> Duration {
        if self.may_look_on && self.usual_pause < LOOK_ON { LOOK_ON } else { Duration::ZERO }
    }

    /// A pause is over.
    fn note(&mut self, pause: Duration, came: Came) {
        let counted = match came {
            Came::Requests => pause.min(LONGEST_PAUSE),
            Came::Other => LONGEST_PAUSE,
        };
        let before = self.usual_pause.saturating_mul(WEIGHT.saturating_sub(1));
        self.usual_pause = before.saturating_add(counted).checked_div(WEIGHT).unwrap_or(counted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_micros(20);

    /// One that has seen many short pauses.
    fn hopeful(processors: usize) -> Vigil {
        let mut vigil = Vigil::new(processors);
        (0..100).for_each(|_| vigil.note(SHORT, Came::Requests));
        vigil
    }

    /// How long `poll` was told to wait, each time, when something comes at its call of this number.
    fn waits(vigil: &mut Vigil, timeout: Duration, comes_at: usize) -> Vec<Duration> {
        let mut waits = Vec::new();
        let result: Result<(), ()> = vigil.wait(timeout, true, |wait| {
            waits.push(wait);
            Ok((waits.len() == comes_at).then_some(Came::Requests))
        });
        result.unwrap();
        waits
    }

    #[test]
    fn loop_looks_on_only_after_pauses_that_were_short() {
        let mut vigil = Vigil::new(2);
        assert_eq!(vigil.look_on(), Duration::ZERO);
        let needed = (1..100).find(|_| {
            vigil.note(SHORT, Came::Requests);
            !vigil.look_on().is_zero()
        });
        assert!(needed.is_some_and(|count| (10..30).contains(&count)), "{needed:?}");
        vigil.note(Duration::from_secs(1), Came::Requests);
        assert_eq!(vigil.look_on(), Duration::ZERO, "a silence ends it");
        let mut vigil = hopeful(2);
        vigil.note(LOOK_ON * 2, Came::Requests);
        assert_eq!(vigil.look_on(), LOOK_ON, "one longer pause among short ones does not");
    }

    #[test]
    fn loop_that_waits_for_anything_but_clients_sleeps() {
        let mut vigil = hopeful(2);
        vigil.note(SHORT, Came::Other);
        assert_eq!(vigil.look_on(), Duration::ZERO);
    }

    #[test]
    fn loop_on_a_single_processor_never_looks_on() {
        assert_eq!(hopeful(1).look_on(), Duration::ZERO);
    }

    #[test]
    fn what_comes_while_the_loop_looks_on_is_taken_without_a_sleep() {
        let second = Duration::from_secs(1);
        let mut awake = waits(&mut hopeful(2), second, 2);
        // A test machine may be so busy that the time to look on is over before the second look.
        awake.truncate(1);
        assert_eq!(awake, [Duration::ZERO]);
        let asleep = waits(&mut Vigil::new(2), second, 1);
        assert!(asleep.len() == 1 && !asleep[0].is_zero() && asleep[0] <= second, "{asleep:?}");
    }

    #[test]
    fn loop_for_which_others_work_sleeps_and_stays_hopeful() {
        let mut vigil = hopeful(2);
        let mut waits = Vec::new();
        let result: Result<(), ()> = vigil.wait(Duration::from_secs(1), false, |wait| {
            waits.push(wait);
            Ok(Some(Came::Requests))
        });
        assert!(result.is_ok() && waits.len() == 1 && !waits[0].is_zero(), "{waits:?}");
        assert_eq!(vigil.look_on(), LOOK_ON);
    }

    #[test]
    fn nothing_comes_and_the_loop_sleeps_for_the_rest_of_its_time() {
        let second = Duration::from_secs(1);
        let waits = waits(&mut hopeful(2), second, usize::MAX);
        let (last, looks) = waits.split_last().unwrap();
        assert!(looks.iter().all(Duration::is_zero) && *last > Duration::from_millis(1), "{waits:?}");
        assert!(*last <= second - LOOK_ON);
    }

    #[test]
    fn loop_with_something_left_to_do_only_has_a_look() {
        let mut vigil = hopeful(2);
        assert_eq!(waits(&mut vigil, Duration::ZERO, 1), [Duration::ZERO]);
        assert_eq!(vigil.look_on(), LOOK_ON);
    }
}
