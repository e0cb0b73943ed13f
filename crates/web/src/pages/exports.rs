//! Lists as files: devices and the audit as the REST API gives them, every other list as the table that is shown.
use axum::body::Body;
use axum::http::{HeaderValue, Method, Response, header};
use serde_json::Value;

use super::objects::{kind_of, told};
use crate::answer::{Answer, set};
use crate::ask::Refusal;
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
    let mut response = Response::new(Body::from(table));
    set(&mut response, header::CONTENT_TYPE, "text/csv; charset=utf-8");
    Ok(attached(response, &format!("{}.csv", kind.path)))
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
}
