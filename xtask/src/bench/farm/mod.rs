//! `cargo xtask bench farm`: the catalogue and the snapshot at the size of a large farm, and a server on them.
//!
//! There is no peer that runs here. What is asked of us stands in the peer's column, and for the decision what a logon of
//! the proprietary system was measured to take: 16 stored procedures, 670 ms.
mod served;

use anyhow::{Context, Result};
use clap::Args;
use serde_json::Value;

use super::{Aim, Measure};
use crate::run::{cargo, output, target};

/// How large the farm is.
#[derive(Args)]
pub(crate) struct FarmArguments {
    /// Devices of the farm
    #[arg(long, default_value_t = 10_000)]
    devices: u32,
    /// Rounds of each list and search
    #[arg(long, default_value_t = 40)]
    rounds: u32,
}

const ASKED: &str = "what is asked";
const PROPRIETARY: &str = "a logon of the proprietary system";

/// Of which measure (the beginning of its name), what it is compared with.
const LIMITS: &[(&str, f64, &str)] = &[
    ("boot decision: median", 670_000.0, PROPRIETARY),
    ("boot decision", 5000.0, ASKED),
    ("snapshot: kept current", 50.0, ASKED),
    ("snapshot", 1000.0, ASKED),
    ("last known state", 1000.0, ASKED),
    ("import", 10.0, ASKED),
    ("export", 10.0, ASKED),
    // Lists and searches.
    ("", 50.0, ASKED),
];

/// Measures.
///
/// # Errors
/// Where the program for it does not build or fails.
pub(crate) fn measure(arguments: &FarmArguments) -> Result<Vec<Measure>> {
    let mut figures =
        cargo(&["run", "--quiet", "--release", "--package", "farm", "--example", "figures", "--"]);
    let folder = target().join("bench-farm");
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    std::fs::create_dir_all(&folder)?;
    figures.args([arguments.devices.to_string(), arguments.rounds.to_string()]).arg(&folder);
    let mut measures = output(&mut figures)?.lines().map(read).collect::<Result<Vec<Measure>>>()?;
    measures.extend(served::measure(&folder, arguments)?);
    Ok(measures)
}

fn read(line: &str) -> Result<Measure> {
    let figure: Value = serde_json::from_str(line).with_context(|| format!("no figure: {line}"))?;
    let measure = figure["measure"].as_str().context("a figure without a name")?.to_owned();
    let ours = figure["value"].as_f64().context("a figure without a value")?;
    let unit = match figure["unit"].as_str() {
        Some("us") => "us",
        Some("ms") => "ms",
        _ => "s",
    };
    let limit = LIMITS.iter().find(|(start, ..)| measure.starts_with(start));
    let (_, peer, peer_name) = *limit.context("a figure without a limit")?;
    Ok(Measure { measure, ours, peer, peer_name: peer_name.to_owned(), unit, aim: Aim::AtMost(1.0) })
}
