//! What moves: differences of counters between two looks at them.
use crate::live::{Account, ProcessStatus, Stats};

/// What moved between two looks at the counters, a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// When the later look was: microseconds since 1970.
    pub at_us: u64,
    /// Bytes that were read.
    pub read_bytes: f64,
    /// Bytes that were written.
    pub written_bytes: f64,
    /// Requests that were answered.
    pub requests: f64,
    /// The share of reads that memory answered, from 0 to 1; `None`: nothing was read.
    pub hit_share: Option<f64>,
    /// How many processors the server kept busy.
    pub processors: f64,
}

/// The counters at one moment. Those of the server's start are all zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    at_us: u64,
    uptime_us: u64,
    cpu_us: u64,
    all: Totals,
}

/// Accounts added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Bytes that were written.
    pub written_bytes: u64,
    /// Requests of all kinds.
    pub requests: u64,
    reads: u64,
    waited: u64,
}

impl Totals {
    /// Adds an account.
    pub fn add(&mut self, account: &Account) {
        for (kind, counts) in &account.kinds {
            self.requests = self.requests.saturating_add(counts.requests);
            match kind.as_str() {
                "read" => {
                    self.read_bytes = self.read_bytes.saturating_add(counts.bytes);
                    self.reads = self.reads.saturating_add(counts.requests);
                    self.waited = self.waited.saturating_add(counts.waited);
                }
                "write" => self.written_bytes = self.written_bytes.saturating_add(counts.bytes),
                _ => {}
            }
        }
    }
}

impl Counters {
    /// As they were read at this moment, in microseconds since 1970.
    #[must_use]
    pub fn of(at_us: u64, stats: &Stats, process: ProcessStatus) -> Self {
        let mut all = Totals::default();
        stats.accounts.iter().for_each(|account| all.add(account));
        Self { at_us, uptime_us: stats.uptime_us, cpu_us: process.cpu_us, all }
    }

    /// How long after an earlier look this one was. `None`: no time has passed.
    #[must_use]
    pub fn us_since(&self, before: &Self) -> Option<u64> {
        self.uptime_us.checked_sub(before.uptime_us).filter(|us| *us > 0)
    }

    /// What moved since an earlier look. `None`: no time has passed.
    #[must_use]
    pub fn since(&self, before: &Self) -> Option<Rates> {
        let us = self.us_since(before)?;
        let rate = |now: u64, before: u64| a_second(now, before, us);
        let reads = rate(self.all.reads, before.all.reads);
        Some(Rates {
            at_us: self.at_us,
            read_bytes: rate(self.all.read_bytes, before.all.read_bytes),
            written_bytes: rate(self.all.written_bytes, before.all.written_bytes),
            requests: rate(self.all.requests, before.all.requests),
            hit_share: (reads > 0.0).then(|| 1.0 - rate(self.all.waited, before.all.waited) / reads),
            processors: rate(self.cpu_us, before.cpu_us) / 1e6,
        })
    }
}

/// What a counter has grown by in so many microseconds, a second.
#[must_use]
#[allow(clippy::cast_precision_loss, reason = "rates are shown with three digits")]
pub fn a_second(now: u64, before: u64, us: u64) -> f64 {
    now.saturating_sub(before) as f64 / (us as f64 / 1e6)
}
