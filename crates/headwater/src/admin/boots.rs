//! Boots and their timelines, also live.
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{mpsc, watch};

use crate::stream::boot_id::before;
use crate::timeline::findings::findings;
use crate::timeline::{BootRecord, Moment, Recorder};

/// How often a follower hears of reads and writes; other steps it hears of at once.
const FOLLOW_EVERY: Duration = Duration::from_millis(500);

/// The most boots that wait for a follower who does not read.
const FOLLOW_QUEUE: usize = 64;

/// Boots as they are answered: with what stands out in each.
pub(super) fn as_values(boots: &[BootRecord]) -> io::Result<Vec<Value>> {
    let value = |boot: &BootRecord| {
        let mut value = serde_json::to_value(boot)?;
        if let Some(fields) = value.as_object_mut() {
            fields.insert("findings".to_owned(), serde_json::to_value(findings(boot))?);
        }
        Ok(value)
    };
    boots.iter().map(value).collect()
}

/// Each boot under way, and again whenever it changes.
pub(super) fn follow(recorder: &Arc<Recorder>, stopping: watch::Receiver<bool>) -> mpsc::Receiver<Value> {
    let (sender, boots) = mpsc::channel(FOLLOW_QUEUE);
    tokio::spawn(feed(Arc::clone(recorder), sender, stopping));
    boots
}

/// Sends what changes until the follower goes away or the server stops.
async fn feed(recorder: Arc<Recorder>, sender: mpsc::Sender<Value>, mut stopping: watch::Receiver<bool>) {
    let mut changes = recorder.changes();
    let mut sent: HashMap<String, u64> = HashMap::new();
    for record in recorder.recently_ended() {
        sent.insert(record.id, u64::MAX);
    }
    while !*stopping.borrow() {
        changes.mark_unchanged();
        let ended = recorder.recently_ended().into_iter().map(|record| (u64::MAX, record));
        let live = recorder.live().into_iter().map(|snapshot| (snapshot.revision, snapshot.record));
        let all: Vec<(u64, BootRecord)> = ended.chain(live).collect();
        for (revision, record) in &all {
            if sent.get(&record.id) == Some(revision) {
                continue;
            }
            let Ok(boot) = serde_json::to_value(record) else { return };
            if sender.send(boot).await.is_err() {
                return;
            }
            sent.insert(record.id.clone(), *revision);
        }
        sent.retain(|id, _| all.iter().any(|(_, record)| record.id == *id));
        tokio::select! {
            () = sender.closed() => return,
            _ = stopping.changed() => {}
            _ = changes.changed() => {}
            () = tokio::time::sleep(FOLLOW_EVERY) => {}
        }
    }
}

/// The latest boot of each device: the one that somebody has logged in to, if there is one under way.
pub(super) fn latest_of_each(recorder: &Recorder) -> io::Result<Vec<BootRecord>> {
    let live: Vec<BootRecord> = recorder.live().into_iter().map(|snapshot| snapshot.record).collect();
    let mut latest: HashMap<String, BootRecord> = HashMap::new();
    for device in recorder.store().devices()? {
        let store = recorder.store();
        let id = store.ids(&device)?.into_iter().next();
        if let Some(record) = id.and_then(|id| store.load(&device, &id).ok().flatten()) {
            latest.insert(device, record);
        }
    }
    for record in recorder.recently_ended().into_iter().chain(live) {
        if latest.get(&record.device).is_some_and(|known| known.id > record.id) {
            continue;
        }
        latest.insert(record.device.clone(), record);
    }
    let mut boots: Vec<BootRecord> = latest.into_values().collect();
    boots.sort_by(|a, b| a.device.cmp(&b.device));
    Ok(boots)
}

/// The most boots that are read for a list of the last hours: a page of them is some hundred.
const MAX_SINCE: usize = 5000;

/// The latest boot of each device, and of the others the latest ones that began at this moment or later. Ids tell when boots
/// began, so that files of older ones are not opened.
pub(super) fn since(recorder: &Recorder, moment: Moment) -> io::Result<Vec<BootRecord>> {
    let mut boots = latest_of_each(recorder)?;
    let (store, floor) = (recorder.store(), before(moment));
    let mut wanted: Vec<(String, String)> = Vec::new();
    for device in store.devices()? {
        let ids = store.ids(&device)?.into_iter().filter(|id| id.as_str() >= floor.as_str());
        wanted.extend(ids.map(|id| (id, device.clone())));
    }
    wanted.sort_unstable_by(|a, b| b.cmp(a));
    let known: HashSet<String> = boots.iter().map(|boot| boot.id.clone()).collect();
    wanted.retain(|(id, _)| !known.contains(id));
    let load = |(id, device): &(String, String)| store.load(device, id).ok().flatten();
    boots.extend(wanted.iter().take(MAX_SINCE).filter_map(load));
    Ok(boots)
}

/// A device's boots, latest first, those under way with their figures of this moment; or the boot with this id.
pub(super) fn of_device_or_id(recorder: &Recorder, wanted: &str) -> io::Result<Vec<BootRecord>> {
    let mut boots = recorder.live_of(wanted);
    // What has just ended may not be on disk yet.
    let ended = recorder.recently_ended().into_iter().filter(|record| record.device == wanted);
    for record in ended.chain(recorder.store().boots(wanted)?) {
        if !boots.iter().any(|known| known.id == record.id) {
            boots.push(record);
        }
    }
    boots.sort_by(|a, b| b.id.cmp(&a.id));
    if boots.is_empty() {
        let live =
            recorder.live().into_iter().map(|snapshot| snapshot.record).find(|record| record.id == wanted);
        boots.extend(match live {
            Some(record) => Some(record),
            None => recorder.store().find(wanted)?,
        });
    }
    Ok(boots)
}
