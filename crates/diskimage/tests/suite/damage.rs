//! Damaged and hostile files: each gets an error that names structure, place and rule; none gets through.
use block::{BlockDevice, BlockError, ByteLength, ByteOffset, Patience};
use diskimage::storage::{MemoryStorage, Storage};
use diskimage::{Format, Image, OpenOptions};

use crate::builder::{BAT_AT, LOG_AT, METADATA_AT, MIB, Vhdx};
use crate::tools::{program, qemu_img, run};

/// A disk of four blocks, two of them present.
fn vhdx() -> Vhdx {
    let mut vhdx = Vhdx::new(4 * MIB, 2 * MIB);
    let at = vhdx.payload_at();
    vhdx.bat = vec![(0, at | 6), (2, (at + MIB) | 6)];
    vhdx.data = vec![(at, vec![1; 4096]), (at + MIB, vec![2; 4096])];
    vhdx
}

fn refusal_of(file: MemoryStorage, format: Option<Format>) -> String {
    let opened = Image::from_storage(Box::new(file), OpenOptions { format, ..OpenOptions::default() });
    opened.map(|image| image.info()).unwrap_err().refusal.to_string()
}

#[test]
fn vhdx_cut_anywhere_is_refused() {
    let whole = vhdx().build();
    for len in [
        8,
        9,
        600,
        0x10000,
        0x10FFF,
        0x20000,
        0x30000,
        0x40000,
        0x4FFFF,
        MIB,
        METADATA_AT,
        METADATA_AT + 0x10000,
        BAT_AT,
        BAT_AT + 8,
        BAT_AT + MIB - 1,
        BAT_AT + MIB,
        BAT_AT + 2 * MIB,
        BAT_AT + 3 * MIB - 1,
    ] {
        let mut cut = whole.clone();
        cut.set_len(ByteLength::new(len));
        let refusal = refusal_of(cut, None);
        assert!(
            ["cut short", "behind the end of the file"].iter().any(|words| refusal.contains(words)),
            "cut after {len}: {refusal}"
        );
    }
    assert!(Image::from_storage(Box::new(whole), OpenOptions::default()).is_ok());
}

#[test]
fn vhdx_blocks_over_structures_are_refused() {
    for (place, what) in [
        (0, "the header section"),
        (LOG_AT, "the log"),
        (METADATA_AT, "the metadata region"),
        (BAT_AT, "the block allocation table"),
    ] {
        let mut vhdx = vhdx();
        vhdx.bat.push((3, place | 6));
        let refusal = vhdx.refusal();
        assert!(refusal.contains(&format!("payload block 3 at {place:#x} lies over {what}")), "{refusal}");
        assert!(refusal.contains("BAT entry at 0x300018") && refusal.contains("[MS-VHDX]"), "{refusal}");
    }
    // A block of 2 MiB that begins before the structures' end is no better than one inside.
    let mut vhdx = vhdx();
    vhdx.bat.push((1, (vhdx.payload_at() + MIB) | 6));
    assert!(vhdx.refusal().contains("lies over payload block"), "{}", vhdx.refusal());
}

#[test]
fn vhdx_regions_over_each_other_are_refused() {
    let mut file = vhdx().build();
    let mut table = vec![0; 64 << 10];
    file.read_at(ByteOffset::new(0x30000), &mut table, Patience::Now).unwrap();
    // The metadata region where the log is.
    table[48 + 16..48 + 24].copy_from_slice(&LOG_AT.to_le_bytes());
    file.put(ByteOffset::new(0x30000), &crate::builder::sealed(table));
    let refusal = refusal_of(file, None);
    assert!(refusal.contains("begins inside"), "{refusal}");
}

#[test]
fn damaged_entry_of_a_large_table_fails_the_reads_of_its_page_only() {
    let mut vhdx = Vhdx::new(64 << 40, 0);
    let at = vhdx.payload_at();
    vhdx.file_bytes = at + MIB;
    vhdx.data = vec![(at, vec![1; 4096])];
    // One good block in the first page of the table, and one behind the file's end in a later one.
    vhdx.bat = vec![(0, at | 6), (1 << 20, (at + MIB) | 6)];
    let image = vhdx.open().unwrap();
    let mut buffer = [0; 4096];
    image.read(ByteOffset::ZERO, &mut buffer, Patience::Blocking).unwrap();
    assert_eq!(buffer, [1; 4096]);
    let block = (1 << 20) - (1 << 20) / 4097;
    let damaged = ByteOffset::new(block * MIB);
    let result = image.read(damaged, &mut buffer, Patience::Blocking);
    let Err(BlockError::Corrupt { what }) = result else { panic!("{result:?}") };
    assert!(what.contains("behind the end of the file") && what.contains("BAT entry at 0xb00000"), "{what}");
}

/// A dynamic VHD of 20 MiB in blocks of 2 MiB, two of them present, as qemu-img makes it.
fn vhd() -> MemoryStorage {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("small.vhd");
    qemu_img(&["create", "-q", "-f", "vpc", "-o", "force_size=on"], &[&path, "20M".as_ref()]);
    let write = ["-f", "vpc", "-c", "write -P 1 0 1M", "-c", "write -P 2 5M 1M"];
    run(program("qemu-io", "qemu-utils").args(write).arg(&path));
    MemoryStorage::new(&std::fs::read(path).unwrap())
}

/// Where qemu-img puts the table.
const VHD_TABLE_AT: u64 = 0x600;

#[test]
fn vhd_blocks_over_structures_or_outside_are_refused() {
    let good = vhd();
    assert!(Image::from_storage(Box::new(good.clone()), OpenOptions::default()).is_ok());
    let sectors = (good.len().get() / 512) as u32;
    for (entry, expected) in [
        (0, "over a structure"),
        (2, "over a structure"),
        (3, "over a structure"),
        (4, "lies over block"),
        (sectors, "before the footer"),
        (sectors - 4098, "lies over block"),
        (sectors - 4097, "before the footer"),
        (0xFFFF_FFFE, "before the footer"),
    ] {
        let mut file = good.clone();
        file.put(ByteOffset::new(VHD_TABLE_AT + 4), &u32::to_be_bytes(entry));
        let refusal = refusal_of(file, None);
        assert!(refusal.contains(expected), "{entry}: {refusal}");
    }
}

#[test]
fn vhd_cut_short_is_refused() {
    let good = vhd();
    for len in [512, 1535, VHD_TABLE_AT, VHD_TABLE_AT + 39, 3 << 20] {
        let mut cut = good.clone();
        cut.set_len(ByteLength::new(len));
        let refusal = refusal_of(cut, None);
        assert!(
            ["cut short", "before the footer"].iter().any(|words| refusal.contains(words)),
            "cut after {len}: {refusal}"
        );
    }
}

#[test]
fn vhd_whose_last_footer_is_gone_is_read_by_its_copy() {
    let mut file = vhd();
    let len = file.len().get();
    file.put(ByteOffset::new(len - 512), &[0; 512]);
    let image = Image::from_storage(Box::new(file), OpenOptions::default()).unwrap();
    assert_eq!(image.virtual_size().get(), 20 * MIB);
}

/// With the checksum that its bytes have, the field at `field` apart.
fn reseal_vhd(file: &mut MemoryStorage, at: u64, length: usize, field: usize) {
    let mut bytes = vec![0; length];
    file.read_at(ByteOffset::new(at), &mut bytes, Patience::Now).unwrap();
    bytes[field..field + 4].fill(0);
    let sum = !bytes.iter().map(|&byte| u32::from(byte)).sum::<u32>();
    file.put(ByteOffset::new(at + field as u64), &sum.to_be_bytes());
}

#[test]
fn vhd_structures_with_impossible_values_are_refused() {
    let cases: [(u64, &[u8], &str); 5] = [
        // The dynamic header's place, its table's place, its number of entries, its block size.
        (0x10, &[0x7F; 8], "cut short"),
        (0x210, &[0xFF; 8], "before the footer"),
        (0x21C, &[0, 0, 0, 9], "9 entries for 10 blocks"),
        (0x220, &[0xFF; 4], "block size"),
        (0x30, &[0xFF; 8], "not a number of whole sectors"),
    ];
    for (at, bytes, expected) in cases {
        let mut file = vhd();
        let end = file.len().get() - 512;
        file.put(ByteOffset::new(at), bytes);
        reseal_vhd(&mut file, 0, 512, 64);
        reseal_vhd(&mut file, 512, 1024, 36);
        let mut footer = [0; 512];
        file.read_at(ByteOffset::ZERO, &mut footer, Patience::Now).unwrap();
        file.put(ByteOffset::new(end), &footer);
        let refusal = refusal_of(file, None);
        assert!(refusal.contains(expected), "{refusal}");
    }
}

#[test]
fn fixed_vhd_that_is_shorter_than_its_disk_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("fixed.vhd");
    qemu_img(&["create", "-q", "-f", "vpc", "-o", "subformat=fixed,force_size=on"], &[&path, "3M".as_ref()]);
    let bytes = std::fs::read(path).unwrap();
    let refusal = refusal_of(MemoryStorage::new(&bytes[4096..]), None);
    assert!(refusal.contains("the disk has 3145728 bytes, but only 3141632"), "{refusal}");
}
