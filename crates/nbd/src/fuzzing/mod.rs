//! Entry points for fuzzing: both state machines fed with arbitrary bytes, without sockets, and held to what must be true
//! whatever the other side sends.
mod negotiation;

use std::io::{self, Read, Write};
use std::sync::Arc;

use block::{ByteLength, LogicalBlockSize, MemoryDevice};

use crate::client::ConnectOptions;
use crate::exports::{ConnectionEnd, Export, ExportObserver, Listed, Refusal, RequestDone};
use crate::handshake::{Handshake, HandshakeEvent, TlsPolicy};
use crate::limits::MAX_DRAINED_BYTES;
use crate::transmission::check::check;
use crate::transmission::request::Header;
use crate::transmission::{Shape, Terms};
use crate::wire::command;
use connections::ByteQueue;

pub use negotiation::negotiation;

/// What became of a connection to the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The transmission phase began.
    pub began: bool,
    /// It began, or an export was described, without TLS.
    pub told_in_the_clear: bool,
    /// TLS began.
    pub tls: bool,
    /// Extended headers were in use.
    pub extended: bool,
    /// Legal requests.
    pub legal: usize,
    /// Requests that were refused.
    pub refused: usize,
    /// The client broke the rules.
    pub violation: bool,
    /// The most bytes of answers to one message.
    pub most_output_bytes: usize,
}

struct Quiet;

impl ExportObserver for Quiet {
    fn request_done(&self, _: &RequestDone) {}
    fn ended(&self, _: ConnectionEnd) {}
}

/// The size of the export `disk`, the only one that the server of [`server`] has.
pub const DISK_BYTES: u64 = 1 << 20;

/// Feeds a server with what a client sends. Where it asks for TLS, the rest is what comes inside.
#[must_use]
pub fn server(input: &[u8], policy: TlsPolicy) -> Seen {
    let mut seen = Seen::default();
    let Some(shape) = shape() else { return seen };
    let mut out = ByteQueue::default();
    let mut handshake = Handshake::new(policy, &mut out);
    let mut rest = input;
    loop {
        out = ByteQueue::default();
        let Ok(taken) = handshake.receive(rest, &mut out) else {
            seen.violation = true;
            return seen;
        };
        rest = rest.get(taken.bytes..).unwrap_or_default();
        let event = match taken.event {
            HandshakeEvent::Open(name, _) => {
                seen.told_in_the_clear |= !seen.tls;
                let unknown = Refusal::Unknown("there is only \"disk\"".to_owned());
                let answer = if name == "disk" { Ok(&shape) } else { Err(&unknown) };
                handshake.opened(answer, &mut out)
            }
            HandshakeEvent::List => {
                seen.told_in_the_clear |= !seen.tls;
                let disk = Listed { name: "disk".to_owned(), description: String::new() };
                handshake.listed(&[disk], &mut out);
                Ok(HandshakeEvent::Continue)
            }
            event => Ok(event),
        };
        seen.most_output_bytes = seen.most_output_bytes.max(out.len());
        match event {
            Ok(HandshakeEvent::Begin(terms)) => {
                seen.began = true;
                requests(rest, terms, &shape, &mut seen);
                return seen;
            }
            Ok(HandshakeEvent::StartTls) => {
                handshake.tls_started();
                seen.tls = true;
            }
            Ok(HandshakeEvent::Continue) if taken.bytes > 0 => {}
            Ok(_) => return seen,
            Err(_) => {
                seen.violation = true;
                return seen;
            }
        }
    }
}

/// Reads a client's requests, as the driver does.
fn requests(input: &[u8], terms: Terms, shape: &Shape, seen: &mut Seen) {
    seen.extended = terms.mode == crate::wire::ReplyMode::Extended;
    let mut rest = input;
    while let Ok(Some(header)) = Header::parse(terms.mode, rest) {
        rest = rest.get(Header::wire_bytes(terms.mode)..).unwrap_or_default();
        if header.kind == command::DISC {
            return;
        }
        match check(&header, shape, terms) {
            Ok(legal) => {
                seen.legal = seen.legal.saturating_add(1);
                assert!(
                    legal.range.end().get() <= DISK_BYTES,
                    "a legal request lies inside the export: {legal:?}"
                );
            }
            Err(_) => seen.refused = seen.refused.saturating_add(1),
        }
        let payload = header.payload_bytes(terms.mode);
        if payload > MAX_DRAINED_BYTES {
            seen.violation = true;
            return;
        }
        rest = usize::try_from(payload).ok().and_then(|bytes| rest.get(bytes..)).unwrap_or_default();
    }
}

fn shape() -> Option<Shape> {
    let device = MemoryDevice::zeroed(ByteLength::new(DISK_BYTES), LogicalBlockSize::B512)?;
    Some(Shape::new(&Export {
        device: Arc::new(device),
        description: "a disk".to_owned(),
        read_only: false,
        multi_conn: true,
        fast_zero: true,
        observer: Arc::new(Quiet),
        account: meter::Account::default(),
    }))
}

/// Feeds a client with what a server sends: the handshake, then answers to a read, a write and a block status request.
/// Gives how many of the three were answered; `None` where the handshake did not succeed.
#[must_use]
pub fn client(input: &[u8]) -> Option<usize> {
    crate::client::fuzzed(Script { input }, &ConnectOptions::default())
}

/// Says what it was given, and listens to nobody.
struct Script<'a> {
    input: &'a [u8],
}

impl Read for Script<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.input.read(room)
    }
}

impl Write for Script<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
