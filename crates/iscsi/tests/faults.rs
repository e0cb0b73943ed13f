//! Connections that end anywhere, storage that fails, storage that hangs.
mod common;

use std::io::Write as _;
use std::net::Shutdown;
use std::sync::Arc;

use block::{
    BlockDevice, BlockError, ByteLength, ByteOffset, ByteRange, Fault, FaultDevice, Geometry, Operation,
    Patience,
};
use common::initiator::{Initiator, cdb10, pdu};
use common::{Gated, Lab, Rules, memory};
use iscsi::directory::SessionEnd;

const MACHINE: &str = "iqn.2026-01.lab:machine";
const OLD: [u8; 1024] = [0x11; 1024];
const NEW: [u8; 1024] = [0x22; 1024];

/// The bytes of a session after its login: a write of [`NEW`] over two PDUs (half of it unsolicited), a read, a logout.
fn session() -> Vec<u8> {
    let command = |flags: u8, itt: u8, cmd_sn: u8, expected: u32, cdb: [u8; 10]| {
        let mut header = [0; 48];
        (header[0], header[1], header[9], header[19], header[27]) = (0x01, flags, 1, itt, cmd_sn);
        header[20..24].copy_from_slice(&expected.to_be_bytes());
        header[32..42].copy_from_slice(&cdb);
        header
    };
    let mut bytes = pdu(command(0x20, 1, 1, 1024, cdb10(0x2A, 8, 2)), &NEW[..512]);
    let mut data_out = [0; 48];
    (data_out[0], data_out[1], data_out[9], data_out[19], data_out[42]) = (0x05, 0x80, 1, 1, 2);
    data_out[20..24].fill(0xFF);
    bytes.extend(pdu(data_out, &NEW[512..]));
    bytes.extend(pdu(command(0xC0, 2, 2, 1024, cdb10(0x28, 8, 2)), &[]));
    let mut logout = [0; 48];
    (logout[0], logout[1], logout[19], logout[27]) = (0x46, 0x80, 3, 3);
    bytes.extend(pdu(logout, &[]));
    bytes
}

#[test]
fn connection_lost_at_any_byte_leaves_a_write_whole_or_undone() {
    let disk = memory(1);
    let lab = Lab::serve(Arc::clone(&disk), Rules::default());
    let bytes = session();
    let mut written = 0;
    for cut in (0..=bytes.len()).rev() {
        disk.write(ByteOffset::new(8 * 512), &OLD, Patience::Now).unwrap();
        let mut connection = Initiator::login(lab.address(), MACHINE, 1).unwrap();
        connection.stream.write_all(&bytes[..cut]).unwrap();
        connection.stream.shutdown(Shutdown::Write).unwrap();
        assert!(connection.is_closed(), "cut at {cut}");
        lab.seen.wait("the session's end", |log| log.ended.len() == log.opened.len());
        let mut found = [0; 1024];
        disk.read(ByteOffset::new(8 * 512), &mut found, Patience::Now).unwrap();
        assert!(found == OLD || found == NEW, "cut at {cut}: half a write");
        written += usize::from(found == NEW);
    }
    let behind_the_write = 2 * 48 + 1;
    assert_eq!(written, behind_the_write, "done exactly where all of its data had come");
    let log = lab.seen.wait("the ends", |log| log.ended.len() == log.opened.len());
    assert_eq!(log.ended.iter().filter(|how| **how == SessionEnd::Logout).count(), 1);
}

#[test]
fn failing_storage_is_told_in_sense_data_and_the_session_goes_on() {
    let faulty = Arc::new(FaultDevice::new(memory(1)));
    let lab = Lab::serve(Arc::clone(&faulty) as _, Rules::default());
    let mut initiator = Initiator::login(lab.address(), MACHINE, 1).unwrap();
    let range = ByteRange::new(ByteOffset::new(4096), ByteLength::new(512)).unwrap();
    let kind = std::io::ErrorKind::Other;
    let failures =
        [(Operation::Read, [0x03, 0x11]), (Operation::Write, [0x03, 0x0C]), (Operation::Flush, [0x03, 0x0C])];
    for (operation, sense) in failures {
        faulty.plan(Fault { operation, range, times: 1, kind });
        match operation {
            Operation::Read => initiator.start_read(0, 100).unwrap(),
            Operation::Flush => {
                let (header, itt) = initiator.command(0x80, 0, &cdb10(0x35, 0, 0));
                initiator.send(header, &[]).unwrap();
                itt
            }
            _ => initiator.start_write(0, &[7; 8192]).unwrap(),
        };
        let answer = initiator.receive().unwrap();
        assert_eq!((answer.opcode(), answer.header[3]), (0x21, 2));
        assert_eq!([answer.data[4], answer.data[14]], sense, "{operation:?}");
        initiator.write(8, &[9; 512]).unwrap();
        assert_eq!(initiator.read(8, 1).unwrap(), [9; 512]);
    }
}

/// Takes no write: its store is full.
#[derive(Debug)]
struct Full(Arc<dyn BlockDevice>);

impl BlockDevice for Full {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }
    fn read(&self, at: ByteOffset, buffer: &mut [u8], patience: Patience) -> Result<(), BlockError> {
        self.0.read(at, buffer, patience)
    }
    fn write(&self, _: ByteOffset, _: &[u8], _: Patience) -> Result<(), BlockError> {
        Err(BlockError::NoSpace { what: "the store".to_owned() })
    }
    fn flush(&self, patience: Patience) -> Result<(), BlockError> {
        self.0.flush(patience)
    }
    fn discard(&self, range: ByteRange, patience: Patience) -> Result<(), BlockError> {
        self.0.discard(range, patience)
    }
    fn write_zeroes(&self, range: ByteRange, patience: Patience) -> Result<(), BlockError> {
        self.0.write_zeroes(range, patience)
    }
}

#[test]
fn full_store_protects_the_disk_from_writes_and_reads_go_on() {
    let lab = Lab::serve(Arc::new(Full(memory(1))), Rules::default());
    let mut initiator = Initiator::login(lab.address(), MACHINE, 1).unwrap();
    initiator.start_write(0, &[7; 512]).unwrap();
    let answer = initiator.receive().unwrap();
    assert_eq!((answer.header[3], answer.data[4], answer.data[14], answer.data[15]), (2, 0x07, 0x27, 0x07));
    assert_eq!(initiator.read(0, 1).unwrap(), [0; 512]);
}

#[test]
fn disk_whose_store_hangs_holds_up_no_other() {
    let hanging = Gated::new(memory(4), false);
    // Open, but never ready at once: everything on it needs a worker.
    let slow = Gated::new(memory(4), true);
    let lab = Lab::serve(hanging.clone(), Rules { second: Some(slow), ..Rules::default() });
    let mut stuck = Initiator::login(lab.address(), MACHINE, 1).unwrap();
    let mut other = Initiator::login(lab.address(), MACHINE, 2).unwrap();
    // Reads: of writes that come one at a time, one waits for the others.
    for lba in 0..100 {
        let (header, _) = stuck.command(0xC0, 512, &cdb10(0x28, lba, 1));
        stuck.send(header, &[]).unwrap();
    }
    hanging.wait_for(6);
    for lba in 0..20_u32 {
        let (mut header, itt) = other.command(0xC0, 512, &cdb10(0x28, lba, 1));
        header[9] = 2;
        other.send(header, &[]).unwrap();
        let answer = other.receive().unwrap();
        assert_eq!((answer.opcode(), answer.u32_at(16), answer.data.len()), (0x25, itt, 512));
    }
    hanging.open();
    for _ in 0..100 {
        assert_eq!(stuck.receive().unwrap().header[3], 0);
    }
}

#[test]
fn session_whose_store_stalls_longer_than_every_deadline_goes_on_when_it_is_back() {
    const PINGS: usize = 3;
    let gated = Gated::new(memory(4), false);
    let mut rules = Rules::default();
    let short = std::time::Duration::from_millis(50);
    (rules.config.ping_after, rules.config.login_deadline) = (short, short);
    rules.config.data_deadline = short;
    let lab = Lab::serve(gated.clone(), rules);
    let mut initiator = Initiator::login(lab.address(), MACHINE, 1).unwrap();
    // Immediate data, and a write whose data is asked for.
    initiator.start_write(0, &[1; 4096]).unwrap();
    // With FUA, so that it does not wait for the first.
    let mut cdb = cdb10(0x2A, 8, 100);
    cdb[1] = 0x08;
    let (header, itt) = initiator.command(0xA0, 100 * 512, &cdb);
    initiator.send(header, &[]).unwrap();
    let r2t = initiator.receive().unwrap();
    assert_eq!((r2t.opcode(), r2t.u32_at(16)), (0x31, itt));
    let mut data_out = [0; 48];
    (data_out[0], data_out[1], data_out[9]) = (0x05, 0x80, 1);
    data_out[16..24].copy_from_slice(&r2t.header[16..24]);
    initiator.send(data_out, &[2; 100 * 512]).unwrap();
    gated.wait_for(2);
    // One that knows pings is pinged. Each comes a deadline later than the one before.
    let (mut ping, _) = initiator.command(0x80, u32::MAX, &[]);
    ping[0] = 0;
    initiator.send(ping, &[]).unwrap();
    let mut answered = 0;
    while answered < PINGS {
        let pdu = initiator.receive().unwrap();
        assert_eq!(pdu.opcode(), 0x20, "nothing is answered while the store stalls");
        if pdu.u32_at(20) != u32::MAX {
            let (mut pong, _) = initiator.command(0x80, pdu.u32_at(20), &[]);
            pong[0] = 0x40;
            pong[16..20].fill(0xFF);
            initiator.cmd_sn -= 1;
            initiator.send(pong, &[]).unwrap();
            answered += 1;
        }
    }
    gated.open();
    let mut done = 0;
    while done < 2 {
        let pdu = initiator.receive().unwrap();
        if pdu.opcode() == 0x21 {
            assert_eq!(pdu.header[3], 0);
            done += 1;
        }
    }
    assert!(lab.seen.wait("no end", |_| true).ended.is_empty());
}

#[test]
fn server_out_of_budget_asks_for_write_data_later() {
    const WRITE: u32 = 24 << 20;
    let mut rules = Rules::default();
    rules.config.max_solicited_bytes = 0; // what one write needs, then
    let lab = Lab::serve(memory(64), rules);
    let mut pair = [1, 2].map(|isid| Initiator::login(lab.address(), MACHINE, isid).unwrap());
    let begin = |initiator: &mut Initiator| {
        let (header, _) = initiator.command(0xA0, WRITE, &cdb10(0x2A, 0, (WRITE / 512) as u16));
        initiator.send(header, &[]).unwrap();
    };
    let [first, second] = &mut pair;
    begin(first);
    assert_eq!(first.receive().unwrap().opcode(), 0x31);
    begin(second);
    second.stream.set_read_timeout(Some(std::time::Duration::from_millis(300))).unwrap();
    assert!(second.receive().is_err(), "asked for although the first has the whole budget");
    first.stream.shutdown(Shutdown::Both).unwrap();
    second.stream.set_read_timeout(Some(common::PATIENCE)).unwrap();
    assert_eq!(second.receive().unwrap().opcode(), 0x31);
}
