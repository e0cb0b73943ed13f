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

/// A running server, killed when dropped.
pub(crate) struct Server {
    child: Child,
}

impl Server {
    /// Starts `command` with its output in `log`, and waits until it accepts connections on `port` of loopback.
    pub(crate) fn start(command: &mut Command, port: u16, log: &Path) -> Result<Self> {
        let shown = show(command);
        let file = std::fs::File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let mut server = Self { child: command.spawn().with_context(|| format!("cannot start {shown}"))? };
        let deadline = Instant::now() + START_LIMIT;
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            if let Some(status) = server.child.try_wait()? {
                bail!("{shown} ended at once: {status}; its output is in {}", log.display());
            }
            if Instant::now() > deadline {
                bail!("{shown} does not listen on port {port}; its output is in {}", log.display());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    /// User and system time of all its threads so far.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        let path = format!("/proc/{}/stat", self.child.id());
        let stat = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        // proc(5): utime and stime are fields 14 and 15; the command name, field 2, may hold spaces.
        let fields = stat.rsplit_once(") ").context("unexpected /proc/PID/stat")?.1.split(' ');
        let ticks: u32 = fields.skip(11).take(2).filter_map(|field| field.parse::<u32>().ok()).sum();
        Ok(TICK * ticks)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // tgtd ignores SIGTERM while it has targets, and a bench keeps nothing that a clean end would save.
        if self.child.kill().is_ok() {
            let _ = self.child.wait();
        }
    }
}
