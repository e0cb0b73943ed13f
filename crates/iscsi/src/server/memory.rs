//! What the data of one session may take of the server's memory: write data from before it is there until it is written,
//! and what workers read, from before it is read until it is queued for the initiator.
//!
//! There are three budgets, so that nobody who holds of one waits for another in a circle:
//!
//! - *solicited* data is what is asked for with R2T, taken before it is asked for. Who has some has a licence with it: room
//!   for all that a session can send unasked. So its connection is always read, and what was asked for can come, whatever
//!   stands before it in the stream.
//! - *arriving* data comes unasked: immediate and unsolicited data, and PDUs that have begun and not ended. It is taken
//!   before the socket is read. Where there is none, nothing is dropped: the connection takes what has no data, and what
//!   it has begun (see `Link::room_to_read`), and the rest waits in the socket.
//!
//! - *reading* is taken before a read is given to a worker, and given back with its result. Whoever holds some waits for his
//!   store alone.
//!
//! Who holds arriving memory gets rid of it by what he has already, or by solicited memory; who holds that gets rid of it
//! by his peer's sending, which has a deadline, or by his store, of which others see nothing.
use std::sync::Arc;
use std::time::{Duration, Instant};

use connections::{Budget, ByteQueue, Claim, Share};
use meter::StoreId;

use super::event_loop::Context;
use super::link::Work;
use super::mailbox::{ConnectionId, Letter, Message};
use crate::limits::{
    FIRST_BURST_BYTES, INPUT_BUFFER_BYTES, MAX_IMMEDIATE_TASKS, MAX_WRITE_BYTES, QUEUE_DEPTH,
    SMALL_REST_BYTES,
};
use crate::session::Session;

/// What one reading of the socket can add: what is kept of the PDUs in it, and the buffer of the last one.
const READ_AHEAD_BYTES: u64 = 2 * INPUT_BUFFER_BYTES as u64;

/// All that a session can send unasked (RFC 7143 §13.14: FirstBurstLength with each command), and one reading more.
const LICENCE_BYTES: u64 =
    (QUEUE_DEPTH as u64 + MAX_IMMEDIATE_TASKS as u64) * FIRST_BURST_BYTES as u64 + READ_AHEAD_BYTES;

/// The least budgets: what a session alone needs for the longest write, and to read at all.
pub(super) const LEAST_SOLICITED_BYTES: u64 = MAX_WRITE_BYTES + LICENCE_BYTES;
/// See [`LEAST_SOLICITED_BYTES`].
pub(super) const LEAST_ARRIVING_BYTES: u64 = READ_AHEAD_BYTES;

/// The server's budgets.
pub(super) struct Budgets {
    pub(super) solicited: Arc<Budget>,
    pub(super) arriving: Arc<Budget>,
    pub(super) reading: Arc<Budget>,
}

/// What one session has of them.
pub(super) struct Memory {
    budget: Arc<Budget>,
    arriving: Share,
    arriving_claim: Claim,
    solicited: Share,
    solicited_claim: Claim,
    reading_claim: Claim,
    /// The input has held a large buffer since then, without a whole PDU.
    begun_at: Option<Instant>,
}

impl Memory {
    pub(super) fn new(context: &Context, id: ConnectionId, store: StoreId) -> Self {
        let Budgets { solicited, arriving, reading } = &context.shared.memory;
        let mailbox = Arc::clone(&context.mailbox);
        let wake: connections::Wake = Arc::new(move || mailbox.post(Message::To(id, Letter::TryAgain)));
        Self {
            budget: Arc::clone(arriving),
            arriving: arriving.share(store.0),
            arriving_claim: arriving.claim(store.0, Arc::clone(&wake)),
            solicited: solicited.share(store.0),
            solicited_claim: solicited.claim(store.0, Arc::clone(&wake)),
            reading_claim: reading.claim(store.0, wake),
            begun_at: None,
        }
    }

    /// Whether the socket may be read. Where not, the connection is woken when it may.
    pub(super) fn may_read(&mut self, session: &Session<Work>) -> bool {
        // Who is asked for data has a licence.
        if session.solicited_bytes() > 0 || self.budget.has_plenty(READ_AHEAD_BYTES) {
            self.arriving_claim.forgo();
            return true;
        }
        match self.arriving_claim.take(READ_AHEAD_BYTES) {
            Some(share) => self.arriving.join(share),
            None => return false,
        }
        true
    }

    /// The socket is not read now, or has nothing: what was granted is for others.
    pub(super) fn reads_nothing(&mut self) {
        self.arriving_claim.forgo();
    }

    /// Brings the accounts up to date with what there is.
    pub(super) fn settle(&mut self, session: &Session<Work>, input: &ByteQueue) {
        let buffer = if input.len() > SMALL_REST_BYTES { input.room() as u64 } else { 0 };
        let unasked = session.unasked_bytes().saturating_add(buffer);
        let asked = session.solicited_bytes();
        if asked > 0 {
            self.arriving.keep(unasked);
            self.solicited.keep(asked.saturating_add(LICENCE_BYTES));
            return;
        }
        // What a licence has covered stays in its budget until it is written: the other may have no room for it.
        let beyond = unasked.saturating_sub(self.arriving.bytes());
        self.solicited.keep(beyond);
        self.arriving.insist(unasked.saturating_sub(self.solicited.bytes()));
        self.arriving.keep(unasked.saturating_sub(self.solicited.bytes()));
    }

    /// Has the next write that waits for it asked for its data, while there is room.
    pub(super) fn solicit(&mut self, session: &mut Session<Work>, out: &mut ByteQueue) {
        while let Some(bytes) = session.solicited_wish() {
            let licence = if session.solicited_bytes() == 0 { LICENCE_BYTES } else { 0 };
            let Some(share) = self.solicited_claim.take(bytes.saturating_add(licence)) else { return };
            self.solicited.join(share);
            session.solicit_next(out);
        }
        self.solicited_claim.forgo();
    }

    /// Memory for so many bytes that a worker is to read. Where there is none, the connection is woken when there is.
    pub(super) fn read_share(&mut self, bytes: u64) -> Option<Share> {
        self.reading_claim.take(bytes)
    }

    /// No read waits for memory: what was granted is for others.
    pub(super) fn reads_without_worker(&mut self) {
        self.reading_claim.forgo();
    }

    /// A PDU was taken from the input.
    pub(super) fn pdu_ended(&mut self) {
        self.begun_at = None;
    }

    /// Whether a PDU that takes a large buffer has not been finished for so long.
    pub(super) fn is_late(&mut self, input: &ByteQueue, now: Instant, deadline: Duration) -> bool {
        if input.len() <= SMALL_REST_BYTES {
            self.begun_at = None;
            return false;
        }
        let begun_at = *self.begun_at.get_or_insert(now);
        now.saturating_duration_since(begun_at) > deadline
    }
}
