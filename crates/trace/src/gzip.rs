//! gzip (RFC 1952) around deflate (RFC 1951): members, one after another (§2.2), of which each can be appended as it is.
use miniz_oxide::deflate::compress_to_vec;
use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress, inflate_flags};

use crate::TraceError;

/// ID1, ID2 (§2.3.1).
const MAGIC: [u8; 2] = [0x1f, 0x8b];

/// ID1 ID2 CM=deflate FLG=0 MTIME=0 XFL=0 OS=unknown (§2.3.1): the same bytes for the same trace.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];

/// CRC32 and ISIZE.
const TRAILER_BYTES: usize = 8;

/// Flags of a header (§2.3.1).
const FHCRC: u8 = 2;
const FEXTRA: u8 = 4;
const FNAME: u8 = 8;
const FCOMMENT: u8 = 16;

/// The compressor's effort: traces are written once and kept.
const LEVEL: u8 = 9;

/// How much room is made at once for what comes out.
const STEP_BYTES: usize = 1 << 20;

/// Whether bytes begin like a gzip file.
pub(crate) fn is_gzip(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

/// `bytes` as one member.
pub(crate) fn member(bytes: &[u8]) -> Vec<u8> {
    let mut out = HEADER.to_vec();
    out.extend_from_slice(&compress_to_vec(bytes, LEVEL));
    out.extend_from_slice(&crc32(bytes).to_le_bytes());
    // ISIZE is the length modulo 2^32 (§2.3.1).
    let size = u32::try_from(bytes.len() & 0xffff_ffff).unwrap_or(u32::MAX);
    out.extend_from_slice(&size.to_le_bytes());
    out
}

/// What all members hold, if it is no more than `limit` bytes.
pub(crate) fn unpack(bytes: &[u8], limit: usize) -> Result<Vec<u8>, TraceError> {
    let mut out = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let at = bytes.len().saturating_sub(rest.len());
        let damaged = |why| TraceError::Gzip { at, why };
        let body = skip_header(rest).ok_or_else(|| damaged("no header of a gzip member"))?;
        let start = out.len();
        let used = inflate(body, &mut out, limit).map_err(|problem| match problem {
            Problem::TooLong => TraceError::TooLarge { limit, unit: "bytes" },
            Problem::Damaged => damaged("the compressed data is damaged or cut off"),
        })?;
        let trailer = body.get(used..).and_then(<[u8]>::split_first_chunk::<TRAILER_BYTES>);
        let Some((&[a, b, c, d, ..], after)) = trailer else {
            return Err(damaged("the member is cut off"));
        };
        if crc32(out.get(start..).unwrap_or_default()) != u32::from_le_bytes([a, b, c, d]) {
            return Err(damaged("the checksum does not match"));
        }
        rest = after;
    }
    Ok(out)
}

/// What follows a member's header.
fn skip_header(bytes: &[u8]) -> Option<&[u8]> {
    let (&[id1, id2, method, flags, ..], mut rest) = bytes.split_first_chunk::<10>()?;
    if [id1, id2] != MAGIC || method != 8 {
        return None;
    }
    if flags & FEXTRA != 0 {
        let (length, after) = rest.split_first_chunk::<2>()?;
        rest = after.get(usize::from(u16::from_le_bytes(*length))..)?;
    }
    for text in [FNAME, FCOMMENT] {
        if flags & text != 0 {
            let end = rest.iter().position(|byte| *byte == 0)?;
            rest = rest.get(end.saturating_add(1)..)?;
        }
    }
    if flags & FHCRC != 0 { rest.get(2..) } else { Some(rest) }
}

enum Problem {
    TooLong,
    Damaged,
}

/// Appends what a deflate stream holds; how many bytes the stream has.
fn inflate(input: &[u8], out: &mut Vec<u8>, limit: usize) -> Result<usize, Problem> {
    let flags = inflate_flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
    let start = out.len();
    let mut machine = Box::<DecompressorOxide>::default();
    let (mut used, mut made) = (0_usize, 0_usize);
    loop {
        let room = start.saturating_add(made).saturating_add(STEP_BYTES).min(limit);
        out.resize(room, 0);
        let target = out.get_mut(start..).ok_or(Problem::TooLong)?;
        let source = input.get(used..).unwrap_or_default();
        let (status, read, written) = decompress(&mut machine, source, target, made, flags);
        used = used.saturating_add(read);
        made = made.saturating_add(written);
        match status {
            TINFLStatus::Done => {
                out.truncate(start.saturating_add(made));
                return Ok(used);
            }
            TINFLStatus::HasMoreOutput if room < limit => {}
            TINFLStatus::HasMoreOutput => return Err(Problem::TooLong),
            _ => return Err(Problem::Damaged),
        }
    }
}

/// The CRC of §8: polynomial 0xedb88320, reflected, half a byte at a time.
fn crc32(bytes: &[u8]) -> u32 {
    const NIBBLES: [u32; 16] = [
        0x0000_0000,
        0x1db7_1064,
        0x3b6e_20c8,
        0x26d9_30ac,
        0x76dc_4190,
        0x6b6b_51f4,
        0x4db2_6158,
        0x5005_713c,
        0xedb8_8320,
        0xf00f_9344,
        0xd6d6_a3e8,
        0xcb61_b38c,
        0x9b64_c2b0,
        0x86d3_d2d4,
        0xa00a_e278,
        0xbdbd_f21c,
    ];
    let fold = |crc: u32| {
        let nibble = usize::try_from(crc & 15).unwrap_or(0);
        NIBBLES.get(nibble).copied().unwrap_or(0) ^ (crc >> 4)
    };
    !bytes.iter().fold(u32::MAX, |crc, byte| fold(fold(crc ^ u32::from(*byte))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `printf 'hello\n' | gzip -n` and `... | gzip -N` of a file named `a`, by GNU gzip 1.12.
    const HELLO: &[u8] = &[
        0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0xcb, 0x48, 0xcd, 0xc9, 0xc9, 0xe7, 2, 0, 0x20, 0x30, 0x3a, 0x36,
        6, 0, 0, 0,
    ];

    #[test]
    fn member_of_gnu_gzip_is_unpacked() {
        assert_eq!(unpack(HELLO, 100).unwrap(), b"hello\n");
        let mut named = HELLO[..10].to_vec();
        named[3] = FNAME | FEXTRA | FHCRC;
        named.extend_from_slice(&[2, 0, 9, 9, b'a', 0, 7, 7]);
        named.extend_from_slice(&HELLO[10..]);
        assert_eq!(unpack(&named, 100).unwrap(), b"hello\n");
    }

    #[test]
    fn members_one_after_another_are_one_text() {
        let long: Vec<u8> = (0..400_000_u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
        let mut file = member(b"one ");
        file.extend(member(&long));
        let text = unpack(&file, 1 << 24).unwrap();
        assert_eq!((&text[..4], &text[4..]), (&b"one "[..], &long[..]));
    }

    #[test]
    fn what_is_longer_than_allowed_is_refused() {
        let file = member(&[0; 3_000_000]);
        assert!(file.len() < 4000);
        assert!(matches!(unpack(&file, 2_999_999), Err(TraceError::TooLarge { .. })));
        assert_eq!(unpack(&file, 3_000_000).unwrap().len(), 3_000_000);
    }

    #[test]
    fn damage_anywhere_is_found_and_cutting_anywhere_too() {
        let file = member(&b"time_us,operation,offset,length\n0,read,0,512\n".repeat(9));
        for end in 1..file.len() {
            assert!(unpack(&file[..end], 1000).is_err(), "cut at {end}");
        }
        // The last byte of the compressed data has bits that say nothing.
        let last = file.len() - TRAILER_BYTES - 1;
        for at in (0..3).chain(10..last).chain(last + 1..file.len() - 4) {
            let mut bad = file.clone();
            bad[at] ^= 0x10;
            assert!(unpack(&bad, 1000).is_err(), "byte {at}");
        }
    }
}
