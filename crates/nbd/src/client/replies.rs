//! What a server answers in the transmission phase, read without I/O, and held against what it was asked.
use super::coverage::Coverage;
use super::error::ClientError;
use crate::limits::MAX_STRING_BYTES;
use crate::transmission::Terms;
use crate::wire::{
    EXTENDED_REPLY_MAGIC, Errno, Extent, Reader, ReplyMode, SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC, chunk,
};

/// Names a request in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cookie(pub(super) u64);

/// What comes of a request.
#[derive(Debug)]
pub enum Event<'a> {
    /// Some bytes of a read; they come in any order, each once.
    Data {
        /// Of which request.
        cookie: Cookie,
        /// Their place on the export.
        offset: u64,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// Some bytes of a read that are zeros, and were not sent.
    Zeroes {
        /// Of which request.
        cookie: Cookie,
        /// Their place on the export.
        offset: u64,
        /// How many.
        length: u64,
    },
    /// The answer to a block status request: consecutive runs from its offset on.
    Extents {
        /// Of which request.
        cookie: Cookie,
        /// The runs: at least one; they may end before the range that was asked for, or after it.
        extents: &'a [Extent],
    },
    /// The request is answered. Its cookie may come back for another.
    Finished {
        /// Which.
        cookie: Cookie,
        /// How it went.
        result: Result<(), Errno>,
    },
}

/// What the answers to a request may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    Nothing,
    Data,
    Extents { one: bool },
}

/// A request in flight.
#[derive(Debug)]
struct Pending {
    cookie: Cookie,
    expected: Expected,
    offset: u64,
    length: u64,
    coverage: Coverage,
    failure: Option<Errno>,
    has_extents: bool,
}

/// The answers of one connection.
#[derive(Debug)]
pub(super) struct Replies {
    terms: Terms,
    /// By the low half of the cookie.
    pending: Vec<Option<Pending>>,
    free: Vec<u32>,
    used: u32,
    in_flight: usize,
    /// The data that is coming in.
    data: Option<Data>,
}

/// Data of a read: `left` bytes are still to come, from `offset` on.
#[derive(Clone, Copy, Debug)]
struct Data {
    cookie: Cookie,
    offset: u64,
    left: u64,
    /// The last of the answer.
    last: bool,
}

/// The head of a chunk, of either form.
struct Chunk {
    last: bool,
    kind: u16,
    cookie: Cookie,
    length: u64,
    head_bytes: usize,
}

/// The longest answer to a block status request: 2^20 descriptors of 16 bytes (proto.md, "Structured reply types").
const MAX_STATUS_BYTES: u64 = 8 + (16 << 20);

/// The longest error chunk.
const MAX_ERROR_BYTES: u64 = MAX_STRING_BYTES as u64 + 64;

/// Requests in flight.
pub(super) const MAX_IN_FLIGHT: usize = 4096;

const CUT: ClientError = ClientError::Protocol("a chunk whose lengths contradict each other");

impl Replies {
    pub(super) fn new(terms: Terms) -> Self {
        Self { terms, pending: Vec::new(), free: Vec::new(), used: 0, in_flight: 0, data: None }
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// A cookie for a new request; `None` where there are too many in flight.
    pub(super) fn expect(&mut self, expected: Expected, offset: u64, length: u64) -> Option<Cookie> {
        if self.in_flight >= MAX_IN_FLIGHT {
            return None;
        }
        let slot = self.free.pop().unwrap_or(u32::try_from(self.pending.len()).ok()?);
        // The upper half makes cookies differ from those that were used before.
        self.used = self.used.wrapping_add(1);
        let cookie = Cookie(u64::from(self.used) << 32 | u64::from(slot));
        let coverage = Coverage::default();
        let pending =
            Pending { cookie, expected, offset, length, coverage, failure: None, has_extents: false };
        match self.pending.get_mut(slot as usize) {
            Some(place) => *place = Some(pending),
            None => self.pending.push(Some(pending)),
        }
        self.in_flight = self.in_flight.saturating_add(1);
        Some(cookie)
    }

    /// Takes what stands at the front of `input`; how many bytes it was, 0 where more are needed.
    pub(super) fn receive(
        &mut self,
        input: &[u8],
        sink: &mut dyn FnMut(Event<'_>),
    ) -> Result<usize, ClientError> {
        if let Some(data) = self.data {
            return self.take_data(data, input, sink);
        }
        let Some(magic) = Reader(input).u32() else { return Ok(0) };
        match (magic, self.terms.mode) {
            (SIMPLE_REPLY_MAGIC, ReplyMode::Simple | ReplyMode::Structured) => self.simple(input, sink),
            (STRUCTURED_REPLY_MAGIC, ReplyMode::Structured) => {
                let mut reader = Reader(input);
                let head = (|| {
                    let _magic = reader.u32()?;
                    let (flags, kind, cookie) = (reader.u16()?, reader.u16()?, Cookie(reader.u64()?));
                    let (last, length) = (flags & chunk::FLAG_DONE != 0, u64::from(reader.u32()?));
                    Some(Chunk { last, kind, cookie, length, head_bytes: 20 })
                })();
                head.map_or(Ok(0), |head| self.chunk(&head, reader.0, sink))
            }
            (EXTENDED_REPLY_MAGIC, ReplyMode::Extended) => {
                let mut reader = Reader(input);
                let head = (|| {
                    let _magic = reader.u32()?;
                    let (flags, kind, cookie) = (reader.u16()?, reader.u16()?, Cookie(reader.u64()?));
                    let (offset, length) = (reader.u64()?, reader.u64()?);
                    let last = flags & chunk::FLAG_DONE != 0;
                    Some((offset, Chunk { last, kind, cookie, length, head_bytes: 32 }))
                })();
                let Some((offset, head)) = head else { return Ok(0) };
                // extension-ext-header: the offset "MUST match the request".
                if self.find(head.cookie)?.offset != offset {
                    return Err(ClientError::Protocol("an answer with another request's offset"));
                }
                self.chunk(&head, reader.0, sink)
            }
            _ => Err(ClientError::Protocol("an answer without its magic number")),
        }
    }

    fn simple(&mut self, input: &[u8], sink: &mut dyn FnMut(Event<'_>)) -> Result<usize, ClientError> {
        let mut reader = Reader(input);
        let _magic = reader.u32();
        let (Some(errno), Some(cookie)) = (reader.u32(), reader.u64()) else { return Ok(0) };
        let (mode, cookie) = (self.terms.mode, Cookie(cookie));
        let pending = self.find(cookie)?;
        let structured = mode != ReplyMode::Simple;
        match pending.expected {
            // proto.md, "Structured reply chunk message": not even for an error.
            Expected::Data if structured => {
                return Err(ClientError::Protocol(
                    "a simple reply to a read, where structured ones are agreed on",
                ));
            }
            Expected::Extents { .. } if errno == 0 => {
                return Err(ClientError::Protocol("a simple reply to a block status request"));
            }
            Expected::Data if errno == 0 => {
                let data = Data { cookie, offset: pending.offset, left: pending.length, last: true };
                pending.coverage.add(pending.offset, pending.offset.saturating_add(pending.length));
                self.data = Some(data);
            }
            Expected::Nothing | Expected::Data | Expected::Extents { .. } => {
                if errno != 0 {
                    pending.failure = Some(Errno::from_wire(errno));
                }
                self.finish(cookie, sink)?;
            }
        }
        Ok(16)
    }

    fn take_data(
        &mut self,
        data: Data,
        input: &[u8],
        sink: &mut dyn FnMut(Event<'_>),
    ) -> Result<usize, ClientError> {
        let count = usize::try_from(data.left).unwrap_or(usize::MAX).min(input.len());
        let bytes = input.get(..count).unwrap_or_default();
        if !bytes.is_empty() {
            sink(Event::Data { cookie: data.cookie, offset: data.offset, bytes });
        }
        let left = data.left.saturating_sub(count as u64);
        let offset = data.offset.saturating_add(count as u64);
        self.data = (left > 0).then_some(Data { offset, left, ..data });
        if left == 0 && data.last {
            self.finish(data.cookie, sink)?;
        }
        Ok(count)
    }

    /// `rest` is what has come behind the head.
    fn chunk(
        &mut self,
        head: &Chunk,
        rest: &[u8],
        sink: &mut dyn FnMut(Event<'_>),
    ) -> Result<usize, ClientError> {
        let mut reader = Reader(rest);
        let (cookie, last, mode) = (head.cookie, head.last, self.terms.mode);
        let pending = self.find(cookie)?;
        if head.kind == chunk::OFFSET_DATA {
            let Some(offset) = reader.u64() else { return Ok(0) };
            let length = head.length.checked_sub(8).filter(|length| *length > 0).ok_or(CUT)?;
            pending.cover(offset, length)?;
            self.data = Some(Data { cookie, offset, left: length, last });
            return Ok(head.head_bytes.saturating_add(8));
        }
        let limit = match head.kind {
            chunk::BLOCK_STATUS | chunk::BLOCK_STATUS_EXT => MAX_STATUS_BYTES,
            chunk::NONE => 0,
            chunk::OFFSET_HOLE => 12,
            _ => MAX_ERROR_BYTES,
        };
        let length = usize::try_from(head.length).ok().filter(|_| head.length <= limit).ok_or(CUT)?;
        let Some(payload) = rest.get(..length) else { return Ok(0) };
        match head.kind {
            chunk::NONE if last => {}
            chunk::OFFSET_HOLE => {
                let mut reader = Reader(payload);
                let (Some(offset), Some(length)) = (reader.u64(), reader.u32()) else { return Err(CUT) };
                let length = u64::from(length);
                pending.cover(offset, length)?;
                sink(Event::Zeroes { cookie, offset, length });
            }
            chunk::BLOCK_STATUS | chunk::BLOCK_STATUS_EXT => {
                let extents = pending.extents(mode, head.kind, payload)?;
                sink(Event::Extents { cookie, extents: &extents });
            }
            kind if kind & chunk::ERROR_BIT != 0 => pending.fail(payload)?,
            _ => return Err(ClientError::Protocol("a chunk of an unknown kind")),
        }
        if last {
            self.finish(cookie, sink)?;
        }
        Ok(head.head_bytes.saturating_add(length))
    }

    fn find(&mut self, cookie: Cookie) -> Result<&mut Pending, ClientError> {
        let slot = usize::try_from(cookie.0 & u64::from(u32::MAX)).unwrap_or(usize::MAX);
        let pending = self.pending.get_mut(slot).and_then(Option::as_mut);
        pending
            .filter(|pending| pending.cookie == cookie)
            .ok_or(ClientError::Protocol("an answer that nobody asked for"))
    }

    fn finish(&mut self, cookie: Cookie, sink: &mut dyn FnMut(Event<'_>)) -> Result<(), ClientError> {
        let pending = self.find(cookie)?;
        let end = pending.offset.saturating_add(pending.length);
        let complete = match pending.expected {
            Expected::Nothing => true,
            Expected::Data => pending.coverage.is(pending.offset, end),
            Expected::Extents { .. } => pending.has_extents,
        };
        let result = match pending.failure {
            Some(errno) => Err(errno),
            None if complete => Ok(()),
            None => return Err(ClientError::Protocol("success without all that was asked for")),
        };
        let slot = u32::try_from(cookie.0 & u64::from(u32::MAX)).unwrap_or(u32::MAX);
        if let Some(place) = self.pending.get_mut(slot as usize) {
            *place = None;
            self.free.push(slot);
        }
        self.in_flight = self.in_flight.saturating_sub(1);
        sink(Event::Finished { cookie, result });
        Ok(())
    }
}

impl Pending {
    /// Some bytes of a read have come.
    fn cover(&mut self, offset: u64, length: u64) -> Result<(), ClientError> {
        let end = offset.checked_add(length).ok_or(CUT)?;
        let inside = offset >= self.offset && end <= self.offset.saturating_add(self.length);
        if self.expected != Expected::Data || length == 0 || !inside || !self.coverage.add(offset, end) {
            return Err(ClientError::Protocol("data that was not asked for, or was sent before"));
        }
        Ok(())
    }

    fn fail(&mut self, payload: &[u8]) -> Result<(), ClientError> {
        let mut reader = Reader(payload);
        let (Some(errno), Some(message)) = (reader.u32(), reader.u16()) else { return Err(CUT) };
        if reader.take(usize::from(message)).is_none() || errno == 0 {
            return Err(CUT);
        }
        self.failure.get_or_insert(Errno::from_wire(errno));
        Ok(())
    }

    fn extents(&mut self, mode: ReplyMode, kind: u16, payload: &[u8]) -> Result<Vec<Extent>, ClientError> {
        let Expected::Extents { one } = self.expected else {
            return Err(ClientError::Protocol("a block status that was not asked for"));
        };
        let wide = mode == ReplyMode::Extended;
        if self.has_extents || wide != (kind == chunk::BLOCK_STATUS_EXT) {
            return Err(ClientError::Protocol("a block status of the wrong kind, or a second one"));
        }
        let mut reader = Reader(payload);
        let _id = reader.u32().ok_or(CUT)?;
        let announced = if wide { Some(reader.u32().ok_or(CUT)?) } else { None };
        let mut extents = Vec::new();
        let mut sum = 0_u64;
        while !reader.is_empty() {
            // Only the last one may reach behind the range.
            if sum >= self.length {
                return Err(ClientError::Protocol("a block status that goes on behind the range"));
            }
            let (length, status) = if wide {
                (reader.u64().ok_or(CUT)?, reader.u64().ok_or(CUT)?)
            } else {
                (u64::from(reader.u32().ok_or(CUT)?), u64::from(reader.u32().ok_or(CUT)?))
            };
            sum = sum.checked_add(length).filter(|_| length > 0).ok_or(CUT)?;
            extents.push(Extent::from_status(length, status));
        }
        let counts = announced.is_none_or(|count| usize::try_from(count) == Ok(extents.len()));
        if extents.is_empty() || !counts || (one && (extents.len() > 1 || sum > self.length)) {
            return Err(CUT);
        }
        self.has_extents = true;
        Ok(extents)
    }
}
