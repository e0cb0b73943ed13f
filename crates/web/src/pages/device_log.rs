//! What became of a device: its state over the last day as a strip, and what happened to it as a list.
use std::sync::Arc;
use std::time::Duration;

use farm::model::Timestamp;
use maud::{Markup, html};
use serde::Deserialize;

use crate::ask::{Ask, Refusal};
use crate::boot::Boot;
use crate::fields::Fields;
use crate::markup::{link, milliseconds, now_us, span, visible};
use crate::paths;
use crate::sight::seen;
use crate::wire::List;

/// Of how long the strip tells.
pub(super) const DAY: Duration = Duration::from_secs(24 * 3600);
/// How wide it is, in the units of the drawing.
const WIDTH: u64 = 1000;
/// How many events are listed.
const LISTED: usize = 20;

/// A time in which a device was in one state, in microseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    from: u64,
    to: u64,
    tone: &'static str,
    word: &'static str,
}

/// The states that boots tell of, from the earliest on; the latest boot comes first. What lies between is off.
fn spans<'a>(boots: impl Iterator<Item = &'a Boot>, now: u64) -> Vec<Span> {
    let mut spans = Vec::new();
    let mut next = now;
    for boot in boots {
        let from = boot.started_unix_us;
        let to = boot.last_known_us(now).min(next);
        let ready = boot.ready_us().map_or(to, |ready| ready.min(to));
        if to > ready {
            let lost = boot.status == "disconnected";
            let (tone, word) = if lost { ("lost", "disconnected") } else { ("up", "up") };
            spans.push(Span { from: ready, to, tone, word });
        }
        if ready > from {
            spans.push(Span { from, to: ready, tone: "booting", word: "booting" });
        }
        next = from;
    }
    spans.reverse();
    spans
}

/// How long a device was in each state, as far as it is not off.
fn in_words(spans: &[Span], start: u64) -> String {
    let told = |word: &str| {
        let of_it = spans.iter().filter(|span| span.word == word);
        let us = of_it.map(|span| span.to.saturating_sub(span.from.max(start))).fold(0, u64::saturating_add);
        (us > 0).then(|| format!("{word} for {}", span(Duration::from_micros(us))))
    };
    let told: Vec<String> = ["up", "booting", "disconnected"].into_iter().filter_map(told).collect();
    if told.is_empty() { "off all the time".to_owned() } else { told.join(", ") }
}

/// The last day of a device: in one bar, and in words.
pub(super) fn last_day(boots: &[Boot]) -> Markup {
    let (bar, words) = drawn(boots.iter());
    html! { section.panel { h2 { "Last 24 hours" } (bar)
        p.axis.small { span { "24 hours ago" } span { "now" } }
        p.small { "In this time: " (words) "." }
    } }
}

/// The bar, and what it shows in words.
fn drawn<'a>(boots: impl Iterator<Item = &'a Boot>) -> (Markup, String) {
    let now = now_us();
    let day = u64::try_from(DAY.as_micros()).unwrap_or(u64::MAX);
    let start = now.saturating_sub(day);
    let x = |at: u64| {
        let at = at.clamp(start, now).saturating_sub(start);
        at.saturating_mul(WIDTH).checked_div(day).unwrap_or(0)
    };
    let spans: Vec<Span> = spans(boots, now).into_iter().filter(|span| span.to > start).collect();
    let words = in_words(&spans, start);
    let bar = html! { svg.day viewBox=(format!("0 0 {WIDTH} 12")) preserveAspectRatio="none" role="img" aria-label=(words) {
        title { (words) }
        @for span in &spans {
            rect class=(span.tone) x=(x(span.from)) width=(x(span.to).saturating_sub(x(span.from)).max(4)) y="0" height="12" {
                title { (span.word) " for " (crate::markup::span(Duration::from_micros(span.to.saturating_sub(span.from)))) }
            }
        }
    } };
    (bar, words)
}

/// A change of the farm, as far as it is listed here.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Entry {
    number: i64,
    at: String,
    actor: String,
    action: String,
}

/// What was changed about a device, latest first; nothing for those who may not see it.
pub(super) async fn changes(ask: &Ask, device: i64) -> Result<Vec<Entry>, Refusal> {
    let filter = format!("kind = device and object = {device}");
    let asked = Fields::from([("filter", filter.as_str()), ("sort", "-number"), ("limit", "20")]);
    seen(ask.get::<List<Entry>>(&format!("/v1/audit{}", asked.query())).await)
}

/// What happened to a device, latest first.
pub(super) fn log(boots: &[Boot], changes: &[Entry]) -> Markup {
    let mut events: Vec<(u64, Markup)> = Vec::new();
    for boot in boots {
        let to = paths::boot(&boot.id);
        events.push((
            boot.started_unix_us,
            html! { (link(&to, "began to boot")) " vDisk " (visible(&boot.vdisk)) },
        ));
        if let (Some(at), Some(ms)) = (boot.ready_us(), boot.ready_at_ms) {
            events.push((at, html! { "ready, after " (milliseconds(ms)) }));
        }
        if let Some(end) = &boot.end {
            events.push((boot.last_known_us(u64::MAX), html! { "its boot ended: " (visible(&end.why)) }));
        }
    }
    for change in changes {
        let Ok(at) = change.at.parse::<Timestamp>() else { continue };
        let at = u64::try_from(at.ms()).unwrap_or(0).saturating_mul(1000);
        let to = paths::object("audit", change.number);
        events.push((at, html! { (link(&to, &change.action)) " by " (visible(&change.actor)) }));
    }
    events.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
    let now = now_us();
    html! { section.panel { h2 { "Events" }
        @if events.is_empty() { p.small { "Nothing that this server knows of." } }
        ul.log { @for (at, what) in events.iter().take(LISTED) { li {
            span.when { (span(Duration::from_micros(now.saturating_sub(*at)))) " ago" } " " (what)
        } } }
    } }
}

/// The strips of a page of devices, each from its boots.
pub(super) fn strip_of(boots: Option<&Vec<Arc<Boot>>>) -> Markup {
    drawn(boots.into_iter().flatten().map(AsRef::as_ref)).0
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn boot(started_s: u64, ready_ms: Option<f64>, end_ms: Option<f64>) -> Boot {
        let end = end_ms.map(|at_ms| json!({"at_ms": at_ms, "why": "reset"}));
        let status = if end.is_some() { "ended" } else { "ready" };
        let value = json!({"id": "b", "device": "d", "vdisk": "v", "started_unix_us": started_s * 1_000_000, "status": status,
            "steps": [], "first_stage": null, "hand_over": null, "second_stage": null, "ready_at_ms": ready_ms, "end": end});
        serde_json::from_value(value).unwrap()
    }

    fn seconds(boots: &[Boot], now_s: u64) -> Vec<(u64, u64, &'static str)> {
        let spans = spans(boots.iter(), now_s * 1_000_000);
        spans.iter().map(|span| (span.from / 1_000_000, span.to / 1_000_000, span.tone)).collect()
    }

    #[test]
    fn boots_become_spans_up_to_the_next_one_or_now() {
        let boots = [boot(500, Some(10_000.0), None), boot(100, Some(20_000.0), Some(300_000.0))];
        let found = seconds(&boots, 600);
        assert_eq!(found, [(100, 120, "booting"), (120, 400, "up"), (500, 510, "booting"), (510, 600, "up")]);
    }

    #[test]
    fn states_of_a_day_are_told_in_words_from_its_start_on() {
        let boots = [boot(500, Some(10_000.0), None), boot(100, Some(20_000.0), Some(300_000.0))];
        let spans = spans(boots.iter(), 600 * 1_000_000);
        assert_eq!(in_words(&spans, 110 * 1_000_000), "up for 6 min 10 s, booting for 20 s");
        assert_eq!(in_words(&[], 0), "off all the time");
    }

    #[test]
    fn boot_that_never_became_ready_was_booting_until_its_end() {
        assert_eq!(seconds(&[boot(100, None, Some(50_000.0))], 600), [(100, 150, "booting")]);
        let overlap = [boot(110, Some(1000.0), None), boot(100, Some(2000.0), None)];
        let found = seconds(&overlap, 120);
        assert_eq!(found, [(100, 102, "booting"), (102, 110, "up"), (110, 111, "booting"), (111, 120, "up")]);
    }
}
