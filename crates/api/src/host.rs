//! What belongs to the host that the server runs on: what `headwater doctor` finds there, and the server's settings.
//!
//! A setting is a key of the server's configuration file that administrators can give another value over the API. The value
//! stands above the file's, over restarts, until it is taken away. Each says when it takes effect.
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FindingLevel {
    /// As it should be.
    Ok,
    /// The server runs; something is slower, harder or less safe than it could be, or could not be looked at.
    Warning,
    /// The server does not start again, or devices do not boot.
    Problem,
}

/// One finding of `headwater doctor`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "DoctorFinding")]
pub struct HostFinding {
    /// What was looked at: `ports`, `storage`, ...
    pub subject: String,
    /// How bad it is.
    pub level: FindingLevel,
    /// What was found.
    pub found: String,
    /// What it means; null where all is well.
    pub meaning: Option<String>,
    /// How to mend it; null where all is well.
    pub mend: Option<String>,
}

/// What `headwater doctor` found on the server's host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "DoctorReport")]
pub struct HostReport {
    /// When it had looked, in RFC 3339.
    pub at: String,
    /// The server's configuration file.
    pub config: String,
    /// How many findings are problems.
    pub problems: usize,
    /// How many are warnings.
    pub warnings: usize,
    /// All of them.
    pub findings: Vec<HostFinding>,
}

/// Which packets get to a device whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NetworkReport {
    /// The device.
    pub device: String,
    /// When it was looked at, in RFC 3339.
    pub at: String,
    /// Where it logged in from last.
    pub address: String,
    /// The largest packet that is sent there, in bytes with its IP header.
    pub mtu_bytes: u32,
    /// The largest ping that was answered, in bytes with its IP header; null: none was.
    pub pinged_bytes: Option<u32>,
    /// Who keeps packets from being larger: `link`, `network` or `device`.
    pub limited_by: String,
    /// All of that in lines for people.
    pub text: String,
}

/// When a setting's new value counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// At once.
    Now,
    /// At each device's next boot.
    NextBoot,
    /// When the server is started the next time.
    NextStart,
}

/// A setting of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SettingStatus {
    /// Its key, as the configuration file has it: `admission.at_once`.
    pub key: String,
    /// The value that stands.
    pub value: String,
    /// What the configuration file says, or the default.
    pub configured: String,
    /// Whether the value was given over the API, and stands above the file's.
    pub changed: bool,
    /// The value that the running server goes by: another one than `value` until it takes effect.
    pub running: String,
    /// When a new value counts.
    pub effect: Effect,
    /// What it is, for people.
    pub says: String,
}

/// The settings of a server that can be changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SettingsStatus {
    /// Counts changes, from 1.
    pub revision: i64,
    /// By their place in the configuration file.
    pub items: Vec<SettingStatus>,
}

/// New values by key; `None`: what the configuration file says.
pub type NewSettings = BTreeMap<String, Option<String>>;
