//! `task`: work in the background, and waiting for it.
use std::io::IsTerminal;
use std::time::Duration;

use anyhow::bail;
use hyper::Method;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::Value;

use super::Server;
use super::nouns::TASK;
use crate::cli::{Format, TaskVerb};

/// How often a task is looked at that is watched.
const LOOK_EVERY: Duration = Duration::from_millis(300);

/// States that a task does not leave.
const ENDED: &[&str] = &["done", "failed", "cancelled"];

impl Server {
    pub(super) async fn task(&self, verb: TaskVerb) -> anyhow::Result<String> {
        match verb {
            TaskVerb::List(list) => self.latest(&TASK, &list).await,
            TaskVerb::Show { number } => self.show(&TASK, &format!("#{number}")).await,
            TaskVerb::Watch { number } => self.watch(number).await,
            TaskVerb::Cancel { number } => {
                let path = format!("{}/{number}/cancel", TASK.path);
                self.row(&TASK, &self.ask(Method::POST, &path, None).await?)
            }
            TaskVerb::Log { number } => {
                let log: Value = self.client.get(&format!("{}/{number}/log", TASK.path)).await?;
                match self.format {
                    Format::Json => Ok(serde_json::to_string_pretty(&log)? + "\n"),
                    Format::Table | Format::Csv => Ok(log_lines(&log).concat()),
                }
            }
        }
    }

    /// A task that was begun: its number, or, where that was asked for, its end.
    pub(super) async fn begun(&self, task: &Value, wait: bool) -> anyhow::Result<String> {
        match task.get("id").and_then(Value::as_u64).filter(|_| wait) {
            Some(number) => self.watch(number).await,
            None => self.row(&TASK, task),
        }
    }

    /// Shows how far a task is until it ends; the task as it ended.
    async fn watch(&self, number: u64) -> anyhow::Result<String> {
        let path = format!("{}/{number}", TASK.path);
        let bar = ProgressBar::hidden();
        if std::io::stderr().is_terminal() {
            bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        bar.set_style(ProgressStyle::with_template("{msg} [{wide_bar}] {percent}% {eta} left")?);
        let mut told = 0_u64;
        loop {
            let task: Value = self.client.get(&path).await?;
            let count = |key: &str| task.get(key).and_then(Value::as_u64).unwrap_or(0);
            bar.set_length(count("total").max(1));
            bar.set_position(count("done"));
            bar.set_message(text(&task, "kind").to_owned());
            let log: Value = self.client.get(&format!("{path}/log?from={told}")).await?;
            for line in log_lines(&log) {
                bar.suspend(|| eprint!("{line}"));
                told = told.saturating_add(1);
            }
            let state = text(&task, "state");
            if ENDED.contains(&state) {
                bar.finish_and_clear();
                if state != "done" {
                    let why = Some(text(&task, "result")).filter(|why| *why != state);
                    let why = why.map(|why| format!(": {why}")).unwrap_or_default();
                    bail!("task {number} ({}) {state}{why}", text(&task, "kind"));
                }
                return self.row(&TASK, &task);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn log_lines(log: &Value) -> Vec<String> {
    let lines = log.get("lines").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    lines
        .iter()
        .map(|line| format!("{}  {}\n", text(line, "at"), crate::columns::name(text(line, "text"))))
        .collect()
}
