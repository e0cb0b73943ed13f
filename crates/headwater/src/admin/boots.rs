//! `/v1/boots`: boots and their timelines, also live.
use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use tokio::sync::mpsc;

use super::api::BootsAnswer;
use super::{Admin, Failure, blocking};
use crate::timeline::{BootRecord, Recorder};

/// How often a follower hears of reads and writes; other steps it hears of at once.
const FOLLOW_EVERY: Duration = Duration::from_millis(500);

/// The most snapshots that wait for a follower who does not read.
const FOLLOW_QUEUE: usize = 64;

/// `GET /v1/boots`: the latest boot of each device.
pub(super) async fn list(State(admin): State<Arc<Admin>>) -> Result<Json<BootsAnswer>, Failure> {
    let boots = blocking(move || latest_of_each(&admin.recorder)).await?;
    Ok(Json(BootsAnswer { boots }))
}

/// `GET /v1/boots/{device or id}`.
pub(super) async fn show(
    State(admin): State<Arc<Admin>>,
    Path(wanted): Path<String>,
) -> Result<Json<BootsAnswer>, Failure> {
    let name = wanted.clone();
    let boots = blocking(move || of_device_or_id(&admin.recorder, &name)).await?;
    if boots.is_empty() {
        return Err(Failure::not_found(format!(
            "\"{wanted}\" is neither a boot nor a device that has booted"
        )));
    }
    Ok(Json(BootsAnswer { boots }))
}

/// `GET /v1/boots/follow`: each boot under way as one line of JSON, and again whenever it changes.
pub(super) async fn follow(State(admin): State<Arc<Admin>>) -> Response {
    let (sender, lines) = mpsc::channel::<Bytes>(FOLLOW_QUEUE);
    tokio::spawn(feed(admin, sender));
    ([(CONTENT_TYPE, "application/x-ndjson")], Body::new(Lines(lines))).into_response()
}

/// Sends what changes until the follower goes away or the server stops.
async fn feed(admin: Arc<Admin>, sender: mpsc::Sender<Bytes>) {
    let recorder = &admin.recorder;
    let mut changes = recorder.changes();
    let mut stopping = admin.stopping.clone();
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
            let Ok(mut line) = serde_json::to_vec(record) else { return };
            line.push(b'\n');
            if sender.send(line.into()).await.is_err() {
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

/// A body whose pieces come from elsewhere.
struct Lines(mpsc::Receiver<Bytes>);

impl hyper::body::Body for Lines {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|line| line.map(|line| Ok(Frame::data(line))))
    }
}

/// The latest boot of each device: the one that somebody has logged in to, if there is one under way.
fn latest_of_each(recorder: &Recorder) -> io::Result<Vec<BootRecord>> {
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

/// A device's boots, latest first, those under way with their figures of this moment; or the boot with this id.
fn of_device_or_id(recorder: &Recorder, wanted: &str) -> io::Result<Vec<BootRecord>> {
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
