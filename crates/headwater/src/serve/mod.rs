//! `headwater serve`: everything is opened, bound and joined here, and taken down again.
//!
//! The order of the start is that of what can fail: images first, then ports, then the threads that use both, so a server that cannot
//! serve says why and is gone, and a server that says it is ready is. The control plane runs on tokio, the iSCSI target on
//! threads of its own.
mod boot_network;
mod certificate;
mod cloud;
pub mod explain;
mod guest_commands;
mod housekeeping;
mod http;
mod keeper;
mod log_ins;
pub mod logging;
mod mount;
mod nbd;
mod notify;
mod ready;
mod report;
pub mod settings;

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use anyhow::Context;
use api::Door;
use axum::Router;
use block::BlockDevice;
use control::people::People;
use farm::snapshot::Snapshot;
use iscsi::directory::{Directory, IscsiName};
use iscsi::server::{ServerConfig, ServerHandle, TargetServer};
use netboot::boot_files::Shelf;
use netboot::director::Director;
use netboot::service::NetbootHandle;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::admin::doctor::Doctor;
use crate::admin::elsewhere::Elsewhere;
use crate::admin::{self, Admin};
use crate::catalogue::FarmLink;
use crate::catalogue::survey::survey;
use crate::cloud::Seeds;
use crate::config::{Capacity, Config, DeviceName, InterfaceMode};
use crate::path;
use crate::stream::admission::Admission;
use crate::stream::boot_id::BootIds;
use crate::stream::device::SessionEnder;
use crate::stream::devices::Devices;
use crate::stream::director::BootDirector;
use crate::stream::directory::BootDirectory;
use crate::stream::exports::BootExports;
use crate::stream::kernels::{self, Kernels};
use crate::stream::mailbox::Mailbox;
use crate::stream::oddities::Oddities;
use crate::stream::own_disk::OwnDisks;
use crate::timeline::presences::Presences;
use crate::timeline::store::BootStore;
use crate::timeline::{Clock, Recorder};
use explain::Transport;
use housekeeping::Housekeeping;
use keeper::Keeper;
use log_ins::MenuLogIns;
use mount::Mount;
use report::Reporter;
use settings::{Settings, Targets};

/// How long the requests of NBD clients have to be answered when the server stops.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);

/// How long write caches have to be made lasting when the server stops: what is not, can be gone on with all the same
/// unless the host restarts, too.
const CLOSE_WITHIN: Duration = Duration::from_secs(5);

/// How many connections and write caches there may be at a time, with so many devices.
pub(crate) fn open_files_wanted(config: &Config, devices: usize) -> u64 {
    let iscsi = config.iscsi.capacity.max_connections;
    let nbd = config.nbd.as_ref().map_or(0, |nbd| nbd.capacity.max_connections);
    iscsi.saturating_add(nbd).saturating_add(devices) as u64
}

/// Makes room for all connections and write caches, or says how many there can be: a server that is asked for fewer runs.
fn allow_open_files(config: &Config, devices: usize) {
    if let Err(error) = connections::allow_open_files(open_files_wanted(config, devices)) {
        tracing::warn!("{error}");
    }
}

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
/// Why it could not start, in words for the administrator.
pub async fn run(config: Config) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM cannot be caught")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT cannot be caught")?;
    let server = Server::start(config).await?;
    notify::notify("READY=1");
    tracing::info!("ready");
    tokio::select! {
        _ = terminate.recv() => tracing::info!("SIGTERM: stopping; once more to stop at once"),
        _ = interrupt.recv() => tracing::info!("SIGINT: stopping; once more to stop at once"),
    }
    notify::notify("STOPPING=1");
    tokio::select! {
        () = server.stop() => tracing::info!("stopped"),
        _ = terminate.recv() => tracing::warn!("stopped at once"),
        _ = interrupt.recv() => tracing::warn!("stopped at once"),
    }
    Ok(())
}

/// Opens the images and certificates of a configuration, to tell whether a server could.
///
/// # Errors
/// The first file that cannot be used.
pub fn check(config: &Config) -> anyhow::Result<()> {
    if let Some(nbd) = &config.nbd {
        nbd::tls(&nbd.tls)?;
    }
    survey(config).map(drop)
}

/// Whether the interfaces of a configuration are there, and have the networks that it gives to them.
///
/// # Errors
/// The first one that is not so.
pub(crate) fn check_interfaces(config: &Config) -> anyhow::Result<()> {
    boot_network::config(config, 0, &explain::interfaces(), Vec::new(), Shelf::default()).map(drop)
}

/// A running server.
pub struct Server {
    config: Arc<Config>,
    devices: Arc<Devices>,
    recorder: Arc<Recorder>,
    target: Arc<ServerHandle>,
    nbd: Arc<OnceLock<::nbd::server::ServerHandle>>,
    netboot: NetbootHandle,
    housekeeping: Housekeeping,
    keeper: Keeper,
    stopping: watch::Sender<bool>,
    http: SocketAddr,
}

impl Server {
    /// Starts everything.
    ///
    /// # Errors
    /// What could not be started, and what to do about it.
    pub async fn start(config: Config) -> anyhow::Result<Self> {
        let settings = Arc::new(Settings::open(config));
        let config = Arc::new(settings.config());
        make_directories(&config)?;
        // It waits for storage and for the database, whose client has a runtime of its own.
        let farm = tokio::task::block_in_place(|| FarmLink::open(Arc::clone(&config)))?;
        let devices = Arc::new(Devices::new(Arc::clone(&config), Arc::clone(&farm))?);
        let shelf = Shelf::default();
        let kernels = Kernels::new(shelf.clone());
        kernels.warm(&devices);
        let beside = kernels::beside(&devices);
        let recorder = recorder(&config);
        let ids = Arc::new(BootIds::default());
        let ender: Arc<OnceLock<Box<dyn SessionEnder>>> = Arc::default();

        allow_open_files(&config, farm.snapshot().devices().count());
        let iscsi_listeners = listen_iscsi(&config)?;
        let nbd_prepared = config.nbd.as_ref().map(nbd::prepare).transpose()?;
        let http_listener = tokio::net::TcpListener::bind(config.http_listen)
            .await
            .map_err(|error| explain::bind_failed("HTTP", config.http_listen, Transport::Tcp, &error))?;
        let http = http_listener.local_addr()?;
        let api_listener = match &config.api {
            Some(api) => Some(listen_api(&config, api).await?),
            None => None,
        };
        let admin_listener = admin::bind(&config.admin_socket).map_err(|error| {
            anyhow::anyhow!(
                "the administration socket {} cannot be used: {error}",
                config.admin_socket.display()
            )
        })?;

        let directory: Arc<dyn Directory> = Arc::new(BootDirectory {
            devices: Arc::clone(&devices),
            recorder: Arc::clone(&recorder),
            ids: Arc::clone(&ids),
            ender: Arc::clone(&ender),
        });
        let target = TargetServer::start(iscsi_listeners, iscsi_config(config.iscsi.capacity), directory);
        let target = Arc::new(target.context("the iSCSI target cannot be started")?);
        let iscsi = target.local_addresses().to_vec();
        // Nobody else sets it.
        let running_nbd = Arc::new(OnceLock::new());
        let _ = ender.set(Box::new(Ender { target: Arc::clone(&target), nbd: Arc::clone(&running_nbd) }));

        if let (Some(prepared), Some(access)) = (nbd_prepared, &config.nbd) {
            let exports = BootExports::new(
                access.clone(),
                Arc::clone(&devices),
                Arc::clone(&recorder),
                Arc::clone(&ids),
                Arc::clone(&ender),
            );
            let handle = nbd::start(prepared, access.capacity, Arc::new(exports))?;
            // Nobody else sets it.
            let _ = running_nbd.set(handle);
        }
        let nbd = running_nbd;
        let people = Arc::new(People::default());
        let housekeeping = Housekeeping::start(Arc::clone(&recorder))?;
        let admission = Arc::new(Admission::new(config.admission));
        let oddities = Arc::<Oddities>::default();
        let seeds = Arc::new(Seeds::open(&config.state_dir, http.port())?);
        let director: Arc<dyn Director> = Arc::new(BootDirector {
            devices: Arc::clone(&devices),
            recorder: Arc::clone(&recorder),
            kernels,
            ids,
            portals: iscsi.clone(),
            nbd: nbd.get().map(nbd::tcp_addresses).unwrap_or_default(),
            saver: Box::new(housekeeping.saver()),
            seeds: Arc::clone(&seeds),
            admission: Arc::clone(&admission),
            log_ins: Box::new(MenuLogIns { farm: Arc::clone(&farm), people: Arc::clone(&people) }),
            own_disks: OwnDisks::default(),
            oddities: Arc::clone(&oddities),
            strangers: Mutex::default(),
        });
        let netboot = start_netboot(&config, http.port(), beside, shelf, director).await?;

        let (stopping, stopped) = watch::channel(false);
        let cloud = cloud::Cloud {
            devices: Arc::clone(&devices),
            recorder: Arc::clone(&recorder),
            seeds,
            limits: cloud::Limits::default(),
        };
        let (cloud, mailbox) = (Arc::new(cloud), Arc::new(Mailbox::default()));
        let post = guest_commands::Post {
            cloud: Arc::clone(&cloud),
            mailbox: Arc::clone(&mailbox),
            limits: cloud::Limits::default(),
        };
        let public = netboot::http::router(netboot.services())
            .merge(ready::router(Arc::clone(&recorder)))
            .merge(guest_commands::router(Arc::new(post)))
            .merge(cloud::router(cloud));
        tokio::spawn(http::serve(
            http_listener,
            None,
            public,
            http::MAX_CONNECTIONS_OF_MACHINE,
            stopped.clone(),
        ));
        let presences = Presences::new(Arc::clone(&recorder));
        tokio::spawn(Arc::clone(&presences).run(stopped.clone()));
        settings.tell(Targets { admission: Arc::clone(&admission), devices: Arc::clone(&devices) });
        let admin = Arc::new(Admin {
            doctor: Doctor::new(config.file.clone()),
            settings,
            recorder: Arc::clone(&recorder),
            presences,
            elsewhere: Elsewhere::default(),
            devices: Arc::clone(&devices),
            ender: Arc::clone(&ender),
            started: Instant::now(),
            admission: Arc::clone(&admission),
            mailbox,
            oddities,
            iscsi: iscsi.clone(),
            nbd: nbd.get().map(nbd::tcp_addresses).unwrap_or_default(),
            http,
            stopping: stopped.clone(),
        });
        let reporter = Reporter::new(Arc::clone(&farm), admin.clone());
        let keeper = Keeper::start(Arc::clone(&devices), Arc::clone(&recorder), ender, admission, reporter)?;
        let mount = Mount::new(Arc::clone(&farm), people, admin, stopped.clone());
        tokio::task::block_in_place(|| mount.welcome());
        tokio::spawn(serve_admin(admin_listener, mount.router(Door::Local), stopped.clone()));
        if let Some((listener, tls)) = api_listener {
            tracing::info!(api = %listener.local_addr()?, "the console and the API are served over HTTPS");
            let router = mount.router(Door::Network);
            tokio::spawn(http::serve(listener, Some(tls), router, http::MAX_CONNECTIONS_OF_OFFICE, stopped));
        }
        log_start(&config, &farm.snapshot(), &iscsi, nbd.get().map(nbd::places), http);
        Ok(Self { config, devices, recorder, target, nbd, netboot, housekeeping, keeper, stopping, http })
    }

    /// Where disks are served.
    #[must_use]
    pub fn iscsi_addresses(&self) -> &[SocketAddr] {
        self.target.local_addresses()
    }

    /// Where scripts are served.
    #[must_use]
    pub fn http_address(&self) -> SocketAddr {
        self.http
    }

    /// Stops: nothing new is accepted, initiators are asked to log out, write caches and timelines are saved.
    pub async fn stop(self) {
        let Self { config, devices, recorder, target, nbd, netboot, housekeeping, keeper, stopping, .. } =
            self;
        // Receivers that are gone have stopped already.
        let _ = stopping.send(true);
        netboot.shutdown().await;
        let logout_within = config.iscsi.logout_within;
        let stopped = tokio::task::spawn_blocking(move || {
            if let Some(nbd) = nbd.get() {
                nbd.shutdown(ANSWER_WITHIN);
            }
            target.shutdown(logout_within);
            // It takes away what rests and renews what does not: not beside the end.
            keeper.stop();
            close_write_caches(&devices);
            devices.farm().close();
            housekeeping.stop();
            recorder.save_changed(Duration::ZERO);
        });
        if stopped.await.is_err() {
            tracing::error!("stopping failed half-way");
        }
        let nbd_socket = config.nbd.as_ref().and_then(|nbd| nbd.unix_socket.as_ref());
        for socket in std::iter::once(&config.admin_socket).chain(nbd_socket) {
            let _ = std::fs::remove_file(socket);
        }
    }
}

/// The iSCSI server's own limits: a quarter of the memory is for write data that comes unasked, a quarter for what is read
/// from storage, the rest for write data that is asked for.
fn iscsi_config(capacity: Capacity) -> ServerConfig {
    let quarter = capacity.memory_limit.0 / 4;
    ServerConfig {
        max_connections: capacity.max_connections,
        max_connections_per_address: capacity.max_connections_per_address,
        max_solicited_bytes: capacity.memory_limit.0 / 2,
        max_arriving_bytes: quarter,
        max_reading_bytes: quarter,
        ..ServerConfig::default()
    }
}

struct Ender {
    target: Arc<ServerHandle>,
    /// Set when it runs; nobody uses a disk over it before.
    nbd: Arc<OnceLock<::nbd::server::ServerHandle>>,
}

impl SessionEnder for Ender {
    fn end_disk(&self, disk: &Arc<dyn BlockDevice>) {
        if let Some(nbd) = self.nbd.get() {
            nbd.end_device(disk);
        }
    }

    fn end_target(&self, name: &IscsiName) {
        if !self.target.end_target(name) {
            tracing::error!(
                target = name.as_str(),
                "storage does not answer: an old session's requests still run"
            );
        }
    }
}

fn make_directories(config: &Config) -> anyhow::Result<()> {
    let leases = boot_network::lease_directory(config);
    for directory in [&config.state_dir, &config.write_cache.directory, &leases] {
        let what = || format!("the directory {} cannot be made", directory.display());
        std::fs::create_dir_all(directory).with_context(what)?;
    }
    let left = vdisk::sweep(&config.write_cache.directory)?;
    if !left.is_empty() {
        tracing::info!(files = left.len(), "half-made write caches of a server that died removed");
    }
    Ok(())
}

/// The timeline's keeper, with the boots that were under way when the last server ended.
fn recorder(config: &Config) -> Arc<Recorder> {
    let store = BootStore::new(&config.state_dir, config.boots_kept);
    let devices = store.devices().unwrap_or_default();
    let devices: Vec<DeviceName> = devices.iter().filter_map(|name| DeviceName::parse(name).ok()).collect();
    Recorder::new(Clock::start(), store, &devices)
}

fn listen_iscsi(config: &Config) -> anyhow::Result<Vec<TcpListener>> {
    let listen = |address: &SocketAddr| {
        TcpListener::bind(address)
            .map_err(|error| explain::bind_failed("iSCSI", *address, Transport::Tcp, &error))
    };
    config.iscsi.listen.iter().map(listen).collect()
}

async fn listen_api(
    config: &Config,
    api: &crate::config::Api,
) -> anyhow::Result<(tokio::net::TcpListener, TlsAcceptor)> {
    let tls = certificate::tls(config, api, crate::catalogue::server_name(config)?.as_str())?;
    let listener = tokio::net::TcpListener::bind(api.listen).await;
    let listener =
        listener.map_err(|error| explain::bind_failed("API", api.listen, Transport::Tcp, &error))?;
    Ok((listener, TlsAcceptor::from(tls)))
}

/// Has connections go on where a switch drops large packets, as far as we may.
fn survive_silent_drops() {
    match path::survive_silent_drops() {
        Ok(true) => tracing::info!(
            "net.ipv4.tcp_mtu_probing set to 1: connections go on where a switch drops large packets without a word"
        ),
        Ok(false) => {}
        Err(error) => tracing::info!(
            %error,
            "net.ipv4.tcp_mtu_probing is 0: a device behind a switch that drops large packets without a word would hang; \
             headwater doctor tells what to do"
        ),
    }
}

async fn start_netboot(
    config: &Config,
    http_port: u16,
    kernels: Vec<(String, PathBuf)>,
    shelf: Shelf,
    director: Arc<dyn Director>,
) -> anyhow::Result<NetbootHandle> {
    survive_silent_drops();
    let netboot = boot_network::config(config, http_port, &explain::interfaces(), kernels, shelf)?;
    Ok(netboot::service::start(netboot, director).await?)
}

async fn serve_admin(listener: tokio::net::UnixListener, router: Router, mut stopped: watch::Receiver<bool>) {
    let service = axum::serve(listener, router).with_graceful_shutdown(async move {
        let _ = stopped.wait_for(|stopped| *stopped).await;
    });
    if let Err(error) = service.await {
        tracing::error!(%error, "the administration interface has ended");
    }
}

/// Makes all write caches last, some at once, as long as there is time.
fn close_write_caches(devices: &Arc<Devices>) {
    const THREADS: usize = 8;
    let deadline = Instant::now().checked_add(CLOSE_WITHIN);
    let slots = devices.slots();
    let next = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..THREADS.min(slots.len()) {
            scope.spawn(|| {
                while deadline.is_none_or(|deadline| Instant::now() < deadline) {
                    let index = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    let Some(slot) = slots.get(index) else { return };
                    slot.close();
                }
            });
        }
    });
}

fn log_start(config: &Config, farm: &Snapshot, iscsi: &[SocketAddr], nbd: Option<String>, http: SocketAddr) {
    let listeners: Vec<String> = iscsi.iter().map(ToString::to_string).collect();
    tracing::info!(
        iscsi = listeners.join(", "),
        nbd = nbd.unwrap_or_else(|| "off".to_owned()),
        http = %http,
        admin_socket = %config.admin_socket.display(),
        vdisks = farm.vdisks().count(),
        devices = farm.devices().count(),
        "serving"
    );
    if config.interfaces.iter().all(|interface| interface.mode == InterfaceMode::None) {
        tracing::warn!("no [[interface]] with DHCP: another DHCP server must name the boot file");
    }
    if !Path::new("/proc/sys/kernel/random/boot_id").exists() {
        tracing::warn!(
            "the boot of this host cannot be told: write caches cannot be trusted after a restart"
        );
    }
}
