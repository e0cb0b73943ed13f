//! The first run: a farm without a name gets one, with a site and this server, and is told what comes next.
use axum::http::{Method, StatusCode};
use maud::{Markup, html};
use serde_json::{Value, json};

use crate::answer::{Answer, Page};
use crate::ask::{Ask, Refusal};
use crate::door::{Route, Visit};
use crate::markup::{badge, token, visible};
use crate::paths;
use crate::said::Said;
use crate::wire::List;

pub(super) fn all() -> Vec<Route> {
    vec![Route::get(paths::FIRST_RUN, page), Route::post(paths::FIRST_RUN, name_it)]
}

/// What there is, and what is missing until something boots: label, whether it is there, where it is made.
struct Data {
    farm: Option<String>,
    steps: Vec<(&'static str, bool, &'static str)>,
    failed: Option<String>,
    token: String,
}

impl Data {
    async fn of(visit: &Visit, failed: Option<String>) -> Result<Self, Refusal> {
        let farm = match visit.ask.get::<Value>("/v1/farm").await {
            Ok(farm) => farm.get("name").and_then(Value::as_str).map(str::to_owned),
            Err(refusal) if refusal.status == StatusCode::NOT_FOUND => None,
            Err(refusal) => return Err(refusal),
        };
        let ask = &visit.ask;
        let steps = vec![
            ("A site: what lies in one place", some(ask, "sites").await, "/sites/new"),
            ("A server: this one, in its site", some(ask, "servers").await, "/servers/new"),
            ("A collection of devices", some(ask, "collections").await, "/collections/new"),
            ("A store: the folder where images lie", some(ask, "stores").await, "/stores"),
            ("A vDisk", some(ask, "vdisks").await, "/vdisks/new"),
            ("A device", some(ask, "devices").await, "/devices/new"),
        ];
        Ok(Self { farm, steps, failed, token: visit.token() })
    }
}

async fn some(ask: &Ask, kind: &str) -> bool {
    ask.get::<List<Value>>(&format!("/v1/{kind}?limit=1")).await.is_ok_and(|found| found.total > 0)
}

async fn page(visit: Visit) -> Result<Answer, Refusal> {
    let data = Data::of(&visit, None).await?;
    Ok(Page::new("First run", "", whole(&data)).into())
}

fn whole(data: &Data) -> Markup {
    html! {
        h1 { "Set up the farm" }
        @if let Some(failed) = &data.failed { p.said.bad role="alert" { (visible(failed)) } }
        @match &data.farm {
            None => form.stack method="post" action=(paths::FIRST_RUN) data-command="headwater farm create" {
                (token(&data.token))
                label { "What is the farm to be called?" input name="name" required autofocus data-word=""; }
                button.primary { "Name it" }
                (crate::markup::same_as("headwater farm create NAME"))
            },
            Some(farm) => {
                p { "The farm is called " b { (visible(farm)) } ". What it takes until a machine boots:" }
                section.panel { ol { @for (label, done, to) in &data.steps { li { p {
                    @if *done { (badge("good", "there")) " " (label) } @else { (badge("busy", "next")) " " a href=(to) { (label) } }
                } } } } }
                p { a.button.primary href=(paths::HOME) { "To the overview" } }
            },
        }
    }
}

async fn name_it(visit: Visit) -> Result<Answer, Refusal> {
    let body = json!({ "name": visit.form.get("name").trim() });
    match visit.ask.send(Method::POST, "/v1/farm", None, Some(&body)).await {
        Ok(_) => Ok(Answer::Go(paths::FIRST_RUN.to_owned(), Some(Said::good("The farm has a name.")))),
        Err(refusal) => {
            let status = refusal.status;
            let data = Data::of(&visit, Some(refusal.answer.message)).await?;
            Ok(Page::new("First run", "", whole(&data)).status(status).into())
        }
    }
}
