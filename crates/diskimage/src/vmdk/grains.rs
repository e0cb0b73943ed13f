//! A sparse extent: from a place in the extent to its grain, by way of the grain directory and a grain table.
use std::sync::Arc;

use block::{ByteOffset, Patience};

use super::header::{HEADER_BYTES, Header, SECTOR_BYTES};
use crate::compressed::{Compression, ExpandedUnits, Unit};
use crate::cursor::Cursor;
use crate::error::{Damage, Refusal, ResolveError};
use crate::extent::Held;
use crate::second_level::{Budget, EntryPlace, SecondLevel};
use crate::storage::Storage;
use crate::table::{Table, Width};

const RULE: &str = "[VMDK] Grain Directory and Grain Tables";
const GRAIN_RULE: &str = "[VMDK] Stream-Optimized Compressed Sparse Extents";
const ENTRY_BYTES: u64 = 4;
/// The entry of a grain that reads as zeros, where the header allows it.
const ZEROED: u64 = 1;
/// The marker before a compressed grain: the grain's first sector on the disk (64 bits) and its length in bytes (32).
const MARKER_BYTES: u64 = 12;

/// The grains of a sparse extent.
#[derive(Debug)]
pub(super) struct Grains {
    header: Header,
    directory: Table,
    tables: SecondLevel,
    /// Where the extent's file begins in the storage, and ends.
    file: (u64, u64),
    /// The grain directory's place in the storage, as first and behind-last byte.
    directory_place: (u64, u64),
}

impl Grains {
    /// `file` is where the extent's file begins in `storage`, and ends.
    pub(super) fn open(
        storage: &dyn Storage,
        header: Header,
        file: (u64, u64),
        budget: Budget,
    ) -> Result<Self, Refusal> {
        let covered = header.grain_sectors.saturating_mul(header.table_entries).max(1);
        let tables = header.capacity_sectors.div_ceil(covered);
        let at = file.0.saturating_add(header.directory_at);
        let end = tables.checked_mul(ENTRY_BYTES).and_then(|bytes| at.checked_add(bytes));
        if end.is_none_or(|end| end > file.1) {
            let problem = format!(
                "the grain directory of {tables} entries at {:#x} does not lie in the file of {} bytes",
                header.directory_at,
                file.1.saturating_sub(file.0)
            );
            return Err(Damage::new("grain directory", header.directory_at, RULE, problem).into());
        }
        let directory = Table::new(at, tables, Width::Le32);
        let directory_place = (at, at.saturating_add(directory.bytes().get()));
        let tables = SecondLevel::new(tables, header.table_entries.saturating_mul(ENTRY_BYTES), budget);
        let grains = Self { header, directory, tables, file, directory_place };
        grains.table(0, storage, Patience::Blocking)?;
        Ok(grains)
    }

    pub(super) fn grain_bytes(&self) -> u64 {
        self.header.grain_bytes()
    }

    /// How long the grain directory is.
    pub(super) fn directory_bytes(&self) -> u64 {
        self.directory.bytes().get()
    }

    /// What the extent holds at `at` from its start, and where that piece ends.
    pub(super) fn piece(
        &self,
        at: u64,
        storage: &dyn Storage,
        patience: Patience,
    ) -> Result<(Held, u64), ResolveError> {
        let grain_bytes = self.grain_bytes();
        let grain = at.checked_div(grain_bytes).unwrap_or_default();
        let capacity = self.header.capacity_sectors.saturating_mul(SECTOR_BYTES);
        let (entry, place) = match self.entry(grain, storage, patience)? {
            Ok(found) => found,
            Err(table_end) => return Ok((Held::Zero, table_end.min(capacity))),
        };
        let start = grain.saturating_mul(grain_bytes);
        let end = start.saturating_add(grain_bytes).min(capacity);
        if entry == 0 || (entry == ZEROED && self.header.has_zeroed_grains) {
            return Ok((Held::Zero, end));
        }
        let in_file = entry.saturating_mul(SECTOR_BYTES);
        let from = self.file.0.saturating_add(in_file);
        let least = if self.header.is_compressed { MARKER_BYTES } else { end.saturating_sub(start) };
        let to = from.saturating_add(least);
        let damage = |problem| Damage::new("grain table entry", place.at(), RULE, problem);
        if to > self.file.1 {
            let len = self.file.1.saturating_sub(self.file.0);
            let problem = format!("the grain at {in_file:#x} does not lie in the file of {len} bytes");
            return Err(damage(problem).into());
        }
        let (directory, directory_end) = self.directory_place;
        if in_file < HEADER_BYTES as u64 || (from < directory_end && directory < to) {
            let problem = format!("the grain at {in_file:#x} lies over the header or the grain directory");
            return Err(damage(problem).into());
        }
        if self.header.is_compressed {
            return Ok((Held::Encoded, end));
        }
        Ok((Held::File { at: from.saturating_add(at.saturating_sub(start)) }, end))
    }

    /// The bytes of the compressed grain that holds `at`, and where in them `at` is.
    pub(super) fn expanded(
        &self,
        at: u64,
        storage: &dyn Storage,
        kept: &ExpandedUnits,
        patience: Patience,
    ) -> Result<(Arc<[u8]>, u64), ResolveError> {
        let grain = at.checked_div(self.grain_bytes()).unwrap_or_default();
        let within = at.checked_rem(self.grain_bytes()).unwrap_or_default();
        let Ok((entry, _)) = self.entry(grain, storage, patience)? else {
            return Err(Damage::new("grain", at, RULE, "there is none").into());
        };
        let marker_at = self.file.0.saturating_add(entry.saturating_mul(SECTOR_BYTES));
        let bytes =
            kept.unit(marker_at, patience, || self.unit(grain, marker_at, storage)?.expand(storage))?;
        Ok((bytes, within))
    }

    /// Reads the marker of a compressed grain.
    fn unit(&self, grain: u64, marker_at: u64, storage: &dyn Storage) -> Result<Unit, ResolveError> {
        let mut marker = [0; MARKER_BYTES as usize];
        storage.read_at(ByteOffset::new(marker_at), &mut marker, Patience::Blocking)?;
        let mut cursor = Cursor::new(&marker);
        let (sector, stored) = cursor.le_u64().zip(cursor.le_u32()).unwrap_or_default();
        let damage = |problem| Damage::new("compressed grain", marker_at, GRAIN_RULE, problem);
        let expected = grain.saturating_mul(self.header.grain_sectors);
        if sector != expected {
            let problem = format!("its marker says sector {sector}, the grain table {expected}");
            return Err(damage(problem).into());
        }
        let (at, stored_bytes) = (marker_at.saturating_add(MARKER_BYTES), u64::from(stored));
        // Deflate makes nothing longer by more than a few bytes in a thousand.
        let max = self.grain_bytes().saturating_mul(2);
        if stored_bytes > max || at.saturating_add(stored_bytes) > self.file.1 {
            let problem = format!("its {stored_bytes} bytes are more than {max} or do not lie in the file");
            return Err(damage(problem).into());
        }
        let left = self.header.capacity_sectors.saturating_sub(expected).saturating_mul(SECTOR_BYTES);
        Ok(Unit {
            compression: Compression::Zlib,
            at,
            stored_bytes,
            needed_bytes: self.grain_bytes().min(left),
            full_bytes: self.grain_bytes(),
            name: "compressed grain",
            rule: GRAIN_RULE,
        })
    }

    /// The table entry of `grain` and its place. Else, where there is no table, the end of what it would describe.
    fn entry(
        &self,
        grain: u64,
        storage: &dyn Storage,
        patience: Patience,
    ) -> Result<Result<(u64, EntryPlace), u64>, ResolveError> {
        let table = grain.checked_div(self.header.table_entries).unwrap_or_default();
        let index = grain.checked_rem(self.header.table_entries).unwrap_or_default();
        let Some(table_at) = self.table(table, storage, patience)? else {
            let grains = table.saturating_add(1).saturating_mul(self.header.table_entries);
            return Ok(Err(grains.saturating_mul(self.grain_bytes())));
        };
        let place = EntryPlace { table, table_at, within: index.saturating_mul(ENTRY_BYTES) };
        let entry = u32::from_le_bytes(self.tables.entry(place, storage, patience)?);
        Ok(Ok((u64::from(entry), place)))
    }

    /// The place in the storage of the grain table `index`, if there is one.
    fn table(
        &self,
        index: u64,
        storage: &dyn Storage,
        patience: Patience,
    ) -> Result<Option<u64>, ResolveError> {
        let entry =
            self.directory.get(index, storage, patience, &|index, entry| self.check_table(index, entry))?;
        Ok((entry != 0).then(|| self.table_place(entry).0))
    }

    fn table_place(&self, entry: u64) -> (u64, u64) {
        let from = self.file.0.saturating_add(entry.saturating_mul(SECTOR_BYTES));
        (from, from.saturating_add(self.header.table_entries.saturating_mul(ENTRY_BYTES)))
    }

    fn check_table(&self, index: u64, entry: u64) -> Result<(), Damage> {
        let (from, to) = self.table_place(entry);
        let (directory, directory_end) = self.directory_place;
        let damage = |problem| {
            Err(Damage::new("grain directory entry", self.directory.place_of(index), RULE, problem))
        };
        if entry == 0 {
            return Ok(());
        }
        if to > self.file.1 {
            let len = self.file.1.saturating_sub(self.file.0);
            return damage(format!(
                "the grain table at sector {entry:#x} does not lie in the file of {len} bytes"
            ));
        }
        if from < directory_end && directory < to {
            return damage(format!("the grain table at sector {entry:#x} lies over the grain directory"));
        }
        Ok(())
    }
}
