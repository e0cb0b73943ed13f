//! Where new blocks go, and how the file grows.
//!
//! Behind the last block, and up to the footer, lies free space that reads as zeros. When it is used up, the file is
//! made longer, the footer is written to its new end, and the old one becomes free space. Power may fail in between
//! and leave no footer at the end: its copy at the start, which never changes, then says all that it said, and
//! opening puts it back. The file grows by [`STEP_BYTES`] at once, a hole; closing cuts off what was not needed.
use block::{ByteLength, ByteOffset, ByteRange};

use crate::storage::{StorageError, WritableStorage};
use crate::vhd::SECTOR_BYTES;
use crate::vhd::footer::FooterBytes;
use crate::vhd::shape::{BlockPlace, BlockShape, aligned, footer_behind};

/// By how much the file grows at least.
const STEP_BYTES: u64 = 32 << 20;

/// The space of a file that is written.
#[derive(Debug)]
pub(super) struct Space {
    shape: BlockShape,
    /// Behind all that has a place.
    end: u64,
    /// Where the footer begins.
    footer_at: u64,
    footer: FooterBytes,
    /// Whether the space up to the footer is known to be zeros: a crash may have left anything there.
    is_clear: bool,
    /// Places of blocks that were discarded, their data zeros. No table in the file names them.
    free: Vec<BlockPlace>,
}

/// Why there is no place for a block.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoPlace {
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A sector number of the table cannot say it.
    #[error("the file has no room for another block: its table reaches 2 TiB")]
    BeyondTable,
}

impl Space {
    /// The space of a file whose used part ends at `end`, and in which `footer` stands at `footer_at` and as a copy at
    /// its start.
    pub(super) fn new(shape: BlockShape, end: u64, footer_at: u64, footer: FooterBytes) -> Self {
        Self { shape, end, footer_at, footer, is_clear: false, free: Vec::new() }
    }

    /// A place for a block, which reads as zeros.
    pub(super) fn take(&mut self, storage: &dyn WritableStorage) -> Result<(BlockPlace, u32), NoPlace> {
        if let Some(place) = self.free.pop() {
            return place.sector().map(|sector| (place, sector)).ok_or(NoPlace::BeyondTable);
        }
        let place = self.shape.behind(self.end);
        let sector = place.sector().ok_or(NoPlace::BeyondTable)?;
        self.reach(storage, place.end)?;
        Ok((place, sector))
    }

    /// Room for `bytes` bytes of a structure, which reads as zeros: where it begins.
    pub(super) fn take_room(
        &mut self,
        storage: &dyn WritableStorage,
        bytes: u64,
    ) -> Result<u64, StorageError> {
        let at = aligned(self.end);
        self.reach(storage, at.saturating_add(bytes))?;
        Ok(at)
    }

    /// Counts everything up to `end` as used, and has the file reach there.
    pub(super) fn reach(&mut self, storage: &dyn WritableStorage, end: u64) -> Result<(), StorageError> {
        if !self.is_clear {
            punch(storage, self.end, self.footer_at.saturating_sub(self.end))?;
            self.is_clear = true;
        }
        if end > self.footer_at {
            self.grow(storage, end)?;
        }
        self.end = self.end.max(end);
        Ok(())
    }

    /// Where the footer stands.
    pub(super) fn footer_at(&self) -> u64 {
        self.footer_at
    }

    /// The footer's bytes.
    pub(super) fn footer(&self) -> &FooterBytes {
        &self.footer
    }

    /// Puts another footer in the place of the one there is, and its copy at the start. Each is one sector, and so
    /// the old one or the new one; the one at the end counts.
    pub(super) fn put_footer(
        &mut self,
        storage: &dyn WritableStorage,
        footer: FooterBytes,
    ) -> Result<(), StorageError> {
        storage.write_at(ByteOffset::new(self.footer_at), &footer)?;
        storage.flush()?;
        self.footer = footer;
        storage.write_at(ByteOffset::ZERO, &footer)?;
        storage.flush()
    }

    /// Takes a place back that no table in the file names any more.
    pub(super) fn give_back(
        &mut self,
        storage: &dyn WritableStorage,
        place: BlockPlace,
    ) -> Result<(), StorageError> {
        let held = place.end.min(storage.len().get()).saturating_sub(place.bitmap_at);
        punch(storage, place.bitmap_at, held)?;
        self.free.push(place);
        Ok(())
    }

    /// Moves the footer so far that the file has room up to `needed` and more.
    fn grow(&mut self, storage: &dyn WritableStorage, needed: u64) -> Result<(), StorageError> {
        let footer_at = footer_behind(needed.saturating_add(STEP_BYTES));
        let old_len = storage.len();
        let moved = storage
            .set_len(ByteLength::new(footer_at.saturating_add(SECTOR_BYTES)))
            .and_then(|()| storage.write_at(ByteOffset::new(footer_at), &self.footer));
        if let Err(error) = moved {
            // The footer shall stand at the end of the file again. Where that fails, too, its copy stands in.
            let _ = storage.set_len(old_len);
            return Err(error);
        }
        punch(storage, self.footer_at, old_len.get().saturating_sub(self.footer_at))?;
        self.footer_at = footer_at;
        Ok(())
    }

    /// Cuts off what the file has behind `end`, the end of its used part.
    pub(super) fn trim(&mut self, storage: &dyn WritableStorage, end: u64) -> Result<(), StorageError> {
        let footer_at = footer_behind(end);
        if footer_at >= self.footer_at {
            return Ok(());
        }
        storage.write_at(ByteOffset::new(footer_at), &self.footer)?;
        storage.flush()?;
        storage.set_len(ByteLength::new(footer_at.saturating_add(SECTOR_BYTES)))?;
        (self.end, self.footer_at) = (end, footer_at);
        storage.flush()
    }
}

/// Makes `length` bytes from `at` on zeros.
pub(super) fn punch(storage: &dyn WritableStorage, at: u64, length: u64) -> Result<(), StorageError> {
    match ByteRange::new(ByteOffset::new(at), ByteLength::new(length)) {
        Some(range) if length > 0 => storage.punch(range),
        _ => Ok(()),
    }
}
