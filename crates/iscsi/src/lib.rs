//! An iSCSI target (RFC 7143), error recovery level 0, one connection a session.
//!
//! # How it is built
//! The protocol is a pair of state machines that know no socket, thread, clock, disk or random source: `login` (who is
//! it, what must it prove, what is agreed on) and `session` (commands, data, task management). Below them, `pdu` reads and writes
//! PDUs and `text` reads and writes negotiation text, both within the limits that `limits` names.
//!
//! [`server`] drives them: one event loop for each core; a connection stays on one for life. All requests that a
//! socket holds are taken at once and answered with one write. What can be done without waiting is done on the spot,
//! reads straight into the connection's output between two PDU headers ([`block::Patience::Now`]); what cannot goes
//! to a pool of workers ([`block::Patience::Blocking`]).
//!
//! [`initiator`] is the other side, as far as measuring targets needs it.
//!
//! Who may log in to what, and what it finds there, is decided by the owner: see [`directory`].
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]
#![cfg_attr(test, allow(clippy::arithmetic_side_effects, reason = "tests fail by panicking"))]

pub mod directory;
pub mod fuzzing;
pub mod initiator;
mod limits;
mod login;
mod pdu;
pub mod server;
mod session;
mod text;
