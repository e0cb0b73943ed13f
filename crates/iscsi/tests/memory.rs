//! Write data and the server's memory: what there may be of it, who waits, and who waits too long.
mod common;

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use block::{ByteOffset, Patience};
use common::initiator::{Initiator, Pdu, cdb10, pdu};
use common::{Gated, Lab, Rules, memory};
use iscsi::directory::SessionEnd;

const MACHINE: &str = "iqn.2026-01.lab:machine";

/// The longest immediate data.
const IMMEDIATE: usize = 64 * 1024;

/// A write that needs most of the smallest budget.
const LONG: usize = 24 << 20;

/// Long enough that an answer which should not come would have come.
const A_WHILE: Duration = Duration::from_millis(300);

/// As little memory as the server does with.
fn scarce() -> Rules {
    let mut rules = Rules::default();
    (rules.config.max_solicited_bytes, rules.config.max_arriving_bytes) = (0, 0);
    rules
}

fn ping(initiator: &mut Initiator) {
    let (mut ping, _) = initiator.command(0x80, u32::MAX, &[]);
    ping[0] = 0;
    initiator.send(ping, &[]).unwrap();
}

/// Begins a write of [`LONG`] with immediate data of `seed`; the R2T for the rest comes when there is room.
fn begin_long(initiator: &mut Initiator, seed: u8) -> u32 {
    let blocks = u16::try_from(LONG / 512).unwrap();
    let (header, itt) = initiator.command(0xA0, LONG as u32, &cdb10(0x2A, 0, blocks));
    initiator.send(header, &[seed; IMMEDIATE]).unwrap();
    itt
}

/// Sends what an R2T asks for.
fn answer(initiator: &mut Initiator, r2t: &Pdu, seed: u8) {
    let (offset, bytes) = (r2t.u32_at(40), r2t.u32_at(44));
    let pieces = bytes.div_ceil(128 * 1024);
    for piece in 0..pieces {
        let at = piece * 128 * 1024;
        let length = (bytes - at).min(128 * 1024);
        let mut header = [0; 48];
        (header[0], header[1], header[9]) = (0x05, if piece + 1 == pieces { 0x80 } else { 0 }, 1);
        header[16..20].copy_from_slice(&r2t.header[16..20]);
        header[20..24].copy_from_slice(&r2t.header[20..24]);
        header[36..40].copy_from_slice(&piece.to_be_bytes());
        header[40..44].copy_from_slice(&(offset + at).to_be_bytes());
        initiator.send(header, &vec![seed; length as usize]).unwrap();
    }
}

#[test]
fn immediate_data_beyond_the_memory_waits_in_the_socket_and_none_is_lost() {
    const WRITES: u32 = 100;
    let (disk, other) = (memory(16), memory(1));
    let gated = Gated::new(Arc::clone(&disk), false);
    let lab = Lab::serve(gated.clone(), Rules { second: Some(other), ..scarce() });
    let mut initiator = Initiator::login(lab.address(), MACHINE, 1).unwrap();
    let mut all = Vec::new();
    for turn in 0..WRITES {
        let (header, _) = initiator.command(0xA0, IMMEDIATE as u32, &cdb10(0x2A, turn * 128, 128));
        all.extend(pdu(header, &[turn as u8; IMMEDIATE]));
    }
    let (mut pinged, _) = initiator.command(0x80, u32::MAX, &[]);
    pinged[0] = 0;
    all.extend(pdu(pinged, &[]));
    let mut stream = initiator.stream.try_clone().unwrap();
    let sender = std::thread::spawn(move || stream.write_all(&all));
    gated.wait_for(1);
    initiator.stream.set_read_timeout(Some(A_WHILE)).unwrap();
    assert!(initiator.receive().is_err(), "the ping behind the writes was read, so they were all kept");
    let (asked, unasked) = lab.server.write_bytes();
    assert!(asked == 0 && (1..4 << 20).contains(&unasked), "{unasked} bytes are kept");
    // What needs no memory goes on, in another session.
    let mut beside = Initiator::login(lab.address(), MACHINE, 2).unwrap();
    let (mut header, itt) = beside.command(0xC0, 512, &cdb10(0x28, 0, 1));
    header[9] = 2;
    beside.send(header, &[]).unwrap();
    assert_eq!(beside.receive().unwrap().u32_at(16), itt);
    ping(&mut beside);
    assert_eq!(beside.receive().unwrap().opcode(), 0x20);
    gated.open();
    initiator.stream.set_read_timeout(Some(common::PATIENCE)).unwrap();
    let mut pongs = 0;
    for _ in 0..=WRITES {
        let answer = initiator.receive().unwrap();
        match answer.opcode() {
            0x20 => pongs += 1,
            _ => assert_eq!((answer.opcode(), answer.header[3]), (0x21, 0)),
        }
    }
    assert_eq!(pongs, 1);
    sender.join().unwrap().unwrap();
    for turn in 0..WRITES {
        let mut found = [0; IMMEDIATE];
        disk.read(ByteOffset::new(u64::from(turn) * 65536), &mut found, Patience::Now).unwrap();
        assert!(found == [turn as u8; IMMEDIATE], "write {turn}");
    }
    initiator.logout().unwrap();
    beside.logout().unwrap();
    lab.seen.wait("the ends", |log| log.ended.len() == 2);
    assert_eq!(lab.server.write_bytes(), (0, 0));
}

#[test]
fn data_that_was_asked_for_comes_whatever_stands_before_it_while_memory_is_used_up() {
    const BEFORE: u32 = 100;
    let lab = Lab::serve(memory(64), scarce());
    let [mut first, mut second] = [1, 2].map(|isid| Initiator::login(lab.address(), MACHINE, isid).unwrap());
    let long = begin_long(&mut first, 1);
    let r2t = first.receive().unwrap();
    assert_eq!((r2t.opcode(), r2t.u32_at(16)), (0x31, long));
    // The second holds memory for what came unasked, and waits for what the first has.
    begin_long(&mut second, 2);
    second.stream.set_read_timeout(Some(A_WHILE)).unwrap();
    assert!(second.receive().is_err(), "asked for although the first has all that there is");
    // The first holds that, and what was asked for comes behind data that was not.
    for turn in 0..BEFORE {
        first.start_write(65_536 + turn * 128, &[3; IMMEDIATE]).unwrap();
    }
    answer(&mut first, &r2t, 1);
    let mut done = 0;
    while done <= BEFORE {
        let pdu = first.receive().unwrap();
        match pdu.opcode() {
            0x31 => answer(&mut first, &pdu, 1),
            _ => {
                assert_eq!((pdu.opcode(), pdu.header[3]), (0x21, 0));
                done += 1;
            }
        }
    }
    second.stream.set_read_timeout(Some(common::PATIENCE)).unwrap();
    assert_eq!(second.receive().unwrap().opcode(), 0x31);
}

#[test]
fn session_that_never_sends_what_it_was_asked_for_is_ended_and_the_next_gets_its_memory() {
    let mut rules = scarce();
    rules.config.data_deadline = Duration::from_millis(1);
    let lab = Lab::serve(memory(64), rules);
    let [mut first, mut second] = [1, 2].map(|isid| Initiator::login(lab.address(), MACHINE, isid).unwrap());
    begin_long(&mut first, 1);
    assert_eq!(first.receive().unwrap().opcode(), 0x31);
    begin_long(&mut second, 2);
    assert!(first.is_closed());
    assert_eq!(second.receive().unwrap().opcode(), 0x31);
    let log = lab.seen.wait("an end", |log| !log.ended.is_empty());
    assert_eq!(log.ended[0], SessionEnd::ConnectionLost);
}

#[test]
fn pdu_that_never_ends_is_not_kept_for_ever() {
    let mut rules = Rules::default();
    rules.config.data_deadline = Duration::from_millis(1);
    let lab = Lab::serve(memory(1), rules);
    let mut initiator = Initiator::login(lab.address(), MACHINE, 1).unwrap();
    let (header, _) = initiator.command(0xA0, IMMEDIATE as u32, &cdb10(0x2A, 0, 128));
    let bytes = pdu(header, &[1; IMMEDIATE]);
    initiator.stream.write_all(&bytes[..IMMEDIATE / 2]).unwrap();
    assert!(initiator.is_closed());
    // One that is short takes no memory to speak of, and may wait.
    let mut initiator = Initiator::login(lab.address(), MACHINE, 1).unwrap();
    let (header, itt) = initiator.command(0xA0, 4096, &cdb10(0x2A, 0, 8));
    let bytes = pdu(header, &[1; 4096]);
    initiator.stream.write_all(&bytes[..1000]).unwrap();
    initiator.stream.write_all(&bytes[1000..]).unwrap();
    assert_eq!(initiator.receive().unwrap().u32_at(16), itt);
}

#[test]
fn reads_that_wait_for_storage_take_no_more_memory_than_there_is_and_all_are_answered() {
    const READS: u32 = 8;
    const READ_BYTES: usize = 256 * 1024;
    let disk = memory(8);
    for turn in 0..READS {
        let data = vec![turn as u8 + 1; READ_BYTES];
        let at = ByteOffset::new(u64::from(turn) * READ_BYTES as u64);
        disk.write(at, &data, Patience::Blocking).unwrap();
    }
    let gated = Gated::new(disk, false);
    let mut rules = Rules::default();
    rules.config.max_reading_bytes = 0;
    let lab = Lab::serve(gated.clone(), rules);
    let mut initiators = [1, 2].map(|isid| Initiator::login(lab.address(), MACHINE, isid).unwrap());
    for initiator in &mut initiators {
        for turn in 0..READS {
            initiator.start_read(turn * 512, 512).unwrap();
        }
        // Its answer comes when all that was sent before has been looked at.
        ping(initiator);
        assert_eq!(initiator.receive().unwrap().opcode(), 0x20);
    }
    gated.wait_for(1);
    assert_eq!(lab.server.read_bytes(), READ_BYTES as u64, "half of the least that there is, for one store");
    gated.open();
    for initiator in &mut initiators {
        let mut bytes = 0;
        while bytes < READS as usize * READ_BYTES {
            let answer = initiator.receive().unwrap();
            assert_eq!(answer.opcode(), 0x25);
            // Tags count from 1 as the reads do.
            let value = answer.u32_at(16) as u8;
            assert!(answer.data.iter().all(|byte| *byte == value), "read {value}");
            bytes += answer.data.len();
        }
        initiator.logout().unwrap();
    }
    lab.seen.wait("the ends", |log| log.ended.len() == 2);
    assert_eq!(lab.server.read_bytes(), 0);
}
