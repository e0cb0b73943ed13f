//! Machines that nobody knows, and that wait until somebody lets them in.
use control::ControlError;
use farm::model::{Mac, ObjectKind, Timestamp, Uuid};
use farm::rules::permission::{Action, Place};
use schemars::JsonSchema;
use serde::Serialize;

use super::devices::Devices;
use super::object::{Told, tell};
use crate::asked::Asked;
use crate::live::Newcomer;
use crate::operation::Operation;
use crate::problem::Problem;
use crate::reply::Reply;
use crate::wire::{Names, Plain, Ref};

pub(super) fn all() -> Vec<Operation> {
    vec![
        Operation::get(
            "/v1/newcomers",
            "listNewcomers",
            "devices",
            "Lists the machines that wait at this server until somebody approves them.",
            list,
        )
        .gives::<NewcomersAnswer>(),
        Operation::post(
            "/v1/newcomers/{mac}/approve",
            "approveNewcomer",
            "devices",
            "Makes a device of a machine that waits; it boots when it asks the next time, within a minute.",
            approve,
        )
        .gives::<Told<Devices>>(),
        Operation::post(
            "/v1/newcomers/{mac}/refuse",
            "refuseNewcomer",
            "devices",
            "Refuses a machine that waits, for a day.",
            refuse,
        ),
    ]
}

/// Machines that wait.
#[derive(Debug, Serialize, JsonSchema)]
struct NewcomersAnswer {
    /// The machines, by name.
    items: Vec<NewcomerAnswer>,
}

/// A machine that waits.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Newcomer")]
struct NewcomerAnswer {
    /// The name that it is to get.
    name: String,
    /// Its address.
    mac: Plain<Mac>,
    /// Its SMBIOS UUID.
    uuid: Option<Plain<Uuid>>,
    /// The collection that it is to join.
    collection: Ref,
    /// When it asked first.
    since: Plain<Timestamp>,
    /// When it asked last.
    seen: Plain<Timestamp>,
}

fn list(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let (caller, waiting) = (asked.caller()?, asked.api.live.newcomers());
    let items = asked.control().read(|reader| {
        let mut names = Names::default();
        let mut items = Vec::new();
        for newcomer in &waiting {
            let Some(collection) = reader.find(newcomer.collection)? else { continue };
            if caller.may(Action::See, ObjectKind::Device, Place::of_collection(&collection)).is_err() {
                continue;
            }
            items.push(NewcomerAnswer {
                name: newcomer.name.to_string(),
                mac: Plain(newcomer.mac),
                uuid: newcomer.uuid.map(Plain),
                collection: names.collection(reader, newcomer.collection)?,
                since: Plain(newcomer.since),
                seen: Plain(newcomer.seen),
            });
        }
        Ok(items)
    })?;
    Reply::json(&NewcomersAnswer { items })
}

/// The machine that the path names, where the caller may change devices of the collection that it is to join.
fn waiting(asked: &Asked<'_>) -> Result<Newcomer, Problem> {
    let (caller, wanted) = (asked.caller()?, asked.parameter("mac")?);
    let mac: Mac = wanted.parse().map_err(|bad| Problem::from(ControlError::bad_value("mac", bad)))?;
    let found = asked.api.live.newcomers().into_iter().find(|newcomer| newcomer.mac == mac);
    let newcomer = found.ok_or_else(|| {
        Problem::not_found(format!("no machine with the MAC address {mac} waits at this server"))
    })?;
    asked.control().read(|reader| {
        let place = Place::of_collection(&reader.get(newcomer.collection)?);
        Ok(caller.may(Action::Change, ObjectKind::Device, place)?)
    })?;
    Ok(newcomer)
}

fn approve(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let newcomer = waiting(asked)?;
    let Newcomer { mac, uuid, collection, name, .. } = &newcomer;
    let control = asked.control();
    let made = control.change(asked.caller()?, |change| {
        Ok::<_, ControlError>(change.admit_as(*mac, *uuid, *collection, Some(name))?)
    })?;
    asked.api.live.newcomer_let_in(*mac);
    let told = control.read(|reader| tell::<Devices>(&mut Names::default(), reader, &made))?;
    Ok(Reply::json(&told)?.revision(made.revision))
}

fn refuse(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let newcomer = waiting(asked)?;
    asked.api.live.refuse_newcomer(newcomer.mac);
    let by = &asked.caller()?.actor().user;
    tracing::info!(mac = %newcomer.mac, %by, "a machine that asked to be added was refused");
    Ok(Reply::nothing())
}
