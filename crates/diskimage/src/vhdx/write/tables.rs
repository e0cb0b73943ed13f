//! The block allocation table and the sector bitmaps of an image that is written: what they say of a range, and the
//! changes that an operation makes to them in memory.
//!
//! Nothing here is lasting: a commit takes the changed pages through the log. Payload goes to its place at once, before
//! the tables say so; until a commit does, a crash leaves the disk as it was.
use block::{ByteLength, ByteOffset, ByteRange, Patience};

use super::super::layout::Part;
use super::super::{MIB, Owned};
use super::pages::{Pages, page_of};
use super::shape::Shape;
use super::space::{Run, Space};
use crate::error::{Damage, ResolveError};
use crate::storage::{Storage, StorageError, WritableStorage};

const NAME: &str = "BAT entry";
const RULE: &str = "[MS-VHDX] §2.5.1";
const STATE_RULE: &str = "[MS-VHDX] §2.5.1.1";
const BITS_PER_PAGE: u64 = 4096 * 8;

/// The tables.
#[derive(Debug)]
pub(super) struct Tables {
    pub(super) shape: Shape,
    pub(super) pages: Pages,
    pub(super) space: Space,
    /// Where no block may lie.
    pub(super) owned: Vec<Owned>,
    pub(super) file_bytes: u64,
}

/// The state of a payload block ([MS-VHDX] §2.5.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// With a parent, the parent tells; without one the contents are nobody's, and zeros here.
    NotPresent,
    Undefined,
    Zero,
    Unmapped,
    Full,
    /// The sector bitmap tells which sectors are here; of the others the parent tells.
    Partial,
}

/// An entry of a payload block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) state: State,
    /// The place of the block in the file. Where the block is not present it means nothing.
    pub(super) at: u64,
}

/// Where the bytes of a run come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Zero,
    File(u64),
    Parent,
}

/// Why the tables cannot tell.
#[derive(Debug)]
pub(super) enum Lack {
    /// The page here is not in memory.
    Page(u64),
    Damaged(Damage),
}

impl From<Damage> for Lack {
    fn from(damage: Damage) -> Self {
        Self::Damaged(damage)
    }
}

impl State {
    const fn bits(self) -> u64 {
        match self {
            Self::NotPresent => 0,
            Self::Undefined => 1,
            Self::Zero => 2,
            Self::Unmapped => 3,
            Self::Full => 6,
            Self::Partial => 7,
        }
    }

    /// Whether the block has its place in the file.
    pub(super) const fn is_present(self) -> bool {
        matches!(self, Self::Full | Self::Partial)
    }
}

impl Entry {
    /// An entry of a block that has no place.
    pub(super) const fn absent(state: State) -> Self {
        Self { state, at: 0 }
    }

    /// Three bits of state, 17 reserved, then the place in MiB.
    fn parse(entry: u64) -> Result<Self, (&'static str, String)> {
        if (entry >> 3) & 0x1_FFFF != 0 {
            return Err((RULE, format!("reserved bits are set in {entry:#018x}")));
        }
        let state = match entry & 7 {
            0 => State::NotPresent,
            1 => State::Undefined,
            2 => State::Zero,
            3 => State::Unmapped,
            6 => State::Full,
            7 => State::Partial,
            other => return Err((STATE_RULE, format!("it has the reserved state {other}"))),
        };
        Ok(Self { state, at: (entry >> 20).saturating_mul(MIB) })
    }

    /// Places are whole MiB, so that the state takes the place of their low bits.
    pub(super) const fn bits(self) -> u64 {
        self.at | self.state.bits()
    }
}

impl Tables {
    /// Looks at the tables, and loads the pages that are missing.
    pub(super) fn look<T>(
        &mut self,
        storage: &dyn Storage,
        look: impl Fn(&Self) -> Result<T, Lack>,
    ) -> Result<T, ResolveError> {
        loop {
            match look(self) {
                Ok(seen) => return Ok(seen),
                Err(Lack::Page(at)) => self.pages.load(at, storage, Patience::Blocking)?,
                Err(Lack::Damaged(damage)) => return Err(damage.into()),
            }
        }
    }

    /// The run with which `range` begins: where it comes from and how long it is.
    pub(super) fn piece(&self, range: ByteRange) -> Result<(Piece, u64), Lack> {
        let part = self.shape.layout.part(range);
        let entry = self.entry(part.block)?;
        let here = Piece::File(entry.at.saturating_add(part.within));
        match entry.state {
            State::Full => Ok((here, part.length)),
            State::Partial => {
                let (held, length) = self.held(part)?;
                Ok((if held { here } else { Piece::Parent }, length))
            }
            State::NotPresent if self.shape.layout.is_differencing() => Ok((Piece::Parent, part.length)),
            State::NotPresent | State::Undefined | State::Zero | State::Unmapped => {
                Ok((Piece::Zero, part.length))
            }
        }
    }

    /// The entry of payload block `block`.
    pub(super) fn entry(&self, block: u64) -> Result<Entry, Lack> {
        let at = self.shape.entry_at(block);
        let entry = self.parsed(at)?;
        if entry.state == State::Partial && !self.shape.layout.is_differencing() {
            let problem = "it is partially present, in a file without a parent";
            return Err(Damage::new(NAME, at, STATE_RULE, problem).into());
        }
        if entry.state.is_present() {
            self.check(at, entry.at, self.shape.layout.used_bytes(block))?;
        }
        Ok(entry)
    }

    /// Where the sector bitmap block is that `block` has its bits in, if it is there.
    fn bitmap_block(&self, block: u64) -> Result<Option<u64>, Lack> {
        self.bitmap_entry(self.shape.bitmap_entry_at(block))
    }

    /// Where the sector bitmap block is whose entry stands at `at`, if it is there.
    pub(super) fn bitmap_entry(&self, at: u64) -> Result<Option<u64>, Lack> {
        let entry = self.parsed(at)?;
        match entry.state {
            State::Full => self.check(at, entry.at, MIB).map(|()| Some(entry.at)),
            State::NotPresent => Ok(None),
            other => {
                let problem = format!("a sector bitmap block has state {}", other.bits());
                Err(Damage::new(NAME, at, "[MS-VHDX] §2.5.1.2", problem).into())
            }
        }
    }

    fn parsed(&self, at: u64) -> Result<Entry, Lack> {
        let page = page_of(at);
        let bytes = self.pages.get(page).ok_or(Lack::Page(page))?;
        let within = usize::try_from(at.saturating_sub(page)).unwrap_or(usize::MAX);
        let entry = bytes.get(within..).and_then(|rest| rest.first_chunk());
        let entry = entry.map_or(0, |entry| u64::from_le_bytes(*entry));
        Entry::parse(entry).map_err(|(rule, problem)| Damage::new(NAME, at, rule, problem).into())
    }

    /// [MS-VHDX] §2.1: a block lies in the file, and not over its structures.
    fn check(&self, entry_at: u64, start: u64, length: u64) -> Result<(), Lack> {
        let end = start.saturating_add(length);
        let over = self.owned.iter().find(|owned| start < owned.end && owned.start < end);
        let problem = match over {
            Some(owned) => format!("its block at {start:#x} lies over {}", owned.what),
            None if end > self.file_bytes => {
                format!("its block at {start:#x} ends at {end:#x}, behind the file's end")
            }
            None => return Ok(()),
        };
        Err(Damage::new(NAME, entry_at, RULE, problem).into())
    }

    /// Whether the first sector of `part`, of a partially present block, is in the file, and how many bytes from there
    /// on are alike.
    pub(super) fn held(&self, part: Part) -> Result<(bool, u64), Lack> {
        let bitmap = self.bitmap_block(part.block)?.ok_or_else(|| self.missing_bitmap(part.block))?;
        let (first, end) = self.shape.bits(part);
        let end = end.min(first.saturating_sub(first % BITS_PER_PAGE).saturating_add(BITS_PER_PAGE));
        let page = page_of(bitmap.saturating_add(first / 8));
        let bytes = self.pages.get(page).ok_or(Lack::Page(page))?;
        let bit = |place: u64| {
            let byte = usize::try_from((place % BITS_PER_PAGE) / 8).unwrap_or(usize::MAX);
            bytes.get(byte).copied().unwrap_or_default()
        };
        let is_set = |place: u64| (bit(place) >> (place % 8)) & 1 != 0;
        let held = is_set(first);
        let all_alike = if held { 0xFF } else { 0 };
        let mut behind = first.saturating_add(1);
        while behind < end {
            // A byte of eight sectors at once, where they are all alike.
            if behind % 8 == 0 && bit(behind) == all_alike {
                behind = behind.saturating_add(8);
            } else if is_set(behind) == held {
                behind = behind.saturating_add(1);
            } else {
                break;
            }
        }
        let sectors = behind.min(end).saturating_sub(first);
        Ok((held, sectors.saturating_mul(self.shape.layout.sector_bytes().get())))
    }

    /// Whether all of `part`, of a partially present block, is in the file.
    pub(super) fn holds_all(&self, part: Part) -> Result<bool, Lack> {
        let mut left = part;
        while left.length > 0 {
            let (held, length) = self.held(left)?;
            if !held {
                return Ok(false);
            }
            left.within = left.within.saturating_add(length);
            left.length = left.length.saturating_sub(length);
        }
        Ok(true)
    }

    fn missing_bitmap(&self, block: u64) -> Damage {
        let problem = format!("payload block {block} is partially present, but has no sector bitmap block");
        Damage::new(NAME, self.shape.entry_at(block), "[MS-VHDX] §2.4.2", problem)
    }

    /// Brings everything into memory that a change of `part`, and of its block's state, touches or looks at: a change
    /// then does not stop half-way.
    pub(super) fn prepare(&mut self, part: Part, storage: &dyn Storage) -> Result<(), ResolveError> {
        self.look(storage, |tables| {
            tables.entry(part.block)?;
            if tables.shape.layout.is_differencing()
                && let Some(bitmap) = tables.bitmap_block(part.block)?
            {
                let (first, end) = tables.shape.bits(tables.shape.block(part.block));
                let mut bit = first;
                while bit < end {
                    let page = page_of(bitmap.saturating_add(bit / 8));
                    tables.pages.get(page).ok_or(Lack::Page(page))?;
                    bit = bit.saturating_add(BITS_PER_PAGE);
                }
            }
            Ok(())
        })
    }

    /// Changes the entry of `block`.
    pub(super) fn set(
        &mut self,
        block: u64,
        entry: Entry,
        storage: &dyn Storage,
    ) -> Result<(), StorageError> {
        self.edit(self.shape.entry_at(block), &entry.bits().to_le_bytes(), storage)
    }

    /// Changes bytes of a page or two.
    pub(super) fn edit(&mut self, at: u64, bytes: &[u8], storage: &dyn Storage) -> Result<(), StorageError> {
        for (place, byte) in (at..).zip(bytes) {
            let page = page_of(place);
            self.pages.load(page, storage, Patience::Blocking)?;
            let within = usize::try_from(place.saturating_sub(page)).unwrap_or(usize::MAX);
            if let Some(target) = self.pages.get_mut(page).and_then(|page| page.get_mut(within)) {
                *target = *byte;
            }
        }
        Ok(())
    }

    /// Gives the chunk of `block` a sector bitmap block, if it has none.
    pub(super) fn ensure_bitmap(
        &mut self,
        block: u64,
        storage: &dyn WritableStorage,
    ) -> Result<(), ResolveError> {
        if self.look(storage, |tables| tables.bitmap_block(block))?.is_some() {
            return Ok(());
        }
        let run = self.allocate(MIB, true, storage)?;
        let entry = Entry { state: State::Full, at: run.at };
        Ok(self.edit(self.shape.bitmap_entry_at(block), &entry.bits().to_le_bytes(), storage)?)
    }

    /// Sets or clears the bits of `part`, whose chunk has a sector bitmap block.
    pub(super) fn set_bits(
        &mut self,
        part: Part,
        value: bool,
        storage: &dyn Storage,
    ) -> Result<(), ResolveError> {
        let bitmap = self.look(storage, |tables| tables.bitmap_block(part.block))?;
        let bitmap = bitmap.ok_or_else(|| self.missing_bitmap(part.block))?;
        let (mut bit, end) = self.shape.bits(part);
        while bit < end {
            let place = bitmap.saturating_add(bit / 8);
            let page = page_of(place);
            self.pages.load(page, storage, Patience::Blocking)?;
            let within = usize::try_from(place.saturating_sub(page)).unwrap_or(usize::MAX);
            // As many bits as this byte has of the part.
            let first = bit % 8;
            let count = end.saturating_sub(bit).min(8_u64.saturating_sub(first));
            let ones = u8::try_from((1_u32 << count).saturating_sub(1)).unwrap_or(u8::MAX);
            let mask = ones << first;
            if let Some(byte) = self.pages.get_mut(page).and_then(|page| page.get_mut(within)) {
                *byte = if value { *byte | mask } else { *byte & !mask };
            }
            bit = bit.saturating_add(count);
        }
        Ok(())
    }

    /// Takes space in the file, and makes the file long enough. `zeroed` space reads as zeros; other space may hold
    /// anything.
    pub(super) fn allocate(
        &mut self,
        length: u64,
        zeroed: bool,
        storage: &dyn WritableStorage,
    ) -> Result<Run, StorageError> {
        let found = self.space.take(length).ok_or(StorageError::Write {
            at: ByteOffset::new(self.file_bytes),
            source: std::io::ErrorKind::FileTooLarge.into(),
        })?;
        let run = Run { at: found.at, length };
        let end = run.at.saturating_add(length);
        let mut ready = Ok(());
        if end > self.file_bytes {
            ready = storage.set_len(ByteLength::new(end));
            if ready.is_ok() {
                self.file_bytes = end;
            }
        }
        if ready.is_ok() && zeroed && !found.is_fresh {
            ready = punch(run.at, length, storage);
        }
        match ready {
            Ok(()) => Ok(run),
            Err(error) => {
                self.space.give_back(run);
                Err(error)
            }
        }
    }
}

/// Makes a run of the file zeros.
pub(super) fn punch(at: u64, length: u64, storage: &dyn WritableStorage) -> Result<(), StorageError> {
    match ByteRange::new(ByteOffset::new(at), ByteLength::new(length)) {
        Some(range) => storage.punch(range),
        None => Ok(()),
    }
}
