//! New VHD files: byte for byte where that can be said, and as other programs see them.
use std::path::{Path, PathBuf};

use block::{ByteLength, ByteOffset, LogicalBlockSize};
use diskimage::storage::{FileStorage, MemoryStorage, Storage};
use diskimage::{
    Format, Guid, Image, NewImage, NewImageError, NewImageSpec, OpenOptions, ParentLink, Refusal, Subtype,
    check, create,
};

use crate::tools::{
    assert_same, assert_same_as_7z, open_as, program, qemu_img, qemu_raw, qemu_size, run, shared,
};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

pub(crate) fn spec(subtype: Subtype, bytes: u64) -> NewImageSpec {
    NewImageSpec {
        format: Format::Vhd,
        subtype,
        virtual_size: ByteLength::new(bytes),
        logical_block: LogicalBlockSize::B512,
        physical_block: 512,
        payload_block: None,
        identity: None,
        linkage: None,
        parent: None,
        carried: Vec::new(),
    }
}

fn begin(spec: &NewImageSpec, path: &Path) -> Box<dyn NewImage> {
    create(Box::new(FileStorage::create_new(path).unwrap()), spec).unwrap()
}

/// Bytes that tell where they belong.
fn noise(seed: u64, length: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut step = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    std::iter::repeat_with(&mut step).flatten().take(length as usize).collect()
}

/// Fills some blocks of a new image and of a raw file alike, and finishes it.
fn fill(mut new: Box<dyn NewImage>, size: u64, raw: &Path) {
    let expected = std::fs::File::create(raw).unwrap();
    expected.set_len(size).unwrap();
    let block_bytes = new.payload_block().get();
    let last = size.div_ceil(block_bytes) - 1;
    for block in [last, 0, 2, last / 2].into_iter().filter(|&block| block <= last) {
        let at = new.place(block).unwrap();
        let start = block * block_bytes;
        let data = noise(block + 1, block_bytes.min(size - start).min(96 * KIB));
        new.storage().write_at(at, &data).unwrap();
        rustix::io::pwrite(&expected, &data, start).unwrap();
    }
    let zeroed = 1.min(last);
    new.zero(zeroed).unwrap();
    let start = zeroed * block_bytes;
    rustix::io::pwrite(&expected, &vec![0; block_bytes.min(size - start).min(96 * KIB) as usize], start)
        .unwrap();
    new.finish().unwrap();
}

fn bytes_of(storage: &dyn Storage, at: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    storage.read_at(ByteOffset::new(at), &mut bytes, block::Patience::Blocking).unwrap();
    bytes
}

#[test]
fn lead_of_a_block_reaches_from_the_block_before_to_its_data() {
    let storage: Box<dyn diskimage::storage::WritableStorage> =
        Box::new(diskimage::storage::CrashStorage::new(MemoryStorage::default()));
    let mut new = create(storage, &spec(Subtype::Dynamic, 20 * MIB)).unwrap();
    let first = new.place_with_lead(0, None).unwrap();
    // Behind the table of ten entries at 0x600.
    assert_eq!((first.at.get(), first.lead.len()), (4096, 4096 - 0x600 - 512));
    let second = new.place_with_lead(5, None).unwrap();
    assert_eq!(second.at.get(), 4096 + 2 * MIB + 4096);
    assert_eq!(second.lead[..4096 - 512], [0; 4096 - 512]);
    assert_eq!(second.lead[4096 - 512..], [0xFF; 512]);
    let partly = new.place_with_lead(6, Some(&[1; 512]));
    assert!(matches!(partly, Err(NewImageError::NotDifferencing)), "{partly:?}");
}

#[test]
fn new_images_are_what_other_programs_read() {
    let directory = tempfile::tempdir().unwrap();
    let shapes = [
        (Subtype::Fixed, 3 * MIB + 512, None),
        (Subtype::Fixed, 64 * MIB, None),
        (Subtype::Dynamic, 512, None),
        (Subtype::Dynamic, 20 * MIB + 512, None),
        (Subtype::Dynamic, 3 * GIB, None),
        (Subtype::Dynamic, 100 * MIB, Some(16 * MIB)),
        (Subtype::Dynamic, 5 * MIB, Some(64 * KIB)),
        (Subtype::Dynamic, 700 * MIB, Some(256 * MIB)),
    ];
    for (number, (subtype, size, block_bytes)) in shapes.into_iter().enumerate() {
        let path = directory.path().join(format!("{number}.vhd"));
        let raw = directory.path().join(format!("{number}.raw"));
        let spec = NewImageSpec { payload_block: block_bytes.map(ByteLength::new), ..spec(subtype, size) };
        fill(begin(&spec, &path), size, &raw);
        let image = open_as(&path, None);
        assert_eq!((image.info().subtype, image.virtual_size().get()), (subtype, size));
        assert_same(&image, &raw);
        // The size is exact in programs that would take the geometry of an unknown creator's disk.
        assert_eq!(qemu_size("vpc", &path), size, "{number}");
        assert_same(&image, &qemu_raw("vpc", &path));
        if size < GIB {
            assert_same_as_7z(&image, &path);
        }
        let file = FileStorage::open(&path).unwrap();
        assert!(check::check(&file, Format::Vhd).unwrap().findings().is_empty());
        if subtype == Subtype::Dynamic {
            assert!(file.len().get().is_multiple_of(4096));
        }
    }
}

#[test]
fn structures_are_those_of_an_independent_generator() {
    let Some(scripts) = shared("oracles") else { return };
    let directory = tempfile::tempdir().unwrap();
    let identity = 0x0123_4567_89AB_CDEF_0011_2233_4455_6677_u128.to_be_bytes();
    for (size, block_bytes) in
        [(41 * MIB, 2 * MIB), (2000 * GIB, 2 * MIB), (512, 2 * MIB), (9 * GIB, 16 * MIB)]
    {
        let theirs = directory.path().join("theirs.vhd");
        let ours = directory.path().join("ours.vhd");
        let script = format!(
            "import sys,uuid\nsys.path.insert(0,sys.argv[1])\nimport mkvhd\n\
             mkvhd.mk(sys.argv[2],{size},{{0:(None,b'\\x07')}},bs={block_bytes},uid=uuid.UUID(int={}))",
            u128::from_be_bytes(identity)
        );
        let mut python = program("python3", "python3");
        run(python.env("PYTHONDONTWRITEBYTECODE", "1").args(["-c", &script]).args([&scripts, &theirs]));
        let spec = NewImageSpec {
            identity: Some(identity),
            payload_block: Some(ByteLength::new(block_bytes)),
            ..spec(Subtype::Dynamic, size)
        };
        let mut new = begin(&spec, &ours);
        let at = new.place(0).unwrap();
        new.storage().write_at(at, &[7]).unwrap();
        new.finish().unwrap();
        let (one, other) = (FileStorage::open(&ours).unwrap(), FileStorage::open(&theirs).unwrap());
        // All but the footers' times and checksums, from the copy to the first data.
        let length = at.get() as usize + 4096;
        let masked = |storage: &FileStorage| {
            let mut bytes = bytes_of(storage, 0, length);
            bytes[24..28].fill(0);
            bytes[64..68].fill(0);
            bytes
        };
        assert!(masked(&one) == masked(&other), "{size} in {block_bytes}");
        let footer = bytes_of(&one, one.len().get() - 512, 512);
        assert!(footer == bytes_of(&one, 0, 512), "the copy is the footer");
        std::fs::remove_file(&ours).unwrap();
    }
}

#[test]
fn image_is_none_until_it_is_finished() {
    let directory = tempfile::tempdir().unwrap();
    // The payload looks like a footer and its copy.
    let template = directory.path().join("template.vhd");
    begin(&spec(Subtype::Fixed, MIB), &template).finish().unwrap();
    let footer = bytes_of(&FileStorage::open(&template).unwrap(), MIB, 512);
    for subtype in [Subtype::Fixed, Subtype::Dynamic] {
        let path = directory.path().join(format!("{subtype:?}.vhd"));
        let mut new = begin(&spec(subtype, 8 * MIB), &path);
        let at = new.place(3).unwrap().get();
        new.storage().write_at(ByteOffset::new(at), &footer).unwrap();
        new.storage().write_at(ByteOffset::new(at + 2 * MIB - 512), &footer).unwrap();
        let refused = Image::open(&path, OpenOptions { format: Some(Format::Vhd), ..OpenOptions::default() });
        assert!(matches!(refused.unwrap_err().refusal, Refusal::NotThisFormat { .. }), "{subtype:?}");
        new.finish().unwrap();
        open_as(&path, None);
    }
}

#[test]
fn images_that_no_vhd_can_be_are_refused_with_the_limit() {
    let refusal =
        |spec: NewImageSpec| create(Box::new(crash_free()), &spec).map(|_| ()).unwrap_err().to_string();
    assert!(refusal(spec(Subtype::Dynamic, 2040 * GIB + 512)).contains("2040 GiB"));
    assert!(refusal(spec(Subtype::Fixed, 0)).contains("0 bytes"));
    assert!(refusal(spec(Subtype::Fixed, 513)).contains("whole sectors"));
    let sectors = NewImageSpec { logical_block: LogicalBlockSize::B4096, ..spec(Subtype::Dynamic, MIB) };
    assert!(refusal(sectors).contains("logical sectors of 4096 bytes"));
    for bytes in [512, 3 * MIB, 512 * MIB] {
        let blocks =
            NewImageSpec { payload_block: Some(ByteLength::new(bytes)), ..spec(Subtype::Dynamic, MIB) };
        assert!(refusal(blocks).contains("a power of two from 4 KiB to 256 MiB"));
    }
    let small =
        NewImageSpec { payload_block: Some(ByteLength::new(4 * KIB)), ..spec(Subtype::Dynamic, GIB * 100) };
    assert!(refusal(small).contains("take larger blocks"));
    assert!(refusal(spec(Subtype::Differencing, MIB)).contains("without a parent"));
    let link = ParentLink { linkage: Guid::NIL, relative_path: "a\0b".into(), absolute_path: None };
    let parent = NewImageSpec { parent: Some(link), ..spec(Subtype::Dynamic, MIB) };
    assert!(refusal(parent.clone()).contains("a parent"));
    assert!(refusal(NewImageSpec { subtype: Subtype::Differencing, ..parent }).contains("with a zero"));
}

#[test]
fn blocks_that_the_disk_does_not_have_get_no_place() {
    for subtype in [Subtype::Fixed, Subtype::Dynamic] {
        let mut new = create(Box::new(crash_free()), &spec(subtype, 3 * MIB)).unwrap();
        assert!(matches!(new.place(2), Err(NewImageError::NoSuchBlock { block: 2, blocks: 2 })));
        assert!(matches!(new.place(u64::MAX), Err(NewImageError::NoSuchBlock { .. })));
        assert!(matches!(new.zero(2), Err(NewImageError::NoSuchBlock { .. })));
        assert!(matches!(new.place_partly(0, &[1]), Err(NewImageError::NotDifferencing)));
    }
}

fn crash_free() -> diskimage::storage::CrashStorage {
    diskimage::storage::CrashStorage::new(MemoryStorage::default())
}

#[test]
fn largest_disk_takes_no_more_than_its_table() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("large.vhd");
    let mut new = begin(&spec(Subtype::Dynamic, 2040 * GIB), &path);
    let last = 2040 * GIB / (2 * MIB) - 1;
    let at = new.place(last).unwrap();
    new.storage().write_at(at, &[9; 512]).unwrap();
    new.finish().unwrap();
    let image = open_as(&path, None);
    let mut sector = [0; 512];
    crate::tools::read(&image, last * 2 * MIB, &mut sector);
    assert_eq!(sector, [9; 512]);
    assert_eq!(qemu_size("vpc", &path), 2040 * GIB);
    assert!(image.info().allocated.unwrap().get() < 8 * MIB);
}

/// A child of 20 MiB of the image at `parent`, some blocks of which it holds in part.
fn child(parent: &Path, path: &Path, seed: u64) -> PathBuf {
    let base = FileStorage::open(parent).unwrap();
    let id = bytes_of(&base, base.len().get() - 512 + 68, 16);
    let link = ParentLink {
        linkage: Guid::from_be_bytes(id.try_into().unwrap()),
        relative_path: parent.file_name().unwrap().to_str().unwrap().into(),
        absolute_path: Some(parent.to_str().unwrap().into()),
    };
    let mut new = begin(&NewImageSpec { parent: Some(link), ..spec(Subtype::Differencing, 20 * MIB) }, path);
    // Every sector of one block, scattered ones of two others, and zeros that hide the parent's block.
    let at = new.place(seed % 10).unwrap();
    new.storage().write_at(at, &noise(seed, 2 * MIB)).unwrap();
    for block in [(seed + 3) % 10, (seed + 4) % 10] {
        let held = noise(seed + block, 512);
        let at = new.place_partly(block, &held).unwrap().get();
        let data = noise(seed * 1000 + block, 2 * MIB);
        for sector in (0..4096).filter(|sector| held[sector / 8] >> (sector % 8) & 1 == 1) {
            let bytes = &data[sector * 512..][..512];
            new.storage().write_at(ByteOffset::new(at + sector as u64 * 512), bytes).unwrap();
        }
    }
    new.zero((seed + 5) % 10).unwrap();
    new.finish().unwrap();
    path.to_owned()
}

#[test]
fn chains_of_new_images_are_what_7_zip_reads() {
    let directory = tempfile::tempdir().unwrap();
    let base = directory.path().join("base.vhd");
    let raw = directory.path().join("base.raw");
    fill(begin(&spec(Subtype::Dynamic, 20 * MIB), &base), 20 * MIB, &raw);
    let mut expected = std::fs::read(&raw).unwrap();
    let mut leaf = base;
    for seed in 1..=5_u64 {
        leaf = child(&leaf, &directory.path().join(format!("child {seed}.vhd")), seed);
        let block = |number: u64| (number % 10 * 2 * MIB) as usize;
        expected[block(seed)..][..2 << 20].copy_from_slice(&noise(seed, 2 * MIB));
        for number in [(seed + 3) % 10, (seed + 4) % 10] {
            let (held, data) = (noise(seed + number, 512), noise(seed * 1000 + number, 2 * MIB));
            for sector in (0..4096).filter(|sector| held[sector / 8] >> (sector % 8) & 1 == 1) {
                expected[block(number) + sector * 512..][..512].copy_from_slice(&data[sector * 512..][..512]);
            }
        }
        expected[block(seed + 5)..][..2 << 20].fill(0);
        let mut sevenzip = program("7z", "p7zip-full");
        let output = sevenzip.args(["x", "-so", "-tVHD"]).arg(&leaf).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stdout == expected, "depth {seed}");
    }
    let info = run(program("vhdiinfo", "libvhdi-utils").arg(&leaf));
    assert!(info.contains("Differential") && info.contains("child 4.vhd"), "{info}");
}

#[test]
fn other_programs_write_into_new_images_and_are_read_back() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ours.vhd");
    let raw = directory.path().join("ours.raw");
    fill(begin(&spec(Subtype::Dynamic, 20 * MIB + 512), &path), 20 * MIB + 512, &raw);
    crate::tools::qemu_io(
        "vpc",
        &path,
        &["write -P 0x11 0 1M", "write -P 0x22 3M 512", "write -P 0x33 20M 512", "write -P 0x44 9M 3M"],
    );
    let image = open_as(&path, None);
    let converted = qemu_raw("vpc", &path);
    assert_same(&image, &converted);
    assert_eq!(std::fs::read(&converted).unwrap()[..1 << 20], [0x11; 1 << 20]);
    qemu_img(&["info", "-f", "vpc"], &[&path]);
}
