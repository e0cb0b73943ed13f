//! Golden bytes of the handshake, written out by hand from proto.md, and what must not be possible.
use super::*;
use crate::exports::Refusal;

fn shape() -> Shape {
    Shape {
        size_bytes: 0x0010_0000,
        minimum_block: 512,
        preferred_block: 4096,
        maximum_payload: 0x0200_0000,
        writable: true,
        multi_conn: true,
        fast_zero: true,
        description: "d".to_owned(),
    }
}

/// A connection on which the greeting is over.
struct Talk {
    handshake: Handshake,
    out: ByteQueue,
}

fn option(kind: u32, data: &[u8]) -> Vec<u8> {
    [b"IHAVEOPT".as_slice(), &kind.to_be_bytes(), &(data.len() as u32).to_be_bytes(), data].concat()
}

fn name(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
}

fn go(export: &str, infos: &[u16]) -> Vec<u8> {
    let mut data = name(export);
    data.extend((infos.len() as u16).to_be_bytes());
    data.extend(infos.iter().flat_map(|info| info.to_be_bytes()));
    data
}

fn contexts(export: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = name(export);
    data.extend((queries.len() as u32).to_be_bytes());
    data.extend(queries.iter().flat_map(|query| name(query)));
    data
}

fn reply(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let magic = [0x00, 0x03, 0xe8, 0x89, 0x04, 0x55, 0x65, 0xa9];
    [&magic[..], &option.to_be_bytes(), &kind.to_be_bytes(), &(data.len() as u32).to_be_bytes(), data]
        .concat()
}

impl Talk {
    fn new(policy: TlsPolicy) -> Self {
        let mut out = ByteQueue::default();
        let mut handshake = Handshake::new(policy, &mut out);
        assert_eq!(out.filled(), b"NBDMAGICIHAVEOPT\x00\x03");
        out.consume(18);
        let taken = handshake.receive(&[0, 0, 0, 3], &mut out).unwrap();
        assert_eq!(taken, Taken { bytes: 4, event: HandshakeEvent::Continue });
        Self { handshake, out }
    }

    fn sends(&mut self, kind: u32, data: &[u8]) -> Result<HandshakeEvent, Violation> {
        let bytes = option(kind, data);
        // A message that comes in pieces is taken when it is whole.
        for cut in 0..bytes.len() {
            assert_eq!(self.handshake.receive(&bytes[..cut], &mut self.out)?.bytes, 0);
        }
        let taken = self.handshake.receive(&bytes, &mut self.out)?;
        assert_eq!(taken.bytes, bytes.len());
        match taken.event {
            HandshakeEvent::Open(name, _) if matches!(name.as_str(), "disk" | "") => {
                self.handshake.opened(Ok(&shape()), &mut self.out)
            }
            HandshakeEvent::Open(..) => {
                self.handshake.opened(Err(&Refusal::Unknown("no".to_owned())), &mut self.out)
            }
            event => Ok(event),
        }
    }

    fn said(&mut self) -> Vec<u8> {
        let said = self.out.filled().to_vec();
        self.out.consume(said.len());
        said
    }

    /// The type of the last of the replies that were given.
    fn kind(&mut self) -> u32 {
        let said = self.said();
        let mut rest = Reader(&said);
        let mut last = 0;
        while !rest.is_empty() {
            rest.take(12).unwrap();
            last = rest.u32().unwrap();
            let length = rest.u32().unwrap() as usize;
            rest.take(length).unwrap();
        }
        last
    }
}

#[test]
fn go_describes_the_export_and_begins() {
    let mut talk = Talk::new(TlsPolicy::Off);
    talk.sends(8, &[]).unwrap();
    assert_eq!(talk.said(), reply(8, 1, &[]));
    talk.sends(10, &contexts("disk", &["base:allocation", "qemu:dirty-bitmap:x"])).unwrap();
    assert_eq!(talk.said(), [reply(10, 4, b"\0\0\0\x01base:allocation"), reply(10, 1, &[])].concat());
    let event = talk.sends(7, &go("disk", &[3, 1, 2, 77])).unwrap();
    let terms = Terms { mode: ReplyMode::Structured, allocation: true };
    assert_eq!(event, HandshakeEvent::Begin(terms));
    // HAS_FLAGS, FLUSH, FUA, TRIM, WRITE_ZEROES, DF, MULTI_CONN, CACHE, FAST_ZERO.
    let expected = [
        reply(7, 3, b"\0\0\0\0\0\0\0\x10\0\0\x0d\xed"),
        reply(7, 3, b"\0\x01disk"),
        reply(7, 3, b"\0\x02d"),
        reply(7, 3, b"\0\x03\0\0\x02\0\0\0\x10\0\x02\0\0\0"),
        reply(7, 1, &[]),
    ];
    assert_eq!(talk.said(), expected.concat());
}

#[test]
fn export_name_answers_with_and_without_zeroes() {
    for (flags, zeroes) in [(3, 0), (1, 124)] {
        let mut out = ByteQueue::default();
        let mut handshake = Handshake::new(TlsPolicy::Off, &mut out);
        out.consume(18);
        handshake.receive(&[0, 0, 0, flags], &mut out).unwrap();
        handshake.receive(&option(1, b"disk"), &mut out).unwrap();
        let event = handshake.opened(Ok(&shape()), &mut out).unwrap();
        assert_eq!(event, HandshakeEvent::Begin(Terms::default()));
        let expected = [b"\0\0\0\0\0\x10\0\0\x0d\x6d".to_vec(), vec![0; zeroes]].concat();
        assert_eq!(out.filled(), expected);
    }
}

#[test]
fn unknown_client_flag_ends_the_connection() {
    let mut out = ByteQueue::default();
    let mut handshake = Handshake::new(TlsPolicy::Off, &mut out);
    assert!(handshake.receive(&[0, 0, 0, 7], &mut out).is_err());
}

#[test]
fn illegal_options_get_the_error_that_the_document_names() {
    let cut = [0, 0, 0, 9, b'd'];
    let mut behind = go("disk", &[]);
    behind.push(0);
    let mut lie = name("disk");
    lie.extend(u32::MAX.to_be_bytes());
    let long_name = "n".repeat(4097);
    let cases: Vec<(u32, Vec<u8>, u32)> = vec![
        (4, vec![], replies::ERR_UNSUP),
        (4711, b"whatever".to_vec(), replies::ERR_UNSUP),
        (3, vec![1], replies::ERR_INVALID),
        (5, vec![], replies::ERR_POLICY),
        (5, vec![1], replies::ERR_INVALID),
        (6, cut.to_vec(), replies::ERR_INVALID),
        (7, vec![], replies::ERR_INVALID),
        (7, behind, replies::ERR_INVALID),
        (7, go("other", &[]), replies::ERR_UNKNOWN),
        (7, go(&long_name, &[]), replies::ERR_INVALID),
        (7, go("a\0b", &[]), replies::ERR_INVALID),
        (8, vec![1], replies::ERR_INVALID),
        (11, vec![1], replies::ERR_INVALID),
        // No structured replies yet.
        (9, contexts("disk", &[]), replies::ERR_INVALID),
        (10, contexts("disk", &["base:allocation"]), replies::ERR_INVALID),
        (10, lie, replies::ERR_INVALID),
    ];
    for (kind, data, expected) in cases {
        let mut talk = Talk::new(TlsPolicy::Off);
        assert_eq!(talk.sends(kind, &data).unwrap(), HandshakeEvent::Continue, "option {kind}");
        assert_eq!(talk.kind(), expected, "option {kind}");
        // And the next option is understood.
        talk.sends(7, &go("disk", &[])).unwrap();
    }
}

#[test]
fn option_that_is_too_long_is_skipped_or_ends_the_connection() {
    let mut talk = Talk::new(TlsPolicy::Off);
    let long = option(7, &vec![0; 20_000]);
    let mut rest = long.as_slice();
    while !rest.is_empty() {
        let taken = talk.handshake.receive(&rest[..rest.len().min(777)], &mut talk.out).unwrap();
        rest = &rest[taken.bytes..];
    }
    assert_eq!(talk.kind(), replies::ERR_TOO_BIG);
    talk.sends(8, &[]).unwrap();
    assert_eq!(talk.kind(), replies::ACK);
    let head = |kind: u32, length: u32| {
        [b"IHAVEOPT".as_slice(), &kind.to_be_bytes(), &length.to_be_bytes()].concat()
    };
    assert!(talk.handshake.receive(&head(7, 2_000_000), &mut talk.out).is_err());
    assert!(talk.handshake.receive(&head(1, 20_000), &mut talk.out).is_err());
}

#[test]
fn endless_options_end_the_connection() {
    let mut talk = Talk::new(TlsPolicy::Off);
    let failed = (0..=MAX_OPTIONS).map(|_| talk.sends(8, &[])).find(Result::is_err);
    assert!(failed.is_some());
}

#[test]
fn nothing_agreed_on_before_tls_outlives_it() {
    let mut talk = Talk::new(TlsPolicy::Allowed);
    talk.sends(11, &[]).unwrap();
    talk.sends(10, &contexts("disk", &["base:allocation"])).unwrap();
    talk.said();
    assert_eq!(talk.sends(5, &[]).unwrap(), HandshakeEvent::StartTls);
    assert_eq!(talk.said(), reply(5, 1, &[]));
    // Nothing is taken until TLS is up.
    assert_eq!(talk.handshake.receive(&option(8, &[]), &mut talk.out).unwrap().bytes, 0);
    talk.handshake.tls_started();
    talk.sends(5, &[]).unwrap();
    assert_eq!(talk.kind(), replies::ERR_INVALID);
    assert_eq!(talk.sends(7, &go("disk", &[])).unwrap(), HandshakeEvent::Begin(Terms::default()));
}

#[test]
fn forced_tls_tells_nothing_without_it() {
    let mut talk = Talk::new(TlsPolicy::Required);
    for (kind, data) in [(3, vec![]), (6, go("disk", &[])), (7, go("x", &[])), (8, vec![]), (99, vec![1])] {
        assert_eq!(talk.sends(kind, &data).unwrap(), HandshakeEvent::Continue);
        assert_eq!(talk.kind(), replies::ERR_TLS_REQD, "option {kind}");
    }
    assert_eq!(talk.sends(2, &[]).unwrap(), HandshakeEvent::Aborted);
    assert_eq!(talk.kind(), replies::ACK);
    assert!(Talk::new(TlsPolicy::Required).sends(1, b"disk").is_err());
    // A client without fixed newstyle cannot have TLS.
    let mut out = ByteQueue::default();
    assert!(Handshake::new(TlsPolicy::Required, &mut out).receive(&[0, 0, 0, 2], &mut out).is_err());
}

#[test]
fn demand_for_tls_is_told_only_where_tls_can_follow() {
    let refused = |policy, encrypted: bool| {
        let mut talk = Talk::new(policy);
        if encrypted {
            talk.sends(5, &[]).unwrap();
            talk.handshake.tls_started();
        }
        talk.said();
        talk.handshake.receive(&option(7, &go("secret", &[])), &mut talk.out).unwrap();
        talk.handshake.opened(Err(&Refusal::TlsRequired), &mut talk.out).unwrap();
        talk.kind()
    };
    assert_eq!(refused(TlsPolicy::Allowed, false), replies::ERR_TLS_REQD);
    assert_eq!(refused(TlsPolicy::Allowed, true), replies::ERR_POLICY);
    assert_eq!(refused(TlsPolicy::Off, false), replies::ERR_POLICY);
}

#[test]
fn contexts_are_bound_to_their_export_and_replaced_by_each_selection() {
    let allocation = |selections: &[(&str, &[&str])]| {
        let mut talk = Talk::new(TlsPolicy::Off);
        talk.sends(8, &[]).unwrap();
        for (export, queries) in selections {
            talk.sends(10, &contexts(export, queries)).unwrap();
        }
        match talk.sends(7, &go("disk", &[])).unwrap() {
            HandshakeEvent::Begin(terms) => terms.allocation,
            other => panic!("{other:?}"),
        }
    };
    let all: &[&str] = &["base:allocation"];
    assert!(allocation(&[("disk", all)]));
    assert!(!allocation(&[("", all)]));
    assert!(!allocation(&[("disk", &["base:"])]));
    assert!(!allocation(&[("disk", all), ("disk", &["base:nothing"])]));
    assert!(!allocation(&[("disk", all), ("other", all)]));
    assert!(!allocation(&[("disk", all), ("disk", &[])]));
}

#[test]
fn contexts_are_listed_by_wildcard_and_without_query() {
    for (queries, expected) in [(&[][..], true), (&["base:"][..], true), (&["x:"][..], false)] {
        let mut talk = Talk::new(TlsPolicy::Off);
        talk.sends(8, &[]).unwrap();
        talk.said();
        talk.sends(9, &contexts("disk", queries)).unwrap();
        let context = if expected { reply(9, 4, b"\0\0\0\0base:allocation") } else { Vec::new() };
        assert_eq!(talk.said(), [context, reply(9, 1, &[])].concat(), "{queries:?}");
    }
}

#[test]
fn extended_headers_are_final_and_exclude_the_old_way_in() {
    let mut talk = Talk::new(TlsPolicy::Off);
    talk.sends(11, &[]).unwrap();
    talk.sends(8, &[]).unwrap();
    assert_eq!(talk.kind(), replies::ERR_EXT_HEADER_REQD);
    assert!(talk.sends(1, b"disk").is_err());
}

#[test]
fn list_names_exports_with_their_descriptions() {
    let mut talk = Talk::new(TlsPolicy::Off);
    assert_eq!(talk.sends(3, &[]).unwrap(), HandshakeEvent::List);
    let listed =
        |name: &str, description: &str| Listed { name: name.to_owned(), description: description.to_owned() };
    talk.handshake.listed(&[listed("a", ""), listed("bc", "xyz")], &mut talk.out);
    let expected = [reply(3, 2, b"\0\0\0\x01a"), reply(3, 2, b"\0\0\0\x02bcxyz"), reply(3, 1, &[])];
    assert_eq!(talk.said(), expected.concat());
}
