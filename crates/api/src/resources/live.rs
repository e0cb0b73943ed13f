//! What the running server alone knows: what devices are doing, and what is counted of them.
use control::ControlError;
use farm::catalogue::{ListQuery, MAX_PAGE};
use farm::filter::Filter;
use farm::model::{Collection, Device, DeviceName, ObjectKind, View, ViewOf};
use farm::rules::permission::{Action, Place};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::devices::Devices;
use super::object::Resource;
use crate::asked::Asked;
use crate::live::{Account, DeviceStatus, ServerStatus, Stats};
use crate::operation::{Operation, ParameterKind};
use crate::problem::Problem;
use crate::reply::Reply;
use crate::sight::Sight;
use crate::wire::{Plain, Ref, find, resolve};

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
        Operation::post(
            "/v1/wake",
            "wakeDevices",
            "devices",
            "Wakes devices by their network cards (Wake-on-LAN): those of a collection, of a view, and those that fit a filter.",
            wake,
        )
        .takes::<WakeBody>()
        .gives::<WakeAnswer>(),
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
    let seen = |account: &Account| account.device.as_ref().map_or(sight.all, |name| sight.device(name));
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
    Reply::json(&status.ok_or_else(|| {
        Problem::not_found(format!("this server has not seen device {name} since it started"))
    })?)
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

/// Which devices to wake: those that are named, or else those that fit all the rest.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WakeBody {
    /// These.
    #[serde(default)]
    #[schemars(length(max = 1000))]
    devices: Vec<Ref>,
    /// All of a collection.
    #[serde(default)]
    collection: Option<Ref>,
    /// All that a view of devices shows.
    #[serde(default)]
    view: Option<Ref>,
    /// All that fit a filter.
    #[serde(default)]
    filter: Option<Plain<Filter>>,
}

/// What was done to wake devices.
#[derive(Debug, Serialize, JsonSchema)]
struct WakeAnswer {
    /// The devices.
    items: Vec<WokenDevice>,
}

/// What was done to wake a device.
#[derive(Debug, Serialize, JsonSchema)]
struct WokenDevice {
    /// Its name.
    name: String,
    /// The interfaces of this server on which it was called.
    interfaces: Vec<String>,
    /// Why it was not.
    problem: Option<String>,
}

fn wake(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let caller = asked.caller()?;
    let WakeBody { devices, collection, view, filter } = asked.body()?;
    if devices.is_empty() && collection.is_none() && view.is_none() && filter.is_none() {
        let why = "say which: devices, a collection, a view or a filter";
        return Err(ControlError::bad_value("devices", why).into());
    }
    let names: Vec<DeviceName> = asked.control().read(|reader| {
        let mut filter = filter.as_ref().map_or(Filter::Everything, |filter| filter.0.clone());
        if let Some(view) = &view {
            let view = resolve::<View>(reader, view, "view")?;
            if view.of != ViewOf::Devices {
                return Err(ControlError::bad_value("view", "it shows no devices"));
            }
            filter = view.filter.clone().and(filter);
            if let Some(site) = view.site {
                filter = Filter::equal("site-id", site).and(filter);
            }
        }
        if let Some(collection) = &collection {
            let collection = resolve::<Collection>(reader, collection, "collection")?;
            filter = Filter::equal("collection-id", collection.id).and(filter);
        }
        let mut named = Vec::new();
        for (place, device) in devices.iter().enumerate() {
            named.push(resolve::<Device>(reader, device, &format!("devices[{place}]"))?.id);
        }
        let query = ListQuery { filter, limit: MAX_PAGE, ..ListQuery::default() };
        let found = match named.is_empty() {
            true => {
                let page = reader.list::<Device>(&query)?;
                if page.next.is_some() {
                    let why = format!("it fits more than {MAX_PAGE} devices: say it more narrowly");
                    return Err(ControlError::bad_value("filter", why));
                }
                page.items
            }
            false => {
                let all: Result<Vec<_>, _> = named.iter().map(|id| reader.get(*id)).collect();
                all?
            }
        };
        let mut names = Vec::new();
        for device in found {
            caller.may(Action::Operate, ObjectKind::Device, Devices::place(reader, &device.value)?)?;
            names.push(device.value.name);
        }
        Ok(names)
    })?;
    let woken = |name: DeviceName| match asked.api.live.wake(&name) {
        Ok(interfaces) => WokenDevice { name: name.to_string(), interfaces, problem: None },
        Err(why) => {
            WokenDevice { name: name.to_string(), interfaces: Vec::new(), problem: Some(why.to_string()) }
        }
    };
    let items: Vec<WokenDevice> = names.into_iter().map(woken).collect();
    tracing::info!(devices = items.len(), by = %caller.actor().user, "devices woken");
    Reply::json(&WakeAnswer { items })
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
