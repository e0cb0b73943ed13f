//! `headwater trace show`: what a trace shows, as text.
use std::fmt::Write as _;

use trace::summary::{Group, HOT_BYTES, Summary, summary};
use trace::{Kind, Stage, Trace};

use super::load;
use crate::cli::ShowArgs;
use crate::columns::{align, bytes, columns};
use crate::commands::boots::print;
use crate::timeline::Millis;

/// The sizes of a group that are shown, most frequent first.
const MOST_SIZES: usize = 6;

/// What a trace shows, with its header.
#[derive(serde::Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    header: &'a trace::Header,
    requests: usize,
    #[serde(flatten)]
    summary: Summary,
}

/// What a trace shows.
pub(super) fn show(args: &ShowArgs) -> anyhow::Result<String> {
    let trace = load(&args.file)?;
    let shown =
        Shown { header: &trace.header, requests: trace.requests.len(), summary: summary(&trace, args.most) };
    print(&shown, args.output, |shown| text(&trace, &shown.summary))
}

fn text(trace: &Trace, summary: &Summary) -> String {
    let mut text = format!(
        "{}\n{} requests in {} ms\n\n",
        trace.header.title,
        trace.requests.len(),
        Millis::from_us(summary.duration_us)
    );
    text.push_str(&groups(&summary.groups));
    text.push_str("\nSizes, most frequent first\n");
    for group in &summary.groups {
        let mut sizes: Vec<(u64, u64)> = group.sizes.iter().map(|(size, count)| (*count, *size)).collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        let shown: Vec<String> = sizes
            .iter()
            .take(MOST_SIZES)
            .map(|(count, size)| format!("{count} x {}", bytes(*size)))
            .collect();
        let more = sizes.len().saturating_sub(MOST_SIZES);
        let more = if more > 0 { format!(", {more} more sizes") } else { String::new() };
        let _ = writeln!(text, "  {}: {}{more}", name(group.stage, group.kind), shown.join(", "));
    }
    if !summary.pauses.is_empty() {
        text.push_str("\nLongest pauses\n");
        let mut rows = vec![columns(["", "at ms", "ms", "before"])];
        for pause in &summary.pauses {
            let (at, length) = (Millis::from_us(pause.at_us), Millis::from_us(pause.length_us));
            rows.push(columns(["", &at.to_string(), &length.to_string(), stage(pause.before)]));
        }
        text.push_str(&align(&rows, &[1, 2]));
    }
    if !summary.hot.is_empty() {
        let _ = write!(text, "\nHot ranges, in pieces of {}\n", bytes(HOT_BYTES));
        let mut rows = vec![columns(["", "offset", "reads", "read", "times", "first stage"])];
        for hot in &summary.hot {
            rows.push(columns([
                "",
                &bytes(hot.offset),
                &hot.reads.to_string(),
                &bytes(hot.bytes),
                &times(hot.bytes),
                &bytes(hot.first_stage_bytes),
            ]));
        }
        text.push_str(&align(&rows, &[1, 2, 3, 4, 5]));
    }
    text
}

fn groups(groups: &[Group]) -> String {
    let mut rows = vec![columns([
        "REQUESTS", "COUNT", "BYTES", "DISTINCT", "IN ORDER", "RUNS", "ALONE", "DEPTH", "MAX", "P50 ms",
        "P99 ms", "MAX ms", "FAILED",
    ])];
    for group in groups {
        let share = |part: u64| {
            let percent = part.saturating_mul(100).checked_div(group.count).unwrap_or(0);
            format!("{percent} %")
        };
        let ms = |us: u64| Millis::from_us(us).to_string();
        rows.push(columns([
            &name(group.stage, group.kind),
            &group.count.to_string(),
            &bytes(group.bytes),
            &bytes(group.distinct_bytes),
            &share(group.sequential),
            &group.runs.to_string(),
            &share(group.alone),
            &format!("{:.1}", group.depth_average),
            &group.depth_max.to_string(),
            &ms(group.latency_us.p50),
            &ms(group.latency_us.p99),
            &ms(group.latency_us.max),
            &group.failed.to_string(),
        ]));
    }
    align(&rows, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12])
}

fn name(of: Stage, kind: Kind) -> String {
    format!("{}, {}", stage(of), kind.as_str())
}

fn stage(stage: Stage) -> &'static str {
    match stage {
        Stage::First => "first stage",
        Stage::Second => "second stage",
    }
}

/// How often a piece was read whole, on average.
#[allow(clippy::cast_precision_loss, reason = "one decimal is shown")]
fn times(read: u64) -> String {
    format!("{:.1}", read as f64 / HOT_BYTES as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace::{Header, Request};

    #[test]
    fn trace_as_text_reads_as_intended() {
        let read = |at_us: u64, offset, stage| Request {
            at_us,
            kind: Kind::Read,
            offset,
            length: 4096,
            stage,
            latency_us: 50,
            ok: true,
        };
        let mut requests: Vec<Request> = (0..4).map(|n| read(n * 100, n * 4096, Stage::First)).collect();
        requests.push(read(2_000_000, 0, Stage::Second));
        let trace = Trace { header: Header { title: "lab-01".into(), ..Header::default() }, requests };
        let expected = "\
lab-01
5 requests in 2000 ms

REQUESTS            COUNT     BYTES  DISTINCT  IN ORDER  RUNS  ALONE  DEPTH  MAX  P50 ms  P99 ms  MAX ms  FAILED
first stage, read       4  16.0 KiB  16.0 KiB      75 %     1  100 %    1.0    1    0.05    0.05    0.05       0
second stage, read      1   4.0 KiB   4.0 KiB       0 %     1  100 %    1.0    1    0.05    0.05    0.05       0

Sizes, most frequent first
  first stage, read: 4 x 4.0 KiB
  second stage, read: 1 x 4.0 KiB

Longest pauses
  at ms    ms  before
   0.35  2000  second stage

Hot ranges, in pieces of 1.0 MiB
  offset  reads      read  times  first stage
     0 B      5  20.0 KiB    0.0     16.0 KiB
";
        let found = text(&trace, &summary(&trace, 3));
        assert_eq!(found, expected, "\n{found}");
    }
}
