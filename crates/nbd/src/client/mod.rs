//! A blocking client with any number of requests in flight.
//!
//! [`Client::read`] and its like do one thing and wait for it. [`Client::submit`] and [`Client::receive`] keep several
//! requests under way: submitted ones are gathered and leave together, answers are handed out as they come, data
//! without being copied again. A server that breaks the protocol, on purpose or not, gets an error and no memory.
mod coverage;
mod error;
mod negotiate;
mod replies;
mod stream;

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

pub use error::{ClientError, ConnectError, RefusalKind};
pub use replies::{Cookie, Event};
pub use stream::TlsClient;

use crate::exports::Listed;
use crate::limits::MAX_PAYLOAD_BYTES;
use crate::transmission::Terms;
use crate::wire::{
    EXTENDED_REQUEST_MAGIC, Errno, Extent, REQUEST_MAGIC, ReplyMode, command, command_flags as flags,
};
use connections::ByteQueue;
use replies::{Expected, Replies};
use stream::{Socket, Stream};

/// Requests gathered before they are sent without being asked for.
const OUTBOX_MARK_BYTES: usize = 256 * 1024;

/// What is read at once.
const READ_BYTES: usize = 512 * 1024;

/// Answers that are kept while a request is being sent.
const MAX_INBOX_BYTES: usize = 64 * 1024 * 1024;

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerAddress {
    /// Over TCP.
    Ip(SocketAddr),
    /// A socket in the file system.
    Unix(PathBuf),
}

/// What a client wishes for. [`Default`]: the default export, with all that the server has.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// The name of the export: at most 4096 bytes.
    pub export: String,
    /// With TLS, or not at all.
    pub tls: Option<TlsClient>,
    /// Ask for structured replies.
    pub structured_replies: bool,
    /// Ask for extended headers.
    pub extended_headers: bool,
    /// Ask for `base:allocation`.
    pub allocation: bool,
    /// How long the server may be silent before the connection is given up.
    pub patience: Duration,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            export: String::new(),
            tls: None,
            structured_replies: true,
            extended_headers: true,
            allocation: true,
            patience: Duration::from_secs(30),
        }
    }
}

/// What the server says of the export.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportInfo {
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Refuses changes.
    pub read_only: bool,
    /// Knows FLUSH.
    pub can_flush: bool,
    /// Knows FUA.
    pub can_fua: bool,
    /// Knows TRIM.
    pub can_trim: bool,
    /// Knows WRITE_ZEROES.
    pub can_write_zeroes: bool,
    /// Knows WRITE_ZEROES that must be fast.
    pub can_fast_zero: bool,
    /// Knows CACHE.
    pub can_cache: bool,
    /// Several connections can be used as one.
    pub can_multi_conn: bool,
    /// Answers BLOCK_STATUS.
    pub can_block_status: bool,
    /// The unit of offsets and lengths in bytes; 0 where it was not told.
    pub minimum_block: u32,
    /// The unit in which requests are served best, in bytes; 0 where it was not told.
    pub preferred_block: u32,
    /// The longest read and write in bytes; 0 where it was not told.
    pub maximum_payload: u32,
    /// A line for humans.
    pub description: String,
}

/// How a change is to be made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChangeOptions {
    /// It is lasting before it is answered.
    pub fua: bool,
    /// Zeros take space.
    pub no_hole: bool,
    /// Zeros are refused where they are no faster than a write.
    pub fast_zero: bool,
}

/// One request.
#[derive(Clone, Copy, Debug)]
pub enum Request<'a> {
    /// READ; `unfragmented`: in one piece.
    Read {
        /// Where.
        offset: u64,
        /// How many bytes.
        length: u32,
        /// With the DF flag.
        unfragmented: bool,
    },
    /// WRITE.
    Write {
        /// Where.
        offset: u64,
        /// What.
        data: &'a [u8],
        /// How.
        options: ChangeOptions,
    },
    /// FLUSH.
    Flush,
    /// TRIM.
    Trim {
        /// Where.
        offset: u64,
        /// How many bytes.
        length: u64,
        /// How.
        options: ChangeOptions,
    },
    /// WRITE_ZEROES.
    WriteZeroes {
        /// Where.
        offset: u64,
        /// How many bytes.
        length: u64,
        /// How.
        options: ChangeOptions,
    },
    /// CACHE.
    Cache {
        /// Where.
        offset: u64,
        /// How many bytes.
        length: u64,
    },
    /// BLOCK_STATUS; `one`: of one run only.
    BlockStatus {
        /// Where.
        offset: u64,
        /// How many bytes.
        length: u64,
        /// With the REQ_ONE flag.
        one: bool,
    },
}

/// A connection in the transmission phase.
pub struct Client {
    stream: Stream,
    info: ExportInfo,
    terms: Terms,
    replies: Replies,
    outbox: ByteQueue,
    inbox: ByteQueue,
}

impl Client {
    /// Connects, negotiates, and begins the transmission phase.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect(server: &ServerAddress, options: &ConnectOptions) -> Result<Self, ConnectError> {
        let mut stream = greeted(server, options)?;
        let (info, terms) = negotiate::go(&mut stream, options)?;
        Ok(Self {
            stream,
            info,
            terms,
            replies: Replies::new(terms),
            outbox: ByteQueue::default(),
            inbox: ByteQueue::with_room(READ_BYTES),
        })
    }

    /// The exports that the server lists for us.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn list(server: &ServerAddress, options: &ConnectOptions) -> Result<Vec<Listed>, ConnectError> {
        negotiate::list(&mut greeted(server, options)?)
    }

    /// What the server says of the export.
    #[must_use]
    pub fn export(&self) -> &ExportInfo {
        &self.info
    }

    /// Requests that are not answered yet.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.replies.in_flight()
    }

    /// Puts a request on its way: at the latest with the next [`receive`](Self::receive).
    ///
    /// # Errors
    /// [`ClientError::NotSent`] where the request does not fit the protocol or too many are in flight; a connection that
    /// fails.
    pub fn submit(&mut self, request: &Request<'_>) -> Result<Cookie, ClientError> {
        let (offset, length, expected) = request.extent();
        if self.terms.mode != ReplyMode::Extended && u32::try_from(length).is_err() {
            return Err(ClientError::NotSent("longer than 4 GiB without extended headers"));
        }
        if length == 0 && !matches!(request, Request::Flush) {
            return Err(ClientError::NotSent("an empty range"));
        }
        if offset.checked_add(length).is_none() {
            return Err(ClientError::NotSent("the range passes 2^64"));
        }
        if let Request::Write { data, .. } = request
            && data.len() > MAX_PAYLOAD_BYTES as usize
        {
            return Err(ClientError::NotSent("longer than 32 MiB"));
        }
        let cookie = self.replies.expect(expected, offset, length);
        let cookie = cookie.ok_or(ClientError::NotSent("too many requests in flight"))?;
        let header = self.header(request, cookie, offset, length);
        self.outbox.append(&header);
        if let Request::Write { data, .. } = request {
            self.outbox.append(data);
        }
        while self.outbox.len() > OUTBOX_MARK_BYTES {
            if !self.send_some()? {
                // A server that has answers to get rid of may take no request until it is rid of them.
                let keeps_reading = self.inbox.len() < MAX_INBOX_BYTES;
                self.stream.wait(keeps_reading, true)?;
                if keeps_reading {
                    self.fill()?;
                }
            }
        }
        Ok(cookie)
    }

    /// Sends what is gathered and waits for answers; hands those to `sink` that have come, at least one.
    ///
    /// # Errors
    /// A connection that fails, a server that breaks the protocol, or [`ClientError::NotSent`] where nothing is in flight.
    pub fn receive(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> Result<(), ClientError> {
        if self.replies.in_flight() == 0 {
            return Err(ClientError::NotSent("nothing is in flight that could be waited for"));
        }
        while self.poll(sink)? == 0 {
            let writes = !self.outbox.is_empty() || self.stream.wants_write();
            self.stream.wait(true, writes)?;
        }
        Ok(())
    }

    /// Sends what is gathered, as far as the connection takes it without waiting.
    ///
    /// # Errors
    /// A connection that fails.
    pub fn send(&mut self) -> Result<(), ClientError> {
        self.send_some().map(|_| ())
    }

    /// As [`receive`](Self::receive), without waiting: how many events there were. For those who wait for several
    /// clients at once, by their file descriptors.
    ///
    /// # Errors
    /// A connection that fails, or a server that breaks the protocol.
    pub fn poll(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> Result<usize, ClientError> {
        let mut seen = 0_usize;
        self.send_some()?;
        loop {
            loop {
                let taken = self.replies.receive(self.inbox.filled(), &mut |event| {
                    seen = seen.saturating_add(1);
                    sink(event);
                })?;
                self.inbox.consume(taken);
                if taken == 0 || self.inbox.is_empty() {
                    break;
                }
            }
            if seen > 0 || !self.fill()? {
                return Ok(seen);
            }
            self.send_some()?;
        }
    }

    /// Reads into `buffer` from `offset` on.
    ///
    /// # Errors
    /// [`ClientError`]; also where other requests are in flight.
    pub fn read(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), ClientError> {
        let length = u32::try_from(buffer.len()).map_err(|_| ClientError::NotSent("longer than 4 GiB"))?;
        self.call(&Request::Read { offset, length, unfragmented: false }, &mut |event| {
            let place = |at: u64| usize::try_from(at.saturating_sub(offset)).unwrap_or(usize::MAX);
            match event {
                Event::Data { offset: at, bytes, .. } => {
                    let room = buffer.get_mut(place(*at)..).and_then(|room| room.get_mut(..bytes.len()));
                    room.unwrap_or_default().iter_mut().zip(*bytes).for_each(|(to, from)| *to = *from);
                }
                Event::Zeroes { offset: at, length, .. } => {
                    let length = usize::try_from(*length).unwrap_or(usize::MAX);
                    let room = buffer.get_mut(place(*at)..).and_then(|room| room.get_mut(..length));
                    room.unwrap_or_default().fill(0);
                }
                Event::Extents { .. } | Event::Finished { .. } => {}
            }
        })
    }

    /// Stores `data` from `offset` on.
    ///
    /// # Errors
    /// [`ClientError`]; also where other requests are in flight. The same for all that follow.
    pub fn write(&mut self, offset: u64, data: &[u8], options: ChangeOptions) -> Result<(), ClientError> {
        self.call(&Request::Write { offset, data, options }, &mut |_| {})
    }

    /// Makes what was written before lasting.
    ///
    /// # Errors
    /// See [`write`](Self::write).
    pub fn flush(&mut self) -> Result<(), ClientError> {
        self.call(&Request::Flush, &mut |_| {})
    }

    /// Says that a range is not needed any more.
    ///
    /// # Errors
    /// See [`write`](Self::write).
    pub fn trim(&mut self, offset: u64, length: u64, options: ChangeOptions) -> Result<(), ClientError> {
        self.call(&Request::Trim { offset, length, options }, &mut |_| {})
    }

    /// Makes a range read as zeros.
    ///
    /// # Errors
    /// See [`write`](Self::write).
    pub fn write_zeroes(
        &mut self,
        offset: u64,
        length: u64,
        options: ChangeOptions,
    ) -> Result<(), ClientError> {
        self.call(&Request::WriteZeroes { offset, length, options }, &mut |_| {})
    }

    /// Says that a range will be read soon.
    ///
    /// # Errors
    /// See [`write`](Self::write).
    pub fn cache(&mut self, offset: u64, length: u64) -> Result<(), ClientError> {
        self.call(&Request::Cache { offset, length }, &mut |_| {})
    }

    /// How the start of a range is stored; see [`Event::Extents`].
    ///
    /// # Errors
    /// See [`write`](Self::write).
    pub fn block_status(&mut self, offset: u64, length: u64) -> Result<Vec<Extent>, ClientError> {
        let mut found = Vec::new();
        self.call(&Request::BlockStatus { offset, length, one: false }, &mut |event| {
            if let Event::Extents { extents, .. } = event {
                found.extend_from_slice(extents);
            }
        })?;
        Ok(found)
    }

    /// Says goodbye. What is in flight may be carried out or not.
    ///
    /// # Errors
    /// Where the connection fails before the goodbye is out.
    pub fn disconnect(mut self) -> Result<(), ClientError> {
        // proto.md, `NBD_CMD_DISC`: "the values of the length and offset fields in a disconnect request MUST be zero".
        let header = header(self.terms.mode, 0, command::DISC, 0, 0, 0);
        self.outbox.append(&header);
        while !self.outbox.is_empty() || self.stream.wants_write() {
            if !self.send_some()? {
                self.stream.wait(false, true)?;
            }
        }
        Ok(())
    }

    fn call(&mut self, request: &Request<'_>, each: &mut dyn FnMut(&Event<'_>)) -> Result<(), ClientError> {
        if self.replies.in_flight() > 0 {
            return Err(ClientError::NotSent("other requests are in flight: use submit and receive"));
        }
        self.submit(request)?;
        let mut result: Option<Result<(), Errno>> = None;
        while result.is_none() {
            self.receive(&mut |event| {
                each(&event);
                if let Event::Finished { result: of_it, .. } = event {
                    result = Some(of_it);
                }
            })?;
        }
        result.unwrap_or(Ok(())).map_err(ClientError::Errno)
    }

    /// Sends what the socket takes; whether something moved.
    fn send_some(&mut self) -> Result<bool, ClientError> {
        let mut moved = self.stream.write_tls()?;
        while !self.outbox.is_empty() {
            match self.stream.try_write(self.outbox.filled()) {
                Ok(count) => {
                    self.outbox.consume(count);
                    moved |= count > 0;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(moved)
    }

    /// Reads what is there; whether it was anything.
    fn fill(&mut self) -> Result<bool, ClientError> {
        let room = self.inbox.spare(READ_BYTES);
        match self.stream.try_read(room) {
            Ok(0) => Err(ClientError::Connection(io::ErrorKind::UnexpectedEof.into())),
            Ok(count) => {
                self.inbox.advance(count);
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    fn header(&self, request: &Request<'_>, cookie: Cookie, offset: u64, length: u64) -> Vec<u8> {
        let change = |options: &ChangeOptions| {
            let when = |set: bool, flag: u16| if set { flag } else { 0 };
            when(options.fua, flags::FUA)
                | when(options.no_hole, flags::NO_HOLE)
                | when(options.fast_zero, flags::FAST_ZERO)
        };
        let (kind, set) = match request {
            Request::Read { unfragmented, .. } => (command::READ, if *unfragmented { flags::DF } else { 0 }),
            Request::Write { options, .. } if self.terms.mode == ReplyMode::Extended => {
                (command::WRITE, change(options) | flags::PAYLOAD_LEN)
            }
            Request::Write { options, .. } => (command::WRITE, change(options)),
            Request::Flush => (command::FLUSH, 0),
            Request::Trim { options, .. } => (command::TRIM, change(options)),
            Request::WriteZeroes { options, .. } => (command::WRITE_ZEROES, change(options)),
            Request::Cache { .. } => (command::CACHE, 0),
            Request::BlockStatus { one, .. } => {
                (command::BLOCK_STATUS, if *one { flags::REQ_ONE } else { 0 })
            }
        };
        header(self.terms.mode, set, kind, cookie.0, offset, length)
    }
}

impl Request<'_> {
    /// Offset, length and what is expected.
    fn extent(&self) -> (u64, u64, Expected) {
        match *self {
            Self::Read { offset, length, .. } => (offset, u64::from(length), Expected::Data),
            Self::Write { offset, data, .. } => (offset, data.len() as u64, Expected::Nothing),
            Self::Flush => (0, 0, Expected::Nothing),
            Self::Trim { offset, length, .. }
            | Self::WriteZeroes { offset, length, .. }
            | Self::Cache { offset, length } => (offset, length, Expected::Nothing),
            Self::BlockStatus { offset, length, one } => (offset, length, Expected::Extents { one }),
        }
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("info", &self.info).finish_non_exhaustive()
    }
}

/// The header of a request, in the form that was agreed on.
fn header(mode: ReplyMode, set: u16, kind: u16, cookie: u64, offset: u64, length: u64) -> Vec<u8> {
    let magic = if mode == ReplyMode::Extended { EXTENDED_REQUEST_MAGIC } else { REQUEST_MAGIC };
    let mut bytes = magic.to_be_bytes().to_vec();
    bytes.extend_from_slice(&set.to_be_bytes());
    bytes.extend_from_slice(&kind.to_be_bytes());
    bytes.extend_from_slice(&cookie.to_be_bytes());
    bytes.extend_from_slice(&offset.to_be_bytes());
    match mode {
        ReplyMode::Extended => bytes.extend_from_slice(&length.to_be_bytes()),
        ReplyMode::Simple | ReplyMode::Structured => {
            bytes.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
        }
    }
    bytes
}

/// A connection that has exchanged greetings, and speaks TLS where that is wished.
fn greeted(server: &ServerAddress, options: &ConnectOptions) -> Result<Stream, ConnectError> {
    let socket = match server {
        ServerAddress::Ip(address) => Socket::Tcp(TcpStream::connect_timeout(address, options.patience)?),
        ServerAddress::Unix(path) => Socket::Unix(UnixStream::connect(path)?),
    };
    let mut stream = Stream::new(socket, options.patience)?;
    negotiate::greet(&mut stream)?;
    if let Some(tls) = &options.tls {
        negotiate::start_tls(&mut stream)?;
        stream.start_tls(tls)?;
    }
    Ok(stream)
}

/// For [`crate::fuzzing`]: a handshake with what `server` says, then its answers to a read of 64 KiB at 0, a write of
/// 512 bytes at 4096, and a block status request of all. How many were answered.
pub(crate) fn fuzzed(mut server: impl io::Read + io::Write, options: &ConnectOptions) -> Option<usize> {
    const READ_LENGTH: u64 = 64 * 1024;
    negotiate::greet(&mut server).ok()?;
    let (_, terms) = negotiate::go(&mut server, options).ok()?;
    let mut replies = Replies::new(terms);
    replies.expect(Expected::Data, 0, READ_LENGTH)?;
    replies.expect(Expected::Nothing, 4096, 512)?;
    replies.expect(Expected::Extents { one: false }, 0, 1 << 20)?;
    let mut input = Vec::new();
    server.read_to_end(&mut input).ok()?;
    let mut rest = input.as_slice();
    let (mut finished, mut data_bytes) = (0_usize, 0_u64);
    loop {
        let taken = replies.receive(rest, &mut |event| match event {
            Event::Data { offset, bytes, .. } => {
                data_bytes = data_bytes.saturating_add(bytes.len() as u64);
                assert!(offset.saturating_add(bytes.len() as u64) <= READ_LENGTH, "data outside the read");
            }
            Event::Zeroes { offset, length, .. } => {
                data_bytes = data_bytes.saturating_add(length);
                assert!(offset.saturating_add(length) <= READ_LENGTH, "zeros outside the read");
            }
            Event::Extents { extents, .. } => assert!(!extents.is_empty(), "no extents"),
            Event::Finished { .. } => finished = finished.saturating_add(1),
        });
        assert!(data_bytes <= READ_LENGTH, "more data than was asked for");
        match taken {
            Ok(count) if count > 0 => rest = rest.get(count..).unwrap_or_default(),
            _ => return Some(finished),
        }
    }
}
