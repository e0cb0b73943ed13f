//! The wait for a turn to boot in the timeline: one step, however often the device asks.
use netboot::director::MacAddress;

use super::{MAX_PENDING_STEPS, Moment, Recorder, StepKind};

impl Recorder {
    /// A machine is told to wait; `place`: its place now.
    pub fn queued(&self, mac: MacAddress, place: Option<usize>) {
        self.queued_at(self.clock().now(), mac, place);
    }

    pub(super) fn queued_at(&self, now: Moment, mac: MacAddress, place: Option<usize>) {
        if self.still_queued(now, mac) {
            return;
        }
        let mut table = self.lock();
        table.make_room(mac, now);
        let steps = table.pending.entry(mac).or_default();
        if steps.len() >= MAX_PENDING_STEPS {
            steps.pop_front();
        }
        steps.push_back((now, StepKind::Queue { place, waited_ms: super::Millis::default() }));
    }

    /// A machine is let in, after a wait or without one.
    pub fn let_in(&self, mac: MacAddress) {
        self.still_queued(self.clock().now(), mac);
    }

    /// Makes the wait of a machine last until now; whether it has one.
    fn still_queued(&self, now: Moment, mac: MacAddress) -> bool {
        let mut table = self.lock();
        let steps = table.pending.get_mut(&mac).into_iter().flatten();
        let wait = steps.rev().find_map(|(at, step)| match step {
            StepKind::Queue { waited_ms, .. } => Some((*at, waited_ms)),
            _ => None,
        });
        let Some((since, waited_ms)) = wait else { return false };
        *waited_ms = now.since(since);
        true
    }
}

/// When the machine of a step was last heard of.
pub(super) fn heard((at, step): &(Moment, StepKind)) -> Moment {
    match step {
        StepKind::Queue { waited_ms, .. } => at.after(*waited_ms),
        _ => *at,
    }
}
