//! What is counted of commands, and how fast they may come.
mod common;

use std::sync::Arc;

use common::initiator::{Initiator, cdb10};
use common::{Gated, Lab, Rules, memory};
use iscsi::directory::SessionEnd;
use meter::{Kind, Totals};

const ABORT_TASK_SET: u8 = 2;
const MACHINE: &str = "iqn.2026-01.lab:machine";

/// Requests, errors, bytes, waits.
fn counts(totals: &Totals, kind: Kind) -> (u64, u64, u64, u64) {
    let totals = totals.of(kind);
    assert_eq!(totals.latency.count(), totals.requests, "every request has its time");
    (totals.requests, totals.errors, totals.bytes, totals.waited)
}

#[test]
fn meter_counts_what_the_initiator_did_by_kind() {
    let rules = Rules::default();
    let meter = Arc::clone(&rules.account.meter);
    let lab = Lab::serve(memory(1), rules);
    let mut initiator = Initiator::login(lab.address(), MACHINE, 1).unwrap();
    for turn in 0..5 {
        initiator.write(turn * 8, &[7; 4096]).unwrap();
        assert_eq!(initiator.read(turn * 8, 16).unwrap().len(), 8192);
    }
    let flush = initiator.command(0x80, 0, &cdb10(0x35, 0, 0)).0;
    let ready = initiator.command(0x80, 0, &[0; 6]).0;
    let unknown = initiator.command(0x80, 0, &[0xFF; 6]).0;
    for (header, status) in [(flush, 0), (ready, 0), (unknown, 2)] {
        initiator.send(header, &[]).unwrap();
        assert_eq!(initiator.receive().unwrap().header[3], status);
    }
    initiator.logout().unwrap();
    lab.seen.wait("the end", |log| log.ended == [SessionEnd::Logout]);
    let totals = meter.totals();
    assert_eq!(counts(&totals, Kind::Read), (5, 0, 5 * 8192, 0));
    assert_eq!(counts(&totals, Kind::Write), (5, 0, 5 * 4096, 0));
    assert_eq!(counts(&totals, Kind::Flush).0, 1);
    assert_eq!(counts(&totals, Kind::Other), (2, 1, 0, 0));
    assert_eq!((totals.connections, totals.open, totals.in_flight, totals.unanswered), (1, 0, 0, 0));
}

#[test]
fn meter_tells_commands_that_wait_and_those_that_were_never_answered() {
    let gated = Gated::new(memory(1), false);
    let rules = Rules::default();
    let meter = Arc::clone(&rules.account.meter);
    let lab = Lab::serve(Arc::clone(&gated) as _, rules);
    let mut initiator = Initiator::login(lab.address(), MACHINE, 1).unwrap();
    for turn in 0..3 {
        initiator.start_read(turn * 8, 8).unwrap();
    }
    gated.wait_for(3);
    assert_eq!(meter.totals().in_flight, 3);
    initiator.manage(ABORT_TASK_SET, 0).unwrap();
    // A ping behind it: when that is answered, the abort is known.
    let (mut ping, _) = initiator.command(0x80, u32::MAX, &[]);
    ping[0] = 0;
    initiator.send(ping, &[]).unwrap();
    assert_eq!(initiator.receive().unwrap().opcode(), 0x20);
    gated.open();
    assert_eq!(initiator.receive().unwrap().opcode(), 0x22, "the answer to the abort, and none to a read");
    drop(initiator);
    lab.seen.wait("the end", |log| log.ended == [SessionEnd::ConnectionLost]);
    let totals = meter.totals();
    assert_eq!((totals.unanswered, totals.open), (3, 0));
    let mut back = Initiator::login(lab.address(), MACHINE, 1).unwrap();
    back.read(0, 1).unwrap();
    back.logout().unwrap();
    lab.seen.wait("the second end", |log| log.ended.len() == 2);
    let totals = meter.totals();
    assert_eq!(counts(&totals, Kind::Read), (1, 0, 512, 1));
    assert_eq!((totals.connections, totals.reconnects), (2, 1));
}
