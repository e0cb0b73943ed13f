//! The server: event loop threads, an acceptor and two pools of workers around the protocol core.
//!
//! - `acceptor` takes connections and gives each to the `event_loop` that has fewest;
//! - a `link` is one connection: a `channel` (socket, plain or TLS), input, `output`, and its `traffic`: requests joined
//!   to the device, with `reads` and `changes` under way and `jobs` that wait for storage;
//! - `questions` go to the owner of the exports on a worker;
//! - a [`Budget`] bounds what all connections together may have waiting.
mod acceptor;
mod buffers;
mod changes;
mod channel;
mod complaints;
mod config;
mod event_loop;
mod jobs;
mod link;
mod listener;
mod mailbox;
mod opened;
mod output;
mod piece;
mod questions;
mod reads;
mod shared;
mod slab;
mod tls;
mod traffic;

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use config::{ServerConfig, Tls};
pub use listener::{ListenAddress, Listener};
pub use tls::{ClientCertificates, TlsError, TlsServer};

use block::BlockDevice;

use crate::exports::Exports;
use crate::limits::{LEAST_WAITING_BYTES, MAX_IO_WORKERS, STOP_PATIENCE, WORKERS_AN_EXPORT};
use acceptor::{Acceptor, StopSignal};
use connections::{Budget, Crew, Workers};
use event_loop::EventLoop;
use mailbox::{Mailbox, Message};
use shared::Shared;

pub(crate) use tls::{certificates, in_file, unusable};

/// The NBD server.
#[derive(Debug)]
pub struct NbdServer;

/// A running server. Dropping it shuts it down without grace.
pub struct ServerHandle {
    addresses: Vec<ListenAddress>,
    shared: Arc<Shared>,
    loops: Vec<Arc<Mailbox>>,
    stop: StopSignal,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl NbdServer {
    /// Serves connections to `listeners` until [`ServerHandle::shutdown`].
    ///
    /// # Errors
    /// What the operating system says where it gives no thread, poll or address.
    pub fn start(
        listeners: Vec<Listener>,
        config: ServerConfig,
        exports: Arc<dyn Exports>,
    ) -> io::Result<ServerHandle> {
        let addresses = listeners.iter().map(Listener::address).collect::<io::Result<_>>()?;
        let shared = Arc::new(Shared {
            exports,
            complaints: complaints::Complaints::default(),
            budget: Budget::new(config.max_waiting_bytes.max(LEAST_WAITING_BYTES)),
            unsent_bytes: AtomicUsize::new(0),
            arriving_bytes: AtomicUsize::new(0),
            io: Workers::start("nbd-io", io_crew(&config))?,
            questions: Workers::start("nbd-ask", question_crew(&config))?,
            config,
        });
        let made: Vec<_> = (0..shared.config.loop_threads())
            .map(|_| EventLoop::new(Arc::clone(&shared)))
            .collect::<io::Result<_>>()?;
        let loops: Vec<_> = made.iter().map(|(_, mailbox)| Arc::clone(mailbox)).collect();
        let (acceptor, stop) = Acceptor::new(listeners, loops.clone(), Arc::clone(&shared))?;
        let handle = ServerHandle { addresses, shared, loops, stop, threads: Mutex::default() };
        for (number, (event_loop, _)) in made.into_iter().enumerate() {
            handle.spawn(&format!("nbd-{number}"), move || event_loop.run())?;
        }
        handle.spawn("nbd-accept", move || acceptor.run())?;
        Ok(handle)
    }
}

impl ServerHandle {
    /// Where it listens.
    #[must_use]
    pub fn local_addresses(&self) -> &[ListenAddress] {
        &self.addresses
    }

    /// Memory that requests take which have begun to arrive, of all connections; see [`ServerConfig::max_arriving_bytes`].
    #[must_use]
    pub fn arriving_bytes(&self) -> usize {
        self.shared.arriving_bytes.load(Ordering::Relaxed)
    }

    /// Memory of requests that are with the workers, of all connections; see [`ServerConfig::max_waiting_bytes`].
    #[must_use]
    pub fn waiting_bytes(&self) -> u64 {
        self.shared.budget.used_bytes()
    }

    /// Ends all connections that use `device`, without waiting: what they have not been answered they have to ask for again.
    /// New ones are for the [`Exports`] to refuse.
    pub fn end_device(&self, device: &Arc<dyn BlockDevice>) {
        let address = traffic::address(device);
        for mailbox in &self.loops {
            mailbox.post(Message::EndDevice(address));
        }
    }

    /// Accepts nothing more, finishes the requests that have come and closes their connections, waits for that up to
    /// `grace`, then closes what is left and ends all threads. A second call does nothing.
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
        let idle = self.shared.questions.stop(STOP_PATIENCE) && self.shared.io.stop(STOP_PATIENCE);
        if !idle {
            tracing::error!("storage does not answer: the NBD server ends with requests unfinished");
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
    Crew { least, most: least.max(MAX_IO_WORKERS), a_lane: WORKERS_AN_EXPORT, stores_leave_room: true }
}

fn question_crew(config: &ServerConfig) -> Crew {
    let all = config.question_workers.max(1);
    Crew { least: all, most: all, a_lane: all, stores_leave_room: false }
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
