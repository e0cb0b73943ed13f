//! Secrets that are told once: API tokens, sessions and the token of the first run.
//!
//! A secret is 32 random bytes in hexadecimal behind a prefix that says what it is, so that one kind is never taken for
//! another and scanners find those that leak. Whoever keeps it keeps its SHA-256 digest: a random secret of this length needs
//! no slow hash.
use std::fmt;

use farm::model::TokenDigest;
use sha2::{Digest, Sha256};

/// The length of the random part, in bytes.
const RANDOM_BYTES: usize = 32;

/// What a secret is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretKind {
    /// A program's.
    Token,
    /// Somebody's who logged in.
    Session,
    /// The first administrator's, to set a password with.
    FirstRun,
}

impl SecretKind {
    const ALL: [(Self, &'static str); 3] =
        [(Self::Token, "hwt_"), (Self::Session, "hws_"), (Self::FirstRun, "hwf_")];

    const fn prefix(self) -> &'static str {
        match self {
            Self::Token => "hwt_",
            Self::Session => "hws_",
            Self::FirstRun => "hwf_",
        }
    }

    /// What a secret claims to be; `None`: none of ours.
    pub(super) fn of(text: &str) -> Option<Self> {
        let well_formed = |prefix: &str| {
            let rest = text.strip_prefix(prefix)?;
            let hex = rest.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
            (hex && rest.len() == RANDOM_BYTES.saturating_mul(2)).then_some(())
        };
        Self::ALL.iter().find(|(_, prefix)| well_formed(prefix).is_some()).map(|(kind, _)| *kind)
    }
}

/// A new secret, on its way to the one who is told it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Makes one.
    ///
    /// # Errors
    /// [`NoRandomness`].
    pub(super) fn new(kind: SecretKind) -> Result<Self, NoRandomness> {
        let mut bytes = [0; RANDOM_BYTES];
        getrandom::fill(&mut bytes).map_err(|_| NoRandomness)?;
        let mut text = kind.prefix().to_owned();
        for byte in bytes {
            text.push_str(&format!("{byte:02x}"));
        }
        Ok(Self(text))
    }

    /// The secret itself, to be shown to whom it is for and to nobody else.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    pub(super) fn digest(&self) -> TokenDigest {
        digest(&self.0)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(not shown)")
    }
}

/// The operating system gives no random bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the operating system gives no random bytes: no token can be made")]
pub struct NoRandomness;

/// What is kept of a secret.
pub(super) fn digest(secret: &str) -> TokenDigest {
    TokenDigest(Sha256::digest(secret.as_bytes()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_is_known_by_its_kind_and_by_nothing_less() {
        for (kind, prefix) in SecretKind::ALL {
            let secret = Secret::new(kind).unwrap();
            assert!(secret.reveal().starts_with(prefix));
            assert_eq!(SecretKind::of(secret.reveal()), Some(kind));
            assert_eq!(SecretKind::of(&secret.reveal()[..60]), None);
            assert_eq!(SecretKind::of(&secret.reveal().to_uppercase()), None);
            assert!(!format!("{secret:?}").contains(&secret.reveal()[4..]));
        }
        assert_eq!(SecretKind::of(""), None);
    }

    #[test]
    fn no_two_secrets_are_the_same() {
        let (one, two) = (Secret::new(SecretKind::Token).unwrap(), Secret::new(SecretKind::Token).unwrap());
        assert_ne!(one, two);
        assert_ne!(one.digest(), two.digest());
        assert_eq!(one.digest(), digest(one.reveal()));
    }
}
