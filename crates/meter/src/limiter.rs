//! How many requests, and how many bytes, a disk may have in a second.
//!
//! A token bucket that fills at a steady rate is known by one figure: the time at which it will be full again. Each
//! request moves that time on by what it costs. As long as it lies no further ahead than the burst, requests go at once;
//! a request that finds it further ahead goes when it has come near enough. So a request may take more than the bucket
//! ever holds, and those after it wait until that is paid for.
//!
//! A connection books its next request, and no more than that one: connections of one disk take turns, and what a
//! client has queued does not count until it is its turn.
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What a limit allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rates {
    /// Bytes read and written in a second; `None`: as many as can be. Zero counts as one.
    pub bytes_per_second: Option<u64>,
    /// Requests in a second; `None`: as many as can be. Zero counts as one.
    pub requests_per_second: Option<u64>,
    /// How long a disk that was idle may go beyond the rate: it may have what it would have had in this time at once.
    pub burst: Duration,
}

impl Rates {
    /// No limit.
    pub const UNLIMITED: Self =
        Self { bytes_per_second: None, requests_per_second: None, burst: Duration::ZERO };

    fn is_limited(&self) -> bool {
        self.bytes_per_second.is_some() || self.requests_per_second.is_some()
    }
}

/// The limits of a disk, shared by all its connections, and changed while they go on.
#[derive(Debug)]
pub struct Limiter {
    /// What most disks are asked: a load from a line that nobody writes.
    limited: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    rates: Rates,
    /// When each bucket is full again, by what has been booked.
    bytes_full: Instant,
    requests_full: Instant,
    /// Counts the changes of the rates.
    edition: u64,
}

/// A request that was booked.
#[derive(Clone, Copy, Debug)]
struct Pass {
    due: Instant,
    edition: u64,
}

impl Default for Limiter {
    fn default() -> Self {
        Self::new(Rates::UNLIMITED)
    }
}

impl Limiter {
    /// A limiter whose buckets are full.
    #[must_use]
    pub fn new(rates: Rates) -> Self {
        let now = Instant::now();
        let state = State { rates, bytes_full: now, requests_full: now, edition: 0 };
        Self { limited: AtomicBool::new(rates.is_limited()), state: Mutex::new(state) }
    }

    /// Changes the rates, from now on. Buckets are full; what waits goes on within a second.
    pub fn set(&self, rates: Rates) {
        let mut state = self.state();
        if state.rates == rates {
            return;
        }
        let now = Instant::now();
        *state = State { rates, bytes_full: now, requests_full: now, edition: state.edition.wrapping_add(1) };
        self.limited.store(rates.is_limited(), Ordering::Release);
    }

    /// The rates.
    #[must_use]
    pub fn rates(&self) -> Rates {
        self.state().rates
    }

    fn is_limited(&self) -> bool {
        self.limited.load(Ordering::Acquire)
    }

    fn book(&self, bytes: u64, now: Instant) -> Pass {
        let mut state = self.state();
        let State { rates, bytes_full, requests_full, edition } = &mut *state;
        let mut due = now;
        let buckets =
            [(rates.bytes_per_second, bytes, bytes_full), (rates.requests_per_second, 1, requests_full)];
        for (rate, amount, full) in buckets {
            let Some(rate) = rate else { continue };
            due = due.max(full.checked_sub(rates.burst).unwrap_or(now));
            let from = now.max(*full);
            *full = from.checked_add(cost(amount, rate)).unwrap_or(from);
        }
        Pass { due, edition: *edition }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long a bucket that fills at `rate` a second takes for so many.
fn cost(amount: u64, rate: u64) -> Duration {
    let ns = u128::from(amount).saturating_mul(1_000_000_000).checked_div(u128::from(rate.max(1)));
    Duration::from_nanos(ns.and_then(|ns| u64::try_from(ns).ok()).unwrap_or(u64::MAX))
}

/// Where one connection asks.
#[derive(Debug)]
pub struct Gate {
    limiter: Arc<Limiter>,
    waiting: Option<Pass>,
}

impl Gate {
    /// A gate to what `limiter` allows.
    #[must_use]
    pub fn new(limiter: Arc<Limiter>) -> Self {
        Self { limiter, waiting: None }
    }

    /// Whether the connection's next request, which moves so many bytes, may go. One that may not is to be asked about
    /// again, at the time that is given and before any other.
    ///
    /// # Errors
    /// When to ask again.
    pub fn pass(&mut self, bytes: u64, now: Instant) -> Result<(), Instant> {
        let pass = match self.waiting {
            None if !self.limiter.is_limited() => return Ok(()),
            None => self.limiter.book(bytes, now),
            Some(pass) => pass,
        };
        // What has waited under other rates has waited enough.
        if pass.due <= now || self.limiter.state().edition != pass.edition {
            self.waiting = None;
            return Ok(());
        }
        self.waiting = Some(pass);
        Err(pass.due)
    }

    /// Nothing waits, and there is no limit: every request may go.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.waiting.is_none() && !self.limiter.is_limited()
    }

    /// Whether a request has been told to wait.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn gate(rates: Rates) -> (Gate, Arc<Limiter>, Instant) {
        let limiter = Arc::new(Limiter::new(rates));
        (Gate::new(Arc::clone(&limiter)), limiter, Instant::now() + SECOND)
    }

    fn rates(bytes: Option<u64>, requests: Option<u64>, burst: Duration) -> Rates {
        Rates { bytes_per_second: bytes, requests_per_second: requests, burst }
    }

    /// When so many requests of `bytes` have passed, one after the other, from `start` on.
    fn time_of(gate: &mut Gate, count: u32, bytes: u64, start: Instant) -> Duration {
        let mut now = start;
        for _ in 0..count {
            while let Err(due) = gate.pass(bytes, now) {
                assert!(due > now, "never asks for the past");
                now = due;
            }
        }
        now - start
    }

    #[test]
    fn requests_pass_at_the_rate_after_the_burst() {
        let (mut gate, _, start) = gate(rates(None, Some(100), SECOND));
        // The bucket holds 100; the one that finds it empty still goes, into debt.
        assert_eq!(time_of(&mut gate, 101, 0, start), Duration::ZERO);
        assert_eq!(time_of(&mut gate, 200, 0, start), 2 * SECOND);
    }

    #[test]
    fn request_larger_than_the_burst_passes_and_the_next_one_pays() {
        let (mut gate, _, start) = gate(rates(Some(1 << 20), None, SECOND / 4));
        assert_eq!(gate.pass(8 << 20, start), Ok(()));
        let due = gate.pass(4096, start).unwrap_err();
        assert_eq!(due - start, 8 * SECOND - SECOND / 4);
        assert_eq!(gate.pass(4096, due), Ok(()));
    }

    #[test]
    fn stricter_of_two_limits_holds() {
        let (mut gate, _, start) = gate(rates(Some(1 << 20), Some(1000), Duration::ZERO));
        assert_eq!(time_of(&mut gate, 5, 1 << 20, start), 4 * SECOND, "bytes");
        let later = start + 5 * SECOND;
        assert_eq!(time_of(&mut gate, 5, 512, later), 4 * Duration::from_millis(1), "requests");
    }

    #[test]
    fn idle_time_fills_the_bucket_up_to_the_burst_alone() {
        let (mut gate, _, start) = gate(rates(None, Some(10), SECOND));
        time_of(&mut gate, 11, 0, start);
        let much_later = start + 1000 * SECOND;
        assert_eq!(time_of(&mut gate, 11, 0, much_later), Duration::ZERO);
        assert!(gate.pass(0, much_later).is_err());
    }

    #[test]
    fn connections_of_one_disk_take_turns_and_share_the_rate() {
        let (mut one, limiter, start) = gate(rates(None, Some(10), Duration::ZERO));
        let mut other = Gate::new(limiter);
        assert_eq!(one.pass(0, start), Ok(()));
        let (mut passed, mut now) = ([0_u32; 2], start);
        for _ in 0..20 {
            let first = one.pass(0, now).inspect(|()| passed[0] += 1);
            let second = other.pass(0, now).inspect(|()| passed[1] += 1);
            now = [first.err(), second.err()].into_iter().flatten().min().unwrap_or(now);
        }
        assert!(passed[0].abs_diff(passed[1]) <= 1, "{passed:?}");
        assert_eq!(now - start, (passed[0] + passed[1] + 1) * (SECOND / 10));
    }

    #[test]
    fn changed_rates_let_go_what_waits() {
        let (mut gate, limiter, start) = gate(rates(Some(1), None, Duration::ZERO));
        assert_eq!(gate.pass(1 << 20, start), Ok(()));
        assert!(gate.pass(1, start).is_err() && gate.is_waiting());
        limiter.set(Rates::UNLIMITED);
        assert_eq!((gate.pass(1, start), gate.is_waiting()), (Ok(()), false));
        assert_eq!(limiter.rates(), Rates::UNLIMITED);
    }
}
