//! What the administration interface answers, for both of its ends.
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::timeline::BootRecord;

/// `GET /v1/boots`, `GET /v1/boots/{device or id}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BootsAnswer {
    /// The boots: the latest of each device, or those of one device, latest first, or one.
    pub boots: Vec<BootRecord>,
}

/// `GET /v1/devices`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DevicesAnswer {
    /// The devices, by name.
    pub devices: Vec<DeviceAnswer>,
}

/// One device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceAnswer {
    /// Its name.
    pub name: String,
    /// Its MAC address.
    pub mac: String,
    /// What it boots.
    pub vdisk: String,
    /// The name that its initiator must use.
    pub initiator: String,
    /// `off` if it has no boot under way, else the status of its boot: `waiting`, `first stage`, `second stage`, `ready`,
    /// `disconnected`.
    pub status: String,
    /// The boot that is under way.
    pub boot: Option<String>,
    /// Its open sessions.
    pub sessions: u32,
    /// Its write cache, while it is open.
    pub write_cache: Option<WriteCacheAnswer>,
}

/// A write cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteCacheAnswer {
    /// What it takes.
    pub used_bytes: u64,
    /// What it may take.
    pub limit_bytes: u64,
    /// `ok`, `nearly full` or `full`.
    pub fill: String,
}

/// `GET /v1/status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusAnswer {
    /// The server's version.
    pub version: String,
    /// Since when it runs.
    pub uptime_s: u64,
    /// Where disks are served over iSCSI.
    pub iscsi: Vec<SocketAddr>,
    /// Where they are served over NBD, by TCP.
    #[serde(default)]
    pub nbd: Vec<SocketAddr>,
    /// Where scripts are served.
    pub http: SocketAddr,
    /// How many devices there are.
    pub devices: usize,
    /// How many sessions are open.
    pub sessions: u64,
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorAnswer {
    /// In words.
    pub error: String,
}
