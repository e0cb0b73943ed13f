//! Text negotiation: `key=value` pairs, each ended by a zero byte (RFC 7143 §6.1), with hard limits on both ways.
use crate::limits::{MAX_KEY_BYTES, MAX_TEXT_BYTES, MAX_TEXT_KEYS, MAX_VALUE_BYTES};

/// Why text was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TextError {
    /// One negotiation holds more than we take.
    #[error("negotiation text of more than {MAX_TEXT_BYTES} bytes")]
    TooLong,
    /// More keys than we take.
    #[error("more than {MAX_TEXT_KEYS} keys in one negotiation")]
    TooManyKeys,
    /// A pair without `=`, or a key or value of the wrong size or alphabet.
    #[error("text at byte {at} is no key=value pair")]
    NotAPair {
        /// Where the pair begins.
        at: usize,
    },
    /// The same key twice in one negotiation (RFC 7143 §6.3).
    #[error("key {0} twice in one negotiation")]
    Repeated(String),
}

/// The pairs of one negotiation, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pairs(Vec<(String, String)>);

impl Pairs {
    /// Reads the text of a whole negotiation.
    ///
    /// # Errors
    /// Any [`TextError`].
    pub(crate) fn parse(text: &[u8]) -> Result<Self, TextError> {
        if text.len() > MAX_TEXT_BYTES {
            return Err(TextError::TooLong);
        }
        let mut pairs: Vec<(String, String)> = Vec::new();
        let mut at = 0_usize;
        for pair in text.split(|byte| *byte == 0) {
            // Empty ones come from the last zero byte, and from initiators that pad their text.
            if !pair.is_empty() {
                let (key, value) = parse_pair(pair).ok_or(TextError::NotAPair { at })?;
                if pairs.iter().any(|(other, _)| other == key) {
                    return Err(TextError::Repeated(key.to_owned()));
                }
                if pairs.len() >= MAX_TEXT_KEYS {
                    return Err(TextError::TooManyKeys);
                }
                pairs.push((key.to_owned(), value.to_owned()));
            }
            at = at.saturating_add(pair.len()).saturating_add(1);
        }
        Ok(Self(pairs))
    }

    /// The value of a key.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(other, _)| other == key).map(|(_, value)| value.as_str())
    }

    /// Takes all pairs out.
    pub(crate) fn take(&mut self) -> Vec<(String, String)> {
        std::mem::take(&mut self.0)
    }
}

fn parse_pair(pair: &[u8]) -> Option<(&str, &str)> {
    let (key, value) = std::str::from_utf8(pair).ok()?.split_once('=')?;
    // RFC 7143 §6.1: a key begins with a letter and has letters, digits and a few marks, 63 at most.
    let mark = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+' | '@' | '_');
    let legal_key = !key.is_empty() && key.len() <= MAX_KEY_BYTES && key.chars().all(mark);
    let legal_value = value.len() <= MAX_VALUE_BYTES && !value.chars().any(char::is_control);
    (legal_key && legal_value).then_some((key, value))
}

/// Text being written, up to a limit.
#[derive(Debug)]
pub(crate) struct TextWriter {
    text: Vec<u8>,
    limit: usize,
}

impl TextWriter {
    /// Nothing yet, and at most `limit` bytes ever.
    pub(crate) fn new(limit: usize) -> Self {
        Self { text: Vec::new(), limit }
    }

    /// Adds a pair; `false`, and nothing changes, where it does not fit any more.
    pub(crate) fn put(&mut self, key: &str, value: &str) -> bool {
        self.put_all(&[(key, value)])
    }

    /// Adds all of these pairs or, where they do not fit, none.
    pub(crate) fn put_all(&mut self, pairs: &[(&str, &str)]) -> bool {
        let before = self.text.len();
        for (key, value) in pairs {
            self.text.extend_from_slice(key.as_bytes());
            self.text.push(b'=');
            self.text.extend_from_slice(value.as_bytes());
            self.text.push(0);
        }
        let fits = self.text.len() <= self.limit;
        if !fits {
            self.text.truncate(before);
        }
        fits
    }

    /// The text.
    pub(crate) fn finish(self) -> Vec<u8> {
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_read_in_order() {
        let mut pairs = Pairs::parse(b"HeaderDigest=CRC32C,None\0InitialR2T=No\0\0").unwrap();
        assert_eq!(pairs.get("InitialR2T"), Some("No"));
        assert_eq!(pairs.take().len(), 2);
    }

    #[test]
    fn text_beyond_a_limit_is_refused() {
        assert_eq!(Pairs::parse(&[b'a'; MAX_TEXT_BYTES + 1]), Err(TextError::TooLong));
        let many: String = (0..=MAX_TEXT_KEYS).map(|n| format!("k{n}=v\0")).collect();
        assert_eq!(Pairs::parse(many.as_bytes()), Err(TextError::TooManyKeys));
        let long_key = format!("{}=v\0", "k".repeat(64));
        assert_eq!(Pairs::parse(long_key.as_bytes()), Err(TextError::NotAPair { at: 0 }));
        assert_eq!(Pairs::parse(b"a=1\0b\0"), Err(TextError::NotAPair { at: 4 }));
        assert_eq!(Pairs::parse(b"a=1\0a=2\0"), Err(TextError::Repeated("a".to_owned())));
    }

    #[test]
    fn writer_never_passes_its_limit() {
        let mut writer = TextWriter::new(10);
        assert!(writer.put("ab", "cd"));
        assert!(!writer.put("e", "fgh"));
        assert!(writer.put("e", "f"));
        assert_eq!(writer.finish(), b"ab=cd\0e=f\0");
    }

    #[test]
    fn mutated_text_never_panics() {
        let seeds = vec![b"InitiatorName=iqn.x:y\0SessionType=Normal\0AuthMethod=CHAP,None\0".to_vec()];
        mutate::Mutator::new(seeds, 10_000).run(20_000, |text| {
            let _ = Pairs::parse(text);
        });
    }
}
