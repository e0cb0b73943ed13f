//! What a meter has counted, as its reader gets it.
use crate::{Histogram, Kind};

/// The counts of one kind of request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KindTotals {
    /// Requests that were answered, those with an error among them.
    pub requests: u64,
    /// Those that were answered with an error.
    pub errors: u64,
    /// What the others read, wrote or discarded.
    pub bytes: u64,
    /// Requests that could not be answered at once, because storage had to be waited for: of reads, those that missed the
    /// page cache.
    pub waited: u64,
    /// The sum of all times from a request's last byte to its answer's being queued for the socket.
    pub latency_ns: u64,
    /// Those times.
    pub latency: Histogram,
}

/// The counts of a meter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// By kind, in the order of [`Kind::ALL`].
    pub kinds: [KindTotals; 5],
    /// Connections (sessions, in iSCSI) that were opened.
    pub connections: u64,
    /// Those of them that came after one had been lost: clients that came back.
    pub reconnects: u64,
    /// Connections that are open.
    pub open: u64,
    /// Requests that came and are not answered yet.
    pub in_flight: u64,
    /// Requests that were never answered: the client aborted them, or the connection was lost. Clients send them again.
    pub unanswered: u64,
    /// Requests that were held back by a limit.
    pub held_back: u64,
}

impl Totals {
    /// The counts of a kind.
    #[must_use]
    pub fn of(&self, kind: Kind) -> &KindTotals {
        let [read, write, flush, unmap, other] = &self.kinds;
        match kind {
            Kind::Read => read,
            Kind::Write => write,
            Kind::Flush => flush,
            Kind::Unmap => unmap,
            Kind::Other => other,
        }
    }

    /// Adds the counts of another meter.
    pub fn merge(&mut self, other: &Self) {
        self.kinds.iter_mut().zip(&other.kinds).for_each(|(kind, other)| kind.merge(other));
        let pairs = [
            (&mut self.connections, other.connections),
            (&mut self.reconnects, other.reconnects),
            (&mut self.open, other.open),
            (&mut self.in_flight, other.in_flight),
            (&mut self.unanswered, other.unanswered),
            (&mut self.held_back, other.held_back),
        ];
        pairs.into_iter().for_each(|(sum, more)| *sum = sum.saturating_add(more));
    }

    /// The sum over all kinds.
    #[must_use]
    pub fn all_kinds(&self) -> KindTotals {
        let mut sum = KindTotals::default();
        self.kinds.iter().for_each(|kind| sum.merge(kind));
        sum
    }
}

impl KindTotals {
    /// Adds the counts of another.
    pub fn merge(&mut self, other: &Self) {
        let pairs = [
            (&mut self.requests, other.requests),
            (&mut self.errors, other.errors),
            (&mut self.bytes, other.bytes),
            (&mut self.waited, other.waited),
            (&mut self.latency_ns, other.latency_ns),
        ];
        pairs.into_iter().for_each(|(sum, more)| *sum = sum.saturating_add(more));
        self.latency.merge(&other.latency);
    }

    /// What was counted since `earlier`, an older state of the same counts.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(earlier.requests),
            errors: self.errors.saturating_sub(earlier.errors),
            bytes: self.bytes.saturating_sub(earlier.bytes),
            waited: self.waited.saturating_sub(earlier.waited),
            latency_ns: self.latency_ns.saturating_sub(earlier.latency_ns),
            latency: self.latency.since(&earlier.latency),
        }
    }
}
