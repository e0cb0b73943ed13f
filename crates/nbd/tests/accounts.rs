//! What is counted of requests, and how fast they may come.
mod common;

use std::sync::Arc;
use std::time::Instant;

use common::devices::Gated;
use common::{Disk, Lab, PATIENCE, memory, quick};
use meter::{Account, Kind, Totals};
use nbd::client::{ChangeOptions, ConnectOptions, Request};
use nbd::exports::ConnectionEnd;

const PLAIN: ChangeOptions = ChangeOptions { fua: false, no_hole: false, fast_zero: false };

/// Requests, errors, bytes, waits.
fn counts(totals: &Totals, kind: Kind) -> (u64, u64, u64, u64) {
    let totals = totals.of(kind);
    assert_eq!(totals.latency.count(), totals.requests, "every request has its time");
    (totals.requests, totals.errors, totals.bytes, totals.waited)
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
    lab.seen.wait("the end", |log| log.ended == [ConnectionEnd::Disconnected]);
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
    let deadline = Instant::now() + PATIENCE;
    while meter.totals().open > 0 {
        assert!(Instant::now() < deadline, "the server never sees that the client is gone");
        std::thread::yield_now();
    }
    gated.open();
    lab.seen.wait("the end", |log| log.ended == [ConnectionEnd::Lost]);
    let totals = meter.totals();
    assert_eq!((totals.unanswered, totals.open), (3, 0));
    let mut back = lab.connect(&ConnectOptions::default());
    back.read(0, &mut [0; 512]).unwrap();
    back.disconnect().unwrap();
    lab.seen.wait("the second end", |log| log.ended.len() == 2);
    let totals = meter.totals();
    assert_eq!(counts(&totals, Kind::Read), (1, 0, 512, 1));
    assert_eq!((totals.connections, totals.reconnects), (2, 1));
}
