//! A full write cache: exact, announced, harmless.
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use block::conformance::pattern;
use block::{
    BlockDevice, BlockError, ByteLength, ByteOffset, Fault, FaultDevice, LogicalBlockSize, Operation,
    Patience,
};

use crate::fixture::{CLUSTER, Fixture, Zeros, discard, image, range, read, write, write_zeroes};

fn limited(directory: &std::path::Path, clusters: u64) -> Fixture {
    let mut fixture = Fixture::new(directory, image(pattern(1 << 20), LogicalBlockSize::B512));
    fixture.config.limit = ByteLength::new(clusters * CLUSTER);
    fixture
}

#[test]
fn full_write_cache_refuses_new_clusters_and_keeps_the_old_ones_writable() {
    let directory = tempfile::tempdir().unwrap();
    let fixture = limited(directory.path(), 10);
    let volume = fixture.begin("boot-1").unwrap();
    write(&volume, 0, &[1; 8 * 4096]).unwrap();
    assert_eq!(fixture.heard.take(), ["lab-07: warning, 32 KiB of 40 KiB"]);
    write(&volume, 8 * CLUSTER, &[2; 2 * 4096]).unwrap();
    for _ in 0..3 {
        match write(&volume, 20 * CLUSTER, &[3; 512]).unwrap_err() {
            BlockError::NoSpace { what } => {
                assert_eq!(what, "the write cache of device \"lab-07\" has reached its limit of 40 KiB");
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(fixture.heard.take(), ["lab-07: full (Limit), 40 KiB of 40 KiB"]);
    assert_eq!(read(&volume, 20 * CLUSTER, 4096).unwrap(), pattern(1 << 20)[20 * 4096..21 * 4096]);
    // One cluster of this write is there and the other is not: refused, and the old one is as before.
    assert!(matches!(write(&volume, 9 * CLUSTER, &[4; 8192]), Err(BlockError::NoSpace { .. })));
    assert_eq!(read(&volume, 9 * CLUSTER, 4096).unwrap(), [2; 4096]);
    write(&volume, 512, &[5; 512]).unwrap();
    assert_eq!(read(&volume, 512, 512).unwrap(), [5; 512]);
    assert_eq!(volume.usage().used, volume.usage().limit);

    discard(&volume, 0, CLUSTER).unwrap();
    write(&volume, 20 * CLUSTER, &[3; 512]).unwrap();
    assert!(write(&volume, 21 * CLUSTER, &[3; 512]).is_err());
    assert_eq!(
        fixture.heard.take(),
        ["lab-07: full (Limit), 40 KiB of 40 KiB"],
        "armed again by freed space"
    );
    // Zeroing what is not there yet takes no data, so it goes on even now.
    write_zeroes(&volume, 100 * CLUSTER, 10 * CLUSTER).unwrap();
    assert_eq!(read(&volume, 100 * CLUSTER, 40960).unwrap(), [0; 40960]);
}

#[test]
fn limit_is_met_exactly_by_many_writers() {
    let directory = tempfile::tempdir().unwrap();
    let mut fixture = Fixture::new(directory.path(), Zeros::of_size(64 << 20));
    fixture.config.limit = ByteLength::new(777 * CLUSTER);
    let volume = fixture.begin("boot-1").unwrap();
    let accepted: u64 = std::thread::scope(|scope| {
        let volume = &volume;
        let writer = |thread: u64| {
            let indices = (0..1000).map(move |i| i * 4 + thread);
            indices.filter(|i| write(volume, i * CLUSTER, &[1; 1024]).is_ok()).count() as u64
        };
        let threads: Vec<_> = (0..4).map(|thread| scope.spawn(move || writer(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(accepted, 777);
    assert_eq!(volume.usage().used.get(), 777 * CLUSTER);
    let present = (0..4000).filter(|i| read(&volume, i * CLUSTER, 512).unwrap() == [1; 512]).count();
    assert_eq!(present, 777);
    assert_eq!(fixture.heard.take().len(), 2, "one warning and one report, from whichever thread");
}

#[test]
fn failed_fill_up_from_the_image_changes_nothing_and_takes_no_room() {
    let directory = tempfile::tempdir().unwrap();
    let faulty = Arc::new(FaultDevice::new(image(pattern(1 << 20), LogicalBlockSize::B512)));
    let fixture = Fixture::new(directory.path(), Arc::clone(&faulty) as Arc<dyn BlockDevice>);
    let volume = fixture.begin("boot-1").unwrap();
    let kind = std::io::ErrorKind::TimedOut;
    faulty.plan(Fault { operation: Operation::Read, range: range(0, 4096), times: 1, kind });
    assert!(matches!(write(&volume, 512, &[1; 512]), Err(BlockError::Storage { .. })));
    assert_eq!(volume.usage().used, ByteLength::ZERO);
    assert_eq!(read(&volume, 0, 4096).unwrap(), pattern(1 << 20)[..4096]);
    write(&volume, 512, &[1; 512]).unwrap();
    assert_eq!(volume.usage().used.get(), CLUSTER);
}

#[test]
fn discarded_clusters_give_their_space_back_and_never_show_the_image_again() {
    let directory = tempfile::tempdir().unwrap();
    let fixture = Fixture::new(directory.path(), image(pattern(1 << 20), LogicalBlockSize::B512));
    let volume = fixture.begin("boot-1").unwrap();
    write(&volume, 0, &[1; 1 << 19]).unwrap();
    let blocks = || std::fs::metadata(fixture.config.path()).unwrap().blocks();
    let before = blocks();
    assert_eq!(volume.usage().used.get(), 1 << 19);
    // From inside the first cluster to inside a cluster behind the data: the edges stay.
    discard(&volume, 512, (1 << 19) + 1024).unwrap();
    assert_eq!(volume.usage().used.get(), CLUSTER);
    assert!(before - blocks() >= (1 << 19) / 512 - 16, "{before} blocks before, {} after", blocks());
    assert_eq!(read(&volume, 0, 4096).unwrap(), [1; 4096]);
    assert_eq!(read(&volume, 4096, (1 << 19) - 4096).unwrap(), vec![0; (1 << 19) - 4096]);
    assert_eq!(read(&volume, 1 << 19, 4096).unwrap(), pattern(1 << 20)[1 << 19..][..4096]);
    // A discarded cluster that is written in part is filled up with zeros, not from the image.
    write(&volume, 8192, &[9; 512]).unwrap();
    assert_eq!(read(&volume, 8192 + 512, 3584).unwrap(), [0; 3584]);
}

#[test]
fn impatient_write_changes_nothing_unless_all_clusters_hold_data() {
    let directory = tempfile::tempdir().unwrap();
    let fixture = Fixture::new(directory.path(), Zeros::of_size(4 << 20));
    let volume = fixture.begin("boot-1").unwrap();
    let now = |at: u64, data: &[u8]| volume.write(ByteOffset::new(at), data, Patience::Now);
    assert!(matches!(now(0, &[1; 512]), Err(BlockError::WouldBlock)));
    assert_eq!(read(&volume, 0, 512).unwrap(), [0; 512]);
    write(&volume, 0, &[1; 4096]).unwrap();
    assert!(matches!(now(0, &[2; 8192]), Err(BlockError::WouldBlock)));
    assert_eq!(read(&volume, 0, 4096).unwrap(), [1; 4096]);
    // Whether this one is done at once is up to the file system; what matters is that it is either done or not.
    match now(512, &[3; 512]) {
        Ok(()) => assert_eq!(read(&volume, 512, 512).unwrap(), [3; 512]),
        Err(BlockError::WouldBlock) => assert_eq!(read(&volume, 512, 512).unwrap(), [1; 512]),
        Err(other) => panic!("{other:?}"),
    }
    assert_eq!(read(&volume, 1024, 3072).unwrap(), [1; 3072]);
}
