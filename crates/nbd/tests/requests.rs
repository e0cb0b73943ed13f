//! Requests of our client to our server, over devices of every temper.
mod common;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use block::{
    Access, BlockDevice, ByteLength, ByteOffset, ByteRange, DelayDevice, Fault, FaultDevice,
    LogicalBlockSize, MemoryDevice, Operation,
};
use common::devices::{CLUSTER, COPIED, Cold, Gated, Scattered, Sparse};
use common::{Disk, FORBIDDEN, Lab, SECRET, memory, quick};
use mutate::Rng;
use nbd::client::{
    ChangeOptions, Client, ClientError, ConnectError, ConnectOptions, Cookie, Event, RefusalKind, Request,
};
use nbd::exports::{ConnectionEnd, RequestKind};
use nbd::server::ServerConfig;
use nbd::{Errno, Extent};

const PLAIN: ChangeOptions = ChangeOptions { fua: false, no_hole: false, fast_zero: false };

fn pattern(bytes: usize, seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    (0..bytes.div_ceil(8)).flat_map(|_| rng.next().to_le_bytes()).take(bytes).collect()
}

fn errno(result: Result<(), ClientError>) -> Option<Errno> {
    match result {
        Ok(()) => None,
        Err(ClientError::Errno(errno)) => Some(errno),
        Err(error) => panic!("{error}"),
    }
}

/// What a request in flight is to give.
enum Awaited {
    Read { offset: u64, expected: Vec<u8>, got: Vec<u8> },
    Change,
}

/// Keeps random requests in flight whose ranges do not overlap, and compares every answer with a model.
fn random_requests(name: &str, client: &mut Client, size: u64, rounds: u32) {
    let mut rng = Rng::new(99);
    let mut model = vec![0_u8; size as usize];
    for chunk in 0..size >> 20 {
        // Whatever was there before.
        client.write_zeroes(chunk << 20, 1 << 20, PLAIN).unwrap();
    }
    let mut flying: HashMap<Cookie, (u64, u64, Awaited)> = HashMap::new();
    for round in 0..rounds {
        while flying.len() < 24 {
            let length = match rng.below(8) {
                0 => 512 * (1 + rng.below(1500)),
                1 => 512 * (1 + rng.below(300)),
                _ => 512 * (1 + rng.below(16)),
            };
            let offset = 512 * rng.below((size - length) / 512);
            let apart = |(at, bytes): (u64, u64)| offset + length <= at || at + bytes <= offset;
            if !flying.values().all(|(at, bytes, _)| apart((*at, *bytes))) {
                break;
            }
            let range = offset as usize..(offset + length) as usize;
            let options = ChangeOptions { fua: rng.below(4) == 0, no_hole: false, fast_zero: false };
            let data;
            let (request, awaited) = match rng.below(10) {
                0 => {
                    model[range].fill(0);
                    let no_hole = rng.below(2) == 0;
                    let options = ChangeOptions { no_hole, ..options };
                    (Request::WriteZeroes { offset, length, options }, Awaited::Change)
                }
                1 => {
                    // The test devices zero what is discarded.
                    model[range].fill(0);
                    (Request::Trim { offset, length, options }, Awaited::Change)
                }
                2 => (Request::Cache { offset, length }, Awaited::Change),
                3..6 => {
                    data = pattern(length as usize, u64::from(round) << 8 | rng.below(256));
                    model[range].copy_from_slice(&data);
                    (Request::Write { offset, data: &data, options }, Awaited::Change)
                }
                _ => {
                    let expected = model[range].to_vec();
                    let got = vec![0xEE; expected.len()];
                    let length = length as u32;
                    let request = Request::Read { offset, length, unfragmented: false };
                    (request, Awaited::Read { offset, expected, got })
                }
            };
            let cookie = client.submit(&request).unwrap();
            flying.insert(cookie, (offset, length, awaited));
        }
        client
            .receive(&mut |event| match event {
                Event::Data { cookie, offset: at, bytes } => {
                    let Some((_, _, Awaited::Read { offset, got, .. })) = flying.get_mut(&cookie) else {
                        panic!("{name}: data for no read");
                    };
                    let start = (at - *offset) as usize;
                    got[start..start + bytes.len()].copy_from_slice(bytes);
                }
                Event::Zeroes { cookie, offset: at, length } => {
                    let Some((_, _, Awaited::Read { offset, got, .. })) = flying.get_mut(&cookie) else {
                        panic!("{name}: zeros for no read");
                    };
                    let start = (at - *offset) as usize;
                    got[start..start + length as usize].fill(0);
                }
                Event::Extents { .. } => panic!("{name}: nobody asked for extents"),
                Event::Finished { cookie, result } => {
                    result.unwrap();
                    let (_, _, awaited) = flying.remove(&cookie).unwrap();
                    if let Awaited::Read { offset, expected, got } = awaited {
                        assert!(got == expected, "{name}: a read of {} at {offset} differs", expected.len());
                    }
                }
            })
            .unwrap();
    }
    while client.in_flight() > 0 {
        client.receive(&mut |_| {}).unwrap();
    }
}

#[test]
fn random_requests_agree_with_a_model_on_every_device_and_in_every_form() {
    let delayed = DelayDevice::new(memory(4), Duration::from_micros(50));
    let devices: [(&str, Arc<dyn BlockDevice>, u32); 3] = [
        ("memory", memory(8), 1500),
        ("sparse", Sparse::new(memory(8)), 1500),
        ("slow", Arc::new(delayed), 400),
    ];
    for (device_name, device, rounds) in devices {
        let lab = Lab::serve(device);
        for (form, mut client) in lab.clients() {
            random_requests(&format!("{device_name}, {form}"), &mut client, 4 << 20, rounds);
            client.disconnect().unwrap();
        }
        lab.seen.wait("the goodbyes", |log| {
            log.ended.len() == log.opened.len()
                && log.ended.iter().all(|how| *how == ConnectionEnd::Disconnected)
        });
    }
}

#[test]
fn reads_from_runs_of_a_file_are_byte_exact() {
    let contents = pattern(48 << 20, 5);
    let lab = Lab::serve(Scattered::new(&contents));
    for (form, mut client) in lab.clients() {
        assert!(client.export().read_only);
        let mut rng = Rng::new(3);
        for round in 0..60 {
            let length = if round == 0 { 32 << 20 } else { 512 * (1 + rng.below(4000)) };
            let offset = 512 * rng.below((contents.len() as u64 - length) / 512);
            let mut got = vec![0; length as usize];
            client.read(offset, &mut got).unwrap();
            assert!(got == contents[offset as usize..][..got.len()], "{form}: {length} bytes at {offset}");
        }
    }
}

#[test]
fn read_that_waited_for_storage_goes_out_from_its_file_unless_it_is_small() {
    let contents = pattern(4 << 20, 6);
    let lab = Lab::serve(Cold::new(&contents));
    for (form, mut client) in lab.clients() {
        // Pieces of 256 KiB; the last of them may be short.
        for (length, from_file) in
            [(4096, 0), (16 << 10, 16 << 10), (260 << 10, 256 << 10), (2 << 20, 2 << 20)]
        {
            let mut got = vec![0; length];
            client.read(8192, &mut got).unwrap();
            let (sent, copied) = got.split_at(from_file);
            assert!(*sent == contents[8192..][..from_file], "{form}: {length} bytes");
            assert!(copied.iter().all(|byte| *byte == COPIED), "{form}: {length} bytes");
        }
    }
}

#[test]
fn illegal_requests_get_the_errno_that_the_document_names() {
    let lab = Lab::serve(memory(64));
    let fast_and_stored = ChangeOptions { fua: false, no_hole: true, fast_zero: true };
    for (form, mut client) in lab.clients() {
        let end = 64_u64 << 20;
        let mut block = [0; 512];
        assert_eq!(errno(client.read(end, &mut block)), Some(Errno::Invalid), "{form}");
        assert_eq!(errno(client.read(1, &mut block)), Some(Errno::Invalid), "{form}");
        assert_eq!(errno(client.read(0, &mut block[..100])), Some(Errno::Invalid), "{form}");
        assert_eq!(errno(client.read(0, &mut vec![0; (32 << 20) + 512])), Some(Errno::Invalid), "{form}");
        assert_eq!(errno(client.write(end, &block, PLAIN)), Some(Errno::NoSpace), "{form}");
        assert_eq!(errno(client.write(end - 512, &[1; 1024], PLAIN)), Some(Errno::NoSpace), "{form}");
        assert_eq!(errno(client.write(3, &block, PLAIN)), Some(Errno::Invalid), "{form}");
        assert_eq!(errno(client.trim(end, 512, PLAIN)), Some(Errno::Invalid), "{form}");
        assert_eq!(errno(client.write_zeroes(end, 512, PLAIN)), Some(Errno::NoSpace), "{form}");
        assert_eq!(errno(client.write_zeroes(0, 512, fast_and_stored)), Some(Errno::NotSupported), "{form}");
        assert_eq!(errno(client.cache(end - 512, 1024)), Some(Errno::Invalid), "{form}");
        if form != "simple" {
            let status = client.block_status(end, 512);
            assert!(matches!(status, Err(ClientError::Errno(Errno::Invalid))), "{form}: {status:?}");
        }
        // And the connection goes on.
        client.write(0, &[7; 512], PLAIN).unwrap();
        client.read(0, &mut block).unwrap();
        assert_eq!(block, [7; 512]);
    }
}

#[test]
fn changes_of_a_read_only_export_are_not_permitted() {
    let lab = Lab::start(Disk { read_only: true, ..Disk::new(memory(1)) }, quick());
    for (form, mut client) in lab.clients() {
        assert!(client.export().read_only && !client.export().can_trim && !client.export().can_write_zeroes);
        assert_eq!(errno(client.write(0, &[1; 512], PLAIN)), Some(Errno::Permission), "{form}");
        assert_eq!(errno(client.trim(0, 512, PLAIN)), Some(Errno::Permission), "{form}");
        assert_eq!(errno(client.write_zeroes(0, 512, PLAIN)), Some(Errno::Permission), "{form}");
        client.flush().unwrap();
        let mut block = [1; 512];
        client.read(0, &mut block).unwrap();
        assert_eq!(block, [0; 512]);
    }
}

#[test]
fn long_read_in_one_piece_is_an_overflow_and_a_short_one_is_not() {
    let lab = Lab::serve(memory(4));
    let mut client = lab.connect(&ConnectOptions::default());
    for (length, expected) in [(65536, Ok(())), (1 << 20, Err(Errno::Overflow))] {
        client.submit(&Request::Read { offset: 0, length, unfragmented: true }).unwrap();
        let (mut pieces, mut finished) = (Vec::new(), None);
        while finished.is_none() {
            client
                .receive(&mut |event| match event {
                    Event::Data { offset, bytes, .. } => pieces.push((offset, bytes.len())),
                    Event::Finished { result, .. } => finished = Some(result),
                    other => panic!("{other:?}"),
                })
                .unwrap();
        }
        assert_eq!(finished, Some(expected));
    }
}

#[test]
fn block_status_joins_runs_and_holes_are_not_sent() {
    let device = Sparse::new(memory(4));
    let lab = Lab::serve(Arc::clone(&device) as Arc<dyn BlockDevice>);
    let data = |length| Extent { length, hole: false, zero: false };
    let hole = |length| Extent { length, hole: true, zero: true };
    for (form, mut client) in lab.clients() {
        client.write_zeroes(0, 4 << 20, PLAIN).unwrap();
        client.write(1 << 20, &[9; 40_960], PLAIN).unwrap();
        if form == "simple" {
            assert!(!client.export().can_block_status);
            continue;
        }
        let written = 3 * CLUSTER;
        let all = client.block_status(0, 4 << 20).unwrap();
        assert_eq!(all, [hole(1 << 20), data(written), hole((3 << 20) - written)], "{form}");
        assert_eq!(client.block_status((1 << 20) + 512, 1024).unwrap(), [data(1024)], "{form}");
        client.submit(&Request::BlockStatus { offset: 0, length: 4 << 20, one: true }).unwrap();
        let mut one = Vec::new();
        client
            .receive(&mut |event| {
                if let Event::Extents { extents, .. } = event {
                    one = extents.to_vec();
                }
            })
            .unwrap();
        assert_eq!(one, [hole(1 << 20)], "{form}");

        client.submit(&Request::Read { offset: 0, length: 2 << 20, unfragmented: false }).unwrap();
        let (mut sent, mut told) = (0, 0);
        while client.in_flight() > 0 {
            client
                .receive(&mut |event| match event {
                    Event::Data { bytes, .. } => sent += bytes.len() as u64,
                    Event::Zeroes { length, .. } => told += length,
                    _ => {}
                })
                .unwrap();
        }
        assert_eq!(sent + told, 2 << 20);
        assert!(told > 1 << 20, "{form}: only {told} bytes were told as holes");
    }
}

#[test]
fn unselected_block_status_is_invalid() {
    let lab = Lab::serve(memory(1));
    let mut client = lab.connect(&ConnectOptions { allocation: false, ..ConnectOptions::default() });
    assert!(!client.export().can_block_status);
    let status = client.block_status(0, 512);
    assert!(matches!(status, Err(ClientError::Errno(Errno::Invalid))), "{status:?}");
}

#[test]
fn refusals_of_exports_carry_their_reason() {
    let lab = Lab::serve(memory(1));
    let refusal = |export: &str| {
        let options = ConnectOptions { export: export.to_owned(), ..ConnectOptions::default() };
        match Client::connect(&lab.place(), &options) {
            Err(ConnectError::Refused { reason, message, .. }) => (reason, message),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(refusal("nothing"), (RefusalKind::Unknown, "there is only \"disk\"".to_owned()));
    assert_eq!(refusal(FORBIDDEN), (RefusalKind::Policy, "not for you".to_owned()));
    assert_eq!(refusal(SECRET).0, RefusalKind::Policy);
    let listed = Client::list(&lab.place(), &ConnectOptions::default()).unwrap();
    assert_eq!(listed.iter().map(|export| export.name.as_str()).collect::<Vec<_>>(), ["disk"]);
}

fn fault(operation: Operation, at: u64, kind: std::io::ErrorKind) -> Fault {
    let range = ByteRange::new(ByteOffset::new(at), ByteLength::new(512)).unwrap();
    Fault { operation, range, times: 1, kind }
}

#[test]
fn failures_of_the_device_become_their_errno_and_pass() {
    let device = Arc::new(FaultDevice::new(memory(8)));
    let lab = Lab::serve(Arc::clone(&device) as Arc<dyn BlockDevice>);
    let fua = ChangeOptions { fua: true, ..PLAIN };
    for (form, mut client) in lab.clients() {
        let mut block = [0; 512];
        device.plan(fault(Operation::Read, 4096, std::io::ErrorKind::Other));
        assert_eq!(errno(client.read(4096, &mut block)), Some(Errno::Io), "{form}");
        client.read(4096, &mut block).unwrap();
        device.plan(fault(Operation::Write, 4096, std::io::ErrorKind::StorageFull));
        assert_eq!(errno(client.write(0, &[1; 8192], PLAIN)), Some(Errno::NoSpace), "{form}");
        client.write(0, &[1; 8192], PLAIN).unwrap();
        // In the second piece of a long write: the rest is read over.
        device.plan(fault(Operation::Write, 300 << 10, std::io::ErrorKind::Other));
        assert_eq!(errno(client.write(0, &vec![2; 1 << 20], PLAIN)), Some(Errno::Io), "{form}");
        device.plan(fault(Operation::Flush, 0, std::io::ErrorKind::Other));
        assert_eq!(errno(client.write(0, &[3; 512], fua)), Some(Errno::Io), "{form}");
        device.plan(fault(Operation::Flush, 0, std::io::ErrorKind::Other));
        assert_eq!(errno(client.flush()), Some(Errno::Io), "{form}");
        device.plan(fault(Operation::Discard, 0, std::io::ErrorKind::Other));
        assert_eq!(errno(client.trim(0, 512, PLAIN)), Some(Errno::Io), "{form}");
        device.plan(fault(Operation::WriteZeroes, 0, std::io::ErrorKind::QuotaExceeded));
        assert_eq!(errno(client.write_zeroes(0, 512, PLAIN)), Some(Errno::NoSpace), "{form}");
        client.flush().unwrap();
    }
}

#[test]
fn failure_in_the_middle_of_a_long_read_is_never_taken_for_data() {
    let device = Arc::new(FaultDevice::new(memory(8)));
    let lab = Lab::serve(Arc::clone(&device) as Arc<dyn BlockDevice>);
    for (form, mut client) in lab.clients() {
        device.plan(fault(Operation::Read, 3 << 20, std::io::ErrorKind::Other));
        let result = client.read(0, &mut vec![0; 4 << 20]);
        if form == "simple" {
            // The header said that all was well: there is no way back but the end.
            assert!(matches!(result, Err(ClientError::Connection(_))), "{form}: {result:?}");
        } else {
            assert_eq!(errno(result), Some(Errno::Io), "{form}");
            client.flush().unwrap();
        }
    }
}

#[test]
fn observer_hears_of_every_request_with_its_result() {
    let lab = Lab::start(Disk { read_only: false, ..Disk::new(memory(1)) }, quick());
    let mut client = lab.connect(&ConnectOptions::default());
    client.write(512, &[1; 1024], PLAIN).unwrap();
    client.read(0, &mut [0; 4096]).unwrap();
    client.flush().unwrap();
    client.block_status(0, 1 << 20).unwrap();
    client.disconnect().unwrap();
    let log = lab.seen.wait("the end", |log| log.ended.len() == log.opened.len());
    let kinds: Vec<_> =
        log.requests.iter().map(|done| (done.kind, done.range.length().get(), done.result)).collect();
    assert_eq!(
        kinds,
        [
            (RequestKind::Write, 1024, Ok(())),
            (RequestKind::Read, 4096, Ok(())),
            (RequestKind::Flush, 0, Ok(())),
            (RequestKind::BlockStatus, 1 << 20, Ok(())),
        ]
    );
}

#[test]
fn large_blocks_are_the_minimum_of_an_export_that_has_them() {
    let device =
        MemoryDevice::with_contents(vec![5; 1 << 20], LogicalBlockSize::B4096, Access::ReadWrite).unwrap();
    let lab = Lab::serve(Arc::new(device));
    let mut client = lab.connect(&ConnectOptions::default());
    assert_eq!((client.export().minimum_block, client.export().preferred_block), (4096, 4096));
    assert_eq!(errno(client.read(0, &mut [0; 512])), Some(Errno::Invalid));
    client.read(4096, &mut [0; 4096]).unwrap();
}

#[test]
fn requests_wait_for_room_when_all_connections_together_want_too_much() {
    const STORE_BYTES: u64 = 8 << 20;
    let device = Gated::closed(memory(32));
    // Room for the least that a server has: 8 MiB for a store, while four connections want 16 MiB.
    let config = ServerConfig { max_waiting_bytes: 0, ..quick() };
    let lab = Lab::start(Disk::new(Arc::clone(&device) as Arc<dyn BlockDevice>), config);
    let threads: Vec<_> = (0..4_u64)
        .map(|number| {
            let place = lab.place();
            std::thread::spawn(move || {
                let mut client = Client::connect(&place, &ConnectOptions::default()).unwrap();
                let data = vec![number as u8 + 1; 1 << 20];
                for part in 0..4 {
                    let offset = (number * 4 + part) << 20;
                    client.submit(&Request::Write { offset, data: &data, options: PLAIN }).unwrap();
                }
                while client.in_flight() > 0 {
                    client
                        .receive(&mut |event| {
                            if let Event::Finished { result, .. } = event {
                                result.unwrap();
                            }
                        })
                        .unwrap();
                }
            })
        })
        .collect();
    // The first write; the others wait behind it, or for room.
    device.wait_for(1);
    let deadline = Instant::now() + common::PATIENCE;
    while lab.server.waiting_bytes() < STORE_BYTES {
        assert!(Instant::now() < deadline, "only {} bytes are with the workers", lab.server.waiting_bytes());
        std::thread::yield_now();
    }
    // Every thread of the server has had turns meanwhile.
    drop((0..8).map(|_| lab.connect(&ConnectOptions::default())).collect::<Vec<_>>());
    assert_eq!(lab.server.waiting_bytes(), STORE_BYTES);
    device.open();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let mut client = lab.connect(&ConnectOptions::default());
    for number in 0..4_u64 {
        let mut got = vec![0; 4 << 20];
        client.read(number << 22, &mut got).unwrap();
        assert!(got.iter().all(|byte| *byte == number as u8 + 1));
    }
    assert_eq!(lab.server.waiting_bytes(), 0);
}
