//! Does the clock go right? Leases, scheduled releases, tokens and certificates go by it, and servers of one farm may differ by 5 s.
//!
//! Whether it is synchronised is known to the kernel (adjtimex(2), `STA_UNSYNC`). The programs that keep clocks ask it on
//! our behalf: `timedatectl` of systemd tells the kernel's own answer, `chronyc` what chrony has found.
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use super::finding::{Finding, Subject};

/// 2026-01-01: before this program was.
const EARLIEST_UNIX_S: u64 = 1_767_225_600;

/// How far servers of a farm may differ (`docs/design/farm.md`, leases), in seconds.
const MAX_DIFFERENCE_S: f64 = 5.0;

/// What is known of the clock's synchronisation.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Synchronised {
    Yes,
    No,
    /// By chrony, and off by so many seconds.
    By(f64),
    Unknown,
}

pub(super) fn examine() -> Finding {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    judge(now, synchronised())
}

fn synchronised() -> Synchronised {
    let ask = |program: &str, words: &[&str]| {
        let answer = Command::new(program).args(words).output().ok()?;
        answer.status.success().then(|| String::from_utf8_lossy(&answer.stdout).into_owned())
    };
    let by_systemd = ask("timedatectl", &["show", "--property=NTPSynchronized", "--value"]);
    match by_systemd.as_deref().map(str::trim) {
        Some("yes") => return Synchronised::Yes,
        Some("no") => return Synchronised::No,
        _ => {}
    }
    ask("chronyc", &["-n", "-c", "tracking"])
        .and_then(|line| parse_chrony(&line))
        .unwrap_or(Synchronised::Unknown)
}

/// One line of values with commas: reference id, name, stratum, time, system time's offset in seconds, ..., leap status last.
fn parse_chrony(line: &str) -> Option<Synchronised> {
    let words: Vec<&str> = line.trim().split(',').collect();
    let offset: f64 = words.get(4)?.parse().ok()?;
    match *words.last()? {
        "Not synchronised" => Some(Synchronised::No),
        _ if offset.is_finite() => Some(Synchronised::By(offset)),
        _ => None,
    }
}

fn judge(now_unix_s: u64, synchronised: Synchronised) -> Finding {
    if now_unix_s < EARLIEST_UNIX_S {
        return Finding::problem(
            Subject::Clock,
            format!("the clock shows {}", humantime::format_rfc3339_seconds(moment(now_unix_s))),
            "Certificates and tokens are not valid yet, and releases that are over seem to come.",
            "set it (timedatectl set-time), and have it kept: timedatectl set-ntp true",
        );
    }
    let unkept = "Servers of one farm tell each other's leases by it, and may differ by 5 s; scheduled releases come late or early.";
    match synchronised {
        Synchronised::Yes => Finding::ok(Subject::Clock, "the clock is synchronised"),
        Synchronised::By(offset) if offset.abs() < MAX_DIFFERENCE_S => {
            Finding::ok(Subject::Clock, format!("the clock is kept by chrony, and {:.3} s off", offset.abs()))
        }
        Synchronised::By(offset) => Finding::problem(
            Subject::Clock,
            format!("the clock is {:.1} s off, says chrony", offset.abs()),
            unkept,
            "chronyc makestep",
        ),
        Synchronised::No => Finding::warning(
            Subject::Clock,
            "the clock is not synchronised",
            unkept,
            "timedatectl set-ntp true, or install chrony",
        ),
        Synchronised::Unknown => Finding::warning(
            Subject::Clock,
            "whether the clock is synchronised cannot be told: neither timedatectl nor chronyc answers",
            unkept,
            "install chrony or systemd-timesyncd; in a container, look at the host's clock",
        ),
    }
}

fn moment(unix_s: u64) -> SystemTime {
    UNIX_EPOCH.checked_add(std::time::Duration::from_secs(unix_s)).unwrap_or(UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    #[test]
    fn clock_before_this_program_was_made_is_a_problem() {
        assert_eq!(judge(1_000, Synchronised::Yes).level, Level::Problem);
        assert!(judge(1_000, Synchronised::Yes).found.contains("1970-01-01T00:16:40Z"));
        assert_eq!(judge(EARLIEST_UNIX_S, Synchronised::Yes).level, Level::Ok);
    }

    #[test]
    fn clock_is_judged_by_what_keeps_it() {
        let level = |synchronised| judge(EARLIEST_UNIX_S, synchronised).level;
        assert_eq!(level(Synchronised::No), Level::Warning);
        assert_eq!(level(Synchronised::Unknown), Level::Warning);
        assert_eq!(level(Synchronised::By(-0.01)), Level::Ok);
        assert_eq!(level(Synchronised::By(6.0)), Level::Problem);
    }

    #[test]
    fn answers_of_chrony_are_read() {
        let line = |leap: &str| {
            format!("A9FEA97B,169.254.169.123,4,1700000000.1,-0.000012,0.1,0.2,1,2,3,4,5,6,{leap}\n")
        };
        assert_eq!(parse_chrony(&line("Normal")), Some(Synchronised::By(-0.000_012)));
        assert_eq!(parse_chrony(&line("Not synchronised")), Some(Synchronised::No));
        for broken in ["", "506 Cannot talk to daemon", "a,b,c,d,x,Normal", "a,b,c,d,NaN,Normal"] {
            assert_eq!(parse_chrony(broken), None, "{broken}");
        }
    }
}
