//! The presence map in the file: what survives the death of the process.
//!
//! One byte a cluster: `00` absent, `5A` data, `A5` hole; any other value is damage. A byte and not two bits, so that
//! neighbours are stored without reading and without a lock between them. The bytes of one segment lie in one page
//! of the page cache, so that the map of a write is stored wholly or not at all.
use std::io;

use crate::cluster::{CLUSTER_BYTES, CLUSTERS_A_SEGMENT, ClusterRun, State};
use crate::file::CacheFile;
use crate::header::Clean;
use crate::layout::{Layout, WhichMap};
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

/// Reads a map, and what a clean close would say about it.
pub(crate) fn load(
    file: &CacheFile,
    layout: Layout,
    which: WhichMap,
) -> Result<(PresenceMap, Clean), LoadError> {
    let map = PresenceMap::new(layout.clusters()).ok_or(LoadError::TooLarge(layout.clusters()))?;
    let mut sum = Sum::default();
    let (map_start, map_end) = layout.map(which);
    let mut at = map_start;
    while let Some((start, end)) = file.next_data(at)? {
        // Data begins at a block of the file system, which may be smaller or larger than a page of ours.
        let mut page_at = start.saturating_sub(start % CLUSTER_BYTES).max(at);
        while page_at < end.min(map_end) {
            let mut page = [0; PAGE_BYTES];
            file.read(page_at, &mut page)?;
            let first = page_at.saturating_sub(map_start);
            sum.add(first / CLUSTER_BYTES, &page);
            take_page(&map, first, &page)?;
            page_at = page_at.saturating_add(CLUSTER_BYTES);
        }
        if end >= map_end {
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
    for index in used_pages(map) {
        sum.add(index, &page_of(map, index));
    }
    let data_clusters = map.count(ClusterRun { start: 0, end: map.clusters() }, State::Data);
    Clean { data_clusters, map_crc32c: sum.crc32c }
}

/// The pages of the map that are not all absent clusters.
pub(crate) fn used_pages(map: &PresenceMap) -> impl Iterator<Item = u64> + '_ {
    let mut rest = ClusterRun { start: 0, end: map.clusters() };
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let first = match map.first_run(rest) {
            (State::Absent, run) if run.end == map.clusters() => return None,
            (State::Absent, run) => run.end,
            (State::Data | State::Hole, run) => run.start,
        };
        let page = first / CLUSTER_BYTES;
        rest.start = page.saturating_add(1).saturating_mul(CLUSTER_BYTES);
        Some(page)
    })
}

/// Stores the whole of `map` as the current one in the file, over whatever stands there.
pub(crate) fn store_all(file: &CacheFile, layout: Layout, map: &PresenceMap) -> io::Result<()> {
    let (start, end) = layout.map(WhichMap::Current);
    let store =
        |page: u64| file.write(start.saturating_add(page.saturating_mul(CLUSTER_BYTES)), &page_of(map, page));
    if file.punch(start, end.saturating_sub(start))? {
        return used_pages(map).try_for_each(store);
    }
    // Where no hole can be had, the zeros must be written.
    (0..end.saturating_sub(start) / CLUSTER_BYTES).try_for_each(store)
}

/// Page `index` of the map, as it is stored.
pub(crate) fn page_of(map: &PresenceMap, index: u64) -> [u8; PAGE_BYTES] {
    let start = index.saturating_mul(CLUSTER_BYTES).min(map.clusters());
    let end = start.saturating_add(CLUSTER_BYTES).min(map.clusters());
    page(map, ClusterRun { start, end })
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
