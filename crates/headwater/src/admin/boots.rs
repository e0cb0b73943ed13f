//! Boots and their timelines, also live.
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use ::api::live::{Followed, Requests};
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::time::MissedTickBehavior;

use crate::stream::boot_id::before;
use crate::timeline::findings::findings;
use crate::timeline::recorder::{News, Place};
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

/// Each boot that changes from now on.
pub(super) fn follow(
    recorder: &Arc<Recorder>,
    requests: Requests,
    stopping: watch::Receiver<bool>,
) -> mpsc::Receiver<Followed> {
    let (sender, boots) = mpsc::channel(FOLLOW_QUEUE);
    // The place is taken before this returns: whoever then reads what there is misses nothing.
    tokio::spawn(feed(Arc::clone(recorder), recorder.place(), requests, sender, stopping));
    boots
}

/// Sends what changes until the follower goes away or the server stops.
async fn feed(
    recorder: Arc<Recorder>,
    mut place: Place,
    requests: Requests,
    sender: mpsc::Sender<Followed>,
    mut stopping: watch::Receiver<bool>,
) {
    let mut changes = recorder.changes();
    let mut done = recorder.done();
    let mut look = tokio::time::interval(FOLLOW_EVERY);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !*stopping.borrow() {
        changes.mark_unchanged();
        loop {
            let News { boots, lost } = recorder.news(&mut place);
            if lost && sender.send(Followed::Lost).await.is_err() {
                return;
            }
            if boots.is_empty() {
                break;
            }
            for boot in boots {
                if tell(&sender, &boot).await.is_none() {
                    return;
                }
            }
        }
        tokio::select! {
            () = sender.closed() => return,
            _ = stopping.changed() => {}
            _ = changes.changed() => {}
            _ = look.tick() => for boot in recorder.busy(&mut done, requests == Requests::UntilTheEnd) {
                if tell(&sender, &boot).await.is_none() {
                    return;
                }
            }
        }
    }
}

/// `None`: the follower is gone.
async fn tell(sender: &mpsc::Sender<Followed>, boot: &BootRecord) -> Option<()> {
    let boot = serde_json::to_value(boot).ok()?;
    sender.send(Followed::Boot(boot)).await.ok()
}

/// The boots under way.
pub(super) fn under_way(recorder: &Recorder) -> io::Result<Vec<Value>> {
    recorder.live().iter().map(|boot| Ok(serde_json::to_value(boot)?)).collect()
}

/// The latest boot of each device: the one that somebody has logged in to, if there is one under way.
pub(super) fn latest_of_each(recorder: &Recorder) -> io::Result<Vec<BootRecord>> {
    let mut latest: HashMap<String, BootRecord> = HashMap::new();
    for device in recorder.store().devices()? {
        let store = recorder.store();
        let id = store.ids(&device)?.into_iter().next();
        if let Some(record) = id.and_then(|id| store.load(&device, &id).ok().flatten()) {
            latest.insert(device, record);
        }
    }
    for record in recorder.recently_ended().into_iter().chain(recorder.live()) {
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
        boots.extend(match recorder.live_by_id(wanted) {
            Some(record) => Some(record),
            None => recorder.store().find(wanted)?,
        });
    }
    Ok(boots)
}
