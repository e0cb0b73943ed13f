//! VHDX files opened for writing: the contract in every shape, what the headers say of it, and what is left in the
//! file.
use std::sync::Arc;

use block::conformance::{pattern, writable};
use block::{
    Access, BlockDevice, ByteLength, ByteOffset, ByteRange, LogicalBlockSize, MemoryDevice, Patience,
};
use diskimage::MutableImage;
use diskimage::storage::{CrashStorage, Event, Storage};

use crate::builder::{MIB, Vhdx};

pub(crate) fn parent(bytes: Vec<u8>, sector: u32) -> Arc<dyn BlockDevice> {
    let unit = LogicalBlockSize::from_bytes(u64::from(sector)).unwrap();
    Arc::new(MemoryDevice::with_contents(bytes, unit, Access::ReadOnly).unwrap())
}

/// A dynamic or differencing file without any block.
pub(crate) fn empty(virtual_bytes: u64, block_mib: u32, sector: u32, has_parent: bool) -> Vhdx {
    let mut vhdx = Vhdx::new(virtual_bytes, 0);
    (vhdx.block_bytes, vhdx.sector, vhdx.has_parent) = (block_mib << 20, sector, has_parent);
    vhdx
}

pub(crate) fn open(storage: &Arc<CrashStorage>, parent: Option<Arc<dyn BlockDevice>>) -> MutableImage {
    MutableImage::from_storage(Box::new(Arc::clone(storage)), None, parent)
        .unwrap_or_else(|error| panic!("{error}: {}", error.refusal))
}

fn range(at: u64, length: u64) -> ByteRange {
    ByteRange::new(ByteOffset::new(at), ByteLength::new(length)).unwrap()
}

pub(crate) fn contents(image: &dyn BlockDevice) -> Vec<u8> {
    let mut bytes = vec![0; image.geometry().size.get() as usize];
    image.read(ByteOffset::ZERO, &mut bytes, Patience::Blocking).unwrap();
    bytes
}

#[test]
fn dynamic_image_conforms_for_writing() {
    for (block_mib, sector, size) in
        [(1, 512, 5 * MIB), (2, 512, 5 * MIB + 1536), (1, 4096, 5 * MIB + 4096), (32, 512, 9 * MIB)]
    {
        println!("{block_mib} MiB, {sector}");
        writable(&|| {
            let file = empty(size, block_mib, sector, false).build();
            Box::new(open(&Arc::new(CrashStorage::new(file)), None))
        });
    }
}

#[test]
fn differencing_image_conforms_for_writing() {
    for (block_mib, sector, size, parent_size) in
        [(1, 512, 5 * MIB, 5 * MIB), (2, 512, 5 * MIB + 1536, 3 * MIB), (1, 4096, 5 * MIB + 4096, 9 * MIB)]
    {
        println!("{block_mib} MiB, {sector}");
        writable(&|| {
            let file = empty(size, block_mib, sector, true).build();
            let parent = parent(vec![0; parent_size as usize], sector);
            Box::new(open(&Arc::new(CrashStorage::new(file)), Some(parent)))
        });
    }
}

#[test]
fn fixed_image_conforms_for_writing_and_keeps_its_space() {
    let mut vhdx = empty(4 * MIB, 1, 512, false);
    vhdx.is_fixed = true;
    vhdx.file_bytes += 4 * MIB;
    let at = vhdx.payload_at();
    vhdx.bat = (0..4).map(|block| (block, (at + block * MIB) | 6)).collect();
    writable(&|| Box::new(open(&Arc::new(CrashStorage::new(vhdx.build())), None)));
    let storage = Arc::new(CrashStorage::new(vhdx.build()));
    let image = open(&storage, None);
    assert_eq!(image.geometry().discard_granularity, None);
    image.write_zeroes(range(0, 4 * MIB), Patience::Blocking).unwrap();
    image.discard(range(0, 4 * MIB), Patience::Blocking).unwrap();
    assert!(!storage.events().iter().any(|event| matches!(event, Event::Punch(_))));
    assert_eq!(storage.len().get(), vhdx.file_bytes);
}

#[test]
fn child_shows_its_parent_where_it_holds_nothing_and_zeros_behind_its_end() {
    let below = pattern(3 << 20);
    let file = empty(5 * MIB, 2, 512, true).build();
    let storage = Arc::new(CrashStorage::new(file));
    let image = open(&storage, Some(parent(below.clone(), 512)));
    let mut model = below;
    model.resize(5 << 20, 0);
    assert!(contents(&image) == model);

    let mut write = |at: usize, length: usize, fill: u8| {
        image.write(ByteOffset::new(at as u64), &vec![fill; length], Patience::Blocking).unwrap();
        model[at..at + length].fill(fill);
        assert!(contents(&image) == model, "{length} bytes at {at}");
    };
    write(512, 1024, 1);
    write(3 << 20, 512, 2);
    write(0, 2 << 20, 3);
    write((2 << 20) + 512, 512, 4);
    image.discard(range(2 << 20, 2 << 20), Patience::Blocking).unwrap();
    model[2 << 20..4 << 20].fill(0);
    assert!(contents(&image) == model, "a child hides its parent");
    image.write(ByteOffset::new(2 << 20), &[5; 512], Patience::Blocking).unwrap();
    model[2 << 20..(2 << 20) + 512].fill(5);
    assert!(contents(&image) == model, "a block of zeros does not show the parent again");
    image.write_zeroes(range((4 << 20) + 512, 512), Patience::Blocking).unwrap();
    assert!(contents(&image) == model);
    image.close().unwrap();
}

#[test]
fn bits_of_an_earlier_life_do_not_show_sectors_that_were_never_written() {
    let mut vhdx = empty(2 * MIB, 1, 512, true);
    let bitmap_at = vhdx.payload_at();
    vhdx.file_bytes += MIB;
    // The entry of the chunk's sector bitmap block, behind those of its 4096 payload blocks.
    vhdx.bat = vec![(4096, bitmap_at | 6)];
    vhdx.data = vec![(bitmap_at, vec![0xFF; 512])];
    let storage = Arc::new(CrashStorage::new(vhdx.build()));
    let mut model = pattern(2 << 20);
    let image = open(&storage, Some(parent(model.clone(), 512)));
    image.write(ByteOffset::new(5 * 512), &[9; 512], Patience::Blocking).unwrap();
    model[5 * 512..6 * 512].fill(9);
    assert!(contents(&image) == model);
}

/// `FileWriteGuid` and `DataWriteGuid` of the header that counts.
fn guids(storage: &CrashStorage) -> (Vec<u8>, Vec<u8>) {
    let header = |at: u64| {
        let mut bytes = vec![0; 64];
        storage.read_at(ByteOffset::new(at), &mut bytes, Patience::Blocking).unwrap();
        bytes
    };
    let sequence = |header: &[u8]| u64::from_le_bytes(*header[8..].first_chunk().unwrap());
    let current =
        [header(0x10000), header(0x20000)].into_iter().max_by_key(|header| sequence(header)).unwrap();
    (current[16..32].to_vec(), current[32..48].to_vec())
}

#[test]
fn identifiers_change_before_what_they_stand_for_and_not_otherwise() {
    let storage = Arc::new(CrashStorage::new(empty(2 * MIB, 1, 512, false).build()));
    let first = guids(&storage);
    let image = open(&storage, None);
    image.flush(Patience::Blocking).unwrap();
    contents(&image);
    image.close().unwrap();
    assert!(
        storage.events().iter().all(|event| *event == Event::Flush),
        "what nobody writes to is not touched"
    );

    let image = open(&storage, None);
    image.write(ByteOffset::ZERO, &[1; 512], Patience::Blocking).unwrap();
    let second = guids(&storage);
    assert!(first.0 != second.0 && first.1 != second.1);
    let payload = |event: &Event| matches!(event, Event::Write { data, .. } if data.len() == 512);
    let events = storage.events();
    let before = events.iter().position(payload).unwrap();
    assert_eq!(
        events[..before].iter().filter(|event| matches!(event, Event::Write { .. })).count(),
        2,
        "both headers come first"
    );
    image.write(ByteOffset::ZERO, &[2; 512], Patience::Blocking).unwrap();
    image.flush(Patience::Blocking).unwrap();
    // It is not closed: the next opening replays the log, a change of the file but not of the disk.
    drop(image);
    assert_eq!(guids(&storage), second, "once in a session");
    let image = open(&storage, None);
    assert!(image.info().log_replayed);
    let third = guids(&storage);
    assert!(second.0 != third.0 && second.1 == third.1);
    image.discard(range(0, MIB), Patience::Blocking).unwrap();
    let fourth = guids(&storage);
    assert!(third.0 == fourth.0 && third.1 != fourth.1);
    image.close().unwrap();
}

#[test]
fn discarded_space_is_given_back_and_used_again() {
    let storage = Arc::new(CrashStorage::new(empty(4 * MIB, 1, 512, false).build()));
    let image = open(&storage, None);
    let write = |at: u64| image.write(ByteOffset::new(at), &pattern(1 << 20), Patience::Blocking).unwrap();
    (0..4).for_each(|block| write(block * MIB));
    image.flush(Patience::Blocking).unwrap();
    let (len, taken) = (storage.len(), storage.allocated().unwrap().get());
    image.discard(range(0, 3 * MIB), Patience::Blocking).unwrap();
    image.flush(Patience::Blocking).unwrap();
    assert!(taken - storage.allocated().unwrap().get() > 2 * MIB, "the space of the blocks is holes");
    (0..3).for_each(|block| write(block * MIB));
    assert_eq!(storage.len(), len, "the places of discarded blocks are used again");
    image.close().unwrap();
    let image = open(&storage, None);
    image.discard(range(MIB, MIB), Patience::Blocking).unwrap();
    image.close().unwrap();
    let image = open(&storage, None);
    image.write(ByteOffset::new(MIB + 512), &[1; 512], Patience::Blocking).unwrap();
    assert_eq!(storage.len(), len, "also when the file is opened again");
    let mut model = pattern(1 << 20).repeat(4);
    model[1 << 20..2 << 20].fill(0);
    model[(1 << 20) + 512..(1 << 20) + 1024].fill(1);
    assert!(contents(&image) == model);
}

#[test]
fn blocks_over_each_other_are_not_written_into() {
    let mut vhdx = empty(4 * MIB, 1, 512, false);
    vhdx.file_bytes += MIB;
    let at = vhdx.payload_at();
    vhdx.bat = vec![(0, at | 6), (3, at | 6)];
    let storage = CrashStorage::new(vhdx.build());
    let refused = MutableImage::from_storage(Box::new(storage), None, None).unwrap_err();
    assert!(refused.refusal.to_string().contains("lies over that of the BAT entry"), "{}", refused.refusal);
}

#[test]
fn parent_is_wanted_by_children_only_and_with_the_same_sectors() {
    let refusal = |has_parent: bool, parent: Option<Arc<dyn BlockDevice>>| {
        let storage = CrashStorage::new(empty(4 * MIB, 1, 512, has_parent).build());
        let refused = MutableImage::from_storage(Box::new(storage), None, parent);
        refused.unwrap_err().refusal.to_string()
    };
    assert!(refusal(true, None).contains("without its parent"));
    assert!(refusal(false, Some(parent(vec![0; 4096], 512))).contains("no differencing one"));
    assert!(refusal(true, Some(parent(vec![0; 4096], 4096))).contains("sectors of 4096 bytes"));
}

#[test]
fn flushes_beside_writers_keep_what_each_had_written() {
    const WRITERS: u64 = 3;
    let below = || Some(parent(pattern(4 << 20), 512));
    let storage = Arc::new(CrashStorage::new(empty(4 * MIB, 1, 512, true).build()));
    let image = open(&storage, below());
    let sectors = 4 * MIB / 512;
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let image = &image;
            scope.spawn(move || {
                for sector in (writer..sectors).step_by(7 * WRITERS as usize) {
                    let data = [(sector % 251) as u8; 512];
                    image.write(ByteOffset::new(sector * 512), &data, Patience::Blocking).unwrap();
                    if sector % 11 == 0 {
                        image.flush(Patience::Blocking).unwrap();
                    }
                }
                image.flush(Patience::Blocking).unwrap();
            });
        }
    });
    // Nothing was written after the last flush of each: a crash loses nothing.
    drop(image);
    let file = storage.crashed(storage.moments(), |_| diskimage::storage::Survival::Lost);
    let found = contents(&open(&Arc::new(CrashStorage::new(file)), below()));
    let mut model = pattern(4 << 20);
    for sector in (0..WRITERS).flat_map(|writer| (writer..sectors).step_by(7 * WRITERS as usize)) {
        model[sector as usize * 512..][..512].fill((sector % 251) as u8);
    }
    assert!(found == model);
}
