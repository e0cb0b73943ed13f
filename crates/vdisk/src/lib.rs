//! Volumes: a read-only golden image and the write cache of one device, as one block device.
//!
//! A device reads from the [`Volume`] what it has written itself, and the image's contents everywhere else. What it
//! writes goes to a sparse file, each byte at its own offset. A map of clusters of 4 KiB says for each whether it is
//! *absent* (the image holds it), holds *data*, or is a *hole* (discarded: reads as zeros and takes no space). Of which
//! [kind](WriteCacheKind) a write cache is, decides where the file lies and what outlives what.
//!
//! # What a volume promises
//! - It keeps the contract of [`block`], which its tests hold it to.
//! - What was acknowledged survives the **death of the server process** at any point, unless it was in its memory:
//!   [`Volume::resume`] goes on from there.
//! - What was [closed](Volume::close) survives a clean restart of the **host**. After a crash of the host the write
//!   cache of a running boot is not to be trusted, and `resume` says so ([`ResumeError::Lost`]): a running device must
//!   not go on with a disk that lost writes. It boots anew; of a persistent write cache it then finds what was flushed.
//! - Clusters that hold data never take more than the configured limit. A write that finds no room is refused with
//!   [`BlockError::NoSpace`](block::BlockError::NoSpace) and harms nothing; blocks that are already in the write cache
//!   can still be written. The [`CacheObserver`] hears of it, and of the fill reaching a level before that.
//! - A read takes no lock. It waits for nothing with [`Patience::Now`](block::Patience::Now) where image and cache
//!   file are in memory.
//! - Two openings of one write cache, in one process or in two, exclude each other ([`InUse`]).
//!
//! The format of the file, and why each step has its order, stand in `docs/design/write-cache.md`.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

mod change;
mod cluster;
mod config;
#[cfg(test)]
mod crash;
mod directory;
mod error;
mod file;
mod fill;
mod gate;
mod header;
mod identity;
mod kind;
mod lasting;
mod layout;
mod persistent;
mod presence;
mod stored;
mod stored_map;
mod stripes;
mod volume;

pub use config::{BadConfig, DEFAULT_WARN_PERCENT, WriteCacheConfig};
pub use directory::{stored_boot, sweep};
pub use error::{FileError, InUse, OpenError, ResumeError, StoredBootError};
pub use fill::{CacheObserver, CacheUsage, FullCause};
pub use identity::{BadBootId, BootId, ImageFingerprint, ImageIdentity};
pub use kind::{MemoryBudget, WriteCacheKind};
pub use persistent::discard_persistent;
pub use stored::{Held, StoredCache};
pub use volume::Volume;
