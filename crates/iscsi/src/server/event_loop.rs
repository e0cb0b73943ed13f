//! One thread that serves its connections, each for life.
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
use super::mailbox::{Arrival, ConnectionId, Mailbox, Message};
use super::shared::Shared;
use crate::directory::SessionEnd;
use crate::limits::REPLACE_WAIT;
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
    /// Looked at when bytes come in.
    pub(super) now: Instant,
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
        let context = Context { shared, mailbox: Arc::clone(&mailbox), buffers: Buffers::default(), now };
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
            let waited: io::Result<()> = self.vigil.wait(timeout, true, |timeout| {
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
                    link.is_ready(event.is_readable(), event.is_read_closed(), event.is_writable());
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
        // Tasks that storage never gives back must not keep the server for ever.
        let patience = stop_at.checked_add(REPLACE_WAIT);
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
                    tracing::error!("serving an iSCSI connection panicked; it is closed");
                    link.cut(SessionEnd::ConnectionLost, self.context.now);
                }
            }
            if link.is_over() {
                self.remove(id);
            }
        }
    }

    fn remove(&mut self, id: usize) {
        if let Some(link) = self.links.remove(&id) {
            self.context.mailbox.connections().fetch_sub(1, Ordering::Relaxed);
            link.bury();
        }
    }

    fn deliver(&mut self, message: Message) {
        match message {
            Message::Adopt(arrival) => self.adopt(arrival),
            Message::Shutdown(at) => self.shut_down(at),
            Message::To(ConnectionId(id), letter) => {
                // A letter to a connection that is gone is dropped, and ends the session that it may bring.
                if let Some(link) = self.links.get_mut(&id) {
                    link.deliver(letter, &mut self.context);
                    want_turn(&mut self.ready, id, link);
                }
            }
        }
    }

    fn adopt(&mut self, mut arrival: Arrival) {
        let id = self.next_id;
        self.next_id = id.wrapping_add(1);
        let interest = Interest::READABLE.add(Interest::WRITABLE);
        let registered = self.poll.registry().register(&mut arrival.stream, Token(id), interest);
        if let (Ok(()), None) = (&registered, self.stop_at) {
            let mut link = Link::new(ConnectionId(id), arrival, self.context.now);
            want_turn(&mut self.ready, id, &mut link);
            self.links.insert(id, link);
            return;
        }
        self.context.mailbox.connections().fetch_sub(1, Ordering::Relaxed);
        if let Err(error) = registered {
            tracing::error!(%error, peer = %arrival.peer, "cannot watch a connection");
        }
    }

    fn tick(&mut self) {
        self.next_tick = self.context.now.checked_add(TICK).unwrap_or(self.context.now);
        let time_is_up = self.stop_at.is_some_and(|at| self.context.now >= at);
        for (id, link) in &mut self.links {
            if time_is_up {
                link.cut(SessionEnd::Shutdown, self.context.now);
            } else {
                link.tick(&mut self.context);
            }
            want_turn(&mut self.ready, *id, link);
        }
    }

    fn shut_down(&mut self, at: Instant) {
        self.stop_at = Some(at);
        let now = self.context.now;
        self.next_tick = at;
        let seconds = at.saturating_duration_since(now).as_secs();
        for (id, link) in &mut self.links {
            link.want_logout(u16::try_from(seconds).unwrap_or(u16::MAX), now);
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
