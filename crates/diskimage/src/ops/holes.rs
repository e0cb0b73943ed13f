//! Holes of a file: ranges for which the file system stores nothing.
//!
//! They are asked for with `SEEK_DATA` and `SEEK_HOLE`, front to back and once: such a question costs as much as the
//! file has extents up to the answer, and payload lies in a file in any order. Holes below [`MIN_HOLE_BYTES`] count as
//! data: to leave them out costs more than to take them along.
use std::fs::File;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

/// Shorter holes are not looked at.
const MIN_HOLE_BYTES: u64 = 64 << 10;
/// Of a file of more runs than this, what lies behind counts as data. In memory they take 16 MiB.
const MAX_RUNS: usize = 1 << 20;

/// What is known of one file.
#[derive(Clone, Debug, Default)]
pub(super) struct Holes {
    /// Where data lie, first byte and behind-last byte, in order.
    runs: Vec<(u64, u64)>,
    /// All before this place is known.
    known_to: u64,
}

impl Holes {
    /// Whether the byte of `file` at `at` lies in a hole, and how many bytes from there on, `length` at most, do the
    /// same.
    pub(super) fn look(&mut self, file: &File, at: u64, length: u64) -> (bool, u64) {
        while self.known_to <= at {
            self.learn(file);
        }
        let (is_hole, end) = match self.runs.partition_point(|(_, end)| *end <= at) {
            next if next == self.runs.len() => (true, self.known_to),
            next => match self.runs.get(next) {
                Some(&(start, _)) if at < start => (true, start),
                Some(&(_, end)) => (false, end),
                None => (false, u64::MAX),
            },
        };
        (is_hole, end.saturating_sub(at).min(length))
    }

    /// Learns of the next run of data, and of the hole before it.
    fn learn(&mut self, file: &File) {
        let start = match next_data(file, self.known_to) {
            _ if self.runs.len() >= MAX_RUNS => self.known_to,
            // A file that cannot be asked is all data.
            None => self.known_to,
            // There is nothing more.
            Some(u64::MAX) => {
                self.known_to = u64::MAX;
                return;
            }
            Some(data) => data,
        };
        let hole = rustix::fs::seek(file, SeekFrom::Hole(start)).unwrap_or(u64::MAX);
        let end = if self.runs.len() >= MAX_RUNS { u64::MAX } else { hole.max(start.saturating_add(1)) };
        match self.runs.last_mut() {
            Some(last) if start.saturating_sub(last.1) < MIN_HOLE_BYTES => last.1 = end,
            _ => self.runs.push((start, end)),
        }
        self.known_to = end;
    }
}

/// Where the next data are from `at` on: nowhere is the last place there is. `None` where that cannot be told.
fn next_data(file: &File, at: u64) -> Option<u64> {
    match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(data) => Some(data),
        Err(Errno::NXIO) => Some(u64::MAX),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn long_holes_are_told_from_data_and_short_ones_are_not() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4 << 20).unwrap();
        let page = [1; 4096];
        // Data at 1 MiB, with a hole of one page behind, and at 2 MiB.
        for at in [1 << 20, (1 << 20) + 8192, 2 << 20] {
            file.write_all_at(&page, at).unwrap();
        }
        let mut holes = Holes::default();
        let all = 4 << 20;
        assert_eq!(holes.look(&file, 0, all), (true, 1 << 20));
        assert_eq!(holes.look(&file, 4096, 100), (true, 100));
        let (is_hole, run) = holes.look(&file, 1 << 20, all);
        assert!(!is_hole && run > 0);
        assert_eq!(holes.look(&file, 2 << 20, all), (false, 4096));
        assert_eq!(holes.look(&file, 1 << 20, all), (false, 3 * 4096), "over a short hole");
        assert_eq!(holes.look(&file, (1 << 20) + 5000, all), (false, 3 * 4096 - 5000));
        assert_eq!(holes.look(&file, (1 << 20) + 3 * 4096, 1 << 19), (true, 1 << 19));
        assert_eq!(holes.look(&file, (2 << 20) + 4096, all), (true, all), "to the end and behind it");
        assert_eq!(holes.look(&file, 5, 10), (true, 10), "back again");
    }

    #[test]
    fn file_without_an_answer_is_all_data() {
        let null = File::open("/proc/self/status").unwrap();
        assert_eq!(Holes::default().look(&null, 10, 1 << 20), (false, 1 << 20));
    }
}
