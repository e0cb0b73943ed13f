//! The first run: what it takes from an empty farm to a machine that boots, each step where it can be done at once.
use axum::http::{Method, StatusCode};
use farm::model::ObjectKind;
use farm::rules::permission::{Action, Place};
use maud::{Markup, html};
use serde_json::{Value, json};

use crate::answer::{Answer, Page};
use crate::ask::{Ask, Refusal};
use crate::commands;
use crate::door::{Route, Visit};
use crate::markup::{badge, button, same_as, several, token, visible};
use crate::paths;
use crate::said::Said;
use crate::wire::{List, Named};

pub(super) fn all() -> Vec<Route> {
    vec![Route::get(paths::FIRST_RUN, page), Route::post(paths::FIRST_RUN, step)]
}

/// What there is already.
struct Data<'a> {
    visit: &'a Visit,
    farm: Option<String>,
    sites: Vec<Named>,
    /// Those in which they may make collections.
    sites_for_collections: Vec<Named>,
    servers: Vec<Named>,
    stores: u64,
    collections: u64,
    vdisks: u64,
    devices: u64,
    failed: Option<Refusal>,
}

impl Data<'_> {
    /// What sends a form, or what stands in the way.
    fn send(&self, label: &str, done: bool, may: &Result<(), String>) -> Markup {
        match may {
            Ok(()) => html! { button.primary[!done] { (label) } },
            denied => button("", label, denied),
        }
    }
}

impl<'a> Data<'a> {
    async fn of(visit: &'a Visit, failed: Option<Refusal>) -> Result<Self, Refusal> {
        let farm = match visit.ask.get::<Value>("/v1/farm").await {
            Ok(farm) => farm.get("name").and_then(Value::as_str).map(str::to_owned),
            Err(refusal) if refusal.status == StatusCode::NOT_FOUND => None,
            Err(refusal) => return Err(refusal),
        };
        let ask = &visit.ask;
        let sites = ask.get::<List<Named>>("/v1/sites?sort=name&limit=500").await?.items;
        let inside = |site: &&Named| visit.may_make_in(ObjectKind::Collection, Some(site.id)).is_ok();
        Ok(Self {
            visit,
            farm,
            sites_for_collections: sites.iter().filter(inside).cloned().collect(),
            sites,
            servers: ask.get::<List<Named>>("/v1/servers?sort=name&limit=500").await?.items,
            stores: count(ask, "stores").await,
            collections: count(ask, "collections").await,
            vdisks: count(ask, "vdisks").await,
            devices: count(ask, "devices").await,
            failed,
        })
    }
}

async fn count(ask: &Ask, kind: &str) -> u64 {
    ask.get::<List<Value>>(&format!("/v1/{kind}?limit=1")).await.map_or(0, |found| found.total)
}

async fn page(visit: Visit) -> Result<Answer, Refusal> {
    let data = Data::of(&visit, None).await?;
    Ok(Page::new("First run", "Set up", whole(&data)).into())
}

fn whole(data: &Data<'_>) -> Markup {
    html! {
        h1 { "Set up the farm" }
        @if let Some(failed) = &data.failed { p.said.bad role="alert" { (visible(&failed.answer.message)) @if let Some(hint) = &failed.answer.hint { " " (visible(hint)) } } }
        ol.steps {
            (step_of("The farm's name", data.farm.is_some(), &farm_form(data)))
            @if data.farm.is_some() {
                (step_of("A network to boot on", true, &html! { p { "The interfaces that this server answers on are named in its configuration, since they are the host's: " code { "[[interface]]" } " in headwater.toml, or " code { "headwater init" } ". " code { "headwater doctor" } " looks at them." } }))
                (step_of("A site, and this server in it", !data.sites.is_empty() && !data.servers.is_empty(), &place_links(data)))
                (step_of("A store: the folder where images lie", data.stores > 0, &store_form(data)))
                (step_of("A vDisk: what machines boot", data.vdisks > 0, &vdisk_links(data)))
                (step_of("A collection of devices", data.collections > 0, &collection_form(data)))
                (step_of("Devices: the machines", data.devices > 0, &device_links(data)))
            }
        }
        @if data.farm.is_some() { p { a.button.primary[data.devices > 0] href=(paths::HOME) { "To the overview" } } }
    }
}

fn step_of(label: &str, done: bool, body: &Markup) -> Markup {
    html! { li.panel {
        h2 { (label) " " @if done { (badge("good", "done")) } @else { (badge("busy", "to do")) } }
        (body)
    } }
}

fn form(data: &Data<'_>, step: &str, body: &Markup) -> Markup {
    html! { form.inline method="post" action=(paths::FIRST_RUN) {
        (token(&data.visit.token()))
        input type="hidden" name="step" value=(step);
        (body)
    } }
}

fn farm_form(data: &Data<'_>) -> Markup {
    let (called, button, command) = match &data.farm {
        Some(name) => (name.as_str(), "Rename it", commands::RENAME_FARM),
        None => ("", "Name it", commands::NAME_FARM),
    };
    let body = html! {
        label { "What is the farm to be called?" input name="name" required value=(called); }
        (data.send(button, data.farm.is_some(), &data.visit.may(Action::Change, ObjectKind::Farm, Place::Farm)))
    };
    html! { (form(data, "farm", &body)) (same_as(command)) }
}

fn place_links(data: &Data<'_>) -> Markup {
    html! { p {
        @if data.sites.is_empty() { (button("/sites/new", "New site", &data.visit.may_make(ObjectKind::Site))) " " } @else { (several(data.sites.len() as u64, "site")) ", " }
        @if data.servers.is_empty() { (button("/servers/new", "New server", &data.visit.may_make(ObjectKind::Server))) } @else { (several(data.servers.len() as u64, "server")) }
    } }
}

fn store_form(data: &Data<'_>) -> Markup {
    let body = html! {
        label { "Store" input name="name" required value="images"; }
        label { "Folder" input name="path" required placeholder="/srv/images"; }
        label { "on server" select name="server" { @for server in &data.servers { option value=(server.id) { (visible(&server.name)) } } } }
        // It is of the whole farm: one of a site is made on the page of the stores.
        (data.send("Make the store", data.stores > 0, &data.visit.may_make_in(ObjectKind::Store, None)))
    };
    html! {
        @if data.stores > 0 { p { a href="/stores" { (several(data.stores, "store")) } } }
        (form(data, "store", &body))
        (same_as(commands::MAKE_STORE))
    }
}

fn vdisk_links(data: &Data<'_>) -> Markup {
    html! {
        @if data.vdisks > 0 { p { a href=(paths::VDISKS) { (several(data.vdisks, "vDisk")) } } }
        @if data.stores == 0 { p { "It takes a store first." } } @else { (super::images::ways(data.visit, "")) }
    }
}

fn collection_form(data: &Data<'_>) -> Markup {
    let body = html! {
        label { "Collection" input name="name" required placeholder="lab"; }
        label { "in site" select name="site" { @for site in &data.sites_for_collections { option value=(site.id) { (visible(&site.name)) } } } }
        (data.send("Make the collection", data.collections > 0, &data.visit.may_make(ObjectKind::Collection)))
    };
    html! {
        @if data.collections > 0 { p { a href="/collections" { (several(data.collections, "collection")) } } }
        (form(data, "collection", &body))
        (same_as(commands::MAKE_COLLECTION))
    }
}

fn device_links(data: &Data<'_>) -> Markup {
    html! {
        @if data.devices > 0 { p { a href=(paths::DEVICES) { (several(data.devices, "device")) } } }
        @if data.collections == 0 { p { "They take a collection first." } }
        @else { p { (button("/devices/new", "New device", &data.visit.may_make(ObjectKind::Device))) " " (button("/devices/import", "Devices from a table", &super::devices_import::may(data.visit))) } }
    }
}

async fn step(visit: Visit) -> Result<Answer, Refusal> {
    match take(&visit).await {
        Ok(said) => Ok(Answer::Go(paths::FIRST_RUN.to_owned(), Some(Said::good(said)))),
        Err(refusal) if refusal.status == StatusCode::UNAUTHORIZED => Err(refusal),
        Err(refusal) => {
            let status = refusal.status;
            let data = Data::of(&visit, Some(refusal)).await?;
            Ok(Page::new("First run", "Set up", whole(&data)).status(status).into())
        }
    }
}

/// Does what a step's form says; what is said of it.
async fn take(visit: &Visit) -> Result<&'static str, Refusal> {
    let form = &visit.form;
    let field = |field: &str| form.get(field).trim().to_owned();
    let number = |field: &str| form.get(field).parse::<i64>().unwrap_or_default();
    let name = field("name");
    match form.get("step") {
        "store" => {
            let paths = json!([{ "server": number("server"), "path": field("path") }]);
            let body = json!({ "name": name, "paths": paths });
            visit.ask.send(Method::POST, "/v1/stores", None, Some(&body)).await?;
            Ok("The store was made.")
        }
        "collection" => {
            let body = json!({ "name": name, "site": number("site") });
            visit.ask.send(Method::POST, "/v1/collections", None, Some(&body)).await?;
            Ok("The collection was made.")
        }
        _ => {
            let body = json!({ "name": name });
            match visit.ask.send(Method::POST, "/v1/farm", None, Some(&body)).await {
                Err(refusal) if refusal.status == StatusCode::CONFLICT => {
                    visit.ask.send(Method::PATCH, "/v1/farm", Some("*"), Some(&body)).await?
                }
                done => done?,
            };
            Ok("The farm has a name.")
        }
    }
}
