//! `/v1/stats` and `/v1/metrics`: what is counted of the requests to all disks.
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use meter::{Kind, KindTotals, Totals};

use super::api::{AccountAnswer, KindAnswer, StatsAnswer};
use super::{Admin, exposition};
use crate::stream::accounts::Holder;

/// `GET /v1/stats`: counters since the server's start; rates are differences of two answers.
pub(super) async fn show(State(admin): State<Arc<Admin>>) -> Json<StatsAnswer> {
    let uptime_us = u64::try_from(admin.started.elapsed().as_micros()).unwrap_or(u64::MAX);
    let totals = admin.devices.accounts().totals();
    Json(StatsAnswer { uptime_us, accounts: totals.iter().map(account).collect() })
}

/// `GET /v1/metrics`: the same for Prometheus.
pub(super) async fn metrics(State(admin): State<Arc<Admin>>) -> Response {
    let text = exposition::text(&exposition::Facts {
        uptime: admin.started.elapsed(),
        totals: admin.devices.accounts().totals(),
        write_caches: admin
            .devices
            .slots()
            .iter()
            .filter_map(|slot| Some((slot.name.to_string(), slot.usage()?)))
            .collect(),
    });
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

fn account((holder, totals): &(Holder, Totals)) -> AccountAnswer {
    let kinds = Kind::ALL.iter().zip(&totals.kinds).filter(|(_, counts)| counts.requests > 0);
    AccountAnswer {
        device: holder.device.as_ref().map(ToString::to_string),
        vdisk: holder.vdisk.clone(),
        protocol: holder.protocol.name().to_owned(),
        connections: totals.connections,
        reconnects: totals.reconnects,
        connections_open: totals.open,
        in_flight: totals.in_flight,
        unanswered: totals.unanswered,
        held_back: totals.held_back,
        kinds: kinds.map(|(kind, counts)| (kind.name().to_owned(), kind_answer(counts))).collect(),
    }
}

fn kind_answer(counts: &KindTotals) -> KindAnswer {
    KindAnswer {
        requests: counts.requests,
        errors: counts.errors,
        bytes: counts.bytes,
        waited: counts.waited,
        latency_ns: counts.latency_ns,
        latency_buckets: counts.latency.counts().collect(),
    }
}
