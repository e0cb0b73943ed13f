//! Every limit of the protocol in one place, each with its reason. What a site may want to change is in
//! [`ServerConfig`](crate::server::ServerConfig) instead.
use std::time::Duration;

/// Bytes of a name, a query or a message (proto.md, "String fields").
pub(crate) const MAX_STRING_BYTES: usize = 4096;

/// Bytes of an option's data that are kept. Real clients send less than 300; the longest legal name fits thrice.
pub(crate) const MAX_OPTION_BYTES: u32 = 16 * 1024;

/// Bytes of an option's data that are skipped to answer that it is too big. More is an attack.
pub(crate) const MAX_SKIPPED_OPTION_BYTES: u32 = 1024 * 1024;

/// Options of one connection. `nbdinfo --list` sends some ten.
pub(crate) const MAX_OPTIONS: u32 = 256;

/// Exports in one answer to a list: some 60 bytes each, so about 256 KiB.
pub(crate) const MAX_LISTED: usize = 4096;

/// The longest READ and WRITE, and what NBD_INFO_BLOCK_SIZE announces: what every client may rely on (proto.md, "Size
/// constraints").
pub(crate) const MAX_PAYLOAD_BYTES: u32 = 32 * 1024 * 1024;

/// The longest payload that is read only to be thrown away; a longer one ends the connection.
pub(crate) const MAX_DRAINED_BYTES: u64 = 64 * 1024 * 1024;

/// Reads move in pieces of this size where they are copied, writes as they arrive: what a request takes of memory.
pub(crate) const PIECE_BYTES: usize = 256 * 1024;

/// Reads from this length on go from the file to the socket where they can; below, a copy into the common output is
/// cheaper. Measured: 16 KiB cost 11 us of CPU from the file and 13 copied, 32 KiB 13 and 30, 64 KiB 27 and 65.
pub(crate) const SENDFILE_FROM_BYTES: u64 = 16 * 1024;

/// Reads from this length on are asked for holes, where the client can be told of them.
pub(crate) const HOLES_FROM_BYTES: u64 = 64 * 1024;

/// Where so much of a piece of a write has not come yet, it comes straight into memory of its own. Below, what is read
/// ahead of the message holds it.
pub(crate) const DIRECT_FROM_BYTES: usize = 64 * 1024;

/// What comes into the input at once while large writes are expected: what is copied of each; the rest comes straight into
/// the pieces.
pub(crate) const READ_AHEAD_BYTES: usize = 32 * 1024;

/// Output at which a connection stops making more and stops taking requests.
pub(crate) const OUTPUT_MARK_BYTES: usize = 256 * 1024;

/// Answers that are sent before more of them are made: half of what 32 small reads come to, and what one segment of the
/// loopback device carries.
pub(crate) const PORTION_BYTES: usize = 64 * 1024;

/// Runs of files that wait in the output of one connection. They take no memory, but they hold files open.
pub(crate) const MAX_QUEUED_SPANS: usize = 64;

/// Requests of one connection that are not answered yet; more wait in the socket.
pub(crate) const MAX_IN_FLIGHT: usize = 256;

/// Jobs of one connection that are with the workers at a time, and their bytes.
pub(crate) const MAX_LENT_JOBS: usize = 64;
/// See [`MAX_LENT_JOBS`].
pub(crate) const MAX_LENT_BYTES: u64 = 8 * 1024 * 1024;

/// The least that all connections together may have with the workers: a store gets no more than it leaves free, and a
/// single connection is to have all that it may.
pub(crate) const LEAST_WAITING_BYTES: u64 = 2 * MAX_LENT_BYTES;

/// Threads that may wait for one export's device at a time: as many as initiators have requests in flight, and as keep a
/// store busy.
pub(crate) const WORKERS_AN_EXPORT: usize = 32;

/// Threads that may wait for storage in all, when those that there always are do not suffice. Each costs some tens of
/// KiB. A store that hangs takes half of them at most, a second one half of the rest, and so on.
pub(crate) const MAX_IO_WORKERS: usize = 256;

/// Changes without a payload are done on the spot up to this length: a longer one may keep a thread busy.
pub(crate) const INLINE_CHANGE_BYTES: u64 = 1024 * 1024;

/// Extents in one answer to BLOCK_STATUS; a client asks again for the rest (proto.md allows 2^20).
pub(crate) const MAX_EXTENTS: usize = 1024;

/// Questions to the device for one BLOCK_STATUS, as neighbours of one kind are joined.
pub(crate) const MAX_ALLOCATION_CALLS: usize = 8192;

/// Input that stays with an idle connection; a longer rest keeps a buffer of its thread.
pub(crate) const SMALL_REST_BYTES: usize = 16 * 1024;

/// What is taken at a time of what is written while memory for input is scarce.
pub(crate) const SCARCE_PIECE_BYTES: usize = 8 * 1024;

/// The input of a connection while memory for it is scarce: the longest option with its header fits.
pub(crate) const SCARCE_INPUT_BYTES: usize = SMALL_REST_BYTES + 4 * 1024;

/// A thread's large buffer: a piece of a write with its header, and as much again.
pub(crate) const LARGE_BUFFER_BYTES: usize = 2 * PIECE_BYTES + 4096;

/// Large buffers that a thread keeps for reuse.
pub(crate) const KEPT_BUFFERS: usize = 16;

/// How long a connection that ends may take to send what is queued.
pub(crate) const CLOSE_LINGER: Duration = Duration::from_secs(2);

/// How long the owner may take to answer a question.
pub(crate) const QUESTION_DEADLINE: Duration = Duration::from_secs(60);

/// How long requests that storage does not answer may hold up the end of the server.
pub(crate) const STOP_PATIENCE: Duration = Duration::from_secs(30);

/// One complaint about an address in this time; the others are counted.
pub(crate) const COMPLAINT_INTERVAL: Duration = Duration::from_secs(10);
