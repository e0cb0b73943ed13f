//! Lists as files: devices and the audit as the REST API gives them, every other list as the table that is shown, and boots and
//! vDisks with exact figures.
use axum::body::Body;
use axum::http::{HeaderValue, Method, Response, header};
use farm::model::Timestamp;
use serde_json::Value;

use super::boots::{in_words, of_the_last_day};
use super::objects::{kind_of, told};
use super::vdisks::Listed;
use crate::answer::{Answer, set};
use crate::ask::Refusal;
use crate::boot::Boot;
use crate::door::{Route, Visit};
use crate::fields::Fields;
use crate::wire::List;

/// The most rows of a file; a filter gives the rest.
const MAX_ROWS: usize = 100_000;
/// How many are asked for at a time.
const AT_ONCE: usize = 1000;

/// The lists that are given as they are shown.
const KINDS: &[&str] =
    &["stores", "servers", "sites", "collections", "users", "grants", "tokens", "locks", "persistent-caches"];

pub(super) fn all() -> Vec<Route> {
    let mut routes = vec![Route::get("/devices/export", devices), Route::get("/audit/export", audit)];
    routes.push(Route::get("/vdisks/export", vdisks));
    routes.push(Route::get("/boots/export", boots));
    let known = KINDS.iter().filter(|kind| kind_of(kind).is_some_and(|kind| !kind.columns.is_empty()));
    routes.extend(known.map(|kind| Route::get(format!("/{kind}/export"), list)));
    routes
}

async fn devices(visit: Visit) -> Result<Answer, Refusal> {
    forwarded(&visit, "/v1/devices/export", "devices.csv").await
}

async fn audit(visit: Visit) -> Result<Answer, Refusal> {
    forwarded(&visit, "/v1/audit/export", "audit.jsonl").await
}

async fn forwarded(visit: &Visit, path: &str, file: &'static str) -> Result<Answer, Refusal> {
    let asked = Fields::from([("filter", visit.query.get("filter"))]);
    let response = visit.ask.forward(Method::GET, &format!("{path}{}", asked.query()), None, None).await?;
    if !response.status().is_success() {
        let message = format!("the list cannot be given: {}", response.status());
        return Err(Refusal::new(response.status(), message));
    }
    Ok(attached(response, file))
}

async fn list(visit: Visit) -> Result<Answer, Refusal> {
    let kind = kind_of(&visit.path).ok_or_else(|| Refusal::not_found("there is no such list"))?;
    let mut table = csv_line(kind.columns.iter().map(|(label, ..)| (*label).to_owned()));
    let (mut cursor, mut rows) = (String::new(), 0_usize);
    loop {
        let asked = Fields::from([
            ("filter", visit.query.get("filter")),
            ("sort", visit.query.get("sort")),
            ("cursor", &cursor),
            ("limit", &AT_ONCE.to_string()),
        ]);
        let found: List<Value> = visit.ask.get(&format!("/v1/{}{}", kind.path, asked.query())).await?;
        rows = rows.saturating_add(found.items.len());
        for object in &found.items {
            let cells = kind.columns.iter().map(|(_, key, _)| match object.get(key) {
                None | Some(Value::Null) => String::new(),
                Some(value) => told(value),
            });
            table.push_str(&csv_line(cells));
        }
        match found.next {
            Some(next) if rows < MAX_ROWS => cursor = next,
            _ => break,
        }
    }
    Ok(table_file(table, &format!("{}.csv", kind.path)))
}

/// The vDisks with what their versions come to. Sizes are bytes: a spreadsheet adds them up.
async fn vdisks(visit: Visit) -> Result<Answer, Refusal> {
    let columns = [
        "Name",
        "Store",
        "Mode",
        "Disabled",
        "Versions",
        "Newest",
        "Access",
        "Damaged",
        "Disk bytes",
        "File bytes",
        "Running",
        "Write cache",
        "Write cache bytes",
    ];
    let mut table = csv_line(columns.into_iter().map(str::to_owned));
    let runners = visit.statuses().await.runners();
    let (mut cursor, mut rows) = (String::new(), 0_usize);
    loop {
        let found = Listed::of(&visit, &cursor, AT_ONCE).await?;
        rows = rows.saturating_add(found.vdisks.items.len());
        for vdisk in &found.vdisks.items {
            let summary = found.summaries.get(&vdisk.id);
            let newest = summary.and_then(|summary| summary.newest.as_ref());
            let number = |number: Option<u64>| number.map(|number| number.to_string()).unwrap_or_default();
            table.push_str(&csv_line(
                [
                    vdisk.name.clone(),
                    vdisk.store.name.clone(),
                    vdisk.mode.clone(),
                    told(&Value::Bool(vdisk.disabled)),
                    number(summary.map(|summary| summary.versions)),
                    number(newest.map(|newest| newest.number.into())),
                    newest.map(|newest| newest.access.clone()).unwrap_or_default(),
                    number(summary.map(|summary| summary.damaged)),
                    number(summary.and_then(|summary| summary.disk_bytes)),
                    number(summary.map(|summary| summary.files_bytes)),
                    runners.get(&vdisk.id).copied().unwrap_or(0).to_string(),
                    vdisk.write_cache.as_ref().map(|cache| cache.kind.clone()).unwrap_or_default(),
                    number(vdisk.write_cache.as_ref().map(|cache| cache.limit_bytes)),
                ]
                .into_iter(),
            ));
        }
        match found.vdisks.next {
            Some(next) if rows < MAX_ROWS => cursor = next,
            _ => break,
        }
    }
    Ok(table_file(table, "vdisks.csv"))
}

/// The boots of the last day that they see, latest first: all of them, where the page shows some.
async fn boots(visit: Visit) -> Result<Answer, Refusal> {
    let columns =
        ["Device", "State", "vDisk", "Began", "Took ms", "Where the time went", "Read bytes", "Boot"];
    let mut table = csv_line(columns.into_iter().map(str::to_owned));
    for boot in of_the_last_day(&visit).await?.iter().take(MAX_ROWS) {
        table.push_str(&boot_line(boot));
    }
    Ok(table_file(table, "boots.csv"))
}

fn boot_line(boot: &Boot) -> String {
    let began_ms = i64::try_from(boot.started_unix_us / 1000).unwrap_or(i64::MAX);
    let cells = [
        boot.device.clone(),
        boot.status.clone(),
        boot.vdisk.clone(),
        Timestamp::from_ms(began_ms).to_string(),
        format!("{:.0}", boot.span_ms()),
        in_words(&boot.phases()),
        boot.read_bytes().to_string(),
        boot.id.clone(),
    ];
    csv_line(cells.into_iter())
}

fn table_file(table: String, file: &str) -> Answer {
    let mut response = Response::new(Body::from(table));
    set(&mut response, header::CONTENT_TYPE, "text/csv; charset=utf-8");
    attached(response, file)
}

/// RFC 6266: the browser keeps it as a file.
fn attached(mut response: Response<Body>, file: &str) -> Answer {
    if let Ok(value) = HeaderValue::from_str(&format!("attachment; filename=\"{file}\"")) {
        response.headers_mut().insert(header::CONTENT_DISPOSITION, value);
    }
    Answer::Raw(response)
}

/// RFC 4180 §2. What a spreadsheet would take for a formula has an apostrophe before it.
fn csv_line(cells: impl Iterator<Item = String>) -> String {
    let cell = |cell: String| {
        let formula = cell.starts_with(['=', '+', '-', '@', '\t']);
        let cell = if formula { format!("'{cell}") } else { cell };
        let plain = !cell.contains(['"', ',', '\n', '\r']);
        if plain { cell } else { format!("\"{}\"", cell.replace('"', "\"\"")) }
    };
    cells.map(cell).collect::<Vec<_>>().join(",") + "\r\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_and_are_no_formulas() {
        let cells = ["a", "b, c", "\"d\"", "=1+1", ""].map(str::to_owned);
        assert_eq!(csv_line(cells.into_iter()), "a,\"b, c\",\"\"\"d\"\"\",'=1+1,\r\n");
    }

    #[test]
    fn boot_is_a_line_with_exact_figures() {
        let boot: Boot = serde_json::from_value(serde_json::json!({
            "id": "b1", "device": "lab-01", "vdisk": "win, 11", "status": "ready", "started_unix_us": 1_700_000_000_250_000_u64,
            "steps": [{"at_ms": 0.0, "step": "script"}], "ready_at_ms": 4000.0, "end": null,
            "second_stage": {
                "first_request_at_ms": 10.0, "last_request_at_ms": 3900.0, "read_bytes_per_second": 1,
                "reads": {"count": 1, "bytes": 4096, "errors": 0, "sizes": []},
                "writes": {"count": 0, "bytes": 0, "errors": 0, "sizes": []},
            },
        }))
        .unwrap();
        let line = boot_line(&boot);
        assert!(line.starts_with("lab-01,ready,\"win, 11\",2023-11-14T22:13:20.25"), "{line}");
        assert!(line.contains("Z,4000,") && line.ends_with(",4096,b1\r\n"), "{line}");
    }
}
