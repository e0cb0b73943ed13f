//! Measures an NBD server: as many requests in flight as asked for, as cheaply as this client can.
//!
//! ```text
//! cargo run --release -p nbd --example nbd_blast -- 127.0.0.1:10809 read random 4096 32 3 [EXPORT] [CONNECTIONS]
//! cargo run --release -p nbd --example nbd_blast -- 127.0.0.1:10809 write sequential 1048576 8 3
//! ```
//!
//! Address, what to do, in which order, bytes a request, depth of each connection, seconds, export, connections (all on
//! one thread each). Prints one line of JSON: requests and bytes a second, and latencies in microseconds.
use std::time::{Duration, Instant};

use nbd::client::{ChangeOptions, Client, ConnectOptions, Cookie, Event, Request, ServerAddress};

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[derive(Clone)]
struct Work {
    server: ServerAddress,
    export: String,
    writes: bool,
    random: bool,
    bytes: u32,
    depth: usize,
    time: Duration,
}

/// What one connection did.
struct Tally {
    requests: u64,
    latencies_ns: Vec<u64>,
    took: Duration,
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [server, what, order, bytes, depth, seconds, rest @ ..] = arguments.as_slice() else {
        return Err(
            "usage: nbd_blast SERVER read|write random|sequential BYTES DEPTH SECONDS [EXPORT] [CONNECTIONS]"
                .into(),
        );
    };
    let server = match server.parse() {
        Ok(address) => ServerAddress::Ip(address),
        Err(_) => ServerAddress::Unix(server.into()),
    };
    let work = Work {
        server,
        export: rest.first().cloned().unwrap_or_default(),
        writes: what == "write",
        random: order == "random",
        bytes: bytes.parse()?,
        depth: depth.parse()?,
        time: Duration::from_secs_f64(seconds.parse()?),
    };
    let connections: u64 = rest.get(1).map_or(Ok(1), |count| count.parse())?;
    let threads: Vec<_> = (0..connections)
        .map(|seed| {
            let work = work.clone();
            std::thread::spawn(move || blast(&work, seed))
        })
        .collect();
    let mut tallies = Vec::new();
    for thread in threads {
        tallies.push(thread.join().map_err(|_| "a connection panicked")??);
    }
    report(&work, &tallies);
    Ok(())
}

fn report(work: &Work, tallies: &[Tally]) {
    let rate: f64 = tallies.iter().map(|tally| tally.requests as f64 / tally.took.as_secs_f64()).sum();
    let requests: u64 = tallies.iter().map(|tally| tally.requests).sum();
    let percentile = |latencies: &mut Vec<u64>, part: f64| {
        latencies.sort_unstable();
        let at = ((latencies.len() as f64 * part) as usize).min(latencies.len().saturating_sub(1));
        latencies.get(at).copied().unwrap_or(0) as f64 / 1000.0
    };
    let mut all: Vec<u64> = tallies.iter().flat_map(|tally| tally.latencies_ns.iter().copied()).collect();
    let each: Vec<f64> =
        tallies.iter().map(|tally| percentile(&mut tally.latencies_ns.clone(), 0.99)).collect();
    println!(
        "{{\"requests\":{requests},\"requests_per_second\":{rate:.0},\"mb_per_second\":{:.1},\"latency_us_p50\":{:.1},\"latency_us_p99\":{:.1},\"latency_us_p99_least\":{:.1},\"latency_us_p99_most\":{:.1}}}",
        rate * f64::from(work.bytes) / 1e6,
        percentile(&mut all, 0.5),
        percentile(&mut all, 0.99),
        each.iter().copied().fold(f64::INFINITY, f64::min),
        each.iter().copied().fold(0.0, f64::max),
    );
}

fn blast(work: &Work, seed: u64) -> Result<Tally, Failure> {
    let options =
        ConnectOptions { export: work.export.clone(), extended_headers: false, ..ConnectOptions::default() };
    let mut client = Client::connect(&work.server, &options)?;
    let places = client.export().size_bytes / u64::from(work.bytes);
    let data: Vec<u8> = (0..work.bytes).map(|at| (at % 251) as u8).collect();
    let mut tally = Tally { requests: 0, latencies_ns: Vec::new(), took: Duration::ZERO };
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut turn = seed;
    let mut place = move || {
        // xorshift: repeatable, and nearly free.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        turn += 1;
        if work.random { state % places } else { turn % places }
    };
    let started = Instant::now();
    let mut starts: std::collections::VecDeque<(Cookie, Instant)> = std::collections::VecDeque::new();
    let mut now = started;
    let mut finished: Vec<(Cookie, bool)> = Vec::new();
    loop {
        while now - started < work.time && client.in_flight() < work.depth {
            let offset = place() * u64::from(work.bytes);
            let request = if work.writes {
                Request::Write { offset, data: &data, options: ChangeOptions::default() }
            } else {
                Request::Read { offset, length: work.bytes, unfragmented: false }
            };
            starts.push_back((client.submit(&request)?, now));
        }
        if client.in_flight() == 0 {
            break;
        }
        client.receive(&mut |event| {
            if let Event::Finished { cookie, result } = event {
                finished.push((cookie, result.is_ok()));
            }
        })?;
        now = Instant::now();
        for (cookie, ok) in finished.drain(..) {
            if !ok {
                return Err("a request failed".into());
            }
            tally.requests += 1;
            if let Some(at) = starts.iter().position(|(started, _)| *started == cookie)
                && let Some((_, start)) = starts.remove(at)
            {
                tally.latencies_ns.push(u64::try_from((now - start).as_nanos()).unwrap_or(u64::MAX));
            }
        }
    }
    tally.took = started.elapsed();
    client.disconnect()?;
    Ok(tally)
}
