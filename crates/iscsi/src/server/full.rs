//! A session in full feature phase, joined to its disks: commands are carried out here, on the spot or on a worker.
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use block::{ByteLength, ByteRange, Patience};
use scsi::{
    AdditionalSense, CheckCondition, Failure, Rejection, SenseKey, TaskKind, Transfer, UnitAttention,
};

use super::complaints::Complaints;
use super::event_loop::Context;
use super::holding::Held;
use super::link::{Work, post};
use super::mailbox::{Completion, ConnectionId, Fence, Letter, Message, Opened, Worked};
use super::memory::Memory;
use super::outbox::Outbox;
use super::questions;
use super::registry::SessionLife;
use crate::directory::{IscsiName, LoginAttempt, RequestKind, SessionEnd};
use crate::limits::{MAX_LENT_TASKS, MIN_SPAN_BYTES, OUTPUT_MARK_BYTES, WORKER_READ_BYTES};
use crate::login::Established;
use crate::pdu::frame::Frame;
use crate::pdu::request::{Function, TaskManagement};
use crate::session::{
    Admission, Event, Flow, ManageResponse, NewCommand, Outcome, ReadProgress, Scope, SendTargets, Session,
    SessionStart, Violation,
};
use connections::{ByteQueue, Lane, Pace};
use meter::{Account, Gate, Recorder, StoreId};

/// A session and what it may touch.
pub(super) struct Full {
    pub(super) session: Session<Work>,
    pub(super) span: tracing::Span,
    /// `None` in a discovery session.
    pub(super) life: Option<SessionLife>,
    units: Arc<scsi::Units>,
    store: StoreId,
    attempt: LoginAttempt,
    complaints: Arc<Complaints>,
    /// Tasks that run although another session had them aborted, and that session's fence.
    fenced: Vec<(Vec<u32>, Arc<Fence>)>,
    /// Commands that are done and wait for the end of other sessions' tasks.
    waiting: Vec<(u32, Work)>,
    /// Answered, and neither counted nor told to the observer yet.
    answered: Vec<Answered>,
    /// What one TCP segment carries, as the observer was told.
    segment_bytes: Option<u32>,
    /// `None` in a discovery session, and when the session is over.
    pub(super) recorder: Option<Recorder>,
    pub(super) gate: Gate,
    pub(super) memory: Memory,
    /// Commands that a limit holds back, in their order.
    pub(super) held: VecDeque<Held>,
}

/// A command that was answered.
struct Answered {
    /// `None`: it is neither read, write, flush nor discard.
    what: Option<(TaskKind, ByteRange)>,
    arrived: Instant,
    waited: bool,
    ok: bool,
}

/// What the connection has to do after a PDU.
#[derive(Debug)]
pub(super) enum Step {
    Continue,
    /// The directory was asked.
    Asked,
    /// Answer with these targets.
    Local(Vec<IscsiName>),
    /// The initiator leaves.
    Logout,
}

impl Full {
    pub(super) fn new(
        established: Established,
        opened: Option<Opened>,
        context: &Context,
        id: ConnectionId,
    ) -> Self {
        let Established { attempt, parameters, cid, cmd_sn, stat_sn } = established;
        let (units, life, account) = match opened {
            Some(Opened { units, life, account, .. }) => (units, life, account),
            None => (Arc::new(scsi::Units::new(&attempt.port(), [])), None, Account::default()),
        };
        let recorder = life.as_ref().map(|_| account.meter.open());
        let target = attempt.target.as_ref().map_or("discovery", IscsiName::as_str);
        let peer = attempt.peer;
        let span = tracing::info_span!("iscsi_session", %peer, initiator = %attempt.initiator, target);
        let discovery = attempt.target.is_none();
        let knows_pings = attempt.isid.is_of_open_iscsi();
        let session = Session::new(SessionStart { parameters, discovery, cid, cmd_sn, stat_sn, knows_pings });
        Self {
            session,
            span,
            life,
            units,
            store: account.store,
            attempt,
            complaints: Arc::clone(&context.shared.complaints),
            fenced: Vec::new(),
            waiting: Vec::new(),
            answered: Vec::new(),
            segment_bytes: None,
            recorder,
            gate: Gate::new(account.limiter),
            memory: Memory::new(context, id, account.store),
            held: VecDeque::new(),
        }
    }

    /// Takes one PDU.
    pub(super) fn receive(
        &mut self,
        pdu: &Frame<'_>,
        out: &mut ByteQueue,
        context: &Context,
        id: ConnectionId,
    ) -> Result<Step, Violation> {
        match self.session.receive(&pdu.bhs, pdu.data, out)? {
            Event::Nothing => {}
            Event::Command(command) => self.command(&command, out, context, id),
            Event::WriteReady { itt, mut work, data } => {
                work.arrived = context.now;
                let limited = self.limited_bytes(&work);
                if self.must_wait(limited, context) {
                    self.hold_run(itt, work, limited, data);
                } else {
                    self.run(itt, work, data, out, context, id);
                }
            }
            Event::Manage(request) => self.manage(&request, out, context, id),
            Event::SendTargets(SendTargets::Own) => {
                return Ok(Step::Local(self.attempt.target.iter().cloned().collect()));
            }
            Event::SendTargets(asked) => {
                questions::ask_targets(context, id, self.attempt.clone(), asked);
                return Ok(Step::Asked);
            }
            Event::Logout => {
                // Before the answer goes out: what belonged to the session must be free for whoever sees it leave.
                self.units.detach();
                return Ok(Step::Logout);
            }
        }
        Ok(Step::Continue)
    }

    /// Sends Data-In while the output has room; `true` where something happened.
    pub(super) fn pump(&mut self, outbox: &mut Outbox, context: &Context, id: ConnectionId) -> bool {
        let mut progress = false;
        while outbox.len() < OUTPUT_MARK_BYTES {
            let Some(itt) = self.session.next_read() else { break };
            if self.send_span(itt, outbox) {
                progress = true;
                continue;
            }
            let out = &mut outbox.queue;
            let sent = self
                .session
                .send_read(itt, out, |work, offset, buffer| work.task.read_in(offset, buffer, Patience::Now));
            match sent {
                Ok(ReadProgress::More | ReadProgress::Aborted(_)) => {}
                Ok(ReadProgress::Done(work)) => self.observe(&work, true),
                Err(Failure::WouldBlock) => {
                    let lent = self.session.lent().saturating_sub(self.held.len());
                    if lent >= MAX_LENT_TASKS {
                        break;
                    }
                    if !self.read_on_worker(itt, context, id) {
                        return progress;
                    }
                }
                Err(failure) => {
                    if let Some((work, _)) = self.session.lend_read(itt) {
                        self.answer(itt, &work, &Err(failure), out);
                    }
                }
            }
            progress = true;
        }
        self.memory.reads_without_worker();
        progress
    }

    /// Sends the next Data-In of a command as a piece of a file, if it lies in one and is worth it.
    fn send_span(&mut self, itt: u32, outbox: &mut Outbox) -> bool {
        let Some((work, piece)) =
            self.session.next_apart(itt).filter(|(_, piece)| piece.bytes >= MIN_SPAN_BYTES)
        else {
            return false;
        };
        // Whole blocks of either size, so that the next piece begins with one; a short rest is copied.
        let wanted = piece.bytes & !4095;
        let span = work.task.file_span(piece.offset, wanted, Patience::Now);
        let Some(mut span) = span.filter(|span| span.length.get() >= MIN_SPAN_BYTES) else { return false };
        let bytes = match span.length.get() {
            length if length < wanted => length & !511, // it may end anywhere
            _ => wanted,
        };
        span.length = ByteLength::new(bytes);
        let lun = self.session.lun_of(itt);
        let (Some(unit), Ok(bytes)) = (lun.and_then(|lun| self.units.unit(lun)), u32::try_from(bytes)) else {
            return false;
        };
        let sent = self.session.send_apart(itt, bytes, &mut outbox.queue);
        outbox.put_span(span, unit);
        if let ReadProgress::Done(work) = sent {
            self.observe(&work, true);
        }
        true
    }

    /// A worker brings a task back.
    pub(super) fn done(
        &mut self,
        completion: Completion,
        out: &mut ByteQueue,
        context: &Context,
        id: ConnectionId,
    ) {
        let Completion { itt, work, result } = completion;
        match result {
            Worked::Ran(result) => self.conclude(itt, work, &result, out, context, id),
            Worked::Read(Ok(bytes), _share) => match self.session.return_read(itt, work, &bytes, out) {
                ReadProgress::Done(work) => self.observe(&work, true),
                ReadProgress::More | ReadProgress::Aborted(_) => {}
            },
            // A device that would block although it may wait breaks its contract; asked again, it may keep it.
            Worked::Read(Err(Failure::WouldBlock), _) => {
                self.answer(itt, &work, &Err(Failure::Check(internal_failure())), out);
            }
            Worked::Read(Err(failure), _) => self.answer(itt, &work, &Err(failure), out),
        }
        let session = &self.session;
        self.fenced.retain_mut(|(tags, _)| {
            tags.retain(|tag| session.runs_aborted(*tag));
            !tags.is_empty()
        });
    }

    /// Another session has the tasks of these LUNs aborted.
    pub(super) fn abort_for_another(
        &mut self,
        luns: &[[u8; 8]],
        tell: bool,
        fence: Arc<Fence>,
        out: &mut ByteQueue,
    ) {
        let mut running = Vec::new();
        for lun in luns {
            let (count, still_running) = self.session.abort_for_another(Scope::Lun(*lun), out);
            running.extend(still_running);
            if tell && count > 0 {
                self.units.raise(*lun, UnitAttention::CommandsCleared);
            }
        }
        // One that has been carried out, and only waits for others, holds nobody up: two might wait for each other.
        let session = &self.session;
        for (itt, work) in
            self.waiting.extract_if(.., |(itt, _)| session.runs_aborted(*itt)).collect::<Vec<_>>()
        {
            self.answer(itt, &work, &Ok(()), out);
        }
        self.drop_aborted(out);
        running.retain(|itt| self.session.runs_aborted(*itt));
        if !running.is_empty() {
            self.fenced.push((running, fence));
        }
    }

    /// The other sessions have aborted what request `itt` asked for.
    pub(super) fn others_are_done(&mut self, itt: u32, out: &mut ByteQueue) {
        self.session.others_are_done(itt, out);
        if let Some(at) = self.waiting.iter().position(|(waiting, _)| *waiting == itt) {
            let (_, work) = self.waiting.swap_remove(at);
            self.answer(itt, &work, &Ok(()), out);
        }
    }

    fn command(
        &mut self,
        command: &NewCommand<'_>,
        out: &mut ByteQueue,
        context: &Context,
        id: ConnectionId,
    ) {
        let NewCommand { itt, lun, cdb, expected_bytes, data } = command;
        if let Some(recorder) = &mut self.recorder {
            recorder.begin();
        }
        let task = match self.units.task(*lun, cdb) {
            Ok(task) => task,
            Err(rejection) => return self.refuse(*itt, cdb[0], 0, rejection, out),
        };
        let flow = match task.transfer() {
            Transfer::None => Flow::None,
            Transfer::In { bytes } => Flow::In(bytes),
            Transfer::Out { bytes } => Flow::Out(bytes),
        };
        let moves = match flow {
            Flow::None => 0,
            Flow::In(bytes) | Flow::Out(bytes) => bytes,
        };
        if let Err(check) = task.check_announced(u64::from(*expected_bytes)) {
            return self.refuse(*itt, cdb[0], moves, check.into(), out);
        }
        let work = Work { task, arrived: context.now, waited: false };
        let limited = self.limited_bytes(&work);
        match self.session.admit(*itt, flow, work, data, out) {
            Admission::Moves => {
                if matches!(flow, Flow::In(_)) && self.must_wait(limited, context) {
                    self.hold_read(*itt, limited);
                }
            }
            // Nothing of its Data-In is wanted.
            Admission::Run(work, _) if matches!(flow, Flow::In(_)) => {
                self.answer(*itt, &work, &Ok(()), out);
            }
            Admission::Run(work, data) if self.must_wait(limited, context) => {
                self.hold_run(*itt, work, limited, data.to_vec());
            }
            Admission::Run(work, data) => match work.task.run(data, Patience::Now) {
                Err(Failure::WouldBlock) => self.run_on_worker(*itt, work, data.to_vec(), context, id),
                result => self.conclude(*itt, work, &result, out, context, id),
            },
            Admission::Contradiction => {
                let check = CheckCondition::new(
                    SenseKey::IllegalRequest,
                    AdditionalSense::INVALID_FIELD_IN_INFORMATION_UNIT,
                );
                self.refuse(*itt, cdb[0], moves, check.into(), out);
            }
        }
    }

    /// Answers a command that is not carried out.
    fn refuse(&mut self, itt: u32, opcode: u8, moves: u64, rejection: Rejection, out: &mut ByteQueue) {
        tracing::debug!(parent: &self.span, opcode, %rejection, "command refused");
        if let Some(recorder) = &mut self.recorder {
            let (kind, latency) = (meter::Kind::Other, Duration::ZERO);
            recorder.record(&meter::Request { kind, bytes: 0, latency, ok: false, waited: false });
        }
        let outcome = match rejection {
            Rejection::Check(check) => check_outcome(&check),
            Rejection::ReservationConflict => Outcome::ReservationConflict,
        };
        self.session.refuse(itt, moves, outcome, out);
    }

    /// Carries out a task whose data is complete.
    pub(super) fn run(
        &mut self,
        itt: u32,
        work: Work,
        data: Vec<u8>,
        out: &mut ByteQueue,
        context: &Context,
        id: ConnectionId,
    ) {
        match work.task.run(&data, Patience::Now) {
            Err(Failure::WouldBlock) => self.run_on_worker(itt, work, data, context, id),
            result => self.conclude(itt, work, &result, out, context, id),
        }
    }

    /// Answers a task that was carried out, when the tasks of others that it aborts have ended.
    fn conclude(
        &mut self,
        itt: u32,
        work: Work,
        result: &Result<(), Failure>,
        out: &mut ByteQueue,
        context: &Context,
        id: ConnectionId,
    ) {
        let ports = work.task.aborts_tasks_of();
        let unit =
            self.session.lun_of(itt).and_then(|lun| self.units.unit(lun)).filter(|_| !ports.is_empty());
        let Some(unit) = unit else { return self.answer(itt, &work, result, out) };
        let fence = fence(context, id, itt);
        context.shared.registry.abort_elsewhere(unit, Some(ports), false, &fence);
        self.waiting.push((itt, work));
    }

    /// Answers a task that was carried out, and tells the observer.
    fn answer(&mut self, itt: u32, work: &Work, result: &Result<(), Failure>, out: &mut ByteQueue) {
        let outcome = match result {
            Ok(()) => Outcome::Good,
            Err(Failure::Check(check)) => {
                tracing::debug!(parent: &self.span, %check, "command failed");
                check_outcome(check)
            }
            Err(Failure::Device { check, cause }) => {
                tracing::debug!(parent: &self.span, %check, %cause, "command failed in the device");
                let target = self.attempt.target.as_ref().map_or("discovery", IscsiName::as_str);
                self.complaints.log_storage(self.attempt.peer, target, cause);
                check_outcome(check)
            }
            Err(Failure::ReservationConflict) => Outcome::ReservationConflict,
            Err(Failure::WouldBlock) => check_outcome(&internal_failure()),
        };
        self.session.finish(itt, outcome, out);
        self.observe(work, result.is_ok());
    }

    fn observe(&mut self, work: &Work, ok: bool) {
        let Work { arrived, waited, .. } = *work;
        self.answered.push(Answered { what: work.task.kind(), arrived, waited, ok });
    }

    /// Counts what was answered, and tells the observer: with one look at the clock for all.
    pub(super) fn tell(&mut self) {
        let Some(recorder) = &mut self.recorder else { return self.answered.clear() };
        if !self.answered.is_empty() {
            let now = Instant::now();
            for Answered { what, arrived, waited, ok } in self.answered.drain(..) {
                let latency = now.saturating_duration_since(arrived);
                let (kind, bytes) = match what {
                    Some((kind, range)) => (counted_as(kind), range.length().get()),
                    None => (meter::Kind::Other, 0),
                };
                recorder.record(&meter::Request { kind, bytes, latency, ok, waited });
                if let (Some(life), Some((kind, range))) = (&self.life, what) {
                    life.observer().request_done(told_as(kind), range, latency, ok);
                }
            }
        }
        // Commands that were aborted are on the list no more.
        recorder.settle(self.session.commands());
    }

    /// What one TCP segment carries now.
    pub(super) fn see_segments(&mut self, bytes: u32) {
        if self.segment_bytes != Some(bytes)
            && let Some(life) = &self.life
        {
            self.segment_bytes = Some(bytes);
            life.observer().segments(bytes);
        }
    }

    /// What the initiator owes for too long, if anything; to be asked from time to time.
    pub(super) fn is_owed(&mut self, input: &ByteQueue, context: &Context) -> Option<&'static str> {
        let (now, deadline) = (context.now, context.shared.config.data_deadline);
        if self.session.data_is_overdue(now, deadline) {
            Some("write data that was asked for or announced did not come in time")
        } else if self.memory.is_late(input, now, deadline) {
            Some("a PDU that had begun did not come to its end in time")
        } else {
            None
        }
    }

    /// The session's last act: everything is counted before anybody hears of the end.
    pub(super) fn end(mut self, how: SessionEnd) {
        self.tell();
        tracing::info!(parent: &self.span, ?how, "session ended");
        if let Some(mut recorder) = self.recorder.take()
            && how == SessionEnd::ConnectionLost
        {
            recorder.lost();
        }
        if let Some(life) = self.life {
            life.end(how);
        }
    }

    /// Has a worker read the next Data-In of a command; `false` where the server has no memory for it now.
    fn read_on_worker(&mut self, itt: u32, context: &Context, id: ConnectionId) -> bool {
        let Some(bytes) = self.session.read_rest(itt).map(|rest| rest.min(WORKER_READ_BYTES)) else {
            return true;
        };
        let Some(share) = self.memory.read_share(bytes) else { return false };
        let Some((mut work, piece)) = self.session.lend_read(itt) else { return true };
        work.waited = true;
        let (post, lane) = (post(context), self.lane(itt, Pace::Abreast));
        let bytes = usize::try_from(bytes).unwrap_or(0);
        context.shared.io.submit(
            lane,
            Box::new(move || {
                let mut buffer = vec![0; bytes];
                let result = contain(|| work.task.read_in(piece.offset, &mut buffer, Patience::Blocking));
                let result = Worked::Read(result.map(|()| buffer), share);
                post(Message::To(id, Letter::Done(Completion { itt, work, result })));
            }),
        );
        true
    }

    /// Where a command waits for its disk.
    fn lane(&self, itt: u32, pace: Pace) -> Lane {
        let unit = self.session.lun_of(itt).and_then(|lun| self.units.unit(lun));
        Lane { store: self.store.0, disk: unit.map_or(0, |unit| Arc::as_ptr(unit).addr()), pace }
    }

    fn run_on_worker(&self, itt: u32, mut work: Work, data: Vec<u8>, context: &Context, id: ConnectionId) {
        let post = post(context);
        work.waited = true;
        let pace = if work.task.only_stores() { Pace::InTurn } else { Pace::Abreast };
        context.shared.io.submit(
            self.lane(itt, pace),
            Box::new(move || {
                let result = Worked::Ran(contain(|| work.task.run(&data, Patience::Blocking)));
                post(Message::To(id, Letter::Done(Completion { itt, work, result })));
            }),
        );
    }

    /// RFC 7143 §11.5.
    fn manage(&mut self, request: &TaskManagement, out: &mut ByteQueue, context: &Context, id: ConnectionId) {
        let TaskManagement { itt, lun, function, referenced_itt, .. } = *request;
        tracing::info!(parent: &self.span, ?function, "task management");
        let Some(target) = &self.attempt.target else { return };
        let registry = &context.shared.registry;
        let unit = self.units.unit(lun);
        let (scope, reset, clear) = match (function, unit) {
            (Function::AbortTask, _) => (Scope::Task(referenced_itt, lun), Vec::new(), None),
            (Function::AbortTaskSet, Some(_)) => (Scope::Lun(lun), Vec::new(), None),
            (Function::ClearTaskSet, Some(unit)) => (Scope::Lun(lun), Vec::new(), Some(unit)),
            (Function::LunReset, Some(unit)) => (Scope::Lun(lun), vec![unit], None),
            (Function::AbortTaskSet | Function::ClearTaskSet | Function::LunReset, None) => {
                return self.session.manage_answer(itt, ManageResponse::NoSuchLun, out);
            }
            (Function::TargetWarmReset, _) => (Scope::Session, self.units.iter().collect(), None),
            (Function::TargetColdReset, _) => {
                // RFC 7143 §11.5.1: all connections of the target end as well.
                self.units.iter().for_each(|unit| unit.reset());
                self.session.manage_answer(itt, ManageResponse::Complete, out);
                return registry.ask_to_end(target, SessionEnd::ConnectionLost);
            }
            (Function::Other(_), _) => {
                return self.session.manage_answer(itt, ManageResponse::NotSupported, out);
            }
        };
        let reaches_others = !reset.is_empty() || clear.is_some();
        if reaches_others {
            let fence = fence(context, id, itt);
            for unit in reset {
                registry.abort_elsewhere(unit, None, false, &fence);
                unit.reset();
            }
            if let Some(unit) = clear {
                registry.abort_elsewhere(unit, None, true, &fence);
            }
        }
        self.session.abort(itt, scope, reaches_others, out);
        self.drop_aborted(out);
    }
}

/// What the session waits for whose request `itt` reaches into others.
fn fence(context: &Context, connection: ConnectionId, itt: u32) -> Arc<Fence> {
    Arc::new(Fence { mailbox: Arc::clone(&context.mailbox), connection, itt })
}

/// Turns a panic of the device into a failure of the one command, so that its session gets it back.
fn contain(work: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or_else(|_| {
        tracing::error!("a block device panicked; the command is answered with an error");
        Err(Failure::Check(internal_failure()))
    })
}

fn counted_as(kind: TaskKind) -> meter::Kind {
    match kind {
        TaskKind::Read => meter::Kind::Read,
        TaskKind::Write => meter::Kind::Write,
        TaskKind::Flush => meter::Kind::Flush,
        TaskKind::Discard => meter::Kind::Unmap,
    }
}

fn told_as(kind: TaskKind) -> RequestKind {
    match kind {
        TaskKind::Read => RequestKind::Read,
        TaskKind::Write => RequestKind::Write,
        TaskKind::Flush => RequestKind::Flush,
        TaskKind::Discard => RequestKind::Discard,
    }
}

fn check_outcome(check: &CheckCondition) -> Outcome {
    Outcome::Check(check.to_bytes().to_vec())
}

fn internal_failure() -> CheckCondition {
    CheckCondition::new(SenseKey::HardwareError, AdditionalSense::INTERNAL_FAILURE)
}
