//! What somebody may do where, as the REST API asks it: of an object, in the place that it is in; of a new one, in each place
//! that it could be made in.
use control::Caller;
use farm::model::{Choice as _, CollectionId, Id, ObjectKind, StoreId};
use farm::rules::permission::{Action, Denied, Place, needed};
use farm::snapshot::Snapshot;
use serde_json::Value;

use crate::ask::Refusal;
use crate::door::Visit;

/// What objects of a kind lie in: the role that they take is asked for there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Within {
    /// The farm alone.
    Farm,
    /// A site.
    Site,
    /// A site, or none and so the farm.
    SiteOrFarm,
    /// A collection.
    Collection,
    /// A store, and so what that lies in.
    Store,
}

impl Within {
    /// Those of a kind.
    pub(crate) const fn of(kind: ObjectKind) -> Self {
        match kind {
            ObjectKind::Server | ObjectKind::Collection => Self::Site,
            ObjectKind::Store | ObjectKind::View => Self::SiteOrFarm,
            ObjectKind::Device => Self::Collection,
            ObjectKind::Vdisk | ObjectKind::Version => Self::Store,
            _ => Self::Farm,
        }
    }

    /// As lists of the REST API call what is chosen from; empty: nothing is.
    pub(crate) const fn list(self) -> &'static str {
        match self {
            Self::Farm => "",
            Self::Site | Self::SiteOrFarm => "sites",
            Self::Collection => "collections",
            Self::Store => "stores",
        }
    }

    /// The place that a choice stands for; `None` was chosen: the farm.
    pub(crate) fn place(self, snapshot: &Snapshot, chosen: Option<i64>) -> Place {
        let Some(id) = chosen else { return Place::Farm };
        match self {
            Self::Farm => Place::Farm,
            Self::Site | Self::SiteOrFarm => Place::of_site(Id::new(id).ok()),
            Self::Collection => {
                let collection = Id::new(id).ok().and_then(|id: CollectionId| snapshot.collection(id));
                collection.map_or(Place::Farm, Place::of_collection)
            }
            Self::Store => {
                let store = Id::new(id).ok().and_then(|id: StoreId| snapshot.store(id));
                Place::of_site(store.and_then(|store| store.site))
            }
        }
    }

    /// All places that there are to be chosen, but the farm.
    fn places(self, snapshot: &Snapshot) -> Box<dyn Iterator<Item = Place> + '_> {
        match self {
            Self::Farm => Box::new(std::iter::empty()),
            Self::Site | Self::SiteOrFarm => Box::new(snapshot.sites().map(|site| Place::Site(site.id))),
            Self::Collection => Box::new(snapshot.collections().map(Place::of_collection)),
            Self::Store => Box::new(snapshot.stores().map(|store| Place::of_site(store.site))),
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::Farm => "in the whole farm",
            Self::Site | Self::SiteOrFarm => "in a site",
            Self::Collection => "in a collection",
            Self::Store => "in the site of a store",
        }
    }
}

/// Whether somebody may do this there; if not, why. `None`: nobody has logged in.
pub(crate) fn may(
    caller: Option<&Caller>,
    action: Action,
    kind: ObjectKind,
    place: Place,
) -> Result<(), String> {
    let caller = caller.ok_or("nobody is logged in")?;
    caller.may(action, kind, place).map_err(|denied| denied.to_string())
}

impl Visit {
    /// Whether whoever looks may do this there; if not, why.
    pub(crate) fn may(&self, action: Action, kind: ObjectKind, place: Place) -> Result<(), String> {
        may(self.caller(), action, kind, place)
    }

    /// Whether there is at least one place in which they may: in the whole farm, or where objects of the kind can lie.
    pub(crate) fn may_somewhere(&self, action: Action, kind: ObjectKind) -> Result<(), String> {
        let (within, snapshot) = (Within::of(kind), self.console.control.snapshot());
        let Some(who) = &self.who else { return self.may(action, kind, Place::Farm) };
        if who.caller.may_in_any(action, kind, within.places(&snapshot)).is_ok() {
            return Ok(());
        }
        let role = needed(action, kind, Place::Farm).role.word();
        let (place, who) = (within.words().to_owned(), format!("user {}", who.user.name));
        Err(Denied::Role { role, place, who }.to_string())
    }

    /// Whether they may make an object of a kind somewhere.
    pub(crate) fn may_make(&self, kind: ObjectKind) -> Result<(), String> {
        self.may_somewhere(Action::Change, kind)
    }

    /// Whether they may make one in what was chosen; `None`: in the whole farm.
    pub(crate) fn may_make_in(&self, kind: ObjectKind, chosen: Option<i64>) -> Result<(), String> {
        let place = Within::of(kind).place(&self.console.control.snapshot(), chosen);
        self.may(Action::Change, kind, place)
    }

    /// Whether they may change this object, as the API told of it.
    pub(crate) fn may_change(&self, kind: ObjectKind, object: &Value) -> Result<(), String> {
        let id = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64);
        let snapshot = self.console.control.snapshot();
        let place = match kind {
            ObjectKind::Collection => Within::Collection.place(&snapshot, id("/id")),
            ObjectKind::PersistentCache => {
                let device = id("/device/id").and_then(|id| Id::new(id).ok());
                let device = device.and_then(|id| snapshot.device(id));
                Within::Collection.place(&snapshot, device.map(|device| device.collection.get()))
            }
            _ => match Within::of(kind) {
                Within::Farm => Place::Farm,
                within @ (Within::Site | Within::SiteOrFarm) => within.place(&snapshot, id("/site/id")),
                within @ Within::Collection => within.place(&snapshot, id("/collection/id")),
                within @ Within::Store => within.place(&snapshot, id("/store/id")),
            },
        };
        self.may(Action::Change, kind, place)
    }
}

/// What stands in the way, as a page.
pub(crate) fn or_refuse(may: Result<(), String>) -> Result<(), Refusal> {
    may.map_err(|why| Refusal::new(axum::http::StatusCode::FORBIDDEN, why))
}
