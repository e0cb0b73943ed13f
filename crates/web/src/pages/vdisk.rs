//! One vDisk: its versions as a chain, who runs which, and what can be done with them, each with its effect in words.
use std::sync::Arc;

use axum::http::{Method, StatusCode};
use farm::model::ObjectKind;
use maud::{Markup, html};
use serde_json::{Value, json};

use super::vdisk_space::VdiskSpace;
use super::vdisks::access;
use crate::answer::{Answer, Page};
use crate::ask::{Ask, Refusal};
use crate::commands;
use crate::conflict::{self, LastChange};
use crate::door::{Route, Visit};
use crate::fields::{Fields, encode};
use crate::markup::{badge, button, bytes, link, moment, name, same_as, several, token, visible};
use crate::paths;
use crate::rights::or_refuse;
use crate::said::Said;
use crate::statuses::Statuses;
use crate::wire::{List, Vdisk, VdiskSummary, Version};

/// How many versions stand on a page.
const ON_PAGE: usize = 100;

pub(super) fn all() -> Vec<Route> {
    vec![
        Route::get("/vdisks/{vdisk}", page),
        Route::get("/vdisks/{vdisk}/do", ask),
        Route::post("/vdisks/{vdisk}/do", carry_out),
    ]
}

/// What the page shows.
struct Data {
    vdisk: Vdisk,
    /// Those of a page, the newest first.
    versions: List<Version>,
    /// What all of them come to.
    summary: Option<VdiskSummary>,
    statuses: Arc<Statuses>,
    /// How many devices have it assigned, by kind.
    production: u64,
    test: u64,
    maintenance: u64,
}

impl Data {
    async fn of(visit: &Visit) -> Result<Self, Refusal> {
        let vdisk: Vdisk = visit.ask.get(&format!("/v1/vdisks/{}", encode(visit.parameter("vdisk")))).await?;
        let versions = Fields::from([
            ("sort", "-number"),
            ("cursor", visit.query.get("cursor")),
            ("limit", &ON_PAGE.to_string()),
        ]);
        let versions = format!("/v1/vdisks/{}/versions{}", vdisk.id, versions.query());
        let of_this = Fields::from([("filter", format!("id = {}", vdisk.id).as_str())]);
        let summaries = format!("/v1/vdisk-summaries{}", of_this.query());
        let count = |kind: &str| {
            let filter = format!("vdisk-id = {} and kind = {kind}", vdisk.id);
            let path =
                format!("/v1/devices{}", Fields::from([("filter", filter.as_str()), ("limit", "1")]).query());
            async move { visit.ask.get::<List<Value>>(&path).await.map(|found| found.total) }
        };
        let (versions, summaries, statuses, production, test, maintenance) = tokio::join!(
            visit.ask.get::<List<Version>>(&versions),
            visit.ask.get::<List<VdiskSummary>>(&summaries),
            visit.statuses(),
            count("production"),
            count("test"),
            count("maintenance"),
        );
        let (production, test, maintenance) = (production?, test?, maintenance?);
        let (versions, summary, statuses) = (versions?, summaries?.items.pop(), statuses);
        Ok(Self { vdisk, versions, summary, statuses, production, test, maintenance })
    }

    /// Whether they may change it and its versions, as the API decides: where its store is.
    fn may(&self, visit: &Visit) -> Result<(), String> {
        visit.may_make_in(ObjectKind::Version, Some(self.vdisk.store.id))
    }

    /// The devices that run a version now.
    fn runners(&self, number: Option<u32>) -> Vec<&str> {
        self.statuses.running(self.vdisk.id, number).iter().map(|device| device.name.as_str()).collect()
    }

    /// The number of the newest version.
    fn newest(&self) -> Option<u32> {
        Some(self.summary.as_ref()?.newest.as_ref()?.number)
    }

    /// A version, on whichever page it stands.
    async fn version(&self, ask: &Ask, number: &str) -> Result<Version, Refusal> {
        let missing = || Refusal::not_found(format!("vDisk {:?} has no version {number:?}", self.vdisk.name));
        let wanted: u32 = number.parse().map_err(|_| missing())?;
        let asked = Fields::from([("filter", format!("number = {wanted}").as_str())]);
        let path = format!("/v1/vdisks/{}/versions{}", self.vdisk.id, asked.query());
        ask.get::<List<Version>>(&path).await?.items.pop().ok_or_else(missing)
    }
}

async fn page(visit: Visit) -> Result<Answer, Refusal> {
    let data = Data::of(&visit).await?;
    // Who may see the vDisk and not its versions, and a server without its store, have none to tell of.
    let space = VdiskSpace::of(&visit.ask, &data.vdisk.id.to_string()).await.ok();
    let vdisk = &data.vdisk;
    let may = data.may(&visit);
    let act = |what: &str, label: &str| button(&to(vdisk.id, what, None), label, &may);
    let body = html! {
        div.live hx-get=(visit.here_with("", "")) hx-select=".live" hx-trigger="hw:change from:body, hw:boot from:body" hx-swap="outerHTML" {
            h1 { (name(&vdisk.name)) " " @if vdisk.disabled { (badge("calm", "disabled")) " " } @if vdisk.mode == "private" { (badge("warn", "private")) } }
            @if let Some(description) = &vdisk.description { p { (visible(description)) } }
            div.actions {
                a.button href=(format!("{}/profile", paths::vdisk(vdisk.id))) { "What a boot reads" }
                (act("new", "New version…")) (act("merge-updates", "Merge updates…")) (act("merge-base", "Merge to a new base…"))
                @if vdisk.held_at.is_some() { (act("release", "Release the hold…")) }
                (act("delete-obsolete", "Delete obsolete versions…"))
                (button(&format!("/vdisks/{}/edit", vdisk.id), "Edit", &may)) (button(&format!("/vdisks/{}/delete", vdisk.id), "Delete…", &may))
            }
            @if let Some(held) = vdisk.held_at { p.said { "Production devices are held at version " b { (held) } ", whatever is newer." } }
            (facts(&data, space.as_ref()))
            h2 { "Versions, newest first" }
            @if data.versions.total > data.versions.items.len() as u64 { p.small { (data.versions.items.len()) " of " (several(data.versions.total, "version")) } }
            ol.chain { @for version in &data.versions.items { li { (version_panel(&visit, &data, space.as_ref(), version)) } } }
            @if data.versions.total == 0 { p.empty { "It has no version: nothing can boot from it." } }
            p.pager {
                @if !visit.query.get("cursor").is_empty() { a.button href=(visit.here_with("cursor", "")) { "Newest" } }
                @if let Some(next) = &data.versions.next { a.button href=(visit.here_with("cursor", next)) { "Older " (ON_PAGE) } }
            }
        }
    };
    Ok(Page::new(format!("vDisk {}", vdisk.name), "vDisks", body).into())
}

fn to(vdisk: i64, what: &str, version: Option<u32>) -> String {
    let version = version.map(|version| version.to_string()).unwrap_or_default();
    format!(
        "{}/do{}",
        paths::vdisk(vdisk),
        Fields::from([("what", what), ("version", version.as_str())]).query()
    )
}

fn facts(data: &Data, space: Option<&VdiskSpace>) -> Markup {
    let vdisk = &data.vdisk;
    let (files, versions) =
        data.summary.as_ref().map_or((0, 0), |summary| (summary.files_bytes, summary.versions));
    let disk = data.summary.as_ref().and_then(|summary| summary.disk_bytes);
    let devices = data.production.saturating_add(data.test).saturating_add(data.maintenance);
    html! { section.panel { dl {
        dt { "Store" } dd { (name(&vdisk.store.name)) }
        dt { "Size of the disk" } dd { (disk.map_or_else(|| "–".to_owned(), bytes)) }
        dt { "Files" } dd { (bytes(files)) " in " (several(versions, "file")) @if let Some(space) = space.and_then(VdiskSpace::whole) { ": " (space) } }
        dt { "Assigned to" } dd { a href=(format!("{}?vdisk={}", paths::DEVICES, vdisk.id)) { (several(devices, "device")) } ": " (data.production) " production, " (data.test) " test, " (data.maintenance) " maintenance" }
        dt { "Running now" } dd { (several(data.runners(None).len() as u64, "device")) }
        @if let Some(cache) = &vdisk.write_cache { dt { "Write cache" } dd { (cache.kind) ", up to " (bytes(cache.limit_bytes)) " a device" } }
    } } }
}

fn version_panel(visit: &Visit, data: &Data, space: Option<&VdiskSpace>, version: &Version) -> Markup {
    let runners = data.runners(Some(version.number));
    let may = data.may(visit);
    let act = |what: &str, label: &str| button(&to(data.vdisk.id, what, Some(version.number)), label, &may);
    let newest = data.newest() == Some(version.number);
    html! { section.panel {
        h3 { "Version " (version.number) " " (access(&version.access)) " "
            @if version.state != "ready" { (badge(if version.state == "making" { "busy" } else { "bad" }, &version.state)) " " }
            @if version.is_scheduled() { (badge("busy", "not yet released")) " " }
            @if data.vdisk.held_at == Some(version.number) { (badge("warn", "held")) } }
        p { (version.kind.replace('-', " ")) @if let Some(parent) = version.parent { " on version " (parent) } ", made " (moment(&version.made_at))
            @if let Some(released) = version.released_at.as_ref().filter(|at| !at.starts_with(EPOCH)) { ", released " (moment(released)) " UTC" } ". " (visible(&version.comment)) }
        p.small { code { (visible(&version.file)) } " " (version.length_bytes.map(bytes).unwrap_or_default()) @if let Some(space) = space.and_then(|space| space.of_version(version.number)) { ", " (space) } }
        @if !runners.is_empty() { p { (badge("good", &several(runners.len() as u64, "device"))) (if runners.len() == 1 { " runs it: " } else { " run it: " }) @for device in runners.iter().take(12) { (link(&paths::device_named(device), device)) " " } @if runners.len() > 12 { "and " (runners.len().saturating_sub(12)) " more" } } }
        div.actions {
            @if version.access == "maintenance" { (act("promote-test", "Promote to test…")) }
            @if version.access != "production" { (act("promote-production", "Promote to production…")) }
            @if version.is_scheduled() { (act("schedule", "Move the release…")) }
            @if version.access == "production" && data.vdisk.held_at != Some(version.number) { (act("hold", "Hold production here…")) }
            @if version.access == "production" && newest { (act("revert-test", "Back to test…")) }
            @if version.access == "test" && newest { (act("revert-maintenance", "Back to maintenance…")) }
            (act("delete", "Delete…"))
        }
    } }
}

/// How the moment of a release begins that was never one: versions that came with a configuration have been there from the start.
const EPOCH: &str = "1970-01-01T";
/// The field of a dialog that asks for a moment.
const RELEASE_AT: &str = "release_at";

/// A moment as a browser's field for it says it (HTML §4.10.5.1.11), `2026-12-24T22:00`, as the API takes it.
fn moment_of(text: &str) -> String {
    let seconds = if text.len() == "2026-12-24T22:00".len() { ":00" } else { "" };
    if text.ends_with('Z') { text.to_owned() } else { format!("{text}{seconds}Z") }
}

/// What is to be done with a vDisk or a version of it.
struct Step {
    title: String,
    effect: String,
    dangerous: bool,
    method: Method,
    path: String,
    tag: i64,
    body: Value,
    command: String,
    /// A field of the dialog: its name in the body, and its label.
    asks: Option<(&'static str, &'static str)>,
}

impl Step {
    /// What an address asks for.
    async fn of(ask: &Ask, data: &Data, what: &str, number: &str) -> Result<Self, Refusal> {
        let vdisk = &data.vdisk;
        let full = format!("{}/{}", vdisk.store.name, vdisk.name);
        let of_vdisk = |title: &str, effect: String, path: &str, body: Value, command: String| {
            let (title, path) =
                (format!("{title} {}", vdisk.name), format!("/v1/vdisks/{}/{path}", vdisk.id));
            Self::post(title, effect, (path, vdisk.revision), body, command)
        };
        let comment = Some(("comment", "Remark"));
        let newest = data.newest().unwrap_or(0);
        Ok(match what {
            "new" => Self { asks: comment, ..of_vdisk("New version of", format!("A version under maintenance is made on version {newest}. One maintenance device boots it and writes to it; the other devices see nothing of it until it is promoted."), "versions", json!({}), commands::new_version(&full)) },
            "merge-updates" => Self { asks: comment, ..of_vdisk("Merge the updates of", "The updates since the last base become one version, beside what devices boot. Devices that run go on; the old versions become obsolete and can then be deleted.".to_owned(), "merge", json!({"kind": "updates"}), commands::vdisk("merge", &full)) },
            "merge-base" => Self { asks: comment, ..of_vdisk("Merge into a new base of", "All versions become one whole image, which takes the room of the disk's contents once more. Devices that run go on; the old versions become obsolete.".to_owned(), "merge", json!({"kind": "base"}), commands::merge_base(&full)) },
            "release" => of_vdisk("Release the hold on", format!("{} boot the newest released version again, at their next boot.", several(data.production, "production device")), "hold", json!({"version": null}), commands::vdisk("release", &full)),
            "delete-obsolete" => Self { dangerous: true, ..of_vdisk("Delete obsolete versions of", "All versions that nothing needs any more since they were merged go, with their files.".to_owned(), "delete-obsolete", Value::Null, commands::vdisk("delete-obsolete", &full)) },
            what => {
                let version = data.version(ask, number).await?;
                Self::of_version(data, &version, what)?
            }
        })
    }

    /// One that is posted to a path, for the object there in this revision.
    fn post(title: String, effect: String, to: (String, i64), body: Value, command: String) -> Self {
        let (path, tag) = to;
        let (dangerous, method, asks) = (false, Method::POST, None);
        Self { title, effect, dangerous, method, path, tag, body, command, asks }
    }

    /// What it is done with, in the audit.
    fn object(&self) -> (ObjectKind, i64) {
        let kind = if self.path.starts_with("/v1/vdisks/") { ObjectKind::Vdisk } else { ObjectKind::Version };
        let id = self.path.split('/').nth(3).and_then(|id| id.parse().ok());
        (kind, id.unwrap_or_default())
    }

    fn of_version(data: &Data, version: &Version, what: &str) -> Result<Self, Refusal> {
        let (number, vdisk) = (version.number, &data.vdisk);
        let full = format!("{}/{}/{number}", vdisk.store.name, vdisk.name);
        let runners = data.runners(Some(number)).len() as u64;
        let step = |title: &str, effect: String, path: &str, body: Value, command: String| {
            let title = format!("{title} version {number} of {}", vdisk.name);
            let path = format!("/v1/versions/{}{path}", version.id);
            Self::post(title, effect, (path, version.revision), body, command)
        };
        let (production, test) =
            (several(data.production, "production device"), several(data.test, "test device"));
        Ok(match what {
            "promote-test" => step(
                "Promote to test:",
                format!("{test} boot version {number} at their next boot. It never changes from here on."),
                "/promote",
                json!({"to": "test"}),
                commands::version_to("promote", &full, "test"),
            ),
            "promote-production" => Self {
                asks: Some((RELEASE_AT, "Released at, UTC (empty: now)")),
                ..step(
                    "Promote to production:",
                    format!(
                        "{production} boot version {number} at their next boot, or at the first one after its release. What runs, runs on."
                    ),
                    "/promote",
                    json!({"to": "production"}),
                    commands::version_to("promote", &full, "production"),
                )
            },
            "schedule" => Self {
                asks: Some((RELEASE_AT, "Released at, UTC")),
                ..step(
                    "Move the release of",
                    format!("{production} boot version {number} at their first boot after that moment."),
                    "/schedule",
                    json!({}),
                    commands::schedule(&full),
                )
            },
            "hold" => Self {
                path: format!("/v1/vdisks/{}/hold", vdisk.id),
                tag: vdisk.revision,
                ..step(
                    "Hold production at",
                    format!(
                        "{production} boot version {number} from their next boot on, whatever is newer, until the hold is released."
                    ),
                    "",
                    json!({"version": number}),
                    commands::hold(&full),
                )
            },
            "revert-test" => Self {
                dangerous: true,
                ..step(
                    "Take back to test:",
                    format!(
                        "{production} boot the version before it at their next boot; {} that run it go on.",
                        several(runners, "device")
                    ),
                    "/revert",
                    json!({"to": "test"}),
                    commands::version_to("revert", &full, "test"),
                )
            },
            "revert-maintenance" => Self {
                dangerous: true,
                ..step(
                    "Take back to maintenance:",
                    format!(
                        "{test} boot the version before it at their next boot. A maintenance device can write to it again."
                    ),
                    "/revert",
                    json!({"to": "maintenance"}),
                    commands::version_to("revert", &full, "maintenance"),
                )
            },
            "delete" => Self {
                dangerous: true,
                method: Method::DELETE,
                ..step(
                    "Delete",
                    format!(
                        "Its file {} goes, now or as soon as no device uses it: {} run it. What it holds cannot be had back.",
                        version.file,
                        several(runners, "device")
                    ),
                    "",
                    Value::Null,
                    commands::delete_version(&full),
                )
            },
            _ => {
                return Err(Refusal::new(
                    StatusCode::BAD_REQUEST,
                    format!("{what:?} is nothing that can be done with a version"),
                ));
            }
        })
    }
}

async fn ask(visit: Visit) -> Result<Answer, Refusal> {
    let data = Data::of(&visit).await?;
    or_refuse(data.may(&visit))?;
    let step = Step::of(&visit.ask, &data, visit.query.get("what"), visit.query.get("version")).await?;
    Ok(dialog(&visit, &data, &step, &visit.query, &html! {}))
}

/// Asks whether it is to be done; `told` is what happened since it was asked before.
fn dialog(visit: &Visit, data: &Data, step: &Step, fields: &Fields, told: &Markup) -> Answer {
    let status = if told.0.is_empty() { StatusCode::OK } else { StatusCode::PRECONDITION_FAILED };
    let body = html! { (told) section.dialog .danger[step.dangerous] role="alertdialog" aria-labelledby="ask" aria-describedby="effect" {
        h1 #ask { (visible(&step.title)) "?" }
        p #effect { (visible(&step.effect)) }
        form.stack method="post" action=(visit.path) {
            (token(&visit.token()))
            input type="hidden" name="what" value=(fields.get("what"));
            input type="hidden" name="version" value=(fields.get("version"));
            input type="hidden" name="tag" value=(step.tag);
            @if let Some((field, label)) = step.asks { label { (label) input name=(field) value=(fields.get(field)) type=(if field == RELEASE_AT { "datetime-local" } else { "text" }); } }
            span.buttons { a.button href=(paths::vdisk(data.vdisk.id)) autofocus { "Cancel" } " " button class=(if step.dangerous { "danger" } else { "primary" }) { "Do it" } }
        }
        (same_as(&step.command))
    } };
    Page::new(step.title.clone(), "vDisks", body).status(status).into()
}

async fn carry_out(visit: Visit) -> Result<Answer, Refusal> {
    let data = Data::of(&visit).await?;
    let mut step = Step::of(&visit.ask, &data, visit.form.get("what"), visit.form.get("version")).await?;
    if let (Some((field, _)), Some(body)) = (step.asks, step.body.as_object_mut()) {
        let text = visit.form.get(field).trim();
        if !text.is_empty() {
            let text = if field == RELEASE_AT { moment_of(text) } else { text.to_owned() };
            body.insert(field.to_owned(), json!(text));
        }
    }
    let body = (!step.body.is_null()).then_some(&step.body);
    // What the dialog told of is what is done, or nothing.
    let done = visit.ask.send(step.method.clone(), &step.path, Some(visit.form.get("tag")), body).await;
    let said = match done {
        Ok(answer) if answer.get("percent").is_some() => {
            Said::good("The task has begun: it stands at the foot of the page.")
        }
        Ok(_) => Said::good(format!("Done: {}.", step.title)),
        // Asked anew, of what there is now; what was typed stays.
        Err(refusal) if refusal.status == StatusCode::PRECONDITION_FAILED => {
            let (kind, id) = step.object();
            let by = LastChange::of(&visit.ask, kind, id).await;
            let told = conflict::asked_anew(by.as_ref(), step.asks.is_some());
            let step = Step::of(&visit.ask, &data, visit.form.get("what"), visit.form.get("version")).await?;
            return Ok(dialog(&visit, &data, &step, &visit.form, &told));
        }
        Err(refusal) => {
            let hint = refusal.answer.hint.map(|hint| format!(" {hint}")).unwrap_or_default();
            Said::bad(format!("{}{hint}", refusal.answer.message))
        }
    };
    Ok(Answer::Go(paths::vdisk(data.vdisk.id), Some(said)))
}
