//! A decorator that makes a device fail where a test wants it to.
use std::sync::{Arc, Mutex, PoisonError};

use crate::device::{Allocation, BlockDevice, Geometry, Patience};
use crate::error::BlockError;
use crate::units::{ByteLength, ByteOffset, ByteRange};

/// The kinds of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// [`BlockDevice::read`].
    Read,
    /// [`BlockDevice::write`].
    Write,
    /// [`BlockDevice::flush`].
    Flush,
    /// [`BlockDevice::discard`].
    Discard,
    /// [`BlockDevice::write_zeroes`].
    WriteZeroes,
}

/// One planned failure: the next `times` operations of this kind that touch `range` fail.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Which operations.
    pub operation: Operation,
    /// Where; a flush touches every range.
    pub range: ByteRange,
    /// How often.
    pub times: u32,
    /// With which error of the operating system.
    pub kind: std::io::ErrorKind,
}

/// Passes everything on to another device but what its planned faults hit. Faults can be added while it is in use.
#[derive(Debug)]
pub struct FaultDevice {
    inner: Arc<dyn BlockDevice>,
    faults: Mutex<Vec<Fault>>,
}

impl FaultDevice {
    /// `inner`, without any fault yet.
    #[must_use]
    pub fn new(inner: Arc<dyn BlockDevice>) -> Self {
        Self { inner, faults: Mutex::new(Vec::new()) }
    }

    /// Plans a failure.
    pub fn plan(&self, fault: Fault) {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).push(fault);
    }

    fn pass(&self, operation: Operation, range: Option<ByteRange>) -> Result<(), BlockError> {
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        let hit = faults.iter_mut().find(|fault| {
            let touches =
                range.is_none_or(|r| r.start() < fault.range.end() && fault.range.start() < r.end());
            fault.operation == operation && fault.times > 0 && touches
        });
        let Some(fault) = hit else { return Ok(()) };
        fault.times = fault.times.saturating_sub(1);
        Err(BlockError::Storage {
            range: range.unwrap_or(fault.range),
            source: std::io::Error::new(fault.kind, "injected by FaultDevice"),
        })
    }
}

impl BlockDevice for FaultDevice {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn read(&self, at: ByteOffset, buffer: &mut [u8], patience: Patience) -> Result<(), BlockError> {
        self.pass(Operation::Read, ByteRange::new(at, ByteLength::of(buffer)))?;
        self.inner.read(at, buffer, patience)
    }

    fn write(&self, at: ByteOffset, data: &[u8], patience: Patience) -> Result<(), BlockError> {
        self.pass(Operation::Write, ByteRange::new(at, ByteLength::of(data)))?;
        self.inner.write(at, data, patience)
    }

    fn flush(&self, patience: Patience) -> Result<(), BlockError> {
        self.pass(Operation::Flush, None)?;
        self.inner.flush(patience)
    }

    fn discard(&self, range: ByteRange, patience: Patience) -> Result<(), BlockError> {
        self.pass(Operation::Discard, Some(range))?;
        self.inner.discard(range, patience)
    }

    fn write_zeroes(&self, range: ByteRange, patience: Patience) -> Result<(), BlockError> {
        self.pass(Operation::WriteZeroes, Some(range))?;
        self.inner.write_zeroes(range, patience)
    }

    fn allocation(
        &self,
        range: ByteRange,
        patience: Patience,
    ) -> Result<(Allocation, ByteLength), BlockError> {
        self.inner.allocation(range, patience)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LogicalBlockSize, MemoryDevice, conformance};

    fn memory() -> Arc<MemoryDevice> {
        Arc::new(MemoryDevice::zeroed(ByteLength::new(1 << 18), LogicalBlockSize::B512).unwrap())
    }

    #[test]
    fn fault_device_without_faults_conforms() {
        conformance::writable(&|| Box::new(FaultDevice::new(memory())));
    }

    #[test]
    fn planned_fault_hits_its_range_as_often_as_planned() {
        let device = FaultDevice::new(memory());
        let range = ByteRange::new(ByteOffset::new(4096), ByteLength::new(512)).unwrap();
        let kind = std::io::ErrorKind::StorageFull;
        device.plan(Fault { operation: Operation::Write, range, times: 1, kind });
        let write = |at| device.write(ByteOffset::new(at), &[1; 1024], Patience::Now);
        write(0).unwrap();
        assert!(matches!(write(3584), Err(BlockError::Storage { source, .. }) if source.kind() == kind));
        write(3584).unwrap();
    }
}
