//! Boots: the latest ones, and where the time of one went, as a waterfall, beside another one if wanted.
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use maud::{Markup, html};
use serde::Deserialize;

use crate::answer::{Answer, Page};
use crate::ask::{Ask, Refusal};
use crate::boot::{Boot, Io, PHASES, Phase, Stage, Tone};
use crate::door::{Route, Visit};
use crate::fields::{Fields, encode};
use crate::markup::{
    badge, bytes, count, link, milliseconds, name, now_us, several, span, status_badge, visible,
};
use crate::paths;

/// How many boots the list shows.
const SHOWN: usize = 200;
/// Of which boots the list tells.
const WITHIN: Duration = Duration::from_secs(24 * 3600);

pub(super) fn all() -> Vec<Route> {
    vec![Route::get(paths::BOOTS, list), Route::get("/boots/{boot}", one)]
}

#[derive(Deserialize)]
struct Boots {
    boots: Vec<Boot>,
}

/// The boots of a device, latest first, or the one with this id.
pub(super) async fn boots_of(ask: &Ask, wanted: &str) -> Result<Vec<Boot>, Refusal> {
    match ask.get::<Boots>(&format!("/v1/boots/{}", encode(wanted))).await {
        Ok(answer) => Ok(answer.boots),
        Err(refusal) if refusal.status == StatusCode::NOT_FOUND => Ok(Vec::new()),
        Err(refusal) => Err(refusal),
    }
}

/// The boots of the last day that they see, latest first.
pub(super) async fn of_the_last_day(visit: &Visit) -> Result<Vec<Arc<Boot>>, Refusal> {
    let statuses = visit.statuses().await;
    Ok(visit.boots_seen(&statuses, visit.console.board.boots_within(WITHIN)))
}

async fn list(visit: Visit) -> Result<Answer, Refusal> {
    let boots = of_the_last_day(&visit).await?;
    let body = html! {
        div.live hx-get=(paths::BOOTS) hx-select=".live" hx-trigger="hw:boot from:body" hx-swap="outerHTML" {
            h1 { "Boots of the last day" }
            p.small { (several(boots.len() as u64, "boot")) @if boots.len() > SHOWN { "; the latest " (SHOWN) " are shown" } " " a href="/boots/export" { "Export" }
                @if let Some(server) = visit.one_of_several() { br; "Of this server, " b { (visible(&server)) } ": the others tell theirs." } }
            div.table { table {
                thead { tr { th { "Device" } th { "State" } th { "vDisk" } th { "Began" } th { "Took" } th { "Where the time went" } th { "Read" } } }
                tbody { @for boot in boots.iter().take(SHOWN) { tr {
                    th scope="row" { (link(&paths::boot(&boot.id), &boot.device)) }
                    td { (status_badge(&boot.status.replace('-', " "))) }
                    td { (name(&boot.vdisk)) }
                    td { (ago(boot)) " ago" }
                    td.number { (milliseconds(boot.span_ms())) }
                    td.strip { (strip(&boot.phases(), boot.span_ms())) }
                    td.number { (bytes(boot.read_bytes())) }
                } } }
            } }
            @if boots.is_empty() { p.empty { "No machine has booted in the last day." } }
            @else { ul.legend { @for (label, tone) in PHASES { li { (swatch(tone)) " " (label) } } } }
        }
    };
    Ok(Page::new("Boots", "Boots", body).into())
}

fn ago(boot: &Boot) -> String {
    span(Duration::from_micros(now_us().saturating_sub(boot.started_unix_us)))
}

async fn one(visit: Visit) -> Result<Answer, Refusal> {
    let wanted = visit.parameter("boot");
    let boot = boots_of(&visit.ask, wanted).await?.into_iter().next();
    let boot =
        boot.ok_or_else(|| Refusal::not_found(format!("there is no boot {wanted:?}, or not any more")))?;
    let others = boots_of(&visit.ask, &boot.device).await?;
    let compared = match visit.query.get("with") {
        "" => None,
        with => boots_of(&visit.ask, with).await?.into_iter().next(),
    };
    let title = format!("Boot of {}", boot.device);
    Ok(Page::new(title, "Boots", whole(&boot, &others, compared.as_ref(), &visit.path)).into())
}

fn whole(boot: &Boot, others: &[Boot], compared: Option<&Boot>, path: &str) -> Markup {
    let with = compared.map(|boot| boot.id.as_str()).unwrap_or_default();
    let own = format!("{path}{}", Fields::from([("with", with)]).query());
    html! {
        div.live hx-get=[boot.end.is_none().then_some(own)] hx-select=".live" hx-trigger="hw:boot from:body" hx-swap="outerHTML" {
            h1 { "Boot of " (link(&paths::device_named(&boot.device), &boot.device)) " " (status_badge(&boot.status.replace('-', " "))) }
            p { "vDisk " b { (name(&boot.vdisk)) } ", began " (ago(boot)) " ago, " (outcome(boot)) }
            (findings(boot))
            (waterfall(boot))
            @if let Some(other) = compared { (comparison(boot, other)) (waterfall(other)) }
            (compare_form(boot, others, with, path))
            div.columns { (stage("First stage: firmware", boot.first_stage.as_ref())) (stage("Second stage: operating system", boot.second_stage.as_ref())) }
        }
    }
}

/// What stands out, the slowest first, and what helps.
pub(super) fn findings(boot: &Boot) -> Markup {
    html! { @if !boot.findings.is_empty() { section.panel { h2 { "What stands out" } ul.findings { @for finding in &boot.findings { li {
        @if let Some(percent) = finding.percent { (badge("warn", &format!("{percent} %"))) " " }
        (visible(&finding.what)) @if let Some(advice) = &finding.advice { p.effect { (visible(advice)) } }
    } } } } } }
}

fn outcome(boot: &Boot) -> Markup {
    html! { @match (boot.ready_at_ms, &boot.end) {
        (Some(ready), _) => { b { "ready after " (milliseconds(ready)) } "." },
        (None, Some(end)) => { "over after " (milliseconds(end.at_ms)) ": " (visible(&end.why)) "." },
        (None, None) => { (milliseconds(boot.span_ms())) " so far; it has not said that it is ready." },
    } }
}

/// How wide the bars are together, in the units of the drawing.
const WIDTH: f64 = 1000.0;

/// Each step as a bar on one axis of time.
pub(super) fn waterfall(boot: &Boot) -> Markup {
    let total = boot.span_ms().max(1.0);
    let x = |ms: f64| (ms / total * WIDTH).clamp(0.0, WIDTH);
    html! {
        figure.waterfall aria-label=(format!("Where the {} of this boot went", milliseconds(total))) {
            (strip(&boot.phases(), total))
            (legend(&boot.phases()))
            div.table { table {
                thead { tr { th { "Step" } th { "At" } th { "Took" } th.bars { (axis(total)) } th { "Details" } } }
                tbody { @for bar in boot.bars() { tr {
                    th scope="row" { (visible(&bar.label)) }
                    td.number { (milliseconds(bar.from_ms)) }
                    td.number { @if bar.to_ms > bar.from_ms { (milliseconds(bar.to_ms - bar.from_ms)) } }
                    td.bars { svg viewBox=(format!("0 0 {WIDTH} 16")) preserveAspectRatio="none" aria-hidden="true" {
                        rect class=(bar.tone.class()) x=(two(x(bar.from_ms).min(WIDTH - 3.0))) y="2" height="12" rx="1" width=(two((x(bar.to_ms) - x(bar.from_ms)).max(3.0))) {}
                    } }
                    td.detail { (visible(&bar.detail)) }
                } } }
            } }
            @if boot.steps_dropped > 0 { p.small { (several(boot.steps_dropped, "further step")) " of this boot were not kept." } }
        }
    }
}

fn axis(total: f64) -> Markup {
    html! { span.axis { span { "0" } span { (milliseconds(total / 2.0)) } span { (milliseconds(total)) } } }
}

fn two(number: f64) -> String {
    format!("{number:.2}")
}

/// All phases in one bar.
pub(super) fn strip(phases: &[Phase], total: f64) -> Markup {
    let total = total.max(1.0);
    let mut from = 0.0;
    let mut rects = Vec::new();
    for phase in phases {
        rects.push((phase, from));
        from += phase.ms;
    }
    html! { svg.phases viewBox=(format!("0 0 {WIDTH} 16")) preserveAspectRatio="none" role="img" aria-label=(in_words(phases)) {
        @for (phase, from) in rects {
            rect class=(phase.tone.class()) x=(two(from / total * WIDTH)) y="0" height="16" width=(two((phase.ms / total * WIDTH).max(0.0))) { title { (phase.label) ", " (milliseconds(phase.ms)) } }
        }
    } }
}

/// Each phase with its time.
pub(super) fn in_words(phases: &[Phase]) -> String {
    let words: Vec<String> =
        phases.iter().map(|phase| format!("{} {}", phase.label, milliseconds(phase.ms))).collect();
    words.join(", ")
}

fn legend(phases: &[Phase]) -> Markup {
    html! { ul.legend { @for phase in phases { li { (swatch(phase.tone)) " " (phase.label) " " b { (milliseconds(phase.ms)) } } } } }
}

/// A colour of the strips.
fn swatch(tone: Tone) -> Markup {
    html! { svg viewBox="0 0 10 10" aria-hidden="true" { rect class=(tone.class()) width="10" height="10" rx="2" {} } }
}

fn comparison(boot: &Boot, other: &Boot) -> Markup {
    let theirs = other.phases();
    html! {
        h2 { "Compared with the boot of " (ago(other)) " ago" }
        div.table { table { thead { tr { th { "Phase" } th { "This one" } th { "That one" } th { "Difference" } } }
            tbody { @for phase in boot.phases() { tr {
                th scope="row" { (phase.label) }
                td.number { (milliseconds(phase.ms)) }
                @match theirs.iter().find(|other| other.label == phase.label) {
                    Some(other) => { td.number { (milliseconds(other.ms)) } td.number { (difference(phase.ms - other.ms)) } },
                    None => { td { "–" } td {} },
                }
            } } }
        } }
    }
}

fn difference(ms: f64) -> Markup {
    let tone = if ms > 50.0 {
        "bad"
    } else if ms < -50.0 {
        "good"
    } else {
        "calm"
    };
    let sign = if ms < 0.0 { "−" } else { "+" };
    badge(tone, &format!("{sign}{}", milliseconds(ms.abs())))
}

fn compare_form(boot: &Boot, others: &[Boot], with: &str, path: &str) -> Markup {
    let others: Vec<_> = others.iter().filter(|other| other.id != boot.id).collect();
    html! { @if !others.is_empty() {
        form.filters action=(path) {
            label { "Compare with " select name="with" { @for other in &others {
                option value=(other.id) selected[other.id == with] { (ago(other)) " ago, " (milliseconds(other.span_ms())) }
            } } }
            button { "Compare" }
        }
    } }
}

fn stage(title: &str, stage: Option<&Stage>) -> Markup {
    html! { section.panel { h2 { (title) }
        @match stage {
            None => p.small { "No requests." },
            Some(stage) => {
                table { thead { tr { th {} th { "Requests" } th { "Bytes" } th { "Errors" } th { "Average" } th { "Longest" } } }
                    tbody { (io("Reads", &stage.reads)) (io("Writes", &stage.writes)) } }
                (sizes(&stage.reads))
            },
        }
    } }
}

fn io(label: &str, io: &Io) -> Markup {
    let us = |us: u64| milliseconds(std::time::Duration::from_micros(us).as_secs_f64() * 1000.0);
    html! { tr { th scope="row" { (label) }
        td.number { (count(io.count)) } td.number { (bytes(io.bytes)) }
        td.number { @if io.errors > 0 { (badge("bad", &count(io.errors))) } @else { "0" } }
        td.number { (us(io.latency_us_average)) } td.number { (us(io.latency_us_max)) }
    } }
}

/// How large the reads were.
fn sizes(io: &Io) -> Markup {
    let most = io.sizes.iter().map(|size| size.count).max().unwrap_or(0);
    html! { @if most > 0 {
        h3 { "Sizes of reads" }
        table.sizes { tbody { @for size in io.sizes.iter().filter(|size| size.count > 0) { tr {
            th scope="row" { "up to " (bytes(size.up_to_bytes)) }
            td.number { (count(size.count)) }
            td.bars { meter min="0" max=(most) value=(size.count) aria-hidden="true" {} }
        } } } }
    } }
}
