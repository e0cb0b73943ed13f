//! Comparisons of images that are the same, and that are not.
use std::path::{Path, PathBuf};

use block::ByteOffset;
use diskimage::ops::{CompareOptions, Comparison, DifferingRange, compare};
use diskimage::{Cancelled, Watch};

use crate::tools::open;

const MIB: u64 = 1 << 20;

fn raw(folder: &Path, name: &str, size: u64, written: &[(u64, &[u8])]) -> PathBuf {
    let path = folder.join(name);
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(size).unwrap();
    for (at, bytes) in written {
        rustix::io::pwrite(&file, bytes, *at).unwrap();
    }
    path
}

fn compared(one: &Path, other: &Path, options: CompareOptions) -> Comparison {
    compare(&open(one), &open(other), &options, &Watch::default()).unwrap()
}

#[test]
fn differences_are_counted_and_told_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let size = 64 * MIB;
    let one = raw(directory.path(), "one.raw", size, &[(512, &[1; 100]), (40 * MIB, &[7; 4096])]);
    let other = raw(directory.path(), "other.raw", size, &[(40 * MIB + 510, &[7; 3586]), (63 * MIB, &[9])]);
    let found = compared(&one, &other, CompareOptions::default());
    assert_eq!(found.first_difference, Some(ByteOffset::new(512)));
    assert_eq!(found.differing_bytes, 100 + 510 + 1);
    let range = |start, bytes| DifferingRange { start: ByteOffset::new(start), bytes };
    assert_eq!(found.ranges, [range(512, 512), range(40 * MIB, 512), range(63 * MIB, 512)]);
    assert!(found.read_bytes < MIB, "holes need not be read: {found:?}");
    let first = compared(&one, &other, CompareOptions { stop_at_first: true, ..Default::default() });
    assert_eq!(first.first_difference, Some(ByteOffset::new(512)));
    let turned = compared(&other, &one, CompareOptions::default());
    assert_eq!(turned, found);
}

#[test]
fn what_a_longer_disk_has_more_must_be_zeros_and_may_not_be_there_at_all_if_that_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let short = raw(directory.path(), "short.raw", 3 * MIB, &[(0, &[1; 9000])]);
    let long = raw(directory.path(), "long.raw", 30 * MIB, &[(0, &[1; 9000]), (20 * MIB, &[0; 9000])]);
    let longer = raw(directory.path(), "longer.raw", 30 * MIB, &[(0, &[1; 9000]), (20 * MIB + 5, &[3])]);
    let strict = CompareOptions { strict: true, ..Default::default() };
    assert!(compared(&short, &long, CompareOptions::default()).is_same());
    let found = compared(&short, &long, strict);
    assert_eq!((found.first_difference, found.differing_bytes), (Some(ByteOffset::new(3 * MIB)), 0));
    let found = compared(&longer, &short, CompareOptions::default());
    assert_eq!(found.first_difference, Some(ByteOffset::new(20 * MIB + 5)));
    assert_eq!(found.sizes, [30 * MIB, 3 * MIB]);
}

#[test]
fn one_file_is_the_same_as_itself_without_being_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = raw(directory.path(), "one.raw", 30 * MIB, &[(0, &[1; 9000]), (20 * MIB, &[2; 9000])]);
    let found = compared(&path, &path, CompareOptions::default());
    assert!(found.is_same());
    assert_eq!(found.read_bytes, 0);
}

#[test]
fn many_differences_are_all_counted_and_some_told() {
    let directory = tempfile::tempdir().unwrap();
    let zeros = raw(directory.path(), "zeros.raw", 8 * MIB, &[]);
    let path = directory.path().join("dotted.raw");
    let dotted: Vec<u8> = (0..8 * MIB).map(|at| u8::from(at % 1024 == 700)).collect();
    std::fs::write(&path, dotted).unwrap();
    let found = compared(&zeros, &path, CompareOptions::default());
    assert_eq!(found.differing_bytes, 8192);
    assert_eq!(found.ranges.len() as u64 + found.ranges_left_out, 8192);
    assert!(found.ranges.is_sorted_by_key(|range| range.start));
}

#[test]
fn cancelled_comparison_ends() {
    let directory = tempfile::tempdir().unwrap();
    let one = raw(directory.path(), "one.raw", MIB, &[(0, &[1])]);
    let watch = Watch::default();
    watch.cancel();
    let result = compare(&open(&one), &open(&one), &CompareOptions::default(), &watch);
    assert!(matches!(result, Err(diskimage::ops::CompareError::Cancelled(Cancelled))), "{result:?}");
}
