//! How much one peer may ask, and how much of it is logged.
use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::director::MacAddress;

/// How many MAC addresses are told apart; a farm has thousands. Beyond, all are forgiven at once.
const MAX_MACS: usize = 16_384;
/// What a MAC address may send at once: a boot takes about ten packets, and firmware is impatient.
const BURST: u32 = 30;
/// One more packet each so long.
const REFILL: Duration = Duration::from_millis(250);
/// Log lines about bad packets in one [`LOG_WINDOW`].
const LOG_LINES: u32 = 10;
const LOG_WINDOW: Duration = Duration::from_secs(10);

/// Limits each MAC address to some packets a second.
#[derive(Debug, Default)]
pub struct MacLimiter(HashMap<MacAddress, Bucket>);

#[derive(Debug)]
struct Bucket {
    tokens: u32,
    refilled: Instant,
}

impl MacLimiter {
    /// Whether one more packet of `mac` is to be handled.
    pub fn admit(&mut self, mac: MacAddress, now: Instant) -> bool {
        if self.0.len() >= MAX_MACS && !self.0.contains_key(&mac) {
            self.0.clear();
        }
        let bucket = self.0.entry(mac).or_insert(Bucket { tokens: BURST, refilled: now });
        let earned =
            now.saturating_duration_since(bucket.refilled).as_millis().checked_div(REFILL.as_millis());
        let earned = u32::try_from(earned.unwrap_or(0)).unwrap_or(u32::MAX);
        if earned > 0 {
            bucket.tokens = bucket.tokens.saturating_add(earned).min(BURST);
            bucket.refilled = now;
        }
        let admitted = bucket.tokens > 0;
        bucket.tokens = bucket.tokens.saturating_sub(1);
        admitted
    }
}

/// Lets so many log lines through, and counts the rest.
#[derive(Debug, Default)]
pub struct LogGate {
    window: Option<Instant>,
    lines: u32,
    suppressed: u64,
}

impl LogGate {
    /// Whether to log now: `Some` with the number of lines that were kept back since the last one.
    pub fn open(&mut self, now: Instant) -> Option<u64> {
        if self.window.is_none_or(|start| now.saturating_duration_since(start) >= LOG_WINDOW) {
            self.window = Some(now);
            self.lines = 0;
        }
        if self.lines >= LOG_LINES {
            self.suppressed = self.suppressed.saturating_add(1);
            return None;
        }
        self.lines = self.lines.saturating_add(1);
        Some(std::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chatty_address_is_stopped_and_others_are_not() {
        let (mut limiter, now) = (MacLimiter::default(), Instant::now());
        let (loud, quiet) = (MacAddress([2; 6]), MacAddress([4; 6]));
        let admitted = (0..1000).filter(|_| limiter.admit(loud, now)).count();
        assert_eq!(admitted, 30);
        assert!(limiter.admit(quiet, now));
        assert!(!limiter.admit(loud, now + Duration::from_millis(100)));
        assert!(limiter.admit(loud, now + Duration::from_millis(300)));
    }

    #[test]
    fn flood_of_addresses_takes_bounded_memory() {
        let (mut limiter, now) = (MacLimiter::default(), Instant::now());
        for n in 0..100_000_u32 {
            let [a, b, c, d] = n.to_be_bytes();
            limiter.admit(MacAddress([2, 0, a, b, c, d]), now);
        }
        assert!(limiter.0.len() <= MAX_MACS);
    }

    #[test]
    fn log_gate_lets_some_lines_through_and_counts_the_rest() {
        let (mut gate, now) = (LogGate::default(), Instant::now());
        assert_eq!((0..100).filter_map(|_| gate.open(now)).count(), 10);
        assert_eq!(gate.open(now + LOG_WINDOW), Some(90));
    }
}
