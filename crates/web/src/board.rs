//! What is shown live: boots, rates, and what devices are doing. Read once from the running server however many look.
//!
//! Boots are followed from the start on, so a page needs no disk for them. Rates are the differences of counters that are
//! read every few seconds. What devices are doing is read when somebody asks, at most once a second.
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use api::live::{DeviceStatus, Live, ServerStatus, Stats};
use serde_json::Value;
use tokio::sync::watch;

use crate::boot::Boot;
use crate::markup::now_us;

/// How often counters are read.
const EVERY: Duration = Duration::from_secs(3);
/// How many rates are kept: ten minutes.
const MAX_RATES: usize = 200;
/// The most boots that are kept; the oldest go.
const MAX_BOOTS: usize = 20_000;
/// For how long what devices are doing is taken for the present.
const FRESH: Duration = Duration::from_secs(1);

/// What moved between two looks at the counters.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Rates {
    /// Microseconds since 1970.
    pub(crate) at_us: u64,
    pub(crate) read_bytes: f64,
    pub(crate) written_bytes: f64,
    pub(crate) requests: f64,
    pub(crate) errors: f64,
    /// The share of reads that memory answered, from 0 to 1.
    pub(crate) hit_share: Option<f64>,
}

/// All devices, and how many are in each state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Statuses {
    pub(crate) by_name: BTreeMap<String, DeviceStatus>,
    pub(crate) counts: BTreeMap<String, u64>,
}

/// One for all consoles.
pub(crate) struct Board {
    live: Arc<dyn Live>,
    rates: Mutex<VecDeque<Rates>>,
    boots: Mutex<HashMap<String, Arc<Boot>>>,
    statuses: tokio::sync::Mutex<Option<(Instant, Arc<Statuses>)>>,
}

impl Board {
    /// Follows until `stopping` becomes true.
    pub(crate) fn start(live: Arc<dyn Live>, stopping: watch::Receiver<bool>) -> Arc<Self> {
        let board = Arc::new(Self {
            live,
            rates: Mutex::default(),
            boots: Mutex::default(),
            statuses: tokio::sync::Mutex::default(),
        });
        tokio::spawn(Arc::clone(&board).sample(stopping.clone()));
        tokio::spawn(Arc::clone(&board).follow(stopping));
        board
    }

    async fn sample(self: Arc<Self>, mut stopping: watch::Receiver<bool>) {
        let mut before: Option<Totals> = None;
        while !*stopping.borrow_and_update() {
            let live = Arc::clone(&self.live);
            let Ok(stats) = tokio::task::spawn_blocking(move || live.stats()).await else { return };
            let now = Totals::of(&stats);
            if let Some(before) = before {
                let mut rates = lock(&self.rates);
                if rates.len() >= MAX_RATES {
                    rates.pop_front();
                }
                rates.extend(now.since(&before));
            }
            before = Some(now);
            tokio::select! {
                () = tokio::time::sleep(EVERY) => {}
                _ = stopping.changed() => {}
            }
        }
    }

    async fn follow(self: Arc<Self>, mut stopping: watch::Receiver<bool>) {
        let mut news = self.live.follow();
        let live = Arc::clone(&self.live);
        match tokio::task::spawn_blocking(move || live.boots()).await {
            Ok(Ok(boots)) => boots.into_iter().for_each(|boot| self.take(boot)),
            Ok(Err(error)) => tracing::warn!(%error, "the console does not know the boots before this start"),
            Err(_) => return,
        }
        loop {
            tokio::select! {
                boot = news.recv() => match boot {
                    Some(boot) => self.take(boot),
                    None => return,
                },
                _ = stopping.changed() => return,
            }
        }
    }

    fn take(&self, told: Value) {
        let Ok(boot) = serde_json::from_value::<Boot>(told) else {
            tracing::debug!("a boot could not be read");
            return;
        };
        let mut boots = lock(&self.boots);
        if boots.len() >= MAX_BOOTS && !boots.contains_key(&boot.id) {
            let oldest = boots.values().min_by_key(|boot| boot.started_unix_us).map(|boot| boot.id.clone());
            oldest.map(|id| boots.remove(&id));
        }
        boots.insert(boot.id.clone(), Arc::new(boot));
    }

    /// The boots that began in the last so long, latest first.
    pub(crate) fn boots_within(&self, within: Duration) -> Vec<Arc<Boot>> {
        let within = u64::try_from(within.as_micros()).unwrap_or(u64::MAX);
        let since = now_us().saturating_sub(within);
        let mut boots: Vec<_> =
            lock(&self.boots).values().filter(|boot| boot.started_unix_us >= since).cloned().collect();
        boots.sort_by_key(|boot| std::cmp::Reverse(boot.started_unix_us));
        boots
    }

    /// The rates of the last minutes, oldest first.
    pub(crate) fn rates(&self) -> Vec<Rates> {
        lock(&self.rates).iter().copied().collect()
    }

    /// The server itself.
    pub(crate) fn server(&self) -> ServerStatus {
        self.live.status()
    }

    /// What all devices are doing.
    pub(crate) async fn statuses(&self) -> Arc<Statuses> {
        let mut known = self.statuses.lock().await;
        if let Some((at, statuses)) = known.as_ref()
            && at.elapsed() < FRESH
        {
            return Arc::clone(statuses);
        }
        let live = Arc::clone(&self.live);
        let read = tokio::task::spawn_blocking(move || {
            let mut statuses = Statuses::default();
            for device in live.devices() {
                let count = statuses.counts.entry(device.status.clone()).or_default();
                *count = count.saturating_add(1);
                statuses.by_name.insert(device.name.clone(), device);
            }
            Arc::new(statuses)
        });
        let read = read.await.unwrap_or_default();
        *known = Some((Instant::now(), Arc::clone(&read)));
        read
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All accounts added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Totals {
    uptime_us: u64,
    read_bytes: u64,
    written_bytes: u64,
    requests: u64,
    errors: u64,
    reads: u64,
    waited: u64,
}

impl Totals {
    fn of(stats: &Stats) -> Self {
        let mut totals = Self { uptime_us: stats.uptime_us, ..Self::default() };
        for (kind, counts) in stats.accounts.iter().flat_map(|account| &account.kinds) {
            totals.requests = totals.requests.saturating_add(counts.requests);
            totals.errors = totals.errors.saturating_add(counts.errors);
            match kind.as_str() {
                "read" => {
                    totals.read_bytes = totals.read_bytes.saturating_add(counts.bytes);
                    totals.reads = totals.reads.saturating_add(counts.requests);
                    totals.waited = totals.waited.saturating_add(counts.waited);
                }
                "write" => totals.written_bytes = totals.written_bytes.saturating_add(counts.bytes),
                _ => {}
            }
        }
        totals
    }

    #[allow(clippy::cast_precision_loss, reason = "rates are shown with three digits")]
    fn since(&self, before: &Self) -> Option<Rates> {
        let us = self.uptime_us.checked_sub(before.uptime_us).filter(|us| *us > 0)?;
        let seconds = us as f64 / 1e6;
        let difference = |now: u64, before: u64| now.saturating_sub(before) as f64;
        let reads = difference(self.reads, before.reads);
        let waited = difference(self.waited, before.waited);
        Some(Rates {
            at_us: now_us(),
            read_bytes: difference(self.read_bytes, before.read_bytes) / seconds,
            written_bytes: difference(self.written_bytes, before.written_bytes) / seconds,
            requests: difference(self.requests, before.requests) / seconds,
            errors: difference(self.errors, before.errors) / seconds,
            hit_share: (reads > 0.0).then(|| 1.0 - waited / reads),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_differences_over_the_time_between() {
        let before = Totals { uptime_us: 1_000_000, read_bytes: 100, reads: 10, ..Totals::default() };
        let now = Totals {
            uptime_us: 3_000_000,
            read_bytes: 2100,
            reads: 30,
            waited: 5,
            requests: 40,
            ..Totals::default()
        };
        let rates = now.since(&before).unwrap();
        assert_eq!((rates.read_bytes, rates.requests, rates.hit_share), (1000.0, 20.0, Some(0.75)));
        assert_eq!(before.since(&before), None);
    }
}
