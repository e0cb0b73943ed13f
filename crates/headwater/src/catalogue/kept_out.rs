//! Which devices were refused their lease of late, and whose leases stood against it.
//!
//! Initiators try again and again; a device stands here from its first refusal until it gets its lease or has not tried for
//! [`FORGOTTEN_AFTER`]. Whether the leases that it was refused for are there still, the catalogue knows.
use std::collections::HashMap;
use std::time::Duration;

use api::live::KeptOut;
use farm::model::{DeviceId, Timestamp};
use farm::rules::leases::Conflict;

/// How long a device that does not try again is remembered: machines that wait try every few seconds, and at their slowest
/// within two minutes.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);
/// How many devices are remembered at the most: a large farm whose devices all come while their version is merged.
const MAX_DEVICES: usize = 10_000;
/// How many of the leases that stand against one device are: as many as the refusal names.
const MAX_FENCES: usize = 5;

/// The devices that were refused.
#[derive(Debug, Default)]
pub(super) struct KeptOutDevices(HashMap<DeviceId, KeptOut>);

impl KeptOutDevices {
    /// A device was refused for these leases.
    pub(super) fn refuse(&mut self, device: DeviceId, conflict: &Conflict, now: Timestamp) {
        let fences = conflict.held.iter().take(MAX_FENCES).map(|lease| lease.fence).collect();
        let before = self.0.remove(&device).filter(|before| !is_forgotten(before, now));
        let since = before.map_or(now, |before| before.since);
        if self.0.len() >= MAX_DEVICES {
            self.0.retain(|_, kept_out| !is_forgotten(kept_out, now));
        }
        if self.0.len() >= MAX_DEVICES {
            let oldest = self.0.values().min_by_key(|kept_out| kept_out.last).map(|kept_out| kept_out.device);
            oldest.and_then(|oldest| self.0.remove(&oldest));
        }
        self.0.insert(device, KeptOut { device, fences, since, last: now });
    }

    /// A device has what it was refused.
    pub(super) fn let_in(&mut self, device: DeviceId) {
        self.0.remove(&device);
    }

    /// Those that are not forgotten, who waits longest first.
    pub(super) fn list(&self, now: Timestamp) -> Vec<KeptOut> {
        let known = self.0.values().filter(|kept_out| !is_forgotten(kept_out, now));
        let mut known: Vec<KeptOut> = known.cloned().collect();
        known.sort_by_key(|kept_out| (kept_out.since, kept_out.device));
        known
    }
}

fn is_forgotten(kept_out: &KeptOut, now: Timestamp) -> bool {
    kept_out.last.until(now) >= FORGOTTEN_AFTER
}

#[cfg(test)]
mod tests {
    use super::*;
    use farm::model::{Fence, Id, Lease, Owner, Purpose, Sharing, Subject};

    fn device(number: i64) -> DeviceId {
        Id::new(number).unwrap()
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_ms(seconds * 1000)
    }

    /// As many leases as there are numbers.
    fn held(fences: &[i64]) -> Conflict {
        let lease = |fence: &i64| Lease {
            fence: Fence::new(*fence).unwrap(),
            subject: Subject::Contents(Id::new(1).unwrap()),
            sharing: Sharing::Exclusive,
            purpose: Purpose::Maintenance,
            owner: Owner::Device(device(99)),
            server: Id::new(3).unwrap(),
            since: at(0),
            until: at(30),
        };
        Conflict { held: fences.iter().map(lease).collect(), names: Vec::new() }
    }

    #[test]
    fn device_stands_since_its_first_refusal_for_the_leases_of_the_last_until_it_is_let_in() {
        let mut devices = KeptOutDevices::default();
        devices.refuse(device(1), &held(&[7]), at(10));
        devices.refuse(device(1), &held(&[8, 9, 10, 11, 12, 13, 14]), at(40));
        devices.refuse(device(2), &held(&[8]), at(20));
        let known = devices.list(at(41));
        let told: Vec<_> = known.iter().map(|one| (one.device, one.since, one.last)).collect();
        assert_eq!(told, [(device(1), at(10), at(40)), (device(2), at(20), at(20))]);
        let fences: Vec<i64> = known.iter().flat_map(|one| &one.fences).map(|fence| fence.get()).collect();
        assert_eq!(fences, [8, 9, 10, 11, 12, 8], "as many as are kept");
        devices.let_in(device(1));
        assert_eq!(devices.list(at(41)).len(), 1);
    }

    #[test]
    fn device_that_does_not_try_again_is_forgotten_and_begins_anew() {
        let mut devices = KeptOutDevices::default();
        devices.refuse(device(1), &held(&[7]), at(0));
        assert_eq!(devices.list(at(599)).len(), 1);
        assert!(devices.list(at(600)).is_empty());
        devices.refuse(device(1), &held(&[7]), at(700));
        assert_eq!(devices.list(at(700))[0].since, at(700));
    }

    #[test]
    fn more_devices_than_are_remembered_put_out_those_that_tried_longest_ago() {
        let mut devices = KeptOutDevices::default();
        let all = i64::try_from(MAX_DEVICES).unwrap();
        for number in 1..=all {
            devices.refuse(device(number), &held(&[7]), at(number / 100));
        }
        devices.refuse(device(1), &held(&[7]), at(200));
        devices.refuse(device(all + 1), &held(&[7]), at(200));
        let known = devices.list(at(200));
        assert_eq!(known.len(), MAX_DEVICES);
        assert!(
            known.iter().any(|one| one.device == device(1))
                && known.iter().any(|one| one.device == device(all + 1))
        );
    }
}
