//! Edits of a file's metadata through its log: another size of the disk, another parent locator.
//!
//! A table that grows out of its region is written anew, in free space, as a whole and lasting, before one log entry
//! changes the region table, both copies, and the disk's size together. The old region is free when the file is opened
//! again: not before, since a replay that takes no notice of tails (qemu's) could still write into it.
use block::{ByteLength, ByteOffset, Patience};

use super::super::layout::Part;
use super::super::metadata::{self, MAX_DISK_BYTES};
use super::super::region::{self, Region, RegionTable};
use super::super::{MIB, create};
use super::VhdxWriter;
use super::change::Fill;
use super::session::Touched;
use super::shape::Shape;
use super::space::Run;
use super::tables::{Entry, State, Tables};
use crate::error::{Damage, Refusal, ResolveError};
use crate::format::Format;
use crate::mutable::EditError;
use crate::new_image::{NewImageError, ParentLink};
use crate::storage::{StorageError, WritableStorage};

const ENTRY_BYTES: usize = 8;
/// How much of a table is written in one go.
const WINDOW_BYTES: usize = 64 << 10;
/// After how many blocks' entries a look is taken at how many pages have changed.
const BLOCKS_PER_COMMIT: u64 = 8192;

impl VhdxWriter {
    /// Gives the disk another size. What it loses has been seen to be zeros.
    pub(super) fn set_size(&self, size: u64) -> Result<(), EditError> {
        if size > MAX_DISK_BYTES {
            let size = ByteLength::new(size);
            let reason = "a VHDX disk has at most 64 TiB".to_owned();
            return Err(EditError::Size { size, reason, rule: "[MS-VHDX] §2.6.2.2" });
        }
        let places = metadata::places(&*self.storage, self.regions.metadata)?;
        let changed = self.touch().map_err(ResolveError::from).and_then(|()| {
            if size > self.shape.layout.virtual_bytes() {
                self.grow(size, places.virtual_disk_size_at)
            } else {
                self.shrink(size, places.virtual_disk_size_at)
            }
        });
        changed.map_err(|error| EditError::of_resolving(error, self.geometry.size))
    }

    fn grow(&self, size: u64, size_at: u64) -> Result<(), ResolveError> {
        self.commit()?;
        let new = self.shape.resized(size);
        let storage = &*self.storage;
        {
            let mut tables = self.tables_mut();
            tables.free_behind_last_block(storage)?;
            tables.shape = new;
            let parent_bytes = self.below.size();
            tables.zero_behind_end(self.shape.layout.virtual_bytes(), parent_bytes, storage)?;
        }
        if new.table_bytes() <= new.bat.length {
            self.add_entries(&new)?;
        } else {
            self.move_table(&new)?;
        }
        self.tables_mut().edit(size_at, &size.to_le_bytes(), storage)?;
        Ok(self.commit()?)
    }

    /// Gives the blocks that the disk gains their entries, and the chunks that it gains empty ones.
    fn add_entries(&self, new: &Shape) -> Result<(), ResolveError> {
        let storage = &*self.storage;
        let old = &self.shape;
        let (mut block, mut cleared) = (old.layout.blocks(), 0);
        while block < new.layout.blocks() {
            let end = block.saturating_add(BLOCKS_PER_COMMIT).min(new.layout.blocks());
            {
                let mut tables = self.tables_mut();
                tables.pages.trim();
                for block in block..end {
                    // What stands behind the old table's end may be anything.
                    let place = new.bitmap_entry_at(block);
                    if place != cleared && (old.table_end()..new.table_end()).contains(&place) {
                        tables.edit(place, &[0; ENTRY_BYTES], storage)?;
                        cleared = place;
                    }
                    let entry = new_entry(new, &mut tables, storage)?;
                    tables.set(block, entry, storage)?;
                }
            }
            // Entries behind the table's end mean nothing: these may be lasting before the size is.
            self.commit()?;
            block = end;
        }
        Ok(())
    }

    /// Writes the table anew, in a region of its own that is large enough.
    fn move_table(&self, new: &Shape) -> Result<(), ResolveError> {
        let storage = &*self.storage;
        let mut tables = self.tables_mut();
        let length = new.table_bytes().next_multiple_of(MIB);
        let run = tables.allocate(length, true, storage)?;
        let moved = new.moved_to(Region { at: run.at, length });
        let result = write_table(&self.shape, &moved, &mut tables, storage)
            .and_then(|()| edit_region_tables(&moved, &mut tables, storage));
        if let Err(error) = result {
            tables.space.give_back(run);
            return Err(error);
        }
        tables.owned.retain(|owned| owned.start != self.shape.bat.at);
        tables.shape = moved;
        Ok(())
    }

    fn shrink(&self, size: u64, size_at: u64) -> Result<(), ResolveError> {
        let storage = &*self.storage;
        // The size first: without their entries the blocks would show what the parent holds.
        self.tables_mut().edit(size_at, &size.to_le_bytes(), storage)?;
        self.commit()?;
        let new = self.shape.resized(size);
        let mut block = new.layout.blocks();
        while block < self.shape.layout.blocks() {
            let end = block.saturating_add(BLOCKS_PER_COMMIT).min(self.shape.layout.blocks());
            {
                let mut tables = self.tables_mut();
                tables.pages.trim();
                for block in block..end {
                    tables.drop_block(block, storage)?;
                }
            }
            self.commit()?;
            block = end;
        }
        let mut tables = self.tables_mut();
        tables.drop_bits_behind(new.layout.virtual_bytes(), storage)?;
        tables.shape = new;
        drop(tables);
        Ok(self.commit()?)
    }

    /// Changes what the file says of its parent.
    pub(super) fn set_link(&self, link: &ParentLink) -> Result<(), EditError> {
        let Some(old) = &self.metadata.parent else {
            return Err(EditError::Unsupported { format: Format::Vhdx, what: "has no parent" });
        };
        let mut locator = create::locator(link).map_err(EditError::Link)?;
        locator.other.clone_from(&old.other);
        let bytes = locator.encode().ok_or_else(|| {
            EditError::Link(NewImageError::Unsupported {
                format: Format::Vhdx,
                what: "paths of more than 32767 characters".into(),
                rule: "[MS-VHDX] §2.6.2.6.2",
            })
        })?;
        let places = metadata::places(&*self.storage, self.regions.metadata)?;
        let place = places.locator.ok_or(EditError::Unsupported {
            format: Format::Vhdx,
            what: "without a parent locator cannot be given one",
        })?;
        let wanted = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let at = if wanted <= u64::from(place.length) {
            place.at
        } else {
            let room = places.free.end().saturating_sub(places.free.at);
            if wanted > room {
                return Err(EditError::NoRoom { wanted, room });
            }
            places.free.at
        };
        let offset = at.saturating_sub(self.regions.metadata.at);
        let fields = [offset, wanted].map(|field| u32::try_from(field).unwrap_or(u32::MAX).to_le_bytes());
        let changed = self.session().touch(Touched::File, &*self.storage).and_then(|()| {
            let mut tables = self.tables_mut();
            tables.edit(at, &bytes, &*self.storage)?;
            tables.edit(place.fields_at, fields.as_flattened(), &*self.storage)
        });
        let lasting = changed.and_then(|()| self.commit());
        lasting.map_err(|error| EditError::of_storage(error, self.geometry.size))
    }
}

impl Tables {
    /// Makes sure that the disk's last block has its whole place for itself: a file may end with the disk's last byte,
    /// and other objects may lie close behind it.
    fn free_behind_last_block(&mut self, storage: &dyn WritableStorage) -> Result<(), ResolveError> {
        let shape = self.shape;
        let Some(last) = shape.layout.blocks().checked_sub(1) else { return Ok(()) };
        let used = shape.layout.used_bytes(last);
        let entry = self.look(storage, |tables| tables.entry(last))?;
        if used == shape.layout.block_bytes().get() || !entry.state.is_present() {
            return Ok(());
        }
        let (start, end) = (entry.at, entry.at.saturating_add(shape.layout.block_bytes().get()));
        let over = |at: u64, length: u64| at < end && start < at.saturating_add(length);
        let owned = self.owned.iter().any(|owned| over(owned.start, owned.end.saturating_sub(owned.start)));
        let mut is_over = owned;
        for index in 0..shape.layout.entries() {
            let place = shape.entry_place(index);
            let (at, length) = match shape.block_of(index) {
                Some(block) if block == last => continue,
                Some(block) => {
                    let entry = self.look(storage, |tables| tables.entry(block))?;
                    (entry.state.is_present().then_some(entry.at), shape.layout.used_bytes(block))
                }
                None if shape.layout.is_differencing() => {
                    (self.look(storage, |tables| tables.bitmap_entry(place))?, MIB)
                }
                None => continue,
            };
            is_over |= at.is_some_and(|at| over(at, length));
        }
        if is_over {
            let problem = format!("the last block at {start:#x} has not the whole of its place for itself");
            return Err(Damage::new("BAT entry", shape.entry_at(last), "[MS-VHDX] §2.1", problem).into());
        }
        if end > self.file_bytes {
            storage.set_len(ByteLength::new(end))?;
            self.file_bytes = end;
        }
        Ok(())
    }

    /// Makes zeros of what the last block of the old disk, which ended at `old_bytes`, has behind that end: it may
    /// hold anything there, and so may the parent, of `parent_bytes`.
    fn zero_behind_end(
        &mut self,
        old_bytes: u64,
        parent_bytes: u64,
        storage: &dyn WritableStorage,
    ) -> Result<(), ResolveError> {
        let within = old_bytes % self.shape.layout.block_bytes();
        let block = old_bytes / self.shape.layout.block_bytes();
        let end = self.shape.layout.used_bytes(block);
        if within == 0 {
            return Ok(());
        }
        let part = Part { block, within, length: end.saturating_sub(within) };
        let entry = self.look(storage, |tables| tables.entry(block))?;
        match entry.state {
            State::Full => {
                // Up to the block's end: the disk may grow again.
                let part =
                    Part { length: self.shape.layout.block_bytes().get().saturating_sub(within), ..part };
                self.fill(part, Fill::Zeros, storage)
            }
            State::Partial => self.fill(part, Fill::Zeros, storage),
            State::NotPresent if parent_bytes > old_bytes => self.fill(part, Fill::Zeros, storage),
            State::NotPresent | State::Undefined | State::Zero | State::Unmapped => Ok(()),
        }
    }

    /// Clears the bits of what the last block of the disk, which is to end at `end`, has behind that end ([MS-VHDX]
    /// §2.4.2).
    fn drop_bits_behind(&mut self, end: u64, storage: &dyn WritableStorage) -> Result<(), ResolveError> {
        let (block, within) = (end / self.shape.layout.block_bytes(), end % self.shape.layout.block_bytes());
        let entry = self.look(storage, |tables| tables.entry(block))?;
        if within == 0 || entry.state != State::Partial {
            return Ok(());
        }
        let length = self.shape.layout.used_bytes(block).saturating_sub(within);
        self.set_bits(Part { block, within, length }, false, storage)
    }

    /// Takes a block behind the disk's end out of the table.
    fn drop_block(&mut self, block: u64, storage: &dyn WritableStorage) -> Result<(), ResolveError> {
        let entry = self.look(storage, |tables| tables.entry(block))?;
        if entry.state.is_present() {
            let length = self.shape.layout.used_bytes(block).next_multiple_of(MIB);
            self.space.retire(Run { at: entry.at, length });
        }
        if entry != Entry::absent(State::NotPresent) {
            self.set(block, Entry::absent(State::NotPresent), storage)?;
        }
        Ok(())
    }
}

/// What a block that the disk gains begins with: zeros, whatever a parent holds there; in a fixed image, a place.
fn new_entry(
    shape: &Shape,
    tables: &mut Tables,
    storage: &dyn WritableStorage,
) -> Result<Entry, StorageError> {
    if !shape.is_fixed {
        return Ok(Entry::absent(State::Zero));
    }
    let run = tables.allocate(shape.layout.block_bytes().get(), true, storage)?;
    Ok(Entry { state: State::Full, at: run.at })
}

/// Writes the table of `moved` where it is to be: the entries of `old`, and those of the blocks that are new.
fn write_table(
    old: &Shape,
    moved: &Shape,
    tables: &mut Tables,
    storage: &dyn WritableStorage,
) -> Result<(), ResolveError> {
    let mut bytes = Vec::with_capacity(WINDOW_BYTES);
    let mut at = moved.bat.at;
    for index in 0..moved.layout.entries() {
        let entry = match moved.block_of(index) {
            Some(block) if block < old.layout.blocks() => tables.raw_entry(old.entry_at(block), storage)?,
            Some(block) if block < moved.layout.blocks() => new_entry(moved, tables, storage)?.bits(),
            None if index < old.layout.entries() => tables.raw_entry(old.entry_place(index), storage)?,
            Some(_) | None => 0,
        };
        bytes.extend(entry.to_le_bytes());
        if bytes.len() >= WINDOW_BYTES {
            storage.write_at(ByteOffset::new(at), &bytes)?;
            at = at.saturating_add(u64::try_from(bytes.len()).unwrap_or_default());
            bytes.clear();
            tables.pages.trim();
        }
    }
    storage.write_at(ByteOffset::new(at), &bytes)?;
    Ok(())
}

/// Changes the place of the block allocation table in both copies of the region table.
fn edit_region_tables(
    moved: &Shape,
    tables: &mut Tables,
    storage: &dyn WritableStorage,
) -> Result<(), ResolveError> {
    let table = RegionTable::with_bat_at(moved.bat, storage).map_err(|refusal| match refusal {
        Refusal::Storage(error) => ResolveError::Storage(error),
        Refusal::Damaged(damage) => ResolveError::Damaged(damage),
        // It was read when the file was opened.
        other => Damage::new("region table", 0, "[MS-VHDX] §2.2.3", other.to_string()).into(),
    })?;
    for at in region::PLACES {
        tables.edit(at, &table, storage)?;
    }
    Ok(())
}

impl Tables {
    /// An entry as it is stored.
    fn raw_entry(&mut self, at: u64, storage: &dyn WritableStorage) -> Result<u64, StorageError> {
        let page = super::pages::page_of(at);
        self.pages.load(page, storage, Patience::Blocking)?;
        let within = usize::try_from(at.saturating_sub(page)).unwrap_or(usize::MAX);
        let bytes = self.pages.get(page).and_then(|page| page.get(within..)?.first_chunk());
        Ok(bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes)))
    }
}
