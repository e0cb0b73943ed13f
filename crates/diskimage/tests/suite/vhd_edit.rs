//! VHD files that get another size or another link to their parent: what they hold, and power cuts on the way.
use std::sync::Arc;

use block::{BlockDevice, ByteLength, ByteOffset, Patience};
use diskimage::storage::{CrashStorage, MemoryStorage, Storage, Survival, WritableStorage};
use diskimage::{EditError, Format, Guid, MutableImage, NewImageSpec, ParentLink, Subtype, check, create};

use crate::tools::{assert_same_as_7z, open_as, qemu_raw, qemu_size, save};
use crate::vhd_create::spec;
use crate::vhd_write::{open, parent_of, with_blocks};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

fn made(spec: &NewImageSpec) -> Arc<CrashStorage> {
    let storage = Arc::new(CrashStorage::new(MemoryStorage::default()));
    create(Box::new(Arc::clone(&storage)), spec).unwrap().finish().unwrap();
    storage
}

/// The same file with no history.
fn settled(storage: &CrashStorage) -> Arc<CrashStorage> {
    Arc::new(CrashStorage::new(storage.now()))
}

fn write(image: &MutableImage, at: u64, tag: u8, length: u64) {
    image.write(ByteOffset::new(at), &vec![tag; length as usize], Patience::Blocking).unwrap();
}

fn bytes(image: &dyn BlockDevice, at: u64, length: u64) -> Vec<u8> {
    let mut bytes = vec![0xEE; length as usize];
    image.read(ByteOffset::new(at), &mut bytes, Patience::Blocking).unwrap();
    bytes
}

#[test]
fn resized_images_are_what_other_programs_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("resized.vhd");
    // In the room of the table, out of it, and smaller.
    for subtype in [Subtype::Fixed, Subtype::Dynamic] {
        for size in [12 * MIB, 10 * MIB + 512, 21 * MIB, 40 * MIB, 9 * GIB] {
            if subtype == Subtype::Fixed && size > GIB {
                continue;
            }
            let storage = made(&with_blocks(subtype, 20 * MIB + 512, 2 * MIB));
            let image = open(&storage, None);
            write(&image, 0, 0x11, 3 * MIB);
            write(&image, 9 * MIB, 0x22, MIB);
            image.resize(ByteLength::new(size)).unwrap();
            assert!(check::check(&storage.now(), Format::Vhd).unwrap().findings().is_empty());
            let image = open(&storage, None);
            assert_eq!(image.geometry().size.get(), size);
            assert_eq!(bytes(&image, 0, 3 * MIB), vec![0x11; 3 << 20]);
            assert_eq!(bytes(&image, 9 * MIB, MIB), vec![0x22; 1 << 20]);
            let gained = size.saturating_sub(20 * MIB).min(20 * MIB);
            assert!(bytes(&image, size - gained, gained).iter().all(|&byte| byte == 0));
            write(&image, size - 512, 0x33, 512);
            image.close().unwrap();
            save(&storage.now(), &path);
            println!("{subtype:?} of {size} bytes");
            assert_eq!(qemu_size("vpc", &path), size);
            let image = open_as(&path, None);
            if size < GIB {
                crate::tools::assert_same(&image, &qemu_raw("vpc", &path));
                assert_same_as_7z(&image, &path);
            }
        }
    }
}

#[test]
fn sizes_that_cannot_be_leave_the_image_alone() {
    for subtype in [Subtype::Fixed, Subtype::Dynamic] {
        let storage = made(&spec(subtype, 4 * MIB));
        let image = open(&storage, None);
        write(&image, 3 * MIB, 1, 512);
        image.close().unwrap();
        let storage = settled(&storage);
        let resize = |size| open(&storage, None).resize(ByteLength::new(size)).unwrap_err();
        assert!(matches!(resize(2 * MIB), EditError::TailInUse { .. }));
        assert!(matches!(resize(2041 * GIB), EditError::Size { .. }));
        assert!(matches!(resize(4 * MIB + 1), EditError::Size { .. }));
    }
}

#[test]
fn child_that_grows_hides_what_its_parent_has_there() {
    let parent = || parent_of(vec![0xAA; 4 << 20]);
    let storage = made(&with_blocks(Subtype::Differencing, MIB + 512, 64 << 10));
    let image = open(&storage, parent());
    write(&image, MIB, 0x11, 512);
    image.resize(ByteLength::new(6 * MIB)).unwrap();
    let image = open(&storage, parent());
    let mut expected = vec![0xAA; 1 << 20];
    expected.extend([0x11; 512]);
    expected.resize(6 << 20, 0);
    assert!(bytes(&image, 0, 6 * MIB) == expected);
}

/// Cuts the power at every moment of an edit. `is_right` holds each file that is left against what it may be.
#[test]
fn child_without_blocks_that_grows_in_place_keeps_its_table() {
    let parent = || parent_of(vec![0xAA; 3 << 20]);
    let storage = made(&with_blocks(Subtype::Differencing, MIB / 2, MIB));
    open(&storage, parent()).resize(ByteLength::new(4 * MIB)).unwrap();
    let image = open(&storage, parent());
    assert_eq!(bytes(&image, MIB / 2 - 512, 1024), [[0xAA; 512], [0; 512]].concat());
    assert!(bytes(&image, MIB, 3 * MIB).iter().all(|&byte| byte == 0));
    write(&image, 3 * MIB, 0x33, 4096);
    image.close().unwrap();
    assert_eq!(bytes(&open(&storage, parent()), 3 * MIB, 4096), [0x33; 4096]);
}

fn assert_every_crash(storage: &CrashStorage, is_right: &dyn Fn(MemoryStorage, &str)) {
    for moment in 0..=storage.moments() {
        let small = |event: &diskimage::storage::Event| match event {
            diskimage::storage::Event::Write { data, .. } if data.len() <= 512 => Survival::Whole,
            _ => Survival::Lost,
        };
        let left = [
            storage.crashed(moment, |_| Survival::Lost),
            storage.crashed(moment, |_| Survival::Whole),
            storage.crashed(moment, |_| Survival::Head(1)),
            storage.crashed(moment, |_| Survival::Tail(1)),
            storage.crashed(moment, small),
        ];
        for (way, file) in left.into_iter().enumerate() {
            is_right(file, &format!("moment {moment} of {}, way {way}", storage.moments()));
        }
    }
}

#[test]
fn crash_of_a_resize_leaves_the_old_size_or_the_new_one() {
    for subtype in [Subtype::Dynamic, Subtype::Differencing] {
        let parent = || (subtype == Subtype::Differencing).then(|| parent_of(vec![0xAA; 3 << 20])).flatten();
        let start = if subtype == Subtype::Differencing { 0xAA } else { 0 };
        // With the table's room, and without.
        for (old, new) in [(2 * MIB, 2 * MIB + 65_536), (2 * MIB, 90 * MIB), (2 * MIB + 512, MIB)] {
            let storage = made(&with_blocks(subtype, old, 64 << 10));
            let image = open(&storage, parent());
            write(&image, 0, 0x11, MIB);
            if new < old {
                image.write_zeroes(crate::vhd_write::range(new, old - new), Patience::Blocking).unwrap();
            }
            image.close().unwrap();
            let storage = settled(&storage);
            open(&storage, parent()).resize(ByteLength::new(new)).unwrap();
            let is_right = |file: MemoryStorage, what: &str| {
                let file = Arc::new(CrashStorage::new(file));
                let image = open(&file, parent());
                let size = image.geometry().size.get();
                assert!(size == old || size == new, "{size}: {what}");
                let held = bytes(&image, 0, size.min(3 * MIB));
                let expected = |at: u64| match at {
                    at if at < MIB => 0x11,
                    at if at < old.min(new) => start,
                    _ => 0,
                };
                // Of a disk that has not grown, all is as it was.
                for at in (0..held.len() as u64).step_by(512) {
                    let tag = if new < old && at >= new { 0 } else { expected(at) };
                    assert_eq!(held[at as usize], tag, "{at:#x} of {size}: {what}");
                }
                image.close().unwrap();
                assert!(check::check(&*file, Format::Vhd).unwrap().is_clean(), "{what}");
            };
            assert_every_crash(&storage, &is_right);
        }
    }
}

/// A fixed image of 2 MiB, half of it written, with `rest` bytes of noise between disk and footer.
fn fixed_with_rest(rest: u64) -> Arc<CrashStorage> {
    let storage = made(&spec(Subtype::Fixed, 2 * MIB));
    let image = open(&storage, None);
    write(&image, 0, 0x11, MIB);
    image.close().unwrap();
    let mut footer = [0; 512];
    storage.read_at(ByteOffset::new(2 * MIB), &mut footer, Patience::Now).unwrap();
    storage.write_at(ByteOffset::new(2 * MIB), &vec![0xEE; rest as usize]).unwrap();
    storage.write_at(ByteOffset::new(2 * MIB + rest), &footer).unwrap();
    settled(&storage)
}

#[test]
fn crash_of_a_fixed_resize_leaves_the_old_size_or_the_new_one() {
    let old = 2 * MIB;
    let sizes = [MIB, old - 512, old + 512, old + 1024, old + 4096, old + 4608, 3 * MIB];
    for (new, rest) in sizes.into_iter().flat_map(|new| [(new, 0), (new, 4096)]) {
        let storage = fixed_with_rest(rest);
        open(&storage, None).resize(ByteLength::new(new)).unwrap();
        let is_right = |file: MemoryStorage, what: &str, is_done: bool| {
            let what = format!("{new} with {rest}, {what}");
            assert!(check::check(&file, Format::Vhd).unwrap().is_clean(), "{what}");
            let image = open(&Arc::new(CrashStorage::new(file)), None);
            let size = image.geometry().size.get();
            assert!(size == new || (size == old && !is_done), "{size}: {what}");
            let held = bytes(&image, 0, size);
            assert!(held[..MIB as usize].iter().all(|&byte| byte == 0x11), "{what}");
            // Until all is done, the footer that does not count may be seen where the disk holds nothing; nothing else.
            let footers = [(old + rest) / 512, new / 512];
            let odd = |(place, byte): (usize, &u8)| {
                *byte != 0 && (is_done || !footers.contains(&(place as u64 / 512)))
            };
            let odd = held.iter().enumerate().skip(MIB as usize).find(|&(place, byte)| odd((place, byte)));
            assert_eq!(odd, None, "{size}: {what}");
        };
        assert_every_crash(&storage, &|file, what| is_right(file, what, false));
        is_right(storage.now(), "done", true);
    }
}

/// Of files of Virtual PC and old qemu the geometry says how large the disk is, and no geometry makes just any size.
#[test]
fn image_whose_geometry_counts_gets_just_the_size_that_was_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    for subformat in ["dynamic", "fixed"] {
        let path = directory.path().join("qemu.vhd");
        let options = format!("subformat={subformat}");
        crate::tools::qemu_img(&["create", "-q", "-f", "vpc", "-o", &options], &[&path, "20M".as_ref()]);
        for size in [33 * MIB + 512, 25 * MIB] {
            let image = MutableImage::open(&path, Some(Format::Vhd), None, &diskimage::Childless).unwrap();
            image.resize(ByteLength::new(size)).unwrap();
            assert_eq!(open_as(&path, None).virtual_size().get(), size);
            assert_eq!(qemu_size("vpc", &path), size);
        }
    }
}

fn link(name: &str) -> ParentLink {
    ParentLink {
        linkage: Guid::from_u128(99),
        relative_path: format!("../{name}.vhd"),
        absolute_path: Some(format!("/disks/{name}.vhd")),
    }
}

/// The bytes of a text in a file, in UTF-16LE.
fn has_text(file: &MemoryStorage, text: &str) -> bool {
    let mut head = vec![0; file.len().get().min(1 << 20) as usize];
    file.read_at(ByteOffset::ZERO, &mut head, Patience::Now).unwrap();
    let needle: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    head.windows(needle.len()).any(|window| window == needle)
}

#[test]
fn crash_of_a_relink_leaves_the_old_link_or_the_new_one() {
    let parent = || parent_of(vec![0xAA; 1 << 20]);
    for name in ["other".to_owned(), "x".repeat(3000)] {
        let storage = made(&with_blocks(Subtype::Differencing, MIB, 64 << 10));
        // A locator of a Macintosh, which nobody here reads, stays.
        let mut entry = b"MacX".to_vec();
        entry.extend([0, 0, 0, 9, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x0F, 0]);
        storage.write_at(ByteOffset::new(512 + 576 + 24), &entry).unwrap();
        let mut header = vec![0; 1024];
        storage.read_at(ByteOffset::new(512), &mut header, Patience::Now).unwrap();
        header[36..40].fill(0);
        let sum = !header.iter().map(|&byte| u32::from(byte)).sum::<u32>();
        storage.write_at(ByteOffset::new(512 + 36), &sum.to_be_bytes()).unwrap();
        let storage = settled(&storage);
        let image = open(&storage, parent());
        write(&image, 0, 0x11, 4096);
        image.close().unwrap();
        let storage = settled(&storage);
        open(&storage, parent()).relink(&link(&name)).unwrap();

        let now = storage.now();
        let mut locators = vec![0; 192];
        now.read_at(ByteOffset::new(512 + 576), &mut locators, Patience::Now).unwrap();
        assert!(locators.windows(4).any(|code| code == b"MacX"));
        assert!(has_text(&now, &format!(r"..\{name}.vhd")) && has_text(&now, &format!(r"\disks\{name}.vhd")));
        assert!(check::check(&now, Format::Vhd).unwrap().findings().is_empty());
        let again = settled(&storage);
        let image = open(&again, parent());
        write(&image, 512 << 10, 0x22, 4096);
        image.close().unwrap();
        assert!(has_text(&again.now(), &format!(r"..\{name}.vhd")), "new blocks leave it alone");

        assert_every_crash(&storage, &|file, what| {
            let file = Arc::new(CrashStorage::new(file));
            let report = check::repair(&*file, Format::Vhd).unwrap();
            assert!(report.findings().iter().all(|finding| finding.repaired), "{what}: {report:?}");
            let image = open(&file, parent());
            assert_eq!(bytes(&image, 0, 4096), [0x11; 4096], "{what}");
            image.close().unwrap();
            let now = file.now();
            let old = has_text(&now, r".\base.vhd");
            assert!(old || has_text(&now, &format!(r"..\{name}.vhd")), "{what}");
        });
    }
}

#[test]
fn image_without_a_parent_is_not_linked_to_one() {
    for subtype in [Subtype::Fixed, Subtype::Dynamic] {
        let error = open(&made(&spec(subtype, MIB)), None).relink(&link("other")).unwrap_err();
        assert!(matches!(error, EditError::Unsupported { .. }), "{error:?}");
    }
}

/// What was written and not flushed is in no table yet.
#[test]
fn refused_edit_leaves_what_was_written() {
    let storage = made(&spec(Subtype::Dynamic, 4 * MIB));
    let image = open(&storage, None);
    write(&image, 0, 0x11, 4096);
    write(&image, 3 * MIB, 0x22, 4096);
    let refused = image.resize(ByteLength::new(MIB)).unwrap_err();
    assert!(matches!(refused, EditError::TailInUse { .. }), "{refused:?}");
    let image = open(&storage, None);
    assert_eq!((bytes(&image, 0, 4096), bytes(&image, 3 * MIB, 4096)), (vec![0x11; 4096], vec![0x22; 4096]));
    write(&image, 2 * MIB, 0x33, 4096);
    assert!(image.relink(&link("other")).is_err());
    assert_eq!(bytes(&open(&storage, None), 2 * MIB, 4096), [0x33; 4096]);
}
