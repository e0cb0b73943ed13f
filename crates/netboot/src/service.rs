//! The boot services of a machine: their configuration, their start, their end.
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::boot_files::{BootFiles, BootFilesConfig, BootFilesError};
use crate::dhcp::boot::BootServer;
use crate::dhcp::driver::{DhcpService, Guard, Role};
use crate::dhcp::lookout::{Expected, Lookout};
use crate::dhcp::server::Server;
use crate::dhcp::subnet::{Subnet, SubnetError};
use crate::dhcp::{PXE_PORT, SERVER_PORT};
use crate::director::Director;
use crate::http::Services;
use crate::limits::LogGate;
use crate::neighbours::Neighbours;
use crate::tftp::server::TftpService;
use crate::{advertiser, sockets, tftp};

/// The pause after a socket's error: what is broken now is so in a millisecond too.
const RECEIVE_ERROR_PAUSE: Duration = Duration::from_millis(200);

/// The boot services' configuration.
#[derive(Clone, Debug)]
pub struct NetbootConfig {
    /// The interfaces that are answered on; others are not.
    pub interfaces: Vec<InterfaceConfig>,
    /// The port of the program's HTTP server, which serves [`crate::http::router`].
    pub http_port: u16,
    /// The boot files.
    pub boot_files: BootFilesConfig,
    /// Where the leases are kept, in a file for each interface; `None`: in memory only.
    pub lease_directory: Option<PathBuf>,
}

/// One interface.
#[derive(Clone, Debug)]
pub struct InterfaceConfig {
    /// Its name.
    pub name: String,
    /// Our address on it, where it has several; `None`: its first.
    pub address: Option<Ipv4Addr>,
    /// What we are to DHCP clients.
    pub mode: Mode,
    /// Whether boot files are served by TFTP.
    pub tftp: bool,
    /// Whether IPv6 router solicitations are answered with "no router here", so that iPXE does not wait for one. `None`: as DHCP
    /// server yes, else no.
    pub router_advertisements: Option<bool>,
}

/// What we are to DHCP clients.
#[derive(Clone, Debug)]
pub enum Mode {
    /// Their DHCP server, and there is no other.
    Dhcp {
        /// The interface's own network.
        subnet: Subnet,
        /// Networks whose relay agents send to us.
        relayed: Vec<Subnet>,
    },
    /// A proxy: boot information beside the site's DHCP server.
    Proxy,
    /// Nothing: the site's DHCP server names the boot file, too.
    None,
}

/// Why the boot services cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The boot files.
    #[error(transparent)]
    BootFiles(#[from] BootFilesError),
    /// No such interface.
    #[error("interface \"{interface}\" does not exist; `ip link` lists those that do")]
    InterfaceAbsent {
        /// Its name.
        interface: String,
    },
    /// An interface stands in the configuration twice.
    #[error("interface \"{interface}\" is configured twice")]
    InterfaceTwice {
        /// Its name.
        interface: String,
    },
    /// The interface has no IPv4 address.
    #[error(
        "interface \"{interface}\" has no IPv4 address or is down; boot services need one: \
         `ip address add ADDRESS/PREFIX dev {interface}` and `ip link set {interface} up`"
    )]
    NoAddress {
        /// Its name.
        interface: String,
    },
    /// Somebody else has the port.
    #[error(
        "UDP port {port} ({service}) on interface \"{interface}\" is in use by another program; \
         `ss -ulpn 'sport = :{port}'` shows which: stop it, or turn this service off"
    )]
    PortInUse {
        /// Which service wants it.
        service: &'static str,
        /// The port.
        port: u16,
        /// The interface.
        interface: String,
    },
    /// The operating system does not let us.
    #[error(
        "no privilege for {service} (port {port}) on interface \"{interface}\": run as root, or give the program {capability} \
         (systemd: AmbientCapabilities={capability})"
    )]
    Privilege {
        /// Which service wants it.
        service: &'static str,
        /// The port; 0 for a raw socket.
        port: u16,
        /// The interface.
        interface: String,
        /// What is missing.
        capability: &'static str,
    },
    /// The addresses to give out are wrong.
    #[error("the DHCP addresses of interface \"{interface}\" are wrong")]
    Subnet {
        /// The interface.
        interface: String,
        /// What is wrong.
        #[source]
        source: SubnetError,
    },
    /// The lease file cannot be read.
    #[error("cannot read the lease file {path:?}")]
    Leases {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A socket cannot be made, for another reason.
    #[error("cannot open {what} on interface \"{interface}\"")]
    Socket {
        /// For what.
        what: &'static str,
        /// The interface.
        interface: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// The running boot services. Dropped without [`shutdown`](Self::shutdown), they end at once.
#[derive(Debug)]
pub struct NetbootHandle {
    services: ServicesHolder,
    stop: watch::Sender<bool>,
    /// End by themselves when `stop` is sent: they have something to save.
    graceful: JoinSet<()>,
    /// Are aborted.
    abrupt: JoinSet<()>,
}

struct ServicesHolder(Services);

impl std::fmt::Debug for ServicesHolder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.files.list()).finish()
    }
}

/// Starts the boot services of the configured interfaces, in the current tokio runtime.
///
/// # Errors
/// The first thing that keeps a service from starting. Nothing runs then.
pub async fn start(config: NetbootConfig, director: Arc<dyn Director>) -> Result<NetbootHandle, StartError> {
    let boot_files = config.boot_files.clone();
    let files = match tokio::task::spawn_blocking(move || BootFiles::load(&boot_files)).await {
        Ok(files) => Arc::new(files?),
        Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
    };
    let services = Services { files, neighbours: Arc::new(Neighbours::default()), director };
    let (stop, stopped) = watch::channel(false);
    let mut handle = NetbootHandle {
        services: ServicesHolder(services),
        stop,
        graceful: JoinSet::new(),
        abrupt: JoinSet::new(),
    };
    for (index, interface) in config.interfaces.iter().enumerate() {
        if config.interfaces.iter().take(index).any(|other| other.name == interface.name) {
            return Err(StartError::InterfaceTwice { interface: interface.name.clone() });
        }
        handle.start_interface(&config, interface, &stopped)?;
    }
    Ok(handle)
}

impl NetbootHandle {
    /// What [`crate::http::router`] needs.
    #[must_use]
    pub fn services(&self) -> Services {
        self.services.0.clone()
    }

    /// Ends the services: leases are written, running TFTP transfers cut off.
    pub async fn shutdown(mut self) {
        self.abrupt.shutdown().await;
        // No receiver: nothing runs any more, which is what is wanted.
        let _ = self.stop.send(true);
        while self.graceful.join_next().await.is_some() {}
    }

    fn start_interface(
        &mut self,
        config: &NetbootConfig,
        interface: &InterfaceConfig,
        stopped: &watch::Receiver<bool>,
    ) -> Result<(), StartError> {
        let name = &interface.name;
        let index = sockets::interface_index(name)?;
        let address = match interface.address {
            Some(address) => address,
            None => sockets::interface_address(name)?,
        };
        let services = self.services();
        let boot =
            BootServer { address, http_port: config.http_port, names: config.boot_files.names.clone() };
        let role = role(config, interface, &boot)?;
        let (server, mode) = match &role {
            Some(Role::Server(..)) => (true, "DHCP server"),
            Some(Role::Proxy) => (false, "proxyDHCP"),
            None => (false, "no DHCP"),
        };
        if let Some(role) = role {
            let expected = if server { Expected::Ours(address) } else { Expected::OneOther };
            let dhcp = DhcpService {
                interface: name.clone(),
                socket: sockets::udp("DHCP", name, Ipv4Addr::UNSPECIFIED, SERVER_PORT)?,
                pxe_socket: sockets::udp("PXE boot server", name, Ipv4Addr::UNSPECIFIED, PXE_PORT)?,
                boot,
                role,
                services: services.clone(),
                guard: Guard::default(),
                lookout: Lookout::new(expected),
            };
            self.graceful.spawn(dhcp.run(stopped.clone()));
        }
        if interface.tftp {
            let socket = sockets::udp("TFTP", name, address, tftp::PORT)?;
            let Services { files, neighbours, director } = services;
            let tftp = TftpService { socket, address, files, neighbours, director };
            self.abrupt.spawn(tftp.run());
        }
        if interface.router_advertisements.unwrap_or(server) {
            match sockets::router_solicitations(name, index) {
                Ok(socket) => drop(self.abrupt.spawn(advertiser::run(socket, index))),
                // Only speed is lost, where nobody asked for it by name.
                Err(error) if interface.router_advertisements.is_none() => {
                    tracing::warn!(interface = name, %error, "no router advertisements: iPXE waits 13 s longer");
                }
                Err(error) => return Err(error),
            }
        }
        tracing::info!(interface = name, %address, mode, tftp = interface.tftp, "boot services run");
        Ok(())
    }
}

fn role(
    config: &NetbootConfig,
    interface: &InterfaceConfig,
    boot: &BootServer,
) -> Result<Option<Role>, StartError> {
    let (subnet, relayed) = match &interface.mode {
        Mode::Dhcp { subnet, relayed } => (subnet, relayed),
        Mode::Proxy => return Ok(Some(Role::Proxy)),
        Mode::None => return Ok(None),
    };
    let wrong = |source| StartError::Subnet { interface: interface.name.clone(), source };
    let mut server = Server::new(boot.clone(), subnet.clone(), relayed.clone()).map_err(wrong)?;
    let path =
        config.lease_directory.as_ref().map(|directory| directory.join(format!("{}.leases", interface.name)));
    if let Some(path) = &path {
        match std::fs::read_to_string(path) {
            Ok(text) => server.restore_leases(&text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(source) => return Err(StartError::Leases { path: path.clone(), source }),
        }
    }
    Ok(Some(Role::Server(Box::new(server), path)))
}

/// Logs that a socket failed, and waits a little.
pub(crate) async fn receive_failed(service: &str, error: &std::io::Error, gate: &mut LogGate) {
    if let Some(suppressed) = gate.open(Instant::now()) {
        tracing::warn!(service, %error, suppressed, "receiving failed; trying again");
    }
    tokio::time::sleep(RECEIVE_ERROR_PAUSE).await;
}
