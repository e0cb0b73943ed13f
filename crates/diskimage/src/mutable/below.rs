//! What shows through where a differencing image holds nothing: its parent.
use std::sync::Arc;

use block::{
    Allocation, BlockDevice, BlockError, ByteLength, ByteOffset, ByteRange, LogicalBlockSize, Patience,
};

use crate::error::Refusal;

/// The parent's contents, or nothing but zeros. Behind the parent's end there are zeros: a child may be larger.
#[derive(Clone, Debug)]
pub(crate) struct Below(Option<Arc<dyn BlockDevice>>);

impl Below {
    pub(crate) fn new(parent: Option<Arc<dyn BlockDevice>>) -> Self {
        Self(parent)
    }

    /// Whether there is a parent.
    pub(crate) fn is_some(&self) -> bool {
        self.0.is_some()
    }

    /// How large the parent is; 0 where there is none.
    pub(crate) fn size(&self) -> u64 {
        self.0.as_ref().map_or(0, |parent| parent.geometry().size.get())
    }

    /// Parent and child must have the same logical blocks: else a child could hold half of one.
    pub(crate) fn check(&self, logical_block: LogicalBlockSize) -> Result<(), Refusal> {
        match self.0.as_ref().map(|parent| parent.geometry().logical_block) {
            Some(other) if other != logical_block => {
                let what = format!(
                    "a parent with logical sectors of {} bytes under a child with {}",
                    other.bytes(),
                    logical_block.bytes()
                );
                Err(Refusal::unsupported("[MS-VHDX] §2.6.2.4", what))
            }
            _ => Ok(()),
        }
    }

    /// Fills `buffer` with the bytes of `range`.
    pub(crate) fn read(
        &self,
        range: ByteRange,
        buffer: &mut [u8],
        patience: Patience,
    ) -> Result<(), BlockError> {
        let held = usize::try_from(self.held(range.start())).unwrap_or(usize::MAX).min(buffer.len());
        let (from_parent, behind) = buffer.split_at_mut(held);
        behind.fill(0);
        match &self.0 {
            Some(parent) if held > 0 => parent.read(range.start(), from_parent, patience),
            _ => Ok(()),
        }
    }

    /// As [`BlockDevice::allocation`].
    pub(crate) fn allocation(
        &self,
        range: ByteRange,
        patience: Patience,
    ) -> Result<(Allocation, ByteLength), BlockError> {
        let held = self.held(range.start()).min(range.length().get());
        match (&self.0, ByteRange::new(range.start(), ByteLength::new(held))) {
            (Some(parent), Some(range)) if held > 0 => parent.allocation(range, patience),
            _ => Ok((Allocation::Hole, range.length())),
        }
    }

    /// How many bytes the parent has from `at` on.
    fn held(&self, at: ByteOffset) -> u64 {
        self.size().saturating_sub(at.get())
    }
}
