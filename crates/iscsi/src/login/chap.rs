//! CHAP (RFC 7143 §12.1.3, RFC 1994): the initiator proves to the target that it knows a secret, and where it asks for
//! it, the target proves the same with another one.
//!
//! A response is the digest of identifier, secret and challenge. The algorithms are those of the IANA registry of CHAP_A.
use md5::Md5;
use sha2::{Digest, Sha256};
use sha3::Sha3_256;
use subtle::ConstantTimeEq;

use crate::directory::{ChapCredentials, ChapSecret};

/// Bytes of our challenges: as many as the shortest digest has.
pub(crate) const CHALLENGE_BYTES: usize = 16;

/// The longest binary value that is read: an initiator's challenge (RFC 7143 §12.1.3).
const MAX_BINARY_BYTES: usize = 1024;

/// What a response is computed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    Md5,
    Sha256,
    Sha3_256,
}

/// What was sent to the initiator. It comes from the operating system's random source, once for each login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Challenge {
    /// CHAP_I.
    pub(crate) identifier: u8,
    /// CHAP_C.
    pub(crate) bytes: [u8; CHALLENGE_BYTES],
}

/// Why the target does not prove itself as it is asked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoProof {
    #[error("the initiator wants us to prove ourselves, and there is no secret for that")]
    NoSecret,
    #[error("CHAP_I or CHAP_C of the initiator cannot be read")]
    Unreadable,
    #[error("the initiator sends our own challenge back to us")]
    Reflected,
}

impl Algorithm {
    /// The first of the initiator's list (CHAP_A) that may be used (RFC 7143 §6.2.1).
    pub(super) fn choose(list: &str, allows_md5: bool) -> Option<Self> {
        list.split(',').find_map(|number| match number {
            "5" if allows_md5 => Some(Self::Md5),
            "7" => Some(Self::Sha256),
            "8" => Some(Self::Sha3_256),
            _ => None,
        })
    }

    /// Its number in CHAP_A.
    pub(super) const fn number(self) -> &'static str {
        match self {
            Self::Md5 => "5",
            Self::Sha256 => "7",
            Self::Sha3_256 => "8",
        }
    }

    fn response(self, identifier: u8, secret: &[u8], challenge: &[u8]) -> Vec<u8> {
        match self {
            Self::Md5 => digest::<Md5>(identifier, secret, challenge),
            Self::Sha256 => digest::<Sha256>(identifier, secret, challenge),
            Self::Sha3_256 => digest::<Sha3_256>(identifier, secret, challenge),
        }
    }
}

fn digest<D: Digest>(identifier: u8, secret: &[u8], challenge: &[u8]) -> Vec<u8> {
    let digest = D::new().chain_update([identifier]).chain_update(secret).chain_update(challenge);
    digest.finalize().to_vec()
}

/// Whether both ends would prove themselves with one secret: then an answer to one challenge serves for the other, and
/// proves nothing (RFC 7143 §9.2.1).
pub(super) fn secrets_are_equal(credentials: &ChapCredentials) -> bool {
    let target = credentials.target.as_ref();
    target.is_some_and(|target| target.secret.ct_eq(&credentials.initiator.secret).into())
}

impl Challenge {
    /// CHAP_C as text.
    pub(super) fn to_text(self) -> String {
        hex(&self.bytes)
    }

    /// Whether `user` and `response` prove the knowledge of the secret. Takes the same time wherever they differ.
    pub(super) fn is_answered_by(
        self,
        algorithm: Algorithm,
        secret: &ChapSecret,
        user: &str,
        response: &str,
    ) -> bool {
        let expected = algorithm.response(self.identifier, &secret.secret, &self.bytes);
        let found = parse_binary(response).unwrap_or_default();
        let same_user = secret.user.as_bytes().ct_eq(user.as_bytes());
        let same_response = expected.ct_eq(&found);
        // An unreadable response is compared as an empty one, which never equals a digest.
        (same_user & same_response).into()
    }

    /// Our CHAP_R to the initiator's CHAP_I and CHAP_C, with the user whose secret it is.
    ///
    /// # Errors
    /// [`NoProof`]; the login fails.
    pub(super) fn answer_to<'a>(
        self,
        algorithm: Algorithm,
        target: Option<&'a ChapSecret>,
        identifier: &str,
        challenge: &str,
    ) -> Result<(&'a str, String), NoProof> {
        let secret = target.ok_or(NoProof::NoSecret)?;
        let identifier = identifier.parse().map_err(|_| NoProof::Unreadable)?;
        let theirs = parse_binary(challenge).filter(|bytes| !bytes.is_empty()).ok_or(NoProof::Unreadable)?;
        if theirs == self.bytes {
            return Err(NoProof::Reflected); // RFC 7143 §12.1.3
        }
        Ok((&secret.user, hex(&algorithm.response(identifier, &secret.secret, &theirs))))
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::from("0x"), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A binary value in hexadecimal or base64 (RFC 7143 §6.1).
fn parse_binary(text: &str) -> Option<Vec<u8>> {
    match text.get(..2)? {
        "0x" | "0X" => parse_hex(text.get(2..)?),
        "0b" | "0B" => parse_base64(text.get(2..)?),
        _ => None,
    }
}

fn parse_hex(text: &str) -> Option<Vec<u8>> {
    if text.len() > MAX_BINARY_BYTES.saturating_mul(2) || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    // An odd number of digits stands for a leading zero that was left out.
    let padded = if text.len().is_multiple_of(2) { text.to_owned() } else { format!("0{text}") };
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    padded.as_bytes().chunks(2).map(pair).collect()
}

fn parse_base64(text: &str) -> Option<Vec<u8>> {
    let text = text.trim_end_matches('=');
    if text.len() > MAX_BINARY_BYTES.saturating_mul(2) {
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

    fn secret() -> ChapSecret {
        ChapCredentials::one_way("lab", "twelve-bytes").initiator
    }

    /// `hashlib.NAME(b"\x07" + b"twelve-bytes" + b"\x5a" * 16).hexdigest()` in Python.
    const RIGHT: [(Algorithm, &str); 3] = [
        (Algorithm::Md5, "0x66b3a71ec7c3958a3bd018880ede7d16"),
        (Algorithm::Sha256, "0x8ef15a8d4a5bc4cc195d491f8f2a6674baa749ce0fcfcc3eb142c30c40daa56e"),
        (Algorithm::Sha3_256, "0x0e5a59a55dd7908ae269e33e61f99cd88dd17027985e60e76722c5de061cb717"),
    ];

    #[test]
    fn right_response_is_taken_and_every_other_refused() {
        for (algorithm, right) in RIGHT {
            let check =
                |user: &str, response: &str| CHALLENGE.is_answered_by(algorithm, &secret(), user, response);
            assert!(check("lab", right));
            assert!(check("lab", &right.to_uppercase()));
            assert!(!check("lap", right));
            let (cut, long) = (&right[..33], format!("{right}00"));
            for wrong in ["", "0x", "0b", "1", "0x00", cut, &long, "0x+1", "0b====", "é"] {
                assert!(!check("lab", wrong), "{wrong}");
            }
        }
    }

    #[test]
    fn first_algorithm_of_the_list_that_policy_allows_is_chosen() {
        let choose = |list, md5| Algorithm::choose(list, md5).map(Algorithm::number);
        assert_eq!(choose("5,7", true), Some("5"));
        assert_eq!(choose("5,6,8,7", false), Some("8"));
        assert_eq!(choose("7", true), Some("7"));
        for none in ["5", "6", "", "57", "5 ,x"] {
            assert_eq!(choose(none, false), None, "{none}");
        }
    }

    #[test]
    fn target_proves_itself_to_another_s_challenge_only() {
        let target = ChapSecret { user: "us".to_owned(), secret: b"twelve-bytes".to_vec() };
        let answer = |secret, identifier: &str, challenge: &str| {
            CHALLENGE.answer_to(Algorithm::Md5, secret, identifier, challenge)
        };
        // With the challenge of another length the digest is another: so the length is not fixed.
        let longer = format!("0x{}", "5a".repeat(17));
        let (user, response) = answer(Some(&target), "7", &longer).unwrap();
        assert_eq!((user, response.len()), ("us", 34));
        assert_eq!(answer(Some(&target), "7", &CHALLENGE.to_text()), Err(NoProof::Reflected));
        assert_eq!(answer(None, "7", "0x01"), Err(NoProof::NoSecret));
        let too_long = format!("0x{}", "00".repeat(1025));
        for (identifier, challenge) in
            [("256", "0x01"), ("", "0x01"), ("7", "0x"), ("7", "1"), ("7", &too_long)]
        {
            assert_eq!(answer(Some(&target), identifier, challenge), Err(NoProof::Unreadable));
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
