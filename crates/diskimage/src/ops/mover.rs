//! Moving runs of payload from files to places in a new file, the cheapest way there is for each.
//!
//! In order: sharing the extents (costs no space and hardly time), letting the kernel copy, reading and writing. Which
//! of them a source allows is [tried](super::trial) once; what turns out impossible on the way is remembered. Sharing
//! works on whole blocks of the file system, so of a run that can be shared the ends may be copied; where source and
//! target stand differently within a block nothing can be shared, and below [`MIN_SHARED_BYTES`] it does not pay: the
//! call takes as long as copying, and leaves an extent more.
//!
//! Runs that continue each other are moved as one, and many are collected to be copied at once by several threads
//! (`copier`). The bytes are there when [`Mover::settle`] has returned.
//!
//! The target is new: what was never written there reads as zeros, so zeros are left out where bytes are read and
//! written. Where [zeros are looked for](FindZeros) the kernel does not copy.
use std::path::Path;

use block::{BlockDevice, BlockError};

use super::copier::{Copier, Way};
use super::run::{MIN_SHARED_BYTES, Run};
use super::trial::Route;
use super::zeros::FindZeros;
use crate::extent::LayerIndex;
use crate::storage::{Storage, StorageError, WritableStorage};
use crate::watch::{Cancelled, Watch};

/// Runs are joined up to this length: what is moved between two looks at the watch, when it is shared.
const MAX_RUN_BYTES: u64 = 64 << 20;
/// So much is collected before it is copied: enough for several threads to share, and as much as is flushed at once.
const BATCH_BYTES: u64 = 64 << 20;
/// In so many runs at most.
const BATCH_RUNS: usize = 1024;

/// What was moved, and how, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Shared with the source: takes no space of its own.
    pub cloned_bytes: u64,
    /// Copied, by the kernel or over memory.
    pub copied_bytes: u64,
    /// Found to be zeros when they were read, and left out.
    pub skipped_bytes: u64,
}

/// Why a run could not be moved.
#[derive(Debug, thiserror::Error)]
pub(super) enum MoveError {
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
    #[error("a source cannot be read")]
    Source {
        layer: LayerIndex,
        #[source]
        source: StorageError,
    },
    #[error("the source cannot be read")]
    Image(#[source] BlockError),
    #[error("the target cannot be written")]
    Target(#[source] StorageError),
}

/// A run that waits to be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pending {
    run: Run,
    /// Whether only the image can read it; it then begins at a place of the disk.
    by_image: bool,
}

/// Moves runs to one target.
#[derive(Debug)]
pub(super) struct Mover<'a> {
    copier: Copier<'a>,
    zeros: FindZeros,
    watch: &'a Watch,
    pending: Vec<Pending>,
    pending_bytes: u64,
    moved: Moved,
}

impl<'a> Mover<'a> {
    /// From `sources`, by layer, which are the files of `image`, to `target`, a new file that lies in `directory` if it has a name.
    pub(super) fn new(
        target: &'a dyn WritableStorage,
        directory: Option<&Path>,
        sources: impl IntoIterator<Item = &'a dyn Storage>,
        image: &'a dyn BlockDevice,
        zeros: FindZeros,
        watch: &'a Watch,
    ) -> Self {
        let copier = Copier::new(target, directory, sources, image, watch);
        Self { copier, zeros, watch, pending: Vec::new(), pending_bytes: 0, moved: Moved::default() }
    }

    /// Whether runs of the layer can be shared at places that stand alike within this unit.
    pub(super) fn shares(&self, layer: LayerIndex) -> Option<u64> {
        match self.copier.route(layer) {
            Route::Share { unit_bytes } => Some(unit_bytes),
            Route::Kernel | Route::ReadWrite => None,
        }
    }

    /// What was moved until now, not counting what is pending.
    pub(super) fn moved(&self) -> Moved {
        self.moved
    }

    /// Says that more bytes will be moved than was thought.
    pub(super) fn expect(&self, bytes: u64) {
        self.watch.expect(bytes);
    }

    /// Counts zeros that were found in what is stored, and of which nothing is moved.
    ///
    /// # Errors
    /// [`MoveError::Cancelled`].
    pub(super) fn skip(&mut self, skipped_bytes: u64) -> Result<(), MoveError> {
        self.moved.add(Moved { skipped_bytes, ..Moved::default() });
        Ok(self.watch.advance(skipped_bytes)?)
    }

    /// Takes a run to be moved to a place where nothing was written.
    ///
    /// # Errors
    /// Those of this run or an earlier one.
    pub(super) fn run(&mut self, run: Run) -> Result<(), MoveError> {
        self.add(run, false)
    }

    /// As [`run`](Self::run), of the `length` bytes of the disk from `from` on, which the image reads: what lies
    /// compressed or in a log, or comes from many places.
    ///
    /// # Errors
    /// Those of this run or an earlier one.
    pub(super) fn run_by_image(&mut self, from: u64, to: u64, length: u64) -> Result<(), MoveError> {
        self.add(Run { layer: LayerIndex::BASE, from, to, length }, true)
    }

    fn add(&mut self, run: Run, by_image: bool) -> Result<(), MoveError> {
        for run in run.pieces(MAX_RUN_BYTES) {
            let last = self.pending.last_mut().filter(|last| {
                last.by_image == by_image
                    && last.run.is_continued_by(run)
                    && last.run.length.saturating_add(run.length) <= MAX_RUN_BYTES
            });
            match last {
                Some(last) => last.run.length = last.run.length.saturating_add(run.length),
                None => self.pending.push(Pending { run, by_image }),
            }
            self.pending_bytes = self.pending_bytes.saturating_add(run.length);
            if self.pending_bytes >= BATCH_BYTES || self.pending.len() >= BATCH_RUNS {
                self.settle()?;
            }
        }
        Ok(())
    }

    /// Moves what is pending.
    ///
    /// # Errors
    /// [`MoveError`].
    pub(super) fn settle(&mut self) -> Result<(), MoveError> {
        self.pending_bytes = 0;
        let pending = std::mem::take(&mut self.pending);
        let parts: Vec<_> = pending.into_iter().flat_map(|pending| self.parts(pending)).collect();
        if parts.is_empty() {
            return Ok(());
        }
        let moved = self.copier.copy(&parts)?;
        self.moved.add(moved);
        Ok(())
    }

    /// Writes bytes that are in memory to a place where nothing was written.
    ///
    /// # Errors
    /// [`MoveError`].
    pub(super) fn write_new(&mut self, to: u64, bytes: &[u8]) -> Result<(), MoveError> {
        let moved = self.copier.write_new(to, bytes)?;
        self.moved.add(moved);
        Ok(())
    }

    /// Writes bytes that are in memory over what is there.
    ///
    /// # Errors
    /// [`MoveError`].
    pub(super) fn write_over(&mut self, to: u64, bytes: &[u8]) -> Result<(), MoveError> {
        self.settle()?;
        let moved = self.copier.write_over(to, bytes)?;
        self.moved.add(moved);
        Ok(())
    }

    /// As [`run`](Self::run), of a short run that goes over what is there.
    ///
    /// # Errors
    /// [`MoveError`].
    pub(super) fn run_over(&mut self, run: Run) -> Result<(), MoveError> {
        self.settle()?;
        let (start, shared) = match self.shares(run.layer).and_then(|unit| run.shared_part(unit)) {
            Some(part) => part,
            None => (run.length, 0),
        };
        for run in [run.head(start), run.after(start.saturating_add(shared))] {
            let moved = self.copier.copy_over(run)?;
            self.moved.add(moved);
        }
        if shared > 0 {
            let moved = self.copier.copy(&[(run.after(start).head(shared), Way::Shared)])?;
            self.moved.add(moved);
        }
        Ok(())
    }

    /// The parts of a run, each with its way.
    fn parts(&self, Pending { run, by_image }: Pending) -> impl Iterator<Item = (Run, Way)> + use<> {
        let (start, shared) = match self.copier.route(run.layer) {
            _ if by_image => (run.length, 0),
            Route::Share { unit_bytes } => run.shared_part(unit_bytes).unwrap_or((run.length, 0)),
            Route::Kernel | Route::ReadWrite => (run.length, 0),
        };
        let can_copy = self.copier.route(run.layer) != Route::ReadWrite && self.zeros == FindZeros::Nowhere;
        // The kernel would copy zeros, too.
        let way = |run: Run| match can_copy && run.length >= MIN_SHARED_BYTES {
            _ if by_image => Way::Image,
            true => Way::Kernel,
            false => Way::Memory,
        };
        let (head, middle) = (run.head(start), run.after(start).head(shared));
        let tail = run.after(start.saturating_add(shared));
        let parts = [(head, way(head)), (middle, Way::Shared), (tail, way(tail))];
        parts.into_iter().filter(|(run, _)| run.length > 0)
    }
}

impl Moved {
    /// All bytes of the target for which something was decided.
    #[must_use]
    pub fn total(self) -> u64 {
        self.cloned_bytes.saturating_add(self.copied_bytes).saturating_add(self.skipped_bytes)
    }

    pub(super) fn add(&mut self, other: Self) {
        self.cloned_bytes = self.cloned_bytes.saturating_add(other.cloned_bytes);
        self.copied_bytes = self.copied_bytes.saturating_add(other.copied_bytes);
        self.skipped_bytes = self.skipped_bytes.saturating_add(other.skipped_bytes);
    }
}
