//! The vDisks: what there is, how large it is, and who runs it; and a new one.
use std::collections::HashMap;

use axum::http::Method;
use control::Code;
use farm::model::ObjectKind;
use maud::{Markup, html};
use serde_json::{Value, json};

use crate::answer::{Answer, Page};
use crate::ask::Refusal;
use crate::commands;
use crate::door::{Route, Visit};
use crate::fields::Fields;
use crate::markup::{badge, button, bytes, link, name, same_as, several, token, visible};
use crate::paths;
use crate::rights::or_refuse;
use crate::said::Said;
use crate::wire::{List, Vdisk, VdiskSummary};

/// How many stand on a page.
const ON_PAGE: usize = 100;
/// Bytes of a GiB.
const GIB: u64 = 1 << 30;

pub(super) fn all() -> Vec<Route> {
    vec![
        Route::get(paths::VDISKS, page),
        Route::get("/vdisks/new", new_page),
        Route::post("/vdisks/new", make),
    ]
}

/// A part of the list.
pub(super) struct Listed {
    pub(super) vdisks: List<Vdisk>,
    /// What the versions of each come to; none of a vDisk that came between the two questions.
    pub(super) summaries: HashMap<i64, VdiskSummary>,
}

impl Listed {
    /// Those that fit the filter of the address, behind a cursor.
    pub(super) async fn of(visit: &Visit, cursor: &str, limit: usize) -> Result<Self, Refusal> {
        let asked = Fields::from([
            ("filter", visit.query.get("filter")),
            ("cursor", cursor),
            ("sort", "name"),
            ("limit", &limit.to_string()),
        ]);
        let vdisks = format!("/v1/vdisks{}", asked.query());
        let summaries = format!("/v1/vdisk-summaries{}", asked.query());
        let (vdisks, summaries) = tokio::join!(
            visit.ask.get::<List<Vdisk>>(&vdisks),
            visit.ask.get::<List<VdiskSummary>>(&summaries),
        );
        let summaries = summaries?.items.into_iter().map(|summary| (summary.vdisk.id, summary));
        Ok(Self { vdisks: vdisks?, summaries: summaries.collect() })
    }
}

async fn page(visit: Visit) -> Result<Answer, Refusal> {
    let (listed, statuses) =
        tokio::join!(Listed::of(&visit, visit.query.get("cursor"), ON_PAGE), visit.statuses());
    let Listed { vdisks, summaries } = listed?;
    let runners = statuses.runners();
    let runs = |vdisk: &Vdisk| runners.get(&vdisk.id).copied().unwrap_or(0);
    let body = html! {
        h1 { "vDisks" }
        form.filters action=(paths::VDISKS) role="search" aria-label="Filter vDisks" {
            label.wide { "Filter" input name="filter" value=(visit.query.get("filter")) placeholder=r#"store = images and mode = standard"#; }
            span.buttons { button.primary { "Filter" } " " a.button href=(paths::VDISKS) { "Clear" } }
        }
        p.small { (several(vdisks.total, "vDisk")) " " (button("/vdisks/new", "New vDisk", &visit.may_make(ObjectKind::Vdisk))) " " a href=(format!("/vdisks/export{}", Fields::from([("filter", visit.query.get("filter"))]).query())) { "Export" } }
        div.table #vdisks hx-get=(visit.here_with("", "")) hx-select="#vdisks" hx-trigger="hw:change from:body, hw:boot from:body" hx-swap="outerHTML" {
            table { thead { tr { th { "Name" } th { "Store" } th { "Versions" } th { "Disk" } th { "Files" } th { "Running" } th { "Write cache" } } }
                tbody { @for vdisk in &vdisks.items { (row(vdisk, summaries.get(&vdisk.id), runs(vdisk))) } } }
            @if vdisks.items.is_empty() { p.empty { "No vDisk fits." } }
        }
        @if let Some(next) = &vdisks.next { p.pager { a.button href=(visit.here_with("cursor", next)) { "Next " (ON_PAGE) } } }
    };
    Ok(Page::new("vDisks", "vDisks", body).into())
}

fn row(vdisk: &Vdisk, summary: Option<&VdiskSummary>, runs: u64) -> Markup {
    let newest = summary.and_then(|summary| summary.newest.as_ref());
    let disk = summary.and_then(|summary| summary.disk_bytes);
    html! { tr {
        th scope="row" { (link(&paths::vdisk(vdisk.id), &vdisk.name)) @if vdisk.disabled { " " (badge("calm", "disabled")) } @if vdisk.mode == "private" { " " (badge("warn", "private")) } }
        td { (name(&vdisk.store.name)) }
        td { (summary.map_or(0, |summary| summary.versions)) @if let Some(newest) = newest { " " span.small { "newest v" (newest.number) } " " (access(&newest.access)) }
            @if summary.is_some_and(|summary| summary.damaged > 0) { " " (badge("bad", "damaged")) } }
        td.number { (disk.map_or_else(|| "–".to_owned(), bytes)) }
        td.number { (super::vdisk_space::later(vdisk.id, &bytes(summary.map_or(0, |summary| summary.files_bytes)))) }
        td.number { @if runs > 0 { (badge("good", &several(runs, "device"))) } @else { "–" } }
        td { @match &vdisk.write_cache { Some(cache) => { (cache.kind) ", up to " (bytes(cache.limit_bytes)) }, None => "–" } }
    } }
}

/// The badge of what a version is for.
pub(super) fn access(access: &str) -> Markup {
    let tone = match access {
        "production" => "good",
        "test" => "busy",
        _ => "warn",
    };
    badge(tone, access)
}

async fn new_page(visit: Visit) -> Result<Answer, Refusal> {
    or_refuse(visit.may_make(ObjectKind::Vdisk))?;
    new_form(&visit, None).await
}

async fn new_form(visit: &Visit, failed: Option<Refusal>) -> Result<Answer, Refusal> {
    let stores = super::images::stores(visit).await?;
    let form = &visit.form;
    let body = html! {
        h1 { "New vDisk" }
        (super::images::ways(visit, "/vdisks/new"))
        @if let Some(failed) = &failed { p.said.bad role="alert" { (visible(&failed.answer.message)) } }
        form.stack method="post" action="/vdisks/new" data-command=(commands::BLANK) {
            (token(&visit.token()))
            label { "Store" select name="store" data-word="" data-joins="/" { @for store in &stores { option value=(store.id) data-name=(store.name) selected[form.get("store") == store.id.to_string()] { (visible(&store.name)) } } } }
            label { "Name" input name="name" required data-word="" value=(form.get("name")) autofocus; }
            label { "Size in GiB" input name="size" inputmode="numeric" required data-word="" data-unit="GiB" value=(if form.get("size").is_empty() { "40" } else { form.get("size") }); span.effect { "of the empty disk, on which an operating system is then installed; its file takes room as it fills" } }
            label { "Write cache of each device, in GiB" input name="cache" inputmode="numeric" data-key="write_cache.limit" data-unit="GiB" value=(if form.get("cache").is_empty() { "10" } else { form.get("cache") }); span.effect { "on the server's disk; begun anew at each boot" } }
            label { "Description" input name="description" data-key="description" value=(form.get("description")); }
            span.buttons { button.primary { "Make the vDisk" } " " a.button href=(paths::VDISKS) { "Cancel" } }
            (same_as(commands::BLANK))
        }
    };
    let status = failed.as_ref().map_or(axum::http::StatusCode::OK, |failed| failed.status);
    Ok(Page::new("New vDisk", "vDisks", body).status(status).into())
}

async fn make(visit: Visit) -> Result<Answer, Refusal> {
    let gib = |field: &str| {
        let bad = || {
            Refusal::new(
                axum::http::StatusCode::BAD_REQUEST,
                format!("{field}: {:?} is no number of GiB", visit.form.get(field)),
            )
        };
        visit.form.get(field).trim().parse::<u64>().ok().and_then(|gib| gib.checked_mul(GIB)).ok_or_else(bad)
    };
    let made = async {
        let store: i64 = visit.form.get("store").parse().unwrap_or_default();
        let body = json!({
            "size_bytes": gib("size")?,
            "vdisk": {
                "name": visit.form.get("name").trim(),
                "store": store,
                "description": visit.form.get("description"),
                "write_cache": { "kind": "server-disk", "limit_bytes": gib("cache")? },
            },
        });
        visit.ask.send(Method::POST, "/v1/vdisks/blank", None, Some(&body)).await
    };
    match made.await {
        Ok(made) => {
            let id = made.get("id").and_then(Value::as_i64).unwrap_or_default();
            let said = "The vDisk was made. A maintenance device boots it read-write, to install on it.";
            Ok(Answer::Go(paths::vdisk(id), Some(Said::good(said))))
        }
        Err(refusal) if refusal.answer.code == Code::Unauthenticated.word() => Err(refusal),
        Err(refusal) => new_form(&visit, Some(refusal)).await,
    }
}
