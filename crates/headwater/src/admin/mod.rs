//! What the running server tells administrators: the live side of the REST API, and the socket of this machine on which
//! that is served.
//!
//! Who may open the socket may administrate; its mode is 0660. One file for each kind of thing that is asked about; the
//! answers are those of [`::api::live`].
pub mod api;
mod boots;
mod commands;
mod devices;
pub mod doctor;
pub(crate) mod elsewhere;
mod exposition;
mod presences;
mod process;
mod stats;
mod traces;

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use ::api::guest_commands::{CommandStatus, CommandWanted};
use ::api::host::{HostReport, NetworkReport, NewSettings, SettingsStatus};
use ::api::live::{
    DeviceStatus, Followed, KeptOut, Live, Newcomer, PresenceChange, Requests, ServerStatus, Stats,
    TraceStatus, TraceWanted,
};
use control::{Code, ControlError};
use farm::model::{DeviceId, DeviceName, Mac, SecretName};
use serde_json::Value;
use tokio::net::UnixListener;
use tokio::sync::{mpsc, watch};

use self::doctor::Doctor;
use self::elsewhere::{Elsewhere, Heard, Told};

use crate::serve::settings::Settings;
use crate::stream::admission::Admission;
use crate::stream::device::SessionEnder;
use crate::stream::devices::Devices;
use crate::stream::mailbox::Mailbox;
use crate::stream::oddities::Oddities;
use crate::timeline::presences::Presences;
use crate::timeline::{Moment, Recorder};

/// What the answers are made of.
pub struct Admin {
    /// The boots.
    pub recorder: Arc<Recorder>,
    /// Which devices are there, for followers.
    pub presences: Arc<Presences>,
    /// What the farm's other servers tell of devices.
    pub(crate) elsewhere: Elsewhere,
    /// The devices.
    pub devices: Arc<Devices>,
    /// Ends sessions.
    pub ender: Arc<OnceLock<Box<dyn SessionEnder>>>,
    /// Who boots and who waits.
    pub admission: Arc<Admission>,
    /// Commands for devices' systems.
    pub mailbox: Arc<Mailbox>,
    /// What is odd about the networks.
    pub oddities: Arc<Oddities>,
    /// Looks at the host.
    pub doctor: Doctor,
    /// What can be changed while the server runs.
    pub settings: Arc<Settings>,
    /// When the server started.
    pub started: Instant,
    /// Where disks are served over iSCSI.
    pub iscsi: Vec<SocketAddr>,
    /// Where they are served over NBD, by TCP.
    pub nbd: Vec<SocketAddr>,
    /// Where scripts are served.
    pub http: SocketAddr,
    /// Becomes true when the server stops: followers are let go.
    pub stopping: watch::Receiver<bool>,
}

impl Admin {
    /// What devices do here, for the farm's other servers.
    pub(crate) fn told(&self) -> HashMap<DeviceId, Told> {
        let devices = self.devices.map(|device| (device.id, devices::here(self, device)));
        Told::of_all(devices, self.devices.kept_out())
    }

    /// Hears what those tell.
    pub(crate) fn hear(&self, heard: Heard) {
        self.presences.hear(heard.presences());
        self.elsewhere.hear(heard);
    }
}

impl Live for Admin {
    fn status(&self) -> ServerStatus {
        let farm = self.devices.farm();
        ServerStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_s: self.started.elapsed().as_secs(),
            iscsi: self.iscsi.clone(),
            nbd: self.nbd.clone(),
            http: self.http,
            devices: farm.snapshot().devices().count(),
            sessions: self.recorder.sessions(),
            catalogue_change: farm.snapshot().change().0,
            catalogue_trouble: farm.trouble(),
            admission: stats::admission(&self.admission.queue().figures(Instant::now())),
            network: self.oddities.lines(Instant::now()),
            process: process::status(self.devices.cache_memory()),
        }
    }

    fn secrets(&self) -> Vec<String> {
        self.devices.secrets().names()
    }

    fn keep_secret(&self, name: &SecretName, secret: Option<&str>) -> Result<bool, ControlError> {
        self.devices.secrets().keep(name.as_str(), secret).map_err(|error| {
            ControlError::new(Code::FileFailed, format!("the CHAP secrets cannot be written: {error}"))
        })
    }

    fn stats(&self) -> Stats {
        stats::stats(self)
    }

    fn metrics(&self) -> String {
        stats::metrics(self)
    }

    fn devices(&self) -> Vec<DeviceStatus> {
        devices::all(self)
    }

    fn device(&self, name: &DeviceName) -> Option<DeviceStatus> {
        devices::one(self, name)
    }

    fn reset(&self, name: &DeviceName, discard_persistent: bool) -> Result<(), ControlError> {
        devices::reset(self, name, discard_persistent)
    }

    fn wake(&self, name: &DeviceName) -> Result<Vec<String>, ControlError> {
        devices::wake(self, name)
    }

    fn give_command(
        &self,
        devices: &[DeviceName],
        wanted: &CommandWanted,
    ) -> Result<CommandStatus, ControlError> {
        commands::give(self, devices, wanted)
    }

    fn commands(&self) -> Vec<CommandStatus> {
        self.mailbox.list(crate::catalogue::now())
    }

    fn host_report(&self) -> Option<HostReport> {
        self.doctor.latest()
    }

    fn look_at_host(&self, dhcp: bool) -> Result<HostReport, ControlError> {
        self.doctor.look(dhcp)
    }

    fn look_at_network(&self, name: &DeviceName) -> Result<NetworkReport, ControlError> {
        doctor::network(self, name)
    }

    fn settings(&self) -> SettingsStatus {
        self.settings.status()
    }

    fn change_settings(
        &self,
        new: &NewSettings,
        expected: Option<i64>,
        dry_run: bool,
    ) -> Result<SettingsStatus, ControlError> {
        self.settings.change(new, expected, dry_run)
    }

    fn kept_out(&self) -> Vec<KeptOut> {
        self.elsewhere.heard().kept_out_with(self.devices.kept_out())
    }

    fn newcomers(&self) -> Vec<Newcomer> {
        self.devices.newcomers().waiting()
    }

    fn newcomer_let_in(&self, mac: Mac) {
        self.devices.newcomers().let_in(mac);
    }

    fn refuse_newcomer(&self, mac: Mac) -> bool {
        self.devices.newcomers().refuse(mac, crate::catalogue::now())
    }

    fn boots(&self) -> Result<Vec<Value>, ControlError> {
        boots::latest_of_each(&self.recorder)
            .and_then(|boots| boots::as_values(&boots))
            .map_err(|error| on_disk(&error))
    }

    fn boots_since(&self, unix_us: u64) -> Result<Vec<Value>, ControlError> {
        boots::since(&self.recorder, Moment::from_unix_us(unix_us))
            .and_then(|boots| boots::as_values(&boots))
            .map_err(|error| on_disk(&error))
    }

    fn boots_of(&self, device_or_id: &str) -> Result<Vec<Value>, ControlError> {
        let boots = boots::of_device_or_id(&self.recorder, device_or_id);
        boots.and_then(|boots| boots::as_values(&boots)).map_err(|error| on_disk(&error))
    }

    fn trace_start(&self, name: &DeviceName, wanted: &TraceWanted) -> Result<TraceStatus, ControlError> {
        traces::start(self, name, wanted)
    }

    fn trace_stop(&self, name: &DeviceName) -> Option<TraceStatus> {
        traces::stop(self, name)
    }

    fn trace(&self, name: &DeviceName) -> Option<TraceStatus> {
        traces::status(self, name)
    }

    fn trace_table(&self, name: &DeviceName) -> Result<Option<String>, ControlError> {
        traces::table(self, name)
    }

    fn boots_under_way(&self) -> Result<Vec<Value>, ControlError> {
        boots::under_way(&self.recorder).map_err(|error| on_disk(&error))
    }

    fn follow(&self, requests: Requests) -> mpsc::Receiver<Followed> {
        boots::follow(&self.recorder, requests, self.stopping.clone())
    }

    fn follow_presence(&self) -> mpsc::Receiver<PresenceChange> {
        presences::follow(&self.presences, self.stopping.clone())
    }
}

impl std::fmt::Debug for Admin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admin").finish_non_exhaustive()
    }
}

fn on_disk(error: &io::Error) -> ControlError {
    // A name that no device and no boot can have: nothing was looked for.
    if error.kind() == io::ErrorKind::InvalidInput {
        return ControlError::new(Code::NotFound, error.to_string());
    }
    ControlError::new(Code::Internal, format!("what is kept of boots cannot be read: {error}"))
}

/// Makes the socket. One that a dead server has left is removed; one that answers is not.
///
/// # Errors
/// `AddrInUse` if another server answers on it; else what the operating system said.
pub fn bind(path: &Path) -> io::Result<UnixListener> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    if path.exists() {
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "another headwater serve answers on it"));
        }
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660))?;
    Ok(listener)
}
