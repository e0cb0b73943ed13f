//! Tasks: what is being worked on, at the foot of every page and as a list, with how far it is and a way to stop it.
use std::sync::Arc;
use std::time::Duration;

use axum::http::Method;
use control::Caller;
use farm::model::{Id, ObjectKind};
use farm::rules::permission::Action;
use farm::snapshot::Snapshot;
use maud::{Markup, html};

use crate::answer::{Answer, Page};
use crate::ask::{Ask, Refusal};
use crate::door::{Route, Visit};
use crate::fields::Fields;
use crate::markup::{badge, bytes, disabled, link, moment, several, span, token, visible};
use crate::paths;
use crate::rights::{Within, may};
use crate::said::Said;
use crate::wire::{List, Log, Task};

/// How many tasks stand at the foot of every page.
const RECENT: usize = 6;
/// How many stand on a page of the list.
const ON_PAGE: usize = 50;

pub(super) fn all() -> Vec<Route> {
    vec![
        Route::get(paths::TASKS, list),
        Route::get(paths::TASK_LOG, panel),
        Route::get("/tasks/{task}", one),
        Route::post("/tasks/{task}/cancel", cancel),
    ]
}

/// The latest tasks.
pub(crate) async fn recent(ask: &Ask) -> Result<List<Task>, Refusal> {
    ask.get(&format!("/v1/tasks?sort=-id&limit={RECENT}")).await
}

async fn panel(visit: Visit) -> Result<Answer, Refusal> {
    let tasks = recent(&visit.ask).await?;
    Ok(Page::new("Tasks", "Tasks", log_panel(Some(&tasks), &Cancel::of(&visit))).into())
}

/// What stands at the foot of every page.
pub(crate) fn log_panel(tasks: Option<&List<Task>>, cancel: &Cancel) -> Markup {
    let under_way = tasks.map_or(0, |tasks| tasks.items.iter().filter(|task| !task.has_ended()).count());
    html! {
        section.task-log #task-log aria-label="Task log" hx-get=(paths::TASK_LOG) hx-trigger="hw:task from:body, hw:change from:body" hx-swap="outerHTML" {
            h2 { a href=(paths::TASKS) { "Tasks" } " "
                @if under_way == 0 { span.small { "nothing under way" } }
                @else { (badge("busy", &format!("{under_way} under way"))) } }
            @match tasks {
                None => p.small { "Your role shows no tasks, or they cannot be read now." },
                Some(tasks) if tasks.items.is_empty() => p.small { "Merges, copies and imports will stand here." },
                Some(tasks) => ul { @for task in &tasks.items { li { (row(task, cancel)) } } },
            }
        }
    }
}

fn row(task: &Task, cancel: &Cancel) -> Markup {
    html! {
        span.what { (link(&paths::task(task.id), &title(task))) }
        " " (state(task)) " "
        @if task.has_ended() {
            span.small { (moment(task.ended_at.as_deref().unwrap_or(&task.made_at))) " by " (visible(&task.actor)) }
            @if task.state == "failed" { " " span.small.why { (visible(task.result.as_deref().unwrap_or_default())) } }
        } @else {
            (progress(task)) " " (cancel.button(task))
        }
    }
}

fn title(task: &Task) -> String {
    match &task.vdisk {
        Some(vdisk) => format!("{} {}", task.kind, vdisk.name),
        None => task.kind.clone(),
    }
}

fn state(task: &Task) -> Markup {
    let tone = match task.state.as_str() {
        "done" => "good",
        "failed" => "bad",
        "running" | "cancelling" => "busy",
        _ => "calm",
    };
    badge(tone, &task.state)
}

/// What came of a task that has ended, in words: its API answers programs, with an object.
fn outcome(task: &Task) -> String {
    let Some(result) = &task.result else { return "–".to_owned() };
    let Ok(serde_json::Value::Object(said)) = serde_json::from_str(result) else { return result.clone() };
    let told = |(name, value): (String, serde_json::Value)| {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!("{} {value}", name.replace('_', " "))
    };
    said.into_iter().map(told).collect::<Vec<_>>().join(", ")
}

fn progress(task: &Task) -> Markup {
    html! {
        span.progress {
            progress max="100" value=[task.percent] aria-label=(format!("{} progress", title(task))) {}
            span.small {
                @if let Some(percent) = task.percent { (percent) " %" }
                @if task.total > 0 { " · " (bytes(task.done)) " of " (bytes(task.total)) }
                @if let Some(rate) = task.rate { " · " (bytes(rate)) "/s" }
                @if let Some(left) = task.left_s { " · " (span(Duration::from_secs(left))) " left" }
            }
        }
    }
}

/// What it takes to cancel a task.
pub(crate) struct Cancel {
    caller: Option<Caller>,
    snapshot: Arc<Snapshot>,
    form_token: String,
}

impl Cancel {
    pub(crate) fn of(visit: &Visit) -> Self {
        Self {
            caller: visit.caller().cloned(),
            snapshot: visit.console.control.snapshot(),
            form_token: visit.token(),
        }
    }

    /// Whether they may, as the API decides: where the vDisk is.
    fn may(&self, task: &Task) -> Result<(), String> {
        let vdisk = task.vdisk.as_ref().and_then(|vdisk| Id::new(vdisk.id).ok());
        let vdisk = vdisk.and_then(|id| self.snapshot.vdisk(id));
        let store = vdisk.map(|vdisk| vdisk.vdisk.store.get());
        let place = Within::Store.place(&self.snapshot, store);
        may(self.caller.as_ref(), Action::Operate, ObjectKind::Task, place)
    }

    fn button(&self, task: &Task) -> Markup {
        html! { @if !task.has_ended() && task.state != "cancelling" { @match self.may(task) {
            Ok(()) => form.inline method="post" action=(format!("{}/cancel", paths::task(task.id))) {
                (token(&self.form_token))
                button.small aria-label=(format!("Cancel {}", title(task))) { "Cancel" }
            },
            Err(why) => (disabled("Cancel", &why)),
        } } }
    }
}

async fn cancel(visit: Visit) -> Result<Answer, Refusal> {
    let path = format!("/v1/tasks/{}/cancel", crate::fields::encode(visit.parameter("task")));
    let said = match visit.ask.send(Method::POST, &path, None, None).await {
        Ok(_) => Said::good("The task is being cancelled: what it had begun is undone."),
        Err(refusal) => Said::bad(refusal.answer.message),
    };
    Ok(Answer::Go(paths::TASKS.to_owned(), Some(said)))
}

async fn list(visit: Visit) -> Result<Answer, Refusal> {
    let asked = Fields::from([
        ("sort", "-id"),
        ("limit", &ON_PAGE.to_string()),
        ("filter", visit.query.get("filter")),
        ("cursor", visit.query.get("cursor")),
    ]);
    let tasks: List<Task> = visit.ask.get(&format!("/v1/tasks{}", asked.query())).await?;
    let cancel = Cancel::of(&visit);
    let body = html! {
        h1 { "Tasks" }
        p.small { (several(tasks.total, "task")) }
        div.table hx-get=(visit.here_with("", "")) hx-trigger="hw:task from:body" hx-select=".table" hx-swap="outerHTML" {
            table {
                thead { tr { th { "#" } th { "Task" } th { "State" } th { "Progress, result" } th { "By" } th { "Begun" } } }
                tbody { @for task in &tasks.items { tr {
                    td { (task.id) }
                    td { (link(&paths::task(task.id), &title(task))) }
                    td { (state(task)) }
                    td { @if task.has_ended() { (visible(&outcome(task))) } @else { (progress(task)) (cancel.button(task)) } }
                    td { (visible(&task.actor)) }
                    td { (moment(&task.made_at)) }
                } } }
            }
        }
        @if let Some(next) = &tasks.next { p.pager { a.button href=(visit.here_with("cursor", next)) { "Older" } } }
    };
    Ok(Page::new("Tasks", "Tasks", body).into())
}

async fn one(visit: Visit) -> Result<Answer, Refusal> {
    let path = format!("/v1/tasks/{}", crate::fields::encode(visit.parameter("task")));
    let task: Task = visit.ask.get(&path).await?;
    let log: Log = visit.ask.get(&format!("{path}/log")).await?;
    let cancel = Cancel::of(&visit);
    let body = html! {
        div.live hx-get=(visit.path) hx-trigger="hw:task from:body" hx-swap="outerHTML" hx-select=".live" {
            h1 { "Task #" (task.id) ": " (visible(&title(&task))) " " (state(&task)) }
            p { "Asked for by " b { (visible(&task.actor)) } ", " (moment(&task.made_at)) "." }
            @if task.has_ended() { p { (visible(&outcome(&task))) } }
            @else { p { (progress(&task)) " " (cancel.button(&task)) } }
            h2 { "Log" }
            @if log.lines.is_empty() { p.small { "Nothing yet." } }
            ol.log { @for line in &log.lines { li { (moment(&line.at)) " " (visible(&line.text)) } } }
        }
    };
    Ok(Page::new(format!("Task #{}", task.id), "Tasks", body).into())
}
