//! `headwater trace replay`: sends the requests of a trace again, to any server, and measures its answers.
mod disk;
mod drive;

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use serde::Serialize;
use trace::schedule::plan;
use trace::summary::Percentiles;
use trace::{Kind, Stage, Trace};

use self::disk::Place;
use self::drive::{Done, Replay};
use super::load;
use crate::cli::{ReplayArgs, StageChoice};
use crate::columns::{align, bytes, columns};
use crate::commands::boots::print;
use crate::timeline::Millis;

/// What a replay measured.
#[derive(Debug, Serialize)]
struct Report {
    /// The disk.
    server: String,
    /// How many clients replayed at once.
    clients: u16,
    /// Whether they thought between requests.
    think: bool,
    /// How long the recorded requests took, thinking included.
    recorded_us: u64,
    /// How long a client took, by percentiles over the clients.
    took_us: Percentiles,
    /// All requests a second.
    requests_per_second: u64,
    /// All bytes read and written a second.
    bytes_per_second: u64,
    /// By kind.
    kinds: Vec<KindReport>,
}

/// What was measured of one kind of request.
#[derive(Debug, Serialize)]
struct KindReport {
    /// Which.
    kind: Kind,
    /// How many were answered.
    count: u64,
    /// Of these, how many with an error.
    failed: u64,
    /// Their bytes.
    bytes: u64,
    /// From sending to the answer, network and client included.
    latency_us: Percentiles,
}

/// Replays a trace; what it prints.
pub(super) async fn replay(args: ReplayArgs) -> anyhow::Result<String> {
    let trace = chosen(load(&args.file)?, &args);
    ensure!(!trace.requests.is_empty(), "{} holds no such requests", args.file.display());
    let place = Place::parse(&args.server)?;
    let recorded_us = trace::summary::summary(&trace, 0).duration_us;
    let output = args.output;
    let how = args.clone();
    let work = move || run(&place, &trace, &how);
    let (done, took) = tokio::task::spawn_blocking(work).await.context("a client died")??;
    let report = report(&args, recorded_us, done, took);
    print(&report, output, text)
}

/// The requests that are to be sent.
fn chosen(mut trace: Trace, args: &ReplayArgs) -> Trace {
    let stage = args.stage.map(|stage| match stage {
        StageChoice::First => Stage::First,
        StageChoice::Second => Stage::Second,
    });
    trace.requests.retain(|request| {
        let is_change = matches!(request.kind, Kind::Write | Kind::Discard);
        stage.is_none_or(|stage| request.stage == stage) && (args.write || !is_change)
    });
    trace
}

/// All clients at once, each in a thread: what each has done, and how long all of them took.
fn run(place: &Place, trace: &Trace, args: &ReplayArgs) -> anyhow::Result<(Vec<Done>, Duration)> {
    let think = args.think;
    let planned = plan(trace);
    // All are connected before the first request leaves.
    let mut disks = Vec::new();
    for number in 0..args.clients {
        disks.push(place.connect(number.into(), args.initiator.as_deref())?);
    }
    let began = Instant::now();
    let done = std::thread::scope(|scope| {
        let planned = &planned;
        let threads: Vec<_> = disks
            .iter_mut()
            .map(|disk| scope.spawn(move || Replay::new(planned, disk.as_mut(), think).run()))
            .collect();
        let ended = threads.into_iter().map(|thread| match thread.join() {
            Ok(done) => done,
            Err(_) => bail!("a client died"),
        });
        ended.collect::<anyhow::Result<Vec<Done>>>()
    });
    Ok((done?, began.elapsed()))
}

fn report(args: &ReplayArgs, recorded_us: u64, done: Vec<Done>, took: Duration) -> Report {
    let took_us = Millis::from(took).us();
    let clients = done.iter().map(|done| Millis::from(done.took).us()).collect();
    let answers: Vec<drive::Answered> = done.into_iter().flat_map(|done| done.answers).collect();
    let mut kinds = Vec::new();
    for kind in Kind::ALL {
        let own = || answers.iter().filter(move |answer| answer.kind == kind);
        let count = own().count() as u64;
        if count > 0 {
            kinds.push(KindReport {
                kind,
                count,
                failed: own().filter(|answer| !answer.ok).count() as u64,
                bytes: own()
                    .filter(|answer| answer.ok)
                    .map(|answer| answer.length)
                    .fold(0, u64::saturating_add),
                latency_us: Percentiles::of(own().map(|answer| answer.latency_us).collect()),
            });
        }
    }
    let moved = kinds.iter().filter(|report| report.kind != Kind::Discard).map(|report| report.bytes);
    let moved = moved.fold(0, u64::saturating_add);
    Report {
        server: args.server.clone(),
        clients: args.clients,
        think: args.think,
        recorded_us,
        took_us: Percentiles::of(clients),
        requests_per_second: per_second(answers.len() as u64, took_us),
        bytes_per_second: per_second(moved, took_us),
        kinds,
    }
}

fn per_second(amount: u64, took_us: u64) -> u64 {
    let rate = u128::from(amount).saturating_mul(1_000_000).checked_div(u128::from(took_us)).unwrap_or(0);
    u64::try_from(rate).unwrap_or(u64::MAX)
}

fn text(report: &Report) -> String {
    let ms = |us: u64| Millis::from_us(us).to_string();
    let took = report.took_us;
    let mut rows =
        vec![columns(["REQUESTS", "COUNT", "BYTES", "P50 ms", "P95 ms", "P99 ms", "MAX ms", "FAILED"])];
    for kind in &report.kinds {
        let latency = kind.latency_us;
        rows.push(columns([
            kind.kind.as_str(),
            &kind.count.to_string(),
            &bytes(kind.bytes),
            &ms(latency.p50),
            &ms(latency.p95),
            &ms(latency.p99),
            &ms(latency.max),
            &kind.failed.to_string(),
        ]));
    }
    format!(
        "{}, {} client(s), {} thinking\na client took {} ms (p50), {} ms (p99), {} ms (max); the recorded machine {} ms\n\
         {} requests/s, {}/s\n\n{}",
        report.server,
        report.clients,
        if report.think { "with" } else { "without" },
        ms(took.p50),
        ms(took.p99),
        ms(took.max),
        ms(report.recorded_us),
        report.requests_per_second,
        bytes(report.bytes_per_second),
        align(&rows, &[1, 2, 3, 4, 5, 6, 7])
    )
}
