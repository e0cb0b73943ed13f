//! VHDX files made from scratch, held against qemu-img, 7-Zip and libvhdi, none of which is ours, and against a model
//! of what was put in.
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use block::{ByteLength, ByteOffset, ByteRange, LogicalBlockSize, Patience};
use diskimage::check::check;
use diskimage::storage::{
    CrashStorage, Event, FileStorage, MemoryStorage, Storage, StorageError, Survival, WritableStorage,
};
use diskimage::{
    Format, Guid, Image, MetadataItem, NewImage, NewImageError, NewImageSpec, OpenOptions, ParentLink,
    Refusal, Subtype, create,
};
use mutate::Rng;

use crate::tools::{
    assert_same, assert_same_as_7z, assert_same_sparse, open, program, qemu_img, read, run, save,
};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// An image to be, without a parent.
pub(crate) fn spec(subtype: Subtype, virtual_bytes: u64) -> NewImageSpec {
    NewImageSpec {
        format: Format::Vhdx,
        subtype,
        virtual_size: ByteLength::new(virtual_bytes),
        logical_block: LogicalBlockSize::B512,
        physical_block: 4096,
        payload_block: None,
        identity: None,
        linkage: None,
        parent: None,
        carried: Vec::new(),
    }
}

fn begin(path: &Path, spec: &NewImageSpec) -> Box<dyn NewImage> {
    create(Box::new(FileStorage::create_new(path).unwrap()), spec).unwrap()
}

/// Some blocks by chance, first and last always, and both sides of the chunks' borders at 4 and 32 GiB; in any order.
fn some_blocks(block_bytes: u64, blocks: u64, rng: &mut Rng) -> Vec<u64> {
    let borders = [0, blocks - 1, 4 * GIB / block_bytes, 32 * GIB / block_bytes];
    let mut chosen: BTreeSet<u64> =
        borders.into_iter().flat_map(|block| [block.saturating_sub(1), block]).collect();
    chosen.extend((0..6).map(|_| rng.below(blocks)));
    let mut order: Vec<(u64, u64)> = chosen
        .into_iter()
        .filter(|&block| block < blocks)
        .map(|block| (rng.below(u64::MAX), block))
        .collect();
    order.sort_unstable();
    order.into_iter().map(|(_, block)| block).collect()
}

/// Fills an image with blocks by chance and a raw file with what it must read as.
fn fill(image: &mut dyn NewImage, raw: &FileStorage, virtual_bytes: u64, rng: &mut Rng) {
    let block_bytes = image.payload_block().get();
    let blocks = virtual_bytes.div_ceil(block_bytes);
    raw.set_len(ByteLength::new(virtual_bytes)).unwrap();
    for block in some_blocks(block_bytes, blocks, rng) {
        if rng.below(4) == 0 {
            image.zero(block).unwrap();
            continue;
        }
        let at = image.place(block).unwrap().get();
        let left = (virtual_bytes - block * block_bytes).min(block_bytes);
        for _ in 0..3 {
            let within = rng.below(left) / 512 * 512;
            let length = (rng.below(64) * 512 + 512).min(left - within);
            let bytes = block::conformance::pattern((length + block % 7) as usize);
            let bytes = &bytes[(block % 7) as usize..];
            image.storage().write_at(ByteOffset::new(at + within), bytes).unwrap();
            raw.write_at(ByteOffset::new(block * block_bytes + within), bytes).unwrap();
        }
    }
}

#[test]
fn image_by_chance_reads_the_same_here_and_elsewhere() {
    let directory = tempfile::tempdir().unwrap();
    let shapes = [
        (Subtype::Dynamic, 40 * MIB, MIB, 512),
        (Subtype::Dynamic, 41 * MIB + 512, 2 * MIB, 512),
        (Subtype::Dynamic, 13 * GIB, 2 * MIB, 512),
        (Subtype::Dynamic, 5 * GIB, 256 * MIB, 512),
        (Subtype::Dynamic, 66 * GIB, 4 * MIB, 4096),
        (Subtype::Dynamic, 65 * GIB + 4096, 16 * MIB, 4096),
        (Subtype::Fixed, 40 * MIB + 512, 2 * MIB, 512),
        (Subtype::Fixed, 5 * GIB, 32 * MIB, 512),
        (Subtype::Fixed, 33 * GIB, 16 * MIB, 4096),
    ];
    for (seed, (subtype, virtual_bytes, block_bytes, sector)) in (1..).zip(shapes) {
        let path = directory.path().join(format!("{seed}.vhdx"));
        let raw = directory.path().join(format!("{seed}.raw"));
        let spec = NewImageSpec {
            payload_block: Some(ByteLength::new(block_bytes)),
            logical_block: LogicalBlockSize::from_bytes(sector).unwrap(),
            ..spec(subtype, virtual_bytes)
        };
        let mut image = begin(&path, &spec);
        let raw_storage = FileStorage::create_new(&raw).unwrap();
        fill(&mut *image, &raw_storage, virtual_bytes, &mut Rng::new(seed));
        image.finish().unwrap();
        let image = open(&path);
        assert_eq!(image.info().subtype, subtype);
        assert_same_sparse(&image, &path, &raw);
        check_elsewhere(&path, &raw, &image, sector, virtual_bytes);
    }
}

fn check_elsewhere(path: &Path, raw: &Path, image: &Image, sector: u64, virtual_bytes: u64) {
    // qemu reads no 4096-byte sectors; 7-Zip no disks of odd sizes, and gives all the zeros.
    if sector == 512 {
        qemu_img(&["check", "-q", "-f", "vhdx"], &[path]);
        qemu_img(&["compare", "-q", "-f", "vhdx", "-F", "raw"], &[path, raw]);
    }
    if virtual_bytes < GIB && virtual_bytes.is_multiple_of(MIB) {
        assert_same_as_7z(image, path);
    }
}

/// The `DataWriteGuid` of a file, and the identifier of its disk, as they stand in the files that we make.
fn lineage(path: &Path) -> (Guid, [u8; 16]) {
    let file = FileStorage::open(path).unwrap();
    let [linkage, identity] = [0x20020, 2 * MIB + 0x10018].map(|at| {
        let mut bytes = [0; 16];
        file.read_at(ByteOffset::new(at), &mut bytes, Patience::Blocking).unwrap();
        Guid::from_le_bytes(bytes)
    });
    (linkage, identity.to_be_bytes())
}

/// What of a block of `sectors` a differencing image holds: runs that begin and end anywhere, nothing, or all.
fn held_by_chance(sectors: u64, rng: &mut Rng) -> Vec<bool> {
    let mut held = vec![rng.below(8) == 0; sectors as usize];
    for _ in 0..rng.below(5) {
        let start = rng.below(sectors);
        let end = (start + rng.below(40) + 1).min(sectors);
        held[start as usize..end as usize].fill(true);
    }
    held
}

/// Puts blocks by chance into a differencing image, and into the raw file that its chain must read as.
fn overlay(
    image: &mut dyn NewImage,
    raw: &FileStorage,
    (virtual_bytes, sector): (u64, u64),
    with_zeros: bool,
    rng: &mut Rng,
) {
    let block_bytes = image.payload_block().get();
    let range = |at, length| ByteRange::new(ByteOffset::new(at), ByteLength::new(length)).unwrap();
    for block in some_blocks(block_bytes, virtual_bytes.div_ceil(block_bytes), rng) {
        let (start, used) = (block * block_bytes, (virtual_bytes - block * block_bytes).min(block_bytes));
        let mut held = held_by_chance(used / sector, rng);
        let at = match rng.below(6) {
            0 if with_zeros => {
                image.zero(block).unwrap();
                raw.punch(range(start, used)).unwrap();
                continue;
            }
            1 => {
                raw.punch(range(start, used)).unwrap();
                image.place(block).unwrap().get()
            }
            _ => {
                // Bits behind the disk's end, which nobody may see.
                held.resize((block_bytes / sector) as usize, rng.below(2) == 0);
                let bits: Vec<u8> = held
                    .chunks(8)
                    .map(|eight| eight.iter().rev().fold(0, |bits, &bit| bits << 1 | u8::from(bit)))
                    .collect();
                image.place_partly(block, &bits).unwrap().get()
            }
        };
        for (index, _) in held.iter().enumerate().filter(|(_, held)| **held) {
            let within = index as u64 * sector;
            if within < used {
                let bytes: Vec<u8> = (0..sector).map(|_| rng.below(256) as u8).collect();
                image.storage().write_at(ByteOffset::new(at + within), &bytes).unwrap();
                raw.write_at(ByteOffset::new(start + within), &bytes).unwrap();
            }
        }
    }
}

/// Makes a chain of these block sizes; after each file of it, the leaf and what it must read as are shown to `look`.
fn make_chain(
    (virtual_bytes, sector): (u64, u64),
    blocks: &[u64],
    seed: u64,
    with_zeros: bool,
    look: &dyn Fn(&Path, &Path),
) {
    let directory = tempfile::tempdir().unwrap();
    let raw_path = directory.path().join("expected.raw");
    let raw = FileStorage::create_new(&raw_path).unwrap();
    let mut rng = Rng::new(seed);
    let mut parent: Option<PathBuf> = None;
    for (layer, block_bytes) in blocks.iter().enumerate() {
        let path = directory.path().join(format!("{layer}.vhdx"));
        let mut spec = NewImageSpec {
            payload_block: Some(ByteLength::new(*block_bytes)),
            logical_block: LogicalBlockSize::from_bytes(sector).unwrap(),
            ..spec(Subtype::Dynamic, virtual_bytes)
        };
        if let Some(parent) = &parent {
            let (linkage, identity) = lineage(parent);
            let relative_path = parent.file_name().unwrap().to_str().unwrap().to_owned();
            spec.subtype = Subtype::Differencing;
            spec.identity = Some(identity);
            // libvhdi takes a parent's name from the absolute path only.
            let absolute_path = Some(format!("c:\\vdisks\\{relative_path}"));
            spec.parent = Some(ParentLink { linkage, relative_path, absolute_path });
        }
        let mut image = begin(&path, &spec);
        match parent {
            None => fill(&mut *image, &raw, virtual_bytes, &mut rng),
            Some(_) => overlay(&mut *image, &raw, (virtual_bytes, sector), with_zeros, &mut rng),
        }
        image.finish().unwrap();
        look(&path, &raw_path);
        parent = Some(path);
    }
}

fn check_leaf(leaf: &Path, raw: &Path) {
    let report = check(&FileStorage::open(leaf).unwrap(), Format::Vhdx).unwrap();
    assert_eq!(report.findings(), []);
    let image = open(leaf);
    assert_eq!(image.identity(), Some(lineage(leaf).1));
    assert_same(&image, raw);
    let size = image.virtual_size().get();
    if size < GIB && size.is_multiple_of(MIB) {
        assert_same_as_7z(&image, leaf);
    }
}

#[test]
fn chain_by_chance_reads_the_same_here_and_in_7zip() {
    for (seed, sector) in [(1, 512), (2, 4096), (3, 512), (4, 4096)] {
        make_chain((14 * MIB, sector), &[2 * MIB, MIB, 4 * MIB, MIB, 2 * MIB], seed, true, &check_leaf);
    }
    make_chain((9 * MIB + 512, 512), &[2 * MIB, 4 * MIB, MIB], 5, true, &check_leaf);
    make_chain((9 * GIB + 512, 512), &[32 * MIB, 2 * MIB, 2 * MIB], 6, true, &check_leaf);
    make_chain((65 * GIB, 4096), &[16 * MIB, 4 * MIB, 2 * MIB], 7, true, &check_leaf);
}

#[test]
fn libvhdi_finds_the_parent_that_we_wrote() {
    make_chain((9 * MIB, 512), &[2 * MIB, MIB], 8, false, &|leaf, _| {
        let info = run(program("vhdiinfo", "libvhdi-utils").arg(leaf));
        let base = leaf.with_file_name("0.vhdx");
        let expected = match leaf == base {
            true => vec!["Dynamic".to_owned(), lineage(leaf).0.to_string()],
            false => vec!["Differential".into(), lineage(&base).0.to_string(), "0.vhdx".into()],
        };
        for expected in expected {
            assert!(info.contains(&expected), "{expected}: {info}");
        }
    });
}

/// A file, and how many of its changes succeed before the file system is full.
#[derive(Debug)]
struct FullStorage {
    file: CrashStorage,
    left: AtomicUsize,
}

impl FullStorage {
    fn change<T>(&self, change: impl FnOnce() -> Result<T, StorageError>) -> Result<T, StorageError> {
        let count = |left: usize| left.checked_sub(1);
        match self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, count) {
            Ok(_) => change(),
            Err(_) => {
                let source = std::io::Error::from(std::io::ErrorKind::StorageFull);
                Err(StorageError::Write { at: ByteOffset::ZERO, source })
            }
        }
    }
}

impl Storage for FullStorage {
    fn len(&self) -> ByteLength {
        self.file.len()
    }

    fn read_at(&self, at: ByteOffset, buffer: &mut [u8], patience: Patience) -> Result<(), StorageError> {
        self.file.read_at(at, buffer, patience)
    }
}

impl WritableStorage for FullStorage {
    fn write_at(&self, at: ByteOffset, data: &[u8]) -> Result<(), StorageError> {
        self.change(|| self.file.write_at(at, data))
    }

    fn set_len(&self, len: ByteLength) -> Result<(), StorageError> {
        self.change(|| self.file.set_len(len))
    }

    fn punch(&self, range: ByteRange) -> Result<(), StorageError> {
        self.change(|| self.file.punch(range))
    }

    fn flush(&self) -> Result<(), StorageError> {
        self.change(|| self.file.flush())
    }
}

fn item() -> MetadataItem {
    MetadataItem { id: Guid::from_u128(9), is_user: true, bytes: b"kept".to_vec() }
}

/// An image with all that an image can have, two chunks among it, and the number of its block that holds something.
fn small_spec(subtype: Subtype) -> NewImageSpec {
    let parent = ParentLink {
        linkage: Guid::from_u128(1),
        relative_path: "../base.vhdx".into(),
        absolute_path: Some(r"d:\vdisks\base.vhdx".into()),
    };
    NewImageSpec {
        payload_block: Some(ByteLength::new(MIB)),
        identity: Some([7; 16]),
        parent: (subtype == Subtype::Differencing).then_some(parent),
        carried: vec![item()],
        ..spec(subtype, 6 * MIB)
    }
}

fn make_small(storage: Box<dyn WritableStorage>, subtype: Subtype) -> Result<(), NewImageError> {
    let mut image = create(storage, &small_spec(subtype))?;
    let at = image.place(3)?;
    image.storage().write_at(at, &[3; 8192])?;
    image.zero(4)?;
    if subtype == Subtype::Differencing {
        let mut held = [0; 256];
        held[255] = 0x80;
        let at = image.place_partly(1, &held)?;
        image.storage().write_at(ByteOffset::new(at.get() + MIB - 512), &[1; 512])?;
    }
    image.finish()
}

const SUBTYPES: [Subtype; 3] = [Subtype::Fixed, Subtype::Dynamic, Subtype::Differencing];

/// What a reader says of a file that should be no image.
fn refusal_of(file: &MemoryStorage) -> Refusal {
    let options = OpenOptions { format: Some(Format::Vhdx), ..OpenOptions::default() };
    let opened = Image::from_storage(Box::new(file.clone()), options);
    opened.map(|image| image.info()).unwrap_err().refusal
}

#[test]
fn file_system_that_gets_full_at_any_moment_leaves_an_incomplete_file() {
    let directory = tempfile::tempdir().unwrap();
    for subtype in SUBTYPES {
        for left in 0.. {
            let file = CrashStorage::new(MemoryStorage::default());
            let storage = Arc::new(FullStorage { file, left: AtomicUsize::new(left) });
            match make_small(Box::new(Arc::clone(&storage)), subtype) {
                Ok(()) => {
                    assert!(left > 12, "{left} changes make no image");
                    break;
                }
                Err(NewImageError::Storage(StorageError::Write { .. })) => {}
                Err(error) => panic!("{error}"),
            }
            let events = storage.file.events();
            if events.len() > 2 && events[events.len() - 2] == Event::Flush {
                // Only the last flush failed: the image is whole, and nobody knows for how long.
                continue;
            }
            let file = storage.file.now();
            let refusal = refusal_of(&file);
            if left >= 7 {
                assert!(matches!(refusal, Refusal::Incomplete), "after {left} changes: {refusal}");
            }
            let path = directory.path().join("full.vhdx");
            save(&file, &path);
            let info =
                program("qemu-img", "qemu-utils").args(["info", "-f", "vhdx"]).arg(&path).output().unwrap();
            assert!(!info.status.success(), "after {left} changes qemu-img opens it");
        }
    }
}

#[test]
fn unknown_items_of_a_disk_go_with_its_versions() {
    let directory = tempfile::tempdir().unwrap();
    let [base, child] = ["base.vhdx", "child.vhdx"].map(|name| directory.path().join(name));
    begin(&base, &small_spec(Subtype::Dynamic)).finish().unwrap();
    diskimage::ops::snapshot(&base, &child, &diskimage::ops::SnapshotOptions::default()).unwrap();
    for path in [base, child] {
        assert_eq!(open(&path).carried().unwrap(), [item()], "{path:?}");
    }
}

/// Whether these are the same files, as far as either goes.
fn same(one: &MemoryStorage, other: &MemoryStorage) -> bool {
    let bytes = |file: &MemoryStorage| {
        let mut bytes = vec![0; file.len().in_memory().unwrap()];
        file.read_at(ByteOffset::ZERO, &mut bytes, Patience::Now).unwrap();
        bytes
    };
    one.len() == other.len() && bytes(one) == bytes(other)
}

#[test]
fn crash_at_any_moment_leaves_an_incomplete_file_or_the_whole_image() {
    let mut rng = Rng::new(1);
    for subtype in SUBTYPES {
        let file = Arc::new(CrashStorage::new(MemoryStorage::default()));
        make_small(Box::new(Arc::clone(&file)), subtype).unwrap();
        let (whole, end) = (file.now(), file.moments());
        let mut survived = 0;
        for moment in 0..=end {
            for _ in 0..12 {
                let crashed = file.crashed(moment, |_| match rng.below(4) {
                    0 => Survival::Lost,
                    1 => Survival::Head(rng.below(10) as usize),
                    2 => Survival::Tail(rng.below(10) as usize),
                    _ => Survival::Whole,
                });
                let report = check(&crashed, Format::Vhdx);
                if report.is_ok_and(|report| report.is_clean()) {
                    assert!(same(&crashed, &whole), "{subtype:?} after {moment} events");
                    survived += 1;
                } else {
                    refusal_of(&crashed);
                }
            }
        }
        // All that is left of the history behind the flush of everything but the mark.
        assert!((12..=24).contains(&survived), "{survived} of {end}");
    }
}

#[test]
fn images_that_vhdx_cannot_express_are_refused_with_the_limit() {
    type Change = fn(&mut NewImageSpec);
    let cases: [(&str, Change); 18] = [
        ("payload blocks of 524288 bytes", |spec| spec.payload_block = Some(ByteLength::new(512 << 10))),
        ("payload blocks of 3145728 bytes", |spec| spec.payload_block = Some(ByteLength::new(3 * MIB))),
        ("payload blocks of 536870912 bytes", |spec| spec.payload_block = Some(ByteLength::new(512 * MIB))),
        ("payload blocks of 4294967296 bytes", |spec| spec.payload_block = Some(ByteLength::new(4 * GIB))),
        ("a disk of 0 bytes", |spec| spec.virtual_size = ByteLength::ZERO),
        ("a disk of 513 bytes", |spec| spec.virtual_size = ByteLength::new(513)),
        ("a disk of 512 bytes", |spec| {
            spec.virtual_size = ByteLength::new(512);
            spec.logical_block = LogicalBlockSize::B4096;
        }),
        ("a disk of 70368744178176 bytes", |spec| spec.virtual_size = ByteLength::new((64 << 40) + 512)),
        ("physical sectors of 1024 bytes", |spec| spec.physical_block = 1024),
        ("physical sectors of 512 bytes under logical ones of 4096", |spec| {
            spec.physical_block = 512;
            spec.logical_block = LogicalBlockSize::B4096;
        }),
        ("differencing without a parent", |spec| spec.parent = None),
        ("a parent, unless", |spec| spec.subtype = Subtype::Dynamic),
        ("a parent without its disk's identifier", |spec| spec.identity = None),
        ("the parent path \"\"", |spec| spec.parent.as_mut().unwrap().relative_path.clear()),
        ("the parent path \"/a\"", |spec| spec.parent.as_mut().unwrap().relative_path = "/a".into()),
        ("the parent path \"a\\\\b\"", |spec| spec.parent.as_mut().unwrap().relative_path = r"a\b".into()),
        ("more than 32767 characters", |spec| {
            spec.parent.as_mut().unwrap().relative_path = "a".repeat(32768);
        }),
        ("metadata of more than 1 MiB", |spec| spec.carried[0].bytes = vec![0; MIB as usize]),
    ];
    for (expected, change) in cases {
        let mut spec = small_spec(Subtype::Differencing);
        change(&mut spec);
        let file = Arc::new(CrashStorage::new(MemoryStorage::default()));
        let error = create(Box::new(Arc::clone(&file)), &spec).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("[MS-VHDX]"), "{expected}: {error}");
        assert_eq!(file.moments(), 0, "{error}");
    }
    let twice = NewImageSpec { carried: vec![item(), item()], ..small_spec(Subtype::Dynamic) };
    let error = create(Box::new(CrashStorage::new(MemoryStorage::default())), &twice).unwrap_err();
    assert!(error.to_string().contains("twice"), "{error}");
    let full = CrashStorage::new(MemoryStorage::new(&[0; 5]));
    let error = create(Box::new(full), &spec(Subtype::Dynamic, MIB)).unwrap_err();
    assert!(matches!(error, NewImageError::NotEmpty { len } if len.get() == 5), "{error}");
}

#[test]
fn blocks_that_cannot_be_placed_are_refused() {
    let file = || Box::new(CrashStorage::new(MemoryStorage::default()));
    let mut image = create(file(), &small_spec(Subtype::Differencing)).unwrap();
    image.place(3).unwrap();
    for result in [image.place(3).map(|_| ()), image.zero(3), image.place_partly(3, &[1; 256]).map(|_| ())] {
        assert!(matches!(result, Err(NewImageError::PlacedAlready { block: 3 })), "{result:?}");
    }
    for result in [image.place(6).map(|_| ()), image.zero(6), image.place_partly(6, &[1; 256]).map(|_| ())] {
        assert!(matches!(result, Err(NewImageError::NoSuchBlock { block: 6, blocks: 6 })), "{result:?}");
    }
    let short = image.place_partly(1, &[1; 255]);
    assert!(matches!(short, Err(NewImageError::WrongBitmap { found: 255, expected: 256 })), "{short:?}");
    let mut dynamic = create(file(), &small_spec(Subtype::Dynamic)).unwrap();
    let partly = dynamic.place_partly(0, &[1; 256]);
    assert!(matches!(partly, Err(NewImageError::NotDifferencing)), "{partly:?}");
}

#[test]
fn fixed_image_forgets_what_a_zeroed_block_held() {
    let file = Arc::new(CrashStorage::new(MemoryStorage::default()));
    let mut image = create(Box::new(Arc::clone(&file)), &small_spec(Subtype::Fixed)).unwrap();
    for block in [0, 5] {
        let at = image.place(block).unwrap();
        image.storage().write_at(at, &vec![1; MIB as usize]).unwrap();
    }
    image.zero(0).unwrap();
    image.zero(2).unwrap();
    image.finish().unwrap();
    let image = Image::from_storage(Box::new(file.now()), OpenOptions::default()).unwrap();
    let byte_at = |at| {
        let mut byte = [9; 512];
        read(&image, at, &mut byte);
        byte[0]
    };
    assert_eq!([byte_at(0), byte_at(2 * MIB), byte_at(5 * MIB)], [0, 0, 1]);
}

#[test]
fn largest_disk_is_made_in_bounded_memory() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("large.vhdx");
    let large = NewImageSpec { virtual_size: ByteLength::new(64 << 40), ..small_spec(Subtype::Differencing) };
    let mut image = begin(&path, &large);
    let mut rng = Rng::new(4);
    // More pages of the table than stay in memory, in no order.
    for _ in 0..300 {
        image.place_partly(rng.below(64 << 20), &[1; 256]).unwrap();
    }
    image.finish().unwrap();
    let file = FileStorage::open(&path).unwrap();
    assert!(file.allocated().unwrap().get() < 64 * MIB);
    assert_eq!(check(&file, Format::Vhdx).unwrap().findings(), []);
}
