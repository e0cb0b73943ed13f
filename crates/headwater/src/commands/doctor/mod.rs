//! `headwater doctor`: looks at the host, and says of each finding what it means and how to mend it.
//!
//! It needs no server, and does not disturb one that runs. What belongs to the server that runs is told apart from what
//! is in its way. Nothing is changed; on the file systems it tries with small files of its own, which it removes.
mod boot_files;
mod catalogue;
mod clock;
mod dhcp;
mod finding;
mod firewall;
mod interfaces;
mod needs;
pub mod network;
mod ports;
mod privileges;
mod silent_drops;
mod sockets;
mod storage;

use std::path::Path;

use ::api::host::{FindingLevel, HostFinding, HostReport};
use serde::Serialize;

use super::{Answer, Verdict};
use crate::cli::{DoctorArgs, Output};
use crate::config::{Config, parse};
use finding::{Finding, Level, Subject};

/// The answer in JSON.
#[derive(Serialize)]
struct Report<'a> {
    /// The configuration that was looked at.
    config: &'a Path,
    problems: usize,
    warnings: usize,
    findings: &'a [Finding],
}

/// Runs the command; what it prints. Where there are problems, the verdict is no.
///
/// # Errors
/// None is expected: what cannot be looked at is a finding.
pub fn run(args: &DoctorArgs) -> anyhow::Result<Answer> {
    let findings = examine(&args.config, !args.no_dhcp);
    let count = |level| findings.iter().filter(|finding| finding.level == level).count();
    let (problems, warnings) = (count(Level::Problem), count(Level::Warning));
    let text = match args.output {
        Output::Table => finding::table(&findings),
        Output::Json => {
            let report = Report { config: &args.config, problems, warnings, findings: &findings };
            serde_json::to_string_pretty(&report)? + "\n"
        }
    };
    Ok(Answer { text, verdict: if problems == 0 { Verdict::Yes } else { Verdict::No } })
}

/// The same for whoever asks the running server: what was found at the moment `at`.
pub(crate) fn look(config: &Path, dhcp: bool, at: String) -> HostReport {
    let findings: Vec<HostFinding> = examine(config, dhcp).into_iter().map(Finding::told).collect();
    let count = |level| findings.iter().filter(|finding| finding.level == level).count();
    HostReport {
        at,
        config: config.display().to_string(),
        problems: count(FindingLevel::Problem),
        warnings: count(FindingLevel::Warning),
        findings,
    }
}

fn examine(path: &Path, dhcp: bool) -> Vec<Finding> {
    let (found, config) = configuration(path);
    let mut findings = found;
    // Where it cannot be read, the host is looked at for the defaults.
    let Some(config) = config.or_else(|| parse("", path).ok()) else { return findings };
    let listeners = needs::listeners(&config);
    findings.push(privileges::examine(&listeners));
    findings.push(privileges::open_files(&config));
    findings.extend(interfaces::examine(&config));
    findings.extend(silent_drops::examine());
    findings.extend(ports::examine(&listeners));
    findings.extend(firewall::examine(&listeners));
    if dhcp {
        findings.extend(dhcp::examine(&config.interfaces));
    }
    findings.extend(boot_files::examine(&config));
    findings.push(clock::examine());
    let server = crate::catalogue::server_name(&config).map(String::from).unwrap_or_default();
    let (found, contents) = catalogue::examine(&config.state_dir.join(super::CATALOGUE_FILE), &server);
    findings.extend(found);
    let mut places = storage::own_places(&config);
    places.extend(contents.iter().flat_map(catalogue::Contents::places));
    findings.extend(places.iter().flat_map(storage::examine));
    findings.extend(contents.iter().flat_map(catalogue::Contents::versions));
    findings
}

/// A finding for each mistake in the configuration, each with its line and column.
fn configuration(path: &Path) -> (Vec<Finding>, Option<Config>) {
    let shown = path.display();
    if !path.exists() {
        let absent = Finding::problem(
            Subject::Configuration,
            format!("{shown} is not there; what follows is for the default settings"),
            "The server does not start.",
            "headwater init makes one; --config names another place",
        );
        return (vec![absent], None);
    }
    match Config::load(path) {
        Ok(config) => (vec![Finding::ok(Subject::Configuration, format!("{shown} is sound"))], Some(config)),
        Err(problems) => {
            let mistakes = problems.to_string();
            let finding = |line: &str| {
                Finding::problem(
                    Subject::Configuration,
                    line,
                    "The server does not start.",
                    "mend the line; headwater serve --check-config looks at it again",
                )
            };
            (mistakes.lines().map(finding).collect(), None)
        }
    }
}
