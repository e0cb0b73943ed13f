//! Edits of a file that are not writes to its disk: another size, another place of its parent.
//!
//! The footer at the end decides, and is one sector: whatever an edit needs is made lasting first, at places that the
//! footer and what it leads to do not name; then the footer changes; then the rest is tidied up. A table that outgrows
//! its room moves to the end of the file, and one sector of the header leads to it. A header that changes in both of
//! its sectors (it holds the parent's name) is written elsewhere, the footers lead there while the one in its usual
//! place is overwritten, and lead back.
use block::{ByteLength, ByteOffset, ByteRange, Patience};

use super::space::punch;
use super::sparse::{SparseWriter, State};
use crate::error::Refusal;
use crate::format::Format;
use crate::mutable::EditError;
use crate::new_image::ParentLink;
use crate::storage::StorageError;
use crate::vhd::create::{MAX_NEW_BYTES, ParentPaths, SIZE_RULE};
use crate::vhd::dynamic::HEADER_BYTES;
use crate::vhd::file_map::{Claim, LOCATOR, Owner, TABLE};
use crate::vhd::footer::FooterBytes;
use crate::vhd::locator::{ABSOLUTE, Locator, ParentReference, RELATIVE};
use crate::vhd::{BlockTable, DynamicHeader, Footer, SECTOR_BYTES};

/// Whether a disk may get this size.
pub(super) fn check_new_size(size: ByteLength) -> Result<(), EditError> {
    if size.get() <= MAX_NEW_BYTES {
        return Ok(());
    }
    let reason = "a VHD has at most 2040 GiB; convert it to VHDX first".to_owned();
    Err(EditError::Size { size, reason, rule: SIZE_RULE })
}

impl SparseWriter {
    /// Gives the disk another size. What it loses has been seen to be zeros.
    pub(super) fn set_size(&self, size: ByteLength) -> Result<(), EditError> {
        check_new_size(size)?;
        let entries = size.get().div_ceil(self.shape.data_bytes);
        let Some(entries) = BlockTable::check_entries(entries) else {
            let reason = format!("its table would have {entries} entries; convert it to larger blocks first");
            return Err(EditError::Size { size, reason, rule: "Headwater: tables up to 16 MiB are written" });
        };
        let mut state = self.alone();
        if size > self.geometry.size {
            self.grow(&mut state, size.get(), entries)
        } else {
            self.shrink(&mut state, size.get(), entries).map_err(|error| self.failed(error))
        }
    }

    fn failed(&self, error: StorageError) -> EditError {
        EditError::of_storage(error, self.geometry.size)
    }

    fn grow(&self, state: &mut State, size: u64, entries: u32) -> Result<(), EditError> {
        let old = self.geometry.size.get();
        self.commit(state).map_err(|error| self.failed(error))?;
        self.clear_tail(state)?;
        self.grow_table(state, entries).map_err(|error| self.failed(error))?;
        self.set_bytes(size);
        // What the parent has behind the old end must not show through.
        let hidden = self.below.size().min(size).saturating_sub(old);
        if let Some(range) = ByteRange::new(ByteOffset::new(old), ByteLength::new(hidden)) {
            for piece in self.pieces(range) {
                self.hide_parent(state, piece)?;
            }
        }
        let grown = self.commit(state).and_then(|()| self.put_size(state, size));
        grown.map_err(|error| self.failed(error))
    }

    /// The size counts first: entries of blocks that the disk does not have any more mean nothing.
    fn shrink(&self, state: &mut State, size: u64, entries: u32) -> Result<(), StorageError> {
        self.commit(state)?;
        self.put_size(state, size)?;
        self.set_bytes(size);
        let lost: Vec<u32> =
            state.table.placed().map(|(block, _)| block).filter(|&block| block >= entries).collect();
        for block in lost {
            self.unallocate(state, block)?;
        }
        self.commit(state)?;
        self.put_table_place(state.table_at, entries)
    }

    fn put_size(&self, state: &mut State, size: u64) -> Result<(), StorageError> {
        let mut bytes = *state.space.footer();
        self.footer.resized(size).encode_over(&mut bytes);
        state.space.put_footer(&*self.storage, bytes)
    }

    /// Makes what the last block has behind the disk's end zeros: the disk is going to have it.
    fn clear_tail(&self, state: &mut State) -> Result<(), EditError> {
        let Some(block) = state.table.len().checked_sub(1) else { return Ok(()) };
        let Some(place) = self.place_of(state, block) else { return Ok(()) };
        let start = place.data_at.saturating_add(self.used_bytes(block));
        let is_taken = self
            .claims(state)
            .any(|claim| claim.owner != Owner::Block(block) && claim.start < place.end && start < claim.end);
        if is_taken {
            let what = "a disk to be grown whose last block has not all of its room in the file; convert it";
            return Err(Refusal::unsupported("[VHD] Block Allocation Table and Data Blocks", what).into());
        }
        let cleared = state
            .space
            .reach(&*self.storage, place.end)
            .and_then(|()| punch(&*self.storage, start, place.end.saturating_sub(start)));
        // It is full no more: it is going to have more sectors.
        self.set_full(block, false);
        cleared.map_err(|error| self.failed(error))
    }

    /// What has which part of the file.
    fn claims(&self, state: &State) -> impl Iterator<Item = Claim> {
        let blocks = state.table.placed().map(|(block, sector)| {
            let place = self.shape.at_sector(sector);
            let end = place.data_at.saturating_add(self.used_bytes(block));
            Claim { start: place.bitmap_at, end, owner: Owner::Block(block) }
        });
        blocks.chain(state.structures.iter().copied())
    }

    /// Gives the table `entries` entries, in its place if there is room, else at the end of the file.
    fn grow_table(&self, state: &mut State, entries: u32) -> Result<(), StorageError> {
        let old_entries = state.table.len();
        let (at, bytes) = (state.table_at, BlockTable::bytes_of(entries));
        let end = at.saturating_add(bytes);
        let has_room = end <= state.space.footer_at()
            && self
                .claims(state)
                .all(|claim| claim.owner == Owner::Structure(TABLE) || claim.end <= at || claim.start >= end);
        state.table.resize(entries);
        let table = state.table.encode();
        if has_room {
            // What is used ends behind it now, where the table was the last there is.
            state.space.reach(&*self.storage, end)?;
            let (gained, _) = state.table.entry_bytes(old_entries);
            let tail = usize::try_from(gained).ok().and_then(|gained| table.get(gained..));
            self.storage.write_at(ByteOffset::new(at.saturating_add(gained)), tail.unwrap_or_default())?;
        } else {
            state.table_at = state.space.take_room(&*self.storage, bytes)?;
            self.storage.write_at(ByteOffset::new(state.table_at), &table)?;
        }
        self.storage.flush()?;
        let start = state.table_at;
        let claim = Claim { start, end: start.saturating_add(bytes), owner: Owner::Structure(TABLE) };
        state.structures.retain(|claim| claim.owner != Owner::Structure(TABLE));
        state.structures.push(claim);
        self.put_table_place(start, entries)
    }

    /// Says in the header where the table is and how many entries it has. 7-Zip wants as many as there are blocks.
    fn put_table_place(&self, table_offset: u64, table_entries: u32) -> Result<(), StorageError> {
        let mut bytes = self.header_bytes()?;
        // Without its parent's part, which stays as it is.
        let header =
            DynamicHeader { table_offset, table_entries, block_bytes: self.header.block_bytes, parent: None };
        header.encode_over(&mut bytes);
        // All that changes is in the first sector, which is written as a whole or not at all.
        let first = bytes.get(..SECTOR_BYTES as usize).unwrap_or_default();
        self.storage.write_at(ByteOffset::new(self.footer.data_offset), first)?;
        self.storage.flush()
    }

    fn header_bytes(&self) -> Result<[u8; HEADER_BYTES], StorageError> {
        let mut bytes = [0; HEADER_BYTES];
        let at = ByteOffset::new(self.footer.data_offset);
        self.storage.read_at(at, &mut bytes, Patience::Blocking)?;
        Ok(bytes)
    }

    /// Writes down where the parent is, and what it is recognised by.
    pub(super) fn set_parent(&self, link: &ParentLink) -> Result<(), EditError> {
        let Some(old) = &self.header.parent else {
            let what = "that is no differencing one has no parent to be linked to";
            return Err(EditError::Unsupported { format: Format::Vhd, what });
        };
        let paths = ParentPaths::of(link).map_err(EditError::Link)?;
        let mut state = self.alone();
        self.commit(&mut state)
            .and_then(|()| self.replace_parent(&mut state, old, link, &paths))
            .map_err(|error| self.failed(error))
    }

    fn replace_parent(
        &self,
        state: &mut State,
        old: &ParentReference,
        link: &ParentLink,
        paths: &ParentPaths,
    ) -> Result<(), StorageError> {
        let kept = old.locators.iter().filter(|locator| !matches!(locator.platform, RELATIVE | ABSOLUTE));
        let kept: Vec<Locator> = kept.copied().take(6).collect();
        let mut lasting = Vec::new();
        for (platform, path) in paths.in_order() {
            lasting.push(self.lasting_place(state, old, platform, path)?);
        }
        let mut passing = Vec::new();
        for locator in &lasting {
            let at = state.space.take_room(&*self.storage, u64::from(locator.length))?;
            passing.push(Locator { at, ..*locator });
        }
        let usual_at = self.footer.data_offset;
        let passing_at = state.space.take_room(&*self.storage, HEADER_BYTES as u64)?;
        let mut bytes = self.header_bytes()?;
        for (header_at, places) in [(passing_at, &passing), (usual_at, &lasting)] {
            for (locator, (_, path)) in places.iter().zip(paths.in_order()) {
                self.storage.write_at(ByteOffset::new(locator.at), path)?;
            }
            let locators = places.iter().chain(&kept).copied().collect();
            let parent = Some(ParentReference { locators, ..paths.reference(link.linkage) });
            DynamicHeader { parent, ..self.header.clone() }.encode_over(&mut bytes);
            self.storage.write_at(ByteOffset::new(header_at), &bytes)?;
            self.storage.flush()?;
            let footer = leading_to(&self.footer, header_at, *state.space.footer());
            state.space.put_footer(&*self.storage, footer)?;
        }
        Ok(())
    }

    /// Where the path of a locator goes for good: where the old one is, if it has room, else at the end of the file.
    fn lasting_place(
        &self,
        state: &mut State,
        old: &ParentReference,
        platform: [u8; 4],
        path: &[u8],
    ) -> Result<Locator, StorageError> {
        let length = u32::try_from(path.len()).unwrap_or(u32::MAX);
        let before = old.locators.iter().find(|locator| locator.platform == platform).copied();
        if let Some(before) = before {
            let end = before.at.saturating_add(u64::from(length));
            let has_room = u64::from(length) <= before.room
                && end <= state.space.footer_at()
                && self.claims(state).all(|claim| {
                    claim.end <= before.at
                        || claim.start >= end
                        || (claim.owner == Owner::Structure(LOCATOR) && claim.start == before.at)
                });
            if has_room {
                return Ok(Locator { length, ..before });
            }
        }
        let room = u64::from(length).next_multiple_of(SECTOR_BYTES);
        let at = state.space.take_room(&*self.storage, room)?;
        let end = at.saturating_add(u64::from(length));
        state.structures.push(Claim { start: at, end, owner: Owner::Structure(LOCATOR) });
        Ok(Locator { platform, at, length, room })
    }
}

/// The footer, leading to a header at another place.
fn leading_to(footer: &Footer, header_at: u64, mut bytes: FooterBytes) -> FooterBytes {
    Footer { data_offset: header_at, ..footer.clone() }.encode_over(&mut bytes);
    bytes
}
