//! What a write, a discard or zeroing does to one payload block.
//!
//! | state before | write of a part | write of the whole | zeros or discard of the whole |
//! |---|---|---|---|
//! | 0 not present, parent | 7 with the part's bits | 6 | 2 |
//! | 0, 1, 2, 3 (zeros) | 6, the rest zeros | 6 | 2; discard: as before |
//! | 6 present | in place | in place | 2 (discard without a parent: 3), the place is given up |
//! | 7 partially present | in place, bits set; 6 when all are | 6 | 2, the place is given up |
//!
//! The bits of a block that becomes partially present are cleared first: they may be those of an earlier life, since
//! nobody looks at them in any other state ([MS-VHDX] §2.5.1.1), and would show sectors that were never written.
use block::ByteOffset;

use super::super::MIB;
use super::super::layout::Part;
use super::space::Run;
use super::tables::{Entry, State, Tables, punch};
use crate::error::ResolveError;
use crate::mutable::Zeroing;
use crate::storage::{StorageError, WritableStorage};

/// What a part of the disk is filled with.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fill<'a> {
    /// These bytes, as many as the part has.
    Bytes(&'a [u8]),
    Zeros,
}

impl Tables {
    /// Fills `part`. Where it fails, the tables are as they were, and `part` holds old or new sectors.
    pub(super) fn fill(
        &mut self,
        part: Part,
        fill: Fill<'_>,
        storage: &dyn WritableStorage,
    ) -> Result<(), ResolveError> {
        self.prepare(part, storage)?;
        let entry = self.look(storage, |tables| tables.entry(part.block))?;
        let whole = self.shape.is_whole(part);
        match entry.state {
            State::Full => Ok(self.put(entry.at, part, fill, storage)?),
            State::Partial => {
                self.put(entry.at, part, fill, storage)?;
                self.hold(entry, part, storage)
            }
            State::NotPresent if self.shape.layout.is_differencing() && !whole => {
                self.ensure_bitmap(part.block, storage)?;
                self.prepare(part, storage)?;
                let at = self.place(part, fill, false, storage)?;
                self.set_bits(self.shape.block(part.block), false, storage)?;
                let entry = Entry { state: State::Partial, at };
                self.set(part.block, entry, storage)?;
                self.hold(entry, part, storage)
            }
            State::NotPresent | State::Undefined | State::Zero | State::Unmapped => {
                let at = self.place(part, fill, !whole, storage)?;
                Ok(self.set(part.block, Entry { state: State::Full, at }, storage)?)
            }
        }
    }

    /// Makes `part` zeros, or what comes close to it.
    pub(super) fn zero(
        &mut self,
        part: Part,
        zeroing: Zeroing,
        storage: &dyn WritableStorage,
    ) -> Result<(), ResolveError> {
        self.prepare(part, storage)?;
        let entry = self.look(storage, |tables| tables.entry(part.block))?;
        let whole = self.shape.is_whole(part);
        let wanted = zeroing == Zeroing::Zeros;
        match entry.state {
            // A fixed image keeps the space that it has.
            State::Full if self.shape.is_fixed && !wanted => Ok(()),
            State::Full | State::Partial if whole && !self.shape.is_fixed => {
                // A child must hide what its parent holds.
                let hides = wanted || self.shape.layout.is_differencing();
                let state = if hides { State::Zero } else { State::Unmapped };
                self.set(part.block, Entry::absent(state), storage)?;
                let length = self.shape.layout.used_bytes(part.block).next_multiple_of(MIB);
                self.space.retire(Run { at: entry.at, length });
                Ok(())
            }
            State::Full => Ok(self.put(entry.at, part, Fill::Zeros, storage)?),
            State::Partial if wanted => self.fill(part, Fill::Zeros, storage),
            State::Partial => self.punch_held(entry, part, storage),
            State::NotPresent if self.shape.layout.is_differencing() => match (whole, wanted) {
                (true, _) => Ok(self.set(part.block, Entry::absent(State::Zero), storage)?),
                (false, true) => self.fill(part, Fill::Zeros, storage),
                (false, false) => Ok(()),
            },
            State::Zero => Ok(()),
            // These read as zeros here; a whole block can say so to everybody.
            State::NotPresent | State::Undefined | State::Unmapped if whole && wanted => {
                Ok(self.set(part.block, Entry::absent(State::Zero), storage)?)
            }
            State::NotPresent | State::Undefined | State::Unmapped => Ok(()),
        }
    }

    /// Notes that `part` of a partially present block is in the file now.
    fn hold(&mut self, entry: Entry, part: Part, storage: &dyn WritableStorage) -> Result<(), ResolveError> {
        self.set_bits(part, true, storage)?;
        let all = self.shape.whole(part.block);
        if self.look(storage, |tables| tables.holds_all(all))? {
            self.set(part.block, Entry { state: State::Full, ..entry }, storage)?;
        }
        Ok(())
    }

    /// Gives a block a place that holds `part`; the rest is zeros if it is to be `zeroed`.
    fn place(
        &mut self,
        part: Part,
        fill: Fill<'_>,
        zeroed: bool,
        storage: &dyn WritableStorage,
    ) -> Result<u64, StorageError> {
        let run = self.allocate(self.shape.layout.block_bytes().get(), zeroed, storage)?;
        match self.put(run.at, part, fill, storage) {
            Ok(()) => Ok(run.at),
            Err(error) => {
                self.space.give_back(run);
                Err(error)
            }
        }
    }

    /// Stores payload, in a block at `at` of the file.
    fn put(
        &self,
        at: u64,
        part: Part,
        fill: Fill<'_>,
        storage: &dyn WritableStorage,
    ) -> Result<(), StorageError> {
        let at = at.saturating_add(part.within);
        match fill {
            Fill::Bytes(bytes) => storage.write_at(ByteOffset::new(at), bytes),
            Fill::Zeros if self.shape.is_fixed => write_zeros(at, part.length, storage),
            Fill::Zeros => punch(at, part.length, storage),
        }
    }

    fn punch_held(
        &self,
        entry: Entry,
        part: Part,
        storage: &dyn WritableStorage,
    ) -> Result<(), ResolveError> {
        let mut left = part;
        while left.length > 0 {
            // The bits were brought into memory before.
            let Ok((held, length)) = self.held(left) else { break };
            if held {
                punch(entry.at.saturating_add(left.within), length, storage)?;
            }
            left.within = left.within.saturating_add(length);
            left.length = left.length.saturating_sub(length);
        }
        Ok(())
    }
}

/// Stores zeros, and keeps the space that they take.
fn write_zeros(at: u64, length: u64, storage: &dyn WritableStorage) -> Result<(), StorageError> {
    const ZEROS: &[u8] = &[0; 64 << 10];
    let (mut at, mut left) = (at, length);
    while left > 0 {
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(ZEROS.len());
        storage.write_at(ByteOffset::new(at), ZEROS.get(..count).unwrap_or(ZEROS))?;
        let count = u64::try_from(count).unwrap_or(left);
        at = at.saturating_add(count);
        left = left.saturating_sub(count);
    }
    Ok(())
}
