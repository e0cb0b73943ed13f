//! The one error of all small values: what was expected, what was found, and the rule that it breaks.

/// The most characters of a refused text that are repeated in the message.
const MAX_SHOWN_CHARS: usize = 100;

/// A text or number that is not what it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} is not {what}: {rule}")]
pub struct BadValue {
    /// What was expected, with its article: `a device name`.
    pub what: &'static str,
    /// What was found, at most its first 100 characters; of a secret, nothing.
    pub found: String,
    /// The rule, as it is told to the user: `1 to 63 lower-case letters, digits and inner hyphens`.
    pub rule: &'static str,
}

impl BadValue {
    /// Of a text that was found.
    #[must_use]
    pub fn new(what: &'static str, found: &str, rule: &'static str) -> Self {
        Self { what, found: found.chars().take(MAX_SHOWN_CHARS).collect(), rule }
    }

    /// Of a number that was found.
    #[must_use]
    pub fn number(what: &'static str, found: impl std::fmt::Display, rule: &'static str) -> Self {
        Self { what, found: found.to_string(), rule }
    }
}
