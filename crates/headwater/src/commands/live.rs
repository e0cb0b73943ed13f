//! `headwater boots follow`: on a terminal a table that is drawn again and again, else one line for each step.
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};

use super::client::{Client, Lines};
use crate::cli::Output;
use crate::columns::{align, bytes, columns};
use crate::timeline::record::{Status, Step, StepKind};
use crate::timeline::{BootRecord, Clock, Moment, table};

/// The most boots that are drawn: a screen.
const MAX_DRAWN: usize = 40;

/// Follows until the server ends or Ctrl-C.
pub(super) async fn follow(client: &Client, output: Output) -> anyhow::Result<()> {
    let lines = client.lines("/v1/boots/follow").await?;
    let mut out = std::io::stdout();
    match output {
        Output::Json => raw(lines, &mut out).await,
        Output::Table if out.is_terminal() => draw(lines, &mut out).await,
        Output::Table => print_steps(lines, &mut out).await,
    }
}

async fn raw(mut lines: Lines, out: &mut impl Write) -> anyhow::Result<()> {
    while let Some(line) = lines.next().await? {
        out.write_all(&line)?;
        out.flush()?;
    }
    Ok(())
}

async fn draw(mut lines: Lines, out: &mut impl Write) -> anyhow::Result<()> {
    let clock = Clock::start();
    let mut boots: BTreeMap<String, BootRecord> = BTreeMap::new();
    let mut drawn_lines = 0;
    writeln!(out, "following boots; Ctrl-C ends")?;
    while let Some(line) = lines.next().await? {
        let record: BootRecord = serde_json::from_slice(&line)?;
        // One row a device: its latest boot, or the one that still runs while a new script waits.
        let replaces = boots.get(&record.device).is_none_or(|old| old.id <= record.id || old.end.is_some());
        if replaces {
            boots.insert(record.device.clone(), record);
        }
        let text = screen(boots.values().take(MAX_DRAWN), clock.now());
        if drawn_lines > 0 {
            write!(out, "\x1b[{drawn_lines}A\x1b[J")?;
        }
        write!(out, "{text}")?;
        out.flush()?;
        drawn_lines = text.lines().count();
    }
    Ok(())
}

async fn print_steps(mut lines: Lines, out: &mut impl Write) -> anyhow::Result<()> {
    let begun = Clock::start().now();
    let mut seen: BTreeMap<String, BootRecord> = BTreeMap::new();
    while let Some(line) = lines.next().await? {
        let record: BootRecord = serde_json::from_slice(&line)?;
        for text in news(seen.get(&record.id), &record, begun) {
            writeln!(out, "{text}")?;
        }
        out.flush()?;
        if record.end.is_some() {
            seen.remove(&record.id);
        } else {
            seen.insert(record.id.clone(), record);
        }
    }
    Ok(())
}

/// What is new in a boot since it was last seen. Of one that was under way when following began, the past is one line.
fn news(before: Option<&BootRecord>, now: &BootRecord, begun: Moment) -> Vec<String> {
    let mut lines = Vec::new();
    let old_steps: &[Step] = before.map_or(&[], |before| &before.steps);
    let was_under_way = before.is_none()
        && now.started_unix_us.after(now.steps.last().map_or_else(Default::default, |step| step.at_ms))
            < begun;
    if was_under_way {
        lines.push(format!("{:<12} {}", now.device, table::outcome(now)));
    } else {
        for step in now.steps.iter().filter(|step| !old_steps.contains(step)) {
            if matches!(step.kind, StepKind::Login { .. }) {
                lines.extend(hand_over_line(before, now));
            }
            lines.push(table::step_line(now, step));
        }
    }
    if let Some(end) = &now.end {
        lines.push(format!(
            "{:<12} {:>9} ms  end                    {}",
            now.device,
            end.at_ms.to_string(),
            end.why
        ));
    }
    lines
}

fn hand_over_line(before: Option<&BootRecord>, now: &BootRecord) -> Option<String> {
    let hand_over = now.hand_over.filter(|_| before.is_none_or(|before| before.hand_over.is_none()))?;
    let at = hand_over.at_ms.to_string();
    Some(format!(
        "{:<12} {at:>9} ms  hand-over              nothing asked for during {} ms",
        now.device, hand_over.gap_ms
    ))
}

/// The table of boots under way.
fn screen<'a>(boots: impl Iterator<Item = &'a BootRecord>, now: Moment) -> String {
    let head = ["DEVICE", "BOOT", "PROGRESS", "STATUS", "TIME s", "READ", "AVG", "READ/s", "WRITTEN"];
    let mut rows = vec![columns(head)];
    for boot in boots {
        let stage = boot.second_stage.as_ref().or(boot.first_stage.as_ref());
        let read: u64 =
            [&boot.first_stage, &boot.second_stage].into_iter().flatten().map(|s| s.reads.bytes).sum();
        let written: u64 =
            [&boot.first_stage, &boot.second_stage].into_iter().flatten().map(|s| s.writes.bytes).sum();
        let average = stage.map_or(0, |stage| stage.reads.bytes.checked_div(stage.reads.count).unwrap_or(0));
        let elapsed =
            boot.ready_at_ms.or(boot.end.as_ref().map(|end| end.at_ms)).unwrap_or_else(|| boot.relative(now));
        rows.push(columns([
            &boot.device,
            &boot.id,
            &milestones(boot),
            boot.status.as_str(),
            &format!("{:.1}", elapsed.as_f64() / 1000.0),
            &bytes(read),
            &bytes(average),
            &bytes(stage.map_or(0, |stage| stage.read_bytes_per_second)),
            &bytes(written),
        ]));
    }
    align(&rows, &[4, 5, 6, 7, 8])
}

/// DHCP, boot file, script, first login, hand-over, ready: a filled mark for each that has come.
fn milestones(boot: &BootRecord) -> String {
    let has = |wanted: fn(&StepKind) -> bool| boot.steps.iter().any(|step| wanted(&step.kind));
    let come = [
        has(|step| matches!(step, StepKind::DhcpDiscover { .. } | StepKind::DhcpRequest { .. })),
        has(|step| matches!(step, StepKind::BootFile { .. })),
        has(|step| matches!(step, StepKind::Script)),
        boot.status != Status::Waiting && boot.first_login_at().is_some(),
        boot.hand_over.is_some(),
        boot.ready_at_ms.is_some(),
    ];
    come.into_iter().map(|come| if come { '●' } else { '○' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::Millis;
    use crate::timeline::record::{Login, Program};

    fn at(ms: u64) -> Moment {
        Moment::from_unix_us(5_000_000).after(Millis::from_us(ms * 1000))
    }

    fn boot() -> BootRecord {
        let mut boot = BootRecord::begin("b1", "lab-01", "debian", "t", at(0));
        boot.step(at(0), StepKind::Script);
        boot
    }

    #[test]
    fn each_step_is_printed_once_and_the_hand_over_before_its_login() {
        let before = boot();
        assert_eq!(
            news(None, &before, at(0)),
            ["lab-01               0 ms  script                 iPXE script handed out"]
        );
        let mut now = before.clone();
        let peer = "10.0.0.9:3000".parse().ok();
        now.login(
            at(100),
            Login { program: Program::Initiator([0x40, 0, 0, 0, 0, 0]), peer, first_stage_last: None },
        );
        let middle = now.clone();
        now.login(
            at(900),
            Login { program: Program::Initiator([0; 6]), peer, first_stage_last: Some(at(400)) },
        );
        assert_eq!(news(Some(&before), &middle, at(0)).len(), 1);
        let lines = news(Some(&middle), &now, at(0));
        assert!(lines[0].contains("hand-over") && lines[0].ends_with("during 500 ms"), "{lines:?}");
        assert!(lines[1].contains("login, second stage"), "{lines:?}");
        assert!(news(Some(&now), &now, at(0)).is_empty());
    }

    #[test]
    fn boot_that_was_under_way_is_one_line() {
        assert_eq!(news(None, &boot(), at(9)), ["lab-01       waiting for its first login"]);
    }

    #[test]
    fn screen_shows_progress_as_marks() {
        let text = screen([&boot()].into_iter(), at(1500));
        assert!(text.contains("○○●○○○    waiting     1.5"), "{text}");
    }
}
