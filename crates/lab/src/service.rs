//! A program that runs in a lab network until it is told to stop.
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::command::{show, spawn, tail};
use crate::network::Network;

/// How long a service may take from its start until it listens, and to write what is waited for.
const SERVICE_STARTS_WITHIN: Duration = Duration::from_secs(30);
/// How often what cannot be waited for is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How much of the log goes into an error.
const LOG_IN_ERROR_BYTES: usize = 4000;

/// A running program whose output goes to a log. It is killed when this is dropped.
pub struct Service {
    name: String,
    child: Child,
    log: PathBuf,
    /// Where in the log this start's output begins.
    log_begins_at: usize,
    network: Network,
}

impl Service {
    /// Starts a command made by [`Network::command`](crate::Network::command); see
    /// [`Network::service`](crate::Network::service).
    pub(crate) fn start(network: &Network, name: &str, mut command: Command) -> Result<Self> {
        let log = network.run().log(name);
        let file = File::options().create(true).append(true).open(&log)?;
        let log_begins_at = usize::try_from(file.metadata()?.len())?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let shown = show(&command);
        let child = spawn(command).with_context(|| format!("{name} does not start"))?;
        network.run().record_process(child.id()).with_context(|| format!("cannot record `{shown}`"))?;
        Ok(Self { name: name.to_owned(), child, log, log_begins_at, network: network.clone() })
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The file with its output, of earlier starts by the same name too.
    #[must_use]
    pub fn log_path(&self) -> &Path {
        &self.log
    }

    /// What it has written since it started.
    #[must_use]
    pub fn log(&self) -> String {
        let bytes = std::fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(bytes.get(self.log_begins_at..).unwrap_or_default()).into_owned()
    }

    /// Waits until a line of its output contains the text, and gives that line.
    ///
    /// # Errors
    /// Where the time is over or the program has ended; with the end of its log.
    pub fn wait_for_log(&mut self, text: &str, timeout: Duration) -> Result<String> {
        let what = format!("no line with \"{text}\"");
        self.wait_until(&what, timeout, |service| {
            service.log().lines().find(|line| line.contains(text)).map(str::to_owned)
        })
    }

    /// Waits until the program listens on these TCP ports and is bound to these UDP ports.
    ///
    /// # Errors
    /// Where it does not in half a minute, or has ended; with the end of its log.
    pub fn wait_until_listening(&mut self, tcp: &[u16], udp: &[u16]) -> Result<()> {
        let what = format!("not listening on TCP {tcp:?} and UDP {udp:?}");
        self.wait_until(&what, SERVICE_STARTS_WITHIN, |service| {
            // A process's `net` folder shows the sockets of its network namespace.
            let table = |name: &str| {
                std::fs::read_to_string(format!("/proc/{}/net/{name}", service.pid())).unwrap_or_default()
            };
            let has_ports = |kind: &str, state: u8, ports: &[u16]| {
                let tables = [table(kind), table(&format!("{kind}6"))];
                ports.iter().all(|&port| tables.iter().any(|table| has_socket(table, port, state)))
            };
            (has_ports("tcp", TCP_LISTEN, tcp) && has_ports("udp", UDP_UNCONNECTED, udp)).then_some(())
        })
    }

    /// Waits until the program has made this file.
    ///
    /// # Errors
    /// Where it does not in half a minute, or has ended; with the end of its log.
    pub(crate) fn wait_for_path(&mut self, path: &Path) -> Result<()> {
        let what = format!("no {}", path.display());
        self.wait_until(&what, SERVICE_STARTS_WITHIN, |_| path.exists().then_some(()))
    }

    /// Looks again and again until there is an answer. `what` says what the error says.
    ///
    /// # Errors
    /// Where the time is over or the program has ended; with the end of its log.
    pub fn wait_until<T>(
        &mut self,
        what: &str,
        timeout: Duration,
        look: impl Fn(&Self) -> Option<T>,
    ) -> Result<T> {
        let began = Instant::now();
        loop {
            let ended = self.child.try_wait()?;
            if let Some(found) = look(self) {
                return Ok(found);
            }
            if let Some(status) = ended {
                bail!(self.failure(&format!("ended ({status}): {what}")));
            }
            if began.elapsed() > timeout {
                bail!(self.failure(&format!("{what} within {} s", timeout.as_secs())));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn failure(&self, what: &str) -> String {
        self.network.keep_logs();
        format!("{}: {what}; its log ends:\n{}", self.name, tail(&self.log(), LOG_IN_ERROR_BYTES))
    }

    /// Whether it is still running.
    ///
    /// # Errors
    /// Where the system does not say.
    pub fn is_running(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// Sends SIGTERM and waits for the end.
    ///
    /// # Errors
    /// Where it does not end in time.
    pub fn terminate(&mut self, timeout: Duration) -> Result<ExitStatus> {
        if self.is_running()? {
            let pid = Pid::from_raw(i32::try_from(self.pid())?).context("no process number")?;
            kill_process(pid, Signal::TERM)?;
        }
        let began = Instant::now();
        while began.elapsed() <= timeout {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(LOOK_EVERY);
        }
        bail!(self.failure(&format!("still running {} s after SIGTERM", timeout.as_secs())))
    }

    /// Ends it as a crash would (SIGKILL).
    ///
    /// # Errors
    /// Where the system refuses.
    pub fn kill(&mut self) -> Result<()> {
        if self.is_running()? {
            self.child.kill()?;
        }
        let status = self.child.wait()?;
        debug_assert!(status.signal().is_some() || status.code().is_some());
        Ok(())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to kill.
        let _ = self.kill();
    }
}

/// Socket states of /proc/net/tcp and udp (the kernel's `TCP_LISTEN` and `TCP_CLOSE`).
const TCP_LISTEN: u8 = 0x0a;
const UDP_UNCONNECTED: u8 = 0x07;

/// Whether a table of /proc/net has a socket with this local port in this state.
fn has_socket(table: &str, port: u16, state: u8) -> bool {
    table.lines().skip(1).any(|line| {
        let mut fields = line.split_whitespace();
        let local = fields.nth(1).and_then(|address| address.rsplit_once(':'));
        let found_state = fields.nth(1).and_then(|field| u8::from_str_radix(field, 16).ok());
        local.and_then(|(_, digits)| u16::from_str_radix(digits, 16).ok()) == Some(port)
            && found_state == Some(state)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listening_socket_is_found_by_port_and_state() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n\
            0: 0100007F:0CBC 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 27 1\n\
            1: 0100007F:1F90 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 28 1\n";
        assert!(has_socket(table, 3260, TCP_LISTEN));
        assert!(!has_socket(table, 8080, TCP_LISTEN));
        assert!(!has_socket(table, 3261, TCP_LISTEN));
    }
}
