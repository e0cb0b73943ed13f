//! What `headwater doctor` finds, asked of the running server: the host as the server sees it, and the way to a device.
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError, TryLockError};

use ::api::host::{HostReport, NetworkReport};
use control::{Code, ControlError};
use farm::model::DeviceName;

use super::{Admin, boots, on_disk};
use crate::commands::doctor;

/// Looks at the host, one look at a time, and remembers the latest.
#[derive(Debug)]
pub struct Doctor {
    config: PathBuf,
    looking: Mutex<()>,
    latest: Mutex<Option<HostReport>>,
}

impl Doctor {
    /// For the server with this configuration file.
    #[must_use]
    pub fn new(config: PathBuf) -> Self {
        Self { config, looking: Mutex::default(), latest: Mutex::default() }
    }

    pub(super) fn latest(&self) -> Option<HostReport> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn look(&self, dhcp: bool) -> Result<HostReport, ControlError> {
        let _turn = match self.looking.try_lock() {
            Ok(turn) => turn,
            Err(TryLockError::Poisoned(turn)) => turn.into_inner(),
            Err(TryLockError::WouldBlock) => {
                let why = "somebody else is having the host looked at";
                return Err(
                    ControlError::new(Code::InUse, why).hint("what is found stands here in some seconds")
                );
            }
        };
        let report = doctor::look(&self.config, dhcp, crate::catalogue::now().to_string());
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(report.clone());
        Ok(report)
    }
}

/// Which packets get to a device.
pub(super) fn network(admin: &Admin, device: &DeviceName) -> Result<NetworkReport, ControlError> {
    let boots = boots::of_device_or_id(&admin.recorder, device.as_str()).map_err(|error| on_disk(&error))?;
    let (address, known) = doctor::network::last_login(boots).ok_or_else(|| {
        ControlError::new(
            Code::NotFound,
            format!("device {device} has not logged in to this server from another machine"),
        )
        .hint("let it boot first")
    })?;
    let report = doctor::network::examine(device.to_string(), address, known);
    report.map(|report| report.told(crate::catalogue::now().to_string())).map_err(|error| {
        ControlError::new(
            Code::Unsupported,
            format!("the way to device {device} cannot be looked at: {error:#}"),
        )
    })
}
