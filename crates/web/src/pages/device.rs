//! One device: what it is, what it does now, and how its boots went.
use api::guest_commands::MAX_MESSAGE_CHARS;
use api::live::DeviceStatus;
use axum::http::StatusCode;
use farm::model::ObjectKind;
use farm::rules::permission::Action;
use maud::{Markup, html};

use super::boots::{boots_of, findings, strip as phases, waterfall};
use super::device_log::{Entry, changes, last_day, log};
use super::doctor::network_panel;
use super::overview::write_cache;
use super::recording::{Recording, panel, place_of, recording};
use crate::answer::{Answer, Page, json};
use crate::ask::Refusal;
use crate::boot::Boot;
use crate::door::{Route, Visit};
use crate::fields::encode;
use crate::markup::{
    badge, button, disabled, link, milliseconds, moment, name, status_badge, token, visible,
};
use crate::paths;
use crate::rates::{DeviceRates, series};
use crate::wire::Device;

/// How many boots are listed.
const SHOWN: usize = 10;

pub(super) fn all() -> Vec<Route> {
    vec![Route::get("/devices/{device}", page), Route::get("/devices/{device}/rates", rates)]
}

/// What the page shows.
struct Data {
    device: Device,
    status: Option<DeviceStatus>,
    /// `None`: not for this role.
    boots: Option<Vec<Boot>>,
    changes: Vec<Entry>,
    recording: Option<Recording>,
    token: String,
    may_change: Result<(), String>,
    may_operate: Result<(), String>,
}

async fn page(visit: Visit) -> Result<Answer, Refusal> {
    let wanted = visit.parameter("device");
    // The colon of `name:7` stays one.
    let path = format!("/v1/devices/{}", encode(wanted).replace("%3A", ":"));
    let device: Device = visit.ask.get(&path).await?;
    let status = match visit.ask.get::<DeviceStatus>(&format!("/v1/devices/{}/status", device.id)).await {
        Ok(status) => Some(status),
        Err(refusal) if refusal.status == StatusCode::NOT_FOUND => None,
        Err(refusal) => return Err(refusal),
    };
    let boots = match boots_of(&visit.ask, &device.name).await {
        Ok(boots) => Some(boots),
        Err(refusal) if refusal.status == StatusCode::FORBIDDEN => None,
        Err(refusal) => return Err(refusal),
    };
    let (changes, recording) = tokio::join!(changes(&visit.ask, device.id), recording(&visit.ask, device.id));
    let (changes, recording) = (changes?, recording?);
    let title = format!("Device {}", device.name);
    let place = place_of(&device);
    let may = |action| visit.may(action, ObjectKind::Device, place);
    let (may_change, may_operate) = (may(Action::Change), may(Action::Operate));
    let data =
        Data { device, status, boots, changes, recording, token: visit.token(), may_change, may_operate };
    Ok(Page::new(title, "Devices", whole(&data, &visit.path)).into())
}

/// What the device moved in the last minutes, as columns that the chart takes.
async fn rates(visit: Visit) -> Result<Answer, Refusal> {
    let wanted = encode(visit.parameter("device")).replace("%3A", ":");
    let device: Device = visit.ask.get(&format!("/v1/devices/{wanted}")).await?;
    let rates = visit.console.board.rates_of_device(&device.name);
    let row = |rates: &DeviceRates| {
        (rates.at_us, f64::from(rates.read_bytes), f64::from(rates.written_bytes), f64::from(rates.requests))
    };
    Ok(Answer::Raw(json(series(&rates.iter().map(row).collect::<Vec<_>>()).to_string())))
}

fn whole(data: &Data, path: &str) -> Markup {
    let (device, status) = (&data.device, data.status.as_ref());
    html! {
        div.live hx-get=(path) hx-select=".live" hx-trigger="hw:boot from:body, hw:change from:body" hx-swap="outerHTML" {
            h1 { (name(&device.name)) " " (status_badge(status.map_or("off", |status| status.status.as_ref())))
                @if device.disabled { " " (badge("calm", "disabled")) } }
            @if let Some(description) = &device.description { p { (visible(description)) } }
            div.actions {
                (button(&format!("/devices/{}/edit", device.id), "Edit", &data.may_change))
                (buttons(data))
            }
            @match status.and_then(|status| status.server.as_ref()) {
                Some(server) => p { "It runs from server " b { (visible(server)) } ", which tells of its boots and throughput and takes commands for it; what stands below of those is what this server saw." },
                None => (last_day(data.boots.as_deref().unwrap_or_default())),
            }
            div.columns { (facts(data)) (personality(device)) }
            section.panel { h2 { "Throughput" }
                // Kept as it is while the rest is renewed: htmx moves what is preserved.
                div.chart #device-chart hx-preserve="true" data-chart=(format!("{}/rates", paths::device(device.id))) { p.small { "The last five minutes; the chart needs JavaScript." } }
            }
            (boots(data))
            div.columns {
                (panel(device, data.recording.as_ref(), &data.may_operate, &data.token))
                (network_panel(device, &data.may_operate, &data.token))
                (log(data.boots.as_deref().unwrap_or_default(), &data.changes))
            }
        }
    }
}

fn buttons(data: &Data) -> Markup {
    let device = &data.device;
    let button = |what: &str, label: &str, may: &Result<(), String>| {
        html! {
            @match may {
                Ok(()) => form.inline method="post" action=(paths::DEVICES_DO) {
                    (token(&data.token))
                    input type="hidden" name="id" value=(device.id);
                    input type="hidden" name="back" value=(paths::device(device.id));
                    button name="what" value=(what) { (label) }
                },
                Err(why) => (disabled(label, why)),
            }
        }
    };
    html! {
        @if device.disabled { (button("enable", "Enable…", &data.may_change)) } @else { (button("disable", "Disable…", &data.may_change)) }
        (button("wake", "Wake…", &data.may_operate))
        (button("reboot", "Restart…", &data.may_operate))
        (button("shutdown", "Shut down…", &data.may_operate))
        (button("reset", "Forget the boot…", &data.may_operate))
        (button("delete", "Delete…", &data.may_change))
        @if data.may_operate.is_ok() {
            form.inline method="post" action=(paths::DEVICES_DO) {
                (token(&data.token))
                input type="hidden" name="id" value=(device.id);
                input type="hidden" name="back" value=(paths::device(device.id));
                input name="text" aria-label="Message to show" placeholder="message" maxlength=(MAX_MESSAGE_CHARS);
                button name="what" value="message" { "Show…" }
            }
        }
        @if let Err(why) = &data.may_change { span.small { "Not for you: " (why) "." } }
    }
}

fn facts(data: &Data) -> Markup {
    let (device, status) = (&data.device, data.status.as_ref());
    let disks = device.disks.as_deref().unwrap_or_default();
    html! { section.panel { h2 { "Device" } dl {
        dt { "Boots" } dd { @if disks.is_empty() { "nothing: no vDisk is assigned" }
            @for disk in disks { (link(&paths::vdisk(disk.vdisk.id), &disk.vdisk.name)) @if disk.disabled { " (disabled)" } " " } }
        @if let Some(status) = status { @if let Some(version) = status.version { dt { "Runs" } dd { "version " (version) @if let Some(vdisk) = &status.vdisk { " of " (name(vdisk)) } } } }
        @if let Some(status) = status.filter(|status| !status.presence.is_empty()) { dt { "Presence" } dd { (presence(&status.presence)) } }
        @if let Some(lock) = status.and_then(|status| status.kept_out.as_ref()) {
            dt { "Cannot log in" } dd { (badge("bad", "kept out")) " since " (moment(&lock.since)) " UTC, last refused " (moment(&lock.last)) ": " (lock.owner.kind) " " (name(&lock.owner.name)) " has its version (" (lock.purpose) "), " a href=(format!("/locks/{}", lock.lock)) { "lock " (lock.lock) } }
        }
        @if status.is_some_and(|status| status.secrets_told) { dt { "Secrets" } dd { "told in this boot; whoever asks again is refused" } }
        dt { "Kind" } dd { (device.kind.as_deref().unwrap_or("production")) }
        dt { "Collection" } dd { (name(&device.collection.name)) }
        dt { "MAC" } dd.mono { @for mac in &device.macs { (mac) " " } @if device.macs.is_empty() { "–" } }
        dt { "Address" } dd.mono { (visible(device.address.as_deref().unwrap_or("from DHCP"))) }
        @if let Some(uuid) = &device.uuid { dt { "UUID" } dd.mono { (visible(uuid)) } }
        dt { "Initiator" } dd.mono { (visible(status.map(|status| status.initiator.as_str()).or(device.initiator.as_deref()).unwrap_or("–"))) }
        @if let Some(path) = status.and_then(|status| status.path.as_ref()) { dt { "Path" } dd { (visible(&path.text)) } }
        dt { "Sessions" } dd { (status.map_or(0, |status| status.sessions)) }
        dt { "Write cache" } dd { (write_cache(status)) }
    } } }
}

/// What the words mean that the API has.
fn presence(word: &str) -> &str {
    match word {
        "idle" => "idle: up, and has asked for nothing for 5 minutes",
        "lost" => "lost: its connection went without a good-bye",
        other => other,
    }
}

fn personality(device: &Device) -> Markup {
    let pairs = device.personality.iter().flatten();
    html! { section.panel { h2 { "Personality" }
        @if device.personality.as_ref().is_none_or(std::collections::BTreeMap::is_empty) { p.small { "None: names and values that this device is told when it boots." } }
        dl { @for (key, value) in pairs { dt { (name(key)) } dd { (visible(value)) } } }
        p { a href=(format!("/audit?filter={}", encode(&format!("kind = device and object = {}", device.id)))) { "What was changed, and by whom" } }
    } }
}

fn boots(data: &Data) -> Markup {
    html! { section.panel { h2 { "Boots" }
        @match &data.boots {
            None => p.small { "Your role does not show its boots." },
            Some(boots) if boots.is_empty() => p.small { "It has not booted, as far as this server knows." },
            Some(boots) => {
                @if let Some(latest) = boots.first() {
                    p { "The latest, " (link(&paths::boot(&latest.id), &latest.id)) ":" }
                    (findings(latest))
                    (waterfall(latest))
                }
                @if boots.len() > 1 { h3 { "Earlier" }
                    table { tbody { @for boot in boots.iter().skip(1).take(SHOWN) { tr {
                        td { a href=(paths::boot(&boot.id)) { (visible(&boot.id)) } }
                        td.number { (milliseconds(boot.span_ms())) }
                        td.strip { (phases(&boot.phases(), boot.span_ms())) }
                    } } } }
                }
            },
        }
    } }
}
