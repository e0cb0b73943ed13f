//! Names and values behind a question mark or in a form: `application/x-www-form-urlencoded` (WHATWG URL §5).
use std::fmt::Write as _;

/// The most fields of one form: a page of a table with all its rows marked.
const MAX_FIELDS: usize = 2048;

/// Fields in the order in which they came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fields(Vec<(String, String)>);

impl Fields {
    /// Fields beyond [`MAX_FIELDS`] and what is no UTF-8 are left out: what is missing is asked for again.
    pub(crate) fn parse(text: &str) -> Self {
        let pair = |pair: &str| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decode(name)?, decode(value)?))
        };
        Self(text.split('&').filter(|pair| !pair.is_empty()).filter_map(pair).take(MAX_FIELDS).collect())
    }

    /// The first value of this name; empty where there is none.
    pub(crate) fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value.as_str())
    }

    /// All values of this name.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// With this name having this value alone; an empty value takes it away.
    pub(crate) fn with(&self, name: &str, value: &str) -> Self {
        let mut fields: Vec<_> = self.0.iter().filter(|(known, _)| known != name).cloned().collect();
        if !value.is_empty() {
            fields.push((name.to_owned(), value.to_owned()));
        }
        Self(fields)
    }

    /// As it stands behind a question mark, with the question mark; empty where there are no fields.
    pub(crate) fn query(&self) -> String {
        let mut text = String::new();
        for (name, value) in &self.0 {
            let mark = if text.is_empty() { '?' } else { '&' };
            let _ = write!(text, "{mark}{}={}", encode(name), encode(value));
        }
        text
    }
}

impl<const N: usize> From<[(&str, &str); N]> for Fields {
    fn from(pairs: [(&str, &str); N]) -> Self {
        let full = pairs.iter().filter(|(_, value)| !value.is_empty());
        Self(full.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }
}

/// RFC 3986 §2.3: what is not unreserved is written as its bytes in hexadecimal.
pub(crate) fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// Units of sizes, the largest first.
const UNITS: [(&str, u64); 5] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// A size as people write it: `10 GiB`, `512MiB`, `4096`. `None`: it is none.
pub(crate) fn size(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = match unit.trim() {
        "" => 1,
        unit => UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).map(|(_, unit)| *unit)?,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

/// The same number of bytes in the largest unit that tells it without a rest.
pub(crate) fn exact(bytes: u64) -> String {
    let fits = |(_, unit): &&(&str, u64)| bytes > 0 && bytes.checked_rem(*unit) == Some(0);
    let (name, unit) = UNITS.iter().find(fits).copied().unwrap_or(("B", 1));
    format!("{} {name}", bytes.checked_div(unit).unwrap_or(0))
}

fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                let (high, low) = (digit()?, digit()?);
                u8::try_from(high.saturating_mul(16).saturating_add(low)).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_as_they_were_written() {
        let fields = Fields::from([("q", "a b&c=d+ü%"), ("page", "2")]);
        assert_eq!(fields.query(), "?q=a%20b%26c%3Dd%2B%C3%BC%25&page=2");
        assert_eq!(Fields::parse(fields.query().trim_start_matches('?')), fields);
    }

    #[test]
    fn what_is_no_text_is_left_out() {
        let fields = Fields::parse("a=%ff&b=%4&c&=x&d=1+2&d=3&&");
        assert_eq!((fields.get("a"), fields.get("d")), ("", "1 2"));
        assert_eq!(fields.all("d").collect::<Vec<_>>(), ["1 2", "3"]);
    }

    #[test]
    fn sizes_are_read_as_they_were_written() {
        for (text, bytes) in [("10 GiB", 10 << 30), ("1537 MiB", 1537 << 20), ("7 B", 7), ("0 B", 0)] {
            assert_eq!((size(text), exact(bytes)), (Some(bytes), text.to_owned()));
        }
        assert_eq!((size("512mib"), size("4096")), (Some(512 << 20), Some(4096)));
        for bad in ["", "GiB", "1.5 GiB", "10 GB", "99999999999 TiB", "-1"] {
            assert_eq!(size(bad), None, "{bad}");
        }
    }

    #[test]
    fn fields_beyond_the_limit_are_left_out() {
        let text = "x=1&".repeat(MAX_FIELDS + 10);
        assert_eq!(Fields::parse(&text).all("x").count(), MAX_FIELDS);
    }
}
