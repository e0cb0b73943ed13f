//! Views: what fits a filter that has a name, now.
use maud::{Markup, html};
use serde_json::Value;

use crate::ask::Refusal;
use crate::commands;
use crate::door::Visit;
use crate::fields::Fields;
use crate::markup::{link, same_as, several, visible};
use crate::paths;
use crate::wire::List;

/// How many members stand on the page of a view.
const ON_PAGE: usize = 100;

/// What fits a view, on its page.
pub(super) async fn members(visit: &Visit, view: &Value) -> Result<Markup, Refusal> {
    let text = |key: &str| view.get(key).and_then(Value::as_str).unwrap_or_default();
    let id = view.get("id").and_then(Value::as_i64).unwrap_or_default();
    let asked = Fields::from([("cursor", visit.query.get("cursor")), ("limit", &ON_PAGE.to_string())]);
    // Who sees the view and none of what fits it is told so.
    let found = visit.ask.get::<List<Value>>(&format!("/v1/views/{id}/items{}", asked.query())).await;
    let found = match found {
        Ok(found) => found,
        Err(refusal) if refusal.status == axum::http::StatusCode::FORBIDDEN => {
            return Ok(
                html! { section.panel { h2 { "In it now" } p { (visible(&refusal.answer.message)) } } },
            );
        }
        Err(refusal) => return Err(refusal),
    };
    Ok(html! {
        section.panel #members hx-get=(visit.here_with("", "")) hx-select="#members" hx-trigger="hw:change from:body" hx-swap="outerHTML" {
            h2 { "In it now" }
            p { (several(found.total, one_of(text("of"))))
                @if text("of") == "devices" { " " a.button href=(devices_in(id)) { "Show them as devices" } } }
            ul { @for member in &found.items { li { (row(text("of"), member)) } } }
            p.pager {
                @if !visit.query.get("cursor").is_empty() { a.button href=(visit.here_with("cursor", "")) { "First" } }
                @if let Some(next) = &found.next { a.button href=(visit.here_with("cursor", next)) { "Next " (ON_PAGE) } }
            }
        }
        (same_as(&commands::view_items(text("name"))))
    })
}

/// The page of the devices in a view.
fn devices_in(view: i64) -> String {
    format!("{}{}", paths::DEVICES, Fields::from([("view", view.to_string().as_str())]).query())
}

fn one_of(list: &str) -> &'static str {
    match list {
        "vdisks" => "vDisk",
        "versions" => "version",
        "servers" => "server",
        _ => "device",
    }
}

fn row(list: &str, member: &Value) -> Markup {
    let text = |pointer: &str| member.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let number = |pointer: &str| member.pointer(pointer).and_then(Value::as_i64).unwrap_or_default();
    match list {
        // A version has no page of its own.
        "versions" => {
            html! { (link(&paths::vdisk(number("/vdisk/id")), text("/vdisk/name"))) " version " (number("/number")) }
        }
        list => link(&paths::object(list, number("/id")), text("/name")),
    }
}
