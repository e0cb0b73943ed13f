//! Long work, watched: how far it is, whether it shall stop, and how fast it may go.
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How far long work is, in bytes of payload. Shared between the one that works and the one that shows it; both sides
/// are cheap.
#[derive(Debug)]
pub struct Watch {
    total_bytes: AtomicU64,
    done_bytes: AtomicU64,
    cancelled: AtomicBool,
    /// Bytes a second; 0 is no limit.
    limit: AtomicU64,
    begun: Instant,
    bucket: Mutex<Bucket>,
    /// Told of a cancel and of a new limit: who waits for the bucket looks again.
    changed: Condvar,
}

/// The work was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cancelled")]
pub struct Cancelled;

impl Default for Watch {
    fn default() -> Self {
        Self {
            total_bytes: AtomicU64::new(0),
            done_bytes: AtomicU64::new(0),
            cancelled: AtomicBool::new(false),
            limit: AtomicU64::new(0),
            begun: Instant::now(),
            bucket: Mutex::new(Bucket::default()),
            changed: Condvar::new(),
        }
    }
}

impl Watch {
    /// Asks the work to stop at its next step. It cleans up behind itself.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
        // Under the lock, so that nobody is between looking and waiting.
        let _bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        self.changed.notify_all();
    }

    /// Limits the bytes that are moved in a second; `None` takes the limit away. Bytes that are cloned or skipped do
    /// not count.
    pub fn set_limit(&self, bytes_per_second: Option<NonZeroU64>) {
        self.limit.store(bytes_per_second.map_or(0, NonZeroU64::get), Ordering::Relaxed);
        let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        *bucket = Bucket::default();
        self.changed.notify_all();
    }

    /// How many bytes are done, of how many. The total is 0 until it is known, and may grow.
    #[must_use]
    pub fn progress(&self) -> (u64, u64) {
        (self.done_bytes.load(Ordering::Relaxed), self.total_bytes.load(Ordering::Relaxed))
    }

    /// The worker's side: this many bytes are to be done besides.
    pub fn expect(&self, bytes: u64) {
        self.total_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The worker's side: this many bytes are done.
    ///
    /// # Errors
    /// [`Cancelled`], if it shall stop.
    pub fn advance(&self, bytes: u64) -> Result<(), Cancelled> {
        self.done_bytes.fetch_add(bytes, Ordering::Relaxed);
        if self.cancelled.load(Ordering::Relaxed) { Err(Cancelled) } else { Ok(()) }
    }

    /// The worker's side, before it moves `bytes` bytes: waits until the limit allows that. A worker moves in steps
    /// that are small against what may be moved in a second.
    ///
    /// # Errors
    /// [`Cancelled`], if it shall stop, also while it waits.
    pub fn pace(&self, bytes: u64) -> Result<(), Cancelled> {
        let Some(limit) = self.limit() else { return self.advance(0) };
        let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        let until = bucket.take(self.begun.elapsed(), bytes, limit);
        loop {
            self.advance(0)?;
            let left = until.saturating_sub(self.begun.elapsed());
            if left.is_zero() || self.limit() != Some(limit) {
                return Ok(());
            }
            (bucket, _) = self.changed.wait_timeout(bucket, left).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The worker's side: the limit in force, in bytes a second.
    #[must_use]
    pub fn limit(&self) -> Option<NonZeroU64> {
        NonZeroU64::new(self.limit.load(Ordering::Relaxed))
    }
}

/// A token bucket, as the time at which it has paid for all that was taken. It holds no more than
/// [`Bucket::BURST`] worth of tokens: who was slow for a while may not be fast for as long.
#[derive(Debug, Default)]
struct Bucket {
    paid_at: Duration,
}

impl Bucket {
    /// Long enough to make up for a flush, or for a moment without a processor.
    const BURST: Duration = Duration::from_millis(250);

    /// Takes `bytes` tokens at the time `now`, and says at what time they may be used.
    fn take(&mut self, now: Duration, bytes: u64, bytes_per_second: NonZeroU64) -> Duration {
        let start = self.paid_at.max(now.saturating_sub(Self::BURST));
        let nanoseconds = u128::from(bytes)
            .saturating_mul(1_000_000_000)
            .checked_div(u128::from(bytes_per_second.get()))
            .unwrap_or_default();
        let cost = Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX));
        self.paid_at = start.saturating_add(cost);
        start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: NonZeroU64 = NonZeroU64::new(1 << 20).unwrap();

    #[test]
    fn bucket_gives_each_step_when_the_ones_before_are_paid() {
        let mut bucket = Bucket::default();
        let now = Duration::from_secs(100);
        let mut times = (0..5).map(|_| bucket.take(now, 1 << 18, MIB));
        let first = times.next().unwrap();
        assert!(first <= now, "the first need not wait");
        for (step, time) in (1..).zip(times) {
            assert_eq!(time, first + Duration::from_millis(250) * step);
        }
    }

    #[test]
    fn idle_bucket_saves_up_no_more_than_a_burst() {
        let mut bucket = Bucket::default();
        bucket.take(Duration::ZERO, 1, MIB);
        let now = Duration::from_secs(1000);
        // However long nothing was moved, in a second no more than a second's worth and the burst is given.
        let within = |time: &Duration| *time <= now + Duration::from_secs(1);
        let given = std::iter::from_fn(|| Some(bucket.take(now, 1 << 10, MIB))).take_while(within).count();
        assert!((1024..=1024 + 257).contains(&given), "{given}");
    }

    #[test]
    fn cancelled_work_stops_and_does_not_wait_for_its_turn() {
        let watch = Watch::default();
        watch.set_limit(NonZeroU64::new(1));
        watch.pace(1 << 40).unwrap();
        std::thread::scope(|scope| {
            // Its turn comes in 30,000 years.
            let waiting = scope.spawn(|| watch.pace(1));
            watch.cancel();
            assert_eq!(waiting.join().unwrap(), Err(Cancelled));
        });
        assert_eq!(watch.advance(1), Err(Cancelled));
    }

    #[test]
    fn lifted_limit_lets_the_one_that_waits_go_on() {
        let watch = Watch::default();
        watch.set_limit(NonZeroU64::new(1));
        watch.pace(1 << 40).unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| watch.pace(1));
            watch.set_limit(None);
            assert_eq!(waiting.join().unwrap(), Ok(()));
        });
    }
}
