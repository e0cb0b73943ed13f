//! What one run of a program costs.
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::run::show;

/// The time from start to end, and the most memory that it held.
pub(super) struct Cost {
    pub(super) seconds: f64,
    pub(super) peak_mib: f64,
}

/// Seconds of a run.
///
/// # Errors
/// Where it cannot be started, or fails.
pub(super) fn time(command: &mut Command) -> Result<f64> {
    let shown = show(command);
    let start = Instant::now();
    let status = command.stdout(Stdio::null()).status().with_context(|| format!("cannot start {shown}"))?;
    let seconds = start.elapsed().as_secs_f64();
    if !status.success() {
        bail!("{shown} failed: {status}");
    }
    Ok(seconds)
}

/// Seconds and memory of a run. The memory is measured in a run of its own, by time(1).
///
/// # Errors
/// Those of [`time`].
pub(super) fn cost(command: &mut Command) -> Result<Cost> {
    let mut measured = Command::new("/usr/bin/time");
    measured.args(["-f", "peak %M KiB"]).arg(command.get_program()).args(command.get_args());
    let output = measured.output().context("cannot start /usr/bin/time")?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let kib =
        text.lines().find_map(|line| line.strip_prefix("peak ")?.strip_suffix(" KiB")?.parse::<u32>().ok());
    let kib = kib.with_context(|| format!("time(1) printed no figure:\n{text}"))?;
    Ok(Cost { seconds: time(command)?, peak_mib: f64::from(kib) / 1024.0 })
}
