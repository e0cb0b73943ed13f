//! What is counted of the requests to all disks.
use std::time::Instant;

use ::api::live::{Account, AdmissionStatus, KindCounts, Stats};
use meter::{Kind, KindTotals, Totals};

use super::{Admin, exposition};
use crate::stream::accounts::Holder;
use crate::stream::admission::Figures;

/// Counters since the server's start; rates are differences of two answers.
pub(super) fn stats(admin: &Admin) -> Stats {
    let uptime_us = u64::try_from(admin.started.elapsed().as_micros()).unwrap_or(u64::MAX);
    let totals = admin.devices.accounts().totals();
    Stats { uptime_us, accounts: totals.iter().map(account).collect() }
}

/// Who boots and who waits.
pub(super) fn admission(figures: &Figures) -> AdmissionStatus {
    let Figures { at_once, booting, waiting, longest_wait, admitted, queued, given_up, expired } = *figures;
    let longest_wait_s = longest_wait.as_secs();
    AdmissionStatus { at_once, booting, waiting, longest_wait_s, admitted, queued, given_up, expired }
}

/// The same for Prometheus.
pub(super) fn metrics(admin: &Admin) -> String {
    let slots = admin.devices.slots();
    exposition::text(&exposition::Facts {
        uptime: admin.started.elapsed(),
        admission: admin.admission.queue().figures(Instant::now()),
        oddities: admin.oddities.counts(Instant::now()),
        totals: admin.devices.accounts().totals(),
        write_caches: slots.iter().filter_map(|slot| Some((slot.name.to_string(), slot.usage()?))).collect(),
    })
}

fn account((holder, totals): &(Holder, Totals)) -> Account {
    let kinds = Kind::ALL.iter().zip(&totals.kinds).filter(|(_, counts)| counts.requests > 0);
    Account {
        device: holder.device.as_ref().map(ToString::to_string),
        vdisk: holder.vdisk.clone(),
        protocol: holder.protocol.name().to_owned(),
        connections: totals.connections,
        reconnects: totals.reconnects,
        connections_open: totals.open,
        in_flight: totals.in_flight,
        unanswered: totals.unanswered,
        held_back: totals.held_back,
        kinds: kinds.map(|(kind, counts)| (kind.name().to_owned(), kind_counts(counts))).collect(),
    }
}

fn kind_counts(counts: &KindTotals) -> KindCounts {
    KindCounts {
        requests: counts.requests,
        errors: counts.errors,
        bytes: counts.bytes,
        waited: counts.waited,
        latency_ns: counts.latency_ns,
        latency_buckets: counts.latency.counts().collect(),
    }
}
