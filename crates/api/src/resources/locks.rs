//! Locks: leases of what devices and tasks use. They end by themselves; an administrator can break one before.
use std::collections::HashMap;

use control::ControlError;
use farm::catalogue::{ListQuery, Reader};
use farm::filter::Filter;
use farm::model::{Fence, Lease, ObjectKind, Owner, Purpose, Sharing, Subject, Timestamp};
use farm::rules::permission::{Action, Place};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::object::{PageOf, Resource};
use super::vdisks::Vdisks;
use super::versions::Versions;
use crate::asked::Asked;
use crate::operation::Operation;
use crate::problem::Problem;
use crate::reply::Reply;
use crate::wire::{Names, Plain, Ref, Word};

/// The longest reason.
const MAX_REASON_CHARS: usize = 250;

pub(super) fn all() -> Vec<Operation> {
    vec![
        Operation::get("/v1/locks", "listLocks", "locks", "Lists who uses what.", list)
            .pages()
            .gives::<PageOf<LockAnswer>>(),
        Operation::get("/v1/locks/{lock}", "getLock", "locks", "Tells of a lock.", show)
            .gives::<LockAnswer>(),
        Operation::post(
            "/v1/locks/{lock}/break",
            "breakLock",
            "locks",
            "Takes a lock away from its owner, who is fenced off by that; gives the lock, and so who is hit.",
            break_lock,
        )
        .takes::<BreakBody>()
        .gives::<LockAnswer>(),
    ]
}

/// That somebody uses or changes something, until it ends.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Lock")]
struct LockAnswer {
    /// Names it; a later one always has a higher number.
    fence: i64,
    /// What.
    subject: SubjectAnswer,
    /// Whether others may too.
    sharing: Word<Sharing>,
    /// What for.
    purpose: Word<Purpose>,
    /// Who.
    owner: OwnerAnswer,
    /// The server that acts for the owner, and renews the lock.
    server: Ref,
    /// Since when.
    since: Plain<Timestamp>,
    /// When it ends unless it is renewed.
    until: Plain<Timestamp>,
    /// Where the vDisk is: administrators of this site may break it, beside those of the farm; null: those of the farm alone.
    site: Option<Ref>,
}

/// What is locked.
#[derive(Debug, Serialize, JsonSchema)]
struct SubjectAnswer {
    /// `chain`: the list of a vDisk's versions; `contents`: a version.
    kind: &'static str,
    /// The id of the vDisk or the version.
    id: i64,
    /// What it is called.
    name: String,
}

/// Who has a lock.
#[derive(Debug, Serialize, JsonSchema)]
struct OwnerAnswer {
    /// `device` or `task`.
    kind: &'static str,
    /// The id of the device or the task.
    id: i64,
    /// What it is called.
    name: String,
}

/// Where what is locked is: whoever administers that may break the lock. Of what is gone, it is the farm.
fn place(reader: &mut Reader<'_>, subject: Subject) -> Result<Place, ControlError> {
    let place = match subject {
        Subject::Chain(id) => reader.find(id)?.map(|vdisk| Vdisks::place(reader, &vdisk.value)),
        Subject::Contents(id) => reader.find(id)?.map(|version| Versions::place(reader, &version.value)),
    };
    Ok(place.transpose()?.unwrap_or(Place::Farm))
}

/// What many locks have in common is looked up once: a room of devices locks one version.
#[derive(Default)]
struct Known {
    names: Names,
    sites: HashMap<Subject, Option<Ref>>,
}

impl Known {
    fn site(&mut self, reader: &mut Reader<'_>, subject: Subject) -> Result<Option<Ref>, ControlError> {
        if let Some(site) = self.sites.get(&subject) {
            return Ok(site.clone());
        }
        let site = match place(reader, subject)? {
            Place::Farm => None,
            Place::Site(id) | Place::Collection(id, _) => Some(self.names.site(reader, id)?),
        };
        self.sites.insert(subject, site.clone());
        Ok(site)
    }
}

fn tell(known: &mut Known, reader: &mut Reader<'_>, lease: &Lease) -> Result<LockAnswer, ControlError> {
    let site = known.site(reader, lease.subject)?;
    let names = &mut known.names;
    let named = |reference: Ref| match reference {
        Ref::Both { name, .. } | Ref::Name(name) => name,
        Ref::Id(id) => id.to_string(),
    };
    let subject = match lease.subject {
        Subject::Chain(id) => {
            SubjectAnswer { kind: "chain", id: id.get(), name: named(names.vdisk(reader, id)?) }
        }
        Subject::Contents(id) => {
            SubjectAnswer { kind: "contents", id: id.get(), name: named(names.version(reader, id)?) }
        }
    };
    let owner = match lease.owner {
        Owner::Device(id) => {
            OwnerAnswer { kind: "device", id: id.get(), name: named(names.device(reader, id)?) }
        }
        Owner::Task(id) => OwnerAnswer { kind: "task", id: id.get(), name: format!("task {id}") },
    };
    Ok(LockAnswer {
        fence: lease.fence.get(),
        subject,
        sharing: Word(lease.sharing),
        purpose: Word(lease.purpose),
        owner,
        server: names.server(reader, lease.server)?,
        since: Plain(lease.since),
        until: Plain(lease.until),
        site,
    })
}

fn list(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let query = asked.list()?;
    let caller = asked.caller()?;
    let page = asked.control().read(|reader| {
        caller.may(Action::See, ObjectKind::Lease, Place::Farm)?;
        let page = reader.list_leases(&query)?;
        let mut known = Known::default();
        let items: Result<Vec<_>, _> =
            page.items.iter().map(|lease| tell(&mut known, reader, lease)).collect();
        Ok(PageOf { items: items?, next: page.next.map(|cursor| cursor.to_string()), total: page.total })
    })?;
    Reply::json(&page)
}

fn find(reader: &mut Reader<'_>, text: &str) -> Result<Lease, ControlError> {
    let missing =
        || ControlError::new(control::Code::NotFound, format!("there is no lock {text}, or no more"));
    let fence = text.parse().ok().and_then(|number| Fence::new(number).ok()).ok_or_else(missing)?;
    let query = ListQuery { filter: Filter::equal("fence", fence), limit: 1, ..ListQuery::default() };
    reader.list_leases(&query)?.items.pop().ok_or_else(missing)
}

fn show(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let (caller, wanted) = (asked.caller()?, asked.parameter("lock")?);
    let told = asked.control().read(|reader| {
        caller.may(Action::See, ObjectKind::Lease, Place::Farm)?;
        let lease = find(reader, wanted)?;
        tell(&mut Known::default(), reader, &lease)
    })?;
    Reply::json(&told)
}

/// Why a lock is broken.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct BreakBody {
    /// For the audit.
    #[schemars(length(min = 1, max = 250))]
    reason: String,
}

fn break_lock(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let BreakBody { reason } = asked.body()?;
    let reason = reason.trim();
    if reason.is_empty() || reason.chars().count() > MAX_REASON_CHARS {
        let why = format!("say why, in 1 to {MAX_REASON_CHARS} characters: the audit keeps it");
        return Err(ControlError::bad_value("reason", why).into());
    }
    let (caller, wanted) = (asked.caller()?, asked.parameter("lock")?);
    let told = asked.control().change(caller, |change| {
        let lease = find(change, wanted)?;
        caller.may(Action::Change, ObjectKind::Lease, place(change, lease.subject)?)?;
        let told = tell(&mut Known::default(), change, &lease)?;
        change.break_lease(lease.fence, reason)?;
        Ok(told)
    })?;
    Reply::json(&told)
}
