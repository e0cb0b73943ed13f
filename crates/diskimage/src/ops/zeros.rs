//! Finding zeros in bytes that were read.

/// Where zeros that a source stores are looked for, to leave them out of the new image. What the source's tables and
/// the file system call zeros is left out in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FindZeros {
    /// Nowhere: the kernel may copy, which is the fastest way where nothing can be shared.
    Nowhere,
    /// In what has to be copied anyway. What can be shared is not read.
    #[default]
    WhereCopied,
    /// In all that is stored.
    Everywhere,
}

/// The unit in which zeros are looked for, and holes are left: what file systems allocate at least.
pub(super) const GRAIN_BYTES: usize = 4096;

/// Whether all of `bytes` are zero.
pub(super) fn is_zero(bytes: &[u8]) -> bool {
    static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
    // The comparison of slices is the fastest loop over memory that there is.
    bytes.chunks(ZEROS.len()).all(|chunk| ZEROS.get(..chunk.len()) == Some(chunk))
}

/// The runs of `bytes`, which lie at `at` of a file, that are not zero, in whole grains of the file: place in `bytes`
/// and length. Neighbours are one run.
pub(super) fn data_runs(bytes: &[u8], at: u64) -> DataRuns<'_> {
    DataRuns { bytes, at, place: 0 }
}

/// See [`data_runs`].
#[derive(Debug)]
pub(super) struct DataRuns<'a> {
    bytes: &'a [u8],
    at: u64,
    place: usize,
}

impl DataRuns<'_> {
    /// The end of the grain in which the byte at `place` lies.
    fn grain_end(&self, place: usize) -> usize {
        const GRAIN: u64 = GRAIN_BYTES as u64;
        let within = self.at.saturating_add(u64::try_from(place).unwrap_or_default()) % GRAIN;
        let left = usize::try_from(GRAIN.saturating_sub(within)).unwrap_or(GRAIN_BYTES);
        place.saturating_add(left).min(self.bytes.len())
    }

    fn is_zero(&self, from: usize, to: usize) -> bool {
        self.bytes.get(from..to).is_none_or(is_zero)
    }
}

impl Iterator for DataRuns<'_> {
    type Item = (usize, usize);

    fn next(&mut self) -> Option<Self::Item> {
        let mut start = self.place;
        while start < self.bytes.len() && self.is_zero(start, self.grain_end(start)) {
            start = self.grain_end(start);
        }
        let mut end = start;
        while end < self.bytes.len() && !self.is_zero(end, self.grain_end(end)) {
            end = self.grain_end(end);
        }
        self.place = end;
        (start < end).then(|| (start, end.saturating_sub(start)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_told_from_a_single_byte_at_either_end() {
        for length in [0, 1, 4096, (64 << 10) + 1, 200_000] {
            let mut bytes = vec![0; length];
            assert!(is_zero(&bytes));
            for place in [0, length.saturating_sub(1)].into_iter().filter(|_| length > 0) {
                bytes[place] = 1;
                assert!(!is_zero(&bytes), "{length}, {place}");
                bytes[place] = 0;
            }
        }
    }

    #[test]
    fn runs_are_grains_of_the_file_and_not_of_the_buffer() {
        let mut bytes = vec![0; 20_000];
        bytes[100] = 1;
        bytes[4096] = 1;
        bytes[19_999] = 1;
        let runs = |at| data_runs(&bytes, at).collect::<Vec<_>>();
        assert_eq!(runs(0), [(0, 8192), (16_384, 3616)]);
        // The buffer begins 1000 bytes behind a grain's start.
        assert_eq!(runs(1000), [(0, 7192), (19_480, 520)]);
        assert_eq!(data_runs(&[0; 9000], 5).next(), None);
        assert_eq!(data_runs(&[], 5).next(), None);
    }
}
