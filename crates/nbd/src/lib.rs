//! An NBD server and an NBD client: fixed newstyle, structured replies, extended headers, block status, TLS.
//!
//! The protocol is the NBD project's `doc/proto.md`, cited here as "proto.md" with the name of a section or a constant;
//! extended headers are cited from the branch `extension-ext-header` of the same document.
//!
//! # How it is built
//! The protocol is two state machines that know no socket, thread, clock or disk: `handshake` (which export, what is
//! negotiated) and `transmission` (what is asked, whether it is legal, how it is answered). Both work within the
//! limits that `limits` names, on the numbers of `wire`.
//!
//! [`server`] drives them: one event loop for each core; a connection stays on one for life. All requests that a
//! socket holds are taken at once and answered with one write. What can be done without waiting is done on the spot
//! ([`block::Patience::Now`]): small reads straight into the connection's output, large ones from the file's pages to
//! the socket (`sendfile`) where the device can say in which file they lie ([`block::FileSpan`]). What cannot goes to a
//! pool of workers ([`block::Patience::Blocking`]).
//!
//! Which exports there are, and for whom, is decided by the owner: see [`exports`].
//!
//! [`client`] is the other side: blocking, with as many requests in flight as its user likes, and safe against a
//! server that breaks the rules.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]
#![cfg_attr(test, allow(clippy::arithmetic_side_effects, reason = "tests fail by panicking"))]

pub mod client;
pub mod exports;
pub mod fuzzing;
mod handshake;
mod limits;
pub mod server;
mod transmission;
mod wire;

pub use handshake::TlsPolicy;
pub use wire::{Errno, Extent};
