//! Edits of VHDX images: another size, another parent; whole to every crash.
use std::sync::Arc;

use block::conformance::pattern;
use block::{BlockDevice, ByteLength, ByteOffset, ByteRange, Patience};
use diskimage::check::{self, Severity};
use diskimage::storage::{CrashStorage, MemoryStorage, Survival};
use diskimage::{EditError, Format, Guid, ParentLink};
use mutate::Rng;

use crate::builder::MIB;
use crate::tools::{qemu_img, qemu_io, qemu_size, save};
use crate::vhdx_write::{contents, empty, open, parent};

const GIB: u64 = 1 << 30;

fn range(at: u64, length: u64) -> ByteRange {
    ByteRange::new(ByteOffset::new(at), ByteLength::new(length)).unwrap()
}

fn read(image: &dyn BlockDevice, at: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0xAA; length];
    image.read(ByteOffset::new(at), &mut bytes, Patience::Blocking).unwrap();
    bytes
}

fn resize(
    storage: &Arc<CrashStorage>,
    below: Option<Arc<dyn BlockDevice>>,
    size: u64,
) -> Result<(), EditError> {
    open(storage, below).resize(ByteLength::new(size))
}

fn assert_sound(file: &MemoryStorage, what: &str) {
    let report = check::check(file, Format::Vhdx).unwrap();
    assert_eq!(report.count(Severity::Error), 0, "{what}: {:?}", report.findings());
}

#[test]
fn grown_disk_keeps_its_contents_and_gains_zeros() {
    // With the table in place, in place up to its region's end, and moved; the last block not whole before or after.
    for (old, new) in [
        (3 * MIB + 512, 3 * MIB + 1024),
        (3 * MIB + 512, 9 * MIB + 512),
        (3 * MIB, 4 * MIB),
        (100 * GIB + 512, 126 * GIB),
        (100 * GIB + 512, 300 * GIB + 1536),
    ] {
        println!("{old} to {new}");
        let mut vhdx = empty(old, 1, 512, false);
        let at = vhdx.payload_at();
        let last = old / MIB - u64::from(old % MIB == 0);
        // The last block lies at the file's end, which is not that of the block, and holds noise behind the disk.
        vhdx.bat = vec![(0, at | 6), (last + last / 4096, (at + MIB) | 6)];
        vhdx.data = vec![(at, pattern(1 << 20)), (at + MIB, pattern(300 << 10))];
        vhdx.file_bytes = at + MIB + (old - last * MIB).max(300 << 10);
        let storage = Arc::new(CrashStorage::new(vhdx.build()));
        let before = read(&open(&storage, None), last * MIB, (old - last * MIB) as usize);
        resize(&storage, None, new).unwrap();
        assert_sound(&storage.now(), "grown");
        let image = open(&storage, None);
        assert_eq!(image.geometry().size.get(), new);
        assert!(!image.info().log_replayed);
        assert!(read(&image, 0, 1 << 20) == pattern(1 << 20));
        assert!(read(&image, last * MIB, before.len()) == before);
        let rest = (new - old).min(5 * MIB);
        assert!(read(&image, old, rest as usize).iter().all(|&byte| byte == 0));
        for place in [old, new - 512] {
            image.write(ByteOffset::new(place), &[7; 512], Patience::Blocking).unwrap();
            assert_eq!(read(&image, place, 512), [7; 512]);
        }
        image.close().unwrap();
        assert_sound(&storage.now(), "written");
    }
}

#[test]
fn grown_child_does_not_show_what_its_parent_has_there() {
    let below = || Some(parent(pattern(8 << 20), 512));
    for start in [MIB + 512, 2 * MIB] {
        for (number, writes) in [vec![], vec![MIB], vec![MIB, 0]].into_iter().enumerate() {
            let storage = Arc::new(CrashStorage::new(empty(start, 1, 512, true).build()));
            let image = open(&storage, below());
            for at in writes {
                image.write(ByteOffset::new(at), &[5; 512], Patience::Blocking).unwrap();
            }
            let mut model = contents(&image);
            image.close().unwrap();
            resize(&storage, below(), 9 * MIB).unwrap();
            model.resize(9 << 20, 0);
            assert!(contents(&open(&storage, below())) == model, "{start}, {number}");
            assert_sound(&storage.now(), "grown");
        }
    }
}

#[test]
fn disk_shrinks_where_its_tail_is_zeros_and_only_there() {
    let storage = Arc::new(CrashStorage::new(empty(9 * MIB, 1, 512, false).build()));
    let image = open(&storage, None);
    for at in [0, 5 * MIB, 7 * MIB] {
        image.write(ByteOffset::new(at), &pattern(4096), Patience::Blocking).unwrap();
    }
    image.close().unwrap();
    for size in [4 * MIB, 5 * MIB + 512, 7 * MIB] {
        let refused = resize(&storage, None, size).unwrap_err();
        assert!(matches!(refused, EditError::TailInUse { .. }), "{refused}");
    }
    let image = open(&storage, None);
    image.discard(range(7 * MIB, MIB), Patience::Blocking).unwrap();
    image.write_zeroes(range(5 * MIB + 512, 4096), Patience::Blocking).unwrap();
    image.close().unwrap();
    resize(&storage, None, 5 * MIB + 512).unwrap();
    assert_sound(&storage.now(), "shrunk");
    let image = open(&storage, None);
    assert_eq!(image.geometry().size.get(), 5 * MIB + 512);
    assert_eq!(read(&image, 5 * MIB, 512), pattern(4096)[..512]);
    image.close().unwrap();
    resize(&storage, None, 9 * MIB).unwrap();
    let image = open(&storage, None);
    assert!(read(&image, 5 * MIB + 512, (4 * MIB - 512) as usize).iter().all(|&byte| byte == 0));
}

#[test]
fn child_that_hides_its_parent_shrinks() {
    let below = || Some(parent(pattern(4 << 20), 512));
    let storage = Arc::new(CrashStorage::new(empty(4 * MIB, 1, 512, true).build()));
    assert!(matches!(resize(&storage, below(), 2 * MIB), Err(EditError::TailInUse { .. })));
    let image = open(&storage, below());
    image.write_zeroes(range(2 * MIB, 2 * MIB), Patience::Blocking).unwrap();
    image.close().unwrap();
    let image = open(&storage, below());
    image.write_zeroes(range(MIB + 4096, MIB - 4096), Patience::Blocking).unwrap();
    image.close().unwrap();
    resize(&storage, below(), MIB + 4096).unwrap();
    let report = check::check(&storage.now(), Format::Vhdx).unwrap();
    let behind = report.findings().iter().find(|finding| finding.code.ends_with("behind-disk"));
    assert_eq!(behind, None, "what the disk does not have any more has left no trace");
    assert!(contents(&open(&storage, below())) == pattern(4 << 20)[..(1 << 20) + 4096]);
    resize(&storage, below(), 4 * MIB).unwrap();
    let bytes = read(&open(&storage, below()), MIB + 4096, (1 << 20) - 4096);
    assert!(bytes.iter().all(|&byte| byte == 0));
    assert!(read(&open(&storage, below()), 2 * MIB, 2 << 20).iter().all(|&byte| byte == 0));
}

#[test]
fn sizes_that_no_disk_has_are_refused() {
    let storage = Arc::new(CrashStorage::new(empty(4 * MIB, 1, 4096, false).build()));
    for size in [0, 4 * MIB + 512, (64 << 40) + 4096] {
        let refused = resize(&storage, None, size).unwrap_err();
        assert!(matches!(refused, EditError::Size { .. }), "{refused}");
    }
}

#[test]
fn resized_disk_is_one_for_qemu() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("resized.vhdx");
    let storage = Arc::new(CrashStorage::new(empty(100 * GIB, 1, 512, false).build()));
    let image = open(&storage, None);
    image.write(ByteOffset::new(50 * GIB), &[0x55; 4096], Patience::Blocking).unwrap();
    image.close().unwrap();
    resize(&storage, None, 200 * GIB).unwrap();
    let image = open(&storage, None);
    image.write(ByteOffset::new(199 * GIB), &[0x66; 4096], Patience::Blocking).unwrap();
    image.close().unwrap();
    save(&storage.now(), &path);
    assert_eq!(qemu_size("vhdx", &path), 200 * GIB);
    qemu_img(&["check", "-q"], &[&path]);
    qemu_io("vhdx", &path, &["read -P 0x55 50G 4k", "read -P 0x66 199G 4k", "read -P 0 150G 1M"]);
}

#[test]
fn edit_is_whole_after_every_crash() {
    let below = || Some(parent(pattern(3 << 20), 512));
    type Edit<'a> = (&'a str, bool, u64, &'a dyn Fn(&Arc<CrashStorage>));
    let edits: [Edit<'_>; 5] = [
        ("grow", false, 3 * MIB + 512, &|storage| resize(storage, None, 9 * MIB).unwrap()),
        ("grow a child", true, 2 * MIB + 512, &|storage| resize(storage, below(), 9 * MIB).unwrap()),
        ("move the table", false, 100 * GIB, &|storage| resize(storage, None, 140 * GIB).unwrap()),
        ("shrink", false, 9 * MIB, &|storage| resize(storage, None, 4 * MIB).unwrap()),
        ("relink", true, 2 * MIB, &|storage| open(storage, below()).relink(&link()).unwrap()),
    ];
    for (name, has_parent, size, edit) in edits {
        let start = CrashStorage::new(empty(size, 1, 512, has_parent).build());
        let below = || if has_parent { below() } else { None };
        let start = Arc::new(start);
        let image = open(&start, below());
        image.write(ByteOffset::new(MIB + 512), &[3; 1024], Patience::Blocking).unwrap();
        image.close().unwrap();
        let storage = Arc::new(CrashStorage::new(start.now()));
        edit(&storage);
        let (mut old, mut new) = (0, 0);
        let after = open(&storage, below()).geometry().size.get();
        for moment in 0..=storage.moments() {
            let mut rng = Rng::new(moment as u64 + 1);
            let file = storage.crashed(moment, |_| match rng.below(4) {
                0 => Survival::Lost,
                1 => Survival::Head(rng.below(8) as usize),
                2 => Survival::Tail(rng.below(8) as usize),
                _ => Survival::Whole,
            });
            assert_sound(&file, name);
            let image = open(&Arc::new(CrashStorage::new(file)), below());
            let now = image.geometry().size.get();
            assert!(now == size || now == after, "{name} at {moment}: {now}");
            *(if now == size { &mut old } else { &mut new }) += 1;
            assert_eq!(read(&image, MIB + 512, 1024), [3; 1024]);
            let start = now.min(3 * MIB);
            assert!(read(&image, start, (now.min(12 * MIB) - start) as usize).iter().all(|&byte| byte == 0));
        }
        assert!(name == "relink" || (old > 0 && new > 0), "{name}: {old} old, {new} new");
    }
}

fn link() -> ParentLink {
    ParentLink {
        linkage: Guid::from_u128(0x1234),
        relative_path: "a folder with a long name that takes more room than before/parent.vhdx".into(),
        absolute_path: None,
    }
}

fn has_text(file: &MemoryStorage, text: &str) -> bool {
    let text: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let mut metadata = vec![0; 1 << 20];
    diskimage::storage::Storage::read_at(file, ByteOffset::new(2 * MIB), &mut metadata, Patience::Blocking)
        .unwrap();
    metadata.windows(text.len()).any(|window| window == text)
}

#[test]
fn relinked_child_names_its_parent_anew_and_keeps_its_contents() {
    let below = || Some(parent(pattern(2 << 20), 512));
    let storage = Arc::new(CrashStorage::new(empty(2 * MIB, 1, 512, true).build()));
    let image = open(&storage, below());
    image.write(ByteOffset::new(512), &[1; 512], Patience::Blocking).unwrap();
    let model = contents(&image);
    image.close().unwrap();
    for path in [link().relative_path, "b.vhdx".into(), "../c/base.vhdx".into()] {
        let link = ParentLink { relative_path: path.clone(), ..link() };
        open(&storage, below()).relink(&link).unwrap();
        assert_sound(&storage.now(), &path);
        assert!(has_text(&storage.now(), &path.replace('/', "\\")));
        assert!(has_text(&storage.now(), "{00000000-0000-0000-0000-000000001234}"));
        assert!(contents(&open(&storage, below())) == model);
    }
    let alone = Arc::new(CrashStorage::new(empty(2 * MIB, 1, 512, false).build()));
    let refused = open(&alone, None).relink(&link()).unwrap_err();
    assert!(matches!(refused, EditError::Unsupported { .. }), "{refused}");
}
