//! A raw image: the file is the disk. Where a file ends inside a block of 512 bytes, the rest of that block reads as
//! zeros, as it does in other programs that serve raw files.
use block::{ByteRange, LogicalBlockSize};

use crate::error::Refusal;
use crate::extent::{Held, LayerExtent};

mod new;

pub(crate) use new::NewRaw;

/// A raw image's map.
#[derive(Debug)]
pub(crate) struct Raw {
    file_bytes: u64,
}

impl Raw {
    pub(crate) fn open(file_bytes: u64) -> Result<Self, Refusal> {
        if file_bytes == 0 {
            return Err(Refusal::Empty);
        }
        // Offsets of files end at i64::MAX; this also keeps the rounding below from wrapping.
        if i64::try_from(file_bytes).is_err() {
            return Err(Refusal::unsupported("off_t", format!("a file of {file_bytes} bytes")));
        }
        Ok(Self { file_bytes })
    }

    pub(crate) fn virtual_bytes(&self) -> u64 {
        let unit = LogicalBlockSize::B512.bytes();
        self.file_bytes.checked_next_multiple_of(unit).unwrap_or(self.file_bytes)
    }

    pub(crate) fn extent(&self, range: ByteRange) -> LayerExtent {
        let at = range.start().get();
        match self.file_bytes.checked_sub(at) {
            None | Some(0) => LayerExtent::head_of(range, u64::MAX, Held::Zero),
            Some(stored) => LayerExtent::head_of(range, stored, Held::File { at }),
        }
    }
}
