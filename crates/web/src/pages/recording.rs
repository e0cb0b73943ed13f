//! Recording what a device asks of its disk, and what a recording shows: of a device, and of the vDisk that it booted.
use axum::http::{HeaderValue, Method, StatusCode, header};
use farm::model::{Id, ObjectKind};
use farm::rules::permission::{Action, Place};
use maud::{Markup, html};
use serde::Deserialize;

use crate::answer::{Answer, Page};
use crate::ask::{Ask, Refusal};
use crate::commands;
use crate::door::{Route, Visit};
use crate::fields::{Fields, encode};
use crate::markup::{badge, count, link, same_as, several, token, visible};
use crate::paths;
use crate::profile::Profile;
use crate::said::Said;
use crate::wire::{Device, Vdisk};

/// The most requests that are made a picture of while somebody waits; longer recordings are looked at elsewhere.
const MAX_SHOWN: u64 = 1_000_000;
/// How many running devices of a vDisk are asked for recordings.
const MAX_ASKED: usize = 50;

pub(super) fn all() -> Vec<Route> {
    vec![
        Route::post("/devices/{device}/recording", act),
        Route::get("/devices/{device}/recording.csv", download),
        Route::get("/devices/{device}/profile", of_device),
        Route::get("/vdisks/{vdisk}/profile", of_vdisk),
    ]
}

/// How far a recording is.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Recording {
    pub(super) state: String,
    pub(super) recorded: u64,
    dropped: u64,
    file: String,
    trouble: Option<String>,
}

/// Of a device; `None`: nothing was recorded of it.
pub(super) async fn recording(ask: &Ask, device: i64) -> Result<Option<Recording>, Refusal> {
    match ask.get::<Recording>(&format!("/v1/devices/{device}/trace")).await {
        Ok(recording) => Ok(Some(recording)),
        Err(refusal) if refusal.status == StatusCode::NOT_FOUND => Ok(None),
        Err(refusal) => Err(refusal),
    }
}

/// What stands on a device's page.
pub(super) fn panel(
    device: &Device,
    recording: Option<&Recording>,
    may_operate: &Result<(), String>,
    form_token: &str,
) -> Markup {
    let under_way = recording.is_some_and(|recording| recording.state != "done");
    let to = format!("{}/recording", paths::device(device.id));
    html! { section.panel #recording { h2 { "Recording of its requests" }
        @match recording {
            None => p.small { "None since this server started. A recording shows what a boot reads: where on the disk, in which order, how often." },
            Some(found) => {
                p { (state(found)) " " (several(found.recorded, "request")) @if found.dropped > 0 { ", " (count(found.dropped)) " were too many and are missing" } ". "
                    @if found.recorded > 0 { a href=(format!("{}/profile", paths::device(device.id))) { "What it shows" } " · " a href=(format!("{to}.csv")) { "Download (CSV)" } }
                }
                @if let Some(trouble) = &found.trouble { p { (badge("bad", "ended early")) " " (visible(trouble)) } }
                p.small { "On the server: " code { (visible(&found.file)) } }
            },
        }
        @match may_operate {
            Ok(()) => form.inline method="post" action=(to) {
                (token(form_token))
                @if under_way { button name="what" value="stop" { "End the recording" } }
                @else {
                    button name="what" value="boot" { "Record the next boot" }
                    button name="what" value="minute" { "Record a minute from now" }
                }
            },
            Err(why) => p.small { "Recording is not for you: " (why) "." },
        }
    } }
}

fn state(found: &Recording) -> Markup {
    match found.state.as_str() {
        "waiting" => badge("busy", "waits for the next boot"),
        "recording" => badge("busy", "recording"),
        "done" => badge("good", "done"),
        other => badge("calm", other),
    }
}

async fn device_of(visit: &Visit) -> Result<Device, Refusal> {
    let wanted = encode(visit.parameter("device")).replace("%3A", ":");
    visit.ask.get(&format!("/v1/devices/{wanted}")).await
}

async fn act(visit: Visit) -> Result<Answer, Refusal> {
    let device = device_of(&visit).await?;
    let (verb, good) = match visit.form.get("what") {
        "boot" => (
            "start?next_boot=true&until_ready=true",
            "The next boot is recorded, until it says that it is ready.",
        ),
        "minute" => ("start?seconds=60", "A minute is recorded."),
        _ => ("stop", "The recording has ended."),
    };
    let path = format!("/v1/devices/{}/trace/{verb}", device.id);
    let said = match visit.ask.send(Method::POST, &path, None, None).await {
        Ok(_) => Said::good(good),
        Err(refusal) => Said::bad(refusal.answer.message),
    };
    Ok(Answer::Go(paths::device(device.id), Some(said)))
}

async fn download(visit: Visit) -> Result<Answer, Refusal> {
    let device = device_of(&visit).await?;
    let path = format!("/v1/devices/{}/trace/table", device.id);
    let mut response = visit.ask.forward(Method::GET, &path, None, None).await?;
    // Names of devices are letters, digits and hyphens.
    if let Ok(value) = HeaderValue::from_str(&format!("attachment; filename=\"{}.csv\"", device.name)) {
        response.headers_mut().insert(header::CONTENT_DISPOSITION, value);
    }
    Ok(Answer::Raw(response))
}

/// What a recording shows, read and looked at on a thread that may wait.
async fn profile(ask: &Ask, device: i64, found: &Recording) -> Result<Markup, Refusal> {
    if found.recorded > MAX_SHOWN {
        return Ok(
            html! { p { (count(found.recorded)) " requests are too many for a page: fetch the file, and look at it with " code { "headwater trace show FILE" } "." } },
        );
    }
    let table = ask.text(&format!("/v1/devices/{device}/trace/table")).await?;
    let look = move || trace::read(&table).map(|trace| Profile::of(&trace).markup());
    let failed = |why: String| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, why);
    let looked = tokio::task::spawn_blocking(look).await.map_err(|error| failed(error.to_string()))?;
    looked.map_err(|error| failed(format!("the recording cannot be read: {error}")))
}

async fn of_device(visit: Visit) -> Result<Answer, Refusal> {
    let device = device_of(&visit).await?;
    let found = recording(&visit.ask, device.id).await?;
    let found = found.ok_or_else(|| {
        Refusal::not_found(format!(
            "nothing was recorded of device {} since this server started",
            device.name
        ))
    })?;
    let picture = profile(&visit.ask, device.id, &found).await?;
    let body = html! {
        h1 { "What " (link(&paths::device(device.id), &device.name)) " reads " (state(&found)) }
        (picture)
        (same_as(&commands::trace_show(&found.file)))
    };
    Ok(Page::new(format!("What {} reads", device.name), "Devices", body).into())
}

/// The recordings of devices that run a vDisk.
struct Found {
    device: Device,
    recording: Recording,
}

async fn of_vdisk(visit: Visit) -> Result<Answer, Refusal> {
    let vdisk: Vdisk = visit.ask.get(&format!("/v1/vdisks/{}", encode(visit.parameter("vdisk")))).await?;
    let statuses = visit.statuses().await;
    let wanted = visit.query.get("device");
    let mut all: Vec<Found> = Vec::new();
    for status in statuses.running(vdisk.id, None).into_iter().take(MAX_ASKED) {
        let path = format!("/v1/devices/{}", paths::named(&status.name));
        let Ok(device) = visit.ask.get::<Device>(&path).await else { continue };
        if let Some(recording) = recording(&visit.ask, device.id).await? {
            all.push(Found { device, recording });
        }
    }
    let chosen = all.iter().find(|found| found.device.id.to_string() == wanted);
    let chosen = chosen.or_else(|| all.iter().max_by_key(|found| found.recording.recorded));
    let picture = match chosen {
        Some(found) => Some(profile(&visit.ask, found.device.id, &found.recording).await?),
        None => None,
    };
    let body = html! {
        h1 { "What a boot of " (link(&paths::vdisk(vdisk.id), &vdisk.name)) " reads" }
        @match (picture, chosen) {
            (Some(picture), Some(chosen)) => {
                @if all.len() > 1 { form.inline action=(visit.path) {
                    label { "Recorded of " select name="device" { @for found in &all { option value=(found.device.id) selected[found.device.id == chosen.device.id] { (visible(&found.device.name)) } } } }
                    button { "Show" }
                } } @else { p { "Recorded of " (link(&paths::device(chosen.device.id), &chosen.device.name)) " " (state(&chosen.recording)) "." } }
                (picture)
            },
            _ => (how(&visit, &vdisk)),
        }
    };
    Ok(Page::new(format!("What a boot of {} reads", vdisk.name), "vDisks", body).into())
}

/// How to come by a recording, where there is none.
fn how(visit: &Visit, vdisk: &Vdisk) -> Markup {
    let devices =
        format!("{}{}", paths::DEVICES, Fields::from([("vdisk", vdisk.id.to_string().as_str())]).query());
    let may = visit.may_somewhere(Action::Operate, ObjectKind::Device);
    html! { section.panel {
        p { "Of the devices that run it now, none was recorded since this server started." }
        p { "On the page of " a href=(devices) { "one of its devices" } ", choose “Record the next boot” and start the device: its reads then stand here as a map of the disk." }
        @if may.is_err() { p.small { "Recording takes the role operator." } }
        (same_as(commands::TRACE_RECORD))
    } }
}

/// The id of a place of a device, for rights.
pub(super) fn place_of(device: &Device) -> Place {
    // Ids that the API tells are such as the model takes.
    match (Id::new(device.site.id), Id::new(device.collection.id)) {
        (Ok(site), Ok(collection)) => Place::Collection(site, collection),
        _ => Place::Farm,
    }
}
