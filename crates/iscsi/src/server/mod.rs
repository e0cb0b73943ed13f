//! The target as a server: event loop threads, an acceptor and two pools of workers around the protocol core.
//!
//! - `acceptor` takes connections and gives each to the `event_loop` that has fewest;
//! - a `link` is one connection: socket, input, `outbox`, and `full`, the session joined to its disks, and
//!   `holding`, its commands that a limit holds back;
//! - `memory` bounds what write data, and reads that wait for storage, take of all connections together;
//! - `questions` go to the directory on a worker; `registry` knows all sessions and has old ones ended before a new
//!   one takes their place.
mod acceptor;
mod buffers;
mod complaints;
mod config;
mod event_loop;
mod full;
mod holding;
mod link;
mod mailbox;
mod memory;
mod outbox;
mod questions;
mod registry;
mod shared;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use config::ServerConfig;

use crate::directory::{Directory, IscsiName, SessionEnd};
use crate::limits::{LEAST_READING_BYTES, MAX_IO_WORKERS, REPLACE_WAIT, WORKERS_A_DISK};
use acceptor::{Acceptor, StopSignal};
use connections::{Budget, Crew, Workers};
use event_loop::EventLoop;
use mailbox::{Mailbox, Message};
use memory::{Budgets, LEAST_ARRIVING_BYTES, LEAST_SOLICITED_BYTES};
use registry::Registry;
use shared::Shared;

/// The iSCSI target server.
#[derive(Debug)]
pub struct TargetServer;

/// A running server. Dropping it shuts it down without grace.
pub struct ServerHandle {
    addresses: Vec<SocketAddr>,
    shared: Arc<Shared>,
    loops: Vec<Arc<Mailbox>>,
    stop: StopSignal,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl TargetServer {
    /// Serves connections to `listeners` until [`ServerHandle::shutdown`].
    ///
    /// # Errors
    /// What the operating system says where it gives no thread, poll or address.
    pub fn start(
        listeners: Vec<TcpListener>,
        config: ServerConfig,
        directory: Arc<dyn Directory>,
    ) -> io::Result<ServerHandle> {
        let addresses = listeners.iter().map(TcpListener::local_addr).collect::<io::Result<_>>()?;
        let shared = Arc::new(Shared {
            directory,
            registry: Arc::new(Registry::default()),
            complaints: Arc::default(),
            memory: Budgets {
                solicited: Budget::new(config.max_solicited_bytes.max(LEAST_SOLICITED_BYTES)),
                arriving: Budget::new(config.max_arriving_bytes.max(LEAST_ARRIVING_BYTES)),
                reading: Budget::new(config.max_reading_bytes.max(LEAST_READING_BYTES)),
            },
            io: Workers::start("iscsi-io", io_crew(&config))?,
            logins: Workers::start("iscsi-login", login_crew(&config))?,
            config,
        });
        let made: Vec<_> = (0..shared.config.loop_threads())
            .map(|_| EventLoop::new(Arc::clone(&shared)))
            .collect::<io::Result<_>>()?;
        let loops: Vec<_> = made.iter().map(|(_, mailbox)| Arc::clone(mailbox)).collect();
        let (acceptor, stop) = Acceptor::new(listeners, loops.clone(), Arc::clone(&shared))?;
        let handle = ServerHandle { addresses, shared, loops, stop, threads: Mutex::default() };
        for (number, (event_loop, _)) in made.into_iter().enumerate() {
            handle.spawn(&format!("iscsi-{number}"), move || event_loop.run())?;
        }
        handle.spawn("iscsi-accept", move || acceptor.run())?;
        Ok(handle)
    }
}

impl ServerHandle {
    /// Where it listens.
    #[must_use]
    pub fn local_addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Memory that write data of all sessions takes, in bytes: what was asked for, and what may come or came unasked. See
    /// [`ServerConfig::max_solicited_bytes`] and [`ServerConfig::max_arriving_bytes`].
    #[must_use]
    pub fn write_bytes(&self) -> (u64, u64) {
        let Budgets { solicited, arriving, .. } = &self.shared.memory;
        (solicited.used_bytes(), arriving.used_bytes())
    }

    /// Memory for what workers read, in bytes. See [`ServerConfig::max_reading_bytes`].
    #[must_use]
    pub fn read_bytes(&self) -> u64 {
        self.shared.memory.reading.used_bytes()
    }

    /// Ends all sessions of a target and waits until none of their requests runs any more, for half a minute at most:
    /// `false` then. New sessions are the directory's to refuse.
    pub fn end_target(&self, target: &IscsiName) -> bool {
        self.shared.registry.end_target(target, SessionEnd::Shutdown, REPLACE_WAIT)
    }

    /// Asks the initiators of a target to log out (RFC 7143 §11.9.1), waits for that up to `grace`, then ends what is
    /// left as [`end_target`](Self::end_target) does. Those that asked to log in again meanwhile are the directory's to
    /// refuse, or to send on to another server.
    pub fn drain_target(&self, target: &IscsiName, grace: Duration) -> bool {
        self.shared.registry.drain_target(target, grace, REPLACE_WAIT)
    }

    /// Accepts nothing more, asks every initiator to log out (RFC 7143 §11.9.1), waits for that up to `grace`, then
    /// closes what is left and ends all threads. A second call does nothing.
    pub fn shutdown(&self, grace: Duration) {
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        if threads.is_empty() {
            return;
        }
        self.stop.send();
        let now = Instant::now();
        let deadline = now.checked_add(grace).unwrap_or(now);
        for mailbox in &self.loops {
            mailbox.post(Message::Shutdown(deadline));
        }
        for thread in threads {
            let _ = thread.join();
        }
        let idle = self.shared.logins.stop(REPLACE_WAIT) && self.shared.io.stop(REPLACE_WAIT);
        if !idle {
            tracing::error!("storage does not answer: the iSCSI server ends with requests unfinished");
        }
    }

    fn spawn(&self, name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(body)?;
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        Ok(())
    }
}

fn io_crew(config: &ServerConfig) -> Crew {
    let least = config.io_threads();
    Crew { least, most: least.max(MAX_IO_WORKERS), a_lane: WORKERS_A_DISK, stores_leave_room: true }
}

fn login_crew(config: &ServerConfig) -> Crew {
    let all = config.login_workers;
    Crew { least: all, most: all.max(1), a_lane: all.max(1), stores_leave_room: false }
}

impl std::fmt::Debug for ServerHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerHandle").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

impl Drop for ServerHandle {
    fn drop(&mut self) {
        self.shutdown(Duration::ZERO);
    }
}
