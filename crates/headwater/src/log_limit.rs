//! Holding back log lines that a stranger can cause at will.
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lines that may come at once.
const BURST: u32 = 20;

/// The time in which one more becomes free.
const REFILL: Duration = Duration::from_secs(1);

/// A bucket of lines for one kind of message.
#[derive(Debug, Default)]
pub struct LogLimit {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    used: u32,
    held_back: u64,
    refilled: Option<Instant>,
}

impl LogLimit {
    /// Whether a line may be written at `now`, and then how many have been held back since the last one.
    pub fn permit(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let since = state.refilled.map_or(Duration::MAX, |at| now.saturating_duration_since(at));
        let free =
            u32::try_from(since.as_secs().checked_div(REFILL.as_secs()).unwrap_or(0)).unwrap_or(u32::MAX);
        if free > 0 {
            state.used = state.used.saturating_sub(free);
            state.refilled = Some(now);
        }
        if state.used >= BURST {
            state.held_back = state.held_back.saturating_add(1);
            return None;
        }
        state.used = state.used.saturating_add(1);
        Some(std::mem::take(&mut state.held_back))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flood_is_held_back_and_counted() {
        let limit = LogLimit::default();
        let start = Instant::now();
        let permitted = (0..100).filter(|_| limit.permit(start).is_some()).count();
        assert_eq!(permitted, usize::try_from(BURST).unwrap());
        assert_eq!(limit.permit(start + REFILL), Some(80));
        assert_eq!(limit.permit(start + REFILL), None);
    }
}
