//! Options and requests, one after the other as the input says, against an oracle that knows only the specification's
//! rules: which reply each option must get, what is agreed on after it, and which requests are legal on those terms.
#![allow(clippy::arithmetic_side_effects, reason = "small numbers; a finding of the fuzzer is a panic")]
use super::{DISK_BYTES, shape};
use crate::exports::{Listed, Refusal, RequestKind};
use crate::handshake::{Handshake, HandshakeEvent, TlsPolicy, Violation};
use crate::limits::{MAX_OPTION_BYTES, MAX_OPTIONS, MAX_PAYLOAD_BYTES, PIECE_BYTES};
use crate::transmission::check::check;
use crate::transmission::request::{Header, Tag};
use crate::transmission::{Shape, Terms};
use crate::wire::{
    Errno, OPTION_MAGIC, OPTION_REPLY_MAGIC, Reader, ReplyMode, command, command_flags, handshake_flags,
    option as kinds, reply as replies,
};
use connections::ByteQueue;

/// The bytes of a handshake's greeting.
const GREETING_BYTES: usize = 18;

/// What is agreed on, by the specification.
#[derive(Clone, Copy, Debug, Default)]
struct Expected {
    mode: ReplyMode,
    allocation: bool,
    tls: bool,
}

/// The input, read byte by byte; zeros behind its end.
struct Moves<'a>(&'a [u8]);

impl Moves<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }
}

/// An option to be sent, and the final reply that it must get.
struct Asked {
    kind: u32,
    data: Vec<u8>,
    reply: u32,
    /// What is agreed on after it.
    then: Expected,
}

/// Negotiates and asks as `bytes` say; gives the requests that were judged, or `None` where no export was opened.
///
/// # Panics
/// Where the server answers otherwise than the specification has it.
#[must_use]
pub fn negotiation(bytes: &[u8]) -> Option<usize> {
    let mut moves = Moves(bytes);
    let shape = shape()?;
    let policy = match moves.byte() % 4 {
        0 => TlsPolicy::Off,
        1 => TlsPolicy::Required,
        _ => TlsPolicy::Allowed,
    };
    let mut out = ByteQueue::default();
    let mut handshake = Handshake::new(policy, &mut out);
    assert!(out.len() == GREETING_BYTES, "a greeting of {} bytes", out.len());
    let flags = u32::from(handshake_flags::FIXED_NEWSTYLE | handshake_flags::NO_ZEROES);
    let taken = handshake.receive(&flags.to_be_bytes(), &mut out);
    assert!(taken.is_ok_and(|taken| taken.bytes == 4), "the client's flags are refused");
    let mut expected = Expected::default();
    for count in 1..=MAX_OPTIONS {
        let end = moves.0.is_empty() || count == MAX_OPTIONS;
        let asked = option(&mut moves, policy, expected, end);
        let begun = ask(&mut handshake, &asked, &shape);
        expected = asked.then;
        if let Some(terms) = begun {
            assert!(asked.reply == replies::ACK && asked.kind == kinds::GO, "an export opens by itself");
            assert!(
                terms.mode == expected.mode && terms.allocation == expected.allocation,
                "{terms:?} for {expected:?}"
            );
            return Some(requests(&mut moves, &shape, terms));
        }
        if end || asked.kind == kinds::ABORT {
            break;
        }
    }
    None
}

fn string(text: &str) -> Vec<u8> {
    [&u32::try_from(text.len()).unwrap_or(0).to_be_bytes(), text.as_bytes()].concat()
}

/// The next option, and what must come of it. The last is always a wish for the export.
fn option(moves: &mut Moves<'_>, policy: TlsPolicy, now: Expected, is_last: bool) -> Asked {
    let choice = if is_last { 0 } else { moves.byte() };
    let name = if choice & 0x40 == 0 { "disk" } else { "other" };
    let known = name == "disk";
    let found = if known { replies::ACK } else { replies::ERR_UNKNOWN };
    let bare = |kind, reply, then| Asked { kind, data: Vec::new(), reply, then };
    let mut asked = match choice % 16 {
        0 => Asked { kind: kinds::GO, data: question(name, moves.byte()), reply: found, then: now },
        1 | 2 => Asked { kind: kinds::INFO, data: question(name, moves.byte()), reply: found, then: now },
        3 | 4 if now.mode == ReplyMode::Extended => {
            bare(kinds::STRUCTURED_REPLY, replies::ERR_EXT_HEADER_REQD, now)
        }
        3 | 4 => {
            let then = Expected { mode: ReplyMode::Structured, ..now };
            bare(kinds::STRUCTURED_REPLY, replies::ACK, then)
        }
        5 => bare(kinds::EXTENDED_HEADERS, replies::ACK, Expected { mode: ReplyMode::Extended, ..now }),
        6..=8 => {
            let allocation = choice & 0x20 == 0;
            let query = if allocation { "base:allocation" } else { "qemu:dirty-bitmap:a" };
            let data = [string(name), vec![0, 0, 0, 1], string(query)].concat();
            let is_simple = now.mode == ReplyMode::Simple;
            let then = Expected { allocation: allocation && known && !is_simple, ..now };
            let reply = if is_simple { replies::ERR_INVALID } else { found };
            Asked { kind: kinds::SET_META_CONTEXT, data, reply, then }
        }
        9 => {
            let data = [string(name), vec![0; 4]].concat();
            let reply = if now.mode == ReplyMode::Simple { replies::ERR_INVALID } else { found };
            // Without structured replies even a list makes void what was selected: there was nothing.
            Asked { kind: kinds::LIST_META_CONTEXT, data, reply, then: now }
        }
        10 => bare(kinds::LIST, replies::ACK, now),
        11 | 12 => {
            let reply = match policy {
                _ if now.tls => replies::ERR_INVALID,
                TlsPolicy::Off => replies::ERR_POLICY,
                TlsPolicy::Allowed | TlsPolicy::Required => replies::ACK,
            };
            let then =
                if reply == replies::ACK { Expected { tls: true, ..Expected::default() } } else { now };
            bare(kinds::STARTTLS, reply, then)
        }
        13 => bare(0x1000 + u32::from(moves.byte()), replies::ERR_UNSUP, now),
        14 => {
            let data = vec![moves.byte(); MAX_OPTION_BYTES as usize + 1];
            return Asked { kind: 0x2000, data, reply: replies::ERR_TOO_BIG, then: now };
        }
        // Data that an option without data has, or an end that is missing.
        _ if choice & 0x20 == 0 => {
            Asked { kind: kinds::STRUCTURED_REPLY, data: vec![1], reply: replies::ERR_INVALID, then: now }
        }
        _ => Asked {
            kind: kinds::SET_META_CONTEXT,
            data: vec![0; 7],
            reply: replies::ERR_INVALID,
            then: Expected { allocation: false, ..now },
        },
    };
    let is_tls_missing = policy == TlsPolicy::Required && !now.tls;
    if is_tls_missing && asked.kind != kinds::STARTTLS {
        asked = Asked { reply: replies::ERR_TLS_REQD, then: now, ..asked };
    }
    asked
}

/// The data of `NBD_OPT_GO` and `NBD_OPT_INFO`, with some wishes.
fn question(name: &str, wishes: u8) -> Vec<u8> {
    let wanted: Vec<u16> = (0..8).filter(|bit| wishes >> bit & 1 != 0).collect();
    let count = u16::try_from(wanted.len()).unwrap_or(0).to_be_bytes();
    let wanted = wanted.iter().flat_map(|kind| kind.to_be_bytes());
    string(name).into_iter().chain(count).chain(wanted).collect()
}

/// Sends an option, answers what the server asks its owner, and checks the replies. The terms, where it opened.
fn ask(handshake: &mut Handshake, asked: &Asked, shape: &Shape) -> Option<Terms> {
    let mut out = ByteQueue::default();
    let length = u32::try_from(asked.data.len()).unwrap_or(0).to_be_bytes();
    let bytes = [&OPTION_MAGIC.to_be_bytes()[..], &asked.kind.to_be_bytes(), &length, &asked.data].concat();
    let (mut rest, mut begun) = (bytes.as_slice(), None);
    while !rest.is_empty() {
        let taken = handshake.receive(rest, &mut out);
        assert!(
            taken.as_ref().is_ok_and(|taken| taken.bytes > 0),
            "option {} ends it: {taken:?}",
            asked.kind
        );
        let Ok(taken) = taken else { return None };
        rest = rest.get(taken.bytes..).unwrap_or_default();
        let event = answer(handshake, taken.event, shape, &mut out);
        match event {
            Ok(HandshakeEvent::Begin(terms)) => begun = Some(terms),
            Ok(HandshakeEvent::StartTls) => {
                assert!(
                    asked.kind == kinds::STARTTLS && asked.reply == replies::ACK,
                    "TLS that nobody wants"
                );
                handshake.tls_started();
            }
            Ok(_) => {}
            Err(violation) => assert!(violation.0.is_empty(), "a legal option ends it: {}", violation.0),
        }
    }
    check_replies(asked, out.filled());
    begun
}

/// What the owner of one export answers.
fn answer(
    handshake: &mut Handshake,
    event: HandshakeEvent,
    shape: &Shape,
    out: &mut ByteQueue,
) -> Result<HandshakeEvent, Violation> {
    match event {
        HandshakeEvent::Open(name, _) if name == "disk" => handshake.opened(Ok(shape), out),
        HandshakeEvent::Open(..) => handshake.opened(Err(&Refusal::Unknown(String::new())), out),
        HandshakeEvent::List => {
            let disk = Listed { name: "disk".to_owned(), description: "a disk".to_owned() };
            handshake.listed(&[disk], out);
            Ok(HandshakeEvent::Continue)
        }
        event => Ok(event),
    }
}

/// The replies to an option repeat its number; exactly the last is final, and is the one that is due.
fn check_replies(asked: &Asked, output: &[u8]) {
    let mut reader = Reader(output);
    let mut last = None;
    while !reader.is_empty() {
        assert!(!last.is_some_and(is_final), "a reply behind the final one to option {}", asked.kind);
        let magic = reader.u64();
        assert!(magic == Some(OPTION_REPLY_MAGIC), "no reply: {magic:?}");
        assert!(reader.u32() == Some(asked.kind), "a reply to another option");
        last = reader.u32();
        let length = usize::try_from(reader.u32().unwrap_or(u32::MAX)).unwrap_or(usize::MAX);
        assert!(reader.take(length).is_some(), "a reply that is cut short");
    }
    assert!(last == Some(asked.reply), "{last:x?} to option {}, where {:x} is due", asked.kind, asked.reply);
}

const fn is_final(reply: u32) -> bool {
    reply == replies::ACK || reply & replies::ERROR != 0
}

/// Judges requests, twelve bytes each, and compares with the oracle. How many there were.
fn requests(moves: &mut Moves<'_>, shape: &Shape, terms: Terms) -> usize {
    let mut count = 0;
    while !moves.0.is_empty() {
        let (kind, flags) = (u16::from(moves.byte() % 10), u16::from(moves.byte()));
        let (offset, length) = (number(moves), number(moves));
        let length = if terms.mode == ReplyMode::Extended { length } else { length & 0xFFFF_FFFF };
        let header = Header { flags, kind, tag: Tag { cookie: 1, offset }, length };
        let found = check(&header, shape, terms).map(|command| command.kind).map_err(|illegal| illegal.0);
        assert!(found == judge(&header, terms), "{found:?} of {header:?} on {terms:?}");
        count += 1;
    }
    count
}

/// Numbers around the sizes that matter.
fn number(moves: &mut Moves<'_>) -> u64 {
    let base = match moves.byte() % 12 {
        0..=3 => 0,
        4 => DISK_BYTES / 2,
        5 => DISK_BYTES,
        6 => u64::from(MAX_PAYLOAD_BYTES),
        7 => 1 << 32,
        8 => u64::MAX,
        9 => PIECE_BYTES as u64,
        _ => 4096,
    };
    let step = if moves.byte() & 1 == 0 { 512 } else { 1 };
    base.wrapping_add(u64::from(moves.byte()) * step).wrapping_sub(u64::from(moves.byte()) * step)
}

/// Whether a request is legal on an export of [`DISK_BYTES`] in blocks of 512 that has everything (proto.md, "Request
/// types", "Error values").
fn judge(header: &Header, terms: Terms) -> Result<RequestKind, Errno> {
    use command_flags::{DF, FAST_ZERO, FUA, NO_HOLE, PAYLOAD_LEN, REQ_ONE};
    let when = |condition: bool, flag: u16| if condition { flag } else { 0 };
    let structured = terms.mode != ReplyMode::Simple;
    let extended = terms.mode == ReplyMode::Extended;
    let (kind, legal) = match header.kind {
        command::READ => (RequestKind::Read, when(structured, DF)),
        command::WRITE => (RequestKind::Write, when(extended, PAYLOAD_LEN)),
        command::FLUSH => (RequestKind::Flush, 0),
        command::TRIM => (RequestKind::Trim, 0),
        command::CACHE => (RequestKind::Cache, 0),
        command::WRITE_ZEROES => (RequestKind::WriteZeroes, NO_HOLE | FAST_ZERO),
        command::BLOCK_STATUS => (RequestKind::BlockStatus, REQ_ONE),
        _ => return Err(Errno::Invalid),
    };
    let (offset, length) = (header.tag.offset, header.length);
    let is_flagged_wrong = header.flags & !(legal | FUA) != 0;
    if is_flagged_wrong || (kind == RequestKind::BlockStatus && !terms.allocation) {
        return Err(Errno::Invalid);
    }
    if kind == RequestKind::Flush {
        return if offset == 0 && length == 0 { Ok(kind) } else { Err(Errno::Invalid) };
    }
    let Some(end) = offset.checked_add(length) else { return Err(Errno::Invalid) };
    if end > DISK_BYTES {
        let takes_space = matches!(kind, RequestKind::Write | RequestKind::WriteZeroes);
        return Err(if takes_space { Errno::NoSpace } else { Errno::Invalid });
    }
    if length == 0 || !offset.is_multiple_of(512) || !length.is_multiple_of(512) {
        return Err(Errno::Invalid);
    }
    if kind == RequestKind::Read && header.flags & DF != 0 && length > PIECE_BYTES as u64 {
        return Err(Errno::Overflow);
    }
    Ok(kind)
}
