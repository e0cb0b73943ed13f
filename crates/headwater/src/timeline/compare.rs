//! Two boots side by side: what they booted and by which way, and how long and how much each part took.
use serde::{Deserialize, Serialize};

use super::counters::StageTotals;
use super::phases::{PhaseName, kernel_files, phases, total};
use super::record::{BootRecord, Protocol, Step, StepKind};
use super::time::Millis;
use crate::columns::{align, bytes, columns};

/// Two boots side by side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The first.
    pub a: Side,
    /// The second.
    pub b: Side,
    /// What both have as figures.
    pub rows: Vec<Row>,
}

/// What was booted, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Side {
    /// The boot's id.
    pub boot: String,
    /// The device.
    pub device: String,
    /// When it began.
    pub started_utc: String,
    /// The vDisk.
    pub vdisk: String,
    /// Its version; 0: the base.
    pub version: Option<u64>,
    /// From the firmware to the disk: `BIOS PXE, undionly.kpxe by TFTP, iPXE, iSCSI`.
    pub path: String,
}

/// One figure of both.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// What it is.
    pub figure: String,
    /// In what.
    pub unit: Unit,
    /// Of the first boot; none: it has none.
    pub a: Option<f64>,
    /// Of the second boot.
    pub b: Option<f64>,
    /// `b` less `a`.
    pub difference: Option<f64>,
    /// The difference in percent of `a`.
    pub percent: Option<f64>,
}

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Milliseconds.
    Ms,
    /// Bytes.
    Bytes,
    /// Things.
    Count,
    /// Hundredths.
    Percent,
}

/// Two boots side by side.
#[must_use]
pub fn compare(a: &BootRecord, b: &BootRecord) -> Comparison {
    let mut rows = Vec::new();
    let mut add = |figure: &str, unit, of: &dyn Fn(&BootRecord) -> Option<f64>| {
        let (a, b) = (of(a), of(b));
        if a.or(b).is_none() {
            return;
        }
        let difference = a.zip(b).map(|(a, b)| b - a);
        let percent = a.filter(|a| *a > 0.0).zip(difference).map(|(a, difference)| 100.0 * difference / a);
        rows.push(Row { figure: figure.to_owned(), unit, a, b, difference, percent });
    };
    for name in PhaseName::ALL {
        add(name.as_str(), Unit::Ms, &|record| {
            let phases = phases(record);
            let took = phases.iter().find(|phase| phase.name == name).map(|phase| phase.took_ms);
            took.map(Millis::as_f64)
        });
    }
    add("all of it", Unit::Ms, &|record| {
        let total = total(&phases(record));
        (total > Millis::default()).then(|| total.as_f64())
    });
    add("ready", Unit::Ms, &|record| record.ready_at_ms.map(Millis::as_f64));
    add("boot files", Unit::Bytes, &|record| Some(count(files(record, false))));
    add("kernel and initramfs", Unit::Bytes, &|record| {
        Some(count(files(record, true))).filter(|bytes| *bytes > 0.0)
    });
    stage_rows(&mut add, "first stage", &|record| record.first_stage.as_ref());
    stage_rows(&mut add, "second stage", &|record| {
        let started = record.hand_over.is_some();
        record.until_ready.as_ref().filter(|_| started).or(record.second_stage.as_ref())
    });
    Comparison { a: side(a), b: side(b), rows }
}

type Add<'a> = dyn FnMut(&str, Unit, &dyn Fn(&BootRecord) -> Option<f64>) + 'a;

/// What a stage read and wrote.
fn stage_rows(add: &mut Add<'_>, name: &str, of: &dyn for<'a> Fn(&'a BootRecord) -> Option<&'a StageTotals>) {
    let mut figure = |figure: &str, unit, value: &dyn Fn(&StageTotals) -> Option<f64>| {
        add(&format!("{name}: {figure}"), unit, &|record| of(record).and_then(value));
    };
    figure("reads", Unit::Count, &|stage| Some(count(stage.reads.count)));
    figure("read", Unit::Bytes, &|stage| Some(count(stage.reads.bytes)));
    figure("average read", Unit::Bytes, &|stage| stage.reads.bytes.checked_div(stage.reads.count).map(count));
    let share = |part: u64, stage: &StageTotals| {
        // Records of older servers have no pattern.
        let known = stage.read_pattern.busy_us > 0 && stage.reads.count > 0;
        known.then(|| 100.0 * count(part) / count(stage.reads.count))
    };
    figure("reads one at a time", Unit::Percent, &|stage| share(stage.read_pattern.alone, stage));
    figure("reads in order", Unit::Percent, &|stage| share(stage.read_pattern.sequential, stage));
    figure("read again", Unit::Percent, &|stage| stage.read_pattern.again_share().map(|share| 100.0 * share));
    figure("server's share", Unit::Ms, &|stage| Some(count(stage.reads.latency_us_total) / 1000.0));
    figure("written", Unit::Bytes, &|stage| Some(count(stage.writes.bytes)));
}

/// From the firmware to the disk.
#[must_use]
pub fn path(record: &BootRecord) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut add = |part: String| {
        if !parts.contains(&part) {
            parts.push(part);
        }
    };
    let until = record.hand_over.map_or(Millis::from_us(u64::MAX), |hand_over| hand_over.at_ms);
    let mut is_past_script = false;
    for step in record.steps.iter().filter(|step| step.at_ms < until) {
        match &step.kind {
            StepKind::DhcpDiscover { client } | StepKind::DhcpRequest { client } if !is_past_script => {
                add(client.clone());
            }
            StepKind::BootFile { name, protocol, .. } if !is_past_script => {
                add(format!("{name} by {}", protocol.to_uppercase()));
            }
            StepKind::Script => is_past_script = true,
            _ => {}
        }
    }
    if kernel_files(record).next().is_some() {
        add("kernel over HTTP".to_owned());
    }
    let last = record.steps.iter().rev().find_map(|step| match step.kind {
        StepKind::Login { protocol, .. } => Some(protocol),
        _ => None,
    });
    match last {
        Some(Protocol::Iscsi) => add("iSCSI".to_owned()),
        Some(Protocol::Nbd) => add("NBD".to_owned()),
        None => {}
    }
    parts.join(", ")
}

/// Both boots as text, with differences.
#[must_use]
pub fn table(comparison: &Comparison) -> String {
    let Comparison { a, b, .. } = comparison;
    let version = |side: &Side| side.version.map_or_else(|| "-".to_owned(), |version| version.to_string());
    let facts = [
        columns(["", "A", "B"]),
        columns(["boot", &a.boot, &b.boot]),
        columns(["device", &a.device, &b.device]),
        columns(["started (UTC)", &a.started_utc, &b.started_utc]),
        columns(["vDisk", &a.vdisk, &b.vdisk]),
        columns(["version", &version(a), &version(b)]),
        columns(["path", &a.path, &b.path]),
    ];
    let mut rows = vec![columns(["", "A", "B", "B - A", "%"])];
    for row in &comparison.rows {
        let value = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| show(value, row.unit));
        let difference = row.difference.map_or_else(String::new, |difference| {
            let sign = if difference < 0.0 { "-" } else { "+" };
            format!("{sign}{}", show(difference.abs(), row.unit))
        });
        let percent = row.percent.map_or_else(String::new, |percent| format!("{percent:+.0}"));
        rows.push(columns([&row.figure, &value(row.a), &value(row.b), &difference, &percent]));
    }
    align(&facts, &[]) + "\n" + &align(&rows, &[1, 2, 3, 4])
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "figures are positive and far below 2^53"
)]
fn show(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Ms => format!("{} ms", Millis::from_us((value * 1000.0).round() as u64)),
        Unit::Bytes => bytes(value as u64),
        Unit::Count => format!("{value:.0}"),
        Unit::Percent => format!("{value:.0} %"),
    }
}

#[allow(clippy::cast_precision_loss, reason = "figures of boots are far below 2^53")]
fn count(value: u64) -> f64 {
    value as f64
}

fn side(record: &BootRecord) -> Side {
    Side {
        boot: record.id.clone(),
        device: record.device.clone(),
        started_utc: record.started_unix_us.to_utc(),
        vdisk: record.vdisk.clone(),
        version: record.version,
        path: path(record),
    }
}

/// The bytes of the files before the script, or of kernel and initramfs.
fn files(record: &BootRecord, of_kernel: bool) -> u64 {
    let is_kernel = |step: &Step| kernel_files(record).any(|kernel| kernel == step);
    let own = record.steps.iter().filter(|step| is_kernel(step) == of_kernel);
    let size = |kind: &StepKind| match kind {
        StepKind::BootFile { size_bytes, .. } => *size_bytes,
        _ => 0,
    };
    own.map(|step| size(&step.kind)).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BIOS: &str = include_str!("samples/bios_micro.json");

    fn record(text: &str) -> BootRecord {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn boot_compared_with_itself_differs_in_nothing() {
        let boot = record(BIOS);
        let found = compare(&boot, &boot);
        assert_eq!(found.a, found.b);
        assert!(found.rows.iter().all(|row| row.difference == Some(0.0)), "{found:?}");
        assert!(found.rows.len() > 10);
    }

    #[test]
    fn differences_are_told_in_units_and_percent() {
        let (a, mut b) = (record(BIOS), record(BIOS));
        let at = a.ready_at_ms.unwrap();
        b.ready_at_ms = Some(Millis::from_us(at.us() / 2));
        b.version = Some(3);
        let found = compare(&a, &b);
        let ready = found.rows.iter().find(|row| row.figure == "ready").unwrap();
        assert_eq!(ready.percent.map(f64::round), Some(-50.0));
        let text = table(&found);
        assert!(text.contains("-50"), "{text}");
        assert!(text.contains("path           iPXE, iSCSI"), "{text}");
    }

    #[test]
    fn figures_that_one_boot_alone_has_are_shown_without_a_difference() {
        let (a, mut b) = (record(BIOS), record(BIOS));
        b.first_stage = None;
        let found = compare(&a, &b);
        let reads = found.rows.iter().find(|row| row.figure == "first stage: reads").unwrap();
        assert_eq!((reads.b, reads.difference, reads.percent), (None, None, None));
        assert!(table(&found).contains('-'));
    }
}
