//! Places and lengths, as types that cannot be mixed up and whose arithmetic cannot wrap.
use std::fmt;

/// A place on a device or in a file, in bytes from its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteOffset(u64);

/// A length in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteLength(u64);

/// A run of bytes whose end does not pass `u64::MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ByteRange {
    start: ByteOffset,
    length: ByteLength,
}

/// The size of a logical block: the unit in which a device is addressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LogicalBlockSize {
    /// 512 bytes, what firmware and most images use.
    B512,
    /// 4096 bytes ("4Kn").
    B4096,
}

impl ByteOffset {
    /// The start.
    pub const ZERO: Self = Self(0);

    /// The place `bytes` bytes from the start.
    #[must_use]
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// Bytes from the start.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The place `length` further on, if there is one.
    #[must_use]
    pub const fn checked_add(self, length: ByteLength) -> Option<Self> {
        match self.0.checked_add(length.0) {
            Some(bytes) => Some(Self(bytes)),
            None => None,
        }
    }

    /// How far this place lies behind `earlier`, if it does.
    #[must_use]
    pub const fn checked_distance(self, earlier: Self) -> Option<ByteLength> {
        match self.0.checked_sub(earlier.0) {
            Some(bytes) => Some(ByteLength(bytes)),
            None => None,
        }
    }
}

impl ByteLength {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// `bytes` bytes.
    #[must_use]
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// The length of a buffer.
    #[must_use]
    pub const fn of(buffer: &[u8]) -> Self {
        // A slice is never longer than isize::MAX bytes, so this loses nothing.
        Self(buffer.len() as u64)
    }

    /// In bytes.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// As the length of a buffer in memory, if it can be one.
    #[must_use]
    pub fn in_memory(self) -> Option<usize> {
        usize::try_from(self.0).ok()
    }
}

impl ByteRange {
    /// The first `length` bytes.
    #[must_use]
    pub const fn from_start(length: ByteLength) -> Self {
        Self { start: ByteOffset::ZERO, length }
    }

    /// The `length` bytes from `start`; `None` where the end would pass `u64::MAX`.
    #[must_use]
    pub const fn new(start: ByteOffset, length: ByteLength) -> Option<Self> {
        match start.checked_add(length) {
            Some(_) => Some(Self { start, length }),
            None => None,
        }
    }

    /// The first byte's place.
    #[must_use]
    pub const fn start(self) -> ByteOffset {
        self.start
    }

    /// How many bytes.
    #[must_use]
    pub const fn length(self) -> ByteLength {
        self.length
    }

    /// The place behind the last byte.
    #[must_use]
    pub const fn end(self) -> ByteOffset {
        ByteOffset(self.start.0.saturating_add(self.length.0))
    }

    /// Whether there is no byte in it.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.length.0 == 0
    }

    /// Whether start and length are both multiples of `unit` bytes.
    #[must_use]
    pub const fn is_aligned(self, unit: u64) -> bool {
        self.start.0.is_multiple_of(unit) && self.length.0.is_multiple_of(unit)
    }
}

impl LogicalBlockSize {
    /// The size with this many bytes, if it is one of the two.
    #[must_use]
    pub const fn from_bytes(bytes: u64) -> Option<Self> {
        match bytes {
            512 => Some(Self::B512),
            4096 => Some(Self::B4096),
            _ => None,
        }
    }

    /// In bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        match self {
            Self::B512 => 512,
            Self::B4096 => 4096,
        }
    }
}

impl fmt::Display for ByteOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl ByteLength {
    /// In binary units with three digits, for people: `24.3 MiB`.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "three digits are shown")]
    pub fn approximate(self) -> String {
        let mut value = self.0 as f64;
        for unit in ["B", "KiB", "MiB", "GiB"] {
            if value < 1024.0 {
                return three_digits(value, unit);
            }
            value /= 1024.0;
        }
        three_digits(value, "TiB")
    }
}

fn three_digits(value: f64, unit: &str) -> String {
    let decimals = if unit == "B" || value >= 100.0 { 0 } else { 1 };
    format!("{value:.decimals$} {unit}")
}

impl fmt::Display for ByteLength {
    /// In binary units where the length is a whole number of them: `1.5 GiB` stays `1536 MiB`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        for (unit, name) in units {
            if self.0 >= unit && self.0.is_multiple_of(unit) {
                return write!(f, "{} {name}", self.0.checked_div(unit).unwrap_or_default());
            }
        }
        write!(f, "{} bytes", self.0)
    }
}

impl fmt::Display for ByteRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.length, self.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_past_the_end_of_u64_is_refused() {
        assert_eq!(ByteRange::new(ByteOffset::new(u64::MAX), ByteLength::new(1)), None);
        assert!(ByteRange::new(ByteOffset::new(u64::MAX), ByteLength::ZERO).is_some());
    }

    #[test]
    fn lengths_are_shown_in_the_largest_whole_unit() {
        assert_eq!(ByteLength::new(3 << 30).to_string(), "3 GiB");
        assert_eq!(ByteLength::new(1536 << 20).to_string(), "1536 MiB");
        assert_eq!(ByteLength::new(513).to_string(), "513 bytes");
    }
}
