//! Clusters: the units in which a write cache keeps track of what it holds.
use block::{ByteLength, ByteOffset, ByteRange};

/// A cluster, in bytes: a page of the page cache and a block of the usual file systems, so that one cluster costs
/// one block and a hole punched for it frees one.
pub(crate) const CLUSTER_BYTES: u64 = 4096;

/// How many clusters one lock guards, and thereby the longest piece that is written under one lock: 1 MiB.
pub(crate) const CLUSTERS_A_SEGMENT: u64 = 256;

/// A segment, in bytes.
const SEGMENT_BYTES: u64 = CLUSTERS_A_SEGMENT * CLUSTER_BYTES;

/// What the write cache knows about a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Never written: the image holds the contents.
    Absent,
    /// The cache file holds the contents.
    Data,
    /// Reads as zeros, whatever the image or the cache file hold.
    Hole,
}

/// A run of neighbouring clusters; `end` is the first cluster behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClusterRun {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl ClusterRun {
    /// All clusters of which `range` touches at least a byte.
    pub(crate) fn touched_by(range: ByteRange) -> Self {
        let start = range.start().get() / CLUSTER_BYTES;
        let end = if range.is_empty() { start } else { range.end().get().div_ceil(CLUSTER_BYTES) };
        Self { start, end }
    }

    /// All clusters that lie wholly in `range`. The last cluster of a device whose size is no multiple of the
    /// cluster counts as whole where the range reaches the end of the device.
    pub(crate) fn inside(range: ByteRange, device_size: ByteLength) -> Self {
        let start = range.start().get().div_ceil(CLUSTER_BYTES);
        let reaches_end = range.end().get() == device_size.get();
        let end = match reaches_end {
            true => range.end().get().div_ceil(CLUSTER_BYTES),
            false => range.end().get() / CLUSTER_BYTES,
        };
        Self { start, end: end.max(start) }
    }

    pub(crate) fn is_empty(self) -> bool {
        self.start >= self.end
    }

    /// The number of clusters.
    pub(crate) fn count(self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Where the first cluster begins, in bytes.
    pub(crate) fn start_offset(self) -> u64 {
        self.start.saturating_mul(CLUSTER_BYTES)
    }

    /// Where the last cluster ends, in bytes.
    pub(crate) fn end_offset(self) -> u64 {
        self.end.saturating_mul(CLUSTER_BYTES)
    }

    /// The run's length in bytes.
    pub(crate) fn bytes(self) -> u64 {
        self.count().saturating_mul(CLUSTER_BYTES)
    }

    /// The part of the run that lies in the segment of its first cluster, and the rest.
    pub(crate) fn cut(self) -> (Self, Self) {
        let boundary = next_boundary(self.start, CLUSTERS_A_SEGMENT).min(self.end);
        (Self { end: boundary, ..self }, Self { start: boundary, ..self })
    }
}

/// Which segment a cluster lies in.
pub(crate) fn segment_of(cluster: u64) -> u64 {
    cluster / CLUSTERS_A_SEGMENT
}

/// The bytes of `range` that lie in the segment of its first byte: how many there are.
pub(crate) fn bytes_in_first_segment(range: ByteRange) -> u64 {
    let boundary = next_boundary(range.start().get(), SEGMENT_BYTES);
    boundary.min(range.end().get()).saturating_sub(range.start().get())
}

/// The bytes of `range` before its first whole cluster and behind its last one. Where no cluster lies wholly
/// inside, the first holds all.
pub(crate) fn edges(range: ByteRange, inside: ClusterRun) -> [Option<ByteRange>; 2] {
    if inside.is_empty() {
        return [Some(range).filter(|range| !range.is_empty()), None];
    }
    let piece = |from: u64, to: u64| {
        let length = ByteLength::new(to.saturating_sub(from));
        ByteRange::new(ByteOffset::new(from), length).filter(|range| !range.is_empty())
    };
    [piece(range.start().get(), inside.start_offset()), piece(inside.end_offset(), range.end().get())]
}

fn next_boundary(at: u64, unit: u64) -> u64 {
    at.checked_div(unit).unwrap_or_default().saturating_add(1).saturating_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, length: u64) -> ByteRange {
        ByteRange::new(ByteOffset::new(start), ByteLength::new(length)).unwrap()
    }

    #[test]
    fn whole_clusters_of_a_range_leave_out_its_edges() {
        let size = ByteLength::new(1 << 20);
        assert_eq!(ClusterRun::inside(range(512, 8192), size), ClusterRun { start: 1, end: 2 });
        assert!(ClusterRun::inside(range(512, 4096), size).is_empty());
        assert!(ClusterRun::inside(range(4096, 0), size).is_empty());
        assert_eq!(ClusterRun::touched_by(range(512, 8192)), ClusterRun { start: 0, end: 3 });
        assert!(ClusterRun::touched_by(range(8192, 0)).is_empty());
    }

    #[test]
    fn last_odd_cluster_is_whole_when_the_range_reaches_the_end() {
        let size = ByteLength::new(4096 + 1024);
        assert_eq!(ClusterRun::inside(range(4096, 1024), size), ClusterRun { start: 1, end: 2 });
        assert!(ClusterRun::inside(range(4096, 512), size).is_empty());
        assert_eq!(edges(range(0, 5120), ClusterRun::inside(range(0, 5120), size)), [None, None]);
    }

    #[test]
    fn runs_are_cut_at_segments() {
        let (first, rest) = ClusterRun { start: 250, end: 600 }.cut();
        assert_eq!((first, rest), (ClusterRun { start: 250, end: 256 }, ClusterRun { start: 256, end: 600 }));
        assert_eq!(bytes_in_first_segment(range((1 << 20) - 512, 4096)), 512);
        assert_eq!(bytes_in_first_segment(range(1 << 20, 4096)), 4096);
    }

    #[test]
    fn edges_are_what_surrounds_the_whole_clusters() {
        let size = ByteLength::new(1 << 20);
        let all = range(512, 8192);
        assert_eq!(
            edges(all, ClusterRun::inside(all, size)),
            [Some(range(512, 3584)), Some(range(8192, 512))]
        );
        assert_eq!(
            edges(range(512, 512), ClusterRun::inside(range(512, 512), size)),
            [Some(range(512, 512)), None]
        );
    }
}
