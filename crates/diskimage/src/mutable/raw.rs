//! Writing into a raw image: the file is the disk.
use block::{
    Access, Allocation, BlockError, ByteLength, ByteOffset, ByteRange, Geometry, LogicalBlockSize, Patience,
};

use super::{EditError, Writer, Zeroing};
use crate::error::{Refusal, ResolveError};
use crate::format::Format;
use crate::image::{Info, Subtype};
use crate::raw::Raw;
use crate::storage::WritableStorage;

/// A raw image.
#[derive(Debug)]
pub(super) struct RawWriter {
    storage: Box<dyn WritableStorage>,
    geometry: Geometry,
}

impl RawWriter {
    pub(super) fn open(storage: Box<dyn WritableStorage>) -> Result<Self, Refusal> {
        let geometry = Geometry {
            size: ByteLength::new(Raw::open(storage.len().get())?.virtual_bytes()),
            logical_block: LogicalBlockSize::B512,
            physical_block: 512,
            // What file systems give back.
            discard_granularity: Some(4096),
            access: Access::ReadWrite,
        };
        Ok(Self { storage, geometry })
    }

    /// The part of `range` that the file has: its last block may be missing bytes.
    fn stored(&self, range: ByteRange) -> ByteRange {
        let held = self.storage.len().get().saturating_sub(range.start().get()).min(range.length().get());
        ByteRange::new(range.start(), ByteLength::new(held)).unwrap_or(range)
    }
}

impl Writer for RawWriter {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn info(&self) -> Info {
        Info {
            format: Format::Raw,
            subtype: Subtype::Fixed,
            virtual_size: self.geometry.size,
            logical_block: self.geometry.logical_block,
            physical_block: self.geometry.physical_block,
            payload_block: None,
            file_size: self.storage.len(),
            allocated: self.storage.allocated(),
            identity: None,
            creator: None,
            log_replayed: false,
        }
    }

    fn read(&self, range: ByteRange, buffer: &mut [u8], patience: Patience) -> Result<(), BlockError> {
        let held = self.stored(range).length().in_memory().unwrap_or(usize::MAX).min(buffer.len());
        let (stored, behind) = buffer.split_at_mut(held);
        behind.fill(0);
        let read = self.storage.read_at(range.start(), stored, patience);
        read.map_err(|error| ResolveError::from(error).on(range))
    }

    fn write(&self, range: ByteRange, data: &[u8]) -> Result<(), BlockError> {
        self.storage.write_at(range.start(), data).map_err(|error| ResolveError::from(error).on(range))
    }

    fn zero(&self, range: ByteRange, _: Zeroing) -> Result<(), BlockError> {
        self.storage.punch(self.stored(range)).map_err(|error| ResolveError::from(error).on(range))
    }

    fn flush(&self) -> Result<(), BlockError> {
        let all = ByteRange::new(ByteOffset::ZERO, self.geometry.size);
        self.storage
            .flush()
            .map_err(|error| all.map_or(BlockError::Closed, |range| ResolveError::from(error).on(range)))
    }

    fn allocation(&self, range: ByteRange, _: Patience) -> Result<(Allocation, ByteLength), BlockError> {
        Ok((Allocation::Data, range.length()))
    }

    fn resize(&self, size: ByteLength) -> Result<(), EditError> {
        let resized = self.storage.set_len(size).and_then(|()| self.storage.flush());
        resized.map_err(|error| EditError::of_storage(error, self.geometry.size))
    }

    fn close(&self) -> Result<(), BlockError> {
        self.flush()
    }
}
