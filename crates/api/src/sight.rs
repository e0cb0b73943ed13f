//! Which devices somebody sees of what the running server tells: its own those who look after a site or a collection, all
//! of them those who look after the farm.
use std::sync::Arc;

use control::{Caller, Control, ControlError};
use farm::model::{AuditEntry, Collection, Device, DeviceId, DeviceName, ObjectKind, Stored};
use farm::rules::permission::{Action, Place};
use farm::snapshot::Snapshot;
use serde_json::Value;

use crate::live::PresenceChange;

/// What somebody sees at one moment.
pub(crate) struct Sight {
    caller: Caller,
    snapshot: Arc<Snapshot>,
    /// Whether that is everything.
    pub(crate) all: bool,
}

impl Sight {
    /// What a caller sees now.
    ///
    /// # Errors
    /// [`control::Code::Denied`] of who sees no device anywhere.
    pub(crate) fn of(caller: &Caller, control: &Control) -> Result<Self, ControlError> {
        let snapshot = control.snapshot();
        let places = snapshot.collections().map(Place::of_collection);
        caller.may_in_any(Action::See, ObjectKind::Device, places)?;
        let all = caller.may(Action::See, ObjectKind::Device, Place::Farm).is_ok();
        Ok(Self { caller: caller.clone(), snapshot, all })
    }

    fn collection(&self, collection: &Stored<Collection>) -> bool {
        self.caller.may(Action::See, ObjectKind::Device, Place::of_collection(collection)).is_ok()
    }

    fn known(&self, device: Option<&Stored<Device>>) -> bool {
        let collection = device.and_then(|device| self.snapshot.collection(device.collection));
        self.all || collection.is_some_and(|collection| self.collection(collection))
    }

    /// Whether the device of this name is among what is seen. One that nobody knows any more is seen by those who see all.
    pub(crate) fn device(&self, name: &str) -> bool {
        self.known(self.snapshot.device_named(name))
    }

    /// The name of a device that is seen.
    pub(crate) fn name(&self, device: DeviceId) -> Option<&DeviceName> {
        let device = self.snapshot.device(device);
        device.filter(|_| self.known(device)).map(|device| &device.name)
    }

    /// Whether a boot is one of a device that is seen.
    pub(crate) fn boot(&self, boot: &Value) -> bool {
        self.all || boot.get("device").and_then(Value::as_str).is_some_and(|name| self.device(name))
    }

    /// Whether that a device came or went is to be heard of.
    pub(crate) fn presence(&self, change: &PresenceChange) -> bool {
        self.all || self.device(&change.device)
    }

    /// Whether a change is to be heard of. Of what has places, what is gone has none any more.
    pub(crate) fn change(&self, entry: &AuditEntry) -> bool {
        let is = |id: i64| id == entry.object;
        match entry.kind {
            _ if self.all => true,
            ObjectKind::Device => self.known(self.snapshot.devices().find(|device| is(device.id.get()))),
            ObjectKind::Collection => {
                let mut all = self.snapshot.collections();
                all.any(|collection| is(collection.id.get()) && self.collection(collection))
            }
            ObjectKind::PersistentCache => false,
            _ => true,
        }
    }
}
