//! Recording the block requests of devices.
use std::fs::File;
use std::io::Read as _;

use ::api::live::{TraceStatus, TraceWanted};
use control::{Code, ControlError};

use super::Admin;
use crate::config::DeviceName;
use crate::timeline::tracer::{Subject, TracePhase, TraceState, Wanted};

/// The longest file that is handed out. Longer ones are fetched from the server's folder.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// Begins to record a device, or waits for its next boot.
pub(super) fn start(
    admin: &Admin,
    name: &farm::model::DeviceName,
    wanted: &TraceWanted,
) -> Result<TraceStatus, ControlError> {
    let unknown = || ControlError::new(Code::NotFound, format!("there is no device \"{name}\""));
    let device = DeviceName::parse(name.as_str()).map_err(|_| unknown())?;
    let served = admin.devices.by_name(&device).ok_or_else(unknown)?;
    let running = served.slot.running();
    let boot = running.as_ref().map(|running| running.boot.as_str().to_owned()).unwrap_or_default();
    let title = match &running {
        Some(running) => format!(
            "device {name}, vDisk {} version {}, boot {boot} under way",
            running.disk.name, running.disk.number
        ),
        None => format!("device {name}"),
    };
    let wanted = Wanted {
        after_boot: wanted.next_boot.then_some(boot),
        until_ready: wanted.until_ready,
        seconds: wanted.seconds,
    };
    let now = admin.recorder.clock().now();
    let disk_bytes = running.as_ref().map_or(0, |running| running.disk_bytes);
    let subject = Subject { title: &title, disk_bytes };
    let state = admin.recorder.tracer().start(&device, wanted, subject, now).map_err(|error| {
        let code = match error.kind() {
            std::io::ErrorKind::QuotaExceeded => Code::Conflict,
            _ => Code::Internal,
        };
        ControlError::new(code, format!("device {name} cannot be recorded: {error}"))
    })?;
    tracing::info!(device = device.as_str(), "block requests are recorded");
    Ok(told(&state))
}

/// Ends a recording.
pub(super) fn stop(admin: &Admin, name: &farm::model::DeviceName) -> Option<TraceStatus> {
    let device = DeviceName::parse(name.as_str()).ok()?;
    admin.recorder.tracer().stop(&device).map(|state| told(&state))
}

/// How far a recording is.
pub(super) fn status(admin: &Admin, name: &farm::model::DeviceName) -> Option<TraceStatus> {
    let device = DeviceName::parse(name.as_str()).ok()?;
    admin.recorder.tracer().state(&device).map(|state| told(&state))
}

/// What was recorded.
pub(super) fn table(admin: &Admin, name: &farm::model::DeviceName) -> Result<Option<String>, ControlError> {
    let Ok(device) = DeviceName::parse(name.as_str()) else { return Ok(None) };
    let Some(state) = admin.recorder.tracer().state(&device) else { return Ok(None) };
    let path = state.path.display();
    let failed = |why: String| ControlError::new(Code::Internal, format!("the trace {path}: {why}"));
    let mut bytes = Vec::new();
    let file = File::open(&state.path).map_err(|error| failed(error.to_string()))?;
    let read = file.take(MAX_FILE_BYTES.saturating_add(1)).read_to_end(&mut bytes);
    let length = read.map_err(|error| failed(error.to_string()))?;
    if length as u64 > MAX_FILE_BYTES {
        return Err(failed("is too large to be sent; copy it from the server".to_owned()));
    }
    trace::text(&bytes).map(Some).map_err(|error| failed(error.to_string()))
}

fn told(state: &TraceState) -> TraceStatus {
    let phase = match state.phase {
        TracePhase::Waiting => "waiting",
        TracePhase::Recording => "recording",
        TracePhase::Done => "done",
    };
    TraceStatus {
        state: phase.to_owned(),
        recorded: state.recorded,
        dropped: state.dropped,
        file: state.path.display().to_string(),
        trouble: state.trouble.clone(),
    }
}
