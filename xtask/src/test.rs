//! `cargo xtask test`: everything that must hold before a change lands.
//!
//! The steps run in order of cost, and all of them run even when one fails, so that one run shows everything that is
//! broken. The last line counts tests: `N passed, N failed`.
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::run::{cargo, run, show};
use crate::tidy;

/// What to test.
#[derive(Args)]
pub(crate) struct TestArguments {
    /// Leave out what boots virtual machines (several minutes)
    #[arg(long)]
    no_boots: bool,
    /// Run only tests whose name contains this
    filter: Option<String>,
}

/// The tests that boot virtual machines: a target that `cargo test` alone leaves out.
const BOOTS: &[&str] = &["--package", "headwater", "--test", "boots"];

#[derive(Default)]
struct Tally {
    passed: u64,
    failed: u64,
    broken_steps: Vec<String>,
}

/// Runs every check and test.
///
/// # Errors
/// Where one of them failed.
pub(crate) fn test(arguments: &TestArguments) -> Result<()> {
    let started = Instant::now();
    let mut tally = Tally::default();
    tally.step("packages", || lab::packages::ensure(lab::packages::TEST));
    if arguments.filter.is_none() {
        tally.step("formatting", || run(&mut cargo(&["fmt", "--all", "--check"])));
        let clippy = ["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"];
        tally.step("clippy", || run(&mut cargo(&clippy)));
        tally.step("tidy", tidy::tidy);
        tally.step("documentation", || {
            run(cargo(&["doc", "--workspace", "--no-deps", "--quiet"]).env("RUSTDOCFLAGS", "--deny warnings"))
        });
    }
    let filter = arguments.filter.as_deref();
    tally.tests("unit tests, conformance, fuzz smokes, interop", &["--workspace"], filter);
    if !arguments.no_boots {
        tally.tests("boots of virtual machines", BOOTS, filter);
    }
    println!("\nfinished in {} s", started.elapsed().as_secs());
    for step in &tally.broken_steps {
        println!("FAILED: {step}");
    }
    println!("{} passed, {} failed", tally.passed, tally.failed);
    if tally.failed > 0 || !tally.broken_steps.is_empty() {
        bail!("{} test(s) and {} step(s) failed", tally.failed, tally.broken_steps.len());
    }
    Ok(())
}

impl Tally {
    fn step(&mut self, name: &str, work: impl FnOnce() -> Result<()>) {
        println!("\n=== {name}");
        let started = Instant::now();
        match work() {
            Ok(()) => println!("=== {name}: done in {:.1} s", started.elapsed().as_secs_f32()),
            Err(error) => {
                println!("=== {name}: FAILED: {error:#}");
                self.broken_steps.push(name.to_owned());
            }
        }
    }

    fn tests(&mut self, name: &str, selection: &[&str], filter: Option<&str>) {
        let mut command = cargo(&["test", "--no-fail-fast"]);
        command.args(selection).args(filter);
        let mut counts = (0, 0);
        self.step(name, || counted(&mut command, &mut counts));
        self.passed += counts.0;
        self.failed += counts.1;
    }
}

/// Runs `cargo test`, shows its output, and adds up its closing lines.
fn counted(command: &mut Command, counts: &mut (u64, u64)) -> Result<()> {
    let shown = show(command);
    println!("{shown}");
    let mut child =
        command.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot start {shown}"))?;
    let output = child.stdout.take().context("no standard output")?;
    for line in BufReader::new(output).split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        println!("{line}");
        std::io::stdout().flush()?;
        if let Some((passed, failed)) = closing_line(&line) {
            counts.0 += passed;
            counts.1 += failed;
        }
    }
    let status = child.wait()?;
    if !status.success() {
        bail!("{shown} failed: {status}");
    }
    Ok(())
}

/// Reads `test result: ok. 12 passed; 0 failed; ...`.
fn closing_line(line: &str) -> Option<(u64, u64)> {
    let counts = line.strip_prefix("test result: ")?.split_once(". ")?.1;
    let mut numbers = counts.split("; ").filter_map(|part| part.split(' ').next()?.parse().ok());
    Some((numbers.next()?, numbers.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_line_of_a_test_run_is_read() {
        let line = "test result: FAILED. 12 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s";
        assert_eq!(closing_line(line), Some((12, 3)));
        assert_eq!(closing_line("test a ... ok"), None);
    }
}
