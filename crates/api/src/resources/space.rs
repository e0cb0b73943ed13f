//! How much room there is where a server keeps files.
use control::{ControlError, Room, RoomBytes};
use farm::model::{ObjectKind, Store};
use farm::rules::permission::{Action, Place};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::asked::Asked;
use crate::operation::Operation;
use crate::problem::Problem;
use crate::reply::Reply;
use crate::wire::{Names, Ref};

pub(super) fn all() -> Vec<Operation> {
    vec![
        Operation::get(
            "/v1/space",
            "getSpace",
            "server",
            "Tells how much room this server has in the stores that it reaches, and for write caches; of the last seconds.",
            show,
        )
        .gives::<SpaceAnswer>(),
    ]
}

/// The room of a server.
#[derive(Debug, Serialize, JsonSchema)]
struct SpaceAnswer {
    /// The folders of stores, and then that of write caches.
    items: Vec<Space>,
}

/// The room of one folder.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Space {
    /// The store; null: the folder of write caches.
    store: Option<Ref>,
    /// The folder on the server.
    folder: String,
    /// What is free in its file system.
    free_bytes: Option<u64>,
    /// What it holds in all.
    total_bytes: Option<u64>,
    /// Why that cannot be told.
    problem: Option<String>,
}

/// Stores are told to those who see them, and the write caches' folder to those who see all devices.
fn show(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let caller = asked.caller()?;
    let rooms = asked.control().rooms();
    let snapshot = asked.control().snapshot();
    let place = |store: &Store| store.site.map_or(Place::Farm, Place::Site);
    let seen = |room: &Room| match room.store {
        None => caller.may(Action::See, ObjectKind::Device, Place::Farm).is_ok(),
        Some(id) => snapshot
            .store(id)
            .is_some_and(|store| caller.may(Action::See, ObjectKind::Store, place(store)).is_ok()),
    };
    let seen: Vec<Room> = rooms.into_iter().filter(seen).collect();
    let items = asked.control().read(|reader| {
        let mut names = Names::default();
        let space = |room: &Room| {
            let bytes = room.bytes.as_ref();
            Ok::<_, ControlError>(Space {
                store: room.store.map(|store| names.store(reader, store)).transpose()?,
                folder: room.folder.display().to_string(),
                free_bytes: bytes.ok().map(|RoomBytes { free, .. }| *free),
                total_bytes: bytes.ok().map(|RoomBytes { total, .. }| *total),
                problem: bytes.err().cloned(),
            })
        };
        seen.iter().map(space).collect::<Result<Vec<_>, _>>()
    })?;
    Reply::json(&SpaceAnswer { items })
}
