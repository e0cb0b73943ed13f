//! Administrators: who they are, what they may do where, and what they go by.
use serde::Serialize;

use super::choice::Choice;
use super::id::Id;
use super::places::{CollectionId, SiteId};
use super::text::{Description, Name, PasswordHash, UserName};
use super::values::Timestamp;

/// Names a user.
pub type UserId = Id<User>;
/// Names a token.
pub type TokenId = Id<Token>;
/// Names a grant.
pub type GrantId = Id<Grant>;

/// An administrator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct User {
    /// The name to log in with; no two users have the same.
    pub name: UserName,
    /// What somebody wrote about them.
    pub description: Description,
    /// What the password is checked against; `None`: no log-in by password.
    #[serde(serialize_with = "hidden")]
    pub password: Option<PasswordHash>,
    /// Whether the password must be changed before anything else.
    pub must_change_password: bool,
    /// A disabled user is let in by nothing, tokens included.
    pub disabled: bool,
}

/// Audit entries tell that there is a password, and not what it hashes to. A change of the password shows as the first
/// characters of a checksum of the hash.
fn hidden<S: serde::Serializer>(hash: &Option<PasswordHash>, to: S) -> Result<S::Ok, S::Error> {
    match hash {
        Some(hash) => to.serialize_str(&format!("set ({:08x})", crc32c::crc32c(hash.as_str().as_bytes()))),
        None => to.serialize_none(),
    }
}

/// What somebody may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// See.
    ReadOnly,
    /// See, and run devices: boot, restart, shut down, message.
    Operator,
    /// Everything, inside the scope.
    Administrator,
}

impl Choice for Role {
    const WHAT: &'static str = "a role";
    const RULE: &'static str = "read-only, operator or administrator";
    const ALL: &'static [(Self, &'static str)] = &[
        (Self::ReadOnly, "read-only"),
        (Self::Operator, "operator"),
        (Self::Administrator, "administrator"),
    ];
}

/// Where somebody may do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(tag = "in", content = "id", rename_all = "kebab-case")]
pub enum Scope {
    /// Everywhere.
    Farm,
    /// In one site and all its collections.
    Site(SiteId),
    /// In one collection.
    Collection(CollectionId),
}

/// That a user has a role somewhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Grant {
    /// Who.
    pub user: UserId,
    /// What.
    pub role: Role,
    /// Where; a user has one role in each place.
    pub scope: Scope,
}

/// The SHA-256 digest of a token. Tokens are long and random, so that no slow hash is needed.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenDigest(pub [u8; 32]);

impl std::fmt::Debug for TokenDigest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(not shown)")
    }
}

/// What a program goes by in a user's place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Token {
    /// Whose; it can do nothing that the user cannot.
    pub user: UserId,
    /// What the user calls it; no two tokens of a user have the same name.
    pub name: Name,
    /// What a token that is shown is compared with.
    #[serde(skip)]
    pub digest: TokenDigest,
    /// The most that it can do.
    pub role: Role,
    /// The only place where it can do it.
    pub scope: Scope,
    /// When it was made.
    pub made_at: Timestamp,
    /// When it ends; `None`: never.
    pub expires_at: Option<Timestamp>,
    /// It lets nobody in any more.
    pub disabled: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn password_hash_and_token_digest_do_not_reach_audit_entries() {
        let user = User {
            name: UserName::new("ann").unwrap(),
            description: Description::new("").unwrap(),
            password: Some(PasswordHash::new("$argon2id$v=19$m=1$abc$def").unwrap()),
            must_change_password: false,
            disabled: false,
        };
        let text = serde_json::to_string(&user).unwrap();
        assert!(text.contains("\"password\":\"set (") && !text.contains("argon2"), "{text}");
        let token = Token {
            user: Id::new(1).unwrap(),
            name: Name::new("ci").unwrap(),
            digest: TokenDigest([0xAB; 32]),
            role: Role::ReadOnly,
            scope: Scope::Farm,
            made_at: Timestamp::from_ms(0),
            expires_at: None,
            disabled: false,
        };
        let text = serde_json::to_string(&token).unwrap();
        assert!(!text.contains("171") && !text.contains("digest"), "{text}");
        assert!(!format!("{token:?}").contains("171"));
    }
}
