//! Making a new image of a source.
use std::fs::{File, Metadata};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use block::{BlockDevice, ByteLength, ByteOffset, Patience};

use super::compare::{CompareError, CompareOptions, compare};
use super::error::OpError;
use super::filler::Filler;
use super::mover::{Moved, Mover};
use super::partial::{Partial, Replace, directory_of, is_same_file};
use super::plan::{Block, Blocks, Plan, Totals, shared_bytes};
use super::shape::Shape;
use super::trial::{Route, Trials};
use super::view::{Content, Piece, View};
use super::zeros::{FindZeros, GRAIN_BYTES, is_zero};
use crate::image::{Image, OpenOptions};
use crate::new_image::{self, NewImage, NewImageSpec, NewPlace};
use crate::storage::{CrashStorage, MemoryStorage, StorageError, WritableStorage};
use crate::watch::{Cancelled, Watch};

/// What is read at once to find out how far zeros reach.
const PROBE_BYTES: usize = 256 << 10;

/// A new image to be made.
#[derive(Debug)]
pub struct Job<'a> {
    pub(super) image: &'a Image,
    /// Where given, what this layer and those below it hold is left to the parent.
    pub(super) floor: Option<crate::LayerIndex>,
    pub(super) spec: NewImageSpec,
    pub(super) target: PathBuf,
    pub(super) replace: Replace,
    /// Whether the target may be a file of the source.
    pub(super) in_place: bool,
    /// Where zeros that are stored are looked for.
    pub(super) zeros: FindZeros,
    /// Whether the new image is read back and compared with the source.
    pub(super) verify: bool,
    /// How the new image is opened to be verified.
    pub(super) reopen: OpenOptions,
}

/// What a job has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// How its bytes were moved.
    pub moved: Moved,
    /// What became of its payload blocks.
    pub blocks: Blocks,
    /// Whether a process that was killed had left an unfinished file of the same target, which was removed.
    pub removed_leftover: bool,
}

/// What a visitor of all blocks says to one of them.
type Visit<'v> = &'v mut dyn FnMut(Block<'_>) -> Result<(), OpError>;

impl Job<'_> {
    /// What [`run`](Self::run) would do. Reads the source's tables, and tries in the target's folder what the file
    /// system there can do; makes nothing.
    ///
    /// # Errors
    /// [`OpError`].
    pub fn plan(&self) -> Result<Plan, OpError> {
        self.check_target()?;
        let trials = Trials::new(Some(directory_of(&self.target)));
        let layers = self.image.layers();
        let routes = layers.iter().map(|file| {
            let storage = self.image.layer_storage(file.layer);
            storage.and_then(|storage| storage.file()).map_or(Route::ReadWrite, |file| trials.route(file))
        });
        let routes: Vec<_> = routes.collect();
        // Begun in memory, the new image tells its unit; and a dry run, too, learns what the format cannot be.
        let scratch = CrashStorage::new(MemoryStorage::default());
        let new = new_image::create(Box::new(scratch), &self.spec).map_err(|e| self.target_error(e))?;
        let unit = new.payload_block().get();
        let mut plan = Plan {
            target: self.target.clone(),
            format: self.spec.format,
            subtype: self.spec.subtype,
            virtual_size: self.spec.virtual_size,
            payload_block: ByteLength::new(unit),
            steps: Vec::new(),
            steps_left_out: 0,
            totals: Totals::default(),
            blocks: Blocks::default(),
        };
        self.visit(unit, &mut |block| {
            plan.take(block, |layer| match routes.get(usize::from(layer.get())) {
                Some(Route::Share { unit_bytes }) => Some(*unit_bytes),
                _ => None,
            });
            Ok(())
        })?;
        Ok(plan)
    }

    /// Makes the new image.
    ///
    /// # Errors
    /// [`OpError`]. Nothing is left of the target then, and the sources are as they were.
    pub fn run(self, watch: &Watch) -> Result<Summary, OpError> {
        self.check_target()?;
        let (partial, storage) = Partial::create(&self.target, self.replace)?;
        let storage: Arc<dyn WritableStorage> = Arc::new(storage);
        let summary = self.fill(&storage, Some(directory_of(partial.path())), watch)?;
        if self.verify {
            self.verify(partial.path(), watch)?;
        }
        watch.advance(0)?;
        let removed_leftover = partial.removed_leftover();
        partial.swap_in()?;
        Ok(Summary { removed_leftover, ..summary })
    }

    /// Makes the new image in a storage, which lies in `directory` if it has a name.
    pub(super) fn fill(
        &self,
        storage: &Arc<dyn WritableStorage>,
        directory: Option<&Path>,
        watch: &Watch,
    ) -> Result<Summary, OpError> {
        let mut new =
            new_image::create(Box::new(Arc::clone(storage)), &self.spec).map_err(|e| self.target_error(e))?;
        let unit = new.payload_block().get();
        self.visit(unit, &mut |block| {
            watch.expect(block.pieces.iter().filter(|piece| piece.is_data()).map(|piece| piece.length).sum());
            Ok(watch.advance(0)?)
        })?;
        let layers = self.image.layers();
        let sources = layers.iter().filter_map(|file| self.image.layer_storage(file.layer));
        let mut filler = Filler::new(
            self.image,
            Mover::new(&**storage, directory, sources, self.image, self.zeros, watch),
        );
        let mut blocks = Blocks::default();
        let mut pieces = Vec::new();
        self.visit(unit, &mut |block| {
            self.without_zeros(block, filler.mover(), watch, &mut pieces)?;
            let shape = Shape::of(&pieces, block.start, unit, self.spec.logical_block.bytes());
            blocks.count(&shape);
            let Some(to) = self.place(&mut *new, block.index, &shape)? else { return Ok(()) };
            filler
                .block(&pieces, block.start, to.at.get(), &to.lead)
                .map_err(|error| self.moving_error(error))
        })?;
        filler.mover().settle().map_err(|error| self.moving_error(error))?;
        self.check_sources()?;
        let moved = filler.mover().moved();
        new.finish().map_err(|error| self.target_error(error))?;
        Ok(Summary { moved, blocks, removed_leftover: false })
    }

    /// Refuses a source that somebody cut short: what is behind its end now passed for a hole, where it was not read.
    fn check_sources(&self) -> Result<(), OpError> {
        for layer in self.image.layers() {
            let Some(storage) = self.image.layer_storage(layer.layer) else { continue };
            let metadata = storage.file().and_then(|file| file.metadata().ok()).filter(Metadata::is_file);
            let lost =
                metadata.and_then(|now| Some((now.len(), storage.len().get().checked_sub(now.len())?)));
            if let Some((len, lost)) = lost.filter(|&(_, lost)| lost > 0) {
                let wanted = usize::try_from(lost).unwrap_or(usize::MAX);
                let source = StorageError::EndOfFile { at: ByteOffset::new(len), wanted, len };
                return Err(OpError::SourceFile { path: layer.path.unwrap_or_default(), source });
            }
        }
        Ok(())
    }

    /// Gives the block its place, if it needs one.
    fn place(&self, new: &mut dyn NewImage, block: u64, shape: &Shape) -> Result<Option<NewPlace>, OpError> {
        match shape {
            Shape::Absent => Ok(None),
            Shape::Zero => new.zero(block).map(|()| None),
            Shape::Whole => new.place_with_lead(block, None).map(Some),
            Shape::Partly(held) => new.place_with_lead(block, Some(held)).map(Some),
        }
        .map_err(|error| self.target_error(error))
    }

    fn target_error(&self, source: crate::NewImageError) -> OpError {
        OpError::Target { path: self.target.clone(), source }
    }

    fn moving_error(&self, error: super::mover::MoveError) -> OpError {
        OpError::moving(self.image, &self.target, error)
    }

    /// Calls `visit` for each payload block of `unit` bytes.
    fn visit(&self, unit: u64, visit: Visit<'_>) -> Result<(), OpError> {
        let mut view = match self.floor {
            Some(floor) => View::above(self.image, floor),
            None => View::of(self.image),
        };
        let size = self.spec.virtual_size.get();
        let sector = self.spec.logical_block.bytes();
        let mut pieces = Vec::new();
        for index in 0..size.div_ceil(unit.max(1)) {
            let start = index.saturating_mul(unit);
            let end = start.saturating_add(unit).min(size);
            let known = end.min(view.size());
            view.pieces(start.min(known), known, &mut pieces)
                .map_err(|error| OpError::reading(self.image, error))?;
            if known < end {
                // The new disk is longer than its source.
                let from = known.max(start);
                let length = end.saturating_sub(from);
                pieces.push(Piece { start: from, length, content: Content::Zero });
            }
            let shape = Shape::of(&pieces, start, unit, sector);
            visit(Block { index, start, pieces: &pieces, shape: &shape })?;
        }
        Ok(())
    }

    /// Puts the block's pieces into `pieces`, the zeros with which stored data begins as pieces of their own where
    /// they are to be found: a block of nothing but zeros needs no place. (Zeros further on are found when they are
    /// copied, in memory that is then read already.)
    fn without_zeros(
        &self,
        block: Block<'_>,
        mover: &mut Mover<'_>,
        watch: &Watch,
        pieces: &mut Vec<Piece>,
    ) -> Result<(), OpError> {
        pieces.clear();
        let mut has_data = false;
        for piece in block.pieces {
            let is_shared = is_shared(*piece, block.start, mover);
            let looks = match self.zeros {
                FindZeros::Nowhere => false,
                // A block that has its place for something else: zeros further on are found when they are copied.
                _ if has_data && !is_shared => false,
                FindZeros::WhereCopied => piece.is_data() && !is_shared,
                FindZeros::Everywhere => piece.is_data(),
            };
            let zeros = if looks { self.leading_zeros(*piece, watch)? } else { 0 };
            has_data |= piece.is_data() && zeros < piece.length;
            mover.skip(zeros).map_err(|error| self.moving_error(error))?;
            let zeros_end = piece.start.saturating_add(zeros);
            let found = piece.clip(piece.start, zeros_end);
            pieces.extend(found.map(|found| Piece { content: Content::Zero, ..found }));
            pieces.extend(piece.clip(zeros_end, piece.end()));
        }
        Ok(())
    }

    /// How many of the piece's first bytes are zeros, in whole grains.
    fn leading_zeros(&self, piece: Piece, watch: &Watch) -> Result<u64, OpError> {
        let mut at = piece.start;
        let mut buffer = Vec::new();
        while at < piece.end() {
            // Most data has none: a grain tells that as well as much.
            let most = if at == piece.start { GRAIN_BYTES } else { PROBE_BYTES };
            let left = piece.end().saturating_sub(at);
            buffer.resize(usize::try_from(left).map_or(most, |left| left.min(most)), 0);
            watch.advance(0)?;
            let read = self.image.read(ByteOffset::new(at), &mut buffer, Patience::Blocking);
            read.map_err(|error| OpError::reading(self.image, error))?;
            let grains = buffer.chunks(GRAIN_BYTES).take_while(|grain| is_zero(grain));
            let zeros: usize = grains.map(<[u8]>::len).sum();
            at = at.saturating_add(u64::try_from(zeros).unwrap_or_default());
            if zeros < buffer.len() {
                break;
            }
        }
        Ok(at.saturating_sub(piece.start))
    }

    /// Refuses a target that is a file of the source.
    fn check_target(&self) -> Result<(), OpError> {
        let Ok(target) = self.target.metadata() else { return Ok(()) };
        let is_target = |file: &Arc<File>| file.metadata().is_ok_and(|file| is_same_file(&file, &target));
        let layers = self.image.layers();
        let mut storages = layers.iter().filter_map(|file| self.image.layer_storage(file.layer));
        if !self.in_place && storages.any(|storage| storage.file().is_some_and(is_target)) {
            return Err(OpError::IsSource { path: self.target.clone() });
        }
        Ok(())
    }

    fn verify(&self, path: &Path, watch: &Watch) -> Result<(), OpError> {
        let mut options = Clone::clone(&self.reopen);
        options.format = Some(self.spec.format);
        let new = Image::open(path, options)?;
        let options = CompareOptions { stop_at_first: true, ..CompareOptions::default() };
        let result = compare(self.image, &new, &options, watch).map_err(|error| match error {
            CompareError::Cancelled(Cancelled) => OpError::Cancelled(Cancelled),
            CompareError::First(source) => OpError::reading(self.image, source),
            CompareError::Second(source) => OpError::Source { path: path.into(), source },
        })?;
        match result.first_difference {
            None => Ok(()),
            Some(at) => Err(OpError::Differs { path: self.target.clone(), at }),
        }
    }
}

/// Whether the new image will share extents of the piece's file, and so nobody reads it on the way.
fn is_shared(piece: Piece, block_start: u64, mover: &Mover<'_>) -> bool {
    match piece.content {
        Content::File { layer, at } => {
            mover.shares(layer).is_some_and(|unit| shared_bytes(piece, at, block_start, unit) > 0)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::atomic::{AtomicU64, Ordering};

    use block::ByteRange;

    use super::super::convert::{ConvertOptions, convert};
    use super::*;
    use crate::format::Format;
    use crate::storage::{Storage, StorageError};

    /// A file that takes so many changes and no more.
    #[derive(Debug)]
    struct FailingStorage {
        inner: CrashStorage,
        left: AtomicU64,
    }

    impl FailingStorage {
        fn new(left: u64) -> Arc<Self> {
            let inner = CrashStorage::new(MemoryStorage::default());
            Arc::new(Self { inner, left: AtomicU64::new(left) })
        }

        fn change(&self, at: ByteOffset) -> Result<(), StorageError> {
            let left =
                self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
            let source = io::Error::from(io::ErrorKind::StorageFull);
            left.map(|_| ()).map_err(|_| StorageError::Write { at, source })
        }
    }

    impl Storage for FailingStorage {
        fn len(&self) -> ByteLength {
            self.inner.len()
        }

        fn read_at(&self, at: ByteOffset, buffer: &mut [u8], patience: Patience) -> Result<(), StorageError> {
            self.inner.read_at(at, buffer, patience)
        }
    }

    impl WritableStorage for FailingStorage {
        fn write_at(&self, at: ByteOffset, data: &[u8]) -> Result<(), StorageError> {
            self.change(at)?;
            self.inner.write_at(at, data)
        }

        fn set_len(&self, len: ByteLength) -> Result<(), StorageError> {
            self.change(ByteOffset::new(len.get()))?;
            self.inner.set_len(len)
        }

        fn punch(&self, range: ByteRange) -> Result<(), StorageError> {
            self.change(range.start())?;
            self.inner.punch(range)
        }

        fn flush(&self) -> Result<(), StorageError> {
            self.change(ByteOffset::ZERO)?;
            self.inner.flush()
        }
    }

    #[test]
    fn file_that_fails_at_any_change_is_an_error_and_no_image() {
        let mut disk = vec![0; 7 << 20];
        for at in [512, (1 << 20) + 5, 3 << 20, (7 << 20) - 1] {
            disk[at] = 1;
        }
        let options = OpenOptions { format: Some(Format::Raw), ..OpenOptions::default() };
        let source = Image::from_storage(Box::new(MemoryStorage::new(&disk)), options).unwrap();
        for format in [Format::Vhd, Format::Vhdx] {
            let job = convert(&source, Path::new("new"), &ConvertOptions::to(format)).unwrap();
            let whole = (0..).find(|&changes| {
                let storage = FailingStorage::new(changes);
                let target: Arc<dyn WritableStorage> = storage.clone();
                let result = job.fill(&target, None, &Watch::default());
                let is_whole = |new: Image| {
                    let same = compare(&source, &new, &CompareOptions::default(), &Watch::default());
                    same.unwrap().is_same()
                };
                let options = OpenOptions { format: Some(format), ..OpenOptions::default() };
                let opened = Image::from_storage(Box::new(storage.inner.now()), options);
                match result {
                    Ok(_) => {
                        assert!(is_whole(opened.unwrap()));
                        true
                    }
                    Err(error) => {
                        assert!(matches!(error, OpError::Target { .. }), "{error:?}");
                        // Once the mark is gone, only the flush behind it can fail.
                        assert!(opened.is_err() || is_whole(opened.unwrap()), "{format}, {changes} changes");
                        false
                    }
                }
            });
            assert!(whole.is_some_and(|changes| changes > 8), "{whole:?}");
        }
    }
}
