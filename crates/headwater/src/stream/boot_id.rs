//! Making boot ids: later ones sort behind earlier ones, also across restarts of the server.
use std::sync::atomic::{AtomicU64, Ordering};

use vdisk::BootId;

use crate::timeline::Moment;

/// Crockford's base 32: no letters that look like digits.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// Thirteen digits of five bits hold any 64-bit number.
const DIGITS: u32 = 13;

/// How many low bits are random: nobody can guess the name of a boot that has not been used yet.
const RANDOM_BITS: u32 = 16;

/// Makes boot ids.
#[derive(Debug, Default)]
pub struct BootIds {
    last: AtomicU64,
}

impl BootIds {
    /// A new id, made of the time in milliseconds and random bits, higher than all before it.
    ///
    /// # Errors
    /// The operating system has no random bytes.
    pub fn mint(&self, now: Moment) -> Result<BootId, getrandom::Error> {
        let mut random = [0; 2];
        getrandom::fill(&mut random)?;
        let ms = now.unix_us() / 1000;
        let wanted = (ms << RANDOM_BITS) | u64::from(u16::from_be_bytes(random));
        let raise = |last: u64| Some(wanted.max(last.saturating_add(1)));
        let before =
            self.last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, raise).unwrap_or_else(|last| last);
        Ok(encode(wanted.max(before.saturating_add(1))))
    }
}

/// What every id of this moment or a later one sorts behind.
#[must_use]
pub fn before(moment: Moment) -> BootId {
    encode((moment.unix_us() / 1000) << RANDOM_BITS)
}

fn encode(number: u64) -> BootId {
    let digit = |bits_below: u32| {
        let value = usize::try_from((number >> bits_below) & 31).unwrap_or(0);
        char::from(ALPHABET.get(value).copied().unwrap_or(b'0'))
    };
    let text: String = (0..DIGITS).rev().map(|number| digit(number.saturating_mul(5))).collect();
    #[allow(clippy::expect_used, reason = "thirteen characters of the alphabet are an id")]
    BootId::new(text).expect("thirteen characters out of 0-9 and a-z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_rise_even_within_a_millisecond_and_when_the_clock_falls_back() {
        let ids = BootIds::default();
        let times = [2_000_000_u64, 2_000_000, 2_000_000, 1_000_000, 3_000_000];
        let made: Vec<BootId> = times.iter().map(|us| ids.mint(Moment::from_unix_us(*us)).unwrap()).collect();
        assert!(made.is_sorted_by(|a, b| a < b), "{made:?}");
        assert!(made.iter().all(|id| id.as_str().len() == 13));
        let (early, late) = (Moment::from_unix_us(2_000_000), Moment::from_unix_us(3_001_000));
        assert!(before(early) <= made[0] && made[4] < before(late));
    }

    #[test]
    fn order_of_ids_is_the_order_of_their_numbers() {
        assert_eq!(encode(0).as_str(), "0000000000000");
        assert_eq!(encode(33).as_str(), "0000000000011");
        assert_eq!(encode(u64::MAX).as_str(), "fzzzzzzzzzzzz");
    }
}
