//! What the iSCSI target is told: who may see and log in to what, and which disk is there.
use std::sync::{Arc, OnceLock};

use iscsi::directory::{
    Authentication, ChapCredentials, ChapSecret, Coexistence, Directory, Grant, IscsiName, LoginAttempt,
    Refusal,
};

use super::accounts::Protocol;
use super::boot_id::BootIds;
use super::device::{NotOpened, SessionEnder, Wish};
use super::devices::{Devices, Served};
use super::director::LUN;
use super::known::Proof;
use super::names::TargetName;
use crate::path::towards;
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
        let device = self.devices.by_initiator(&attempt.initiator);
        let name = device.and_then(|device| {
            let name = TargetName { device: device.name, boot: None };
            IscsiName::parse(name.format(&self.devices.config().iscsi.iqn_prefix))
        });
        name.into_iter().collect()
    }

    fn authentication(&self, attempt: &LoginAttempt) -> Result<Authentication, Refusal> {
        let config = &self.devices.config().iscsi;
        if let (Some(other), Some(_)) = (config.redirect, &attempt.target) {
            return Err(Refusal::MovedTemporarily(other));
        }
        let device = match &attempt.target {
            Some(target) => Some(self.admit(attempt, target)?.1.device),
            // Discovery: whoever has no device sees nothing.
            None => self.devices.by_initiator(&attempt.initiator),
        };
        let chap = match device.map_or(Proof::None, |device| device.proof) {
            Proof::None => return Ok(Authentication::None),
            Proof::Chap(chap) => chap,
            Proof::Unknown(secret) => {
                return Err(Refusal::NotAuthorized(format!("this server has no CHAP secret \"{secret}\"")));
            }
        };
        let named = |user, secret: String| ChapSecret { user, secret: secret.into_bytes() };
        Ok(Authentication::Chap(ChapCredentials {
            initiator: named(chap.user, chap.secret),
            target: chap.target.map(|(user, secret)| named(user, secret)),
            allows_md5: config.chap_md5,
        }))
    }

    fn open(&self, attempt: &LoginAttempt) -> Result<Grant, Refusal> {
        let Some(name) = &attempt.target else {
            return Err(Refusal::NotFound("a discovery session opens nothing".to_owned()));
        };
        let (target, Served { device, slot }) = self.admit(attempt, name)?;
        let fresh = self.ids.mint(self.recorder.clock().now()).map_err(|error| {
            tracing::error!(%error, "no random bytes for a boot id");
            Refusal::Unavailable("the server cannot make a boot id".to_owned())
        })?;
        let ender = self.ender.get().map(AsRef::as_ref);
        let decide = |picked| self.devices.decide(device.id, picked);
        let wish = Wish { boot: target.boot.as_ref(), target: Some(name), fresh: &fresh, decide: &decide };
        let opened = slot.open(&wish, ender).map_err(refusal)?;
        let boot = NewBoot {
            id: opened.boot.as_str(),
            device: &device.name,
            mac: device.mac,
            vdisk: &opened.disk.name,
            version: Some(opened.disk.number.get().into()),
            target: name.as_str(),
            disk_bytes: Some(opened.device.geometry().size.get()),
        };
        let observer = self.recorder.login(&boot, Program::Initiator(attempt.isid.0), Some(attempt.peer));
        // Without it the login is as good; the timeline says less.
        if let Ok(path) = towards(attempt.peer.ip()) {
            self.recorder.path(&device.name, opened.boot.as_str(), path);
        }
        tracing::info!(
            device = device.name.as_str(),
            boot = opened.boot.as_str(),
            vdisk = opened.disk.name,
            version = %opened.disk.number,
            peer = %attempt.peer,
            "{}",
            if opened.began { "login: boot begins" } else { "login: boot goes on" }
        );
        Ok(Grant {
            account: self.devices.account(&device, &opened.disk, Protocol::Iscsi),
            units: vec![(LUN, opened.unit)],
            coexistence: Coexistence::Exclusive,
            observer: Arc::new(observer),
        })
    }
}

impl BootDirectory {
    /// LUN masking: whether this initiator may use this target. The target server logs refusals.
    fn admit(&self, attempt: &LoginAttempt, name: &IscsiName) -> Result<(TargetName, Served), Refusal> {
        let target = TargetName::parse(&self.devices.config().iscsi.iqn_prefix, name);
        let found = target.and_then(|target| {
            let served = self.devices.by_name(&target.device)?;
            Some((target, served))
        });
        let Some((target, served)) = found else {
            return Err(Refusal::NotFound(format!(
                "no device has the target {name}, which {} wants",
                attempt.initiator
            )));
        };
        let device = &served.device;
        if device.initiator != attempt.initiator {
            let (expected, found) = (&device.initiator, &attempt.initiator);
            let why = format!("device \"{}\" belongs to initiator {expected}, not {found}", device.name);
            return Err(Refusal::NotAuthorized(why));
        }
        Ok((target, served))
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
