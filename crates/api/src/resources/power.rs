//! What many devices are told to do at once: wake up, restart, shut down, show a message.
//!
//! Who is meant is said in one way: devices by name, a collection, a view, a filter. All of them must be the caller's to
//! operate, or nothing is done. What is done to a device is audited before it is done.
use std::time::Duration;

use control::{Code, ControlError};
use farm::catalogue::{ListQuery, MAX_PAGE};
use farm::filter::Filter;
use farm::model::{Collection, Device, DeviceName, ObjectKind, Stored, View, ViewOf};
use farm::rules::permission::Action;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::devices::Devices;
use super::live::known;
use super::object::Resource;
use crate::asked::Asked;
use crate::guest_commands::{
    CommandKind, CommandState, CommandStatus, CommandWanted, MAX_EXPIRY, MAX_MESSAGE_CHARS, USUAL_EXPIRY,
};
use crate::operation::Operation;
use crate::problem::Problem;
use crate::reply::Reply;
use crate::sight::Sight;
use crate::wire::{Plain, Ref, find, resolve};

pub(super) fn all() -> Vec<Operation> {
    vec![
        Operation::post(
            "/v1/wake",
            "wakeDevices",
            "devices",
            "Wakes devices by their network cards (Wake-on-LAN): those of a collection, of a view, and those that fit a filter.",
            wake,
        )
        .takes::<WakeBody>()
        .gives::<WakeAnswer>(),
        Operation::post(
            "/v1/commands",
            "giveCommand",
            "devices",
            "Restarts devices, shuts them down or shows a message on them, by the service in their system: those of a collection, of a view, and those that fit a filter.",
            give,
        )
        .takes::<CommandBody>()
        .gives::<CommandStatus>(),
        Operation::get(
            "/v1/commands",
            "listCommands",
            "devices",
            "Lists the latest commands that devices of this server were given, latest first.",
            list,
        )
        .gives::<CommandsAnswer>(),
        Operation::get(
            "/v1/commands/{command}",
            "getCommand",
            "devices",
            "Tells how far a command is with each of its devices.",
            show,
        )
        .gives::<CommandStatus>(),
        Operation::post(
            "/v1/devices/{device}/commands",
            "giveDeviceCommand",
            "devices",
            "Restarts a device, shuts it down or shows a message on it, by the service in its system.",
            give_one,
        )
        .takes::<OneCommandBody>()
        .gives::<CommandStatus>(),
        Operation::get(
            "/v1/devices/{device}/commands",
            "listDeviceCommands",
            "devices",
            "Lists the latest commands that a device was given, latest first.",
            list_one,
        )
        .gives::<CommandsAnswer>(),
    ]
}

/// Which devices: those that are named, or else those that fit all the rest.
struct Chosen<'a> {
    devices: &'a [Ref],
    collection: Option<&'a Ref>,
    view: Option<&'a Ref>,
    filter: Option<&'a Plain<Filter>>,
}

impl Chosen<'_> {
    /// The devices, where the caller may operate all of them.
    fn find(&self, asked: &Asked<'_>) -> Result<Vec<Stored<Device>>, Problem> {
        let Self { devices, collection, view, filter } = self;
        if devices.is_empty() && collection.is_none() && view.is_none() && filter.is_none() {
            let why = "say which: devices, a collection, a view or a filter";
            return Err(ControlError::bad_value("devices", why).into());
        }
        let caller = asked.caller()?;
        let found = asked.control().read(|reader| {
            let mut filter = filter.map_or(Filter::Everything, |filter| filter.0.clone());
            if let Some(view) = view {
                let view = resolve::<View>(reader, view, "view")?;
                if view.of != ViewOf::Devices {
                    return Err(ControlError::bad_value("view", "it shows no devices"));
                }
                filter = view.filter.clone().and(filter);
                if let Some(site) = view.site {
                    filter = Filter::equal("site-id", site).and(filter);
                }
            }
            if let Some(collection) = collection {
                let collection = resolve::<Collection>(reader, collection, "collection")?;
                filter = Filter::equal("collection-id", collection.id).and(filter);
            }
            let found = if devices.is_empty() {
                let query = ListQuery { filter, limit: MAX_PAGE, ..ListQuery::default() };
                let page = reader.list::<Device>(&query)?;
                if page.next.is_some() {
                    let why = format!("it fits more than {MAX_PAGE} devices: say it more narrowly");
                    return Err(ControlError::bad_value("filter", why));
                }
                page.items
            } else {
                let mut named = Vec::new();
                for (place, device) in devices.iter().enumerate() {
                    let id = resolve::<Device>(reader, device, &format!("devices[{place}]"))?.id;
                    named.push(reader.get(id)?);
                }
                named
            };
            for device in &found {
                caller.may(Action::Operate, ObjectKind::Device, Devices::place(reader, &device.value)?)?;
            }
            Ok(found)
        })?;
        Ok(found)
    }
}

/// Writes down what is about to be done to devices, and by whom.
fn witness(
    asked: &Asked<'_>,
    action: &str,
    devices: &[&Stored<Device>],
    details: Option<&serde_json::Value>,
) -> Result<(), Problem> {
    Ok(asked.control().change(asked.caller()?, |change| {
        for device in devices {
            let (id, name) = (device.id.get(), device.value.name.as_str());
            change.witness_with(action, ObjectKind::Device, id, name, details.cloned())?;
        }
        Ok(())
    })?)
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
    let WakeBody { devices, collection, view, filter } = asked.body()?;
    let chosen = Chosen {
        devices: &devices,
        collection: collection.as_ref(),
        view: view.as_ref(),
        filter: filter.as_ref(),
    };
    let found = chosen.find(asked)?;
    witness(asked, "wake", &found.iter().collect::<Vec<_>>(), None)?;
    let woken = |device: &Stored<Device>| {
        let name = device.value.name.to_string();
        match asked.api.live.wake(&device.value.name) {
            Ok(interfaces) => WokenDevice { name, interfaces, problem: None },
            Err(why) => WokenDevice { name, interfaces: Vec::new(), problem: Some(why.to_string()) },
        }
    };
    let items: Vec<WokenDevice> = found.iter().map(woken).collect();
    tracing::info!(devices = items.len(), by = %asked.caller()?.actor().user, "devices woken");
    Reply::json(&WakeAnswer { items })
}

/// What to do, and which devices: those that are named, or else those that fit all the rest.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CommandBody {
    /// What they are to do.
    command: CommandKind,
    /// The message.
    #[serde(default)]
    #[schemars(length(max = 1000))]
    text: String,
    /// How long it waits until a device's system fetches it.
    #[serde(default)]
    #[schemars(range(min = 1, max = 3600))]
    expires_s: Option<u64>,
    /// Gives nobody the command; tells who would get it.
    #[serde(default)]
    dry_run: bool,
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

/// What a device is to do.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct OneCommandBody {
    /// What it is to do.
    command: CommandKind,
    /// The message.
    #[serde(default)]
    #[schemars(length(max = 1000))]
    text: String,
    /// How long it waits until the device's system fetches it.
    #[serde(default)]
    #[schemars(range(min = 1, max = 3600))]
    expires_s: Option<u64>,
    /// Does not give the command; tells whether the device would get it.
    #[serde(default)]
    dry_run: bool,
}

impl OneCommandBody {
    fn wanted(self, by: String) -> Result<CommandWanted, ControlError> {
        let Self { command: kind, text, expires_s, dry_run } = self;
        let text = text.trim_end().to_owned();
        // A console obeys control characters: a message is to be read, and to do nothing else.
        let readable = text.chars().all(|c| c == '\n' || !c.is_control());
        match kind {
            CommandKind::Message => {
                if text.is_empty() || text.chars().count() > MAX_MESSAGE_CHARS || !readable {
                    let rule = format!(
                        "a message has 1 to {MAX_MESSAGE_CHARS} characters, and none but the line's end that steer a console"
                    );
                    return Err(ControlError::bad_value("text", rule));
                }
            }
            CommandKind::Reboot | CommandKind::Shutdown => {
                if !text.is_empty() {
                    let why = "only a message has a text: send the message before the command";
                    return Err(ControlError::bad_value("text", why));
                }
            }
        }
        let expires_in = expires_s.map_or(USUAL_EXPIRY, Duration::from_secs);
        if expires_in.is_zero() || expires_in > MAX_EXPIRY {
            let rule = format!("a number of seconds from 1 to {}", MAX_EXPIRY.as_secs());
            return Err(ControlError::bad_value("expires_s", rule));
        }
        Ok(CommandWanted { kind, text, by, expires_in, dry_run })
    }
}

fn give(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let CommandBody { command, text, expires_s, dry_run, devices, collection, view, filter } =
        asked.body()?;
    let wanted = OneCommandBody { command, text, expires_s, dry_run };
    let chosen = Chosen {
        devices: &devices,
        collection: collection.as_ref(),
        view: view.as_ref(),
        filter: filter.as_ref(),
    };
    give_to(asked, wanted, chosen.find(asked)?)
}

fn give_one(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let (caller, wanted) = (asked.caller()?, asked.parameter("device")?);
    let device = asked.control().read(|reader| {
        let device = find::<Device>(reader, wanted)?;
        caller.may(Action::Operate, ObjectKind::Device, Devices::place(reader, &device.value)?)?;
        Ok(device)
    })?;
    give_to(asked, asked.body()?, vec![device])
}

fn give_to(
    asked: &Asked<'_>,
    body: OneCommandBody,
    mut found: Vec<Stored<Device>>,
) -> Result<Reply, Problem> {
    let wanted = body.wanted(asked.caller()?.actor().user.to_string())?;
    found.sort_by(|a, b| a.value.name.as_str().cmp(b.value.name.as_str()));
    found.dedup_by_key(|device| device.id);
    let names: Vec<DeviceName> = found.iter().map(|device| device.value.name.clone()).collect();
    let live = &asked.api.live;
    let rehearsed = live.give_command(&names, &CommandWanted { dry_run: true, ..wanted.clone() })?;
    if wanted.dry_run {
        return Reply::json(&rehearsed);
    }
    let given = |device: &&Stored<Device>| {
        let item = rehearsed.items.iter().find(|item| item.name == device.value.name.as_str());
        item.is_some_and(|item| item.state != CommandState::Refused)
    };
    let details = match wanted.kind {
        CommandKind::Message => Some(json!({ "text": wanted.text })),
        CommandKind::Reboot | CommandKind::Shutdown => None,
    };
    let given: Vec<&Stored<Device>> = found.iter().filter(given).collect();
    witness(asked, wanted.kind.word(), &given, details.as_ref())?;
    let status = live.give_command(&names, &wanted)?;
    tracing::info!(
        command = wanted.kind.word(),
        id = status.id,
        devices = names.len(),
        by = wanted.by,
        "command given to devices"
    );
    Reply::json(&status)
}

/// Commands that were given.
#[derive(Debug, Serialize, JsonSchema)]
struct CommandsAnswer {
    /// The commands, latest first.
    items: Vec<CommandStatus>,
}

/// The commands with those of their devices that the caller sees.
fn seen(asked: &Asked<'_>) -> Result<Vec<CommandStatus>, Problem> {
    let sight = Sight::of(asked.caller()?, asked.control())?;
    let mut commands = asked.api.live.commands();
    for command in &mut commands {
        command.items.retain(|item| sight.device(&item.name));
    }
    commands.retain(|command| !command.items.is_empty());
    Ok(commands)
}

fn list(asked: &Asked<'_>) -> Result<Reply, Problem> {
    Reply::json(&CommandsAnswer { items: seen(asked)? })
}

fn list_one(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let name = known(asked, Action::See)?;
    let mut commands = asked.api.live.commands();
    for command in &mut commands {
        command.items.retain(|item| item.name == name.as_str());
    }
    commands.retain(|command| !command.items.is_empty());
    Reply::json(&CommandsAnswer { items: commands })
}

fn show(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let wanted = asked.parameter("command")?;
    let found =
        seen(asked)?.into_iter().find(|command| command.id.is_some_and(|id| id.to_string() == wanted));
    Reply::json(&found.ok_or_else(|| {
        let why = format!(
            "this server knows of no command {wanted}: it remembers the latest, until it is restarted"
        );
        Problem::from(ControlError::new(Code::NotFound, why))
    })?)
}
