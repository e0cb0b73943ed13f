//! One connection on its event loop: the socket, the two byte queues and the protocol state between them.
//!
//! A turn goes round: read what the socket holds, take all PDUs in it, send Data-In while the output has room, write.
//! It ends when nothing moves any more, or after [`TURN_ROUNDS`], so that other connections get theirs. While the
//! output stands above its mark nothing is read: a peer that does not listen is not listened to.
use std::io::{self, Read as _};
use std::net::SocketAddr;
use std::time::Instant;

use mio::net::TcpStream;

use super::buffers::Buffers;
use super::event_loop::Context;
use super::full::{Full, Step};
use super::mailbox::{Arrival, Completion, ConnectionId, Letter, Message, Opened};
use super::outbox::{Outbox, Stuck};
use super::questions;
use crate::directory::{Authentication, IscsiName, Portal, Refusal, SessionEnd};
use crate::limits::{
    CLOSE_LINGER, LOGIN_DATA_SEGMENT_BYTES, OUTPUT_MARK_BYTES, QUESTION_DEADLINE, SMALL_REST_BYTES,
};
use crate::login::{Login, LoginEvent, NotOpened};
use crate::pdu::frame::{Digests, Frame, FrameError, FrameRules, frame, pdu_bytes};
use crate::pdu::request::{DATA_OUT, RejectReason};
use crate::pdu::{BHS_BYTES, Bhs};
use crate::session::{PORTAL_GROUP_TAG, Session};
use connections::ByteQueue;
use connections::Slot;

/// Rounds of one turn: each sends some hundred KiB. An initiator's window of commands bounds what it asks for in one.
const TURN_ROUNDS: u32 = 4;

/// A command on its way: the task, and when its last byte came.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) task: scsi::Task,
    pub(super) arrived: Instant,
    /// Storage had to be waited for.
    pub(super) waited: bool,
}

/// One connection.
pub(super) struct Link {
    id: ConnectionId,
    /// It waits for its turn; the event loop's.
    pub(super) is_in_line: bool,
    /// `None` when it is closed and tasks of the session still run.
    stream: Option<TcpStream>,
    peer: SocketAddr,
    local: SocketAddr,
    phase: Phase,
    input: ByteQueue,
    output: Outbox,
    readable: bool,
    /// The peer sends nothing more: what is there is to be read up to its end.
    read_closed: bool,
    writable: bool,
    /// The directory has been asked; no PDU is taken until it answers.
    asked_at: Option<Instant>,
    closing: Option<Closing>,
    /// The start of the login, without the time that the directory took; later the last sign of life.
    heard_at: Instant,
    slot: Option<Slot>,
    arrival_number: u64,
}

enum Phase {
    Login(Box<Login>),
    Full(Box<Full>),
}

/// The connection ends when the output is sent, or at the deadline.
#[derive(Clone, Copy)]
struct Closing {
    how: SessionEnd,
    deadline: Instant,
}

/// Where the next bytes of the socket may go.
enum ReadRoom {
    /// A large buffer.
    Buffer,
    /// So many bytes, and no more.
    Bytes(usize),
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
    pub(super) fn new(id: ConnectionId, arrival: Arrival, now: Instant) -> Self {
        Self {
            id,
            is_in_line: false,
            stream: Some(arrival.stream),
            peer: arrival.peer,
            local: arrival.local,
            phase: Phase::Login(Box::new(Login::new(arrival.peer))),
            input: ByteQueue::default(),
            output: Outbox::default(),
            readable: true,
            read_closed: false,
            writable: true,
            asked_at: None,
            closing: None,
            heard_at: now,
            slot: Some(arrival.slot),
            arrival_number: arrival.number,
        }
    }

    /// The socket can be read or written again, or the peer sends nothing more.
    pub(super) fn is_ready(&mut self, readable: bool, read_closed: bool, writable: bool) {
        self.readable |= readable || read_closed;
        self.read_closed |= read_closed;
        self.writable |= writable;
    }

    /// Closed, and no task of the session runs.
    pub(super) fn is_over(&self) -> bool {
        self.stream.is_none() && self.lent() == 0
    }

    /// Does what can be done without waiting.
    pub(super) fn turn(&mut self, context: &mut Context) -> Turn {
        self.share_memory();
        let mut rounds = TURN_ROUNDS;
        let mut progress = true;
        let mut held_until = None;
        while progress && rounds > 0 && self.stream.is_some() {
            rounds = rounds.saturating_sub(1);
            progress = self.fill(context);
            progress |= self.take_pdus(context);
            // Before anybody learns of what was asked for.
            self.share_memory();
            held_until = self.let_go(context);
            progress |= self.pump(context);
            self.tell();
            progress |= self.flush();
            if self.closing.is_some() && self.output.is_empty() {
                self.close();
            }
        }
        self.tell();
        self.give_back_buffers(&mut context.buffers);
        match held_until {
            _ if self.stream.is_none() => Turn::Idle,
            _ if progress => Turn::Again,
            Some(until) => Turn::At(until),
            None => Turn::Idle,
        }
    }

    /// Has commands go on that a limit has held back; until when it holds the next one.
    fn let_go(&mut self, context: &Context) -> Option<Instant> {
        match &mut self.phase {
            Phase::Full(full) if self.closing.is_none() => {
                full.let_go(&mut self.output.queue, context, self.id)
            }
            _ => None,
        }
    }

    /// Counts what was answered.
    fn tell(&mut self) {
        if let Phase::Full(full) = &mut self.phase {
            full.tell();
        }
    }

    /// Brings the session's write data and the server's memory together.
    fn share_memory(&mut self) {
        if let Phase::Full(full) = &mut self.phase {
            full.memory.settle(&full.session, &self.input);
            full.memory.solicit(&mut full.session, &mut self.output.queue);
            if full.session.next_read().is_none() {
                full.memory.reads_without_worker();
            }
        }
    }

    /// Ends the session when what is queued has been sent.
    pub(super) fn end(&mut self, how: SessionEnd, now: Instant) {
        if self.closing.is_none() {
            let deadline = now.checked_add(CLOSE_LINGER).unwrap_or(now);
            self.closing = Some(Closing { how, deadline });
        }
    }

    /// Ends the session now: its place is wanted, or the time is up.
    pub(super) fn cut(&mut self, how: SessionEnd, now: Instant) {
        self.end(how, now);
        self.close();
    }

    /// Has the initiator log out, within `seconds`.
    pub(super) fn want_logout(&mut self, seconds: u16, now: Instant) {
        match &mut self.phase {
            Phase::Full(full) => full.session.want_logout(seconds, &mut self.output.queue),
            Phase::Login(_) => self.end(SessionEnd::Shutdown, now),
        }
    }

    /// Looks at what a segment of the connection carries: the two ends may learn of a narrow path at any time.
    fn look_at_segments(&mut self) {
        if let (Some(stream), Phase::Full(full)) = (&self.stream, &mut self.phase)
            && let Some(bytes) = connections::segment_bytes(stream)
        {
            full.see_segments(bytes);
        }
    }

    /// Looks at the clock.
    pub(super) fn tick(&mut self, context: &mut Context) {
        self.look_at_segments();
        if self.closing.is_none()
            && let Phase::Full(full) = &mut self.phase
            && let Some(reason) = full.is_owed(&self.input, context)
        {
            return self.fail(context, reason);
        }
        let (now, config) = (context.now, &context.shared.config);
        let quiet = now.saturating_duration_since(self.heard_at);
        if let Some(asked_at) = self.asked_at {
            if now.saturating_duration_since(asked_at) > QUESTION_DEADLINE {
                self.fail(context, "the directory did not answer in time");
            }
        } else if let Some(closing) = self.closing {
            if now >= closing.deadline {
                self.close();
            }
        } else if let Phase::Full(full) = &mut self.phase {
            if full.session.awaits_pong() {
                if quiet > config.ping_after.saturating_mul(2) {
                    self.fail(context, "no answer to a ping");
                }
            } else if quiet > config.ping_after {
                full.session.ping(&mut self.output.queue);
            }
        } else if quiet > config.login_deadline {
            self.fail(context, "the login was not finished in time");
        }
    }

    /// The session's last act, when [`is_over`](Self::is_over).
    pub(super) fn bury(mut self) {
        // Free before anybody hears of the end and wants it.
        self.slot.take();
        let how = self.closing.map_or(SessionEnd::ConnectionLost, |closing| closing.how);
        if let Phase::Full(full) = self.phase {
            full.end(how);
        }
    }

    /// Takes a message.
    pub(super) fn deliver(&mut self, letter: Letter, context: &mut Context) {
        match letter {
            // The turn that follows does.
            Letter::TryAgain => {}
            Letter::Done(completion) => self.done(completion, context),
            Letter::Authentication(answer) => self.authentication(answer, context),
            Letter::Opened(answer) => self.opened(answer, context),
            Letter::Targets(targets, portals) => self.targets(&targets, portals),
            Letter::WantLogout(seconds) => self.want_logout(seconds, context.now),
            Letter::End(how) => self.cut(how, context.now),
            Letter::Abort { luns, tell, fence } => {
                if let Phase::Full(full) = &mut self.phase {
                    full.abort_for_another(&luns, tell, fence, &mut self.output.queue);
                }
            }
            Letter::OthersAreDone { itt } => {
                if let Phase::Full(full) = &mut self.phase {
                    full.others_are_done(itt, &mut self.output.queue);
                }
            }
        }
    }

    /// A worker brings a task back.
    fn done(&mut self, completion: Completion, context: &Context) {
        if let Phase::Full(full) = &mut self.phase {
            full.done(completion, &mut self.output.queue, context, self.id);
        }
        if self.stream.is_none() {
            self.output = Outbox::default();
        }
    }

    /// The directory has answered a question of the login: the time that it took is not the initiator's.
    fn answered(&mut self, context: &Context) {
        if let Some(asked_at) = self.asked_at.take() {
            let took = context.now.saturating_duration_since(asked_at);
            self.heard_at = self.heard_at.checked_add(took).unwrap_or(self.heard_at);
        }
    }

    /// The directory says what must be proved.
    fn authentication(&mut self, answer: Result<Authentication, Refusal>, context: &mut Context) {
        self.answered(context);
        let Phase::Login(login) = &mut self.phase else { return };
        let event = match questions::challenge() {
            Ok(challenge) => login.authentication(answer, challenge, &mut self.output.queue),
            Err(error) => {
                let refusal = Refusal::Unavailable(format!("no random numbers: {error}"));
                let none =
                    crate::login::Challenge { identifier: 0, bytes: [0; crate::login::CHALLENGE_BYTES] };
                login.authentication(Err(refusal), none, &mut self.output.queue)
            }
        };
        self.login_event(event, context);
    }

    /// The directory has opened the target, or not.
    fn opened(&mut self, answer: Result<Opened, NotOpened>, context: &mut Context) {
        self.answered(context);
        let Phase::Login(login) = &mut self.phase else { return };
        let (answer, opened) = match answer {
            Ok(opened) => (Ok(opened.tsih), Some(opened)),
            Err(no) => (Err(no), None),
        };
        let event = login.opened(answer, &mut self.output.queue);
        match (event, opened) {
            (LoginEvent::Established(established), opened) => {
                let full = Full::new(established, opened, context, self.id);
                tracing::info!(parent: &full.span, "session begins");
                self.phase = Phase::Full(Box::new(full));
                self.heard_at = context.now;
                self.look_at_segments();
            }
            (event, _) => self.login_event(event, context),
        }
    }

    /// The directory has listed targets.
    fn targets(&mut self, targets: &[IscsiName], mut portals: Vec<Portal>) {
        self.asked_at = None;
        if portals.is_empty() {
            portals.push(Portal { address: self.local, group: PORTAL_GROUP_TAG });
        }
        if let Phase::Full(full) = &mut self.phase {
            full.session.answer_text(targets, &portals, &mut self.output.queue);
        }
    }

    fn lent(&self) -> usize {
        match &self.phase {
            Phase::Full(full) => full.session.lent(),
            Phase::Login(_) => 0,
        }
    }

    /// Reads from the socket, once.
    fn fill(&mut self, context: &mut Context) -> bool {
        let wanted = self.room_to_read();
        let Some(stream) = self.stream.as_mut() else { return false };
        let room = match wanted {
            ReadRoom::Bytes(0) => return false,
            ReadRoom::Bytes(bytes) => self.input.spare(bytes),
            ReadRoom::Buffer => {
                context.buffers.enlarge(&mut self.input);
                self.input.rest()
            }
        };
        let room_bytes = room.len();
        if room_bytes == 0 {
            return false;
        }
        match stream.read(room) {
            Ok(0) => {
                tracing::debug!(peer = %self.peer, "connection closed by the initiator");
                self.cut(SessionEnd::ConnectionLost, context.now);
                false
            }
            Ok(count) => {
                self.input.advance(count);
                // Fewer than asked for: the socket is empty, and says so when it is not any more. An end that came
                // together with these bytes was said already, and is not said again.
                self.readable = count == room_bytes || self.read_closed;
                context.now = Instant::now();
                // A login must be over in time, however often its peer lets hear a byte of it.
                if matches!(self.phase, Phase::Full(_)) {
                    self.heard_at = context.now;
                }
                true
            }
            Err(error) => self.socket_error(&error, context.now, |link| link.readable = false),
        }
    }

    /// How much may be read now.
    fn room_to_read(&mut self) -> ReadRoom {
        let reads = self.readable && self.takes_pdus();
        let Phase::Full(full) = &mut self.phase else {
            // The PDUs of a login are short.
            let room = SMALL_REST_BYTES.saturating_sub(self.input.len());
            return ReadRoom::Bytes(if reads { room } else { 0 });
        };
        if !reads {
            full.memory.reads_nothing();
            return ReadRoom::Bytes(0);
        }
        if full.memory.may_read(&full.session) {
            return ReadRoom::Buffer;
        }
        ReadRoom::Bytes(rest_without_memory(&self.input, &full.session))
    }

    /// Whether PDUs may be taken: nobody is asked, the connection does not end, the output has room.
    fn takes_pdus(&self) -> bool {
        self.asked_at.is_none() && self.closing.is_none() && self.output.len() < OUTPUT_MARK_BYTES
    }

    /// Takes the PDUs in the input.
    fn take_pdus(&mut self, context: &mut Context) -> bool {
        let mut progress = false;
        while self.takes_pdus() && !self.input.is_empty() {
            let rules = match &self.phase {
                Phase::Login(_) => {
                    FrameRules { digests: Digests::default(), max_data_bytes: LOGIN_DATA_SEGMENT_BYTES }
                }
                Phase::Full(full) => full.session.frame_rules(),
            };
            context.buffers.enlarge(&mut self.output.queue);
            // The input is put aside so that its bytes can be lent while everything else changes.
            let mut input = std::mem::take(&mut self.input);
            let consumed = match frame(input.filled(), rules) {
                Ok(None) => None,
                Ok(Some(found)) => {
                    if let Phase::Full(full) = &mut self.phase {
                        full.memory.pdu_ended();
                    }
                    self.take_pdu(&found, context);
                    Some(found.total_bytes)
                }
                Err(error) => {
                    self.refuse_frame(error, context);
                    None
                }
            };
            input.consume(consumed.unwrap_or(0));
            self.input = input;
            if consumed.is_none() {
                break;
            }
            progress = true;
        }
        progress
    }

    fn take_pdu(&mut self, pdu: &Frame<'_>, context: &mut Context) {
        match &mut self.phase {
            Phase::Login(login) => match login.receive(&pdu.bhs, pdu.data, &mut self.output.queue) {
                Ok(event) => self.login_event(event, context),
                Err(reason) => self.fail(context, &reason),
            },
            Phase::Full(full) => match full.receive(pdu, &mut self.output.queue, context, self.id) {
                Ok(Step::Continue) => {}
                Ok(Step::Asked) => self.asked_at = Some(context.now),
                Ok(Step::Local(targets)) => self.targets(&targets, Vec::new()),
                Ok(Step::Logout) => self.end(SessionEnd::Logout, context.now),
                Err(violation) => self.fail(context, violation.0),
            },
        }
    }

    fn login_event(&mut self, event: LoginEvent, context: &mut Context) {
        match event {
            // `opened` deals with Established itself.
            LoginEvent::Continue | LoginEvent::Established(_) => {}
            LoginEvent::AskAuthentication(attempt) => {
                self.asked_at = Some(context.now);
                questions::ask_authentication(context, self.id, attempt);
            }
            LoginEvent::AskOpen { attempt, tsih } => {
                self.asked_at = Some(context.now);
                questions::ask_open(context, self.id, self.arrival_number, attempt, tsih);
            }
            LoginEvent::Refused(reason) => self.fail(context, &format!("login refused: {reason}")),
        }
    }

    fn refuse_frame(&mut self, error: FrameError, context: &mut Context) {
        if let (FrameError::DataDigest { bhs, .. }, Phase::Full(full)) = (&error, &mut self.phase) {
            // RFC 7143 §7.8: a wrong data digest is told; at error recovery level 0 the session ends then.
            full.session.reject(bhs, RejectReason::DataDigest, &mut self.output.queue);
        }
        self.fail(context, &error.to_string());
    }

    /// Sends Data-In while there is room.
    fn pump(&mut self, context: &mut Context) -> bool {
        match &mut self.phase {
            Phase::Full(full) if self.closing.is_none() && full.session.next_read().is_some() => {
                context.buffers.enlarge(&mut self.output.queue);
                full.pump(&mut self.output, context, self.id)
            }
            _ => false,
        }
    }

    /// Writes to the socket until it is full or nothing is left.
    fn flush(&mut self) -> bool {
        let mut progress = false;
        while self.writable && !self.output.is_empty() {
            let Some(stream) = self.stream.as_ref() else { break };
            match self.output.send(stream) {
                Ok(count) => progress |= count > 0,
                Err(Stuck::Socket(error)) => {
                    let now = Instant::now();
                    progress |= self.socket_error(&error, now, |link| link.writable = false);
                }
                Err(Stuck::File(error)) => {
                    tracing::error!(peer = %self.peer, %error, "storage failed while it was being sent");
                    self.cut(SessionEnd::ConnectionLost, Instant::now());
                }
            }
        }
        progress
    }

    /// Deals with an error of the socket; `true` where the same call should be made again.
    fn socket_error(&mut self, error: &io::Error, now: Instant, blocked: impl FnOnce(&mut Self)) -> bool {
        match error.kind() {
            io::ErrorKind::WouldBlock => {
                blocked(self);
                false
            }
            io::ErrorKind::Interrupted => true,
            _ => {
                tracing::debug!(peer = %self.peer, %error, "connection lost");
                self.cut(SessionEnd::ConnectionLost, now);
                false
            }
        }
    }

    /// The peer broke the rules: says so in the log and ends the connection.
    fn fail(&mut self, context: &Context, reason: &str) {
        context.shared.complaints.log(self.peer, reason);
        self.end(SessionEnd::ConnectionLost, context.now);
    }

    /// Closes the socket. Tasks that run end first; see [`is_over`](Self::is_over).
    fn close(&mut self) {
        self.look_at_segments();
        // Dropping the socket takes it out of the poll as well.
        self.stream = None;
        if let Phase::Full(full) = &mut self.phase {
            full.drop_held(&mut self.output.queue);
        }
        self.input = ByteQueue::default();
        self.output = Outbox::default();
    }

    fn give_back_buffers(&mut self, buffers: &mut Buffers) {
        if self.output.queue.is_empty() {
            buffers.keep(std::mem::take(&mut self.output.queue));
        }
        if self.input.len() <= SMALL_REST_BYTES && self.input.room() > SMALL_REST_BYTES {
            let large = std::mem::take(&mut self.input);
            if !large.is_empty() {
                self.input.append(large.filled());
            }
            buffers.keep(large);
        }
    }
}

/// How much of what has begun in `input` may be read although the server has no memory for more: headers, PDUs without
/// data, announced data, whose place was taken with its command, and what takes a place in memory already.
fn rest_without_memory(input: &ByteQueue, session: &Session<Work>) -> usize {
    let Some(header) = input.filled().first_chunk::<BHS_BYTES>() else {
        return BHS_BYTES.saturating_sub(input.len());
    };
    let bhs = Bhs(*header);
    let announced = bhs.opcode() == DATA_OUT && u64::from(bhs.data_bytes()) <= session.unasked_bytes();
    if bhs.data_bytes() == 0 || announced || input.len() > SMALL_REST_BYTES {
        return pdu_bytes(&bhs, session.frame_rules().digests).saturating_sub(input.len());
    }
    0
}

/// Hands a message for a connection to the loop that serves it.
pub(super) fn post(context: &Context) -> impl Fn(Message) + Send + 'static {
    let mailbox = std::sync::Arc::clone(&context.mailbox);
    move |message| mailbox.post(message)
}
