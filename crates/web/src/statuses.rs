//! What devices are doing at one moment.
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use api::live::DeviceStatus;

use crate::fresh::Read;

/// Devices by name, and how many are in each state.
#[derive(Clone, Debug)]
pub(crate) struct Statuses {
    begun: Instant,
    by_name: Vec<DeviceStatus>,
    counts: BTreeMap<Cow<'static, str>, u64>,
}

impl Read for Statuses {
    fn begun(&self) -> Instant {
        self.begun
    }
}

impl Statuses {
    /// Of these devices, which were begun to be read then.
    pub(crate) fn of(begun: Instant, mut devices: Vec<DeviceStatus>) -> Self {
        devices.sort_by(|a, b| a.name.cmp(&b.name));
        let mut counts = BTreeMap::<_, u64>::new();
        for device in &devices {
            let count = counts.entry(device.status.clone()).or_default();
            *count = count.saturating_add(1);
        }
        Self { begun, by_name: devices, counts }
    }

    /// Those of them that fit.
    pub(crate) fn only(&self, fits: impl Fn(&DeviceStatus) -> bool) -> Self {
        Self::of(self.begun, self.all().filter(|device| fits(device)).cloned().collect())
    }

    /// None of them.
    pub(crate) fn none(&self) -> Self {
        self.only(|_| false)
    }

    /// All of them, by name.
    pub(crate) fn all(&self) -> impl Iterator<Item = &DeviceStatus> {
        self.by_name.iter()
    }

    /// The device of this name.
    pub(crate) fn get(&self, name: &str) -> Option<&DeviceStatus> {
        let place = self.by_name.binary_search_by(|device| device.name.as_str().cmp(name)).ok()?;
        self.by_name.get(place)
    }

    /// How many there are.
    pub(crate) fn number(&self) -> usize {
        self.by_name.len()
    }

    /// How many are in each state in which any is.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (&str, u64)> {
        self.counts.iter().map(|(status, count)| (status.as_ref(), *count))
    }

    /// How many run each vDisk that is run.
    pub(crate) fn runners(&self) -> HashMap<i64, u64> {
        let mut runners = HashMap::<i64, u64>::new();
        for vdisk in self.all().filter(|device| device.sessions > 0).filter_map(|device| device.vdisk_id) {
            let count = runners.entry(vdisk).or_default();
            *count = count.saturating_add(1);
        }
        runners
    }

    /// The devices that run a vDisk, in one of its versions or in any, by name.
    pub(crate) fn running(&self, vdisk: i64, number: Option<u32>) -> Vec<&DeviceStatus> {
        let runs = |device: &&DeviceStatus| device.sessions > 0 && device.vdisk_id == Some(vdisk);
        let devices = self.all().filter(runs);
        devices.filter(|device| number.is_none() || device.version == number).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn device(name: &str, status: &str, vdisk: Option<i64>) -> DeviceStatus {
        let sessions = u32::from(vdisk.is_some());
        serde_json::from_value(json!({
            "name": name, "initiator": "", "status": status, "sessions": sessions, "vdisk_id": vdisk, "version": 2,
        }))
        .unwrap()
    }

    #[test]
    fn devices_are_found_by_name_counted_by_state_and_told_by_what_they_run() {
        // As names are sorted elsewhere, which need not be as texts are.
        let told =
            [("b", "off", None), ("a-1", "ready", Some(7)), ("a", "ready", Some(7)), ("c", "lost", Some(8))];
        let begun = Instant::now();
        let statuses =
            Statuses::of(begun, told.map(|(name, status, vdisk)| device(name, status, vdisk)).into());
        let names =
            |devices: Vec<&DeviceStatus>| devices.iter().map(|one| one.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(statuses.all().collect()), ["a", "a-1", "b", "c"]);
        assert!(told.iter().all(|(name, ..)| statuses.get(name).is_some_and(|one| one.name == *name)));
        assert!(statuses.get("d").is_none());
        assert_eq!(statuses.counts().collect::<Vec<_>>(), [("lost", 1), ("off", 1), ("ready", 2)]);
        assert_eq!(statuses.runners(), HashMap::from([(7, 2), (8, 1)]));
        assert_eq!(names(statuses.running(7, Some(2))), ["a", "a-1"]);
        assert!(statuses.running(7, Some(1)).is_empty());
        let only = statuses.only(|one| one.name != "a");
        assert_eq!((only.number(), only.get("a").is_some(), only.begun()), (3, false, begun));
        assert_eq!(only.counts().last(), Some(("ready", 1)));
    }
}
