//! How full a write cache is: exact accounting against its limit, and when to tell the administrator.
//!
//! A write reserves what it will add before it adds it, so that any number of writers together never pass the
//! limit; a failed write gives its reservation back. What is counted are clusters that hold data, not what the file
//! system spends on them.
//!
//! Whoever watches is told once at the warning level and once at the first refused write, not for every request.
//! The warning arms again when the fill has fallen by a twentieth of the limit below its level; the report of a full
//! cache when the fill has moved by a hundredth of the limit (down: space was freed; up: a full file system had room
//! again).
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use block::ByteLength;

use crate::cluster::CLUSTER_BYTES;
use crate::kind::MemoryBudget;

/// Stands in `full_at` for "a full cache was not reported".
const NOT_REPORTED: u64 = u64::MAX;

/// How full a write cache is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheUsage {
    /// What the clusters that hold data take.
    pub used: ByteLength,
    /// What they may take at most.
    pub limit: ByteLength,
    /// The fill from which on the observer is warned.
    pub warn_at: ByteLength,
}

/// Which room a write did not find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FullCause {
    /// The limit that is configured for the device.
    Limit,
    /// The file system under the write cache, or a quota on it, before that limit was reached.
    FileSystem,
    /// The memory that all write caches of the server in memory may take together.
    Memory,
}

/// Is told when a write cache fills up.
///
/// It is called on the thread of the device's request: an implementation passes the news on and returns. It must not
/// call into the volume but for its usage.
pub trait CacheObserver: fmt::Debug + Send + Sync {
    /// The fill has reached the warning level. Once, until the fill has fallen clearly below it.
    fn warning(&self, device: &str, usage: CacheUsage);

    /// A write was refused. Once, until the fill has changed by a hundredth of the limit.
    fn full(&self, device: &str, usage: CacheUsage, cause: FullCause);
}

/// The account of one write cache.
#[derive(Debug)]
pub(crate) struct Fill {
    limit_bytes: u64,
    warn_at_bytes: u64,
    used_bytes: AtomicU64,
    warned: AtomicBool,
    full_at_bytes: AtomicU64,
    /// What it shares with other write caches.
    budget: Option<Arc<MemoryBudget>>,
}

impl Fill {
    /// An account with `used_clusters` taken already.
    pub(crate) fn new(
        limit: ByteLength,
        warn_percent: u8,
        used_clusters: u64,
        budget: Option<Arc<MemoryBudget>>,
    ) -> Self {
        let warn_at = u128::from(limit.get()).saturating_mul(u128::from(warn_percent.min(100))) / 100;
        Self {
            limit_bytes: limit.get(),
            warn_at_bytes: u64::try_from(warn_at).unwrap_or(u64::MAX),
            used_bytes: AtomicU64::new(used_clusters.saturating_mul(CLUSTER_BYTES)),
            warned: AtomicBool::new(false),
            full_at_bytes: AtomicU64::new(NOT_REPORTED),
            budget,
        }
    }

    pub(crate) fn usage(&self) -> CacheUsage {
        CacheUsage {
            used: ByteLength::new(self.used_bytes.load(Ordering::Acquire)),
            limit: ByteLength::new(self.limit_bytes),
            warn_at: ByteLength::new(self.warn_at_bytes),
        }
    }

    /// Takes `clusters` more, all or none.
    pub(crate) fn reserve(&self, clusters: u64) -> Result<Reservation<'_>, FullCause> {
        let more = clusters.saturating_mul(CLUSTER_BYTES);
        let grow = |used: u64| used.checked_add(more).filter(|&sum| sum <= self.limit_bytes);
        if self.used_bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, grow).is_err() {
            return Err(FullCause::Limit);
        }
        if self.budget.as_ref().is_some_and(|budget| !budget.take(more)) {
            self.shrink(more);
            return Err(FullCause::Memory);
        }
        Ok(Reservation { fill: self, clusters })
    }

    /// Gives `clusters` back.
    pub(crate) fn release(&self, clusters: u64) {
        let less = clusters.saturating_mul(CLUSTER_BYTES);
        self.shrink(less);
        if let Some(budget) = &self.budget {
            budget.give_back(less);
        }
    }

    fn shrink(&self, bytes: u64) {
        let shrink = |used: u64| Some(used.saturating_sub(bytes));
        // The closure never declines.
        let _ = self.used_bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, shrink);
    }

    /// Tells the observer what it has not been told yet. Called after every request that changed the fill or was
    /// refused.
    pub(crate) fn report(&self, refused: Option<FullCause>, device: &str, observer: &dyn CacheObserver) {
        self.rearm();
        let usage = self.usage();
        if usage.used.get() >= self.warn_at_bytes && !self.warned.swap(true, Ordering::AcqRel) {
            observer.warning(device, usage);
        }
        if let Some(cause) = refused {
            let used = usage.used.get();
            let first =
                self.full_at_bytes.compare_exchange(NOT_REPORTED, used, Ordering::AcqRel, Ordering::Acquire);
            if first.is_ok() {
                observer.full(device, usage, cause);
            }
        }
    }

    /// Takes back what was told and is no longer so. What was told is read before the fill: a fill that is older
    /// than the report, from before another thread's writes, would have the same thing told twice.
    fn rearm(&self) {
        if self.warned.load(Ordering::Acquire) {
            let used = self.usage().used.get();
            if used == 0 || used.saturating_add(self.limit_bytes / 20) <= self.warn_at_bytes {
                self.warned.store(false, Ordering::Release);
            }
        }
        let at = self.full_at_bytes.load(Ordering::Acquire);
        let margin = (self.limit_bytes / 100).max(CLUSTER_BYTES);
        if at != NOT_REPORTED && self.usage().used.get().abs_diff(at) >= margin {
            // Where another thread was quicker, it has done what is wanted here.
            let _ =
                self.full_at_bytes.compare_exchange(at, NOT_REPORTED, Ordering::AcqRel, Ordering::Acquire);
        }
    }
}

impl Drop for Fill {
    fn drop(&mut self) {
        if let Some(budget) = &self.budget {
            budget.give_back(self.used_bytes.load(Ordering::Acquire));
        }
    }
}

/// Clusters that are counted but not filled yet; given back unless kept.
#[derive(Debug)]
#[must_use]
pub(crate) struct Reservation<'a> {
    fill: &'a Fill,
    clusters: u64,
}

impl Reservation<'_> {
    /// The clusters hold data now.
    pub(crate) fn keep(mut self) {
        self.clusters = 0;
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if self.clusters > 0 {
            self.fill.release(self.clusters);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Debug, Default)]
    struct Heard(Mutex<Vec<String>>);

    impl CacheObserver for Heard {
        fn warning(&self, device: &str, usage: CacheUsage) {
            self.0.lock().unwrap().push(format!("{device} warning at {}", usage.used));
        }

        fn full(&self, device: &str, usage: CacheUsage, cause: FullCause) {
            self.0
                .lock()
                .unwrap()
                .push(format!("{device} full at {} of {} ({cause:?})", usage.used, usage.limit));
        }
    }

    impl Heard {
        fn take(&self) -> Vec<String> {
            std::mem::take(&mut self.0.lock().unwrap())
        }
    }

    fn fill_of_100_clusters() -> Fill {
        Fill::new(ByteLength::new(100 * CLUSTER_BYTES), 80, 0, None)
    }

    fn add(fill: &Fill, clusters: u64, heard: &Heard) -> bool {
        let reserved = fill.reserve(clusters).map(Reservation::keep);
        fill.report(reserved.is_err().then_some(FullCause::Limit), "d", heard);
        reserved.is_ok()
    }

    #[test]
    fn dropped_reservation_is_given_back() {
        let fill = fill_of_100_clusters();
        drop(fill.reserve(100).unwrap());
        assert_eq!(fill.usage().used, ByteLength::ZERO);
        fill.reserve(100).unwrap().keep();
        assert_eq!(fill.reserve(1).unwrap_err(), FullCause::Limit);
    }

    #[test]
    fn write_caches_that_share_a_budget_stop_at_it_together_and_give_it_back() {
        let budget = Arc::new(MemoryBudget::new(ByteLength::new(100 * CLUSTER_BYTES)));
        let fill = || Fill::new(ByteLength::new(80 * CLUSTER_BYTES), 80, 0, Some(Arc::clone(&budget)));
        let (one, other) = (fill(), fill());
        one.reserve(80).unwrap().keep();
        assert_eq!(other.reserve(21).unwrap_err(), FullCause::Memory);
        assert_eq!(other.usage().used, ByteLength::ZERO, "the reservation stays half made");
        other.reserve(20).unwrap().keep();
        assert_eq!(one.reserve(1).unwrap_err(), FullCause::Limit);
        drop(one);
        assert_eq!(budget.usage().0.get(), 20 * CLUSTER_BYTES);
        other.release(20);
        assert_eq!(budget.usage().0, ByteLength::ZERO);
    }

    #[test]
    fn warning_is_told_once_until_the_fill_has_fallen_clearly_below() {
        let (fill, heard) = (fill_of_100_clusters(), Heard::default());
        assert!(add(&fill, 79, &heard));
        assert!(heard.take().is_empty());
        assert!(add(&fill, 1, &heard));
        assert_eq!(heard.take(), ["d warning at 320 KiB"]);
        for _ in 0..3 {
            fill.release(4);
            fill.report(None, "d", &heard);
            assert!(add(&fill, 4, &heard));
        }
        assert!(heard.take().is_empty(), "the warning flaps");
        fill.release(5);
        fill.report(None, "d", &heard);
        assert!(add(&fill, 5, &heard));
        assert_eq!(heard.take(), ["d warning at 320 KiB"]);
    }

    #[test]
    fn full_cache_is_told_once_until_space_was_freed() {
        let (fill, heard) = (fill_of_100_clusters(), Heard::default());
        assert!(add(&fill, 100, &heard));
        heard.take();
        for _ in 0..3 {
            assert!(!add(&fill, 1, &heard));
        }
        assert_eq!(heard.take(), ["d full at 400 KiB of 400 KiB (Limit)"]);
        fill.release(1);
        fill.report(None, "d", &heard);
        assert!(add(&fill, 1, &heard));
        assert!(!add(&fill, 1, &heard));
        assert_eq!(heard.take(), ["d full at 400 KiB of 400 KiB (Limit)"]);
    }

    /// Has another thread fill up the cache just when the first is about to tell of the warning level.
    #[derive(Debug)]
    struct Overtaken<'a> {
        fill: &'a Fill,
        heard: Heard,
    }

    impl CacheObserver for Overtaken<'_> {
        fn warning(&self, device: &str, usage: CacheUsage) {
            self.heard.warning(device, usage);
            assert!(add(self.fill, 20, &self.heard));
            assert!(!add(self.fill, 1, &self.heard));
        }

        fn full(&self, device: &str, usage: CacheUsage, cause: FullCause) {
            self.heard.full(device, usage, cause);
        }
    }

    #[test]
    fn slow_thread_with_an_old_fill_does_not_have_a_full_cache_told_again() {
        let fill = fill_of_100_clusters();
        let observer = Overtaken { fill: &fill, heard: Heard::default() };
        fill.reserve(80).unwrap().keep();
        fill.report(None, "d", &observer);
        fill.report(Some(FullCause::Limit), "d", &observer);
        let told = ["d warning at 320 KiB", "d full at 400 KiB of 400 KiB (Limit)"];
        assert_eq!(observer.heard.take(), told);
    }

    #[test]
    fn many_threads_together_never_pass_the_limit() {
        let fill = Fill::new(ByteLength::new(1000 * CLUSTER_BYTES), 80, 0, None);
        let granted: u64 = std::thread::scope(|scope| {
            let fill = &fill;
            let take =
                |step| (0..1000).map(|_| fill.reserve(step).map_or(0, |r| (r.keep(), step).1)).sum::<u64>();
            let threads: Vec<_> = (1..=4).map(|step| scope.spawn(move || take(step))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(granted, 1000, "clusters of one fit into any rest, so the limit is met exactly");
        assert_eq!(fill.usage().used.get(), 1000 * CLUSTER_BYTES);
    }
}
