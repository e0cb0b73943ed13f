//! What is shown live: boots, rates, and what devices are doing. Read once from the running server however many look.
//!
//! Boots are followed from the start on, so a page needs no disk for them. Counters are read every few seconds. What devices are doing is read when somebody asks, at most once a second.
use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use api::live::{Followed, Live, Requests, ServerStatus};
use api::rates::Rates;
use serde_json::Value;
use tokio::sync::watch;

use crate::boot::Boot;
use crate::fresh::Fresh;
use crate::markup::now_us;
use crate::rates::{DeviceRates, History};
use crate::statuses::Statuses;

/// How often counters are read.
const EVERY: Duration = Duration::from_secs(3);
/// How far back boots are known when the server starts: a day.
const KNOWN_US: u64 = 24 * 3600 * 1_000_000;
/// The most boots that are kept; the oldest go.
const MAX_BOOTS: usize = 20_000;

/// One for all consoles.
pub(crate) struct Board {
    live: Arc<dyn Live>,
    history: Mutex<History>,
    boots: Mutex<HashMap<String, Arc<Boot>>>,
    statuses: Fresh<Statuses>,
}

impl Board {
    /// Follows until `stopping` becomes true.
    pub(crate) fn start(live: Arc<dyn Live>, stopping: watch::Receiver<bool>) -> Arc<Self> {
        let board = Arc::new(Self {
            live,
            history: Mutex::default(),
            boots: Mutex::default(),
            statuses: Fresh::default(),
        });
        tokio::spawn(Arc::clone(&board).sample(stopping.clone()));
        tokio::spawn(Arc::clone(&board).follow(stopping));
        board
    }

    async fn sample(self: Arc<Self>, mut stopping: watch::Receiver<bool>) {
        while !*stopping.borrow_and_update() {
            let live = Arc::clone(&self.live);
            let look = tokio::task::spawn_blocking(move || (live.stats(), live.status().process));
            let Ok((stats, process)) = look.await else { return };
            lock(&self.history).take(&stats, process);
            tokio::select! {
                () = tokio::time::sleep(EVERY) => {}
                _ = stopping.changed() => {}
            }
        }
    }

    async fn follow(self: Arc<Self>, mut stopping: watch::Receiver<bool>) {
        let mut news = self.live.follow(Requests::UntilReady);
        if self.read_boots().await.is_none() {
            return;
        }
        loop {
            tokio::select! {
                told = news.recv() => match told {
                    Some(Followed::Boot(boot)) => self.take(boot),
                    Some(Followed::Lost) => if self.read_boots().await.is_none() { return },
                    None => return,
                },
                _ = stopping.changed() => return,
            }
        }
    }

    /// Reads the boots of the last day. `None`: the server stops.
    async fn read_boots(&self) -> Option<()> {
        let live = Arc::clone(&self.live);
        let since = now_us().saturating_sub(KNOWN_US);
        match tokio::task::spawn_blocking(move || live.boots_since(since)).await.ok()? {
            Ok(boots) => boots.into_iter().for_each(|boot| self.take(boot)),
            Err(error) => tracing::warn!(%error, "the console does not know the boots of before"),
        }
        Some(())
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

    /// The boots of these devices that began in the last so long, latest first.
    pub(crate) fn boots_of(
        &self,
        names: &HashSet<&str>,
        within: Duration,
    ) -> HashMap<String, Vec<Arc<Boot>>> {
        let mut of: HashMap<String, Vec<Arc<Boot>>> = HashMap::new();
        for boot in self.boots_within(within) {
            if names.contains(boot.device.as_str()) {
                of.entry(boot.device.clone()).or_default().push(boot);
            }
        }
        of
    }

    /// The rates of the last minutes, oldest first.
    pub(crate) fn rates(&self) -> Vec<Rates> {
        lock(&self.history).all()
    }

    /// The same of one device.
    pub(crate) fn rates_of_device(&self, name: &str) -> Vec<DeviceRates> {
        lock(&self.history).of_device(name)
    }

    /// The same of these devices together.
    pub(crate) fn rates_of<'a>(&self, names: impl Iterator<Item = &'a str>) -> Vec<Rates> {
        lock(&self.history).of_devices(names)
    }

    /// The server itself.
    pub(crate) fn server(&self) -> ServerStatus {
        self.live.status()
    }

    /// What all devices are doing.
    pub(crate) async fn statuses(&self) -> Arc<Statuses> {
        let live = Arc::clone(&self.live);
        let read = async move {
            let begun = Instant::now();
            let read = tokio::task::spawn_blocking(move || Statuses::of(begun, live.devices()));
            Ok::<_, Infallible>(read.await.unwrap_or_else(|_| Statuses::of(begun, Vec::new())))
        };
        let Ok(statuses) = self.statuses.get(read).await;
        statuses
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
