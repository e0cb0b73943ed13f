//! Copying runs to one target, by several threads, and to stable storage at the same time.
//!
//! # The theory
//! A copy is bound by the processor (pages of the page cache are filled) and by storage (they are written). Left to
//! itself the kernel begins to write when a tenth of the memory is dirty, so the last gigabytes only go out when
//! everything else is done, and until then they take the room for changed pages away from all other writers of the
//! machine. Here each [`FLUSH_BYTES`] are flushed while the next ones are copied, and copying waits for the flush: both
//! ends are busy all the time, the last flush has little to do, and a cancel never has to wait for much.
//!
//! The kernel copies in small steps inside, one after the other; several threads keep it busy. Over memory several
//! threads read while one writes.
//!
//! Sources that are not in memory are asked for one batch ahead. The kernel's own read-ahead knows one reader of a file
//! that goes on and on; here several threads read it at once, in turns with other files and with gaps between, so that
//! it either reads little and late or reads what nobody wants. What is wanted is known exactly.
use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use block::{BlockDevice, ByteLength, ByteOffset, ByteRange, Patience};
use rustix::io::Errno;

use super::mover::{MoveError, Moved};
use super::run::Run;
use super::trial::{Route, Trials};
use super::zeros::data_runs;
use crate::extent::LayerIndex;
use crate::storage::{Storage, StorageError, WritableStorage};
use crate::watch::Watch;

/// What the kernel copies between two looks at the watch.
const COPY_STEP_BYTES: u64 = 4 << 20;
/// What the kernel copies at once inside such a step: what a pipe of 16 pages holds.
const KERNEL_PIPE_BYTES: u64 = 64 << 10;
/// A buffer of the way over memory. Each thread has one.
pub(super) const BUFFER_BYTES: usize = 512 << 10;
/// More threads than this fight for the lock of the target file.
const MAX_THREADS: usize = 4;
/// So much is written between two flushes. A slow disk flushes it within a second, and a fast one hardly notices
/// that it is asked.
const FLUSH_BYTES: u64 = 64 << 20;

/// Copies runs of files to one target.
#[derive(Debug)]
pub(super) struct Copier<'a> {
    target: &'a dyn WritableStorage,
    sources: Vec<Source<'a>>,
    /// What reads the pieces that lie in no file as they are.
    image: &'a dyn BlockDevice,
    watch: &'a Watch,
    buffers: Mutex<Vec<Vec<u8>>>,
    threads: usize,
    /// What was written since the last flush began.
    unflushed_bytes: u64,
}

/// A file out of which runs are copied.
#[derive(Debug)]
struct Source<'a> {
    storage: &'a dyn Storage,
    /// Both files, where it can go without memory.
    files: Option<[Arc<File>; 2]>,
    route: Route,
    /// Whether what the trial promised turned out impossible.
    refused: AtomicBool,
}

/// One thing to be brought to a place of the target where nothing was written.
#[derive(Clone, Debug)]
pub(super) enum Task {
    /// A run of a source.
    Run(Run, Way),
    /// Bytes that are in memory, and few: what stands before a block.
    Bytes {
        /// Where they go.
        to: u64,
        bytes: Arc<[u8]>,
    },
}

/// How a run is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// In the kernel, which shares the run: it costs nothing and goes in one step.
    Shared,
    /// In the kernel.
    Kernel,
    /// Over memory; zeros are left out.
    Memory,
    /// As `Memory`, read by the image: the run begins at a place of the disk, and its layer means nothing.
    Image,
}

impl<'a> Copier<'a> {
    /// From `sources`, by layer, which are the files of `image`, to `target`, a new file that lies in `directory` if it has a name.
    pub(super) fn new(
        target: &'a dyn WritableStorage,
        directory: Option<&Path>,
        sources: impl IntoIterator<Item = &'a dyn Storage>,
        image: &'a dyn BlockDevice,
        watch: &'a Watch,
    ) -> Self {
        let trials = Trials::new(directory);
        let sources = sources.into_iter().map(|storage| {
            let files = storage.file().zip(target.file());
            let route = files.map_or(Route::ReadWrite, |(source, _)| trials.route(source));
            let files = files.map(|(source, target)| [Arc::clone(source), Arc::clone(target)]);
            Source { storage, files, route, refused: AtomicBool::new(false) }
        });
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
        Self {
            target,
            sources: sources.collect(),
            image,
            watch,
            buffers: Mutex::default(),
            threads,
            unflushed_bytes: 0,
        }
    }

    /// The way from the files of `layer`.
    pub(super) fn route(&self, layer: LayerIndex) -> Route {
        let source = self.source(layer).filter(|source| !source.refused.load(Ordering::Relaxed));
        source.map_or(Route::ReadWrite, |source| source.route)
    }

    /// Does all of `tasks`, in any order. Bytes are written at about the same time as the runs beside them: a flush
    /// then finds both, and not bytes that lie alone. Meanwhile the sources are told what of them `next` will read.
    ///
    /// # Errors
    /// [`MoveError`]; any part of them may have been copied.
    pub(super) fn copy(&mut self, tasks: &[Task], next: &[Task]) -> Result<Moved, MoveError> {
        let mut steps = Vec::with_capacity(tasks.len());
        for task in tasks {
            let &Task::Run(run, way) = task else {
                steps.push(task.clone());
                continue;
            };
            let step_bytes = match way {
                Way::Shared => u64::MAX,
                Way::Kernel => COPY_STEP_BYTES,
                Way::Memory | Way::Image => BUFFER_BYTES as u64,
            };
            steps.extend(run.pieces(step_bytes).map(|run| Task::Run(run, way)));
        }
        self.in_parallel(steps.len(), next, &|copier, step, buffer| match steps.get(step) {
            Some(&Task::Run(run, Way::Memory)) => copier.over_memory(run, buffer),
            Some(&Task::Run(run, Way::Image)) => copier.by_image(run, buffer),
            Some(&Task::Run(run, way)) => copier.in_kernel(run, way, buffer),
            Some(Task::Bytes { to, bytes }) => {
                let written = copier.target.write_at(ByteOffset::new(*to), bytes);
                written.map(|()| Moved::default()).map_err(MoveError::Target)
            }
            None => Ok(Moved::default()),
        })
    }

    /// Whether the file of `layer` has these bytes right before `end`. Where that cannot be read it has not: whoever
    /// copies what comes behind learns why.
    pub(super) fn has_before(&self, layer: LayerIndex, end: u64, bytes: &[u8]) -> bool {
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let (Some(source), Some(at)) = (self.source(layer), end.checked_sub(length)) else { return false };
        let mut found = vec![0; bytes.len()];
        let read = source.storage.read_at(ByteOffset::new(at), &mut found, Patience::Blocking);
        read.is_ok() && found == bytes
    }

    /// Writes bytes that are in memory, of which zeros are left out, to a place where nothing was written.
    ///
    /// # Errors
    /// [`MoveError`].
    pub(super) fn write_new(&mut self, to: u64, bytes: &[u8]) -> Result<Moved, MoveError> {
        self.flush_if_due()?;
        self.watch.pace(u64::try_from(bytes.len()).unwrap_or(u64::MAX))?;
        let moved = write_data(self.target, to, bytes)?;
        self.wrote(moved)
    }

    /// Writes bytes that are in memory, zeros and all.
    ///
    /// # Errors
    /// [`MoveError`].
    pub(super) fn write_over(&mut self, to: u64, bytes: &[u8]) -> Result<Moved, MoveError> {
        self.flush_if_due()?;
        let copied_bytes = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.watch.pace(copied_bytes)?;
        self.target.write_at(ByteOffset::new(to), bytes).map_err(MoveError::Target)?;
        self.wrote(Moved { copied_bytes, ..Moved::default() })
    }

    /// Copies a run over memory, zeros and all.
    ///
    /// # Errors
    /// [`MoveError`].
    pub(super) fn copy_over(&mut self, run: Run) -> Result<Moved, MoveError> {
        let mut moved = Moved::default();
        let mut buffer = self.buffer();
        for piece in run.pieces(BUFFER_BYTES as u64) {
            let bytes = part(&mut buffer, piece.length);
            self.read(piece, bytes)?;
            moved.add(self.write_over(piece.to, bytes)?);
        }
        self.keep(buffer);
        Ok(moved)
    }

    fn wrote(&mut self, moved: Moved) -> Result<Moved, MoveError> {
        self.unflushed_bytes = self.unflushed_bytes.saturating_add(moved.copied_bytes);
        self.watch.advance(moved.total())?;
        Ok(moved)
    }

    fn flush_if_due(&mut self) -> Result<(), MoveError> {
        if self.is_flush_due() { self.target.flush().map_err(MoveError::Target) } else { Ok(()) }
    }

    /// Whether it is time for a flush, which is then taken to begin.
    fn is_flush_due(&mut self) -> bool {
        let is_due = self.unflushed_bytes >= FLUSH_BYTES;
        if is_due {
            self.unflushed_bytes = 0;
        }
        is_due
    }

    /// Takes all of `steps` with several threads. Meanwhile what was written before is flushed, where that is due, and
    /// what `next` will read is asked for.
    fn in_parallel(&mut self, steps: usize, next: &[Task], take: TakeStep<'_>) -> Result<Moved, MoveError> {
        let is_flush_due = self.is_flush_due();
        let (copier, taken) = (&*self, AtomicUsize::new(0));
        let work = || copier.take_steps(&taken, steps, take);
        let moved = std::thread::scope(|scope| {
            let flush = is_flush_due.then(|| scope.spawn(|| copier.target.flush()));
            // Who takes this waits where the queue of the disk is full.
            if !next.is_empty() {
                scope.spawn(|| copier.ask_for(next));
            }
            let others = steps.min(copier.threads).saturating_sub(1);
            let others: Vec<_> = (0..others).map(|_| scope.spawn(work)).collect();
            let mut moved = work()?;
            for other in others {
                moved.add(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
            }
            if let Some(flush) = flush {
                let flushed = flush.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                flushed.map_err(MoveError::Target)?;
            }
            Ok::<_, MoveError>(moved)
        })?;
        self.unflushed_bytes = self.unflushed_bytes.saturating_add(moved.copied_bytes);
        Ok(moved)
    }

    /// Tells the sources what the tasks will read of them, in its order. A limited pace needs no head start, and would
    /// not hold for what is read ahead.
    fn ask_for(&self, tasks: &[Task]) {
        for task in tasks {
            let &Task::Run(run, Way::Kernel | Way::Memory) = task else { continue };
            if self.watch.limit().is_some() || self.watch.advance(0).is_err() {
                return;
            }
            let range = ByteRange::new(ByteOffset::new(run.from), ByteLength::new(run.length));
            if let (Some(source), Some(range)) = (self.source(run.layer), range) {
                source.storage.will_read(range);
            }
        }
    }

    /// One thread: takes steps until there are none.
    fn take_steps(&self, next: &AtomicUsize, steps: usize, take: TakeStep<'_>) -> Result<Moved, MoveError> {
        let mut moved = Moved::default();
        let mut buffer = self.buffer();
        let result = loop {
            let step = next.fetch_add(1, Ordering::Relaxed);
            if step >= steps {
                break Ok(moved);
            }
            match take(self, step, &mut buffer) {
                Ok(step) => moved.add(step),
                Err(error) => {
                    // The others need not go on.
                    next.store(steps, Ordering::Relaxed);
                    break Err(error);
                }
            }
        };
        self.keep(buffer);
        result
    }

    fn in_kernel(&self, run: Run, way: Way, buffer: &mut [u8]) -> Result<Moved, MoveError> {
        let source = self.source(run.layer).filter(|source| !source.refused.load(Ordering::Relaxed));
        let Some((source, [from_file, to_file])) =
            source.and_then(|source| Some((source, source.files.as_ref()?)))
        else {
            return self.over_memory(run, buffer);
        };
        let mut rest = run;
        let mut moved = Moved::default();
        if way == Way::Kernel {
            self.watch.pace(run.length)?;
        }
        while rest.length > 0 {
            let (mut from, mut to) = (rest.from, rest.to);
            // Blocks of a VHD begin anywhere among pages. Copied from there on, every pipe's load would come to lie
            // over small folios, at a fifth more processor time.
            let is_aligned = way == Way::Shared || to.is_multiple_of(KERNEL_PIPE_BYTES);
            let step = if is_aligned { rest } else { rest.up_to_multiple(KERNEL_PIPE_BYTES) };
            let wanted = usize::try_from(step.length).unwrap_or(usize::MAX);
            match rustix::fs::copy_file_range(from_file, Some(&mut from), to_file, Some(&mut to), wanted) {
                // The source has become shorter: reading says so with its place.
                Ok(0) => break,
                Ok(count) => {
                    let count = u64::try_from(count).unwrap_or_default().min(rest.length);
                    rest = rest.after(count);
                    let step = match way {
                        Way::Shared => Moved { cloned_bytes: count, ..Moved::default() },
                        _ => Moved { copied_bytes: count, ..Moved::default() },
                    };
                    moved.add(step);
                    self.watch.advance(count)?;
                }
                Err(Errno::INTR) => {}
                Err(errno @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => {
                    let at = ByteOffset::new(rest.to);
                    return Err(MoveError::Target(StorageError::Write { at, source: errno.into() }));
                }
                // Not possible after all between these two (EINVAL, EXDEV, EOPNOTSUPP and others), or one of them
                // cannot be read or written, and reading and writing tells which.
                Err(_) => {
                    source.refused.store(true, Ordering::Relaxed);
                    break;
                }
            }
        }
        moved.add(self.over_memory(rest, buffer)?);
        Ok(moved)
    }

    fn over_memory(&self, run: Run, buffer: &mut [u8]) -> Result<Moved, MoveError> {
        let mut moved = Moved::default();
        for piece in run.pieces(BUFFER_BYTES as u64) {
            let read = |buffer: &mut [u8]| self.read(piece, buffer);
            moved.add(self.fill_piece(piece.to, part(buffer, piece.length), read)?);
        }
        Ok(moved)
    }

    fn by_image(&self, run: Run, buffer: &mut [u8]) -> Result<Moved, MoveError> {
        let mut moved = Moved::default();
        for piece in run.pieces(BUFFER_BYTES as u64) {
            let at = ByteOffset::new(piece.from);
            let read =
                |buffer: &mut [u8]| self.image.read(at, buffer, Patience::Blocking).map_err(MoveError::Image);
            moved.add(self.fill_piece(piece.to, part(buffer, piece.length), read)?);
        }
        Ok(moved)
    }

    fn fill_piece(
        &self,
        to: u64,
        buffer: &mut [u8],
        read: impl FnOnce(&mut [u8]) -> Result<(), MoveError>,
    ) -> Result<Moved, MoveError> {
        self.watch.pace(u64::try_from(buffer.len()).unwrap_or(u64::MAX))?;
        read(buffer)?;
        let moved = write_data(self.target, to, buffer)?;
        self.watch.advance(moved.total())?;
        Ok(moved)
    }

    fn read(&self, run: Run, buffer: &mut [u8]) -> Result<(), MoveError> {
        let Some(source) = self.source(run.layer) else { return Ok(()) };
        let read = source.storage.read_at(ByteOffset::new(run.from), buffer, Patience::Blocking);
        read.map_err(|source| MoveError::Source { layer: run.layer, source })
    }

    fn source(&self, layer: LayerIndex) -> Option<&Source<'a>> {
        self.sources.get(usize::from(layer.get()))
    }

    fn buffer(&self) -> Vec<u8> {
        let kept = self.buffers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        kept.unwrap_or_else(|| vec![0; BUFFER_BYTES])
    }

    fn keep(&self, buffer: Vec<u8>) {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner).push(buffer);
    }
}

/// Takes one of several steps, given a buffer of [`BUFFER_BYTES`] to work with.
type TakeStep<'t> = &'t (dyn Fn(&Copier<'_>, usize, &mut [u8]) -> Result<Moved, MoveError> + Sync);

/// The first `count` bytes of the buffer, or all of it.
fn part(buffer: &mut [u8], count: u64) -> &mut [u8] {
    let count = usize::try_from(count).unwrap_or(usize::MAX).min(buffer.len());
    buffer.get_mut(..count).unwrap_or_default()
}

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

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::atomic::AtomicU64;

    use block::{Access, LogicalBlockSize, MemoryDevice};

    use super::*;

    /// A source of nothing but ones, and a target that forgets, and of whose flushes so many succeed.
    #[derive(Debug)]
    struct Fake {
        flushes_left: AtomicU64,
        written: AtomicU64,
    }

    impl Fake {
        fn new(flushes_left: u64) -> Self {
            Self { flushes_left: AtomicU64::new(flushes_left), written: AtomicU64::new(0) }
        }
    }

    impl Storage for Fake {
        fn len(&self) -> ByteLength {
            ByteLength::new(1 << 40)
        }

        fn read_at(&self, _: ByteOffset, buffer: &mut [u8], _: Patience) -> Result<(), StorageError> {
            buffer.fill(1);
            Ok(())
        }
    }

    impl WritableStorage for Fake {
        fn write_at(&self, _: ByteOffset, data: &[u8]) -> Result<(), StorageError> {
            self.written.fetch_add(ByteLength::of(data).get(), Ordering::Relaxed);
            Ok(())
        }

        fn set_len(&self, _: ByteLength) -> Result<(), StorageError> {
            Ok(())
        }

        fn punch(&self, _: ByteRange) -> Result<(), StorageError> {
            Ok(())
        }

        fn flush(&self) -> Result<(), StorageError> {
            let left = self.flushes_left.load(Ordering::Relaxed).checked_sub(1);
            let source = io::Error::from_raw_os_error(5);
            let left = left.ok_or(StorageError::Write { at: ByteOffset::ZERO, source })?;
            self.flushes_left.store(left, Ordering::Relaxed);
            Ok(())
        }
    }

    const BATCH: Run = Run { layer: LayerIndex::BASE, from: 0, to: 0, length: FLUSH_BYTES };

    fn image() -> MemoryDevice {
        let bytes = vec![1; BUFFER_BYTES * 2];
        MemoryDevice::with_contents(bytes, LogicalBlockSize::B512, Access::ReadOnly).unwrap()
    }

    #[test]
    fn what_only_the_image_can_read_is_copied_with_the_rest() {
        let (source, target, image, watch) = (Fake::new(0), Fake::new(0), image(), Watch::default());
        let mut copier = Copier::new(&target, None, [&source as &dyn Storage], &image, &watch);
        let read = Run { from: 512, length: BUFFER_BYTES as u64 + 512, ..BATCH };
        let moved = copier
            .copy(&[Task::Run(read, Way::Image), Task::Run(Run { length: 512, ..BATCH }, Way::Memory)], &[])
            .unwrap();
        assert_eq!(moved.copied_bytes, BUFFER_BYTES as u64 + 1024);
        let behind = Run { from: 2 * BUFFER_BYTES as u64, length: 512, ..BATCH };
        let result = copier.copy(&[Task::Run(behind, Way::Image)], &[]);
        assert!(matches!(result, Err(MoveError::Image(_))), "{result:?}");
    }

    #[test]
    fn what_was_copied_is_flushed_while_more_is_copied() {
        let (source, target, image, watch) = (Fake::new(0), Fake::new(10), image(), Watch::default());
        let mut copier = Copier::new(&target, None, [&source as &dyn Storage], &image, &watch);
        for batch in 0..4 {
            let run = Run { to: batch * FLUSH_BYTES, ..BATCH };
            let halves = run.pieces(FLUSH_BYTES / 2).map(|half| Task::Run(half, Way::Memory));
            let moved = copier.copy(&halves.collect::<Vec<_>>(), &[]).unwrap();
            assert_eq!(moved.copied_bytes, FLUSH_BYTES);
            assert_eq!(target.flushes_left.load(Ordering::Relaxed), 10 - batch, "of the batches before");
        }
        assert_eq!(target.written.load(Ordering::Relaxed), 4 * FLUSH_BYTES);
    }

    #[test]
    fn flush_that_fails_on_the_way_is_an_error() {
        let (source, target, image, watch) = (Fake::new(0), Fake::new(0), image(), Watch::default());
        let mut copier = Copier::new(&target, None, [&source as &dyn Storage], &image, &watch);
        copier.copy(&[Task::Run(BATCH, Way::Memory)], &[]).unwrap();
        let next = Run { to: FLUSH_BYTES, length: 4096, ..BATCH };
        let result = copier.copy(&[Task::Run(next, Way::Memory)], &[]);
        assert!(matches!(result, Err(MoveError::Target(StorageError::Write { .. }))), "{result:?}");
        // One piece after the other in memory, it is the same.
        copier.copy(&[Task::Run(BATCH, Way::Memory)], &[]).unwrap();
        let result = copier.write_new(FLUSH_BYTES, &[1]);
        assert!(matches!(result, Err(MoveError::Target(_))), "{result:?}");
    }
}
