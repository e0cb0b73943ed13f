//! The search in the header: devices by name, address, MAC or UUID; vDisks by name.
use farm::filter::{Filter, Operator, Term};
use maud::html;

use super::devices::search;
use crate::answer::{Answer, Page};
use crate::ask::Refusal;
use crate::door::{Route, Visit};
use crate::fields::Fields;
use crate::markup::{link, name, several, visible};
use crate::paths;
use crate::wire::{Device, List, Named};

/// How many of each kind are shown.
const SHOWN: usize = 20;

pub(super) fn all() -> Vec<Route> {
    vec![Route::get(paths::SEARCH, page)]
}

async fn page(visit: Visit) -> Result<Answer, Refusal> {
    let text = visit.query.get("q").trim();
    let plain: String = text.chars().filter(|c| !matches!(c, '*' | '?')).collect();
    let like = Term { field: "name".to_owned(), compared: Some((Operator::Like, format!("*{plain}*"))) };
    let path = |kind: &str, filter: &Filter| {
        let asked = Fields::from([
            ("filter", filter.to_string().as_str()),
            ("limit", &SHOWN.to_string()),
            ("sort", "name"),
        ]);
        format!("/v1/{kind}{}", asked.query())
    };
    let (devices, vdisks) = (path("devices", &search(text)), path("vdisks", &Filter::Term(like)));
    let (devices, vdisks) =
        tokio::join!(visit.ask.get::<List<Device>>(&devices), visit.ask.get::<List<Named>>(&vdisks));
    let (devices, vdisks) = (devices?, vdisks?);
    // One thing that fits is what was looked for.
    match (devices.items.as_slice(), vdisks.items.as_slice()) {
        ([device], []) => return Ok(Answer::Go(paths::device(device.id), None)),
        ([], [vdisk]) => return Ok(Answer::Go(paths::vdisk(vdisk.id), None)),
        _ => {}
    }
    let body = html! {
        h1 { "Found for “" (visible(text)) "”" }
        section.panel { h2 { (several(devices.total, "device")) }
            ul { @for device in &devices.items { li { (link(&paths::device(device.id), &device.name)) " " span.small { (name(&device.collection.name)) " " (device.macs.first().map_or("", String::as_str)) " " (visible(device.address.as_deref().unwrap_or_default())) } } } }
            @if devices.total > SHOWN as u64 { p { a href=(format!("{}{}", paths::DEVICES, Fields::from([("q", text)]).query())) { "all of them" } } }
        }
        section.panel { h2 { (several(vdisks.total, "vDisk")) }
            ul { @for vdisk in &vdisks.items { li { (link(&paths::vdisk(vdisk.id), &vdisk.name)) } } }
        }
        @if devices.items.is_empty() && vdisks.items.is_empty() { p { "Nothing fits: a part of a name, description or address, a whole MAC address or UUID." } }
    };
    Ok(Page::new("Search", "", body).into())
}
