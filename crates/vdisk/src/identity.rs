//! Who and what a write cache belongs to: the device, its boot, the image below, the boot of this host.
use std::fmt;

use block::{Geometry, LogicalBlockSize};

/// The longest name of a boot.
pub(crate) const MAX_BOOT_ID_BYTES: usize = 64;

/// The longest name of a device, in bytes: it becomes a file name with a suffix, and file names end at 255 bytes.
pub(crate) const MAX_DEVICE_BYTES: usize = 128;

/// Where Linux tells which boot of the host this is.
const HOST_BOOT_PATH: &str = "/proc/sys/kernel/random/boot_id";

/// Names one boot of a device, from its power-on to the next: 1 to 64 characters out of `a-z`, `0-9` and `-`. Whoever
/// serves the device makes it up; here it is only compared.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BootId(String);

/// A text that cannot name a boot.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "{text:?} cannot name a boot: that takes 1 to {MAX_BOOT_ID_BYTES} characters out of a-z, 0-9 and \"-\""
)]
pub struct BadBootId {
    /// The text, at most its first 100 characters.
    pub text: String,
}

impl BootId {
    /// Checks a text.
    ///
    /// # Errors
    /// [`BadBootId`].
    pub fn new(text: impl Into<String>) -> Result<Self, BadBootId> {
        let text = text.into();
        let fits = (1..=MAX_BOOT_ID_BYTES).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if fits { Ok(Self(text)) } else { Err(BadBootId { text: text.chars().take(100).collect() }) }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Stands for the contents of a golden image: whoever opens it makes it of what changes whenever the contents do
/// (the image's own identity, its file's length and time of modification). A write cache is void on another image.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ImageFingerprint(pub [u8; 32]);

impl fmt::Display for ImageFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ImageFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ImageFingerprint({self})")
    }
}

/// What a write cache must know of the image below to tell whether it is still the one it was made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageIdentity {
    /// In bytes.
    pub size_bytes: u64,
    /// The unit of addressing.
    pub logical_block: LogicalBlockSize,
    /// Stands for the contents.
    pub fingerprint: ImageFingerprint,
}

impl ImageIdentity {
    pub(crate) fn new(geometry: &Geometry, fingerprint: ImageFingerprint) -> Self {
        Self { size_bytes: geometry.size.get(), logical_block: geometry.logical_block, fingerprint }
    }
}

impl fmt::Display for ImageIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let block = self.logical_block.bytes();
        write!(f, "{} bytes in blocks of {block}, fingerprint {}", self.size_bytes, self.fingerprint)
    }
}

/// Names one boot of the host that the server runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostBoot(pub(crate) [u8; 16]);

impl HostBoot {
    /// None that ever was: the file is as after a crash of the host.
    pub(crate) const NONE: Self = Self([0; 16]);

    /// The boot that is running.
    pub(crate) fn current() -> std::io::Result<Self> {
        let text = std::fs::read_to_string(HOST_BOOT_PATH)?;
        Self::parse(text.trim_end()).ok_or_else(|| {
            let what = format!("{HOST_BOOT_PATH} holds {text:?} and not a UUID");
            std::io::Error::new(std::io::ErrorKind::InvalidData, what)
        })
    }

    fn parse(text: &str) -> Option<Self> {
        let digits: String = text.chars().filter(|&c| c != '-').collect();
        if digits.len() != 32 {
            return None;
        }
        u128::from_str_radix(&digits, 16).ok().map(|number| Self(number.to_be_bytes()))
    }
}

/// Whether `name` can be a device's: it becomes the first part of a file name.
pub(crate) fn is_device_name(name: &str) -> bool {
    (1..=MAX_DEVICE_BYTES).contains(&name.len())
        && !name.starts_with('.')
        && !name.chars().any(|c| c == '/' || c.is_control())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boot_id_outside_its_alphabet_is_refused() {
        for text in ["", "A", "a b", "a/b", "ä", &"x".repeat(65)] {
            assert_eq!(BootId::new(text).unwrap_err().text, text);
        }
        for text in ["0", "b-1", &"x".repeat(64)] {
            assert_eq!(BootId::new(text).unwrap().as_str(), text);
        }
    }

    #[test]
    fn device_name_that_is_no_file_name_is_refused() {
        for name in ["", ".", "..", ".x", "a/b", "a\0", "a\n", &"x".repeat(129)] {
            assert!(!is_device_name(name), "{name:?}");
        }
        assert!(["lab-07", "52:54:00:12:34:56", "büro 3"].iter().all(|name| is_device_name(name)));
    }

    #[test]
    fn boot_of_this_host_can_be_told() {
        assert_eq!(HostBoot::current().unwrap(), HostBoot::current().unwrap());
        assert_eq!(HostBoot::parse("x"), None);
    }
}
