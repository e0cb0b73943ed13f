//! Audit entries: who changed what, when, from where, and how it was before.
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::choice::Choice;
use super::id::Id;
use super::people::Token;
use super::text::UserName;
use super::values::Timestamp;

/// The number of a change in the farm's history: 1, 2, 3 without gaps, in the order in which they became true.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ChangeNumber(pub i64);

impl ChangeNumber {
    /// Before the first change.
    pub const NONE: Self = Self(0);

    /// The one after it.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl std::fmt::Display for ChangeNumber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Who changes something, and from where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Actor {
    /// The user; `system` is the farm itself.
    pub user: UserName,
    /// The token that the user went by.
    pub token: Option<Id<Token>>,
    /// From where: an address, `local`, or the server's name; at most 100 bytes are kept.
    pub origin: String,
    /// The request that asked for it; at most 100 bytes are kept.
    pub request: Option<String>,
}

/// The kinds of objects that the catalogue holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ObjectKind {
    /// The farm.
    Farm,
    /// A site.
    Site,
    /// A server.
    Server,
    /// A store.
    Store,
    /// A vDisk.
    Vdisk,
    /// A version.
    Version,
    /// A collection.
    Collection,
    /// A device.
    Device,
    /// A persistent write cache.
    PersistentCache,
    /// A view.
    View,
    /// A user.
    User,
    /// A user's role.
    Grant,
    /// A token.
    Token,
    /// A task.
    Task,
    /// A lease.
    Lease,
}

impl Choice for ObjectKind {
    const WHAT: &'static str = "a kind of object";
    const RULE: &'static str = "farm, site, server, store, vdisk, version, collection, device, persistent-cache, view, \
        user, grant, token, task or lease";
    const ALL: &'static [(Self, &'static str)] = &[
        (Self::Farm, "farm"),
        (Self::Site, "site"),
        (Self::Server, "server"),
        (Self::Store, "store"),
        (Self::Vdisk, "vdisk"),
        (Self::Version, "version"),
        (Self::Collection, "collection"),
        (Self::Device, "device"),
        (Self::PersistentCache, "persistent-cache"),
        (Self::View, "view"),
        (Self::User, "user"),
        (Self::Grant, "grant"),
        (Self::Token, "token"),
        (Self::Task, "task"),
        (Self::Lease, "lease"),
    ];
}

impl std::fmt::Display for ObjectKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Vdisk => "vDisk",
            Self::PersistentCache => "persistent write cache",
            _ => self.word(),
        })
    }
}

/// One change, as it stays written.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AuditEntry {
    /// Its number.
    pub number: ChangeNumber,
    /// When.
    pub at: Timestamp,
    /// Who, from where.
    pub actor: Actor,
    /// What was done: `create`, `update`, `delete`, or what the operation is called.
    pub action: String,
    /// To what kind of object.
    pub kind: ObjectKind,
    /// To which; its name may belong to another one later, its number will not.
    pub object: i64,
    /// What it was called.
    pub name: String,
    /// The properties that changed, as they were; `None` of what was new.
    pub before: Option<Value>,
    /// The properties that changed, as they are now; `None` of what is gone.
    pub after: Option<Value>,
}
