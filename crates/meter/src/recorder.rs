//! A meter and those who write to it.
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::shard::{Full, Shard};
use crate::{Kind, Totals};

/// A request that was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What it was.
    pub kind: Kind,
    /// What it read, wrote or discarded.
    pub bytes: u64,
    /// From the arrival of its last byte until its answer was queued for the socket.
    pub latency: Duration,
    /// It was answered without an error.
    pub ok: bool,
    /// Storage had to be waited for.
    pub waited: bool,
}

/// Counts the requests to one disk over one protocol, of all its connections ever.
#[derive(Debug, Default)]
pub struct Meter {
    ledger: Mutex<Ledger>,
}

#[derive(Debug, Default)]
struct Ledger {
    /// What closed connections have left, and what did not fit into the counters of open ones.
    kept: Totals,
    open: Vec<Arc<Shard>>,
    /// Connections that were lost and whose clients have not come back.
    missing: u64,
}

/// Counts for one connection, from one thread at a time. Dropping it ends the connection.
#[derive(Debug)]
pub struct Recorder {
    meter: Arc<Meter>,
    shard: Arc<Shard>,
    lost: bool,
}

impl Meter {
    /// A connection begins.
    #[must_use]
    pub fn open(self: &Arc<Self>) -> Recorder {
        let shard = Arc::new(Shard::default());
        let mut ledger = self.ledger();
        ledger.open.push(Arc::clone(&shard));
        ledger.kept.connections = ledger.kept.connections.saturating_add(1);
        if let Some(missing) = ledger.missing.checked_sub(1) {
            ledger.missing = missing;
            ledger.kept.reconnects = ledger.kept.reconnects.saturating_add(1);
        }
        drop(ledger);
        Recorder { meter: Arc::clone(self), shard, lost: false }
    }

    /// All counts now.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let ledger = self.ledger();
        let mut totals = ledger.kept.clone();
        totals.open = ledger.open.len() as u64;
        for shard in &ledger.open {
            shard.add_to(&mut totals);
            totals.in_flight = totals.in_flight.saturating_add(shard.in_flight());
        }
        totals
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        // Counters that a panic has left half-added are a little wrong; that is all.
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Recorder {
    /// A request has come.
    pub fn begin(&mut self) {
        self.shard.begin();
    }

    /// A request that had come was answered.
    pub fn record(&mut self, request: &Request) {
        if self.shard.record(request) == Err(Full) {
            self.carry_over(&mut self.meter.ledger());
        }
    }

    /// So many requests are still to be answered: of those that have come, the others never will.
    pub fn settle(&mut self, in_flight: usize) {
        let over = self.shard.in_flight().saturating_sub(in_flight as u64);
        if over > 0 {
            self.shard.give_up(over);
        }
    }

    /// A request has to wait because of a limit.
    pub fn hold_back(&mut self) {
        self.shard.hold_back();
    }

    /// The connection is over without a goodbye: its client is expected back.
    pub fn lost(&mut self) {
        self.lost = true;
    }

    fn carry_over(&self, ledger: &mut Ledger) {
        self.shard.add_to(&mut ledger.kept);
        self.shard.clear();
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let mut ledger = self.meter.ledger();
        self.shard.give_up(self.shard.in_flight());
        self.carry_over(&mut ledger);
        ledger.open.retain(|shard| !Arc::ptr_eq(shard, &self.shard));
        ledger.missing = ledger.missing.saturating_add(u64::from(self.lost));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(kind: Kind, latency_us: u64) -> Request {
        Request { kind, bytes: 4096, latency: Duration::from_micros(latency_us), ok: true, waited: false }
    }

    #[test]
    fn totals_hold_open_and_closed_connections() {
        let meter = Arc::new(Meter::default());
        let (mut one, mut other) = (meter.open(), meter.open());
        for recorder in [&mut one, &mut other] {
            (0..3).for_each(|_| recorder.begin());
            recorder.record(&request(Kind::Read, 50));
            recorder.record(&Request { ok: false, waited: true, ..request(Kind::Write, 700) });
        }
        drop(one);
        let totals = meter.totals();
        assert_eq!((totals.connections, totals.open, totals.in_flight), (2, 1, 1));
        assert_eq!(totals.unanswered, 1, "what the closed one left");
        let (reads, writes) = (totals.of(Kind::Read), totals.of(Kind::Write));
        assert_eq!((reads.requests, reads.bytes, reads.errors, reads.waited), (2, 8192, 0, 0));
        assert_eq!((writes.requests, writes.bytes, writes.errors, writes.waited), (2, 0, 2, 2));
        assert_eq!((reads.latency.count(), reads.latency_ns), (2, 100_000));
        assert_eq!(totals.all_kinds().requests, 4);
    }

    #[test]
    fn client_that_comes_back_after_a_loss_is_a_reconnect() {
        let meter = Arc::new(Meter::default());
        let mut first = meter.open();
        first.lost();
        drop(first);
        let second = meter.open();
        assert_eq!(meter.totals().reconnects, 1);
        drop(second); // with a goodbye
        let _third = meter.open();
        assert_eq!((meter.totals().reconnects, meter.totals().connections), (1, 3));
    }

    #[test]
    fn bucket_that_is_full_loses_no_count() {
        let meter = Arc::new(Meter::default());
        let mut recorder = meter.open();
        let read = request(Kind::Read, 50);
        recorder.record(&read);
        recorder.shard.fill_bucket(&read, u32::MAX - 1);
        recorder.record(&read);
        recorder.record(&read);
        assert_eq!(meter.totals().of(Kind::Read).latency.count(), u64::from(u32::MAX) + 1);
    }
}
