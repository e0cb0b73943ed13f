//! Log-ins at boot menus: the users of the farm, with the role that running the device takes.
use std::net::IpAddr;
use std::sync::Arc;

use control::people::{Origin, People};
use farm::model::{DeviceId, ObjectKind};
use farm::rules::permission::{Action, Place};
use netboot::director::LogIn;

use crate::catalogue::FarmLink;
use crate::stream::director::LogIns;

/// What the audit and the log call the request.
const REQUEST: &str = "boot menu";

/// The users of the farm.
#[derive(Debug)]
pub(super) struct MenuLogIns {
    pub(super) farm: Arc<FarmLink>,
    pub(super) people: Arc<People>,
}

impl LogIns for MenuLogIns {
    fn check(&self, device: DeviceId, who: &LogIn, from: IpAddr) -> Result<(), String> {
        let control = self.farm.control().ok_or("the farm's database cannot be used")?;
        let origin = Origin { address: from, request: Some(REQUEST.to_owned()) };
        let found = self.people.check_password(&control, &who.user, &who.password, &origin);
        let identity = found.map_err(|error| error.to_string())?;
        let snapshot = self.farm.snapshot();
        let collection = snapshot.device(device).and_then(|device| snapshot.collection(device.collection));
        let collection = collection.ok_or("the device is gone")?;
        let place = Place::of_collection(collection);
        identity.caller.may(Action::Operate, ObjectKind::Device, place).map_err(|denied| denied.to_string())
    }
}
