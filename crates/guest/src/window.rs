//! A run of a disk, read at any byte.
use std::sync::Arc;

use block::{BlockDevice, ByteOffset, Patience};

use crate::error::GuestError;

/// The largest logical block of a disk (4096 bytes, with room): what an unaligned read takes on either side.
const BOUNCE_BYTES: usize = 64 << 10;

/// A run of a disk: the whole of it, or a partition. Reads may begin and end at any byte.
#[derive(Clone, Debug)]
pub struct Window {
    device: Arc<dyn BlockDevice>,
    start: u64,
    length: u64,
}

impl Window {
    /// The whole disk.
    #[must_use]
    pub fn whole(device: Arc<dyn BlockDevice>) -> Self {
        let length = device.geometry().size.get();
        Self { device, start: 0, length }
    }

    /// The part of it from `start` on, or nothing where that does not lie inside.
    #[must_use]
    pub fn part(&self, start: u64, length: u64) -> Option<Self> {
        let end = start.checked_add(length)?;
        let from = self.start.checked_add(start)?;
        (end <= self.length).then(|| Self { device: Arc::clone(&self.device), start: from, length })
    }

    /// How long it is, in bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    /// The unit in which the disk is addressed, in bytes.
    #[must_use]
    pub fn logical_block_bytes(&self) -> u64 {
        self.device.geometry().logical_block.bytes()
    }

    /// Fills `buffer` with the bytes from `at` on.
    ///
    /// # Errors
    /// [`GuestError::Outside`] and [`GuestError::Device`].
    pub fn read_at(&self, at: u64, buffer: &mut [u8]) -> Result<(), GuestError> {
        let length = u64::try_from(buffer.len()).unwrap_or(u64::MAX);
        let end = at.saturating_add(length);
        if end > self.length {
            return Err(GuestError::Outside { at, end, what: "partition or disk", size: self.length });
        }
        let mut at = self.start.saturating_add(at);
        let mut rest = buffer;
        while !rest.is_empty() {
            let took = self.read_some(at, rest)?;
            at = at.saturating_add(u64::try_from(took).unwrap_or(u64::MAX));
            rest = rest.get_mut(took..).unwrap_or_default();
        }
        Ok(())
    }

    /// Reads at least one byte at `at` of the disk, and says how many: whole blocks straight into the buffer, pieces of
    /// blocks by way of a buffer of their own.
    fn read_some(&self, at: u64, buffer: &mut [u8]) -> Result<usize, GuestError> {
        let block = self.logical_block_bytes();
        let read = |at: u64, into: &mut [u8]| {
            self.device
                .read(ByteOffset::new(at), into, Patience::Blocking)
                .map_err(|source| GuestError::Device { at, source })
        };
        let within = usize::try_from(at.checked_rem(block).unwrap_or(0)).unwrap_or(0);
        let block_len = usize::try_from(block).unwrap_or(usize::MAX);
        let whole = buffer.len().saturating_sub(buffer.len().checked_rem(block_len).unwrap_or(0));
        if let (0, Some(blocks @ [_, ..])) = (within, buffer.get_mut(..whole)) {
            read(at, blocks)?;
            return Ok(whole);
        }
        let wanted = within.saturating_add(buffer.len()).next_multiple_of(block_len).min(BOUNCE_BYTES);
        let mut bounce = vec![0; wanted];
        read(at.saturating_sub(u64::try_from(within).unwrap_or(0)), &mut bounce)?;
        let bytes = bounce.get(within..).unwrap_or_default();
        let took = bytes.len().min(buffer.len());
        if let (Some(to), Some(from)) = (buffer.get_mut(..took), bytes.get(..took)) {
            to.copy_from_slice(from);
        }
        Ok(took)
    }
}

/// A little-endian number of `N` bytes at `at`; zero where the bytes end before it.
pub(crate) fn little<const N: usize>(bytes: &[u8], at: usize) -> u64 {
    let run = bytes.get(at..at.saturating_add(N)).unwrap_or_default();
    run.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::{Access, LogicalBlockSize, MemoryDevice};

    fn counted(block: u64) -> Window {
        let bytes: Vec<u8> = (0..256_u32 << 10).map(|i| (i % 251) as u8).collect();
        let block = LogicalBlockSize::from_bytes(block).expect("a size of logical blocks");
        let device = MemoryDevice::with_contents(bytes, block, Access::ReadOnly).expect("a device in memory");
        Window::whole(Arc::new(device))
    }

    #[test]
    fn read_at_any_byte_gives_the_bytes_of_the_disk() {
        for block in [512, 4096] {
            let window = counted(block).part(1000, 200_000).expect("a part");
            for (at, length) in
                [(0, 1), (0, 4096), (3096, 8192), (24, 70_000), (511, 2), (199_999, 1), (7, 0)]
            {
                let mut read = vec![0; length];
                window.read_at(at, &mut read).expect("a read");
                let want: Vec<u8> = (0..length as u64).map(|i| ((1000 + at + i) % 251) as u8).collect();
                assert!(read == want, "block {block}, at {at}, length {length}");
            }
        }
    }

    #[test]
    fn read_past_the_end_of_a_part_is_refused() {
        let window = counted(512).part(1000, 1000).expect("a part");
        assert!(matches!(window.read_at(999, &mut [0; 2]), Err(GuestError::Outside { end: 1001, .. })));
        assert!(window.part(1, 1000).is_none());
        assert!(window.part(u64::MAX, 2).is_none());
    }
}
