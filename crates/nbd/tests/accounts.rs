//! What is counted of requests, how fast they may come, and that no disk takes what belongs to the others.
mod common;

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use block::{BlockDevice, BlockError, ByteOffset, ByteRange, Geometry, Patience};
use common::devices::Gated;
use common::{Disk, Lab, OTHER, PATIENCE, memory, quick};
use meter::{Account, Kind, Limiter, Meter, Rates, StoreId, Totals};
use nbd::client::{ChangeOptions, Client, ConnectOptions, Request};
use nbd::exports::ConnectionEnd;
use nbd::server::{Listener, ServerConfig};

const PLAIN: ChangeOptions = ChangeOptions { fua: false, no_hole: false, fast_zero: false };

/// Requests, errors, bytes, waits.
fn counts(totals: &Totals, kind: Kind) -> (u64, u64, u64, u64) {
    let totals = totals.of(kind);
    assert_eq!(totals.latency.count(), totals.requests, "every request has its time");
    (totals.requests, totals.errors, totals.bytes, totals.waited)
}

/// Returns when the counts are as `wanted`.
fn wait_until(meter: &Meter, what: &str, wanted: impl Fn(&Totals) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !wanted(&meter.totals()) {
        assert!(Instant::now() < deadline, "the server never sees {what}: {:?}", meter.totals());
        std::thread::yield_now();
    }
}

#[test]
fn meter_counts_what_the_client_did_by_kind() {
    let disk = Disk::new(memory(1));
    let meter = Arc::clone(&disk.account.meter);
    let lab = Lab::start(disk, quick());
    let mut client = lab.connect(&ConnectOptions::default());
    for turn in 0..5 {
        client.write(turn * 4096, &[7; 4096], PLAIN).unwrap();
        client.read(turn * 4096, &mut [0; 8192]).unwrap();
    }
    client.flush().unwrap();
    client.trim(0, 4096, PLAIN).unwrap();
    client.write_zeroes(0, 4096, PLAIN).unwrap();
    client.write_zeroes(0, 4096, ChangeOptions { no_hole: true, ..PLAIN }).unwrap();
    client.block_status(0, 4096).unwrap();
    assert!(client.read(1 << 20, &mut [0; 512]).is_err(), "behind the end");
    client.disconnect().unwrap();
    wait_until(&meter, "the goodbye", |totals| totals.connections == 1 && totals.open == 0);
    let totals = meter.totals();
    assert_eq!(counts(&totals, Kind::Read), (5, 0, 5 * 8192, 0));
    assert_eq!(counts(&totals, Kind::Write), (6, 0, 6 * 4096, 0));
    assert_eq!(counts(&totals, Kind::Flush), (1, 0, 0, 0));
    assert_eq!(counts(&totals, Kind::Unmap), (2, 0, 8192, 0));
    assert_eq!(counts(&totals, Kind::Other), (2, 1, 4096, 0));
    assert_eq!((totals.connections, totals.open, totals.in_flight, totals.unanswered), (1, 0, 0, 0));
}

#[test]
fn meter_tells_reads_that_wait_and_those_that_were_never_answered() {
    let gated = Gated::closed(memory(1));
    let disk = Disk::new(Arc::clone(&gated) as _);
    let Account { meter, .. } = disk.account.clone();
    let lab = Lab::start(disk, quick());
    let mut client = lab.connect(&ConnectOptions::default());
    for turn in 0..3 {
        client.submit(&Request::Read { offset: turn * 4096, length: 4096, unfragmented: false }).unwrap();
    }
    // Refused at once, so that there is an answer to wait for.
    client.submit(&Request::Read { offset: 1 << 30, length: 512, unfragmented: false }).unwrap();
    client.receive(&mut |_| {}).unwrap();
    gated.wait_for(3);
    assert_eq!(meter.totals().in_flight, 3);
    drop(client);
    wait_until(&meter, "that the client is gone", |totals| totals.open == 0);
    gated.open();
    lab.seen.wait("the end", |log| log.ended.contains(&ConnectionEnd::Lost));
    let totals = meter.totals();
    assert_eq!((totals.unanswered, totals.open), (3, 0));
    let mut back = lab.connect(&ConnectOptions::default());
    back.read(0, &mut [0; 512]).unwrap();
    back.disconnect().unwrap();
    wait_until(&meter, "the second end", |totals| totals.connections == 2 && totals.open == 0);
    let totals = meter.totals();
    assert_eq!(counts(&totals, Kind::Read), (1, 0, 512, 1));
    assert_eq!((totals.connections, totals.reconnects), (2, 1));
}

/// Two disks on a server with one event loop.
fn two(disk: Disk, other: Disk) -> Lab {
    let listener = Listener::Tcp(TcpListener::bind("127.0.0.1:0").unwrap());
    let config = ServerConfig { threads: 1, ..ServerConfig::default() };
    Lab::listen_with(vec![listener], disk, Some(other), config)
}

fn other(lab: &Lab) -> Client {
    lab.connect(&ConnectOptions { export: OTHER.to_owned(), ..ConnectOptions::default() })
}

#[test]
fn limited_disk_waits_alone_and_goes_on_when_the_limit_is_lifted() {
    let rates = Rates { bytes_per_second: Some(1), requests_per_second: None, burst: Duration::ZERO };
    let limiter = Arc::new(Limiter::new(rates));
    let mut slow = Disk::new(memory(1));
    slow.account.limiter = Arc::clone(&limiter);
    let meter = Arc::clone(&slow.account.meter);
    let lab = two(slow, Disk::new(memory(1)));
    // The first goes at once, an hour into debt.
    let mut limited = lab.connect(&ConnectOptions::default());
    limited.read(0, &mut [0; 4096]).unwrap();
    let waiting = std::thread::spawn(move || {
        limited.read(512, &mut [0; 512]).unwrap();
        limited
    });
    wait_until(&meter, "the request that waits", |totals| totals.held_back == 1);
    let mut free = other(&lab);
    for turn in 0..100 {
        free.write(turn * 512, &[1; 512], PLAIN).unwrap();
    }
    assert_eq!(meter.totals().of(Kind::Read).requests, 1, "an hour has not passed");
    limiter.set(Rates::UNLIMITED);
    let limited = waiting.join().unwrap();
    limited.disconnect().unwrap();
    wait_until(&meter, "the goodbye", |totals| totals.open == 0);
    assert_eq!((meter.totals().of(Kind::Read).requests, meter.totals().held_back), (2, 1));
}

#[test]
fn disk_whose_store_hangs_leaves_workers_to_the_others() {
    let (hanging, slow) = (Gated::closed(memory(1)), Gated::closed(memory(1)));
    slow.open(); // it needs a worker for everything, and that is all
    let (mut disk, mut beside) = (Disk::new(Arc::clone(&hanging) as _), Disk::new(Arc::clone(&slow) as _));
    (disk.account.store, beside.account.store) = (StoreId(1), StoreId(2));
    let lab = two(disk, beside);
    let mut stuck: Vec<Client> = (0..3).map(|_| lab.connect(&ConnectOptions::default())).collect();
    for client in &mut stuck {
        for turn in 0..32 {
            client.submit(&Request::Read { offset: turn * 512, length: 512, unfragmented: false }).unwrap();
        }
        // Refused at once, so that there is an answer to wait for.
        client.submit(&Request::Read { offset: 1 << 30, length: 512, unfragmented: false }).unwrap();
        client.receive(&mut |_| {}).unwrap();
    }
    hanging.wait_for(8); // as many as the server starts with
    let mut client = other(&lab);
    for turn in 0..50 {
        client.write(turn * 512, &[turn as u8; 512], PLAIN).unwrap();
        client.flush().unwrap();
    }
    hanging.open();
    for client in &mut stuck {
        while client.in_flight() > 0 {
            client.receive(&mut |_| {}).unwrap();
        }
    }
}

/// Notes where it is read, and holds up the thread that reads it until it is let go.
#[derive(Debug)]
struct Watched {
    inner: Arc<dyn BlockDevice>,
    reads: Mutex<(Vec<u64>, bool)>,
    changed: Condvar,
}

impl BlockDevice for Watched {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }
    fn read(&self, at: ByteOffset, buffer: &mut [u8], patience: Patience) -> Result<(), BlockError> {
        let mut reads = self.reads.lock().unwrap();
        reads.0.push(at.get());
        self.changed.notify_all();
        let reads = self.changed.wait_while(reads, |(_, let_go)| !*let_go).unwrap();
        drop(reads);
        self.inner.read(at, buffer, patience)
    }
    fn write(&self, _: ByteOffset, _: &[u8], _: Patience) -> Result<(), BlockError> {
        Err(BlockError::ReadOnly)
    }
    fn flush(&self, _: Patience) -> Result<(), BlockError> {
        Ok(())
    }
    fn discard(&self, _: ByteRange, _: Patience) -> Result<(), BlockError> {
        Err(BlockError::ReadOnly)
    }
    fn write_zeroes(&self, _: ByteRange, _: Patience) -> Result<(), BlockError> {
        Err(BlockError::ReadOnly)
    }
}

/// A client of simple replies that sends what it is told, and reads when it likes.
fn raw_client(place: &std::path::Path) -> UnixStream {
    let mut stream = UnixStream::connect(place).unwrap();
    stream.read_exact(&mut [0; 18]).unwrap();
    let mut hello = 3_u32.to_be_bytes().to_vec(); // fixed newstyle, no zeroes
    hello.extend(b"IHAVEOPT\0\0\0\x01\0\0\0\x04disk"); // NBD_OPT_EXPORT_NAME
    stream.write_all(&hello).unwrap();
    stream.read_exact(&mut [0; 10]).unwrap();
    stream
}

/// So many requests to read 512 bytes at `offset`.
fn raw_reads(count: usize, offset: u64) -> Vec<u8> {
    let mut request = 0x2560_9513_u32.to_be_bytes().to_vec();
    request.extend([0; 12]); // READ, cookie 0
    request.extend(offset.to_be_bytes());
    request.extend(512_u32.to_be_bytes());
    request.repeat(count)
}

#[test]
fn client_with_a_deep_queue_lets_the_others_take_their_turns() {
    const GREEDY: usize = 2000;
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("socket");
    let watched = Arc::new(Watched { inner: memory(1), reads: Mutex::default(), changed: Condvar::new() });
    let listener = Listener::Unix(UnixListener::bind(&place).unwrap());
    let config = ServerConfig { threads: 1, ..ServerConfig::default() };
    let _lab = Lab::listen(vec![listener], Disk::new(Arc::clone(&watched) as _), config);
    let mut greedy = raw_client(&place);
    let mut modest: Vec<UnixStream> = (0..10).map(|_| raw_client(&place)).collect();
    // The server's only thread is held up in the first read while all the others come.
    greedy.write_all(&raw_reads(1, 0)).unwrap();
    let reads = watched.reads.lock().unwrap();
    drop(watched.changed.wait_while(reads, |(reads, _)| reads.is_empty()).unwrap());
    greedy.write_all(&raw_reads(GREEDY, 0)).unwrap();
    modest.iter_mut().for_each(|client| client.write_all(&raw_reads(1, 512)).unwrap());
    watched.reads.lock().unwrap().1 = true;
    watched.changed.notify_all();
    greedy.read_exact(&mut vec![0; (GREEDY + 1) * 528]).unwrap();
    modest.iter_mut().for_each(|client| client.read_exact(&mut [0; 528]).unwrap());
    let reads = watched.reads.lock().unwrap().0.clone();
    let last = reads.iter().rposition(|offset| *offset == 512).unwrap();
    assert_eq!(reads.len(), GREEDY + 11);
    assert!(last < 300, "the last of ten came after {last} others");
}
