//! Moments and durations of a timeline.
use std::fmt;
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A point in time: microseconds since 1970, UTC. Stored boots go on after a restart of the server, so moments
/// must mean the same in the next process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Moment(u64);

impl Moment {
    /// The moment so many microseconds after the start of 1970.
    #[must_use]
    pub const fn from_unix_us(us: u64) -> Self {
        Self(us)
    }

    /// Microseconds since 1970.
    #[must_use]
    pub const fn unix_us(self) -> u64 {
        self.0
    }

    /// How long after `earlier`; zero if it is not.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Millis {
        Millis(self.0.saturating_sub(earlier.0))
    }

    /// The moment that much earlier.
    #[must_use]
    pub fn before(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(Millis::from(by).0))
    }

    /// The moment that much later.
    #[must_use]
    pub const fn after(self, by: Millis) -> Self {
        Self(self.0.saturating_add(by.0))
    }

    /// As text: `2026-11-21 04:47:06`.
    #[must_use]
    pub fn to_utc(self) -> String {
        let time = SystemTime::UNIX_EPOCH.checked_add(Duration::from_micros(self.0));
        let text = humantime::format_rfc3339_seconds(time.unwrap_or(SystemTime::UNIX_EPOCH)).to_string();
        text.replace('T', " ").trim_end_matches('Z').to_owned()
    }
}

/// A duration in milliseconds, kept and stored to the microsecond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Millis(u64);

impl Millis {
    /// So many microseconds.
    #[must_use]
    pub const fn from_us(us: u64) -> Self {
        Self(us)
    }

    /// In microseconds.
    #[must_use]
    pub const fn us(self) -> u64 {
        self.0
    }

    /// Both together.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// In milliseconds.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "a boot is shorter than 2^53 microseconds")]
    pub fn as_f64(self) -> f64 {
        self.0 as f64 / 1000.0
    }
}

impl From<Duration> for Millis {
    fn from(duration: Duration) -> Self {
        Self(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Millis {
    /// Whole milliseconds from 100 on, two decimals below 1, one between.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimals = match self.0 {
            0 => 0,
            1..1000 => 2,
            1000..100_000 => 1,
            _ => 0,
        };
        f.pad(&format!("{:.decimals$}", self.as_f64()))
    }
}

impl Serialize for Millis {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.as_f64())
    }
}

impl<'de> Deserialize<'de> for Millis {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self((f64::deserialize(deserializer)? * 1000.0).round() as u64))
    }
}

/// Gives moments that never run backwards, whatever happens to the machine's clock while the process lives.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Moment,
    started: Instant,
}

impl Clock {
    /// A clock that is right now.
    #[must_use]
    pub fn start() -> Self {
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self { origin: Moment(Millis::from(unix).us()), started: Instant::now() }
    }

    /// The moment it is.
    #[must_use]
    pub fn now(&self) -> Moment {
        self.origin.after(self.started.elapsed().into())
    }
}
