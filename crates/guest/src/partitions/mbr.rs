//! The partition table in the first sector (UEFI specification §5.2.1), and the chain of extended partitions that Linux and
//! GRUB number from 5 on.
use super::{MAX_PARTITIONS, Partition, PartitionNumber, Purpose};
use crate::error::GuestError;
use crate::window::{Window, little};

/// Places in this table are counted in sectors of 512 bytes.
const SECTOR_BYTES: u64 = 512;
/// The number of the first partition inside an extended one.
const FIRST_LOGICAL: u32 = 5;
/// What marks an extended partition.
const EXTENDED: [u8; 3] = [0x05, 0x0F, 0x85];
/// The EFI system partition (UEFI §5.2.2).
const EFI_SYSTEM: u8 = 0xEF;
/// The extended boot loader partition (Boot Loader Specification).
const EXTENDED_BOOT: u8 = 0xEA;

/// An entry of the table that is in use.
#[derive(Clone, Copy)]
struct Entry {
    kind: u8,
    first: u64,
    sectors: u64,
}

/// The partitions, or nothing where there is no such table. A boot sector of a file system has the same signature: what
/// stands in the place of the table must be one.
pub(super) fn read(disk: &Window) -> Result<Option<Vec<Partition>>, GuestError> {
    let Some(primary) = table(disk, 0)? else { return Ok(None) };
    let mut partitions = Vec::new();
    for (entry, number) in primary.into_iter().zip(1..) {
        let Some(entry) = entry else { continue };
        if EXTENDED.contains(&entry.kind) {
            logical(disk, entry.first, &mut partitions)?;
        } else {
            partitions.extend(partition(disk, entry, 0, number));
        }
    }
    partitions.sort_by_key(|partition| partition.number);
    Ok((!partitions.is_empty()).then_some(partitions))
}

/// Follows the chain of an extended partition. Each link holds one partition, counted from the link, and the next link,
/// counted from the extended partition.
fn logical(disk: &Window, extended: u64, partitions: &mut Vec<Partition>) -> Result<(), GuestError> {
    let mut link = extended;
    for number in (FIRST_LOGICAL..).take(MAX_PARTITIONS) {
        let Some([held, next, ..]) = table(disk, link)? else { return Ok(()) };
        partitions.extend(held.and_then(|held| partition(disk, held, link, number)));
        let Some(next) = next.and_then(|next| extended.checked_add(next.first)) else { return Ok(()) };
        link = next;
    }
    Ok(())
}

/// The four entries of the table in a sector.
fn table(disk: &Window, sector: u64) -> Result<Option<[Option<Entry>; 4]>, GuestError> {
    let mut bytes = [0; 512];
    let at = sector.saturating_mul(SECTOR_BYTES);
    if at.saturating_add(SECTOR_BYTES) > disk.length() {
        return Ok(None);
    }
    disk.read_at(at, &mut bytes)?;
    if bytes.get(510..) != Some(&[0x55, 0xAA]) {
        return Ok(None);
    }
    let mut entries = [None; 4];
    let rows = bytes.get(446..510).unwrap_or_default().chunks_exact(16);
    for (row, entry) in rows.zip(&mut entries) {
        let (status, kind) = (little::<1>(row, 0), row.get(4).copied().unwrap_or(0));
        if !matches!(status, 0 | 0x80) {
            return Ok(None);
        }
        let (first, sectors) = (little::<4>(row, 8), little::<4>(row, 12));
        *entry = (kind != 0 && sectors != 0).then_some(Entry { kind, first, sectors });
    }
    Ok(Some(entries))
}

fn partition(disk: &Window, entry: Entry, base: u64, number: u32) -> Option<Partition> {
    let first = base.checked_add(entry.first)?;
    // A partition does not begin with the sector that holds the table.
    let window = (first > base)
        .then(|| disk.part(first.checked_mul(SECTOR_BYTES)?, entry.sectors.checked_mul(SECTOR_BYTES)?))??;
    let purpose = match entry.kind {
        EFI_SYSTEM => Purpose::EfiSystem,
        EXTENDED_BOOT => Purpose::ExtendedBoot,
        _ => Purpose::Other,
    };
    Some(Partition { number: PartitionNumber(number), purpose, name: String::new(), window })
}
