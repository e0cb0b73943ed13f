//! How much room there is where this server keeps files: in the folders of stores, and in that of the write caches.
//!
//! It is asked of the file systems (`statvfs(3)`), which is cheap, but waits for as long as a file system of the network
//! hangs. So an answer is good for some seconds, and one thread asks at a time: pages that are looked at together cost
//! what one does.
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use farm::model::{ServerId, StoreId};
use farm::snapshot::Snapshot;

use crate::places;
use crate::whole::Control;

/// For how long an answer is good.
const FRESH: Duration = Duration::from_secs(5);

/// The room of one folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    /// The store whose folder it is; `None`: that of the write caches.
    pub store: Option<StoreId>,
    /// The folder.
    pub folder: PathBuf,
    /// What its file system has free for us and holds in all, in bytes; or why that cannot be told.
    pub bytes: Result<RoomBytes, String>,
}

/// How much a file system holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoomBytes {
    /// Free for files of ours.
    pub free: u64,
    /// In all.
    pub total: u64,
}

/// The last answer.
#[derive(Debug, Default)]
pub(crate) struct Rooms {
    last: Mutex<Option<(Instant, Vec<Room>)>>,
}

impl Control {
    /// The room in the stores that this server reaches, by their ids, and then in the folder of its write caches. Of the
    /// last few seconds; waits for file systems.
    #[must_use]
    pub fn rooms(&self) -> Vec<Room> {
        let mut last = self.known_rooms().last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, rooms)) = last.as_ref()
            && at.elapsed() < FRESH
        {
            return rooms.clone();
        }
        let rooms = look(&self.snapshot(), self.server(), self.options().caches.clone());
        *last = Some((Instant::now(), rooms.clone()));
        rooms
    }
}

fn look(snapshot: &Snapshot, server: ServerId, caches: Option<PathBuf>) -> Vec<Room> {
    let mut folders: Vec<(Option<StoreId>, PathBuf)> = snapshot
        .stores()
        .filter_map(|store| Some((Some(store.id), PathBuf::from(store.paths.get(&server)?.as_str()))))
        .collect();
    folders.sort_by_key(|(store, _)| *store);
    folders.extend(caches.map(|caches| (None, caches)));
    let room = |(store, folder): (Option<StoreId>, PathBuf)| {
        let bytes = places::room(&folder).map(|(free, total)| RoomBytes { free, total });
        Room { store, bytes: bytes.map_err(|error| error.message), folder }
    };
    folders.into_iter().map(room).collect()
}
