//! `headwater stats`: what the disks are doing now. Two looks at the server's counters, and what lies between them.
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::time::Duration;

use meter::{Histogram, KindTotals};
use serde::Serialize;

use super::client::Client;
use crate::admin::api::{AccountAnswer, KindAnswer, StatsAnswer};
use crate::cli::{Output, StatsArgs};
use crate::columns::{align, columns};

/// The most rows that are drawn again and again: a screen. The busiest come first.
const MAX_DRAWN: usize = 40;

/// What one row tells, by the second.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct Row {
    device: Option<String>,
    vdisk: String,
    protocol: String,
    /// `None`: all kinds together.
    kind: Option<String>,
    requests_per_second: f64,
    read_bytes_per_second: f64,
    written_bytes_per_second: f64,
    latency_us_p50: Option<f64>,
    latency_us_p99: Option<f64>,
    latency_us_p999: Option<f64>,
    /// Of reads; `None` where there were none.
    page_cache_hit_share: Option<f64>,
    queue_depth: f64,
    held_back_per_second: f64,
    errors_per_second: f64,
    connections_open: u64,
    reconnects: u64,
}

/// Runs the command: prints by itself while it watches, else gives what is to be printed.
///
/// # Errors
/// In words for the administrator.
pub async fn run(args: StatsArgs) -> anyhow::Result<String> {
    let client = Client::new(&args.client.reach)?;
    let interval = Duration::from_secs_f64(args.interval);
    let mut before: StatsAnswer = client.get("/v1/stats").await?;
    let mut out = std::io::stdout();
    let mut drawn_lines = 0;
    loop {
        tokio::time::sleep(interval).await;
        let now: StatsAnswer = client.get("/v1/stats").await?;
        let rows = rows(&before, &now, args.device.as_deref());
        if args.device.is_some() && rows.is_empty() {
            anyhow::bail!("nothing was ever asked for by a device \"{}\"", args.device.unwrap_or_default());
        }
        let text = match args.client.output {
            Output::Json => serde_json::to_string(&rows)? + "\n",
            Output::Table => table(&rows, if args.watch { MAX_DRAWN } else { usize::MAX }),
        };
        if !args.watch {
            return Ok(text);
        }
        if drawn_lines > 0 {
            write!(out, "\x1b[{drawn_lines}A\x1b[J")?;
        }
        write!(out, "{text}")?;
        out.flush()?;
        if out.is_terminal() && args.client.output == Output::Table {
            drawn_lines = text.lines().count();
        }
        before = now;
    }
}

/// A row for everyone who did something or is connected, the busiest first; of one device alone, a row for each kind.
fn rows(before: &StatsAnswer, now: &StatsAnswer, device: Option<&str>) -> Vec<Row> {
    let seconds = now.uptime_us.saturating_sub(before.uptime_us).max(1) as f64 / 1e6;
    let key =
        |account: &AccountAnswer| (account.device.clone(), account.vdisk.clone(), account.protocol.clone());
    let old: BTreeMap<_, _> = before.accounts.iter().map(|account| (key(account), account)).collect();
    let mut rows = Vec::new();
    let wanted =
        now.accounts.iter().filter(|account| device.is_none() || account.device.as_deref() == device);
    for account in wanted {
        let earlier = old.get(&key(account)).copied();
        let mut all = row(account, earlier, None, seconds);
        if device.is_some() {
            rows.extend(account.kinds.keys().map(|kind| row(account, earlier, Some(kind), seconds)));
            all.kind = Some("all".to_owned());
            rows.push(all);
        } else if all.requests_per_second > 0.0 || account.connections_open > 0 {
            rows.push(all);
        }
    }
    if device.is_none() {
        rows.sort_by(|a, b| b.requests_per_second.total_cmp(&a.requests_per_second));
    }
    rows
}

fn row(now: &AccountAnswer, before: Option<&AccountAnswer>, kind: Option<&str>, seconds: f64) -> Row {
    let difference = |kind: &str| {
        let counts = |account: &AccountAnswer| account.kinds.get(kind).map(totals).unwrap_or_default();
        counts(now).since(&before.map(counts).unwrap_or_default())
    };
    let mut sum = KindTotals::default();
    now.kinds
        .keys()
        .filter(|name| kind.is_none_or(|kind| *name == kind))
        .for_each(|name| sum.merge(&difference(name)));
    let moved = |name: &str| if kind.is_none_or(|kind| kind == name) { difference(name).bytes } else { 0 };
    let reads =
        if kind.is_none_or(|kind| kind == "read") { difference("read") } else { KindTotals::default() };
    let a_second = |count: u64| count as f64 / seconds;
    let us = |per_mille| sum.latency.quantile_ns(per_mille).map(|ns| ns as f64 / 1000.0);
    let held_back = now.held_back.saturating_sub(before.map_or(0, |before| before.held_back));
    Row {
        device: now.device.clone(),
        vdisk: now.vdisk.clone(),
        protocol: now.protocol.clone(),
        kind: kind.map(str::to_owned),
        requests_per_second: a_second(sum.requests),
        read_bytes_per_second: a_second(moved("read")),
        written_bytes_per_second: a_second(moved("write")),
        latency_us_p50: us(500),
        latency_us_p99: us(990),
        latency_us_p999: us(999),
        page_cache_hit_share: (reads.requests > 0).then(|| 1.0 - reads.waited as f64 / reads.requests as f64),
        queue_depth: sum.latency_ns as f64 / 1e9 / seconds,
        held_back_per_second: if kind.is_none() { a_second(held_back) } else { 0.0 },
        errors_per_second: a_second(sum.errors),
        connections_open: now.connections_open,
        reconnects: now.reconnects,
    }
}

fn totals(answer: &KindAnswer) -> KindTotals {
    KindTotals {
        requests: answer.requests,
        errors: answer.errors,
        bytes: answer.bytes,
        waited: answer.waited,
        latency_ns: answer.latency_ns,
        latency: Histogram::from_counts(answer.latency_buckets.iter().copied()),
    }
}

fn table(rows: &[Row], most: usize) -> String {
    let mut cells = vec![columns([
        "DEVICE",
        "VDISK",
        "VIA",
        "KIND",
        "REQ/s",
        "READ MiB/s",
        "WRITE MiB/s",
        "P50 us",
        "P99 us",
        "P99.9 us",
        "HITS",
        "DEPTH",
        "HELD/s",
        "ERR/s",
    ])];
    let mib = |bytes: f64| format!("{:.1}", bytes / f64::from(1 << 20));
    let us = |latency: Option<f64>| latency.map_or("-".to_owned(), |us| format!("{us:.0}"));
    for row in rows.iter().take(most) {
        cells.push(columns([
            row.device.as_deref().unwrap_or("(readers)"),
            &row.vdisk,
            &row.protocol,
            row.kind.as_deref().unwrap_or("all"),
            &format!("{:.0}", row.requests_per_second),
            &mib(row.read_bytes_per_second),
            &mib(row.written_bytes_per_second),
            &us(row.latency_us_p50),
            &us(row.latency_us_p99),
            &us(row.latency_us_p999),
            &row.page_cache_hit_share.map_or("-".to_owned(), |share| format!("{:.1}%", share * 100.0)),
            &format!("{:.2}", row.queue_depth),
            &format!("{:.0}", row.held_back_per_second),
            &format!("{:.0}", row.errors_per_second),
        ]));
    }
    let mut text = align(&cells, &[4, 5, 6, 7, 8, 9, 10, 11, 12, 13]);
    if let Some(more) = rows.len().checked_sub(most).filter(|more| *more > 0) {
        text.push_str(&format!("and {more} more\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(uptime_us: u64, requests: u64) -> StatsAnswer {
        // Bucket 25 begins at 8192 ns and ends at 9216.
        let reads = KindAnswer {
            requests,
            errors: 0,
            bytes: requests << 12,
            waited: requests / 4,
            latency_ns: requests * 500_000,
            latency_buckets: vec![(25, requests)],
        };
        let account = AccountAnswer {
            device: Some("lab-01".to_owned()),
            vdisk: "win11".to_owned(),
            protocol: "iscsi".to_owned(),
            connections: 1,
            reconnects: 0,
            connections_open: 1,
            in_flight: 0,
            unanswered: 0,
            held_back: 0,
            kinds: BTreeMap::from([("read".to_owned(), reads)]),
        };
        StatsAnswer { uptime_us, accounts: vec![account] }
    }

    #[test]
    fn row_tells_what_came_between_two_looks_by_the_second() {
        let (before, now) = (answer(1_000_000, 1000), answer(3_000_000, 9000));
        let rows = rows(&before, &now, None);
        let [row] = rows.as_slice() else { panic!("{rows:?}") };
        assert_eq!((row.requests_per_second, row.read_bytes_per_second), (4000.0, 4000.0 * 4096.0));
        assert_eq!((row.queue_depth, row.page_cache_hit_share), (2.0, Some(0.75)));
        assert!(row.latency_us_p50.is_some_and(|us| (8.192..=9.216).contains(&us)), "{row:?}");
        let text = table(&rows, 1);
        assert!(text.contains("lab-01  win11  iscsi  all    4000        15.6          0.0"), "{text}");
        assert_eq!(super::rows(&before, &now, Some("lab-01")).len(), 2, "one kind and all");
        assert_eq!(super::rows(&before, &now, Some("lab-02")), []);
    }
}
