//! Sessions that replace each other, break, dawdle, flood, and the server's shutdown.
mod common;

use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use common::initiator::{Initiator, cdb10, pdu};
use common::{Gated, Lab, PATIENCE, Rules, TARGET, memory, name};
use iscsi::directory::{Coexistence, SessionEnd};
use iscsi::server::ServerConfig;

const FIRMWARE: &str = "iqn.2026-01.lab:machine";

#[test]
fn same_initiator_and_isid_take_the_place_of_the_session_before() {
    let lab = Lab::serve(memory(4), Rules::default());
    let mut first = Initiator::login(lab.address(), FIRMWARE, 1).unwrap();
    first.write(0, &[1; 512]).unwrap();
    let mut other = Initiator::login(lab.address(), FIRMWARE, 2).unwrap();
    let mut second = Initiator::login(lab.address(), FIRMWARE, 1).unwrap();
    assert!(first.is_closed());
    assert_eq!(second.read(0, 1).unwrap(), [1; 512]);
    assert_eq!(other.read(0, 1).unwrap(), [1; 512], "another ISID is another session and stays");
    assert_eq!(lab.seen.wait("the end", |log| !log.ended.is_empty()).ended, [SessionEnd::Replaced]);
}

#[test]
fn exclusive_target_ends_every_other_session() {
    let lab = Lab::serve(memory(4), Rules { coexistence: Coexistence::Exclusive, ..Rules::default() });
    let mut firmware = Initiator::login(lab.address(), FIRMWARE, 1).unwrap();
    let mut system = Initiator::login(lab.address(), FIRMWARE, 2).unwrap();
    assert!(firmware.is_closed());
    system.write(3, &[9; 1024]).unwrap();
    assert_eq!(lab.seen.wait("the end", |log| !log.ended.is_empty()).ended, [SessionEnd::Replaced]);
}

#[test]
fn successor_waits_until_no_write_of_the_session_before_runs() {
    let disk = memory(4);
    let gated = Gated::new(Arc::clone(&disk), false);
    let lab = Lab::serve(gated.clone(), Rules { coexistence: Coexistence::Exclusive, ..Rules::default() });
    let mut old = Initiator::login(lab.address(), FIRMWARE, 1).unwrap();
    old.start_write(0, &[1; 512]).unwrap();
    gated.wait_for(1);

    let (sender, receiver) = channel();
    let address = lab.address();
    let login = std::thread::spawn(move || {
        let new = Initiator::login(address, FIRMWARE, 2).unwrap();
        sender.send(()).unwrap();
        new
    });
    assert!(old.is_closed());
    assert!(receiver.recv_timeout(Duration::from_millis(300)).is_err(), "in while an old write still runs");
    gated.open();
    receiver.recv_timeout(PATIENCE).unwrap();
    let mut new = login.join().unwrap();
    assert_eq!(new.read(0, 1).unwrap(), [1; 512], "the old write ended before the new session began");
    new.write(0, &[2; 512]).unwrap();
    assert_eq!(new.read(0, 1).unwrap(), [2; 512]);
}

#[test]
fn abort_is_answered_when_the_aborted_write_has_ended() {
    let gated = Gated::new(memory(4), false);
    let lab = Lab::serve(gated.clone(), Rules::default());
    let mut initiator = Initiator::login(lab.address(), FIRMWARE, 1).unwrap();
    let write = initiator.start_write(0, &[1; 512]).unwrap();
    gated.wait_for(1);
    initiator.manage(1, write).unwrap();
    initiator.stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    assert!(initiator.receive().is_err(), "answered while the write still runs");
    gated.open();
    initiator.stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let answer = initiator.receive().unwrap();
    assert_eq!((answer.opcode(), answer.header[2]), (0x22, 0));
    assert_eq!(initiator.read(0, 1).unwrap(), [1; 512]);
}

#[test]
fn reset_of_the_unit_is_told_to_all_sessions_of_the_target() {
    let lab = Lab::serve(memory(4), Rules::default());
    let mut one = Initiator::login(lab.address(), FIRMWARE, 1).unwrap();
    let mut other = Initiator::login(lab.address(), "iqn.2026-01.lab:other", 1).unwrap();
    one.manage(5, u32::MAX).unwrap();
    assert_eq!(one.receive().unwrap().header[2], 0);
    other.start_read(0, 1).unwrap();
    let answer = other.receive().unwrap();
    assert_eq!((answer.opcode(), answer.header[3], answer.data[4], answer.data[14]), (0x21, 2, 0x06, 0x29));
    assert_eq!(other.read(0, 1).unwrap(), [0; 512], "it is told once");
}

#[test]
fn cold_reset_ends_all_sessions_of_the_target() {
    let lab = Lab::serve(memory(4), Rules::default());
    let mut one = Initiator::login(lab.address(), FIRMWARE, 1).unwrap();
    let mut other = Initiator::login(lab.address(), "iqn.2026-01.lab:other", 1).unwrap();
    one.manage(7, u32::MAX).unwrap();
    assert!(one.is_closed() && other.is_closed());
    lab.seen.wait("both ends", |log| log.ended.len() == 2);
    assert!(Initiator::login(lab.address(), FIRMWARE, 1).is_ok());
}

#[test]
fn session_number_that_does_not_exist_is_refused() {
    let lab = Lab::serve(memory(4), Rules::default());
    let mut initiator = Initiator::connect(lab.address());
    let mut header = [0; 48];
    header[0] = 0x43;
    header[1] = 0x87;
    header[15] = 99; // TSIH
    let text = format!("InitiatorName={FIRMWARE}\0TargetName={TARGET}\0");
    initiator.send(header, text.as_bytes()).unwrap();
    let answer = initiator.receive().unwrap();
    assert_eq!(answer.header[36..38], [0x02, 0x0A]);
    assert!(initiator.is_closed());
}

#[test]
fn connection_cut_at_any_byte_harms_nobody() {
    let lab = Lab::serve(memory(4), Rules { coexistence: Coexistence::Exclusive, ..Rules::default() });
    let mut script = Initiator::connect(lab.address());
    let mut bytes = Vec::new();
    let text = format!("InitiatorName={FIRMWARE}\0TargetName={TARGET}\0InitialR2T=No\0");
    let mut login = [0; 48];
    login[0] = 0x43;
    login[1] = 0x87;
    login[27] = 1;
    bytes.extend(pdu(login, text.as_bytes()));
    let login_bytes = bytes.len();
    for number in 0..6 {
        let (read, _) = script.command(0xC0, 4096, &cdb10(0x28, number, 8));
        bytes.extend(pdu(read, &[]));
        let (write, _) = script.command(0xA0, 512, &cdb10(0x2A, number, 1));
        bytes.extend(pdu(write, &[number as u8; 512]));
    }
    let mut rng = mutate::Rng::new(11);
    for _ in 0..80 {
        let cut = rng.below(bytes.len() as u64) as usize;
        let mut victim = Initiator::connect(lab.address());
        victim.stream.write_all(&bytes[..cut]).unwrap();
        if cut >= login_bytes && rng.below(2) == 0 {
            let _ = victim.stream.read(&mut [0; 100]);
        }
    }
    let mut survivor = Initiator::login(lab.address(), FIRMWARE, 1).unwrap();
    survivor.write(100, &[7; 512]).unwrap();
    assert_eq!(survivor.read(100, 1).unwrap(), [7; 512]);
    let opened = lab.seen.wait("all ends", |log| log.ended.len() + 1 == log.opened.len());
    assert!(opened.opened.len() > 20, "too few of the cut connections got through the login");
}

#[test]
fn slow_reader_gets_all_of_its_data_and_holds_up_nobody() {
    let disk = memory(64);
    let lab = Lab::serve(
        Arc::clone(&disk),
        Rules { config: ServerConfig { threads: 1, ..Default::default() }, ..Rules::default() },
    );
    let mut slow = Initiator::login(lab.address(), FIRMWARE, 1).unwrap();
    let mut quick = Initiator::login(lab.address(), "iqn.2026-01.lab:quick", 1).unwrap();
    for block in 0..4 {
        quick.write(block * 1000, &[block as u8 + 1; 512]).unwrap();
    }
    // 100 reads of 1 MiB are asked for and nothing is taken.
    for _ in 0..100 {
        slow.start_read(0, 2048).unwrap();
    }
    let begun = Instant::now();
    for _ in 0..500 {
        assert_eq!(quick.read(1000, 1).unwrap(), [2; 512]);
    }
    assert!(begun.elapsed() < PATIENCE);
    let mut bytes = 0;
    let mut answered = 0;
    while answered < 100 {
        let pdu = slow.receive().unwrap();
        assert_eq!(pdu.opcode(), 0x25);
        bytes += pdu.data.len();
        answered += usize::from(pdu.header[1] & 1);
    }
    assert_eq!(bytes, 100 << 20);
}

#[test]
fn flood_of_pings_that_nobody_takes_the_answers_of_is_held_back() {
    let lab = Lab::serve(
        memory(4),
        Rules { config: ServerConfig { threads: 1, ..Default::default() }, ..Rules::default() },
    );
    let mut flooder = Initiator::login(lab.address(), FIRMWARE, 1).unwrap();
    let mut ping = [0; 48];
    ping[0] = 0x40;
    ping[1] = 0x80;
    ping[19] = 5;
    ping[20..24].copy_from_slice(&[0xFF; 4]);
    let bytes = pdu(ping, &[0xEE; 8192]);
    flooder.stream.set_nonblocking(true).unwrap();
    let mut sent = 0_usize;
    // The socket buffers of both sides, and what the server holds, are all that can be sent.
    let mut blocked_since = None;
    while blocked_since.is_none_or(|since: Instant| since.elapsed() < Duration::from_millis(300)) {
        match flooder.stream.write(&bytes) {
            Ok(count) => {
                sent += count;
                blocked_since = None;
            }
            Err(_) => {
                blocked_since.get_or_insert_with(Instant::now);
                std::thread::yield_now();
            }
        }
        assert!(sent < 64 << 20, "the server takes everything and answers nothing away");
    }
    let mut other = Initiator::login(lab.address(), "iqn.2026-01.lab:other", 1).unwrap();
    assert_eq!(other.read(0, 1).unwrap(), [0; 512]);
}

#[test]
fn unfinished_login_is_cut_off_at_its_deadline() {
    let config = ServerConfig { login_deadline: Duration::from_millis(200), ..Default::default() };
    let lab = Lab::serve(memory(4), Rules { config, ..Rules::default() });
    let mut silent = Initiator::connect(lab.address());
    assert!(silent.is_closed());
    assert!(Initiator::login(lab.address(), FIRMWARE, 1).is_ok());
}

#[test]
fn login_that_comes_byte_by_byte_is_cut_off_at_its_deadline() {
    let config = ServerConfig { login_deadline: Duration::from_millis(200), ..Default::default() };
    let lab = Lab::serve(memory(4), Rules { config, ..Rules::default() });
    let mut dripping = Initiator::connect(lab.address());
    dripping.stream.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
    // A login request with 8 KiB of text: at a byte in 10 ms it would be complete after 82 s. Reading does the waiting.
    let mut header = [0; 48];
    header[0] = 0x43;
    let request = pdu(header, &[b'a'; 8192]);
    let mut sent = request.iter().take(2000);
    let ended = sent.any(|byte| dripping.stream.write_all(&[*byte]).is_err() || dripping.is_closed());
    assert!(ended, "the login goes on as long as a byte of it comes now and then");
}

#[test]
fn command_before_the_login_ends_the_connection() {
    let lab = Lab::serve(memory(4), Rules::default());
    let mut eager = Initiator::connect(lab.address());
    eager.start_read(0, 1).unwrap();
    assert!(eager.is_closed());
    assert_eq!(lab.seen.requests.load(Ordering::Relaxed), 0);
}

#[test]
fn connections_beyond_the_limit_are_turned_away() {
    let config = ServerConfig { max_connections_per_address: 2, ..Default::default() };
    let lab = Lab::serve(memory(4), Rules { config, ..Rules::default() });
    let first = Initiator::login(lab.address(), FIRMWARE, 1).unwrap();
    let _second = Initiator::login(lab.address(), FIRMWARE, 2).unwrap();
    assert!(Initiator::connect(lab.address()).is_closed());
    drop(first);
    lab.seen.wait("the end", |log| !log.ended.is_empty());
    assert!(Initiator::login(lab.address(), FIRMWARE, 3).is_ok());
}

#[test]
fn large_write_is_asked_for_in_parts_and_arrives() {
    let lab = Lab::serve(memory(64), Rules::default());
    let mut initiator = Initiator::login(lab.address(), FIRMWARE, 1).unwrap();
    let bytes: Vec<u8> = (0..8_u32 << 20).map(|at| (at >> 9) as u8).collect();
    let (header, itt) = initiator.command(0xA0, bytes.len() as u32, &cdb10(0x2A, 0, 16384));
    initiator.send(header, &[]).unwrap();
    let mut asked = 0;
    loop {
        let answer = initiator.receive().unwrap();
        if answer.opcode() == 0x21 {
            assert_eq!(answer.header[3], 0);
            break;
        }
        assert_eq!(answer.opcode(), 0x31);
        asked += 1;
        let (offset, length) = (answer.u32_at(40) as usize, answer.u32_at(44) as usize);
        for (data_sn, part) in bytes[offset..offset + length].chunks(65536).enumerate() {
            let mut header = [0; 48];
            header[0] = 0x05;
            let at = offset + data_sn * 65536;
            header[1] = if at + part.len() == offset + length { 0x80 } else { 0 };
            header[16..20].copy_from_slice(&itt.to_be_bytes());
            header[20..24].copy_from_slice(&answer.header[20..24]);
            header[36..40].copy_from_slice(&(data_sn as u32).to_be_bytes());
            header[40..44].copy_from_slice(&(at as u32).to_be_bytes());
            initiator.send(header, part).unwrap();
        }
    }
    assert_eq!(asked, 32, "MaxBurstLength of 256 KiB");
    assert_eq!(initiator.read(0, 16384).unwrap(), bytes);
}

#[test]
fn small_segments_are_respected() {
    let lab = Lab::serve(memory(4), Rules::default());
    let small = "MaxRecvDataSegmentLength=512\0MaxBurstLength=1024";
    let mut initiator = Initiator::login_with(lab.address(), FIRMWARE, 1, TARGET, small).unwrap();
    let bytes: Vec<u8> = (0..8192_u32).map(|at| (at >> 4) as u8).collect();
    for (number, part) in bytes.chunks(512).enumerate() {
        initiator.write(number as u32, part).unwrap();
    }
    assert_eq!(initiator.read(0, 16).unwrap(), bytes);
}

#[test]
fn shutdown_asks_for_logouts_and_then_closes() {
    let lab = Lab::serve(memory(4), Rules::default());
    let address = lab.address();
    let mut polite = Initiator::login(address, FIRMWARE, 1).unwrap();
    let mut deaf = Initiator::login(address, FIRMWARE, 2).unwrap();
    let begun = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| lab.server.shutdown(Duration::from_millis(700)));
        let asked = polite.receive().unwrap();
        assert_eq!((asked.opcode(), asked.header[36]), (0x32, 1), "Async Message: logout wanted");
        assert_eq!(polite.read(0, 1).unwrap(), [0; 512], "work goes on until then");
        assert_eq!(polite.logout().unwrap().opcode(), 0x26);
        assert_eq!(deaf.receive().unwrap().opcode(), 0x32);
        assert!(deaf.is_closed());
    });
    assert!(begun.elapsed() >= Duration::from_millis(700));
    let mut ended = lab.seen.wait("both ends", |log| log.ended.len() == 2).ended;
    ended.sort_by_key(|how| *how == SessionEnd::Shutdown);
    assert_eq!(ended, [SessionEnd::Logout, SessionEnd::Shutdown]);
    assert!(std::net::TcpStream::connect(address).is_err(), "nothing listens any more");
    lab.server.shutdown(Duration::ZERO);
}

#[test]
fn shutdown_is_quick_when_everybody_leaves() {
    let lab = Lab::serve(memory(4), Rules::default());
    let mut polite = Initiator::login(lab.address(), FIRMWARE, 1).unwrap();
    let begun = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| lab.server.shutdown(PATIENCE));
        assert_eq!(polite.receive().unwrap().opcode(), 0x32);
        polite.logout().unwrap();
    });
    assert!(begun.elapsed() < PATIENCE / 2);
}

#[test]
fn owner_can_end_the_sessions_of_a_target() {
    let lab = Lab::serve(memory(4), Rules::default());
    let mut session = Initiator::login(lab.address(), FIRMWARE, 1).unwrap();
    assert!(lab.server.end_target(&name("iqn.2026-01.lab:another")));
    assert_eq!(session.read(0, 1).unwrap(), [0; 512]);
    assert!(lab.server.end_target(&name(TARGET)));
    assert_eq!(lab.seen.wait("the end", |log| !log.ended.is_empty()).ended, [SessionEnd::Shutdown]);
    assert!(session.is_closed());
}

/// PERSISTENT RESERVE OUT to LUN 1, with all of its list at once.
fn reserve_out(initiator: &mut Initiator, action: u8, kind: u8, key: u8, new_key: u8) -> u32 {
    let mut list = [0; 24];
    (list[7], list[15]) = (key, new_key);
    let (header, itt) = initiator.command(0xA0, 24, &[0x5F, action, kind, 0, 0, 0, 0, 0, 24, 0]);
    initiator.send(header, &list).unwrap();
    itt
}

#[test]
fn clear_task_set_ends_the_tasks_of_other_sessions_before_it_is_answered() {
    let gated = Gated::new(memory(4), false);
    let lab = Lab::serve(gated.clone(), Rules::default());
    let mut one = Initiator::login(lab.address(), FIRMWARE, 1).unwrap();
    let mut other = Initiator::login(lab.address(), FIRMWARE, 2).unwrap();
    other.start_write(0, &[1; 512]).unwrap();
    gated.wait_for(1);
    one.manage(4, u32::MAX).unwrap();
    one.stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    assert!(one.receive().is_err(), "answered while a cleared write still runs");
    gated.open();
    one.stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let answer = one.receive().unwrap();
    assert_eq!((answer.opcode(), answer.header[2]), (0x22, 0));
    // The cleared write is not answered; the next command is, with COMMANDS CLEARED BY ANOTHER INITIATOR.
    let read = other.start_read(0, 1).unwrap();
    let told = other.receive().unwrap();
    assert_eq!((told.u32_at(16), told.header[3], told.data[4], told.data[14]), (read, 2, 0x06, 0x2F));
    assert_eq!(one.read(0, 1).unwrap(), [1; 512]);
}

#[test]
fn preempt_and_abort_waits_for_the_tasks_of_the_preempted() {
    let gated = Gated::new(memory(4), false);
    let lab = Lab::serve(gated.clone(), Rules::default());
    let mut old = Initiator::login(lab.address(), FIRMWARE, 1).unwrap();
    let mut new = Initiator::login(lab.address(), FIRMWARE, 2).unwrap();
    for (initiator, key) in [(&mut old, 1), (&mut new, 2)] {
        reserve_out(initiator, 0, 0, 0, key);
        assert_eq!(initiator.receive().unwrap().header[3], 0);
    }
    reserve_out(&mut old, 1, 5, 1, 0);
    assert_eq!(old.receive().unwrap().header[3], 0);
    old.start_write(0, &[1; 512]).unwrap();
    gated.wait_for(1);
    let preempt = reserve_out(&mut new, 5, 5, 2, 1);
    new.stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    assert!(new.receive().is_err(), "answered while a write of the preempted still runs");
    gated.open();
    new.stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let answer = new.receive().unwrap();
    assert_eq!((answer.u32_at(16), answer.header[3]), (preempt, 0));
    new.write(0, &[2; 512]).unwrap();
    old.start_read(0, 1).unwrap();
    let told = old.receive().unwrap();
    assert_eq!((told.data[4], told.data[14], told.data[15]), (0x06, 0x2A, 0x05), "registrations preempted");
    old.start_write(0, &[3; 512]).unwrap();
    assert_eq!(old.receive().unwrap().header[3], 0x18, "reservation conflict");
    assert_eq!(old.read(0, 1).unwrap(), [2; 512]);
}

#[test]
fn two_that_preempt_each_other_do_not_wait_for_ever() {
    let gated = Gated::new(memory(4), false);
    let lab = Lab::serve(gated.clone(), Rules::default());
    let mut pair = [1, 2].map(|isid| Initiator::login(lab.address(), FIRMWARE, isid).unwrap());
    for (initiator, key) in pair.iter_mut().zip([1, 2]) {
        reserve_out(initiator, 0, 0, 0, key);
        assert_eq!(initiator.receive().unwrap().header[3], 0);
        // With FUA, so that neither write waits for the other.
        let mut cdb = cdb10(0x2A, u32::from(key), 1);
        cdb[1] = 0x08;
        let (header, _) = initiator.command(0xA0, 512, &cdb);
        initiator.send(header, &[1; 512]).unwrap();
    }
    gated.wait_for(2);
    let [one, two] = &mut pair;
    reserve_out(one, 5, 1, 1, 2);
    reserve_out(two, 5, 1, 2, 1);
    gated.open();
    // One of them has come first, and is answered with GOOD; the other has been preempted, and goes on all the same.
    let alive = |initiator: &mut Initiator| {
        let (header, tag) = initiator.command(0x80, 0, &[0; 6]);
        initiator.send(header, &[]).unwrap();
        while initiator.receive().unwrap().u32_at(16) != tag {}
    };
    alive(one);
    alive(two);
}

#[test]
fn abort_names_its_logical_unit() {
    let gated = Gated::new(memory(4), false);
    let lab = Lab::serve(gated.clone(), Rules::default());
    let mut initiator = Initiator::login(lab.address(), FIRMWARE, 1).unwrap();
    let write = initiator.start_write(0, &[1; 512]).unwrap();
    gated.wait_for(1);
    let (mut header, _) = initiator.command(0x81, write, &[]);
    header[0] = 0x42;
    header[9] = 7; // another LUN
    initiator.cmd_sn -= 1;
    initiator.send(header, &[]).unwrap();
    let answer = initiator.receive().unwrap();
    assert_eq!((answer.opcode(), answer.header[2]), (0x22, 1), "no such task");
    gated.open();
    assert_eq!(initiator.receive().unwrap().u32_at(16), write);
}

#[test]
fn drained_target_asks_for_logout_and_ends_those_that_stay() {
    let lab = Lab::serve(memory(4), Rules::default());
    let mut polite = Initiator::login(lab.address(), FIRMWARE, 1).unwrap();
    let mut deaf = Initiator::login(lab.address(), FIRMWARE, 2).unwrap();
    std::thread::scope(|scope| {
        let drained = scope.spawn(|| lab.server.drain_target(&name(TARGET), Duration::from_secs(1)));
        let asked = polite.receive().unwrap();
        assert_eq!((asked.opcode(), asked.header[36], asked.header[43]), (0x32, 1, 1));
        assert_eq!(polite.logout().unwrap().header[2], 0);
        assert!(drained.join().unwrap());
    });
    assert!(deaf.is_closed());
    let ended = lab.seen.wait("both ends", |log| log.ended.len() == 2).ended;
    assert_eq!(ended, [SessionEnd::Logout, SessionEnd::Shutdown]);
    assert!(Initiator::login(lab.address(), FIRMWARE, 1).is_ok(), "whom to refuse is the directory's to say");
}
