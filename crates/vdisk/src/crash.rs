//! A persistent write cache and the loss of power, at every moment of random workloads.
//!
//! The file is a double that keeps its history. From every moment of it, and from several choices of what of the
//! unflushed changes had reached the disk, a boot begins on a host that was started anew. Each block of 512 bytes must
//! then hold what it held at the last flush that had returned, or anything that was written to it since.
#![allow(clippy::arithmetic_side_effects, reason = "a test that overflows fails, as it should")]
use std::io;
use std::path::Path;
use std::sync::Arc;

use block::conformance::pattern;
use block::{
    Access, BlockDevice, ByteLength, ByteOffset, ByteRange, LogicalBlockSize, MemoryDevice, Patience,
};
use diskimage::storage::{CrashStorage, MemoryStorage, Storage, StorageError, Survival, WritableStorage};
use mutate::Rng;

use crate::config::WriteCacheConfig;
use crate::file::{Bytes, CacheFile};
use crate::fill::{CacheObserver, CacheUsage, FullCause};
use crate::header::Header;
use crate::identity::{BootId, HostBoot, ImageFingerprint, ImageIdentity};
use crate::kind::WriteCacheKind;
use crate::layout::{Layout, WhichMap};
use crate::persistent::{self, Kept};
use crate::presence::PresenceMap;
use crate::volume::Volume;

const SIZE: usize = 192 << 10;
const BLOCK: usize = 512;
const BLOCKS: usize = SIZE / BLOCK;

#[derive(Debug)]
struct Deaf;

impl CacheObserver for Deaf {
    fn warning(&self, _: &str, _: CacheUsage) {}
    fn full(&self, _: &str, _: CacheUsage, _: FullCause) {}
}

impl Bytes for CrashStorage {
    fn read(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.read_at(ByteOffset::new(at), buffer, Patience::Blocking).map_err(into_io)
    }

    fn write(&self, at: u64, data: &[u8]) -> io::Result<()> {
        self.write_at(ByteOffset::new(at), data).map_err(into_io)
    }

    fn punch(&self, at: u64, length: u64) -> io::Result<bool> {
        let range = ByteRange::new(ByteOffset::new(at), ByteLength::new(length)).unwrap();
        WritableStorage::punch(self, range).map(|()| true).map_err(into_io)
    }

    fn next_data(&self, at: u64) -> io::Result<Option<(u64, u64)>> {
        Ok(Some((at, self.len().get())).filter(|(at, end)| at < end))
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.len().get())
    }

    fn set_length(&self, bytes: u64) -> io::Result<()> {
        self.set_len(ByteLength::new(bytes)).map_err(into_io)
    }

    fn sync_data(&self) -> io::Result<()> {
        WritableStorage::flush(self).map_err(into_io)
    }
}

fn into_io(error: StorageError) -> io::Error {
    io::Error::other(error)
}

fn image() -> Arc<dyn BlockDevice> {
    Arc::new(MemoryDevice::with_contents(pattern(SIZE), LogicalBlockSize::B512, Access::ReadOnly).unwrap())
}

fn config() -> WriteCacheConfig {
    WriteCacheConfig {
        kind: WriteCacheKind::Persistent,
        directory: "/nowhere".into(),
        device: "lab-07".into(),
        limit: ByteLength::new(1 << 30),
        warn_percent: 80,
    }
}

/// The header of a fresh write cache, on the host's boot of this number.
fn header(host: u8) -> Header {
    Header {
        device: "lab-07".into(),
        boot: BootId::new("boot-1").unwrap(),
        image: ImageIdentity::new(&image().geometry(), ImageFingerprint([7; 32])),
        host_boot: HostBoot([host; 16]),
        owner_pid: 1,
        persistent: true,
        clean: None,
    }
}

/// An empty write cache, on the disk.
fn fresh() -> MemoryStorage {
    let layout = Layout::new(SIZE as u64, true).unwrap();
    let mut file = MemoryStorage::sparse(ByteLength::new(layout.file_bytes()));
    file.put(ByteOffset::new(layout.header_start()), &header(1).encode());
    file
}

/// Begins a boot on `file`, on the host's boot of this number.
fn begin(file: &Arc<CrashStorage>, host: u8) -> Volume {
    let cache = CacheFile::simulated(Arc::clone(file) as _);
    let (header, kept) = persistent::trusted(&cache, "crash".as_ref(), header(host)).unwrap();
    kept.settle(&cache, &header).unwrap();
    Volume::assemble(image(), cache, kept, header, &config(), Arc::new(Deaf))
}

fn contents(volume: &Volume) -> Vec<u8> {
    let mut bytes = vec![0; SIZE];
    volume.read(ByteOffset::ZERO, &mut bytes, Patience::Blocking).unwrap();
    bytes
}

/// The contents after each change, and which of them had been flushed when each moment came.
struct History {
    /// The contents at the start and after each change.
    states: Vec<Vec<u8>>,
    /// For each flush that returned: the moment from which on it had, and how many changes it covers.
    flushes: Vec<(usize, usize)>,
    /// The moment from which on each change was under way.
    begun: Vec<usize>,
}

/// Changes the volume at random.
fn work(file: &CrashStorage, volume: &Volume, model: Vec<u8>, changes: usize, rng: &mut Rng) -> History {
    let mut history = History { states: vec![model], flushes: vec![(0, 0)], begun: Vec::new() };
    for change in 0..changes {
        let mut model = history.states.last().unwrap().clone();
        let blocks = 1 + rng.below(40) as usize;
        let first = rng.below((BLOCKS - blocks + 1) as u64) as usize;
        let bytes = first * BLOCK..(first + blocks) * BLOCK;
        let at = ByteOffset::new(bytes.start as u64);
        let range = ByteRange::new(at, ByteLength::new(bytes.len() as u64)).unwrap();
        history.begun.push(file.moments());
        match rng.below(8) {
            0 => volume.write_zeroes(range, Patience::Blocking).unwrap(),
            1 => volume.discard(range, Patience::Blocking).unwrap(),
            _ => {
                // Every block of every change is different.
                let tag = |i: usize| (change * 7 + i / BLOCK + 1) as u8;
                let data: Vec<u8> = (0..bytes.len()).map(tag).collect();
                volume.write(at, &data, Patience::Blocking).unwrap();
            }
        }
        model.copy_from_slice(&contents(volume));
        history.states.push(model);
        if rng.below(5) == 0 {
            volume.flush(Patience::Blocking).unwrap();
            history.flushes.push((file.moments(), change + 1));
        }
    }
    history
}

impl History {
    /// Holds the contents after a crash at `moment` against what they may be.
    fn check(&self, moment: usize, found: &[u8], what: &str) {
        let flushed = self.flushes.iter().rev().find(|(from, _)| *from <= moment).unwrap().1;
        let begun = self.begun.iter().take_while(|from| **from < moment).count();
        let allowed = &self.states[flushed..=begun.max(flushed)];
        for (index, block) in found.chunks(BLOCK).enumerate() {
            let range = index * BLOCK..(index + 1) * BLOCK;
            let fits = allowed.iter().any(|state| state[range.clone()] == *block);
            assert!(fits, "{what}, moment {moment}: the block at {:#x}", range.start);
        }
    }
}

fn random_survival(rng: &mut Rng) -> Survival {
    match rng.below(5) {
        0 | 1 => Survival::Lost,
        2 | 3 => Survival::Whole,
        _ if rng.below(2) == 0 => Survival::Head(1 + rng.below(8) as usize),
        _ => Survival::Tail(1 + rng.below(8) as usize),
    }
}

/// A workload, a crash at each of its moments, and after some of them a second workload with crashes of its own.
fn nothing_flushed_is_ever_lost(seed: u64) {
    let mut rng = Rng::new(seed);
    let file = Arc::new(CrashStorage::new(fresh()));
    let volume = begin(&file, 1);
    let history = work(&file, &volume, pattern(SIZE), 25, &mut rng);
    volume.abandon();
    for moment in 0..=file.moments() {
        for _ in 0..2 {
            let what = format!("seed {seed}");
            let crashed = Arc::new(CrashStorage::new(file.crashed(moment, |_| random_survival(&mut rng))));
            let volume = begin(&crashed, 2);
            let found = contents(&volume);
            history.check(moment, &found, &what);
            volume.abandon();
            if rng.below(16) == 0 {
                again(&crashed, found, &mut rng, &what);
            }
        }
    }
}

/// Crashes of the boot that follows a crash, its first steps among them.
fn again(file: &Arc<CrashStorage>, model: Vec<u8>, rng: &mut Rng, what: &str) {
    let before_work = file.moments();
    let volume = begin(file, 2);
    let mut history = work(file, &volume, model, 4, rng);
    history.flushes[0].0 = 0;
    volume.abandon();
    for moment in 0..=file.moments() {
        let crashed = Arc::new(CrashStorage::new(file.crashed(moment, |_| random_survival(rng))));
        let volume = begin(&crashed, 3);
        history.check(moment.max(before_work), &contents(&volume), what);
        volume.abandon();
    }
}

#[test]
fn persistent_cache_loses_nothing_flushed_whenever_the_power_goes() {
    (0..3).for_each(nothing_flushed_is_ever_lost);
}

#[test]
fn failed_flush_is_never_followed_by_one_that_succeeds() {
    /// Fails its second wait for the disk.
    #[derive(Debug)]
    struct Failing(CrashStorage, std::sync::atomic::AtomicUsize);
    impl Bytes for Failing {
        fn read(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
            self.0.read(at, buffer)
        }
        fn write(&self, at: u64, data: &[u8]) -> io::Result<()> {
            self.0.write(at, data)
        }
        fn punch(&self, at: u64, length: u64) -> io::Result<bool> {
            Bytes::punch(&self.0, at, length)
        }
        fn next_data(&self, at: u64) -> io::Result<Option<(u64, u64)>> {
            self.0.next_data(at)
        }
        fn length(&self) -> io::Result<u64> {
            self.0.length()
        }
        fn set_length(&self, bytes: u64) -> io::Result<()> {
            self.0.set_length(bytes)
        }
        fn sync_data(&self) -> io::Result<()> {
            match self.1.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
                0 => Err(io::ErrorKind::TimedOut.into()),
                _ => Ok(()),
            }
        }
    }
    let failing = Failing(CrashStorage::new(fresh()), 0.into());
    let layout = Layout::new(SIZE as u64, true).unwrap();
    let kept = Kept::nothing(layout, PresenceMap::new(layout.clusters()).unwrap());
    let file = CacheFile::simulated(Arc::new(failing));
    let volume = Volume::assemble(image(), file, kept, header(1), &config(), Arc::new(Deaf));
    volume.write(ByteOffset::ZERO, &[1; 512], Patience::Blocking).unwrap();
    volume.flush(Patience::Blocking).unwrap_err();
    for _ in 0..2 {
        let again = volume.flush(Patience::Blocking).unwrap_err();
        let source = std::error::Error::source(&again).map(ToString::to_string).unwrap_or_default();
        assert!(source.contains("earlier flush failed"), "{again:?}");
    }
    let ours = header(1);
    let (_, map) = persistent::stored(&volume.file, Path::new("x"), &ours.device, ours.host_boot).unwrap();
    assert_eq!(map, WhichMap::Flushed, "whoever comes next goes on with what was flushed");
    volume.abandon();
}
