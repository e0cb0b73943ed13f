//! Who is served when one client wants everything: counted in what is read and written between, not in time.
mod common;

use std::sync::{Arc, Condvar, Mutex};

use block::{BlockDevice, WatchDevice};
use common::devices::Gated;
use common::{Disk, Lab, OTHER, PATIENCE, memory};
use nbd::client::{ChangeOptions, Client, ConnectOptions, Event, Request, ServerAddress};
use nbd::server::{Listener, ServerConfig};

/// Clients that ask for little.
const MODEST: u64 = 8;

/// Reads of the greedy client, 32 MiB together.
const GREEDY: u64 = 128;

/// What one turn of a connection may move of large reads: four rounds of four portions, each a piece of 256 KiB at most.
const TURN_BYTES: u64 = 4 * 4 * 256 * 1024;

/// The length of each.
const GREEDY_BYTES: u32 = 256 * 1024;

/// What was read of both disks, in its order; and a gate at which the server's only thread stands still.
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
    fn read(&self, who: &'static str, bytes: u64) {
        let mut state = self.state.lock().unwrap();
        if !state.open && who == "greedy" {
            state.stands = true;
            self.changed.notify_all();
            state = self.changed.wait_while(state, |state| !state.open).unwrap();
        }
        state.reads.push((who, bytes));
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

    /// The bytes that the greedy client was given before the last modest one was served.
    fn before_the_last_modest(&self) -> u64 {
        let state = self.state.lock().unwrap();
        let last = state.reads.iter().rposition(|(who, _)| *who == "modest").unwrap();
        state.reads[..last].iter().filter(|(who, _)| *who == "greedy").map(|(_, bytes)| bytes).sum()
    }
}

#[test]
fn modest_clients_are_served_after_one_turn_of_a_greedy_one() {
    let ledger = Arc::new(Ledger::default());
    let logged = |who, mebibytes| -> Arc<dyn BlockDevice> {
        let ledger = Arc::clone(&ledger);
        let device = WatchDevice::new(memory(mebibytes));
        Arc::new(device.watched(move |_, length| ledger.read(who, length.get())))
    };
    let listener = Listener::Tcp(std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let config = ServerConfig { threads: 1, ..ServerConfig::default() };
    let (greedy, modest) = (Disk::new(logged("greedy", 64)), Disk::new(logged("modest", 1)));
    let lab = Lab::listen_with(vec![listener], greedy, Some(modest), config);
    let read = |offset, length| Request::Read { offset, length, unfragmented: false };
    let options = ConnectOptions { export: OTHER.to_owned(), ..ConnectOptions::default() };
    let mut greedy = lab.connect(&ConnectOptions::default());
    let mut modest: Vec<Client> = (0..MODEST).map(|_| lab.connect(&options)).collect();
    // One read has the server's thread stand still; all requests come while it does.
    greedy.submit(&read(0, 512)).unwrap();
    greedy.send().unwrap();
    ledger.wait_until_it_stands();
    for turn in 0..GREEDY {
        greedy.submit(&read(turn * u64::from(GREEDY_BYTES), GREEDY_BYTES)).unwrap();
    }
    greedy.send().unwrap();
    for client in &mut modest {
        client.submit(&read(0, 4096)).unwrap();
        client.send().unwrap();
    }
    // It takes whatever it is given, as fast as it comes.
    let taker = std::thread::spawn(move || all_succeed(&mut greedy));
    ledger.open();
    modest.iter_mut().for_each(all_succeed);
    taker.join().unwrap();
    let bytes = ledger.before_the_last_modest();
    assert!(bytes <= TURN_BYTES, "the last modest client waited for {bytes} bytes of the greedy one");
}

fn all_succeed(client: &mut Client) {
    while client.in_flight() > 0 {
        client
            .receive(&mut |event| {
                if let Event::Finished { result, .. } = event {
                    assert!(result.is_ok(), "{result:?}");
                }
            })
            .unwrap();
    }
}

/// A small write of each of the four places, on its way.
fn begin_writes(place: &ServerAddress) -> Client {
    let mut client = Client::connect(place, &ConnectOptions::default()).unwrap();
    for turn in 0..4 {
        let options = ChangeOptions::default();
        client.submit(&Request::Write { offset: turn * 4096, data: &[1; 4096], options }).unwrap();
    }
    client.send().unwrap();
    client
}

#[test]
fn write_that_hangs_holds_up_other_writes_of_its_disk_alone() {
    const READS: usize = 3;
    let gated = Gated::closed(memory(1));
    let listener = Listener::Tcp(std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let config = ServerConfig { threads: 1, ..ServerConfig::default() };
    let other = Some(Disk::new(memory(1)));
    let lab = Lab::listen_with(vec![listener], Disk::new(gated.clone()), other, config);
    let mut writer = begin_writes(&lab.place());
    gated.wait_for(1);
    let mut reader = lab.connect(&ConnectOptions::default());
    for turn in 0..READS as u64 {
        reader.submit(&Request::Read { offset: turn * 4096, length: 4096, unfragmented: false }).unwrap();
    }
    reader.send().unwrap();
    // Whoever stood in the disk's line before the reads would have had a thread by now.
    gated.wait_for(1 + READS);
    assert_eq!(gated.waiting_writes(), 1, "writes wait for each other, on one thread");
    let options = ConnectOptions { export: OTHER.to_owned(), ..ConnectOptions::default() };
    lab.connect(&options).write(0, &[2; 4096], ChangeOptions::default()).unwrap();
    gated.open();
    all_succeed(&mut reader);
    all_succeed(&mut writer);
}
