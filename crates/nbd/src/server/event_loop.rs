//! One thread that serves its connections, each for life.
use std::cell::Cell;
use std::collections::HashMap;
use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mio::event::Event;
use mio::{Events, Interest, Poll, Token};

use super::buffers::Buffers;
use super::link::{Link, Turn};
use super::mailbox::{Arrival, ConnectionId, Letter, Mailbox, Message};
use super::piece::Pieces;
use super::shared::Shared;
use crate::exports::ConnectionEnd;
use crate::limits::STOP_PATIENCE;
use connections::{Alarms, Came, Vigil};

/// The token of the mailbox; connections count upwards from 0 and never get there.
const MAILBOX: Token = Token(usize::MAX);

/// How often clocks are looked at.
const TICK: Duration = Duration::from_secs(1);

/// Events taken from the operating system at once.
const EVENTS: usize = 256;

/// What a connection uses of its thread.
pub(super) struct Context {
    pub(super) shared: Arc<Shared>,
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) buffers: Buffers,
    pub(super) pieces: Pieces,
    /// Jobs of its connections that are with the workers.
    pub(super) lent_jobs: Cell<usize>,
    /// Looked at when bytes come in.
    pub(super) now: Instant,
}

impl Context {
    /// Clients have left so many answers lying that each connection has to do with little.
    pub(super) fn memory_is_scarce(&self) -> bool {
        self.shared.unsent_bytes.load(Ordering::Relaxed) > self.shared.config.max_unsent_bytes
    }

    /// So much has begun to arrive that what is written has to be taken in small pieces.
    pub(super) fn input_is_scarce(&self) -> bool {
        let arriving = self.shared.arriving_bytes.load(Ordering::Relaxed) as u64;
        arriving >= self.shared.config.max_arriving_bytes
    }
}

/// The thread's state.
pub(super) struct EventLoop {
    poll: Poll,
    context: Context,
    links: HashMap<usize, Link>,
    next_id: usize,
    /// Connections that have something to do, each once, in turn.
    ready: Vec<usize>,
    /// Those that have something to do later.
    alarms: Alarms,
    next_tick: Instant,
    stop_at: Option<Instant>,
    vigil: Vigil,
}

impl EventLoop {
    /// A loop without connections, and its mailbox.
    ///
    /// # Errors
    /// What the operating system says.
    pub(super) fn new(shared: Arc<Shared>) -> io::Result<(Self, Arc<Mailbox>)> {
        let poll = Poll::new()?;
        let mailbox = Arc::new(Mailbox::new(mio::Waker::new(poll.registry(), MAILBOX)?));
        let now = Instant::now();
        let (buffers, pieces) = (Buffers::default(), Pieces::default());
        let context = Context {
            shared,
            mailbox: Arc::clone(&mailbox),
            buffers,
            pieces,
            lent_jobs: Cell::default(),
            now,
        };
        let event_loop = Self {
            poll,
            context,
            links: HashMap::new(),
            next_id: 0,
            ready: Vec::new(),
            alarms: Alarms::default(),
            next_tick: now,
            stop_at: None,
            vigil: Vigil::new(std::thread::available_parallelism().map_or(1, usize::from)),
        };
        Ok((event_loop, mailbox))
    }

    /// Serves until shutdown.
    pub(super) fn run(mut self) {
        let mut events = Events::with_capacity(EVENTS);
        while !self.is_done() {
            let timeout = if self.ready.is_empty() {
                let next = self.alarms.next().map_or(self.next_tick, |at| at.min(self.next_tick));
                next.saturating_duration_since(Instant::now())
            } else {
                Duration::ZERO
            };
            // Workers that are at it need the processor, and what they bring is not waited for awake anyway.
            let may_look_on = self.context.lent_jobs.get() == 0;
            let waited: io::Result<()> = self.vigil.wait(timeout, may_look_on, |timeout| {
                self.poll.poll(&mut events, Some(timeout))?;
                Ok(what_came(&events))
            });
            if let Err(error) = waited {
                if error.kind() != io::ErrorKind::Interrupted {
                    tracing::error!(%error, "an event loop cannot wait for its connections and ends");
                    break;
                }
                continue;
            }
            self.context.now = Instant::now();
            for event in &events {
                if event.token() == MAILBOX {
                    continue;
                }
                let Token(id) = event.token();
                if let Some(link) = self.links.get_mut(&id) {
                    link.is_ready(event.is_readable() || event.is_read_closed(), event.is_writable());
                    want_turn(&mut self.ready, id, link);
                }
            }
            for message in self.context.mailbox.take() {
                self.deliver(message);
            }
            if self.context.now >= self.next_tick {
                self.tick();
            }
            while let Some(id) = self.alarms.take_due(self.context.now) {
                if let Some(link) = self.links.get_mut(&id) {
                    want_turn(&mut self.ready, id, link);
                }
            }
            self.give_turns();
        }
        self.context.mailbox.close();
    }

    fn is_done(&self) -> bool {
        let Some(stop_at) = self.stop_at else { return false };
        // Connections whose storage never answers must not keep the server for ever.
        let patience = stop_at.checked_add(STOP_PATIENCE);
        self.links.is_empty() || patience.is_some_and(|until| Instant::now() > until)
    }

    fn give_turns(&mut self) {
        for id in std::mem::take(&mut self.ready) {
            let Some(link) = self.links.get_mut(&id) else { continue };
            link.is_in_line = false;
            // A panic below (in a block device, say) costs this connection, not those of other machines.
            let turn = AssertUnwindSafe(|| link.turn(&mut self.context));
            match std::panic::catch_unwind(turn) {
                Ok(Turn::Idle) => {}
                Ok(Turn::Again) => want_turn(&mut self.ready, id, link),
                Ok(Turn::At(time)) => self.alarms.set(time, id),
                Err(_) => {
                    tracing::error!("serving an NBD connection panicked; it is closed");
                    link.cut(ConnectionEnd::Lost, &self.context);
                }
            }
            if link.is_over() {
                self.remove(id);
            }
        }
    }

    fn remove(&mut self, id: usize) {
        if self.links.remove(&id).is_some() {
            self.context.mailbox.connections().fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn deliver(&mut self, message: Message) {
        match message {
            Message::Adopt(arrival) => self.adopt(arrival),
            Message::Shutdown(at) => self.shut_down(at),
            Message::EndDevice(address) => {
                for (id, link) in self.links.iter_mut().filter(|(_, link)| link.uses(address)) {
                    link.cut(ConnectionEnd::Shutdown, &self.context);
                    want_turn(&mut self.ready, *id, link);
                }
            }
            Message::To(ConnectionId(id), letter) => {
                if matches!(letter, Letter::Done(_)) {
                    let left = self.context.lent_jobs.get().saturating_sub(1);
                    self.context.lent_jobs.set(left);
                }
                // A letter to a connection that is gone is dropped, and ends the use of the export that it may bring.
                if let Some(link) = self.links.get_mut(&id) {
                    link.deliver(letter, &mut self.context);
                    want_turn(&mut self.ready, id, link);
                }
            }
        }
    }

    fn adopt(&mut self, arrival: Arrival) {
        let id = self.next_id;
        self.next_id = id.wrapping_add(1);
        let (link, mut channel) = Link::new(ConnectionId(id), arrival, &self.context);
        let interest = Interest::READABLE.add(Interest::WRITABLE);
        let registered = self.poll.registry().register(&mut channel, Token(id), interest);
        if let (Ok(()), None) = (&registered, self.stop_at) {
            let mut link = link.join(channel);
            want_turn(&mut self.ready, id, &mut link);
            self.links.insert(id, link);
            return;
        }
        self.context.mailbox.connections().fetch_sub(1, Ordering::Relaxed);
        if let Err(error) = registered {
            tracing::error!(%error, "cannot watch a connection");
        }
    }

    fn tick(&mut self) {
        self.next_tick = self.context.now.checked_add(TICK).unwrap_or(self.context.now);
        let time_is_up = self.stop_at.is_some_and(|at| self.context.now >= at);
        for (id, link) in &mut self.links {
            if time_is_up {
                link.cut(ConnectionEnd::Shutdown, &self.context);
            } else {
                link.tick(&mut self.context);
            }
            want_turn(&mut self.ready, *id, link);
        }
    }

    fn shut_down(&mut self, at: Instant) {
        self.stop_at = Some(at);
        self.next_tick = at;
        for (id, link) in &mut self.links {
            link.drain(&self.context);
            want_turn(&mut self.ready, *id, link);
        }
    }
}

/// What ended a pause, if it is over.
fn what_came(events: &Events) -> Option<Came> {
    let from_client = |event: &Event| event.token() != MAILBOX && event.is_readable();
    (!events.is_empty()).then(|| if events.iter().any(from_client) { Came::Requests } else { Came::Other })
}

/// Puts a connection at the end of the line, unless it stands there already: one turn each, whatever has come for it.
fn want_turn(ready: &mut Vec<usize>, id: usize, link: &mut Link) {
    if !std::mem::replace(&mut link.is_in_line, true) {
        ready.push(id);
    }
}
