//! A server with its exports for the tests, devices that behave oddly, and the programs of others.
#![allow(dead_code, reason = "each test binary uses its part")]

pub(crate) mod certificates;
pub(crate) mod devices;

use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use block::{BlockDevice, ByteLength, LogicalBlockSize, MemoryDevice};
use nbd::client::{Client, ConnectOptions, ServerAddress};
use nbd::exports::{
    ConnectionEnd, Export, ExportObserver, Exports, Listed, Peer, Purpose, Refusal, RequestDone,
};
use nbd::server::{ListenAddress, Listener, NbdServer, ServerConfig, ServerHandle};

/// The longest wait for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A server, and what its exports have seen.
pub(crate) struct Lab {
    pub(crate) server: ServerHandle,
    pub(crate) seen: Arc<Seen>,
}

/// The export `disk`, which is the default as well.
#[derive(Clone)]
pub(crate) struct Disk {
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) read_only: bool,
    pub(crate) fast_zero: bool,
    pub(crate) account: meter::Account,
}

/// What happened, to be waited for.
#[derive(Default)]
pub(crate) struct Seen {
    log: Mutex<Log>,
    changed: Condvar,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Log {
    pub(crate) opened: Vec<(Purpose, Peer)>,
    pub(crate) ended: Vec<ConnectionEnd>,
    pub(crate) requests: Vec<RequestDone>,
}

impl Seen {
    /// Waits until the log satisfies `wanted`.
    pub(crate) fn wait(&self, what: &str, wanted: impl Fn(&Log) -> bool) -> Log {
        let deadline = Instant::now() + PATIENCE;
        let mut log = self.log.lock().unwrap();
        while !wanted(&log) {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "never saw {what}: {log:?}");
            log = self.changed.wait_timeout(log, left).unwrap().0;
        }
        log.clone()
    }

    pub(crate) fn now(&self) -> Log {
        self.log.lock().unwrap().clone()
    }

    fn change(&self, change: impl FnOnce(&mut Log)) {
        change(&mut self.log.lock().unwrap());
        self.changed.notify_all();
    }
}

impl ExportObserver for Seen {
    fn request_done(&self, done: &RequestDone) {
        self.change(|log| log.requests.push(*done));
    }

    fn ended(&self, how: ConnectionEnd) {
        self.change(|log| log.ended.push(how));
    }
}

struct LabExports {
    disk: Disk,
    other: Option<Disk>,
    seen: Arc<Seen>,
}

/// An export that demands TLS, and one that nobody may use.
pub(crate) const SECRET: &str = "secret";
pub(crate) const FORBIDDEN: &str = "forbidden";
/// A second disk, where the lab has one.
pub(crate) const OTHER: &str = "other";

impl Exports for LabExports {
    fn list(&self, peer: &Peer) -> Vec<Listed> {
        let listed = |name: &str| Listed { name: name.to_owned(), description: "of the lab".to_owned() };
        let secret = peer.tls.is_some().then(|| listed(SECRET));
        std::iter::once(listed("disk")).chain(secret).collect()
    }

    fn open(&self, name: &str, purpose: Purpose, peer: &Peer) -> Result<Export, Refusal> {
        let disk = match (name, &self.other) {
            (OTHER, Some(other)) => other,
            _ => &self.disk,
        };
        match name {
            "" | "disk" => {}
            OTHER if self.other.is_some() => {}
            SECRET if peer.tls.is_some() => {}
            SECRET => return Err(Refusal::TlsRequired),
            FORBIDDEN => return Err(Refusal::NotAllowed("not for you".to_owned())),
            _ => return Err(Refusal::Unknown("there is only \"disk\"".to_owned())),
        }
        self.seen.change(|log| log.opened.push((purpose, peer.clone())));
        Ok(Export {
            device: Arc::clone(&disk.device),
            description: "of the lab".to_owned(),
            read_only: disk.read_only,
            multi_conn: true,
            fast_zero: disk.fast_zero,
            observer: Arc::clone(&self.seen) as Arc<dyn ExportObserver>,
            account: disk.account.clone(),
        })
    }
}

/// A disk of zeros in memory.
pub(crate) fn memory(mebibytes: u64) -> Arc<MemoryDevice> {
    Arc::new(MemoryDevice::zeroed(ByteLength::new(mebibytes << 20), LogicalBlockSize::B512).unwrap())
}

impl Disk {
    pub(crate) fn new(device: Arc<dyn BlockDevice>) -> Self {
        Self { device, read_only: false, fast_zero: true, account: meter::Account::default() }
    }
}

pub(crate) fn quick() -> ServerConfig {
    ServerConfig { threads: 2, ..ServerConfig::default() }
}

impl Lab {
    /// Serves `device`.
    pub(crate) fn serve(device: Arc<dyn BlockDevice>) -> Self {
        Self::start(Disk::new(device), quick())
    }

    pub(crate) fn start(disk: Disk, config: ServerConfig) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Self::listen(vec![Listener::Tcp(listener)], disk, config)
    }

    pub(crate) fn listen(listeners: Vec<Listener>, disk: Disk, config: ServerConfig) -> Self {
        Self::listen_with(listeners, disk, None, config)
    }

    /// Serves `other` too.
    pub(crate) fn listen_with(
        listeners: Vec<Listener>,
        disk: Disk,
        other: Option<Disk>,
        config: ServerConfig,
    ) -> Self {
        let seen = Arc::new(Seen::default());
        let exports = Arc::new(LabExports { disk, other, seen: Arc::clone(&seen) });
        Self { server: NbdServer::start(listeners, config, exports).unwrap(), seen }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        match &self.server.local_addresses()[0] {
            ListenAddress::Ip(address) => *address,
            ListenAddress::Unix(path) => panic!("{path:?} is no address"),
        }
    }

    pub(crate) fn place(&self) -> ServerAddress {
        ServerAddress::Ip(self.address())
    }

    /// The disk as a URI.
    pub(crate) fn uri(&self) -> String {
        format!("nbd://{}/disk", self.address())
    }

    pub(crate) fn connect(&self, options: &ConnectOptions) -> Client {
        Client::connect(&self.place(), options).unwrap()
    }

    /// A client in each of the three forms of replies.
    pub(crate) fn clients(&self) -> [(&'static str, Client); 3] {
        [("simple", false, false), ("structured", true, false), ("extended", true, true)].map(
            |(name, structured_replies, extended_headers)| {
                let options =
                    ConnectOptions { structured_replies, extended_headers, ..ConnectOptions::default() };
                (name, self.connect(&options))
            },
        )
    }
}

/// Runs a program of Debian package `package`, for two minutes at most.
pub(crate) fn run(package: &str, program: &str, arguments: &[&str]) -> Output {
    let output = Command::new("timeout")
        .arg("120")
        .arg(program)
        .args(arguments)
        // libnbd's Python module belongs to the system's Python, whichever comes first elsewhere.
        .env("PATH", "/usr/bin:/bin")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    // 127 is what `timeout` says when it does not find the program.
    assert_ne!(output.status.code(), Some(127), "{program} is missing: install the Debian package {package}");
    output
}

/// What a program wrote on both its outputs.
pub(crate) fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Like [`run`], and it must succeed.
pub(crate) fn succeed(package: &str, program: &str, arguments: &[&str]) -> String {
    let output = run(package, program, arguments);
    assert!(output.status.success(), "{program} {arguments:?}: {}\n{}", output.status, text(&output));
    text(&output)
}
