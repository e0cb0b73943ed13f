//! Names and other short texts, each with its rule: what exists has been checked.
//!
//! A [`Text<R>`] is a text that keeps rule `R`. Names of things that people name freely ([`Name`]) differ from each
//! other when case is left out of account ([`Text::folded`]); names that end up in host names, target names and file
//! names keep to what all of these can carry.
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::bad_value::BadValue;

/// What a text has to keep.
pub trait TextRule {
    /// What such a text is, with its article.
    const WHAT: &'static str;
    /// The rule, as it is told to the user.
    const RULE: &'static str;
    /// Whether the text is not to be seen in messages and logs.
    const SECRET: bool = false;

    /// Whether `text` keeps the rule.
    fn fits(text: &str) -> bool;
}

/// A text that keeps rule `R`.
#[derive(Serialize, Deserialize)]
#[serde(try_from = "String", into = "String", bound = "R: TextRule")]
pub struct Text<R> {
    text: Box<str>,
    rule: PhantomData<fn() -> R>,
}

impl<R: TextRule> Text<R> {
    /// Checks a text.
    ///
    /// # Errors
    /// [`BadValue`], with the rule.
    pub fn new(text: &str) -> Result<Self, BadValue> {
        if R::fits(text) {
            Ok(Self { text: text.into(), rule: PhantomData })
        } else {
            Err(BadValue::new(R::WHAT, if R::SECRET { "" } else { text }, R::RULE))
        }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The text in lower case: what makes two names the same.
    #[must_use]
    pub fn folded(&self) -> String {
        self.text.to_lowercase()
    }
}

impl<R: TextRule> TryFrom<String> for Text<R> {
    type Error = BadValue;

    fn try_from(text: String) -> Result<Self, BadValue> {
        Self::new(&text)
    }
}

impl<R: TextRule> FromStr for Text<R> {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        Self::new(text)
    }
}

impl<R> From<Text<R>> for String {
    fn from(text: Text<R>) -> Self {
        text.text.into()
    }
}

impl<R> Clone for Text<R> {
    fn clone(&self) -> Self {
        Self { text: self.text.clone(), rule: PhantomData }
    }
}

impl<R> PartialEq for Text<R> {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl<R> Eq for Text<R> {}

impl<R> PartialOrd for Text<R> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<R> Ord for Text<R> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.text.cmp(&other.text)
    }
}

impl<R> std::hash::Hash for Text<R> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl<R: TextRule> fmt::Debug for Text<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if R::SECRET { f.write_str("(not shown)") } else { fmt::Debug::fmt(&self.text, f) }
    }
}

impl<R: TextRule> fmt::Display for Text<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if R::SECRET { f.write_str("(not shown)") } else { f.write_str(&self.text) }
    }
}

/// The name of a farm, site, store, collection or view.
pub type Name = Text<NameRule>;
/// The name of a target device: part of target names, file names and host names.
pub type DeviceName = Text<DeviceNameRule>;
/// The name of a server: its host name, with or without domain.
pub type ServerName = Text<ServerNameRule>;
/// The name of a vDisk: its files begin with it.
pub type VdiskName = Text<VdiskNameRule>;
/// The name of a file in a store.
pub type FileName = Text<FileNameRule>;
/// Where a store lies on a server.
pub type StorePath = Text<StorePathRule>;
/// What somebody wrote about an object; may be empty.
pub type Description = Text<DescriptionRule>;
/// A line of a boot menu.
pub type MenuText = Text<MenuTextRule>;
/// The name of an administrator.
pub type UserName = Text<UserNameRule>;
/// Names a secret that is kept elsewhere.
pub type SecretName = Text<SecretNameRule>;
/// The user name in CHAP.
pub type ChapUser = Text<ChapUserRule>;
/// The name of an iSCSI initiator.
pub type InitiatorName = Text<InitiatorNameRule>;
/// The name of a personality value.
pub type PersonalityKey = Text<PersonalityKeyRule>;
/// A personality value.
pub type PersonalityValue = Text<PersonalityValueRule>;
/// A password's Argon2 hash in PHC format.
pub type PasswordHash = Text<PasswordHashRule>;
/// What a client names a request with, so that its repetition does nothing twice.
pub type IdempotencyKey = Text<IdempotencyKeyRule>;
/// A word that the catalogue keeps without knowing what it stands for: of an action, an object kind, a task kind.
pub type Word = Text<WordRule>;

/// Rule of [`Name`].
#[derive(Debug)]
pub enum NameRule {}
/// Rule of [`DeviceName`].
#[derive(Debug)]
pub enum DeviceNameRule {}
/// Rule of [`ServerName`].
#[derive(Debug)]
pub enum ServerNameRule {}
/// Rule of [`VdiskName`].
#[derive(Debug)]
pub enum VdiskNameRule {}
/// Rule of [`FileName`].
#[derive(Debug)]
pub enum FileNameRule {}
/// Rule of [`StorePath`].
#[derive(Debug)]
pub enum StorePathRule {}
/// Rule of [`Description`].
#[derive(Debug)]
pub enum DescriptionRule {}
/// Rule of [`MenuText`].
#[derive(Debug)]
pub enum MenuTextRule {}
/// Rule of [`UserName`].
#[derive(Debug)]
pub enum UserNameRule {}
/// Rule of [`SecretName`].
#[derive(Debug)]
pub enum SecretNameRule {}
/// Rule of [`ChapUser`].
#[derive(Debug)]
pub enum ChapUserRule {}
/// Rule of [`InitiatorName`].
#[derive(Debug)]
pub enum InitiatorNameRule {}
/// Rule of [`PersonalityKey`].
#[derive(Debug)]
pub enum PersonalityKeyRule {}
/// Rule of [`PersonalityValue`].
#[derive(Debug)]
pub enum PersonalityValueRule {}
/// Rule of [`PasswordHash`].
#[derive(Debug)]
pub enum PasswordHashRule {}
/// Rule of [`IdempotencyKey`].
#[derive(Debug)]
pub enum IdempotencyKeyRule {}
/// Rule of [`Word`].
#[derive(Debug)]
pub enum WordRule {}

fn has_chars(text: &str, least: usize, most: usize) -> bool {
    // Chars are at most 4 bytes: a giant text is refused without walking through it.
    text.len() <= most.saturating_mul(4) && (least..=most).contains(&text.chars().count())
}

fn is_trimmed(text: &str) -> bool {
    text.trim() == text
}

fn has_control(text: &str) -> bool {
    text.chars().any(char::is_control)
}

fn is_host_label(text: &str, most: usize) -> bool {
    (1..=most).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

impl TextRule for NameRule {
    const WHAT: &'static str = "a name";
    const RULE: &'static str =
        "1 to 50 characters without \"/\", quotation marks and control characters, no space at either end";

    fn fits(text: &str) -> bool {
        has_chars(text, 1, 50) && is_trimmed(text) && !has_control(text) && !text.contains(['/', '"'])
    }
}

impl TextRule for DeviceNameRule {
    const WHAT: &'static str = "a device name";
    const RULE: &'static str =
        "1 to 63 lower-case letters, digits and inner hyphens (a host name, RFC 1123 §2.1)";

    fn fits(text: &str) -> bool {
        is_host_label(text, 63)
    }
}

impl TextRule for ServerNameRule {
    const WHAT: &'static str = "a server name";
    const RULE: &'static str = "a host name: labels of lower-case letters, digits and inner hyphens with dots between them, at most 253";

    fn fits(text: &str) -> bool {
        text.len() <= 253 && text.split('.').all(|label| is_host_label(label, 63))
    }
}

impl VdiskNameRule {
    /// `golden.3` would own the file `golden.3.vhdx`, which is version 3 of `golden` after a merge to a new base.
    fn ends_like_a_version(text: &str) -> bool {
        text.rsplit_once('.')
            .is_some_and(|(_, end)| !end.is_empty() && end.bytes().all(|b| b.is_ascii_digit()))
    }
}

impl TextRule for VdiskNameRule {
    const WHAT: &'static str = "a vDisk name";
    const RULE: &'static str = "1 to 52 letters, digits, spaces, \"-\", \"_\" and \".\", a letter or digit at either \
        end, and not ending like a version (\".3\")";

    fn fits(text: &str) -> bool {
        let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b' ' | b'-' | b'_' | b'.');
        let edge = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
        let bytes = text.as_bytes();
        text.len() <= 52
            && text.bytes().all(legal)
            && edge(bytes.first())
            && edge(bytes.last())
            && !Self::ends_like_a_version(text)
    }
}

impl TextRule for FileNameRule {
    const WHAT: &'static str = "a file name";
    const RULE: &'static str = "1 to 255 bytes without \"/\" and control characters, not beginning with a dot (a file of the store itself)";

    fn fits(text: &str) -> bool {
        (1..=255).contains(&text.len()) && !text.starts_with('.') && !text.contains('/') && !has_control(text)
    }
}

impl TextRule for StorePathRule {
    const WHAT: &'static str = "a path of a store";
    const RULE: &'static str = "an absolute path of at most 1024 bytes without \"..\" and control characters";

    fn fits(text: &str) -> bool {
        text.starts_with('/')
            && text.len() <= 1024
            && !has_control(text)
            && !text.split('/').any(|part| part == "..")
    }
}

impl TextRule for DescriptionRule {
    const WHAT: &'static str = "a description";
    const RULE: &'static str = "at most 250 characters, no control characters but line ends";

    fn fits(text: &str) -> bool {
        has_chars(text, 0, 250) && !text.chars().any(|c| c.is_control() && c != '\n')
    }
}

impl TextRule for MenuTextRule {
    const WHAT: &'static str = "a menu text";
    const RULE: &'static str = "1 to 64 printable ASCII characters (firmware shows no others) without \"$\", which boot scripts expand";

    fn fits(text: &str) -> bool {
        (1..=64).contains(&text.len())
            && is_trimmed(text)
            && text.bytes().all(|b| (b' '..=b'~').contains(&b) && b != b'$')
    }
}

impl TextRule for UserNameRule {
    const WHAT: &'static str = "a user name";
    const RULE: &'static str =
        "1 to 64 lower-case letters, digits, \".\", \"-\", \"_\" and \"@\", a letter or digit first";

    fn fits(text: &str) -> bool {
        let legal =
            |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'_' | b'@');
        (1..=64).contains(&text.len())
            && text.bytes().all(legal)
            && text.starts_with(|c: char| c.is_ascii_alphanumeric())
    }
}

impl TextRule for SecretNameRule {
    const WHAT: &'static str = "the name of a secret";
    const RULE: &'static str =
        "1 to 64 lower-case letters, digits, \".\", \"-\" and \"_\", a letter or digit first";

    fn fits(text: &str) -> bool {
        UserNameRule::fits(text) && !text.contains('@')
    }
}

impl TextRule for ChapUserRule {
    const WHAT: &'static str = "a CHAP user";
    const RULE: &'static str = "1 to 255 bytes without control characters";

    fn fits(text: &str) -> bool {
        (1..=255).contains(&text.len()) && !has_control(text)
    }
}

impl TextRule for InitiatorNameRule {
    const WHAT: &'static str = "an iSCSI name";
    // RFC 7143 §4.2.7.1: the three types, and the characters that are left after normalisation (RFC 3722).
    const RULE: &'static str = "\"iqn.\", \"eui.\" or \"naa.\" and then lower-case letters, digits, \"-\", \".\" and \":\", at \
        most 223 bytes (RFC 7143 §4.2.7.1)";

    fn fits(text: &str) -> bool {
        let legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'.' | b':');
        text.len() <= 223
            && ["iqn.", "eui.", "naa."].iter().any(|kind| text.len() > kind.len() && text.starts_with(kind))
            && text.bytes().all(legal)
    }
}

impl TextRule for PersonalityKeyRule {
    const WHAT: &'static str = "the name of a personality value";
    const RULE: &'static str = "1 to 250 characters without \"=\", \"[\", \"]\", \";\" and control characters, no space at either end";

    fn fits(text: &str) -> bool {
        has_chars(text, 1, 250)
            && is_trimmed(text)
            && !has_control(text)
            && !text.contains(['=', '[', ']', ';'])
    }
}

impl TextRule for PersonalityValueRule {
    const WHAT: &'static str = "a personality value";
    const RULE: &'static str = "at most 2047 bytes without control characters";

    fn fits(text: &str) -> bool {
        text.len() <= 2047 && !has_control(text)
    }
}

impl TextRule for PasswordHashRule {
    const WHAT: &'static str = "a password hash";
    const RULE: &'static str = "an Argon2id hash in PHC string format, at most 255 bytes";
    const SECRET: bool = true;

    fn fits(text: &str) -> bool {
        text.len() <= 255 && text.starts_with("$argon2id$") && text.bytes().all(|b| b.is_ascii_graphic())
    }
}

impl TextRule for IdempotencyKeyRule {
    const WHAT: &'static str = "an idempotency key";
    const RULE: &'static str = "1 to 255 visible ASCII characters";

    fn fits(text: &str) -> bool {
        (1..=255).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic())
    }
}

impl TextRule for WordRule {
    const WHAT: &'static str = "a word";
    const RULE: &'static str = "1 to 64 lower-case letters, digits, \".\", \"-\" and \"_\"";

    fn fits(text: &str) -> bool {
        let legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'_');
        (1..=64).contains(&text.len()) && text.bytes().all(legal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<R: TextRule>(good: &[&str], bad: &[&str]) {
        for text in good {
            assert_eq!(Text::<R>::new(text).map(String::from), Ok((*text).to_owned()));
        }
        for text in bad {
            let error = Text::<R>::new(text).unwrap_err();
            assert_eq!((error.what, error.rule), (R::WHAT, R::RULE), "{text:?}");
        }
    }

    #[test]
    fn names_outside_their_rules_are_refused() {
        check::<NameRule>(&["Büro 3", "a", "(x)"], &["", " a", "a/b", "a\"", "a\n", &"x".repeat(51)]);
        check::<DeviceNameRule>(&["lab-07", "0"], &["", "-a", "a-", "Lab", "a.b", "ä", &"x".repeat(64)]);
        check::<ServerNameRule>(&["one", "one.example.org"], &["", "a..b", "One", ".a", "a."]);
        check::<VdiskNameRule>(
            &["win11", "win 11.a", "x.1a", "3"],
            &["", "a/b", "golden.3", "a.", ".a", " a", "a:", "ä", "a.0", &"x".repeat(53)],
        );
        check::<FileNameRule>(&["a.vhdx", "a b.1.avhdx"], &["", ".lok", "a/b", "..", "a\0"]);
        check::<StorePathRule>(&["/", "/srv/vdisks"], &["", "srv", "/a/../b", "/a\n"]);
        check::<UserNameRule>(&["ann", "ann.b@example"], &["", "Ann", ".a", "a b"]);
        check::<InitiatorNameRule>(&["iqn.2026-11.org.x:a"], &["iqn.", "foo.x", "iqn.A", ""]);
        check::<MenuTextRule>(&["Windows 11"], &["", "a$b", "ä", " a"]);
        check::<PersonalityKeyRule>(&["Printer"], &["", "a=b", "[a]"]);
        check::<IdempotencyKeyRule>(&["a-b"], &["", "a b", "ä"]);
        check::<WordRule>(&["device.update"], &["", "A"]);
    }

    #[test]
    fn secret_text_is_not_repeated_in_messages() {
        let error = PasswordHash::new("hunter2").unwrap_err();
        assert!(!error.to_string().contains("hunter2"));
        let hash = PasswordHash::new("$argon2id$v=19$abc").unwrap();
        assert!(!format!("{hash:?} {hash}").contains("abc"));
    }

    #[test]
    fn name_folds_beyond_ascii() {
        assert_eq!(Name::new("BÜRO").unwrap().folded(), Name::new("büro").unwrap().folded());
    }
}
