//! What a trace shows: for each stage and kind of request how many, of which sizes, how sequential, how many at a time, how
//! much of it was asked for before; and which ranges of the disk are hot.
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Kind, Request, Stage, Trace};

/// Hot ranges are counted in pieces of this many bytes.
pub const HOT_BYTES: u64 = 1 << 20;

/// A pause: the disk has nothing to do for longer than this.
const PAUSE_US: u64 = 100_000;

/// What a trace shows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// From the first request's arrival to the last answer.
    pub duration_us: u64,
    /// For each stage and kind that occurs.
    pub groups: Vec<Group>,
    /// The times in which nothing was asked for, longest first.
    pub pauses: Vec<Pause>,
    /// The pieces of the disk that were read most often.
    pub hot: Vec<Hot>,
}

/// The requests of one kind in one stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// The stage.
    pub stage: Stage,
    /// The kind.
    pub kind: Kind,
    /// How many.
    pub count: u64,
    /// How many failed.
    pub failed: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes that none of them had asked for before.
    pub distinct_bytes: u64,
    /// How many began where the one before had ended.
    pub sequential: u64,
    /// Runs of sequential requests.
    pub runs: u64,
    /// How many came when none was under way.
    pub alone: u64,
    /// How many were under way at once, at most.
    pub depth_max: u64,
    /// How many were under way while any was, on average.
    pub depth_average: f64,
    /// Latencies, from arrival to answer.
    pub latency_us: Percentiles,
    /// How many of which size in bytes, smallest first.
    pub sizes: BTreeMap<u64, u64>,
}

/// Percentiles, by the nearest rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Percentiles {
    /// Half are no longer.
    pub p50: u64,
    /// 95 of 100.
    pub p95: u64,
    /// 99 of 100.
    pub p99: u64,
    /// The longest.
    pub max: u64,
}

/// A time without requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// When it began, in microseconds from the trace's start.
    pub at_us: u64,
    /// How long it was.
    pub length_us: u64,
    /// The stage whose request ended it.
    pub before: Stage,
}

/// A piece of the disk, of [`HOT_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hot {
    /// Where it begins, in bytes.
    pub offset: u64,
    /// Reads that touched it.
    pub reads: u64,
    /// Bytes of it that were read, each time anew.
    pub bytes: u64,
    /// Of these, in the first stage.
    pub first_stage_bytes: u64,
}

/// What a trace shows; at most `most` pauses and hot ranges.
#[must_use]
pub fn summary(trace: &Trace, most: usize) -> Summary {
    let requests = &trace.requests;
    let start = requests.iter().map(|request| request.at_us).min().unwrap_or(0);
    let end = requests.iter().map(Request::done_us).max().unwrap_or(0);
    let mut groups = Vec::new();
    for stage in [Stage::First, Stage::Second] {
        for kind in Kind::ALL {
            let own = requests.iter().filter(|request| request.stage == stage && request.kind == kind);
            let own: Vec<&Request> = own.collect();
            if !own.is_empty() {
                groups.push(group(stage, kind, &own));
            }
        }
    }
    Summary {
        duration_us: end.saturating_sub(start),
        groups,
        pauses: pauses(requests, most),
        hot: hot(requests, most),
    }
}

impl Percentiles {
    /// Of these values.
    #[must_use]
    pub fn of(mut values: Vec<u64>) -> Self {
        values.sort_unstable();
        let rank = |percent: usize| {
            let index = values.len().saturating_mul(percent).div_ceil(100).saturating_sub(1);
            values.get(index).copied().unwrap_or(0)
        };
        Self { p50: rank(50), p95: rank(95), p99: rank(99), max: rank(100) }
    }
}

fn group(stage: Stage, kind: Kind, requests: &[&Request]) -> Group {
    let mut sizes = BTreeMap::new();
    let (mut bytes, mut failed, mut sequential, mut expected) = (0_u64, 0_u64, 0_u64, None);
    for request in requests {
        let count: &mut u64 = sizes.entry(request.length).or_default();
        *count = count.saturating_add(1);
        bytes = bytes.saturating_add(request.length);
        failed = failed.saturating_add(u64::from(!request.ok));
        sequential = sequential.saturating_add(u64::from(expected == Some(request.offset)));
        expected = Some(request.end());
    }
    let count = u64::try_from(requests.len()).unwrap_or(u64::MAX);
    let depth = depth(requests);
    Group {
        stage,
        kind,
        count,
        failed,
        bytes,
        distinct_bytes: distinct(requests),
        sequential,
        runs: count.saturating_sub(sequential),
        alone: depth.alone,
        depth_max: depth.max,
        depth_average: depth.average,
        latency_us: Percentiles::of(requests.iter().map(|request| request.latency_us).collect()),
        sizes,
    }
}

/// How many bytes the requests cover, each counted once.
fn distinct(requests: &[&Request]) -> u64 {
    let mut ranges: Vec<(u64, u64)> =
        requests.iter().map(|request| (request.offset, request.end())).collect();
    ranges.sort_unstable();
    let (mut total, mut covered_to) = (0_u64, 0_u64);
    for (start, end) in ranges {
        let fresh = end.saturating_sub(start.max(covered_to));
        total = total.saturating_add(fresh);
        covered_to = covered_to.max(end);
    }
    total
}

struct Depth {
    alone: u64,
    max: u64,
    average: f64,
}

/// How many are under way at once: arrivals and answers as one sequence of events.
#[allow(clippy::cast_precision_loss, reason = "an average of times of hours at most")]
fn depth(requests: &[&Request]) -> Depth {
    let mut events: Vec<(u64, bool)> = Vec::with_capacity(requests.len().saturating_mul(2));
    for request in requests {
        // An answer counts before an arrival at the same time: who waits for it sends the next one then.
        events.push((request.at_us, true));
        events.push((request.done_us().max(request.at_us.saturating_add(1)), false));
    }
    events.sort_unstable();
    let (mut open, mut alone, mut max, mut busy, mut work, mut before) = (0_u64, 0, 0, 0_u64, 0_u64, 0_u64);
    for (at, arrives) in events {
        let passed = at.saturating_sub(before);
        before = at;
        if open > 0 {
            busy = busy.saturating_add(passed);
            work = work.saturating_add(passed.saturating_mul(open));
        }
        if arrives {
            alone = u64::saturating_add(alone, u64::from(open == 0));
            open = open.saturating_add(1);
            max = open.max(max);
        } else {
            open = open.saturating_sub(1);
        }
    }
    Depth { alone, max, average: if busy == 0 { 0.0 } else { work as f64 / busy as f64 } }
}

fn pauses(requests: &[Request], most: usize) -> Vec<Pause> {
    let mut pauses = Vec::new();
    let mut busy_to = requests.first().map_or(0, |request| request.at_us);
    for request in requests {
        let length_us = request.at_us.saturating_sub(busy_to);
        if length_us > PAUSE_US {
            pauses.push(Pause { at_us: busy_to, length_us, before: request.stage });
        }
        busy_to = busy_to.max(request.done_us());
    }
    pauses.sort_by_key(|pause| std::cmp::Reverse(pause.length_us));
    pauses.truncate(most);
    pauses
}

fn hot(requests: &[Request], most: usize) -> Vec<Hot> {
    let mut pieces: BTreeMap<u64, Hot> = BTreeMap::new();
    for request in requests.iter().filter(|request| request.kind == Kind::Read && request.length > 0) {
        let mut at = request.offset;
        while at < request.end() {
            let offset = at.saturating_sub(at % HOT_BYTES);
            let end = offset.saturating_add(HOT_BYTES).min(request.end());
            let bytes = end.saturating_sub(at);
            let piece =
                pieces.entry(offset).or_insert(Hot { offset, reads: 0, bytes: 0, first_stage_bytes: 0 });
            piece.reads = piece.reads.saturating_add(1);
            piece.bytes = piece.bytes.saturating_add(bytes);
            if request.stage == Stage::First {
                piece.first_stage_bytes = piece.first_stage_bytes.saturating_add(bytes);
            }
            at = end;
        }
    }
    let mut pieces: Vec<Hot> = pieces.into_values().collect();
    pieces.sort_by_key(|piece| std::cmp::Reverse((piece.bytes, piece.reads)));
    pieces.truncate(most);
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Header;

    fn read(at_us: u64, offset: u64, length: u64, latency_us: u64) -> Request {
        Request { at_us, kind: Kind::Read, offset, length, stage: Stage::First, latency_us, ok: true }
    }

    fn of(requests: Vec<Request>) -> Summary {
        summary(&Trace { header: Header::default(), requests }, 3)
    }

    #[test]
    fn reads_one_after_another_are_alone_and_sequential() {
        let found = of((0..10).map(|n| read(n * 100, n * 512, 512, 100)).collect());
        let [group] = &found.groups[..] else { panic!("{found:?}") };
        assert_eq!((group.count, group.sequential, group.runs, group.alone), (10, 9, 1, 10));
        assert_eq!((group.depth_max, group.bytes, group.distinct_bytes), (1, 5120, 5120));
        assert!((group.depth_average - 1.0).abs() < 0.001);
        assert_eq!((found.duration_us, group.sizes[&512]), (1000, 10));
    }

    #[test]
    fn reads_in_flight_together_are_counted_as_such() {
        let found = of((0..4).map(|n| read(n, n << 20, 4096, 1000)).collect());
        let group = &found.groups[0];
        assert_eq!((group.alone, group.depth_max, group.sequential, group.runs), (1, 4, 0, 4));
        assert!(group.depth_average > 3.9, "{}", group.depth_average);
    }

    #[test]
    fn bytes_asked_for_twice_are_distinct_once() {
        let found = of(vec![read(0, 0, 4096, 1), read(5, 2048, 4096, 1), read(9, 0, 8192, 1)]);
        assert_eq!((found.groups[0].bytes, found.groups[0].distinct_bytes), (16_384, 8192));
    }

    #[test]
    fn pauses_and_hot_ranges_come_largest_first() {
        let second = Request { stage: Stage::Second, ..read(900_000, HOT_BYTES - 512, 1024, 10) };
        let found = of(vec![read(0, 0, 512, 10), read(200_000, 0, 512, 10), second]);
        let lengths: Vec<u64> = found.pauses.iter().map(|pause| pause.length_us).collect();
        assert_eq!((lengths, found.pauses[0].before), (vec![699_990, 199_990], Stage::Second));
        let hot: Vec<(u64, u64, u64)> =
            found.hot.iter().map(|hot| (hot.offset, hot.reads, hot.first_stage_bytes)).collect();
        assert_eq!(hot, [(0, 3, 1024), (HOT_BYTES, 1, 0)]);
    }

    #[test]
    fn percentiles_are_by_the_nearest_rank() {
        let found = Percentiles::of((1..=200).rev().collect());
        assert_eq!(found, Percentiles { p50: 100, p95: 190, p99: 198, max: 200 });
        assert_eq!(Percentiles::of(Vec::new()), Percentiles::default());
    }

    #[test]
    fn kinds_and_stages_are_told_apart() {
        let flush = Request { kind: Kind::Flush, length: 0, ..read(3, 0, 0, 9) };
        let failed = Request { ok: false, stage: Stage::Second, ..read(4, 0, 512, 9) };
        let found = of(vec![read(0, 0, 512, 1), flush, failed]);
        let groups: Vec<_> = found.groups.iter().map(|g| (g.stage, g.kind, g.count, g.failed)).collect();
        let expected = [
            (Stage::First, Kind::Read, 1, 0),
            (Stage::First, Kind::Flush, 1, 0),
            (Stage::Second, Kind::Read, 1, 1),
        ];
        assert_eq!(groups, expected);
    }
}
