//! Devices that come and go, for whoever follows.
use std::sync::Arc;

use ::api::live::PresenceChange;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{mpsc, watch};

use crate::timeline::presence::Presence;
use crate::timeline::presences::{Change, Presences};

/// The most changes that wait for a follower who does not read.
const FOLLOW_QUEUE: usize = 64;

/// Each device that came or went, from now on.
pub(super) fn follow(
    presences: &Arc<Presences>,
    stopping: watch::Receiver<bool>,
) -> mpsc::Receiver<PresenceChange> {
    let (sender, changes) = mpsc::channel(FOLLOW_QUEUE);
    tokio::spawn(feed(Arc::clone(presences), sender, stopping));
    changes
}

/// Sends what changes until the follower goes away or the server stops.
async fn feed(
    presences: Arc<Presences>,
    sender: mpsc::Sender<PresenceChange>,
    mut stopping: watch::Receiver<bool>,
) {
    let mut changes = presences.follow();
    while !*stopping.borrow_and_update() {
        let change = tokio::select! {
            () = sender.closed() => return,
            _ = stopping.changed() => continue,
            change = changes.recv() => change,
        };
        let told = match change {
            Ok(Change { device, presence, before }) => vec![told(device.as_str(), presence, Some(before))],
            // Some changes are lost to it: it is told what all are, where that is not off.
            Err(RecvError::Lagged(_)) => presences
                .all()
                .iter()
                .map(|(device, presence)| told(device.as_str(), *presence, None))
                .collect(),
            Err(RecvError::Closed) => return,
        };
        for change in told {
            if sender.send(change).await.is_err() {
                return;
            }
        }
    }
}

fn told(device: &str, presence: Presence, before: Option<Presence>) -> PresenceChange {
    PresenceChange {
        device: device.to_owned(),
        presence: presence.as_str().to_owned(),
        before: before.map(|before| before.as_str().to_owned()),
    }
}
