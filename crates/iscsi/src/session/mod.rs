//! The full feature phase as a state machine (RFC 7143 §4.2, §4.4, §11), error recovery level 0, one connection.
//!
//! PDUs go in; answers come out as bytes in the connection's output, and what only the owner of the disks can do comes
//! out as an [`Event`]. A session keeps for every command what the protocol must know of it (numbers, how far its data
//! has come) and one thing of the driver's, the `work`, which it hands out when the command can be carried out and
//! takes back while data moves. It knows no disk, no socket and no clock.
//!
//! - a command comes out as [`Event::Command`]; the driver decodes it and says with [`Session::admit`] which way its
//!   data goes;
//! - a reading command is then sent piece by piece by [`Session::send_read`], straight from the disk into the output,
//!   whenever there is room: a slow reader holds no memory;
//! - a writing command comes out as [`Admission::Run`] or, when its last data has arrived, as [`Event::WriteReady`];
//!   what has to be asked for is asked for by [`Session::solicit_next`], when the driver has room;
//! - [`Session::finish`] answers a command.
//!
//! Work that is out ("lent") when its command is aborted stays on the list until it comes back: neither the answer to
//! the abort nor the session's successor may pass a write that still runs.
mod manage;
mod read;
mod text;
mod write;

use std::collections::{HashMap, VecDeque};

pub(crate) use manage::{ManageResponse, Scope};
pub(crate) use read::ReadProgress;
pub(crate) use text::SendTargets;

use crate::limits::{MAX_IMMEDIATE_TASKS, MAX_WRITE_BYTES, QUEUE_DEPTH, RECEIVE_DATA_SEGMENT_BYTES};
use crate::login::Parameters;
use crate::pdu::frame::FrameRules;
use crate::pdu::reply::{self, Numbers, Residual, ScsiStatus, put_pdu};
use crate::pdu::request::{
    LogoutReason, LogoutRequest, Malformed, NopOut, Order, RejectReason, Request, ScsiCommand, TaskManagement,
};
use crate::pdu::{Bhs, NO_TAG};
use connections::ByteQueue;

/// The one portal group that this server's portals are of (RFC 7143 §13.9).
pub(crate) const PORTAL_GROUP_TAG: u16 = 1;

/// What a session agreed on at login.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionStart {
    pub(crate) parameters: Parameters,
    /// Discovery sessions take no commands (RFC 7143 §4.3).
    pub(crate) discovery: bool,
    pub(crate) cid: u16,
    pub(crate) cmd_sn: u32,
    pub(crate) stat_sn: u32,
    /// The initiator is known to answer pings, before it has sent one.
    pub(crate) knows_pings: bool,
}

/// A session in full feature phase. `W` is what the driver needs to carry out a command.
pub(crate) struct Session<W> {
    start: SessionStart,
    stat_sn: u32,
    exp_cmd_sn: u32,
    entries: HashMap<u32, Entry<W>>,
    /// Non-immediate commands among them.
    counted: u32,
    /// Commands whose work the driver has.
    lent: usize,
    /// Commands with Data-In to send, in their order.
    reading: VecDeque<u32>,
    write_flow: write::Flow,
    managing: Vec<manage::Pending>,
    text: text::Exchange,
    /// The initiator answers pings: it is known to, or has sent one itself.
    pings: bool,
    ping_tag: Option<u32>,
    next_tag: u32,
}

/// One command on the list.
struct Entry<W> {
    lun: [u8; 8],
    counted: bool,
    expected_bytes: u32,
    reads: bool,
    writes: bool,
    aborted: bool,
    /// Its part of the session's write budget.
    budget_bytes: u64,
    /// Its data that came unasked, and what may still come so; 0 when it is in the budget.
    unasked_bytes: u64,
    stage: Stage<W>,
}

enum Stage<W> {
    /// The driver has it, with its work.
    Lent(Moved),
    /// Data-In is being sent.
    Reading(W, read::Progress),
    /// The work is out for a piece of Data-In.
    ReadLent(read::Progress),
    /// Data-Out is awaited.
    Writing(W, write::Progress),
    /// It is answered when the data that still comes is over.
    Draining(Outcome, Moved, write::Rest),
}

/// What the command moves by its CDB, and what data PDUs it had.
#[derive(Clone, Copy, Debug, Default)]
struct Moved {
    actual_bytes: u64,
    data_pdus: u32,
    /// Unsolicited Data-Out is still on its way.
    unsolicited: Option<write::Unsolicited>,
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// GOOD.
    Good,
    /// CHECK CONDITION with this sense data.
    Check(Vec<u8>),
    /// RESERVATION CONFLICT.
    ReservationConflict,
}

/// The way a command's data goes by its CDB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// No data.
    None,
    /// To the initiator.
    In(u64),
    /// From the initiator.
    Out(u64),
}

/// What the driver has to do after a PDU.
#[derive(Debug)]
pub(crate) enum Event<'d, W> {
    /// Nothing.
    Nothing,
    /// Decode this command, then [`Session::admit`] it or [`Session::finish`] it.
    Command(NewCommand<'d>),
    /// All data of a write is there: carry it out, then [`Session::finish`] it.
    WriteReady {
        /// The command.
        itt: u32,
        /// Its work.
        work: W,
        /// Its data.
        data: Vec<u8>,
    },
    /// Do this, then answer with [`Session::abort`] or [`Session::manage_answer`].
    Manage(TaskManagement),
    /// Find these targets, then [`Session::answer_text`]. No PDU may go in before.
    SendTargets(SendTargets),
    /// The initiator is leaving: close when the output is sent.
    Logout,
}

/// A command that has just arrived.
#[derive(Debug)]
pub(crate) struct NewCommand<'d> {
    pub(crate) itt: u32,
    pub(crate) lun: [u8; 8],
    pub(crate) cdb: [u8; 16],
    /// Expected Data Transfer Length.
    pub(crate) expected_bytes: u32,
    /// Immediate data.
    pub(crate) data: &'d [u8],
}

/// What becomes of a command that was admitted.
#[derive(Debug)]
pub(crate) enum Admission<'d, W> {
    /// Carry it out with this data, then [`Session::finish`] it.
    Run(W, &'d [u8]),
    /// Data moves first.
    Moves,
    /// What the initiator announced contradicts the CDB: [`Session::finish`] it with a CHECK CONDITION.
    Contradiction,
}

/// The initiator broke the protocol. At error recovery level 0 the connection ends (RFC 7143 §7.1.4.1); what the
/// initiator should know has been written into the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Violation(pub(crate) &'static str);

impl<W> Session<W> {
    /// A session that has just logged in.
    pub(crate) fn new(start: SessionStart) -> Self {
        Self {
            stat_sn: start.stat_sn,
            exp_cmd_sn: start.cmd_sn,
            start,
            entries: HashMap::new(),
            counted: 0,
            lent: 0,
            reading: VecDeque::new(),
            write_flow: write::Flow::default(),
            managing: Vec::new(),
            text: text::Exchange::default(),
            pings: start.knows_pings,
            ping_tag: None,
            next_tag: 0,
        }
    }

    /// What PDUs of the initiator must look like.
    pub(crate) fn frame_rules(&self) -> FrameRules {
        FrameRules { digests: self.start.parameters.digests, max_data_bytes: RECEIVE_DATA_SEGMENT_BYTES }
    }

    /// Commands whose work the driver has.
    pub(crate) fn lent(&self) -> usize {
        self.lent
    }

    /// Commands on the list.
    pub(crate) fn commands(&self) -> usize {
        self.entries.len()
    }

    /// The logical unit of a command on the list.
    pub(crate) fn lun_of(&self, itt: u32) -> Option<[u8; 8]> {
        self.entries.get(&itt).map(|entry| entry.lun)
    }

    /// Takes one PDU.
    ///
    /// # Errors
    /// [`Violation`]: send what is in the output and close.
    pub(crate) fn receive<'d>(
        &mut self,
        bhs: &Bhs,
        data: &'d [u8],
        out: &mut ByteQueue,
    ) -> Result<Event<'d, W>, Violation> {
        let taken = Request::parse(bhs, data.len()).and_then(|request| self.take(request, bhs, data, out));
        taken.map_err(|Malformed { reason, what }| {
            self.reject(bhs, reason, out);
            Violation(what)
        })
    }

    /// Tells the initiator that a PDU was refused (RFC 7143 §11.17).
    pub(crate) fn reject(&mut self, bhs: &Bhs, reason: RejectReason, out: &mut ByteQueue) {
        self.send(reply::reject(reason), &bhs.0, out);
    }

    /// Asks the initiator to log out within `seconds`.
    pub(crate) fn want_logout(&mut self, seconds: u16, out: &mut ByteQueue) {
        self.send(reply::logout_wanted(seconds), &[], out);
    }

    /// Sends a ping, if the initiator is of the kind that answers one and none is under way. Firmware often is not:
    /// iPXE drops the connection when it gets one.
    pub(crate) fn ping(&mut self, out: &mut ByteQueue) -> bool {
        if !self.pings || self.ping_tag.is_some() {
            return false;
        }
        let tag = self.new_tag();
        self.ping_tag = Some(tag);
        // RFC 7143 §11.19: a ping carries the next StatSN and does not use it up.
        let numbers = self.numbers();
        let bhs = reply::nop_in([0; 8], NO_TAG, tag).with_numbers(numbers);
        put_pdu(out, bhs, &[], self.start.parameters.digests);
        true
    }

    /// Whether a ping is unanswered.
    pub(crate) fn awaits_pong(&self) -> bool {
        self.ping_tag.is_some()
    }

    /// Says which way the data of a new command goes.
    pub(crate) fn admit<'d>(
        &mut self,
        itt: u32,
        flow: Flow,
        work: W,
        immediate: &'d [u8],
        out: &mut ByteQueue,
    ) -> Admission<'d, W> {
        let Some(entry) = self.entries.get_mut(&itt) else {
            return Admission::Contradiction;
        };
        let expected = u64::from(entry.expected_bytes);
        let Stage::Lent(moved) = &mut entry.stage else {
            return Admission::Contradiction;
        };
        match flow {
            Flow::None => Admission::Run(work, &[]),
            // RFC 7143 §11.3.1: R and W say which way; with an expected length of 0 they may both be 0.
            Flow::Out(_) if !entry.writes && expected > 0 => Admission::Contradiction,
            Flow::In(actual) => {
                moved.actual_bytes = actual;
                if !entry.reads {
                    // It takes nothing, and is told how much it misses.
                    entry.expected_bytes = 0;
                    return Admission::Run(work, &[]);
                }
                if actual.min(expected) == 0 {
                    return Admission::Run(work, &[]);
                }
                let progress = read::Progress::new(*moved, actual.min(expected));
                entry.stage = Stage::Reading(work, progress);
                self.lent = self.lent.saturating_sub(1);
                self.reading.push_back(itt);
                Admission::Moves
            }
            Flow::Out(actual) => {
                moved.actual_bytes = actual;
                let wanted = actual.min(expected);
                if wanted > MAX_WRITE_BYTES {
                    return Admission::Contradiction;
                }
                let enough = immediate.len() as u64 >= wanted;
                if enough && moved.unsolicited.is_none() {
                    let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
                    return Admission::Run(work, immediate.get(..wanted).unwrap_or(immediate));
                }
                let progress = write::Progress::new(*moved, wanted, immediate);
                entry.stage = Stage::Writing(work, progress);
                self.lent = self.lent.saturating_sub(1);
                self.continue_write(itt, out);
                Admission::Moves
            }
        }
    }

    /// Answers a command that is not carried out, although its CDB would move `actual_bytes`.
    pub(crate) fn refuse(&mut self, itt: u32, actual_bytes: u64, outcome: Outcome, out: &mut ByteQueue) {
        if let Some(Entry { stage: Stage::Lent(moved), .. }) = self.entries.get_mut(&itt) {
            moved.actual_bytes = actual_bytes;
        }
        self.finish(itt, outcome, out);
    }

    /// Answers a command whose work is with the driver.
    pub(crate) fn finish(&mut self, itt: u32, outcome: Outcome, out: &mut ByteQueue) {
        let Some(entry) = self.entries.get_mut(&itt) else {
            return;
        };
        let moved = match &entry.stage {
            Stage::Lent(moved) => *moved,
            Stage::ReadLent(progress) => progress.moved(),
            Stage::Reading(..) | Stage::Writing(..) | Stage::Draining(..) => return,
        };
        self.lent = self.lent.saturating_sub(1);
        if entry.aborted {
            self.remove(itt);
            self.settle(out);
            return;
        }
        match moved.unsolicited {
            // Its data still comes: answered now, its tag could be used again while the old data is on its way.
            Some(_) => entry.stage = Stage::Draining(outcome, moved, write::Rest::unsolicited()),
            None => self.respond(itt, &outcome, moved, out),
        }
    }

    fn take<'d>(
        &mut self,
        request: Request,
        bhs: &Bhs,
        data: &'d [u8],
        out: &mut ByteQueue,
    ) -> Result<Event<'d, W>, Malformed> {
        let order = match &request {
            Request::NopOut(nop) => Some(nop.order),
            Request::Command(command) => Some(command.order),
            Request::TaskManagement(manage) => Some(manage.order),
            Request::Text(text) => Some(text.order),
            Request::Logout(logout) => Some(logout.order),
            Request::DataOut(_) | Request::Login(_) | Request::Snack => None,
        };
        if let Some(order) = order
            && !self.in_turn(order)?
        {
            return Ok(Event::Nothing);
        }
        match request {
            // RFC 7143 §4.3: a discovery session has text and logout only; NOP does no harm.
            Request::Command(_) | Request::TaskManagement(_) | Request::DataOut(_)
                if self.start.discovery =>
            {
                Err(broken("a SCSI request in a discovery session"))
            }
            Request::NopOut(nop) => Ok(self.nop_out(&nop, data, out)),
            Request::Command(command) => self.command(&command, data),
            Request::DataOut(data_out) => self.data_out(&data_out, data, out),
            Request::TaskManagement(manage) => Ok(self.manage(manage, out)),
            Request::Text(text) => self.text_request(&text, data, out),
            Request::Logout(logout) => self.logout(&logout, out),
            Request::Login(_) => Err(broken("a login request in full feature phase")),
            Request::Snack => {
                // RFC 7143 §11.16: SNACK belongs to error recovery levels that were not agreed on.
                self.reject(bhs, RejectReason::SnackRejected, out);
                Ok(Event::Nothing)
            }
        }
    }

    /// Whether a request is the next one; `false`: drop it silently (RFC 7143 §4.2.2.1).
    fn in_turn(&mut self, order: Order) -> Result<bool, Malformed> {
        if order.immediate {
            return Ok(true);
        }
        let ahead = order.cmd_sn.wrapping_sub(self.exp_cmd_sn);
        if ahead == 0 && self.counted < QUEUE_DEPTH {
            self.exp_cmd_sn = self.exp_cmd_sn.wrapping_add(1);
            return Ok(true);
        }
        // On a single connection requests come in order: a hole inside the window is never filled.
        let window = QUEUE_DEPTH.saturating_sub(self.counted);
        if ahead != 0 && ahead < window { Err(broken("a hole in the command sequence")) } else { Ok(false) }
    }

    fn nop_out(&mut self, nop: &NopOut, data: &[u8], out: &mut ByteQueue) -> Event<'static, W> {
        if nop.ttt != NO_TAG {
            if self.ping_tag == Some(nop.ttt) {
                self.ping_tag = None;
            }
            return Event::Nothing;
        }
        if nop.itt != NO_TAG {
            self.pings = true;
            let limit = self.start.parameters.send_data_segment_bytes as usize;
            let echo = data.get(..limit).unwrap_or(data);
            self.send(reply::nop_in(nop.lun, nop.itt, NO_TAG), echo, out);
        }
        Event::Nothing
    }

    fn command<'d>(&mut self, command: &ScsiCommand, data: &'d [u8]) -> Result<Event<'d, W>, Malformed> {
        if self.entries.contains_key(&command.itt) {
            return Err(Malformed {
                reason: RejectReason::TaskInProgress,
                what: "a task tag that is in use",
            });
        }
        let immediate = self.entries.len().saturating_sub(self.counted as usize);
        if command.order.immediate && immediate >= MAX_IMMEDIATE_TASKS {
            return Err(Malformed {
                reason: RejectReason::TooManyImmediate,
                what: "too many immediate commands",
            });
        }
        let unsolicited = self.check_unsolicited(command, data.len())?;
        let unasked_bytes = unsolicited.map_or(data.len() as u64, |unsolicited| unsolicited.limit_bytes());
        self.write_flow.unasked_bytes = self.write_flow.unasked_bytes.saturating_add(unasked_bytes);
        let entry = Entry {
            lun: command.lun,
            counted: !command.order.immediate,
            expected_bytes: command.expected_bytes,
            reads: command.reads,
            writes: command.writes,
            aborted: false,
            budget_bytes: 0,
            unasked_bytes,
            stage: Stage::Lent(Moved { actual_bytes: 0, data_pdus: 0, unsolicited }),
        };
        self.entries.insert(command.itt, entry);
        self.counted = self.counted.saturating_add(u32::from(!command.order.immediate));
        self.lent = self.lent.saturating_add(1);
        let ScsiCommand { itt, lun, cdb, expected_bytes, .. } = *command;
        Ok(Event::Command(NewCommand { itt, lun, cdb, expected_bytes, data }))
    }

    fn logout(
        &mut self,
        logout: &LogoutRequest,
        out: &mut ByteQueue,
    ) -> Result<Event<'static, W>, Malformed> {
        // RFC 7143 §11.15.1.
        let (response, leaves) = match logout.reason {
            LogoutReason::CloseSession => (0, true),
            LogoutReason::CloseConnection if logout.cid == self.start.cid => (0, true),
            LogoutReason::CloseConnection => (1, false), // CID not found
            LogoutReason::Recovery => (2, false),        // connection recovery is not supported
        };
        self.send(reply::logout_response(logout.itt, response), &[], out);
        Ok(if leaves { Event::Logout } else { Event::Nothing })
    }

    fn respond(&mut self, itt: u32, outcome: &Outcome, moved: Moved, out: &mut ByteQueue) {
        let Some(entry) = self.remove(itt) else {
            return;
        };
        let expected = u64::from(entry.expected_bytes);
        let (status, segment) = match outcome {
            Outcome::Good => (ScsiStatus::Good, Vec::new()),
            Outcome::Check(sense) => (ScsiStatus::CheckCondition, reply::sense_segment(sense)),
            Outcome::ReservationConflict => (ScsiStatus::ReservationConflict, Vec::new()),
        };
        let residual = Residual::of(expected, moved.actual_bytes);
        self.send(reply::scsi_response(itt, status, residual, moved.data_pdus), &segment, out);
        self.settle(out);
    }

    fn remove(&mut self, itt: u32) -> Option<Entry<W>> {
        let entry = self.entries.remove(&itt)?;
        self.counted = self.counted.saturating_sub(u32::from(entry.counted));
        let flow = &mut self.write_flow;
        flow.used_bytes = flow.used_bytes.saturating_sub(entry.budget_bytes);
        flow.unasked_bytes = flow.unasked_bytes.saturating_sub(entry.unasked_bytes);
        if !self.write_flow.waiting.is_empty() {
            self.write_flow.waiting.retain(|other| *other != itt);
        }
        Some(entry)
    }

    /// Sends a PDU that uses up a StatSN.
    fn send(&mut self, bhs: Bhs, data: &[u8], out: &mut ByteQueue) {
        let numbers = self.numbers();
        self.stat_sn = self.stat_sn.wrapping_add(1);
        put_pdu(out, bhs.with_numbers(numbers), data, self.start.parameters.digests);
    }

    fn numbers(&self) -> Numbers {
        // The window closes by each command that is not answered yet: never more than QUEUE_DEPTH are.
        let window = QUEUE_DEPTH.saturating_sub(self.counted);
        let max_cmd_sn = self.exp_cmd_sn.wrapping_add(window).wrapping_sub(1);
        Numbers { stat_sn: self.stat_sn, exp_cmd_sn: self.exp_cmd_sn, max_cmd_sn }
    }

    /// A Target Transfer Tag that was not used lately.
    fn new_tag(&mut self) -> u32 {
        self.next_tag = self.next_tag.wrapping_add(1);
        if self.next_tag == NO_TAG {
            self.next_tag = 1;
        }
        self.next_tag
    }
}

/// The initiator did what the protocol forbids.
fn broken(what: &'static str) -> Malformed {
    Malformed { reason: RejectReason::ProtocolError, what }
}

#[cfg(test)]
mod tests;
