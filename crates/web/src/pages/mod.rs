//! The pages: one file for each, and the table of their addresses.
mod account;
mod boots;
mod device;
mod device_log;
mod devices;
mod devices_import;
mod doctor;
mod exports;
mod first_run;
mod health;
mod images;
mod live;
mod locks;
mod log_in;
mod objects;
pub(crate) mod overview;
mod recording;
mod search;
mod servers;
mod settings;
pub(crate) mod tasks;
mod vdisk;
mod vdisk_space;
mod vdisks;
mod views;

pub(crate) use objects::{FormField, form_fields};

use axum::http::StatusCode;

use crate::answer::Answer;
use crate::ask::Refusal;
use crate::door::{Route, Visit};

/// All of them.
pub(crate) fn routes() -> Vec<Route> {
    [
        account::all(),
        boots::all(),
        device::all(),
        devices::all(),
        devices_import::all(),
        doctor::all(),
        exports::all(),
        first_run::all(),
        health::all(),
        images::all(),
        live::all(),
        locks::all(),
        log_in::all(),
        objects::all(),
        overview::all(),
        recording::all(),
        search::all(),
        settings::all(),
        tasks::all(),
        vdisk::all(),
        vdisk_space::all(),
        vdisks::all(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Where there is nothing.
pub(crate) async fn nothing_here(visit: Visit) -> Result<Answer, Refusal> {
    let message = format!("{} is no page of the console", visit.path);
    Err(Refusal::new(StatusCode::NOT_FOUND, message))
}
