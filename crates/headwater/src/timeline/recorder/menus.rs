//! Boot menus in the timeline: when one was shown, and how it was left.
//!
//! iPXE does not tell whether somebody chose or the time was over. The time tells it: the default that comes when the wait is
//! over was taken by the menu. (Whoever moves about in a menu, which stops its clock, and takes the default later than that,
//! is told apart by nothing.)
use std::collections::VecDeque;

use netboot::director::MacAddress;

use super::{MAX_PENDING_STEPS, Millis, Moment, Recorder, StepKind};

/// How much later than its wait a choice of the menu itself may come: a request, and a slow screen.
const LATE: Millis = Millis::from_us(5_000_000);

impl Recorder {
    /// A machine shows a boot menu of so many entries, or waits for the key that calls for it (0).
    pub fn menu(&self, mac: MacAddress, entries: usize, wait_s: u16) {
        self.pend(mac, self.clock().now(), |_| StepKind::Menu { entries, wait_s });
    }

    /// A machine has left its boot menu; `default`: with what it takes by itself. How, and how long it was there; `None`: it
    /// had none that is known of.
    pub fn menu_choice(
        &self,
        mac: MacAddress,
        choice: &str,
        default: bool,
    ) -> Option<(&'static str, Millis)> {
        let now = self.clock().now();
        let mut found = None;
        self.pend(mac, now, |steps| {
            let shown = steps.iter().rev().find_map(|(at, step)| match step {
                StepKind::Menu { wait_s, .. } => Some((*at, *wait_s)),
                _ => None,
            });
            let waited = shown.map_or(Millis::default(), |(at, _)| now.since(at));
            let how = how(shown.map(|(_, wait_s)| wait_s), waited, default);
            found = shown.map(|_| (how, waited));
            StepKind::MenuChoice { choice: choice.to_owned(), how: how.to_owned(), waited_ms: waited }
        });
        found
    }

    /// Adds a step to those that wait for a machine's script.
    fn pend(
        &self,
        mac: MacAddress,
        now: Moment,
        step: impl FnOnce(&VecDeque<(Moment, StepKind)>) -> StepKind,
    ) {
        let mut table = self.lock();
        table.make_room(mac, now);
        let steps = table.pending.entry(mac).or_default();
        let step = step(steps);
        if steps.len() >= MAX_PENDING_STEPS {
            steps.pop_front();
        }
        steps.push_back((now, step));
    }
}

/// How a menu was left that takes its default after `wait_s`.
fn how(wait_s: Option<u16>, waited: Millis, default: bool) -> &'static str {
    let Some(wait_s) = wait_s.filter(|wait_s| default && *wait_s > 0) else { return "by hand" };
    let wait = Millis::from_us(u64::from(wait_s).saturating_mul(1_000_000));
    if waited >= wait && waited <= wait.plus(LATE) { "time-out" } else { "by hand" }
}

/// How long a machine's menus, and its wait for its turn, took together.
pub(super) fn waited(steps: &VecDeque<(Moment, StepKind)>) -> Millis {
    steps.iter().fold(Millis::default(), |sum, (_, step)| match step {
        StepKind::MenuChoice { waited_ms, .. } | StepKind::Queue { waited_ms, .. } => sum.plus(*waited_ms),
        _ => sum,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_that_comes_when_the_wait_is_over_was_taken_by_the_menu() {
        let seconds = |s: u64| Millis::from_us(s * 1_000_000);
        assert_eq!(how(Some(10), seconds(10), true), "time-out");
        assert_eq!(how(Some(10), seconds(4), true), "by hand");
        assert_eq!(how(Some(10), seconds(10), false), "by hand");
        assert_eq!(how(Some(10), seconds(600), true), "by hand", "a menu does not wait so long");
        assert_eq!(how(Some(0), seconds(600), true), "by hand");
        assert_eq!(how(None, seconds(10), true), "by hand");
    }
}
