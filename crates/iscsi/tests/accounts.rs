//! What is counted of commands, and how fast they may come.
mod common;

use std::sync::Arc;
use std::time::Duration;

use block::{ByteOffset, Patience};
use common::initiator::{Initiator, cdb10};
use common::{Gated, Lab, Rules, memory};
use iscsi::directory::SessionEnd;
use meter::{Kind, Limiter, Rates, Totals};

const ABORT_TASK: u8 = 1;
const ABORT_TASK_SET: u8 = 2;
const MACHINE: &str = "iqn.2026-01.lab:machine";

/// Requests, errors, bytes, waits.
fn counts(totals: &Totals, kind: Kind) -> (u64, u64, u64, u64) {
    let totals = totals.of(kind);
    assert_eq!(totals.latency.count(), totals.requests, "every request has its time");
    (totals.requests, totals.errors, totals.bytes, totals.waited)
}

/// Sends a ping, which must be answered next.
fn ping(initiator: &mut Initiator) {
    let (mut ping, _) = initiator.command(0x80, u32::MAX, &[]);
    ping[0] = 0;
    initiator.send(ping, &[]).unwrap();
    assert_eq!(initiator.receive().unwrap().opcode(), 0x20);
}

/// A disk that may have a byte a second: its first request goes at once, an hour into debt.
fn slow() -> Rules {
    let rates = Rates { bytes_per_second: Some(1), requests_per_second: None, burst: Duration::ZERO };
    let mut rules = Rules::default();
    rules.account.limiter = Arc::new(Limiter::new(rates));
    rules
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
    ping(&mut initiator); // behind the abort: when it is answered, the abort is known
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

#[test]
fn limited_commands_wait_while_pings_and_aborts_are_answered() {
    let (rules, disk) = (slow(), memory(1));
    let (meter, limiter) = (Arc::clone(&rules.account.meter), Arc::clone(&rules.account.limiter));
    let lab = Lab::serve(Arc::clone(&disk), rules);
    let mut initiator = Initiator::login(lab.address(), MACHINE, 1).unwrap();
    initiator.read(0, 8).unwrap();
    let write = initiator.start_write(8, &[5; 1024]).unwrap();
    let read = initiator.start_read(8, 2).unwrap();
    let late = initiator.start_write(64, &[6; 512]).unwrap();
    ping(&mut initiator);
    let mut found = [0; 512];
    disk.read(ByteOffset::new(8 * 512), &mut found, Patience::Now).unwrap();
    assert_eq!((found, meter.totals().held_back), ([0; 512], 3));
    initiator.manage(ABORT_TASK, late).unwrap();
    assert_eq!(initiator.receive().unwrap().opcode(), 0x22, "what waits is aborted at once");
    limiter.set(Rates::UNLIMITED);
    let (first, second) = (initiator.receive().unwrap(), initiator.receive().unwrap());
    assert_eq!((first.opcode(), first.u32_at(16)), (0x21, write), "in their order");
    assert_eq!((second.opcode(), second.u32_at(16), second.data), (0x25, read, vec![5; 1024]));
    assert_eq!(initiator.read(64, 1).unwrap(), [0; 512], "the aborted write");
}

#[test]
fn session_that_is_lost_while_its_commands_wait_ends() {
    let rules = slow();
    let meter = Arc::clone(&rules.account.meter);
    let lab = Lab::serve(memory(1), rules);
    let mut initiator = Initiator::login(lab.address(), MACHINE, 1).unwrap();
    initiator.read(0, 8).unwrap();
    initiator.start_write(8, &[5; 1024]).unwrap();
    initiator.start_read(8, 2).unwrap();
    ping(&mut initiator);
    drop(initiator);
    lab.seen.wait("the end", |log| log.ended == [SessionEnd::ConnectionLost]);
    assert_eq!((meter.totals().unanswered, meter.totals().of(Kind::Write).requests), (2, 0));
}
