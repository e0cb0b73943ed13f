//! What devices do at the farm's other servers, as those told last: every few seconds, through the farm's database.
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use ::api::live::{DeviceStatus, KeptOut};
use farm::model::{DeviceId, Fence, ServerId, Timestamp};
use farm::snapshot::Snapshot;
use serde::{Deserialize, Serialize};

use crate::config::DeviceName;
use crate::timeline::presence::Presence;

/// In how many steps a write cache fills up for others: each step is written.
const FILL_STEPS: u64 = 64;
/// How often others are told that a device was refused again.
const REFUSED_EVERY_MS: i64 = 60_000;

/// What a server tells the others of a device, as JSON.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Told {
    /// What it does there; null: it has no boot under way there.
    status: Option<DeviceStatus>,
    /// What it was refused there; null: nothing.
    kept_out: Option<Refused>,
}

/// A [`KeptOut`] without the device.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Refused {
    fences: Vec<i64>,
    since_ms: i64,
    last_ms: i64,
}

impl Told {
    /// Of these devices, with what changes all the time told in steps, so that others are told when it matters.
    pub(crate) fn of_all(
        devices: Vec<(DeviceId, DeviceStatus)>,
        kept_out: Vec<KeptOut>,
    ) -> HashMap<DeviceId, Self> {
        let mut all = HashMap::<DeviceId, Self>::new();
        for (device, mut status) in devices.into_iter().filter(|(_, status)| status.boot.is_some()) {
            if let Some(cache) = &mut status.write_cache {
                let step = cache.limit_bytes.div_euclid(FILL_STEPS).max(1);
                cache.used_bytes = cache.used_bytes.div_euclid(step).saturating_mul(step);
            }
            all.entry(device).or_default().status = Some(status);
        }
        for KeptOut { device, fences, since, last } in kept_out {
            let since_ms = since.ms();
            let last_ms =
                last.ms().div_euclid(REFUSED_EVERY_MS).saturating_mul(REFUSED_EVERY_MS).max(since_ms);
            let fences = fences.iter().map(|fence| fence.get()).collect();
            all.entry(device).or_default().kept_out = Some(Refused { fences, since_ms, last_ms });
        }
        all
    }
}

/// What the others told last.
#[derive(Debug, Default)]
pub(crate) struct Elsewhere(Mutex<Arc<Heard>>);

/// It, at one moment.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    devices: HashMap<String, DeviceStatus>,
    kept_out: HashMap<DeviceId, KeptOut>,
}

impl Elsewhere {
    pub(crate) fn heard(&self) -> Arc<Heard> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn hear(&self, heard: Heard) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(heard);
    }
}

impl Heard {
    /// Takes what a server tells of a device, where both are known and it is understood: the other may run another version
    /// of this program.
    pub(crate) fn take(&mut self, snapshot: &Snapshot, server: ServerId, device: DeviceId, told: &str) {
        let known = snapshot.server(server).zip(snapshot.device(device));
        let Some(((server, device), told)) = known.zip(serde_json::from_str::<Told>(told).ok()) else {
            return;
        };
        if let Some(mut status) = told.status {
            status.name = device.name.to_string();
            status.server = Some(server.name.to_string());
            let before = self.devices.remove(&status.name);
            let latest = before.filter(|before| !goes_before(&status, before)).unwrap_or(status);
            self.devices.insert(latest.name.clone(), latest);
        }
        if let Some(refused) = told.kept_out {
            let fences = refused.fences.iter().filter_map(|fence| Fence::new(*fence).ok()).collect();
            let (since, last) = (Timestamp::from_ms(refused.since_ms), Timestamp::from_ms(refused.last_ms));
            let kept_out = KeptOut { device: device.id, fences, since, last };
            let before = self.kept_out.remove(&device.id);
            self.kept_out.insert(device.id, before.filter(|before| before.last > last).unwrap_or(kept_out));
        }
    }

    /// What a device does, of which this is what it does here.
    pub(crate) fn or_here(&self, here: DeviceStatus) -> DeviceStatus {
        match self.devices.get(&here.name) {
            Some(there) if goes_before(there, &here) => {
                DeviceStatus { initiator: here.initiator, mac: here.mac, ..there.clone() }
            }
            _ => here,
        }
    }

    /// At which other server a device runs.
    pub(crate) fn server_of(&self, device: &str) -> Option<&str> {
        self.devices.get(device)?.server.as_deref()
    }

    /// Who was refused, here and there, who waits longest first.
    pub(crate) fn kept_out_with(&self, here: Vec<KeptOut>) -> Vec<KeptOut> {
        let mut all = self.kept_out.clone();
        all.extend(here.into_iter().map(|one| (one.device, one)));
        let mut all: Vec<KeptOut> = all.into_values().collect();
        all.sort_by_key(|one| (one.since, one.device));
        all
    }

    /// Which devices are there.
    pub(crate) fn presences(&self) -> HashMap<DeviceName, Presence> {
        let presence = |status: &DeviceStatus| {
            Some((DeviceName::parse(&status.name).ok()?, Presence::parse(&status.presence)?))
        };
        self.devices.values().filter_map(presence).collect()
    }
}

/// Whether the first tells more of what the device does than the second: where it is connected, else where it booted last.
fn goes_before(one: &DeviceStatus, other: &DeviceStatus) -> bool {
    // Ids of boots begin with when they began.
    let told = |status: &DeviceStatus| (status.sessions > 0, status.boot.clone());
    told(one) > told(other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn status(server: Option<&str>, boot: Option<&str>, sessions: u32) -> DeviceStatus {
        let told = json!({
            "name": "lab-01", "mac": server, "initiator": "", "status": "ready", "presence": "online",
            "server": server, "boot": boot, "sessions": sessions,
        });
        serde_json::from_value(told).unwrap()
    }

    #[test]
    fn device_is_where_it_is_connected_or_else_booted_last() {
        let cases = [
            // What another tells, what is seen here, and who is right.
            ((Some("b1"), 1), (None, 0), Some("two")),
            ((Some("b1"), 1), (Some("b2"), 0), Some("two")),
            ((Some("b2"), 0), (Some("b1"), 0), Some("two")),
            ((Some("b1"), 0), (Some("b2"), 0), None),
            ((Some("b2"), 0), (Some("b1"), 1), None),
            ((Some("b1"), 1), (Some("b1"), 1), None),
        ];
        for ((boot, sessions), (boot_here, sessions_here), expected) in cases {
            let there = status(Some("two"), boot, sessions);
            let heard = Heard { devices: HashMap::from([("lab-01".to_owned(), there)]), ..Heard::default() };
            let known = heard.or_here(status(None, boot_here, sessions_here));
            assert_eq!(known.server.as_deref(), expected, "{boot:?} {boot_here:?}");
            assert_eq!(known.mac, None, "what the catalogue says is said here");
        }
    }

    #[test]
    fn who_was_refused_here_and_there_stands_once_who_waits_longest_first() {
        let kept_out = |device: i64, since: i64| KeptOut {
            device: DeviceId::new(device).unwrap(),
            fences: Vec::new(),
            since: Timestamp::from_ms(since),
            last: Timestamp::from_ms(since),
        };
        let there = [kept_out(1, 30), kept_out(2, 10)].map(|one| (one.device, one));
        let heard = Heard { kept_out: HashMap::from(there), ..Heard::default() };
        let all = heard.kept_out_with(vec![kept_out(1, 5), kept_out(3, 20)]);
        assert_eq!(all, [kept_out(1, 5), kept_out(2, 10), kept_out(3, 20)]);
    }
}
