//! Histories of versions, at random and mutated, leave every disk as its flat model: the part of that fuzzing that every
//! test run affords.
//!
//! A program of its own, since locks of files pass to the children of a process for a moment, and the other tests start
//! many.
use diskimage::fuzz;
use mutate::{Mutator, Rng};

#[test]
fn changed_histories_of_versions_leave_every_disk_as_its_model() {
    // In memory where that can be: a history flushes its files many times.
    let memory = std::path::Path::new("/dev/shm");
    let place = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let folder = tempfile::tempdir_in(place).unwrap();
    let run = |history: &[u8]| fuzz::versions(history, folder.path());
    let mut seeds = Vec::new();
    for kind in 0..32 {
        let mut rng = Rng::new(u64::from(kind) + 1);
        let operations = (0..24).flat_map(|_| rng.next().to_le_bytes());
        seeds.push([kind].into_iter().chain(operations).collect::<Vec<u8>>());
        run(seeds.last().unwrap());
    }
    Mutator::new(seeds, 512).seeding("image_versions").run(16, run);
}
