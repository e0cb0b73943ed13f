//! A block device in memory.
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::device::{Access, BlockDevice, Geometry, Patience};
use crate::error::BlockError;
use crate::units::{ByteLength, ByteOffset, ByteRange, LogicalBlockSize};

/// A device whose bytes lie in memory: for tests, and as the model that other devices are compared with.
#[derive(Debug)]
pub struct MemoryDevice {
    geometry: Geometry,
    bytes: RwLock<Vec<u8>>,
}

impl MemoryDevice {
    /// A writable device of zeros; `None` where `size` is not a whole number of logical blocks or does not fit in
    /// memory.
    #[must_use]
    pub fn zeroed(size: ByteLength, logical_block: LogicalBlockSize) -> Option<Self> {
        Self::with_contents(vec![0; size.in_memory()?], logical_block, Access::ReadWrite)
    }

    /// A device that holds `bytes`; `None` where they are not a whole number of logical blocks.
    #[must_use]
    pub fn with_contents(bytes: Vec<u8>, logical_block: LogicalBlockSize, access: Access) -> Option<Self> {
        let size = ByteLength::of(&bytes);
        let block_bytes = match logical_block {
            LogicalBlockSize::B512 => 512,
            LogicalBlockSize::B4096 => 4096,
        };
        if !size.get().is_multiple_of(logical_block.bytes()) {
            return None;
        }
        let geometry = Geometry {
            size,
            logical_block,
            physical_block: block_bytes,
            discard_granularity: Some(block_bytes),
            access,
        };
        Some(Self { geometry, bytes: RwLock::new(bytes) })
    }

    // A panic of another thread cannot leave the bytes half-changed in a way that matters to the contract.
    fn bytes(&self) -> RwLockReadGuard<'_, Vec<u8>> {
        self.bytes.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn bytes_mut(&self) -> RwLockWriteGuard<'_, Vec<u8>> {
        self.bytes.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn zero(&self, range: ByteRange) -> Result<(), BlockError> {
        let range = self.geometry.check_writable(range.start(), range.length())?;
        self.bytes_mut().get_mut(indices(range)).ok_or(BlockError::Closed)?.fill(0);
        Ok(())
    }
}

impl BlockDevice for MemoryDevice {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn read(&self, at: ByteOffset, buffer: &mut [u8], _: Patience) -> Result<(), BlockError> {
        let range = self.geometry.check(at, ByteLength::of(buffer))?;
        buffer.copy_from_slice(self.bytes().get(indices(range)).ok_or(BlockError::Closed)?);
        Ok(())
    }

    fn write(&self, at: ByteOffset, data: &[u8], _: Patience) -> Result<(), BlockError> {
        let range = self.geometry.check_writable(at, ByteLength::of(data))?;
        self.bytes_mut().get_mut(indices(range)).ok_or(BlockError::Closed)?.copy_from_slice(data);
        Ok(())
    }

    fn flush(&self, _: Patience) -> Result<(), BlockError> {
        Ok(())
    }

    fn discard(&self, range: ByteRange, _: Patience) -> Result<(), BlockError> {
        self.zero(range)
    }

    fn write_zeroes(&self, range: ByteRange, _: Patience) -> Result<(), BlockError> {
        self.zero(range)
    }
}

// A checked range lies inside the device, and the device lies in memory.
fn indices(range: ByteRange) -> std::ops::Range<usize> {
    let index = |offset: ByteOffset| usize::try_from(offset.get()).unwrap_or(usize::MAX);
    index(range.start())..index(range.end())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance;

    #[test]
    fn memory_device_conforms() {
        for logical_block in [LogicalBlockSize::B512, LogicalBlockSize::B4096] {
            conformance::writable(&|| {
                Box::new(MemoryDevice::zeroed(ByteLength::new(1 << 20), logical_block).unwrap())
            });
        }
    }

    #[test]
    fn read_only_memory_device_conforms() {
        let contents = conformance::pattern(1 << 16);
        let device =
            MemoryDevice::with_contents(contents.clone(), LogicalBlockSize::B512, Access::ReadOnly).unwrap();
        conformance::read_only(&device, &contents);
    }

    #[test]
    fn contents_of_half_a_block_are_refused() {
        assert!(
            MemoryDevice::with_contents(vec![0; 700], LogicalBlockSize::B512, Access::ReadOnly).is_none()
        );
    }
}
