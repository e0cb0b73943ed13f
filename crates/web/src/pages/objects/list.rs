//! Lists of objects, and one object with all its properties.
use axum::http::StatusCode;
use farm::model::ObjectKind;
use maud::{Markup, html};
use serde_json::Value;

use super::super::{servers, views};
use super::{Kind, kind_of, told};
use crate::answer::{Answer, Page};
use crate::ask::Refusal;
use crate::commands;
use crate::door::Visit;
use crate::fields::{Fields, encode};
use crate::markup::{button, link, name, same_as, several, visible};
use crate::paths;
use crate::wire::List;

/// How many stand on a page.
const ON_PAGE: usize = 50;

pub(super) fn kind(visit: &Visit) -> Result<&'static Kind, Refusal> {
    kind_of(&visit.path).ok_or_else(|| Refusal::not_found(format!("there is nothing at {}", visit.path)))
}

pub(super) async fn page(visit: Visit) -> Result<Answer, Refusal> {
    let kind = kind(&visit)?;
    let query = &visit.query;
    let sort = Some(query.get("sort")).filter(|sort| !sort.is_empty()).unwrap_or(kind.order);
    let asked = Fields::from([
        ("filter", query.get("filter")),
        ("sort", sort),
        ("cursor", query.get("cursor")),
        ("limit", &ON_PAGE.to_string()),
    ]);
    let found = visit.ask.get::<List<Value>>(&format!("/v1/{}{}", kind.path, asked.query())).await;
    let (found, bad) = match found {
        Err(refusal) if refusal.status == StatusCode::BAD_REQUEST => {
            (List::default(), Some(refusal.answer.message))
        }
        other => (other?, None),
    };
    let loads = match kind.object {
        ObjectKind::Server if bad.is_none() => Some(servers::asked(&visit, &asked).await?.items),
        _ => None,
    };
    let body = html! {
        h1 { (kind.title) }
        (filter_form(kind, query, bad.is_some()))
        @if let Some(bad) = &bad { p.said.bad role="alert" { "The filter means nothing: " (visible(bad)) } }
        p.small { (several(found.total, kind.one)) " " (new_button(&visit, kind)) " " a href=(format!("/{}/export{}", kind.path, Fields::from([("filter", query.get("filter"))]).query())) { "Export" } }
        div.table #objects hx-get=(visit.here_with("", "")) hx-select="#objects" hx-trigger="hw:change from:body" hx-swap="outerHTML" {
            (table(&visit, kind, sort, &found))
            @if found.items.is_empty() && bad.is_none() { p.empty { (if query.get("filter").is_empty() { kind.none } else { "None fits." }) } }
        }
        p.pager {
            @if !query.get("cursor").is_empty() { a.button href=(visit.here_with("cursor", "")) { "First" } }
            @if let Some(next) = &found.next { a.button href=(visit.here_with("cursor", next)) { "Next " (ON_PAGE) } }
        }
        @if let Some(loads) = loads.filter(|loads| !loads.is_empty()) { (load(&visit, &servers::table(&loads, ON_PAGE))) }
        @if !kind.noun.is_empty() { (same_as(&commands::list(kind.noun, query.get("filter")))) }
    };
    Ok(Page::new(kind.title, kind.title, body).into())
}

/// What servers carry: it renews itself as often as they tell it.
fn load(visit: &Visit, told: &Markup) -> Markup {
    html! { section.panel #load hx-get=(visit.here_with("", "")) hx-select="#load" hx-trigger="every 10s" hx-swap="outerHTML" { h2 { "Load" } (told) } }
}

fn filter_form(kind: &Kind, query: &Fields, bad: bool) -> Markup {
    html! { form.filters action=(format!("/{}", kind.path)) role="search" aria-label=(format!("Filter {}", kind.title)) {
        label.wide { "Filter" input name="filter" value=(query.get("filter")) placeholder=(kind.example) aria-invalid=[bad.then_some("true")]; }
        span.buttons { button.primary { "Filter" } " " a.button href=(format!("/{}", kind.path)) { "Clear" } }
    } }
}

fn new_button(visit: &Visit, kind: &Kind) -> Markup {
    if kind.fields.is_empty() || kind.path == "persistent-caches" {
        return html! {};
    }
    let to = format!("/{}/new", kind.path);
    button(&to, &format!("New {}", kind.one), &visit.may_make(kind.object))
}

fn table(visit: &Visit, kind: &Kind, sort: &str, found: &List<Value>) -> Markup {
    let (field, down) = sort.strip_prefix('-').map_or((sort, false), |field| (field, true));
    html! { table {
        thead { tr { @for (label, _, by) in kind.columns {
            @if by.is_empty() { th { (label) } } @else {
                @let up = *by == field && !down;
                th aria-sort=[(*by == field).then_some(if down { "descending" } else { "ascending" })] {
                    a href=(visit.here_with("sort", &if up { format!("-{by}") } else { (*by).to_owned() })) { (label) @if *by == field { (if down { " ▼" } else { " ▲" }) } }
                }
            }
        } } }
        tbody { @for object in &found.items { tr { @for (place, (_, key, _)) in kind.columns.iter().enumerate() {
            td { (cell(kind, object, key, place == 0)) }
        } } } }
    } }
}

fn cell(kind: &Kind, object: &Value, key: &str, first: bool) -> Markup {
    let value = object.get(key).unwrap_or(&Value::Null);
    let number = ["id", "number", "fence"].into_iter().find_map(|key| object.get(key));
    let id = number.and_then(Value::as_i64);
    let text = told(value);
    match (first, id) {
        (true, Some(id)) if key == "at" => {
            html! { a href=(paths::object(kind.path, id)) { (crate::markup::moment(&text)) } }
        }
        (true, Some(id)) => link(&paths::object(kind.path, id), &text),
        _ if key.ends_with("_at") || ["at", "since", "until"].contains(&key) => match value.as_str() {
            Some(at) => crate::markup::moment(at),
            None => html! { span.none { "–" } },
        },
        _ => name(&text),
    }
}

pub(super) async fn one(visit: Visit) -> Result<Answer, Refusal> {
    let kind = kind(&visit)?;
    let wanted = visit.parameter("object");
    let object: Value = visit.ask.get(&format!("/v1/{}/{}", kind.path, encode(wanted))).await?;
    let title = object.get("name").map_or_else(|| format!("{} {wanted}", kind.one), told);
    let id = object.get("id").and_then(Value::as_i64).unwrap_or_default();
    let may = visit.may_change(kind.object, &object);
    let fields = object.as_object();
    // What some objects do, or hold, beside their properties.
    let more = match kind.object {
        ObjectKind::Server => Some(load(&visit, &servers::all_figures(&servers::one(&visit, id).await?))),
        ObjectKind::View => Some(views::members(&visit, &object).await?),
        _ => None,
    };
    let body = html! {
        h1 { (name(&title)) " " span.small { (kind.one) } }
        @if !kind.fields.is_empty() { div.actions {
            (button(&format!("/{}/{id}/edit", kind.path), "Edit", &may))
            (button(&format!("/{}/{id}/delete", kind.path), "Delete…", &may))
            @if kind.object == ObjectKind::Server && id == visit.console.control.server().get() { a.button href=(paths::SETTINGS) { "Settings" } " " a.button href=(paths::DOCTOR) { "Doctor" } }
        } }
        @if let Some(more) = &more { (more) }
        section.panel { dl { @for (key, value) in fields.into_iter().flatten().filter(|(key, _)| !["id", "revision"].contains(&key.as_str())) {
            dt { (key.replace('_', " ")) } dd { (property(value)) }
        } } }
        @if kind.path != "audit" { p.small { a href=(format!("/audit{}", Fields::from([("filter", format!("kind = {} and object = {id}", object_word(kind)).as_str())]).query())) { "What was changed, and by whom" } } }
    };
    Ok(Page::new(title, kind.title, body).into())
}

fn object_word(kind: &Kind) -> &'static str {
    farm::model::Choice::word(kind.object)
}

/// A property; what holds more is shown as it is.
fn property(value: &Value) -> Markup {
    match value {
        Value::Object(fields) if !fields.contains_key("name") && fields.len() > 3 => {
            html! { pre.small { (visible_lines(&serde_json::to_string_pretty(value).unwrap_or_default())) } }
        }
        value => name(&told(value)),
    }
}

fn visible_lines(text: &str) -> String {
    text.lines().map(visible).collect::<Vec<_>>().join("\n")
}
