//! What servers tell each other, again and again: that they run, what they carry, and what the devices do that they serve.
use crate::model::{DeviceId, ServerId};

use super::choice::Choice;
use super::values::Timestamp;

/// The longest text that is kept of a server or a device, in bytes: either takes about 1 KiB.
pub const MAX_REPORT_BYTES: usize = 16_384;

/// What a server said of itself last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerReport {
    /// When, by the server's own clock.
    pub at: Timestamp,
    /// What it carried then, as JSON: known to whoever asks, who may run another version of this program. `None`: it said that
    /// it stops.
    pub load: Option<String>,
}

/// What a server said of a device last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceReport {
    /// Which server.
    pub server: ServerId,
    /// Of which device.
    pub device: DeviceId,
    /// What, as JSON: known to whoever asks, as a load is.
    pub told: String,
}

/// Whether a server serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServerState {
    /// It was heard of a moment ago.
    Running,
    /// It was not heard of for so long that it is gone, or cannot reach the farm's database.
    Silent,
    /// It said that it stops.
    Stopped,
    /// Nothing was ever heard of it.
    NeverHeard,
}

impl Choice for ServerState {
    const WHAT: &'static str = "a state of a server";
    const RULE: &'static str = "running, silent, stopped or never-heard";
    const ALL: &'static [(Self, &'static str)] = &[
        (Self::Running, "running"),
        (Self::Silent, "silent"),
        (Self::Stopped, "stopped"),
        (Self::NeverHeard, "never-heard"),
    ];
}
