//! Images opened for writing: the contract, and what is common to all formats.
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use block::conformance::writable;
use block::{BlockDevice, BlockError, ByteLength, ByteOffset, ByteRange, Patience};
use diskimage::storage::{CrashStorage, MemoryStorage, Storage, StorageError, WritableStorage};
use diskimage::{Children, Format, Guid, MutableImage, OpenOptions};

const RAW: OpenOptions = OpenOptions { format: Some(Format::Raw) };

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

/// Storage whose flushes can be made to fail.
#[derive(Debug)]
struct Failing {
    under: CrashStorage,
    fails: Arc<AtomicBool>,
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
        self.under.write_at(at, data)
    }

    fn set_len(&self, len: ByteLength) -> Result<(), StorageError> {
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
    let under = CrashStorage::new(MemoryStorage::sparse(ByteLength::new(1 << 20)));
    let storage = Failing { under, fails: Arc::clone(&fails) };
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
