//! The settings of this server that can be changed while it runs: each says when a new value takes effect.
use api::host::{Effect, SettingStatus, SettingsStatus};
use axum::http::{Method, StatusCode};
use farm::model::ObjectKind;
use farm::rules::permission::Action;
use maud::{Markup, html};
use serde_json::{Map, Value};

use crate::answer::{Answer, Page};
use crate::ask::Refusal;
use crate::commands;
use crate::conflict::{self, Conflict, LastChange, was};
use crate::door::{Route, Visit};
use crate::fields::Fields;
use crate::markup::{badge, name, same_as, token, visible};
use crate::paths;
use crate::said::Said;

const TITLE: &str = "Settings";
const API: &str = "/v1/settings";
const FORM: &str = "settings";

pub(super) fn all() -> Vec<Route> {
    vec![Route::get(paths::SETTINGS, page), Route::post(paths::SETTINGS, change)]
}

/// A form that was sent and not taken.
struct Sent {
    form: Fields,
    refusal: Refusal,
    conflicts: Vec<Conflict>,
    by: Option<LastChange>,
}

async fn page(visit: Visit) -> Result<Answer, Refusal> {
    let settings: SettingsStatus = visit.ask.get(API).await?;
    Ok(Page::new(TITLE, TITLE, whole(&visit, &settings, None)).into())
}

/// Whether whoever looks may change what is this server's own.
pub(super) fn may(visit: &Visit) -> Result<(), String> {
    visit.may(Action::Change, ObjectKind::Server, visit.console.control.place())
}

fn whole(visit: &Visit, settings: &SettingsStatus, sent: Option<&Sent>) -> Markup {
    let may = may(visit);
    html! {
        h1 { "Settings of this server" }
        p { "They stand above the server's configuration file, over restarts, until they are taken away." }
        @match sent {
            Some(sent) if sent.refusal.status == StatusCode::PRECONDITION_FAILED => (conflict::panel(&sent.conflicts, sent.by.as_ref(), FORM)),
            Some(Sent { refusal, .. }) => p.said.bad role="alert" { (visible(&refusal.answer.message)) @if let Some(hint) = &refusal.answer.hint { " " (visible(hint)) } },
            None => {},
        }
        @if settings.items.is_empty() { p.empty { "This server has no settings that can be changed while it runs." } }
        @else if let Err(why) = &may {
            p.small { "Changing them is not for you: " (why) "." }
            (table(settings))
        } @else {
            form #(FORM) method="post" action=(paths::SETTINGS) data-command=(commands::SET_SETTINGS) {
                (token(&visit.token()))
                input type="hidden" name="revision" value=(revision(settings, sent));
                (table_of_inputs(settings, sent))
                span.buttons { button.primary { "Change" } " " a.button href=(paths::SETTINGS) { "Cancel" } }
                (same_as(&format!("{} …", commands::SET_SETTINGS)))
            }
        }
        p.small { a href=(format!("/audit{}", Fields::from([("filter", "action = change-settings")]).query())) { "What was changed, and by whom" } }
        (same_as(&commands::list("setting", "")))
    }
}

/// The state that the next sending is meant for: what is shown now.
fn revision(settings: &SettingsStatus, sent: Option<&Sent>) -> String {
    match sent {
        Some(sent) if sent.refusal.status != StatusCode::PRECONDITION_FAILED => {
            sent.form.get("revision").to_owned()
        }
        _ => settings.revision.to_string(),
    }
}

fn head() -> Markup {
    html! { thead { tr { th { "Setting" } th { "Value" } th { "Takes effect" } th { "In the configuration file" } } } }
}

fn table(settings: &SettingsStatus) -> Markup {
    html! { div.table { table { (head()) tbody { @for item in &settings.items { (row(item, &name(&item.value))) } } } } }
}

fn table_of_inputs(settings: &SettingsStatus, sent: Option<&Sent>) -> Markup {
    let typed =
        |item: &SettingStatus| sent.map_or(item.value.as_str(), |sent| sent.form.get(&item.key)).to_owned();
    // What the next sending is compared with: a form that was bad keeps its own.
    let before = |item: &SettingStatus| match sent {
        Some(sent) if sent.refusal.status != StatusCode::PRECONDITION_FAILED => {
            sent.form.get(&was(&item.key)).to_owned()
        }
        _ => item.value.clone(),
    };
    let is_bad = |key: &str| sent.and_then(|sent| sent.refusal.answer.field.as_deref()) == Some(key);
    html! { div.table.stacked { table { (head()) tbody { @for item in &settings.items {
        (row(item, &html! {
            input name=(item.key) value=(typed(item)) aria-label=(item.key) aria-invalid=[is_bad(&item.key).then_some("true")] data-key=(item.key) data-was=(item.value);
            input type="hidden" name=(was(&item.key)) value=(before(item));
        }))
    } } } } }
}

fn row(item: &SettingStatus, value: &Markup) -> Markup {
    let (tone, when) = match item.effect {
        Effect::Now => ("good", "now"),
        Effect::NextBoot => ("busy", "at each device's next boot"),
        Effect::NextStart => ("warn", "at the server's next start"),
    };
    html! { tr {
        th scope="row" { code { (visible(&item.key)) } br; span.effect { (visible(&item.says)) } }
        td { (value) @if item.running != item.value { br; span.small { "until the next start the server goes by " (name(&item.running)) } } }
        td { (badge(tone, when)) }
        td { (name(&item.configured)) @if item.changed { " " (badge("calm", "another value stands")) br; span.small { "leave the value empty to go by the file again" } } }
    } }
}

async fn change(visit: Visit) -> Result<Answer, Refusal> {
    let settings: SettingsStatus = visit.ask.get(API).await?;
    let form = conflict::chosen(&visit.form, settings.items.iter().map(|item| item.key.as_str()));
    let changed: Vec<&SettingStatus> = settings
        .items
        .iter()
        .filter(|item| form.get(&item.key).trim() != form.get(&was(&item.key)))
        .collect();
    let value = |item: &&SettingStatus| match form.get(&item.key).trim() {
        "" => (item.key.clone(), Value::Null),
        text => (item.key.clone(), text.into()),
    };
    let patch = Value::Object(changed.iter().map(value).collect::<Map<_, _>>());
    let sent = visit.ask.send(Method::PATCH, API, Some(form.get("revision")), Some(&patch)).await;
    let Err(refusal) = sent else {
        return Ok(Answer::Go(paths::SETTINGS.to_owned(), Some(Said::good(done(&changed)))));
    };
    let status = refusal.status;
    let mut sent = Sent { form: form.clone(), refusal, conflicts: Vec::new(), by: None };
    if status == StatusCode::PRECONDITION_FAILED {
        for item in &settings.items {
            let (mine, before) = (form.get(&item.key).trim(), form.get(&was(&item.key)));
            if mine == before {
                // What was left alone here is what somebody else made of it.
                sent.form = sent.form.with(&item.key, &item.value);
            } else if before != item.value && mine != item.value {
                let (field, label) = (item.key.clone(), item.key.clone());
                sent.conflicts.push(Conflict {
                    field,
                    label,
                    mine: mine.to_owned(),
                    theirs: item.value.clone(),
                });
            }
        }
        let server = visit.console.control.server().get();
        sent.by = LastChange::of(&visit.ask, ObjectKind::Server, server).await;
    }
    Ok(Page::new(TITLE, TITLE, whole(&visit, &settings, Some(&sent))).status(status).into())
}

/// What was done, and when it counts.
fn done(changed: &[&SettingStatus]) -> String {
    if changed.is_empty() {
        return "Nothing was changed.".to_owned();
    }
    let of = |effect: Effect| {
        let keys = changed.iter().filter(|item| item.effect == effect).map(|item| item.key.as_str());
        keys.collect::<Vec<_>>().join(", ")
    };
    let parts = [
        (of(Effect::Now), "in effect now"),
        (of(Effect::NextBoot), "in effect at each device's next boot"),
        (of(Effect::NextStart), "in effect at the server's next start"),
    ];
    let told =
        parts.iter().filter(|(keys, _)| !keys.is_empty()).map(|(keys, when)| format!("{keys}: {when}"));
    format!("Changed. {}.", told.collect::<Vec<_>>().join("; "))
}
