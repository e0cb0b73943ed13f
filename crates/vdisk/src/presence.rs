//! The presence map in memory: which cluster is where. Reading it takes no lock.
//!
//! Two bits a cluster, 32 clusters a word, in leaves of 512 MiB of the device that come into being when a cluster of
//! theirs is first set. An untouched device of 64 TiB costs 3 MiB, a device of 40 GiB written all over 2.5 MiB.
//!
//! The order that makes readers right: a writer stores the data in the cache file first and sets the state with
//! *release*; a reader loads the state with *acquire* and then reads the file. So a reader who sees
//! [`State::Data`] finds the data. Writers of one word exclude each other by the locks of [`crate::stripes`].
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::cluster::{ClusterRun, State};

const CLUSTERS_A_WORD: u64 = 32;
const WORDS_A_LEAF: u64 = 4096;
const CLUSTERS_A_LEAF: u64 = CLUSTERS_A_WORD * WORDS_A_LEAF;

/// Every pair of bits has its low bit set.
const LOW_BITS: u64 = 0x5555_5555_5555_5555;

type Leaf = Box<[AtomicU64]>;

/// The states of all clusters of a device.
#[derive(Debug)]
pub(crate) struct PresenceMap {
    leaves: Box<[OnceLock<Leaf>]>,
    clusters: u64,
}

impl PresenceMap {
    /// A map of `clusters` absent clusters; `None` where its root does not fit in memory.
    pub(crate) fn new(clusters: u64) -> Option<Self> {
        let count = usize::try_from(clusters.div_ceil(CLUSTERS_A_LEAF)).ok()?;
        let mut leaves = Vec::new();
        leaves.try_reserve_exact(count).ok()?;
        leaves.resize_with(count, OnceLock::new);
        Some(Self { leaves: leaves.into_boxed_slice(), clusters })
    }

    /// How many clusters the map covers.
    pub(crate) fn clusters(&self) -> u64 {
        self.clusters
    }

    /// The state of one cluster.
    pub(crate) fn state(&self, cluster: u64) -> State {
        self.leaf(cluster)
            .and_then(|leaf| leaf.get(word_index(cluster)))
            .map_or(State::Absent, |word| decode(word.load(Ordering::Acquire) >> shift(cluster)))
    }

    /// The state of the first cluster of `run`, and those of its clusters up to which all have the same.
    pub(crate) fn first_run(&self, run: ClusterRun) -> (State, ClusterRun) {
        let state = self.state(run.start);
        let mut end = run.start.saturating_add(1).min(run.end);
        while end < run.end {
            let Some(leaf) = self.leaf(end) else {
                if state != State::Absent {
                    break;
                }
                end = (end / CLUSTERS_A_LEAF).saturating_add(1).saturating_mul(CLUSTERS_A_LEAF).min(run.end);
                continue;
            };
            let word = leaf.get(word_index(end)).map_or(0, |word| word.load(Ordering::Acquire));
            let differing = (word ^ repeated(state)) >> shift(end);
            let same = u64::from(differing.trailing_zeros() / 2);
            let left_in_word = CLUSTERS_A_WORD.saturating_sub(end % CLUSTERS_A_WORD);
            end = end.saturating_add(same.min(left_in_word)).min(run.end);
            if same < left_in_word {
                break;
            }
        }
        (state, ClusterRun { end, ..run })
    }

    /// The runs of equal state in `run`, one after the other. Each is looked up when it is asked for.
    pub(crate) fn runs(&self, run: ClusterRun) -> impl Iterator<Item = (State, ClusterRun)> + '_ {
        let mut rest = run;
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let found = self.first_run(rest);
            rest.start = found.1.end;
            Some(found)
        })
    }

    /// How many clusters of `run` are in `state`.
    pub(crate) fn count(&self, run: ClusterRun, state: State) -> u64 {
        self.runs(run).filter(|found| found.0 == state).map(|found| found.1.count()).sum()
    }

    /// Puts all clusters of `run` into `state`. The caller has excluded other setters of these clusters, and has
    /// stored what the state promises.
    pub(crate) fn set(&self, run: ClusterRun, state: State) {
        let mut at = run.start;
        while at < run.end {
            let word_end = (at / CLUSTERS_A_WORD).saturating_add(1).saturating_mul(CLUSTERS_A_WORD);
            let end = word_end.min(run.end);
            let mask = mask(at, end);
            if let Some(word) = self.leaf_for_setting(at).and_then(|leaf| leaf.get(word_index(at))) {
                let change = |old: u64| Some((old & !mask) | (repeated(state) & mask));
                // The closure never declines, so there is nothing to learn from the result.
                let _ = word.fetch_update(Ordering::Release, Ordering::Relaxed, change);
            }
            at = end;
        }
    }

    fn slot(&self, cluster: u64) -> Option<&OnceLock<Leaf>> {
        self.leaves.get(usize::try_from(cluster / CLUSTERS_A_LEAF).ok()?)
    }

    fn leaf(&self, cluster: u64) -> Option<&Leaf> {
        self.slot(cluster)?.get()
    }

    fn leaf_for_setting(&self, cluster: u64) -> Option<&Leaf> {
        let new = || (0..WORDS_A_LEAF).map(|_| AtomicU64::new(0)).collect();
        Some(self.slot(cluster)?.get_or_init(new))
    }
}

fn word_index(cluster: u64) -> usize {
    usize::try_from(cluster / CLUSTERS_A_WORD % WORDS_A_LEAF).unwrap_or(usize::MAX)
}

/// By how many bits a cluster's pair is shifted in its word: at most 62.
fn shift(cluster: u64) -> u32 {
    u32::try_from(cluster % CLUSTERS_A_WORD).unwrap_or_default().saturating_mul(2)
}

/// The bits of the clusters from `from` up to `to`, which lie in one word.
fn mask(from: u64, to: u64) -> u64 {
    let clusters = u32::try_from(to.saturating_sub(from)).unwrap_or(u32::MAX);
    let bits = 1_u64.checked_shl(clusters.saturating_mul(2)).map_or(u64::MAX, |bit| bit.wrapping_sub(1));
    bits.wrapping_shl(shift(from))
}

fn decode(pair: u64) -> State {
    match pair & 3 {
        0 => State::Absent,
        1 => State::Data,
        _ => State::Hole,
    }
}

fn repeated(state: State) -> u64 {
    match state {
        State::Absent => 0,
        State::Data => LOW_BITS,
        State::Hole => LOW_BITS << 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::CLUSTER_BYTES;

    #[test]
    fn random_runs_agree_with_a_plain_list() {
        let clusters = CLUSTERS_A_LEAF + 1000;
        let map = PresenceMap::new(clusters).unwrap();
        let mut model = vec![State::Absent; clusters as usize];
        let mut rng = mutate::Rng::new(3);
        for _ in 0..300 {
            let start =
                if rng.below(2) == 0 { rng.below(clusters) } else { CLUSTERS_A_LEAF - rng.below(200) };
            let end = (start + 1 + rng.below(400)).min(clusters);
            let state = [State::Absent, State::Data, State::Hole][rng.below(3) as usize];
            map.set(ClusterRun { start, end }, state);
            model[start as usize..end as usize].fill(state);
        }
        let mut at = 0;
        for (state, run) in map.runs(ClusterRun { start: 0, end: clusters }) {
            assert_eq!(run.start, at);
            assert!(model[run.start as usize..run.end as usize].iter().all(|&s| s == state), "{run:?}");
            assert!(model.get(run.end as usize).is_none_or(|&next| next != state), "{run:?} is cut short");
            at = run.end;
        }
        assert_eq!(at, clusters);
        for _ in 0..2000 {
            let cluster = rng.below(clusters);
            assert_eq!(map.state(cluster), model[cluster as usize]);
        }
    }

    #[test]
    fn huge_device_is_scanned_leaf_by_leaf() {
        let clusters = (64 << 40) / CLUSTER_BYTES;
        let map = PresenceMap::new(clusters).unwrap();
        let all = ClusterRun { start: 0, end: clusters };
        assert_eq!(map.first_run(all), (State::Absent, all));
        map.set(ClusterRun { start: clusters - 1, end: clusters }, State::Data);
        assert_eq!(map.count(all, State::Data), 1);
        assert_eq!(map.leaves.iter().filter(|leaf| leaf.get().is_some()).count(), 1);
        assert!(map.leaves.len() * size_of::<OnceLock<Leaf>>() <= 3 << 20);
    }
}
