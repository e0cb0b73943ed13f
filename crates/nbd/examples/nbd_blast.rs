//! Measures an NBD server: as many requests in flight as asked for, as cheaply as this client can.
//!
//! ```text
//! cargo run --release -p nbd --example nbd_blast -- 127.0.0.1:10809 read random 4096 32 3 [EXPORT] [CONNECTIONS]
//! cargo run --release -p nbd --example nbd_blast -- 127.0.0.1:10809 write sequential 1048576 8 3
//! ```
//!
//! Address, what to do, in which order, bytes a request, depth of each connection, seconds, export, connections (all on
//! one thread). Prints one line of JSON: requests and bytes a second, and latencies in microseconds.
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use nbd::client::{ChangeOptions, Client, ConnectOptions, Cookie, Event, Request, ServerAddress};
use rustix::event::epoll;

type Failure = Box<dyn std::error::Error + Send + Sync>;

struct Work {
    server: ServerAddress,
    export: String,
    writes: bool,
    random: bool,
    bytes: u32,
    depth: usize,
    time: Duration,
}

/// One connection, and what it did.
struct Blast {
    client: Client,
    state: u64,
    turn: u64,
    starts: VecDeque<(Cookie, Instant)>,
    requests: u64,
    latencies_ns: Vec<u64>,
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
    let mut blasts =
        (0..connections).map(|seed| Blast::new(&work, seed)).collect::<Result<Vec<_>, Failure>>()?;
    let data: Vec<u8> = (0..work.bytes).map(|at| (at % 251) as u8).collect();
    let started = Instant::now();
    if let [one] = blasts.as_mut_slice() {
        one.run(&work, &data, started)?;
    } else {
        run_all(&mut blasts, &work, &data, started)?;
    }
    report(&work, &blasts, started.elapsed());
    blasts.into_iter().try_for_each(|blast| Ok(blast.client.disconnect()?))
}

/// All of them in turn, whenever they have answers.
fn run_all(blasts: &mut [Blast], work: &Work, data: &[u8], started: Instant) -> Result<(), Failure> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (number, blast) in blasts.iter().enumerate() {
        let token = epoll::EventData::new_u64(number as u64);
        epoll::add(&epoll, &blast.client, token, epoll::EventFlags::IN)?;
    }
    let mut busy = blasts.len();
    for blast in blasts.iter_mut() {
        blast.submit(work, data, started, started)?;
        blast.client.send()?;
    }
    let mut events = Vec::with_capacity(256);
    while busy > 0 {
        events.clear();
        epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), None)?;
        for event in &events {
            let blast = &mut blasts[event.data.u64() as usize];
            let before = blast.client.in_flight();
            let now = blast.take()?;
            blast.submit(work, data, started, now)?;
            blast.client.send()?;
            if before > 0 && blast.client.in_flight() == 0 {
                busy -= 1;
            }
        }
    }
    Ok(())
}

impl Blast {
    fn new(work: &Work, seed: u64) -> Result<Self, Failure> {
        let options = ConnectOptions {
            export: work.export.clone(),
            extended_headers: false,
            ..ConnectOptions::default()
        };
        let client = Client::connect(&work.server, &options)?;
        let state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let starts = VecDeque::new();
        Ok(Self { client, state, turn: seed, starts, requests: 0, latencies_ns: Vec::new() })
    }

    fn run(&mut self, work: &Work, data: &[u8], started: Instant) -> Result<(), Failure> {
        let mut now = started;
        loop {
            self.submit(work, data, started, now)?;
            if self.client.in_flight() == 0 {
                return Ok(());
            }
            let mut finished = Vec::new();
            self.client.receive(&mut |event| note(&event, &mut finished))?;
            now = self.finished(&finished)?;
        }
    }

    /// Fills the depth up, while there is time.
    fn submit(&mut self, work: &Work, data: &[u8], started: Instant, now: Instant) -> Result<(), Failure> {
        while now - started < work.time && self.client.in_flight() < work.depth {
            let offset = self.place(work) * u64::from(work.bytes);
            let request = if work.writes {
                Request::Write { offset, data, options: ChangeOptions::default() }
            } else {
                Request::Read { offset, length: work.bytes, unfragmented: false }
            };
            let cookie = self.client.submit(&request)?;
            self.starts.push_back((cookie, now));
        }
        Ok(())
    }

    /// Takes the answers that are there; the time after that.
    fn take(&mut self) -> Result<Instant, Failure> {
        let mut finished = Vec::new();
        self.client.poll(&mut |event| note(&event, &mut finished))?;
        self.finished(&finished)
    }

    fn finished(&mut self, finished: &[(Cookie, bool)]) -> Result<Instant, Failure> {
        let now = Instant::now();
        for &(cookie, ok) in finished {
            if !ok {
                return Err("a request failed".into());
            }
            self.requests += 1;
            if let Some(at) = self.starts.iter().position(|(started, _)| *started == cookie)
                && let Some((_, start)) = self.starts.remove(at)
            {
                self.latencies_ns.push(u64::try_from((now - start).as_nanos()).unwrap_or(u64::MAX));
            }
        }
        Ok(now)
    }

    fn place(&mut self, work: &Work) -> u64 {
        let places = self.client.export().size_bytes / u64::from(work.bytes);
        // xorshift: repeatable, and nearly free.
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.turn += 1;
        if work.random { self.state % places } else { self.turn % places }
    }
}

fn note(event: &Event<'_>, finished: &mut Vec<(Cookie, bool)>) {
    if let Event::Finished { cookie, result } = event {
        finished.push((*cookie, result.is_ok()));
    }
}

fn report(work: &Work, blasts: &[Blast], took: Duration) {
    let requests: u64 = blasts.iter().map(|blast| blast.requests).sum();
    let rate = requests as f64 / took.as_secs_f64();
    let percentile = |latencies: &mut Vec<u64>, part: f64| {
        latencies.sort_unstable();
        let at = ((latencies.len() as f64 * part) as usize).min(latencies.len().saturating_sub(1));
        latencies.get(at).copied().unwrap_or(0) as f64 / 1000.0
    };
    let mut all: Vec<u64> = blasts.iter().flat_map(|blast| blast.latencies_ns.iter().copied()).collect();
    let each: Vec<f64> =
        blasts.iter().map(|blast| percentile(&mut blast.latencies_ns.clone(), 0.99)).collect();
    println!(
        "{{\"requests\":{requests},\"requests_per_second\":{rate:.0},\"mb_per_second\":{:.1},\"latency_us_p50\":{:.1},\"latency_us_p99\":{:.1},\"latency_us_p99_least\":{:.1},\"latency_us_p99_most\":{:.1}}}",
        rate * f64::from(work.bytes) / 1e6,
        percentile(&mut all, 0.5),
        percentile(&mut all, 0.99),
        each.iter().copied().fold(f64::INFINITY, f64::min),
        each.iter().copied().fold(0.0, f64::max),
    );
}
