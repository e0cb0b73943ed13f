//! The GUID partition table, UEFI specification §5.3. The table at the start of the disk is taken where its checksums are
//! right, else the one at the end.
use super::{MAX_PARTITIONS, Partition, PartitionNumber, Purpose};
use crate::error::GuestError;
use crate::window::{Window, little};

/// The sizes of logical blocks that tables are made for. A disk may be served with another size than it was made with.
const BLOCK_BYTES: [u64; 2] = [512, 4096];
/// UEFI §5.3.2, table "GPT Header".
const HEADER_BYTES: usize = 92;
/// An array of entries has 16 KiB as a rule.
const MAX_ARRAY_BYTES: u64 = 1 << 20;
/// UEFI §5.3.3: entries have 128 bytes, or that times a power of two.
const MIN_ENTRY_BYTES: u64 = 128;

/// `C12A7328-F81F-11D2-BA4B-00A0C93EC93B`, as it lies on the disk.
const EFI_SYSTEM: [u8; 16] =
    [0x28, 0x73, 0x2a, 0xc1, 0x1f, 0xf8, 0xd2, 0x11, 0xba, 0x4b, 0x00, 0xa0, 0xc9, 0x3e, 0xc9, 0x3b];
/// `BC13C2FF-59E6-4262-A352-B275FD6F7172`, as it lies on the disk (Boot Loader Specification, XBOOTLDR).
const EXTENDED_BOOT: [u8; 16] =
    [0xff, 0xc2, 0x13, 0xbc, 0xe6, 0x59, 0x62, 0x42, 0xa3, 0x52, 0xb2, 0x75, 0xfd, 0x6f, 0x71, 0x72];

/// The partitions, or nothing where there is no such table.
pub(super) fn read(disk: &Window) -> Result<Option<Vec<Partition>>, GuestError> {
    let own = disk.logical_block_bytes();
    let sizes = std::iter::once(own).chain(BLOCK_BYTES.into_iter().filter(|&size| size != own));
    for block in sizes {
        let last = disk.length().checked_div(block).and_then(|blocks| blocks.checked_sub(1));
        for place in [Some(1), last].into_iter().flatten() {
            if let Some(partitions) = read_table(disk, block, place)? {
                return Ok(Some(partitions));
            }
        }
    }
    Ok(None)
}

fn read_table(disk: &Window, block: u64, place: u64) -> Result<Option<Vec<Partition>>, GuestError> {
    let mut header = vec![0; usize::try_from(block).unwrap_or(0)];
    let at = place.saturating_mul(block);
    if at.saturating_add(block) > disk.length() {
        return Ok(None);
    }
    disk.read_at(at, &mut header)?;
    let Some(table) = Table::parse(&mut header, place) else { return Ok(None) };
    let Some(array_at) = table.array.checked_mul(block) else { return Ok(None) };
    let Ok(array_bytes) = usize::try_from(table.array_bytes) else { return Ok(None) };
    let mut array = vec![0; array_bytes];
    match disk.read_at(array_at, &mut array) {
        Ok(()) => (),
        Err(GuestError::Outside { .. }) => return Ok(None),
        Err(error) => return Err(error),
    }
    if crc32(&array) != table.array_crc {
        return Ok(None);
    }
    let entries = array.chunks_exact(table.entry_bytes).zip(1..).take(MAX_PARTITIONS);
    Ok(Some(entries.filter_map(|(entry, number)| partition(disk, block, entry, number)).collect()))
}

/// What the header says about the array of entries.
struct Table {
    array: u64,
    array_bytes: u64,
    array_crc: u32,
    entry_bytes: usize,
}

impl Table {
    /// Checks the header; its own checksum is set to zero in it on the way, as the rule of the checksum asks.
    fn parse(header: &mut [u8], place: u64) -> Option<Self> {
        if header.get(..8)? != b"EFI PART" {
            return None;
        }
        let size = usize::try_from(little::<4>(header, 12)).ok()?;
        let crc = little::<4>(header, 16);
        header.get_mut(16..20)?.fill(0);
        // UEFI §5.3.2: HeaderSize is 92 at least and at most a logical block; MyLBA is where the header lies.
        if size < HEADER_BYTES
            || u64::from(crc32(header.get(..size)?)) != crc
            || little::<8>(header, 24) != place
        {
            return None;
        }
        let (count, entry_bytes) = (little::<4>(header, 80), little::<4>(header, 84));
        let array_bytes = count.checked_mul(entry_bytes)?;
        if entry_bytes < MIN_ENTRY_BYTES || !entry_bytes.is_power_of_two() || array_bytes > MAX_ARRAY_BYTES {
            return None;
        }
        Some(Self {
            array: little::<8>(header, 72),
            array_bytes,
            array_crc: u32::try_from(little::<4>(header, 88)).ok()?,
            entry_bytes: usize::try_from(entry_bytes).ok()?,
        })
    }
}

/// UEFI §5.3.3, table "GPT Partition Entry". An entry without a type is not used; one that does not lie on the disk is
/// left out.
fn partition(disk: &Window, block: u64, entry: &[u8], number: u32) -> Option<Partition> {
    let kind = entry.get(..16)?;
    if kind.iter().all(|&byte| byte == 0) {
        return None;
    }
    let (first, last) = (little::<8>(entry, 32), little::<8>(entry, 40));
    let blocks = last.checked_sub(first)?.checked_add(1)?;
    let window = disk.part(first.checked_mul(block)?, blocks.checked_mul(block)?)?;
    let purpose = match kind {
        kind if kind == EFI_SYSTEM => Purpose::EfiSystem,
        kind if kind == EXTENDED_BOOT => Purpose::ExtendedBoot,
        _ => Purpose::Other,
    };
    let name = entry.get(56..128)?.chunks_exact(2).map(|unit| little::<2>(unit, 0));
    let units: Vec<u16> = name.map_while(|unit| u16::try_from(unit).ok().filter(|&unit| unit != 0)).collect();
    Some(Partition {
        number: PartitionNumber(number),
        purpose,
        name: String::from_utf16_lossy(&units),
        window,
    })
}

/// CRC-32 as UEFI asks for it (§4.2; ISO 3309, the polynomial of Ethernet). Tables are a few KiB, read once.
pub(super) fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(
            crc ^ u32::from(byte),
            |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 },
        )
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn crc32_of_the_check_string_is_the_published_one() {
        assert_eq!(super::crc32(b"123456789"), 0xCBF4_3926);
    }
}
