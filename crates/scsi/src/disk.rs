//! What kind of disk a block device makes: the numbers that INQUIRY, READ CAPACITY and MODE SENSE tell, and that
//! commands are held to.
use block::{Access, ByteLength, ByteOffset, ByteRange, Geometry};

use crate::cdb::Extent;
use crate::sense::{AdditionalSense, CheckCondition, SenseKey};

/// The most bytes that one READ or WRITE moves: MAXIMUM TRANSFER LENGTH. A READ (10) of the most blocks that its CDB
/// can name just fits with 512-byte blocks; firmware sends such without asking for the limit.
pub(crate) const MAX_TRANSFER_BYTES: u64 = 32 << 20;
/// The transfer that serves best: OPTIMAL TRANSFER LENGTH.
pub(crate) const OPTIMAL_TRANSFER_BYTES: u64 = 1 << 20;
/// The most bytes that one WRITE SAME writes: it occupies a worker thread for as long as that takes.
pub(crate) const MAX_WRITE_SAME_BYTES: u64 = 256 << 20;
/// The most logical blocks that one COMPARE AND WRITE takes: all that its CDB can name.
pub(crate) const MAX_COMPARE_AND_WRITE_BLOCKS: u8 = 255;
/// The most bytes that one VERIFY without Data-Out reads, for the same reason.
pub(crate) const MAX_VERIFY_BYTES: u64 = 4 << 30;
/// The most logical blocks that one UNMAP takes, over all of its descriptors.
pub(crate) const MAX_UNMAP_BLOCKS: u32 = 1 << 20;
/// The most descriptors of one UNMAP: with its header they take 4 KiB and a bit.
pub(crate) const MAX_UNMAP_DESCRIPTORS: u32 = 256;

/// A block device's geometry in SCSI's terms.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Disk {
    geometry: Geometry,
}

impl Disk {
    pub(crate) const fn new(geometry: Geometry) -> Self {
        Self { geometry }
    }

    /// The bytes of a logical block.
    pub(crate) fn block_bytes(&self) -> u64 {
        self.geometry.logical_block.bytes()
    }

    /// The same, for a field of 32 bits.
    pub(crate) fn block_bytes_u32(&self) -> u32 {
        // It is 512 or 4096.
        u32::try_from(self.block_bytes()).unwrap_or(u32::MAX)
    }

    /// How many logical blocks there are.
    pub(crate) fn blocks(&self) -> u64 {
        self.to_blocks(self.geometry.size.get())
    }

    pub(crate) fn last_lba(&self) -> u64 {
        self.blocks().saturating_sub(1)
    }

    /// The logical block that holds this byte.
    pub(crate) fn lba_of(&self, at: ByteOffset) -> u64 {
        self.to_blocks(at.get())
    }

    /// Logical blocks of a physical one, as a power of two.
    pub(crate) fn blocks_per_physical_exponent(&self) -> u8 {
        let blocks = self.to_blocks(u64::from(self.geometry.physical_block));
        u8::try_from(blocks.checked_ilog2().unwrap_or(0)).unwrap_or(0)
    }

    pub(crate) fn read_only(&self) -> bool {
        self.geometry.access == Access::ReadOnly
    }

    /// Logical block provisioning: the logical blocks that UNMAP frees at once; `None` for a disk that has no UNMAP.
    pub(crate) fn unmap_granularity(&self) -> Option<u32> {
        let bytes = self.geometry.discard_granularity.filter(|_| !self.read_only())?;
        Some(u32::try_from(self.to_blocks(u64::from(bytes))).unwrap_or(1).max(1))
    }

    /// Whether UNMAP is a command of this disk.
    pub(crate) fn knows_unmap(&self) -> bool {
        self.unmap_granularity().is_some() || self.read_only()
    }

    /// This many bytes in whole logical blocks, for a field of 32 bits.
    pub(crate) fn blocks_u32(&self, bytes: u64) -> u32 {
        u32::try_from(self.to_blocks(bytes)).unwrap_or(u32::MAX)
    }

    fn to_blocks(self, bytes: u64) -> u64 {
        bytes.checked_div(self.block_bytes()).unwrap_or(0)
    }

    /// The bytes of `extent`, if it lies on the disk.
    pub(crate) fn range(&self, extent: Extent) -> Result<ByteRange, CheckCondition> {
        let inside = extent.lba.checked_add(extent.blocks).is_some_and(|end| end <= self.blocks());
        let bytes = |blocks: u64| blocks.checked_mul(self.block_bytes()).filter(|_| inside);
        let range = bytes(extent.lba).zip(bytes(extent.blocks));
        range
            .and_then(|(at, length)| ByteRange::new(ByteOffset::new(at), ByteLength::new(length)))
            .ok_or_else(|| CheckCondition::illegal(AdditionalSense::LBA_OUT_OF_RANGE).about(extent.lba))
    }

    /// The same, for a command that may take at most `max_bytes` at once; the length stands at `byte` of its CDB.
    pub(crate) fn limited(
        &self,
        extent: Extent,
        max_bytes: u64,
        byte: u16,
    ) -> Result<ByteRange, CheckCondition> {
        let range = self.range(extent)?;
        if range.length().get() > max_bytes {
            return Err(CheckCondition::cdb_field(byte)); // SBC-3 §6.5.3, MAXIMUM TRANSFER LENGTH
        }
        Ok(range)
    }

    pub(crate) fn check_writable(&self) -> Result<(), CheckCondition> {
        if self.read_only() {
            return Err(CheckCondition::new(SenseKey::DataProtect, AdditionalSense::WRITE_PROTECTED));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::LogicalBlockSize;

    fn disk(blocks: u64) -> Disk {
        Disk::new(Geometry {
            size: ByteLength::new(blocks * 4096),
            logical_block: LogicalBlockSize::B4096,
            physical_block: 16384,
            discard_granularity: Some(65536),
            access: Access::ReadWrite,
        })
    }

    #[test]
    fn extent_must_end_on_the_disk() {
        let disk = disk(100);
        let range = |lba, blocks| disk.range(Extent { lba, blocks });
        assert_eq!(range(99, 1).unwrap().start().get(), 99 * 4096);
        assert!(range(100, 0).is_ok());
        for (lba, blocks) in [(99, 2), (100, 1), (101, 0), (u64::MAX, 0), (u64::MAX, 1), (1 << 60, 1)] {
            let check = range(lba, blocks).unwrap_err();
            assert_eq!(check.code, AdditionalSense::LBA_OUT_OF_RANGE);
            assert_eq!(check.information, Some(lba));
        }
    }

    #[test]
    fn geometry_is_told_in_blocks() {
        let disk = disk(100);
        assert_eq!((disk.blocks(), disk.last_lba(), disk.blocks_per_physical_exponent()), (100, 99, 2));
        assert_eq!(disk.unmap_granularity(), Some(16));
    }
}
