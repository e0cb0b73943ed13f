//! What somebody may see of what runs: all of it, or their own devices alone.
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use api::live::DeviceStatus;
use api::rates::Rates;
use axum::http::StatusCode;
use farm::model::ObjectKind;
use farm::rules::permission::{Action, Place};
use serde::Deserialize;

use crate::ask::Refusal;
use crate::board::Statuses;
use crate::boot::Boot;
use crate::door::Visit;
use crate::wire::List;

#[derive(Deserialize)]
struct Devices {
    items: Vec<DeviceStatus>,
}

impl Visit {
    /// Whether they see all devices of the farm.
    pub(crate) fn sees_all(&self) -> bool {
        self.may(Action::See, ObjectKind::Device, Place::Farm).is_ok()
    }

    /// What the devices are doing that they see: of the board, which is read once for all who see everything, or else what
    /// the REST API tells them. Those who see no device anywhere are told of none.
    pub(crate) async fn statuses(&self) -> Result<Arc<Statuses>, Refusal> {
        if self.sees_all() {
            return Ok(self.console.board.statuses().await);
        }
        let items = match self.ask.get::<Devices>("/v1/device-status").await {
            Ok(devices) => devices.items,
            Err(refusal) if refusal.status == StatusCode::FORBIDDEN => Vec::new(),
            Err(refusal) => return Err(refusal),
        };
        Ok(Arc::new(Statuses::of(items)))
    }

    /// Boots of the devices that they see.
    pub(crate) fn boots_seen(&self, statuses: &Statuses, mut boots: Vec<Arc<Boot>>) -> Vec<Arc<Boot>> {
        if !self.sees_all() {
            boots.retain(|boot| statuses.by_name.contains_key(&boot.device));
        }
        boots
    }

    /// What moves on the devices that they see, oldest first.
    pub(crate) fn rates_seen(&self, statuses: &Statuses) -> Vec<Rates> {
        match self.sees_all() {
            true => self.console.board.rates(),
            false => self.console.board.rates_of(statuses.by_name.keys().map(String::as_str)),
        }
    }
}

impl Statuses {
    /// Of these devices.
    pub(crate) fn of(items: Vec<DeviceStatus>) -> Self {
        let mut statuses = Self { by_name: BTreeMap::new(), counts: BTreeMap::new() };
        for device in items {
            let count = statuses.counts.entry(device.status.clone()).or_default();
            *count = count.saturating_add(1);
            statuses.by_name.insert(device.name.clone(), device);
        }
        statuses
    }

    /// How many devices run each vDisk that is run.
    pub(crate) fn runners(&self) -> HashMap<i64, u64> {
        let mut runners = HashMap::<i64, u64>::new();
        for vdisk in self.by_name.values().filter(|device| device.sessions > 0).filter_map(|d| d.vdisk_id) {
            let count = runners.entry(vdisk).or_default();
            *count = count.saturating_add(1);
        }
        runners
    }

    /// The devices that run a vDisk, in one of its versions or in any, by name.
    pub(crate) fn running(&self, vdisk: i64, number: Option<u32>) -> Vec<&DeviceStatus> {
        let runs = |device: &&DeviceStatus| device.sessions > 0 && device.vdisk_id == Some(vdisk);
        let devices = self.by_name.values().filter(runs);
        devices.filter(|device| number.is_none() || device.version == number).collect()
    }
}

/// A list, which is empty for those who may not see what is in it.
pub(crate) fn seen<T>(list: Result<List<T>, Refusal>) -> Result<Vec<T>, Refusal> {
    match list {
        Ok(list) => Ok(list.items),
        Err(refusal) if refusal.status == StatusCode::FORBIDDEN => Ok(Vec::new()),
        Err(refusal) => Err(refusal),
    }
}
