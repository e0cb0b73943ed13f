//! Making a raw image: a file as long as the disk, in which blocks lie where they lie on the disk. What is not written
//! is a hole. Nothing in a raw file can say that it is not finished; whoever makes one gives it its name at the end.
use block::{ByteLength, ByteOffset};

use crate::format::Format;
use crate::image::Subtype;
use crate::new_image::{NewImage, NewImageError, NewImageSpec, SectorBitmap};
use crate::storage::WritableStorage;

/// The unit in which a raw image is made.
const UNIT_BYTES: u64 = 2 << 20;

/// A raw image in the making.
#[derive(Debug)]
pub(crate) struct NewRaw {
    storage: Box<dyn WritableStorage>,
    size: u64,
}

impl NewRaw {
    pub(crate) fn create(
        storage: Box<dyn WritableStorage>,
        spec: &NewImageSpec,
    ) -> Result<Self, NewImageError> {
        let unsupported = |what: String| {
            Err(NewImageError::Unsupported {
                format: Format::Raw,
                what,
                rule: "a raw file is the disk alone",
            })
        };
        if spec.subtype != Subtype::Fixed || spec.parent.is_some() {
            return unsupported("blocks of its own or a parent; it is fixed".into());
        }
        let size = spec.virtual_size;
        if size == ByteLength::ZERO || !size.get().is_multiple_of(spec.logical_block.bytes()) {
            return unsupported(format!("{size}: it has whole logical blocks, one at least"));
        }
        storage.set_len(size)?;
        Ok(Self { storage, size: size.get() })
    }

    fn check(&self, block: u64) -> Result<ByteOffset, NewImageError> {
        match block.checked_mul(UNIT_BYTES).filter(|&at| at < self.size) {
            Some(at) => Ok(ByteOffset::new(at)),
            None => Err(NewImageError::NoSuchBlock { block, blocks: self.size.div_ceil(UNIT_BYTES) }),
        }
    }
}

impl NewImage for NewRaw {
    fn payload_block(&self) -> ByteLength {
        ByteLength::new(UNIT_BYTES)
    }

    fn storage(&self) -> &dyn WritableStorage {
        &*self.storage
    }

    fn place(&mut self, block: u64) -> Result<ByteOffset, NewImageError> {
        self.check(block)
    }

    fn place_partly(&mut self, _: u64, _: &SectorBitmap) -> Result<ByteOffset, NewImageError> {
        Err(NewImageError::NotDifferencing)
    }

    fn zero(&mut self, block: u64) -> Result<(), NewImageError> {
        self.check(block).map(|_| ())
    }

    fn finish(self: Box<Self>) -> Result<(), NewImageError> {
        Ok(self.storage.flush()?)
    }
}

#[cfg(test)]
mod tests {
    use block::LogicalBlockSize;

    use super::*;
    use crate::storage::{CrashStorage, MemoryStorage};

    fn spec(size: u64) -> NewImageSpec {
        NewImageSpec {
            format: Format::Raw,
            subtype: Subtype::Fixed,
            virtual_size: ByteLength::new(size),
            logical_block: LogicalBlockSize::B512,
            physical_block: 512,
            payload_block: None,
            identity: None,
            linkage: None,
            parent: None,
            carried: Vec::new(),
        }
    }

    fn create(spec: &NewImageSpec) -> Result<NewRaw, NewImageError> {
        NewRaw::create(Box::new(CrashStorage::new(MemoryStorage::default())), spec)
    }

    #[test]
    fn blocks_lie_where_they_lie_on_the_disk() {
        let mut new = create(&spec((5 << 20) + 512)).unwrap();
        assert_eq!(new.storage().len().get(), (5 << 20) + 512);
        assert_eq!(new.place(0).unwrap(), ByteOffset::ZERO);
        assert_eq!(new.place(2).unwrap(), ByteOffset::new(4 << 20));
        new.zero(1).unwrap();
        assert!(matches!(new.place(3), Err(NewImageError::NoSuchBlock { block: 3, blocks: 3 })));
        assert!(matches!(new.zero(u64::MAX), Err(NewImageError::NoSuchBlock { .. })));
        assert!(matches!(new.place_partly(0, &[1]), Err(NewImageError::NotDifferencing)));
        Box::new(new).finish().unwrap();
    }

    #[test]
    fn what_a_raw_file_cannot_be_is_refused() {
        assert!(create(&spec(0)).is_err());
        assert!(create(&spec(513)).is_err());
        let coarse = NewImageSpec { logical_block: LogicalBlockSize::B4096, ..spec(512) };
        assert!(create(&coarse).is_err());
        assert!(create(&NewImageSpec { subtype: Subtype::Dynamic, ..spec(512) }).is_err());
    }
}
