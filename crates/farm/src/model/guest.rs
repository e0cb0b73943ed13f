//! What the operating system of a device is told about itself: user data and SSH keys, of a device and of its collection.
//!
//! User data is a template: `{{word}}` stands for something that is only known of the device that asks. The words are
//! checked when a template is set, so that a slip of the pen is seen by who makes it, and not by a machine that boots at night:
//! [`UserData`] has known words alone. Only a personality value can be missing later, and has a way to say what then:
//! `{{personality.Room|none}}`. `{{{{` stands for two braces, for templates of cloud-init's own.
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::bad_value::BadValue;
use super::text::PersonalityKey;

/// The longest template: above it, cloud-init's own sources refuse user data, too.
pub const MAX_USER_DATA_BYTES: usize = 16_384;
/// The most keys of one device or collection.
pub const MAX_SSH_KEYS: usize = 32;
/// The longest key: RSA with 16384 bits and a comment.
const MAX_SSH_KEY_BYTES: usize = 4_096;

const OPEN: &str = "{{";
const CLOSE: &str = "}}";
const PERSONALITY: &str = "personality.";

/// What the operating system of a device is told about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GuestSettings {
    /// The user data for cloud-init; `None`: that of the collection, or none.
    pub user_data: Option<UserData>,
    /// Who may log in over SSH, together with those of the collection.
    pub ssh_keys: SshKeys,
}

/// A word of a template, with what it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// A fact about the device: one of [`FACTS`].
    Fact(&'static str),
    /// A value of its personality, or else this text.
    Personality(PersonalityKey, Option<String>),
}

/// The facts that templates can name.
pub const FACTS: [&str; 14] = [
    "device",
    "collection",
    "site",
    "farm",
    "mac",
    "uuid",
    "address",
    "server",
    "vdisk",
    "version",
    "boot",
    "machine-id",
    "ready-url",
    "secrets-url",
];

/// A template of user data.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct UserData(Box<str>);

/// Why a template cannot be filled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{{{{{word}}}}} has no value: {remedy}")]
pub struct NoValue {
    /// The word.
    pub word: String,
    /// What to do about it.
    pub remedy: String,
}

impl UserData {
    /// Checks a template.
    ///
    /// # Errors
    /// [`BadValue`] of one that is too long, and of one with a word that nothing stands for.
    pub fn new(text: &str) -> Result<Self, BadValue> {
        let what = "user data";
        if text.len() > MAX_USER_DATA_BYTES {
            return Err(BadValue::number(what, text.len(), "at most 16384 bytes"));
        }
        if text.contains(|c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t')) {
            return Err(BadValue::new(what, "a control character", "text without control characters"));
        }
        pieces(text).try_for_each(|piece| piece.map(drop)).map_err(|found| {
            BadValue::new(
                "a place in user data",
                &found,
                "{{device}}, {{collection}}, {{site}}, {{farm}}, {{mac}}, {{uuid}}, {{address}}, {{server}}, {{vdisk}}, \
                 {{version}}, {{boot}}, {{machine-id}}, {{ready-url}}, {{secrets-url}}, {{personality.NAME}} or \
                 {{personality.NAME|DEFAULT}}; {{{{ for two braces",
            )
        })?;
        Ok(Self(text.into()))
    }

    /// The template as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The user data of one device: every place is filled with what `value` says.
    ///
    /// # Errors
    /// [`NoValue`] of the first word that `value` knows nothing for and that has no default.
    pub fn fill(&self, value: impl Fn(&Word) -> Option<String>) -> Result<String, NoValue> {
        let mut filled = String::with_capacity(self.0.len());
        for piece in pieces(&self.0) {
            // Checked when it was made.
            match piece.unwrap_or(Piece::Text("")) {
                Piece::Text(text) => filled.push_str(text),
                Piece::Word(word) => match (value(&word), word) {
                    (Some(value), _) | (None, Word::Personality(_, Some(value))) => filled.push_str(&value),
                    (None, word) => return Err(NoValue::of(&word)),
                },
            }
        }
        Ok(filled)
    }
}

impl NoValue {
    fn of(word: &Word) -> Self {
        match word {
            Word::Fact(name) => Self {
                word: (*name).to_owned(),
                remedy: format!("this device has no {name}, so take the place out of the template"),
            },
            Word::Personality(key, _) => Self {
                word: format!("{PERSONALITY}{key}"),
                remedy: format!(
                    "set {PERSONALITY}{key} of the device, or write {{{{{PERSONALITY}{key}|DEFAULT}}}}"
                ),
            },
        }
    }
}

enum Piece<'a> {
    Text(&'a str),
    Word(Word),
}

/// The template's texts and words in turn. A place that is none is given as its text, and ends the pieces.
fn pieces(text: &str) -> impl Iterator<Item = Result<Piece<'_>, String>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let Some(start) = rest.find(OPEN) else { return Some(Ok(Piece::Text(std::mem::take(&mut rest)))) };
        if start > 0 {
            let (before, after) = rest.split_at(start);
            rest = after;
            return Some(Ok(Piece::Text(before)));
        }
        if let Some(after) = rest.strip_prefix("{{{{") {
            rest = after;
            return Some(Ok(Piece::Text(OPEN)));
        }
        let place = std::mem::take(&mut rest).strip_prefix(OPEN).unwrap_or_default();
        let parsed = place.split_once(CLOSE).and_then(|(word, after)| Some((parse_word(word)?, after)));
        let Some((word, after)) = parsed else {
            let shown = place.split_inclusive(CLOSE).next().unwrap_or_default();
            return Some(Err(format!("{OPEN}{shown}")));
        };
        rest = after;
        Some(Ok(Piece::Word(word)))
    })
}

fn parse_word(text: &str) -> Option<Word> {
    let text = text.trim();
    if let Some(rest) = text.strip_prefix(PERSONALITY) {
        let (key, default) = match rest.split_once('|') {
            Some((key, default)) => (key, Some(default.trim().to_owned())),
            None => (rest, None),
        };
        return Some(Word::Personality(PersonalityKey::new(key.trim()).ok()?, default));
    }
    FACTS.into_iter().find(|fact| *fact == text).map(Word::Fact)
}

impl TryFrom<String> for UserData {
    type Error = BadValue;

    fn try_from(text: String) -> Result<Self, BadValue> {
        Self::new(&text)
    }
}

impl FromStr for UserData {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        Self::new(text)
    }
}

impl From<UserData> for String {
    fn from(data: UserData) -> Self {
        data.0.into()
    }
}

impl fmt::Display for UserData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for UserData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UserData({} bytes)", self.0.len())
    }
}

/// Public keys in the form of `authorized_keys`, at most [`MAX_SSH_KEYS`], none twice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
pub struct SshKeys(Vec<String>);

impl SshKeys {
    /// Checks keys.
    ///
    /// # Errors
    /// [`BadValue`] of too many, of one that is there twice, and of what is no public key.
    pub fn new(keys: Vec<String>) -> Result<Self, BadValue> {
        if keys.len() > MAX_SSH_KEYS {
            return Err(BadValue::number("a list of SSH keys", keys.len(), "at most 32 keys"));
        }
        for (place, key) in keys.iter().enumerate() {
            if !is_public_key(key) {
                let rule =
                    "one line of authorized_keys, such as \"ssh-ed25519 AAAA... ann@desk\", without options";
                return Err(BadValue::new("an SSH key", key, rule));
            }
            if keys.iter().take(place).any(|other| other == key) {
                return Err(BadValue::new("a list of SSH keys", key, "no key twice"));
            }
        }
        Ok(Self(keys))
    }

    /// The keys.
    #[must_use]
    pub fn as_slice(&self) -> &[String] {
        &self.0
    }

    /// The keys, one on each line; `None` where there are none.
    #[must_use]
    pub fn lines(&self) -> Option<String> {
        (!self.0.is_empty()).then(|| self.0.join("\n"))
    }
}

/// `TYPE BASE64 [COMMENT]`, sshd(8), AUTHORIZED_KEYS FILE FORMAT. Options are refused: they belong into user data, where
/// somebody reads them.
fn is_public_key(key: &str) -> bool {
    let mut words = key.split(' ');
    let typed = words.next().is_some_and(|kind| {
        ["ssh-", "ecdsa-sha2-", "sk-ssh-", "sk-ecdsa-"].iter().any(|start| kind.starts_with(start))
            && kind.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'@'))
    });
    // The encoding begins with the length of the type's name: three zero bytes.
    let encoded = words.next().is_some_and(|data| {
        data.starts_with("AAAA")
            && data.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'='))
    });
    typed && encoded && key.len() <= MAX_SSH_KEY_BYTES && !key.contains(char::is_control)
}

impl FromStr for SshKeys {
    type Err = BadValue;

    fn from_str(lines: &str) -> Result<Self, BadValue> {
        Self::new(lines.lines().map(str::to_owned).collect())
    }
}

impl TryFrom<Vec<String>> for SshKeys {
    type Error = BadValue;

    fn try_from(keys: Vec<String>) -> Result<Self, BadValue> {
        Self::new(keys)
    }
}

impl From<SshKeys> for Vec<String> {
    fn from(keys: SshKeys) -> Self {
        keys.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKj ann@desk";

    fn value(word: &Word) -> Option<String> {
        match word {
            Word::Fact("device") => Some("lab-01".to_owned()),
            Word::Personality(key, _) if key.as_str() == "Room" => Some("B12".to_owned()),
            _ => None,
        }
    }

    fn fill(text: &str) -> Result<String, String> {
        UserData::new(text).unwrap().fill(value).map_err(|error| error.to_string())
    }

    #[test]
    fn places_are_filled_with_what_is_known_of_the_device() {
        let text = "#cloud-config\nhostname: {{device}}\nroom: {{ personality.Room }}\nfloor: {{personality.Floor | 3}}\n\
                    jinja: {{{{ v1.region }}\n";
        let filled = "#cloud-config\nhostname: lab-01\nroom: B12\nfloor: 3\njinja: {{ v1.region }}\n";
        assert_eq!(fill(text), Ok(filled.to_owned()));
        assert_eq!(fill("{{personality.Floor|}}"), Ok(String::new()));
        assert_eq!(fill(""), Ok(String::new()));
    }

    #[test]
    fn missing_value_names_the_word_and_what_to_do() {
        let why = fill("a {{personality.Floor}}").unwrap_err();
        assert_eq!(
            why,
            "{{personality.Floor}} has no value: set personality.Floor of the device, or write {{personality.Floor|DEFAULT}}"
        );
        assert!(fill("{{address}}").unwrap_err().contains("has no address"));
    }

    #[test]
    fn template_with_an_unknown_word_is_refused_with_that_word() {
        for (text, found) in [
            ("x {{devise}} {{device}}", "{{devise}}"),
            ("{{", "{{"),
            ("{{device", "{{device"),
            ("{{}}", "{{}}"),
            ("{{personality.}}", "{{personality.}}"),
            ("{{{device}}}", "{{{device}}"),
        ] {
            assert_eq!(UserData::new(text).unwrap_err().found, found, "{text}");
        }
        assert!(UserData::new(&"x".repeat(MAX_USER_DATA_BYTES + 1)).is_err());
        assert!(UserData::new("a\0").is_err());
    }

    #[test]
    fn ssh_keys_are_public_keys_of_one_line_and_none_twice() {
        assert!(SshKeys::new(vec![KEY.to_owned()]).is_ok());
        for bad in
            ["", "ssh-ed25519", "AAAA", "command=\"x\" ssh-rsa AAAA", "ssh-rsa AAAA\nx", "ssh-rsa BBBB"]
        {
            assert!(SshKeys::new(vec![bad.to_owned()]).is_err(), "{bad:?}");
        }
        assert!(SshKeys::new(vec![KEY.to_owned(), KEY.to_owned()]).unwrap_err().rule.contains("twice"));
        let keys = SshKeys::new(vec![KEY.to_owned(), "ssh-rsa AAAAB3".to_owned()]).unwrap();
        assert_eq!(keys.lines().unwrap().parse::<SshKeys>().unwrap(), keys);
    }
}
