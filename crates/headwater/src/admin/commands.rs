//! Commands for the systems of devices.
use ::api::guest_commands::{CommandStatus, CommandWanted};
use control::{Code, ControlError};
use vdisk::BootId;

use super::Admin;
use crate::config::DeviceName;
use crate::timeline::presence::{Presence, presence};

/// Gives the boots that run on these devices a command.
pub(super) fn give(
    admin: &Admin,
    devices: &[farm::model::DeviceName],
    wanted: &CommandWanted,
) -> Result<CommandStatus, ControlError> {
    let named = |name: &farm::model::DeviceName| {
        let name = DeviceName::parse(name.as_str()).ok()?;
        let boot = running(admin, &name);
        Some((name, boot))
    };
    let devices = devices.iter().filter_map(named).collect();
    let given = admin.mailbox.give(crate::catalogue::now(), devices, wanted);
    given.map_err(|full| ControlError::new(Code::Throttled, full.to_string()))
}

/// The boot whose system runs on a device, or why there is none.
fn running(admin: &Admin, name: &DeviceName) -> Result<BootId, String> {
    let boots = admin.recorder.live_of(name.as_str());
    let boot = boots.iter().find(|boot| boot.used());
    let off = || match admin.elsewhere.heard().server_of(name.as_str()) {
        Some(server) => format!("it runs from server {server}: ask for it there"),
        None => "it does not run from this server".to_owned(),
    };
    let boot = boot.ok_or_else(off)?;
    match presence(Some(boot), admin.recorder.clock().now()) {
        Presence::Off => Err(off()),
        Presence::Booting if boot.leaving.is_some() => Err("it is restarting".to_owned()),
        // Its system may run already, and ask before it says that it is ready.
        Presence::Booting | Presence::Online | Presence::Idle | Presence::Lost => {
            BootId::new(boot.id.clone()).map_err(|_| off())
        }
    }
}
