//! When connections want to be looked at again although nothing comes for them.
use std::collections::BTreeSet;
use std::time::Instant;

/// Times, each for one connection. A connection that is gone may stand here until its time.
#[derive(Debug, Default)]
pub struct Alarms(BTreeSet<(Instant, usize)>);

impl Alarms {
    /// Has `connection` looked at when `at` has come. Setting the same time again changes nothing.
    pub fn set(&mut self, at: Instant, connection: usize) {
        self.0.insert((at, connection));
    }

    /// When the first of them comes.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        self.0.first().map(|(at, _)| *at)
    }

    /// A connection whose time has come by `now`; ask again for the next.
    pub fn take_due(&mut self, now: Instant) -> Option<usize> {
        let (at, _) = self.0.first()?;
        if *at > now {
            return None;
        }
        self.0.pop_first().map(|(_, connection)| connection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn connections_come_in_the_order_of_their_times_and_not_before() {
        let (mut alarms, now) = (Alarms::default(), Instant::now());
        let at = |ms| now + Duration::from_millis(ms);
        for (ms, connection) in [(30, 1), (10, 2), (20, 3), (10, 2)] {
            alarms.set(at(ms), connection);
        }
        assert_eq!((alarms.next(), alarms.take_due(at(9))), (Some(at(10)), None));
        let due: Vec<usize> = std::iter::from_fn(|| alarms.take_due(at(20))).collect();
        assert_eq!((due, alarms.next()), (vec![2, 3], Some(at(30))));
    }
}
