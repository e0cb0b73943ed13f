//! Finds PDUs in a byte stream and checks their digests (RFC 7143 §11.2).
use super::{BHS_BYTES, Bhs};

/// What holds for the PDUs of one direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameRules {
    /// Digests as negotiated.
    pub(crate) digests: Digests,
    /// The largest data segment that is allowed.
    pub(crate) max_data_bytes: u32,
}

/// Which digests PDUs carry. Both directions carry the same (RFC 7143 §13.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Digests {
    /// Behind the header segments.
    pub(crate) header: bool,
    /// Behind the data segment.
    pub(crate) data: bool,
}

/// A PDU in a byte stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    /// The header.
    pub(crate) bhs: Bhs,
    /// The data segment, without padding.
    pub(crate) data: &'a [u8],
    /// Bytes of the whole PDU.
    pub(crate) total_bytes: usize,
}

/// Why a byte stream cannot be read on. The place of the next PDU is unknown or untrusted: the connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameError {
    /// The data segment is longer than was declared.
    #[error("a data segment of {found} bytes where at most {limit} are allowed")]
    DataTooLong {
        /// The length in the header.
        found: u32,
        /// The limit.
        limit: u32,
    },
    /// The header digest is wrong.
    #[error("header digest {found:#010x} where {expected:#010x} belongs")]
    HeaderDigest {
        /// What was computed.
        expected: u32,
        /// What the PDU says.
        found: u32,
    },
    /// The data digest is wrong. The header is sound.
    #[error("data digest {found:#010x} where {expected:#010x} belongs")]
    DataDigest {
        /// The header, for the Reject PDU.
        bhs: Bhs,
        /// What was computed.
        expected: u32,
        /// What the PDU says.
        found: u32,
    },
}

/// Bytes of a digest.
pub(crate) const DIGEST_BYTES: usize = 4;

/// Bytes that fill a data segment up to a multiple of four.
pub(crate) const fn padding(data_bytes: usize) -> usize {
    data_bytes.wrapping_neg() & 3
}

/// Bytes of the whole PDU that begins with `bhs`.
pub(crate) fn pdu_bytes(bhs: &Bhs, digests: Digests) -> usize {
    let digest = |on: bool| if on { DIGEST_BYTES } else { 0 };
    let data_bytes = bhs.data_bytes() as usize;
    let headers = BHS_BYTES.saturating_add(bhs.ahs_bytes()).saturating_add(digest(digests.header));
    let padded = data_bytes.saturating_add(padding(data_bytes));
    headers.saturating_add(padded).saturating_add(digest(digests.data && data_bytes > 0))
}

/// The first PDU in `input`; `None` where it is not complete yet.
///
/// # Errors
/// Any [`FrameError`]. The length is checked as soon as the header is there, so that no caller buffers for a PDU
/// which will be refused.
pub(crate) fn frame(input: &[u8], rules: FrameRules) -> Result<Option<Frame<'_>>, FrameError> {
    let Some(header) = input.first_chunk::<BHS_BYTES>() else {
        return Ok(None);
    };
    let bhs = Bhs(*header);
    let (limit, found) = (rules.max_data_bytes, bhs.data_bytes());
    if found > limit {
        return Err(FrameError::DataTooLong { found, limit });
    }
    let data_bytes = found as usize;
    let headers_end = BHS_BYTES.saturating_add(bhs.ahs_bytes());
    let digest = |on: bool| if on { DIGEST_BYTES } else { 0 };
    let data_start = headers_end.saturating_add(digest(rules.digests.header));
    let data_end = data_start.saturating_add(data_bytes);
    let padded_end = data_end.saturating_add(padding(data_bytes));
    let data_digest = rules.digests.data && data_bytes > 0;
    let total_bytes = pdu_bytes(&bhs, rules.digests);

    if rules.digests.header {
        let (Some(covered), Some(stored)) = (input.get(..headers_end), digest_at(input, headers_end)) else {
            return Ok(None);
        };
        let expected = crc32c::crc32c(covered);
        if expected != stored {
            return Err(FrameError::HeaderDigest { expected, found: stored });
        }
    }
    let Some(data) = input.get(..total_bytes).and_then(|pdu| pdu.get(data_start..data_end)) else {
        return Ok(None);
    };
    if data_digest {
        let covered = input.get(data_start..padded_end).unwrap_or_default();
        let expected = crc32c::crc32c(covered);
        let stored = digest_at(input, padded_end).unwrap_or_default();
        if expected != stored {
            return Err(FrameError::DataDigest { bhs, expected, found: stored });
        }
    }
    Ok(Some(Frame { bhs, data, total_bytes }))
}

/// The digest at `at`: CRC32C, least significant byte first (RFC 7143 §13.1, examples in Appendix B.4 of RFC 3720).
fn digest_at(input: &[u8], at: usize) -> Option<u32> {
    input.get(at..).and_then(<[u8]>::first_chunk).map(|bytes| u32::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: FrameRules =
        FrameRules { digests: Digests { header: false, data: false }, max_data_bytes: 8192 };
    const DIGESTS: FrameRules =
        FrameRules { digests: Digests { header: true, data: true }, max_data_bytes: 8192 };

    fn pdu(data: &[u8], rules: FrameRules) -> Vec<u8> {
        let mut queue = connections::ByteQueue::default();
        crate::pdu::reply::put_pdu(&mut queue, Bhs::new(0x40, 0x80), data, rules.digests);
        queue.filled().to_vec()
    }

    #[test]
    fn digest_of_32_zeros_is_the_one_of_the_rfc() {
        // RFC 3720 Appendix B.4: "32 bytes of zeroes: aa 36 91 8a".
        assert_eq!(crc32c::crc32c(&[0; 32]).to_le_bytes(), [0xAA, 0x36, 0x91, 0x8A]);
    }

    #[test]
    fn pdu_cut_anywhere_is_incomplete_and_whole_is_found() {
        for rules in [PLAIN, DIGESTS] {
            for length in 0..9 {
                let mut bytes = pdu(&vec![7; length], rules);
                for cut in 0..bytes.len() {
                    assert_eq!(frame(&bytes[..cut], rules), Ok(None));
                }
                let total = bytes.len();
                bytes.extend_from_slice(b"next");
                let found = frame(&bytes, rules).unwrap().unwrap();
                assert_eq!((found.data, found.total_bytes), (&vec![7; length][..], total));
            }
        }
    }

    #[test]
    fn damaged_bytes_are_noticed_by_their_digest() {
        let good = pdu(b"payload", DIGESTS);
        for at in 0..good.len() {
            if (4..8).contains(&at) {
                continue; // Lengths: the PDU ends elsewhere then.
            }
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert!(frame(&bad, DIGESTS).is_err(), "byte {at}");
        }
    }

    #[test]
    fn data_segment_above_the_limit_is_refused_from_the_header_alone() {
        let mut bhs = Bhs::new(0x01, 0);
        bhs.put_data_bytes(8193);
        assert_eq!(frame(&bhs.0, PLAIN), Err(FrameError::DataTooLong { found: 8193, limit: 8192 }));
    }

    #[test]
    fn additional_header_segments_are_skipped() {
        let mut bhs = Bhs::new(0x01, 0);
        bhs.0[4] = 2;
        bhs.put_data_bytes(1);
        let mut bytes = bhs.0.to_vec();
        bytes.extend_from_slice(&[0xEE; 8]);
        bytes.extend_from_slice(&[5, 0, 0, 0]);
        let found = frame(&bytes, PLAIN).unwrap().unwrap();
        assert_eq!((found.data, found.total_bytes), (&[5][..], 60));
    }
}
