//! Commands for the operating systems of devices: what is asked for, and how far it has got.
//!
//! A command is for the system that runs when it is given. The device's own service fetches it; until then it is pending,
//! and for so long only as it was given for: a device that comes back a day later is not restarted by what somebody wanted
//! yesterday.
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The longest message, in characters: it is to be read on a console.
pub const MAX_MESSAGE_CHARS: usize = 1000;

/// How long a command waits to be fetched where nothing is said.
pub const USUAL_EXPIRY: Duration = Duration::from_secs(120);

/// How long it may wait.
pub const MAX_EXPIRY: Duration = Duration::from_secs(3600);

/// What a device's system is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CommandKind {
    /// Shut its programs down and start again.
    Reboot,
    /// Shut its programs down and switch itself off.
    Shutdown,
    /// Show a text to whoever sits before it.
    Message,
}

impl CommandKind {
    /// As it is written everywhere.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Reboot => "reboot",
            Self::Shutdown => "shutdown",
            Self::Message => "message",
        }
    }
}

/// A command that is to be given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandWanted {
    /// What is to be done.
    pub kind: CommandKind,
    /// The message; of the others, empty.
    pub text: String,
    /// Who gives it.
    pub by: String,
    /// How long it waits to be fetched.
    pub expires_in: Duration,
    /// Only tells which devices would get it.
    pub dry_run: bool,
}

/// A command that was given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Command")]
pub struct CommandStatus {
    /// Names it; a later one always has a higher number. Null: it was not given (`dry_run`).
    pub id: Option<u64>,
    /// What is to be done.
    pub command: CommandKind,
    /// The message.
    pub text: Option<String>,
    /// Who gave it.
    pub by: String,
    /// When; RFC 3339.
    pub given_at: String,
    /// Until when it can be fetched; RFC 3339.
    pub expires_at: String,
    /// The devices that it is for, by name.
    pub items: Vec<CommandedDevice>,
}

/// A device that a command is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CommandedDevice {
    /// Its name.
    pub name: String,
    /// How far it is.
    pub state: CommandState,
    /// How many seconds ago the service in its system has asked for commands; null: it has not since it booted. A system
    /// without the service fetches nothing.
    pub heard_s: Option<u64>,
    /// Why the device was not given the command, or could not do it.
    pub problem: Option<String>,
}

/// How far a command is with one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CommandState {
    /// It waits to be fetched.
    Pending,
    /// The device's system has it, and does it now.
    Taken,
    /// Nobody fetched it in time.
    Expired,
    /// The device's system could not do it.
    Failed,
    /// The device was not given it.
    Refused,
}

impl CommandState {
    /// Whether it can still change.
    #[must_use]
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Pending)
    }
}
