//! `/v1/status`: the server itself.
use std::sync::Arc;

use axum::Json;
use axum::extract::State;

use super::Admin;
use super::api::StatusAnswer;

/// `GET /v1/status`.
pub(super) async fn show(State(admin): State<Arc<Admin>>) -> Json<StatusAnswer> {
    let sessions = admin.recorder.live().iter().map(|boot| u64::from(boot.record.sessions)).sum();
    Json(StatusAnswer {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        uptime_s: admin.started.elapsed().as_secs(),
        iscsi: admin.iscsi.clone(),
        nbd: admin.nbd.clone(),
        http: admin.http,
        devices: admin.devices.farm().snapshot().devices().count(),
        catalogue_change: admin.devices.farm().snapshot().change().0,
        catalogue_trouble: admin.devices.farm().trouble(),
        sessions,
    })
}
