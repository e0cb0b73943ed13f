//! Golden bytes of requests and replies, written out by hand from proto.md and extension-ext-header.
use super::check::{Illegal, check};
use super::request::{BadMagic, Header, Tag};
use super::*;
use crate::wire::{Errno, Extent};
use connections::ByteQueue;

const TAG: Tag = Tag { cookie: 0x0102_0304_0506_0708, offset: 0x1000 };
const COOKIE: &[u8] = &[1, 2, 3, 4, 5, 6, 7, 8];

fn written(write: impl FnOnce(&mut ByteQueue)) -> Vec<u8> {
    let mut out = ByteQueue::default();
    write(&mut out);
    out.filled().to_vec()
}

#[test]
fn requests_of_both_forms_are_read_when_they_are_whole() {
    let compact =
        [b"\x25\x60\x95\x13\0\x01\0\x06".as_slice(), COOKIE, b"\0\0\0\0\0\0\x10\0\0\0\x02\0"].concat();
    let extended =
        [b"\x21\xe4\x1c\x71\0\x01\0\x06".as_slice(), COOKIE, b"\0\0\0\0\0\0\x10\0\0\0\0\0\0\0\x02\0"]
            .concat();
    let expected = Header { flags: 1, kind: 6, tag: TAG, length: 512 };
    for (mode, bytes) in
        [(ReplyMode::Simple, &compact), (ReplyMode::Structured, &compact), (ReplyMode::Extended, &extended)]
    {
        assert_eq!(Header::parse(mode, bytes), Ok(Some(expected)));
        assert_eq!(Header::wire_bytes(mode), bytes.len());
        for cut in 0..bytes.len() {
            assert_eq!(Header::parse(mode, &bytes[..cut]), Ok(None), "{mode:?}, {cut} bytes");
        }
    }
    assert_eq!(Header::parse(ReplyMode::Extended, &compact), Err(BadMagic(0x2560_9513)));
    assert_eq!(Header::parse(ReplyMode::Structured, &extended), Err(BadMagic(0x21e4_1c71)));
}

#[test]
fn payload_follows_writes_and_whatever_announces_it() {
    let header = |kind, flags| Header { flags, kind, tag: TAG, length: 512 };
    let (read, write, announced) = (header(0, 0), header(1, 0), header(7, 0x20));
    assert_eq!([read, write].map(|header| header.payload_bytes(ReplyMode::Structured)), [0, 512]);
    assert_eq!(
        [read, write, announced].map(|header| header.payload_bytes(ReplyMode::Extended)),
        [0, 512, 512]
    );
    assert_eq!(announced.payload_bytes(ReplyMode::Structured), 0);
}

#[test]
fn success_and_failure_are_told_in_all_three_forms() {
    let simple = |errno: &[u8]| [b"\x67\x44\x66\x98".as_slice(), errno, COOKIE].concat();
    assert_eq!(written(|out| reply::done(ReplyMode::Simple, TAG, out)), simple(b"\0\0\0\0"));
    assert_eq!(written(|out| reply::done(ReplyMode::Structured, TAG, out)), simple(b"\0\0\0\0"));
    let extended = |head: &[u8], length: &[u8], payload: &[u8]| {
        [
            b"\x6e\x8a\x27\x8c".as_slice(),
            head,
            COOKIE,
            b"\0\0\0\0\0\0\x10\0",
            b"\0\0\0\0\0\0\0",
            length,
            payload,
        ]
        .concat()
    };
    let done = written(|out| reply::done(ReplyMode::Extended, TAG, out));
    assert_eq!(done, extended(b"\0\x01\0\0", b"\0", b""));
    let error = |mode| written(|out| reply::error(mode, TAG, Errno::NoSpace, "full", out));
    let payload = b"\0\0\0\x1c\0\x04full";
    assert_eq!(error(ReplyMode::Simple), simple(b"\0\0\0\x1c"));
    let structured = [b"\x66\x8e\x33\xef\0\x01\x80\x01".as_slice(), COOKIE, b"\0\0\0\x0a", payload].concat();
    assert_eq!(error(ReplyMode::Structured), structured);
    assert_eq!(error(ReplyMode::Extended), extended(b"\0\x01\x80\x01", b"\x0a", payload));
    let error = written(|out| reply::error_at(ReplyMode::Structured, TAG, Errno::Io, 0x1200, out));
    let payload = b"\0\0\0\x05\0\0\0\0\0\0\0\0\x12\0";
    assert_eq!(
        error,
        [b"\x66\x8e\x33\xef\0\x01\x80\x02".as_slice(), COOKIE, b"\0\0\0\x0e", payload].concat()
    );
}

#[test]
fn data_and_holes_are_framed_in_all_three_forms() {
    let simple = [b"\x67\x44\x66\x98\0\0\0\0".as_slice(), COOKIE].concat();
    assert_eq!(reply::simple_head(TAG).as_bytes(), simple);
    let head = reply::data_head(ReplyMode::Structured, TAG, 0x1000, 512, true);
    let expected =
        [b"\x66\x8e\x33\xef\0\x01\0\x01".as_slice(), COOKIE, b"\0\0\x02\x08", b"\0\0\0\0\0\0\x10\0"].concat();
    assert_eq!(head.as_bytes(), expected);
    let head = reply::data_head(ReplyMode::Extended, TAG, 0x1200, 512, false);
    let expected = [
        b"\x6e\x8a\x27\x8c\0\0\0\x01".as_slice(),
        COOKIE,
        b"\0\0\0\0\0\0\x10\0",
        b"\0\0\0\0\0\0\x02\x08",
        b"\0\0\0\0\0\0\x12\0",
    ];
    assert_eq!(head.as_bytes(), expected.concat());
    let hole = written(|out| reply::hole(ReplyMode::Structured, TAG, 0x1000, 0x8000, false, out));
    let expected = b"\0\0\0\0\0\0\x10\0\0\0\x80\0";
    assert_eq!(hole, [b"\x66\x8e\x33\xef\0\0\0\x02".as_slice(), COOKIE, b"\0\0\0\x0c", expected].concat());
}

#[test]
fn extents_are_narrow_or_wide_by_the_form() {
    let extents = [
        Extent { length: 0x1000, hole: true, zero: true },
        Extent { length: 0x200, hole: false, zero: false },
    ];
    let status = |mode| written(|out| reply::block_status(mode, TAG, &extents, out));
    let narrow = b"\0\0\0\x01\0\0\x10\0\0\0\0\x03\0\0\x02\0\0\0\0\0";
    let expected = [b"\x66\x8e\x33\xef\0\x01\0\x05".as_slice(), COOKIE, b"\0\0\0\x14", narrow].concat();
    assert_eq!(status(ReplyMode::Structured), expected);
    let wide = [
        b"\x6e\x8a\x27\x8c\0\x01\0\x06".as_slice(),
        COOKIE,
        b"\0\0\0\0\0\0\x10\0",
        b"\0\0\0\0\0\0\0\x28",
        b"\0\0\0\x01\0\0\0\x02",
        b"\0\0\0\0\0\0\x10\0\0\0\0\0\0\0\0\x03",
        b"\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\0\0",
    ];
    assert_eq!(status(ReplyMode::Extended), wide.concat());
}

#[test]
fn each_flag_is_legal_with_its_command_alone() {
    let shape = Shape {
        size_bytes: 1 << 40,
        minimum_block: 512,
        preferred_block: 4096,
        maximum_payload: MAX_PAYLOAD_BYTES,
        writable: true,
        multi_conn: false,
        fast_zero: true,
        description: String::new(),
    };
    let terms = |mode| Terms { mode, allocation: true };
    let legal = |shape: &Shape, mode, kind: u16, flags: u16| {
        let length = if kind == 3 { 0 } else { 4096 };
        let tag = Tag { cookie: 0, offset: 0 };
        match check(&Header { flags, kind, tag, length }, shape, terms(mode)) {
            Ok(_) => true,
            Err(Illegal(Errno::Invalid, _)) => false,
            Err(other) => panic!("{other:?}"),
        }
    };
    // By command: READ, WRITE, FLUSH, TRIM, CACHE, WRITE_ZEROES, BLOCK_STATUS. FUA goes with all.
    let commands = [0, 1, 3, 4, 5, 6, 7];
    let expected = |mode, flag: u16| -> Vec<u16> {
        commands.into_iter().filter(|kind| legal(&shape, mode, *kind, flag)).collect()
    };
    assert_eq!(expected(ReplyMode::Structured, 1), commands);
    assert_eq!(expected(ReplyMode::Structured, 2), [6]);
    assert_eq!(expected(ReplyMode::Structured, 4), [0]);
    assert_eq!(expected(ReplyMode::Simple, 4), [0; 0]);
    assert_eq!(expected(ReplyMode::Structured, 8), [7]);
    assert_eq!(expected(ReplyMode::Structured, 16), [6]);
    assert_eq!(expected(ReplyMode::Structured, 32), [0; 0]);
    assert_eq!(expected(ReplyMode::Extended, 32), [1]);
    assert_eq!(expected(ReplyMode::Extended, 64), [0; 0]);
    // And not where the export has not offered it.
    let slow = Shape { fast_zero: false, ..shape.clone() };
    assert!(!legal(&slow, ReplyMode::Structured, 6, 16));
    let fixed = Shape { writable: false, ..shape.clone() };
    assert!(!legal(&fixed, ReplyMode::Structured, 0, 1));
}
