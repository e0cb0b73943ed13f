//! Choices: the few words that a property can have, spelled one way in the catalogue, in JSON, in filters and in CSV.
use super::bad_value::BadValue;

/// A property with a few possible words.
pub trait Choice: Copy + PartialEq + Sized + 'static {
    /// What it is, with its article.
    const WHAT: &'static str;
    /// The words, as they are told to the user.
    const RULE: &'static str;
    /// Every value with its word.
    const ALL: &'static [(Self, &'static str)];

    /// The word of this value.
    fn word(self) -> &'static str {
        Self::ALL.iter().find(|(value, _)| *value == self).map_or("", |(_, word)| word)
    }

    /// The value of a word.
    ///
    /// # Errors
    /// [`BadValue`], with all words.
    fn from_word(word: &str) -> Result<Self, BadValue> {
        let found = Self::ALL.iter().find(|(_, known)| *known == word);
        found.map(|(value, _)| *value).ok_or_else(|| BadValue::new(Self::WHAT, word, Self::RULE))
    }
}
