//! Which devices somebody sees of what the running server tells: its own those who look after a site or a collection, all
//! of them those who look after the farm.
use std::collections::HashSet;
use std::sync::Arc;

use control::{Caller, Control, ControlError};
use farm::model::{AuditEntry, CollectionId, Device, DeviceId, DeviceName, Id, ObjectKind, Stored};
use farm::rules::permission::{Action, Place};
use farm::snapshot::Snapshot;
use serde_json::Value;

use crate::live::PresenceChange;

/// What somebody sees in the farm as it is at one moment.
pub struct Sight {
    snapshot: Arc<Snapshot>,
    /// The collections whose devices are seen; `None`: everything is.
    collections: Option<HashSet<CollectionId>>,
}

impl Sight {
    /// What a caller sees now.
    ///
    /// # Errors
    /// [`control::Code::Denied`] of who sees no device anywhere.
    pub fn of(caller: &Caller, control: &Control) -> Result<Self, ControlError> {
        let sight = Self::at(caller, control.snapshot());
        if sight.collections.as_ref().is_some_and(HashSet::is_empty) {
            caller.may(Action::See, ObjectKind::Device, Place::Farm)?;
        }
        Ok(sight)
    }

    /// What a caller sees of this, which may be nothing.
    pub(crate) fn at(caller: &Caller, snapshot: Arc<Snapshot>) -> Self {
        let sees = |place| caller.may(Action::See, ObjectKind::Device, place).is_ok();
        let collections = (!sees(Place::Farm)).then(|| {
            let seen = snapshot.collections().filter(|collection| sees(Place::of_collection(collection)));
            seen.map(|collection| collection.id).collect()
        });
        Self { snapshot, collections }
    }

    /// Whether that is of this snapshot.
    pub(crate) fn is_of(&self, snapshot: &Arc<Snapshot>) -> bool {
        Arc::ptr_eq(&self.snapshot, snapshot)
    }

    /// Whether that is everything.
    #[must_use]
    pub const fn all(&self) -> bool {
        self.collections.is_none()
    }

    fn collection(&self, collection: CollectionId) -> bool {
        self.collections.as_ref().is_none_or(|seen| seen.contains(&collection))
    }

    fn known(&self, device: Option<&Stored<Device>>) -> bool {
        self.all() || device.is_some_and(|device| self.collection(device.collection))
    }

    /// Whether the device of this name is among what is seen. One that nobody knows any more is seen by those who see all.
    #[must_use]
    pub fn device(&self, name: &str) -> bool {
        self.known(self.snapshot.device_named(name))
    }

    /// The name of a device that is seen.
    pub(crate) fn name(&self, device: DeviceId) -> Option<&DeviceName> {
        let device = self.snapshot.device(device);
        device.filter(|_| self.known(device)).map(|device| &device.name)
    }

    /// Whether a boot is one of a device that is seen.
    pub(crate) fn boot(&self, boot: &Value) -> bool {
        self.all() || boot.get("device").and_then(Value::as_str).is_some_and(|name| self.device(name))
    }

    /// Whether that a device came or went is to be heard of.
    pub(crate) fn presence(&self, change: &PresenceChange) -> bool {
        self.all() || self.device(&change.device)
    }

    /// Whether a change is to be heard of. Of what has places, what is gone has none any more.
    pub(crate) fn change(&self, entry: &AuditEntry) -> bool {
        match entry.kind {
            _ if self.all() => true,
            ObjectKind::Device => {
                let id = Id::new(entry.object).ok();
                id.is_some_and(|id: DeviceId| self.known(self.snapshot.device(id)))
            }
            ObjectKind::Collection => Id::new(entry.object).is_ok_and(|id| self.collection(id)),
            ObjectKind::PersistentCache => false,
            _ => true,
        }
    }
}
