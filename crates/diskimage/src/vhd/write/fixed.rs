//! Writing into a fixed image: the disk's bytes lie where they lie on the disk, and nothing else ever changes.
use block::{
    Access, Allocation, BlockError, ByteLength, ByteOffset, ByteRange, Geometry, LogicalBlockSize, Patience,
};

use super::creator_of;
use crate::error::{Damage, Refusal, ResolveError};
use crate::format::Format;
use crate::image::{Info, Subtype};
use crate::mutable::{EditError, Writer, Zeroing};
use crate::storage::{StorageError, WritableStorage};
use crate::vhd::footer::{FooterBytes, FooterPlace};
use crate::vhd::{Footer, SECTOR_BYTES};

/// A fixed image.
#[derive(Debug)]
pub(super) struct FixedWriter {
    storage: Box<dyn WritableStorage>,
    footer: Footer,
    bytes: FooterBytes,
    geometry: Geometry,
}

impl FixedWriter {
    pub(super) fn open(
        storage: Box<dyn WritableStorage>,
        footer: Footer,
        place: FooterPlace,
        footer_bytes: FooterBytes,
    ) -> Result<Self, Refusal> {
        let bytes = footer.virtual_bytes(place)?;
        if bytes > place.at() {
            let problem =
                format!("the disk has {bytes} bytes, but only {} lie before the footer", place.at());
            return Err(Damage::new("footer", place.at(), "[VHD] Fixed Hard Disk Image", problem).into());
        }
        let geometry = Geometry {
            size: ByteLength::new(bytes),
            logical_block: LogicalBlockSize::B512,
            physical_block: 512,
            // What file systems give back.
            discard_granularity: Some(4096),
            access: Access::ReadWrite,
        };
        Ok(Self { storage, footer, bytes: footer_bytes, geometry })
    }

    /// Puts the footer where the smaller disk ends, and cuts off the rest: at every moment there is a footer.
    fn shrink(&self, size: ByteLength) -> Result<(), StorageError> {
        let mut footer = self.bytes;
        self.footer.resized(size.get()).encode_over(&mut footer);
        self.storage.write_at(ByteOffset::new(size.get()), &footer)?;
        self.storage.flush()?;
        self.storage.set_len(ByteLength::new(size.get().saturating_add(SECTOR_BYTES)))?;
        self.storage.flush()
    }
}

impl Writer for FixedWriter {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn info(&self) -> Info {
        Info {
            format: Format::Vhd,
            subtype: Subtype::Fixed,
            virtual_size: self.geometry.size,
            logical_block: self.geometry.logical_block,
            physical_block: self.geometry.physical_block,
            payload_block: None,
            file_size: self.storage.len(),
            allocated: self.storage.allocated(),
            identity: self.footer.unique_id.non_nil().map(crate::Guid::to_be_bytes),
            creator: creator_of(&self.footer),
            log_replayed: false,
        }
    }

    fn read(&self, range: ByteRange, buffer: &mut [u8], patience: Patience) -> Result<(), BlockError> {
        let read = self.storage.read_at(range.start(), buffer, patience);
        read.map_err(|error| ResolveError::from(error).on(range))
    }

    fn write(&self, range: ByteRange, data: &[u8]) -> Result<(), BlockError> {
        self.storage.write_at(range.start(), data).map_err(|error| ResolveError::from(error).on(range))
    }

    fn zero(&self, range: ByteRange, _: Zeroing) -> Result<(), BlockError> {
        self.storage.punch(range).map_err(|error| ResolveError::from(error).on(range))
    }

    fn flush(&self) -> Result<(), BlockError> {
        self.storage
            .flush()
            .map_err(|error| ResolveError::from(error).on(ByteRange::from_start(self.geometry.size)))
    }

    fn allocation(&self, range: ByteRange, _: Patience) -> Result<(Allocation, ByteLength), BlockError> {
        Ok((Allocation::Data, range.length()))
    }

    fn resize(&self, size: ByteLength) -> Result<(), EditError> {
        if size > self.geometry.size {
            // A longer file ends without a footer until the new one has reached the disk, and there is no copy.
            let what = "that is fixed is not made larger in place: if power failed, it could be left without its \
                        only footer; convert it into a dynamic one first, which can grow";
            return Err(EditError::Unsupported { format: Format::Vhd, what });
        }
        self.shrink(size).map_err(|error| EditError::of_storage(error, self.geometry.size))
    }

    fn close(&self) -> Result<(), BlockError> {
        self.flush()
    }
}
