//! What the embedding program hands to a server with a disk.
use std::sync::Arc;

use crate::{Limiter, Meter};

/// The books of one disk, as one protocol serves it. The default counts where nobody reads, and limits nothing.
#[derive(Clone, Debug, Default)]
pub struct Account {
    /// Where its requests are counted.
    pub meter: Arc<Meter>,
    /// How fast they may come. Shared by all that one limit is for.
    pub limiter: Arc<Limiter>,
    /// What it shares with the disks that would stall together with it.
    pub store: StoreId,
}

/// Where the bytes of disks lie: those of one store stall together, and a store that stalls must leave threads to the
/// others. The numbers are the program's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StoreId(pub u32);
