//! Moving runs of payload from files to places in a new file, the cheapest way there is for each.
//!
//! In order: sharing the extents (costs no space and hardly time), letting the kernel copy, reading and writing. Which
//! of them a source allows is [tried](super::trial) once; what turns out impossible on the way is remembered. Sharing
//! works on whole blocks of the file system, so of a run that can be shared the ends may be copied; where source and
//! target stand differently within a block nothing can be shared, and below [`MIN_SHARED_BYTES`] it does not pay: the
//! call takes as long as copying, and leaves an extent more.
//!
//! Runs that continue each other are moved as one. The bytes are there when [`Mover::settle`] has returned.
//!
//! The target is new: what was never written there reads as zeros, so zeros are left out where bytes are read and
//! written. Where [zeros are looked for](FindZeros) the kernel does not copy.
use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use block::{BlockError, ByteOffset, Patience};
use rustix::io::Errno;

use super::trial::{Route, Trials};
use super::zeros::{FindZeros, data_runs};
use crate::extent::LayerIndex;
use crate::storage::{Storage, StorageError, WritableStorage};
use crate::watch::{Cancelled, Watch};

/// What is shared is at least this long.
pub(super) const MIN_SHARED_BYTES: u64 = 64 << 10;
/// Runs are joined up to this length: what is moved between two looks at the watch, when it is shared.
const MAX_RUN_BYTES: u64 = 64 << 20;
/// What the kernel copies between two looks at the watch.
const COPY_STEP_BYTES: u64 = 4 << 20;
/// A buffer of the way over memory. Each thread has one.
const BUFFER_BYTES: usize = 512 << 10;
/// More threads than this fight for the lock of the target file.
const MAX_THREADS: usize = 4;

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

/// A run to be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) layer: LayerIndex,
    /// Where it lies in the source.
    pub(super) from: u64,
    /// Where it goes in the target.
    pub(super) to: u64,
    pub(super) length: u64,
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

/// Moves runs to one target.
#[derive(Debug)]
pub(super) struct Mover<'a> {
    target: &'a dyn WritableStorage,
    sources: Vec<Source<'a>>,
    zeros: FindZeros,
    watch: &'a Watch,
    pending: Option<Run>,
    buffers: Mutex<Vec<Vec<u8>>>,
    threads: u64,
    moved: Moved,
}

/// A file out of which runs are moved.
#[derive(Debug)]
struct Source<'a> {
    storage: &'a dyn Storage,
    /// Both files, where it can go without memory.
    files: Option<[Arc<File>; 2]>,
    route: Route,
}

impl Run {
    fn end(self) -> u64 {
        self.from.saturating_add(self.length)
    }

    /// The run without its first `count` bytes.
    fn after(self, count: u64) -> Self {
        Self {
            from: self.from.saturating_add(count),
            to: self.to.saturating_add(count),
            length: self.length.saturating_sub(count),
            ..self
        }
    }

    fn head(self, count: u64) -> Self {
        Self { length: self.length.min(count), ..self }
    }

    /// How much of the run's start must be copied, how much can then be shared in units; the rest is copied again.
    fn shared_part(self, unit: u64) -> Option<(u64, u64)> {
        let within = |place: u64| place.checked_rem(unit).unwrap_or_default();
        if within(self.from) != within(self.to) {
            return None;
        }
        let start = self.from.checked_next_multiple_of(unit)?.checked_sub(self.from)?;
        let shared =
            self.end().saturating_sub(within(self.end())).checked_sub(self.from.checked_add(start)?)?;
        (shared >= MIN_SHARED_BYTES).then_some((start, shared))
    }
}

impl<'a> Mover<'a> {
    /// From `sources`, by layer, to `target`, a new file that lies in `directory` if it has a name.
    pub(super) fn new(
        target: &'a dyn WritableStorage,
        directory: Option<&Path>,
        sources: impl IntoIterator<Item = &'a dyn Storage>,
        zeros: FindZeros,
        watch: &'a Watch,
    ) -> Self {
        let trials = Trials::new(directory);
        let sources = sources.into_iter().map(|storage| {
            let files = storage.file().zip(target.file());
            let route = files.map_or(Route::ReadWrite, |(source, _)| trials.route(source));
            let files = files.map(|(source, target)| [Arc::clone(source), Arc::clone(target)]);
            Source { storage, files, route }
        });
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
        Self {
            target,
            sources: sources.collect(),
            zeros,
            watch,
            pending: None,
            buffers: Mutex::default(),
            threads: u64::try_from(threads).unwrap_or(1),
            moved: Moved::default(),
        }
    }

    /// Whether runs of the layer can be shared at places that stand alike within this unit.
    pub(super) fn shares(&self, layer: LayerIndex) -> Option<u64> {
        match self.source(layer)?.route {
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
        self.count(Moved { skipped_bytes, ..Moved::default() })
    }

    /// Takes a run to be moved.
    ///
    /// # Errors
    /// Those of this run or an earlier one.
    pub(super) fn run(&mut self, run: Run) -> Result<(), MoveError> {
        if let Some(pending) = &mut self.pending {
            let continues = pending.layer == run.layer
                && pending.end() == run.from
                && pending.to.saturating_add(pending.length) == run.to;
            let length = pending.length.saturating_add(run.length);
            if continues && length <= MAX_RUN_BYTES {
                pending.length = length;
                return Ok(());
            }
            self.settle()?;
        }
        let mut rest = run;
        while rest.length > MAX_RUN_BYTES {
            self.move_run(rest.head(MAX_RUN_BYTES))?;
            rest = rest.after(MAX_RUN_BYTES);
        }
        self.pending = (rest.length > 0).then_some(rest);
        Ok(())
    }

    /// Moves what is pending.
    ///
    /// # Errors
    /// [`MoveError`].
    pub(super) fn settle(&mut self) -> Result<(), MoveError> {
        match self.pending.take() {
            Some(run) => self.move_run(run),
            None => Ok(()),
        }
    }

    /// Writes bytes that are in memory to a place where nothing was written.
    ///
    /// # Errors
    /// [`MoveError`].
    pub(super) fn write_new(&mut self, to: u64, bytes: &[u8]) -> Result<(), MoveError> {
        self.watch.pace(u64::try_from(bytes.len()).unwrap_or(u64::MAX))?;
        let moved = write_data(self.target, to, bytes)?;
        self.count(moved)
    }

    /// Writes bytes that are in memory over what is there.
    ///
    /// # Errors
    /// [`MoveError`].
    pub(super) fn write_over(&mut self, to: u64, bytes: &[u8]) -> Result<(), MoveError> {
        self.settle()?;
        let copied_bytes = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.watch.pace(copied_bytes)?;
        self.target.write_at(ByteOffset::new(to), bytes).map_err(MoveError::Target)?;
        self.count(Moved { copied_bytes, ..Moved::default() })
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
        self.copy_over(run.head(start))?;
        if shared > 0 {
            self.kernel_copy(run.after(start).head(shared), true)?;
        }
        self.copy_over(run.after(start.saturating_add(shared)))
    }

    /// Copies over memory, zeros and all.
    fn copy_over(&mut self, run: Run) -> Result<(), MoveError> {
        let Some(storage) = self.source(run.layer).map(|source| source.storage) else { return Ok(()) };
        let mut rest = run;
        let mut buffer = self.buffer();
        while rest.length > 0 {
            let count = rest.length.min(BUFFER_BYTES as u64);
            let piece = buffer.get_mut(..usize::try_from(count).unwrap_or(BUFFER_BYTES)).unwrap_or_default();
            let read = storage.read_at(ByteOffset::new(rest.from), piece, Patience::Blocking);
            read.map_err(|source| MoveError::Source { layer: run.layer, source })?;
            self.write_over(rest.to, piece)?;
            rest = rest.after(count);
        }
        self.keep(buffer);
        Ok(())
    }

    fn source(&self, layer: LayerIndex) -> Option<&Source<'a>> {
        self.sources.get(usize::from(layer.get()))
    }

    fn count(&mut self, moved: Moved) -> Result<(), MoveError> {
        self.moved.add(moved);
        Ok(self.watch.advance(moved.total())?)
    }

    fn move_run(&mut self, run: Run) -> Result<(), MoveError> {
        match self.source(run.layer).map_or(Route::ReadWrite, |source| source.route) {
            Route::Share { unit_bytes } => match run.shared_part(unit_bytes) {
                Some((start, shared)) => {
                    self.copy(run.head(start))?;
                    self.kernel_copy(run.after(start).head(shared), true)?;
                    self.copy(run.after(start.saturating_add(shared)))
                }
                None => self.copy(run),
            },
            Route::Kernel => self.copy(run),
            Route::ReadWrite => self.read_write(run),
        }
    }

    /// Copies, in the kernel where that pays. The kernel would copy zeros, too.
    fn copy(&mut self, run: Run) -> Result<(), MoveError> {
        if run.length < MIN_SHARED_BYTES || self.zeros != FindZeros::Nowhere {
            self.read_write(run)
        } else {
            self.kernel_copy(run, false)
        }
    }

    /// `shared`: the kernel will share the run, so that it costs nothing and goes in one step.
    fn kernel_copy(&mut self, run: Run, shared: bool) -> Result<(), MoveError> {
        let Some([source, target]) = self.source(run.layer).and_then(|source| source.files.clone()) else {
            return self.read_write(run);
        };
        let mut rest = run;
        while rest.length > 0 {
            let step = if shared { rest.length } else { rest.length.min(COPY_STEP_BYTES) };
            if !shared {
                self.watch.pace(step)?;
            }
            let (mut from, mut to) = (rest.from, rest.to);
            let step = usize::try_from(step).unwrap_or(usize::MAX);
            match rustix::fs::copy_file_range(&source, Some(&mut from), &target, Some(&mut to), step) {
                // The source has become shorter: reading says so with its place.
                Ok(0) => return self.read_write(rest),
                Ok(count) => {
                    let count = u64::try_from(count).unwrap_or_default().min(rest.length);
                    rest = rest.after(count);
                    let moved = match shared {
                        true => Moved { cloned_bytes: count, ..Moved::default() },
                        false => Moved { copied_bytes: count, ..Moved::default() },
                    };
                    self.count(moved)?;
                }
                Err(Errno::INTR) => {}
                Err(errno @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => {
                    let at = ByteOffset::new(rest.to);
                    return Err(MoveError::Target(StorageError::Write { at, source: errno.into() }));
                }
                // Not possible after all between these two (EINVAL, EXDEV, EOPNOTSUPP and others), or one of them
                // cannot be read or written, and reading and writing tells which.
                Err(_) => {
                    if let Some(source) = self.sources.get_mut(usize::from(run.layer.get())) {
                        source.route = Route::ReadWrite;
                    }
                    return self.read_write(rest);
                }
            }
        }
        Ok(())
    }

    /// Moves over memory and leaves zeros out.
    fn read_write(&mut self, run: Run) -> Result<(), MoveError> {
        let Some(storage) = self.source(run.layer).map(|source| source.storage) else { return Ok(()) };
        self.fill(run.to, run.length, &|place, buffer| {
            let at = ByteOffset::new(run.from.saturating_add(place));
            let read = storage.read_at(at, buffer, Patience::Blocking);
            read.map_err(|source| MoveError::Source { layer: run.layer, source })
        })
    }

    /// Fills the `length` bytes of the target from `to` on, where nothing was written, with what `read` puts into a
    /// buffer, given the place of its first byte counted from `to`. Several threads read and write at once.
    ///
    /// # Errors
    /// Those of `read`, and [`MoveError`].
    pub(super) fn fill(&mut self, to: u64, length: u64, read: ReadPiece<'_>) -> Result<(), MoveError> {
        let next = AtomicU64::new(0);
        let this = &*self;
        let work = || {
            let mut moved = Moved::default();
            let mut buffer = this.buffer();
            let result = loop {
                let place = next.fetch_add(BUFFER_BYTES as u64, Ordering::Relaxed);
                let count = length.saturating_sub(place).min(BUFFER_BYTES as u64);
                if count == 0 {
                    break Ok(());
                }
                let piece = buffer.get_mut(..usize::try_from(count).unwrap_or(BUFFER_BYTES));
                match this.fill_piece(to.saturating_add(place), piece.unwrap_or_default(), place, read) {
                    Ok(piece) => moved.add(piece),
                    Err(error) => {
                        // The others need not go on.
                        next.store(length, Ordering::Relaxed);
                        break Err(error);
                    }
                }
            };
            this.keep(buffer);
            result.map(|()| moved)
        };
        let others = length.div_ceil(BUFFER_BYTES as u64).min(self.threads).saturating_sub(1);
        let moved = std::thread::scope(|scope| {
            let others: Vec<_> = (0..others).map(|_| scope.spawn(work)).collect();
            let mut moved = work()?;
            for other in others {
                match other.join() {
                    Ok(result) => moved.add(result?),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            Ok::<_, MoveError>(moved)
        })?;
        self.moved.add(moved);
        Ok(())
    }

    fn fill_piece(
        &self,
        to: u64,
        buffer: &mut [u8],
        place: u64,
        read: ReadPiece<'_>,
    ) -> Result<Moved, MoveError> {
        self.watch.pace(u64::try_from(buffer.len()).unwrap_or(u64::MAX))?;
        read(place, buffer)?;
        let moved = write_data(self.target, to, buffer)?;
        self.watch.advance(moved.total())?;
        Ok(moved)
    }

    fn buffer(&self) -> Vec<u8> {
        let kept = self.buffers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        kept.unwrap_or_else(|| vec![0; BUFFER_BYTES])
    }

    fn keep(&self, buffer: Vec<u8>) {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner).push(buffer);
    }
}

/// Fills a buffer with the bytes at a place of a run.
pub(super) type ReadPiece<'a> = &'a (dyn Fn(u64, &mut [u8]) -> Result<(), MoveError> + Sync);

/// Writes what is not zero.
fn write_data(target: &dyn WritableStorage, to: u64, bytes: &[u8]) -> Result<Moved, MoveError> {
    let mut copied_bytes = 0_u64;
    for (place, length) in data_runs(bytes, to) {
        let at = to.saturating_add(u64::try_from(place).unwrap_or_default());
        let run = bytes.get(place..).and_then(|rest| rest.get(..length)).unwrap_or_default();
        target.write_at(ByteOffset::new(at), run).map_err(MoveError::Target)?;
        copied_bytes = copied_bytes.saturating_add(u64::try_from(length).unwrap_or_default());
    }
    let all = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    Ok(Moved { copied_bytes, skipped_bytes: all.saturating_sub(copied_bytes), cloned_bytes: 0 })
}

impl Moved {
    /// All bytes of the target for which something was decided.
    #[must_use]
    pub fn total(self) -> u64 {
        self.cloned_bytes.saturating_add(self.copied_bytes).saturating_add(self.skipped_bytes)
    }

    fn add(&mut self, other: Self) {
        self.cloned_bytes = self.cloned_bytes.saturating_add(other.cloned_bytes);
        self.copied_bytes = self.copied_bytes.saturating_add(other.copied_bytes);
        self.skipped_bytes = self.skipped_bytes.saturating_add(other.skipped_bytes);
    }
}
