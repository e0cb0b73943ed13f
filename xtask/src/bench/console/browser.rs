//! Whether a real browser keeps up with the events of a large farm.
//!
//! Chromium shows a page that every boot changes while they begin. A listener of its own in the page counts the server's events and says how
//! old each is when the browser hands it on: a browser that fell behind would hand on older and older ones. The table is
//! taken to be behind from the first event that it does not show until the part that shows it is in place, and a task of the page
//! that holds the browser up for more than 50 ms (W3C Long Tasks API) is counted with its length.
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{ASKED, PASSWORD, UPDATES_A_SECOND};
use crate::bench::driver::Browser;
use crate::bench::{Aim, Measure};

/// Pages renew their parts once a second at most, so what is new may wait a second, and must come with the next turn.
const BEHIND_MS: f64 = 2000.0;
/// How much older than the first events the last ones may be, at the median.
const GROWTH_MS: f64 = 100.0;
/// The share of the time that long tasks may take, in per cent.
const LONG_TASKS_PERCENT: f64 = 10.0;

/// What is noted in the page: of boots that begin while it is watched, their first event, whose age is the boot's.
const WATCH: &str = "
    const seen = window.seen = { boots: new Set(), events: 0, ages: [], asked: 0, behind: [], tasks: [], since: performance.now() };
    const began = Date.now();
    let first = null;
    const asked = new Map();
    new PerformanceObserver((list) => list.getEntries().forEach((one) => seen.tasks.push(one.duration))).observe({ type: 'longtask' });
    const source = new EventSource(document.body.dataset.live);
    source.onopen = () => { seen.open = true; };
    source.addEventListener('boot', (event) => {
      const told = JSON.parse(event.data);
      seen.events += 1;
      // Boots that began before go on meanwhile, and are not those that are counted.
      if (told.started_unix_us / 1000 < began) { return; }
      if (!seen.boots.has(told.id)) { seen.boots.add(told.id); seen.ages.push(Date.now() - told.started_unix_us / 1000); }
      if (first === null) { first = performance.now(); }
    });
    document.addEventListener('htmx:beforeRequest', (event) => {
      if (first === null || !event.target.matches('[hx-trigger*=\"hw:boot\"]')) { return; }
      seen.asked += 1;
      asked.set(event.detail.xhr, first);
      first = null;
    });
    document.addEventListener('htmx:afterSwap', (event) => {
      const since = asked.get(event.detail.xhr);
      if (since !== undefined) { requestAnimationFrame(() => seen.behind.push(performance.now() - since)); }
    });";

/// What was noted.
const TOLD: &str = "const seen = window.seen; return { boots: seen.boots.size, events: seen.events, ages: seen.ages, \
                    asked: seen.asked, behind: seen.behind, tasks: seen.tasks, ms: performance.now() - seen.since };";

/// What began while a browser watched.
pub(super) struct Begun {
    /// How many boots.
    pub(super) boots: u32,
    /// How many in a second.
    pub(super) a_second: f64,
    /// How many processors the server took meanwhile.
    pub(super) processors: f64,
}

/// A browser that watches.
pub(super) struct Watcher(Browser);

impl Watcher {
    /// Opens one, and logs in.
    pub(super) fn open(site: &str) -> Self {
        let browser = Browser::open(site);
        browser.go("/log-in");
        browser.fill("user", "admin");
        browser.fill("password", PASSWORD);
        browser.press("Log in");
        browser.until("document.querySelector('nav')");
        Self(browser)
    }

    /// Begins to watch a page.
    pub(super) fn watch(&self, page: &str) {
        self.0.go(page);
        self.0.until(
            "document.getElementById('lost').hidden && document.querySelector('[hx-trigger*=\"hw:boot\"]')",
        );
        self.0.script(WATCH, &[]);
        self.0.until("window.seen.open");
    }

    /// What was seen on the page of this name since it is watched.
    ///
    /// # Errors
    /// Where the browser saw nothing.
    pub(super) fn seen(&self, page: &str, begun: &Begun) -> Result<Vec<Measure>> {
        // The last events are on their way yet.
        std::thread::sleep(Duration::from_secs(2));
        let told = self.0.script(TOLD, &[]);
        let (ages, behind, tasks) =
            (numbers(&told["ages"]), numbers(&told["behind"]), numbers(&told["tasks"]));
        let [boots, events, ms] =
            ["boots", "events", "ms"].map(|name| told[name].as_f64().unwrap_or(f64::NAN));
        ensure!(
            !ages.is_empty() && !behind.is_empty(),
            "the browser was told of {events} events, asked for the page {} times, and showed it {} times",
            told["asked"],
            behind.len()
        );
        let tenth = ages.len().div_ceil(10);
        let growth = super::median(ages.iter().rev().take(tenth).copied().collect())
            - super::median(ages.iter().take(tenth).copied().collect());
        let row = |what: &str, ours, peer, unit, aim| Measure {
            measure: format!("Chromium shows {page} while {UPDATES_A_SECOND} boots a second begin: {what}"),
            ours,
            peer,
            peer_name: ASKED.to_owned(),
            unit,
            aim,
        };
        let rate = f64::from(UPDATES_A_SECOND);
        let busy = 100.0 * tasks.iter().fold(0.0, |sum, task| sum + task) / ms;
        let longest = tasks.iter().copied().fold(0.0, f64::max);
        Ok(vec![
            row("boots that began in a second", begun.a_second, rate, "1/s", Aim::AtLeast(0.95)),
            row("boots that it was told of", boots, f64::from(begun.boots), "boots", Aim::AtLeast(1.0)),
            row("events in a second", events * 1e3 / ms, f64::NAN, "1/s", Aim::Told),
            row("age of an event: p95", p95(&ages)?, f64::NAN, "ms", Aim::Told),
            row("growth of that age, last tenth against first", growth, GROWTH_MS, "ms", Aim::AtMost(1.0)),
            row("until the page shows it: p95", p95(&behind)?, BEHIND_MS, "ms", Aim::AtMost(1.0)),
            row("share of the time in long tasks", busy, LONG_TASKS_PERCENT, "%", Aim::AtMost(1.0)),
            row("longest task", longest, f64::NAN, "ms", Aim::Told),
            row("processors that the server took", begun.processors, f64::NAN, "processors", Aim::Told),
        ])
    }
}

fn numbers(told: &Value) -> Vec<f64> {
    told.as_array().into_iter().flatten().filter_map(Value::as_f64).collect()
}

fn p95(values: &[f64]) -> Result<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() * 95 / 100).copied().context("nothing was measured")
}
