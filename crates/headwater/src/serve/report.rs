//! What this server tells the farm of itself: that it runs, what it carries, what the devices do that it serves, and that it
//! stops; and what it hears of the others.
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use api::live::{Live, ServerStatus};
use api::load::ServerLoad;
use api::rates::Counters;
use farm::catalogue::{CatalogueError, Change};
use farm::model::{DeviceId, ServerId, ServerState};
use farm::rules::reports::state;

use crate::admin::Admin;
use crate::admin::elsewhere::Heard;
use crate::catalogue::{FarmLink, now};

/// The most devices that are told of in one turn: leases are renewed by the same thread, and a database may be a millisecond away.
const MOST_AT_ONCE: usize = 2000;

/// Tells it, again and again.
pub(super) struct Reporter {
    farm: Arc<FarmLink>,
    admin: Arc<Admin>,
    /// The counters at the report before.
    before: Counters,
    /// What the others were told of devices, each by its hash; `None`: what they have been told is not known.
    told: Option<HashMap<DeviceId, u64>>,
}

impl Reporter {
    /// Rates count from now on.
    pub(super) fn new(farm: Arc<FarmLink>, admin: Arc<Admin>) -> Self {
        let before = counters(&admin, &admin.status());
        Self { farm, admin, before, told: None }
    }

    /// Tells what the server carries, which has sessions with so many devices. Waits for the database.
    pub(super) fn tell(&mut self, devices: usize) {
        let status = self.admin.status();
        let counters = counters(&self.admin, &status);
        let rates = counters.since(&self.before).unwrap_or_default();
        self.before = counters;
        let devices = u64::try_from(devices).unwrap_or(u64::MAX);
        // Nobody can be told while the database is gone, which was said already; what was heard last is what is known.
        if self.farm.trouble().is_some() {
            self.told = None;
            return;
        }
        match serde_json::to_string(&ServerLoad::of(&status, devices, &rates)) {
            Ok(load) => {
                self.write(|change, server| change.report_server(server, Some(&load)));
            }
            Err(error) => tracing::error!(%error, "what this server carries cannot be told"),
        }
        // A server that is alone has nobody to tell and nobody to hear.
        if self.farm.snapshot().servers().nth(1).is_none() {
            self.admin.hear(Heard::default());
            return;
        }
        self.tell_devices();
        self.hear();
    }

    /// Tells that the server stops. Waits for the database.
    pub(super) fn tell_the_end(self) {
        if self.farm.trouble().is_some() {
            return;
        }
        self.write(|change, server| {
            change.forget_device_reports(server)?;
            change.report_server(server, None)
        });
    }

    /// Tells what devices do that did something else when it was told last; of very many, some at the next turn.
    fn tell_devices(&mut self) {
        let begins = self.told.is_none();
        let mut told = self.told.take().unwrap_or_default();
        let mut news = Vec::new();
        let all = self.admin.told();
        for (device, what) in &all {
            if news.len() == MOST_AT_ONCE {
                break;
            }
            let text = match serde_json::to_string(what) {
                Ok(text) => text,
                Err(error) => {
                    tracing::error!(%error, "what a device does cannot be told");
                    continue;
                }
            };
            let hash = hash(&text);
            if told.get(device) != Some(&hash) {
                told.insert(*device, hash);
                news.push((*device, Some(text)));
            }
        }
        let gone: Vec<DeviceId> = told.keys().filter(|device| !all.contains_key(device)).copied().collect();
        for device in gone.into_iter().take(MOST_AT_ONCE.saturating_sub(news.len())) {
            told.remove(&device);
            news.push((device, None));
        }
        if news.is_empty() && !begins {
            self.told = Some(told);
            return;
        }
        let written = self.write(|change, server| {
            if begins {
                change.forget_device_reports(server)?;
            }
            change.report_devices(server, &news)
        });
        self.told = written.then_some(told);
    }

    /// Hears what the servers tell that were heard of a moment ago.
    fn hear(&self) {
        let Some(control) = self.farm.control() else { return };
        let (server, snapshot) = (self.farm.server(), self.farm.snapshot());
        let told = control.read(|reader| Ok((reader.server_reports()?, reader.device_reports_but(server)?)));
        let (servers, devices) = match told {
            Ok(told) => told,
            Err(error) => {
                tracing::warn!(%error, "what the other servers tell cannot be read");
                return;
            }
        };
        let runs = |server| state(servers.get(&server), now()) == ServerState::Running;
        let mut heard = Heard::default();
        for report in devices.into_iter().filter(|report| runs(report.server)) {
            heard.take(&snapshot, report.server, report.device, &report.told);
        }
        self.admin.hear(heard);
    }

    /// Whether it was written.
    fn write(&self, mut work: impl FnMut(&mut Change<'_>, ServerId) -> Result<(), CatalogueError>) -> bool {
        let server = self.farm.server();
        let written = self.farm.change(|change| work(change, server));
        if let Err(error) = &written {
            tracing::warn!(%error, "what this server carries cannot be told to the others");
        }
        written.is_ok()
    }
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

fn counters(admin: &Admin, status: &ServerStatus) -> Counters {
    let at_us = u64::try_from(now().ms()).unwrap_or(0).saturating_mul(1000);
    Counters::of(at_us, &admin.stats(), status.process)
}
