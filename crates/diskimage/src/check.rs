//! Checks of an image file against the rules of its format, and the repair of what can be repaired without a guess.
//!
//! A check reads structures, never payload, and goes on behind what it finds: a [`Report`] lists every broken rule
//! with its place. A repair makes the same check, mends what the format keeps twice or what follows from the rest of
//! the file, and says of each finding whether it is mended; it never invents a disk's bytes. The finding codes are
//! listed in `docs/design/vhd.md` and `docs/design/vhdx.md`; a code, once given, keeps its meaning.
use block::ByteOffset;

use crate::error::{Damage, Refusal};
use crate::format::Format;
use crate::storage::{Storage, WritableStorage};
use crate::vhd;
use crate::vhdx;

/// How many findings a report keeps: more tell nobody more, and a hostile file could claim millions.
const MAX_FINDINGS: usize = 256;

/// A rule that a file does not keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What kind of finding this is, in a word that stays the same: `vhd-footer-lost`.
    pub code: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// The structure that breaks the rule, as the specification calls it.
    pub structure: &'static str,
    /// Where in the file that structure begins.
    pub at: ByteOffset,
    /// What was found, and what should have been.
    pub problem: String,
    /// Where the rule is written.
    pub rule: &'static str,
    /// Whether [`repair`] can mend it.
    pub repairable: bool,
    /// Whether a repair has mended it. Never set by a check.
    pub repaired: bool,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Worth knowing; the file is sound.
    Note,
    /// The disk's bytes are all there, but the file breaks a rule: another program may refuse it, or space is lost.
    Warning,
    /// Bytes of the disk are lost, in doubt, or cannot be reached.
    Error,
}

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    findings: Vec<Finding>,
    counts: [u64; 3],
    repaired: u64,
}

/// Checks the image in `storage` against the rules of `format`. A raw image has none.
///
/// # Errors
/// [`Refusal`] where the file cannot be read, or has a feature that is not known here. What is broken is no error but
/// a finding.
pub fn check(storage: &dyn Storage, format: Format) -> Result<Report, Refusal> {
    match format {
        Format::Raw => Ok(Report::default()),
        Format::Vhd => vhd::check(storage),
        Format::Vhdx => vhdx::check(storage),
        Format::Qcow2 | Format::Vmdk => Err(not_checked(format)),
    }
}

/// Checks the image in `storage`, and mends what can be mended without a guess. Nobody else may have it open.
///
/// # Errors
/// As [`check`], and where the file cannot be written. The file is then no worse than it was.
pub fn repair(storage: &dyn WritableStorage, format: Format) -> Result<Report, Refusal> {
    match format {
        Format::Raw => Ok(Report::default()),
        Format::Vhd => vhd::repair(storage),
        Format::Vhdx => vhdx::repair(storage),
        Format::Qcow2 | Format::Vmdk => Err(not_checked(format)),
    }
}

fn not_checked(format: Format) -> Refusal {
    Refusal::unsupported("structure check", format!("the check of a {} image", format.title()))
}

impl Report {
    /// The findings, in the order in which they were made: at most 256, the most severe are not preferred.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// How many findings were made besides those that are kept.
    #[must_use]
    pub fn further(&self) -> u64 {
        let kept = u64::try_from(self.findings.len()).unwrap_or(u64::MAX);
        self.counts.iter().fold(0_u64, |sum, &count| sum.saturating_add(count)).saturating_sub(kept)
    }

    /// How many findings of this severity were made, kept or not.
    #[must_use]
    pub fn count(&self, severity: Severity) -> u64 {
        match severity {
            Severity::Note => self.counts[0],
            Severity::Warning => self.counts[1],
            Severity::Error => self.counts[2],
        }
    }

    /// How many findings a repair has mended, kept or not.
    #[must_use]
    pub fn repaired(&self) -> u64 {
        self.repaired
    }

    /// Whether nothing worse than notes was found.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.count(Severity::Warning) == 0 && self.count(Severity::Error) == 0
    }

    /// Adds a finding.
    pub(crate) fn add(&mut self, finding: Finding) {
        let [notes, warnings, errors] = &mut self.counts;
        let count = match finding.severity {
            Severity::Note => notes,
            Severity::Warning => warnings,
            Severity::Error => errors,
        };
        *count = count.saturating_add(1);
        if finding.repaired {
            self.repaired = self.repaired.saturating_add(1);
        }
        if self.findings.len() < MAX_FINDINGS {
            self.findings.push(finding);
        }
    }
}

impl Finding {
    /// A broken rule that cannot be repaired, until told otherwise.
    pub(crate) fn new(code: &'static str, severity: Severity, damage: Damage) -> Self {
        let Damage { structure, at, problem, rule } = damage;
        Self { code, severity, structure, at, problem, rule, repairable: false, repaired: false }
    }

    /// As it is, but [`repair`] can mend it; it has, if `repaired`.
    #[must_use]
    pub(crate) fn repairable(self, repaired: bool) -> Self {
        Self { repairable: true, repaired, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_keeps_a_bounded_number_of_findings_and_counts_the_rest() {
        let mut report = Report::default();
        for number in 0..1000_u64 {
            let damage = Damage::new("block", number, "rule", "broken");
            report.add(Finding::new("a-code", Severity::Warning, damage).repairable(true));
        }
        report.add(Finding::new("a-code", Severity::Error, Damage::new("block", 0, "rule", "broken")));
        assert_eq!(report.findings().len(), MAX_FINDINGS);
        assert_eq!((report.further(), report.repaired()), (1001 - 256, 1000));
        assert_eq!((report.count(Severity::Warning), report.count(Severity::Error)), (1000, 1));
        assert!(!report.is_clean());
    }

    #[test]
    fn notes_leave_an_image_clean() {
        let mut report = Report::default();
        report.add(Finding::new("a-code", Severity::Note, Damage::new("block", 0, "rule", "odd")));
        assert!(report.is_clean());
        assert_eq!(report.count(Severity::Note), 1);
    }
}
