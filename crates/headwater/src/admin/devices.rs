//! `/v1/devices`: what the devices are doing.
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use serde::Deserialize;

use super::api::{DeviceAnswer, DevicesAnswer, RunsAnswer, WriteCacheAnswer};
use super::{Admin, Failure, blocking};
use crate::config::DeviceName;
use crate::stream::device::DeviceSlot;
use crate::stream::devices::Served;
use crate::stream::known::KnownDevice;
use crate::timeline::Recorder;

/// `GET /v1/devices`.
pub(super) async fn list(State(admin): State<Arc<Admin>>) -> Json<DevicesAnswer> {
    let devices = admin.devices.all();
    let answer = |device| answer(device, admin.devices.slot(&device.name).as_deref(), &admin.recorder);
    let devices = devices.iter().map(answer).collect();
    Json(DevicesAnswer { devices })
}

/// `GET /v1/device-status`: the same as one list of many.
pub(super) async fn status(admin: State<Arc<Admin>>) -> Json<serde_json::Value> {
    let Json(DevicesAnswer { devices }) = list(admin).await;
    Json(serde_json::json!({ "items": devices }))
}

/// What a reset takes away besides.
#[derive(Debug, Deserialize)]
pub(super) struct ResetQuery {
    /// The persistent write cache.
    #[serde(default)]
    discard_persistent: bool,
}

/// `POST /v1/devices/{name}/reset`: forgets the device's current boot and ends its sessions.
pub(super) async fn reset(
    State(admin): State<Arc<Admin>>,
    Path(name): Path<String>,
    Query(query): Query<ResetQuery>,
) -> Result<StatusCode, Failure> {
    let served = DeviceName::parse(&name).ok().and_then(|name| admin.devices.by_name(&name));
    let Some(Served { device, slot }) = served else {
        return Err(Failure::not_found(format!("there is no device \"{name}\"")));
    };
    let ender = Arc::clone(&admin.ender);
    blocking(move || {
        slot.reset()?.end(ender.get().map(AsRef::as_ref));
        if query.discard_persistent {
            slot.discard_persistent()?;
        }
        Ok(())
    })
    .await?;
    admin.recorder.end(&device.name, "reset by the administrator");
    tracing::info!(device = name, "current boot forgotten by the administrator");
    if query.discard_persistent {
        tracing::info!(device = name, "persistent write cache discarded by the administrator");
    }
    Ok(StatusCode::NO_CONTENT)
}

fn answer(device: &KnownDevice, slot: Option<&DeviceSlot>, recorder: &Recorder) -> DeviceAnswer {
    let boots = recorder.live_of(device.name.as_str());
    // A script that nobody has used yet says less than the boot that still runs.
    let boot = boots.iter().find(|boot| boot.used()).or_else(|| boots.first());
    let running = slot.and_then(DeviceSlot::running);
    let write_cache = running.as_ref().and_then(|running| running.write_cache).map(|usage| {
        let (used, limit, warn) = (usage.used.get(), usage.limit.get(), usage.warn_at.get());
        let fill = match used {
            used if used >= limit => "full",
            used if used >= warn => "nearly full",
            _ => "ok",
        };
        WriteCacheAnswer { used_bytes: used, limit_bytes: limit, fill: fill.to_owned() }
    });
    DeviceAnswer {
        name: device.name.to_string(),
        mac: device.mac.map(|mac| mac.to_string()).unwrap_or_default(),
        vdisk: device.vdisk_name().to_owned(),
        runs: running.map(|running| RunsAnswer {
            vdisk: running.disk.name.clone(),
            version: running.disk.number.get(),
            since: running.disk.since.to_string(),
        }),
        initiator: device.initiator.to_string(),
        status: boot.map_or("off", |boot| boot.status.as_str()).to_owned(),
        boot: boot.map(|boot| boot.id.clone()),
        sessions: boots.iter().map(|boot| boot.sessions).sum(),
        write_cache,
    }
}
