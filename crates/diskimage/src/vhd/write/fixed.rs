//! Writing into a fixed image: the disk's bytes lie where they lie on the disk, and nothing else ever changes.
use block::{
    Access, Allocation, BlockError, ByteLength, ByteOffset, ByteRange, Geometry, LogicalBlockSize, Patience,
};

use super::creator_of;
use super::edit::check_new_size;
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
    /// Where in the file it begins: not before the disk's end.
    footer_at: u64,
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
        Ok(Self { storage, footer, footer_at: place.at(), bytes: footer_bytes, geometry })
    }

    /// Puts the footer where the disk of another size ends. At every moment the file ends with a footer, the old one
    /// or the new one, each a single sector: a longer file ends with the new one from the one write on that makes it
    /// longer, a shorter one with the old one until it is cut. What lies between the disk's old end and the old footer
    /// becomes zeros before the disk reaches it, and the old footer, once it does not count any more, after.
    fn move_footer(&self, size: u64) -> Result<(), StorageError> {
        let old_end = self.geometry.size.get();
        self.punch(old_end, size.min(self.footer_at))?;
        let mut footer = self.bytes;
        self.footer.resized(size).encode_over(&mut footer);
        self.storage.write_at(ByteOffset::new(size), &footer)?;
        self.storage.flush()?;
        self.storage.set_len(ByteLength::new(size.saturating_add(SECTOR_BYTES)))?;
        self.storage.flush()?;
        self.punch(self.footer_at, size.min(self.footer_at.saturating_add(SECTOR_BYTES)))
    }

    /// Makes zeros of what lies between two places, if anything does, and that lasting.
    fn punch(&self, start: u64, end: u64) -> Result<(), StorageError> {
        let length = ByteLength::new(end.saturating_sub(start));
        match ByteRange::new(ByteOffset::new(start), length) {
            Some(range) if length > ByteLength::ZERO => {
                self.storage.punch(range)?;
                self.storage.flush()
            }
            _ => Ok(()),
        }
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
        check_new_size(size)?;
        if !self.footer_at.is_multiple_of(SECTOR_BYTES) {
            // The new footer could come to lie over a part of the old one.
            let what = "whose footer does not begin with a sector cannot be resized in place; convert it";
            return Err(EditError::Unsupported { format: Format::Vhd, what });
        }
        self.move_footer(size.get()).map_err(|error| EditError::of_storage(error, self.geometry.size))
    }

    fn close(&self) -> Result<(), BlockError> {
        self.flush()
    }
}
