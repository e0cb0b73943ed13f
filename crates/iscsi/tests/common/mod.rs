//! A target server with its directory for the tests, and a small initiator that can also misbehave.
#![allow(dead_code, reason = "each test binary uses its part")]

pub(crate) mod initiator;

use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use block::{
    BlockDevice, BlockError, ByteLength, ByteOffset, ByteRange, Geometry, LogicalBlockSize, MemoryDevice,
    Patience,
};
use iscsi::directory::{
    Authentication, ChapCredentials, ChapSecret, Coexistence, Directory, Grant, IscsiName, LoginAttempt,
    Portal, Refusal, RequestKind, SessionEnd, SessionObserver,
};
use iscsi::server::{ServerConfig, ServerHandle, TargetServer};

/// The disk that every initiator may use.
pub(crate) const TARGET: &str = "iqn.2026-01.lab:disk";
/// A target that [`ALLOWED`] alone may use.
pub(crate) const PRIVATE: &str = "iqn.2026-01.lab:private";
/// See [`PRIVATE`].
pub(crate) const ALLOWED: &str = "iqn.2026-01.lab:allowed";
/// The longest wait for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A server, and what its directory has seen.
pub(crate) struct Lab {
    pub(crate) server: ServerHandle,
    pub(crate) seen: Arc<Seen>,
}

/// How the directory behaves.
#[derive(Clone)]
pub(crate) struct Rules {
    pub(crate) coexistence: Coexistence,
    pub(crate) chap: Option<(&'static str, &'static str)>,
    pub(crate) target_chap: Option<(&'static str, &'static str)>,
    pub(crate) allows_md5: bool,
    pub(crate) moved_to: Option<SocketAddr>,
    pub(crate) listed: Vec<Portal>,
    /// What LUN 2 holds, if there is one.
    pub(crate) second: Option<Arc<dyn BlockDevice>>,
    pub(crate) removable: bool,
    pub(crate) portals: usize,
    pub(crate) config: ServerConfig,
    pub(crate) account: meter::Account,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            coexistence: Coexistence::Shared,
            chap: None,
            target_chap: None,
            allows_md5: true,
            moved_to: None,
            listed: Vec::new(),
            second: None,
            removable: false,
            portals: 1,
            config: ServerConfig { threads: 2, ..ServerConfig::default() },
            account: meter::Account::default(),
        }
    }
}

/// What happened, to be waited for.
#[derive(Default)]
pub(crate) struct Seen {
    log: Mutex<Log>,
    changed: Condvar,
    pub(crate) requests: AtomicUsize,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Log {
    pub(crate) opened: Vec<String>,
    pub(crate) ended: Vec<SessionEnd>,
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

    fn change(&self, change: impl FnOnce(&mut Log)) {
        change(&mut self.log.lock().unwrap());
        self.changed.notify_all();
    }
}

struct Observer(Arc<Seen>);

impl SessionObserver for Observer {
    fn request_done(&self, _: RequestKind, _: ByteRange, _: Duration, _: bool) {
        self.0.requests.fetch_add(1, Ordering::Relaxed);
    }

    fn ended(&self, how: SessionEnd) {
        self.0.change(|log| log.ended.push(how));
    }
}

struct LabDirectory {
    units: Vec<(u16, Arc<scsi::LogicalUnit>)>,
    rules: Rules,
    seen: Arc<Seen>,
}

impl Directory for LabDirectory {
    fn discover(&self, attempt: &LoginAttempt) -> Vec<IscsiName> {
        let allowed = attempt.initiator.as_str() == ALLOWED;
        [Some(TARGET), allowed.then_some(PRIVATE)].into_iter().flatten().map(name).collect()
    }

    fn authentication(&self, attempt: &LoginAttempt) -> Result<Authentication, Refusal> {
        Ok(match self.rules.chap {
            Some((user, secret)) if attempt.target.is_some() => Authentication::Chap(ChapCredentials {
                target: self.rules.target_chap.map(|(user, secret)| ChapSecret {
                    user: user.to_owned(),
                    secret: secret.as_bytes().to_vec(),
                }),
                allows_md5: self.rules.allows_md5,
                ..ChapCredentials::one_way(user, secret)
            }),
            _ => Authentication::None,
        })
    }

    fn portals(&self, _: &LoginAttempt) -> Vec<Portal> {
        self.rules.listed.clone()
    }

    fn open(&self, attempt: &LoginAttempt) -> Result<Grant, Refusal> {
        if let Some(address) = self.rules.moved_to {
            return Err(Refusal::MovedTemporarily(address));
        }
        match attempt.target.as_ref().map(IscsiName::as_str) {
            Some(TARGET) => {}
            Some(PRIVATE) if attempt.initiator.as_str() == ALLOWED => {}
            Some(PRIVATE) => return Err(Refusal::NotAuthorized("not yours".to_owned())),
            _ => return Err(Refusal::NotFound("no such target".to_owned())),
        }
        self.seen.change(|log| log.opened.push(attempt.initiator.to_string()));
        Ok(Grant {
            units: self.units.clone(),
            coexistence: self.rules.coexistence,
            observer: Arc::new(Observer(Arc::clone(&self.seen))),
            account: self.rules.account.clone(),
        })
    }
}

/// An iSCSI name that is known to be legal.
pub(crate) fn name(text: &str) -> IscsiName {
    IscsiName::parse(text).unwrap()
}

/// A disk of zeros in memory.
pub(crate) fn memory(mebibytes: u64) -> Arc<dyn BlockDevice> {
    Arc::new(MemoryDevice::zeroed(ByteLength::new(mebibytes << 20), LogicalBlockSize::B512).unwrap())
}

impl Lab {
    /// Serves `device` as LUN 1.
    pub(crate) fn serve(device: Arc<dyn BlockDevice>, rules: Rules) -> Self {
        let seen = Arc::new(Seen::default());
        let identity = scsi::UnitIdentity { serial: "lab".to_owned(), uuid: *b"lab-disk-0123456" };
        let unit = scsi::LogicalUnit::new(device, identity);
        let mut units = vec![(1, Arc::new(if rules.removable { unit.removable() } else { unit }))];
        if let Some(second) = &rules.second {
            let identity = scsi::UnitIdentity { serial: "second".to_owned(), uuid: *b"lab-disk-6543210" };
            units.push((2, Arc::new(scsi::LogicalUnit::new(Arc::clone(second), identity))));
        }
        let config = rules.config.clone();
        let listeners = (0..rules.portals).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let directory = Arc::new(LabDirectory { units, rules, seen: Arc::clone(&seen) });
        let server = TargetServer::start(listeners, config, directory).unwrap();
        Self { server, seen }
    }

    /// The disk's URL at each portal.
    pub(crate) fn urls(&self) -> Vec<String> {
        self.server.local_addresses().iter().map(|at| format!("iscsi://{at}/{TARGET}/1")).collect()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.local_addresses()[0]
    }

    /// The disk as libiscsi's URL, with `credentials` (`user%secret@`, or nothing).
    pub(crate) fn url(&self, credentials: &str) -> String {
        format!("iscsi://{credentials}{}/{TARGET}/1", self.address())
    }
}

/// Runs a program of Debian package `package`, for three minutes at most: the limit is there for servers that hang.
pub(crate) fn run(package: &str, program: &str, arguments: &[&str]) -> Output {
    let output = Command::new("timeout")
        .arg("180")
        .arg(program)
        .args(arguments)
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

/// A memory device whose operations wait for a gate: never with [`Patience::Now`].
#[derive(Debug)]
pub(crate) struct Gated {
    inner: Arc<dyn BlockDevice>,
    gate: Mutex<Gate>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Gate {
    open: bool,
    waiting: usize,
    /// Of those, writes.
    writes: usize,
}

impl Gated {
    pub(crate) fn new(inner: Arc<dyn BlockDevice>, open: bool) -> Arc<Self> {
        Arc::new(Self { inner, gate: Mutex::new(Gate { open, ..Gate::default() }), changed: Condvar::new() })
    }

    pub(crate) fn open(&self) {
        self.gate.lock().unwrap().open = true;
        self.changed.notify_all();
    }

    /// Returns when `count` operations wait at the gate.
    pub(crate) fn wait_for(&self, count: usize) {
        let mut gate = self.gate.lock().unwrap();
        while gate.waiting < count {
            let (next, result) = self.changed.wait_timeout(gate, PATIENCE).unwrap();
            gate = next;
            assert!(!result.timed_out(), "only {} operations came to the gate", gate.waiting);
        }
    }

    /// How many of the operations that wait at the gate are writes.
    pub(crate) fn waiting_writes(&self) -> usize {
        self.gate.lock().unwrap().writes
    }

    fn pass(&self, patience: Patience, is_write: bool) -> Result<(), BlockError> {
        if patience == Patience::Now {
            return Err(BlockError::WouldBlock);
        }
        let mut gate = self.gate.lock().unwrap();
        gate.waiting += 1;
        gate.writes += usize::from(is_write);
        self.changed.notify_all();
        while !gate.open {
            gate = self.changed.wait(gate).unwrap();
        }
        gate.waiting -= 1;
        gate.writes -= usize::from(is_write);
        Ok(())
    }
}

impl BlockDevice for Gated {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn read(&self, at: ByteOffset, buffer: &mut [u8], patience: Patience) -> Result<(), BlockError> {
        self.pass(patience, false)?;
        self.inner.read(at, buffer, patience)
    }

    fn write(&self, at: ByteOffset, data: &[u8], patience: Patience) -> Result<(), BlockError> {
        self.pass(patience, true)?;
        self.inner.write(at, data, patience)
    }

    fn flush(&self, patience: Patience) -> Result<(), BlockError> {
        self.pass(patience, false)?;
        self.inner.flush(patience)
    }

    fn discard(&self, range: ByteRange, patience: Patience) -> Result<(), BlockError> {
        self.pass(patience, false)?;
        self.inner.discard(range, patience)
    }

    fn write_zeroes(&self, range: ByteRange, patience: Patience) -> Result<(), BlockError> {
        self.pass(patience, false)?;
        self.inner.write_zeroes(range, patience)
    }
}
