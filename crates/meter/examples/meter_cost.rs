//! What counting costs a request.
//!
//! ```text
//! cargo run --release -p meter --example meter_cost
//! ```
//!
//! Prints nanoseconds for each request, with latencies that wander over the buckets as real ones do. The servers look at
//! the clock once for all requests that they answer in one go; here that is for each eight. It is the least of some rounds:
//! whatever else uses the processor can only add to it.
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use meter::{Kind, Meter, Recorder, Request};

const REQUESTS: u32 = 1_000_000;
const ROUNDS: u32 = 20;

/// Requests for which there is one look at the clock.
const TOGETHER: u32 = 8;

fn main() {
    let meter = Arc::new(Meter::default());
    let mut recorder = meter.open();
    let least = (0..ROUNDS).map(|_| round(&mut recorder)).min().unwrap_or_default();
    println!("{:.2} ns a request", least.as_secs_f64() * 1e9 / f64::from(REQUESTS));
    println!("{} requests counted", meter.totals().all_kinds().requests);
}

/// How long it takes to count so many requests.
fn round(recorder: &mut Recorder) -> Duration {
    let mut state = 1_u64;
    let started = Instant::now();
    for number in 0..REQUESTS {
        if number % TOGETHER == 0 {
            black_box(Instant::now());
        }
        // xorshift: nearly free.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let latency = Duration::from_nanos(2000 + (state & 0xFFFF));
        let kind = if number % 4 == 0 { Kind::Write } else { Kind::Read };
        recorder.begin();
        recorder.record(black_box(&Request { kind, bytes: 4096, latency, ok: true, waited: false }));
    }
    started.elapsed()
}
