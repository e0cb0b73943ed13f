//! The values of the file that are written as text: sizes, addresses, names.
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// The longest prefix of target names: the device's name and the boot's id must fit behind it (RFC 7143 §4.2.7.1
/// allows 223 bytes in all).
const MAX_PREFIX_BYTES: usize = 100;

/// A number of bytes, written `10 GiB`, `512 MiB` or `4096`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

impl ByteSize {
    /// Reads a size. Units are binary (`KiB`, `MiB`, `GiB`, `TiB`, or their first letter, as in most tools for disks);
    /// `GB` and the like are refused, since half of the readers take them for something else.
    ///
    /// # Errors
    /// In words, with what is expected.
    pub fn parse(text: &str) -> Result<Self, String> {
        let expected =
            || format!("\"{text}\" is not a size such as \"10 GiB\" (units: B, KiB, MiB, GiB, TiB)");
        let trimmed = text.trim();
        let digits = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(digits);
        let factor: u64 = match unit.trim() {
            "" | "B" => 1,
            "K" | "KiB" => 1 << 10,
            "M" | "MiB" => 1 << 20,
            "G" | "GiB" => 1 << 30,
            "T" | "TiB" => 1 << 40,
            _ => return Err(expected()),
        };
        let number: u64 = number.parse().map_err(|_| expected())?;
        number.checked_mul(factor).map(Self).ok_or_else(expected)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        block::ByteLength::new(self.0).fmt(f)
    }
}

/// `10.0.0.1:3260`, or an address alone for the usual port.
pub(super) fn socket_address(text: &str, port: u16) -> Result<SocketAddr, String> {
    text.parse()
        .or_else(|_| text.parse::<IpAddr>().map(|address| SocketAddr::new(address, port)))
        .map_err(|_| format!("\"{text}\" is not an address such as \"0.0.0.0:{port}\" or \"[::]:{port}\""))
}

/// The start of an iSCSI qualified name: `iqn.`, a month, the reversed name of a domain that was owned then
/// (RFC 7143 §4.2.7.4).
pub(super) fn iqn_prefix(text: &str) -> Result<String, String> {
    let dated = text.strip_prefix("iqn.").and_then(|rest| {
        let (date, domain) = rest.split_once('.')?;
        let (year, month) = date.split_once('-')?;
        let digits = |part: &str, count| part.len() == count && part.bytes().all(|b| b.is_ascii_digit());
        (digits(year, 4) && digits(month, 2) && !domain.is_empty()).then_some(())
    });
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.' | ':');
    if dated.is_none() || !text.chars().all(legal) || text.ends_with(':') {
        return Err(format!(
            "\"{text}\" is not a name such as \"iqn.2026-11.org.example\" (lower-case letters, digits, '-', '.', ':')"
        ));
    }
    if text.len() > MAX_PREFIX_BYTES {
        return Err(format!("the prefix has {} bytes; the limit is {MAX_PREFIX_BYTES}", text.len()));
    }
    Ok(text.to_owned())
}

/// The name of a host as certificates have it (RFC 1123 §2.1), in lower case.
pub(super) fn dns_name(text: &str) -> Result<String, String> {
    let name = text.to_ascii_lowercase();
    let label = |label: &str| {
        let legal = |c: char| c.is_ascii_alphanumeric() || c == '-';
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.chars().all(legal)
    };
    if name.len() <= 253 && name.split('.').all(label) {
        Ok(name)
    } else {
        Err(format!("\"{text}\" is not the name of a host such as \"lab-01.example.org\""))
    }
}

/// `12h`, `30min`, `1day`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|_| format!("\"{text}\" is not a time such as \"12h\" or \"30min\""))
}

/// A name for stores and vDisks: 1 to 63 letters, digits, `-`, `_` and `.`, beginning with a letter or digit.
pub(super) fn plain_name(text: &str) -> Result<String, String> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let starts = text.starts_with(|c: char| c.is_ascii_alphanumeric());
    if starts && text.len() <= 63 && text.chars().all(legal) {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "\"{text}\" is not a name (1 to 63 letters, digits, '-', '_', '.'; a letter or digit first)"
        ))
    }
}
