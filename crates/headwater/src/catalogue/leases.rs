//! The leases of the devices that this server serves: taken when a boot opens its disk, renewed while it runs, given back
//! when it has ended.
//!
//! A device that reads has a share of its version, one that writes has it alone ([`farm::rules::leases`] says who excludes
//! whom). Readers go on without a lease while the database is gone: what they read does not change, and nothing can be
//! deleted meanwhile. A writer stops when its lease has ended: another server may have it by then.
//!
//! What a server leaves behind that died stands under its name, so that its next process renews it: the machines go on, and
//! come back. What none of them has claimed within [`CLAIMED_WITHIN`] is given back.
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::live::KeptOut;
use farm::catalogue::{CatalogueError, Change, ListQuery, MAX_PAGE};
use farm::filter::Filter;
use farm::model::{DeviceId, Fence, Lease, Owner, Sharing, Timestamp};
use farm::rules::Refusal;
use farm::rules::leases::{TERM, Wanted};

use super::kept_out::KeptOutDevices;
use super::{FarmLink, now};

/// How long the machines of a server that died have to come back: as long as initiators try at the most once.
pub const CLAIMED_WITHIN: Duration = Duration::from_secs(120);

/// The leases.
#[derive(Debug)]
pub struct Leases {
    farm: Arc<FarmLink>,
    held: Mutex<Held>,
    /// Held for moments.
    kept_out: Mutex<KeptOutDevices>,
}

#[derive(Debug)]
struct Held {
    leases: HashMap<DeviceId, OneLease>,
    /// When all were renewed last.
    renewed: Timestamp,
    started: Timestamp,
    /// Whether those of the process before were given back.
    swept: bool,
}

#[derive(Clone, Copy, Debug)]
struct OneLease {
    wanted: Wanted,
    /// `None`: the database was gone when it was wanted.
    has: Option<(Fence, Timestamp)>,
}

/// What a look at what a lease is for says: that it is so, or why not.
pub type Checked = Result<Result<(), String>, CatalogueError>;

/// A device that may not use its version any longer, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Which.
    pub device: DeviceId,
    /// Why, in words.
    pub why: String,
}

impl Leases {
    /// None yet.
    #[must_use]
    pub fn new(farm: Arc<FarmLink>) -> Self {
        let now = now();
        let held = Held { leases: HashMap::new(), renewed: now, started: now, swept: false };
        Self { farm, held: Mutex::new(held), kept_out: Mutex::default() }
    }

    /// Takes the lease that a device needs, in place of the one that it has. `check` looks, in the same transaction,
    /// whether what it is for is still so, and writes what belongs to it. Waits for the database.
    ///
    /// # Errors
    /// Who stands against it, what `check` says; or, of an exclusive one, that the database is gone.
    pub fn take(
        &self,
        device: DeviceId,
        wanted: Wanted,
        mut check: impl FnMut(&mut Change<'_>) -> Checked,
    ) -> Result<(), String> {
        let server = self.farm.server();
        let before = self.held().leases.get(&device).and_then(|lease| lease.has);
        let taken = self.farm.change(|change| {
            if let Err(refused) = check(change)? {
                return Ok(Err(refused));
            }
            let lease = change.lease(&wanted, server)?;
            if let Some((fence, _)) = before.filter(|(fence, _)| *fence != lease.fence) {
                change.end_lease(fence)?;
            }
            Ok(Ok(lease))
        });
        let has = match taken {
            Ok(Ok(lease)) => Some((lease.fence, lease.until)),
            Ok(Err(why)) => return Err(why),
            Err(CatalogueError::Database(error)) if wanted.sharing == Sharing::Shared => {
                tracing::warn!(%error, "a device runs without a lease: the farm's database cannot be used");
                None
            }
            Err(error) => {
                if let CatalogueError::Refused(Refusal::InUse(conflict)) = &error {
                    self.kept_out_devices().refuse(device, conflict, now());
                }
                return Err(error.to_string());
            }
        };
        self.kept_out_devices().let_in(device);
        self.held().leases.insert(device, OneLease { wanted, has });
        Ok(())
    }

    /// Gives a device's lease back. Waits for the database; without it, the lease ends by itself.
    pub fn give_back(&self, device: DeviceId) {
        let Some(OneLease { has: Some((fence, _)), .. }) = self.held().leases.remove(&device) else { return };
        if let Err(error) = self.farm.change(|change| change.end_lease(fence)) {
            tracing::warn!(%error, lease = %fence, "a lease could not be given back: it ends by itself");
        }
    }

    /// Renews all; tells which devices have lost theirs. To be called every [`RENEWED_EVERY`](farm::rules::leases::RENEWED_EVERY).
    #[must_use]
    pub fn renew(&self) -> Vec<Lost> {
        let server = self.farm.server();
        // One that is taken while these are renewed is not among them, and is not judged.
        let (sweep, judged) = {
            let held = self.held();
            let fences: HashSet<Option<Fence>> =
                held.leases.values().map(|lease| lease.has.map(|(fence, _)| fence)).collect();
            (!held.swept && now() > held.started.after(CLAIMED_WITHIN), fences)
        };
        let renewed = self.farm.change(|change| {
            let fences = change.renew_leases(server)?;
            let stale = if sweep { self.give_back_unclaimed(change)? } else { 0 };
            Ok((fences, stale))
        });
        match renewed {
            Ok((fences, stale)) => {
                if stale > 0 {
                    tracing::info!(leases = stale, "leases of machines that did not come back given back");
                }
                self.held().swept |= sweep;
                self.after_renewal(&fences.into_iter().collect(), &judged)
            }
            Err(error) => {
                tracing::warn!(%error, "leases cannot be renewed");
                self.ended()
            }
        }
    }

    /// Gives back what devices had by an earlier process of this server, and none has taken again.
    fn give_back_unclaimed(&self, change: &mut Change<'_>) -> Result<usize, CatalogueError> {
        let ours = Filter::equal("server-id", self.farm.server()).and(Filter::equal("owner-kind", "device"));
        let mut query = ListQuery { filter: ours, limit: MAX_PAGE, ..ListQuery::default() };
        let mut stale: Vec<Fence> = Vec::new();
        loop {
            let page = change.list_leases(&query)?;
            let held = self.held();
            let claimed = |lease: &&Lease| match lease.owner {
                Owner::Device(device) => held.leases.contains_key(&device),
                Owner::Task(_) => true,
            };
            stale.extend(page.items.iter().filter(|lease| !claimed(lease)).map(|lease| lease.fence));
            query.after = page.next;
            if query.after.is_none() {
                break;
            }
        }
        stale.iter().try_for_each(|fence| change.end_lease(*fence))?;
        Ok(stale.len())
    }

    fn after_renewal(&self, renewed: &HashSet<Fence>, judged: &HashSet<Option<Fence>>) -> Vec<Lost> {
        let (now, mut lost, mut again) = (now(), Vec::new(), Vec::new());
        {
            let mut held = self.held();
            // Whoever was not away for a whole term and misses one had it broken.
            let was_away = held.renewed.until(now) >= TERM;
            held.renewed = now;
            held.leases.retain(|device, lease| {
                let fence = lease.has.map(|(fence, _)| fence);
                if fence.is_some_and(|fence| renewed.contains(&fence)) {
                    lease.has = fence.map(|fence| (fence, now.after(TERM)));
                    return true;
                }
                if !judged.contains(&fence) {
                    return true;
                }
                let shared = lease.wanted.sharing == Sharing::Shared;
                if shared && (was_away || lease.has.is_none()) {
                    again.push((*device, lease.wanted));
                    return true;
                }
                let why = "its lease was broken, or another has it: restart the device".to_owned();
                lost.push(Lost { device: *device, why });
                false
            });
        }
        for (device, wanted) in again {
            if let Err(why) = self.take(device, wanted, |_| Ok(Ok(()))) {
                self.held().leases.remove(&device);
                lost.push(Lost { device, why });
            }
        }
        lost
    }

    /// Writers whose leases have ended without having been renewed.
    fn ended(&self) -> Vec<Lost> {
        let (now, mut lost) = (now(), Vec::new());
        self.held().leases.retain(|device, lease| {
            let ended = lease.has.is_some_and(|(_, until)| until <= now);
            if !ended || lease.wanted.sharing == Sharing::Shared {
                return true;
            }
            let why = "its lease could not be renewed in time: restart the device".to_owned();
            lost.push(Lost { device: *device, why });
            false
        });
        lost
    }

    /// The devices that were refused theirs of late, for the leases of others; who waits longest first.
    #[must_use]
    pub fn kept_out(&self) -> Vec<KeptOut> {
        self.kept_out_devices().list(now())
    }

    fn kept_out_devices(&self) -> MutexGuard<'_, KeptOutDevices> {
        self.kept_out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
