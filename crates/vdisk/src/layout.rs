//! Where everything lies in a write cache's file.
//!
//! ```text
//! 0            the device's contents, each byte at its own offset; sparse
//! map_start    the map: one byte a cluster; sparse, filled up with zeros to a whole cluster
//! header_start the header: one cluster, the last of the file
//! ```
//! The contents stand first, so that they lie at identity offsets; the header stands last, so that it is found
//! without knowing the device's size.
use crate::cluster::{CLUSTER_BYTES, ClusterRun};

/// The header's length.
pub(crate) const HEADER_BYTES: u64 = CLUSTER_BYTES;

/// Files end here: file offsets are signed.
const MAX_FILE_BYTES: u64 = i64::MAX as u64;

/// The places in the file of a device of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    clusters: u64,
    map_start: u64,
    header_start: u64,
    file_bytes: u64,
}

impl Layout {
    /// The layout for a device of `size_bytes`; `None` where the file would be longer than files can be.
    pub(crate) fn new(size_bytes: u64) -> Option<Self> {
        let clusters = size_bytes.div_ceil(CLUSTER_BYTES);
        let map_start = clusters.checked_mul(CLUSTER_BYTES)?;
        let header_start = map_start.checked_add(clusters.checked_next_multiple_of(CLUSTER_BYTES)?)?;
        let file_bytes = header_start.checked_add(HEADER_BYTES)?;
        (file_bytes <= MAX_FILE_BYTES).then_some(Self { clusters, map_start, header_start, file_bytes })
    }

    pub(crate) fn clusters(self) -> u64 {
        self.clusters
    }

    pub(crate) fn map_start(self) -> u64 {
        self.map_start
    }

    pub(crate) fn header_start(self) -> u64 {
        self.header_start
    }

    pub(crate) fn file_bytes(self) -> u64 {
        self.file_bytes
    }

    /// Where the map's bytes for `run` begin.
    pub(crate) fn map_offset(self, run: ClusterRun) -> u64 {
        self.map_start.saturating_add(run.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_each_other_in_whole_clusters() {
        let layout = Layout::new((4096 * 4096) + 512).unwrap();
        assert_eq!(layout.clusters(), 4097);
        assert_eq!(layout.map_start(), 4097 * 4096);
        assert_eq!(layout.header_start(), layout.map_start() + 2 * 4096);
        assert_eq!(layout.file_bytes(), layout.header_start() + 4096);
        assert_eq!(layout.map_offset(ClusterRun { start: 7, end: 9 }), layout.map_start() + 7);
    }

    #[test]
    fn device_whose_file_would_be_too_long_is_refused() {
        assert_eq!(Layout::new(u64::MAX), None);
        assert_eq!(Layout::new(i64::MAX as u64), None);
        assert!(Layout::new(1 << 50).is_some());
    }
}
