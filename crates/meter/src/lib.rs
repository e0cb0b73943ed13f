//! What is counted of the requests to a disk, and how fast they may come.
//!
//! The program that embeds a server hands in an [`Account`] with each disk: its [`Meter`], its [`Limiter`], and which store
//! it lies in. The servers write, the program reads, and neither knows of the other's labels (device, vDisk, protocol).
//!
//! # Counting
//! A connection counts in a [`Recorder`] of its own, which nobody else writes to: a few plain stores to memory that no
//! other thread touches, no lock and no atomic exchange. Who reads a meter sums up its open recorders and what closed
//! ones have left. A reader may see one counter of a request and not yet the next.
//!
//! # Limiting
//! A limit is a token bucket, kept as the time at which it will be full again; see [`Limiter`]. A connection asks its
//! [`Gate`] before it carries out a request, and is told when to ask again.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]
#![cfg_attr(
    test,
    allow(clippy::arithmetic_side_effects, clippy::indexing_slicing, reason = "tests fail by panicking")
)]

mod account;
mod histogram;
mod kind;
mod limiter;
mod recorder;
mod shard;
mod totals;

pub use account::{Account, StoreId};
pub use histogram::{BUCKETS, Histogram, bucket_end_ns, bucket_start_ns};
pub use kind::Kind;
pub use limiter::{Gate, Limiter, Rates};
pub use recorder::{Meter, Recorder, Request};
pub use totals::{KindTotals, Totals};
