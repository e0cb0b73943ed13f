//! The kinds of write caches: what each outlives.
use std::sync::Arc;

use block::conformance::{self, pattern};
use block::{BlockDevice, BlockError, ByteLength, ByteOffset, LogicalBlockSize, Patience};
use vdisk::{ImageFingerprint, MemoryBudget, OpenError, ResumeError, Volume, WriteCacheKind, stored_boot};

use crate::fixture::{CLUSTER, Fixture, boot_id, discard, image, read, write, write_zeroes};
use crate::lifetime::restart_host;

const SIZE: usize = 4 << 20;

fn fixture(directory: &tempfile::TempDir, kind: WriteCacheKind) -> Fixture {
    let mut fixture = Fixture::new(directory.path(), image(pattern(SIZE), LogicalBlockSize::B512));
    fixture.config.kind = kind;
    fixture
}

fn memory(limit: u64) -> WriteCacheKind {
    WriteCacheKind::Memory(Arc::new(MemoryBudget::new(ByteLength::new(limit))))
}

fn flush(volume: &Volume) {
    match volume.flush(Patience::Now) {
        Err(BlockError::WouldBlock) => volume.flush(Patience::Blocking).unwrap(),
        done => done.unwrap(),
    }
}

#[test]
fn every_kind_conforms() {
    for kind in [memory(1 << 30), WriteCacheKind::Persistent] {
        for block in [LogicalBlockSize::B512, LogicalBlockSize::B4096] {
            let directory = tempfile::tempdir().unwrap();
            let made = std::cell::Cell::new(0);
            conformance::writable(&|| {
                made.set(made.get() + 1);
                let mut fixture = Fixture::new(directory.path(), image(vec![0; 3 << 20], block));
                fixture.config.kind = kind.clone();
                fixture.config.device = format!("device-{}", made.get());
                Box::new(fixture.begin("boot-1").unwrap())
            });
        }
    }
}

#[test]
fn memory_takes_first_writes_without_waiting_and_makes_no_file() {
    let directory = tempfile::tempdir().unwrap();
    let fixture = fixture(&directory, memory(1 << 30));
    let volume = fixture.begin("boot-1").unwrap();
    volume.write(ByteOffset::new(8192), &[1; 8192], Patience::Now).unwrap();
    assert_eq!(read(&volume, 8192, 8192).unwrap(), [1; 8192]);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    volume.close().unwrap();
    assert_eq!(stored_boot(&fixture.config).unwrap(), None);
    assert!(matches!(fixture.resume("boot-1"), Err(ResumeError::NotKept { .. })));
}

#[test]
fn write_caches_in_memory_stop_at_what_they_may_take_together() {
    let directory = tempfile::tempdir().unwrap();
    let budget = Arc::new(MemoryBudget::new(ByteLength::new(10 * CLUSTER)));
    let volume = |device: &str| {
        let mut fixture = fixture(&directory, WriteCacheKind::Memory(Arc::clone(&budget)));
        fixture.config.device = device.to_owned();
        fixture.begin("boot-1").unwrap()
    };
    let (one, other) = (volume("one"), volume("other"));
    write(&one, 0, &vec![1; 7 * CLUSTER as usize]).unwrap();
    let refused = write(&other, 0, &vec![2; 4 * CLUSTER as usize]).unwrap_err();
    assert!(matches!(&refused, BlockError::NoSpace { what } if what.contains("together")), "{refused:?}");
    write(&other, 0, &vec![2; 3 * CLUSTER as usize]).unwrap();
    discard(&one, 0, CLUSTER).unwrap();
    write(&other, 3 * CLUSTER, &vec![2; CLUSTER as usize]).unwrap();
    drop(one);
    assert_eq!(budget.usage().0.get(), 4 * CLUSTER);
}

#[test]
fn persistent_contents_are_there_at_the_next_boot() {
    let directory = tempfile::tempdir().unwrap();
    let fixture = fixture(&directory, WriteCacheKind::Persistent);
    let volume = fixture.begin("boot-1").unwrap();
    write(&volume, 512, &[1; 4096]).unwrap();
    let used = volume.usage().used;
    volume.close().unwrap();
    let volume = fixture.begin("boot-2").unwrap();
    assert_eq!(read(&volume, 512, 4096).unwrap(), [1; 4096]);
    assert_eq!(read(&volume, 0, 512).unwrap(), pattern(SIZE)[..512]);
    assert_eq!((volume.usage().used, volume.boot()), (used, &boot_id("boot-2")));
    // As if the server had been killed: nothing was flushed, and nothing is lost.
    write(&volume, 1 << 20, &[2; 512]).unwrap();
    volume.abandon();
    let volume = fixture.begin("boot-3").unwrap();
    assert_eq!(read(&volume, 1 << 20, 512).unwrap(), [2; 512]);
    volume.abandon();
    let volume = fixture.resume("boot-3").unwrap();
    assert_eq!(read(&volume, 512, 4096).unwrap(), [1; 4096]);
}

#[test]
fn persistent_cache_is_as_it_was_flushed_after_the_host_went_down() {
    let directory = tempfile::tempdir().unwrap();
    let fixture = fixture(&directory, WriteCacheKind::Persistent);
    let volume = fixture.begin("boot-1").unwrap();
    write(&volume, 0, &[1; 4096]).unwrap();
    write_zeroes(&volume, 8192, 4096).unwrap();
    flush(&volume);
    assert!(volume.flush(Patience::Now).is_ok(), "nothing was written since");
    write(&volume, 4096, &[2; 4096]).unwrap();
    assert!(matches!(volume.flush(Patience::Now), Err(BlockError::WouldBlock)));
    volume.abandon();
    restart_host(&fixture);
    assert!(
        matches!(fixture.resume("boot-1"), Err(ResumeError::Lost { .. })),
        "a machine that went on running must not find an older disk"
    );
    for boot in ["boot-2", "boot-3"] {
        let volume = fixture.begin(boot).unwrap();
        assert_eq!(read(&volume, 0, 4096).unwrap(), [1; 4096]);
        assert_eq!(read(&volume, 4096, 4096).unwrap(), pattern(SIZE)[4096..8192], "never flushed");
        assert_eq!(read(&volume, 8192, 4096).unwrap(), [0; 4096]);
        assert_eq!(volume.usage().used.get(), CLUSTER);
        volume.abandon();
    }
}

#[test]
fn closed_persistent_cache_outlives_the_host_whole() {
    let directory = tempfile::tempdir().unwrap();
    let fixture = fixture(&directory, WriteCacheKind::Persistent);
    let volume = fixture.begin("boot-1").unwrap();
    write(&volume, 0, &[1; 10_240]).unwrap();
    volume.close().unwrap();
    restart_host(&fixture);
    let volume = fixture.resume("boot-1").unwrap();
    assert_eq!(read(&volume, 0, 10_240).unwrap(), [1; 10_240]);
    volume.abandon();
    restart_host(&fixture);
    let volume = fixture.begin("boot-2").unwrap();
    assert_eq!(read(&volume, 0, 10_240).unwrap(), [1; 10_240], "what a close flushed stays flushed");
}

#[test]
fn persistent_cache_of_another_image_is_refused_and_kept() {
    let directory = tempfile::tempdir().unwrap();
    let fixture = fixture(&directory, WriteCacheKind::Persistent);
    let volume = fixture.begin("boot-1").unwrap();
    write(&volume, 0, &[1; 512]).unwrap();
    volume.close().unwrap();
    let begin = |mark| {
        let (image, observer) = (Arc::clone(&fixture.image), Arc::clone(&fixture.heard));
        Volume::begin_boot(image, ImageFingerprint([mark; 32]), &fixture.config, boot_id("boot-2"), observer)
    };
    let refused = begin(8).unwrap_err();
    assert!(matches!(refused, OpenError::ImageChanged { .. }), "{refused:?}");
    assert!(refused.to_string().contains("discard the write cache"), "{refused}");
    assert_eq!(read(&begin(7).unwrap(), 0, 512).unwrap(), [1; 512]);
    vdisk::discard_persistent(&fixture.config).unwrap();
    assert_eq!(read(&begin(8).unwrap(), 0, 512).unwrap(), pattern(SIZE)[..512]);
}

#[test]
fn persistent_cache_in_use_is_not_discarded() {
    let directory = tempfile::tempdir().unwrap();
    let fixture = fixture(&directory, WriteCacheKind::Persistent);
    let volume = fixture.begin("boot-1").unwrap();
    assert!(matches!(vdisk::discard_persistent(&fixture.config), Err(OpenError::InUse(_))));
    volume.close().unwrap();
    vdisk::discard_persistent(&fixture.config).unwrap();
    vdisk::discard_persistent(&fixture.config).unwrap();
}

#[test]
fn device_of_another_kind_keeps_its_persistent_cache_for_later() {
    let directory = tempfile::tempdir().unwrap();
    let persistent = fixture(&directory, WriteCacheKind::Persistent);
    let volume = persistent.begin("boot-1").unwrap();
    write(&volume, 0, &[1; 512]).unwrap();
    volume.close().unwrap();
    for kind in [WriteCacheKind::Volatile, memory(1 << 20)] {
        let volume = fixture(&directory, kind).begin("boot-2").unwrap();
        assert_eq!(read(&volume, 0, 512).unwrap(), pattern(SIZE)[..512]);
    }
    assert_eq!(read(&persistent.begin("boot-3").unwrap(), 0, 512).unwrap(), [1; 512]);
}

#[test]
fn damaged_persistent_cache_is_refused_not_emptied() {
    let directory = tempfile::tempdir().unwrap();
    let fixture = fixture(&directory, WriteCacheKind::Persistent);
    fixture.begin("boot-1").unwrap().close().unwrap();
    let mut bytes = std::fs::read(fixture.config.path()).unwrap();
    let header = bytes.len() - 4096;
    bytes[header + 20] ^= 1;
    std::fs::write(fixture.config.path(), &bytes).unwrap();
    let refused = fixture.begin("boot-2").unwrap_err();
    assert!(matches!(refused, OpenError::Damaged { .. }), "{refused:?}");
    assert_eq!(std::fs::read(fixture.config.path()).unwrap(), bytes);
}
