//! When to send the requests of a trace again.
//!
//! A machine sends a request because of the answers that it has: what it read tells it what to read next. So a replay keeps the
//! *order of cause*: a request is sent when as many answers have come as the recorded machine had when it sent it, and then as
//! late after the last of them as it did, if thinking is to be replayed. As many requests are under way at once as in the recording, and
//! a faster server makes the whole faster. Sending by the clock of the recording would measure nothing but the recording.
use crate::{Request, Trace};

/// A request, and when to send it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    /// The request.
    pub request: Request,
    /// Answers that must have come before it is sent: never more than there are requests before it.
    pub after: usize,
    /// How long the recorded machine thought then, in microseconds.
    pub think_us: u64,
}

/// The requests of a trace in the order in which they are sent.
#[must_use]
pub fn plan(trace: &Trace) -> Vec<Planned> {
    let start_us = trace.requests.first().map_or(0, |request| request.at_us);
    // A request has no answer before it has come.
    let done = |request: &Request| request.done_us().max(request.at_us.saturating_add(1));
    let mut answers: Vec<u64> = trace.requests.iter().map(done).collect();
    answers.sort_unstable();
    let planned = trace.requests.iter().map(|request| {
        let after = answers.partition_point(|answer| *answer <= request.at_us);
        let last_us = after.checked_sub(1).and_then(|last| answers.get(last)).copied().unwrap_or(start_us);
        Planned { request: *request, after, think_us: request.at_us.saturating_sub(last_us) }
    });
    planned.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Header, Kind, Stage};

    fn of(requests: &[(u64, u64)]) -> Vec<(usize, u64)> {
        let request = |(at_us, latency_us): &(u64, u64)| Request {
            at_us: *at_us,
            kind: Kind::Read,
            offset: 0,
            length: 512,
            stage: Stage::First,
            latency_us: *latency_us,
            ok: true,
        };
        let trace = Trace { header: Header::default(), requests: requests.iter().map(request).collect() };
        plan(&trace).iter().map(|planned| (planned.after, planned.think_us)).collect()
    }

    #[test]
    fn one_at_a_time_waits_for_every_answer_and_thinks() {
        assert_eq!(of(&[(10, 5), (20, 5), (25, 5)]), [(0, 0), (1, 5), (2, 0)]);
    }

    #[test]
    fn what_was_under_way_together_is_sent_together() {
        assert_eq!(of(&[(0, 100), (1, 100), (2, 10), (50, 1)]), [(0, 0), (0, 1), (0, 2), (1, 38)]);
    }

    #[test]
    fn request_without_latency_does_not_wait_for_itself() {
        assert_eq!(of(&[(7, 0), (7, 0), (9, 0)]), [(0, 0), (0, 0), (2, 1)]);
        for (index, (after, _)) in of(&[(0, 0), (0, 9), (0, 0), (1, 0), (1, 3)]).into_iter().enumerate() {
            assert!(after <= index);
        }
    }
}
