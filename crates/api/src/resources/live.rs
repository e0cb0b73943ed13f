//! What the running server alone knows: what devices are doing, and what is counted of them.
use control::ControlError;
use farm::model::{Device, DeviceName, ObjectKind};
use farm::rules::permission::{Action, Place};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::devices::Devices;
use super::locks::tell_kept_out;
use super::object::Resource;
use crate::asked::Asked;
use crate::live::{Account, DeviceStatus, ServerStatus, Stats};
use crate::operation::{Operation, ParameterKind};
use crate::problem::Problem;
use crate::reply::Reply;
use crate::sight::Sight;
use crate::wire::find;

const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(super) fn all() -> Vec<Operation> {
    vec![
        Operation::get("/v1/status", "getStatus", "server", "Tells of this server.", status)
            .gives::<ServerStatus>(),
        Operation::get(
            "/v1/stats",
            "getStats",
            "server",
            "Tells what was counted since this server's start.",
            stats,
        )
        .gives::<Stats>(),
        Operation::get("/v1/metrics", "getMetrics", "server", "The same for Prometheus.", metrics)
            .gives_text("text/plain"),
        Operation::get(
            "/v1/device-status",
            "listDeviceStatus",
            "server",
            "Tells what the devices of this server are doing.",
            all_devices,
        )
        .gives::<DevicesAnswer>(),
        Operation::get(
            "/v1/devices/{device}/status",
            "getDeviceStatus",
            "devices",
            "Tells what a device is doing.",
            device,
        )
        .gives::<DeviceStatus>(),
        Operation::post(
            "/v1/devices/{device}/reset",
            "resetDevice",
            "devices",
            "Forgets a device's current boot and ends its sessions.",
            reset,
        )
        .query(
            "discard_persistent",
            ParameterKind::Flag,
            "takes its persistent write cache away as well",
        ),
        Operation::get("/v1/boots", "listBoots", "server", "Tells the latest boot of each device.", boots)
            .gives::<BootsAnswer>(),
        Operation::get(
            "/v1/boots/{boot}",
            "getBoots",
            "server",
            "Tells the boots of a device, latest first, or the boot with this id.",
            boots_of,
        )
        .gives::<BootsAnswer>(),
    ]
}

/// What devices are doing.
#[derive(Debug, Serialize, JsonSchema)]
struct DevicesAnswer {
    /// The devices, by name.
    items: Vec<DeviceStatus>,
}

/// Boots, as `docs/timeline.md` describes them.
#[derive(Debug, Serialize, JsonSchema)]
struct BootsAnswer {
    /// The boots.
    boots: Vec<Value>,
}

/// Figures of all devices are for whoever may see all devices.
fn may_see_all(asked: &Asked<'_>) -> Result<(), Problem> {
    let all = asked.caller()?.may(Action::See, ObjectKind::Device, Place::Farm);
    Ok(all.map_err(ControlError::from)?)
}

fn status(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let seen = asked.caller()?.may(Action::See, ObjectKind::Server, Place::Farm);
    seen.map_err(ControlError::from)?;
    Reply::json(&asked.api.live.status())
}

/// What the caller sees.
fn sight(asked: &Asked<'_>) -> Result<Sight, Problem> {
    Ok(Sight::of(asked.caller()?, asked.control())?)
}

fn stats(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let (sight, mut stats) = (sight(asked)?, asked.api.live.stats());
    // Readers of a whole vDisk are nobody's device.
    let seen = |account: &Account| account.device.as_ref().map_or(sight.all(), |name| sight.device(name));
    stats.accounts.retain(seen);
    Reply::json(&stats)
}

fn metrics(asked: &Asked<'_>) -> Result<Reply, Problem> {
    may_see_all(asked)?;
    Ok(Reply::text(METRICS, asked.api.live.metrics()))
}

fn all_devices(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let (sight, mut items) = (sight(asked)?, asked.api.live.devices());
    items.retain(|device| sight.device(&device.name));
    tell_kept_out(asked, &mut items)?;
    Reply::json(&DevicesAnswer { items })
}

/// The device that the path names, where the caller may do this with it.
pub(super) fn known(asked: &Asked<'_>, action: Action) -> Result<DeviceName, Problem> {
    let (caller, wanted) = (asked.caller()?, asked.parameter("device")?);
    Ok(asked.control().read(|reader| {
        let device = find::<Device>(reader, wanted)?;
        caller.may(action, ObjectKind::Device, Devices::place(reader, &device.value)?)?;
        Ok(device.value.name)
    })?)
}

fn device(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let name = known(asked, Action::See)?;
    let status = asked.api.live.device(&name);
    let mut status = status.ok_or_else(|| {
        Problem::not_found(format!("this server has not seen device {name} since it started"))
    })?;
    tell_kept_out(asked, std::slice::from_mut(&mut status))?;
    Reply::json(&status)
}

fn reset(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let discard_persistent = asked.flag("discard_persistent")?;
    // What a persistent write cache holds is gone for good.
    let name = known(asked, if discard_persistent { Action::Change } else { Action::Operate })?;
    asked.api.live.reset(&name, discard_persistent)?;
    let by = &asked.caller()?.actor().user;
    tracing::info!(device = %name, %by, discard_persistent, "current boot forgotten by an administrator");
    Ok(Reply::nothing())
}

fn boots(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let (sight, mut boots) = (sight(asked)?, asked.api.live.boots()?);
    boots.retain(|boot| sight.boot(boot));
    Reply::json(&BootsAnswer { boots })
}

fn boots_of(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let sight = sight(asked)?;
    let wanted = asked.parameter("boot")?;
    let mut boots = asked.api.live.boots_of(wanted)?;
    boots.retain(|boot| sight.boot(boot));
    if boots.is_empty() {
        return Err(Problem::not_found(format!("{wanted:?} is neither a boot nor a device that has booted")));
    }
    Reply::json(&BootsAnswer { boots })
}
