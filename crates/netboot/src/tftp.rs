//! TFTP, for reading only (RFC 1350) with the options blksize (RFC 2348), timeout and tsize (RFC 2349) and windowsize
//! (RFC 7440).
//!
//! `packet` knows the wire; `transfer` is one file on its way to one client, as a state machine; `server` owns the sockets.
pub mod packet;
pub(crate) mod server;
pub mod transfer;

/// UDP port of requests (RFC 1350 §4).
pub const PORT: u16 = 69;
