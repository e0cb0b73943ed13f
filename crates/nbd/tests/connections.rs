//! Connections that are slow, break off, break the rules, or outlive their server.
mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use block::BlockDevice;
use common::devices::Gated;
use common::{Disk, Lab, PATIENCE, memory, quick};
use nbd::client::{ChangeOptions, Client, ClientError, ConnectError, ConnectOptions, Request, ServerAddress};
use nbd::exports::ConnectionEnd;
use nbd::server::{Listener, ServerConfig};

fn raw(lab: &Lab) -> TcpStream {
    let stream = TcpStream::connect(lab.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn option(kind: u32, data: &[u8]) -> Vec<u8> {
    [b"IHAVEOPT".as_slice(), &kind.to_be_bytes(), &(data.len() as u32).to_be_bytes(), data].concat()
}

fn request(flags: u16, kind: u16, cookie: u64, offset: u64, length: u32) -> Vec<u8> {
    let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
    bytes.extend(flags.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(length.to_be_bytes());
    bytes
}

/// A client that is in with simple replies.
fn entered(lab: &Lab) -> TcpStream {
    let mut stream = raw(lab);
    stream.write_all(&[&[0, 0, 0, 3][..], &option(1, b"disk")].concat()).unwrap();
    stream.read_exact(&mut [0; 18 + 10]).unwrap();
    stream
}

/// Everything until the server ends the connection.
fn rest(mut stream: TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    // A reset is an end as well.
    let _ = stream.read_to_end(&mut bytes);
    bytes
}

/// The server serves others as if nothing had been.
fn is_well(lab: &Lab) {
    let mut client = lab.connect(&ConnectOptions::default());
    client.write(0, &[1; 512], ChangeOptions::default()).unwrap();
    let mut block = [0; 512];
    client.read(0, &mut block).unwrap();
    assert_eq!(block, [1; 512]);
    client.disconnect().unwrap();
}

#[test]
fn connection_lost_at_any_byte_harms_nobody() {
    let lab = Lab::serve(memory(1));
    let structured = [option(8, &[]), option(7, b"\0\0\0\x04disk\0\0")].concat();
    let requests = [
        request(0, 1, 1, 0, 1024),
        vec![7; 1024],
        request(0, 0, 2, 0, 65536),
        request(1, 6, 3, 0, 4096),
        request(0, 3, 4, 0, 0),
    ]
    .concat();
    let bytes = [&[0, 0, 0, 3][..], &structured, &requests].concat();
    let begun = 4 + structured.len();
    let cuts: Vec<usize> = (0..begun + 60).chain((begun + 60..bytes.len()).step_by(37)).collect();
    for cut in &cuts {
        let mut stream = raw(&lab);
        stream.write_all(&bytes[..*cut]).unwrap();
        // Some close with answers unread, so that the server meets a reset.
        drop(stream);
    }
    is_well(&lab);
    let log = lab.seen.wait("the end of every use", |log| log.opened.len() == log.ended.len());
    assert!(log.opened.len() >= cuts.iter().filter(|cut| **cut >= begun).count());
    assert!(log.ended.contains(&ConnectionEnd::Lost));
}

#[test]
fn bad_magic_ends_the_connection_and_nothing_is_answered() {
    let lab = Lab::serve(memory(1));
    let mut stream = entered(&lab);
    stream.write_all(&[0xFF; 28]).unwrap();
    assert_eq!(rest(stream), []);
    is_well(&lab);
}

#[test]
fn payload_of_a_refused_write_is_read_over() {
    let lab = Lab::serve(memory(1));
    let mut stream = entered(&lab);
    // Beyond the end, beyond the maximum payload, and then a legal flush.
    stream.write_all(&request(0, 1, 1, 1 << 20, 4096)).unwrap();
    stream.write_all(&vec![0x25; 4096]).unwrap();
    stream.write_all(&request(0, 1, 2, 0, (32 << 20) + 512)).unwrap();
    stream.write_all(&vec![0x25; (32 << 20) + 512]).unwrap();
    stream.write_all(&request(0, 3, 3, 0, 0)).unwrap();
    let mut answers = [0; 48];
    stream.read_exact(&mut answers).unwrap();
    let errnos = [0, 16, 32].map(|at| answers[at + 7]);
    assert_eq!(errnos, [28, 28, 0]);
    // More than anybody can mean.
    stream.write_all(&request(0, 1, 4, 0, u32::MAX)).unwrap();
    assert_eq!(rest(stream), []);
    is_well(&lab);
}

#[test]
fn unknown_commands_and_flags_are_invalid() {
    let lab = Lab::serve(memory(1));
    let mut stream = entered(&lab);
    let illegal = [
        request(0, 8, 1, 0, 512),
        request(0, 4711, 2, 0, 512),
        request(0x40, 0, 3, 0, 512),
        // DF without structured replies, REQ_ONE with a read, a length for a flush, an empty read.
        request(4, 0, 4, 0, 512),
        request(8, 0, 5, 0, 512),
        request(0, 3, 6, 0, 512),
        request(0, 0, 7, 0, 0),
        // An offset that wraps.
        request(0, 0, 8, u64::MAX - 511, 512),
    ];
    for request in &illegal {
        stream.write_all(request).unwrap();
        let mut answer = [0; 16];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer[7], 22, "{request:?}");
        assert_eq!(answer[8..], request[8..16]);
    }
}

#[test]
fn client_that_does_not_read_holds_up_nobody_and_takes_little_memory() {
    let lab = Lab::start(Disk::new(memory(32)), ServerConfig { threads: 1, ..ServerConfig::default() });
    let before = resident_bytes();
    let mut deaf = Vec::new();
    for _ in 0..8 {
        let mut stream = entered(&lab);
        stream.set_nonblocking(true).unwrap();
        // 4 GiB of answers, asked for by each.
        for cookie in 0..128 {
            if stream.write(&request(0, 0, cookie, 0, 32 << 20)).is_err() {
                break;
            }
        }
        deaf.push(stream);
    }
    for _ in 0..20 {
        is_well(&lab);
    }
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes for eight clients that do not read");
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

#[test]
fn small_requests_overtake_a_read_that_waits_for_storage() {
    let gated = Gated::closed(memory(2));
    let lab = Lab::serve(Arc::clone(&gated) as Arc<dyn BlockDevice>);
    let mut stream = entered(&lab);
    stream.write_all(&request(0, 0, 1, 0, 1 << 20)).unwrap();
    gated.wait_for(1);
    // Illegal, and so answered at once.
    stream.write_all(&request(0, 0, 2, 7, 512)).unwrap();
    let mut answer = [0; 16];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!((answer[7], answer[15]), (22, 2));
    gated.open();
    stream.read_exact(&mut answer).unwrap();
    assert_eq!((answer[7], answer[15]), (0, 1));
    let mut data = vec![1; 1 << 20];
    stream.read_exact(&mut data).unwrap();
    assert!(data.iter().all(|byte| *byte == 0));
}

#[test]
fn handshake_that_is_not_finished_in_time_ends() {
    let config = ServerConfig { handshake_deadline: Duration::from_millis(10), ..quick() };
    let lab = Lab::start(Disk::new(memory(1)), config);
    let stream = raw(&lab);
    assert_eq!(rest(stream), b"NBDMAGICIHAVEOPT\0\x03");
    // One that is through stays.
    let _stream = entered(&lab);
    is_well(&lab);
}

#[test]
fn connections_are_limited_in_number() {
    let config = ServerConfig { max_connections_per_address: 3, ..quick() };
    let lab = Lab::start(Disk::new(memory(1)), config);
    let inside: Vec<_> = (0..3).map(|_| entered(&lab)).collect();
    assert_eq!(rest(raw(&lab)), []);
    drop(inside);
    lab.seen.wait("three ends", |log| log.ended.len() == 3);
    // The slot is free before the end is told.
    is_well(&lab);
}

#[test]
fn shutdown_answers_what_has_come_before_it_closes() {
    let gated = Gated::closed(memory(2));
    let lab = Lab::serve(Arc::clone(&gated) as Arc<dyn BlockDevice>);
    let mut stream = entered(&lab);
    stream.write_all(&request(0, 0, 1, 0, 512)).unwrap();
    gated.wait_for(1);
    std::thread::scope(|scope| {
        let ending = scope.spawn(|| lab.server.shutdown(PATIENCE));
        // Nobody is let in any more.
        while TcpStream::connect(lab.address()).is_ok_and(|mut stream| {
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.read_exact(&mut [0; 18]).is_ok()
        }) {}
        gated.open();
        assert_eq!(rest(stream).len(), 16 + 512);
        ending.join().unwrap();
    });
    assert_eq!(lab.seen.now().ended, [ConnectionEnd::Shutdown]);
}

#[test]
fn client_comes_back_after_a_restart_and_finds_what_it_wrote() {
    let device: Arc<dyn BlockDevice> = memory(1);
    let mut port = 0;
    for round in 0..5_u8 {
        let listener = bind(port);
        port = listener.local_addr().unwrap().port();
        let lab = Lab::listen(vec![Listener::Tcp(listener)], Disk::new(Arc::clone(&device)), quick());
        let mut client = lab.connect(&ConnectOptions::default());
        let mut block = [0; 512];
        client.read(0, &mut block).unwrap();
        assert_eq!(block, [round; 512]);
        client.write(0, &[round + 1; 512], ChangeOptions { fua: true, ..ChangeOptions::default() }).unwrap();
        lab.server.shutdown(Duration::ZERO);
        let lost = client.read(0, &mut block);
        assert!(matches!(lost, Err(ClientError::Connection(_))), "{lost:?}");
    }
}

/// The port, once the one before has let go of it.
fn bind(port: u16) -> TcpListener {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], port)).into()).unwrap();
    socket.listen(16).unwrap();
    socket.into()
}

#[test]
fn sockets_in_the_file_system_serve_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nbd.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let lab = Lab::listen(vec![Listener::Unix(listener)], Disk::new(memory(4)), quick());
    let mut client = Client::connect(&ServerAddress::Unix(path), &ConnectOptions::default()).unwrap();
    client.write(0, &vec![3; 2 << 20], ChangeOptions::default()).unwrap();
    let mut got = vec![0; 2 << 20];
    client.read(0, &mut got).unwrap();
    assert!(got.iter().all(|byte| *byte == 3));
    drop(lab);
}

#[test]
fn many_connections_at_once_all_get_served() {
    let config = ServerConfig { max_connections_per_address: 2000, ..quick() };
    let lab = Lab::start(Disk::new(memory(1)), config);
    let mut clients: Vec<_> = (0..1000).map(|_| lab.connect(&ConnectOptions::default())).collect();
    for client in &mut clients {
        client.submit(&Request::Read { offset: 0, length: 4096, unfragmented: false }).unwrap();
    }
    for client in &mut clients {
        while client.in_flight() > 0 {
            client.receive(&mut |_| {}).unwrap();
        }
    }
}

/// A server that says `bytes` and then nothing.
fn hostile(bytes: Vec<u8>) -> Result<Client, ConnectError> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.write_all(&bytes);
        // The client may have seen enough and gone.
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    let client = Client::connect(&ServerAddress::Ip(address), &ConnectOptions::default());
    server.join().unwrap();
    client
}

#[test]
fn client_refuses_servers_that_break_the_rules() {
    let protocol = |bytes: &[u8]| matches!(hostile(bytes.to_vec()), Err(ConnectError::Protocol(_)));
    assert!(protocol(b"SSH-2.0-OpenSSH_9.2p1 Debian-2"));
    assert!(matches!(
        hostile(b"NBDMAGIC\0\0\x42\x02\x81\x86\x12\x53zzzzzzzz".to_vec()),
        Err(ConnectError::TooOld)
    ));
    // An answer of 4 GiB.
    let long = [
        b"NBDMAGICIHAVEOPT\0\x03".as_slice(),
        b"\0\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x0b\0\0\0\x01\xff\xff\xff\xff",
    ];
    assert!(protocol(&long.concat()));
    let short = hostile(b"NBDMAGICIHAVEOPT\0".to_vec());
    assert!(matches!(short, Err(ConnectError::Connection(_))), "{short:?}");
}

#[test]
fn writes_that_never_end_take_no_more_memory_than_there_is_and_others_go_on() {
    const PIECE: u32 = 256 * 1024;
    const SENT: usize = 100 * 1024;
    let config = ServerConfig { threads: 1, max_arriving_bytes: 1, ..ServerConfig::default() };
    let lab = Lab::start(Disk::new(memory(8)), config);
    let mut slow: Vec<TcpStream> = (0..10)
        .map(|turn| {
            let mut stream = entered(&lab);
            let write = request(0, 1, turn, turn * u64::from(PIECE), PIECE);
            stream.write_all(&[write, vec![turn as u8 + 1; SENT]].concat()).unwrap();
            stream
        })
        .collect();
    // On the same thread behind them: whole requests of any length.
    let mut client = lab.connect(&ConnectOptions::default());
    let long = vec![0xEE; 2 << 20];
    client.write(6 << 20, &long, ChangeOptions::default()).unwrap();
    let mut found = vec![0; long.len()];
    client.read(6 << 20, &mut found).unwrap();
    assert!(found == long);
    let arriving = lab.server.arriving_bytes();
    assert!(arriving < 2 << 20, "{arriving} bytes of buffers");
    for (turn, stream) in slow.iter_mut().enumerate() {
        stream.write_all(&vec![turn as u8 + 1; PIECE as usize - SENT]).unwrap();
        let mut answer = [0; 16];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!((&answer[4..8], answer[15]), (&[0; 4][..], turn as u8));
        let mut found = vec![0; PIECE as usize];
        client.read(turn as u64 * u64::from(PIECE), &mut found).unwrap();
        assert!(found == vec![turn as u8 + 1; PIECE as usize], "write {turn}");
    }
    assert_eq!(lab.server.arriving_bytes(), 0);
}

#[test]
fn users_of_a_device_that_is_taken_away_are_disconnected_and_those_of_another_are_not() {
    let (taken, other) = (memory(1), Disk::new(memory(1)));
    let listener = Listener::Tcp(TcpListener::bind("127.0.0.1:0").unwrap());
    let lab = Lab::listen_with(vec![listener], Disk::new(taken.clone()), Some(other), quick());
    let lost = entered(&lab);
    let mut stays =
        lab.connect(&ConnectOptions { export: common::OTHER.to_owned(), ..ConnectOptions::default() });
    let device: Arc<dyn BlockDevice> = taken;
    lab.server.end_device(&device);
    assert_eq!(rest(lost), []);
    lab.seen.wait("the end", |log| log.ended.contains(&ConnectionEnd::Shutdown));
    stays.write(0, &[3; 512], ChangeOptions::default()).unwrap();
    is_well(&lab);
}
