//! What this server tells the farm of itself: that it runs, what it carries, and that it stops.
use std::sync::Arc;

use api::live::{Live, ServerStatus};
use api::load::ServerLoad;
use api::rates::Counters;

use crate::catalogue::{FarmLink, now};

/// Tells it, again and again.
pub(super) struct Reporter {
    farm: Arc<FarmLink>,
    live: Arc<dyn Live>,
    /// The counters at the report before.
    before: Counters,
}

impl Reporter {
    /// Rates count from now on.
    pub(super) fn new(farm: Arc<FarmLink>, live: Arc<dyn Live>) -> Self {
        let before = counters(live.as_ref(), &live.status());
        Self { farm, live, before }
    }

    /// Tells what the server carries, which has sessions with so many devices. Waits for the database.
    pub(super) fn tell(&mut self, devices: usize) {
        let status = self.live.status();
        let counters = counters(self.live.as_ref(), &status);
        let rates = counters.since(&self.before).unwrap_or_default();
        self.before = counters;
        let devices = u64::try_from(devices).unwrap_or(u64::MAX);
        match serde_json::to_string(&ServerLoad::of(&status, devices, &rates)) {
            Ok(load) => self.write(Some(&load)),
            Err(error) => tracing::error!(%error, "what this server carries cannot be told"),
        }
    }

    /// Tells that the server stops. Waits for the database.
    pub(super) fn tell_the_end(self) {
        self.write(None);
    }

    fn write(&self, load: Option<&str>) {
        // Nobody can be told while it is gone, which was said already.
        if self.farm.trouble().is_some() {
            return;
        }
        let server = self.farm.server();
        if let Err(error) = self.farm.change(|change| change.report_server(server, load)) {
            tracing::warn!(%error, "what this server carries cannot be told to the others");
        }
    }
}

fn counters(live: &dyn Live, status: &ServerStatus) -> Counters {
    let at_us = u64::try_from(now().ms()).unwrap_or(0).saturating_mul(1000);
    Counters::of(at_us, &live.stats(), status.process)
}
