//! Counting the requests of one stage of a boot: atomics alone, no lock, no allocation.
//!
//! A reader may see one counter of a request and not yet the next: figures of a running boot can be one request
//! apart from each other. That is the price of costing the data path a few nanoseconds.
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use block::ByteRange;
use serde::{Deserialize, Serialize};

use super::pattern::{Pattern, PatternCounters};
use super::time::{Millis, Moment};

/// Request sizes are counted in powers of two from 512 bytes (the smallest request) to 16 MiB (and beyond).
pub const SIZE_BUCKETS: usize = 16;

/// The exponent of the first bucket: 512 bytes.
const FIRST_EXPONENT: u32 = 9;

/// One kind of request, being counted.
#[derive(Debug, Default)]
pub struct IoCounters {
    count: AtomicU64,
    bytes: AtomicU64,
    errors: AtomicU64,
    latency_ns: AtomicU64,
    latency_max_ns: AtomicU64,
    sizes: [AtomicU64; SIZE_BUCKETS],
}

/// One kind of request, counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoTotals {
    /// Requests that succeeded.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Requests that failed.
    pub errors: u64,
    /// From the arrival of a request to its answer's being queued, on average over those that succeeded.
    pub latency_us_average: u64,
    /// The longest.
    pub latency_us_max: u64,
    /// The sum.
    pub latency_us_total: u64,
    /// How many requests of which size, smallest first; sizes that did not occur are left out.
    pub sizes: Vec<SizeCount>,
}

/// How many requests had a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeCount {
    /// More than half of this many bytes, and no more than this; the smallest and the largest count all beyond, too.
    pub up_to_bytes: u64,
    /// How many requests.
    pub count: u64,
}

impl IoCounters {
    /// Counts one request.
    pub fn record(&self, bytes: u64, latency: Duration, ok: bool) {
        if !ok {
            self.errors.fetch_add(1, Relaxed);
            return;
        }
        let latency_ns = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.count.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
        self.latency_ns.fetch_add(latency_ns, Relaxed);
        self.latency_max_ns.fetch_max(latency_ns, Relaxed);
        if let Some(bucket) = self.sizes.get(bucket_of(bytes)) {
            bucket.fetch_add(1, Relaxed);
        }
    }

    /// The counts now.
    #[must_use]
    pub fn totals(&self) -> IoTotals {
        let count = self.count.load(Relaxed);
        let total_ns = self.latency_ns.load(Relaxed);
        let buckets = (FIRST_EXPONENT..).zip(&self.sizes);
        let sizes = buckets.filter_map(|(exponent, bucket)| {
            let count = bucket.load(Relaxed);
            (count > 0).then_some(SizeCount { up_to_bytes: 1 << exponent, count })
        });
        IoTotals {
            count,
            bytes: self.bytes.load(Relaxed),
            errors: self.errors.load(Relaxed),
            latency_us_average: total_ns.checked_div(count).unwrap_or(0) / 1000,
            latency_us_max: self.latency_max_ns.load(Relaxed) / 1000,
            latency_us_total: total_ns / 1000,
            sizes: sizes.collect(),
        }
    }

    fn restore(&self, totals: &IoTotals) {
        self.count.store(totals.count, Relaxed);
        self.bytes.store(totals.bytes, Relaxed);
        self.errors.store(totals.errors, Relaxed);
        self.latency_ns.store(totals.latency_us_total.saturating_mul(1000), Relaxed);
        self.latency_max_ns.store(totals.latency_us_max.saturating_mul(1000), Relaxed);
        for size in &totals.sizes {
            if let Some(bucket) = self.sizes.get(bucket_of(size.up_to_bytes)) {
                bucket.store(size.count, Relaxed);
            }
        }
    }
}

/// The bucket for a request of so many bytes.
pub(super) fn bucket_of(bytes: u64) -> usize {
    let exponent = bytes.max(1).checked_next_power_of_two().map_or(u64::BITS, u64::trailing_zeros);
    let bucket = usize::try_from(exponent.saturating_sub(FIRST_EXPONENT)).unwrap_or(usize::MAX);
    bucket.min(SIZE_BUCKETS - 1)
}

/// The largest size that a bucket counts.
pub(super) fn bucket_bytes(bucket: usize) -> u64 {
    let exponent = u32::try_from(bucket).unwrap_or(u32::MAX).saturating_add(FIRST_EXPONENT);
    1_u64.checked_shl(exponent).unwrap_or(u64::MAX)
}

/// All requests of one stage, being counted.
#[derive(Debug, Default)]
pub struct StageCounters {
    /// READ.
    pub reads: IoCounters,
    /// How they come.
    pub pattern: PatternCounters,
    /// WRITE.
    pub writes: IoCounters,
    flushes: AtomicU64,
    discards: AtomicU64,
    /// Microseconds since 1970 of the first and the last answer; zero: none yet.
    first_us: AtomicU64,
    last_us: AtomicU64,
}

/// All requests of one stage, counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StageTotals {
    /// When the first request was answered, from the boot's first step.
    pub first_request_at_ms: Option<Millis>,
    /// When the last request was answered.
    pub last_request_at_ms: Option<Millis>,
    /// READ.
    pub reads: IoTotals,
    /// How they came.
    #[serde(default)]
    pub read_pattern: Pattern,
    /// WRITE.
    pub writes: IoTotals,
    /// SYNCHRONIZE CACHE.
    pub flushes: u64,
    /// UNMAP, WRITE SAME with UNMAP.
    pub discards: u64,
    /// Bytes read over the time from the first request to the last.
    pub read_bytes_per_second: u64,
}

/// What was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// READ.
    Read,
    /// WRITE.
    Write,
    /// SYNCHRONIZE CACHE.
    Flush,
    /// UNMAP.
    Discard,
}

impl StageCounters {
    /// Counts one request that was answered at `now`.
    pub fn record(&self, now: Moment, kind: Kind, range: ByteRange, latency: Duration, ok: bool) {
        let bytes = range.length().get();
        match kind {
            Kind::Read => {
                self.reads.record(bytes, latency, ok);
                if ok {
                    self.pattern.record(now, range, latency);
                }
            }
            Kind::Write => self.writes.record(bytes, latency, ok),
            Kind::Flush => drop(self.flushes.fetch_add(1, Relaxed)),
            Kind::Discard => drop(self.discards.fetch_add(1, Relaxed)),
        }
        self.last_us.fetch_max(now.unix_us(), Relaxed);
        if self.first_us.load(Relaxed) == 0 {
            // A second request that comes in between sets it to about the same.
            self.first_us.store(now.unix_us().max(1), Relaxed);
        }
    }

    /// When the last request was answered.
    #[must_use]
    pub fn last(&self) -> Option<Moment> {
        Some(self.last_us.load(Relaxed)).filter(|us| *us > 0).map(Moment::from_unix_us)
    }

    /// A figure that grows with every request.
    #[must_use]
    pub fn activity(&self) -> u64 {
        let counts = [&self.reads.count, &self.reads.errors, &self.writes.count, &self.writes.errors];
        counts.into_iter().chain([&self.flushes, &self.discards]).map(|count| count.load(Relaxed)).sum()
    }

    /// The counts now, in a boot that began at `start`; `None` where nothing was asked for.
    #[must_use]
    pub fn totals(&self, start: Moment) -> Option<StageTotals> {
        let last = self.last()?;
        let first = Moment::from_unix_us(self.first_us.load(Relaxed));
        let reads = self.reads.totals();
        let window_us = last.since(first).us();
        let per_second = u128::from(reads.bytes).saturating_mul(1_000_000).checked_div(u128::from(window_us));
        Some(StageTotals {
            first_request_at_ms: Some(first.since(start)),
            last_request_at_ms: Some(last.since(start)),
            read_bytes_per_second: u64::try_from(per_second.unwrap_or(0)).unwrap_or(u64::MAX),
            reads,
            read_pattern: self.pattern.totals(),
            writes: self.writes.totals(),
            flushes: self.flushes.load(Relaxed),
            discards: self.discards.load(Relaxed),
        })
    }

    /// Counters that go on where stored ones ended.
    #[must_use]
    pub fn restored(totals: &StageTotals, start: Moment) -> Self {
        let counters = Self::default();
        counters.reads.restore(&totals.reads);
        counters.pattern.restore(&totals.read_pattern);
        counters.writes.restore(&totals.writes);
        counters.flushes.store(totals.flushes, Relaxed);
        counters.discards.store(totals.discards, Relaxed);
        let moment = |at: Option<Millis>| at.map_or(0, |at| start.after(at).unix_us());
        counters.first_us.store(moment(totals.first_request_at_ms), Relaxed);
        counters.last_us.store(moment(totals.last_request_at_ms), Relaxed);
        counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(length: u64) -> ByteRange {
        ByteRange::new(block::ByteOffset::ZERO, block::ByteLength::new(length)).unwrap()
    }

    #[test]
    fn request_sizes_are_counted_in_the_power_of_two_that_holds_them() {
        let counters = IoCounters::default();
        for bytes in [0, 1, 512, 513, 1024, 4096, 4097, 1 << 24, 1 << 40] {
            counters.record(bytes, Duration::from_micros(10), true);
        }
        let sizes: Vec<(u64, u64)> =
            counters.totals().sizes.iter().map(|s| (s.up_to_bytes, s.count)).collect();
        assert_eq!(sizes, [(512, 3), (1024, 2), (4096, 1), (8192, 1), (1 << 24, 2)]);
    }

    #[test]
    fn failed_requests_count_as_errors_alone() {
        let counters = IoCounters::default();
        counters.record(4096, Duration::from_micros(30), true);
        counters.record(4096, Duration::from_micros(10), true);
        counters.record(4096, Duration::from_secs(10), false);
        let totals = counters.totals();
        assert_eq!((totals.count, totals.bytes, totals.errors), (2, 8192, 1));
        assert_eq!((totals.latency_us_average, totals.latency_us_max), (20, 30));
    }

    #[test]
    fn throughput_is_bytes_over_the_time_from_first_to_last_request() {
        let counters = StageCounters::default();
        let start = Moment::from_unix_us(1_000_000);
        assert_eq!(counters.totals(start), None);
        counters.record(Moment::from_unix_us(2_000_000), Kind::Read, bytes(1_000_000), Duration::ZERO, true);
        counters.record(Moment::from_unix_us(4_000_000), Kind::Read, bytes(3_000_000), Duration::ZERO, true);
        let totals = counters.totals(start).unwrap();
        assert_eq!(totals.read_bytes_per_second, 2_000_000);
        assert_eq!(totals.first_request_at_ms, Some(Millis::from_us(1_000_000)));
        assert_eq!(totals.last_request_at_ms, Some(Millis::from_us(3_000_000)));
    }

    #[test]
    fn restored_counters_say_what_the_stored_ones_said() {
        let counters = StageCounters::default();
        let start = Moment::from_unix_us(500);
        counters.record(Moment::from_unix_us(1500), Kind::Write, bytes(4096), Duration::from_micros(7), true);
        counters.record(Moment::from_unix_us(2500), Kind::Flush, bytes(0), Duration::from_micros(7), true);
        let totals = counters.totals(start).unwrap();
        assert_eq!(StageCounters::restored(&totals, start).totals(start), Some(totals));
    }
}
