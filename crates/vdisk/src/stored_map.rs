//! The presence map in the file: what survives the death of the process.
//!
//! One byte a cluster: `00` absent, `5A` data, `A5` hole; any other value is damage. A byte and not two bits, so that
//! neighbours are stored without reading and without a lock between them. The bytes of one segment lie in one page
//! of the page cache, so that the map of a write is stored wholly or not at all.
use std::io;

use crate::cluster::{CLUSTER_BYTES, CLUSTERS_A_SEGMENT, ClusterRun, State};
use crate::file::CacheFile;
use crate::header::Clean;
use crate::layout::Layout;
use crate::presence::PresenceMap;

const ABSENT: u8 = 0x00;
const DATA: u8 = 0x5A;
const HOLE: u8 = 0xA5;

/// How much of the map is checked and summed in one piece.
const PAGE_BYTES: usize = CLUSTER_BYTES as usize;

/// Why a stored map cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    #[error("the map holds {byte:#04x} for cluster {cluster}")]
    Byte { cluster: u64, byte: u8 },
    #[error("the map holds {byte:#04x} behind its last cluster")]
    BehindEnd { byte: u8 },
    #[error("the map of a device of {0} clusters does not fit in memory")]
    TooLarge(u64),
    #[error("reading the map failed")]
    Io(#[from] io::Error),
}

/// Stores that the clusters of `run`, which lie in one segment, are in `state`.
pub(crate) fn store(file: &CacheFile, layout: Layout, run: ClusterRun, state: State) -> io::Result<()> {
    let bytes = [encode(state); CLUSTERS_A_SEGMENT as usize];
    let count = usize::try_from(run.count()).unwrap_or(usize::MAX);
    let bytes = bytes.get(..count).ok_or(io::ErrorKind::InvalidInput)?;
    file.write(layout.map_offset(run), bytes)
}

/// Reads the map, and what a clean close would say about it.
pub(crate) fn load(file: &CacheFile, layout: Layout) -> Result<(PresenceMap, Clean), LoadError> {
    let map = PresenceMap::new(layout.clusters()).ok_or(LoadError::TooLarge(layout.clusters()))?;
    let mut sum = Sum::default();
    let mut at = layout.map_start();
    while let Some((start, end)) = file.next_data(at)? {
        // Data begins at a block of the file system, which may be smaller or larger than a page of ours.
        let mut page_at = start.saturating_sub(start % CLUSTER_BYTES).max(at);
        while page_at < end.min(layout.header_start()) {
            let mut page = [0; PAGE_BYTES];
            file.read(page_at, &mut page)?;
            let first = page_at.saturating_sub(layout.map_start());
            sum.add(first / CLUSTER_BYTES, &page);
            take_page(&map, first, &page)?;
            page_at = page_at.saturating_add(CLUSTER_BYTES);
        }
        if end >= layout.header_start() {
            break;
        }
        at = page_at;
    }
    let data_clusters = map.count(ClusterRun { start: 0, end: map.clusters() }, State::Data);
    Ok((map, Clean { data_clusters, map_crc32c: sum.crc32c }))
}

/// What a clean close says about the map in memory.
pub(crate) fn summarize(map: &PresenceMap) -> Clean {
    let mut sum = Sum::default();
    let mut rest = ClusterRun { start: 0, end: map.clusters() };
    while !rest.is_empty() {
        let (state, run) = map.first_run(rest);
        // Whole pages of absent clusters count nothing: go on with the page in which something else begins.
        let first = match state {
            State::Absent if run.end == map.clusters() => break,
            State::Absent => run.end.saturating_sub(run.end % CLUSTER_BYTES),
            State::Data | State::Hole => rest.start.saturating_sub(rest.start % CLUSTER_BYTES),
        };
        let end = first.saturating_add(CLUSTER_BYTES).min(map.clusters());
        sum.add(first / CLUSTER_BYTES, &page(map, ClusterRun { start: first, end }));
        rest.start = end;
    }
    let data_clusters = map.count(ClusterRun { start: 0, end: map.clusters() }, State::Data);
    Clean { data_clusters, map_crc32c: sum.crc32c }
}

/// The bytes of the clusters of `covered`, at most a page of them.
fn page(map: &PresenceMap, covered: ClusterRun) -> [u8; PAGE_BYTES] {
    let mut page = [ABSENT; PAGE_BYTES];
    for (state, run) in map.runs(covered) {
        let within =
            |cluster: u64| usize::try_from(cluster.saturating_sub(covered.start)).unwrap_or(usize::MAX);
        if let Some(bytes) = page.get_mut(within(run.start)..within(run.end)) {
            bytes.fill(encode(state));
        }
    }
    page
}

/// The checksum of a map: that of its pages which are not all zeros, each after its number. So holes of the file and
/// stored zeros count alike.
#[derive(Default)]
struct Sum {
    crc32c: u32,
}

impl Sum {
    fn add(&mut self, index: u64, page: &[u8; PAGE_BYTES]) {
        if page.iter().any(|&byte| byte != ABSENT) {
            let numbered = crc32c::crc32c_append(self.crc32c, &index.to_le_bytes());
            self.crc32c = crc32c::crc32c_append(numbered, page);
        }
    }
}

fn take_page(map: &PresenceMap, first: u64, page: &[u8; PAGE_BYTES]) -> Result<(), LoadError> {
    let mut at = first;
    for bytes in page.chunk_by(|a, b| a == b) {
        let (Some(&byte), end) = (bytes.first(), at.saturating_add(bytes.len() as u64)) else { break };
        let state = decode(byte).ok_or(LoadError::Byte { cluster: at, byte })?;
        if state != State::Absent {
            if end > map.clusters() {
                return Err(LoadError::BehindEnd { byte });
            }
            map.set(ClusterRun { start: at, end }, state);
        }
        at = end;
    }
    Ok(())
}

fn encode(state: State) -> u8 {
    match state {
        State::Absent => ABSENT,
        State::Data => DATA,
        State::Hole => HOLE,
    }
}

fn decode(byte: u8) -> Option<State> {
    match byte {
        ABSENT => Some(State::Absent),
        DATA => Some(State::Data),
        HOLE => Some(State::Hole),
        _ => None,
    }
}
