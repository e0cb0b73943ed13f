//! Metrics in the text exposition format of Prometheus, version 0.0.4. Every name is described in `docs/metrics.md`, and a
//! test holds that page to this one.
//!
//! Series of which nothing was ever counted are left out: a device that was never flushed has no series for flushes. With
//! ten thousand devices that is what keeps an answer small. Latencies are histograms for each vDisk, where they can be
//! added up, and a sum and a count for each device.
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use meter::{Kind, KindTotals, Totals};
use vdisk::CacheUsage;

use crate::stream::accounts::{Holder, Protocol};
use crate::stream::admission::Figures;
use crate::stream::oddities::Counts;

/// What is told.
pub(super) struct Facts {
    pub(super) uptime: Duration,
    pub(super) admission: Figures,
    pub(super) oddities: Counts,
    pub(super) totals: Vec<(Holder, Totals)>,
    /// By device.
    pub(super) write_caches: Vec<(String, CacheUsage)>,
}

/// The bounds of the histograms, in powers of two of nanoseconds, at which buckets begin: 4 us to 8.6 s.
const FIRST_BOUND: u32 = 12;
const LAST_BOUND: u32 = 33;

/// The page.
pub(super) fn text(facts: &Facts) -> String {
    let mut page = Page::default();
    server(facts, &mut page);
    admission(&facts.admission, &mut page);
    network(facts.oddities, &mut page);
    requests(&facts.totals, &mut page);
    page_cache(&facts.totals, &mut page);
    connections(&facts.totals, &mut page);
    latencies(&facts.totals, &mut page);
    write_caches(&facts.write_caches, &mut page);
    page.text
}

#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        self.text.push_str(name);
        for (number, (label, value)) in labels.iter().enumerate() {
            let _ =
                write!(self.text, "{}{label}=\"{}\"", if number == 0 { '{' } else { ',' }, escaped(value));
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.text, "{end} {value}");
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn labels(holder: &Holder) -> [(&'static str, &str); 3] {
    let device = holder.device.as_ref().map_or("", |device| device.as_str());
    [("device", device), ("vdisk", &holder.vdisk), ("protocol", holder.protocol.name())]
}

fn seconds(ns: u64) -> String {
    format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}

fn server(facts: &Facts, page: &mut Page) {
    page.family("headwater_build_info", "gauge", "Always 1; the label says which version runs.");
    page.sample("headwater_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
    page.family("headwater_uptime_seconds", "gauge", "Time since the server started.");
    page.sample("headwater_uptime_seconds", &[], format!("{:.3}", facts.uptime.as_secs_f64()));
}

fn admission(figures: &Figures, page: &mut Page) {
    if let Some(limit) = figures.at_once {
        page.family("headwater_boots_at_once", "gauge", "How many devices may boot at a time.");
        page.sample("headwater_boots_at_once", &[], limit);
    }
    let wait = figures.longest_wait.as_secs_f64();
    page.family("headwater_longest_wait_seconds", "gauge", "How long the first waiting device has waited.");
    page.sample("headwater_longest_wait_seconds", &[], format!("{wait:.3}"));
    let (booting, waiting) = (figures.booting as u64, figures.waiting as u64);
    for (name, kind, help, value) in [
        ("headwater_booting_devices", "gauge", "Devices that have a place to boot.", booting),
        ("headwater_waiting_devices", "gauge", "Devices that wait for one.", waiting),
        ("headwater_boots_admitted_total", "counter", "Boots that were let in.", figures.admitted),
        ("headwater_boots_queued_total", "counter", "Those of them that had to wait.", figures.queued),
        (
            "headwater_boots_given_up_total",
            "counter",
            "Waiting devices not heard of again.",
            figures.given_up,
        ),
        ("headwater_boots_expired_total", "counter", "Places lost by silence or time.", figures.expired),
    ] {
        page.family(name, kind, help);
        page.sample(name, &[], value);
    }
}

fn network(counts: Counts, page: &mut Page) {
    for (name, help, value) in [
        ("headwater_other_dhcp_servers", "DHCP servers that are not to be there.", counts.other_servers),
        ("headwater_shared_mac_addresses", "MAC addresses that two machines have.", counts.shared_macs),
    ] {
        page.family(name, "gauge", help);
        page.sample(name, &[], value);
    }
}

/// A counter of each kind of request.
type OfKind = (&'static str, &'static str, fn(&KindTotals) -> u64);

fn requests(totals: &[(Holder, Totals)], page: &mut Page) {
    let families: [OfKind; 4] = [
        ("headwater_requests_total", "Requests that were answered.", |counts| counts.requests),
        ("headwater_request_errors_total", "Requests that were answered with an error.", |counts| {
            counts.errors
        }),
        ("headwater_request_bytes_total", "Bytes that requests read, wrote or discarded.", |counts| {
            counts.bytes
        }),
        (
            "headwater_storage_waits_total",
            "Requests that could not be answered at once because storage had to be waited for.",
            |counts| counts.waited,
        ),
    ];
    for (name, help, value) in families {
        page.family(name, "counter", help);
        for (holder, totals) in totals {
            for (kind, counts) in
                Kind::ALL.iter().zip(&totals.kinds).filter(|(_, counts)| counts.requests > 0)
            {
                let [device, vdisk, protocol] = labels(holder);
                page.sample(name, &[device, vdisk, protocol, ("kind", kind.name())], value(counts));
            }
        }
    }
    page.family(
        "headwater_device_request_seconds_total",
        "counter",
        "Time that requests of all kinds took together; its rate is the queue depth.",
    );
    for (holder, totals) in totals {
        let all = totals.all_kinds();
        if all.requests > 0 {
            page.sample("headwater_device_request_seconds_total", &labels(holder), seconds(all.latency_ns));
        }
    }
}

fn page_cache(totals: &[(Holder, Totals)], page: &mut Page) {
    let families: [OfKind; 2] = [
        ("headwater_page_cache_hits_total", "Reads that were answered from memory.", |reads| {
            reads.requests.saturating_sub(reads.waited)
        }),
        ("headwater_page_cache_misses_total", "Reads that storage had to be waited for.", |reads| {
            reads.waited
        }),
    ];
    for (name, help, value) in families {
        page.family(name, "counter", help);
        for (holder, totals) in totals.iter().filter(|(_, totals)| totals.of(Kind::Read).requests > 0) {
            page.sample(name, &labels(holder), value(totals.of(Kind::Read)));
        }
    }
}

fn connections(totals: &[(Holder, Totals)], page: &mut Page) {
    type Family = (&'static str, &'static str, &'static str, fn(&Totals) -> u64);
    let families: [Family; 6] = [
        (
            "headwater_connections_total",
            "counter",
            "Sessions (iSCSI) and connections (NBD) that were opened.",
            |totals| totals.connections,
        ),
        ("headwater_reconnects_total", "counter", "Those that came after one had been lost.", |totals| {
            totals.reconnects
        }),
        ("headwater_connections_open", "gauge", "Sessions and connections that are open.", |totals| {
            totals.open
        }),
        ("headwater_requests_in_flight", "gauge", "Requests that came and are not answered yet.", |totals| {
            totals.in_flight
        }),
        (
            "headwater_requests_unanswered_total",
            "counter",
            "Requests that were aborted by the client or cut off with their connection; clients send them again.",
            |totals| totals.unanswered,
        ),
        ("headwater_requests_held_back_total", "counter", "Requests that a limit held back.", |totals| {
            totals.held_back
        }),
    ];
    for (name, kind, help, value) in families {
        page.family(name, kind, help);
        for (holder, totals) in totals {
            page.sample(name, &labels(holder), value(totals));
        }
    }
}

fn latencies(totals: &[(Holder, Totals)], page: &mut Page) {
    const NAME: &str = "headwater_request_duration_seconds";
    page.family(NAME, "histogram", "From a request's last byte to its answer's being queued for the socket.");
    let mut by_vdisk: BTreeMap<(&str, Protocol), Totals> = BTreeMap::new();
    for (holder, totals) in totals {
        by_vdisk.entry((&holder.vdisk, holder.protocol)).or_default().merge(totals);
    }
    let (bucket, sum, count) = (format!("{NAME}_bucket"), format!("{NAME}_sum"), format!("{NAME}_count"));
    for ((vdisk, protocol), totals) in &by_vdisk {
        for (kind, counts) in Kind::ALL.iter().zip(&totals.kinds).filter(|(_, counts)| counts.requests > 0) {
            let labels = [("vdisk", *vdisk), ("protocol", protocol.name()), ("kind", kind.name())];
            let all = counts.latency.count();
            for bound in FIRST_BOUND..=LAST_BOUND {
                let ns = 1_u64 << bound;
                let le = seconds(ns);
                let [a, b, c] = labels;
                page.sample(&bucket, &[a, b, c, ("le", &le)], counts.latency.count_below(ns));
            }
            let [a, b, c] = labels;
            page.sample(&bucket, &[a, b, c, ("le", "+Inf")], all);
            page.sample(&sum, &labels, seconds(counts.latency_ns));
            page.sample(&count, &labels, all);
        }
    }
}

fn write_caches(usages: &[(String, CacheUsage)], page: &mut Page) {
    type Family = (&'static str, &'static str, fn(&CacheUsage) -> u64);
    let families: [Family; 2] = [
        ("headwater_write_cache_used_bytes", "What an open write cache takes.", |usage| usage.used.get()),
        ("headwater_write_cache_limit_bytes", "What it may take.", |usage| usage.limit.get()),
    ];
    for (name, help, value) in families {
        page.family(name, "gauge", help);
        for (device, usage) in usages {
            page.sample(name, &[("device", device)], value(usage));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::DeviceName;
    use meter::{Meter, Request};
    use std::sync::Arc;

    fn page() -> String {
        let meter = Arc::new(Meter::default());
        let mut recorder = meter.open();
        for (latency_us, ok, waited) in [(3, true, false), (5, true, false), (9000, false, true)] {
            recorder.begin();
            let latency = Duration::from_micros(latency_us);
            recorder.record(&Request { kind: Kind::Read, bytes: 4096, latency, ok, waited });
        }
        let holder = Holder {
            device: Some(DeviceName::parse("lab-01").unwrap()),
            vdisk: "a \"b\"\\".to_owned(),
            protocol: Protocol::Nbd,
        };
        let totals = vec![(holder, meter.totals())];
        let admission = Figures { at_once: Some(9), ..Figures::default() };
        let oddities = Counts::default();
        let (uptime, write_caches) = (Duration::from_millis(1500), Vec::new());
        text(&Facts { uptime, admission, oddities, totals, write_caches })
    }

    #[test]
    fn page_holds_what_was_counted_with_labels_escaped() {
        let page = page();
        let labels = r#"{device="lab-01",vdisk="a \"b\"\\",protocol="nbd""#;
        for line in [
            format!(r#"headwater_requests_total{labels},kind="read"}} 3"#),
            format!(r#"headwater_request_bytes_total{labels},kind="read"}} 8192"#),
            format!("headwater_page_cache_misses_total{labels}}} 1"),
            format!("headwater_device_request_seconds_total{labels}}} 0.009008000"),
            r#"headwater_request_duration_seconds_bucket{vdisk="a \"b\"\\",protocol="nbd",kind="read",le="0.000004096"} 1"#
                .to_owned(),
            r#"headwater_request_duration_seconds_bucket{vdisk="a \"b\"\\",protocol="nbd",kind="read",le="+Inf"} 3"#
                .to_owned(),
            "headwater_uptime_seconds 1.500".to_owned(),
        ] {
            assert!(page.lines().any(|found| found == line), "{line}\n{page}");
        }
        assert!(!page.contains("kind=\"flush\""), "nothing was flushed");
    }

    #[test]
    fn every_metric_is_described_and_every_described_one_is_there() {
        let documentation = include_str!("../../../../docs/metrics.md");
        let described: Vec<&str> = documentation
            .lines()
            .filter_map(|line| line.strip_prefix("| `headwater_")?.split('`').next())
            .collect();
        let page = page();
        let told: Vec<&str> = page
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE headwater_")?.split(' ').next())
            .collect();
        assert_eq!(told, described);
    }
}
