//! The transmission phase of one connection, joined to its device: requests are carried out here, on the spot or on a
//! worker.
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use block::{BlockDevice, BlockError, ByteLength, ByteOffset, Patience};
use connections::{Claim, Lane, Share, Wake};
use meter::{Gate, Kind, Recorder};

use super::changes::{self, Change};
use super::event_loop::Context;
use super::jobs::{Answer, Done, Job, JobFor, errno};
use super::mailbox::{ConnectionId, Letter, Message};
use super::opened::Opened;
use super::output::Output;
use super::piece::Piece;
use super::reads::{Fetched, Read, ReadTerms, Step};
use super::slab::Slab;
use crate::exports::{ConnectionEnd, PeerAddress, RequestDone, RequestKind};
use crate::limits::{
    DIRECT_FROM_BYTES, INLINE_CHANGE_BYTES, MAX_DRAINED_BYTES, MAX_IN_FLIGHT, MAX_LENT_BYTES, MAX_LENT_JOBS,
    PIECE_BYTES, READ_AHEAD_BYTES, SCARCE_PIECE_BYTES,
};
use crate::transmission::Terms;
use crate::transmission::check::{Command, Illegal, check};
use crate::transmission::reply;
use crate::transmission::request::{Header, Tag};
use crate::wire::{Errno, ReplyMode, command};

/// The requests of a connection.
pub(super) struct Traffic {
    id: ConnectionId,
    peer: PeerAddress,
    /// Goes before `opened`: whoever hears of the end finds everything counted.
    recorder: Recorder,
    gate: Gate,
    /// When the request came that a limit holds back.
    held_since: Option<Instant>,
    opened: Arc<Opened>,
    terms: Terms,
    takes_files: bool,
    /// In the order of their answers. One whose answer is open stands first.
    reads: VecDeque<Read>,
    lent_reads: Slab<Read>,
    /// The read whose answer is open is with a worker.
    open_read_is_lent: bool,
    /// See [`ReadTerms`].
    is_cold: bool,
    changes: Slab<Change>,
    in_flight: usize,
    payload: Option<Payload>,
    /// The next piece of the write in `payload`, where it comes straight there; the input is then empty.
    incoming: Option<Piece>,
    /// The last write that came was worth that.
    writes_are_large: bool,
    lent_jobs: usize,
    lent_bytes: u64,
    /// On the server's memory for jobs.
    claim: Claim,
    /// A job has found no room since [`forgo`](Self::forgo).
    wants_room: bool,
    /// Answered, and not told to the observer yet.
    answered: Vec<Answered>,
    cancelled: Arc<AtomicBool>,
    /// What one TCP segment carries, as the observer was told.
    segment_bytes: Option<u32>,
}

/// The bytes behind a header.
enum Payload {
    /// For the change in this slot: `left` bytes, from `at` on.
    Write { slot: usize, at: u64, left: u64 },
    /// For nobody; the refusal comes when they are through.
    Refused { tag: Tag, illegal: Illegal, left: u64 },
}

struct Answered {
    kind: RequestKind,
    counted_as: Kind,
    range: block::ByteRange,
    arrived: Instant,
    waited: bool,
    result: Result<(), Errno>,
}

/// What was done with some input.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Took {
    /// So many bytes of it.
    Bytes(usize),
    /// Nothing; more is needed.
    NeedMore,
    /// Nothing; it must be handed in again when requests have been answered.
    Stalled,
    /// Nothing; a limit holds the next request back until then.
    Held(Instant),
    /// The client has said goodbye.
    Disconnect,
}

/// The connection cannot go on.
#[derive(Debug)]
pub(super) struct Broken(pub(super) String);

impl Traffic {
    pub(super) fn new(
        id: ConnectionId,
        peer: PeerAddress,
        opened: Arc<Opened>,
        terms: Terms,
        takes_files: bool,
        context: &Context,
    ) -> Self {
        opened.ends(ConnectionEnd::Lost);
        let account = &opened.export.account;
        let mailbox = Arc::clone(&context.mailbox);
        let wake: Wake = Arc::new(move || mailbox.post(Message::To(id, Letter::TryAgain)));
        let claim = context.shared.budget.claim(account.store.0, wake);
        let (recorder, gate) = (account.meter.open(), Gate::new(Arc::clone(&account.limiter)));
        Self {
            id,
            peer,
            opened,
            terms,
            takes_files,
            reads: VecDeque::new(),
            lent_reads: Slab::default(),
            open_read_is_lent: false,
            is_cold: false,
            changes: Slab::default(),
            in_flight: 0,
            payload: None,
            incoming: None,
            writes_are_large: false,
            lent_jobs: 0,
            lent_bytes: 0,
            claim,
            wants_room: false,
            answered: Vec::new(),
            recorder,
            gate,
            held_since: None,
            cancelled: Arc::default(),
            segment_bytes: None,
        }
    }

    /// Says how the use of the export will have ended.
    pub(super) fn ends(&self, how: ConnectionEnd) {
        self.opened.ends(how);
    }

    /// The name of the export.
    pub(super) fn export_name(&self) -> &str {
        &self.opened.name
    }

    /// What tells its device from all others.
    pub(super) fn device_address(&self) -> usize {
        address(&self.opened.export.device)
    }

    /// No request that came whole is unanswered.
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight == usize::from(matches!(self.payload, Some(Payload::Write { .. })))
    }

    /// Takes the next step through `input`.
    pub(super) fn take(&mut self, input: &[u8], out: &mut Output, context: &Context) -> Result<Took, Broken> {
        match &self.payload {
            Some(Payload::Write { .. }) => Ok(self.take_written(input, out, context)),
            Some(Payload::Refused { tag, illegal, left }) => {
                let (tag, illegal, left) = (*tag, *illegal, *left);
                Ok(Took::Bytes(self.skip(tag, illegal, left, input.len(), out)))
            }
            None => self.take_request(input, out, context),
        }
    }

    /// Answers reads while the output has room, and until it holds a portion; `true` where something happened.
    pub(super) fn pump(&mut self, out: &mut Output, context: &Context) -> Result<bool, Broken> {
        let mut progress = false;
        let scarce = context.memory_is_scarce();
        let opened = Arc::clone(&self.opened);
        let terms = ReadTerms {
            mode: self.terms.mode,
            device: &*opened.export.device,
            takes_files: self.takes_files,
            is_cold: Cell::new(self.is_cold),
        };
        while out.has_room(scarce) && !self.open_read_is_lent && !(progress && out.holds_portion()) {
            let Some(mut read) = self.reads.pop_front() else { break };
            match read.step(&terms, out) {
                Step::More => self.reads.push_front(read),
                Step::Done(result) => self.answered(Answered {
                    kind: RequestKind::Read,
                    counted_as: Kind::Read,
                    range: read.range,
                    arrived: read.arrived,
                    waited: read.waited,
                    result,
                }),
                Step::Wait(job) => {
                    if !self.may_lend(job.bytes()) {
                        self.reads.push_front(read);
                        break;
                    }
                    let open = read.is_open();
                    read.waited = true;
                    let slot = self.lent_reads.insert(read);
                    if self.lend(JobFor::Read(slot), job, context).is_err() {
                        if let Some(read) = self.lent_reads.remove(slot) {
                            self.reads.push_front(read);
                        }
                        break;
                    }
                    self.open_read_is_lent = open;
                }
                Step::Broken(error) => {
                    self.complain(&error, context);
                    return Err(Broken(format!("storage failed in the middle of a simple reply: {error}")));
                }
            }
            progress = true;
        }
        self.is_cold = terms.is_cold.get();
        Ok(progress)
    }

    /// A worker brings a job back.
    pub(super) fn done(&mut self, done: Done, out: &mut Output, context: &Context) {
        let Done { whose, bytes, result, written, share } = done;
        context.pieces.keep(written);
        drop(share);
        self.lent_jobs = self.lent_jobs.saturating_sub(1);
        self.lent_bytes = self.lent_bytes.saturating_sub(bytes);
        if let Err(error) = &result {
            self.complain(error, context);
        }
        match whose {
            JobFor::Read(slot) => {
                let Some(mut read) = self.lent_reads.remove(slot) else { return };
                read.fetched(result.map(|answer| match answer {
                    Answer::Bytes(bytes) => Fetched::Bytes(bytes),
                    Answer::Span(span) => Fetched::Span(span),
                    Answer::Nothing | Answer::Extents(_) => Fetched::Bytes(Vec::new()),
                }));
                let behind_open = usize::from(self.reads.front().is_some_and(Read::is_open));
                if read.is_open() {
                    self.open_read_is_lent = false;
                    self.reads.push_front(read);
                } else {
                    self.reads.insert(behind_open, read);
                }
            }
            JobFor::Change(slot) => {
                let Some(change) = self.changes.get_mut(slot) else { return };
                change.lent = change.lent.saturating_sub(1);
                match result {
                    Ok(answer @ Answer::Extents(_)) => change.answer = answer,
                    Ok(_) => {}
                    Err(error) => {
                        change.failure.get_or_insert(errno(&error));
                    }
                }
                self.conclude(slot, out, context);
            }
        }
    }

    /// Tells the observer what was answered.
    pub(super) fn tell(&mut self) {
        if self.answered.is_empty() {
            return;
        }
        let now = Instant::now();
        for Answered { kind, counted_as, range, arrived, waited, result } in self.answered.drain(..) {
            let latency = now.saturating_duration_since(arrived);
            let bytes = range.length().get();
            self.recorder.record(&meter::Request {
                kind: counted_as,
                bytes,
                latency,
                ok: result.is_ok(),
                waited,
            });
            self.opened.export.observer.request_done(&RequestDone { kind, range, latency, result });
        }
    }

    /// What one TCP segment carries now.
    pub(super) fn see_segments(&mut self, bytes: u32) {
        if self.segment_bytes != Some(bytes) {
            self.segment_bytes = Some(bytes);
            self.opened.export.observer.segments(bytes);
        }
    }

    fn take_request(&mut self, input: &[u8], out: &mut Output, context: &Context) -> Result<Took, Broken> {
        let mode = self.terms.mode;
        let header = Header::parse(mode, input)
            .map_err(|bad| Broken(format!("a request with the magic number {:#010x}", bad.0)))?;
        let Some(header) = header else { return Ok(Took::NeedMore) };
        if header.kind == command::DISC {
            return Ok(Took::Disconnect);
        }
        if self.in_flight >= MAX_IN_FLIGHT {
            return Ok(Took::Stalled);
        }
        let bytes = Header::wire_bytes(mode);
        let checked = check(&header, &self.opened.shape, self.terms);
        if let Ok(command) = &checked {
            let is_lent_whole = !matches!(command.kind, RequestKind::Read | RequestKind::Write);
            if is_lent_whole && !self.may_lend(PIECE_BYTES as u64) {
                return Ok(Took::Stalled);
            }
            if let Err(until) = self.pass(command, context) {
                return Ok(Took::Held(until));
            }
        }
        let arrived = self.held_since.take().unwrap_or(context.now);
        match checked {
            Err(illegal) => self.refuse(&header, illegal, out)?,
            Ok(command) if command.kind == RequestKind::Read => {
                self.count_in();
                let options = command.options;
                self.reads.push_back(Read::new(header.tag, command.range, options.unfragmented, arrived));
            }
            Ok(command) if command.kind == RequestKind::Write => {
                let (at, left) = (header.tag.offset, header.length);
                self.writes_are_large = left >= DIRECT_FROM_BYTES as u64;
                let slot = self.begin(header.tag, command, arrived);
                self.payload = Some(Payload::Write { slot, at, left });
            }
            Ok(command) => {
                let slot = self.begin(header.tag, command, arrived);
                self.carry_out(slot, &command, out, context);
            }
        }
        Ok(Took::Bytes(bytes))
    }

    /// Whether the limits let the request go; else until when they hold it back.
    fn pass(&mut self, command: &Command, context: &Context) -> Result<(), Instant> {
        if self.gate.is_open() {
            return Ok(());
        }
        let was_held = self.gate.is_waiting();
        let passed = self.gate.pass(changes::moved_bytes(command), context.now);
        if passed.is_err() && !was_held {
            self.recorder.hold_back();
            self.held_since = Some(context.now);
        }
        passed
    }

    fn begin(&mut self, tag: Tag, command: Command, arrived: Instant) -> usize {
        self.count_in();
        self.changes.insert(Change::new(tag, command, arrived))
    }

    /// Refuses a request, when its payload, if it has one, has been read over.
    fn refuse(&mut self, header: &Header, illegal: Illegal, out: &mut Output) -> Result<(), Broken> {
        let left = header.payload_bytes(self.terms.mode);
        // extension-ext-header: "A server SHOULD initiate hard disconnect" above the maximum payload.
        let limit = match self.terms.mode {
            ReplyMode::Extended => u64::from(self.opened.shape.maximum_payload),
            ReplyMode::Simple | ReplyMode::Structured => MAX_DRAINED_BYTES,
        };
        if left > limit {
            return Err(Broken(format!("a request with {left} bytes of payload")));
        }
        tracing::debug!(kind = header.kind, errno = %illegal.0, reason = illegal.1, "NBD request refused");
        self.recorder.begin();
        self.recorder.record(&meter::Request {
            kind: Kind::Other,
            bytes: 0,
            latency: Duration::ZERO,
            ok: false,
            waited: false,
        });
        if left == 0 {
            reply::error(self.terms.mode, header.tag, illegal.0, illegal.1, out.replies());
        } else {
            self.payload = Some(Payload::Refused { tag: header.tag, illegal, left });
        }
        Ok(())
    }

    /// Reads over bytes that nobody wants.
    fn skip(&mut self, tag: Tag, illegal: Illegal, left: u64, available: usize, out: &mut Output) -> usize {
        let skipped = (available as u64).min(left);
        let left = left.saturating_sub(skipped);
        if left == 0 {
            reply::error(self.terms.mode, tag, illegal.0, illegal.1, out.replies());
            self.payload = None;
        } else {
            self.payload = Some(Payload::Refused { tag, illegal, left });
        }
        usize::try_from(skipped).unwrap_or(available)
    }

    /// Stores the next piece of a write.
    fn take_written(&mut self, input: &[u8], out: &mut Output, context: &Context) -> Took {
        let Some(Payload::Write { slot, at, left }) = self.payload else { return Took::NeedMore };
        let mut piece = self.piece_bytes();
        if let Some(incoming) = self.incoming.take_if(|incoming| incoming.len() >= piece) {
            if let Err(incoming) = self.store_piece(slot, ByteOffset::new(at), incoming, context) {
                self.incoming = Some(incoming);
                return Took::Stalled;
            }
            self.stored(slot, at, left, piece, out, context);
            return Took::Bytes(0);
        }
        if self.incoming.is_some() {
            return Took::NeedMore;
        }
        if piece > input.len() && context.input_is_scarce() {
            piece = piece.min(SCARCE_PIECE_BYTES);
        }
        let Some(data) = input.get(..piece) else { return self.await_piece(input, piece, context) };
        let failed = self.changes.get_mut(slot).is_none_or(|change| change.failure.is_some());
        if !failed && !self.store(slot, ByteOffset::new(at), data, context) {
            return Took::Stalled;
        }
        self.stored(slot, at, left, piece, out, context);
        Took::Bytes(piece)
    }

    /// A piece of `piece` bytes of the write is with the device or a worker: goes on with the next, or ends it.
    fn stored(&mut self, slot: usize, at: u64, left: u64, piece: usize, out: &mut Output, context: &Context) {
        let left = left.saturating_sub(piece as u64);
        if left > 0 {
            self.payload = Some(Payload::Write { slot, at: at.saturating_add(piece as u64), left });
        } else {
            self.payload = None;
            if let Some(change) = self.changes.get_mut(slot) {
                change.receiving = false;
                // Latency runs from the last byte.
                change.arrived = context.now;
            }
            self.conclude(slot, out, context);
        }
    }

    /// The input does not hold all of the next `piece` bytes: where much of them is missing it moves to memory of its own,
    /// and the rest comes straight there.
    fn await_piece(&mut self, input: &[u8], piece: usize, context: &Context) -> Took {
        if self.incoming.is_none() && piece.saturating_sub(input.len()) >= DIRECT_FROM_BYTES {
            self.begin_piece(context);
        }
        match &mut self.incoming {
            Some(incoming) if !input.is_empty() => {
                incoming.append(input);
                Took::Bytes(input.len())
            }
            _ => Took::NeedMore,
        }
    }

    /// Has the next piece of a large write come straight into memory of its own, unless memory for input is scarce. The
    /// input holds less than the piece, and will hold nothing from here on.
    pub(super) fn begin_piece(&mut self, context: &Context) {
        let is_large = self.piece_bytes() >= DIRECT_FROM_BYTES;
        if is_large && self.incoming.is_none() && !context.input_is_scarce() {
            self.incoming = Some(context.pieces.empty());
        }
    }

    /// Room for what is missing of a piece that comes straight into its memory; none where none does.
    pub(super) fn room(&mut self) -> Option<&mut [u8]> {
        let whole = self.piece_bytes();
        Some(self.incoming.as_mut()?.room(whole))
    }

    /// So much of the [`room`](Self::room) has been filled.
    pub(super) fn received(&mut self, count: usize) {
        if let Some(incoming) = &mut self.incoming {
            incoming.advance(count);
        }
    }

    /// A piece has come whole and is to be [taken](Self::take).
    pub(super) fn holds_piece(&self) -> bool {
        self.incoming.as_ref().is_some_and(|incoming| incoming.len() >= self.piece_bytes())
    }

    /// The memory of a piece that is coming.
    pub(super) fn arriving_bytes(&self) -> usize {
        if self.incoming.is_some() { PIECE_BYTES } else { 0 }
    }

    /// How much of the socket comes into the input at once: little where large writes are expected, whose pieces are to
    /// come straight into their memory.
    pub(super) fn reads_ahead(&self) -> usize {
        if self.writes_are_large { READ_AHEAD_BYTES } else { usize::MAX }
    }

    /// The length of the next piece of the write that is coming.
    fn piece_bytes(&self) -> usize {
        match self.payload {
            Some(Payload::Write { left, .. }) => usize::try_from(left).unwrap_or(usize::MAX).min(PIECE_BYTES),
            Some(Payload::Refused { .. }) | None => 0,
        }
    }

    /// Stores a piece, now or on a worker; `false` where it must be tried again later.
    fn store(&mut self, slot: usize, at: ByteOffset, data: &[u8], context: &Context) -> bool {
        let failure = match self.opened.export.device.write(at, data, Patience::Now) {
            Ok(()) => return true,
            Err(BlockError::WouldBlock) if !self.may_lend(data.len() as u64) => return false,
            Err(BlockError::WouldBlock) => {
                let job = Job::Write { at, data: context.pieces.copy_of(data) };
                return self.lend_change(slot, job, context).is_ok();
            }
            Err(error) => error,
        };
        self.fail_change(slot, &failure, context);
        true
    }

    /// Stores a piece that has memory of its own; gives it back where that must be tried again later.
    fn store_piece(
        &mut self,
        slot: usize,
        at: ByteOffset,
        piece: Piece,
        context: &Context,
    ) -> Result<(), Piece> {
        let failed = self.changes.get_mut(slot).is_none_or(|change| change.failure.is_some());
        let bytes = piece.len() as u64;
        let result =
            if failed { Ok(()) } else { self.opened.export.device.write(at, piece.filled(), Patience::Now) };
        match result {
            Ok(()) => {}
            Err(BlockError::WouldBlock) if !self.may_lend(bytes) => return Err(piece),
            Err(BlockError::WouldBlock) => {
                let job = Job::Write { at, data: piece };
                return self.lend_change(slot, job, context).map_err(|NoRoom(job)| job.into_written());
            }
            Err(error) => self.fail_change(slot, &error, context),
        }
        context.pieces.keep(piece);
        Ok(())
    }

    /// Storage has failed a change.
    fn fail_change(&mut self, slot: usize, error: &BlockError, context: &Context) {
        self.complain(error, context);
        if let Some(change) = self.changes.get_mut(slot) {
            change.failure.get_or_insert(errno(error));
        }
    }

    /// Carries out a request without payload.
    fn carry_out(&mut self, slot: usize, command: &Command, out: &mut Output, context: &Context) {
        let job = match changes::job(command) {
            Ok(job) => job,
            Err(failure) => {
                if let Some(change) = self.changes.get_mut(slot) {
                    change.failure = Some(failure);
                }
                return self.conclude(slot, out, context);
            }
        };
        let long = matches!(command.kind, RequestKind::Cache)
            || (command.kind != RequestKind::BlockStatus
                && command.range.length().get() > INLINE_CHANGE_BYTES);
        self.run(slot, job, long, context);
        self.conclude(slot, out, context);
    }

    /// Does a job of a change, on a worker where it takes `long` or has to wait.
    fn run(&mut self, slot: usize, job: Job, long: bool, context: &Context) {
        let result = if long {
            Err(BlockError::WouldBlock)
        } else {
            job.run(&self.opened.export.device, Patience::Now, &self.cancelled)
        };
        let failure = match result {
            Ok(answer) => {
                if let (Some(change), Answer::Extents(_)) = (self.changes.get_mut(slot), &answer) {
                    change.answer = answer;
                }
                return;
            }
            Err(BlockError::WouldBlock) => match self.lend_change(slot, job, context) {
                Ok(()) => return,
                // Jobs without data always fit.
                Err(NoRoom(_)) => (Errno::OutOfMemory, "too much is waiting for storage"),
            },
            Err(error) => {
                self.complain(&error, context);
                errno(&error)
            }
        };
        if let Some(change) = self.changes.get_mut(slot) {
            change.failure.get_or_insert(failure);
        }
    }

    /// Answers a change, when all of it is done.
    fn conclude(&mut self, slot: usize, out: &mut Output, context: &Context) {
        let Some(change) = self.changes.get_mut(slot).filter(|change| change.body_is_done()) else { return };
        if change.take_flush() {
            self.run(slot, Job::Flush, false, context);
            if self.changes.get_mut(slot).is_some_and(|change| !change.body_is_done()) {
                return;
            }
        }
        let Some(change) = self.changes.remove(slot) else { return };
        let mode = self.terms.mode;
        let result = match (change.failure, &change.answer) {
            (Some((errno, message)), _) => {
                reply::error(mode, change.tag, errno, message, out.replies());
                Err(errno)
            }
            (None, Answer::Extents(extents)) => {
                reply::block_status(mode, change.tag, extents, out.replies());
                Ok(())
            }
            (None, Answer::Nothing | Answer::Bytes(_) | Answer::Span(_)) => {
                reply::done(mode, change.tag, out.replies());
                Ok(())
            }
        };
        self.answered(Answered {
            kind: change.command.kind,
            counted_as: changes::counted_as(&change.command),
            range: change.command.range,
            arrived: change.arrived,
            waited: change.waited,
            result,
        });
    }

    fn count_in(&mut self) {
        self.in_flight = self.in_flight.saturating_add(1);
        self.recorder.begin();
    }

    fn answered(&mut self, answered: Answered) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.answered.push(answered);
    }

    fn may_lend(&self, bytes: u64) -> bool {
        let bytes = self.lent_bytes.saturating_add(bytes);
        self.lent_jobs < MAX_LENT_JOBS && ByteLength::new(bytes) <= ByteLength::new(MAX_LENT_BYTES)
    }

    fn lend_change(&mut self, slot: usize, job: Job, context: &Context) -> Result<(), NoRoom> {
        self.lend(JobFor::Change(slot), job, context)?;
        if let Some(change) = self.changes.get_mut(slot) {
            change.lent = change.lent.saturating_add(1);
            change.waited = true;
        }
        Ok(())
    }

    /// The server's memory for a job; where there is none, the connection stands in line for it.
    fn room_for(&mut self, bytes: u64, context: &Context) -> Option<Share> {
        if bytes == 0 {
            return Some(context.shared.budget.share(self.opened.export.account.store.0));
        }
        let share = self.claim.take(bytes);
        self.wants_room |= share.is_none();
        share
    }

    /// Leaves the line for memory, unless a job has stood in it since the last time.
    pub(super) fn forgo(&mut self) {
        if !std::mem::take(&mut self.wants_room) {
            self.claim.forgo();
        }
    }

    /// Gives a job to the workers, where the server has room for it.
    fn lend(&mut self, whose: JobFor, job: Job, context: &Context) -> Result<(), NoRoom> {
        let bytes = job.bytes();
        let Some(share) = self.room_for(bytes, context) else { return Err(NoRoom(job)) };
        self.lent_jobs = self.lent_jobs.saturating_add(1);
        self.lent_bytes = self.lent_bytes.saturating_add(bytes);
        context.lent_jobs.set(context.lent_jobs.get().saturating_add(1));
        let (opened, cancelled) = (Arc::clone(&self.opened), Arc::clone(&self.cancelled));
        let (mailbox, id) = (Arc::clone(&context.mailbox), self.id);
        let account = &self.opened.export.account;
        let disk = address(&self.opened.export.device);
        let lane = Lane { store: account.store.0, disk, pace: job.pace() };
        context.shared.io.submit(
            lane,
            Box::new(move || {
                let run = || job.run(&opened.export.device, Patience::Blocking, &cancelled);
                // A panic of the device becomes a failure of the one request.
                let result =
                    std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).unwrap_or_else(|_| {
                        tracing::error!("a block device panicked; the request is answered with an error");
                        Err(BlockError::Corrupt { what: "the device panicked".to_owned() })
                    });
                drop(opened);
                let written = job.into_written();
                let done = Done { whose, bytes, result, written, share };
                mailbox.post(Message::To(id, Letter::Done(done)));
            }),
        );
        Ok(())
    }

    fn complain(&self, error: &BlockError, context: &Context) {
        context.shared.complaints.log_storage(self.peer, &self.opened.name, error);
    }
}

/// Where a device lies in memory: its own, as long as somebody uses it.
pub(super) fn address(device: &Arc<dyn BlockDevice>) -> usize {
    Arc::as_ptr(device).cast::<()>().addr()
}

/// The server has no room for this job now.
#[derive(Debug)]
struct NoRoom(Job);

impl Drop for Traffic {
    fn drop(&mut self) {
        if self.opened.end() == ConnectionEnd::Lost {
            self.recorder.lost();
        }
        self.cancelled.store(true, Ordering::Relaxed);
    }
}
