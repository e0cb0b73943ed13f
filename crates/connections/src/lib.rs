//! What servers of block protocols have in common about their connections, whatever they speak.
//!
//! [`ByteQueue`] is a connection's input or output, [`Slots`] bound how many connections there are, [`TcpSetup`] says what
//! their sockets are like, [`Quiet`] keeps a peer's repeated mistakes from filling the log, [`Workers`] wait for storage
//! in their place, a [`Budget`] bounds the memory of all of them, [`Alarms`] say when they want to go on, and a [`Vigil`]
//! how long their thread looks on before it sleeps; [`allow_open_files`] makes room for them in the process. None of it
//! knows a protocol or a device.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]
#![cfg_attr(
    test,
    allow(clippy::arithmetic_side_effects, reason = "a test that overflows fails, as it should")
)]

mod alarms;
mod budget;
mod bytes;
mod open_files;
mod quiet;
mod slots;
mod tcp;
mod vigil;
mod workers;

pub use alarms::Alarms;
pub use budget::{Budget, Claim, Share, Wake};
pub use bytes::ByteQueue;
pub use open_files::{TooFewFiles, allow_open_files};
pub use quiet::Quiet;
pub use slots::{Slot, Slots};
pub use tcp::{CongestionControl, TcpSetup, segment_bytes};
pub use vigil::{Came, Vigil};
pub use workers::{Crew, Job, Lane, Pace, Workers};
