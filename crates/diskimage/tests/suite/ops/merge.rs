//! Merges of random chains, which must read as the chain did: to us, to 7-Zip, and of bases to qemu-img.
use std::path::{Path, PathBuf};

use block::{BlockDevice, ByteLength};
use diskimage::chain::MAX_LAYERS;
use diskimage::ops::{
    CompactOptions, CompareOptions, ConvertOptions, MergeOptions, OpError, SnapshotOptions, Summary, compact,
    compare, convert, merge_base, merge_updates, snapshot,
};
use diskimage::storage::{EditLock, FileStorage};
use diskimage::{Format, Image, LayerIndex, Subtype, Watch, check};

use super::disks::assert_qemu_reads;
use super::places::{Place, everywhere};
use crate::chains::{Shape, generate};
use crate::tools::{assert_same, assert_same_as_7z, open};

const MIB: u64 = 1 << 20;

/// Seed, format, sector, and the chain's files.
type Case = (u64, Format, u64, Vec<Shape>);

/// Some of [`cases`] for file systems on which little else is different than that extents are shared.
fn cases_at(place: &Place<'_>) -> Vec<Case> {
    let mut cases = cases();
    if place.shares.is_some() {
        cases.retain(|(seed, ..)| [4, 6].contains(seed));
    }
    cases
}

fn cases() -> Vec<Case> {
    let same = |size: u64, blocks: &[u64]| blocks.iter().map(|block| (size, *block)).collect::<Vec<_>>();
    vec![
        (1, Format::Vhdx, 512, same(24 * MIB, &[2 * MIB, 2 * MIB, 2 * MIB])),
        (2, Format::Vhdx, 512, same(24 * MIB, &[MIB, 8 * MIB, 2 * MIB, MIB, 4 * MIB])),
        (3, Format::Vhdx, 4096, same(24 * MIB, &[4 * MIB, 2 * MIB, MIB, 2 * MIB])),
        (4, Format::Vhdx, 512, vec![(20 * MIB, 2 * MIB), (9 * MIB, MIB), (31 * MIB + 512, 2 * MIB)]),
        (5, Format::Vhdx, 512, same(5 << 30, &[32 * MIB, 2 * MIB, MIB])),
        (6, Format::Vhd, 512, same(20 * MIB, &[2 * MIB, 2 * MIB, 512 << 10])),
        (7, Format::Vhd, 512, same(20 * MIB, &[2 * MIB, 16 * MIB, 2 * MIB, 2 * MIB])),
    ]
}

fn assert_sound(path: &Path, format: Format) {
    let report = check::check(&FileStorage::open(path).unwrap(), format).unwrap();
    assert!(
        report.findings().iter().all(|finding| finding.severity == diskimage::Severity::Note),
        "{path:?}: {report:?}"
    );
}

/// The bytes of all files of a chain.
fn files(leaf: &Image) -> Vec<(PathBuf, Vec<u8>)> {
    let paths = leaf.layers().into_iter().filter_map(|file| file.path);
    paths.map(|path| (path.clone(), std::fs::read(&path).unwrap())).collect()
}

#[test]
fn merged_base_reads_as_the_chain() {
    everywhere("ops::merge::merged_base_reads_as_the_chain", |place| {
        for (seed, format, sector, shapes) in cases_at(place) {
            let Some((leaf, raw)) = generate(format, sector, seed, &shapes, place.folder) else { return };
            let leaf = open(&leaf);
            let before = files(&leaf).split_off(1);
            let target = place.folder.join(format!("merged-{seed}.{format}"));
            let options = MergeOptions { verify: true, ..MergeOptions::default() };
            let summary = merge_base(&leaf, &target, &options).unwrap().run(&Watch::default()).unwrap();
            let merged = open(&target);
            let info = merged.info();
            assert_eq!((info.subtype, info.virtual_size), (Subtype::Dynamic, leaf.virtual_size()));
            assert_eq!(info.payload_block, Some(ByteLength::new(shapes[0].1)));
            assert_eq!(info.identity == leaf.identity(), format == Format::Vhdx, "{seed}");
            assert_same(&merged, &raw);
            assert_sound(&target, format);
            if sector == 512 {
                assert_qemu_reads(&target, format, &raw);
            }
            assert!(files(&leaf).split_off(1) == before, "a source was changed");
            assert_clones(place, &summary, format);
        }
    });
}

/// A merge of many small pieces copies them; of whole blocks, as here, it shares most.
fn assert_clones(place: &Place<'_>, summary: &Summary, format: Format) {
    if place.shares == Some(true) && format == Format::Vhdx {
        assert!(summary.moved.cloned_bytes > 0, "{summary:?}");
    }
}

#[test]
fn merged_updates_read_as_the_chain_above_every_parent() {
    everywhere("ops::merge::merged_updates_read_as_the_chain_above_every_parent", |place| {
        for (seed, format, sector, shapes) in cases_at(place) {
            let Some((leaf, raw)) = generate(format, sector, seed, &shapes, place.folder) else { return };
            let leaf = open(&leaf);
            for first in 1..shapes.len() as u16 - 1 {
                let target = place.folder.join(format!("updates-{seed}-{first}.{format}"));
                let options = MergeOptions { verify: true, ..MergeOptions::default() };
                let job = merge_updates(&leaf, LayerIndex::new(first), &target, &options).unwrap();
                let plan = job.plan().unwrap();
                let summary = job.run(&Watch::default()).unwrap();
                assert_eq!(summary.blocks, plan.blocks);
                let merged = open(&target);
                let layers = merged.layers();
                assert_eq!(layers.len(), usize::from(first) + 1);
                assert_eq!(layers[..usize::from(first)], leaf.layers()[..usize::from(first)]);
                assert_eq!(merged.info().subtype, Subtype::Differencing);
                assert_same(&merged, &raw);
                assert_sound(&target, format);
                let same_sizes = shapes.iter().all(|(size, _)| *size == shapes[0].0);
                if same_sizes && shapes[0].0 < 1 << 30 {
                    assert_same_as_7z(&merged, &target);
                }
            }
        }
    });
}

#[test]
fn compacted_image_keeps_its_children() {
    let directory = tempfile::tempdir().unwrap();
    for (seed, format, sector, shapes) in cases() {
        let Some((leaf, raw)) = generate(format, sector, seed, &shapes, directory.path()) else { return };
        // From the leaf down: whoever has the old files open reads on in them.
        let before = open(&leaf);
        for layer in (0..shapes.len()).rev() {
            let path = directory.path().join(format!("{layer}.{format}"));
            let lock = EditLock::take(&path).unwrap();
            let image = open(&path);
            let options = CompactOptions { verify: true, ..CompactOptions::default() };
            compact(&image, &lock, &options).unwrap().run(&Watch::default()).unwrap();
            assert_sound(&path, format);
            let compacted = open(&path);
            assert_eq!(compacted.info().identity, image.info().identity);
            // Ours begins the data of each block of a VHD at a page, which may take more room than is dropped.
            let slack = if format == Format::Vhd { 256 << 10 } else { 0 };
            let [new, old] = [&compacted, &image].map(|image| image.info().file_size.get());
            assert!(new <= old + slack, "{seed} {layer}: {new} {old}");
        }
        assert_same(&open(&leaf), &raw);
        assert_same(&before, &raw);
    }
}

#[test]
fn snapshot_that_nobody_could_open_is_not_made() {
    let directory = tempfile::tempdir().unwrap();
    let path = |number: usize| directory.path().join(format!("{number}.vhdx"));
    let raw = directory.path().join("disk.raw");
    std::fs::write(&raw, [7; 4096]).unwrap();
    let base = ConvertOptions::to(Format::Vhdx);
    convert(&open(&raw), &path(1), &base).unwrap().run(&Watch::default()).unwrap();
    for number in 2..=MAX_LAYERS {
        snapshot(&path(number - 1), &path(number), &SnapshotOptions::default()).unwrap();
    }
    assert_same(&open(&path(MAX_LAYERS)), &raw);
    let deeper = snapshot(&path(MAX_LAYERS), &path(MAX_LAYERS + 1), &SnapshotOptions::default());
    assert!(matches!(deeper, Err(OpError::Unfit { .. })), "{deeper:?}");
    assert!(!path(MAX_LAYERS + 1).exists());
}

#[test]
fn snapshot_reads_as_its_parent_and_is_a_link_of_the_chain() {
    let directory = tempfile::tempdir().unwrap();
    for (seed, format, sector, shapes) in cases() {
        let Some((leaf, raw)) = generate(format, sector, seed, &shapes, directory.path()) else { return };
        let child = directory.path().join(format!("child-{seed}.{format}"));
        snapshot(&leaf, &child, &SnapshotOptions::default()).unwrap();
        let image = open(&child);
        assert_eq!(image.layers().len(), shapes.len() + 1);
        assert_same(&image, &raw);
        assert_sound(&child, format);
        let parent = open(&leaf);
        assert_eq!(image.identity() == parent.identity(), format == Format::Vhdx);
        // All comes from the same files: nothing need be read to know that they are the same.
        let found = compare(&image, &parent, &CompareOptions::default(), &Watch::default()).unwrap();
        assert_eq!((found.is_same(), found.read_bytes), (true, 0));
        let again = snapshot(&leaf, &child, &SnapshotOptions::default());
        assert!(matches!(again, Err(OpError::Exists { .. })), "{again:?}");
    }
}

#[test]
fn merges_that_make_no_sense_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let shapes = [(8 * MIB, MIB), (8 * MIB, MIB), (8 * MIB, MIB)];
    let Some((leaf, _)) = generate(Format::Vhdx, 512, 1, &shapes, directory.path()) else { return };
    let (leaf, base) = (open(&leaf), open(&directory.path().join("0.vhdx")));
    let (target, options) = (directory.path().join("new.vhdx"), MergeOptions::default());
    let updates = |first| merge_updates(&leaf, LayerIndex::new(first), &target, &options);
    for job in [updates(0), updates(2), updates(3), merge_base(&base, &target, &options)] {
        assert!(matches!(job, Err(OpError::Unfit { .. })), "{job:?}");
    }
    let replace = MergeOptions { replace: diskimage::ops::Replace::Swap, ..options.clone() };
    let parent = directory.path().join("1.vhdx");
    let result = merge_base(&leaf, &parent, &replace).unwrap().run(&Watch::default());
    assert!(matches!(result, Err(OpError::IsSource { .. })), "{result:?}");
    assert_eq!(leaf.geometry().size.get(), 8 * MIB);
}
