//! One READ on its way out: which piece of it goes next, and in which form.
//!
//! A piece is a hole (told, not sent), a run of a file (sent from its pages), or bytes that are read into the output
//! itself, behind their header. Where replies are structured each piece is a chunk of its own. A simple reply is one
//! header and all the bytes, so that from its first piece on nothing else may be sent before its last, and a failure in
//! between can only end the connection (proto.md, `NBD_CMD_READ`).
use std::cell::Cell;
use std::time::Instant;

use block::{Allocation, BlockDevice, BlockError, ByteLength, ByteOffset, ByteRange, FileSpan, Patience};

use super::jobs::{Job, errno};
use super::output::Output;
use crate::limits::{HOLES_FROM_BYTES, PIECE_BYTES, SENDFILE_FROM_BYTES};
use crate::transmission::reply::{self, MAX_DATA_HEAD_BYTES};
use crate::transmission::request::Tag;
use crate::wire::{Errno, ReplyMode};

/// A hole below this is sent as zeros: telling it would cut the data around it into small chunks.
const LEAST_HOLE_BYTES: u64 = 32 * 1024;

/// Questions about holes for one piece.
const HOLE_QUESTIONS: usize = 64;

/// A read that is being answered.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) tag: Tag,
    pub(super) range: ByteRange,
    pub(super) arrived: Instant,
    /// Storage had to be waited for.
    pub(super) waited: bool,
    unfragmented: bool,
    /// What has not gone out yet starts here.
    next: u64,
    /// Up to here it is data, as far as is known.
    data_until: u64,
    /// A simple reply whose header is out.
    open: bool,
    /// The next bytes, brought by a worker.
    fetched: Option<Result<Fetched, BlockError>>,
}

/// What a worker has brought: the next bytes, or where they lie in a file, in memory now.
#[derive(Debug)]
pub(super) enum Fetched {
    Bytes(Vec<u8>),
    Span(FileSpan),
}

/// How a step went.
#[derive(Debug)]
pub(super) enum Step {
    /// A piece is out, and there is more.
    More,
    /// The answer is complete.
    Done(Result<(), Errno>),
    /// The next piece has to be waited for.
    Wait(Job),
    /// The answer cannot be completed, and must not be left as it is.
    Broken(BlockError),
}

/// What the reads of one connection have in common.
pub(super) struct ReadTerms<'a> {
    pub(super) mode: ReplyMode,
    pub(super) device: &'a dyn BlockDevice,
    /// Runs of files can be sent.
    pub(super) takes_files: bool,
    /// The last large read was not in memory, so that the next is not expected to be. A device is then not asked for a
    /// span first: to find out that its first page is missing has the kernel fetch that page alone, and the rest when
    /// the worker comes. An attempt to read has all of it fetched at once.
    pub(super) is_cold: Cell<bool>,
}

impl Read {
    pub(super) fn new(tag: Tag, range: ByteRange, unfragmented: bool, arrived: Instant) -> Self {
        let next = range.start().get();
        Self {
            tag,
            range,
            arrived,
            waited: false,
            unfragmented,
            next,
            data_until: next,
            open: false,
            fetched: None,
        }
    }

    /// Its header is out, and no other reply may come before its end.
    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    /// A worker has brought the next bytes, or has failed to.
    pub(super) fn fetched(&mut self, result: Result<Fetched, BlockError>) {
        self.fetched = Some(result);
    }

    /// Sends the next piece.
    pub(super) fn step(&mut self, terms: &ReadTerms<'_>, out: &mut Output) -> Step {
        match self.fetched.take() {
            Some(Ok(Fetched::Span(span))) => return self.send_span(span, terms.mode, out),
            Some(Ok(Fetched::Bytes(bytes))) => {
                let piece = bytes.len();
                let head = self.head(terms.mode, piece as u64, true);
                out.open_reply().append(head.as_ref().map_or(&[], reply::DataHead::as_bytes));
                out.open_reply().append(&bytes);
                return self.advance(terms.mode, piece as u64, true, out);
            }
            Some(Err(error)) => return self.fail(terms.mode, error, out),
            None => {}
        }
        if let Some(hole_bytes) = self.hole(terms) {
            let length = u32::try_from(hole_bytes).unwrap_or(u32::MAX);
            let last = self.is_last(hole_bytes);
            reply::hole(terms.mode, self.tag, self.next, length, last, out.open_reply());
            return self.advance(terms.mode, hole_bytes, true, out);
        }
        match self.span(terms) {
            Some(span) => self.send_span(span, terms.mode, out),
            None => self.copy(terms, out),
        }
    }

    fn send_span(&mut self, span: FileSpan, mode: ReplyMode, out: &mut Output) -> Step {
        let length = span.length.get();
        // What a file holds can still fail while it is sent, so that this chunk is never the last.
        let head = self.head(mode, length, false);
        out.open_reply().append(head.as_ref().map_or(&[], reply::DataHead::as_bytes));
        out.push_span(span);
        self.advance(mode, length, false, out)
    }

    /// Reads the next piece straight into the output.
    fn copy(&mut self, terms: &ReadTerms<'_>, out: &mut Output) -> Step {
        let run = self.run_end(terms.mode).saturating_sub(self.next);
        let piece = usize::try_from(run).unwrap_or(usize::MAX).min(PIECE_BYTES);
        let head = self.head(terms.mode, piece as u64, true);
        let head = head.as_ref().map_or(&[][..], reply::DataHead::as_bytes);
        debug_assert!(head.len() <= MAX_DATA_HEAD_BYTES, "no head is longer");
        let room = out.open_reply().spare(piece.saturating_add(head.len()));
        let Some((before, data)) = room.split_at_mut_checked(head.len()) else {
            return Step::Broken(BlockError::Closed);
        };
        before.copy_from_slice(head);
        let at = ByteOffset::new(self.next);
        let takes_file = terms.takes_files && piece as u64 >= SENDFILE_FROM_BYTES;
        match terms.device.read(at, data, Patience::Now) {
            Ok(()) => {
                if takes_file {
                    terms.is_cold.set(false);
                }
                out.open_reply().advance(piece.saturating_add(head.len()));
                self.advance(terms.mode, piece as u64, true, out)
            }
            Err(BlockError::WouldBlock) => {
                if takes_file {
                    terms.is_cold.set(true);
                }
                Step::Wait(Job::Read { at, bytes: piece, takes_file })
            }
            Err(error) => self.fail(terms.mode, error, out),
        }
    }

    /// How far the next piece may reach.
    fn run_end(&self, mode: ReplyMode) -> u64 {
        let end = self.range.end().get();
        if self.is_chunked(mode) && self.data_until > self.next { self.data_until.min(end) } else { end }
    }

    fn is_chunked(&self, mode: ReplyMode) -> bool {
        mode != ReplyMode::Simple && !self.unfragmented
    }

    fn is_last(&self, bytes: u64) -> bool {
        self.next.saturating_add(bytes) >= self.range.end().get()
    }

    /// What stands before the next `bytes`; nothing where the header of a simple reply is out already.
    fn head(&self, mode: ReplyMode, bytes: u64, certain: bool) -> Option<reply::DataHead> {
        if mode == ReplyMode::Simple {
            return (!self.open).then(|| reply::simple_head(self.tag));
        }
        let length = u32::try_from(bytes).unwrap_or(u32::MAX);
        Some(reply::data_head(mode, self.tag, self.next, length, certain && self.is_last(bytes)))
    }

    /// The next `bytes` are out. `certain` where nothing can go wrong with them any more.
    fn advance(&mut self, mode: ReplyMode, bytes: u64, certain: bool, out: &mut Output) -> Step {
        self.next = self.next.saturating_add(bytes);
        let complete = self.next >= self.range.end().get();
        if mode == ReplyMode::Simple {
            self.open = !complete;
            if complete {
                out.release();
            } else {
                out.hold();
            }
        } else if complete && !certain {
            reply::end(mode, self.tag, out.open_reply());
        }
        if complete { Step::Done(Ok(())) } else { Step::More }
    }

    fn fail(&mut self, mode: ReplyMode, error: BlockError, out: &mut Output) -> Step {
        let (errno, message) = errno(&error);
        if self.open {
            return Step::Broken(error);
        }
        if self.next == self.range.start().get() {
            reply::error(mode, self.tag, errno, message, out.replies());
        } else {
            reply::error_at(mode, self.tag, errno, self.next, out.replies());
        }
        Step::Done(Err(errno))
    }

    /// How many bytes from here on are a hole that is worth telling; finds out how far the data reaches where not.
    fn hole(&mut self, terms: &ReadTerms<'_>) -> Option<u64> {
        if !self.is_chunked(terms.mode)
            || self.range.length().get() < HOLES_FROM_BYTES
            || self.data_until > self.next
        {
            return None;
        }
        let end = self.range.end().get();
        let mut at = self.next;
        // Where the hole begins that reaches up to `at`.
        let mut hole_start = None;
        let long = |start: u64, at: u64| at.saturating_sub(start) >= LEAST_HOLE_BYTES;
        for _ in 0..HOLE_QUESTIONS {
            let rest = ByteRange::new(ByteOffset::new(at), ByteLength::new(end.saturating_sub(at)))?;
            if rest.is_empty() {
                break;
            }
            let Ok((allocation, length)) = terms.device.allocation(rest, Patience::Now) else {
                // Nothing is known of what follows: it is read, for a piece, and asked about again.
                at = if hole_start.is_none() { at.saturating_add(PIECE_BYTES as u64).min(end) } else { at };
                break;
            };
            if length.get() == 0 {
                break;
            }
            match (allocation, hole_start) {
                (Allocation::Data, Some(start)) if long(start, at) => break,
                (Allocation::Data, _) => hole_start = None,
                (Allocation::Hole | Allocation::Zero, None) => hole_start = Some(at),
                (Allocation::Hole | Allocation::Zero, Some(_)) => {}
            }
            at = at.saturating_add(length.get()).min(end);
        }
        match hole_start {
            Some(start) if start == self.next && (long(start, at) || at == end) && at > start => {
                Some(at.saturating_sub(start))
            }
            Some(start) if start > self.next && long(start, at) => {
                self.data_until = start;
                None
            }
            _ => {
                self.data_until = if at > self.next { at } else { end };
                None
            }
        }
    }

    /// The run of a file that holds the next bytes, if there is one that is worth it.
    fn span(&self, terms: &ReadTerms<'_>) -> Option<FileSpan> {
        let run = self.run_end(terms.mode).saturating_sub(self.next);
        if !terms.takes_files || terms.is_cold.get() || run < SENDFILE_FROM_BYTES {
            return None;
        }
        let range = ByteRange::new(ByteOffset::new(self.next), ByteLength::new(run))?;
        let span = terms.device.file_span(range, Patience::Now)?;
        let fits = span.length.get() >= SENDFILE_FROM_BYTES && span.length.get() <= run;
        let whole = !self.unfragmented || span.length.get() == run;
        (fits && whole).then_some(span)
    }
}
