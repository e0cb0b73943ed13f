//! The death of the server process in the midst of random changes: whatever it acknowledged is there afterwards.
//!
//! The server is this test program, started again as a child. Each of its threads owns every fourth stretch of the
//! device and tells the parent over a pipe what it is about to do and what is done. The parent kills it (SIGKILL),
//! resumes the volume and compares: what was done must be there; of each thread's one change under way, each block
//! may be old or new.
use std::io::{Read, Write};
use std::process::{Command, Stdio};

use block::LogicalBlockSize;
use block::conformance::pattern;
use mutate::Rng;
use vdisk::Volume;

use crate::fixture::{CLUSTER, Fixture, discard, image, read, write, write_zeroes};

const DIRECTORY: &str = "VDISK_TEST_DEATH_DIRECTORY";
const SEED: &str = "VDISK_TEST_DEATH_SEED";
const THREADS: u64 = 4;
const SIZE: usize = 4 << 20;
/// An odd number of blocks, so that neighbours share clusters.
const STRETCH: u64 = 61 * 512;
const RECORD_BYTES: usize = 40;

/// One change, as it is told over the pipe.
#[derive(Clone, Copy, Debug)]
struct Record {
    thread: u64,
    done: bool,
    kind: u64,
    at: u64,
    length: u64,
}

impl Record {
    fn random(thread: u64, rng: &mut Rng) -> Self {
        let stretches = SIZE as u64 / STRETCH / THREADS;
        let start = (rng.below(stretches) * THREADS + thread) * STRETCH;
        let length = 1 + rng.below(61);
        let at = start + rng.below(61 - length + 1) * 512;
        // Kinds from 2 on are writes; the kind gives their contents too.
        let kind = if rng.below(4) == 0 { rng.below(2) } else { 2 + rng.below(1 << 40) };
        Self { thread, done: false, kind, at, length: length * 512 }
    }

    fn to_bytes(self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        let fields = [self.thread, u64::from(self.done), self.kind, self.at, self.length];
        for (place, field) in bytes.chunks_exact_mut(8).zip(fields) {
            place.copy_from_slice(&field.to_le_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: [u8; RECORD_BYTES]) -> Self {
        let mut fields = bytes.chunks_exact(8).map(|field| u64::from_le_bytes(field.try_into().unwrap()));
        let mut next = || fields.next().unwrap();
        Self { thread: next(), done: next() == 1, kind: next(), at: next(), length: next() }
    }

    fn data(&self) -> Vec<u8> {
        let word = (self.kind ^ self.at).to_le_bytes();
        (0..self.length as usize).map(|i| word[i % 8].wrapping_add((i / 512) as u8) | 1).collect()
    }

    fn apply(&self, volume: &Volume) {
        match self.kind {
            0 => discard(volume, self.at, self.length),
            1 => write_zeroes(volume, self.at, self.length),
            _ => write(volume, self.at, &self.data()),
        }
        .unwrap();
    }

    fn apply_to_model(&self, model: &mut [u8]) {
        let range = self.at as usize..(self.at + self.length) as usize;
        match self.kind {
            0 => {
                let start = self.at.next_multiple_of(CLUSTER);
                let end = (self.at + self.length) / CLUSTER * CLUSTER;
                if start < end {
                    model[start as usize..end as usize].fill(0);
                }
            }
            1 => model[range].fill(0),
            _ => model[range].copy_from_slice(&self.data()),
        }
    }
}

fn fixture(directory: &std::path::Path) -> Fixture {
    Fixture::new(directory, image(pattern(SIZE), LogicalBlockSize::B512))
}

/// Not a test of its own: what the child does, which ends only when it is killed.
#[test]
fn child_that_changes_a_volume_until_it_is_killed() {
    let (Ok(directory), Ok(seed)) = (std::env::var(DIRECTORY), std::env::var(SEED)) else { return };
    let fixture = fixture(directory.as_ref());
    let volume = match vdisk::stored_boot(&fixture.config).unwrap() {
        None => fixture.begin("boot-1").unwrap(),
        Some(_) => fixture.resume("boot-1").unwrap(),
    };
    let seed: u64 = seed.parse().unwrap();
    // One write to a pipe of so few bytes is never mixed with another's (pipe(7), PIPE_BUF).
    let tell = |record: Record| std::io::stderr().write_all(&record.to_bytes()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let volume = &volume;
            scope.spawn(move || {
                let mut rng = Rng::new(seed * THREADS + thread);
                loop {
                    let record = Record::random(thread, &mut rng);
                    tell(record);
                    record.apply(volume);
                    tell(Record { done: true, ..record });
                }
            });
        }
    });
}

/// Starts the child, kills it after `records` records, and gives all that it told.
fn records_of_a_killed_child(directory: &std::path::Path, seed: u64, records: usize) -> Vec<Record> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "death::child_that_changes_a_volume_until_it_is_killed", "--nocapture"])
        .env(DIRECTORY, directory)
        .env(SEED, seed.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut pipe = child.stderr.take().unwrap();
    let mut bytes = vec![0; records * RECORD_BYTES];
    pipe.read_exact(&mut bytes).unwrap();
    child.kill().unwrap();
    pipe.read_to_end(&mut bytes).unwrap();
    child.wait().unwrap();
    let whole = bytes.chunks_exact(RECORD_BYTES);
    assert!(whole.remainder().is_empty());
    whole.map(|record| Record::from_bytes(record.try_into().unwrap())).collect()
}

#[test]
fn killed_server_has_lost_nothing_that_it_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    let fixture = fixture(directory.path());
    let mut model = pattern(SIZE);
    for round in 0..12_u64 {
        let records = records_of_a_killed_child(directory.path(), round, 100 + 400 * round as usize);
        let mut under_way: [Option<Record>; THREADS as usize] = [None; THREADS as usize];
        for record in records {
            if record.done {
                record.apply_to_model(&mut model);
            }
            under_way[record.thread as usize] = Some(record).filter(|record| !record.done);
        }
        let mut newer = model.clone();
        under_way.iter().flatten().for_each(|record| record.apply_to_model(&mut newer));
        let volume = fixture.resume("boot-1").unwrap();
        let found = read(&volume, 0, SIZE).unwrap();
        for (index, block) in found.chunks(512).enumerate() {
            let range = index * 512..(index + 1) * 512;
            let fits = block == &model[range.clone()] || block == &newer[range];
            assert!(fits, "round {round}: the block at {:#x} is neither old nor new", index * 512);
        }
        model = found;
        volume.abandon();
    }
}
