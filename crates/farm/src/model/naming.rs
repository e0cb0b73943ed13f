//! Naming patterns: how devices that add themselves come to their names.
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::bad_value::BadValue;
use super::text::{DeviceName, DeviceNameRule, TextRule};

/// The most digits of a pattern: as many devices as nobody has.
const MAX_DIGITS: usize = 9;

/// What names are made of: text, one run of `#` that stands for a number with leading zeros, and text:
/// `lab-###` gives `lab-001`. Whatever the number, the name keeps the rule of [`DeviceName`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NamingPattern {
    prefix: String,
    digits: usize,
    suffix: String,
}

impl NamingPattern {
    /// The name with this number; `None` for one that has more digits than the pattern, or for 0.
    #[must_use]
    pub fn name(&self, number: u32) -> Option<DeviceName> {
        let text = format!("{}{number:0digits$}{}", self.prefix, self.suffix, digits = self.digits);
        let length = self.prefix.len().saturating_add(self.digits).saturating_add(self.suffix.len());
        DeviceName::new(&text).ok().filter(|_| number > 0 && text.len() == length)
    }

    /// The largest number that fits: 999 of `lab-###`.
    #[must_use]
    pub fn last_number(&self) -> u32 {
        let digits = u32::try_from(self.digits).unwrap_or(0);
        10u32.checked_pow(digits).and_then(|power| power.checked_sub(1)).unwrap_or(u32::MAX)
    }

    /// The number that a name of this pattern has; `None` of any other name.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u32> {
        let digits = name.strip_prefix(self.prefix.as_str())?.strip_suffix(self.suffix.as_str())?;
        let fits = digits.len() == self.digits && digits.bytes().all(|b| b.is_ascii_digit());
        fits.then(|| digits.parse().ok()).flatten().filter(|&number| number > 0)
    }
}

impl FromStr for NamingPattern {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let bad = || {
            let rule = "lower-case letters, digits and inner hyphens with one run of 1 to 9 \"#\" for the number, such \
                as \"lab-###\", at most 63 in all";
            BadValue::new("a naming pattern", text, rule)
        };
        let start = text.find('#').ok_or_else(bad)?;
        let (prefix, rest) = text.split_at_checked(start).ok_or_else(bad)?;
        let suffix = rest.trim_start_matches('#');
        let digits = rest.len().saturating_sub(suffix.len());
        let example = format!("{prefix}{}{suffix}", "0".repeat(digits.min(MAX_DIGITS)));
        if digits > MAX_DIGITS || !DeviceNameRule::fits(&example) {
            return Err(bad());
        }
        Ok(Self { prefix: prefix.to_owned(), digits, suffix: suffix.to_owned() })
    }
}

impl fmt::Display for NamingPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{}", self.prefix, "#".repeat(self.digits), self.suffix)
    }
}

impl TryFrom<String> for NamingPattern {
    type Error = BadValue;

    fn try_from(text: String) -> Result<Self, BadValue> {
        text.parse()
    }
}

impl From<NamingPattern> for String {
    fn from(pattern: NamingPattern) -> Self {
        pattern.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> NamingPattern {
        text.parse().unwrap()
    }

    #[test]
    fn number_fills_the_pattern_with_leading_zeros() {
        let lab = pattern("lab-###-x");
        assert_eq!(lab.name(7).unwrap().as_str(), "lab-007-x");
        assert_eq!(lab.name(999).unwrap().as_str(), "lab-999-x");
        assert_eq!((lab.name(1000), lab.name(0), lab.last_number()), (None, None, 999));
        assert_eq!(lab.to_string(), "lab-###-x");
        assert_eq!(pattern("#########").last_number(), 999_999_999);
    }

    #[test]
    fn number_is_read_only_out_of_names_of_the_pattern() {
        let lab = pattern("lab-###");
        assert_eq!(lab.number("lab-042"), Some(42));
        for name in ["lab-42", "lab-0042", "lab-0x2", "lab-+42", "room-042", "lab-000", "lab-"] {
            assert_eq!(lab.number(name), None, "{name}");
        }
    }

    #[test]
    fn pattern_that_gives_no_device_names_is_refused() {
        let long = format!("{}#", "x".repeat(63));
        for text in ["", "lab", "Lab-#", "lab-#-#", "##########", "-#", "#-", "lab #", &long] {
            assert!(text.parse::<NamingPattern>().is_err(), "{text}");
        }
    }
}
