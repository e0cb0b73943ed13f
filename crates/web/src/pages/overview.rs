//! The overview: is everything served, who boots now, what failed, what fills up.
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::live::ServerStatus;
use api::rates::Rates;
use axum::http::StatusCode;
use farm::model::ObjectKind;
use farm::rules::permission::{Action, Place};
use maud::{Markup, html};

use super::servers::{self, Concern};
use crate::answer::{Answer, Page, json};
use crate::ask::Refusal;
use crate::boot::Boot;
use crate::door::{Route, Visit};
use crate::fields::Fields;
use crate::fresh::Read;
use crate::markup::{
    badge, button, bytes, count, gauge, link, milliseconds, name, several, status_badge, status_tone, visible,
};
use crate::paths;
use crate::rates::series;
use crate::sight::seen;
use crate::statuses::Statuses;
use crate::wire::{List, Lock, Server, Space, SpaceList, Task, Version};

/// Of which boots the overview tells.
const WITHIN: Duration = Duration::from_secs(3600);
/// From which share on, in per cent, a file system is said to fill up, and from which on to be full.
const NEARLY_FULL: u64 = 90;
const FULL: u64 = 97;
/// How many of each list are shown.
const SHOWN: usize = 6;
/// How many servers are shown, those first that somebody should look at.
const SERVERS_SHOWN: usize = 20;

pub(super) fn all() -> Vec<Route> {
    vec![
        Route::get(paths::HOME, page),
        Route::get(paths::OVERVIEW_LIVE, live),
        Route::get(paths::RATES, rates),
    ]
}

/// What the overview shows.
pub(crate) struct Data {
    begun: Instant,
    /// `None`: not for those who see a part of the farm.
    pub(super) server: Option<ServerStatus>,
    /// The name of this server, where the farm has others.
    pub(super) one_of_several: Option<String>,
    /// Whether they see the whole farm.
    pub(super) all: bool,
    pub(super) statuses: Arc<Statuses>,
    pub(super) boots: Vec<Arc<Boot>>,
    pub(super) rates: Option<Rates>,
    /// Versions whose files are not what they should be.
    pub(super) damaged: Vec<Version>,
    /// Leases that keep others out, those first that devices and then that tasks were refused for, with the tasks.
    pub(super) locks: Vec<(Lock, Vec<Task>)>,
    pub(super) space: Vec<Space>,
    pub(super) servers: Vec<Server>,
}

/// The leases that keep others out, or did so: of devices, the lock tells it; a task that failed by it says so.
fn in_the_way(locks: Vec<Lock>, failed: &[Task]) -> Vec<(Lock, Vec<Task>)> {
    let refused = |lock: &Lock| {
        let mark = format!("lock {})", lock.fence);
        let by_it = |task: &&Task| task.result.as_ref().is_some_and(|result| result.contains(&mark));
        failed.iter().filter(by_it).cloned().collect::<Vec<_>>()
    };
    let with_tasks = |lock: Lock| {
        let tasks = refused(&lock);
        (lock, tasks)
    };
    let mut found: Vec<_> = locks.into_iter().map(with_tasks).collect();
    let was_refused = |lock: &Lock, tasks: &[Task]| lock.keeps_out > 0 || !tasks.is_empty();
    found.retain(|(lock, tasks)| lock.sharing == "exclusive" || was_refused(lock, tasks));
    found.sort_by_key(|(lock, tasks)| (std::cmp::Reverse(lock.keeps_out), tasks.is_empty()));
    found
}

/// How long boots took that became ready.
struct Times {
    median_ms: f64,
    p95_ms: f64,
}

impl Space {
    /// What is wrong with it.
    fn concern(&self) -> Option<Concern> {
        let what = html! { @match &self.store { Some(store) => { "Store " (link(&paths::object("stores", store.id), &store.name)) }, None => "The folder of the write caches" } };
        let (Some(free), Some(total)) = (self.free_bytes, self.total_bytes) else {
            let why = self.problem.as_deref().unwrap_or_default();
            return Some(("bad", html! { (what) " cannot be reached: " (visible(why)) "." }));
        };
        let used = total.saturating_sub(free).saturating_mul(100).checked_div(total).unwrap_or(0);
        let tone = match used {
            0..NEARLY_FULL => return None,
            NEARLY_FULL..FULL => "warn",
            _ => "bad",
        };
        Some((
            tone,
            html! { (what) " is " (used) " % full: " (bytes(free)) " of " (bytes(total)) " are free." },
        ))
    }
}

impl Read for Data {
    fn begun(&self) -> Instant {
        // What devices do may have been read for another page before.
        self.begun.min(self.statuses.begun())
    }
}

impl Data {
    async fn of(visit: &Visit) -> Result<Self, Refusal> {
        let begun = Instant::now();
        let damaged = Fields::from([("filter", "state = missing or state = changed"), ("limit", "20")]);
        let locks = Fields::from([("sort", "-since"), ("limit", "500")]);
        let keeping_out = Fields::from([("keeping_out", "true"), ("limit", "50")]);
        let keeping_out = format!("/v1/locks{}", keeping_out.query());
        let refused = Fields::from([("filter", "state = failed"), ("sort", "-id"), ("limit", "50")]);
        let (damaged, locks) =
            (format!("/v1/versions{}", damaged.query()), format!("/v1/locks{}", locks.query()));
        let refused = format!("/v1/tasks{}", refused.query());
        let every_server = Fields::from([("sort", "name"), ("limit", "1000")]);
        let (damaged, locks, keeping_out, refused, space, servers, statuses) = tokio::join!(
            visit.ask.get::<List<Version>>(&damaged),
            visit.ask.get::<List<Lock>>(&locks),
            visit.ask.get::<List<Lock>>(&keeping_out),
            visit.ask.get::<List<Task>>(&refused),
            visit.ask.get::<SpaceList>("/v1/space"),
            servers::asked(visit, &every_server),
            visit.statuses(),
        );
        let board = &visit.console.board;
        let all = visit.sees_all();
        let mut locks = seen(locks)?;
        for lock in seen(keeping_out)? {
            if !locks.iter().any(|known| known.fence == lock.fence) {
                locks.push(lock);
            }
        }
        let mut servers = seen(servers)?;
        servers.sort_by_key(|server| server.concerns().is_empty());
        Ok(Self {
            begun,
            server: visit.may(Action::See, ObjectKind::Server, Place::Farm).is_ok().then(|| board.server()),
            one_of_several: visit.one_of_several(),
            all,
            boots: visit.boots_seen(&statuses, board.boots_within(WITHIN)),
            rates: visit.rates_seen(&statuses).last().copied(),
            statuses,
            damaged: seen(damaged)?,
            locks: in_the_way(locks, &seen(refused)?),
            space: space?.items,
            servers,
        })
    }

    /// How many write caches are open, what they take, and what they may take.
    fn write_caches(&self) -> (u64, u64, u64) {
        let open = self.statuses.all().filter_map(|device| device.write_cache.as_ref());
        open.fold((0, 0, 0), |(open, used, limit), cache| {
            let add = |sum: u64, more: u64| sum.saturating_add(more);
            (add(open, 1), add(used, cache.used_bytes), add(limit, cache.limit_bytes))
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
    fn concerns(&self) -> Vec<Concern> {
        let mut concerns = Vec::new();
        if let Some(trouble) = self.server.as_ref().and_then(|server| server.catalogue_trouble.as_ref()) {
            let text = html! { "The farm's database cannot be used: " (visible(trouble)) ". Known devices boot; nothing can be changed." };
            concerns.push(("bad", text));
        }
        concerns.extend(self.space.iter().filter_map(Space::concern));
        for version in &self.damaged {
            let text = html! { "Version " (version.number) " of " (link(&paths::vdisk(version.vdisk.id), &version.vdisk.name)) ": its file is " b { (version.state) } "." };
            concerns.push(("bad", text));
        }
        for (lock, _) in self.locks.iter().filter(|(lock, _)| lock.keeps_out > 0) {
            concerns.push(("bad", html! { (super::locks::kept_out_by(lock)) }));
        }
        for boot in &self.boots {
            if let Some(why) = boot.failed() {
                concerns.push((
                    "bad",
                    html! { (link(&paths::boot(&boot.id), &boot.device)) ": " (visible(&why)) "." },
                ));
            }
        }
        for device in self.statuses.all() {
            if let Some(cache) = &device.write_cache
                && cache.fill != "ok"
            {
                let text = html! { "The write cache of " (link(&paths::device_named(&device.name), &device.name)) " is " (cache.fill) ": " (bytes(cache.used_bytes)) " of " (bytes(cache.limit_bytes)) "." };
                concerns.push((if cache.fill == "full" { "bad" } else { "warn" }, text));
            }
        }
        concerns.extend(self.servers.iter().flat_map(Server::concerns));
        concerns.sort_by_key(|(tone, _)| *tone != "bad");
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
        (parts(&visit, &data))
        section.panel {
            h2 { "Throughput" }
            div.chart data-chart=(paths::RATES) { p.small { "The last ten minutes; the chart needs JavaScript." } }
        }
    };
    Ok(Page::new("Overview", "Overview", body).into())
}

/// Whoever sees everything sees what the others see: a hundred consoles ask no more often than one.
async fn live(visit: Visit) -> Result<Answer, Refusal> {
    let read = Data::of(&visit);
    let data = match visit.sees_all() {
        true => visit.console.overview.get(read).await?,
        false => Arc::new(read.await?),
    };
    Ok(Page::new("Overview", "Overview", parts(&visit, &data)).into())
}

/// The part that renews itself.
pub(super) fn parts(visit: &Visit, data: &Data) -> Markup {
    html! {
        div.live #overview hx-get=(paths::OVERVIEW_LIVE) hx-trigger="hw:boot from:body, hw:change from:body, every 10s" hx-swap="outerHTML" {
            (concerns(data))
            (figures(data))
            @if let Some(server) = &data.one_of_several { p.small { "Devices and their write caches are those of the farm, whichever server they run from; boots, throughput, page cache and storage are those of this server, " b { (visible(server)) } "." } }
            div.columns {
                (booting(data))
                (slowest(data))
            }
            @if !data.servers.is_empty() { section.panel { h2 { "Servers" } (servers::table(&data.servers, SERVERS_SHOWN)) } }
            (room(data))
            @if !data.locks.is_empty() { (locks(visit, data)) }
        }
    }
}

fn concerns(data: &Data) -> Markup {
    let concerns = data.concerns();
    html! { section.panel.concerns .calm[concerns.is_empty()] aria-label="What needs attention" {
        @if concerns.is_empty() {
            p { (badge("good", "all is well")) @if data.all { " Everything is served, and no boot of the last hour failed" @if data.one_of_several.is_some() { " at this server" } "." }
                @else if data.statuses.number() == 0 { " Your role shows no device; ask an administrator for one." }
                @else { " Of the devices that your role shows, all are served, and no boot of the last hour failed." } }
        } @else {
            h2 { (several(concerns.len() as u64, "thing")) " to look at" }
            ul { @for (tone, text) in concerns.iter().take(20) { li { (badge(tone, if *tone == "bad" { "failed" } else { "soon" })) " " (text) } } }
        }
    } }
}

fn figures(data: &Data) -> Markup {
    let total = u64::try_from(data.statuses.number()).unwrap_or(u64::MAX);
    let rates = data.rates.unwrap_or_default();
    let times = data.times();
    html! { div.figures {
        section.figure { h2 { "Devices" } p.big { a href=(paths::DEVICES) { (count(total)) } }
            ul.states { @for (status, number) in data.statuses.counts() { li {
                a class={ "badge " (status_tone(status)) } href=(format!("{}{}", paths::DEVICES, Fields::from([("state", status)]).query())) { (count(number)) " " (status) }
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
        @if data.all { section.figure { h2 { "Page cache" } p.big { @match rates.hit_share { Some(share) => { (format!("{:.1} %", share * 100.0)) }, None => "–" } }
            p.small { @if rates.hit_share.is_some() { "of reads were answered from memory" } @else { "nothing was read in the last seconds" } }
        } }
        @let (open, used, limit) = data.write_caches();
        section.figure { h2 { "Write caches" } p.big { (bytes(used)) }
            p.small { (count(open)) " open" @if open > 0 { ", they may take " (bytes(limit)) } }
        }
    } }
}

fn rate(bytes_per_second: f64) -> String {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
    let whole = bytes_per_second as u64;
    format!("{}/s", bytes(whole))
}

/// Where files lie, and how full it is there.
fn room(data: &Data) -> Markup {
    html! { section.panel { h2 { "Storage" }
        @if data.space.is_empty() { p.small { "This server reaches no store that your role shows." } }
        table { @if !data.space.is_empty() { thead { tr { th { "Where" } th { "In use" } th { "Free" } } } }
            tbody { @for space in &data.space { tr {
                td { @match &space.store { Some(store) => (link(&paths::object("stores", store.id), &store.name)), None => "write caches" } " " span.small { (visible(&space.folder)) } }
                @match (space.free_bytes, space.total_bytes) {
                    (Some(free), Some(total)) => { td { (gauge(total.saturating_sub(free), total)) } td.number { (bytes(free)) } },
                    _ => td colspan="2" { (badge("bad", "not there")) " " (visible(space.problem.as_deref().unwrap_or_default())) },
                }
            } } }
        }
    } }
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

fn locks(visit: &Visit, data: &Data) -> Markup {
    html! { section.panel { h2 { "Locks that keep others out" }
        table { thead { tr { th { "What" } th { "Held by" } th { "For" } th { "Since" } th { "Refused for it" } th { "End it" } } }
            tbody { @for (lock, refused) in data.locks.iter().take(SHOWN) { tr {
                td { (lock.subject.kind) " " (name(&lock.subject.name)) }
                td { (lock.owner.kind) " " (name(&lock.owner.name)) }
                td { (lock.purpose) }
                td { (crate::markup::moment(&lock.since)) }
                td { @for one in lock.kept_out.iter().take(SHOWN) { (badge("bad", "refused")) " device " (link(&paths::device(one.device.id), &one.device.name)) ", " (crate::markup::moment(&one.since)) br; }
                    @if lock.keeps_out > SHOWN as u64 { a href=(super::locks::page_of(lock)) { (several(lock.keeps_out, "device")) " in all" } br; }
                    @for task in refused.iter().take(SHOWN) { (badge("bad", "refused")) " " a href=(paths::task(task.id)) { (task.kind) " " (task.id) } " of " (name(&task.actor)) ", " (crate::markup::moment(task.ended_at.as_deref().unwrap_or(&task.made_at))) br; }
                    @if refused.is_empty() && lock.keeps_out == 0 { "nobody so far" } }
                td { (button(&super::locks::to_break(lock), "Break…", &super::locks::may_break(visit, lock))) }
            } } }
        }
    } }
}

/// The rates of the last minutes, as columns that the chart takes.
async fn rates(visit: Visit) -> Result<Answer, Refusal> {
    let statuses = visit.statuses().await;
    let rates = visit.rates_seen(&statuses);
    let row = |rates: &Rates| (rates.at_us, rates.read_bytes, rates.written_bytes, rates.requests);
    Ok(Answer::Raw(json(series(&rates.iter().map(row).collect::<Vec<_>>()).to_string())))
}

/// How full a write cache is, where it is open.
pub(super) fn write_cache(status: Option<&api::live::DeviceStatus>) -> Markup {
    let cache = status.and_then(|status| status.write_cache.as_ref());
    html! { @match cache { Some(cache) => (gauge(cache.used_bytes, cache.limit_bytes)), None => span.none { "–" } } }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn locks_that_somebody_was_refused_for_come_first_and_shared_ones_that_nobody_was_do_not_come() {
        let lock = |fence: i64, sharing: &str| -> Lock {
            from_value(json!({
                "fence": fence, "sharing": sharing, "purpose": "boot", "since": "2026-11-21T10:00:00Z", "until": "2026-11-21T10:01:00Z",
                "owner": {"kind": "device", "name": "lab-01"}, "subject": {"kind": "contents", "name": "debian/2"}, "server": {"id": 3, "name": "one"},
            }))
            .unwrap()
        };
        let task: Task = from_value(json!({
            "id": 4, "kind": "merge", "state": "failed", "actor": "ann", "vdisk": null, "done": 0, "total": 0, "percent": null, "rate": null, "left_s": null,
            "made_at": "2026-11-21T10:00:00Z", "ended_at": null, "result": "device lab-01 (boot, since 10:00, lock 1)",
        }))
        .unwrap();
        let keeping_out = Lock { keeps_out: 3, ..lock(13, "shared") };
        let locks = vec![lock(11, "shared"), lock(12, "exclusive"), lock(1, "shared"), keeping_out];
        let found = in_the_way(locks, std::slice::from_ref(&task));
        let told: Vec<_> = found.iter().map(|(lock, tasks)| (lock.fence, tasks.len())).collect();
        assert_eq!(told, [(13, 0), (1, 1), (12, 0)]);
    }
}
