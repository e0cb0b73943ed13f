//! What the iSCSI target is told: who may see and log in to what, and which disk is there.
use std::sync::{Arc, OnceLock};

use iscsi::directory::{
    Authentication, ChapCredentials, ChapSecret, Coexistence, Directory, Grant, IscsiName, LoginAttempt,
    Refusal,
};

use super::accounts::Protocol;
use super::boot_id::BootIds;
use super::device::{DeviceSlot, NotOpened, SessionEnder};
use super::devices::Devices;
use super::director::LUN;
use super::names::TargetName;
use crate::timeline::Recorder;
use crate::timeline::record::Program;
use crate::timeline::recorder::NewBoot;

/// Decides for the iSCSI target.
pub struct BootDirectory {
    /// The devices.
    pub devices: Arc<Devices>,
    /// Hears of every login.
    pub recorder: Arc<Recorder>,
    /// Makes boot ids.
    pub ids: Arc<BootIds>,
    /// Ends sessions; there once the target runs.
    pub ender: Arc<OnceLock<Box<dyn SessionEnder>>>,
}

impl Directory for BootDirectory {
    fn discover(&self, attempt: &LoginAttempt) -> Vec<IscsiName> {
        let slot = self.devices.by_initiator(&attempt.initiator);
        let name = slot.and_then(|slot| {
            let name = TargetName { device: slot.device.name.clone(), boot: None };
            IscsiName::parse(&name.format(&self.devices.config().iscsi.iqn_prefix))
        });
        name.into_iter().collect()
    }

    fn authentication(&self, attempt: &LoginAttempt) -> Result<Authentication, Refusal> {
        let config = &self.devices.config().iscsi;
        if let (Some(other), Some(_)) = (config.redirect, &attempt.target) {
            return Err(Refusal::MovedTemporarily(other));
        }
        let slot = match &attempt.target {
            Some(target) => Some(self.admit(attempt, target)?.1),
            // Discovery: whoever has no device sees nothing.
            None => self.devices.by_initiator(&attempt.initiator),
        };
        let chap = slot.and_then(|slot| slot.device.chap.clone());
        Ok(chap.map_or(Authentication::None, |chap| {
            let named = |user, secret: String| ChapSecret { user, secret: secret.into_bytes() };
            Authentication::Chap(ChapCredentials {
                initiator: named(chap.user, chap.secret),
                target: chap.target.map(|(user, secret)| named(user, secret)),
                allows_md5: config.chap_md5,
            })
        }))
    }

    fn open(&self, attempt: &LoginAttempt) -> Result<Grant, Refusal> {
        let Some(name) = &attempt.target else {
            return Err(Refusal::NotFound("a discovery session opens nothing".to_owned()));
        };
        let (target, slot) = self.admit(attempt, name)?;
        let fresh = self.ids.mint(self.recorder.clock().now()).map_err(|error| {
            tracing::error!(%error, "no random bytes for a boot id");
            Refusal::Unavailable("the server cannot make a boot id".to_owned())
        })?;
        let ender = self.ender.get().map(AsRef::as_ref);
        let opened = slot.open(target.boot.as_ref(), Some(name), &fresh, ender).map_err(refusal)?;
        let device = &slot.device;
        let boot = NewBoot {
            id: opened.boot.as_str(),
            device: &device.name,
            mac: Some(device.mac),
            vdisk: &device.vdisk,
            target: name.as_str(),
        };
        let observer = self.recorder.login(&boot, Program::Initiator(attempt.isid.0), Some(attempt.peer));
        tracing::info!(
            device = device.name.as_str(),
            boot = opened.boot.as_str(),
            vdisk = device.vdisk,
            peer = %attempt.peer,
            "{}",
            if opened.began { "login: boot begins" } else { "login: boot goes on" }
        );
        Ok(Grant {
            units: vec![(LUN, opened.unit)],
            coexistence: Coexistence::Exclusive,
            observer: Arc::new(observer),
            account: self.devices.account(device, Protocol::Iscsi),
        })
    }
}

impl BootDirectory {
    /// LUN masking: whether this initiator may use this target. The target server logs refusals.
    fn admit(
        &self,
        attempt: &LoginAttempt,
        name: &IscsiName,
    ) -> Result<(TargetName, Arc<DeviceSlot>), Refusal> {
        let target = TargetName::parse(&self.devices.config().iscsi.iqn_prefix, name);
        let found = target.and_then(|target| {
            let slot = self.devices.by_name(&target.device)?;
            Some((target, slot))
        });
        let Some((target, slot)) = found else {
            return Err(Refusal::NotFound(format!(
                "no device has the target {name}, which {} wants",
                attempt.initiator
            )));
        };
        if slot.device.initiator != attempt.initiator {
            let (expected, found) = (&slot.device.initiator, &attempt.initiator);
            let why = format!("device \"{}\" belongs to initiator {expected}, not {found}", slot.device.name);
            return Err(Refusal::NotAuthorized(why));
        }
        Ok((target, slot))
    }
}

fn refusal(why: NotOpened) -> Refusal {
    match why {
        NotOpened::Removed(text) => Refusal::Removed(text),
        NotOpened::Unknown(text) => Refusal::NotFound(text),
        NotOpened::Unavailable(text) => Refusal::Unavailable(text),
    }
}

impl std::fmt::Debug for BootDirectory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BootDirectory").finish_non_exhaustive()
    }
}
