//! What can go wrong with the catalogue: in what is asked of it, and in the database below.
use crate::filter::BadTerm;
use crate::model::{BadValue, Fence, ObjectKind, Revision};

/// Why the catalogue did not do what it was asked to. Nothing of it was done then, unless
/// [`DatabaseError::OutcomeUnknown`] says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    /// There is no such object.
    #[error("there is no {kind} {name}")]
    NotFound {
        /// Of what kind.
        kind: ObjectKind,
        /// As it was asked for: a name in quotation marks, or `#` and a number.
        name: String,
    },
    /// Somebody changed the object since it was read.
    #[error(
        "{kind} {name} is at revision {found} by now, and the change was meant for revision {expected}: look at it again, \
         and repeat what you still want"
    )]
    Outdated {
        /// Of what kind.
        kind: ObjectKind,
        /// What it is called.
        name: String,
        /// What the change was meant for.
        expected: Revision,
        /// What it is.
        found: Revision,
    },
    /// Another object has what only one may have.
    #[error("the {what} {value} is taken by {kind} {by}")]
    Taken {
        /// Of what kind both are.
        kind: ObjectKind,
        /// What is taken: `name`, `MAC address`.
        what: &'static str,
        /// Which value.
        value: String,
        /// By which object.
        by: String,
    },
    /// The object names another one that is not there.
    #[error("the {field} of {kind} {name} is #{id}, and there is no such {to}")]
    DanglingReference {
        /// Of what kind the object is.
        kind: ObjectKind,
        /// What it is called.
        name: String,
        /// Its property.
        field: &'static str,
        /// Of what kind the other should be.
        to: ObjectKind,
        /// Which was named.
        id: i64,
    },
    /// Others need the object.
    #[error("{kind} {name} is in use by {by}")]
    InUse {
        /// Of what kind.
        kind: ObjectKind,
        /// What it is called.
        name: String,
        /// By whom.
        by: Holders,
    },
    /// A rule is against it.
    #[error(transparent)]
    Refused(#[from] crate::rules::Refusal),
    /// The lease is not there any more: it ended, or an administrator broke it.
    #[error("the lease with fencing number {0} has ended or was broken: whoever worked under it must stop")]
    LeaseLost(Fence),
    /// The idempotency key was used for another request.
    #[error("the idempotency key was used for another request before: take a new key for a new request")]
    KeyReused,
    /// The filter means nothing for this list.
    #[error(transparent)]
    BadFilter(#[from] BadTerm),
    /// The list cannot be ordered so.
    #[error("the list cannot be ordered by {field:?}: there are {known}")]
    BadOrder {
        /// The field.
        field: String,
        /// Those that it can be ordered by.
        known: String,
    },
    /// The cursor belongs to another list, or to none.
    #[error("the cursor does not belong to this list and order: begin at the first page")]
    BadCursor,
    /// The table cannot be imported.
    #[error(transparent)]
    BadTable(#[from] super::import::BadTable),
    /// Not a failure: it was only [rehearsed](super::Catalogue::rehearse).
    #[error("the change was only rehearsed")]
    Rehearsed,
    /// A value is not what it should be.
    #[error(transparent)]
    BadValue(#[from] BadValue),
    /// The database below.
    #[error(transparent)]
    Database(#[from] DatabaseError),
}

/// Who needs an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holders {
    /// Of each kind, how many, and the names of some.
    pub kinds: Vec<(ObjectKind, u64, Vec<String>)>,
}

impl std::fmt::Display for Holders {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (place, (kind, count, names)) in self.kinds.iter().enumerate() {
            if place > 0 {
                f.write_str(" and ")?;
            }
            let plural = if *count == 1 { "" } else { "s" };
            write!(f, "{count} {kind}{plural} ({}", names.join(", "))?;
            f.write_str(if *count > u64::try_from(names.len()).unwrap_or(u64::MAX) {
                ", ...)"
            } else {
                ")"
            })?;
        }
        Ok(())
    }
}

/// Why a database did not do its part.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// It cannot be reached. Devices boot from the last known state; nothing can be changed.
    #[error("the database {database} cannot be reached: {why}")]
    Unavailable {
        /// Which.
        database: String,
        /// What the system says.
        why: String,
    },
    /// Another program has held it for too long.
    #[error(
        "the database {database} was locked by another program for {waited_ms} ms: try again; if it lasts, find out which \
         program has it open"
    )]
    Busy {
        /// Which.
        database: String,
        /// How long we waited.
        waited_ms: u64,
    },
    /// There is no room.
    #[error("the disk of the database {database} is full: nothing was changed; make room and try again")]
    Full {
        /// Which.
        database: String,
    },
    /// It may only be read.
    #[error("the database {database} cannot be written to: {why}")]
    ReadOnly {
        /// Which.
        database: String,
        /// What the system says.
        why: String,
    },
    /// A later version of this program made it.
    #[error(
        "the database {database} has schema {found}, and this program knows schemas up to {known}: a newer version of the \
         program has used it; start that one, or restore a backup"
    )]
    Newer {
        /// Which.
        database: String,
        /// Its schema.
        found: i64,
        /// The newest that we know.
        known: i64,
    },
    /// Another program's.
    #[error("{database} is not a catalogue of ours: {why}")]
    NotOurs {
        /// Which.
        database: String,
        /// How we know.
        why: String,
    },
    /// What is in it cannot be.
    #[error("the database {database} is damaged: {why}: stop the server and restore a backup")]
    Damaged {
        /// Which.
        database: String,
        /// What is wrong.
        why: String,
    },
    /// The connection was lost while a change was being made lasting: it may have become true or not.
    #[error(
        "the connection to the database {database} was lost at the end of a change: look whether it was made before you \
         repeat it ({why})"
    )]
    OutcomeUnknown {
        /// Which.
        database: String,
        /// What the system says.
        why: String,
    },
    /// This database cannot do that.
    #[error("{what} is not done by this program for {database}: {instead}")]
    Unsupported {
        /// Which.
        database: String,
        /// What.
        what: &'static str,
        /// What to do instead.
        instead: &'static str,
    },
    /// Anything else that it says.
    #[error("the database {database} refused: {why}")]
    Other {
        /// Which.
        database: String,
        /// What it says.
        why: String,
    },
}
