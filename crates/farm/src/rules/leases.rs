//! Who excludes whom.
//!
//! Readers share; a writer is alone. A lease ends at its time unless its server renews it, so that what a crash leaves
//! behind clears itself. Clocks of servers differ a little: an owner stops at the time that was said, and others wait a
//! margin longer, so that the two cannot overlap while clocks are less than the margin apart.
//!
//! A lease on a version's contents need not name its parents: published versions never change, and a version that is
//! another's parent cannot be deleted.
use std::time::Duration;

use crate::model::{Lease, Owner, Purpose, Sharing, Subject, Timestamp};

/// How long a lease lasts without being renewed.
pub const TERM: Duration = Duration::from_secs(30);
/// How often a server renews its leases: two renewals may fail before one ends.
pub const RENEWED_EVERY: Duration = Duration::from_secs(10);
/// How far clocks of servers may differ.
pub const CLOCK_MARGIN: Duration = Duration::from_secs(5);

/// Who wants to use or change something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// What.
    pub subject: Subject,
    /// Whether others may too.
    pub sharing: Sharing,
    /// What for.
    pub purpose: Purpose,
    /// Who.
    pub owner: Owner,
}

/// Those who stand against it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Their leases.
    pub held: Vec<Lease>,
    /// What each owner is called, as far as it is known, in the same order.
    pub names: Vec<String>,
}

impl std::error::Error for Conflict {}

impl std::fmt::Display for Conflict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const SHOWN: usize = 5;
        f.write_str("it is in use by ")?;
        for (place, lease) in self.held.iter().take(SHOWN).enumerate() {
            let (kind, id) = match lease.owner {
                Owner::Device(id) => ("device", id.get()),
                Owner::Task(id) => ("task", id.get()),
            };
            let name = self.names.get(place).cloned().unwrap_or_else(|| format!("#{id}"));
            let comma = if place > 0 { ", " } else { "" };
            write!(
                f,
                "{comma}{kind} {name} ({}, since {}, lock {})",
                purpose(lease.purpose),
                lease.since,
                lease.fence
            )?;
        }
        match self.held.len().saturating_sub(SHOWN) {
            0 => f.write_str(": wait until it has ended, or break the lock"),
            more => write!(f, " and {more} more: wait until they have ended, or break the locks"),
        }
    }
}

fn purpose(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Boot => "runs on it",
        Purpose::Private => "runs on it and writes to it",
        Purpose::Maintenance => "changes it under maintenance",
        Purpose::Merge => "merges it",
        Purpose::Copy => "copies it",
        Purpose::Change => "makes or removes it",
    }
}

/// Whether a lease still gives its owner anything.
#[must_use]
pub fn is_held(lease: &Lease, now: Timestamp) -> bool {
    now < lease.until
}

/// Whether others must still respect a lease.
#[must_use]
pub fn stands(lease: &Lease, now: Timestamp) -> bool {
    now < lease.until.after(CLOCK_MARGIN)
}

/// Whether `wanted` goes together with the leases on its subject that `held` lists.
///
/// # Errors
/// [`Conflict`] with all that stand against it. A lease of the same owner does not: whoever starts again takes what it
/// had.
pub fn check(wanted: &Wanted, held: &[Lease], now: Timestamp) -> Result<(), Conflict> {
    let against = |lease: &&Lease| {
        lease.subject == wanted.subject
            && lease.owner != wanted.owner
            && stands(lease, now)
            && (lease.sharing == Sharing::Exclusive || wanted.sharing == Sharing::Exclusive)
    };
    let held: Vec<Lease> = held.iter().filter(against).cloned().collect();
    if held.is_empty() { Ok(()) } else { Err(Conflict { held, names: Vec::new() }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Fence, Id};
    use crate::rules::sample::at;

    fn lease(owner: i64, sharing: Sharing) -> Lease {
        Lease {
            fence: Fence::new(owner).unwrap(),
            subject: Subject::Contents(Id::new(1).unwrap()),
            sharing,
            purpose: Purpose::Boot,
            owner: Owner::Device(Id::new(owner).unwrap()),
            server: Id::new(9).unwrap(),
            since: at(0),
            until: at(30_000),
        }
    }

    fn wanted(owner: i64, sharing: Sharing) -> Wanted {
        let Lease { subject, sharing, purpose, owner, .. } = lease(owner, sharing);
        Wanted { subject, sharing, purpose, owner }
    }

    #[test]
    fn readers_share_and_a_writer_is_alone() {
        let (shared, exclusive) = (Sharing::Shared, Sharing::Exclusive);
        for (one, other, goes) in [
            (shared, shared, true),
            (shared, exclusive, false),
            (exclusive, shared, false),
            (exclusive, exclusive, false),
        ] {
            assert_eq!(check(&wanted(1, one), &[lease(2, other)], at(0)).is_ok(), goes, "{one:?} {other:?}");
            assert!(check(&wanted(1, one), &[lease(1, other)], at(0)).is_ok(), "its own");
        }
        let mut elsewhere = lease(2, exclusive);
        elsewhere.subject = Subject::Chain(Id::new(1).unwrap());
        assert!(check(&wanted(1, exclusive), &[elsewhere], at(0)).is_ok());
    }

    #[test]
    fn lease_ends_for_its_owner_before_it_ends_for_others() {
        let held = lease(2, Sharing::Exclusive);
        assert!(is_held(&held, at(29_999)) && !is_held(&held, at(30_000)));
        assert!(check(&wanted(1, Sharing::Shared), std::slice::from_ref(&held), at(34_999)).is_err());
        assert!(check(&wanted(1, Sharing::Shared), &[held], at(35_000)).is_ok());
    }

    #[test]
    fn refusal_names_who_stands_against_it() {
        let held: Vec<Lease> = (2..=8).map(|owner| lease(owner, Sharing::Shared)).collect();
        let mut conflict = check(&wanted(1, Sharing::Exclusive), &held, at(0)).unwrap_err();
        conflict.names = vec!["lab-02".to_owned()];
        let text = conflict.to_string();
        assert!(
            text.contains("device lab-02 (runs on it, since 1970-01-01T00:00:00.000Z, lock 2), device #3"),
            "{text}"
        );
        assert!(text.ends_with("and 2 more: wait until they have ended, or break the locks"), "{text}");
    }
}
