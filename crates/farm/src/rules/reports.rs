//! What follows from what servers say of themselves.
use std::time::Duration;

use super::leases::{CLOCK_MARGIN, RENEWED_EVERY};
use crate::model::{ServerReport, ServerState, Timestamp};

/// How often a server says what it carries: when it renews its leases.
pub const REPORTED_EVERY: Duration = RENEWED_EVERY;
/// How many reports in a row may fail before a server counts as gone.
const MISSED: u32 = 3;

/// Whether a server serves, by what it said last. Its clock may be behind or ahead of the one that tells `now`.
#[must_use]
pub fn state(report: Option<&ServerReport>, now: Timestamp) -> ServerState {
    let Some(report) = report else { return ServerState::NeverHeard };
    let heard_within = REPORTED_EVERY.saturating_mul(MISSED).saturating_add(CLOCK_MARGIN);
    match report.load {
        None => ServerState::Stopped,
        Some(_) if now > report.at.after(heard_within) => ServerState::Silent,
        Some(_) => ServerState::Running,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_is_silent_after_three_turns_and_what_clocks_may_differ() {
        let told = |ms: i64, load: Option<&str>| {
            let report = ServerReport { at: Timestamp::from_ms(0), load: load.map(str::to_owned) };
            state(Some(&report), Timestamp::from_ms(ms))
        };
        let load = Some("{}");
        assert_eq!(
            (told(-5_000, load), told(0, load), told(35_000, load)),
            (ServerState::Running, ServerState::Running, ServerState::Running)
        );
        assert_eq!((told(35_001, load), told(35_001, None)), (ServerState::Silent, ServerState::Stopped));
        assert_eq!(state(None, Timestamp::from_ms(0)), ServerState::NeverHeard);
    }
}
