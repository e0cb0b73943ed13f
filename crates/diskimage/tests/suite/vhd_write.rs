//! Writing into VHD files: the contract, power cuts at every moment, full disks, and what other programs then read.
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use block::conformance::{pattern, writable};
use block::{Access, BlockDevice, BlockError, ByteLength, ByteOffset, ByteRange, MemoryDevice, Patience};
use diskimage::storage::{
    CrashStorage, Event, FileStorage, MemoryStorage, Storage, StorageError, Survival, WritableStorage,
};
use diskimage::{
    Childless, Format, Guid, Image, MutableImage, NewImageSpec, OpenOptions, ParentLink, Subtype, check,
    create,
};

use crate::tools::{assert_same, assert_same_as_7z, open_as, program, qemu_raw, save};
use crate::vhd_create::spec;

const VHD: Option<Format> = Some(Format::Vhd);
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Storage that is still there when the image has it.
fn crashable(spec: &NewImageSpec) -> Arc<CrashStorage> {
    let storage = Arc::new(CrashStorage::new(MemoryStorage::default()));
    create(Box::new(Arc::clone(&storage)), spec).unwrap().finish().unwrap();
    Arc::new(CrashStorage::new(storage.now()))
}

pub(crate) fn with_blocks(subtype: Subtype, bytes: u64, block_bytes: u64) -> NewImageSpec {
    let parent = (subtype == Subtype::Differencing).then(|| ParentLink {
        linkage: Guid::from_u128(7),
        relative_path: "base.vhd".into(),
        absolute_path: None,
    });
    NewImageSpec { payload_block: Some(ByteLength::new(block_bytes)), parent, ..spec(subtype, bytes) }
}

pub(crate) fn parent_of(bytes: Vec<u8>) -> Option<Arc<dyn BlockDevice>> {
    let device = MemoryDevice::with_contents(bytes, block::LogicalBlockSize::B512, Access::ReadOnly).unwrap();
    Some(Arc::new(device))
}

pub(crate) fn open(storage: &Arc<CrashStorage>, parent: Option<Arc<dyn BlockDevice>>) -> MutableImage {
    MutableImage::from_storage(Box::new(Arc::clone(storage)), VHD, parent)
        .unwrap_or_else(|error| panic!("{error}: {}", error.refusal))
}

pub(crate) fn range(at: u64, length: u64) -> ByteRange {
    ByteRange::new(ByteOffset::new(at), ByteLength::new(length)).unwrap()
}

#[test]
fn vhd_images_conform_for_writing() {
    let fixed = spec(Subtype::Fixed, 3 * MIB + 512);
    let dynamic = with_blocks(Subtype::Dynamic, 3 * MIB + 512, 64 * KIB);
    let large_blocks = spec(Subtype::Dynamic, 3 * MIB + 512);
    for spec in [fixed, dynamic, large_blocks] {
        writable(&|| Box::new(open(&crashable(&spec), None)));
    }
    let differencing = with_blocks(Subtype::Differencing, 3 * MIB + 512, 64 * KIB);
    let zeros = || parent_of(vec![0; 3 * MIB as usize]);
    writable(&|| Box::new(open(&crashable(&differencing), zeros())));
}

/// One step of a workload, in sectors of 512 bytes.
#[derive(Clone, Copy, Debug)]
enum Step {
    Write { at: u64, count: u64, tag: u8 },
    Zero { at: u64, count: u64 },
    Discard { at: u64, count: u64 },
    Flush,
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

const SECTORS: u64 = 24 * 16 - 3;
const BLOCK_SECTORS: u64 = 16;

fn steps(seed: u64) -> Vec<Step> {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let steps = (0..45).map(|number| {
        let at = random.below(SECTORS);
        let length = if random.below(3) == 0 { 3 * BLOCK_SECTORS } else { 7 };
        let count = (1 + random.below(length)).min(SECTORS - at);
        // Every third range is made of whole blocks.
        let whole = at - at % BLOCK_SECTORS;
        let (at, count) = match random.below(3) {
            0 => (whole, (count.div_ceil(BLOCK_SECTORS) * BLOCK_SECTORS).min(SECTORS - whole)),
            _ => (at, count),
        };
        match random.below(10) {
            0..=4 => Step::Write { at, count, tag: number + 1 },
            5 => Step::Zero { at, count },
            6..=7 => Step::Discard { at, count },
            _ => Step::Flush,
        }
    });
    steps.collect()
}

fn make(step: Step, image: &dyn BlockDevice) -> Result<(), BlockError> {
    match step {
        Step::Write { at, count, tag } => {
            image.write(ByteOffset::new(at * 512), &vec![tag; (count * 512) as usize], Patience::Blocking)
        }
        Step::Zero { at, count } => image.write_zeroes(range(at * 512, count * 512), Patience::Blocking),
        Step::Discard { at, count } => image.discard(range(at * 512, count * 512), Patience::Blocking),
        Step::Flush => image.flush(Patience::Blocking),
    }
}

/// What each sector may read as: sectors are filled with one byte each.
#[derive(Clone)]
struct Model(Vec<Vec<u8>>);

impl Model {
    fn new(start: u8) -> Self {
        Self(vec![vec![start]; SECTORS as usize])
    }

    fn made(&mut self, step: Step) {
        self.add(step, true);
    }

    fn begun(&mut self, step: Step) {
        self.add(step, false);
    }

    fn add(&mut self, step: Step, is_done: bool) {
        let (at, count, tag, is_sure) = match step {
            Step::Write { at, count, tag } => (at, count, tag, is_done),
            Step::Zero { at, count } => (at, count, 0, is_done),
            Step::Discard { at, count } => (at, count, 0, false),
            Step::Flush => return,
        };
        for sector in &mut self.0[at as usize..(at + count) as usize] {
            if is_sure {
                sector.clear();
            }
            sector.push(tag);
        }
    }

    #[track_caller]
    fn check(&self, image: &dyn BlockDevice, what: &dyn Fn() -> String) {
        let mut bytes = vec![0xEE; (SECTORS * 512) as usize];
        image.read(ByteOffset::ZERO, &mut bytes, Patience::Blocking).unwrap();
        for (number, (sector, allowed)) in bytes.chunks(512).zip(&self.0).enumerate() {
            let tag = sector[0];
            let is_right = allowed.contains(&tag) && sector.iter().all(|&byte| byte == tag);
            assert!(is_right, "sector {number} is {tag:#x}, not of {allowed:x?}: {}", what());
        }
    }
}

/// What a crash leaves of each change.
type Way = Box<dyn FnMut(&Event) -> Survival>;

/// The ways in which a crash is tried at each moment.
fn survivals(moment: usize) -> Vec<Way> {
    let mut random = Random(moment as u64 * 77 + 1);
    let mixed = move |_: &Event| match random.below(4) {
        0 => Survival::Lost,
        1 => Survival::Whole,
        2 => Survival::Head(1),
        _ => Survival::Tail(1),
    };
    let only_tables = |event: &Event| match event {
        Event::Write { data, .. } if data.len() <= 512 => Survival::Whole,
        _ => Survival::Lost,
    };
    let all_but_tables = |event: &Event| match event {
        Event::Write { data, .. } if data.len() <= 512 => Survival::Lost,
        _ => Survival::Whole,
    };
    vec![
        Box::new(|_| Survival::Lost),
        Box::new(|_| Survival::Whole),
        Box::new(only_tables),
        Box::new(all_but_tables),
        Box::new(mixed),
    ]
}

/// Makes a workload, cuts the power at every moment of it, and holds what is left against what was promised. With a
/// `hiccup` the write after that many others fails, and the workload goes on.
fn assert_crashes_lose_nothing(subtype: Subtype, steps: &[Step], hiccup: Option<usize>) {
    let spec = with_blocks(subtype, SECTORS * 512, BLOCK_SECTORS * 512);
    let start = if subtype == Subtype::Differencing { 0xAA } else { 0 };
    // The parent ends before its child does not: what is behind it would be zeros.
    let parent = || (start != 0).then(|| parent_of(vec![start; (SECTORS * 512) as usize])).flatten();
    let storage = crashable(&spec);
    let filling = Filling { under: Arc::clone(&storage), left: hiccup.unwrap_or(usize::MAX).into() };
    let filling = Arc::new(filling);
    let image = MutableImage::from_storage(Box::new(Arc::clone(&filling)), VHD, parent()).unwrap();
    let mut live = Model::new(start);
    for (number, &step) in (0..).zip(steps) {
        storage.mark(2 * number);
        match make(step, &image) {
            Ok(()) => {
                storage.mark(2 * number + 1);
                live.made(step);
            }
            Err(BlockError::NoSpace { .. }) if hiccup.is_some() => {
                filling.left.store(usize::MAX, Ordering::Relaxed);
                live.begun(step);
            }
            Err(error) => panic!("{error}"),
        }
    }
    live.check(&image, &|| "as written".into());
    filling.left.store(usize::MAX, Ordering::Relaxed);
    image.close().unwrap();
    storage.mark(2 * steps.len() as u64 + 1);

    // The state that the last flush has made sure, and how many steps that are.
    let mut sure = (Model::new(start), 0_usize);
    let mut begun = 0_usize;
    let events = storage.events();
    for moment in 0..=events.len() {
        if let Some(Event::Mark(mark)) = moment.checked_sub(1).map(|last| &events[last]) {
            let number = (mark / 2) as usize;
            let is_made = mark % 2 == 1;
            begun = (number + usize::from(!is_made)).max(begun).min(steps.len());
            let is_flush = steps.get(number).is_none_or(|step| matches!(step, Step::Flush));
            if is_made && is_flush {
                // After a hiccup nobody knows which of its sectors a step has reached.
                let add = if hiccup.is_some() { Model::begun } else { Model::made };
                steps[sure.1..number].iter().for_each(|&step| add(&mut sure.0, step));
                sure.1 = number;
            }
            // Nothing of the file changes with a mark.
            continue;
        }
        let mut model = sure.0.clone();
        steps[sure.1..begun].iter().for_each(|&step| model.begun(step));
        for (way, survival) in survivals(moment).into_iter().enumerate() {
            let crashed = storage.crashed(moment, survival);
            let what = || {
                format!("{subtype:?}, {hiccup:?}, moment {moment} of {}, way {way}, {steps:?}", events.len())
            };
            if subtype == Subtype::Dynamic {
                let image = Image::from_storage(
                    Box::new(crashed.clone()),
                    OpenOptions { format: VHD, ..OpenOptions::default() },
                )
                .unwrap();
                model.check(&image, &what);
            }
            let again = Arc::new(CrashStorage::new(crashed));
            let report = check::repair(&*again, Format::Vhd).unwrap();
            assert!(
                report.findings().iter().all(|finding| finding.repaired),
                "{}: {:?}",
                what(),
                report.findings()
            );
            let report = check::check(&*again, Format::Vhd).unwrap();
            assert!(report.is_clean(), "{}: {:?}", what(), report.findings());
            let image = open(&again, parent());
            model.check(&image, &what);
            // It can be written on.
            image.write(ByteOffset::new(5 * 512), &[0xFE; 40 * 512], Patience::Blocking).unwrap();
            image.close().unwrap();
            let image = open(&again, parent());
            let mut model = model.clone();
            model.made(Step::Write { at: 5, count: 40, tag: 0xFE });
            model.check(&image, &what);
        }
    }
}

#[test]
fn crash_of_a_dynamic_image_loses_nothing_that_was_flushed() {
    for seed in 1..=3 {
        assert_crashes_lose_nothing(Subtype::Dynamic, &steps(seed), None);
    }
}

#[test]
fn crash_of_a_differencing_image_loses_nothing_that_was_flushed() {
    for seed in 11..=13 {
        assert_crashes_lose_nothing(Subtype::Differencing, &steps(seed), None);
    }
}

#[test]
fn crash_of_a_fixed_image_loses_nothing_that_was_flushed() {
    assert_crashes_lose_nothing(Subtype::Fixed, &steps(21), None);
}

/// A file on a disk that is full from one write on.
#[derive(Debug)]
struct Filling {
    under: Arc<CrashStorage>,
    left: AtomicUsize,
}

impl Filling {
    fn take(&self, at: u64) -> Result<(), StorageError> {
        let left = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        left.map(|_| ()).map_err(|_| StorageError::Write {
            at: ByteOffset::new(at),
            source: io::Error::from(io::ErrorKind::StorageFull),
        })
    }
}

impl Storage for Filling {
    fn len(&self) -> ByteLength {
        self.under.len()
    }

    fn read_at(&self, at: ByteOffset, buffer: &mut [u8], patience: Patience) -> Result<(), StorageError> {
        self.under.read_at(at, buffer, patience)
    }
}

impl WritableStorage for Filling {
    fn write_at(&self, at: ByteOffset, data: &[u8]) -> Result<(), StorageError> {
        self.take(at.get())?;
        self.under.write_at(at, data)
    }

    fn set_len(&self, len: ByteLength) -> Result<(), StorageError> {
        self.take(len.get())?;
        self.under.set_len(len)
    }

    fn punch(&self, range: ByteRange) -> Result<(), StorageError> {
        self.under.punch(range)
    }

    fn flush(&self) -> Result<(), StorageError> {
        self.under.flush()
    }
}

#[test]
fn full_disk_is_a_clean_error_at_whichever_write_it_fills() {
    for (subtype, seed) in [(Subtype::Dynamic, 31), (Subtype::Differencing, 32)] {
        let spec = with_blocks(subtype, SECTORS * 512, BLOCK_SECTORS * 512);
        let start = if subtype == Subtype::Differencing { 0xAA } else { 0 };
        let parent = || (start != 0).then(|| parent_of(vec![start; (SECTORS * 512) as usize])).flatten();
        for room in 0..120 {
            let under = crashable(&spec);
            let storage = Filling { under: Arc::clone(&under), left: AtomicUsize::new(room) };
            let image = MutableImage::from_storage(Box::new(storage), VHD, parent()).unwrap();
            let mut model = Model::new(start);
            for step in steps(seed) {
                match make(step, &image) {
                    Ok(()) => model.made(step),
                    Err(BlockError::NoSpace { .. }) => model.begun(step),
                    Err(error) => panic!("{error}"),
                }
            }
            model.check(&image, &|| format!("{subtype:?}, room for {room} writes, open"));
            drop(image);
            let report = check::repair(&*under, Format::Vhd).unwrap();
            assert!(report.findings().iter().all(|finding| finding.repaired), "{report:?}");
            open(&under, parent());
        }
    }
}

#[test]
fn crash_after_a_flush_that_failed_half_way_mixes_nothing_up() {
    // The flush that fails may have written one of the entries of blocks 0 and 2, which then come and go.
    let write = |at, count, tag| Step::Write { at, count, tag };
    let steps = [
        write(1, 2, 1),
        write(33, 2, 2),
        Step::Flush,
        write(5, 2, 3),
        Step::Discard { at: 0, count: 16 },
        Step::Discard { at: 32, count: 16 },
        write(64, 16, 4),
        write(80, 16, 5),
        write(37, 2, 6),
        Step::Flush,
    ];
    let gaining = [write(1, 2, 1), write(33, 2, 2), Step::Flush, write(5, 2, 3), Step::Flush];
    for hiccup in 0..16 {
        assert_crashes_lose_nothing(Subtype::Dynamic, &steps, Some(hiccup));
        assert_crashes_lose_nothing(Subtype::Differencing, &gaining, Some(hiccup));
    }
}

/// Turns the bits of a byte, whatever they are: of a footer, some are drawn by lot.
fn turn(file: &mut MemoryStorage, at: u64) {
    let mut byte = [0];
    file.read_at(ByteOffset::new(at), &mut byte, Patience::Now).unwrap();
    file.put(ByteOffset::new(at), &byte.map(|byte: u8| !byte));
}

#[test]
fn footers_that_are_lost_or_differ_are_put_right_by_opening() {
    let bytes_at = |storage: &MemoryStorage, at: u64| {
        let mut bytes = [0; 512];
        storage.read_at(ByteOffset::new(at), &mut bytes, Patience::Now).unwrap();
        bytes
    };
    let sound = crashable(&with_blocks(Subtype::Dynamic, MIB, 64 * KIB)).now();
    let (end, footer) = (sound.len().get() - 512, bytes_at(&sound, 0));
    type Damage = fn(&mut MemoryStorage, u64);
    let damages: [Damage; 5] = [
        |file, _| file.put(ByteOffset::ZERO, &[0; 512]),
        |file, _| turn(file, 80),
        |file, end| turn(file, end + 80),
        |file, end| file.set_len(ByteLength::new(end + 100)),
        |file, end| file.put(ByteOffset::new(end + 9000), &[7; 9000]),
    ];
    for damage in damages {
        let mut file = sound.clone();
        damage(&mut file, end);
        let storage = Arc::new(CrashStorage::new(file));
        assert!(!check::check(&*storage, Format::Vhd).unwrap().is_clean());
        open(&storage, None);
        let now = storage.now();
        assert_eq!(now.len().get(), end + 512);
        assert!(bytes_at(&now, 0) == footer && bytes_at(&now, end) == footer);
        assert!(check::check(&now, Format::Vhd).unwrap().findings().is_empty());
    }
    // A footer of 511 bytes is one: its copy has a zero more.
    let mut old = sound.clone();
    old.set_len(ByteLength::new(end + 511));
    let storage = Arc::new(CrashStorage::new(old));
    let image = open(&storage, None);
    image.write(ByteOffset::ZERO, &[3; 512], Patience::Blocking).unwrap();
    image.close().unwrap();
    assert!(bytes_at(&storage.now(), storage.len().get() - 512) == footer);
}

#[test]
fn full_disk_that_gets_room_again_goes_on() {
    let spec = with_blocks(Subtype::Differencing, SECTORS * 512, BLOCK_SECTORS * 512);
    let parent = || parent_of(vec![0xAA; (SECTORS * 512) as usize]);
    for room in 0..60 {
        let under = crashable(&spec);
        let storage = Arc::new(Filling { under: Arc::clone(&under), left: AtomicUsize::new(room) });
        let image = MutableImage::from_storage(Box::new(Arc::clone(&storage)), VHD, parent()).unwrap();
        let mut model = Model::new(0xAA);
        for step in steps(41) {
            match make(step, &image) {
                Ok(()) => model.made(step),
                Err(BlockError::NoSpace { .. }) => {
                    storage.left.store(usize::MAX, Ordering::Relaxed);
                    make(step, &image).unwrap();
                    model.made(step);
                }
                Err(error) => panic!("{error}"),
            }
        }
        storage.left.store(usize::MAX, Ordering::Relaxed);
        image.close().unwrap();
        model.check(&open(&under, parent()), &|| format!("room for {room} writes"));
        assert!(check::check(&*under, Format::Vhd).unwrap().findings().is_empty());
    }
}

#[test]
fn opening_and_closing_changes_nothing() {
    for subtype in [Subtype::Fixed, Subtype::Dynamic, Subtype::Differencing] {
        let storage = crashable(&with_blocks(subtype, MIB, 64 * KIB));
        let parent = (subtype == Subtype::Differencing).then(|| parent_of(vec![1; MIB as usize])).flatten();
        let image = open(&storage, parent);
        assert_eq!(image.info().subtype, subtype);
        assert_eq!(image.geometry().access, Access::ReadWrite);
        image.flush(Patience::Blocking).unwrap();
        image.close().unwrap();
        let events = storage.events();
        assert!(events.iter().all(|event| *event == Event::Flush), "{events:?}");
    }
}

#[test]
fn parent_belongs_to_differencing_images_and_to_no_others() {
    for (subtype, parent) in [
        (Subtype::Fixed, parent_of(vec![0; 512])),
        (Subtype::Dynamic, parent_of(vec![0; 512])),
        (Subtype::Differencing, None),
    ] {
        let storage = crashable(&with_blocks(subtype, MIB, 64 * KIB));
        let error = MutableImage::from_storage(Box::new(storage), VHD, parent).unwrap_err();
        assert!(error.refusal.to_string().contains("parent"), "{}", error.refusal);
    }
}

#[test]
fn discarded_blocks_give_their_places_to_new_ones() {
    let storage = crashable(&with_blocks(Subtype::Dynamic, 64 * MIB, 2 * MIB));
    let image = open(&storage, None);
    for round in 0..40 {
        let at = ByteOffset::new(round % 3 * 20 * MIB);
        image.write(at, &[round as u8 + 1; 4096], Patience::Blocking).unwrap();
        image.flush(Patience::Blocking).unwrap();
        image.discard(range(at.get(), 2 * MIB), Patience::Blocking).unwrap();
        image.flush(Patience::Blocking).unwrap();
        let mut read = [1; 4096];
        image.read(at, &mut read, Patience::Blocking).unwrap();
        assert_eq!(read, [0; 4096]);
    }
    image.write(ByteOffset::ZERO, &pattern(2 << 20), Patience::Blocking).unwrap();
    image.close().unwrap();
    assert!(storage.len().get() < 5 * MIB, "{} bytes after 40 blocks that came and went", storage.len());
}

/// The images of a directory, written through the library and read by others.
#[test]
fn written_images_are_what_other_programs_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("written.vhd");
    let file = || Box::new(FileStorage::create_new(&path).unwrap());
    for block_bytes in [512 * KIB, 2 * MIB, 16 * MIB] {
        let spec = with_blocks(Subtype::Dynamic, 50 * MIB, block_bytes);
        create(file(), &spec).unwrap().finish().unwrap();
        let image = MutableImage::open(&path, VHD, None, &Childless).unwrap();
        let mut random = Random(block_bytes | 1);
        for step in 0..40_u64 {
            let at = random.below(50 * MIB / 512 - 400) * 512;
            let length = (1 + random.below(400)) * 512;
            match step % 5 {
                3 => image.write_zeroes(range(at, length), Patience::Blocking).unwrap(),
                4 => image
                    .discard(range(at - at % block_bytes, block_bytes.min(2 * MIB)), Patience::Blocking)
                    .unwrap(),
                _ => {
                    let data = &pattern(length as usize + step as usize)[step as usize..];
                    image.write(ByteOffset::new(at), data, Patience::Blocking).unwrap();
                }
            }
            if step % 7 == 0 {
                image.flush(Patience::Blocking).unwrap();
            }
        }
        image.close().unwrap();
        let image = open_as(&path, None);
        assert_same(&image, &qemu_raw("vpc", &path));
        assert_same_as_7z(&image, &path);
        // What qemu then writes is read here, and can be written over.
        crate::tools::qemu_io("vpc", &path, &["write -P 0x77 10M 5M", "write -P 0x78 49M 1M"]);
        let image = MutableImage::open(&path, VHD, None, &Childless).unwrap();
        image.write(ByteOffset::new(12 * MIB), &[0x79; 512], Patience::Blocking).unwrap();
        image.close().unwrap();
        assert_same(&open_as(&path, None), &qemu_raw("vpc", &path));
        assert!(check::check(&FileStorage::open(&path).unwrap(), Format::Vhd).unwrap().is_clean());
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn written_differences_are_what_7_zip_reads() {
    let directory = tempfile::tempdir().unwrap();
    let base = directory.path().join("base.vhd");
    let size = 12 * MIB + 512;
    let spec =
        NewImageSpec { identity: Some(7_u128.to_be_bytes()), ..with_blocks(Subtype::Dynamic, size, 2 * MIB) };
    create(Box::new(FileStorage::create_new(&base).unwrap()), &spec).unwrap().finish().unwrap();
    let image = MutableImage::open(&base, VHD, None, &Childless).unwrap();
    let mut expected = pattern(size as usize);
    image.write(ByteOffset::ZERO, &expected, Patience::Blocking).unwrap();
    image.close().unwrap();

    let storage = crashable(&with_blocks(Subtype::Differencing, size, 512 * KIB));
    let image = open(&storage, parent_of(expected.clone()));
    let mut random = Random(99);
    for step in 0..60_u64 {
        let at = random.below(size / 512 - 100) * 512;
        let length = (1 + random.below(100)) * 512;
        let piece = &mut expected[at as usize..(at + length) as usize];
        if step % 4 == 3 {
            image.write_zeroes(range(at, length), Patience::Blocking).unwrap();
            piece.fill(0);
        } else {
            let tag = step as u8 | 0x80;
            image.write(ByteOffset::new(at), &vec![tag; length as usize], Patience::Blocking).unwrap();
            piece.fill(tag);
        }
        if step % 9 == 0 {
            image.flush(Patience::Blocking).unwrap();
        }
    }
    image.close().unwrap();
    let child = directory.path().join("child.vhd");
    save(&storage.now(), &child);
    assert!(sevenzip(&child) == expected);
}

fn sevenzip(path: &Path) -> Vec<u8> {
    let output = program("7z", "p7zip-full").args(["x", "-so", "-tVHD"]).arg(path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}
