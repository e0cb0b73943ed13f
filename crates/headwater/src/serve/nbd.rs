//! The NBD server: its sockets and certificates, out of the configuration.
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use nbd::exports::Exports;
use nbd::server::{
    ClientCertificates, ListenAddress, Listener, NbdServer, ServerConfig, ServerHandle, Tls, TlsServer,
};

use super::explain::{self, Transport};
use crate::config::{Capacity, Nbd, NbdTls, TlsFiles, unprotected};

/// What is opened before anything is started.
pub(super) struct Prepared {
    listeners: Vec<Listener>,
    tls: Tls,
}

/// Opens the sockets and reads the certificates.
///
/// # Errors
/// What cannot be had, and what to do about it.
pub(super) fn prepare(config: &Nbd) -> anyhow::Result<Prepared> {
    let tls = tls(&config.tls)?;
    let mut listeners = Vec::new();
    for address in &config.listen {
        let listener = TcpListener::bind(address)
            .map_err(|error| explain::bind_failed("NBD", *address, Transport::Tcp, &error))?;
        listeners.push(Listener::Tcp(listener));
    }
    if let Some(path) = &config.unix_socket {
        let listener = bind_unix(path).with_context(|| format!("the NBD socket {}", path.display()))?;
        listeners.push(Listener::Unix(listener));
    }
    if config.systemd_sockets {
        let inherited = Listener::from_service_manager().context("nbd: the service manager's sockets")?;
        anyhow::ensure!(
            !inherited.is_empty(),
            "nbd: systemd_sockets is set, and the service manager has handed over none: start Headwater by its socket unit"
        );
        listeners.extend(inherited);
    }
    let explicit = matches!(config.tls, NbdTls::Off { explicit: true });
    if matches!(tls, Tls::Off) && !explicit {
        for address in listeners.iter().filter_map(tcp_address) {
            anyhow::ensure!(address.ip().to_canonical().is_loopback(), "nbd: {}", unprotected(address));
        }
    }
    Ok(Prepared { listeners, tls })
}

/// Starts the server.
///
/// # Errors
/// What the operating system said.
pub(super) fn start(
    prepared: Prepared,
    capacity: Capacity,
    exports: Arc<dyn Exports>,
) -> anyhow::Result<ServerHandle> {
    let open = prepared
        .listeners
        .iter()
        .filter_map(tcp_address)
        .find(|address| !address.ip().to_canonical().is_loopback() && matches!(prepared.tls, Tls::Off));
    if let Some(address) = open {
        tracing::warn!(%address, "NBD without TLS: whoever can reach it may read and change the disks of running machines");
    }
    // A quarter for writes that have begun to arrive, a quarter for answers that nobody takes, the rest for storage.
    let quarter = capacity.memory_limit.0 / 4;
    let config = ServerConfig {
        tls: prepared.tls,
        max_connections: capacity.max_connections,
        max_connections_per_address: capacity.max_connections_per_address,
        max_waiting_bytes: capacity.memory_limit.0 / 2,
        max_unsent_bytes: usize::try_from(quarter).unwrap_or(usize::MAX),
        max_arriving_bytes: quarter,
        ..ServerConfig::default()
    };
    NbdServer::start(prepared.listeners, config, exports).context("the NBD server cannot be started")
}

/// Encryption, its files read.
///
/// # Errors
/// The file that is none, or what does not fit.
pub(super) fn tls(config: &NbdTls) -> anyhow::Result<Tls> {
    let load = |files: &TlsFiles| {
        let TlsFiles { certificate, key, client_ca } = files;
        TlsServer::from_pem_files(client_ca, certificate, key, ClientCertificates::Required)
            .context("nbd: TLS")
    };
    Ok(match config {
        NbdTls::Off { .. } => Tls::Off,
        NbdTls::Allowed(files) => Tls::Allowed(load(files)?),
        NbdTls::Required(files) => Tls::Required(load(files)?),
    })
}

/// Where machines reach it.
pub(super) fn tcp_addresses(handle: &ServerHandle) -> Vec<SocketAddr> {
    let ip = |address: &ListenAddress| match address {
        ListenAddress::Ip(address) => Some(*address),
        ListenAddress::Unix(_) => None,
    };
    handle.local_addresses().iter().filter_map(ip).collect()
}

/// All places, for the log.
pub(super) fn places(handle: &ServerHandle) -> String {
    let text = |address: &ListenAddress| match address {
        ListenAddress::Ip(address) => address.to_string(),
        ListenAddress::Unix(Some(path)) => path.display().to_string(),
        ListenAddress::Unix(None) => "a socket without a name".to_owned(),
    };
    handle.local_addresses().iter().map(text).collect::<Vec<_>>().join(", ")
}

fn tcp_address(listener: &Listener) -> Option<SocketAddr> {
    match listener {
        Listener::Tcp(listener) => listener.local_addr().ok(),
        Listener::Unix(_) => None,
    }
}

/// Makes the administrators' socket: owner and group of the server may use it. One that a dead server has left is
/// removed; one that answers is not.
fn bind_unix(path: &Path) -> std::io::Result<UnixListener> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    if path.exists() {
        if UnixStream::connect(path).is_ok() {
            return Err(std::io::Error::new(std::io::ErrorKind::AddrInUse, "another server answers on it"));
        }
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660))?;
    Ok(listener)
}
