//! Who is served when one session wants everything: counted in what is read between, not in time.
mod common;

use std::sync::{Arc, Condvar, Mutex};

use block::{BlockDevice, WatchDevice};
use common::initiator::{Initiator, cdb10};
use common::{Gated, Lab, PATIENCE, Rules, memory};

const MACHINE: &str = "iqn.2026-01.lab:machine";

/// Sessions that ask for little.
const MODEST: u8 = 10;

/// Reads of the greedy session, and their length: its whole window, 32 MiB.
const GREEDY: u32 = 127;
const GREEDY_BLOCKS: u16 = 512;

/// What one turn of a connection may move: four rounds, each up to the mark of its output and one segment beyond it.
const TURN_BYTES: u64 = 4 * 2 * 256 * 1024;

/// What was read on all disks, in its order; and a gate at which the server's only thread stands still.
#[derive(Debug, Default)]
struct Ledger {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    stands: bool,
    open: bool,
    reads: Vec<(&'static str, u64)>,
}

impl Ledger {
    fn read(&self, who: &'static str, at: u64, bytes: u64) {
        let mut state = self.state.lock().unwrap();
        if !state.open && who == "greedy" {
            state.stands = true;
            self.changed.notify_all();
            state = self.changed.wait_while(state, |state| !state.open).unwrap();
        }
        state.reads.push((who, if who == "greedy" { bytes } else { at }));
    }

    fn wait_until_it_stands(&self) {
        let state = self.state.lock().unwrap();
        let waited = self.changed.wait_timeout_while(state, PATIENCE, |state| !state.stands).unwrap();
        assert!(!waited.1.timed_out(), "nothing was read");
    }

    fn open(&self) {
        self.state.lock().unwrap().open = true;
        self.changed.notify_all();
    }
}

#[test]
fn modest_sessions_are_served_after_one_turn_of_a_greedy_one() {
    let ledger = Arc::new(Ledger::default());
    let logged = |who, mebibytes| -> Arc<dyn BlockDevice> {
        let ledger = Arc::clone(&ledger);
        let device = WatchDevice::new(memory(mebibytes));
        Arc::new(device.watched(move |at, length| ledger.read(who, at.get(), length.get())))
    };
    let mut rules = Rules { second: Some(logged("modest", 1)), ..Rules::default() };
    rules.config.threads = 1;
    let lab = Lab::serve(logged("greedy", 64), rules);
    let mut greedy = Initiator::login(lab.address(), MACHINE, 1).unwrap();
    let mut modest: Vec<Initiator> =
        (0..MODEST).map(|turn| Initiator::login(lab.address(), MACHINE, 2 + turn).unwrap()).collect();
    // One read has the server's thread stand still; all requests come while it does.
    greedy.start_read(0, 1).unwrap();
    ledger.wait_until_it_stands();
    for turn in 0..GREEDY {
        greedy.start_read(turn * u32::from(GREEDY_BLOCKS), GREEDY_BLOCKS).unwrap();
    }
    for (turn, session) in modest.iter_mut().enumerate() {
        let (mut header, _) = session.command(0xC0, 4096, &cdb10(0x28, turn as u32 * 8, 8));
        header[9] = 2;
        session.send(header, &[]).unwrap();
    }
    // It takes whatever it is given, as fast as it comes.
    let taker = std::thread::spawn(move || {
        let mut bytes = 0;
        while bytes < 512 + GREEDY as usize * usize::from(GREEDY_BLOCKS) * 512 {
            bytes += greedy.receive().unwrap().data.len();
        }
    });
    ledger.open();
    for session in &mut modest {
        assert_eq!(session.receive().unwrap().data.len(), 4096);
    }
    taker.join().unwrap();
    let reads = &ledger.state.lock().unwrap().reads;
    let last = reads.iter().rposition(|(who, _)| *who == "modest").unwrap();
    let before: u64 = reads[..last].iter().filter(|(who, _)| *who == "greedy").map(|(_, bytes)| bytes).sum();
    assert!(before <= TURN_BYTES, "the last modest session waited for {before} bytes of the greedy one");
    let mut served: Vec<u64> = reads.iter().filter(|(who, _)| *who == "modest").map(|(_, at)| *at).collect();
    served.sort_unstable();
    assert_eq!(served, (0..u64::from(MODEST)).map(|turn| turn * 4096).collect::<Vec<_>>());
}

#[test]
fn write_that_hangs_holds_up_other_writes_of_its_disk_alone() {
    const READS: u32 = 3;
    let gated = Gated::new(memory(1), false);
    let rules = Rules { second: Some(memory(1)), ..Rules::default() };
    let lab = Lab::serve(gated.clone(), rules);
    let mut writer = Initiator::login(lab.address(), MACHINE, 1).unwrap();
    for turn in 0..4 {
        writer.start_write(turn * 8, &[1; 4096]).unwrap();
    }
    gated.wait_for(1);
    for turn in 0..READS {
        writer.start_read(turn * 8, 8).unwrap();
    }
    // Whoever stood in the disk's line before the reads would have had a thread by now.
    gated.wait_for(1 + READS as usize);
    assert_eq!(gated.waiting_writes(), 1, "writes wait for each other, on one thread");
    // Another disk, in the same session.
    let (mut header, itt) = writer.command(0xA0, 4096, &cdb10(0x2A, 0, 8));
    header[9] = 2;
    writer.send(header, &[2; 4096]).unwrap();
    assert_eq!(writer.receive().unwrap().u32_at(16), itt);
    gated.open();
    for _ in 0..4 + READS {
        let answer = writer.receive().unwrap();
        assert_eq!((answer.header[3], matches!(answer.opcode(), 0x21 | 0x25)), (0, true));
    }
}
