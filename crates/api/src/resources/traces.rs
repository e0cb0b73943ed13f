//! Recording the block requests of a device.
use axum::http::StatusCode;
use farm::model::DeviceName;
use farm::rules::permission::Action;

use super::live::known;
use crate::asked::Asked;
use crate::live::{TraceStatus, TraceWanted};
use crate::operation::{Operation, ParameterKind};
use crate::problem::Problem;
use crate::reply::Reply;

/// The longest recording: a week.
const MAX_SECONDS: u64 = 7 * 24 * 3600;

const TABLE: &str = "text/csv; charset=utf-8";

pub(super) fn all() -> Vec<Operation> {
    let path = "/v1/devices/{device}/trace";
    vec![
        Operation::post(
            format!("{path}/start"),
            "startTrace",
            "devices",
            "Begins to record the block requests of a device. What was recorded of it before is gone.",
            start,
        )
        .query("next_boot", ParameterKind::Flag, "records its next boot, and nothing before")
        .query("until_ready", ParameterKind::Flag, "ends when the device says that it is ready")
        .query("seconds", ParameterKind::Number(1, MAX_SECONDS), "ends after so many seconds")
        .gives::<TraceStatus>(),
        Operation::post(
            format!("{path}/stop"),
            "stopTrace",
            "devices",
            "Ends the recording of a device's block requests.",
            stop,
        )
        .gives::<TraceStatus>(),
        Operation::get(path, "getTrace", "devices", "Tells how far the recording of a device is.", status)
            .gives::<TraceStatus>(),
        Operation::get(
            format!("{path}/table"),
            "getTraceTable",
            "devices",
            "Gives what was recorded of a device, as docs/trace.md describes it.",
            table,
        )
        .gives_text("text/csv"),
    ]
}

fn start(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let name = known(asked, Action::Operate)?;
    let wanted = TraceWanted {
        next_boot: asked.flag("next_boot")?,
        until_ready: asked.flag("until_ready")?,
        seconds: asked.wanted("seconds", "a number of seconds")?,
    };
    if wanted.seconds.is_some_and(|seconds| !(1..=MAX_SECONDS).contains(&seconds)) {
        let message = format!("seconds: a number from 1 to {MAX_SECONDS}");
        return Err(Problem::new(StatusCode::BAD_REQUEST, "bad-value", message).field("seconds"));
    }
    Reply::json(&asked.api.live.trace_start(&name, &wanted)?)
}

fn stop(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let name = known(asked, Action::Operate)?;
    Reply::json(&asked.api.live.trace_stop(&name).ok_or_else(|| none(&name))?)
}

fn status(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let name = known(asked, Action::See)?;
    Reply::json(&asked.api.live.trace(&name).ok_or_else(|| none(&name))?)
}

fn table(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let name = known(asked, Action::See)?;
    let text = asked.api.live.trace_table(&name)?;
    Ok(Reply::text(TABLE, text.ok_or_else(|| none(&name))?))
}

fn none(name: &DeviceName) -> Problem {
    Problem::not_found(format!("nothing was recorded of device {name} since this server started"))
}
