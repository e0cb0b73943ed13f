//! What is said on the next page about what was just done: a cookie that lives for one page.
//!
//! It is not in the address, so that no link can put words into our mouth.
use crate::fields::{Fields, encode};

/// The longest text that is carried over, in characters.
const MAX_CHARS: usize = 600;

/// What was done, or why it was not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) good: bool,
    pub(crate) text: String,
}

impl Said {
    pub(crate) fn good(text: impl Into<String>) -> Self {
        Self { good: true, text: text.into() }
    }

    pub(crate) fn bad(text: impl Into<String>) -> Self {
        Self { good: false, text: text.into() }
    }

    /// As the cookie's value.
    pub(crate) fn value(&self) -> String {
        let text: String = self.text.chars().take(MAX_CHARS).collect();
        format!("{}{}", if self.good { "g" } else { "b" }, encode(&text))
    }

    /// Of a cookie's value; `None`: it is none of ours.
    pub(crate) fn read(value: &str) -> Option<Self> {
        let (good, text) = match (value.strip_prefix('g'), value.strip_prefix('b')) {
            (Some(text), _) => (true, text),
            (None, Some(text)) => (false, text),
            (None, None) => return None,
        };
        let text = Fields::parse(&format!("t={text}")).get("t").to_owned();
        (!text.is_empty()).then_some(Self { good, text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_is_read_again_and_other_cookies_are_not() {
        let said = Said::bad("vDisk \"ü\": no; <b>");
        assert!(said.value().bytes().all(|byte| byte.is_ascii_graphic() && byte != b';'));
        assert_eq!(Said::read(&said.value()), Some(said));
        assert_eq!((Said::read(""), Said::read("x1"), Said::read("g")), (None, None, None));
    }
}
