//! Writing into dynamic and differencing images.
//!
//! What reads and writes of data need is in memory, behind a lock that they share; whoever changes it takes the lock
//! for itself, and keeps it while the file is changed accordingly. A block that is full and stays is written by as
//! many threads as like.
use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};

use block::{
    Access, Allocation, BlockError, ByteLength, ByteOffset, ByteRange, Geometry, LogicalBlockSize, Patience,
};

use super::bitmaps::{Bitmaps, SectorBits, sectors};
use super::creator_of;
use super::pieces::{Piece, pieces};
use super::space::{NoPlace, Space, punch};
use crate::bitmap::{BitOrder, Bitmap, Run, Scratch};
use crate::error::ResolveError;
use crate::format::Format;
use crate::image::{Info, Subtype};
use crate::mutable::{Below, EditError, Writer, Zeroing};
use crate::new_image::ParentLink;
use crate::storage::{StorageError, WritableStorage};
use crate::vhd::file_map::{Claim, FileMap};
use crate::vhd::footer::FooterBytes;
use crate::vhd::shape::{BlockPlace, BlockShape};
use crate::vhd::{BlockTable, DynamicHeader, Footer, SECTOR_BYTES};

/// A dynamic or differencing image.
#[derive(Debug)]
pub(super) struct SparseWriter {
    pub(super) storage: Box<dyn WritableStorage>,
    pub(super) below: Below,
    pub(super) geometry: Geometry,
    pub(super) footer: Footer,
    pub(super) header: DynamicHeader,
    pub(super) shape: BlockShape,
    block_bytes: NonZeroU64,
    /// How large the disk is; `geometry` goes on saying how large it was when it was opened.
    bytes: AtomicU64,
    /// Blocks whose bitmap misses no sector of the disk, one bit each.
    full: Box<[AtomicU64]>,
    state: RwLock<State>,
}

/// What writes change.
#[derive(Debug)]
pub(super) struct State {
    pub(super) table: BlockTable,
    /// Where the table stands.
    pub(super) table_at: u64,
    /// What the structures of the file take.
    pub(super) structures: Vec<Claim>,
    bitmaps: Bitmaps,
    pub(super) space: Space,
    /// Blocks whose entry in the file is not the one in `table`.
    changed_entries: BTreeSet<u32>,
    /// Places that the file's table may still name, and `table` does not.
    retired: Vec<BlockPlace>,
    /// Whether entries are written and not known to be flushed: the file then may name what `changed_entries` has.
    is_in_doubt: bool,
}

/// Where a run of a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In the file, from here on.
    File(u64),
    /// Not in this file: zeros, or the parent's.
    Missing,
}

impl SparseWriter {
    /// The writer of the file that `map` takes apart, whose footer has these bytes and stands at `footer_at`.
    pub(super) fn new(
        storage: Box<dyn WritableStorage>,
        below: Below,
        map: FileMap,
        footer_at: u64,
        bytes: FooterBytes,
    ) -> Self {
        let geometry = Geometry {
            size: ByteLength::new(map.virtual_bytes),
            logical_block: LogicalBlockSize::B512,
            physical_block: 512,
            // What file systems give back inside a block.
            discard_granularity: Some(4096),
            access: Access::ReadWrite,
        };
        let words = usize::try_from(map.table.len()).unwrap_or_default().div_ceil(64);
        let structures = map.structures();
        let table_at = map.header.table_offset;
        let space = Space::new(map.shape, map.used_end(), footer_at, bytes);
        Self {
            storage,
            below,
            geometry,
            shape: map.shape,
            block_bytes: NonZeroU64::new(map.shape.data_bytes).unwrap_or(NonZeroU64::MIN),
            bytes: AtomicU64::new(map.virtual_bytes),
            full: (0..words).map(|_| AtomicU64::new(0)).collect(),
            footer: map.footer,
            header: map.header,
            state: RwLock::new(State {
                table: map.table,
                table_at,
                structures,
                bitmaps: Bitmaps::default(),
                space,
                changed_entries: BTreeSet::new(),
                retired: Vec::new(),
                is_in_doubt: false,
            }),
        }
    }

    fn shared(&self, patience: Patience) -> Result<RwLockReadGuard<'_, State>, BlockError> {
        match patience {
            Patience::Blocking => Ok(self.state.read().unwrap_or_else(PoisonError::into_inner)),
            Patience::Now => match self.state.try_read() {
                Ok(state) => Ok(state),
                Err(TryLockError::Poisoned(error)) => Ok(error.into_inner()),
                Err(TryLockError::WouldBlock) => Err(BlockError::WouldBlock),
            },
        }
    }

    pub(super) fn alone(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn on<T>(&self, result: Result<T, StorageError>, range: ByteRange) -> Result<T, BlockError> {
        result.map_err(|error| ResolveError::from(error).on(range))
    }

    /// How much of the disk lies in `block`.
    pub(super) fn used_bytes(&self, block: u32) -> u64 {
        let start = u64::from(block).saturating_mul(self.shape.data_bytes);
        self.bytes.load(Ordering::Acquire).saturating_sub(start).min(self.shape.data_bytes)
    }

    /// The piece as a range of the disk.
    fn range_of(&self, piece: Piece) -> ByteRange {
        let start = u64::from(piece.block).saturating_mul(self.shape.data_bytes).saturating_add(piece.within);
        let range = ByteRange::new(ByteOffset::new(start), ByteLength::new(piece.length));
        // Pieces are cut from ranges of the disk.
        range.unwrap_or_else(|| self.whole())
    }

    fn whole(&self) -> ByteRange {
        ByteRange::from_start(self.geometry.size)
    }

    fn full_bit(&self, block: u32) -> Option<(&AtomicU64, u64)> {
        let word = usize::try_from(block / 64).ok().and_then(|word| self.full.get(word))?;
        Some((word, 1_u64.checked_shl(block % 64)?))
    }

    fn is_full(&self, block: u32) -> bool {
        self.full_bit(block).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
    }

    pub(super) fn set_full(&self, block: u32, is_full: bool) {
        match self.full_bit(block) {
            Some((word, bit)) if is_full => word.fetch_or(bit, Ordering::Relaxed),
            Some((word, bit)) => word.fetch_and(!bit, Ordering::Relaxed),
            None => 0,
        };
    }

    pub(super) fn place_of(&self, state: &State, block: u32) -> Option<BlockPlace> {
        state.table.get(block).map(|sector| self.shape.at_sector(sector))
    }

    /// Where the piece begins to be, and for how many bytes.
    fn resolve(
        &self,
        state: &State,
        piece: Piece,
        patience: Patience,
        scratch: &mut Scratch,
    ) -> Result<(Place, u64), StorageError> {
        let Some(place) = self.place_of(state, piece.block) else {
            return Ok((Place::Missing, piece.length));
        };
        let in_file = Place::File(place.data_at.saturating_add(piece.within));
        if self.is_full(piece.block) {
            return Ok((in_file, piece.length));
        }
        let run = match state.bitmaps.get(piece.block) {
            Some(bits) => bits.run(sectors(piece.within)),
            None => {
                let bitmap =
                    Bitmap { at: place.bitmap_at, bytes: self.shape.bitmap_bytes, order: BitOrder::Msb };
                bitmap.run(sectors(piece.within), &*self.storage, patience, scratch)?
            }
        };
        let Run { held, sectors: count } = run;
        if held && piece.within == 0 && count.saturating_mul(SECTOR_BYTES) >= self.used_bytes(piece.block) {
            self.set_full(piece.block, true);
        }
        let length = count.saturating_mul(SECTOR_BYTES).min(piece.length);
        Ok((if held { in_file } else { Place::Missing }, length))
    }

    /// Calls `visit` for each run of the piece, with where it is.
    fn each_run(
        &self,
        state: &State,
        piece: Piece,
        patience: Patience,
        visit: &mut dyn FnMut(Piece, Place) -> Result<(), BlockError>,
    ) -> Result<(), BlockError> {
        let mut scratch = Scratch::default();
        let mut left = Some(piece);
        while let Some(piece) = left {
            let resolved = self.resolve(state, piece, patience, &mut scratch);
            let range = self.range_of(piece);
            let (place, length) = self.on(resolved, range)?;
            visit(Piece { length, ..piece }, place)?;
            left = piece.behind(length);
        }
        Ok(())
    }

    /// Whether all of the piece is in the file, as far as memory tells.
    fn is_held(&self, state: &State, piece: Piece) -> bool {
        self.is_full(piece.block)
            || state
                .bitmaps
                .get(piece.block)
                .is_some_and(|bits| bits.holds(sectors(piece.within), sectors(piece.length)))
    }

    /// Writes into a block that holds all of the piece already; `false` if it does not.
    fn write_held(&self, piece: Piece, data: &[u8]) -> Result<bool, StorageError> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        match self.place_of(&state, piece.block) {
            Some(place) if self.is_held(&state, piece) => {
                self.storage.write_at(ByteOffset::new(place.data_at.saturating_add(piece.within)), data)?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Writes into a block that gets a place, or gains sectors.
    fn write_new(&self, state: &mut State, piece: Piece, data: &[u8]) -> Result<(), NoPlace> {
        let place = self.prepare(state, piece.block)?;
        self.storage.write_at(ByteOffset::new(place.data_at.saturating_add(piece.within)), data)?;
        self.hold(state, piece);
        Ok(())
    }

    /// Notes that the piece is in the file now.
    fn hold(&self, state: &mut State, piece: Piece) {
        let used = sectors(self.used_bytes(piece.block));
        if let Some(bits) = state.bitmaps.get_mut(piece.block) {
            bits.hold(sectors(piece.within), sectors(piece.length));
            if bits.holds(0, used) {
                self.set_full(piece.block, true);
            }
        }
    }

    /// Gives `block` a place, if it has none, and has its bitmap in memory.
    fn prepare(&self, state: &mut State, block: u32) -> Result<BlockPlace, NoPlace> {
        if state.bitmaps.is_over_limit(self.shape.bitmap_bytes) {
            self.commit(state)?;
            state.bitmaps.forget_settled();
        }
        if let Some(place) = self.place_of(state, block) {
            if state.bitmaps.get(block).is_none() {
                let mut bytes = vec![0; usize::try_from(self.shape.bitmap_bytes).unwrap_or_default()];
                self.storage.read_at(ByteOffset::new(place.bitmap_at), &mut bytes, Patience::Blocking)?;
                state.bitmaps.put(block, SectorBits::of(bytes));
            }
            return Ok(place);
        }
        let (place, sector) = state.space.take(&*self.storage)?;
        // Without a parent a new block is as good as written all over: its place reads as zeros.
        let is_whole = !self.below.is_some();
        state.bitmaps.put(block, SectorBits::new(self.shape.bitmap_bytes, is_whole));
        self.set_full(block, is_whole);
        state.table.set(block, Some(sector));
        state.changed_entries.insert(block);
        Ok(place)
    }

    /// Takes a block's place away, so that it reads as zeros.
    pub(super) fn unallocate(&self, state: &mut State, block: u32) -> Result<(), StorageError> {
        let Some(place) = self.place_of(state, block) else { return Ok(()) };
        state.table.set(block, None);
        state.bitmaps.remove(block);
        self.set_full(block, false);
        // The entry has changed before: the file's table names another place, or none.
        let is_unknown_to_file = !state.changed_entries.insert(block) && !state.is_in_doubt;
        if is_unknown_to_file {
            return state.space.give_back(&*self.storage, place);
        }
        state.retired.push(place);
        Ok(())
    }

    /// Brings the file up to what memory knows. See [`super`] for the order.
    pub(super) fn commit(&self, state: &mut State) -> Result<(), StorageError> {
        if state.is_in_doubt {
            // The second step failed before: the file may name blocks that count as new here.
            self.storage.flush()?;
        }
        self.write_bitmaps(state, true)?;
        self.storage.flush()?;
        state.is_in_doubt = true;
        self.write_bitmaps(state, false)?;
        self.write_entries(state)?;
        self.storage.flush()?;
        state.is_in_doubt = false;
        state.changed_entries.clear();
        state.bitmaps.settle();
        for place in std::mem::take(&mut state.retired) {
            state.space.give_back(&*self.storage, place)?;
        }
        Ok(())
    }

    /// Behind the last byte that anything has.
    fn used_end(&self, state: &State) -> u64 {
        let blocks = state.table.placed().map(|(_, sector)| self.shape.at_sector(sector).end);
        blocks.chain(state.structures.iter().map(|claim| claim.end)).max().unwrap_or_default()
    }

    /// Writes the bitmaps that have changed: of blocks that are new to the file's table, or of the others.
    fn write_bitmaps(&self, state: &State, of_new: bool) -> Result<(), StorageError> {
        for (block, bits) in state.bitmaps.changed() {
            if state.changed_entries.contains(&block) == of_new
                && let Some(place) = self.place_of(state, block)
            {
                self.storage.write_at(ByteOffset::new(place.bitmap_at), bits.bytes())?;
            }
        }
        Ok(())
    }

    /// Writes the entries that have changed, neighbours in one go.
    fn write_entries(&self, state: &State) -> Result<(), StorageError> {
        let mut run: Option<(u64, Vec<u8>)> = None;
        for &block in &state.changed_entries {
            let (at, entry) = state.table.entry_bytes(block);
            match &mut run {
                Some((start, bytes))
                    if start.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX)) == at =>
                {
                    bytes.extend_from_slice(&entry);
                }
                _ => {
                    self.write_run(state, run.take())?;
                    run = Some((at, entry.to_vec()));
                }
            }
        }
        self.write_run(state, run)
    }

    fn write_run(&self, state: &State, run: Option<(u64, Vec<u8>)>) -> Result<(), StorageError> {
        let Some((at, bytes)) = run else { return Ok(()) };
        self.storage.write_at(ByteOffset::new(state.table_at.saturating_add(at)), &bytes)
    }

    /// Makes a piece zeros in an image without a parent.
    fn zero_dynamic(&self, piece: Piece) -> Result<(), StorageError> {
        let is_whole = piece.within == 0 && piece.length == self.used_bytes(piece.block);
        if is_whole {
            return self.unallocate(&mut self.alone(), piece.block);
        }
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        // Sectors that the block does not hold read as zeros already.
        match self.place_of(&state, piece.block) {
            Some(place) => punch(&*self.storage, place.data_at.saturating_add(piece.within), piece.length),
            None => Ok(()),
        }
    }

    /// Makes what a differencing image itself holds of a piece zeros: where the parent shows through, it goes on.
    fn discard_held(&self, piece: Piece) -> Result<(), BlockError> {
        let state = self.shared(Patience::Blocking)?;
        self.each_run(&state, piece, Patience::Blocking, &mut |run, place| match place {
            Place::File(at) => {
                let range = self.range_of(run);
                self.on(punch(&*self.storage, at, run.length), range)
            }
            Place::Missing => Ok(()),
        })
    }

    /// Makes a piece zeros in a differencing image, whatever the parent holds.
    fn zero_over_parent(&self, piece: Piece) -> Result<(), BlockError> {
        if self.is_held(&*self.shared(Patience::Blocking)?, piece) {
            return self.discard_held(piece);
        }
        self.hide_parent(&mut self.alone(), piece)
    }

    /// As [`zero_over_parent`](Self::zero_over_parent), with the lock.
    pub(super) fn hide_parent(&self, state: &mut State, piece: Piece) -> Result<(), BlockError> {
        let range = self.range_of(piece);
        if self.place_of(state, piece.block).is_none() && self.is_hole_below(range)? {
            return Ok(());
        }
        let place = self.prepare(state, piece.block).map_err(|error| no_place(error, range))?;
        let at = place.data_at.saturating_add(piece.within);
        self.on(punch(&*self.storage, at, piece.length), range)?;
        self.hold(state, piece);
        Ok(())
    }

    /// Notes that the disk has another size.
    pub(super) fn set_bytes(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Release);
    }

    /// The parts of a range of the disk.
    pub(super) fn pieces(&self, range: ByteRange) -> impl Iterator<Item = Piece> + use<> {
        pieces(range, self.block_bytes)
    }

    fn is_hole_below(&self, range: ByteRange) -> Result<bool, BlockError> {
        let (allocation, length) = self.below.allocation(range, Patience::Blocking)?;
        Ok(allocation == Allocation::Hole && length == range.length())
    }
}

fn no_place(error: NoPlace, range: ByteRange) -> BlockError {
    match error {
        NoPlace::Storage(error) => ResolveError::from(error).on(range),
        NoPlace::BeyondTable => BlockError::NoSpace { what: error.to_string() },
    }
}

impl Writer for SparseWriter {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn info(&self) -> Info {
        Info {
            format: Format::Vhd,
            subtype: if self.below.is_some() { Subtype::Differencing } else { Subtype::Dynamic },
            virtual_size: self.geometry.size,
            logical_block: self.geometry.logical_block,
            physical_block: self.geometry.physical_block,
            payload_block: Some(ByteLength::new(self.shape.data_bytes)),
            file_size: self.storage.len(),
            allocated: self.storage.allocated(),
            identity: self.footer.unique_id.non_nil().map(crate::Guid::to_be_bytes),
            creator: creator_of(&self.footer),
            log_replayed: false,
        }
    }

    fn read(&self, range: ByteRange, buffer: &mut [u8], patience: Patience) -> Result<(), BlockError> {
        let state = self.shared(patience)?;
        let mut rest = buffer;
        for piece in pieces(range, self.block_bytes) {
            self.each_run(&state, piece, patience, &mut |run, place| {
                let length = usize::try_from(run.length).unwrap_or(usize::MAX).min(rest.len());
                let (part, behind) = std::mem::take(&mut rest).split_at_mut(length);
                rest = behind;
                let range = self.range_of(run);
                match place {
                    Place::File(at) => {
                        self.on(self.storage.read_at(ByteOffset::new(at), part, patience), range)
                    }
                    Place::Missing => self.below.read(range, part, patience),
                }
            })?;
        }
        Ok(())
    }

    fn write(&self, range: ByteRange, data: &[u8]) -> Result<(), BlockError> {
        let mut rest = data;
        for piece in pieces(range, self.block_bytes) {
            let length = usize::try_from(piece.length).unwrap_or(usize::MAX).min(rest.len());
            let (part, behind) = rest.split_at(length);
            rest = behind;
            if !self.on(self.write_held(piece, part), range)? {
                self.write_new(&mut self.alone(), piece, part).map_err(|error| no_place(error, range))?;
            }
        }
        Ok(())
    }

    fn zero(&self, range: ByteRange, zeroing: Zeroing) -> Result<(), BlockError> {
        for piece in pieces(range, self.block_bytes) {
            match (self.below.is_some(), zeroing) {
                (false, _) => self.on(self.zero_dynamic(piece), range)?,
                (true, Zeroing::Discard) => self.discard_held(piece)?,
                (true, Zeroing::Zeros) => self.zero_over_parent(piece)?,
            }
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), BlockError> {
        let mut state = self.alone();
        if state.is_settled() {
            drop(state);
            return self.on(self.storage.flush(), self.whole());
        }
        let committed = self.commit(&mut state);
        self.on(committed, self.whole())
    }

    fn allocation(
        &self,
        range: ByteRange,
        patience: Patience,
    ) -> Result<(Allocation, ByteLength), BlockError> {
        let state = self.shared(patience)?;
        let Some(piece) = pieces(range, self.block_bytes).next() else {
            return Ok((Allocation::Hole, range.length()));
        };
        let resolved = self.resolve(&state, piece, patience, &mut Scratch::default());
        let (place, length) = self.on(resolved, range)?;
        let run = ByteRange::new(range.start(), ByteLength::new(length)).unwrap_or(range);
        match place {
            Place::File(_) => Ok((Allocation::Data, run.length())),
            Place::Missing => self.below.allocation(run, patience),
        }
    }

    fn resize(&self, size: ByteLength) -> Result<(), EditError> {
        self.set_size(size)
    }

    fn relink(&self, link: &ParentLink) -> Result<(), EditError> {
        self.set_parent(link)
    }

    fn close(&self) -> Result<(), BlockError> {
        let mut state = self.alone();
        let end = self.used_end(&state);
        let closed = self.commit(&mut state).and_then(|()| state.space.trim(&*self.storage, end));
        self.on(closed, self.whole())
    }
}

impl State {
    /// Whether the file has all that memory knows.
    fn is_settled(&self) -> bool {
        self.changed_entries.is_empty() && self.retired.is_empty() && self.bitmaps.changed().next().is_none()
    }
}
