//! New devices by a table: it is looked at first, and what is wrong is told row by row; nothing is made before all is right.
use axum::http::StatusCode;
use farm::model::ObjectKind;
use maud::{Markup, html};
use serde::Deserialize;

use crate::answer::{Answer, Page};
use crate::ask::{Ask, Refusal};
use crate::door::{Route, Visit};
use crate::fields::Fields;
use crate::markup::{several, token, visible};
use crate::paths;
use crate::rights::or_refuse;
use crate::said::Said;

/// The most rows that are told of; who has more mends these first.
const MAX_SHOWN: usize = 200;
/// How much of a row is shown.
const MAX_ROW_CHARS: usize = 160;

const CSV: &str = "text/csv";
const HERE: &str = "/devices/import";
const EXAMPLE: &str = "name,site,collection,mac,vdisks\nlab-01,Main,lab,52:54:00:77:00:10,debian\n";

pub(super) fn all() -> Vec<Route> {
    vec![Route::get(HERE, page), Route::post(HERE, look_or_make)]
}

/// What an import did, or would do.
#[derive(Debug, Deserialize)]
struct Imported {
    made: u64,
    changed: u64,
    same: u64,
    collections: u64,
}

impl Imported {
    fn words(&self, will: bool) -> String {
        let [make, change, leave] =
            if will { ["It would make", "change", "leave"] } else { ["Made", "changed", "left"] };
        let with = match self.collections {
            0 => String::new(),
            more => format!(" and {}", several(more, "new collection")),
        };
        let (made, changed, same) = (several(self.made, "device"), self.changed, self.same);
        format!("{make} {made}{with}, {change} {changed} and {leave} {same} as they are.")
    }
}

/// What came of looking at a table.
enum Looked {
    NotYet,
    Good(Imported),
    Bad(Box<Refusal>),
}

/// Whether they may make anything that a table names somewhere; where, its rows tell.
pub(super) fn may(visit: &Visit) -> Result<(), String> {
    visit.may_make(ObjectKind::Device).or_else(|why| visit.may_make(ObjectKind::Collection).map_err(|_| why))
}

async fn page(visit: Visit) -> Result<Answer, Refusal> {
    or_refuse(may(&visit))?;
    Ok(shown(&visit, &Looked::NotYet))
}

async fn look_or_make(visit: Visit) -> Result<Answer, Refusal> {
    let sure = visit.form.get("what") == "make";
    match import(&visit.ask, &visit.form, !sure).await {
        Ok(imported) if sure => {
            Ok(Answer::Go(paths::DEVICES.to_owned(), Some(Said::good(imported.words(false)))))
        }
        Ok(imported) => Ok(shown(&visit, &Looked::Good(imported))),
        Err(refusal) if refusal.status == StatusCode::UNAUTHORIZED => Err(refusal),
        Err(refusal) => Ok(shown(&visit, &Looked::Bad(Box::new(refusal)))),
    }
}

async fn import(ask: &Ask, form: &Fields, dry_run: bool) -> Result<Imported, Refusal> {
    let flag = |name: &str| if form.get(name) == "true" { "true" } else { "false" };
    let query = Fields::from([
        ("dry_run", if dry_run { "true" } else { "false" }),
        ("update", flag("update")),
        ("make_collections", flag("make_collections")),
    ]);
    let table = form.get("table").replace("\r\n", "\n");
    let told = ask.send_bytes(&format!("/v1/devices/import{}", query.query()), CSV, table).await?;
    serde_json::from_value(told)
        .map_err(|error| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
}

fn shown(visit: &Visit, looked: &Looked) -> Answer {
    let form = &visit.form;
    let status = match looked {
        Looked::Bad(refusal) => refusal.status,
        Looked::NotYet | Looked::Good(_) => StatusCode::OK,
    };
    let flag = |name: &str, label: &str, effect: &str| {
        html! { label.check { input type="checkbox" name=(name) value="true" checked[form.get(name) == "true"]; " " (label) " " span.effect { (effect) } } }
    };
    let body = html! {
        h1 { "Devices from a table" }
        @match looked {
            Looked::NotYet => {},
            Looked::Good(imported) => p.said role="status" { (imported.words(true)) " Nothing was done yet." },
            Looked::Bad(refusal) => (bad(refusal, form.get("table"))),
        }
        form.stack.wide method="post" action=(HERE) {
            (token(&visit.token()))
            label { "A file in CSV" input type="file" accept=".csv,text/csv" data-into="table"; }
            label { "or its rows" textarea.mono name="table" rows="10" spellcheck="false" required placeholder=(EXAMPLE) { (form.get("table")) } }
            (flag("update", "Change devices that are there already", "by name; columns that are missing stay as they are"))
            (flag("make_collections", "Make collections that are missing", ""))
            span.buttons {
                button.primary[!matches!(looked, Looked::Good(_))] name="what" value="look" { "Look at it first" }
                @if let Looked::Good(imported) = looked { " " button.primary name="what" value="make" { "Import " (several(imported.made.saturating_add(imported.changed), "device")) } }
                " " a.button href=(paths::DEVICES) { "Cancel" }
            }
            (crate::markup::same_as(crate::commands::LOOK_AT_DEVICES))
        }
        p.small { "The columns are those of " a href="/devices/export" { "the export" } ", which can be changed in a spreadsheet and imported again." }
    };
    Page::new("Devices from a table", "Devices", body).status(status).into()
}

/// What is wrong, beside the rows that it is wrong in.
fn bad(refusal: &Refusal, table: &str) -> Markup {
    let rows = &refusal.answer.rows;
    let line = |number: usize| {
        let text = number.checked_sub(1).and_then(|place| table.lines().nth(place)).unwrap_or_default();
        visible(&text.chars().take(MAX_ROW_CHARS).collect::<String>())
    };
    html! { section.failure role="alert" {
        h2 { "Nothing was done" }
        p { (visible(&refusal.answer.message)) @if let Some(hint) = &refusal.answer.hint { " " (visible(hint)) } }
        @if !rows.is_empty() { div.table { table #bad-rows {
            thead { tr { th { "Line" } th { "Column" } th { "What is wrong" } th { "The row" } } }
            tbody { @for row in rows.iter().take(MAX_SHOWN) { tr {
                td.number { (row.line) }
                td { (visible(row.column.as_deref().unwrap_or("–"))) }
                td { (visible(&row.why)) }
                td.mono { (line(row.line)) }
            } } }
        } } }
        @if rows.len() > MAX_SHOWN { p.small { "and " (rows.len().saturating_sub(MAX_SHOWN)) " more" } }
    } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_import_does_is_said_in_one_sentence() {
        let imported = Imported { made: 2, changed: 1, same: 3, collections: 0 };
        assert_eq!(imported.words(true), "It would make 2 devices, change 1 and leave 3 as they are.");
        let imported = Imported { collections: 1, ..imported };
        assert_eq!(
            imported.words(false),
            "Made 2 devices and 1 new collection, changed 1 and left 3 as they are."
        );
    }
}
