//! A CD image: ISO 9660 (ECMA-119) with an El Torito boot catalogue, and a boot sector for those who write it to a stick.
//!
//! El Torito names two boot images: our boot sector for BIOS ("no emulation": the firmware loads it and passes the drive),
//! and the EFI volume, of which UEFI firmware makes a disk (UEFI 2.10 §13.3.2.1). The file system itself is for people:
//! it shows the same things as files.
use super::bios::{CHUNK_BYTES, Drive, Part};
use super::bytes::{Bytes, u16_of, u32_of};
use super::partitions::{MbrPartition, identity, put_mbr};
use super::{MIB, SECTOR_BYTES};

/// A CD's sector.
const CD_SECTOR_BYTES: usize = 2048;
/// Where ECMA-119 §6.2.1 lets the volume descriptors begin, and what we put behind them.
const DESCRIPTORS: usize = 16;
const PATH_TABLE_L: usize = 19;
const PATH_TABLE_M: usize = 20;
const ROOT: usize = 21;
const CATALOGUE: usize = 22;
const BOOT_SECTOR: usize = 23;
const README: usize = 24;

const VOLUME: &str = "HEADWATER";
/// A path table with the root alone.
const PATH_TABLE_BYTES: usize = 10;
/// El Torito §2.1: x86; EFI (UEFI 2.10 §13.3.2.1).
const PLATFORM_X86: u8 = 0;
const PLATFORM_EFI: u8 = 0xef;
const BOOTABLE: u8 = 0x88;
const NO_EMULATION: u8 = 0;
const LAST_SECTION: u8 = 0x91;
/// How much of our boot sector BIOS loads, in sectors of 512 bytes: a whole CD sector, as everybody's does.
const LOADED_SECTORS: u16 = 4;

/// The image of a CD.
pub(super) fn image(part: &Part, volume: &[u8], readme: &[u8]) -> Vec<u8> {
    let part_at = ((README * CD_SECTOR_BYTES) + readme.len()).next_multiple_of(CHUNK_BYTES);
    let volume_at = (part_at + part.as_slice().len()).next_multiple_of(MIB);
    let mut image = part.boot_sector(Drive::Disk, part_at);
    put_mbr(&mut image, &MbrPartition::efi(volume_at / SECTOR_BYTES, volume), identity(volume));
    image.put(BOOT_SECTOR * CD_SECTOR_BYTES, part.boot_sector(Drive::Cd, part_at).as_slice());
    image.put(README * CD_SECTOR_BYTES, readme);
    image.put(part_at, part.as_slice());
    image.put(volume_at, volume);
    image.pad_to_multiple_of(MIB);
    let files = [
        ("BIOS.IMG;1", part_at / CD_SECTOR_BYTES, part.as_slice().len()),
        ("BOOT.BIN;1", BOOT_SECTOR, CD_SECTOR_BYTES),
        ("BOOT.CAT;1", CATALOGUE, CD_SECTOR_BYTES),
        ("EFI.IMG;1", volume_at / CD_SECTOR_BYTES, volume.len()),
        ("README.TXT;1", README, readme.len()),
    ];
    put_descriptors(&mut image);
    put_root(&mut image, &files);
    put_catalogue(&mut image, volume_at / CD_SECTOR_BYTES, volume.len());
    image.into_vec()
}

/// ECMA-119 §8: the primary volume descriptor, El Torito's boot record, the set's end.
fn put_descriptors(image: &mut Bytes) {
    let sectors = u32_of(image.len() / CD_SECTOR_BYTES);
    let at = DESCRIPTORS * CD_SECTOR_BYTES;
    let mut primary = Bytes::zeros(CD_SECTOR_BYTES);
    primary.put(0, b"\x01CD001\x01");
    // Identifiers are filled with blanks (§8.4.5 and following): system, volume; set, publisher, preparer, application and
    // three files.
    primary.put(8, &[b' '; 64]);
    primary.put(190, &[b' '; 623]);
    primary.put(40, VOLUME.as_bytes());
    primary.put(574, b"HEADWATER BOOT MEDIA");
    put_both_u32(&mut primary, 80, sectors);
    for one in [120, 124] {
        put_both_u16(&mut primary, one, 1);
    }
    put_both_u16(&mut primary, 128, u16_of(CD_SECTOR_BYTES));
    put_both_u32(&mut primary, 132, u32_of(PATH_TABLE_BYTES));
    primary.put_u32(140, u32_of(PATH_TABLE_L));
    primary.put(148, &u32_of(PATH_TABLE_M).to_be_bytes());
    primary.put(156, record(&[0], ROOT, CD_SECTOR_BYTES, true).as_slice());
    // §8.4.26.1: times that are not given are the digit zero, sixteen times, and a zone of zero.
    for time in [813, 830, 847, 864] {
        primary.put(time, &[b'0'; 16]);
    }
    primary.put(881, &[1]);
    image.put(at, primary.as_slice());
    image.put(at + CD_SECTOR_BYTES, b"\0CD001\x01EL TORITO SPECIFICATION");
    image.put_u32(at + CD_SECTOR_BYTES + 71, u32_of(CATALOGUE));
    image.put(at + 2 * CD_SECTOR_BYTES, b"\xffCD001\x01");
    // §9.4: the root's name has one byte, its number is its own parent's.
    for (table, location) in
        [(PATH_TABLE_L, u32_of(ROOT).to_le_bytes()), (PATH_TABLE_M, u32_of(ROOT).to_be_bytes())]
    {
        image.put(table * CD_SECTOR_BYTES, &[1, 0]);
        image.put(table * CD_SECTOR_BYTES + 2, &location);
    }
    image.put_u16(PATH_TABLE_L * CD_SECTOR_BYTES + 6, 1);
    image.put(PATH_TABLE_M * CD_SECTOR_BYTES + 6, &1_u16.to_be_bytes());
}

/// The root directory: itself, its parent, which is itself, and the files, sorted by name (§9.3).
fn put_root(image: &mut Bytes, files: &[(&str, usize, usize)]) {
    let mut at = ROOT * CD_SECTOR_BYTES;
    let own = [&[0_u8][..], &[1]].map(|name| record(name, ROOT, CD_SECTOR_BYTES, true));
    let files = files.iter().map(|&(name, sector, size)| record(name.as_bytes(), sector, size, false));
    for record in own.into_iter().chain(files) {
        image.put(at, record.as_slice());
        at += record.len();
    }
}

/// §9.1: a directory record.
fn record(name: &[u8], sector: usize, size: usize, is_directory: bool) -> Bytes {
    let mut record = Bytes::zeros((33 + name.len()).next_multiple_of(2));
    record.put(0, &record.len().to_le_bytes()[..1]);
    put_both_u32(&mut record, 2, u32_of(sector));
    put_both_u32(&mut record, 10, u32_of(size));
    // 1980-01-01, as in the FAT volume.
    record.put(18, &[80, 1, 1]);
    record.put(25, &[if is_directory { 2 } else { 0 }]);
    put_both_u16(&mut record, 28, 1);
    record.put(32, &name.len().to_le_bytes()[..1]);
    record.put(33, name);
    record
}

/// El Torito §2: the validation entry, the default entry, then a section with one entry for EFI.
fn put_catalogue(image: &mut Bytes, volume_sector: usize, volume_bytes: usize) {
    let mut catalogue = Bytes::zeros(CD_SECTOR_BYTES);
    catalogue.put(0, &[1, PLATFORM_X86]);
    catalogue.put(4, VOLUME.as_bytes());
    catalogue.put(30, &[0x55, 0xaa]);
    // §2.1: the words of the validation entry add up to zero.
    let words = catalogue.as_slice().chunks_exact(2).take(16);
    let sum =
        words.filter_map(|word| word.try_into().ok()).map(u16::from_le_bytes).fold(0, u16::wrapping_add);
    catalogue.put_u16(28, sum.wrapping_neg());
    catalogue.put(32, &[BOOTABLE, NO_EMULATION]);
    catalogue.put_u16(38, LOADED_SECTORS);
    catalogue.put_u32(40, u32_of(BOOT_SECTOR));
    catalogue.put(64, &[LAST_SECTION, PLATFORM_EFI, 1, 0]);
    catalogue.put(96, &[BOOTABLE, NO_EMULATION]);
    catalogue.put_u16(102, u16_of(volume_bytes / SECTOR_BYTES));
    catalogue.put_u32(104, u32_of(volume_sector));
    image.put(CATALOGUE * CD_SECTOR_BYTES, catalogue.as_slice());
}

/// §7.2.3, §7.3.3: both byte orders, one after the other.
fn put_both_u16(bytes: &mut Bytes, at: usize, value: u16) {
    bytes.put_u16(at, value);
    bytes.put(at + 2, &value.to_be_bytes());
}

fn put_both_u32(bytes: &mut Bytes, at: usize, value: u32) {
    bytes.put_u32(at, value);
    bytes.put(at + 4, &value.to_be_bytes());
}
