//! Moving runs of payload from files to places in a new file, the cheapest way there is for each.
//!
//! In order: sharing the extents (costs no space and hardly time), letting the kernel copy, reading and writing. Which
//! of them a source allows is [tried](super::trial) once; what turns out impossible on the way is remembered. Sharing
//! works on whole blocks of the file system, so of a run that can be shared the ends may be copied; where source and
//! target stand differently within a block nothing can be shared, and below [`MIN_SHARED_BYTES`] it does not pay: the
//! call takes as long as copying, and leaves an extent more.
//!
//! Runs that continue each other are moved as one, and many are collected to be copied at once by several threads
//! (`copier`), while the sources of the next ones are read into memory. The bytes are there when [`Mover::settle`] has
//! returned.
//!
//! The target is new: what was never written there reads as zeros, so zeros are left out where bytes are read and
//! written. Where [zeros are looked for](FindZeros) the kernel does not copy.
use std::path::Path;
use std::sync::Arc;

use block::{BlockDevice, BlockError};

use super::copier::{Copier, Task, Way};
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

/// What waits to be moved.
#[derive(Clone, Debug)]
enum Pending {
    /// A run of a file.
    Run(Run),
    /// One that only the image can read; it begins at a place of the disk.
    ByImage(Run),
    /// Bytes that are in memory.
    Bytes { to: u64, bytes: Arc<[u8]> },
}

/// Moves runs to one target.
#[derive(Debug)]
pub(super) struct Mover<'a> {
    copier: Copier<'a>,
    zeros: FindZeros,
    watch: &'a Watch,
    pending: Vec<Pending>,
    pending_bytes: u64,
    /// The batch before what is pending: its sources are being read into memory.
    asked_for: Vec<Task>,
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
        Self {
            copier,
            zeros,
            watch,
            pending: Vec::new(),
            pending_bytes: 0,
            asked_for: Vec::new(),
            moved: Moved::default(),
        }
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
        self.add(run, Pending::Run)
    }

    /// As [`run`](Self::run), of the `length` bytes of the disk from `from` on, which the image reads: what lies
    /// compressed or in a log, or comes from many places.
    ///
    /// # Errors
    /// Those of this run or an earlier one.
    pub(super) fn run_by_image(&mut self, from: u64, to: u64, length: u64) -> Result<(), MoveError> {
        self.add(Run { layer: LayerIndex::BASE, from, to, length }, Pending::ByImage)
    }

    /// Takes a block: `length` bytes of the file of `layer` from `at` on go to `to`, and `lead` before them. Where the
    /// source has the same bytes there, both are one run, which goes on where the last block ended if the source's
    /// blocks lie as the target's will: sector bitmaps then take neither a write nor an extent of their own.
    ///
    /// # Errors
    /// Those of this run or an earlier one.
    pub(super) fn run_led(&mut self, run: Run, lead: &Arc<[u8]>) -> Result<(), MoveError> {
        let length = u64::try_from(lead.len()).unwrap_or(u64::MAX);
        if let (Some(from), Some(to)) = (run.from.checked_sub(length), run.to.checked_sub(length))
            && self.copier.has_before(run.layer, run.from, lead)
        {
            self.expect(length);
            return self.run(Run { from, to, length: run.length.saturating_add(length), ..run });
        }
        self.lead(run.to, lead)?;
        self.run(run)
    }

    /// Takes what stands before the block whose data begins at `end`.
    ///
    /// # Errors
    /// Those of something taken earlier.
    pub(super) fn lead(&mut self, end: u64, lead: &Arc<[u8]>) -> Result<(), MoveError> {
        let to = u64::try_from(lead.len()).ok().and_then(|length| end.checked_sub(length));
        if let Some(to) = to.filter(|_| !lead.is_empty()) {
            self.push(Pending::Bytes { to, bytes: Arc::clone(lead) })?;
        }
        Ok(())
    }

    fn add(&mut self, run: Run, pending: fn(Run) -> Pending) -> Result<(), MoveError> {
        for run in run.pieces(MAX_RUN_BYTES) {
            self.pending_bytes = self.pending_bytes.saturating_add(run.length);
            self.push(pending(run))?;
        }
        Ok(())
    }

    fn push(&mut self, pending: Pending) -> Result<(), MoveError> {
        if !self.pending.last_mut().is_some_and(|last| last.takes(&pending)) {
            self.pending.push(pending);
        }
        if self.pending_bytes >= BATCH_BYTES || self.pending.len() >= BATCH_RUNS {
            self.turn()?;
        }
        Ok(())
    }

    /// Moves what is pending.
    ///
    /// # Errors
    /// [`MoveError`].
    pub(super) fn settle(&mut self) -> Result<(), MoveError> {
        self.turn()?;
        self.turn()
    }

    /// Moves the batch that was asked for, and asks for what is pending.
    fn turn(&mut self) -> Result<(), MoveError> {
        let next = self.take_pending();
        let batch = std::mem::replace(&mut self.asked_for, next);
        if batch.is_empty() && self.asked_for.is_empty() {
            return Ok(());
        }
        let moved = self.copier.copy(&batch, &self.asked_for)?;
        self.moved.add(moved);
        Ok(())
    }

    /// What is pending, each with its way.
    fn take_pending(&mut self) -> Vec<Task> {
        self.pending_bytes = 0;
        let pending = std::mem::take(&mut self.pending);
        let mut tasks = Vec::with_capacity(pending.len());
        for pending in pending {
            match pending {
                Pending::Run(run) => tasks.extend(self.parts(run)),
                Pending::ByImage(run) => tasks.push(Task::Run(run, Way::Image)),
                Pending::Bytes { to, bytes } => tasks.push(Task::Bytes { to, bytes }),
            }
        }
        tasks
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
            let moved = self.copier.copy(&[Task::Run(run.after(start).head(shared), Way::Shared)], &[])?;
            self.moved.add(moved);
        }
        Ok(())
    }

    /// The parts of a run, each with its way.
    fn parts(&self, run: Run) -> impl Iterator<Item = Task> + use<> {
        let (start, shared) = match self.copier.route(run.layer) {
            Route::Share { unit_bytes } => run.shared_part(unit_bytes).unwrap_or((run.length, 0)),
            Route::Kernel | Route::ReadWrite => (run.length, 0),
        };
        let can_copy = self.copier.route(run.layer) != Route::ReadWrite && self.zeros == FindZeros::Nowhere;
        // The kernel would copy zeros, too.
        let way =
            |run: Run| if can_copy && run.length >= MIN_SHARED_BYTES { Way::Kernel } else { Way::Memory };
        let (head, middle) = (run.head(start), run.after(start).head(shared));
        let tail = run.after(start.saturating_add(shared));
        let parts = [(head, way(head)), (middle, Way::Shared), (tail, way(tail))];
        parts.into_iter().filter(|(run, _)| run.length > 0).map(|(run, way)| Task::Run(run, way))
    }
}

impl Pending {
    /// Makes `next` part of this if it goes on where this one ends.
    fn takes(&mut self, next: &Self) -> bool {
        let ((Self::Run(last), &Self::Run(next)) | (Self::ByImage(last), &Self::ByImage(next))) =
            (self, next)
        else {
            return false;
        };
        let length = last.length.saturating_add(next.length);
        let is_one = last.is_continued_by(next) && length <= MAX_RUN_BYTES;
        if is_one {
            last.length = length;
        }
        is_one
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

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;
    use std::sync::Mutex;

    use block::{Access, ByteLength, ByteOffset, ByteRange, LogicalBlockSize, MemoryDevice, Patience};

    use super::*;
    use crate::storage::{CrashStorage, MemoryStorage};

    const DATA_BYTES: u64 = 8192;
    const LEAD_BYTES: u64 = 512;
    const BASE: LayerIndex = LayerIndex::BASE;

    /// Moves two blocks that lie end to end in a source, of which the second has `second` before it, and says how many
    /// things waited to be moved then, and what the target holds.
    fn two_led_blocks(second: [u8; 512]) -> (usize, Vec<u8>) {
        let data = [1; DATA_BYTES as usize];
        let source = MemoryStorage::new(&[&[0xFF; 512][..], &data, &second, &data].concat());
        let target = CrashStorage::new(MemoryStorage::default());
        let image = MemoryDevice::with_contents(vec![0; 512], LogicalBlockSize::B512, Access::ReadOnly);
        let (image, watch) = (image.unwrap(), Watch::default());
        let sources = [&source as &dyn Storage];
        let mut mover = Mover::new(&target, None, sources, &image, FindZeros::Nowhere, &watch);
        let lead = Arc::from([0xFF; LEAD_BYTES as usize]);
        for block in 0..2 {
            let from = LEAD_BYTES + block * (LEAD_BYTES + DATA_BYTES);
            mover.run_led(Run { layer: BASE, from, to: from, length: DATA_BYTES }, &lead).unwrap();
        }
        let pending = mover.pending.len();
        mover.settle().unwrap();
        let mut bytes = vec![0; usize::try_from(2 * (LEAD_BYTES + DATA_BYTES)).unwrap()];
        target.read_at(block::ByteOffset::ZERO, &mut bytes, block::Patience::Blocking).unwrap();
        (pending, bytes)
    }

    #[test]
    fn blocks_that_lie_as_the_targets_do_are_one_run_with_what_stands_before_them() {
        let expected = [&[0xFF; 512][..], &[1; DATA_BYTES as usize]].concat().repeat(2);
        assert_eq!(two_led_blocks([0xFF; 512]), (1, expected));
    }

    #[test]
    fn block_with_something_else_before_it_in_the_source_gets_what_belongs_there() {
        let expected = [&[0xFF; 512][..], &[1; DATA_BYTES as usize]].concat().repeat(2);
        let mut partial = [0xFF; 512];
        partial[511] = 0xFE;
        assert_eq!(two_led_blocks(partial), (3, expected));
    }

    /// A source of ones that knows what it was asked for, and which reads came without.
    #[derive(Debug, Default)]
    struct Asked {
        ranges: Mutex<Vec<ByteRange>>,
        unasked: Mutex<Vec<ByteRange>>,
    }

    impl Storage for Asked {
        fn len(&self) -> ByteLength {
            ByteLength::new(1 << 40)
        }

        fn read_at(&self, at: ByteOffset, buffer: &mut [u8], _: Patience) -> Result<(), StorageError> {
            let range = ByteRange::new(at, ByteLength::of(buffer)).unwrap();
            if !self.ranges.lock().unwrap().contains(&range) {
                self.unasked.lock().unwrap().push(range);
            }
            buffer.fill(1);
            Ok(())
        }

        fn will_read(&self, range: ByteRange) {
            self.ranges.lock().unwrap().push(range);
        }
    }

    /// Moves two batches and a bit of runs that lie apart; how many were read, and how many of them unasked.
    fn asked_and_unasked(watch: &Watch) -> (usize, usize) {
        let (source, target) = (Asked::default(), CrashStorage::new(MemoryStorage::default()));
        let image = MemoryDevice::with_contents(vec![0; 512], LogicalBlockSize::B512, Access::ReadOnly);
        let (image, sources) = (image.unwrap(), [&source as &dyn Storage]);
        let mut mover = Mover::new(&target, None, sources, &image, FindZeros::Nowhere, watch);
        for run in 0..2 * BATCH_RUNS as u64 + 1 {
            mover.run(Run { layer: BASE, from: run * DATA_BYTES, to: run * 512, length: 512 }).unwrap();
        }
        mover.settle().unwrap();
        assert_eq!(mover.moved().copied_bytes, (2 * BATCH_RUNS as u64 + 1) * 512);
        (source.ranges.lock().unwrap().len(), source.unasked.lock().unwrap().len())
    }

    #[test]
    fn sources_are_asked_for_each_run_before_it_is_read_and_for_nothing_else() {
        assert_eq!(asked_and_unasked(&Watch::default()), (2 * BATCH_RUNS + 1, 0));
    }

    #[test]
    fn limited_pace_has_nothing_read_ahead() {
        let watch = Watch::default();
        watch.set_limit(NonZeroU64::new(1 << 40));
        assert_eq!(asked_and_unasked(&watch), (0, 2 * BATCH_RUNS + 1));
    }
}
