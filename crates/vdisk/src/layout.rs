//! Where everything lies in a write cache's file.
//!
//! ```text
//! 0            the device's contents, each byte at its own offset; sparse
//! map_start    the map: one byte a cluster; sparse, filled up with zeros to a whole cluster
//! flushed_map  of a persistent write cache, the map as of the last flush: as the map
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
    map_end: u64,
    header_start: u64,
    file_bytes: u64,
}

/// Which of the maps in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WhichMap {
    /// The one that is stored with every change.
    Current,
    /// The one that is stored by flushes, of a persistent write cache.
    Flushed,
}

impl Layout {
    /// The layout for a device of `size_bytes`, with a second map if the write cache is persistent; `None` where the
    /// file would be longer than files can be.
    pub(crate) fn new(size_bytes: u64, persistent: bool) -> Option<Self> {
        let clusters = size_bytes.div_ceil(CLUSTER_BYTES);
        let map_start = clusters.checked_mul(CLUSTER_BYTES)?;
        let map_bytes = clusters.checked_next_multiple_of(CLUSTER_BYTES)?;
        let map_end = map_start.checked_add(map_bytes)?;
        let header_start = if persistent { map_end.checked_add(map_bytes)? } else { map_end };
        let file_bytes = header_start.checked_add(HEADER_BYTES)?;
        let layout = Self { clusters, map_start, map_end, header_start, file_bytes };
        (file_bytes <= MAX_FILE_BYTES).then_some(layout)
    }

    pub(crate) fn clusters(self) -> u64 {
        self.clusters
    }

    /// Where a map begins and ends.
    pub(crate) fn map(self, which: WhichMap) -> (u64, u64) {
        match which {
            WhichMap::Current => (self.map_start, self.map_end),
            WhichMap::Flushed => (self.map_end, self.header_start),
        }
    }

    pub(crate) fn header_start(self) -> u64 {
        self.header_start
    }

    pub(crate) fn file_bytes(self) -> u64 {
        self.file_bytes
    }

    /// Where a page of the map of the last flush begins.
    pub(crate) fn flushed_map_page(self, page: u64) -> u64 {
        self.map_end.saturating_add(page.saturating_mul(CLUSTER_BYTES))
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
        let layout = Layout::new((4096 * 4096) + 512, false).unwrap();
        assert_eq!(layout.clusters(), 4097);
        let map_start = 4097 * 4096;
        assert_eq!(layout.map(WhichMap::Current), (map_start, map_start + 2 * 4096));
        assert_eq!(layout.header_start(), map_start + 2 * 4096);
        assert_eq!(layout.file_bytes(), layout.header_start() + 4096);
        assert_eq!(layout.map_offset(ClusterRun { start: 7, end: 9 }), map_start + 7);
        let persistent = Layout::new((4096 * 4096) + 512, true).unwrap();
        assert_eq!(persistent.map(WhichMap::Current), layout.map(WhichMap::Current));
        assert_eq!(persistent.map(WhichMap::Flushed), (map_start + 2 * 4096, map_start + 4 * 4096));
        assert_eq!(persistent.flushed_map_page(1), map_start + 3 * 4096);
        assert_eq!(persistent.header_start(), map_start + 4 * 4096);
    }

    #[test]
    fn device_whose_file_would_be_too_long_is_refused() {
        assert_eq!(Layout::new(u64::MAX, false), None);
        assert_eq!(Layout::new(i64::MAX as u64, false), None);
        assert!(Layout::new(1 << 50, true).is_some());
    }
}
