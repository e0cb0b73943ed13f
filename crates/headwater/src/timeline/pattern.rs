//! How the reads of a stage came: one after another or many at a time, in order or all over the disk, new or asked for before.
//!
//! All of it is counted when a read is answered, with a few atomic operations. Arrival is reckoned back from the latency: a read
//! that arrived after the answer before it was *alone*. The time from one answer to the next counts to the size of the read that
//! it ended with, which is what makes "so much of the stage was small reads" more than a guess.
//!
//! What is read again is *sampled*: an exact account would need a bit for each sector of each device. One piece of the disk in
//! sixteen is watched, by a hash of its place, with a bit for each of its sectors; 8 KiB a stage in all.
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use block::ByteRange;
use serde::{Deserialize, Serialize};

use super::counters::{SIZE_BUCKETS, bucket_bytes, bucket_of};
use super::time::{Millis, Moment};

/// A read that took longer waited for the store: what is in memory takes some tens of microseconds.
pub const SLOW_US: u64 = 2000;

/// The longest time between two answers that counts to a read. What is longer is a pause: nobody waited for the disk.
const PAUSE_US: u64 = 100_000;

/// The sectors that bits stand for, in bytes.
const SECTOR_BYTES: u64 = 512;

/// One piece of the disk: as many sectors as a word has bits.
const PIECE_BYTES: u64 = SECTOR_BYTES * 64;

/// One piece in so many is watched.
const SAMPLED_OF: u64 = 16;

/// The pieces that can be watched: of 256 MiB that were read. What is more is not watched.
const WATCHED: usize = 512;

/// The most pieces of one read that are looked at: 32 MiB, more than any protocol reads at once.
const MAX_PIECES: u64 = 1024;

/// How reads come, being counted.
#[derive(Debug, Default)]
pub struct PatternCounters {
    sequential: AtomicU64,
    alone: AtomicU64,
    busy_us: AtomicU64,
    work_us: AtomicU64,
    slow: AtomicU64,
    slow_us: AtomicU64,
    took_us: [AtomicU64; SIZE_BUCKETS],
    last_end: AtomicU64,
    last_done_us: AtomicU64,
    sampled_bytes: AtomicU64,
    sampled_again_bytes: AtomicU64,
    watched: OnceLock<Box<[Piece]>>,
}

/// A piece of the disk that is watched.
#[derive(Debug, Default)]
struct Piece {
    /// Its number plus one; zero: nobody's.
    number: AtomicU64,
    /// The sectors that were read.
    sectors: AtomicU64,
}

/// How the reads of a stage came.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pattern {
    /// Reads that began where the one that was answered before had ended.
    pub sequential: u64,
    /// Reads that came when no other was under way.
    pub alone: u64,
    /// While at least one read was under way.
    pub busy_us: u64,
    /// How many were under way at once then, on average.
    pub in_flight_average: f64,
    /// Reads that took longer than 2 ms: they waited for the store.
    pub slow: u64,
    /// How long all of those took together.
    pub slow_us: u64,
    /// For each size of reads, how much of the stage's time they took; pauses are left out.
    pub took: Vec<SizeTime>,
    /// Of a sixteenth of the disk: bytes that were read.
    pub sampled_bytes: u64,
    /// Of these, bytes that had been read before.
    pub sampled_again_bytes: u64,
}

/// How much time reads of one size took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeTime {
    /// As in [`SizeCount`](super::counters::SizeCount).
    pub up_to_bytes: u64,
    /// From the answer before to theirs, all together.
    pub took_us: u64,
}

impl Pattern {
    /// What share of the bytes had been read before, from 0 to 1; `None` where too little was read to tell.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "a share")]
    pub fn again_share(&self) -> Option<f64> {
        let enough = self.sampled_bytes >= 8 * PIECE_BYTES;
        enough.then(|| self.sampled_again_bytes as f64 / self.sampled_bytes as f64)
    }
}

impl PatternCounters {
    /// Counts a read that was answered at `now`.
    pub fn record(&self, now: Moment, range: ByteRange, latency: Duration) {
        let (now_us, latency_us) = (now.unix_us(), Millis::from(latency).us());
        let offset = range.start().get();
        let length = range.length().get();
        let end = offset.saturating_add(length);
        // No read ends at 0, so that 0 says that there was none before.
        if self.last_end.swap(end, Relaxed) == offset && offset != 0 {
            self.sequential.fetch_add(1, Relaxed);
        }
        let arrived_us = now_us.saturating_sub(latency_us);
        let before_us = self.last_done_us.fetch_max(now_us, Relaxed);
        // Both are cut to microseconds: one that arrives with an answer counts as after it.
        if arrived_us.saturating_add(1) >= before_us {
            self.alone.fetch_add(1, Relaxed);
        }
        self.busy_us.fetch_add(now_us.saturating_sub(arrived_us.max(before_us)), Relaxed);
        self.work_us.fetch_add(latency_us, Relaxed);
        if latency_us > SLOW_US {
            self.slow.fetch_add(1, Relaxed);
            self.slow_us.fetch_add(latency_us, Relaxed);
        }
        let since_us = now_us.saturating_sub(before_us);
        if before_us != 0
            && since_us <= PAUSE_US
            && let Some(took) = self.took_us.get(bucket_of(length))
        {
            took.fetch_add(since_us, Relaxed);
        }
        self.watch(offset, end);
    }

    /// Marks the watched sectors of a read.
    fn watch(&self, offset: u64, end: u64) {
        let first = offset / PIECE_BYTES;
        let last = end.saturating_sub(1) / PIECE_BYTES;
        for number in (first..=last).take(MAX_PIECES as usize) {
            let hash = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
            if hash % SAMPLED_OF != 0 {
                continue;
            }
            let pieces = self.watched.get_or_init(|| (0..WATCHED).map(|_| Piece::default()).collect());
            let Some(piece) = pieces.get((hash / SAMPLED_OF) as usize % WATCHED) else { continue };
            let name = number.saturating_add(1);
            // Two pieces that fall on one place: the first that was read is watched.
            let own = match piece.number.compare_exchange(0, name, Relaxed, Relaxed) {
                Ok(_) => true,
                Err(found) => found == name,
            };
            if !own {
                continue;
            }
            let start = number.saturating_mul(PIECE_BYTES);
            let from = offset.saturating_sub(start) / SECTOR_BYTES;
            let to = end.saturating_sub(start).min(PIECE_BYTES).div_ceil(SECTOR_BYTES);
            let mask = (u64::MAX >> 64_u64.saturating_sub(to.clamp(1, 64))) & (u64::MAX << from.min(63));
            let before = piece.sectors.fetch_or(mask, Relaxed);
            let bytes = |mask: u64| u64::from(mask.count_ones()).saturating_mul(SECTOR_BYTES);
            self.sampled_bytes.fetch_add(bytes(mask), Relaxed);
            self.sampled_again_bytes.fetch_add(bytes(mask & before), Relaxed);
        }
    }

    /// The counts now.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "an average with two decimals")]
    pub fn totals(&self) -> Pattern {
        let load = |counter: &AtomicU64| counter.load(Relaxed);
        let (busy_us, work_us) = (load(&self.busy_us), load(&self.work_us));
        let average = if busy_us == 0 { 0.0 } else { work_us as f64 / busy_us as f64 };
        let took = self.took_us.iter().enumerate().filter_map(|(bucket, took)| {
            let took_us = load(took);
            (took_us > 0).then_some(SizeTime { up_to_bytes: bucket_bytes(bucket), took_us })
        });
        Pattern {
            sequential: load(&self.sequential),
            alone: load(&self.alone),
            busy_us,
            in_flight_average: (average * 100.0).round() / 100.0,
            slow: load(&self.slow),
            slow_us: load(&self.slow_us),
            took: took.collect(),
            sampled_bytes: load(&self.sampled_bytes),
            sampled_again_bytes: load(&self.sampled_again_bytes),
        }
    }

    /// Goes on where stored counts ended. Which sectors were read is not stored: they count as new.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an average with two decimals"
    )]
    pub(super) fn restore(&self, totals: &Pattern) {
        self.sequential.store(totals.sequential, Relaxed);
        self.alone.store(totals.alone, Relaxed);
        self.busy_us.store(totals.busy_us, Relaxed);
        self.work_us.store((totals.busy_us as f64 * totals.in_flight_average) as u64, Relaxed);
        self.slow.store(totals.slow, Relaxed);
        self.slow_us.store(totals.slow_us, Relaxed);
        for time in &totals.took {
            if let Some(took) = self.took_us.get(bucket_of(time.up_to_bytes)) {
                took.store(time.took_us, Relaxed);
            }
        }
        self.sampled_bytes.store(totals.sampled_bytes, Relaxed);
        self.sampled_again_bytes.store(totals.sampled_again_bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::{ByteLength, ByteOffset};

    fn read(counters: &PatternCounters, done_us: u64, offset: u64, length: u64, latency_us: u64) {
        let range = ByteRange::new(ByteOffset::new(offset), ByteLength::new(length)).unwrap();
        counters.record(Moment::from_unix_us(done_us), range, Duration::from_micros(latency_us));
    }

    #[test]
    fn reads_one_at_a_time_are_alone_and_their_time_counts_to_their_size() {
        let counters = PatternCounters::default();
        for n in 0..10 {
            read(&counters, 1000 + n * 300, 4096 + n * 512, 512, 40);
        }
        let found = counters.totals();
        assert_eq!((found.alone, found.sequential, found.busy_us), (10, 9, 400));
        assert_eq!(found.took, [SizeTime { up_to_bytes: 512, took_us: 2700 }]);
        assert!((found.in_flight_average - 1.0).abs() < 0.01);
    }

    #[test]
    fn reads_in_flight_together_are_not_alone() {
        let counters = PatternCounters::default();
        for n in 0..8 {
            read(&counters, 5000 + n, n << 20, 4096, 1000);
        }
        let found = counters.totals();
        assert_eq!((found.alone, found.sequential), (1, 0));
        assert!(found.in_flight_average > 7.5, "{found:?}");
    }

    #[test]
    fn pauses_are_nobodys_time_and_slow_reads_are_counted() {
        let counters = PatternCounters::default();
        read(&counters, 1000, 0, 4096, 10);
        read(&counters, 1000 + PAUSE_US + 1, 0, 4096, SLOW_US + 1);
        let found = counters.totals();
        assert_eq!((found.took.len(), found.slow, found.slow_us), (0, 1, SLOW_US + 1));
    }

    #[test]
    fn share_of_what_is_read_again_is_told_from_a_sample() {
        let counters = PatternCounters::default();
        let mib = 1 << 20;
        for n in 0..64 {
            read(&counters, n, n * mib, mib, 1);
        }
        let fresh = counters.totals().again_share().unwrap();
        for n in 0..32 {
            read(&counters, n, n * mib, mib, 1);
        }
        let share = counters.totals().again_share().unwrap();
        assert!(fresh.abs() < f64::EPSILON && (0.28..0.39).contains(&share), "{fresh} {share}");
    }

    #[test]
    fn parts_of_a_piece_are_told_apart() {
        let counters = PatternCounters::default();
        for _ in 0..2 {
            for sector in 0..PIECE_BYTES / SECTOR_BYTES * 400 {
                read(&counters, 1, sector * SECTOR_BYTES, SECTOR_BYTES, 1);
            }
        }
        let found = counters.totals();
        assert!(found.sampled_bytes > 0);
        assert_eq!(found.sampled_again_bytes * 2, found.sampled_bytes);
    }

    #[test]
    fn restored_counters_say_what_the_stored_ones_said() {
        let counters = PatternCounters::default();
        for n in 0..100 {
            read(&counters, 1000 + n * 700, n << 16, 65_536, 900);
        }
        let totals = counters.totals();
        let restored = PatternCounters::default();
        restored.restore(&totals);
        assert_eq!(restored.totals(), totals);
    }
}
