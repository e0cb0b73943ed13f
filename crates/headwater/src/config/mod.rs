//! The configuration file `headwater.toml`: read once at start into [`Config`], whose values cannot be wrong.
//!
//! The file is TOML. It is not handed to a deserializer but read section by section through `reader::Section`,
//! because an administrator wants *all* mistakes at once, each with its line and column, and for a misspelled key
//! the nearest one that exists. [`parse`] checks what the text alone can tell; `Config::check_files` checks what needs a look
//! at the machine (does the image exist?). Every key is described in `docs/configuration.md`; the commented default file is
//! [`DEFAULT_FILE`], and a test holds both to what the code reads.
mod admission;
mod api;
mod capacity;
mod cloud;
mod command_line;
mod devices;
mod farm;
mod limits;
mod nbd;
mod network;
mod problem;
mod reader;
mod settings;
mod storage;
#[cfg(test)]
mod tests;
mod values;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use api::Api;
pub use capacity::Capacity;
pub use cloud::CloudConfig;
pub use command_line::{BootWords, CommandLine};
pub(crate) use devices::derived_initiator;
pub use devices::{Chap, Device, DeviceName, UnknownDevices};
pub use farm::{CatalogueAt, ServerIdentity};
pub use nbd::{Nbd, NbdTls, Network, Reader, TlsFiles, unprotected};
pub use network::{AddressRange, DhcpPool, Interface, InterfaceMode, NetbootFiles, RelayedNetwork};
pub use problem::{Position, Problem, Problems};
pub use settings::{Settable, SettingKey};
pub use storage::{CacheKind, DirectKernel, ImageFormat, KernelSource, Vdisk, WriteCache};
pub use values::ByteSize;

use reader::Section;

/// The commented configuration with every default, as `--print-default-config` shows it.
pub const DEFAULT_FILE: &str = include_str!("../../../../packaging/headwater.toml");

/// Where the administration socket is unless said otherwise.
pub const DEFAULT_SOCKET: &str = "/run/headwater/headwater.sock";

/// The largest configuration file that is read: some ten thousand devices.
pub const MAX_FILE_BYTES: u64 = 4 << 20;

/// The port of iSCSI (IANA).
const ISCSI_PORT: u16 = 3260;

/// The longest that a stop waits for initiators: service managers lose patience soon after.
const MAX_LOGOUT: Duration = Duration::from_secs(60);

/// The most addresses that one service listens on.
const MAX_LISTENERS: usize = 16;

/// How disks are served over iSCSI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Iscsi {
    /// Where.
    pub listen: Vec<SocketAddr>,
    /// What every target's name begins with.
    pub iqn_prefix: String,
    /// Whether CHAP may use MD5, where the initiator prefers it or knows nothing else.
    pub chap_md5: bool,
    /// Another server, to which all logins are sent for now.
    pub redirect: Option<SocketAddr>,
    /// How long initiators have to log out when the server stops.
    pub logout_within: Duration,
    /// How many connections there may be, and how much memory they may take.
    pub capacity: Capacity,
}

/// Everything that `headwater serve` is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The file that it was read from.
    pub file: PathBuf,
    /// Where boot timelines and the devices' current boots are kept.
    pub state_dir: PathBuf,
    /// What this server is called in the farm.
    pub server: ServerIdentity,
    /// Where the farm's catalogue is.
    pub catalogue: CatalogueAt,
    /// The socket that `headwater boots` and its kin talk to.
    pub admin_socket: PathBuf,
    /// How many boots are kept for each device.
    pub boots_kept: usize,
    /// What machines get that no `[[device]]` names.
    pub unknown_devices: UnknownDevices,
    /// How disks are served over iSCSI.
    pub iscsi: Iscsi,
    /// How disks are served over NBD, if they are.
    pub nbd: Option<Nbd>,
    /// Where scripts, boot files and the ready beacon are served.
    pub http_listen: SocketAddr,
    /// Where the REST API is served to other machines, if it is.
    pub api: Option<Api>,
    /// What operating systems are told.
    pub cloud: CloudConfig,
    /// How many devices boot at a time.
    pub admission: crate::stream::admission::Rules,
    /// Boot files.
    pub netboot: NetbootFiles,
    /// Interfaces with DHCP, proxyDHCP or TFTP.
    pub interfaces: Vec<Interface>,
    /// Networks behind DHCP relay agents.
    pub relays: Vec<RelayedNetwork>,
    /// Folders of images, by name.
    pub stores: BTreeMap<String, PathBuf>,
    /// Golden images.
    pub vdisks: Vec<Vdisk>,
    /// Write caches.
    pub write_cache: WriteCache,
    /// How fast each device may read and write that has no limits of its own.
    pub limits: meter::Rates,
    /// Known machines.
    pub devices: Vec<Device>,
}

impl Config {
    /// Reads and checks the file at `path`, and the files that it names.
    ///
    /// # Errors
    /// Every mistake that was found.
    pub fn load(path: &Path) -> Result<Self, Problems> {
        let text = read_bounded(path).map_err(|why| {
            let hint = match path.exists() {
                true => "",
                false => "\n  No farm is set up here yet? \"headwater init\" does it; --config names another place.",
            };
            Problems::whole_file(path, format!("{why}{hint}"))
        })?;
        let (config, problems) = read(&text, path);
        config.check_files(&problems);
        problems.into_result(config)
    }

    /// The vDisk with this name.
    #[must_use]
    pub fn vdisk(&self, name: &str) -> Option<&Vdisk> {
        self.vdisks.iter().find(|vdisk| vdisk.name == name)
    }

    /// Checks what only the machine can tell: that every image is there.
    fn check_files(&self, problems: &Problems) {
        for vdisk in &self.vdisks {
            if let Err(error) = std::fs::File::open(&vdisk.path) {
                problems.report_at(
                    vdisk.defined_at.clone(),
                    format!(
                        "vDisk \"{}\": cannot open its image {}: {error}",
                        vdisk.name,
                        vdisk.path.display()
                    ),
                );
            }
        }
    }
}

/// Reads the text of a configuration; `path` is for messages alone.
///
/// # Errors
/// Every mistake that the text alone shows.
pub fn parse(text: &str, path: &Path) -> Result<Config, Problems> {
    let (config, problems) = read(text, path);
    problems.into_result(config)
}

fn read_bounded(path: &Path) -> Result<String, String> {
    let size = std::fs::metadata(path).map_err(|error| error.to_string())?.len();
    if size > MAX_FILE_BYTES {
        return Err(format!("the file has {size} bytes; the limit is {MAX_FILE_BYTES}"));
    }
    std::fs::read_to_string(path).map_err(|error| error.to_string())
}

fn read(text: &str, path: &Path) -> (Config, Problems) {
    let problems = Problems::new(text, path);
    let (table, errors) = toml::de::DeTable::parse_recoverable(text);
    for error in &errors {
        problems.report(error.span(), format!("not TOML: {}", error.message()));
    }
    let mut root = Section::new("", table.get_ref(), table.span(), &problems);
    let config = read_root(&mut root, path);
    // After a syntax error half of a table may be missing: what else it lacks would be noise.
    if errors.is_empty() {
        root.finish();
        check_together(&config, &problems);
    }
    if !errors.is_empty() {
        problems.keep_first(errors.len());
    }
    (config, problems)
}

fn read_root(root: &mut Section<'_>, path: &Path) -> Config {
    let state_dir = root.path("state_dir").unwrap_or_else(|| PathBuf::from("/var/lib/headwater"));
    let server = farm::read_server(root);
    let catalogue = farm::read_catalogue(root);
    let admin_socket = root.path("admin_socket").unwrap_or_else(|| PathBuf::from(DEFAULT_SOCKET));
    let boots_kept = root.integer("boots_kept", 1..=1000).unwrap_or(50);
    let unknown = devices::read_unknown(root);
    let iscsi = read_iscsi(root);
    let nbd = nbd::read(root);
    let http_listen = read_http(root);
    let api = api::read(root);
    let cloud = cloud::read(root);
    let admission = admission::read(root);
    let netboot = network::read_files(root);
    let interfaces = network::read_interfaces(root);
    let relays = network::read_relays(root, &interfaces);
    let stores = storage::read_stores(root);
    let vdisks = storage::read_vdisks(root, &stores);
    let write_cache = storage::read_write_cache(root, &state_dir);
    let names: Vec<&str> = vdisks.iter().map(|vdisk| vdisk.name.as_str()).collect();
    let limits = limits::read_limits(root);
    let devices = devices::read_devices(root, &names, &iscsi.iqn_prefix, limits);
    Config {
        file: path.to_owned(),
        state_dir,
        server,
        catalogue,
        admin_socket,
        boots_kept: usize::try_from(boots_kept).unwrap_or(50),
        unknown_devices: devices::check_unknown(root, unknown, &names),
        iscsi,
        nbd,
        http_listen,
        api,
        cloud,
        admission,
        netboot,
        interfaces,
        relays,
        stores,
        vdisks,
        write_cache,
        limits,
        devices,
    }
}

fn read_iscsi(root: &mut Section<'_>) -> Iscsi {
    let default = Iscsi {
        listen: vec![SocketAddr::from(([0, 0, 0, 0], ISCSI_PORT))],
        iqn_prefix: "iqn.2026-11.org.headwater".to_owned(),
        chap_md5: true,
        redirect: None,
        logout_within: Duration::from_secs(3),
        capacity: Capacity::ISCSI,
    };
    let Some(mut section) = root.section("iscsi") else { return default };
    let listen = section.strings("listen", MAX_LISTENERS, |text| values::socket_address(text, ISCSI_PORT));
    let prefix = section.string_as("iqn_prefix", values::iqn_prefix);
    let chap_md5 = section.boolean("chap_md5");
    let redirect = section.string_as("redirect", |text| values::socket_address(text, ISCSI_PORT));
    let logout_within = section.string_as("logout_within", |text| {
        let time = values::duration(text)?;
        if time > MAX_LOGOUT { Err(format!("\"{text}\" is more than a minute")) } else { Ok(time) }
    });
    let capacity = capacity::read(&mut section, default.capacity);
    section.finish();
    Iscsi {
        listen: listen.unwrap_or(default.listen),
        iqn_prefix: prefix.unwrap_or(default.iqn_prefix),
        chap_md5: chap_md5.unwrap_or(default.chap_md5),
        redirect,
        logout_within: logout_within.unwrap_or(default.logout_within),
        capacity,
    }
}

fn read_http(root: &mut Section<'_>) -> SocketAddr {
    let default = SocketAddr::from(([0, 0, 0, 0], 8080));
    let Some(mut section) = root.section("http") else { return default };
    let listen = section.string_as("listen", |text| values::socket_address(text, 8080));
    section.finish();
    listen.unwrap_or(default)
}

/// Checks what needs more than one section.
fn check_together(config: &Config, problems: &Problems) {
    for owner in config.devices.iter().filter(|device| device.is_private()) {
        check_private(config, owner, problems);
    }
    for interface in &config.interfaces {
        let InterfaceMode::Dhcp(pool) = &interface.mode else { continue };
        for device in &config.devices {
            if device.address.is_some_and(|address| Some(address) == pool.router) {
                problems.report_at(
                    device.defined_at.clone(),
                    format!(
                        "device \"{}\": its address is that of the router of interface \"{}\"",
                        device.name, interface.name
                    ),
                );
            }
        }
    }
}

/// A vDisk that a device writes itself has no other user.
fn check_private(config: &Config, owner: &Device, problems: &Problems) {
    let path = |vdisk: &str| config.vdisk(vdisk).map(|vdisk| vdisk.path.as_path());
    let Some(own) = path(&owner.vdisk) else { return };
    let name = owner.vdisk.split_once('@').map_or(owner.vdisk.as_str(), |(name, _)| name);
    if config.vdisk(&format!("{name}@0")).is_some() {
        problems.report_at(
            owner.defined_at.clone(),
            format!(
                "device \"{}\" writes the vDisk \"{name}\" itself (write_cache = \"none\"), and that has versions: give it a vDisk of its own, without versions",
                owner.name
            ),
        );
        return;
    }
    let strangers = match &config.unknown_devices {
        UnknownDevices::Vdisk(vdisk) => path(vdisk) == Some(own),
        UnknownDevices::Ignore => false,
    };
    let other =
        config.devices.iter().find(|other| other.name != owner.name && path(&other.vdisk) == Some(own));
    let user = match other {
        Some(other) => format!("device \"{}\"", other.name),
        None if strangers => "unknown_devices".to_owned(),
        None => return,
    };
    problems.report_at(
        owner.defined_at.clone(),
        format!(
            "device \"{}\" writes the vDisk \"{}\" itself (write_cache = \"none\"), and {user} uses it too: give one of them a vDisk of its own, or a write cache",
            owner.name, owner.vdisk
        ),
    );
}
