//! Every limit of the target in one place, each with its reason. What a site may want to change is in
//! [`ServerConfig`](crate::server::ServerConfig) instead.
use std::time::Duration;

/// Text of one login or text negotiation, both ways. RFC 7143 §6.2 asks for 8192 at least; more is an attack.
pub(crate) const MAX_TEXT_BYTES: usize = 8192;

/// Keys in one negotiation. Real initiators send about 20.
pub(crate) const MAX_TEXT_KEYS: usize = 64;

/// Bytes of a key's name (RFC 7143 §6.1).
pub(crate) const MAX_KEY_BYTES: usize = 63;

/// Bytes of a value; the longest legal one is a CHAP challenge in hex (RFC 7143 §12.1.3: 1024 bytes).
pub(crate) const MAX_VALUE_BYTES: usize = 2100;

/// Bytes of a SendTargets answer, all its PDUs together: some 600 targets of usual names.
pub(crate) const MAX_DISCOVERY_BYTES: usize = 64 * 1024;

/// Requests that a login may take, so that none goes on for ever. Initiators need 2 to 5.
pub(crate) const MAX_LOGIN_REQUESTS: u32 = 32;

/// The largest data segment accepted before full feature phase (RFC 7143 §13.12: the default of 8192).
pub(crate) const LOGIN_DATA_SEGMENT_BYTES: u32 = 8192;

/// The largest data segment accepted in full feature phase: what we declare as MaxRecvDataSegmentLength.
pub(crate) const RECEIVE_DATA_SEGMENT_BYTES: u32 = 256 * 1024;

/// The largest data segment sent, whatever the initiator accepts: it is what a read adds to the output at once.
pub(crate) const SEND_DATA_SEGMENT_BYTES: u32 = 256 * 1024;

/// The shortest piece of a file that is sent from the page cache by itself; shorter ones are copied into the output,
/// where a whole batch of them leaves with one system call.
pub(crate) const MIN_SPAN_BYTES: u64 = 32 * 1024;

/// Our side of MaxBurstLength.
pub(crate) const MAX_BURST_BYTES: u32 = 1024 * 1024;

/// Our side of FirstBurstLength: unsolicited data arrives whether there is room or not, so it is kept small.
pub(crate) const FIRST_BURST_BYTES: u32 = 64 * 1024;

/// Our side of MaxOutstandingR2T.
pub(crate) const MAX_OUTSTANDING_R2T: u32 = 4;

/// Commands in flight in a session: the CmdSN window.
pub(crate) const QUEUE_DEPTH: u32 = 128;

/// Immediate commands in flight in a session; they stand outside the window.
pub(crate) const MAX_IMMEDIATE_TASKS: usize = 8;

/// The longest Data-Out of one command: what VPD page 0xB0 announces as MAXIMUM TRANSFER LENGTH at most.
pub(crate) const MAX_WRITE_BYTES: u64 = 32 * 1024 * 1024;

/// Solicited write data in flight in a session; more is asked for as it is written. One write of any size passes.
pub(crate) const WRITE_BUDGET_BYTES: u64 = 4 * 1024 * 1024;

/// Output at which a connection stops making more and stops reading requests.
pub(crate) const OUTPUT_MARK_BYTES: usize = 256 * 1024;

/// Bytes read by a worker for one request at a time.
pub(crate) const WORKER_READ_BYTES: u64 = 256 * 1024;

/// The least that all sessions together may have read by workers: a store gets no more than it leaves free.
pub(crate) const LEAST_READING_BYTES: u64 = 2 * WORKER_READ_BYTES;

/// Requests of one connection that are with the workers at a time; more wait in the connection.
pub(crate) const MAX_LENT_TASKS: usize = 32;

/// Threads that may wait for one disk at a time: as many as initiators have commands in flight, and as keep a store busy.
pub(crate) const WORKERS_A_DISK: usize = 32;

/// Threads that may wait for storage in all, when those that there always are do not suffice. Each costs some tens of
/// KiB. A store that hangs takes half of them at most, a second one half of the rest, and so on.
pub(crate) const MAX_IO_WORKERS: usize = 256;

/// What the kernel may hold of a connection's output. Left to itself it grows to megabytes, which a receiver on a busy
/// machine drops and has sent again (measured: a sixth of the rate), and which a slow reader would hold. A quarter of this
/// has the thread stopped and woken for every PDU of 256 KiB (measured: 159 us of CPU for a read of 1 MiB, 126 with this;
/// twice this saves another 8, and loses a third of the rate on a busy machine). The kernel doubles it for its own use.
pub(crate) const SEND_BUFFER_BYTES: usize = 1024 * 1024;

/// Input that stays with an idle connection; a longer rest of a PDU keeps a buffer of its thread.
pub(crate) const SMALL_REST_BYTES: usize = 16 * 1024;

/// A thread's input buffer: the largest PDU and as much again.
pub(crate) const INPUT_BUFFER_BYTES: usize = 576 * 1024;

/// Buffers that a thread keeps for reuse.
pub(crate) const KEPT_BUFFERS: usize = 8;

/// How long write data may be due, and how long a PDU may take to arrive: what a session holds of the server's memory
/// meanwhile is missing elsewhere. A mebibyte in this time is 17 KiB/s.
pub(crate) const DATA_DEADLINE: Duration = Duration::from_secs(60);

/// How long a login waits for the end of the sessions that it replaces. Storage that hangs longer than this keeps
/// the new session out: its late writes must not land in it.
pub(crate) const REPLACE_WAIT: Duration = Duration::from_secs(30);

/// How long a connection that is being closed may take to send what is queued.
pub(crate) const CLOSE_LINGER: Duration = Duration::from_secs(3);

/// How long the log stays quiet about a peer's further mistakes after one was reported.
pub(crate) const COMPLAINT_INTERVAL: Duration = Duration::from_secs(5);

/// How long the directory may take over one question, the wait for replaced sessions included.
pub(crate) const QUESTION_DEADLINE: Duration = Duration::from_secs(120);
