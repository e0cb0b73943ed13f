//! One connection on its event loop: the socket, input and output, and the protocol state between them.
//!
//! A turn goes round: read what the socket holds, take all messages in it, answer reads while the output has room, write.
//! It ends when nothing moves any more, or after [`TURN_ROUNDS`], so that other connections get theirs. While the
//! output stands above its mark nothing is read: a peer that does not listen is not listened to.
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::channel::{Channel, Filled, WRITE_AT_ONCE_BYTES};
use super::event_loop::Context;
use super::mailbox::{Arrival, ConnectionId, Letter};
use super::opened::Opened;
use super::output::Output;
use super::questions;
use super::traffic::{Took, Traffic};
use crate::exports::{ConnectionEnd, Peer, Refusal, TlsPeer};
use crate::handshake::{Handshake, HandshakeEvent, Violation};
use crate::limits::{CLOSE_LINGER, QUESTION_DEADLINE, SCARCE_INPUT_BYTES, SMALL_REST_BYTES};
use connections::ByteQueue;
use connections::Slot;

/// Rounds of one turn.
const TURN_ROUNDS: u32 = 4;

/// Portions of output in a round.
const PORTIONS: u32 = 4;

/// Messages (requests, and pieces of what is written) that are taken in one turn: as many as are worth one write of
/// small answers. A client with a deep queue waits for its next turn as all do.
const TURN_MESSAGES: u32 = 128;

/// One connection.
pub(super) struct Link {
    id: ConnectionId,
    /// It waits for its turn; the event loop's.
    pub(super) is_in_line: bool,
    /// A limit holds the next request back until then.
    held_until: Option<Instant>,
    /// `None` when it is closed.
    channel: Option<Channel>,
    peer: Peer,
    phase: Phase,
    input: ByteQueue,
    output: Output,
    /// What of the output, and of the input, is counted in the server's sums.
    counted_bytes: usize,
    counted_input_bytes: usize,
    /// The owner has been asked; no message is taken until it answers.
    asked_at: Option<Instant>,
    closing: Option<Closing>,
    /// The start of the handshake; the time that the owner took does not count.
    started: Instant,
    _slot: Slot,
}

enum Phase {
    Handshake(Box<Looking>),
    Transmission(Box<Traffic>),
}

/// A client that has not chosen yet.
struct Looking {
    handshake: Handshake,
    /// The export that was opened last. It is not opened again for another option with the same name.
    opened: Option<Arc<Opened>>,
    /// The TLS handshake runs, within the other.
    in_tls: bool,
}

/// The connection ends when everything is answered and sent, or at the deadline.
#[derive(Clone, Copy)]
struct Closing {
    deadline: Instant,
    finished: bool,
}

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Nothing more can be done until something happens.
    Idle,
    /// There is more to do.
    Again,
    /// There is more to do then: a limit holds it back.
    At(Instant),
}

impl Link {
    pub(super) fn new(id: ConnectionId, arrival: Arrival, context: &Context) -> (Self, Channel) {
        let mut output = Output::default();
        let handshake = Handshake::new(context.shared.config.tls.policy(arrival.peer), output.replies());
        let link = Self {
            id,
            is_in_line: false,
            held_until: None,
            channel: None,
            peer: Peer { address: arrival.peer, tls: None },
            phase: Phase::Handshake(Box::new(Looking { handshake, opened: None, in_tls: false })),
            input: ByteQueue::default(),
            output,
            counted_bytes: 0,
            counted_input_bytes: 0,
            asked_at: None,
            closing: None,
            started: context.now,
            _slot: arrival.slot,
        };
        (link, Channel::new(arrival.socket))
    }

    /// Gives the link its channel, which is being watched.
    pub(super) fn join(mut self, channel: Channel) -> Self {
        self.channel = Some(channel);
        self
    }

    /// The socket can be read or written again.
    pub(super) fn is_ready(&mut self, readable: bool, writable: bool) {
        if let Some(channel) = &mut self.channel {
            channel.is_ready(readable, writable);
        }
    }

    /// Closed.
    pub(super) fn is_over(&self) -> bool {
        self.channel.is_none()
    }

    /// Does what can be done without waiting.
    pub(super) fn turn(&mut self, context: &mut Context) -> Turn {
        let (mut rounds, mut messages) = (TURN_ROUNDS, TURN_MESSAGES);
        let (mut progress, mut sent) = (true, 0);
        while progress && rounds > 0 && messages > 0 && sent < WRITE_AT_ONCE_BYTES && self.channel.is_some() {
            rounds = rounds.saturating_sub(1);
            progress = self.tls_handshake(context);
            progress |= self.fill(context);
            progress |= self.take_messages(&mut messages, context);
            progress |= self.answer(&mut sent, context);
            self.end_when_done(context);
        }
        self.give_back_buffers(context);
        if let Phase::Transmission(traffic) = &mut self.phase {
            traffic.forgo();
        }
        match self.held_until.take() {
            _ if self.channel.is_none() => Turn::Idle,
            _ if progress => Turn::Again,
            Some(until) => Turn::At(until),
            None => Turn::Idle,
        }
    }

    /// Whether it uses the device at this address.
    pub(super) fn uses(&self, device: usize) -> bool {
        matches!(&self.phase, Phase::Transmission(traffic) if traffic.device_address() == device)
    }

    /// Ends the connection now.
    pub(super) fn cut(&mut self, how: ConnectionEnd, context: &Context) {
        self.ends(how);
        self.close(context);
    }

    /// Ends the connection when what is under way has been answered.
    pub(super) fn drain(&mut self, context: &Context) {
        match &mut self.phase {
            Phase::Transmission(_) => self.end(ConnectionEnd::Shutdown, context),
            Phase::Handshake(_) => self.cut(ConnectionEnd::Shutdown, context),
        }
    }

    /// Looks at what a segment of the connection carries: the two ends may learn of a narrow path at any time.
    fn look_at_segments(&mut self) {
        if let (Some(channel), Phase::Transmission(traffic)) = (&self.channel, &mut self.phase)
            && let Some(bytes) = channel.segment_bytes()
        {
            traffic.see_segments(bytes);
        }
    }

    /// Looks at the clock.
    pub(super) fn tick(&mut self, context: &mut Context) {
        let now = context.now;
        self.look_at_segments();
        if let Some(asked_at) = self.asked_at {
            if now.saturating_duration_since(asked_at) > QUESTION_DEADLINE {
                self.fail(context, "the owner of the exports did not answer in time");
            }
        } else if let Some(closing) = self.closing {
            if now >= closing.deadline {
                self.close(context);
            }
        } else if !matches!(self.phase, Phase::Transmission(_)) {
            let quiet = now.saturating_duration_since(self.started);
            if quiet > context.shared.config.handshake_deadline {
                self.fail(context, "the handshake was not finished in time");
            }
        }
    }

    /// Takes a message.
    pub(super) fn deliver(&mut self, letter: Letter, context: &mut Context) {
        match letter {
            Letter::TryAgain => {}
            Letter::Done(done) => {
                if let Phase::Transmission(traffic) = &mut self.phase {
                    traffic.done(done, &mut self.output, context);
                }
            }
            Letter::Listed(exports) => {
                self.answered(context);
                if let Phase::Handshake(looking) = &mut self.phase {
                    looking.handshake.listed(&exports, self.output.replies());
                }
            }
            Letter::Opened(answer) => {
                self.answered(context);
                self.opened(answer, context);
            }
        }
    }

    fn answered(&mut self, context: &Context) {
        if let Some(asked_at) = self.asked_at.take() {
            let took = context.now.saturating_duration_since(asked_at);
            self.started = self.started.checked_add(took).unwrap_or(self.started);
        }
    }

    /// The owner has opened the export, or not.
    fn opened(&mut self, answer: Result<Arc<Opened>, Refusal>, context: &mut Context) {
        let Phase::Handshake(looking) = &mut self.phase else { return };
        let out = self.output.replies();
        let event = match &answer {
            Ok(opened) => looking.handshake.opened(Ok(&opened.shape), out),
            Err(refusal) => {
                tracing::info!(peer = %self.peer.address, ?refusal, "NBD export refused");
                looking.handshake.opened(Err(refusal), out)
            }
        };
        looking.opened = answer.ok();
        match event {
            Ok(event) => self.act(event, context),
            Err(Violation(reason)) => self.fail(context, reason),
        }
    }

    /// Goes on with the TLS handshake, if there is one. It begins when the answer to `NBD_OPT_STARTTLS`, which still goes
    /// in the clear, is out.
    fn tls_handshake(&mut self, context: &mut Context) -> bool {
        if !self.is_in_tls_handshake() || self.closing.is_some() || !self.output.is_empty() {
            return false;
        }
        let (Some(channel), Some(server)) = (&mut self.channel, context.shared.config.tls.server()) else {
            return false;
        };
        match channel.tls_handshake(server) {
            Ok(None) => false,
            Ok(Some(tls_peer)) => {
                self.tls_started(tls_peer);
                true
            }
            Err(error) => {
                self.fail(context, &format!("the TLS handshake failed: {error}"));
                self.close(context);
                false
            }
        }
    }

    fn tls_started(&mut self, tls_peer: TlsPeer) {
        tracing::debug!(peer = %self.peer.address, names = ?tls_peer.names, "TLS is up");
        self.peer.tls = Some(tls_peer);
        if let Phase::Handshake(looking) = &mut self.phase {
            looking.handshake.tls_started();
            looking.in_tls = false;
            looking.opened = None;
        }
    }

    fn is_in_tls_handshake(&self) -> bool {
        matches!(&self.phase, Phase::Handshake(looking) if looking.in_tls)
    }

    /// Reads from the socket, once.
    fn fill(&mut self, context: &mut Context) -> bool {
        if self.is_in_tls_handshake() || !self.takes_input(context) {
            return false;
        }
        match self.receive(context) {
            Ok(Filled::Some(_)) => {
                context.now = Instant::now();
                true
            }
            Ok(Filled::Nothing) => false,
            Ok(Filled::End) => {
                tracing::debug!(peer = %self.peer.address, "connection closed by the client");
                self.cut(ConnectionEnd::Lost, context);
                false
            }
            Err(error) => self.lost(&error, context),
        }
    }

    /// Reads from the socket into the piece of a write that comes straight there, or into the input.
    fn receive(&mut self, context: &mut Context) -> io::Result<Filled> {
        let Some(channel) = &mut self.channel else { return Ok(Filled::Nothing) };
        let mut ahead = usize::MAX;
        if let Phase::Transmission(traffic) = &mut self.phase {
            if self.input.is_empty() {
                traffic.begin_piece(context);
            }
            if let Some(room) = traffic.room() {
                let filled = channel.fill(room)?;
                if let Filled::Some(count) = filled {
                    traffic.received(count);
                }
                return Ok(filled);
            }
            ahead = traffic.reads_ahead();
        }
        if self.counted_input_bytes == 0 && context.input_is_scarce() {
            let room = SCARCE_INPUT_BYTES.saturating_sub(self.input.len());
            self.input.spare(room);
            if room == 0 {
                return Ok(Filled::Nothing);
            }
        } else {
            context.buffers.enlarge(&mut self.input);
        }
        let room = self.input.rest();
        let most = room.len().min(ahead);
        let filled = channel.fill(room.get_mut(..most).unwrap_or_default())?;
        if let Filled::Some(count) = filled {
            self.input.advance(count);
        }
        Ok(filled)
    }

    /// Whether messages may be taken: nobody is asked, the connection does not end, the output has room.
    fn takes_input(&self, context: &Context) -> bool {
        self.asked_at.is_none() && self.closing.is_none() && self.output.has_room(context.memory_is_scarce())
    }

    /// Takes the messages in the input, so many at most.
    fn take_messages(&mut self, messages: &mut u32, context: &mut Context) -> bool {
        let mut progress = false;
        while *messages > 0 && self.takes_input(context) && self.has_input() && self.channel.is_some() {
            // The input is put aside so that its bytes can be lent while everything else changes.
            let mut input = std::mem::take(&mut self.input);
            let taken = match &mut self.phase {
                Phase::Handshake(_) => self.take_option(input.filled(), context),
                Phase::Transmission(_) => self.take_request(input.filled(), context),
            };
            input.consume(taken.unwrap_or(0));
            self.input = input;
            if taken.is_none() {
                break;
            }
            *messages = messages.saturating_sub(1);
            progress = true;
        }
        progress
    }

    fn has_input(&self) -> bool {
        let holds_piece = matches!(&self.phase, Phase::Transmission(traffic) if traffic.holds_piece());
        holds_piece || !self.input.is_empty()
    }

    /// How many bytes were taken; `None` where nothing more can be done with the input now.
    fn take_option(&mut self, input: &[u8], context: &mut Context) -> Option<usize> {
        let Phase::Handshake(looking) = &mut self.phase else { return None };
        match looking.handshake.receive(input, self.output.replies()) {
            Ok(taken) => {
                // What follows the wish for TLS in the clear cannot be told from an injection: the client has to wait
                // for the answer, and there is none yet.
                if taken.event == HandshakeEvent::StartTls && taken.bytes < input.len() {
                    self.fail(context, "bytes in the clear behind NBD_OPT_STARTTLS");
                    return None;
                }
                self.act(taken.event, context);
                (taken.bytes > 0).then_some(taken.bytes)
            }
            Err(Violation(reason)) => {
                self.fail(context, reason);
                None
            }
        }
    }

    fn take_request(&mut self, input: &[u8], context: &mut Context) -> Option<usize> {
        let Phase::Transmission(traffic) = &mut self.phase else { return None };
        context.buffers.enlarge(self.output.buffer());
        match traffic.take(input, &mut self.output, context) {
            Ok(Took::Bytes(bytes)) => Some(bytes),
            Ok(Took::NeedMore | Took::Stalled) => None,
            Ok(Took::Held(until)) => {
                self.held_until = Some(until);
                None
            }
            Ok(Took::Disconnect) => {
                self.end(ConnectionEnd::Disconnected, context);
                None
            }
            Err(broken) => {
                self.fail(context, &broken.0);
                None
            }
        }
    }

    fn act(&mut self, event: HandshakeEvent, context: &mut Context) {
        match event {
            HandshakeEvent::Continue => {}
            HandshakeEvent::Aborted => self.end(ConnectionEnd::Disconnected, context),
            HandshakeEvent::StartTls => {
                if let Phase::Handshake(looking) = &mut self.phase {
                    looking.in_tls = true;
                }
            }
            HandshakeEvent::List => {
                self.asked_at = Some(context.now);
                questions::ask_list(context, self.id, self.peer.clone());
            }
            HandshakeEvent::Open(name, purpose) => {
                let Phase::Handshake(looking) = &mut self.phase else { return };
                let same = |opened: &Arc<Opened>| opened.name == name && opened.purpose == purpose;
                match looking.opened.take().filter(same) {
                    Some(opened) => self.opened(Ok(opened), context),
                    None => {
                        self.asked_at = Some(context.now);
                        questions::ask_open(context, self.id, name, purpose, self.peer.clone());
                    }
                }
            }
            HandshakeEvent::Begin(terms) => {
                let Phase::Handshake(looking) = &mut self.phase else { return };
                let Some(opened) = looking.opened.take() else { return };
                let takes_files = self.channel.as_ref().is_some_and(Channel::takes_files);
                let traffic = Traffic::new(self.id, self.peer.address, opened, terms, takes_files, context);
                tracing::info!(peer = %self.peer.address, export = traffic.export_name(), tls = !takes_files, "NBD export in use");
                self.phase = Phase::Transmission(Box::new(traffic));
            }
        }
    }

    /// Answers reads and sends the answers, adding up what went, in portions: while the client takes the first, the next is made. Were a deep
    /// queue answered at once, client and server would work in turn and each wait for the other.
    fn answer(&mut self, sent: &mut usize, context: &mut Context) -> bool {
        let mut progress = false;
        for _ in 0..PORTIONS {
            let pumped = self.pump(context);
            let more = self.output.holds_portion();
            let moved = self.flush(context);
            *sent = sent.saturating_add(moved);
            progress |= pumped || moved > 0;
            if !(pumped && more && moved > 0 && *sent < WRITE_AT_ONCE_BYTES) {
                break;
            }
        }
        progress
    }

    /// Answers reads until a portion of output is there.
    fn pump(&mut self, context: &mut Context) -> bool {
        let Phase::Transmission(traffic) = &mut self.phase else { return false };
        if self.channel.is_none() {
            return false;
        }
        if !traffic.is_idle() {
            context.buffers.enlarge(self.output.buffer());
        }
        let pumped = traffic.pump(&mut self.output, context);
        traffic.tell();
        pumped.unwrap_or_else(|broken| {
            // Nothing of what is queued may reach the client as if it were a whole answer.
            self.fail(context, &broken.0);
            self.close(context);
            false
        })
    }

    /// Writes to the socket until it is full or nothing is left, or others should have their turn; how many bytes went.
    fn flush(&mut self, context: &mut Context) -> usize {
        let Some(channel) = &mut self.channel else { return 0 };
        channel.flush(&mut self.output).unwrap_or_else(|error| {
            self.lost(&error, context);
            0
        })
    }

    fn lost(&mut self, error: &io::Error, context: &Context) -> bool {
        tracing::debug!(peer = %self.peer.address, %error, "connection lost");
        self.cut(ConnectionEnd::Lost, context);
        false
    }

    /// The peer broke the rules: says so in the log and ends the connection.
    fn fail(&mut self, context: &Context, reason: &str) {
        context.shared.complaints.log(self.peer.address, reason);
        self.end(ConnectionEnd::Lost, context);
    }

    fn ends(&mut self, how: ConnectionEnd) {
        if let Phase::Transmission(traffic) = &self.phase {
            traffic.ends(how);
        }
    }

    /// Takes nothing more, and ends the connection when what is under way has been answered and sent.
    fn end(&mut self, how: ConnectionEnd, context: &Context) {
        if self.closing.is_none() {
            self.ends(how);
            let deadline = context.now.checked_add(CLOSE_LINGER).unwrap_or(context.now);
            // Storage may take its time; a shutdown sets a deadline of its own.
            let waits = matches!(&self.phase, Phase::Transmission(traffic) if !traffic.is_idle());
            let deadline =
                if waits { context.now.checked_add(QUESTION_DEADLINE).unwrap_or(deadline) } else { deadline };
            self.closing = Some(Closing { deadline, finished: false });
        }
    }

    fn end_when_done(&mut self, context: &Context) {
        let (Some(closing), Some(channel)) = (&mut self.closing, &mut self.channel) else { return };
        let answered = match &self.phase {
            Phase::Transmission(traffic) => traffic.is_idle(),
            Phase::Handshake(_) => true,
        };
        if !answered || !self.output.is_empty() || !channel.is_flushed() {
            return;
        }
        if !closing.finished {
            closing.finished = true;
            let linger = context.now.checked_add(CLOSE_LINGER).unwrap_or(context.now);
            closing.deadline = closing.deadline.min(linger);
            channel.finish();
        }
        if channel.drain() {
            self.close(context);
        }
    }

    /// Closes the socket.
    fn close(&mut self, context: &Context) {
        self.look_at_segments();
        // Dropping the socket takes it out of the poll as well.
        self.channel = None;
        self.input = ByteQueue::default();
        self.output = Output::default();
        self.count(context);
    }

    fn give_back_buffers(&mut self, context: &mut Context) {
        context.buffers.reclaim(&mut self.input);
        if self.output.is_empty() {
            context.buffers.reclaim(self.output.buffer());
        }
        self.count(context);
    }

    /// Keeps the server's sums of unsent bytes, and of those that have begun to arrive.
    fn count(&mut self, context: &Context) {
        let large = self.input.room() > SCARCE_INPUT_BYTES.saturating_mul(2);
        let arriving = if self.input.len() > SMALL_REST_BYTES && large { self.input.room() } else { 0 };
        let in_piece = match &self.phase {
            Phase::Transmission(traffic) if self.channel.is_some() => traffic.arriving_bytes(),
            _ => 0,
        };
        let arriving = arriving.saturating_add(in_piece);
        count_in(&context.shared.unsent_bytes, &mut self.counted_bytes, self.output.len());
        count_in(&context.shared.arriving_bytes, &mut self.counted_input_bytes, arriving);
    }
}

/// Has `sum` count `bytes` where it has counted `counted` so far.
fn count_in(sum: &AtomicUsize, counted: &mut usize, bytes: usize) {
    if bytes > *counted {
        sum.fetch_add(bytes.saturating_sub(*counted), Ordering::Relaxed);
    } else if bytes < *counted {
        sum.fetch_sub(counted.saturating_sub(bytes), Ordering::Relaxed);
    }
    *counted = bytes;
}
