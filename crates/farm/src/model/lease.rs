//! Leases: who uses or changes what, until when. What others call a lock, but one that ends by itself.
//!
//! Every lease has a [`Fence`], a number that is given out once. Whoever writes under a lease shows its fence; an owner
//! that lost its lease and does not know it yet shows a number that is no longer listed, and is refused.
use serde::Serialize;

use super::bad_value::BadValue;
use super::choice::Choice;
use super::device::DeviceId;
use super::places::ServerId;
use super::task::TaskId;
use super::values::Timestamp;
use super::vdisk::{VdiskId, VersionId};

/// Names a lease; a later one always has a higher number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Fence(i64);

impl Fence {
    /// From a number, which must be positive.
    ///
    /// # Errors
    /// [`BadValue`].
    pub fn new(number: i64) -> Result<Self, BadValue> {
        if number > 0 {
            Ok(Self(number))
        } else {
            Err(BadValue::number("a fencing number", number, "a number from 1 on"))
        }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> i64 {
        self.0
    }
}

impl std::fmt::Display for Fence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What is leased.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(tag = "kind", content = "id", rename_all = "kebab-case")]
pub enum Subject {
    /// The list of a vDisk's versions: held by what adds to or takes from it, so that two merges do not meet. Devices
    /// do not need it to boot.
    Chain(VdiskId),
    /// The contents of a version, with those of its parents.
    Contents(VersionId),
}

/// Whether others may have it too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sharing {
    /// Others may read too.
    Shared,
    /// Nobody else.
    Exclusive,
}

impl Choice for Sharing {
    const WHAT: &'static str = "a sharing";
    const RULE: &'static str = "shared or exclusive";
    const ALL: &'static [(Self, &'static str)] = &[(Self::Shared, "shared"), (Self::Exclusive, "exclusive")];
}

/// What for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// A device runs on it, with a write cache.
    Boot,
    /// A device runs on a private vDisk.
    Private,
    /// A maintenance device changes it.
    Maintenance,
    /// It is merged.
    Merge,
    /// It is copied, exported, converted or checked.
    Copy,
    /// It is made, imported or deleted.
    Change,
}

impl Choice for Purpose {
    const WHAT: &'static str = "a purpose of a lease";
    const RULE: &'static str = "boot, private, maintenance, merge, copy or change";
    const ALL: &'static [(Self, &'static str)] = &[
        (Self::Boot, "boot"),
        (Self::Private, "private"),
        (Self::Maintenance, "maintenance"),
        (Self::Merge, "merge"),
        (Self::Copy, "copy"),
        (Self::Change, "change"),
    ];
}

/// Who has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(tag = "kind", content = "id", rename_all = "kebab-case")]
pub enum Owner {
    /// A device that runs.
    Device(DeviceId),
    /// A task.
    Task(TaskId),
}

/// That somebody uses or changes something, until it ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Lease {
    /// Names it.
    pub fence: Fence,
    /// What.
    pub subject: Subject,
    /// Whether others may too.
    pub sharing: Sharing,
    /// What for.
    pub purpose: Purpose,
    /// Who.
    pub owner: Owner,
    /// The server that acts for the owner, and renews the lease.
    pub server: ServerId,
    /// Since when.
    pub since: Timestamp,
    /// When it ends unless it is renewed.
    pub until: Timestamp,
}
