//! CHAP with MD5, one way: the initiator proves to the target that it knows a secret (RFC 7143 §12.1.3, RFC 1994).
use md5::{Digest, Md5};
use subtle::ConstantTimeEq;

use crate::directory::ChapCredentials;

/// The algorithm number of MD5 in CHAP_A.
pub(super) const ALGORITHM_MD5: &str = "5";

/// Bytes of a challenge: as many as the digest has.
pub(crate) const CHALLENGE_BYTES: usize = 16;

/// Bytes of a response.
const RESPONSE_BYTES: usize = 16;

/// What was sent to the initiator. It comes from the operating system's random source, once for each login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Challenge {
    /// CHAP_I.
    pub(crate) identifier: u8,
    /// CHAP_C.
    pub(crate) bytes: [u8; CHALLENGE_BYTES],
}

impl Challenge {
    /// CHAP_C as text.
    pub(super) fn to_text(self) -> String {
        use std::fmt::Write as _;
        self.bytes.iter().fold(String::from("0x"), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

    /// Whether `user` and `response` prove the knowledge of the secret. Takes the same time wherever they differ.
    pub(super) fn is_answered_by(self, credentials: &ChapCredentials, user: &str, response: &str) -> bool {
        let mut digest = Md5::new();
        digest.update([self.identifier]);
        digest.update(&credentials.secret);
        digest.update(self.bytes);
        let expected = digest.finalize();
        let found = parse_response(response).unwrap_or_default();
        let same_user = credentials.user.as_bytes().ct_eq(user.as_bytes());
        let same_response = expected.as_slice().ct_eq(&found);
        // An unreadable response is compared as an empty one, which never equals a digest.
        (same_user & same_response).into()
    }
}

/// A binary value in hexadecimal or base64 (RFC 7143 §6.1) of exactly a response's length.
fn parse_response(text: &str) -> Option<Vec<u8>> {
    let bytes = match text.get(..2)? {
        "0x" | "0X" => parse_hex(text.get(2..)?)?,
        "0b" | "0B" => parse_base64(text.get(2..)?)?,
        _ => return None,
    };
    (bytes.len() == RESPONSE_BYTES).then_some(bytes)
}

fn parse_hex(text: &str) -> Option<Vec<u8>> {
    if text.len() > RESPONSE_BYTES.saturating_mul(2) || !text.is_ascii() {
        return None;
    }
    // An odd number of digits stands for a leading zero that was left out.
    let padded = if text.len().is_multiple_of(2) { text.to_owned() } else { format!("0{text}") };
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let no_sign = !padded.contains('+');
    no_sign.then(|| padded.as_bytes().chunks(2).map(pair).collect())?
}

fn parse_base64(text: &str) -> Option<Vec<u8>> {
    let text = text.trim_end_matches('=');
    if text.len() > RESPONSE_BYTES.saturating_mul(2) {
        return None;
    }
    let mut bytes = Vec::new();
    let (mut bits, mut count) = (0_u32, 0_u32);
    for c in text.bytes() {
        let value = match c {
            b'A'..=b'Z' => c.wrapping_sub(b'A'),
            b'a'..=b'z' => c.wrapping_sub(b'a').wrapping_add(26),
            b'0'..=b'9' => c.wrapping_sub(b'0').wrapping_add(52),
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = (bits << 6) | u32::from(value);
        count = count.saturating_add(6);
        if count >= 8 {
            count = count.saturating_sub(8);
            bytes.push(u8::try_from((bits >> count) & 0xFF).ok()?);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHALLENGE: Challenge = Challenge { identifier: 7, bytes: [0x5A; 16] };

    fn credentials() -> ChapCredentials {
        ChapCredentials { user: "lab".to_owned(), secret: b"twelve-bytes".to_vec() }
    }

    /// `hashlib.md5(b"\x07" + b"twelve-bytes" + b"\x5a" * 16).hexdigest()` in Python.
    const RIGHT: &str = "0x66b3a71ec7c3958a3bd018880ede7d16";

    #[test]
    fn right_response_is_taken_and_every_other_refused() {
        let check = |user: &str, response: &str| CHALLENGE.is_answered_by(&credentials(), user, response);
        assert!(check("lab", RIGHT));
        assert!(check("lab", &RIGHT.to_uppercase()));
        assert!(!check("lap", RIGHT));
        for wrong in ["", "0x", "0b", "1", "0x00", &RIGHT[..33], &format!("{RIGHT}00"), "0x+1", "0b====", "é"]
        {
            assert!(!check("lab", wrong), "{wrong}");
        }
    }

    #[test]
    fn base64_is_read() {
        assert_eq!(parse_base64("AAECAwQFBgcICQoLDA0ODw==").unwrap(), (0..16).collect::<Vec<u8>>());
    }

    #[test]
    fn digest_is_md5() {
        let hex: String = Md5::digest(b"abc").iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "900150983cd24fb0d6963f7d28e17f72"); // RFC 1321 A.5
    }
}
