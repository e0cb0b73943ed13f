//! Power is lost at every moment of random workloads, and what reached the disk since the last flush is chosen at
//! random: nothing that a flush acknowledged may be lost, every other logical block holds what it held or was given,
//! the file is sound, and qemu makes the same of it as we do.
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use block::{BlockDevice, ByteLength, ByteOffset, ByteRange, Patience};
use diskimage::check::{self, Severity};
use diskimage::storage::{CrashStorage, Event, MemoryStorage, Survival};
use diskimage::{Format, Image, MutableImage, OpenOptions};
use mutate::Rng;

use crate::builder::{MIB, Vhdx};
use crate::tools::{assert_same, qemu_img, qemu_raw, save};
use crate::vhdx_write::{empty, open, parent};

/// What logical blocks hold: numbers, each of which stands for contents that differ in every block. 0 is zeros.
type Stamp = u32;
/// What the parent's blocks hold.
const PARENT: Stamp = 1;

/// A disk, and which parts of it are looked at: near the ends of payload blocks, where the tables' bits meet.
#[derive(Clone, Copy)]
struct Disk {
    blocks: u64,
    block_mib: u32,
    sector: u32,
    has_parent: bool,
}

impl Disk {
    fn bytes(self) -> u64 {
        // The last payload block is not whole.
        self.blocks * u64::from(self.block_mib) * MIB - u64::from(self.sector) * 40
    }

    fn per_block(self) -> u64 {
        u64::from(self.block_mib) * MIB / u64::from(self.sector)
    }

    fn sectors(self) -> u64 {
        self.bytes() / u64::from(self.sector)
    }

    /// Where the looked-at sectors begin; there are [`WINDOW`] from each.
    fn windows(self) -> impl Iterator<Item = u64> {
        let ends = (0..=self.blocks).map(move |block| (block * self.per_block()).min(self.sectors()));
        ends.flat_map(move |end| [end.checked_sub(WINDOW), (end < self.sectors()).then_some(end)]).flatten()
    }

    fn file(self) -> Vhdx {
        empty(self.bytes(), self.block_mib, self.sector, self.has_parent)
    }

    fn parent(self) -> Option<Arc<dyn BlockDevice>> {
        // Shorter than the child.
        let sectors = self.sectors() - self.per_block() / 2;
        let bytes = (0..sectors).flat_map(|sector| self.stamped(sector, PARENT)).collect();
        self.has_parent.then(|| parent(bytes, self.sector))
    }

    fn first_stamp(self, sector: u64) -> Stamp {
        if self.has_parent && sector < self.sectors() - self.per_block() / 2 { PARENT } else { 0 }
    }

    fn stamped(self, sector: u64, stamp: Stamp) -> Vec<u8> {
        let word = if stamp == 0 { 0 } else { (sector << 32) | u64::from(stamp) };
        word.to_le_bytes().repeat(self.sector as usize / 8)
    }

    fn stamp_of(self, sector: u64, bytes: &[u8]) -> Stamp {
        let word = u64::from_le_bytes(*bytes.first_chunk().unwrap());
        let stamp = word as u32;
        assert!(
            bytes == self.stamped(sector, stamp),
            "sector {sector} holds a mixture, or another's contents"
        );
        stamp
    }

    fn range(self, sector: u64, sectors: u64) -> ByteRange {
        let unit = u64::from(self.sector);
        ByteRange::new(ByteOffset::new(sector * unit), ByteLength::new(sectors * unit)).unwrap()
    }

    /// What the looked-at sectors hold.
    fn look(self, image: &dyn BlockDevice) -> BTreeMap<u64, Stamp> {
        let mut seen = BTreeMap::new();
        let mut buffer = vec![0; (WINDOW as usize) * self.sector as usize];
        for start in self.windows() {
            let range = self.range(start, WINDOW);
            image.read(range.start(), &mut buffer, Patience::Blocking).unwrap();
            for (sector, bytes) in (start..).zip(buffer.chunks(self.sector as usize)) {
                seen.insert(sector, self.stamp_of(sector, bytes));
            }
        }
        seen
    }
}

const WINDOW: u64 = 12;

/// A workload that ran, and what may be found after a crash of it.
struct Run {
    disk: Disk,
    parent: Option<Arc<dyn BlockDevice>>,
    storage: Arc<CrashStorage>,
    /// What the looked-at sectors held when a flush began that had returned at this moment.
    flushed: Vec<(usize, BTreeMap<u64, Stamp>)>,
    /// From which moment on a sector may hold this.
    written: Vec<(usize, u64, Stamp)>,
}

/// One step of a workload.
#[derive(Clone, Copy, Debug)]
enum Step {
    Write { sector: u64, sectors: u64 },
    Zero { sector: u64, sectors: u64 },
    Discard { sector: u64, sectors: u64 },
    Flush,
    Reopen,
}

impl Run {
    fn of(disk: Disk, steps: impl Iterator<Item = Step>) -> Self {
        let storage = Arc::new(CrashStorage::new(disk.file().build()));
        let first = disk.windows().flat_map(|start| start..start + WINDOW);
        let mut now: BTreeMap<u64, Stamp> = first.map(|sector| (sector, disk.first_stamp(sector))).collect();
        let parent = disk.parent();
        let mut run = Self { disk, parent, storage, flushed: vec![(0, now.clone())], written: Vec::new() };
        let mut image = run.open();
        for (stamp, step) in (2..).zip(steps) {
            let moment = run.storage.moments();
            match step {
                Step::Write { sector, sectors } => {
                    let data: Vec<u8> =
                        (sector..sector + sectors).flat_map(|s| disk.stamped(s, stamp)).collect();
                    image.write(disk.range(sector, 1).start(), &data, Patience::Blocking).unwrap();
                    run.change(moment, &mut now, sector, sectors, stamp);
                }
                Step::Zero { sector, sectors } => {
                    image.write_zeroes(disk.range(sector, sectors), Patience::Blocking).unwrap();
                    run.change(moment, &mut now, sector, sectors, 0);
                }
                Step::Discard { sector, sectors } => {
                    image.discard(disk.range(sector, sectors), Patience::Blocking).unwrap();
                    let seen = disk.look(&image);
                    for (sector, stamp) in seen.range(sector..sector + sectors) {
                        assert!(*stamp == 0 || *stamp == now[sector]);
                        run.change(moment, &mut now, *sector, 1, *stamp);
                    }
                }
                Step::Flush => {
                    image.flush(Patience::Blocking).unwrap();
                    run.flushed.push((run.storage.moments(), now.clone()));
                }
                Step::Reopen => {
                    image.close().unwrap();
                    run.flushed.push((run.storage.moments(), now.clone()));
                    image = run.open();
                }
            }
        }
        assert_eq!(disk.look(&image), now);
        run
    }

    fn open(&self) -> MutableImage {
        open(&self.storage, self.parent.clone())
    }

    fn change(
        &mut self,
        moment: usize,
        now: &mut BTreeMap<u64, Stamp>,
        sector: u64,
        sectors: u64,
        stamp: Stamp,
    ) {
        for (sector, held) in now.range_mut(sector..sector + sectors) {
            self.written.push((moment, *sector, stamp));
            *held = stamp;
        }
    }

    /// The file after a crash at `moment`, and what each looked-at sector may hold.
    fn crash(&self, moment: usize, rng: &mut Rng) -> (MemoryStorage, BTreeMap<u64, Vec<Stamp>>) {
        // What is torn keeps whole sectors of the disk, as the disk promises.
        let unit = self.disk.sector as usize / 512;
        let kind = rng.below(4);
        let file = self.storage.crashed(moment, |event| match (kind, rng.below(5), event) {
            (0, ..) | (3, 0, _) => Survival::Lost,
            (1, ..) | (3, 1, _) => Survival::Whole,
            (2, ..) if rng.below(2) == 0 => Survival::Lost,
            (2, ..) => Survival::Whole,
            (_, 2 | 3, Event::Write { data, .. }) => {
                Survival::Head(rng.below(data.len() as u64 / 512 / unit as u64 + 1) as usize * unit)
            }
            (_, _, Event::Write { data, .. }) => {
                Survival::Tail(rng.below(data.len() as u64 / 512 / unit as u64 + 1) as usize * unit)
            }
            _ => Survival::Whole,
        });
        let (since, held) = self.flushed.iter().rev().find(|(returned, _)| *returned <= moment).unwrap();
        let mut may: BTreeMap<u64, Vec<Stamp>> =
            held.iter().map(|(&sector, &stamp)| (sector, vec![stamp])).collect();
        for (at, sector, stamp) in &self.written {
            if *at >= *since && *at < moment {
                may.get_mut(sector).unwrap().push(*stamp);
            }
        }
        (file, may)
    }

    /// Cuts at `moment` in a way that `seed` chooses, recovers, and holds what is there against what may be.
    fn check(&self, moment: usize, seed: u64) -> MemoryStorage {
        let mut rng = Rng::new(seed.wrapping_mul(0x9E37_79B9) ^ moment as u64);
        let (file, may) = self.crash(moment, &mut rng);
        let what = format!("moment {moment} of {}, seed {seed}", self.storage.moments());
        let recovered = Arc::new(CrashStorage::new(file.clone()));
        assert_sound(&file, &what);
        let image = open(&recovered, self.parent.clone());
        let seen = self.disk.look(&image);
        for (sector, stamp) in &seen {
            assert!(
                may[sector].contains(stamp),
                "{what}: sector {sector} holds {stamp}, not one of {:?}",
                may[sector]
            );
        }
        if !self.disk.has_parent {
            // Replayed in memory, a reader sees the same.
            let reader = Image::from_storage(Box::new(file.clone()), OpenOptions::default()).unwrap();
            assert_eq!(self.disk.look(&reader), seen, "{what}: replay in memory");
        }
        self.goes_on(image, &recovered, seen, &mut rng);
        file
    }

    /// The recovered image is one to work with: what is written next disturbs nothing.
    fn goes_on(
        &self,
        image: MutableImage,
        storage: &Arc<CrashStorage>,
        mut seen: BTreeMap<u64, Stamp>,
        rng: &mut Rng,
    ) {
        let disk = self.disk;
        let sector = disk.per_block() * rng.below(disk.blocks) + rng.below(WINDOW / 2);
        image.write(disk.range(sector, 1).start(), &disk.stamped(sector, 999), Patience::Blocking).unwrap();
        seen.insert(sector, 999);
        image.close().unwrap();
        assert_sound(&storage.now(), "after another write");
        assert_eq!(disk.look(&open(storage, self.parent.clone())), seen, "after another write");
        if !disk.has_parent {
            let reader = Image::from_storage(Box::new(storage.now()), OpenOptions::default()).unwrap();
            assert!(!reader.info().log_replayed, "a file that was closed has an empty log");
        }
    }
}

fn assert_sound(file: &MemoryStorage, what: &str) {
    let report = check::check(file, Format::Vhdx).unwrap();
    assert_eq!(report.count(Severity::Error), 0, "{what}: {:?}", report.findings());
}

/// Random steps, with runs that begin and end near the ends of blocks.
fn steps(disk: Disk, rng: &mut Rng, count: usize) -> Vec<Step> {
    let mut steps = Vec::new();
    for _ in 0..count {
        let block = rng.below(disk.blocks);
        let near = |rng: &mut Rng, end: u64| (end + rng.below(WINDOW)).saturating_sub(WINDOW / 2);
        let start = near(rng, block * disk.per_block());
        let end = match rng.below(3) {
            0 => start + 1 + rng.below(4),
            1 => near(rng, (block + 1) * disk.per_block()),
            _ => (block + 1 + rng.below(2)) * disk.per_block(),
        };
        let start = start.min(disk.sectors() - 1);
        let whole = rng.below(3) == 0;
        let start = if whole { block * disk.per_block() } else { start };
        let sectors = end.clamp(start + 1, disk.sectors()) - start;
        steps.push(match rng.below(12) {
            0..=4 => Step::Write { sector: start, sectors },
            5 => Step::Zero { sector: start, sectors },
            6 | 7 => Step::Discard { sector: start, sectors },
            8 => Step::Reopen,
            _ => Step::Flush,
        });
    }
    steps
}

fn disks() -> impl Iterator<Item = Disk> {
    [(1, 512, false), (1, 512, true), (1, 4096, false), (1, 4096, true), (2, 512, true)]
        .into_iter()
        .map(|(block_mib, sector, has_parent)| Disk { blocks: 4, block_mib, sector, has_parent })
}

#[test]
fn nothing_flushed_is_lost_at_any_moment_of_random_workloads() {
    let mut states = 0;
    for (number, disk) in disks().enumerate() {
        for seed in 0..2 {
            let mut rng = Rng::new(seed * 100 + number as u64 + 1);
            let steps = steps(disk, &mut rng, 30);
            let run = Run::of(disk, steps.into_iter());
            for moment in 0..=run.storage.moments() {
                run.check(moment, seed * 1000);
                states += 1;
            }
        }
    }
    println!("{states} crashes");
}

#[test]
fn qemu_replays_a_crashed_file_as_we_do() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("crashed.vhdx");
    let disk = Disk { blocks: 4, block_mib: 1, sector: 512, has_parent: false };
    let mut rng = Rng::new(77);
    let steps = steps(disk, &mut rng, 60);
    let run = Run::of(disk, steps.into_iter());
    for _ in 0..25 {
        let moment = rng.below(run.storage.moments() as u64 + 1) as usize;
        let (file, _) = run.crash(moment, &mut rng);
        assert_qemu_agrees(file, &path);
    }
}

/// Every block is written and discarded by turns, with a flush behind each: so often that the log begins anew several
/// times.
fn through_the_log_and_round(disk: Disk) -> Run {
    let per_block = disk.per_block();
    let step = |turn: u64| {
        let sector = (turn / 2 % disk.blocks) * per_block;
        match turn % 4 {
            0 | 2 if (turn / 8).is_multiple_of(2) => Step::Write { sector, sectors: 3 },
            0 | 2 => Step::Discard { sector, sectors: per_block.min(disk.sectors() - sector) },
            _ => Step::Flush,
        }
    };
    Run::of(disk, (0..800).map(step))
}

/// The moments at which the log is turned off or on: those around changes of the headers.
fn header_moments(run: &Run) -> Vec<usize> {
    let is_header = |event: &Event| matches!(event, Event::Write { at, .. } if at.get() < MIB);
    let events = run.storage.events();
    let places = (0..events.len()).filter(|&place| is_header(&events[place]));
    let mut moments: Vec<usize> = places.flat_map(|place| place.saturating_sub(3)..place + 5).collect();
    moments.dedup();
    moments.retain(|&moment| moment <= events.len());
    moments
}

#[test]
fn nothing_is_lost_where_the_log_begins_anew() {
    for has_parent in [false, true] {
        let run = through_the_log_and_round(Disk { blocks: 4, block_mib: 1, sector: 512, has_parent });
        let moments = header_moments(&run);
        assert!(moments.len() > 24, "the log has not begun anew");
        for moment in moments.into_iter().chain((0..run.storage.moments()).step_by(97)) {
            run.check(moment, 5);
        }
    }
}

#[test]
fn qemu_replays_a_log_that_has_begun_anew_as_we_do() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("crashed.vhdx");
    let run = through_the_log_and_round(Disk { blocks: 4, block_mib: 1, sector: 512, has_parent: false });
    let mut rng = Rng::new(3);
    for moment in header_moments(&run).into_iter().step_by(4).take(12) {
        let (file, _) = run.crash(moment, &mut rng);
        assert_qemu_agrees(file, &path);
    }
}

fn assert_qemu_agrees(file: MemoryStorage, path: &Path) {
    save(&file, path);
    let ours = Image::from_storage(Box::new(file), OpenOptions::default()).unwrap();
    qemu_img(&["check", "-q", "-r", "all"], &[path]);
    assert_same(&ours, &qemu_raw("vhdx", path));
}
