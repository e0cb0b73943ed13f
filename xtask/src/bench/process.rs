//! A server under measurement: started by us, its CPU time read from the kernel, ended by us.
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::run::show;

/// How long a server may take until it listens.
const START_LIMIT: Duration = Duration::from_secs(20);
/// What one tick of `/proc/PID/stat` is worth: USER_HZ, which Linux fixes at 100 for user space.
const TICK: Duration = Duration::from_millis(10);

/// How long CPU time must not grow to be taken as it is, and how often that is waited for.
const SETTLE: Duration = Duration::from_millis(60);
const SETTLE_TRIES: usize = 20;

/// A running server, killed when dropped.
pub(crate) struct Server {
    pid: u32,
    /// `None` for a daemon, which is not our child.
    child: Option<Child>,
}

impl Server {
    /// Starts `command` with its output in `log`, and waits until it accepts connections on `port` of loopback.
    pub(crate) fn start(command: &mut Command, port: u16, log: &Path) -> Result<Self> {
        let shown = show(command);
        let file = std::fs::File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().with_context(|| format!("cannot start {shown}"))?;
        let mut server = Self { pid: child.id(), child: Some(child) };
        let deadline = Instant::now() + START_LIMIT;
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            if let Some(child) = &mut server.child
                && let Some(status) = child.try_wait()?
            {
                bail!("{shown} ended at once: {status}; its output is in {}", log.display());
            }
            if Instant::now() > deadline {
                bail!("{shown} does not listen on port {port}; its output is in {}", log.display());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    /// Starts a server that goes to the background by itself, and writes its process id into `pid_file`.
    pub(crate) fn start_daemon(command: &mut Command, port: u16, pid_file: &Path) -> Result<Self> {
        let _ = std::fs::remove_file(pid_file);
        crate::run::output(command)?;
        let deadline = Instant::now() + START_LIMIT;
        loop {
            let pid = std::fs::read_to_string(pid_file).ok().and_then(|pid| pid.trim().parse().ok());
            if let Some(pid) = pid
                && std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
            {
                return Ok(Self { pid, child: None });
            }
            if Instant::now() > deadline {
                bail!("{} does not listen on port {port}", show(command));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// User and system time of all its threads so far and of its children that have ended, once no more is added to it:
    /// children that served a connection end a moment after it.
    pub(crate) fn settled_cpu(&self) -> Result<Duration> {
        let mut last = self.spent(4)?;
        for _ in 0..SETTLE_TRIES {
            std::thread::sleep(SETTLE);
            let now = self.spent(4)?;
            if now == last {
                break;
            }
            last = now;
        }
        Ok(last)
    }

    /// User and system time of all its threads so far.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        self.spent(2)
    }

    /// What of its memory is resident, in KiB.
    pub(crate) fn resident_kib(&self) -> Result<u64> {
        let path = format!("/proc/{}/status", self.pid);
        let status = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().split(' ').next()?.parse().ok());
        kib.with_context(|| format!("no VmRSS in {path}"))
    }

    /// The sum of the first `fields` of the four times that the kernel counts: its own in user and system mode, and those
    /// of its children.
    fn spent(&self, fields: usize) -> Result<Duration> {
        let path = format!("/proc/{}/stat", self.pid);
        let stat = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        // proc(5): utime, stime, cutime and cstime are fields 14 to 17; the command name, field 2, may hold spaces.
        let times = stat.rsplit_once(") ").context("unexpected /proc/PID/stat")?.1.split(' ');
        let ticks: u32 = times.skip(11).take(fields).filter_map(|field| field.parse::<u32>().ok()).sum();
        Ok(TICK * ticks)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // tgtd ignores SIGTERM while it has targets, and a bench keeps nothing that a clean end would save.
        match &mut self.child {
            Some(child) => {
                if child.kill().is_ok() {
                    let _ = child.wait();
                }
            }
            None => {
                let _ = Command::new("kill").arg(self.pid.to_string()).status();
            }
        }
    }
}
