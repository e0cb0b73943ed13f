//! What an administrator can do with a farm, as functions without HTTP: each takes the [`Control`] of this server and the
//! [`Caller`] who asks, and waits until it is done.
//!
//! ```text
//! api, command line ── Caller ──> control ──> farm       what is to be, and who may: one transaction
//!                                   │    └──> diskimage  the files of versions
//!                                   └─ tasks: what takes longer, in the background
//! ```
//!
//! The catalogue says which versions there are, and the store holds their files: two places that no transaction spans.
//! The order of steps is what keeps them together, whatever dies in between: a version is in the catalogue *before* its
//! file is made (as [`Making`](farm::model::VersionState::Making), which nothing boots), and is there *until* its file
//! is gone (as [`Leaving`](farm::model::VersionState::Leaving)). So every file of ours is known to the catalogue at
//! every moment, and whoever starts after a crash finds what is to be finished or taken back.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        clippy::panic,
        reason = "a test that fails this way fails, as it should"
    )
)]

pub mod adopt;
pub mod cache_version;
pub mod caller;
pub mod error;
pub mod inspect;
mod making;
pub mod marks;
pub mod merge;
mod notice;
pub mod people;
mod places;
mod room;
pub mod tasks;
pub mod transfer;
pub mod upload;
pub mod usage;
pub mod vdisks;
pub mod versions;
mod whole;

pub use caller::Caller;
pub use error::{Code, ControlError};
pub use notice::{MAX_WAITING_NOTICES, Notice, Notices};
pub use room::{Room, RoomBytes};
pub use whole::{Clock, Control, Options};
