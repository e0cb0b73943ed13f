//! Disks: the boot sector with a partition table, the BIOS part, and the EFI volume as the only partition.
//!
//! Sticks have an MBR table, which the oldest firmware takes; disks of virtual machines a GUID partition table (UEFI 2.10
//! §5.3) behind a protective one. On both, BIOS runs our boot sector and never looks at partitions.
use super::bios::{Drive, Part};
use super::bytes::{Bytes, u32_of};
use super::{MIB, SECTOR_BYTES};

/// Where the BIOS part begins: behind a GUID partition table's 34 sectors.
const PART_SECTOR: usize = 64;

/// Where a boot sector has its four partitions, and the disk's own number before them.
const TABLE: usize = 446;
const DISK_NUMBER: usize = 440;
/// Partition types.
const EFI_SYSTEM: u8 = 0xef;
const PROTECTIVE: u8 = 0xee;
const ACTIVE: u8 = 0x80;
/// Cylinder, head and sector that say "beyond what these can tell": everybody reads the sector numbers.
const NO_CHS: [u8; 3] = [0xfe, 0xff, 0xff];

const GPT_HEADER_BYTES: usize = 92;
const GPT_ENTRIES: usize = 128;
const GPT_ENTRY_BYTES: usize = 128;
const GPT_ENTRY_SECTORS: usize = GPT_ENTRIES * GPT_ENTRY_BYTES / SECTOR_BYTES;
/// EFI system partition, C12A7328-F81F-11D2-BA4B-00A0C93EC93B.
const EFI_SYSTEM_GUID: [u8; 16] =
    [0x28, 0x73, 0x2a, 0xc1, 0x1f, 0xf8, 0xd2, 0x11, 0xba, 0x4b, 0x00, 0xa0, 0xc9, 0x3e, 0xc9, 0x3b];

/// The sector at which the EFI volume begins.
pub(super) fn start_of_volume(part: &Part) -> usize {
    (PART_SECTOR * SECTOR_BYTES + part.as_slice().len()).next_multiple_of(MIB) / SECTOR_BYTES
}

/// A partition for an MBR table.
pub(super) struct MbrPartition {
    pub(super) kind: u8,
    pub(super) is_active: bool,
    pub(super) first_sector: usize,
    pub(super) sectors: usize,
}

impl MbrPartition {
    /// An active EFI system partition: some BIOSes boot no stick without an active partition.
    pub(super) fn efi(first_sector: usize, volume: &[u8]) -> Self {
        Self { kind: EFI_SYSTEM, is_active: true, first_sector, sectors: volume.len() / SECTOR_BYTES }
    }
}

/// Puts the first partition into a boot sector, and a number that tells the disk from others.
pub(super) fn put_mbr(sector: &mut Bytes, partition: &MbrPartition, identity: u64) {
    sector.put(DISK_NUMBER, &identity.to_le_bytes()[..4]);
    sector.put(TABLE, &[if partition.is_active { ACTIVE } else { 0 }]);
    sector.put(TABLE + 1, &NO_CHS);
    sector.put(TABLE + 4, &[partition.kind]);
    sector.put(TABLE + 5, &NO_CHS);
    sector.put_u32(TABLE + 8, u32_of(partition.first_sector));
    sector.put_u32(TABLE + 12, u32_of(partition.sectors));
}

/// A stick.
pub(super) fn with_mbr(part: &Part, start: usize, volume: &[u8]) -> Vec<u8> {
    let mut disk = part.boot_sector(Drive::Disk, PART_SECTOR * SECTOR_BYTES);
    put_mbr(&mut disk, &MbrPartition::efi(start, volume), identity(volume));
    disk.put(PART_SECTOR * SECTOR_BYTES, part.as_slice());
    disk.put(start * SECTOR_BYTES, volume);
    disk.pad_to_multiple_of(MIB);
    disk.into_vec()
}

/// A disk of a virtual machine.
pub(super) fn with_gpt(part: &Part, start: usize, volume: &[u8]) -> Vec<u8> {
    let end = start + volume.len() / SECTOR_BYTES;
    let mut disk = part.boot_sector(Drive::Disk, PART_SECTOR * SECTOR_BYTES);
    disk.put(PART_SECTOR * SECTOR_BYTES, part.as_slice());
    disk.put(start * SECTOR_BYTES, volume);
    // The second table follows the partition, and ends the disk.
    disk.put((end + GPT_ENTRY_SECTORS + 1) * SECTOR_BYTES - 1, &[0]);
    disk.pad_to_multiple_of(MIB);
    let sectors = disk.len() / SECTOR_BYTES;
    let identity = identity(volume);
    // UEFI 2.10 §5.2.3: the protective record covers all of the disk.
    let protective =
        MbrPartition { kind: PROTECTIVE, is_active: false, first_sector: 1, sectors: sectors - 1 };
    put_mbr(&mut disk, &protective, identity);
    let mut entries = Bytes::zeros(GPT_ENTRIES * GPT_ENTRY_BYTES);
    entries.put(0, &EFI_SYSTEM_GUID);
    entries.put(16, &guid(identity, 1));
    entries.put_u64(32, start as u64);
    entries.put_u64(40, end as u64 - 1);
    for (index, letter) in "Headwater boot".encode_utf16().enumerate() {
        entries.put_u16(56 + index * 2, letter);
    }
    let (first, last) = (1, sectors - 1);
    for (own, other, table) in [(first, last, 2), (last, first, last - GPT_ENTRY_SECTORS)] {
        disk.put(table * SECTOR_BYTES, entries.as_slice());
        let header = GptHeader { own, other, table, sectors, entries: &entries, disk: guid(identity, 0) };
        disk.put(own * SECTOR_BYTES, header.bytes().as_slice());
    }
    disk.into_vec()
}

/// UEFI 2.10 §5.3.2.
struct GptHeader<'a> {
    own: usize,
    other: usize,
    table: usize,
    sectors: usize,
    entries: &'a Bytes,
    disk: [u8; 16],
}

impl GptHeader<'_> {
    fn bytes(&self) -> Bytes {
        let mut header = Bytes::zeros(GPT_HEADER_BYTES);
        header.put(0, b"EFI PART");
        header.put_u32(8, 0x0001_0000);
        header.put_u32(12, u32_of(GPT_HEADER_BYTES));
        header.put_u64(24, self.own as u64);
        header.put_u64(32, self.other as u64);
        header.put_u64(40, (2 + GPT_ENTRY_SECTORS) as u64);
        header.put_u64(48, (self.sectors - 2 - GPT_ENTRY_SECTORS) as u64);
        header.put(56, &self.disk);
        header.put_u64(72, self.table as u64);
        header.put_u32(80, u32_of(GPT_ENTRIES));
        header.put_u32(84, u32_of(GPT_ENTRY_BYTES));
        header.put_u32(88, crc32(self.entries.as_slice()));
        let sum = crc32(header.as_slice());
        header.put_u32(16, sum);
        header
    }
}

/// A number made of a volume's bytes (FNV-1a): other media have another, the same media the same.
pub(super) fn identity(volume: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    volume.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// A GUID of version 8 ("vendor specific", RFC 9562 §5.8) of such a number.
fn guid(identity: u64, index: u8) -> [u8; 16] {
    let [a, b, c, d, e, f, g, h] = identity.to_le_bytes();
    [a, b, c, d, e, f, g, 0x80 | (h & 0x0f), 0x80, index, b'h', b'e', b'a', b'd', b'w', b'b']
}

/// The CRC of ISO 3309, reversed, as GPT has it (UEFI 2.10 §5.3.2).
fn crc32(bytes: &[u8]) -> u32 {
    let bit = |crc: u32| if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 };
    let byte = |crc: u32, byte: &u8| (0..8).fold(crc ^ u32::from(*byte), |crc, _| bit(crc));
    !bytes.iter().fold(u32::MAX, byte)
}
