//! Damaged write caches: an error or a volume, never a panic.
use std::os::unix::fs::FileExt;

use block::conformance::pattern;
use block::{BlockDevice, LogicalBlockSize};
use mutate::Mutator;
use vdisk::{ResumeError, stored_boot};

use crate::fixture::{Fixture, discard, image, read, write};

const SIZE: usize = 1 << 20;

/// A closed write cache with data and holes.
fn prepared(directory: &tempfile::TempDir, clean: bool) -> (Fixture, Vec<u8>) {
    let fixture = Fixture::new(directory.path(), image(pattern(SIZE), LogicalBlockSize::B512));
    let volume = fixture.begin("boot-1").unwrap();
    write(&volume, 0, &[1; 3 * 4096]).unwrap();
    discard(&volume, 4096, 8 * 4096).unwrap();
    if clean {
        volume.close().unwrap();
    } else {
        volume.abandon();
    }
    drop(volume);
    let bytes = std::fs::read(fixture.config.path()).unwrap();
    (fixture, bytes)
}

#[test]
fn map_with_an_impossible_byte_is_damaged_and_says_where() {
    let directory = tempfile::tempdir().unwrap();
    let (fixture, _) = prepared(&directory, false);
    let file = std::fs::File::options().write(true).open(fixture.config.path()).unwrap();
    for (cluster, what) in [(77, "the map holds 0x5b for cluster 77"), (300, "the map holds 0x5b")] {
        file.write_all_at(&[0x5B], (SIZE + cluster) as u64).unwrap();
        match fixture.resume("boot-1").unwrap_err() {
            ResumeError::Damaged { what: found, .. } => assert!(found.starts_with(what), "{found}"),
            other => panic!("{other:?}"),
        }
        file.write_all_at(&[0], (SIZE + cluster) as u64).unwrap();
    }
    file.write_all_at(&[0x5A], (SIZE + 256) as u64).unwrap();
    assert!(
        matches!(fixture.resume("boot-1"), Err(ResumeError::Damaged { .. })),
        "data behind the last cluster"
    );
}

#[test]
fn cleanly_closed_map_that_changed_is_damaged() {
    let directory = tempfile::tempdir().unwrap();
    let (fixture, _) = prepared(&directory, true);
    let file = std::fs::File::options().write(true).open(fixture.config.path()).unwrap();
    file.write_all_at(&[0xA5], (SIZE + 100) as u64).unwrap();
    assert!(matches!(fixture.resume("boot-1"), Err(ResumeError::Damaged { .. })));
    file.write_all_at(&[0], (SIZE + 100) as u64).unwrap();
    fixture.resume("boot-1").unwrap();
}

#[test]
fn truncated_write_cache_is_damaged_at_every_length() {
    let directory = tempfile::tempdir().unwrap();
    let (fixture, bytes) = prepared(&directory, true);
    for length in [0, 1, 4095, 4096, 4097, SIZE, bytes.len() - 4096, bytes.len() - 1] {
        std::fs::write(fixture.config.path(), &bytes[..length]).unwrap();
        assert!(matches!(fixture.resume("boot-1"), Err(ResumeError::Damaged { .. })), "{length}");
        assert!(stored_boot(&fixture.config).is_err(), "{length}");
    }
    fixture.begin("boot-2").unwrap();
}

#[test]
fn mutated_maps_and_headers_never_panic() {
    for clean in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let (fixture, bytes) = prepared(&directory, clean);
        let tail = &bytes[SIZE..];
        let file = std::fs::File::options().write(true).open(fixture.config.path()).unwrap();
        let mut resumed = 0;
        Mutator::new(vec![tail.to_vec()], 3 * 4096).run(1_500, |tail| {
            let mut tail = tail.to_vec();
            // Every other input has a header whose checksum is right, so that what lies behind that check is reached.
            if tail.len() >= 4096 && tail.len() % 2 == 0 {
                let header = tail.len() - 4096;
                tail[header + 12..header + 16].fill(0);
                let crc = crc32c::crc32c(&tail[header..]);
                tail[header + 12..header + 16].copy_from_slice(&crc.to_le_bytes());
            }
            file.set_len(SIZE as u64).unwrap();
            file.write_all_at(&tail, SIZE as u64).unwrap();
            let _ = stored_boot(&fixture.config);
            if let Ok(volume) = fixture.resume("boot-1") {
                resumed += 1;
                assert_eq!(read(&volume, 0, SIZE).unwrap().len() as u64, volume.geometry().size.get());
                write(&volume, 512, &[1; 8192]).unwrap();
                volume.abandon();
            }
        });
        assert!(resumed > 0, "no input came through: the smoke tests one check only");
    }
}
