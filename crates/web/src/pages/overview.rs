//! The overview: is everything served, who boots now, what failed, what fills up.
use std::sync::Arc;
use std::time::Duration;

use api::live::ServerStatus;
use axum::http::StatusCode;
use control::ControlError;
use farm::model::ObjectKind;
use farm::rules::permission::{Action, Place};
use maud::{Markup, html};
use serde_json::json;

use crate::answer::{Answer, Page, json};
use crate::ask::Refusal;
use crate::board::{Rates, Statuses};
use crate::boot::Boot;
use crate::door::{Route, Visit};
use crate::fields::Fields;
use crate::frame::since;
use crate::markup::{
    badge, bytes, count, gauge, link, milliseconds, name, several, status_badge, status_tone, visible,
};
use crate::paths;
use crate::wire::{List, Lock, Version};

/// Of which boots the overview tells.
const WITHIN: Duration = Duration::from_secs(3600);
/// How many of each list are shown.
const SHOWN: usize = 6;

pub(super) fn all() -> Vec<Route> {
    vec![
        Route::get(paths::HOME, page),
        Route::get(paths::OVERVIEW_LIVE, live),
        Route::get(paths::RATES, rates),
    ]
}

/// What the overview shows.
pub(super) struct Data {
    pub(super) server: ServerStatus,
    pub(super) statuses: Arc<Statuses>,
    pub(super) boots: Vec<Arc<Boot>>,
    pub(super) rates: Option<Rates>,
    /// Versions whose files are not what they should be.
    pub(super) damaged: Vec<Version>,
    /// Leases that keep others out.
    pub(super) locks: Vec<Lock>,
}

/// How long boots took that became ready.
struct Times {
    median_ms: f64,
    p95_ms: f64,
}

impl Data {
    async fn of(visit: &Visit) -> Result<Self, Refusal> {
        let all = visit.who.as_ref().map(|who| who.caller.may(Action::See, ObjectKind::Device, Place::Farm));
        if let Some(Err(denied)) = all {
            return Err(Refusal::new(StatusCode::FORBIDDEN, ControlError::from(denied).message));
        }
        let damaged = Fields::from([("filter", "state = missing or state = changed"), ("limit", "20")]);
        let locks = Fields::from([("filter", "sharing = exclusive"), ("limit", "20")]);
        let (damaged, locks) =
            (format!("/v1/versions{}", damaged.query()), format!("/v1/locks{}", locks.query()));
        let (damaged, locks, statuses) = tokio::join!(
            visit.ask.get::<List<Version>>(&damaged),
            visit.ask.get::<List<Lock>>(&locks),
            visit.console.board.statuses(),
        );
        let board = &visit.console.board;
        Ok(Self {
            server: board.server(),
            statuses,
            boots: board.boots_within(WITHIN),
            rates: board.rates().last().copied(),
            damaged: damaged?.items,
            locks: locks?.items,
        })
    }

    fn times(&self) -> Option<Times> {
        let mut ready: Vec<f64> = self.boots.iter().filter_map(|boot| boot.ready_at_ms).collect();
        ready.sort_by(f64::total_cmp);
        let at = |percent: usize| {
            let place = ready.len().saturating_mul(percent).div_ceil(100).saturating_sub(1);
            ready.get(place).copied()
        };
        Some(Times { median_ms: at(50)?, p95_ms: at(95)? })
    }

    /// What somebody should look at, worst first.
    fn concerns(&self) -> Vec<(&'static str, Markup)> {
        let mut concerns = Vec::new();
        if let Some(trouble) = &self.server.catalogue_trouble {
            let text = html! { "The farm's database cannot be used: " (visible(trouble)) ". Known devices boot; nothing can be changed." };
            concerns.push(("bad", text));
        }
        for version in &self.damaged {
            let text = html! { "Version " (version.number) " of " (link(&paths::vdisk(version.vdisk.id), &version.vdisk.name)) ": its file is " b { (version.state) } "." };
            concerns.push(("bad", text));
        }
        for boot in &self.boots {
            if let Some(why) = boot.failed() {
                concerns.push((
                    "bad",
                    html! { (link(&paths::boot(&boot.id), &boot.device)) ": " (visible(&why)) "." },
                ));
            }
        }
        for device in self.statuses.by_name.values() {
            if let Some(cache) = &device.write_cache
                && cache.fill != "ok"
            {
                let text = html! { "The write cache of " (link(&paths::device_named(&device.name), &device.name)) " is " (cache.fill) ": " (bytes(cache.used_bytes)) " of " (bytes(cache.limit_bytes)) "." };
                concerns.push((if cache.fill == "full" { "bad" } else { "warn" }, text));
            }
        }
        concerns
    }
}

async fn page(visit: Visit) -> Result<Answer, Refusal> {
    match visit.ask.get::<serde_json::Value>("/v1/farm").await {
        Err(refusal) if refusal.status == StatusCode::NOT_FOUND => {
            return Ok(Answer::Go(paths::FIRST_RUN.to_owned(), None));
        }
        _ => {}
    }
    let data = Data::of(&visit).await?;
    let body = html! {
        h1 { "Overview" }
        (parts(&data))
        section.panel {
            h2 { "Throughput" }
            div.chart data-chart=(paths::RATES) { p.small { "The last ten minutes; the chart needs JavaScript." } }
        }
    };
    Ok(Page::new("Overview", "Overview", body).into())
}

async fn live(visit: Visit) -> Result<Answer, Refusal> {
    let data = Data::of(&visit).await?;
    Ok(Page::new("Overview", "Overview", parts(&data)).into())
}

/// The part that renews itself.
pub(super) fn parts(data: &Data) -> Markup {
    html! {
        div.live #overview hx-get=(paths::OVERVIEW_LIVE) hx-trigger="hw:boot from:body, hw:change from:body, every 10s" hx-swap="outerHTML" {
            (concerns(data))
            (figures(data))
            div.columns {
                (booting(data))
                (slowest(data))
            }
            @if !data.locks.is_empty() { (locks(data)) }
        }
    }
}

fn concerns(data: &Data) -> Markup {
    let concerns = data.concerns();
    html! { section.panel.concerns .calm[concerns.is_empty()] aria-label="What needs attention" {
        @if concerns.is_empty() {
            p { (badge("good", "all is well")) " Everything is served, and no boot of the last hour failed." }
        } @else {
            h2 { (several(concerns.len() as u64, "thing")) " to look at" }
            ul { @for (tone, text) in concerns.iter().take(20) { li { (badge(tone, if *tone == "bad" { "failed" } else { "soon" })) " " (text) } } }
        }
    } }
}

fn figures(data: &Data) -> Markup {
    let total: u64 = data.statuses.counts.values().sum();
    let rates = data.rates.unwrap_or_default();
    let times = data.times();
    html! { div.figures {
        section.figure { h2 { "Devices" } p.big { a href=(paths::DEVICES) { (count(total)) } }
            ul.states { @for (status, number) in &data.statuses.counts { li {
                a class={ "badge " (status_tone(status)) } href=(format!("{}{}", paths::DEVICES, Fields::from([("state", status.as_str())]).query())) { (count(*number)) " " (status) }
            } } }
        }
        section.figure { h2 { "Boots in the last hour" } p.big { (count(data.boots.len() as u64)) }
            p.small { @match times {
                Some(times) => { "median " b { (milliseconds(times.median_ms)) } ", p95 " b { (milliseconds(times.p95_ms)) } },
                None => "none has said that it is ready",
            } }
        }
        section.figure { h2 { "Reading" } p.big { (rate(rates.read_bytes)) }
            p.small { "writing " b { (rate(rates.written_bytes)) } ", " b { (format!("{:.0}", rates.requests)) } " requests/s" }
        }
        section.figure { h2 { "Page cache" } p.big { @match rates.hit_share { Some(share) => { (format!("{:.1} %", share * 100.0)) }, None => "–" } }
            p.small { "of reads were answered from memory" }
        }
        section.figure { h2 { "Sessions" } p.big { (count(data.server.sessions)) }
            p.small { "this server is up " (since(data.server.uptime_s)) ", version " (data.server.version) }
        }
    } }
}

fn rate(bytes_per_second: f64) -> String {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
    let whole = bytes_per_second as u64;
    format!("{}/s", bytes(whole))
}

fn booting(data: &Data) -> Markup {
    let under_way: Vec<_> = data
        .boots
        .iter()
        .filter(|boot| ["first-stage", "second-stage", "waiting"].contains(&boot.status.as_str()))
        .collect();
    html! { section.panel { h2 { "Booting now" }
        @if under_way.is_empty() { p.small { "Nobody." } }
        table { @if !under_way.is_empty() { thead { tr { th { "Device" } th { "State" } th { "Read" } th { "For" } } } }
            tbody { @for boot in under_way.iter().take(SHOWN) { tr {
                td { (link(&paths::boot(&boot.id), &boot.device)) }
                td { (status_badge(&boot.status.replace('-', " "))) }
                td.number { (bytes(boot.read_bytes())) }
                td.number { (milliseconds(boot.span_ms())) }
            } } }
        }
        @if under_way.len() > SHOWN { p.small { a href=(paths::BOOTS) { "and " (under_way.len().saturating_sub(SHOWN)) " more" } } }
    } }
}

fn slowest(data: &Data) -> Markup {
    let mut ready: Vec<_> = data.boots.iter().filter(|boot| boot.ready_at_ms.is_some()).collect();
    ready.sort_by(|a, b| b.span_ms().total_cmp(&a.span_ms()));
    html! { section.panel { h2 { "Slowest boots of the last hour" }
        @if ready.is_empty() { p.small { "No boot of the last hour has said that it is ready." } }
        table { @if !ready.is_empty() { thead { tr { th { "Device" } th { "vDisk" } th { "Ready after" } th { "Most of it" } } } }
            tbody { @for boot in ready.iter().take(SHOWN) { tr {
                td { (link(&paths::boot(&boot.id), &boot.device)) }
                td { (name(&boot.vdisk)) }
                td.number { (milliseconds(boot.span_ms())) }
                td { @if let Some(phase) = boot.phases().iter().max_by(|a, b| a.ms.total_cmp(&b.ms)) { (phase.label) ", " (milliseconds(phase.ms)) } }
            } } }
        }
    } }
}

fn locks(data: &Data) -> Markup {
    html! { section.panel { h2 { "Locks that keep others out" }
        table { thead { tr { th { "What" } th { "Held by" } th { "For" } th { "Since" } } }
            tbody { @for lock in data.locks.iter().take(SHOWN) { tr {
                td { (lock.subject.kind) " " (name(&lock.subject.name)) }
                td { (lock.owner.kind) " " (name(&lock.owner.name)) }
                td { (lock.purpose) }
                td { (crate::markup::moment(&lock.since)) }
            } } }
        }
    } }
}

/// The rates of the last minutes, as columns that the chart takes.
async fn rates(visit: Visit) -> Result<Answer, Refusal> {
    let all = visit.who.as_ref().map(|who| who.caller.may(Action::See, ObjectKind::Device, Place::Farm));
    if let Some(Err(denied)) = all {
        return Err(Refusal::new(StatusCode::FORBIDDEN, ControlError::from(denied).message));
    }
    let rates = visit.console.board.rates();
    let column = |of: fn(&Rates) -> f64| rates.iter().map(of).collect::<Vec<f64>>();
    #[allow(clippy::cast_precision_loss, reason = "the axis shows seconds")]
    let at = column(|rates| rates.at_us as f64 / 1e6);
    let mib = |value: f64| value / 1_048_576.0;
    let series = json!({
        "at": at,
        "series": [
            { "label": "read MiB/s", "values": column(|rates| rates.read_bytes).into_iter().map(mib).collect::<Vec<_>>() },
            { "label": "written MiB/s", "values": column(|rates| rates.written_bytes).into_iter().map(mib).collect::<Vec<_>>() },
            { "label": "requests/s", "values": column(|rates| rates.requests), "scale": "requests" },
        ],
    });
    Ok(Answer::Raw(json(series.to_string())))
}

/// How full a write cache is, where it is open.
pub(super) fn write_cache(status: Option<&api::live::DeviceStatus>) -> Markup {
    let cache = status.and_then(|status| status.write_cache.as_ref());
    html! { @match cache { Some(cache) => (gauge(cache.used_bytes, cache.limit_bytes)), None => span.none { "–" } } }
}
