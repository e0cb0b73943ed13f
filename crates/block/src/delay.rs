//! A decorator that makes a device slow.
use std::sync::Arc;
use std::time::Duration;

use crate::device::{Allocation, BlockDevice, Geometry, Patience};
use crate::error::BlockError;
use crate::units::{ByteLength, ByteOffset, ByteRange};

/// Waits before every operation, as a disk would that has to seek. With [`Patience::Now`] it answers
/// [`BlockError::WouldBlock`] instead: so it also stands for a device whose pages are never in memory.
#[derive(Debug)]
pub struct DelayDevice {
    inner: Arc<dyn BlockDevice>,
    delay: Duration,
}

impl DelayDevice {
    /// `inner`, each of its operations `delay` later.
    #[must_use]
    pub fn new(inner: Arc<dyn BlockDevice>, delay: Duration) -> Self {
        Self { inner, delay }
    }

    fn wait(&self, patience: Patience) -> Result<(), BlockError> {
        match patience {
            Patience::Now => Err(BlockError::WouldBlock),
            Patience::Blocking => {
                std::thread::sleep(self.delay);
                Ok(())
            }
        }
    }
}

impl BlockDevice for DelayDevice {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn read(&self, at: ByteOffset, buffer: &mut [u8], patience: Patience) -> Result<(), BlockError> {
        self.wait(patience)?;
        self.inner.read(at, buffer, patience)
    }

    fn write(&self, at: ByteOffset, data: &[u8], patience: Patience) -> Result<(), BlockError> {
        self.wait(patience)?;
        self.inner.write(at, data, patience)
    }

    fn flush(&self, patience: Patience) -> Result<(), BlockError> {
        self.wait(patience)?;
        self.inner.flush(patience)
    }

    fn discard(&self, range: ByteRange, patience: Patience) -> Result<(), BlockError> {
        self.wait(patience)?;
        self.inner.discard(range, patience)
    }

    fn write_zeroes(&self, range: ByteRange, patience: Patience) -> Result<(), BlockError> {
        self.wait(patience)?;
        self.inner.write_zeroes(range, patience)
    }

    fn allocation(
        &self,
        range: ByteRange,
        patience: Patience,
    ) -> Result<(Allocation, ByteLength), BlockError> {
        self.wait(patience)?;
        self.inner.allocation(range, patience)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LogicalBlockSize, MemoryDevice, conformance};

    #[test]
    fn delayed_device_conforms_though_it_always_asks_to_wait() {
        conformance::writable(&|| {
            let memory = MemoryDevice::zeroed(ByteLength::new(1 << 18), LogicalBlockSize::B512).unwrap();
            Box::new(DelayDevice::new(Arc::new(memory), Duration::from_micros(1)))
        });
    }
}
