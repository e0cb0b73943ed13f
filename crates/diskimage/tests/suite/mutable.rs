//! Images opened for writing: the contract, and what is common to all formats.
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::builder::MIB;
use block::conformance::writable;
use block::{BlockDevice, BlockError, ByteLength, ByteOffset, ByteRange, Patience};
use diskimage::storage::{CrashStorage, MemoryStorage, Storage, StorageError, WritableStorage};
use diskimage::{Children, Format, Guid, MutableImage};

const RAW: Option<Format> = Some(Format::Raw);

fn raw_of(bytes: u64) -> MutableImage {
    let storage = CrashStorage::new(MemoryStorage::sparse(ByteLength::new(bytes)));
    MutableImage::from_storage(Box::new(storage), RAW, None).unwrap()
}

#[test]
fn raw_image_conforms_for_writing() {
    writable(&|| Box::new(raw_of(3 << 20)));
    // The file ends inside the last block of the disk.
    writable(&|| Box::new(raw_of((1 << 20) - 77)));
}

/// Storage whose flushes can be made to fail, and that can be full.
#[derive(Debug)]
struct Failing {
    under: Arc<CrashStorage>,
    fails: Arc<AtomicBool>,
    /// How long the file can be.
    room: Arc<AtomicU64>,
}

impl Failing {
    fn check_room(&self, end: u64) -> Result<(), StorageError> {
        if end <= self.room.load(Ordering::Relaxed) {
            return Ok(());
        }
        Err(StorageError::Write { at: ByteOffset::new(end), source: io::ErrorKind::StorageFull.into() })
    }
}

impl Storage for Failing {
    fn len(&self) -> ByteLength {
        self.under.len()
    }

    fn read_at(&self, at: ByteOffset, buffer: &mut [u8], patience: Patience) -> Result<(), StorageError> {
        self.under.read_at(at, buffer, patience)
    }
}

impl WritableStorage for Failing {
    fn write_at(&self, at: ByteOffset, data: &[u8]) -> Result<(), StorageError> {
        self.check_room(at.get() + data.len() as u64)?;
        self.under.write_at(at, data)
    }

    fn set_len(&self, len: ByteLength) -> Result<(), StorageError> {
        self.check_room(len.get())?;
        self.under.set_len(len)
    }

    fn punch(&self, range: ByteRange) -> Result<(), StorageError> {
        self.under.punch(range)
    }

    fn flush(&self) -> Result<(), StorageError> {
        if self.fails.load(Ordering::Relaxed) {
            return Err(StorageError::Write { at: ByteOffset::ZERO, source: io::Error::other("no answer") });
        }
        self.under.flush()
    }
}

#[test]
fn image_takes_no_more_writes_once_a_flush_has_failed() {
    let fails = Arc::new(AtomicBool::new(false));
    let under = Arc::new(CrashStorage::new(MemoryStorage::sparse(ByteLength::new(1 << 20))));
    let storage = Failing { under, fails: Arc::clone(&fails), room: Arc::new(u64::MAX.into()) };
    let image = MutableImage::from_storage(Box::new(storage), RAW, None).unwrap();
    image.write(ByteOffset::ZERO, &[1; 512], Patience::Blocking).unwrap();
    fails.store(true, Ordering::Relaxed);
    assert!(matches!(image.flush(Patience::Blocking), Err(BlockError::Storage { .. })));
    fails.store(false, Ordering::Relaxed);
    let refused = image.write(ByteOffset::ZERO, &[2; 512], Patience::Blocking).unwrap_err();
    let BlockError::Storage { source, .. } = refused else { panic!("{refused:?}") };
    assert!(source.to_string().contains("an earlier flush failed"), "{source}");
    assert!(image.flush(Patience::Blocking).is_err(), "a second flush proves nothing");
    let mut buffer = [0; 512];
    image.read(ByteOffset::ZERO, &mut buffer, Patience::Blocking).unwrap();
    assert_eq!(buffer, [1; 512]);
    image.close().unwrap_err();
}

/// A store that says that everything has a child.
struct Parents;

impl Children for Parents {
    fn child_of(&self, path: &Path, linkage: Option<Guid>) -> io::Result<Option<PathBuf>> {
        assert_eq!(linkage, None, "a raw image has no identifier");
        Ok(Some(path.with_extension("1.avhdx")))
    }
}

#[test]
fn image_with_a_child_is_not_opened_for_writing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("base.raw");
    std::fs::write(&path, [7; 4096]).unwrap();
    let refused = MutableImage::open(&path, RAW, None, &Parents).unwrap_err();
    assert!(refused.refusal.to_string().contains("base.1.avhdx\" has this image as its parent"));
    assert_eq!(std::fs::read(&path).unwrap(), [7; 4096]);
}

#[test]
fn full_disk_is_told_and_leaves_an_image_to_work_with() {
    let vhdx = crate::vhdx_write::empty(8 * MIB, 1, 512, false);
    let under = Arc::new(CrashStorage::new(vhdx.build()));
    let room = Arc::new(AtomicU64::new(vhdx.file_bytes + 2 * MIB));
    let storage = Failing { under: Arc::clone(&under), fails: Arc::default(), room: Arc::clone(&room) };
    let image = MutableImage::from_storage(Box::new(storage), None, None).unwrap();
    let write = |block: u64, fill: u8| {
        image.write(ByteOffset::new(block * MIB), &vec![fill; 1 << 20], Patience::Blocking)
    };
    write(0, 1).unwrap();
    write(5, 2).unwrap();
    for _ in 0..2 {
        assert!(matches!(write(3, 3), Err(BlockError::NoSpace { .. })));
    }
    let mut model = vec![0; 8 << 20];
    model[..1 << 20].fill(4);
    model[5 << 20..6 << 20].fill(2);
    write(0, 4).unwrap();
    assert!(
        crate::vhdx_write::contents(&image) == model,
        "what had its place is written, nothing else changed"
    );
    image.flush(Patience::Blocking).unwrap();
    room.store(u64::MAX, Ordering::Relaxed);
    write(3, 3).unwrap();
    model[3 << 20..4 << 20].fill(3);
    image.close().unwrap();
    let image = crate::vhdx_write::open(&under, None);
    assert!(crate::vhdx_write::contents(&image) == model);
}

#[test]
fn raw_image_is_resized_unless_something_would_be_lost() {
    let storage = Arc::new(CrashStorage::new(MemoryStorage::new(&[3; 4096])));
    let resize = |bytes: u64| {
        let image = MutableImage::from_storage(Box::new(Arc::clone(&storage)), RAW, None).unwrap();
        image.resize(ByteLength::new(bytes))
    };
    resize(1 << 20).unwrap();
    assert_eq!(storage.len().get(), 1 << 20);
    assert!(matches!(resize(2048), Err(diskimage::EditError::TailInUse { .. })));
    resize(4096).unwrap();
    assert_eq!(storage.len().get(), 4096);
}
