//! Which parts of a file are taken: one bit for each MiB of it, since all that a VHDX file is made of begins at one.
use super::super::MIB;

/// Longer files are not checked: the largest disk in the smallest blocks, with a sector bitmap for each chunk, takes 66
/// TiB. It bounds the maps' memory, 16 MiB each.
const MAX_FILE_BYTES: u64 = 128 << 40;

/// The MiB of a file, each taken or not.
#[derive(Debug)]
pub(super) struct Space {
    words: Vec<u64>,
    mibs: u64,
}

impl Space {
    /// The space of a file of `file_bytes`, nothing of it taken; `None` where the file is too long.
    pub(super) fn new(file_bytes: u64) -> Option<Self> {
        if file_bytes > MAX_FILE_BYTES {
            return None;
        }
        let mibs = file_bytes.div_ceil(MIB);
        let words = usize::try_from(mibs.div_ceil(64)).ok()?;
        Some(Self { words: vec![0; words], mibs })
    }

    /// Takes what lies between these places in the file, and says whether a part of it was taken before.
    pub(super) fn take(&mut self, start: u64, end: u64) -> bool {
        let mut was_taken = false;
        for mib in (start / MIB)..end.div_ceil(MIB).min(self.mibs) {
            let (word, bit) = locate(mib);
            if let Some(word) = self.words.get_mut(word) {
                was_taken |= *word & bit != 0;
                *word |= bit;
            }
        }
        was_taken
    }

    /// How many MiB are taken here and there.
    pub(super) fn shared_with(&self, other: &Self) -> u64 {
        let both =
            self.words.iter().zip(&other.words).map(|(one, other)| u64::from((one & other).count_ones()));
        both.fold(0, u64::saturating_add)
    }

    /// How many MiB are taken neither here nor there, and where the last of the others ends.
    pub(super) fn left_by(&self, other: &Self) -> (u64, u64) {
        let mut free: u64 = 0;
        let mut end = 0;
        for mib in 0..self.mibs {
            let (word, bit) = locate(mib);
            let is_taken = |space: &Self| space.words.get(word).is_some_and(|word| word & bit != 0);
            if is_taken(self) || is_taken(other) {
                end = mib.saturating_add(1);
            } else {
                free = free.saturating_add(1);
            }
        }
        (free, end.saturating_mul(MIB))
    }
}

/// The word of a MiB's bit, and the bit in it.
fn locate(mib: u64) -> (usize, u64) {
    let bit = u32::try_from(mib % 64).ok().and_then(|bit| 1_u64.checked_shl(bit));
    (usize::try_from(mib / 64).unwrap_or(usize::MAX), bit.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_taken_once() {
        let mut space = Space::new(200 * MIB).unwrap();
        let other = Space::new(200 * MIB).unwrap();
        assert!(!space.take(0, 70 * MIB));
        assert!(!space.take(70 * MIB, 70 * MIB + 1));
        assert!(space.take(70 * MIB, 71 * MIB), "a part of a MiB is all of it");
        assert!(!space.take(190 * MIB, 300 * MIB), "behind the end there is nothing to take");
        assert_eq!(space.left_by(&other), (119, 200 * MIB));
        assert_eq!(space.shared_with(&other), 0);
    }

    #[test]
    fn free_tail_begins_behind_the_last_part_that_is_taken_anywhere() {
        let mut space = Space::new(100 * MIB).unwrap();
        let mut other = Space::new(100 * MIB).unwrap();
        space.take(0, 10 * MIB);
        other.take(9 * MIB, 20 * MIB);
        assert_eq!(space.left_by(&other), (80, 20 * MIB));
        assert_eq!(space.shared_with(&other), 1);
        assert!(Space::new((128 << 40) + 1).is_none());
    }
}
