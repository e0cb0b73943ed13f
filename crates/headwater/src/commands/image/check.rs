//! `headwater image check`: is the file sound?
use std::fmt::Write as _;

use anyhow::{Context, bail};
use diskimage::storage::{EditLock, FileStorage, Storage};
use diskimage::{Finding, Format, Report, Severity, check};
use serde::Serialize;

use super::print;
use crate::cli::{CheckArgs, ImageOptions};
use crate::columns::name;
use crate::commands::{Answer, Verdict};

/// How many findings are shown to people.
const SHOWN_FINDINGS: usize = 20;

/// A check, as programs read it.
#[derive(Debug, Serialize)]
struct CheckAnswer {
    file: String,
    format: String,
    #[serde(skip)]
    title: &'static str,
    errors: u64,
    warnings: u64,
    notes: u64,
    repaired: u64,
    findings: Vec<FindingAnswer>,
    /// Findings that were counted and not kept.
    further: u64,
}

/// One finding.
#[derive(Debug, Serialize)]
struct FindingAnswer {
    code: &'static str,
    severity: &'static str,
    structure: &'static str,
    offset: u64,
    problem: String,
    rule: &'static str,
    repairable: bool,
    repaired: bool,
}

pub(super) fn run(args: &CheckArgs, options: &ImageOptions) -> anyhow::Result<Answer> {
    let (format, report) = look(args).with_context(|| format!("{:?} cannot be checked", args.file))?;
    let answer = CheckAnswer::of(args, format, &report);
    let left = answer.findings.iter().filter(|finding| finding.severity == "error" && !finding.repaired);
    let verdict = if answer.errors == 0 || left.count() == 0 { Verdict::Yes } else { Verdict::No };
    Ok(Answer { text: print(&answer, options, text)?, verdict })
}

/// Refuses a format whose structures are not checked here, and says what is to be had instead.
fn refuse_unchecked(format: Format) -> anyhow::Result<()> {
    match format {
        Format::Raw | Format::Vhd | Format::Vhdx => Ok(()),
        Format::Qcow2 | Format::Vmdk => bail!(
            "it is {}, and only VHDX, VHD and raw images are checked; to read all of it, convert it with --verify",
            format.title()
        ),
    }
}

fn look(args: &CheckArgs) -> anyhow::Result<(Format, Report)> {
    let format = |storage: &dyn Storage| match args.format {
        Some(format) => Ok(format),
        None => Format::recognise(storage, &args.file),
    };
    if args.repair {
        let _lock = EditLock::take(&args.file)?;
        let storage = FileStorage::open_writable(&args.file)?;
        let format = format(&storage)?;
        refuse_unchecked(format)?;
        Ok((format, check::repair(&storage, format)?))
    } else {
        let storage = FileStorage::open(&args.file)?;
        let format = format(&storage)?;
        refuse_unchecked(format)?;
        Ok((format, check::check(&storage, format)?))
    }
}

impl CheckAnswer {
    fn of(args: &CheckArgs, format: Format, report: &Report) -> Self {
        Self {
            file: args.file.display().to_string(),
            format: format.to_string(),
            title: format.title(),
            errors: report.count(Severity::Error),
            warnings: report.count(Severity::Warning),
            notes: report.count(Severity::Note),
            repaired: report.repaired(),
            findings: report.findings().iter().map(FindingAnswer::of).collect(),
            further: report.further(),
        }
    }
}

impl FindingAnswer {
    fn of(finding: &Finding) -> Self {
        Self {
            code: finding.code,
            severity: match finding.severity {
                Severity::Note => "note",
                Severity::Warning => "warning",
                Severity::Error => "error",
            },
            structure: finding.structure,
            offset: finding.at.get(),
            problem: finding.problem.clone(),
            rule: finding.rule,
            repairable: finding.repairable,
            repaired: finding.repaired,
        }
    }
}

fn text(check: &CheckAnswer) -> String {
    let mut text = String::new();
    for finding in check.findings.iter().take(SHOWN_FINDINGS) {
        let fate = match (finding.repaired, finding.repairable) {
            (true, _) => " [repaired]",
            (false, true) => " [--repair mends this]",
            (false, false) => "",
        };
        let _ = writeln!(
            text,
            "{}: {} at {:#x}: {}{fate}\n    {}, {}",
            finding.severity, finding.structure, finding.offset, finding.problem, finding.code, finding.rule
        );
    }
    let hidden = check.findings.len().saturating_sub(SHOWN_FINDINGS);
    let hidden = check.further.saturating_add(u64::try_from(hidden).unwrap_or(u64::MAX));
    if hidden > 0 {
        let _ = writeln!(
            text,
            "and {} (--output json lists up to 256)",
            counted(hidden, "finding more", "findings more")
        );
    }
    let summary = match (check.errors, check.warnings) {
        (0, 0) => "sound".to_owned(),
        (errors, warnings) => {
            format!("{}, {}", counted(errors, "error", "errors"), counted(warnings, "warning", "warnings"))
        }
    };
    let repaired = if check.repaired > 0 { format!(", {} repaired", check.repaired) } else { String::new() };
    let _ = writeln!(text, "{}: {}, {summary}{repaired}", name(&check.file), check.title);
    text
}

fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}
