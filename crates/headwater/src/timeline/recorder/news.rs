//! What followers are told: which boots changed since they last asked, and how boots ended.
//!
//! Every change is one entry of a bounded journal, whoever follows. A follower has a place in it and is given each boot behind
//! that place once, as it is now: who reads slowly is told less often, not later and later, and the work follows from what
//! changed and not from how many machines run. Who is overtaken by the journal's end is told so, and reads everything anew.
//!
//! Requests make no entries. Those who want to see a boot read look at what it [did](Recorder::busy) now and then.
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use super::{LiveBoot, Recorder, Table};
use crate::config::DeviceName;
use crate::timeline::record::BootRecord;

/// The most changes that are kept: some seconds of a boot storm.
pub(super) const MAX_JOURNAL: usize = 4096;

/// The most boots that are told at once, so that the table is held for a short time only.
const MAX_AT_ONCE: usize = 64;

/// The latest changes, oldest first, numbered without a gap.
#[derive(Debug, Default)]
pub(super) struct Journal {
    first: u64,
    changes: VecDeque<Change>,
}

#[derive(Debug)]
enum Change {
    /// Something happened to a boot under way.
    Happened { device: DeviceName, id: String },
    /// A boot is over.
    Ended(Arc<BootRecord>),
}

/// What a follower had not been told yet.
#[derive(Debug, Default)]
pub struct News {
    /// The boots that changed, as they are now, and those that ended.
    pub boots: Vec<Arc<BootRecord>>,
    /// Whether changes were forgotten before they could be told.
    pub lost: bool,
}

/// A follower's place.
#[derive(Clone, Copy, Debug)]
pub struct Place(u64);

/// What boots had done when a follower last looked.
#[derive(Debug, Default)]
pub struct Done(HashMap<String, u64>);

impl Journal {
    fn next(&self) -> u64 {
        self.first.saturating_add(self.changes.len() as u64)
    }

    fn push(&mut self, change: Change) {
        if self.changes.len() >= MAX_JOURNAL {
            self.changes.pop_front();
            self.first = self.first.saturating_add(1);
        }
        self.changes.push_back(change);
    }

    pub(super) fn happened(&mut self, device: &DeviceName, id: &str) {
        self.push(Change::Happened { device: device.clone(), id: id.to_owned() });
    }

    pub(super) fn ended(&mut self, record: BootRecord) {
        self.push(Change::Ended(Arc::new(record)));
    }
}

impl Recorder {
    /// Where a follower begins that wants to hear of what happens from now on.
    #[must_use]
    pub fn place(&self) -> Place {
        Place(self.lock().journal.next())
    }

    /// What a follower has not been told yet, or the first part of it; nothing: all was told. Its place moves on.
    pub fn news(&self, place: &mut Place) -> News {
        let table = self.lock();
        let journal = &table.journal;
        let mut news = News { lost: place.0 < journal.first, ..News::default() };
        let from = place.0.max(journal.first);
        let skipped = usize::try_from(from.saturating_sub(journal.first)).unwrap_or(usize::MAX);
        let mut told = HashSet::new();
        place.0 = from;
        for change in journal.changes.iter().skip(skipped) {
            if news.boots.len() >= MAX_AT_ONCE {
                break;
            }
            place.0 = place.0.saturating_add(1);
            match change {
                Change::Ended(record) => news.boots.push(Arc::clone(record)),
                // One that has ended since is told behind.
                Change::Happened { device, id } if told.insert(id.as_str()) => {
                    news.boots.extend(table.known(device, id).map(|boot| Arc::new(boot.snapshot())));
                }
                Change::Happened { .. } => {}
            }
        }
        news
    }

    /// The boots that asked for something since `done`; only of those that are not ready yet unless `all`: a system at work
    /// asks for something all the time.
    pub fn busy(&self, done: &mut Done, all: bool) -> Vec<BootRecord> {
        let table = self.lock();
        let wanted = |boot: &&LiveBoot| boot.record.used() && (all || boot.record.ready_at_ms.is_none());
        let mut now = HashMap::new();
        let mut busy = Vec::new();
        for boot in table.live.values().flatten().filter(wanted) {
            let activity = boot.activity();
            if done.0.get(&boot.record.id).copied().unwrap_or(0) != activity {
                busy.push(boot.snapshot());
            }
            now.insert(boot.record.id.clone(), activity);
        }
        done.0 = now;
        busy
    }

    /// What boots have done by now, to be compared with later.
    #[must_use]
    pub fn done(&self) -> Done {
        let table = self.lock();
        let boots = table.live.values().flatten();
        Done(boots.map(|boot| (boot.record.id.clone(), boot.activity())).collect())
    }
}

impl Table {
    fn known(&self, device: &DeviceName, id: &str) -> Option<&LiveBoot> {
        self.live.get(device)?.iter().find(|boot| boot.record.id == id)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use block::{ByteLength, ByteOffset, ByteRange};
    use iscsi::directory::{RequestKind, SessionObserver};

    use super::*;
    use crate::timeline::Clock;
    use crate::timeline::record::Program;
    use crate::timeline::recorder::{NewBoot, SessionTap};
    use crate::timeline::store::BootStore;

    struct Room {
        _dir: tempfile::TempDir,
        recorder: Arc<Recorder>,
    }

    impl Room {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let recorder = Recorder::new(Clock::start(), BootStore::new(dir.path(), 5), &[]);
            Self { _dir: dir, recorder }
        }

        fn script(&self, device: &str, id: &str) {
            self.recorder.script(&boot(&DeviceName::parse(device).unwrap(), id));
        }

        fn login(&self, device: &str, id: &str) -> SessionTap {
            let device = DeviceName::parse(device).unwrap();
            self.recorder.login(&boot(&device, id), Program::Initiator([0x40, 0, 0, 0, 0, 1]), None)
        }

        /// What a follower is told until there is nothing more.
        fn told(&self, place: &mut Place) -> Vec<Arc<BootRecord>> {
            let mut all = Vec::new();
            loop {
                let news = self.recorder.news(place);
                assert!(!news.lost);
                if news.boots.is_empty() {
                    return all;
                }
                all.extend(news.boots);
            }
        }

        fn busy(&self, done: &mut Done, all: bool) -> Vec<String> {
            self.recorder.busy(done, all).into_iter().map(|record| record.id).collect()
        }
    }

    fn boot<'a>(device: &'a DeviceName, id: &'a str) -> NewBoot<'a> {
        NewBoot { id, device, mac: None, vdisk: "debian", version: None, target: "t", disk_bytes: None }
    }

    fn read(tap: &SessionTap) {
        let range = ByteRange::new(ByteOffset::ZERO, ByteLength::new(4096)).unwrap();
        SessionObserver::request_done(tap, RequestKind::Read, range, Duration::from_micros(5), true);
    }

    #[test]
    fn boot_that_changed_often_is_told_once_as_it_is_and_its_end_behind() {
        let room = Room::new();
        room.script("lab-01", "b0");
        let mut place = room.recorder.place();
        room.script("lab-02", "b1");
        let _session = room.login("lab-02", "b1");
        let told = room.told(&mut place);
        let [only] = told.as_slice() else { panic!("{told:?}") };
        assert_eq!((only.id.as_str(), only.sessions), ("b1", 1));
        let _next = room.login("lab-02", "b2");
        let told = room.told(&mut place);
        let told: Vec<_> = told.iter().map(|boot| (boot.id.as_str(), boot.end.is_some())).collect();
        assert_eq!(told, [("b1", true), ("b2", false)]);
        assert!(room.told(&mut place).is_empty());
    }

    #[test]
    fn every_boot_of_a_storm_is_told_and_who_is_overtaken_hears_that() {
        let room = Room::new();
        let mut place = room.recorder.place();
        let late = place;
        for number in 0..MAX_JOURNAL {
            room.script(&format!("pc-{number:05}"), &format!("b{number:05}"));
        }
        let told = room.told(&mut place);
        assert!(told.iter().map(|boot| boot.id.clone()).eq((0..MAX_JOURNAL).map(|n| format!("b{n:05}"))));
        room.script("one-more", "c");
        let mut late = late;
        let news = room.recorder.news(&mut late);
        assert!(news.lost && news.boots.first().is_some_and(|boot| boot.id == "b00001"));
        assert_eq!(room.told(&mut late).last().unwrap().id, "c");
    }

    #[test]
    fn requests_are_told_until_the_system_is_ready_and_then_to_those_who_want_all() {
        let room = Room::new();
        let session = room.login("lab-01", "b1");
        let (mut some, mut all) = (room.recorder.done(), room.recorder.done());
        assert!(room.busy(&mut some, false).is_empty());
        read(&session);
        assert_eq!(room.busy(&mut some, false), ["b1"]);
        assert!(room.busy(&mut some, false).is_empty());
        assert_eq!(room.busy(&mut all, true), ["b1"]);
        let peer = std::net::IpAddr::from([10, 0, 0, 1]);
        let device = DeviceName::parse("lab-01").unwrap();
        let mac = netboot::director::MacAddress([0x52, 0x54, 0, 0, 0, 1]);
        let ready = NewBoot { mac: Some(mac), ..boot(&device, "b2") };
        let session = room.recorder.login(&ready, Program::Initiator([0x40, 0, 0, 0, 0, 1]), None);
        assert!(room.recorder.ready(Some(mac), peer).is_some());
        room.busy(&mut all, true);
        read(&session);
        assert!(room.busy(&mut some, false).is_empty());
        assert_eq!(room.busy(&mut all, true), ["b2"]);
    }
}
