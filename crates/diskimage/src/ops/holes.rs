//! Holes of a file: ranges for which the file system stores nothing.
//!
//! They are asked for with `SEEK_DATA` and `SEEK_HOLE`, and the last answer is kept: places come mostly in order, and
//! a long hole or a long run of data is then asked for once. Holes below [`MIN_HOLE_BYTES`] count as data: to leave
//! them out costs more than to take them along.
use std::fs::File;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

/// Shorter holes are not looked at.
const MIN_HOLE_BYTES: u64 = 64 << 10;

/// What was last learnt of one file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Holes {
    start: u64,
    end: u64,
    is_hole: bool,
}

impl Holes {
    /// Whether the byte of `file` at `at` lies in a hole, and how many bytes from there on, `length` at most, do the
    /// same.
    pub(super) fn look(&mut self, file: &File, at: u64, length: u64) -> (bool, u64) {
        if at < self.start || at >= self.end {
            *self = Self::ask(file, at, length);
        }
        (self.is_hole, self.end.saturating_sub(at).min(length))
    }

    /// Finds the run in which `at` lies. A run of data is followed no further than the `length` bytes.
    fn ask(file: &File, at: u64, length: u64) -> Self {
        let wanted = at.saturating_add(length);
        let is_long = |from: u64, to: u64| to.saturating_sub(from) >= MIN_HOLE_BYTES;
        let mut end = match next_data(file, at) {
            Some(data) if is_long(at, data) => return Self { start: at, end: data, is_hole: true },
            Some(data) => data,
            // A file that cannot be asked is all data.
            None => return Self { start: at, end: u64::MAX, is_hole: false },
        };
        while end < wanted {
            let hole = rustix::fs::seek(file, SeekFrom::Hole(end)).unwrap_or(u64::MAX);
            end = hole.max(end);
            match next_data(file, end) {
                Some(data) if data > end && !is_long(end, data) => end = data,
                _ => break,
            }
        }
        Self { start: at, end: end.max(at.saturating_add(1)), is_hole: false }
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
        assert_eq!(holes.look(&file, 1 << 20, all), (false, 3 * 4096));
        assert_eq!(holes.look(&file, (1 << 20) + 5000, all), (false, 3 * 4096 - 5000), "a short hole");
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
