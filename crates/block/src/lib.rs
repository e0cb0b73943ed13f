//! What a block device promises: the contract that every layer of Headwater builds on.
//!
//! # The contract
//!
//! A block device is an array of bytes of a fixed size, read and written in whole logical blocks.
//! All of its methods take `&self`: one device is shared by any number of threads and connections.
//!
//! **The caller guarantees**
//! - offsets and lengths are multiples of the logical block size, and lie inside the device (a device checks
//!   both all the same and answers [`BlockError::Unaligned`] or [`BlockError::OutOfRange`]: a caller's slip is
//!   an error, never damage);
//! - two operations in flight at once whose ranges overlap, one of them a write, may take effect in either
//!   order, block by block; a caller who cares waits for the first before it starts the second.
//!
//! **The device guarantees**
//! - an operation that returns `Ok` took effect on its whole range, and every later read sees it;
//! - an operation that returns an error other than [`BlockError::WouldBlock`] may have taken effect on some
//!   of the logical blocks of its range, each wholly or not at all, and on nothing outside the range;
//! - a logical block that was never written, discarded or zeroed reads as what the device held at the start;
//! - after a successful [`flush`](BlockDevice::flush), all that was acknowledged before the flush began
//!   survives what the device's kind promises to survive (a volatile write cache: the server process's death;
//!   a persistent one: power loss);
//! - [`discard`](BlockDevice::discard) is a hint: each whole logical block of the range reads afterwards
//!   either what it held before or zeros, and keeps reading that until it is written;
//! - [`geometry`](BlockDevice::geometry) never changes while the device is open.
//!
//! # How asynchronous I/O crosses the contract
//!
//! There are no futures here, and no queues. Every operation takes a [`Patience`]:
//!
//! - [`Patience::Now`]: do it at once if that needs no waiting for storage or for another thread's I/O, else
//!   answer [`BlockError::WouldBlock`] and change nothing. A read that hits the page cache therefore completes
//!   on the thread that received the request: no hand-over, no allocation, no wake-up.
//! - [`Patience::Blocking`]: wait as long as it takes.
//!
//! A front end (iSCSI, later NBD) runs a connection on one thread. It calls with `Now` first; on `WouldBlock` it
//! gives the *same call* with `Blocking` to a worker thread and goes on with its other requests. Decorators and
//! stacked devices pass the patience down unchanged. A plain tool (convert, check) calls with `Blocking`.
//! The buffer belongs to the front end, which can hand in a slice of the very buffer that goes to the socket:
//! one copy, out of the page cache. Even that copy goes away where a device can say that a range lies byte for byte
//! in a file that does not change ([`file_span`](BlockDevice::file_span)): a front end can `sendfile` those pieces
//! and `read` only the rest.
//!
//! Why not `async fn`: a page-cache hit would pay for a boxed future per layer, borrowed buffers could not cross
//! it safely, and the two kinds of calls that exist (memory: inline; storage: a blocking system call or io_uring
//! behind a worker) need no more than one bit of difference.
//!
//! # What else is here
//! Newtypes for places and lengths, a [`MemoryDevice`], the decorators [`DelayDevice`], [`FaultDevice`] and
//! [`WatchDevice`], and the [`conformance`] suite that every device runs in its tests.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

pub mod conformance;
mod delay;
mod device;
mod error;
mod fault;
mod memory;
mod units;
mod watch;

pub use delay::DelayDevice;
pub use device::{Access, Allocation, BlockDevice, FileSpan, Geometry, Patience};
pub use error::BlockError;
pub use fault::{Fault, FaultDevice, Operation};
pub use memory::MemoryDevice;
pub use units::{ByteLength, ByteOffset, ByteRange, LogicalBlockSize};
pub use watch::WatchDevice;
