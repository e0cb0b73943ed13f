//! Telling followers when a device comes or goes: `off`, `booting`, `online`, `idle`, `lost`.
//!
//! Whether a device is there follows from what it does *and* from the clock: one that asks for nothing becomes idle by itself. So it is
//! looked at whenever the timeline changes and every second besides, for all devices at once and for all followers together,
//! and only what differs from the last look is told. While nobody follows, nothing is looked at.
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{broadcast, watch};

use super::presence::Presence;
use super::recorder::Recorder;
use crate::config::DeviceName;

/// How often it is looked at where nothing happens.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long to wait behind a look, so that a thousand steps of a boot storm are not a thousand looks.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(250);
/// How many changes wait for a follower: a room that is switched on. Who falls further behind is told all anew.
const MAX_WAITING: usize = 4096;

/// A device that came or went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The device.
    pub device: DeviceName,
    /// What it is now.
    pub presence: Presence,
    /// What it was before.
    pub before: Presence,
}

/// What the devices were at the last look, and who hears of changes.
#[derive(Debug)]
pub struct Presences {
    recorder: Arc<Recorder>,
    known: Mutex<HashMap<DeviceName, Presence>>,
    /// What the farm's other servers tell of devices.
    elsewhere: Mutex<HashMap<DeviceName, Presence>>,
    followers: broadcast::Sender<Change>,
}

impl Presences {
    /// Of the devices of this timeline.
    #[must_use]
    pub fn new(recorder: Arc<Recorder>) -> Arc<Self> {
        let followers = broadcast::Sender::new(MAX_WAITING);
        Arc::new(Self { recorder, known: Mutex::default(), elsewhere: Mutex::default(), followers })
    }

    /// Looks, as long as somebody follows, until the server stops.
    pub async fn run(self: Arc<Self>, mut stopping: watch::Receiver<bool>) {
        let mut changes = self.recorder.changes();
        while !*stopping.borrow_and_update() {
            tokio::select! {
                _ = stopping.changed() => {}
                _ = changes.changed() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
            if self.followers.receiver_count() > 0 {
                self.look();
                tokio::time::sleep(LOOK_AGAIN_AFTER).await;
            }
        }
    }

    /// Hears of what changes from now on.
    #[must_use]
    pub fn follow(&self) -> broadcast::Receiver<Change> {
        let mut known = self.known();
        if self.followers.receiver_count() == 0 {
            // What happened while nobody followed is no news.
            *known = self.with_elsewhere(self.recorder.presences());
        }
        self.followers.subscribe()
    }

    /// Devices that are not off, as they were at the last look; for a follower that missed some changes.
    #[must_use]
    pub fn all(&self) -> Vec<(DeviceName, Presence)> {
        self.known().iter().map(|(device, presence)| (device.clone(), *presence)).collect()
    }

    /// Hears what the farm's other servers tell of devices, each time all of it.
    pub fn hear(&self, elsewhere: HashMap<DeviceName, Presence>) {
        *self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner) = elsewhere;
    }

    fn look(&self) {
        self.tell(self.with_elsewhere(self.recorder.presences()));
    }

    /// Devices that are not here may be elsewhere.
    fn with_elsewhere(&self, mut here: HashMap<DeviceName, Presence>) -> HashMap<DeviceName, Presence> {
        for (device, there) in self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            match here.get_mut(device) {
                None => drop(here.insert(device.clone(), *there)),
                Some(presence) if matches!(presence, Presence::Off | Presence::Lost) => *presence = *there,
                Some(_) => {}
            }
        }
        here
    }

    fn tell(&self, now: HashMap<DeviceName, Presence>) {
        let mut known = self.known();
        let gone = known.keys().filter(|device| !now.contains_key(*device));
        let gone = gone.map(|device| (device.clone(), Presence::Off));
        let there = now.iter().map(|(device, presence)| (device.clone(), *presence));
        for (device, presence) in there.chain(gone) {
            let before = known.get(&device).copied().unwrap_or(Presence::Off);
            if presence != before {
                // Nobody need listen.
                let _ = self.followers.send(Change { device, presence, before });
            }
        }
        *known = now;
    }

    fn known(&self) -> MutexGuard<'_, HashMap<DeviceName, Presence>> {
        // It is replaced whole.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::record::Program;
    use crate::timeline::recorder::NewBoot;
    use crate::timeline::store::BootStore;
    use crate::timeline::{Clock, Millis};

    const IPXE: [u8; 6] = [0x40, 0x00, 0x27, 0x23, 0x12, 0x34];

    fn heard(follower: &mut broadcast::Receiver<Change>) -> Vec<(&'static str, &'static str)> {
        let mut heard = Vec::new();
        while let Ok(change) = follower.try_recv() {
            assert_eq!(change.device.as_str(), "lab-01");
            heard.push((change.before.as_str(), change.presence.as_str()));
        }
        heard
    }

    #[test]
    fn device_is_told_of_when_it_comes_falls_idle_and_goes() {
        let dir = tempfile::tempdir().unwrap();
        let recorder = Recorder::new(Clock::start(), BootStore::new(dir.path(), 5), &[]);
        let presences = Presences::new(Arc::clone(&recorder));
        let device = DeviceName::parse("lab-01").unwrap();
        let boot = NewBoot {
            id: "b1",
            device: &device,
            mac: None,
            vdisk: "debian",
            version: None,
            target: "t",
            disk_bytes: None,
        };
        let mut follower = presences.follow();
        presences.look();
        assert_eq!(heard(&mut follower), []);
        let tap = recorder.login(&boot, Program::Initiator(IPXE), Some(([10, 0, 0, 9], 4711).into()));
        presences.look();
        presences.look();
        assert_eq!(heard(&mut follower), [("off", "booting")], "once");
        recorder.ready(None, [10, 0, 0, 9].into()).unwrap();
        presences.look();
        let later = |seconds: u64| recorder.clock().now().after(Millis::from_us(seconds * 1_000_000));
        presences.tell(recorder.presences_at(later(301)));
        assert_eq!(heard(&mut follower), [("booting", "online"), ("online", "idle")]);
        drop(tap);
        recorder.end(&device, "reset by the administrator");
        presences.look();
        assert_eq!(heard(&mut follower), [("idle", "off")]);
    }

    #[test]
    fn device_that_another_server_serves_is_told_of_as_that_says() {
        let dir = tempfile::tempdir().unwrap();
        let presences = Presences::new(Recorder::new(Clock::start(), BootStore::new(dir.path(), 5), &[]));
        let device = DeviceName::parse("lab-01").unwrap();
        let mut follower = presences.follow();
        let mut hear = |word: Option<&str>| {
            let told = word.and_then(Presence::parse).map(|presence| (device.clone(), presence));
            presences.hear(told.into_iter().collect());
            presences.look();
            heard(&mut follower)
        };
        assert_eq!(hear(Some("booting")), [("off", "booting")]);
        assert_eq!(hear(Some("booting")), []);
        assert_eq!(hear(Some("online")), [("booting", "online")]);
        assert_eq!(hear(None), [("online", "off")]);
        // What is lost here has gone there.
        presences.hear(HashMap::from([(device.clone(), Presence::Online)]));
        for (here, told) in [(Presence::Lost, Presence::Online), (Presence::Booting, Presence::Booting)] {
            let all = presences.with_elsewhere(HashMap::from([(device.clone(), here)]));
            assert_eq!(all, HashMap::from([(device.clone(), told)]));
        }
    }

    #[test]
    fn presence_without_copies_is_the_one_of_the_records() {
        let dir = tempfile::tempdir().unwrap();
        let recorder = Recorder::new(Clock::start(), BootStore::new(dir.path(), 5), &[]);
        let presences = Presences::new(Arc::clone(&recorder));
        let device = DeviceName::parse("lab-01").unwrap();
        let boot = |id| NewBoot {
            id,
            device: &device,
            mac: None,
            vdisk: "debian",
            version: None,
            target: "t",
            disk_bytes: None,
        };
        let _tap = recorder.login(&boot("b1"), Program::Initiator(IPXE), None);
        // A script behind the boot that runs says nothing of it.
        recorder.script(&boot("b2"));
        let now = recorder.clock().now();
        let boots = recorder.live_of("lab-01");
        let used = boots.iter().find(|boot| boot.used());
        assert_eq!(boots.len(), 2);
        assert_eq!(recorder.presences_at(now)[&device], crate::timeline::presence::presence(used, now));
        // Who begins to follow hears of nothing that was before.
        let mut follower = presences.follow();
        presences.look();
        assert_eq!(heard(&mut follower), []);
        assert_eq!(presences.all().len(), 1);
    }
}
