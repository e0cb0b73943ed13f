//! What the devices are doing.
use std::borrow::Cow;

use ::api::live::{DeviceStatus, PathStatus, WriteCacheStatus};
use control::{Code, ControlError};
use netboot::director::MacAddress;

use super::Admin;
use crate::catalogue::now;
use crate::config::DeviceName;
use crate::path::PathMtu;
use crate::stream::device::DeviceSlot;
use crate::stream::devices::Served;
use crate::stream::known::KnownDevice;
use crate::timeline::presence::Presence;

/// All devices, by name, wherever they run.
pub(super) fn all(admin: &Admin) -> Vec<DeviceStatus> {
    let elsewhere = admin.elsewhere.heard();
    admin.devices.map(|device| elsewhere.or_here(here(admin, device)))
}

/// A device as this server sees it.
pub(super) fn here(admin: &Admin, device: KnownDevice) -> DeviceStatus {
    let slot = admin.devices.slot(&device.name);
    status(admin, device, slot.as_deref())
}

/// One device.
pub(super) fn one(admin: &Admin, name: &farm::model::DeviceName) -> Option<DeviceStatus> {
    let served = admin.devices.by_name(&DeviceName::parse(name.as_str()).ok()?)?;
    Some(admin.elsewhere.heard().or_here(status(admin, served.device, Some(&served.slot))))
}

/// Forgets a device's current boot and ends its sessions; with `discard_persistent`, its persistent write cache goes as
/// well.
pub(super) fn reset(
    admin: &Admin,
    name: &farm::model::DeviceName,
    discard_persistent: bool,
) -> Result<(), ControlError> {
    let served = DeviceName::parse(name.as_str()).ok().and_then(|name| admin.devices.by_name(&name));
    let Some(Served { device, slot }) = served else {
        return Err(ControlError::new(Code::NotFound, format!("there is no device \"{name}\"")));
    };
    if admin.recorder.doing(device.name.as_str()).is_none()
        && let Some(server) = admin.elsewhere.heard().server_of(device.name.as_str())
    {
        let why = format!("device {} runs from server {server}: ask for it there", device.name);
        return Err(ControlError::new(Code::Conflict, why));
    }
    let failed = |error: std::io::Error| ControlError::new(Code::Internal, error.to_string());
    slot.reset().map_err(failed)?.end(admin.ender.get().map(AsRef::as_ref));
    let device = device.name;
    if discard_persistent {
        slot.discard_persistent().map_err(failed)?;
        tracing::info!(device = device.as_str(), "persistent write cache discarded by the administrator");
    }
    admin.recorder.end(&device, "reset by the administrator");
    tracing::info!(device = device.as_str(), "current boot forgotten by the administrator");
    Ok(())
}

/// Wakes a device by its network cards, on every interface that machines boot on: which one it is behind is not known while
/// it is off.
pub(super) fn wake(admin: &Admin, name: &farm::model::DeviceName) -> Result<Vec<String>, ControlError> {
    let snapshot = admin.devices.farm().snapshot();
    let device = snapshot.device_named(name.as_str());
    let macs = device.map(|device| device.macs.as_slice().to_vec()).unwrap_or_default();
    if macs.is_empty() {
        let why = format!("device {name} has no network card that this server knows");
        return Err(ControlError::new(Code::NotFound, why));
    }
    let (mut interfaces, mut failed) = (Vec::new(), None);
    for interface in &admin.devices.config().interfaces {
        let sent =
            macs.iter().try_for_each(|mac| netboot::wake::wake(MacAddress(mac.bytes()), &interface.name));
        match sent {
            Ok(()) => interfaces.push(interface.name.clone()),
            Err(error) => failed = Some(format!("on {}: {error}", interface.name)),
        }
    }
    if interfaces.is_empty() {
        let why = failed.unwrap_or_else(|| "this server has no [[interface]]".to_owned());
        return Err(ControlError::new(Code::Internal, format!("device {name} cannot be woken {why}")));
    }
    Ok(interfaces)
}

fn status(admin: &Admin, device: KnownDevice, slot: Option<&DeviceSlot>) -> DeviceStatus {
    let KnownDevice { name, mac, initiator, vdisk, .. } = device;
    let doing = admin.recorder.doing(name.as_str());
    let running = slot.and_then(DeviceSlot::running);
    let write_cache = running.as_ref().and_then(|running| running.write_cache).map(|usage| {
        let (used, limit, warn) = (usage.used.get(), usage.limit.get(), usage.warn_at.get());
        let fill = match used {
            used if used >= limit => "full",
            used if used >= warn => "nearly full",
            _ => "ok",
        };
        WriteCacheStatus { used_bytes: used, limit_bytes: limit, fill: Cow::Borrowed(fill) }
    });
    let disk = running.map(|running| running.disk);
    let seen = doing.as_ref();
    DeviceStatus {
        mac: mac.map(|mac| mac.to_string()),
        server: None,
        version: disk.as_ref().map(|disk| disk.number.get()),
        vdisk_id: disk.as_ref().map(|disk| disk.vdisk.get()),
        vdisk: disk.map(|disk| disk.name).or(vdisk),
        initiator: initiator.into(),
        status: Cow::Borrowed(seen.map_or("off", |doing| doing.status.as_str())),
        presence: Cow::Borrowed(seen.map_or(Presence::Off, |doing| doing.presence).as_str()),
        sessions: seen.map_or(0, |doing| doing.sessions),
        write_cache,
        path: seen.and_then(|doing| doing.path.as_ref()).map(path_status),
        kept_out: None,
        secrets_told: seen.zip(slot).is_some_and(|(doing, slot)| slot.secrets_told(&doing.boot)),
        takes_commands: seen.is_some_and(|doing| admin.mailbox.hears(now(), &name, &doing.boot)),
        boot: doing.map(|doing| doing.boot),
        name: name.into(),
    }
}

fn path_status(path: &PathMtu) -> PathStatus {
    PathStatus {
        mtu_bytes: path.mtu_bytes,
        link_mtu_bytes: path.link_mtu_bytes,
        interface: path.interface.clone(),
        segment_bytes: path.segment_bytes,
        jumbo: path.is_jumbo(),
        limited_by: Cow::Borrowed(path.limited_by().as_str()),
        text: path.describe(),
    }
}
