//! Numbers with a meaning: bytes, moments, percentages, weights.
use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::bad_value::BadValue;

/// A number of bytes, at most `i64::MAX`: what both databases can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct ByteSize(i64);

impl ByteSize {
    /// Checks a number of bytes.
    ///
    /// # Errors
    /// [`BadValue`] above `i64::MAX`.
    pub fn new(bytes: u64) -> Result<Self, BadValue> {
        i64::try_from(bytes).map(Self).map_err(|_| BadValue::number("a size", bytes, "less than 8 EiB"))
    }

    /// The number of bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0.unsigned_abs()
    }

    /// The number of bytes, as databases hold it; never negative.
    #[must_use]
    pub const fn signed(self) -> i64 {
        self.0
    }
}

impl TryFrom<u64> for ByteSize {
    type Error = BadValue;

    fn try_from(bytes: u64) -> Result<Self, BadValue> {
        Self::new(bytes)
    }
}

impl From<ByteSize> for u64 {
    fn from(size: ByteSize) -> Self {
        size.bytes()
    }
}

/// The units of sizes, largest first.
const SIZE_UNITS: [(u64, &str); 5] =
    [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B")];

/// Reads `10 GiB`, `512M` or `4096`. Units are binary; `GB` and the like are refused, since half of the readers take
/// them for something else.
impl FromStr for ByteSize {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let bad = || BadValue::new("a size", text, "such as \"10 GiB\" (units: B, KiB, MiB, GiB, TiB)");
        let trimmed = text.trim();
        let digits = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at_checked(digits).ok_or_else(bad)?;
        let unit = unit.trim();
        let known = |name: &str| unit == name || (unit.len() == 1 && name.starts_with(unit));
        let factor = match unit {
            "" => 1,
            _ => SIZE_UNITS.iter().find(|(_, name)| known(name)).ok_or_else(bad)?.0,
        };
        let number: u64 = number.parse().map_err(|_| bad())?;
        Self::new(number.checked_mul(factor).ok_or_else(bad)?)
    }
}

/// Exact, so that what is shown can be read back: in the largest unit that leaves no rest.
impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.bytes();
        let exact = |unit: &&(u64, &str)| bytes >= unit.0 && bytes.is_multiple_of(unit.0);
        let (factor, name) = SIZE_UNITS.iter().find(exact).copied().unwrap_or((1, "B"));
        write!(f, "{} {name}", bytes.checked_div(factor).unwrap_or(0))
    }
}

/// A moment: milliseconds since the beginning of 1970, UTC. The model never asks for the time; it is handed in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Timestamp(i64);

impl Timestamp {
    /// From milliseconds since the beginning of 1970.
    #[must_use]
    pub const fn from_ms(ms: i64) -> Self {
        Self(ms)
    }

    /// Milliseconds since the beginning of 1970.
    #[must_use]
    pub const fn ms(self) -> i64 {
        self.0
    }

    /// The moment that lies `later` after this one.
    #[must_use]
    pub fn after(self, later: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(later.as_millis()).unwrap_or(i64::MAX)))
    }

    /// How long before `later` this is; zero where it is not before it.
    #[must_use]
    pub fn until(self, later: Self) -> Duration {
        Duration::from_millis(u64::try_from(later.0.saturating_sub(self.0)).unwrap_or(0))
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }
}

/// RFC 3339 in UTC, as in `2026-11-21T10:30:00.000Z`.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let days = self.0.div_euclid(86_400_000);
        let in_day = self.0.rem_euclid(86_400_000);
        let (year, month, day) = civil(days);
        let part = |unit: i64, of: i64| in_day.checked_div(unit).unwrap_or(0).rem_euclid(of);
        let (hour, minute) = (part(3_600_000, 24), part(60_000, 60));
        let (second, ms) = (part(1000, 60), part(1, 1000));
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
    }
}

/// Reads `2026-11-21`, `2026-11-21T10:30Z` and `2026-11-21T10:30:00.000Z`: UTC, as it is shown.
impl FromStr for Timestamp {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let rule = "such as \"2026-11-21T10:30:00Z\" (UTC), from year 1970 to 9999";
        read_time(text).ok_or_else(|| BadValue::new("a moment", text, rule))
    }
}

fn read_time(text: &str) -> Option<Timestamp> {
    let (date, time) = match text.split_once('T') {
        Some((date, time)) => (date, time.strip_suffix('Z')?),
        None => (text, "00:00"),
    };
    let [year, month, day] = digits(date, '-', &[4, 2, 2])?;
    let (clock, ms) = time.split_once('.').unwrap_or((time, "000"));
    let [hour, minute, second] = match clock.len() {
        5 => digits(&format!("{clock}:00"), ':', &[2, 2, 2])?,
        _ => digits(clock, ':', &[2, 2, 2])?,
    };
    let [ms, ..] = digits::<1>(ms, '.', &[3])?;
    let in_range = (1970..=9999).contains(&year) && hour < 24 && minute < 60 && second < 60;
    // No month is longer than 31 days, so that one of at most 31 days lies within 31 days of its first.
    let in_month = (1..=12).contains(&month) && (1..=31).contains(&day);
    if !in_range || !in_month {
        return None;
    }
    let days = day_number(year, month, day);
    // A day that its month does not have would be shown as one of the next.
    (civil(days) == (year, month, day)).then_some(())?;
    let seconds = days
        .checked_mul(86_400)?
        .checked_add(hour.checked_mul(3600)?)?
        .checked_add(minute.checked_mul(60)?)?;
    Some(Timestamp(seconds.checked_add(second)?.checked_mul(1000)?.checked_add(ms)?))
}

/// Numbers with exactly so many digits each, with separators between them.
fn digits<const N: usize>(text: &str, separator: char, lengths: &[usize; N]) -> Option<[i64; N]> {
    let mut numbers = [0; N];
    let mut parts = text.split(separator);
    for (number, length) in numbers.iter_mut().zip(lengths) {
        let part =
            parts.next().filter(|part| part.len() == *length && part.bytes().all(|b| b.is_ascii_digit()))?;
        *number = part.parse().ok()?;
    }
    parts.next().is_none().then_some(numbers)
}

/// The day counted from 1970-01-01: [`civil`] turned round.
#[allow(clippy::arithmetic_side_effects, reason = "a year of four digits is far from the ends of an i64")]
const fn day_number(year: i64, month: i64, day: i64) -> i64 {
    let shifted = if month <= 2 { year - 1 } else { year };
    let era = shifted.div_euclid(400);
    let year_of_era = shifted.rem_euclid(400);
    let shifted_month = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * shifted_month + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Year, month and day of a day counted from 1970-01-01. Counts from the first of March of year 0, so that the leap
/// day is a year's last, in eras of 400 years of 146,097 days.
#[allow(
    clippy::arithmetic_side_effects,
    reason = "days come from an i64 of milliseconds: all sums are far from its ends"
)]
const fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + if month <= 2 { 1 } else { 0 };
    (year, month, day)
}

/// A part of a whole, 1 to 100 percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Percent(u8);

impl Percent {
    /// Checks a number.
    ///
    /// # Errors
    /// [`BadValue`] outside 1 to 100.
    pub fn new(percent: u8) -> Result<Self, BadValue> {
        if (1..=100).contains(&percent) {
            Ok(Self(percent))
        } else {
            Err(BadValue::number("a percentage", percent, "1 to 100"))
        }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }
}

impl TryFrom<u8> for Percent {
    type Error = BadValue;

    fn try_from(percent: u8) -> Result<Self, BadValue> {
        Self::new(percent)
    }
}

impl From<Percent> for u8 {
    fn from(percent: Percent) -> Self {
        percent.0
    }
}

/// How many devices a server takes in comparison with the others: 1 to 1000, 100 where nothing is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u16", into = "u16")]
pub struct Weight(u16);

impl Weight {
    /// What a server has where nothing is set.
    pub const DEFAULT: Self = Self(100);

    /// Checks a number.
    ///
    /// # Errors
    /// [`BadValue`] outside 1 to 1000.
    pub fn new(weight: u16) -> Result<Self, BadValue> {
        if (1..=1000).contains(&weight) {
            Ok(Self(weight))
        } else {
            Err(BadValue::number("a weight", weight, "1 to 1000; 100 is usual"))
        }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl TryFrom<u16> for Weight {
    type Error = BadValue;

    fn try_from(weight: u16) -> Result<Self, BadValue> {
        Self::new(weight)
    }
}

impl From<Weight> for u16 {
    fn from(weight: Weight) -> Self {
        weight.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_is_shown_as_it_can_be_read() {
        for text in ["10 GiB", "1 B", "512 MiB", "1025 B", "3 TiB", "0 B"] {
            assert_eq!(text.parse::<ByteSize>().unwrap().to_string(), text);
        }
        assert_eq!("4K".parse::<ByteSize>().unwrap().bytes(), 4096);
        for text in ["", "GiB", "1 GB", "1.5 GiB", "-1", "99999999 TiB", "1 GiBs", "ä"] {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
        }
    }

    #[test]
    fn timestamp_is_shown_in_rfc_3339() {
        let cases = [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_123, "2000-02-29T00:00:00.123Z"),
            (1_709_251_199_999, "2024-02-29T23:59:59.999Z"),
            (1_795_257_000_000, "2026-11-21T10:30:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ];
        for (ms, text) in cases {
            assert_eq!(Timestamp::from_ms(ms).to_string(), text);
        }
        let _no_panic = (Timestamp::from_ms(i64::MAX).to_string(), Timestamp::from_ms(i64::MIN).to_string());
    }

    #[test]
    fn timestamp_is_read_as_it_is_shown() {
        for ms in
            [0, 951_782_400_123, 1_709_251_199_999, 1_795_257_000_000, 4_107_542_400_000, 253_402_300_799_999]
        {
            let time = Timestamp::from_ms(ms);
            assert_eq!(time.to_string().parse(), Ok(time));
        }
        assert_eq!("2026-11-21".parse(), "2026-11-21T00:00Z".parse::<Timestamp>());
        for text in [
            "",
            "2026-02-29",
            "2026-13-01",
            "2026-1-01",
            "2026-01-01T24:00Z",
            "2026-01-01T10:00",
            "1969-12-31",
            "2026-01-01T10:00:00.1Z",
            "2026-00-10",
            "2026-01-00",
            "+026-01-01",
        ] {
            assert!(text.parse::<Timestamp>().is_err(), "{text}");
        }
    }

    #[test]
    fn time_until_an_earlier_moment_is_zero() {
        let (one, two) = (Timestamp::from_ms(1000), Timestamp::from_ms(2500));
        assert_eq!(one.until(two), Duration::from_millis(1500));
        assert_eq!(two.until(one), Duration::ZERO);
        assert_eq!(one.after(Duration::from_millis(1500)), two);
    }
}
