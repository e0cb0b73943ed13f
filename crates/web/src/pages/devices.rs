//! The devices: a table that is filtered, sorted and cut into pages on the server, and what is done with many at once.
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use api::guest_commands::MAX_MESSAGE_CHARS;
use api::live::DeviceStatus;
use axum::http::{Method, StatusCode};
use farm::filter::{Filter, Operator, Term};
use farm::model::ObjectKind;
use farm::rules::permission::Action;
use maud::{Markup, html};
use serde_json::{Value, json};

use super::device_log::{DAY, strip_of};
use super::overview::write_cache;
use crate::answer::{Answer, Page};
use crate::ask::{Ask, Refusal};
use crate::boot::Boot;
use crate::commands;
use crate::door::{Route, Visit, next};
use crate::fields::{Fields, encode};
use crate::markup::{badge, button, disabled, link, name, same_as, several, status_badge, token, visible};
use crate::paths;
use crate::said::Said;
use crate::statuses::Statuses;
use crate::wire::{Device, List, Named};

/// Where the API lists all devices.
const ALL: &str = "/v1/devices";
/// How many stand on a page.
const ON_PAGE: usize = 50;
/// How many names one question to the API holds: a filter has at most 100 terms.
const NAMES_AT_ONCE: usize = 80;
/// The most devices that are changed by one form.
const MAX_AT_ONCE: usize = 1000;

pub(super) fn all() -> Vec<Route> {
    vec![
        Route::get(paths::DEVICES, page),
        Route::get(paths::DEVICES_TABLE, table_part),
        Route::post(paths::DEVICES_DO, act),
    ]
}

/// What the table shows.
struct Data {
    devices: List<Device>,
    statuses: Arc<Statuses>,
    /// The boots of the last day, by device.
    boots: HashMap<String, Vec<Arc<Boot>>>,
    /// The views of devices.
    views: Vec<Named>,
    vdisks: Vec<Named>,
    collections: Vec<Named>,
    /// The collections that they may move devices to.
    into: Vec<Named>,
    /// Whether there are devices that they may run; if not, why.
    may_operate: Result<(), String>,
    may_change: Result<(), String>,
    query: Fields,
    token: String,
    /// Why the filter meant nothing.
    bad_filter: Option<String>,
}

impl Data {
    async fn of(visit: &Visit) -> Result<Self, Refusal> {
        let statuses = visit.statuses().await;
        let (devices, views, vdisks, collections) = tokio::join!(
            devices(&visit.ask, &visit.query, &statuses),
            visit.ask.get::<List<Named>>("/v1/views?filter=of+%3D+devices&sort=name&limit=500"),
            visit.ask.get::<List<Named>>("/v1/vdisks?sort=name&limit=500"),
            visit.ask.get::<List<Named>>("/v1/collections?sort=name&limit=500"),
        );
        let (devices, bad_filter) = match devices {
            Err(refusal) if refusal.status == StatusCode::BAD_REQUEST => {
                (List::default(), Some(refusal.answer.message))
            }
            other => (other?, None),
        };
        let (views, vdisks, collections) = (views?.items, vdisks?.items, collections?.items);
        let (query, token) = (visit.query.clone(), visit.token());
        let names: HashSet<&str> = devices.items.iter().map(|device| device.name.as_str()).collect();
        let boots = visit.console.board.boots_of(&names, DAY);
        let into = |collection: &&Named| visit.may_make_in(ObjectKind::Device, Some(collection.id)).is_ok();
        let into = collections.iter().filter(into).cloned().collect();
        let may_operate = visit.may_somewhere(Action::Operate, ObjectKind::Device);
        let may_change = visit.may_make(ObjectKind::Device);
        Ok(Self {
            devices,
            statuses,
            boots,
            views,
            vdisks,
            collections,
            into,
            may_operate,
            may_change,
            query,
            token,
            bad_filter,
        })
    }

    /// The address of the table with another field.
    fn with(&self, name: &str, value: &str) -> String {
        format!("{}{}", paths::DEVICES, self.query.with("cursor", "").with(name, value).query())
    }
}

/// The devices of a page.
async fn devices(ask: &Ask, query: &Fields, statuses: &Statuses) -> Result<List<Device>, Refusal> {
    let filter = filter(query)?;
    let list = list_of(ask, query.get("view")).await?;
    let sort = Some(query.get("sort")).filter(|sort| !sort.is_empty()).unwrap_or("name");
    let state = query.get("state");
    if state.is_empty() {
        return page_of(ask, &list, &filter, sort, query.get("cursor"), ON_PAGE).await;
    }
    // What devices are doing stands in no database: those that do it are asked for by name, group after group.
    let after = query.get("cursor");
    let in_state = |device: &&DeviceStatus| device.status == state;
    let names: Vec<&str> = statuses.all().filter(in_state).map(|device| device.name.as_str()).collect();
    let mut found = List { total: names.len() as u64, ..List::default() };
    for group in names.iter().filter(|name| **name > after).collect::<Vec<_>>().chunks(NAMES_AT_ONCE) {
        if found.items.len() >= ON_PAGE {
            break;
        }
        let any = Filter::Any(group.iter().map(|name| Filter::equal("name", name)).collect());
        found
            .items
            .extend(page_of(ask, &list, &any.and(filter.clone()), "name", "", NAMES_AT_ONCE).await?.items);
    }
    if found.items.len() > ON_PAGE {
        found.items.truncate(ON_PAGE);
    }
    let last = found.items.last().map(|device| device.name.clone());
    found.next = last.filter(|last| names.iter().any(|name| *name > last.as_str()));
    Ok(found)
}

/// Where the API lists the devices: all of them, or those in a view.
async fn list_of(ask: &Ask, view: &str) -> Result<String, Refusal> {
    if view.is_empty() {
        return Ok(ALL.to_owned());
    }
    let path = format!("/v1/views/{}", encode(view));
    let found: Value = ask.get(&path).await?;
    if found.get("of").and_then(Value::as_str) != Some("devices") {
        return Err(Refusal::not_found(format!("view {view} is not one of devices")));
    }
    Ok(format!("{path}/items"))
}

async fn page_of(
    ask: &Ask,
    list: &str,
    filter: &Filter,
    sort: &str,
    cursor: &str,
    limit: usize,
) -> Result<List<Device>, Refusal> {
    let asked = Fields::from([
        ("filter", filter.to_string().as_str()),
        ("sort", sort),
        ("cursor", cursor),
        ("limit", &limit.to_string()),
    ]);
    ask.get(&format!("{list}{}", asked.query())).await
}

/// What the fields above the table say, in the language of filters.
fn filter(query: &Fields) -> Result<Filter, Refusal> {
    let mut filter = Filter::Everything;
    for (field, of) in
        [("kind", "kind"), ("vdisk", "vdisk-id"), ("collection", "collection-id"), ("site", "site-id")]
    {
        let value = query.get(field);
        if !value.is_empty() {
            filter = filter.and(Filter::equal(of, value));
        }
    }
    let disabled = Filter::Term(Term { field: "disabled".to_owned(), compared: None });
    filter = match query.get("enabled") {
        "yes" => filter.and(Filter::Not(Box::new(disabled))),
        "no" => filter.and(disabled),
        _ => filter,
    };
    let text = query.get("q").trim();
    if !text.is_empty() {
        filter = filter.and(search(text));
    }
    let own: Filter = query
        .get("filter")
        .parse()
        .map_err(|bad: farm::filter::BadFilter| Refusal::new(StatusCode::BAD_REQUEST, bad.to_string()))?;
    Ok(filter.and(own))
}

/// Devices that a text could mean: a part of their name, description or address; a MAC address or UUID as a whole.
pub(super) fn search(text: &str) -> Filter {
    let plain: String = text.chars().filter(|c| !matches!(c, '*' | '?')).collect();
    let like = |field: &str| {
        let compared = Some((Operator::Like, format!("*{plain}*")));
        Filter::Term(Term { field: field.to_owned(), compared })
    };
    let mut any = vec![like("name"), like("description"), like("address")];
    if text.parse::<farm::model::Mac>().is_ok() {
        any.push(Filter::equal("mac", text));
    }
    if text.parse::<farm::model::Uuid>().is_ok() {
        any.push(Filter::equal("uuid", text));
    }
    Filter::Any(any)
}

async fn page(visit: Visit) -> Result<Answer, Refusal> {
    let data = Data::of(&visit).await?;
    let body = html! {
        h1 { "Devices" }
        p.actions { (button("/devices/new", "New device", &visit.may_make(ObjectKind::Device))) (button("/devices/import", "Devices from a table", &super::devices_import::may(&visit))) a.button href="/devices/export" { "Export" } }
        (filters(&data))
        // Outside of what renews itself: it is read out once.
        @if let Some(bad) = &data.bad_filter { p.said.bad role="alert" { "The filter means nothing: " (visible(bad)) } }
        (table(&data))
    };
    Ok(Page::new("Devices", "Devices", body).into())
}

async fn table_part(visit: Visit) -> Result<Answer, Refusal> {
    let data = Data::of(&visit).await?;
    Ok(Page::new("Devices", "Devices", table(&data)).into())
}

fn filters(data: &Data) -> Markup {
    let query = &data.query;
    let option = |field: &str, value: &str, label: &str| {
        html! { option value=(value) selected[query.get(field) == value] { (visible(label)) } }
    };
    html! { form.filters action=(paths::DEVICES) role="search" aria-label="Filter devices" {
        label { "Text" input type="search" name="q" value=(query.get("q")) placeholder="name, address, MAC"; }
        label { "State" select name="state" { (option("state", "", "any"))
            @for state in ["ready", "first stage", "second stage", "waiting", "disconnected", "off"] { (option("state", state, state)) } } }
        details open[["view", "kind", "vdisk", "collection", "enabled", "filter"].iter().any(|field| !query.get(field).is_empty())] { summary { "More filters" } div.filters {
        label { "View" select name="view" { (option("view", "", "any")) @for view in &data.views { (option("view", &view.id.to_string(), &view.name)) } } }
        label { "Kind" select name="kind" { (option("kind", "", "any")) @for kind in ["production", "test", "maintenance"] { (option("kind", kind, kind)) } } }
        label { "vDisk" select name="vdisk" { (option("vdisk", "", "any")) @for vdisk in &data.vdisks { (option("vdisk", &vdisk.id.to_string(), &vdisk.name)) } } }
        label { "Collection" select name="collection" { (option("collection", "", "any")) @for collection in &data.collections { (option("collection", &collection.id.to_string(), &collection.name)) } } }
        label { "Enabled" select name="enabled" { (option("enabled", "", "any")) (option("enabled", "yes", "yes")) (option("enabled", "no", "no")) } }
        label.wide { "Filter" input name="filter" value=(query.get("filter")) placeholder=r#"name ~ "lab-*" and not disabled"# aria-invalid=[data.bad_filter.as_ref().map(|_| "true")]; }
        } }
        @if !query.get("site").is_empty() { input type="hidden" name="site" value=(query.get("site")); }
        span.buttons { button.primary { "Filter" } " " a.button href=(paths::DEVICES) { "Clear" } }
    } }
}

/// The part that renews itself.
fn table(data: &Data) -> Markup {
    let own = format!("{}{}", paths::DEVICES_TABLE, data.query.query());
    html! {
        // What is chosen in the form is no filter: without `hx-params` htmx would ask for it.
        form #device-table method="post" action=(paths::DEVICES_DO) hx-get=(own) hx-params="none" hx-trigger="hw:boot from:body, hw:change from:body" hx-swap="outerHTML" {
            (token(&data.token))
            input type="hidden" name="back" value=(format!("{}{}", paths::DEVICES, data.query.query()));
            p.small { (several(data.devices.total, "device")) @if !data.query.get("state").is_empty() { " " (visible(data.query.get("state"))) } }
            (bulk(data))
            div.table { table {
                thead { tr {
                    th { input type="checkbox" data-all="id" aria-label="Mark all on this page"; }
                    th { "State" }
                    (sortable(data, "name", "Name"))
                    th { "vDisk" }
                    (sortable(data, "collection", "Collection"))
                    (sortable(data, "kind", "Kind"))
                    th { "MAC, address" }
                    th { "Write cache" }
                    th { "Last day" }
                } }
                tbody { @for device in &data.devices.items { (row(data, device)) } }
            } }
            @if data.devices.items.is_empty() && data.bad_filter.is_none() { p.empty { "No device fits. " } }
            @if let Some(next) = &data.devices.next {
                p.pager { @if !data.query.get("cursor").is_empty() { a.button href=(data.with("cursor", "")) { "First" } } a.button href=(format!("{}{}", paths::DEVICES, data.query.with("cursor", next).query())) { "Next " (ON_PAGE) } }
            } @else if !data.query.get("cursor").is_empty() { p.pager { a.button href=(data.with("cursor", "")) { "First" } } }
        }
    }
}

fn sortable(data: &Data, field: &str, label: &str) -> Markup {
    let sort = Some(data.query.get("sort")).filter(|sort| !sort.is_empty()).unwrap_or("name");
    let (up, down) = (sort == field, sort.strip_prefix('-') == Some(field));
    let other = if up { format!("-{field}") } else { field.to_owned() };
    let order = if up {
        Some("ascending")
    } else if down {
        Some("descending")
    } else {
        None
    };
    html! { th aria-sort=[order] { a href=(data.with("sort", &other)) { (label) @if up { " ▲" } @if down { " ▼" } } } }
}

fn row(data: &Data, device: &Device) -> Markup {
    let status = data.statuses.get(&device.name);
    let disks = device.disks.as_deref().unwrap_or_default();
    html! { tr {
        td { input type="checkbox" name="id" value=(device.id) aria-label=(format!("Mark {}", visible(&device.name))); }
        td { (status_badge(status.map_or("off", |status| status.status.as_ref()))) @if device.disabled { " " (badge("calm", "disabled")) }
            @if let Some(server) = status.and_then(|status| status.server.as_ref()) { " " span.small { "at " (visible(server)) } } }
        th scope="row" { (link(&paths::device(device.id), &device.name)) }
        td { @if disks.is_empty() { span.none { "none" } } @for disk in disks { (link(&paths::vdisk(disk.vdisk.id), &disk.vdisk.name)) " " }
            @if let Some(version) = status.and_then(|status| status.version) { span.small { "runs v" (version) } } }
        td { (name(&device.collection.name)) }
        td { (device.kind.as_deref().unwrap_or("production")) }
        td.mono { (device.macs.first().map_or("–", String::as_str)) @if let Some(address) = &device.address { br; (visible(address)) } }
        td { (write_cache(status)) }
        td.day { (strip_of(data.boots.get(&device.name))) }
    } }
}

/// What can be done with marked devices.
fn bulk(data: &Data) -> Markup {
    html! { fieldset.bulk { legend { "With marked devices" }
        select name="what" aria-label="What to do" {
            @if data.may_change.is_ok() {
                option value="assign" { "assign the vDisk" }
                option value="move" { "move to the collection" }
                option value="enable" { "enable" }
                option value="disable" { "disable" }
            }
            option value="wake" { "wake" }
            option value="reboot" { "restart" }
            option value="shutdown" { "shut down" }
            option value="message" { "show a message" }
            option value="reset" { "forget the boot, end sessions" }
            @if data.may_change.is_ok() { option value="delete" { "delete" } }
        }
        @if data.may_change.is_ok() {
        select name="vdisk" aria-label="vDisk to assign" { option value="" { "– vDisk –" } @for vdisk in &data.vdisks { option value=(vdisk.id) { (visible(&vdisk.full())) } } }
        select name="collection" aria-label="Collection to move to" { option value="" { "– collection –" } @for collection in &data.into { option value=(collection.id) { (visible(&collection.full())) } } }
        }
        input name="text" aria-label="Message to show" placeholder="– message –" maxlength=(MAX_MESSAGE_CHARS);
        @match &data.may_operate {
            Ok(()) => button { "Go on…" },
            Err(why) => (disabled("Go on…", why)),
        }
    } }
}

/// What is to be done with devices.
enum What {
    Assign(i64),
    Move(i64),
    Enable(bool),
    Wake,
    Reboot,
    Shutdown,
    Message(String),
    Reset,
    Delete,
}

impl What {
    fn of(form: &Fields) -> Result<Self, Refusal> {
        let bad = |why: &str| Refusal::new(StatusCode::BAD_REQUEST, why);
        let number = |field: &str, why: &str| form.get(field).parse().map_err(|_| bad(why));
        Ok(match form.get("what") {
            "assign" => Self::Assign(number("vdisk", "say which vDisk the marked devices are to boot")?),
            "move" => {
                Self::Move(number("collection", "say into which collection the marked devices are to go")?)
            }
            "enable" => Self::Enable(true),
            "disable" => Self::Enable(false),
            "wake" => Self::Wake,
            "reboot" => Self::Reboot,
            "shutdown" => Self::Shutdown,
            "message" => match form.get("text").trim() {
                "" => return Err(bad("write what the marked devices are to show")),
                text => Self::Message(text.to_owned()),
            },
            "reset" => Self::Reset,
            "delete" => Self::Delete,
            _ => return Err(bad("say what to do with the marked devices")),
        })
    }

    /// What it does, with the number of devices that it is done to.
    fn effect(&self, count: u64, form: &Fields) -> String {
        let devices = several(count, "device");
        let target = form.get("target");
        match self {
            Self::Assign(_) => format!(
                "{devices} will boot vDisk {target} at their next boot, and nothing else. What runs, runs on."
            ),
            Self::Move(_) => format!("{devices} will belong to the collection {target}. What runs, runs on."),
            Self::Enable(true) => format!("{devices} will boot again."),
            Self::Enable(false) => {
                format!("{devices} will not boot any more. What runs, runs on until its next boot.")
            }
            Self::Wake => {
                format!("{devices} will be called by their network cards (Wake-on-LAN); what runs, runs on.")
            }
            Self::Reboot => format!(
                "The operating systems of {devices} will be restarted by the service in them, now: whoever works there loses what is not saved. Where the service does not run, nothing happens."
            ),
            Self::Shutdown => format!(
                "The operating systems of {devices} will be shut down by the service in them, now: whoever works there loses what is not saved. Where the service does not run, nothing happens."
            ),
            Self::Message(text) => format!(
                "Whoever sits before {devices} will be shown this by the service in its operating system: {text}"
            ),
            Self::Reset => format!(
                "The sessions of {devices} end at once: an operating system that runs there loses its disk, and what it wrote into a volatile write cache is gone."
            ),
            Self::Delete => format!(
                "{devices} will be unknown to the farm, with their settings. Their machines boot no more."
            ),
        }
    }

    const fn is_dangerous(&self) -> bool {
        matches!(self, Self::Reboot | Self::Shutdown | Self::Reset | Self::Delete | Self::Enable(false))
    }

    async fn carry_out(&self, ask: &Ask, id: &str) -> Result<Value, Refusal> {
        let path = format!("/v1/devices/{id}");
        let patch = |body: Value| async move {
            ask.send(Method::PATCH, &format!("/v1/devices/{id}"), Some("*"), Some(&body)).await
        };
        match self {
            Self::Assign(vdisk) => patch(json!({ "disks": [{ "vdisk": vdisk }] })).await,
            Self::Move(collection) => patch(json!({ "collection": collection })).await,
            Self::Enable(enabled) => patch(json!({ "disabled": !enabled })).await,
            Self::Wake => wake(ask, id).await,
            Self::Reboot => order(ask, id, "reboot", "").await,
            Self::Shutdown => order(ask, id, "shutdown", "").await,
            Self::Message(text) => order(ask, id, "message", text).await,
            Self::Reset => ask.send(Method::POST, &format!("{path}/reset"), None, None).await,
            Self::Delete => ask.send(Method::DELETE, &path, Some("*"), None).await,
        }
    }

    /// The command that does it to one device.
    fn command(&self, device: &str, form: &Fields) -> String {
        let target = form.get("target");
        match self {
            Self::Assign(_) => commands::assign(device, target),
            Self::Move(_) => commands::move_to(device, target),
            Self::Enable(enabled) => commands::enable(device, *enabled),
            Self::Wake => commands::device("wake", device),
            Self::Reboot => commands::device("reboot", device),
            Self::Shutdown => commands::device("shutdown", device),
            Self::Message(text) => commands::message(text, device),
            Self::Reset => commands::device("reset", device),
            Self::Delete => commands::device("delete", device),
        }
    }
}

/// The API wakes many at once and tells of each: of one, what was told is whether it was done.
async fn wake(ask: &Ask, id: &str) -> Result<Value, Refusal> {
    let id: i64 = id.parse().unwrap_or_default();
    let told = ask.send(Method::POST, "/v1/wake", None, Some(&json!({ "devices": [id] }))).await?;
    done_unless_told(told)
}

/// The service in a device's system is given a command. That it takes it is seen on the device's page.
async fn order(ask: &Ask, id: &str, command: &str, text: &str) -> Result<Value, Refusal> {
    let body = json!({ "command": command, "text": text });
    let told = ask.send(Method::POST, &format!("/v1/devices/{id}/commands"), None, Some(&body)).await?;
    done_unless_told(told)
}

/// Of one device, the problem that was told is why it was not done.
fn done_unless_told(told: Value) -> Result<Value, Refusal> {
    match told.pointer("/items/0/problem").and_then(Value::as_str) {
        Some(why) => Err(Refusal::new(StatusCode::CONFLICT, why)),
        None => Ok(told),
    }
}

/// Asks whether that is meant, and then does it.
async fn act(visit: Visit) -> Result<Answer, Refusal> {
    let back = match visit.form.get("back") {
        "" => paths::DEVICES.to_owned(),
        back => next(back),
    };
    let ids: Vec<&str> =
        visit.form.all("id").filter(|id| id.bytes().all(|b| b.is_ascii_digit())).take(MAX_AT_ONCE).collect();
    if ids.is_empty() {
        return Ok(Answer::Go(back, Some(Said::bad("No device was marked, and nothing was done."))));
    }
    let what = match What::of(&visit.form) {
        Ok(what) => what,
        Err(refusal) => return Ok(Answer::Go(back, Some(Said::bad(sentence(&refusal.answer.message))))),
    };
    if visit.form.get("sure") != "yes" {
        return confirm(&visit, &what, &ids, &back).await;
    }
    let (mut done, mut failed) = (0_u64, Vec::new());
    for id in &ids {
        match what.carry_out(&visit.ask, id).await {
            Ok(_) => done = done.saturating_add(1),
            Err(refusal) => failed.push(refusal.answer.message),
        }
    }
    let said = if failed.is_empty() {
        Said::good(format!("Done: {}.", several(done, "device")))
    } else {
        let first = failed.first().map(String::as_str).unwrap_or_default();
        Said::bad(format!(
            "{} done, {} not. The first reason: {first}",
            several(done, "device"),
            failed.len()
        ))
    };
    Ok(Answer::Go(back, Some(said)))
}

fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    let first: String = chars.next().into_iter().flat_map(char::to_uppercase).collect();
    format!("{first}{}.", chars.as_str())
}

async fn confirm(visit: &Visit, what: &What, ids: &[&str], back: &str) -> Result<Answer, Refusal> {
    let target = match what {
        What::Assign(id) => visit.ask.get::<Named>(&format!("/v1/vdisks/{id}")).await?.full(),
        What::Move(id) => visit.ask.get::<Named>(&format!("/v1/collections/{id}")).await?.full(),
        _ => String::new(),
    };
    let form = visit.form.with("target", &target);
    let mut names = Vec::new();
    for group in ids.chunks(NAMES_AT_ONCE) {
        let any = Filter::Any(group.iter().map(|id| Filter::equal("id", id)).collect());
        let group = page_of(&visit.ask, ALL, &any, "name", "", NAMES_AT_ONCE).await?;
        names.extend(group.items.into_iter().map(|device| device.name));
    }
    let statuses = visit.statuses().await;
    let running =
        names.iter().filter(|name| statuses.get(name).is_some_and(|status| status.sessions > 0)).count();
    let first = names.first().cloned().unwrap_or_default();
    let body = html! {
        section.dialog .danger[what.is_dangerous()] role="alertdialog" aria-labelledby="ask" aria-describedby="effect" {
            h1 #ask { "Is this meant?" }
            p #effect { (visible(&what.effect(names.len() as u64, &form))) }
            @if running > 0 { p { b { (several(running as u64, "device")) " of them run now." } } }
            p.names { @for device in names.iter().take(30) { (name(device)) " " } @if names.len() > 30 { "and " (names.len().saturating_sub(30)) " more" } }
            form method="post" action=(paths::DEVICES_DO) {
                (token(&visit.token()))
                input type="hidden" name="sure" value="yes";
                @for field in ["what", "vdisk", "collection", "text", "back"] { input type="hidden" name=(field) value=(visit.form.get(field)); }
                @for id in ids { input type="hidden" name="id" value=(id); }
                a.button href=(back) autofocus { "Cancel" }
                " "
                button class=(if what.is_dangerous() { "danger" } else { "primary" }) { "Do it to " (several(names.len() as u64, "device")) }
            }
            (same_as(&what.command(&first, &form)))
        }
    };
    Ok(Page::new("Is this meant?", "Devices", body).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_above_the_table_become_one_filter() {
        let query = Fields::from([("kind", "test"), ("q", "lab\"*"), ("filter", "not disabled or name = x")]);
        assert_eq!(
            filter(&query).unwrap().to_string(),
            "(kind = test and (name ~ \"*lab\\\"*\" or description ~ \"*lab\\\"*\" or address ~ \"*lab\\\"*\")) and (not disabled or name = x)"
        );
    }

    #[test]
    fn text_that_is_a_mac_address_is_looked_for_as_one() {
        assert!(search("52:54:00:77:00:10").to_string().contains("mac = "));
        assert!(!search("lab").to_string().contains("mac"));
    }
}
