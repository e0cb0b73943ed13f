//! Transfers against a client of our own, over a line that loses, repeats and reorders.
use mutate::{Mutator, Rng};

use super::*;

/// A TFTP client that keeps to RFC 1350 and RFC 7440: it takes blocks in order, acknowledges at the end of a window, and
/// again its last good block when one is missing or time passes.
struct Client {
    block_bytes: usize,
    window: u64,
    options: bool,
    received: Vec<u8>,
    blocks: u64,
    in_window: u64,
    complained: bool,
    done: bool,
}

impl Client {
    fn new(options: RequestedOptions) -> Self {
        Self {
            block_bytes: 512,
            window: 1,
            options: options != RequestedOptions::default(),
            received: Vec::new(),
            blocks: 0,
            in_window: 0,
            complained: false,
            done: false,
        }
    }

    fn ack(&self) -> Vec<u8> {
        [&[0, 4], &(self.blocks as u16).to_be_bytes()[..]].concat()
    }

    fn on(&mut self, packet: &[u8]) -> Option<Vec<u8>> {
        match packet {
            [0, 6, options @ ..] => {
                assert!(self.options, "an OACK without a request for it");
                let text = String::from_utf8(options.to_vec()).unwrap();
                let words: Vec<&str> = text.trim_end_matches('\0').split('\0').collect();
                for pair in words.chunks(2) {
                    match pair[0] {
                        "blksize" => self.block_bytes = pair[1].parse().unwrap(),
                        "windowsize" => self.window = pair[1].parse().unwrap(),
                        _ => {}
                    }
                }
                Some(self.ack())
            }
            [0, 3, high, low, bytes @ ..] => {
                let block = u16::from_be_bytes([*high, *low]);
                if block != (self.blocks + 1) as u16 || self.done {
                    // Out of order: say once what was good.
                    return (!std::mem::replace(&mut self.complained, true)).then(|| self.ack());
                }
                self.complained = false;
                self.blocks += 1;
                self.in_window += 1;
                self.received.extend_from_slice(bytes);
                self.done = bytes.len() < self.block_bytes;
                if self.in_window == self.window || self.done {
                    self.in_window = 0;
                    return Some(self.ack());
                }
                None
            }
            other => panic!("not a server's packet: {other:?}"),
        }
    }
}

struct Line {
    rng: Rng,
    loss_percent: u64,
    repeat_percent: u64,
}

impl Line {
    fn copies(&mut self) -> usize {
        if self.rng.below(100) < self.loss_percent {
            0
        } else if self.rng.below(100) < self.repeat_percent {
            2
        } else {
            1
        }
    }
}

/// Runs a transfer to its end. Returns the client, the end and the number of datagrams that the server sent.
fn run(file: &[u8], options: RequestedOptions, mut line: Line) -> (Client, End, usize) {
    let mut now = Instant::now();
    let mut out = Vec::new();
    let mut transfer = Transfer::start(Bytes::copy_from_slice(file), options, now, &mut out);
    let mut client = Client::new(options);
    let mut sent = 0;
    for _ in 0..2_000_000 {
        if let Some(end) = transfer.end() {
            return (client, end.clone(), sent);
        }
        if out.is_empty() {
            // Nothing under way: time passes, for both sides.
            now = transfer.deadline();
            client.complained = false;
            transfer.on_time(now, &mut out);
            continue;
        }
        for packet in std::mem::take(&mut out) {
            sent += 1;
            for _ in 0..line.copies() {
                if let Some(ack) = client.on(&packet) {
                    for _ in 0..line.copies() {
                        now += Duration::from_micros(200);
                        transfer.on_datagram(&ack, now, &mut out);
                    }
                }
            }
        }
    }
    panic!("the transfer does not end");
}

fn clean() -> Line {
    Line { rng: Rng::new(0), loss_percent: 0, repeat_percent: 0 }
}

fn bytes(length: usize) -> Vec<u8> {
    let mut rng = Rng::new(length as u64);
    (0..length).map(|_| rng.next() as u8).collect()
}

const UEFI: RequestedOptions =
    RequestedOptions { blksize: Some(1468), timeout_s: None, tsize: true, windowsize: Some(4) };

#[test]
fn file_of_any_length_around_a_block_arrives_whole() {
    for options in [RequestedOptions::default(), UEFI] {
        for length in [0, 1, 511, 512, 513, 1024, 1467, 1468, 1469, 5872, 100_000] {
            let (client, end, _) = run(&bytes(length), options, clean());
            assert_eq!(end, End::Complete, "{length} bytes");
            assert_eq!(client.received, bytes(length), "{length} bytes");
        }
    }
}

#[test]
fn block_number_wraps_past_65535() {
    let file = bytes(70_000 * 8 + 3);
    let options = RequestedOptions { blksize: Some(8), windowsize: Some(16), ..RequestedOptions::default() };
    let (client, end, sent) = run(&file, options, clean());
    assert_eq!(end, End::Complete);
    assert_eq!(client.blocks, 70_001);
    assert!(client.received == file);
    assert_eq!(sent, 70_002, "no block was sent twice");
}

#[test]
fn file_arrives_whole_over_a_line_that_loses_and_repeats() {
    for seed in 0..60 {
        let windowsize = [None, Some(4), Some(16)][seed as usize % 3];
        let options = RequestedOptions { windowsize, ..UEFI };
        let line = Line { rng: Rng::new(seed), loss_percent: 12, repeat_percent: 12 };
        let file = bytes(120_000);
        let (client, end, sent) = run(&file, options, line);
        // A client whose last acknowledgement is lost has its file all the same.
        assert!(client.received == file && client.done, "seed {seed}: {end:?}");
        assert!(sent < 82 * 12, "seed {seed}: {sent} datagrams for 82 blocks");
    }
}

#[test]
fn repeated_acknowledgements_do_not_multiply_the_traffic() {
    for windowsize in [None, Some(8)] {
        let line = Line { rng: Rng::new(1), loss_percent: 0, repeat_percent: 100 };
        let (client, end, sent) = run(&bytes(146_800), RequestedOptions { windowsize, ..UEFI }, line);
        assert_eq!((end, client.received.len()), (End::Complete, 146_800));
        assert!(sent < 101 * 3, "{sent} datagrams for 101 blocks");
    }
}

#[test]
fn silent_client_is_given_up_after_its_retries() {
    let line = Line { rng: Rng::new(0), loss_percent: 100, repeat_percent: 0 };
    let (_, end, sent) = run(&bytes(5000), RequestedOptions::default(), line);
    assert_eq!(end, End::Silent { acknowledged_bytes: 0 });
    assert_eq!(sent, 1 + MAX_RETRIES as usize);
}

#[test]
fn client_that_crawls_is_given_up_in_the_end() {
    let (mut now, mut out) = (Instant::now(), Vec::new());
    let options = RequestedOptions { blksize: Some(8), ..RequestedOptions::default() };
    let mut transfer = Transfer::start(Bytes::from(bytes(100_000)), options, now, &mut out);
    for block in 0_u16..10_000 {
        now += Duration::from_millis(900);
        transfer.on_time(now, &mut out);
        transfer.on_datagram(&[&[0, 4], &block.to_be_bytes()[..]].concat(), now, &mut out);
        if let Some(end) = transfer.end() {
            assert_eq!(end, &End::TooSlow { acknowledged_bytes: 7984 });
            return;
        }
    }
    panic!("still running");
}

#[test]
fn options_are_answered_with_what_we_can_do() {
    let mut out = Vec::new();
    let options =
        RequestedOptions { blksize: Some(65464), timeout_s: Some(3), tsize: true, windowsize: Some(64) };
    let _ = Transfer::start(Bytes::from(bytes(5000)), options, Instant::now(), &mut out);
    assert_eq!(
        out,
        [b"\x00\x06blksize\x001468\x00timeout\x003\x00tsize\x005000\x00windowsize\x0016\x00".to_vec()]
    );
}

#[test]
fn client_that_wanted_the_size_alone_ends_the_transfer() {
    let (now, mut out) = (Instant::now(), Vec::new());
    let mut transfer = Transfer::start(Bytes::from(bytes(5000)), UEFI, now, &mut out);
    transfer.on_datagram(b"\x00\x05\x00\x08User aborted the transfer\x00", now, &mut out);
    assert_eq!(
        transfer.end(),
        Some(&End::ClientStopped { code: 8, text: "User aborted the transfer".to_owned() })
    );
}

#[test]
fn acknowledgement_of_what_was_never_sent_is_ignored() {
    let (now, mut out) = (Instant::now(), Vec::new());
    let mut transfer = Transfer::start(Bytes::from(bytes(5000)), RequestedOptions::default(), now, &mut out);
    out.clear();
    for block in [2_u16, 9, 0, 65_535, 32_768] {
        transfer.on_datagram(&[&[0, 4], &block.to_be_bytes()[..]].concat(), now, &mut out);
    }
    assert!(out.is_empty() && transfer.end().is_none());
}

#[test]
fn mutated_packets_neither_panic_nor_flood() {
    let seeds = vec![
        b"\x00\x01ipxe.efi\x00octet\x00tsize\x000\x00blksize\x001468\x00windowsize\x004\x00".to_vec(),
        b"\x00\x04\x00\x01".to_vec(),
        b"\x00\x05\x00\x00stop\x00".to_vec(),
        b"\x00\x04\x00\x00".to_vec(),
    ];
    let file = Bytes::from(bytes(50_000));
    let (mut now, mut out) = (Instant::now(), Vec::new());
    let mut transfer = Transfer::start(file.clone(), UEFI, now, &mut out);
    // As the fuzz target reads them: the file's size, then datagrams behind their lengths.
    let framed = seeds.iter().flat_map(|seed| [&[seed.len() as u8][..], seed].concat());
    mutate::leave_seeds("netboot_tftp", &[std::iter::once(200).chain(framed).collect()]);
    Mutator::new(seeds, 700).run(100_000, |packet| {
        out.clear();
        now += Duration::from_millis(10);
        transfer.on_datagram(packet, now, &mut out);
        transfer.on_time(now, &mut out);
        assert!(out.len() <= usize::from(MAX_WINDOW) * 2);
        if transfer.end().is_some() {
            let options = match ClientPacket::decode(packet) {
                Ok(ClientPacket::Read(request)) => request.options,
                _ => UEFI,
            };
            transfer = Transfer::start(file.clone(), options, now, &mut out);
        }
    });
}

#[test]
fn what_was_negotiated_and_sent_again_is_told() {
    let (mut now, mut out) = (Instant::now(), Vec::new());
    let options = RequestedOptions { blksize: Some(1428), windowsize: Some(4), ..Default::default() };
    let mut transfer = Transfer::start(Bytes::from(bytes(20_000)), options, now, &mut out);
    let timeout = |transfer: &mut Transfer, now: &mut Instant, out: &mut Vec<Vec<u8>>| {
        *now = transfer.deadline();
        transfer.on_time(*now, out);
    };
    timeout(&mut transfer, &mut now, &mut out);
    assert_eq!(transfer.figures().resent, 1, "the OACK");
    transfer.on_datagram(&[0, 4, 0, 0], now, &mut out);
    timeout(&mut transfer, &mut now, &mut out);
    let figures = TftpFigures { block_bytes: 1428, window_blocks: 4, resent: 5 };
    assert_eq!(transfer.figures(), figures);
    transfer.on_datagram(&[0, 4, 0, 2], now, &mut out);
    assert_eq!(transfer.figures().resent, 7, "two of four blocks were reported lost");
}
