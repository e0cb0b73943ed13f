//! The server's host and its settings: what `headwater doctor` finds, and what can be changed while the server runs.
//!
//! Both are this server's own: whoever is administrator where it stands has it looked at, and changes it. What was asked for
//! is audited before it is done.
use control::{Code, ControlError};
use farm::model::{Device, ObjectKind, Revision};
use farm::rules::permission::Action;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::devices::Devices;
use super::object::Resource;
use crate::asked::{Asked, Expected};
use crate::host::{HostReport, NetworkReport, NewSettings, SettingsStatus};
use crate::operation::Operation;
use crate::problem::Problem;
use crate::reply::Reply;
use crate::wire::find;

/// The most settings that one request changes: more than there are.
const MAX_CHANGED: usize = 200;
/// The longest value of a setting.
const MAX_VALUE_BYTES: usize = 1000;

pub(super) fn all() -> Vec<Operation> {
    vec![
        Operation::get(
            "/v1/doctor",
            "getDoctorReport",
            "server",
            "Tells what was found at the latest look at this server's host.",
            latest,
        )
        .gives::<LatestAnswer>(),
        Operation::post(
            "/v1/doctor",
            "lookAtHost",
            "server",
            "Looks at this server's host, as \"headwater doctor\" does: for some seconds.",
            look,
        )
        .takes::<LookBody>()
        .gives::<HostReport>(),
        Operation::post(
            "/v1/devices/{device}/network-check",
            "checkDeviceNetwork",
            "devices",
            "Finds out which packets get to a device whole, as \"headwater doctor network\" does: for some seconds.",
            check_network,
        )
        .gives::<NetworkReport>(),
        Operation::get(
            "/v1/settings",
            "getSettings",
            "server",
            "Tells this server's settings that can be changed while it runs, and when each takes effect.",
            settings,
        )
        .gives::<SettingsStatus>(),
        Operation::patch(
            "/v1/settings",
            "changeSettings",
            "server",
            "Gives settings of this server other values, all or none; null: what its configuration file says.",
            change,
        )
        .takes_patch::<NewSettings>()
        .gives::<SettingsStatus>(),
    ]
}

/// What was found at the latest look.
#[derive(Debug, Serialize, JsonSchema)]
struct LatestAnswer {
    /// Null: nobody has looked since the server's start.
    report: Option<HostReport>,
}

/// How to look.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LookBody {
    /// Also asks on the networks that machines boot on which DHCP servers answer.
    #[serde(default)]
    dhcp: bool,
}

fn may(asked: &Asked<'_>, action: Action) -> Result<(), Problem> {
    let place = asked.control().place();
    Ok(asked.caller()?.may(action, ObjectKind::Server, place).map_err(ControlError::from)?)
}

/// Writes down what is about to be done to this server.
fn note(asked: &Asked<'_>, action: &str, details: Option<&Value>) -> Result<(), Problem> {
    let control = asked.control();
    let id = control.server();
    let name = control.snapshot().server(id).map(|server| server.name.to_string()).unwrap_or_default();
    Ok(control.change(asked.caller()?, |change| {
        Ok(change.witness_with(action, ObjectKind::Server, id.get(), &name, details.cloned())?)
    })?)
}

fn latest(asked: &Asked<'_>) -> Result<Reply, Problem> {
    may(asked, Action::Operate)?;
    Reply::json(&LatestAnswer { report: asked.api.live.host_report() })
}

fn look(asked: &Asked<'_>) -> Result<Reply, Problem> {
    may(asked, Action::Operate)?;
    let LookBody { dhcp } = asked.body()?;
    note(asked, "doctor", Some(&json!({ "dhcp": dhcp })))?;
    Reply::json(&asked.api.live.look_at_host(dhcp)?)
}

fn check_network(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let (caller, wanted) = (asked.caller()?, asked.parameter("device")?);
    let device = asked.control().change(caller, |change| {
        let device = find::<Device>(change, wanted)?;
        caller.may(Action::Operate, ObjectKind::Device, Devices::place(change, &device.value)?)?;
        let name = device.value.name.as_str();
        change.witness("network-check", ObjectKind::Device, device.id.get(), name)?;
        Ok(device)
    })?;
    Reply::json(&asked.api.live.look_at_network(&device.value.name)?)
}

fn told(status: &SettingsStatus) -> Result<Reply, Problem> {
    let revision = Revision::new(status.revision);
    let revision = revision.map_err(|bad| ControlError::new(Code::Internal, bad.to_string()))?;
    Ok(Reply::json(status)?.revision(revision))
}

fn settings(asked: &Asked<'_>) -> Result<Reply, Problem> {
    may(asked, Action::See)?;
    told(&asked.api.live.settings())
}

fn change(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let expected = match asked.expected()? {
        Expected::Any => None,
        Expected::Revision(revision) => Some(revision.get()),
    };
    may(asked, Action::Change)?;
    let new: NewSettings = asked.body()?;
    if new.len() > MAX_CHANGED {
        return Err(Problem::bad_request(format!("there are no {} settings", new.len())));
    }
    if let Some((key, _)) = new.iter().find(|(_, value)| too_long(value.as_deref())) {
        let why = format!("a value has at most {MAX_VALUE_BYTES} bytes");
        return Err(ControlError::bad_value(key, why).into());
    }
    let (live, before) = (&asked.api.live, asked.api.live.settings());
    let would = live.change_settings(&new, expected, true)?;
    if would.items == before.items {
        return told(&before);
    }
    note(asked, "change-settings", Some(&difference(&before, &would)))?;
    // Meant for what was looked at, whoever changes it meanwhile.
    let changed = live.change_settings(&new, Some(before.revision), false)?;
    tracing::info!(settings = ?new.keys(), by = %asked.caller()?.actor().user, "settings changed");
    told(&changed)
}

fn too_long(value: Option<&str>) -> bool {
    value.is_some_and(|value| value.len() > MAX_VALUE_BYTES)
}

/// The settings whose values differ, with both.
fn difference(before: &SettingsStatus, after: &SettingsStatus) -> Value {
    let mut changed = Map::new();
    for (old, new) in before.items.iter().zip(&after.items) {
        if (&old.value, old.changed) != (&new.value, new.changed) {
            changed.insert(new.key.clone(), json!({ "from": old.value, "to": new.value }));
        }
    }
    Value::Object(changed)
}
