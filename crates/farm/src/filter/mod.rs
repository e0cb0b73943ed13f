//! The filter language of lists and views: `kind = production and (name ~ "lab-*" or not disabled)`.
//!
//! ```text
//! filter     = and { "or" and }
//! and        = not { "and" not }
//! not        = "not" not | "(" filter ")" | field [ operator value ]
//! operator   = "=" | "!=" | "<" | "<=" | ">" | ">=" | "~"
//! value      = word | "text in quotation marks"      (in which \" and \\ stand for " and \)
//! ```
//!
//! `~` compares with a pattern in which `*` stands for anything and `?` for one character. Texts are compared without
//! regard to case. A field alone is true where it is a yes/no property that is yes. A field with several values (the
//! MAC addresses of a device) fits where one of them does.
//!
//! A [`Filter`] is what was said, and knows no fields. Which fields a list has, and what they mean in its tables,
//! stands with each table; [`resolve`] puts the two together and finds what is not there.
mod parse;
mod resolve;

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

pub use parse::BadFilter;
pub use resolve::{BadTerm, Field, FieldKind, FieldPlace, Value, resolve};
pub(crate) use resolve::{Condition, condition};

/// The longest filter, in bytes.
pub const MAX_FILTER_BYTES: usize = 4096;
/// The most comparisons of a filter.
pub const MAX_TERMS: usize = 100;
/// The deepest nesting of a filter.
pub const MAX_DEPTH: usize = 32;

/// Which objects: what was said, not yet related to any list's fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filter {
    /// All objects.
    Everything,
    /// Those that fit every one of these.
    All(Vec<Filter>),
    /// Those that fit at least one of these.
    Any(Vec<Filter>),
    /// Those that do not fit.
    Not(Box<Filter>),
    /// Those whose field compares so.
    Term(Term),
}

/// A comparison of a field with a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// The field's name.
    pub field: String,
    /// How it compares; `None`: a yes/no field that is yes.
    pub compared: Option<(Operator, String)>,
}

/// How two values compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// They are the same.
    Equal,
    /// They are not.
    NotEqual,
    /// The field's is smaller.
    Less,
    /// The field's is not larger.
    AtMost,
    /// The field's is larger.
    Greater,
    /// The field's is not smaller.
    AtLeast,
    /// The field's fits the pattern.
    Like,
}

impl Operator {
    /// Longer ones first: `<=` begins like `<`.
    const ALL: [(Self, &'static str); 7] = [
        (Self::NotEqual, "!="),
        (Self::AtMost, "<="),
        (Self::AtLeast, ">="),
        (Self::Equal, "="),
        (Self::Less, "<"),
        (Self::Greater, ">"),
        (Self::Like, "~"),
    ];

    /// How it is written.
    #[must_use]
    pub fn symbol(self) -> &'static str {
        Self::ALL.iter().find(|(operator, _)| *operator == self).map_or("", |(_, symbol)| symbol)
    }
}

impl Filter {
    /// Those that fit both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Everything, filter) | (filter, Self::Everything) => filter,
            (one, other) => Self::All(vec![one, other]),
        }
    }

    /// Those whose field has this value.
    #[must_use]
    pub fn equal(field: &str, value: impl fmt::Display) -> Self {
        Self::Term(Term { field: field.to_owned(), compared: Some((Operator::Equal, value.to_string())) })
    }

    fn binding(&self) -> u8 {
        match self {
            Self::Any(_) => 0,
            Self::All(_) => 1,
            Self::Not(_) | Self::Everything | Self::Term(_) => 2,
        }
    }

    fn write_in(&self, f: &mut fmt::Formatter<'_>, around: u8) -> fmt::Result {
        if self.binding() < around { write!(f, "({self})") } else { write!(f, "{self}") }
    }
}

/// As it can be read back.
impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everything => Ok(()),
            Self::All(parts) | Self::Any(parts) => {
                let word = if matches!(self, Self::All(_)) { " and " } else { " or " };
                for (place, part) in parts.iter().enumerate() {
                    if place > 0 {
                        f.write_str(word)?;
                    }
                    part.write_in(f, self.binding().saturating_add(1))?;
                }
                Ok(())
            }
            Self::Not(part) => {
                f.write_str("not ")?;
                part.write_in(f, 2)
            }
            Self::Term(term) => write!(f, "{term}"),
        }
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.field)?;
        let Some((operator, value)) = &self.compared else { return Ok(()) };
        write!(f, " {} ", operator.symbol())?;
        if parse::is_plain_word(value) {
            f.write_str(value)
        } else {
            write!(f, "\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
        }
    }
}

impl FromStr for Filter {
    type Err = BadFilter;

    fn from_str(text: &str) -> Result<Self, BadFilter> {
        parse::parse(text)
    }
}

impl Serialize for Filter {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again(text: &str) -> String {
        text.parse::<Filter>().unwrap().to_string()
    }

    #[test]
    fn filter_is_shown_as_it_can_be_read() {
        for text in [
            "",
            "disabled",
            "not disabled",
            "kind = production and name ~ lab-*",
            "kind = test or kind = maintenance and not disabled",
            "(kind = test or kind = maintenance) and not (disabled or size >= 10)",
            "mac = 52:54:00:12:34:56",
            "description = \"a \\\"quoted\\\" \\\\ text\"",
            "name = \"and\"",
            "name = \"\"",
        ] {
            assert_eq!(again(text), text);
        }
    }

    #[test]
    fn spaces_and_brackets_that_mean_nothing_are_left_out() {
        assert_eq!(again(" ( ( kind=production ) )and  name~lab-* "), "kind = production and name ~ lab-*");
        assert_eq!(again("NOT disabled AND kind!=test"), "not disabled and kind != test");
        assert_eq!(again("not (not disabled)"), "not not disabled");
    }

    #[test]
    fn and_with_everything_is_the_other() {
        let filter: Filter = "disabled".parse().unwrap();
        assert_eq!(Filter::Everything.and(filter.clone()), filter);
        assert_eq!(filter.and(Filter::equal("site", "a b")).to_string(), "disabled and site = \"a b\"");
    }
}
