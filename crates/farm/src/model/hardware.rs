//! What a machine is recognised by.
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::bad_value::BadValue;

/// The most MAC addresses of one device: network cards of one machine that may boot it.
pub const MAX_MACS: usize = 8;

/// The Ethernet address of one machine's card: neither a group's nor all zeros. Written `52:54:00:12:34:56`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mac([u8; 6]);

impl Mac {
    /// Checks an address.
    ///
    /// # Errors
    /// [`BadValue`] of a group address (its first byte is odd, IEEE 802 §8.2.2) or of all zeros.
    pub fn new(bytes: [u8; 6]) -> Result<Self, BadValue> {
        let mac = Self(bytes);
        let [first, ..] = bytes;
        if first & 1 == 1 {
            Err(BadValue::new("a MAC address", &mac.to_string(), "a group address belongs to no machine"))
        } else if bytes == [0; 6] {
            Err(BadValue::new("a MAC address", &mac.to_string(), "all zeros stand for none"))
        } else {
            Ok(mac)
        }
    }

    /// Its bytes.
    #[must_use]
    pub const fn bytes(self) -> [u8; 6] {
        self.0
    }
}

/// Reads `52:54:00:12:34:56`, `52-54-00-12-34-56`, `5254.0012.3456` or `525400123456`, in either case.
impl FromStr for Mac {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let bad = || BadValue::new("a MAC address", text, "such as \"52:54:00:12:34:56\"");
        let group_length = match text.len() {
            12 => 12,
            14 => 4,
            17 => 2,
            _ => return Err(bad()),
        };
        let separator = |c: char| if group_length == 4 { c == '.' } else { matches!(c, ':' | '-') };
        let mut number: u64 = 0;
        for group in text.split(separator) {
            if group.len() != group_length {
                return Err(bad());
            }
            for digit in group.chars() {
                number = (number << 4) | u64::from(digit.to_digit(16).ok_or_else(bad)?);
            }
        }
        let [_, _, a, b, c, d, e, f] = number.to_be_bytes();
        Self::new([a, b, c, d, e, f])
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl TryFrom<String> for Mac {
    type Error = BadValue;

    fn try_from(text: String) -> Result<Self, BadValue> {
        text.parse()
    }
}

impl From<Mac> for String {
    fn from(mac: Mac) -> Self {
        mac.to_string()
    }
}

/// A universally unique identifier in the order of its text (RFC 9562 §4): a machine's (SMBIOS), or one of an image.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Uuid([u8; 16]);

impl Uuid {
    /// From its bytes, which must not be all zeros or all ones: boards that were never given one say so.
    ///
    /// # Errors
    /// [`BadValue`].
    pub fn new(bytes: [u8; 16]) -> Result<Self, BadValue> {
        if bytes == [0; 16] || bytes == [0xFF; 16] {
            let text = Self(bytes).to_string();
            Err(BadValue::new("a UUID", &text, "all zeros or all ones stand for none"))
        } else {
            Ok(Self(bytes))
        }
    }

    /// Its bytes, in the order of the text.
    #[must_use]
    pub const fn bytes(self) -> [u8; 16] {
        self.0
    }
}

/// Reads the usual groups of 8, 4, 4, 4 and 12 digits, in braces or not, in either case.
impl FromStr for Uuid {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let bad = || BadValue::new("a UUID", text, "such as \"4c4c4544-0042-3510-8051-b4c04f4d3132\"");
        let inner = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or(text);
        let mut groups = inner.split('-');
        let mut number: u128 = 0;
        for length in [8, 4, 4, 4, 12] {
            let group = groups.next().filter(|group| group.len() == length).ok_or_else(bad)?;
            for digit in group.chars() {
                number = (number << 4) | u128::from(digit.to_digit(16).ok_or_else(bad)?);
            }
        }
        if groups.next().is_some() {
            return Err(bad());
        }
        Self::new(number.to_be_bytes())
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, byte) in self.0.iter().enumerate() {
            if matches!(place, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl TryFrom<String> for Uuid {
    type Error = BadValue;

    fn try_from(text: String) -> Result<Self, BadValue> {
        text.parse()
    }
}

impl From<Uuid> for String {
    fn from(uuid: Uuid) -> Self {
        uuid.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mac_is_read_in_every_usual_way() {
        for text in
            ["52:54:00:12:34:56", "52-54-00-12-34-56", "5254.0012.3456", "525400123456", "52:54:00:12:34:56"]
        {
            assert_eq!(text.parse::<Mac>().unwrap().to_string(), "52:54:00:12:34:56");
        }
    }

    #[test]
    fn mac_of_no_machine_is_refused() {
        let bad = [
            "",
            "52:54:00:12:34",
            "52:54:00:12:34:5g",
            "01:00:5e:00:00:01",
            "ff:ff:ff:ff:ff:ff",
            "00:00:00:00:00:00",
            "5254:0012:34567",
            "525400-12345",
            "52:54:00:12:34:56:78",
            "5254.00123456",
            "ää:ää:ää",
        ];
        for text in bad {
            assert!(text.parse::<Mac>().is_err(), "{text}");
        }
    }

    #[test]
    fn uuid_is_read_as_it_is_written_and_blank_ones_are_refused() {
        let text = "4c4c4544-0042-3510-8051-b4c04f4d3132";
        assert_eq!(text.parse::<Uuid>().unwrap().to_string(), text);
        assert_eq!(format!("{{{}}}", text.to_uppercase()).parse::<Uuid>().unwrap().to_string(), text);
        let bad = [
            "",
            "4c4c4544",
            "00000000-0000-0000-0000-000000000000",
            "ffffffff-ffff-ffff-ffff-ffffffffffff",
            "4c4c4544-0042-3510-8051-b4c04f4d31321",
            "4c4c4544-0042-3510-8051-b4c04f4d3132-",
            "{4c4c4544-0042-3510-8051-b4c04f4d3132",
        ];
        for text in bad {
            assert!(text.parse::<Uuid>().is_err(), "{text}");
        }
    }
}
