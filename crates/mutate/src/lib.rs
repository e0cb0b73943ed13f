//! Deterministic mutations of seed inputs: fuzz smokes that run in ordinary tests, on a stable toolchain.
//!
//! A smoke takes valid inputs (golden bytes), changes them in the ways that break decoders (flipped bits, extreme
//! integers at any width and byte order, cut and repeated runs, splices of two seeds) and hands each to the decoder,
//! which must return, not panic. The same seeds give the same inputs on every machine; a failure names the round, so
//! that [`Mutator::nth`] makes it again. The cargo-fuzz targets in `fuzz/` call the same decoder entry points for
//! hours; this is the part of it that every test run can afford.

use std::hash::{DefaultHasher, Hasher as _};

/// Makes mutated inputs from seeds.
#[derive(Clone, Debug)]
pub struct Mutator {
    seeds: Vec<Vec<u8>>,
    max_bytes: usize,
}

/// Names the directory into which [`leave_seeds`] writes.
const SEED_DIRECTORY: &str = "HEADWATER_FUZZ_SEEDS";

/// The most changes that one input gets.
const MAX_CHANGES: u64 = 6;

/// Integers at which length and bounds checks go wrong.
const EXTREMES: [u64; 12] = [
    0,
    1,
    0x7F,
    0x80,
    0xFF,
    0xFFFF,
    0x7FFF_FFFF,
    0x8000_0000,
    0xFFFF_FFFF,
    0x7FFF_FFFF_FFFF_FFFF,
    0x8000_0000_0000_0000,
    u64::MAX,
];

impl Mutator {
    /// A mutator of these seeds, none of whose outputs is longer than `max_bytes`.
    #[must_use]
    pub fn new(seeds: Vec<Vec<u8>>, max_bytes: usize) -> Self {
        Self { seeds, max_bytes }
    }

    /// As [`leave_seeds`], of this mutator's seeds.
    #[must_use]
    pub fn seeding(self, target: &str) -> Self {
        leave_seeds(target, &self.seeds);
        self
    }

    /// The input of round `round`.
    #[must_use]
    pub fn nth(&self, round: u64) -> Vec<u8> {
        let mut rng = Rng::new(round);
        let mut input = self.seed(&mut rng).to_vec();
        for _ in 0..=rng.below(MAX_CHANGES) {
            self.change(&mut input, &mut rng);
        }
        input.truncate(self.max_bytes);
        input
    }

    /// Hands the inputs of the first `rounds` rounds to `decode`.
    ///
    /// # Panics
    /// Where `decode` panics; standard error then names the round.
    pub fn run(&self, rounds: u64, mut decode: impl FnMut(&[u8])) {
        for round in 0..rounds {
            let guard = NameRound(round);
            decode(&self.nth(round));
            std::mem::forget(guard);
        }
    }

    fn seed(&self, rng: &mut Rng) -> &[u8] {
        let index = rng.below(self.seeds.len() as u64);
        self.seeds.get(index as usize).map_or(&[], Vec::as_slice)
    }

    fn change(&self, input: &mut Vec<u8>, rng: &mut Rng) {
        let length = input.len() as u64;
        let at = rng.below(length) as usize;
        let run = (rng.below(16) as usize + 1).min(input.len() - at.min(input.len()));
        match rng.below(9) {
            0 => {
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= 1 << rng.below(8);
                }
            }
            1 => {
                if let Some(byte) = input.get_mut(at) {
                    *byte = rng.next() as u8;
                }
            }
            2 | 3 => {
                let value = EXTREMES[rng.below(EXTREMES.len() as u64) as usize].wrapping_sub(rng.below(3));
                let width = 1 << rng.below(4);
                let bytes = if rng.below(2) == 0 {
                    value.to_le_bytes()
                } else {
                    value.rotate_left(width * 8).to_be_bytes()
                };
                for (target, byte) in input
                    .iter_mut()
                    .skip(at)
                    .zip(&bytes[..if rng.below(2) == 0 { 8 } else { width as usize }])
                {
                    *target = *byte;
                }
            }
            4 => input.truncate(at),
            5 => {
                let copy = input[at.min(input.len())..][..run].to_vec();
                let to = rng.below(length + 1) as usize;
                input.splice(to..to, copy);
            }
            6 => {
                input.drain(at.min(input.len())..(at + run).min(input.len()));
            }
            7 => {
                let other = self.seed(rng);
                let from = rng.below(other.len() as u64) as usize;
                input.truncate(at);
                input.extend_from_slice(other.get(from..).unwrap_or_default());
            }
            _ => {
                let fill = rng.next() as u8;
                input.extend(std::iter::repeat_n(fill, rng.below(300) as usize));
            }
        }
    }
}

/// Leaves these inputs to the fuzz target of this name: where the environment variable `HEADWATER_FUZZ_SEEDS` names a
/// directory, they are written into a directory of the target's name in it, to begin a corpus with.
///
/// # Panics
/// Where they cannot be written.
pub fn leave_seeds(target: &str, seeds: &[Vec<u8>]) {
    let Some(root) = std::env::var_os(SEED_DIRECTORY) else { return };
    let directory = std::path::Path::new(&root).join(target);
    std::fs::create_dir_all(&directory).expect("a directory for the seeds of a fuzz target");
    for seed in seeds {
        // By its contents, since several smokes can leave seeds for one target.
        let mut name = DefaultHasher::new();
        name.write(seed);
        let name = format!("seed-{:016x}", name.finish());
        std::fs::write(directory.join(name), seed).expect("a seed of a fuzz target");
    }
}

/// Says on standard error which round was running when it is dropped by a panic.
struct NameRound(u64);

impl Drop for NameRound {
    fn drop(&mut self) {
        eprintln!("mutate: the decoder failed in round {}", self.0);
    }
}

/// A small generator of repeatable numbers (splitmix64), for tests that want random but repeatable work.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The generator with this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    #[allow(clippy::should_implement_trait, reason = "endless, and not used as an iterator")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `end`; 0 where `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next().checked_rem(end).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_round_gives_the_same_input() {
        let mutator = Mutator::new(vec![vec![1; 40], vec![2; 9], vec![]], 64);
        for round in 0..2000 {
            assert_eq!(mutator.nth(round), mutator.nth(round));
            assert!(mutator.nth(round).len() <= 64);
        }
    }

    #[test]
    fn inputs_differ_from_round_to_round() {
        let mutator = Mutator::new(vec![vec![7; 100]], 1000);
        let inputs: std::collections::HashSet<_> = (0..500).map(|round| mutator.nth(round)).collect();
        assert!(inputs.len() > 300, "only {} different inputs", inputs.len());
    }
}
