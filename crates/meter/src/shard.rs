//! The counters of one connection. One thread at a time writes to them, so that an addition is a load and a store; any
//! thread may read them. Small until something is counted: the buckets of a kind are made when its first request comes.
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::histogram::{BUCKETS, bucket_of};
use crate::recorder::Request;
use crate::{KindTotals, Totals};

/// Counters that share no cache line with anything else (two lines: they are fetched in pairs).
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Shard {
    kinds: [KindShard; 5],
    begun: AtomicU64,
    over: AtomicU64,
    unanswered: AtomicU64,
    held_back: AtomicU64,
}

#[derive(Debug, Default)]
struct KindShard {
    requests: AtomicU64,
    errors: AtomicU64,
    bytes: AtomicU64,
    waited: AtomicU64,
    latency_ns: AtomicU64,
    buckets: OnceLock<Box<[AtomicU32]>>,
}

/// A bucket is as full as it can be: what is here must be added to what holds more.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full;

impl Shard {
    pub(crate) fn begin(&self) {
        add(&self.begun, 1);
    }

    pub(crate) fn give_up(&self, requests: u64) {
        add(&self.over, requests);
        add(&self.unanswered, requests);
    }

    pub(crate) fn hold_back(&self) {
        add(&self.held_back, 1);
    }

    pub(crate) fn in_flight(&self) -> u64 {
        self.begun.load(Relaxed).saturating_sub(self.over.load(Relaxed))
    }

    pub(crate) fn record(&self, request: &Request) -> Result<(), Full> {
        add(&self.over, 1);
        let Some(kind) = self.kinds.get(request.kind as usize) else { return Ok(()) };
        add(&kind.requests, 1);
        if request.ok {
            add(&kind.bytes, request.bytes);
        } else {
            add(&kind.errors, 1);
        }
        if request.waited {
            add(&kind.waited, 1);
        }
        let ns = u64::try_from(request.latency.as_nanos()).unwrap_or(u64::MAX);
        add(&kind.latency_ns, ns);
        let buckets = kind.buckets.get_or_init(|| (0..BUCKETS).map(|_| AtomicU32::new(0)).collect());
        let Some(bucket) = buckets.get(bucket_of(ns)) else { return Ok(()) };
        let count = bucket.load(Relaxed).saturating_add(1);
        bucket.store(count, Relaxed);
        if count == u32::MAX { Err(Full) } else { Ok(()) }
    }

    /// Adds what is here to `totals`.
    pub(crate) fn add_to(&self, totals: &mut Totals) {
        for (kind, total) in self.kinds.iter().zip(&mut totals.kinds) {
            total.merge(&kind.totals());
        }
        for (sum, counter) in
            [(&mut totals.unanswered, &self.unanswered), (&mut totals.held_back, &self.held_back)]
        {
            *sum = sum.saturating_add(counter.load(Relaxed));
        }
    }

    /// Begins anew, but for what is in flight.
    pub(crate) fn clear(&self) {
        for kind in &self.kinds {
            for counter in [&kind.requests, &kind.errors, &kind.bytes, &kind.waited, &kind.latency_ns] {
                counter.store(0, Relaxed);
            }
            kind.buckets.get().into_iter().flatten().for_each(|bucket| bucket.store(0, Relaxed));
        }
        self.unanswered.store(0, Relaxed);
        self.held_back.store(0, Relaxed);
    }

    #[cfg(test)]
    pub(crate) fn fill_bucket(&self, request: &Request, count: u32) {
        let ns = u64::try_from(request.latency.as_nanos()).unwrap();
        let kind = &self.kinds[request.kind as usize];
        kind.buckets.get().unwrap()[bucket_of(ns)].store(count, Relaxed);
    }
}

impl KindShard {
    fn totals(&self) -> KindTotals {
        let counts = self.buckets.get().into_iter().flatten().enumerate();
        let counts = counts.map(|(bucket, count)| (bucket, u64::from(count.load(Relaxed))));
        KindTotals {
            requests: self.requests.load(Relaxed),
            errors: self.errors.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            waited: self.waited.load(Relaxed),
            latency_ns: self.latency_ns.load(Relaxed),
            latency: crate::Histogram::from_counts(counts),
        }
    }
}

/// Adds where nobody else does.
fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(more), Relaxed);
}
