//! Images that are there already become vDisks: those that lie in a store's folder, those that come by upload, and exports.
//!
//! What would be made is shown first, and of every other file why not; then it is done, in one transaction.
use axum::http::{Method, StatusCode};
use farm::model::ObjectKind;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::answer::{Answer, Page, json as json_answer};
use crate::ask::Refusal;
use crate::door::{Route, Visit};
use crate::fields::{Fields, encode};
use crate::markup::{badge, button, bytes, name, same_as, several, token, visible};
use crate::paths;
use crate::rights::or_refuse;
use crate::said::Said;
use crate::wire::{List, Named};

const ADOPT: &str = "/vdisks/adopt";
const UPLOAD: &str = "/vdisks/upload";
const IMPORT: &str = "/vdisks/import";
/// Bytes of a GiB.
const GIB: u64 = 1 << 30;
/// The most bytes of a part, as `control::upload` takes it.
const MAX_PART_BYTES: usize = control::upload::MAX_PART_BYTES;

pub(super) fn all() -> Vec<Route> {
    vec![
        Route::get(ADOPT, adopt_page),
        Route::post(ADOPT, adopt),
        Route::post(IMPORT, import),
        Route::get(UPLOAD, upload_page),
        Route::post("/vdisks/upload/begin", begin),
        Route::post("/vdisks/upload/part", part).takes_bytes(MAX_PART_BYTES),
        Route::post("/vdisks/upload/finish", finish),
        Route::post("/vdisks/upload/cancel", cancel),
    ]
}

/// The ways in which a vDisk comes to be, with the one that is shown.
pub(super) fn ways(visit: &Visit, here: &str) -> Markup {
    let may = visit.may_make(ObjectKind::Vdisk);
    let ways = [("/vdisks/new", "An empty disk"), (UPLOAD, "Upload an image"), (ADOPT, "Images in a store")];
    html! { ul.ways aria-label="How the vDisk comes to be" { @for (to, label) in ways {
        li { @match &may { Ok(()) => a.button href=(to) aria-current=[(to == here).then_some("page")] { (label) }, denied => (button(to, label, denied)) } }
    } } }
}

/// What a store's folder holds besides what the catalogue lists.
#[derive(Debug, Deserialize)]
struct Plan {
    folder: String,
    chains: Vec<Chain>,
    findings: Vec<Finding>,
    known: u64,
}

/// What can become a vDisk.
#[derive(Debug, Deserialize)]
struct Chain {
    name: String,
    versions: Vec<ChainVersion>,
}

/// What can become a version of it.
#[derive(Debug, Deserialize)]
struct ChainVersion {
    number: u32,
    kind: String,
    file: String,
    length_bytes: u64,
    disk_bytes: u64,
}

/// A file that cannot.
#[derive(Debug, Deserialize)]
struct Finding {
    file: String,
    kind: String,
    why: String,
}

async fn adopt_page(visit: Visit) -> Result<Answer, Refusal> {
    or_refuse(visit.may_make(ObjectKind::Vdisk))?;
    let asked = visit.query.clone();
    adoption(&visit, &asked, None).await
}

/// The stores that they may put images into.
pub(super) async fn stores(visit: &Visit) -> Result<Vec<Named>, Refusal> {
    let mut stores = visit.ask.get::<List<Named>>("/v1/stores?sort=name&limit=500").await?.items;
    stores.retain(|store| visit.may_make_in(ObjectKind::Vdisk, Some(store.id)).is_ok());
    Ok(stores)
}

/// The page, with what the chosen store holds; `failed` is what came of trying.
async fn adoption(visit: &Visit, asked: &Fields, failed: Option<Refusal>) -> Result<Answer, Refusal> {
    let stores = stores(visit).await?;
    let chosen = stores.iter().find(|store| store.id.to_string() == asked.get("store"));
    let plan = match chosen {
        None => None,
        Some(store) => Some(plan(visit, store, &json!({ "dry_run": true })).await),
    };
    let status = failed.as_ref().map_or(StatusCode::OK, |failed| failed.status);
    let body = html! {
        h1 { "Images in a store" }
        (ways(visit, ADOPT))
        @if let Some(failed) = &failed { p.said.bad role="alert" { (visible(&failed.answer.message)) @if let Some(hint) = &failed.answer.hint { " " (visible(hint)) } } }
        form.filters action=(ADOPT) {
            label { "Store" (select_store(&stores, asked.get("store"))) }
            span.buttons { button.primary[plan.is_none()] { "Look through its folder" } }
        }
        @if let (Some(store), Some(plan)) = (chosen, &plan) { @match plan {
            Ok(plan) => (planned(visit, store, plan, asked)),
            Err(refusal) => p.said.bad role="alert" { (visible(&refusal.answer.message)) @if let Some(hint) = &refusal.answer.hint { " " (visible(hint)) } },
        } }
        @else if stores.is_empty() { p { "There is no store yet: " a href=(paths::FIRST_RUN) { "set up the farm" } " first." } }
        @else { p { "What is found is shown first; nothing is made before you say so, and no file is touched." } }
        (exported(visit, &stores))
    };
    Ok(Page::new("Images in a store", "vDisks", body).status(status).into())
}

async fn plan(visit: &Visit, store: &Named, body: &Value) -> Result<Plan, Refusal> {
    let path = format!("/v1/stores/{}/adopt", store.id);
    let told = visit.ask.send(Method::POST, &path, None, Some(body)).await?;
    serde_json::from_value(told)
        .map_err(|error| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
}

fn select_store(stores: &[Named], chosen: &str) -> Markup {
    html! { select name="store" { @for store in stores { option value=(store.id) selected[store.id.to_string() == chosen] { (visible(&store.name)) } } } }
}

fn planned(visit: &Visit, store: &Named, plan: &Plan, asked: &Fields) -> Markup {
    let marked =
        |chain: &Chain| asked.get("name").is_empty() || asked.all("name").any(|name| name == chain.name);
    html! {
        p #found role="status" { (several(plan.chains.len() as u64, "vDisk")) " can be made of what lies in " code { (visible(&plan.folder)) } "; " (plan.known) " of its files belong to versions already." }
        @if !plan.chains.is_empty() { form.stack.wide method="post" action=(ADOPT) {
            (token(&visit.token()))
            input type="hidden" name="store" value=(store.id);
            div.table { table {
                thead { tr { th { "Make" } th { "vDisk" } th { "Versions" } th { "Disk" } th { "Files" } } }
                tbody { @for chain in &plan.chains { tr {
                    td { input type="checkbox" name="name" value=(chain.name) checked[marked(chain)] aria-label=(format!("Make vDisk {}", visible(&chain.name))); }
                    th scope="row" { (name(&chain.name)) }
                    td { @for version in &chain.versions { p.small { "v" (version.number) " " (version.kind) ": " code { (visible(&version.file)) } } } }
                    td.number { (chain.versions.last().map_or_else(|| "–".to_owned(), |version| bytes(version.disk_bytes))) }
                    td.number { (bytes(chain.versions.iter().map(|version| version.length_bytes).fold(0, u64::saturating_add))) }
                } } }
            } }
            label { "Write cache of each device, in GiB" input name="cache" inputmode="numeric" required value=(if asked.get("cache").is_empty() { "10" } else { asked.get("cache") }); span.effect { "on the server's disk; begun anew at each boot" } }
            label.check { input type="checkbox" name="newest_in_test" value="true" checked[asked.get("newest_in_test") == "true"]; " The newest version of each is for test devices at first" }
            span.buttons { button.primary { "Make the marked vDisks" } " " a.button href=(paths::VDISKS) { "Cancel" } }
            (same_as(&crate::commands::adopt(&store.name)))
        } }
        @if !plan.findings.is_empty() { section.panel {
            h2 { "What cannot be adopted" }
            div.table { table {
                thead { tr { th { "File" } th { "What" } th { "Why, and what to do" } } }
                tbody { @for finding in &plan.findings { tr { td { code { (visible(&finding.file)) } } td { (badge("warn", &finding.kind)) } td { (visible(&finding.why)) } } } }
            } }
        } }
    }
}

fn exported(visit: &Visit, stores: &[Named]) -> Markup {
    html! { section.panel {
        h2 { "An export of another farm" }
        p.effect { "A folder in this server's folder for exchange, with its manifest." }
        form.inline method="post" action=(IMPORT) {
            (token(&visit.token()))
            label { "Folder" input name="folder" required; }
            label { "Into the store" (select_store(stores, "")) }
            button { "Import it" }
        }
    } }
}

async fn adopt(visit: Visit) -> Result<Answer, Refusal> {
    let form = visit.form.clone();
    let done = async {
        let names: Vec<&str> = form.all("name").collect();
        if names.is_empty() {
            return Err(Refusal::new(StatusCode::BAD_REQUEST, "no vDisk is marked, and nothing was done"));
        }
        let cache = form.get("cache").trim().parse::<u64>().ok().and_then(|gib| gib.checked_mul(GIB));
        let cache = cache
            .ok_or_else(|| Refusal::new(StatusCode::BAD_REQUEST, "the write cache is no number of GiB"))?;
        let body = json!({
            "dry_run": false,
            "names": names,
            "newest_in_test": form.get("newest_in_test") == "true",
            "write_cache": { "kind": "server-disk", "limit_bytes": cache },
        });
        let path = format!("/v1/stores/{}/adopt", encode(form.get("store")));
        visit.ask.send(Method::POST, &path, None, Some(&body)).await?;
        Ok(names.len() as u64)
    };
    match done.await {
        Ok(made) => {
            let said =
                format!("{} made. Production devices that are given them boot them.", several(made, "vDisk"));
            Ok(Answer::Go(paths::VDISKS.to_owned(), Some(Said::good(said))))
        }
        Err(refusal) if refusal.status == StatusCode::UNAUTHORIZED => Err(refusal),
        Err(refusal) => adoption(&visit, &form, Some(refusal)).await,
    }
}

async fn import(visit: Visit) -> Result<Answer, Refusal> {
    let path = format!("/v1/stores/{}/import", encode(visit.form.get("store")));
    let body = json!({ "folder": visit.form.get("folder").trim() });
    match visit.ask.send(Method::POST, &path, None, Some(&body)).await {
        Ok(task) => {
            let id = task.get("id").and_then(Value::as_i64).unwrap_or_default();
            Ok(Answer::Go(paths::task(id), Some(Said::good("The import has begun."))))
        }
        Err(refusal) if refusal.status == StatusCode::UNAUTHORIZED => Err(refusal),
        Err(refusal) => adoption(&visit, &Fields::default(), Some(refusal)).await,
    }
}

async fn upload_page(visit: Visit) -> Result<Answer, Refusal> {
    or_refuse(visit.may_make(ObjectKind::Vdisk))?;
    let stores = stores(&visit).await?;
    let body = html! {
        h1 { "Upload an image" }
        (ways(&visit, UPLOAD))
        p { "A VHDX or VHD file goes into a store in parts. If it is broken off, choose the same file again: it goes on where it was." }
        form.stack #upload data-then=(ADOPT) {
            (token(&visit.token()))
            label { "Store" (select_store(&stores, visit.query.get("store"))) }
            label { "Image" input type="file" name="file" accept=".vhdx,.vhd,.avhdx,.avhd" required; }
            span.buttons {
                button.primary type="submit" { "Upload" } " "
                button type="button" data-do="stop" hidden { "Stop for now" } " "
                button.danger type="button" data-do="cancel" hidden { "Cancel and remove what is here" }
            }
            p.progress hidden { progress max="100" value="0" aria-label="Upload" {} span role="status" {} }
            p.said.bad role="alert" hidden {}
            noscript { p.said.bad { "This page needs JavaScript. Without it, copy the file into the store's folder and adopt it." } }
        }
        p.small { "qcow2, VMDK and raw images become VHDX first: " code { "headwater image convert disk.qcow2 disk.vhdx" } }
    };
    Ok(Page::new("Upload an image", "vDisks", body).into())
}

/// Where in the API an upload is.
fn upload_path(fields: &Fields, end: &str) -> String {
    format!("/v1/stores/{}/uploads/{}{end}", encode(fields.get("store")), encode(fields.get("name")))
}

/// What a script is told: what the API says, and why not.
fn told(done: Result<Value, Refusal>) -> Result<Answer, Refusal> {
    match done {
        Ok(value) => Ok(Answer::Raw(json_answer(value.to_string()))),
        Err(refusal) if refusal.status == StatusCode::UNAUTHORIZED => Err(refusal),
        Err(refusal) => {
            let why = json!({ "message": refusal.answer.message, "hint": refusal.answer.hint });
            let mut response = json_answer(why.to_string());
            *response.status_mut() = refusal.status;
            Ok(Answer::Raw(response))
        }
    }
}

fn length(form: &Fields) -> u64 {
    form.get("length").parse().unwrap_or_default()
}

async fn begin(visit: Visit) -> Result<Answer, Refusal> {
    let form = &visit.form;
    let body = json!({ "name": form.get("name"), "length_bytes": length(form) });
    let path = format!("/v1/stores/{}/uploads", encode(form.get("store")));
    told(visit.ask.send(Method::POST, &path, None, Some(&body)).await)
}

async fn part(visit: Visit) -> Result<Answer, Refusal> {
    let query = &visit.query;
    let asked = Fields::from([("offset", query.get("offset")), ("sha256", query.get("sha256"))]);
    let path = format!("{}{}", upload_path(query, "/parts"), asked.query());
    told(visit.ask.send_bytes(&path, "application/octet-stream", visit.bytes.clone()).await)
}

async fn finish(visit: Visit) -> Result<Answer, Refusal> {
    let body = json!({ "length_bytes": length(&visit.form) });
    told(visit.ask.send(Method::POST, &upload_path(&visit.form, "/finish"), None, Some(&body)).await)
}

async fn cancel(visit: Visit) -> Result<Answer, Refusal> {
    told(visit.ask.send(Method::POST, &upload_path(&visit.form, "/cancel"), None, None).await)
}
