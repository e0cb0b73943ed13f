//! How much room there is where a server keeps files, and how much of it the files of versions take.
use control::{ControlError, Room, RoomBytes, usage};
use farm::model::{ObjectKind, Vdisk};
use farm::rules::permission::{Action, Place};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::asked::Asked;
use crate::operation::Operation;
use crate::problem::Problem;
use crate::reply::Reply;
use crate::wire::{Names, Ref, find};

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
        Operation::get(
            "/v1/vdisks/{vdisk}/space",
            "getVdiskSpace",
            "vdisks",
            "Tells what the files of a vDisk's versions take on this server, and how much of that they share with other files by reflinks; of the last minute.",
            of_vdisk,
        )
        .gives::<VdiskSpace>(),
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

/// What the files of a vDisk take.
#[derive(Debug, Serialize, JsonSchema)]
struct VdiskSpace {
    /// The versions, newest first.
    items: Vec<FileSpace>,
}

/// What the file of a version takes.
#[derive(Debug, Serialize, JsonSchema)]
struct FileSpace {
    /// Which version.
    number: u32,
    /// What is allocated for its file, shared or not.
    allocated_bytes: Option<u64>,
    /// How much of that other files have too; null: the file system does not say.
    shared_bytes: Option<u64>,
    /// Why that cannot be told.
    problem: Option<String>,
}

fn of_vdisk(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let (caller, wanted) = (asked.caller()?, asked.parameter("vdisk")?);
    let vdisk = asked.control().read(|reader| find::<Vdisk>(reader, wanted))?;
    let told = |version: usage::VersionUsage| {
        let (usage, problem) = match version.usage {
            Ok(usage) => (Some(usage), None),
            Err(why) => (None, Some(why)),
        };
        FileSpace {
            number: version.number.get(),
            allocated_bytes: usage.map(|usage| usage.allocated),
            shared_bytes: usage.and_then(|usage| usage.shared),
            problem,
        }
    };
    let items = usage::of_vdisk(asked.control(), caller, vdisk.id)?.into_iter().map(told).collect();
    Reply::json(&VdiskSpace { items })
}

/// Stores are told to those who see them, and the write caches' folder to those who see all devices.
fn show(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let caller = asked.caller()?;
    let rooms = asked.control().rooms();
    let snapshot = asked.control().snapshot();
    let seen = |room: &Room| match room.store {
        None => caller.may(Action::See, ObjectKind::Device, Place::Farm).is_ok(),
        Some(id) => snapshot.store(id).is_some_and(|store| {
            caller.may(Action::See, ObjectKind::Store, Place::of_site(store.site)).is_ok()
        }),
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
