//! Conversions, held against qemu-img and 7-Zip.
use diskimage::ops::{ConvertOptions, FindZeros, OpError, Replace, Summary, convert};
use diskimage::{Format, Subtype, Watch};

use super::disks::{assert_qemu_reads, raw_disk};
use super::places::{Place, everywhere};
use crate::tools::{assert_same, assert_same_as_7z, open, open_as};

const MIB: u64 = 1 << 20;

#[test]
fn raw_disk_is_the_same_in_every_format_and_back() {
    everywhere("ops::convert::raw_disk_is_the_same_in_every_format_and_back", |place| {
        // The second and third are no whole number of payload blocks, the third no whole number of file system blocks.
        for (seed, size) in [(1, 40 * MIB), (2, 21 * MIB), (3, 7 * MIB + 512)] {
            let raw = place.folder.join("disk.raw");
            raw_disk(&raw, size, seed);
            for (format, subtype) in [
                (Format::Raw, Subtype::Fixed),
                (Format::Vhd, Subtype::Fixed),
                (Format::Vhd, Subtype::Dynamic),
                (Format::Vhdx, Subtype::Fixed),
                (Format::Vhdx, Subtype::Dynamic),
            ] {
                there_and_back(place, &raw, format, subtype);
            }
        }
    });
}

fn there_and_back(place: &Place<'_>, raw: &std::path::Path, format: Format, subtype: Subtype) {
    let source = open(raw);
    let size = source.virtual_size();
    let path = place.folder.join(format!("converted.{format}"));
    let options =
        ConvertOptions { subtype, replace: Replace::Swap, verify: true, ..ConvertOptions::to(format) };
    let job = convert(&source, &path, &options).unwrap();
    let plan = job.plan().unwrap();
    let watch = Watch::default();
    let summary = job.run(&watch).unwrap();

    let converted = open_as(&path, Some(format));
    assert_eq!((converted.virtual_size(), converted.info().subtype), (size, subtype), "{format} {subtype:?}");
    assert_same(&converted, raw);
    assert_qemu_reads(&path, format, raw);
    if format != Format::Raw && size.get().is_multiple_of(MIB) {
        assert_same_as_7z(&converted, &path);
    }
    let Summary { moved, blocks, .. } = summary;
    // A plan reads no data, so it does not know which blocks turn out to be zeros.
    assert_eq!(plan.blocks.whole + plan.blocks.zero, blocks.whole + blocks.zero);
    assert!(blocks.whole <= plan.blocks.whole, "{blocks:?} {plan:?}");
    assert_eq!(moved.total(), plan.totals.clone.bytes + plan.totals.copy.bytes, "{plan:?}");
    // Verifying counts as work, too.
    let (done, total) = watch.progress();
    assert_eq!((done, total), (moved.total() + size.get(), moved.total() + size.get()));
    if place.shares == Some(true) {
        // Runs that continue each other are moved as one, so that more of them can be shared.
        assert!(moved.cloned_bytes >= plan.totals.clone.bytes, "{moved:?} {plan:?}");
        assert!(moved.cloned_bytes > moved.total() / 2, "{moved:?}");
    }

    let back = place.folder.join("back.raw");
    let options = ConvertOptions { replace: Replace::Swap, ..ConvertOptions::to(Format::Raw) };
    convert(&converted, &back, &options).unwrap().run(&Watch::default()).unwrap();
    assert_same(&open(&back), raw);
}

#[test]
fn stored_zeros_are_left_out_where_bytes_are_copied_and_where_that_is_asked_for() {
    everywhere(
        "ops::convert::stored_zeros_are_left_out_where_bytes_are_copied_and_where_that_is_asked_for",
        |place| {
            let (raw, path) = (place.folder.join("zeros.raw"), place.folder.join("zeros.vhd"));
            let mut bytes = vec![0; 16 << 20];
            // Alone in its block, with zeros on both sides, behind the first grain that is looked at.
            bytes[5 << 20] = 1;
            std::fs::write(&raw, bytes).unwrap();
            let source = open(&raw);
            let run = |zeros| {
                let options =
                    ConvertOptions { zeros, replace: Replace::Swap, ..ConvertOptions::to(Format::Vhd) };
                let summary = convert(&source, &path, &options).unwrap().run(&Watch::default()).unwrap();
                assert_same(&open(&path), &raw);
                assert_eq!(summary.moved.total(), 16 << 20, "{zeros:?}");
                summary
            };
            let all = run(FindZeros::Nowhere);
            assert_eq!((all.blocks.whole, all.blocks.zero), (8, 0));
            let found = run(FindZeros::Everywhere);
            assert_eq!((found.blocks.whole, found.blocks.zero), (1, 7));
            let usual = run(FindZeros::WhereCopied);
            assert!(place.shares != Some(true) || all.moved.cloned_bytes > 0, "{all:?}");
            if all.moved.cloned_bytes > 0 {
                assert_eq!(usual, all, "what can be shared is not read");
            } else {
                assert_eq!(usual.blocks, found.blocks);
                assert_eq!(usual.moved.copied_bytes, 4096);
            }
        },
    );
}

#[test]
fn source_that_is_cut_short_is_an_error_and_no_zeros() {
    let directory = tempfile::tempdir().unwrap();
    let (raw, path) = (directory.path().join("disk.raw"), directory.path().join("disk.vhdx"));
    std::fs::write(&raw, vec![7; 4 << 20]).unwrap();
    let source = open(&raw);
    std::fs::File::options().write(true).open(&raw).unwrap().set_len(MIB).unwrap();
    let result = convert(&source, &path, &ConvertOptions::to(Format::Vhdx)).unwrap().run(&Watch::default());
    let Err(OpError::SourceFile { path: blamed, source: error }) = result else { panic!("{result:?}") };
    assert_eq!(blamed, raw);
    assert!(error.to_string().contains("ends after 1048576 bytes"), "{error}");
    assert!(!path.exists());
}

#[test]
fn target_that_is_there_or_is_the_source_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (raw, path) = (directory.path().join("disk.raw"), directory.path().join("disk.vhd"));
    raw_disk(&raw, MIB, 1);
    std::fs::write(&path, b"precious").unwrap();
    let source = open(&raw);
    let run =
        |target, options: &ConvertOptions| convert(&source, target, options).unwrap().run(&Watch::default());
    let result = run(&path, &ConvertOptions::to(Format::Vhd));
    assert!(matches!(result, Err(OpError::Exists { .. })), "{result:?}");
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    let options = ConvertOptions { replace: Replace::Swap, ..ConvertOptions::to(Format::Vhd) };
    let result = run(&raw, &options);
    assert!(matches!(result, Err(OpError::IsSource { .. })), "{result:?}");
    let result = convert(&source, &path, &ConvertOptions { subtype: Subtype::Differencing, ..options });
    assert!(matches!(result, Err(OpError::Unfit { .. })), "{result:?}");
}
