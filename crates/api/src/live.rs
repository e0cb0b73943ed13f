//! What the running server alone knows: which devices run, and what is counted of them.
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::SocketAddr;

use control::{Code, ControlError};
use farm::model::{CollectionId, DeviceId, DeviceName, Fence, Mac, SecretName, Timestamp, Uuid};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::guest_commands::{CommandStatus, CommandWanted};
use crate::host::{HostReport, NetworkReport, NewSettings, SettingsStatus};

/// What the running server alone knows. Calls may wait for a disk, but [`follow`](Self::follow).
pub trait Live: Send + Sync + 'static {
    /// The server itself.
    fn status(&self) -> ServerStatus;

    /// The names of the CHAP secrets that this server keeps, in order. By default, it keeps none.
    fn secrets(&self) -> Vec<String> {
        Vec::new()
    }

    /// Keeps a CHAP secret under a name, or with `None` forgets it; whether there was one.
    ///
    /// # Errors
    /// Those of the disk that it is kept on.
    fn keep_secret(&self, name: &SecretName, secret: Option<&str>) -> Result<bool, ControlError> {
        let _ = (name, secret);
        Err(ControlError::new(Code::Unsupported, "this server keeps no CHAP secrets"))
    }

    /// Counters since the server's start.
    fn stats(&self) -> Stats;

    /// The same in Prometheus' text format, version 0.0.4.
    fn metrics(&self) -> String;

    /// What all devices are doing, by name: as this server sees it, or as another tells from which they run.
    fn devices(&self) -> Vec<DeviceStatus>;

    /// What one device is doing, in the same way. `None`: this server has not seen it.
    fn device(&self, name: &DeviceName) -> Option<DeviceStatus>;

    /// Forgets the device's current boot and ends its sessions; with `discard_persistent`, its persistent write cache goes
    /// as well.
    ///
    /// # Errors
    /// [`control::Code::NotFound`] of a device that this server does not know, or why it could not be done.
    fn reset(&self, name: &DeviceName, discard_persistent: bool) -> Result<(), ControlError>;

    /// Wakes a device by its network cards. The interfaces that the packets went out on.
    ///
    /// # Errors
    /// [`control::Code::NotFound`] of a device without a network card that this server knows; why no packet could be sent.
    fn wake(&self, name: &DeviceName) -> Result<Vec<String>, ControlError> {
        Err(ControlError::new(control::Code::NotFound, format!("this server does not know device {name}")))
    }

    /// Gives the systems of devices a command, each of which its own service fetches. What became of it with each of the
    /// devices; with `dry_run` what would.
    ///
    /// # Errors
    /// [`Code::Throttled`] where too many commands wait to be fetched; servers that give none say so.
    fn give_command(
        &self,
        _devices: &[DeviceName],
        _wanted: &CommandWanted,
    ) -> Result<CommandStatus, ControlError> {
        Err(ControlError::new(Code::Unsupported, "this server gives devices no commands"))
    }

    /// The latest commands, latest first.
    fn commands(&self) -> Vec<CommandStatus> {
        Vec::new()
    }

    /// What was found at the latest look at the server's host. `None`: nobody has looked since its start.
    fn host_report(&self) -> Option<HostReport> {
        None
    }

    /// Looks at the host, as `headwater doctor` does: for some seconds. With `dhcp` it asks on the networks that machines boot on who
    /// else answers.
    ///
    /// # Errors
    /// [`Code::InUse`] while somebody else has it look; servers that look at nothing say so.
    fn look_at_host(&self, dhcp: bool) -> Result<HostReport, ControlError> {
        let _ = dhcp;
        Err(ControlError::new(Code::Unsupported, "this server does not look at its host"))
    }

    /// Which packets get to a device whole, as `headwater doctor network` finds out: for some seconds.
    ///
    /// # Errors
    /// [`Code::NotFound`] of a device that has not logged in; why nothing can be sent.
    fn look_at_network(&self, name: &DeviceName) -> Result<NetworkReport, ControlError> {
        Err(ControlError::new(Code::NotFound, format!("device {name} has not logged in to this server")))
    }

    /// The settings that can be changed while the server runs.
    fn settings(&self) -> SettingsStatus {
        SettingsStatus { revision: 1, items: Vec::new() }
    }

    /// Gives settings other values, all of them or none, where `expected` is the revision that they have; `None`: whatever it
    /// is. What they are afterwards; with `dry_run` what they would be.
    ///
    /// # Errors
    /// [`Code::BadValue`] with the key as field, [`Code::Stale`], [`Code::FileFailed`] of the disk that they are kept on.
    fn change_settings(
        &self,
        new: &NewSettings,
        expected: Option<i64>,
        dry_run: bool,
    ) -> Result<SettingsStatus, ControlError> {
        let _ = (expected, dry_run);
        match new.keys().next() {
            None => Ok(self.settings()),
            Some(key) => Err(ControlError::bad_value(key, "this server has no such setting")),
        }
    }

    /// The devices that could not log in of late because of what others have, who waits longest first. There are at most
    /// 10,000; by default there are none.
    fn kept_out(&self) -> Vec<KeptOut> {
        Vec::new()
    }

    /// Machines that wait until somebody lets them in, by name.
    fn newcomers(&self) -> Vec<Newcomer> {
        Vec::new()
    }

    /// Takes a machine off the list of those that wait, since it was let in.
    fn newcomer_let_in(&self, _: Mac) {}

    /// Refuses a machine that waits, for a day. Whether it waited.
    fn refuse_newcomer(&self, _: Mac) -> bool {
        false
    }

    /// The latest boot of each device, as objects of `docs/timeline.md`.
    ///
    /// # Errors
    /// Those of the disk that they are kept on.
    fn boots(&self) -> Result<Vec<Value>, ControlError>;

    /// The same, and of the other boots that are kept those that began at this moment (microseconds since 1970) or later.
    ///
    /// # Errors
    /// Those of the disk that they are kept on.
    fn boots_since(&self, unix_us: u64) -> Result<Vec<Value>, ControlError> {
        let _ = unix_us;
        self.boots()
    }

    /// The boots of a device, latest first, or the one with this id.
    ///
    /// # Errors
    /// Those of the disk that they are kept on.
    fn boots_of(&self, device_or_id: &str) -> Result<Vec<Value>, ControlError>;

    /// Begins to record the block requests of a device. What was recorded of it before is gone. This and what belongs to it
    /// is left out by servers that record nothing.
    ///
    /// # Errors
    /// [`control::Code::NotFound`] of a device that this server does not know, or why it could not be done.
    fn trace_start(&self, name: &DeviceName, _wanted: &TraceWanted) -> Result<TraceStatus, ControlError> {
        Err(ControlError::new(Code::NotFound, format!("this server records no requests of device {name}")))
    }

    /// Ends a recording. `None`: there is none.
    fn trace_stop(&self, _name: &DeviceName) -> Option<TraceStatus> {
        None
    }

    /// How far a recording is. `None`: there is none.
    fn trace(&self, _name: &DeviceName) -> Option<TraceStatus> {
        None
    }

    /// What was recorded, as the table that `docs/trace.md` describes. `None`: there is nothing.
    ///
    /// # Errors
    /// Those of the disk that it is kept on.
    fn trace_table(&self, _name: &DeviceName) -> Result<Option<String>, ControlError> {
        Ok(None)
    }

    /// The boots under way.
    ///
    /// # Errors
    /// Of one that cannot be told.
    fn boots_under_way(&self) -> Result<Vec<Value>, ControlError>;

    /// Each boot that changes from now on, as it is then, until the receiver is dropped. The queue is bounded: a listener
    /// that does not read holds up nobody but itself, and is told less often.
    fn follow(&self, requests: Requests) -> mpsc::Receiver<Followed>;

    /// Each device that comes or goes from now on, until the receiver is dropped; bounded like [`follow`](Self::follow). By
    /// default, none.
    fn follow_presence(&self) -> mpsc::Receiver<PresenceChange> {
        mpsc::channel(1).1
    }
}

/// How long a boot's requests are news, which are told twice a second. Everything else always is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requests {
    /// Until its system is ready: what it reads then is its work, and no end of it.
    UntilReady,
    /// As long as it runs.
    UntilTheEnd,
}

/// What followers of boots are told.
#[derive(Clone, Debug, PartialEq)]
pub enum Followed {
    /// A boot that changed.
    Boot(Value),
    /// The follower was too slow, and has missed some: everything is to be read anew.
    Lost,
}

/// A device that came or went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PresenceChange {
    /// The device.
    pub device: String,
    /// What it is now: `off`, `booting`, `online`, `idle`, `lost`.
    pub presence: String,
    /// What it was before; null where changes were missed, and this tells what it is.
    pub before: Option<String>,
}

/// What is to be recorded of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceWanted {
    /// Its next boot, and nothing before.
    pub next_boot: bool,
    /// Until it says that it is ready.
    pub until_ready: bool,
    /// For so many seconds.
    pub seconds: Option<u64>,
}

/// How far a recording of block requests is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TraceStatus {
    /// `waiting` for the next boot, `recording` or `done`.
    pub state: String,
    /// Requests recorded.
    pub recorded: u64,
    /// Requests that there was no room for.
    pub dropped: u64,
    /// The file on the server; it is whole when the recording is done.
    pub file: String,
    /// Why it ended early.
    pub trouble: Option<String>,
}

/// The server itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServerStatus {
    /// Its version.
    pub version: String,
    /// Since when it runs.
    pub uptime_s: u64,
    /// Where disks are served over iSCSI.
    #[schemars(with = "Vec<String>")]
    pub iscsi: Vec<SocketAddr>,
    /// Where they are served over NBD, by TCP.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub nbd: Vec<SocketAddr>,
    /// Where scripts are served.
    #[schemars(with = "String")]
    pub http: SocketAddr,
    /// How many devices there are.
    pub devices: usize,
    /// How many sessions are open.
    pub sessions: u64,
    /// The number of the last change of the catalogue that boots are decided by.
    #[serde(default)]
    pub catalogue_change: i64,
    /// Why the farm's database cannot be used; none: it can.
    #[serde(default)]
    pub catalogue_trouble: Option<String>,
    /// Who boots and who waits.
    #[serde(default)]
    pub admission: AdmissionStatus,
    /// What is odd about the networks that machines boot on, heard of in the last two hours: other DHCP servers, two machines with one
    /// MAC address.
    #[serde(default)]
    pub network: Vec<String>,
    /// What its process takes of the machine.
    #[serde(default)]
    pub process: ProcessStatus,
}

/// What the process of a server takes of its machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessStatus {
    /// The time that its threads have worked since the start, in microseconds: all processors together.
    pub cpu_us: u64,
    /// How many processors it may use.
    pub processors: u32,
    /// The memory that it holds.
    pub memory_bytes: u64,
    /// What write caches in memory take.
    pub cache_memory_bytes: u64,
    /// What write caches in memory may take together.
    pub cache_memory_limit_bytes: u64,
}

/// How many devices boot at a time, and who waits for a place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AdmissionStatus {
    /// How many may boot at a time; null: all that come.
    pub at_once: Option<usize>,
    /// How many devices have a place to boot.
    pub booting: usize,
    /// How many wait for one.
    pub waiting: usize,
    /// How long the first of them has waited.
    pub longest_wait_s: u64,
    /// How many boots were let in since the server's start.
    pub admitted: u64,
    /// How many of those had to wait.
    pub queued: u64,
    /// How many waiting devices were not heard of again.
    pub given_up: u64,
    /// How many booting devices lost their place by silence or time.
    pub expired: u64,
}

/// A machine that waits until somebody lets it in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Newcomer {
    /// Its address.
    pub mac: Mac,
    /// Its SMBIOS UUID.
    pub uuid: Option<Uuid>,
    /// The collection that it is to join.
    pub collection: CollectionId,
    /// The name that it is to get.
    pub name: DeviceName,
    /// When it asked first.
    pub since: Timestamp,
    /// When it asked last.
    pub seen: Timestamp,
}

/// A device that could not log in, because of what others have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptOut {
    /// Which.
    pub device: DeviceId,
    /// The leases that it was refused for when it tried last: the first five of them.
    pub fences: Vec<Fence>,
    /// When it was refused first.
    pub since: Timestamp,
    /// When it was refused last.
    pub last: Timestamp,
}

/// By whom a device is kept out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KeptOutStatus {
    /// The lock that it is refused for.
    pub lock: i64,
    /// Who has that.
    pub owner: LockOwner,
    /// What for.
    pub purpose: String,
    /// When it was refused first.
    pub since: String,
    /// When it was refused last.
    pub last: String,
}

/// Who has a lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LockOwner {
    /// `device` or `task`.
    pub kind: String,
    /// The id of the device or the task.
    pub id: i64,
    /// What it is called.
    pub name: String,
}

/// What a device is doing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceStatus {
    /// Its name.
    pub name: String,
    /// Its first MAC address, where it has one.
    pub mac: Option<String>,
    /// The farm's other server at which all of this is; null: it is off, or at this one.
    #[serde(default)]
    pub server: Option<String>,
    /// What it boots, or booted.
    pub vdisk: Option<String>,
    /// In which version.
    pub version: Option<u32>,
    /// The number of the vDisk that it runs; null: it runs none.
    #[serde(default)]
    pub vdisk_id: Option<i64>,
    /// The name that its initiator uses.
    pub initiator: String,
    /// `off` if it has no boot under way, else the status of its boot: `waiting`, `first stage`, `second stage`, `ready`,
    /// `disconnected`.
    pub status: Cow<'static, str>,
    /// Whether it is there: `off`, `booting`, `online`, `idle` (up, and asked for nothing for 5 minutes) or `lost` (its
    /// connection went without a good-bye, less than half an hour ago).
    #[serde(default)]
    pub presence: Cow<'static, str>,
    /// The boot that is under way.
    pub boot: Option<String>,
    /// Its open sessions.
    pub sessions: u32,
    /// Its write cache, while it is open.
    pub write_cache: Option<WriteCacheStatus>,
    /// What the path to it carries, as it was found at its last login and since.
    #[serde(default)]
    pub path: Option<PathStatus>,
    /// The lock that it could not log in for of late, while that is there; null: nothing keeps it out. [`Live`] leaves it out.
    #[serde(default)]
    pub kept_out: Option<KeptOutStatus>,
    /// Whether the secrets of its boot have been told, which is done once.
    #[serde(default)]
    pub secrets_told: bool,
    /// Whether the service in its system asks for commands: it can be restarted, shut down and sent a message.
    #[serde(default)]
    pub takes_commands: bool,
}

/// What the network path to a device carries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PathStatus {
    /// The largest packet that is sent there, in bytes with its IP header.
    pub mtu_bytes: u32,
    /// The largest packet that the server's interface sends.
    pub link_mtu_bytes: Option<u32>,
    /// That interface.
    pub interface: Option<String>,
    /// The data of one TCP segment of its connection now.
    pub segment_bytes: Option<u32>,
    /// Whether packets larger than 1,500 bytes go all the way.
    pub jumbo: bool,
    /// Who keeps packets from being larger: `link` (the server's own interface), `network` or `device`.
    pub limited_by: Cow<'static, str>,
    /// All of that in a line for people.
    pub text: String,
}

/// A write cache that is open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WriteCacheStatus {
    /// What it takes.
    pub used_bytes: u64,
    /// What it may take.
    pub limit_bytes: u64,
    /// `ok`, `nearly full` or `full`.
    pub fill: Cow<'static, str>,
}

/// Counters since the server's start. Rates are the differences of two answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Stats {
    /// When the counters were read.
    pub uptime_us: u64,
    /// One for each device or vDisk, and protocol.
    pub accounts: Vec<Account>,
}

/// What is counted of one disk over one protocol; `docs/metrics.md` describes the figures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Account {
    /// The device; none: readers of the vDisk itself.
    pub device: Option<String>,
    /// The vDisk.
    pub vdisk: String,
    /// `iscsi` or `nbd`.
    pub protocol: String,
    /// Sessions and connections ever opened.
    pub connections: u64,
    /// Those that came after one had been lost.
    pub reconnects: u64,
    /// Those that are open.
    pub connections_open: u64,
    /// Requests not answered yet.
    pub in_flight: u64,
    /// Requests that were aborted or cut off.
    pub unanswered: u64,
    /// Requests that a limit held back.
    pub held_back: u64,
    /// By kind: `read`, `write`, `flush`, `unmap`, `other`; those that occurred.
    pub kinds: BTreeMap<String, KindCounts>,
}

/// What is counted of one kind of request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KindCounts {
    /// Requests that were answered.
    pub requests: u64,
    /// Those with an error.
    pub errors: u64,
    /// Bytes that the others moved.
    pub bytes: u64,
    /// Requests that storage had to be waited for.
    pub waited: u64,
    /// The sum of all latencies.
    pub latency_ns: u64,
    /// Bucket and count: bucket 0 holds what took less than 1024 ns; bucket `b` begins at
    /// `(8 + (b - 1) % 8) << (7 + (b - 1) / 8)` ns and ends where the next one begins.
    pub latency_buckets: Vec<(usize, u64)>,
}
