//! Locks: leases of what devices and tasks use. They end by themselves; an administrator can break one before.
use std::collections::{BTreeSet, HashMap};

use control::ControlError;
use farm::catalogue::{ListQuery, MAX_PAGE, Reader};
use farm::filter::Filter;
use farm::model::{Choice as _, Fence, Lease, ObjectKind, Owner, Purpose, Sharing, Subject, Timestamp};
use farm::rules::permission::{Action, Place};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::object::{PageOf, Resource, any};
use super::vdisks::Vdisks;
use super::versions::Versions;
use crate::asked::Asked;
use crate::live::{DeviceStatus, KeptOut, KeptOutStatus, LockOwner};
use crate::operation::{Operation, ParameterKind};
use crate::problem::Problem;
use crate::reply::Reply;
use crate::sight::Sight;
use crate::wire::{Names, Plain, Ref, Word};

/// The longest reason.
const MAX_REASON_CHARS: usize = 250;
/// How many of the devices that a lock keeps out are told with it; all are counted.
const MAX_TOLD: usize = 20;
/// How many locks are asked for at once that keep devices out, oldest first: a filter names each.
const MAX_KEEPING_OUT: usize = 500;

pub(super) fn all() -> Vec<Operation> {
    vec![
        Operation::get("/v1/locks", "listLocks", "locks", "Lists who uses what.", list)
            .pages()
            .query(
                "keeping_out",
                ParameterKind::Flag,
                "only those that devices of this server could not log in for of late",
            )
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
    owner: LockOwner,
    /// The server that acts for the owner, and renews the lock.
    server: Ref,
    /// Since when.
    since: Plain<Timestamp>,
    /// When it ends unless it is renewed.
    until: Plain<Timestamp>,
    /// Where the vDisk is: administrators of this site may break it, beside those of the farm; null: those of the farm alone.
    site: Option<Ref>,
    /// How many devices of this server could not log in for it of late, as far as the caller sees them.
    keeps_out: usize,
    /// Those of them that wait longest: at most 20.
    kept_out: Vec<KeptOutAnswer>,
}

/// A device that could not log in.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "KeptOutDevice")]
struct KeptOutAnswer {
    /// Which.
    device: Ref,
    /// When it was refused first.
    since: Plain<Timestamp>,
    /// When it was refused last.
    last: Plain<Timestamp>,
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
    /// The devices that could not log in, by the leases that they were refused for.
    kept_out: HashMap<Fence, Vec<KeptOut>>,
}

impl Known {
    /// With the devices that the caller sees.
    fn of(asked: &Asked<'_>) -> Result<Self, Problem> {
        let mut kept_out = HashMap::<Fence, Vec<KeptOut>>::new();
        let all = asked.api.live.kept_out();
        // Whoever sees no device is told of none.
        let sight = Sight::of(asked.caller()?, asked.control()).ok();
        for one in
            all.into_iter().filter(|one| sight.as_ref().is_some_and(|sight| sight.name(one.device).is_some()))
        {
            for fence in &one.fences {
                kept_out.entry(*fence).or_default().push(one.clone());
            }
        }
        Ok(Self { kept_out, ..Self::default() })
    }

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
    let subject = match lease.subject {
        Subject::Chain(id) => {
            SubjectAnswer { kind: "chain", id: id.get(), name: named(names.vdisk(reader, id)?) }
        }
        Subject::Contents(id) => {
            SubjectAnswer { kind: "contents", id: id.get(), name: named(names.version(reader, id)?) }
        }
    };
    let owner = owner(names, reader, lease.owner)?;
    let waiting = known.kept_out.get(&lease.fence).map(Vec::as_slice).unwrap_or_default();
    let mut kept_out = Vec::new();
    for KeptOut { device, since, last, .. } in waiting.iter().take(MAX_TOLD) {
        let device = names.device(reader, *device)?;
        kept_out.push(KeptOutAnswer { device, since: Plain(*since), last: Plain(*last) });
    }
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
        keeps_out: waiting.len(),
        kept_out,
    })
}

fn named(reference: Ref) -> String {
    match reference {
        Ref::Both { name, .. } | Ref::Name(name) => name,
        Ref::Id(id) => id.to_string(),
    }
}

fn owner(names: &mut Names, reader: &mut Reader<'_>, owner: Owner) -> Result<LockOwner, ControlError> {
    let (kind, id, name) = match owner {
        Owner::Device(id) => ("device", id.get(), named(names.device(reader, id)?)),
        Owner::Task(id) => ("task", id.get(), format!("task {id}")),
    };
    Ok(LockOwner { kind: kind.to_owned(), id, name })
}

fn list(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let mut query = asked.list()?;
    let (caller, mut known) = (asked.caller()?, Known::of(asked)?);
    if asked.flag("keeping_out")? {
        let mut fences: Vec<Fence> = known.kept_out.keys().copied().collect();
        fences.sort_unstable();
        query.filter = any_of(fences.into_iter().take(MAX_KEEPING_OUT)).and(query.filter);
    }
    let page = asked.control().read(|reader| {
        caller.may(Action::See, ObjectKind::Lease, Place::Farm)?;
        let page = reader.list_leases(&query)?;
        let items: Result<Vec<_>, _> =
            page.items.iter().map(|lease| tell(&mut known, reader, lease)).collect();
        Ok(PageOf { items: items?, next: page.next.map(|cursor| cursor.to_string()), total: page.total })
    })?;
    Reply::json(&page)
}

/// The leases of these fences.
fn any_of(fences: impl Iterator<Item = Fence>) -> Filter {
    any(fences.map(|fence| Filter::equal("fence", fence)).collect())
}

/// Says of devices by whom each is kept out, while that has its lock.
pub(super) fn tell_kept_out(asked: &Asked<'_>, devices: &mut [DeviceStatus]) -> Result<(), Problem> {
    let (snapshot, all) = (asked.control().snapshot(), asked.api.live.kept_out());
    let named = |one: &KeptOut| Some((snapshot.device(one.device)?.name.to_string(), one.clone()));
    let kept_out: HashMap<String, KeptOut> = all.iter().filter_map(named).collect();
    let told = |device: &&mut DeviceStatus| kept_out.contains_key(&device.name);
    let mut devices: Vec<&mut DeviceStatus> = devices.iter_mut().filter(told).collect();
    if devices.is_empty() {
        return Ok(());
    }
    let of = |device: &DeviceStatus| kept_out.get(&device.name);
    let fences: BTreeSet<Fence> =
        devices.iter().filter_map(|device| of(device)).flat_map(|one| &one.fences).copied().collect();
    let owners: HashMap<Fence, (LockOwner, Purpose)> = asked.control().read(|reader| {
        let mut names = Names::default();
        let filter = any_of(fences.iter().copied().take(MAX_KEEPING_OUT));
        let query = ListQuery { filter, limit: MAX_PAGE, ..ListQuery::default() };
        let leases = reader.list_leases(&query)?.items;
        let told = leases
            .iter()
            .map(|lease| Ok((lease.fence, (owner(&mut names, reader, lease.owner)?, lease.purpose))));
        told.collect()
    })?;
    for device in &mut devices {
        let Some(one) = kept_out.get(&device.name) else { continue };
        let held = one.fences.iter().find_map(|fence| Some((*fence, owners.get(fence)?)));
        device.kept_out = held.map(|(fence, (owner, purpose))| KeptOutStatus {
            lock: fence.get(),
            owner: owner.clone(),
            purpose: purpose.word().to_owned(),
            since: one.since.to_string(),
            last: one.last.to_string(),
        });
    }
    Ok(())
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
    let mut known = Known::of(asked)?;
    let told = asked.control().read(|reader| {
        caller.may(Action::See, ObjectKind::Lease, Place::Farm)?;
        let lease = find(reader, wanted)?;
        tell(&mut known, reader, &lease)
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
    let mut known = Known::of(asked)?;
    let told = asked.control().change(caller, |change| {
        let lease = find(change, wanted)?;
        caller.may(Action::Change, ObjectKind::Lease, place(change, lease.subject)?)?;
        let told = tell(&mut known, change, &lease)?;
        change.break_lease(lease.fence, reason)?;
        Ok(told)
    })?;
    Reply::json(&told)
}
