//! Large disks: opening them costs next to nothing, and the table stays bounded.
use std::time::{Duration, Instant};

use block::{BlockDevice, BlockError, ByteLength, ByteOffset, ByteRange, Patience};
use diskimage::storage::{MemoryStorage, Storage, StorageError};
use diskimage::{Image, LayerIndex, OpenOptions, Source};

use crate::builder::{MIB, Vhdx};
use crate::tools::{extents, open, save};

const TIB: u64 = 1 << 40;

/// 64 TiB in blocks of 1 MiB: a BAT of 544 MiB as the builder lays it out.
fn largest() -> Vhdx {
    let mut vhdx = Vhdx::new(64 * TIB, 0);
    let at = vhdx.payload_at();
    vhdx.file_bytes = at + 4 * MIB;
    let last = (64 << 20) - 1;
    vhdx.bat = vec![(0, at | 6), (last + last / 4096, (at + MIB) | 6)];
    vhdx.data = vec![(at, vec![1; 512]), (at + 2 * MIB - 512, vec![2; 512])];
    vhdx
}

#[test]
fn largest_vhdx_opens_at_once_and_reads_at_both_ends() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("large.vhdx");
    save(&largest().build(), &path);
    let begun = Instant::now();
    let image = open(&path);
    let taken = begun.elapsed();
    // Tens of milliseconds in the worst case: reading the whole table takes many times as long.
    assert!(taken < Duration::from_millis(250), "opening took {taken:?}");
    assert_eq!(image.virtual_size().get(), 64 * TIB);
    let mut buffer = [0; 512];
    image.read(ByteOffset::ZERO, &mut buffer, Patience::Blocking).unwrap();
    assert_eq!(buffer, [1; 512]);
    image.read(ByteOffset::new(64 * TIB - 512), &mut buffer, Patience::Blocking).unwrap();
    assert_eq!(buffer, [2; 512]);
    assert_eq!(extents(&image, 32 * TIB, MIB)[0].source, Source::Zero);
}

/// Storage in which nothing is in memory until someone has waited for it.
#[derive(Debug)]
struct Cold(MemoryStorage);

impl Storage for Cold {
    fn len(&self) -> ByteLength {
        self.0.len()
    }

    fn read_at(&self, at: ByteOffset, buffer: &mut [u8], patience: Patience) -> Result<(), StorageError> {
        match patience {
            Patience::Now => Err(StorageError::WouldBlock),
            Patience::Blocking => self.0.read_at(at, buffer, patience),
        }
    }
}

#[test]
fn table_page_that_was_read_once_answers_without_waiting() {
    let vhdx = largest();
    let image = Image::from_storage(Box::new(Cold(vhdx.build())), OpenOptions::default()).unwrap();
    let absent = ByteOffset::new(40 * MIB);
    let mut buffer = [9; 4096];
    let result = image.read(absent, &mut buffer, Patience::Now);
    assert!(matches!(result, Err(BlockError::WouldBlock)), "{result:?}");
    image.read(absent, &mut buffer, Patience::Blocking).unwrap();
    // The table's page is in memory now, and a run of zeros needs nothing else.
    buffer.fill(9);
    image.read(absent, &mut buffer, Patience::Now).unwrap();
    assert_eq!(buffer, [0; 4096]);
    let result = image.read(ByteOffset::ZERO, &mut buffer, Patience::Now);
    assert!(matches!(result, Err(BlockError::WouldBlock)), "{result:?}");
}

#[test]
fn small_table_is_in_memory_from_the_start() {
    let vhdx = Vhdx::new(100 * MIB, 0);
    let image = Image::from_storage(Box::new(Cold(vhdx.build())), OpenOptions::default()).unwrap();
    let mut buffer = [9; 4096];
    image.read(ByteOffset::new(99 * MIB), &mut buffer, Patience::Now).unwrap();
    assert_eq!(buffer, [0; 4096]);
}

#[test]
fn tables_past_the_limit_are_read_entry_by_entry() {
    // One present block in each of the first 300 pages of the table: more than are kept in memory.
    const PAGES: u64 = 300;
    let mut vhdx = Vhdx::new(4 * TIB, 0);
    let at = vhdx.payload_at();
    vhdx.file_bytes = at + PAGES * MIB;
    for page in 0..PAGES {
        let index = page * 8192 + 4;
        vhdx.bat.push((index, (at + page * MIB) | 6));
    }
    let image = Image::from_storage(Box::new(Cold(vhdx.build())), OpenOptions::default()).unwrap();
    for round in 0..2 {
        for page in 0..PAGES {
            let index = page * 8192 + 4;
            let block = index - index / 4097;
            let source = extents(&image, block * MIB, 512)[0].source;
            assert_eq!(
                source,
                Source::File { layer: LayerIndex::BASE, at: ByteOffset::new(at + page * MIB) },
                "{page}, round {round}"
            );
        }
    }
    // The first page is kept, the last is not: memory is bounded.
    let entry_at = |page: u64| {
        let index = page * 8192 + 4;
        ByteRange::new(ByteOffset::new((index - index / 4097) * MIB), ByteLength::new(512)).unwrap()
    };
    assert!(image.extent(entry_at(0), Patience::Now).is_ok());
    let result = image.extent(entry_at(PAGES - 1), Patience::Now);
    assert!(matches!(result, Err(BlockError::WouldBlock)), "{result:?}");
}
