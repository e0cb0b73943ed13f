//! READ CAPACITY (SBC-3 §5.15, §5.16) and GET LBA STATUS (SBC-3 §5.4).
use block::{ByteLength, ByteOffset};

use crate::disk::Disk;

/// The answer to GET LBA STATUS: header and one descriptor.
pub(crate) const LBA_STATUS_BYTES: usize = 24;

/// READ CAPACITY (10).
pub(crate) fn ten(disk: &Disk) -> Vec<u8> {
    // A disk of more blocks than the field can name says so, and READ CAPACITY (16) tells the rest.
    let last_lba = u32::try_from(disk.last_lba()).unwrap_or(u32::MAX);
    let mut data = last_lba.to_be_bytes().to_vec();
    data.extend_from_slice(&disk.block_bytes_u32().to_be_bytes());
    data
}

/// READ CAPACITY (16).
pub(crate) fn sixteen(disk: &Disk) -> Vec<u8> {
    let thin = if disk.unmap_granularity().is_some() { 0xC0 } else { 0 }; // LBPME, LBPRZ
    let mut data = disk.last_lba().to_be_bytes().to_vec();
    data.extend_from_slice(&disk.block_bytes_u32().to_be_bytes());
    // No protection information; LOGICAL BLOCKS PER PHYSICAL BLOCK EXPONENT; LOWEST ALIGNED LBA 0.
    data.extend_from_slice(&[0, disk.blocks_per_physical_exponent(), thin, 0]);
    data.resize(32, 0);
    data
}

/// GET LBA STATUS: one descriptor, of `length` bytes from `start` on. One is all that a device server must tell at a
/// time (SBC-3 §5.4.2), and a length that is known before the disk was asked is worth more than a second.
pub(crate) fn lba_status(disk: &Disk, start: ByteOffset, length: ByteLength, hole: bool) -> Vec<u8> {
    let mut data = vec![0, 0, 0, 20, 0, 0, 0, 0]; // PARAMETER DATA LENGTH: what follows it, with one descriptor
    data.extend_from_slice(&disk.lba_of(start).to_be_bytes());
    data.extend_from_slice(&disk.blocks_u32(length.get()).to_be_bytes());
    data.extend_from_slice(&[u8::from(hole), 0, 0, 0]); // PROVISIONING STATUS: 0 mapped, 1 deallocated
    data
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use block::{Access, Geometry, LogicalBlockSize};

    #[test]
    fn capacity_is_golden() {
        assert_eq!(ten(&testing::disk()), [0, 0, 0x0F, 0xFF, 0, 0, 2, 0]);
        let mut golden = vec![0, 0, 0, 0, 0, 0, 0x0F, 0xFF, 0, 0, 2, 0, 0, 3, 0xC0, 0];
        golden.resize(32, 0);
        assert_eq!(sixteen(&testing::disk()), golden);
        golden[13] = 0;
        golden[14] = 0;
        assert_eq!(sixteen(&testing::read_only_disk()), golden);
    }

    #[test]
    fn disk_past_32_bits_sends_the_initiator_to_the_long_command() {
        let disk = Disk::new(Geometry {
            size: ByteLength::new(3 << 40),
            logical_block: LogicalBlockSize::B512,
            physical_block: 512,
            discard_granularity: None,
            access: Access::ReadWrite,
        });
        assert_eq!(ten(&disk)[..4], [0xFF; 4]);
        assert_eq!(sixteen(&disk)[..8], [0, 0, 0, 1, 0x7F, 0xFF, 0xFF, 0xFF]);
    }

    #[test]
    fn lba_status_is_golden() {
        let mut golden = [0, 0, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 7, 0, 0, 0, 0];
        let status =
            |hole| lba_status(&testing::disk(), ByteOffset::new(9 * 512), ByteLength::new(7 * 512), hole);
        assert_eq!(status(false), golden);
        golden[20] = 1;
        assert_eq!(status(true), golden);
        assert_eq!(golden.len(), LBA_STATUS_BYTES);
    }
}
