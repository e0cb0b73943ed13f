//! A boot's timeline as text: what administrators show each other.
//!
//! Three parts: the steps in order, where the time went as bars, and the request sizes of both stages side by side.
use std::fmt::Write as _;

use crate::columns::{align, bytes, columns};

use super::counters::{IoTotals, StageTotals};
use super::findings::findings;
use super::phases::{PhaseName, phases, total};
use super::record::{BootRecord, Protocol, Stage, Status, Step, StepKind, Tftp};
use super::time::Millis;

/// The width of the bars of the phases, in characters.
const PHASE_BAR: usize = 40;

/// The width of the bars of the request sizes.
const SIZE_BAR: usize = 16;

/// The timeline of one boot.
#[must_use]
pub fn boot(record: &BootRecord) -> String {
    let mut text = headline(record);
    text.push_str("\n\n");
    steps(&mut text, record);
    time_went(&mut text, record);
    what_was_slow(&mut text, record);
    sizes(&mut text, record);
    text
}

/// One line for each boot.
#[must_use]
pub fn list(records: &[BootRecord]) -> String {
    let mut rows = vec![columns([
        "DEVICE",
        "BOOT",
        "STARTED (UTC)",
        "VDISK",
        "STATUS",
        "LOGIN ms",
        "HAND-OVER ms",
        "READY ms",
        "READ",
        "WRITTEN",
    ])];
    for record in records {
        let ms = |at: Option<Millis>| at.map_or_else(|| "-".to_owned(), |at| at.to_string());
        let started = record.started_unix_us.to_utc();
        let (read, written) = transferred(record);
        rows.push(columns([
            record.device.as_str(),
            record.id.as_str(),
            started.as_str(),
            record.vdisk.as_str(),
            record.status.as_str(),
            &ms(record.first_login_at()),
            &ms(record.hand_over.map(|hand_over| hand_over.at_ms)),
            &ready(record),
            &bytes(read),
            &bytes(written),
        ]));
    }
    align(&rows, &[5, 6, 7, 8, 9])
}

/// One step, as a line of a followed boot.
#[must_use]
pub fn step_line(record: &BootRecord, step: &Step) -> String {
    let (name, detail) = describe(&step.kind);
    let line = format!("{:<12} {:>9} ms  {name:<22} {detail}", record.device, step.at_ms.to_string());
    line.trim_end().to_owned()
}

/// `ready after 31.9 s`, or how far the boot is.
#[must_use]
pub fn outcome(record: &BootRecord) -> String {
    match (record.ready_at_ms, record.status, &record.end) {
        (Some(at), Status::Ready, _) => format!("ready after {}", seconds(at)),
        (Some(at), status, _) => format!("ready after {}, now {}", seconds(at), status.as_str()),
        (None, _, Some(end)) => format!("ended without a ready beacon: {}", end.why),
        (None, Status::Waiting, _) => "waiting for its first login".to_owned(),
        (None, status, _) => format!("{}, not reported ready", status.as_str()),
    }
}

fn headline(record: &BootRecord) -> String {
    let path = record.path.as_ref().map_or_else(String::new, |path| format!("\npath: {}", path.describe()));
    let mac = record.mac.as_ref().map_or(String::new(), |mac| format!(" ({mac})"));
    format!(
        "{}{mac}  boot {}  vDisk {}  started {} UTC\n{}{path}",
        record.device,
        record.id,
        record.vdisk,
        record.started_unix_us.to_utc(),
        outcome(record)
    )
}

fn steps(text: &mut String, record: &BootRecord) {
    let mut rows = vec![columns(["at ms", "+ ms", "step", ""])];
    let mut before = Millis::default();
    let steps = &record.steps;
    for (index, step) in steps.iter().enumerate() {
        let (name, detail) = describe(&step.kind);
        if let Some(hand_over) = record.hand_over
            && matches!(step.kind, StepKind::Login { stage: Stage::Second, .. })
            && step.at_ms == hand_over.at_ms
        {
            let gap = format!("nothing asked for during {} ms", hand_over.gap_ms);
            rows.push(columns([&step.at_ms.to_string(), "", "hand-over", &gap]));
        }
        let after = Millis::from_us(step.at_ms.us().saturating_sub(before.us()));
        before = step.at_ms;
        rows.push(columns([&step.at_ms.to_string(), &after.to_string(), &name, &detail]));
        if let StepKind::Login { stage, .. } = step.kind
            && !steps.iter().take(index).any(|step| is_login(step, stage))
        {
            stage_rows(&mut rows, stage, record);
        }
    }
    if record.ready_at_ms.is_none() {
        rows.push(columns(["unknown", "", "ready", "the device has sent no POST /v1/ready"]));
    }
    if let Some(end) = &record.end {
        rows.push(columns([&end.at_ms.to_string(), "", "end", &end.why]));
    }
    text.push_str(&align(&rows, &[0, 1]));
    if record.steps_dropped > 0 {
        let _ = writeln!(text, "({} more steps were not kept)", record.steps_dropped);
    }
}

fn is_login(step: &Step, wanted: Stage) -> bool {
    matches!(step.kind, StepKind::Login { stage, .. } if stage == wanted)
}

/// What a stage read and wrote.
fn stage_rows(rows: &mut Vec<Vec<String>>, stage: Stage, record: &BootRecord) {
    let (name, totals) = match stage {
        Stage::First => ("first-stage", &record.first_stage),
        Stage::Second => ("second-stage", &record.second_stage),
    };
    let Some(totals) = totals else { return };
    let mut add = |what: String| rows.push(columns(["", "", "", &what]));
    add(format!("{name} reads: {}{}", io(&totals.reads), throughput(totals)));
    if totals.read_pattern.busy_us > 0 {
        add(format!("{name} reads were {}", pattern(totals)));
    }
    if totals.writes.count > 0 || totals.writes.errors > 0 {
        add(format!("{name} writes: {}", io(&totals.writes)));
    }
    if totals.flushes > 0 || totals.discards > 0 {
        add(format!("{name} flushes: {}, discards: {}", totals.flushes, totals.discards));
    }
}

/// How the reads came.
fn pattern(totals: &StageTotals) -> String {
    let (count, pattern) = (totals.reads.count.max(1), &totals.read_pattern);
    let percent = |part: u64| part.saturating_mul(100).checked_div(count).unwrap_or(0).min(100);
    let mut text = format!(
        "{} % one at a time ({:.1} in flight on average), {} % in order",
        percent(pattern.alone),
        pattern.in_flight_average,
        percent(pattern.sequential)
    );
    if let Some(share) = pattern.again_share() {
        let _ = write!(text, ", {:.0} % of the bytes again", share * 100.0);
    }
    if pattern.slow > 0 {
        let _ = write!(text, ", {} slower than 2 ms", pattern.slow);
    }
    text
}

fn throughput(totals: &StageTotals) -> String {
    if totals.read_bytes_per_second == 0 {
        String::new()
    } else {
        format!(", {}/s", bytes(totals.read_bytes_per_second))
    }
}

fn io(totals: &IoTotals) -> String {
    let average = totals.bytes.checked_div(totals.count).unwrap_or(0);
    let mut text = format!("{} in {} requests", bytes(totals.bytes), totals.count);
    if totals.count > 0 {
        let (mean, max) =
            (Millis::from_us(totals.latency_us_average), Millis::from_us(totals.latency_us_max));
        let _ = write!(text, " of {} on average, latency {mean} ms (max {max})", bytes(average));
    }
    if totals.errors > 0 {
        let _ = write!(text, ", {} FAILED", totals.errors);
    }
    text
}

/// A step's name and the rest of its line.
fn describe(step: &StepKind) -> (String, String) {
    let address = |address: &Option<String>| {
        address.clone().unwrap_or_else(|| "boot information alone (proxy)".to_owned())
    };
    let (name, detail) = match step {
        StepKind::DhcpDiscover { client } => ("DHCP discover", client.clone()),
        StepKind::DhcpOffer { address: offered } => ("DHCP offer", address(offered)),
        StepKind::DhcpRequest { client } => ("DHCP request", client.clone()),
        StepKind::DhcpAck { address: given } => ("DHCP ack", address(given)),
        StepKind::DhcpElsewhere { server } => ("DHCP elsewhere", format!("it took the offer of {server}")),
        StepKind::Queue { place, waited_ms } => {
            let place = place.map_or_else(String::new, |place| format!(", at first at place {place}"));
            ("queue", format!("{waited_ms} ms until its turn{place}"))
        }
        StepKind::BootFile { name, protocol, size_bytes, took_ms, tftp } => {
            let rate = size_bytes.saturating_mul(1_000_000).checked_div(took_ms.us());
            let rate = rate.map_or_else(String::new, |rate| format!(", {}/s", bytes(rate)));
            let (size, protocol) = (bytes(*size_bytes), protocol.to_uppercase());
            let tftp = tftp.map_or_else(String::new, blocks);
            ("boot file", format!("{name}, {size} by {protocol} in {took_ms} ms{rate}{tftp}"))
        }
        StepKind::BootFileLost { name, size_bytes, acknowledged_bytes, took_ms, tftp } => {
            let (part, whole) = (bytes(*acknowledged_bytes), bytes(*size_bytes));
            let tftp = blocks(*tftp);
            (
                "boot file LOST",
                format!("{name}, {part} of {whole} by TFTP, given up after {took_ms} ms{tftp}"),
            )
        }
        StepKind::Menu { entries: 0, wait_s } => {
            ("menu key", format!("{wait_s} s to call for the boot menu"))
        }
        StepKind::Menu { entries, wait_s: 0 } => ("menu", format!("{entries} entries, no time-out")),
        StepKind::Menu { entries, wait_s } => ("menu", format!("{entries} entries, time-out {wait_s} s")),
        StepKind::MenuChoice { choice, how, waited_ms } => {
            ("menu choice", format!("{choice}, {how} after {waited_ms} ms"))
        }
        StepKind::Script => ("script", "iPXE script handed out".to_owned()),
        StepKind::Login { stage: Stage::First, peer, .. } => {
            ("login, first stage", format!("firmware at {peer}"))
        }
        StepKind::Login { stage: Stage::Second, peer, protocol, .. } => {
            let over = match protocol {
                Protocol::Iscsi => "",
                Protocol::Nbd => ", over NBD",
            };
            ("login, second stage", format!("operating system at {peer}{over}"))
        }
        StepKind::SessionEnd { how } => ("session end", how.clone()),
        StepKind::Ready => ("ready", "the device said so (POST /v1/ready)".to_owned()),
        StepKind::ServerRestart => ("server restart", String::new()),
    };
    (name.to_owned(), detail)
}

/// What was negotiated, and what was lost.
fn blocks(tftp: Tftp) -> String {
    let Tftp { block_bytes, window_blocks, resent } = tftp;
    let window = if window_blocks > 1 { format!(" x {window_blocks}") } else { String::new() };
    let resent = if resent > 0 { format!(", {resent} sent again") } else { String::new() };
    format!(", blocks of {block_bytes}{window}{resent}")
}

/// Where the time went until ready, or until the last thing that is known.
fn time_went(text: &mut String, record: &BootRecord) {
    let phases = phases(record);
    let total = total(&phases).us();
    if total == 0 {
        return;
    }
    text.push_str("\nWhere the time went\n");
    let mut rows = Vec::new();
    for phase in &phases {
        let (start, took) = (phase.at_ms.us(), phase.took_ms.us());
        let name = match (phase.name, record.ready_at_ms) {
            (PhaseName::SecondStage, Some(_)) => "second stage to ready",
            (PhaseName::SecondStage, None) => "second stage so far",
            (name, _) => name.as_str(),
        };
        let percent = took.saturating_mul(100).saturating_add(total / 2).checked_div(total).unwrap_or(0);
        let bar = positioned_bar(start, start.saturating_add(took), total);
        rows.push(columns(["", name, &bar, &phase.took_ms.to_string(), "ms", &format!("{percent} %")]));
    }
    text.push_str(&align(&rows, &[3, 5]));
}

/// What was slow, and what helps.
fn what_was_slow(text: &mut String, record: &BootRecord) {
    let found = findings(record);
    if found.is_empty() {
        return;
    }
    text.push_str("\nWhat stands out\n");
    for finding in &found {
        let share = finding.percent.map_or_else(String::new, |percent| format!("{percent} %"));
        let _ = writeln!(text, "  {share:>5}  {}", finding.what);
        if let Some(advice) = &finding.advice {
            let _ = writeln!(text, "         -> {advice}");
        }
    }
}

/// A bar from start to end on a line that stands for `total`.
fn positioned_bar(start: u64, end: u64, total: u64) -> String {
    let width = PHASE_BAR as u64;
    let place =
        |at: u64| usize::try_from(at.saturating_mul(width).checked_div(total).unwrap_or(0)).unwrap_or(0);
    let (from, to) = (place(start).min(PHASE_BAR - 1), place(end).min(PHASE_BAR));
    let length = to.saturating_sub(from).max(1);
    let rest = PHASE_BAR.saturating_sub(from).saturating_sub(length);
    format!("{}{}{}", "·".repeat(from), "█".repeat(length), "·".repeat(rest))
}

fn sizes(text: &mut String, record: &BootRecord) {
    let none = IoTotals::default();
    let reads = |stage: &Option<StageTotals>| stage.as_ref().map(|stage| stage.reads.clone());
    let first = reads(&record.first_stage).unwrap_or_else(|| none.clone());
    let second = reads(&record.second_stage).unwrap_or_else(|| none.clone());
    let writes = record
        .second_stage
        .as_ref()
        .or(record.first_stage.as_ref())
        .map_or(none, |stage| stage.writes.clone());
    let of = |totals: &IoTotals, size: u64| {
        totals.sizes.iter().find(|s| s.up_to_bytes == size).map_or(0, |s| s.count)
    };
    let lists = [("first-stage reads", first), ("second-stage reads", second), ("writes", writes)];
    let shown: Vec<&(&str, IoTotals)> = lists.iter().filter(|(_, totals)| totals.count > 0).collect();
    let mut all: Vec<u64> =
        shown.iter().flat_map(|(_, totals)| totals.sizes.iter().map(|s| s.up_to_bytes)).collect();
    all.sort_unstable();
    let (Some(low), Some(high)) = (all.first(), all.last()) else { return };
    let mut rows = vec![vec![String::new(), "up to".to_owned()]];
    if let Some(head) = rows.first_mut() {
        for (name, _) in &shown {
            head.extend([(*name).to_owned(), String::new()]);
        }
    }
    let mut size = *low;
    while size <= *high {
        let mut row = vec![String::new(), bytes(size)];
        for (_, totals) in &shown {
            let most = totals.sizes.iter().map(|s| s.count).max().unwrap_or(0);
            let count = of(totals, size);
            row.extend([eighths(count, most), if count == 0 { String::new() } else { count.to_string() }]);
        }
        rows.push(row);
        size = size.saturating_mul(2);
    }
    text.push_str("\nRequest sizes (requests)\n");
    text.push_str(&align(&rows, &[1, 3, 5, 7]));
}

/// A bar of block elements whose full width stands for `most`; whatever is not zero shows.
fn eighths(count: u64, most: u64) -> String {
    let units = u64::try_from(SIZE_BAR.saturating_mul(8)).unwrap_or(0);
    let filled = count.saturating_mul(units).checked_div(most).unwrap_or(0);
    let filled = usize::try_from(filled).unwrap_or(0).max(usize::from(count > 0));
    let rest = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"].get(filled % 8).copied().unwrap_or("");
    let bar = "█".repeat(filled / 8) + rest;
    format!("{bar:<SIZE_BAR$}")
}

fn transferred(record: &BootRecord) -> (u64, u64) {
    let stages = [&record.first_stage, &record.second_stage];
    stages.into_iter().flatten().fold((0, 0), |(read, written): (u64, u64), stage| {
        (read.saturating_add(stage.reads.bytes), written.saturating_add(stage.writes.bytes))
    })
}

fn ready(record: &BootRecord) -> String {
    record.ready_at_ms.map_or_else(|| "unknown".to_owned(), |at| at.to_string())
}

fn seconds(at: Millis) -> String {
    format!("{:.1} s", at.as_f64() / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::Moment;
    use crate::timeline::counters::{Kind, StageCounters};
    use crate::timeline::record::{Login, Program};
    use std::time::Duration;

    fn at(ms: u64) -> Moment {
        Moment::from_unix_us(1_795_236_426_000_000 + ms * 1000)
    }

    fn range(offset: u64, length: u64) -> block::ByteRange {
        block::ByteRange::new(block::ByteOffset::new(offset), block::ByteLength::new(length)).unwrap()
    }

    /// A boot with round figures.
    fn sample() -> BootRecord {
        let mut boot =
            BootRecord::begin("0k3v", "lab-01", "debian", "iqn.2026-11.org.headwater:lab-01:b0k3v", at(0));
        boot.mac = Some("52:54:00:77:00:10".into());
        boot.step(at(0), StepKind::DhcpDiscover { client: "BIOS PXE".into() });
        boot.step(at(1), StepKind::DhcpOffer { address: Some("10.77.0.100".into()) });
        let file = StepKind::BootFile {
            name: "undionly.kpxe".into(),
            protocol: "tftp".into(),
            size_bytes: 71_680,
            took_ms: Millis::from_us(90_500),
            tftp: Some(Tftp { block_bytes: 1428, window_blocks: 1, resent: 2 }),
        };
        boot.step(at(400), file);
        boot.step(at(2000), StepKind::Script);
        let (first, second) = (StageCounters::default(), StageCounters::default());
        let login = |isid, first_stage_last| Login {
            program: Program::Initiator(isid),
            peer: "10.77.0.100:4711".parse().ok(),
            first_stage_last,
        };
        boot.login(at(2100), login([0x40, 0, 0x27, 0x23, 0, 1], None));
        for index in 0..100 {
            first.record(
                at(2100 + index * 80),
                Kind::Read,
                range(index << 14, 4096 << (index % 3)),
                Duration::from_micros(150),
                true,
            );
        }
        let last = first.last();
        boot.login(at(12_000), login([0, 2, 0x3d, 0, 0, 1], last));
        boot.session_end(at(12_000), "replaced by another session");
        second.record(at(12_100), Kind::Read, range(0, 131_072), Duration::from_micros(900), true);
        second.record(at(19_000), Kind::Write, range(0, 4096), Duration::from_micros(80), true);
        boot.ready(at(20_000));
        boot.first_stage = first.totals(at(0));
        boot.second_stage = second.totals(at(0));
        boot
    }

    #[test]
    fn timeline_of_a_whole_boot_reads_as_intended() {
        let expected = include_str!("table_sample.txt");
        assert_eq!(boot(&sample()), expected, "\n{}", boot(&sample()));
    }

    #[test]
    fn boot_without_a_beacon_says_unknown() {
        let mut record = sample();
        record.ready_at_ms = None;
        record.steps.retain(|step| step.kind != StepKind::Ready);
        let text = boot(&record);
        assert!(text.contains("unknown        ready"), "{text}");
        assert!(text.contains("second stage so far"), "{text}");
    }

    #[test]
    fn boot_that_nobody_logged_in_to_shows_no_phases() {
        let mut record = BootRecord::begin("1", "a", "d", "t", at(0));
        record.step(at(0), StepKind::Script);
        let text = boot(&record);
        assert!(!text.contains("Where the time went"), "{text}");
        assert!(text.contains("waiting for its first login"), "{text}");
    }

    #[test]
    fn list_has_a_line_for_each_boot() {
        let text = list(&[sample()]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(lines[1].starts_with("lab-01  0k3v  2026-11-21 "), "{text}");
        assert!(lines[1].ends_with("20000  1.0 MiB  4.0 KiB"), "{text}");
    }
}
