//! Writing into a VHDX file.
//!
//! # The theory
//! The tables (block allocation table, sector bitmaps) are changed in memory, payload goes to its place at once, and a
//! *commit* makes lasting what was done up to then: payload first, then all changed pages of the tables, through the
//! log ([`session`] has the order). A crash therefore leaves the tables of the last commit, and of the payload written
//! since then any part, in places that those tables do not show or where the same logical blocks were before. A flush
//! is a commit; an operation makes one itself when too many pages have changed.
//!
//! # Locks
//! One lock on the tables: reads share it, and so do writes to places that blocks have already; who changes tables
//! holds it alone. One on headers and log, which is held through a commit and taken before the other. A commit copies
//! the changed pages and lets go of the tables, so that reads and writes go on while it waits for the disk.
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError,
};

use block::{Access, Allocation, BlockError, ByteLength, ByteOffset, ByteRange, Geometry, Patience};

use super::Metadata;
use super::region::RegionTable;
use crate::error::{Refusal, ResolveError};
use crate::layer::readable;
use crate::mutable::{Below, EditError, Writer, Zeroing};
use crate::new_image::ParentLink;
use crate::storage::{Storage, StorageError, WritableStorage};
use crate::{Format, Info, Subtype};

mod change;
mod commit;
mod edit;
mod entry;
mod open;
mod pages;
mod session;
mod shape;
mod space;
mod tables;

pub(super) use open::replay_into;
pub(super) use session::{Session, Touched};

use super::layout::Part;
use change::Fill;
use commit::MAX_CHANGED_PAGES;
use shape::Shape;
use tables::{Lack, Piece, Tables};

/// A VHDX file, opened for writing.
#[derive(Debug)]
pub(crate) struct VhdxWriter {
    storage: Arc<dyn WritableStorage>,
    below: Below,
    creator: String,
    metadata: Metadata,
    geometry: Geometry,
    /// All of the disk.
    everything: ByteRange,
    regions: RegionTable,
    shape: Shape,
    tables: RwLock<Tables>,
    session: Mutex<Session>,
    /// Whether the headers say already that the contents will have changed.
    is_touched: AtomicBool,
    is_replayed: bool,
}

impl VhdxWriter {
    /// Opens the file in `storage`. `below` is its parent's contents, if it has a parent.
    pub(crate) fn open(storage: Box<dyn WritableStorage>, below: Below) -> Result<Self, Refusal> {
        let storage: Arc<dyn WritableStorage> = storage.into();
        let opened = open::open(&storage, &below)?;
        let metadata = opened.metadata;
        let size = ByteLength::new(metadata.virtual_bytes);
        let geometry = Geometry {
            size,
            logical_block: metadata.logical_block,
            // The contract wants a physical block to be at least a logical one; a file may say otherwise.
            physical_block: metadata.physical_block.max(metadata.logical_block_u32()),
            // What file systems give back of a block; a whole block is given up in the tables.
            discard_granularity: (!metadata.leave_blocks_allocated).then_some(4096),
            access: Access::ReadWrite,
        };
        Ok(Self {
            everything: ByteRange::new(ByteOffset::ZERO, size).ok_or(Refusal::Empty)?,
            storage,
            below,
            creator: opened.creator,
            metadata,
            geometry,
            regions: opened.regions,
            shape: opened.tables.shape,
            tables: RwLock::new(opened.tables),
            session: Mutex::new(opened.session),
            is_touched: AtomicBool::new(false),
            is_replayed: opened.is_replayed,
        })
    }

    // A panic of another thread cannot leave the tables half-changed: what may fail comes before what changes.
    fn tables(&self) -> RwLockReadGuard<'_, Tables> {
        self.tables.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn tables_mut(&self) -> RwLockWriteGuard<'_, Tables> {
        self.tables.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn session(&self) -> MutexGuard<'_, Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tables_with(&self, patience: Patience) -> Result<RwLockReadGuard<'_, Tables>, StorageError> {
        match (patience, self.tables.try_read()) {
            (_, Ok(tables)) => Ok(tables),
            (_, Err(TryLockError::Poisoned(tables))) => Ok(tables.into_inner()),
            (Patience::Now, Err(TryLockError::WouldBlock)) => Err(StorageError::WouldBlock),
            (Patience::Blocking, Err(TryLockError::WouldBlock)) => Ok(self.tables()),
        }
    }

    /// Brings a page into memory that a look at the tables has missed.
    fn load(&self, at: u64, patience: Patience) -> Result<(), StorageError> {
        let mut tables = match (patience, self.tables.try_write()) {
            (_, Ok(tables)) => tables,
            (_, Err(TryLockError::Poisoned(tables))) => tables.into_inner(),
            (Patience::Now, Err(TryLockError::WouldBlock)) => return Err(StorageError::WouldBlock),
            (Patience::Blocking, Err(TryLockError::WouldBlock)) => self.tables_mut(),
        };
        tables.load(at, &*self.storage, patience)
    }

    /// Calls `look` on the tables until it has all the pages that it needs.
    fn look<T>(
        &self,
        patience: Patience,
        look: impl Fn(&Tables) -> Result<T, Lack>,
    ) -> Result<(RwLockReadGuard<'_, Tables>, T), ResolveError> {
        loop {
            let tables = self.tables_with(patience)?;
            match look(&tables) {
                Ok(seen) => return Ok((tables, seen)),
                Err(Lack::Damaged(damage)) => return Err(damage.into()),
                Err(Lack::Page(at)) => {
                    drop(tables);
                    self.load(at, patience)?;
                }
            }
        }
    }

    /// Reads the run with which `range` begins, at most `buffer`, and says how long it is.
    fn read_piece(
        &self,
        range: ByteRange,
        buffer: &mut [u8],
        patience: Patience,
    ) -> Result<usize, BlockError> {
        let seen = self.look(patience, |tables| tables.piece(range));
        let (tables, (piece, length)) = seen.map_err(|error| error.on(range))?;
        let count = usize::try_from(length).unwrap_or(usize::MAX).min(buffer.len());
        let target = buffer.get_mut(..count).unwrap_or_default();
        match piece {
            Piece::Zero => target.fill(0),
            // With the lock: the place may not become another block's meanwhile.
            Piece::File(at) => {
                let read = self.storage.read_at(ByteOffset::new(at), target, patience);
                read.map_err(|error| ResolveError::from(error).on(range))?;
            }
            Piece::Parent => {
                drop(tables);
                self.below.read(range, target, patience)?;
            }
        }
        Ok(count)
    }

    /// Notes in the headers that the disk's contents change, before they do.
    fn touch(&self) -> Result<(), StorageError> {
        if !self.is_touched.load(Ordering::Acquire) {
            self.session().touch(Touched::Data, &*self.storage)?;
            self.is_touched.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Writes `data` to `part`, which begins `range`, if all of it has its place already.
    fn write_in_place(&self, range: ByteRange, part: Part, data: &[u8]) -> Result<bool, ResolveError> {
        let (_tables, (piece, length)) = self.look(Patience::Blocking, |tables| tables.piece(range))?;
        match piece {
            Piece::File(at) if length >= part.length => {
                self.storage.write_at(ByteOffset::new(at), data)?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    fn write_part(&self, range: ByteRange, part: Part, data: &[u8]) -> Result<(), ResolveError> {
        if !self.write_in_place(range, part, data)? {
            self.change(|tables, storage| tables.fill(part, Fill::Bytes(data), storage))?;
        }
        Ok(())
    }

    /// Makes a change of the tables, and a commit if there have been many.
    fn change(
        &self,
        change: impl FnOnce(&mut Tables, &dyn WritableStorage) -> Result<(), ResolveError>,
    ) -> Result<(), ResolveError> {
        let many = {
            let mut tables = self.tables_mut();
            tables.pages.trim();
            change(&mut tables, &*self.storage)?;
            tables.pages.changed() >= MAX_CHANGED_PAGES
        };
        if many {
            self.commit()?;
        }
        Ok(())
    }
}

impl Writer for VhdxWriter {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn info(&self) -> Info {
        let metadata = &self.metadata;
        let subtype = match (&metadata.parent, metadata.leave_blocks_allocated) {
            (Some(_), _) => Subtype::Differencing,
            (None, true) => Subtype::Fixed,
            (None, false) => Subtype::Dynamic,
        };
        Info {
            format: Format::Vhdx,
            subtype,
            virtual_size: self.geometry.size,
            logical_block: self.geometry.logical_block,
            physical_block: self.geometry.physical_block,
            payload_block: Some(ByteLength::new(u64::from(metadata.block_bytes))),
            file_size: self.storage.len(),
            allocated: self.storage.allocated(),
            identity: metadata.virtual_disk_id.non_nil().map(crate::Guid::to_be_bytes),
            creator: readable(&self.creator),
            log_replayed: self.is_replayed,
        }
    }

    fn read(&self, range: ByteRange, buffer: &mut [u8], patience: Patience) -> Result<(), BlockError> {
        let (mut left, mut rest) = (range, buffer);
        while !rest.is_empty() {
            let count = self.read_piece(left, rest, patience)?;
            rest = rest.split_at_mut(count).1;
            left = behind(left, u64::try_from(count).unwrap_or(u64::MAX));
        }
        Ok(())
    }

    fn write(&self, range: ByteRange, data: &[u8]) -> Result<(), BlockError> {
        let on_range = |error: ResolveError| error.on(range);
        self.touch().map_err(|error| on_range(error.into()))?;
        let (mut left, mut rest) = (range, data);
        while !rest.is_empty() {
            let part = self.shape.layout.part(left);
            let count = usize::try_from(part.length).unwrap_or(usize::MAX).min(rest.len());
            let (piece, tail) = rest.split_at_checked(count).unwrap_or((rest, &[]));
            self.write_part(left, part, piece).map_err(on_range)?;
            (left, rest) = (behind(left, part.length), tail);
        }
        Ok(())
    }

    fn zero(&self, range: ByteRange, zeroing: Zeroing) -> Result<(), BlockError> {
        let on_range = |error: ResolveError| error.on(range);
        self.touch().map_err(|error| on_range(error.into()))?;
        let mut left = range;
        while !left.is_empty() {
            let part = self.shape.layout.part(left);
            self.change(|tables, storage| tables.zero(part, zeroing, storage)).map_err(on_range)?;
            left = behind(left, part.length);
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), BlockError> {
        self.commit().map_err(|error| ResolveError::from(error).on(self.everything))
    }

    fn allocation(
        &self,
        range: ByteRange,
        patience: Patience,
    ) -> Result<(Allocation, ByteLength), BlockError> {
        let (mut left, mut known) = (range, None);
        // Runs of blocks alike are told as one, as long as nothing has to wait for it.
        while !left.is_empty() {
            let patience = if known.is_none() { patience } else { Patience::Now };
            let seen = self.look(patience, |tables| tables.piece(left)).map(|(_, seen)| seen);
            let (next, length) = match (seen, known) {
                (Ok((Piece::File(_), length)), _) => (Allocation::Data, length),
                (Ok((Piece::Zero, length)), _) => (Allocation::Hole, length),
                // The parent tells of its own runs one by one.
                (Ok((Piece::Parent, length)), None) => {
                    return self.below.allocation(head(left, length), patience);
                }
                (Err(error), None) => return Err(error.on(range)),
                (Ok((Piece::Parent, _)) | Err(_), Some(_)) => break,
            };
            if known.is_some_and(|known| known != next) {
                break;
            }
            known = Some(next);
            left = behind(left, length);
        }
        let length = range.length().get().saturating_sub(left.length().get());
        Ok((known.unwrap_or(Allocation::Data), ByteLength::new(length)))
    }

    fn resize(&self, size: ByteLength) -> Result<(), EditError> {
        self.set_size(size.get())
    }

    fn relink(&self, link: &ParentLink) -> Result<(), EditError> {
        self.set_link(link)
    }

    fn close(&self) -> Result<(), BlockError> {
        self.finish().map_err(|error| ResolveError::from(error).on(self.everything))
    }
}

/// The part of `range` behind its first `length` bytes.
fn behind(range: ByteRange, length: u64) -> ByteRange {
    let length = length.min(range.length().get());
    let rest = ByteLength::new(range.length().get().saturating_sub(length));
    let start = range.start().checked_add(ByteLength::new(length));
    start.and_then(|start| ByteRange::new(start, rest)).unwrap_or(range)
}

/// The first `length` bytes of `range`, or all of it if it is shorter.
fn head(range: ByteRange, length: u64) -> ByteRange {
    let length = ByteLength::new(length.min(range.length().get()));
    ByteRange::new(range.start(), length).unwrap_or(range)
}
