//! Which space of the file is free.
//!
//! Space that a block gave up must not be used again before the file says so for good: a crash could otherwise leave
//! two blocks at one place. It is *retired* first, and free once the commit that took the block's place away is in
//! the log.
use std::collections::BTreeMap;

use super::super::MIB;

/// The free space, in whole MiB.
#[derive(Debug, Default)]
pub(super) struct Space {
    /// Runs inside the file, by their first byte, with the byte behind their last. They hold anything.
    free: BTreeMap<u64, u64>,
    /// Given up since the last commit.
    retired: Vec<Run>,
    /// From here on nothing was ever stored.
    end: u64,
}

/// A run of the file: first byte, and length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) at: u64,
    pub(super) length: u64,
}

/// Space that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) at: u64,
    /// Whether it lies behind the file's end, so that it reads as zeros when the file has grown; other space holds
    /// anything.
    pub(super) is_fresh: bool,
}

impl Space {
    /// The space of a file of `file_bytes` of which `used` (first byte and behind-last byte, in any order) is taken.
    pub(super) fn of(mut used: Vec<(u64, u64)>, file_bytes: u64) -> Self {
        used.sort_unstable();
        let file_end = file_bytes.checked_next_multiple_of(MIB).unwrap_or(u64::MAX);
        let mut space = Self::default();
        let mut end = MIB;
        for (start, behind) in used {
            space.insert(end, start.min(file_end));
            end = end.max(behind.checked_next_multiple_of(MIB).unwrap_or(u64::MAX));
        }
        space.insert(end, file_end);
        space.end = end.max(file_end);
        space
    }

    /// The space of a file of which only the end is known.
    pub(super) fn behind(end: u64) -> Self {
        Self { end: end.checked_next_multiple_of(MIB).unwrap_or(u64::MAX), ..Self::default() }
    }

    /// Takes `length` bytes, a whole number of MiB.
    pub(super) fn take(&mut self, length: u64) -> Option<Found> {
        let fits = |(start, end): (&u64, &u64)| end.saturating_sub(*start) >= length;
        if let Some((&at, &end)) = self.free.iter().find(|&(start, end)| fits((start, end))) {
            self.free.remove(&at);
            self.insert(at.saturating_add(length), end);
            return Some(Found { at, is_fresh: false });
        }
        let at = self.end;
        // No file has an offset behind i64::MAX.
        self.end = at.checked_add(length).filter(|&end| i64::try_from(end).is_ok())?;
        Some(Found { at, is_fresh: true })
    }

    /// Gives space back that no lasting part of the file ever pointed at.
    pub(super) fn give_back(&mut self, run: Run) {
        self.insert(run.at, run.at.saturating_add(run.length));
    }

    /// A block has given up its place.
    pub(super) fn retire(&mut self, run: Run) {
        self.retired.push(run);
    }

    /// What was retired up to now: a commit takes it along.
    pub(super) fn take_retired(&mut self) -> Vec<Run> {
        std::mem::take(&mut self.retired)
    }

    /// The commit that took them along has failed.
    pub(super) fn restore_retired(&mut self, runs: &[Run]) {
        self.retired.extend(runs);
    }

    fn insert(&mut self, mut start: u64, mut end: u64) {
        if start >= end {
            return;
        }
        if let Some((&before, &before_end)) = self.free.range(..start).next_back()
            && before_end == start
        {
            self.free.remove(&before);
            start = before;
        }
        if let Some(behind_end) = self.free.remove(&end) {
            end = behind_end;
        }
        self.free.insert(start, end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(at_mib: u64, is_fresh: bool) -> Found {
        Found { at: at_mib * MIB, is_fresh }
    }

    #[test]
    fn gaps_between_used_space_are_used_before_the_file_grows() {
        let used = vec![(0, MIB), (8 * MIB, 10 * MIB), (MIB, 3 * MIB), (5 * MIB, 6 * MIB + 512)];
        let mut space = Space::of(used, 12 * MIB);
        assert_eq!(space.take(2 * MIB), Some(found(3, false)));
        assert_eq!(space.take(2 * MIB), Some(found(10, false)));
        assert_eq!(space.take(2 * MIB), Some(found(12, true)));
        assert_eq!(space.take(MIB), Some(found(7, false)));
        assert_eq!(space.take(MIB), Some(found(14, true)));
    }

    #[test]
    fn used_space_behind_the_end_of_the_file_is_not_given_away() {
        let mut space = Space::of(vec![(0, MIB), (4 * MIB, 8 * MIB)], 5 * MIB + 512);
        assert_eq!(space.take(4 * MIB), Some(found(8, true)));
        assert_eq!(space.take(3 * MIB), Some(found(1, false)));
    }

    #[test]
    fn retired_space_waits_for_its_commit_and_joins_its_neighbours() {
        let mut space = Space::of(vec![(0, 4 * MIB)], 4 * MIB);
        for at in [1, 3, 2] {
            space.retire(Run { at: at * MIB, length: MIB });
        }
        assert_eq!(space.take(MIB), Some(found(4, true)));
        let retired = space.take_retired();
        assert_eq!(retired.len(), 3);
        retired.into_iter().for_each(|run| space.give_back(run));
        assert_eq!(space.take(3 * MIB), Some(found(1, false)));
    }

    #[test]
    fn space_that_no_offset_can_name_is_not_found() {
        let mut space = Space::behind(i64::MAX as u64 - 4 * MIB);
        assert!(space.take(2 * MIB).is_some());
        assert_eq!(space.take(2 * MIB), None);
    }
}
