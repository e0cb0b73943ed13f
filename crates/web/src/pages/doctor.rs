//! What `headwater doctor` finds on this server's host, and on the way to a device.
use api::host::{FindingLevel, HostFinding, HostReport, NetworkReport};
use axum::http::{Method, StatusCode};
use farm::model::ObjectKind;
use farm::rules::permission::Action;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::json;

use crate::answer::{Answer, Page};
use crate::ask::Refusal;
use crate::commands;
use crate::door::{Route, Visit};
use crate::fields::encode;
use crate::markup::{badge, link, moment, name, same_as, several, token, visible};
use crate::paths;
use crate::said::Said;
use crate::wire::Device;

const TITLE: &str = "Doctor";
const API: &str = "/v1/doctor";

pub(super) fn all() -> Vec<Route> {
    vec![
        Route::get(paths::DOCTOR, page),
        Route::post(paths::DOCTOR, look),
        Route::get("/devices/{device}/network", ask_network),
        Route::post("/devices/{device}/network", check_network),
    ]
}

#[derive(Deserialize)]
struct Latest {
    report: Option<HostReport>,
}

async fn page(visit: Visit) -> Result<Answer, Refusal> {
    let may = visit.may(Action::Operate, ObjectKind::Server, visit.console.control.place());
    let latest = match &may {
        Ok(()) => visit.ask.get::<Latest>(API).await?.report,
        Err(_) => None,
    };
    let body = html! {
        h1 { "Doctor: this server's host" }
        p { "Checks that the host has all that a server needs, and says how to mend what is missing. Nothing is changed." }
        @match &may {
            Ok(()) => form.inline method="post" action=(paths::DOCTOR) {
                (token(&visit.token()))
                label.check { input type="checkbox" name="dhcp" value="true"; " also ask on the boot networks who else answers DHCP (a broadcast; takes 4 s)" }
                " " button.primary { "Check now" }
            },
            Err(why) => p.small { "This is not for you: " (why) "." },
        }
        @match &latest {
            Some(report) => (findings(report)),
            None if may.is_ok() => p.empty { "Not checked since the server started." },
            None => {},
        }
        (same_as(commands::DOCTOR))
    };
    Ok(Page::new(TITLE, TITLE, body).into())
}

fn findings(report: &HostReport) -> Markup {
    let mut worst_first: Vec<&HostFinding> = report.findings.iter().collect();
    worst_first.sort_by_key(|finding| match finding.level {
        FindingLevel::Problem => 0,
        FindingLevel::Warning => 1,
        FindingLevel::Ok => 2,
    });
    html! {
        p { (several(report.problems as u64, "problem")) ", " (several(report.warnings as u64, "warning")) " in " (several(report.findings.len() as u64, "finding"))
            ", looked at " (moment(&report.at)) " UTC, with " code { (visible(&report.config)) } "." }
        div.table { table { thead { tr { th { "Verdict" } th { "Of" } th { "What was found" } th { "What to do" } } }
            tbody { @for finding in worst_first { tr {
                td { (verdict(finding.level)) }
                td { (name(&finding.subject)) }
                td { (lines(&finding.found)) @if let Some(meaning) = &finding.meaning { br; span.effect { (lines(meaning)) } } }
                td { @match &finding.mend { Some(mend) => (lines(mend)), None => span.none { "–" } } }
            } } }
        } }
    }
}

fn verdict(level: FindingLevel) -> Markup {
    match level {
        FindingLevel::Ok => badge("good", "ok"),
        FindingLevel::Warning => badge("warn", "warning"),
        FindingLevel::Problem => badge("bad", "problem"),
    }
}

/// A text of several lines.
fn lines(text: &str) -> Markup {
    html! { @for (place, line) in text.lines().enumerate() { @if place > 0 { br; } (visible(line)) } }
}

async fn look(visit: Visit) -> Result<Answer, Refusal> {
    let body = json!({ "dhcp": visit.form.get("dhcp") == "true" });
    let said = match visit.ask.send(Method::POST, API, None, Some(&body)).await {
        Ok(_) => Said::good("Looked: this is what was found."),
        Err(refusal) => {
            let hint = refusal.answer.hint.map(|hint| format!("; {hint}")).unwrap_or_default();
            Said::bad(format!("{}{hint}", refusal.answer.message))
        }
    };
    Ok(Answer::Go(paths::DOCTOR.to_owned(), Some(said)))
}

/// What a device's page has of it: the button, and room for the result.
pub(super) fn network_panel(device: &Device, may: &Result<(), String>, form_token: &str) -> Markup {
    let to = format!("{}/network", paths::device(device.id));
    // Kept as it is while the rest of the page is renewed: htmx moves what is preserved.
    html! { section.panel #network hx-preserve="true" { h2 { "Network path" }
        p.small { "Pings in rising sizes find out which packets get to the device whole: some seconds. Firmware answers none; ask when its system runs." }
        @match may {
            Ok(()) => form.inline method="post" action=(to) hx-post=(to) hx-target="#network-result" hx-swap="innerHTML" hx-disabled-elt="find button" { (token(form_token)) button { "Test the path" } },
            Err(why) => p.small { "Testing it is not for you: " (why) "." },
        }
        div #network-result role="status" {}
    } }
}

async fn device_of(visit: &Visit) -> Result<Device, Refusal> {
    let wanted = encode(visit.parameter("device")).replace("%3A", ":");
    visit.ask.get(&format!("/v1/devices/{wanted}")).await
}

async fn ask_network(visit: Visit) -> Result<Answer, Refusal> {
    let device = device_of(&visit).await?;
    let may = visit.may(Action::Operate, ObjectKind::Device, super::recording::place_of(&device));
    let body = html! {
        h1 { "Network path to device " (link(&paths::device(device.id), &device.name)) }
        (network_panel(&device, &may, &visit.token()))
        (same_as(&commands::doctor_network(&device.name)))
    };
    Ok(Page::new(format!("Network path to {}", device.name), "Devices", body).into())
}

async fn check_network(visit: Visit) -> Result<Answer, Refusal> {
    let device = device_of(&visit).await?;
    let path = format!("/v1/devices/{}/network-check", device.id);
    let told = visit.ask.send(Method::POST, &path, None, None).await;
    let (status, result) = match told.map(serde_json::from_value::<NetworkReport>) {
        Ok(Ok(report)) => (StatusCode::OK, network(&report)),
        Ok(Err(_)) => {
            return Err(Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "the API's answer is no report"));
        }
        // htmx shows what succeeds alone; the words say that it did not.
        Err(refusal) => (if visit.part { StatusCode::OK } else { refusal.status }, failed(&refusal)),
    };
    let body = html! {
        @if !visit.part { h1 { "Network path to device " (link(&paths::device(device.id), &device.name)) } }
        (result)
        @if !visit.part { (same_as(&commands::doctor_network(&device.name))) }
    };
    Ok(Page::new(format!("Network path to {}", device.name), "Devices", body).status(status).into())
}

fn failed(refusal: &Refusal) -> Markup {
    html! { p.said.bad role="alert" { (visible(&refusal.answer.message)) @if let Some(hint) = &refusal.answer.hint { ": " (visible(hint)) } } }
}

fn network(report: &NetworkReport) -> Markup {
    let bytes = |bytes: u32| format!("{bytes} bytes");
    html! {
        dl {
            dt { "Address" } dd.mono { (visible(&report.address)) }
            dt { "Largest packet sent there" } dd { (bytes(report.mtu_bytes)) }
            dt { "Largest ping answered" } dd { (report.pinged_bytes.map_or_else(|| "none was".to_owned(), bytes)) }
            dt { "Limited by" } dd { (visible(&report.limited_by)) }
        }
        p { (lines(&report.text)) }
        p.small { "Looked at " (moment(&report.at)) " UTC." }
    }
}
