//! Answers of the REST API, as far as pages show them.
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// Part of a list.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct List<T> {
    pub(crate) items: Vec<T>,
    pub(crate) next: Option<String>,
    pub(crate) total: u64,
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self { items: Vec::new(), next: None, total: 0 }
    }
}

/// Another object.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Reference {
    pub(crate) id: i64,
    pub(crate) name: String,
}

/// What has a name.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct Named {
    pub(crate) id: i64,
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) site: Option<Reference>,
    #[serde(default)]
    pub(crate) store: Option<Reference>,
}

impl Named {
    /// With what it is in, as a command names it: a collection with its site, a vDisk with its store.
    pub(crate) fn full(&self) -> String {
        match self.site.as_ref().or(self.store.as_ref()) {
            Some(within) => format!("{}/{}", within.name, self.name),
            None => self.name.clone(),
        }
    }
}

/// A target device.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct Device {
    pub(crate) id: i64,
    pub(crate) revision: i64,
    pub(crate) name: String,
    pub(crate) description: Option<String>,
    pub(crate) collection: Reference,
    pub(crate) site: Reference,
    pub(crate) kind: Option<String>,
    pub(crate) macs: Vec<String>,
    pub(crate) uuid: Option<String>,
    pub(crate) address: Option<String>,
    pub(crate) initiator: Option<String>,
    pub(crate) disabled: bool,
    pub(crate) disks: Option<Vec<Disk>>,
    pub(crate) write_cache: Option<Value>,
    pub(crate) personality: Option<BTreeMap<String, String>>,
}

/// A disk of a device.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct Disk {
    pub(crate) vdisk: Reference,
    #[serde(default)]
    pub(crate) disabled: bool,
}

/// A vDisk.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct Vdisk {
    pub(crate) id: i64,
    pub(crate) revision: i64,
    pub(crate) name: String,
    pub(crate) description: Option<String>,
    pub(crate) store: Reference,
    pub(crate) mode: String,
    pub(crate) held_at: Option<u32>,
    pub(crate) disabled: bool,
    pub(crate) write_cache: Option<WriteCache>,
}

/// The write caches of a vDisk.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct WriteCache {
    pub(crate) kind: String,
    pub(crate) limit_bytes: u64,
}

/// What the versions of a vDisk come to.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct VdiskSummary {
    pub(crate) vdisk: Reference,
    pub(crate) versions: u64,
    pub(crate) damaged: u64,
    pub(crate) newest: Option<NewestVersion>,
    pub(crate) files_bytes: u64,
    pub(crate) disk_bytes: Option<u64>,
}

/// The newest version of a vDisk.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct NewestVersion {
    pub(crate) number: u32,
    pub(crate) access: String,
}

/// A version of a vDisk.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct Version {
    pub(crate) id: i64,
    pub(crate) revision: i64,
    pub(crate) vdisk: Reference,
    pub(crate) number: u32,
    pub(crate) kind: String,
    pub(crate) access: String,
    pub(crate) state: String,
    pub(crate) parent: Option<u32>,
    pub(crate) file: String,
    pub(crate) comment: String,
    pub(crate) made_at: String,
    pub(crate) released_at: Option<String>,
    pub(crate) length_bytes: Option<u64>,
    pub(crate) disk_bytes: Option<u64>,
}

impl Version {
    /// Whether production devices get it later.
    pub(crate) fn is_scheduled(&self) -> bool {
        let at = self.released_at.as_deref().and_then(|at| at.parse::<farm::model::Timestamp>().ok());
        let now_ms = crate::markup::now_us().checked_div(1000).unwrap_or(0);
        self.access == "production" && at.is_some_and(|at| u64::try_from(at.ms()).is_ok_and(|at| at > now_ms))
    }
}

/// Work that takes longer.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct Task {
    pub(crate) id: i64,
    pub(crate) kind: String,
    pub(crate) state: String,
    pub(crate) actor: String,
    pub(crate) vdisk: Option<Reference>,
    pub(crate) done: u64,
    pub(crate) total: u64,
    pub(crate) percent: Option<u64>,
    pub(crate) rate: Option<u64>,
    pub(crate) left_s: Option<u64>,
    pub(crate) made_at: String,
    pub(crate) ended_at: Option<String>,
    pub(crate) result: Option<String>,
}

impl Task {
    pub(crate) fn has_ended(&self) -> bool {
        ["done", "failed", "cancelled"].contains(&self.state.as_str())
    }
}

/// A line of a task's log.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct LogLine {
    pub(crate) at: String,
    pub(crate) text: String,
}

/// The log of a task.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct Log {
    pub(crate) lines: Vec<LogLine>,
}

/// A lease.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct Lock {
    /// Names it.
    pub(crate) fence: i64,
    pub(crate) sharing: String,
    pub(crate) purpose: String,
    pub(crate) owner: KindName,
    pub(crate) subject: KindName,
    /// The server that acts for the owner.
    pub(crate) server: Reference,
    pub(crate) since: String,
    pub(crate) until: String,
    /// The site whose administrators may break it; none: those of the farm alone.
    #[serde(default)]
    pub(crate) site: Option<Reference>,
    /// How many devices could not log in for it of late.
    #[serde(default)]
    pub(crate) keeps_out: u64,
    /// Those of them that wait longest.
    #[serde(default)]
    pub(crate) kept_out: Vec<KeptOutDevice>,
}

/// A device that could not log in.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct KeptOutDevice {
    pub(crate) device: Reference,
    pub(crate) since: String,
    pub(crate) last: String,
}

/// What something is and is called.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct KindName {
    pub(crate) kind: String,
    pub(crate) name: String,
}

/// The room of one folder.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct Space {
    /// `None`: the folder of write caches.
    pub(crate) store: Option<Reference>,
    pub(crate) folder: String,
    pub(crate) free_bytes: Option<u64>,
    pub(crate) total_bytes: Option<u64>,
    pub(crate) problem: Option<String>,
}

/// The room of a server.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct SpaceList {
    pub(crate) items: Vec<Space>,
}

/// A server: whether it serves, and what it carries.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct Server {
    pub(crate) server: Reference,
    pub(crate) disabled: bool,
    pub(crate) max_devices: Option<u32>,
    /// `running`, `silent`, `stopped` or `never-heard`.
    pub(crate) state: String,
    pub(crate) heard_at: Option<String>,
    pub(crate) load: Option<api::load::ServerLoad>,
}
