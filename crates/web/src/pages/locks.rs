//! Locks are broken here, and nowhere by accident: the dialog names who loses what, and asks why.
use axum::http::{Method, StatusCode};
use farm::model::{Id, ObjectKind};
use farm::rules::permission::{Action, Place};
use maud::{Markup, html};
use serde_json::json;

use crate::answer::{Answer, Page};
use crate::ask::Refusal;
use crate::commands;
use crate::door::{Route, Visit};
use crate::fields::encode;
use crate::markup::{badge, button, link, moment, name, same_as, several, token, visible};
use crate::paths;
use crate::said::Said;
use crate::wire::Lock;

const TITLE: &str = "Locks";
const LIST: &str = "/locks";

pub(super) fn all() -> Vec<Route> {
    vec![
        Route::get("/locks/{lock}", page),
        Route::get("/locks/{lock}/break", ask),
        Route::post("/locks/{lock}/break", carry_out),
    ]
}

/// Where the dialog is that breaks a lock.
pub(super) fn to_break(lock: &Lock) -> String {
    format!("{LIST}/{}/break", lock.fence)
}

/// The page of a lock.
pub(super) fn page_of(lock: &Lock) -> String {
    format!("{LIST}/{}", lock.fence)
}

/// That devices cannot log in for it, in a sentence.
pub(super) fn kept_out_by(lock: &Lock) -> Markup {
    html! {
        @match lock.kept_out.as_slice() {
            [one] if lock.keeps_out == 1 => { (link(&paths::device(one.device.id), &one.device.name)) " cannot log in" },
            _ => { (several(lock.keeps_out, "device")) " cannot log in" },
        }
        ": " (lock.owner.kind) " " (name(&lock.owner.name)) " has " (name(&lock.subject.name)) " (" (lock.purpose) "), " a href=(page_of(lock)) { "lock " (lock.fence) } "."
    }
}

/// The devices that cannot log in for it.
fn kept_out(lock: &Lock) -> Markup {
    html! { section.panel { h2 { "Refused for it" }
        @if lock.keeps_out == 0 { p.small { "No device of this server, in the last minutes." } }
        @else { div.table { table { thead { tr { th { "Device" } th { "First refused" } th { "Last" } } }
            tbody { @for one in &lock.kept_out { tr {
                td { (link(&paths::device(one.device.id), &one.device.name)) }
                td { (moment(&one.since)) " UTC" }
                td { (moment(&one.last)) " UTC" }
            } } }
        } } }
        @if lock.keeps_out > lock.kept_out.len() as u64 { p.small { (several(lock.keeps_out, "device")) " in all; these wait longest." } }
    } }
}

/// Whether they may break it, as the API decides: where the vDisk is.
pub(super) fn may_break(visit: &Visit, lock: &Lock) -> Result<(), String> {
    let site = lock.site.as_ref().and_then(|site| Id::new(site.id).ok());
    visit.may(Action::Change, ObjectKind::Lease, Place::of_site(site))
}

async fn lock(visit: &Visit) -> Result<Lock, Refusal> {
    visit.ask.get(&format!("/v1/locks/{}", encode(visit.parameter("lock")))).await
}

fn facts(lock: &Lock) -> Markup {
    html! { dl {
        dt { "Of" } dd { (lock.subject.kind) " " (name(&lock.subject.name)) }
        dt { "Held by" } dd { (lock.owner.kind) " " (name(&lock.owner.name)) }
        dt { "For" } dd { (lock.purpose) " " (badge(if lock.sharing == "exclusive" { "warn" } else { "calm" }, &lock.sharing)) }
        dt { "On server" } dd { (name(&lock.server.name)) }
        dt { "Since" } dd { (moment(&lock.since)) " UTC" }
        dt { "Until, unless it is renewed" } dd { (moment(&lock.until)) " UTC" }
    } }
}

async fn page(visit: Visit) -> Result<Answer, Refusal> {
    let lock = lock(&visit).await?;
    let may = may_break(&visit, &lock);
    let body = html! {
        div.live hx-get=(visit.path) hx-select=".live" hx-trigger="hw:change from:body, every 10s" hx-swap="outerHTML" {
            h1 { "Lock " (lock.fence) }
            div.actions { (button(&to_break(&lock), "Break…", &may)) }
            section.panel { (facts(&lock)) }
            (kept_out(&lock))
        }
    };
    Ok(Page::new(format!("Lock {}", lock.fence), TITLE, body).into())
}

async fn ask(visit: Visit) -> Result<Answer, Refusal> {
    let lock = lock(&visit).await?;
    Ok(dialog(&visit, &lock, None))
}

fn dialog(visit: &Visit, lock: &Lock, failed: Option<&Refusal>) -> Answer {
    let status = failed.map_or(StatusCode::OK, |failed| failed.status);
    let title = format!("Break lock {}?", lock.fence);
    let body = html! { section.dialog.danger role="alertdialog" aria-labelledby="ask" aria-describedby="effect" {
        h1 #ask { "Break the lock of " (lock.owner.kind) " " (name(&lock.owner.name)) "?" }
        p #effect { "1 " (lock.owner.kind) " is cut off from " (lock.subject.kind) " " (name(&lock.subject.name)) " at once, in the middle of what it does. A device must be restarted; a task fails. Whoever waits for it can go on." }
        (facts(lock))
        @if let Some(failed) = failed { p.said.bad role="alert" { (visible(&failed.answer.message)) } }
        form.stack method="post" action=(visit.path) {
            (token(&visit.token()))
            label { "Why? The audit keeps it" input name="reason" required maxlength="250" value=(visit.form.get("reason")) aria-invalid=[failed.map(|_| "true")]; }
            span.buttons { a.button href=(LIST) autofocus { "Cancel" } " "
                @match may_break(visit, lock) { Ok(()) => button.danger { "Break the lock" }, denied => (button("", "Break the lock", &denied)) } }
        }
        (same_as(&commands::break_lock(lock.fence)))
    } };
    Page::new(title, TITLE, body).status(status).into()
}

async fn carry_out(visit: Visit) -> Result<Answer, Refusal> {
    let path = format!("/v1/locks/{}/break", encode(visit.parameter("lock")));
    let body = json!({ "reason": visit.form.get("reason") });
    match visit.ask.send(Method::POST, &path, None, Some(&body)).await {
        Ok(_) => {
            Ok(Answer::Go(LIST.to_owned(), Some(Said::good("The lock is broken: who had it is cut off."))))
        }
        Err(refusal) if refusal.status == StatusCode::BAD_REQUEST => {
            let lock = lock(&visit).await?;
            Ok(dialog(&visit, &lock, Some(&refusal)))
        }
        Err(refusal) => Ok(Answer::Go(LIST.to_owned(), Some(Said::bad(refusal.answer.message)))),
    }
}
