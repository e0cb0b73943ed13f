//! What was found: where, how bad it is, what it means and how to mend it.
use ::api::host::{FindingLevel, HostFinding};
use serde::Serialize;

use crate::columns::name;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Level {
    /// As it should be.
    Ok,
    /// The server runs; something will be slower, harder or less safe than it could be, or could not be looked at.
    Warning,
    /// The server does not start, or devices do not boot.
    Problem,
}

/// What was looked at. The words are those of the output, and stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Subject {
    Configuration,
    Privileges,
    OpenFiles,
    Ports,
    Interfaces,
    Firewall,
    Dhcp,
    BootFiles,
    Storage,
    Clock,
    Catalogue,
    Versions,
}

impl Subject {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Configuration => "configuration",
            Self::Privileges => "privileges",
            Self::OpenFiles => "open-files",
            Self::Ports => "ports",
            Self::Interfaces => "interfaces",
            Self::Firewall => "firewall",
            Self::Dhcp => "dhcp",
            Self::BootFiles => "boot-files",
            Self::Storage => "storage",
            Self::Clock => "clock",
            Self::Catalogue => "catalogue",
            Self::Versions => "versions",
        }
    }
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    /// What was looked at.
    pub(super) subject: Subject,
    /// How bad it is.
    pub(super) level: Level,
    /// What was found, with the object's name.
    pub(super) found: String,
    /// What it means; nothing to say where all is well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) meaning: Option<String>,
    /// How to mend it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) mend: Option<String>,
}

impl Finding {
    pub(super) fn ok(subject: Subject, found: impl Into<String>) -> Self {
        Self { subject, level: Level::Ok, found: found.into(), meaning: None, mend: None }
    }

    pub(super) fn warning(
        subject: Subject,
        found: impl Into<String>,
        meaning: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        Self {
            subject,
            level: Level::Warning,
            found: found.into(),
            meaning: Some(meaning.into()),
            mend: Some(mend.into()),
        }
    }

    /// As the running server answers it.
    pub(super) fn told(self) -> HostFinding {
        let level = match self.level {
            Level::Ok => FindingLevel::Ok,
            Level::Warning => FindingLevel::Warning,
            Level::Problem => FindingLevel::Problem,
        };
        let Self { subject, found, meaning, mend, .. } = self;
        HostFinding { subject: subject.word().to_owned(), level, found, meaning, mend }
    }

    pub(super) fn problem(
        subject: Subject,
        found: impl Into<String>,
        meaning: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        Self { level: Level::Problem, ..Self::warning(subject, found, meaning, mend) }
    }
}

/// All findings as text: a line each, and what it means and how to mend it below.
pub(super) fn table(findings: &[Finding]) -> String {
    const INDENT: &str = "                        ";
    let mut text = String::new();
    for finding in findings {
        let level = match finding.level {
            Level::Ok => "ok",
            Level::Warning => "warning",
            Level::Problem => "problem",
        };
        let found = indented(&finding.found, INDENT);
        text.push_str(&format!("{level:<8}{:<16}{found}\n", finding.subject.word()));
        if let Some(meaning) = &finding.meaning {
            text.push_str(&format!("{INDENT}{}\n", indented(meaning, INDENT)));
        }
        if let Some(mend) = &finding.mend {
            text.push_str(&format!("{INDENT}to mend: {}\n", indented(mend, INDENT)));
        }
    }
    let count = |level| findings.iter().filter(|finding| finding.level == level).count();
    let (problems, warnings) = (count(Level::Problem), count(Level::Warning));
    let plural = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    text.push_str(&format!(
        "{} and {} in {}\n",
        plural(problems, "problem"),
        plural(warnings, "warning"),
        plural(findings.len(), "finding")
    ));
    text
}

/// Lines below the first one begin where it does; names in them move no cursor.
fn indented(text: &str, indent: &str) -> String {
    let lines: Vec<_> = text.lines().map(name).collect();
    lines.join(&format!("\n{indent}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_says_what_was_found_what_it_means_and_how_to_mend_it() {
        let findings = [
            Finding::ok(Subject::Clock, "synchronised"),
            Finding::problem(Subject::Ports, "taken\nby others", "nothing boots", "stop them"),
        ];
        assert_eq!(
            table(&findings),
            "ok      clock           synchronised\n\
             problem ports           taken\n                        by others\n                        nothing boots\n\
             \x20                       to mend: stop them\n1 problem and 0 warnings in 2 findings\n"
        );
    }
}
