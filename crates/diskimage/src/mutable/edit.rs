//! Edits of an image that are not writes to its disk: another size, another place of its parent.
//!
//! Both take the open image and close it: a device's geometry does not change while it is open. Both are one step to a
//! crash: the image has the old size or link, or the new one.
use block::{Allocation, BlockDevice, BlockError, ByteLength, ByteOffset, ByteRange, Patience};

use super::{MutableImage, Writer};
use crate::error::{Refusal, ResolveError};
use crate::format::Format;
use crate::new_image::{NewImageError, ParentLink};
use crate::storage::StorageError;

/// How much of the tail of a disk is read in one go to see whether it is zeros.
const WINDOW_BYTES: u64 = 64 << 10;

/// An image could not be edited. It is as it was.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// The format has no such thing.
    #[error("a {} image {what}", format.title())]
    Unsupported {
        /// The format.
        format: Format,
        /// What it has not, or cannot.
        what: &'static str,
    },
    /// A size that the disk cannot have.
    #[error("the disk cannot have {size}: {reason} ({rule})")]
    Size {
        /// The size that was asked for.
        size: ByteLength,
        /// Why not, with the limit.
        reason: String,
        /// Where the limit is written.
        rule: &'static str,
    },
    /// The part of the disk that was to be cut off holds something.
    #[error(
        "the disk cannot be made smaller: what lies at {at}, behind the new end, is not all zeros; shrink the file \
         systems and partitions on it first, and discard what they leave free"
    )]
    TailInUse {
        /// Where the first bytes are that are not zeros, to within 64 KiB.
        at: ByteOffset,
    },
    /// There is no room in the metadata region for a parent locator of this length.
    #[error(
        "the link to the parent takes {wanted} bytes, the file's metadata has {room} left for it; use shorter paths"
    )]
    NoRoom {
        /// How long the locator is, in bytes.
        wanted: u64,
        /// How long it could be.
        room: u64,
    },
    /// The link cannot be written down.
    #[error("the image cannot be linked to this parent")]
    Link(#[source] NewImageError),
    /// The file's structures cannot be read.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The disk or its file cannot be read or written.
    #[error(transparent)]
    Block(#[from] BlockError),
}

impl EditError {
    /// An error of the file itself, on an image with a disk of `size` bytes.
    pub(crate) fn of_storage(error: StorageError, size: ByteLength) -> Self {
        Self::of_resolving(error.into(), size)
    }

    /// As [`of_storage`](Self::of_storage), where tables were looked at, too.
    pub(crate) fn of_resolving(error: ResolveError, size: ByteLength) -> Self {
        let all = ByteRange::new(ByteOffset::ZERO, size);
        Self::Block(all.map_or(BlockError::Closed, |range| error.on(range)))
    }
}

impl MutableImage {
    /// Gives the disk another size, and closes the image. What a disk gains reads as zeros. What it loses must read as
    /// zeros: nothing is thrown away. Of a differencing image the parent keeps its size.
    ///
    /// # Errors
    /// [`EditError`]; the size is then as it was, and the disk holds all that was written.
    pub fn resize(self, size: ByteLength) -> Result<(), EditError> {
        if size == self.geometry().size {
            return Ok(self.close()?);
        }
        if let Some(refusal) = self.refusal_of(size)? {
            self.close()?;
            return Err(refusal);
        }
        self.writer.flush()?;
        self.writer.resize(size)?;
        Ok(self.close()?)
    }

    /// Why the disk cannot have this size, if it cannot.
    fn refusal_of(&self, size: ByteLength) -> Result<Option<EditError>, BlockError> {
        let geometry = self.geometry();
        let unit = geometry.logical_block.bytes();
        if size == ByteLength::ZERO || !size.get().is_multiple_of(unit) {
            let reason = format!("it is made of whole blocks of {unit} bytes, one at least");
            return Ok(Some(EditError::Size { size, reason, rule: "the disk's logical block size" }));
        }
        let in_use = first_in_use(&*self.writer, size, geometry.size)?;
        Ok(in_use.map(|at| EditError::TailInUse { at }))
    }

    /// Writes down where the parent of a differencing image lies now and what it is recognised by, and closes the
    /// image. The disk's contents are not touched: whether that parent holds what this image was made on is for the
    /// caller to know.
    ///
    /// # Errors
    /// [`EditError`]; the link is then as it was, and the disk holds all that was written.
    pub fn relink(self, link: &ParentLink) -> Result<(), EditError> {
        self.writer.flush()?;
        self.writer.relink(link)?;
        Ok(self.close()?)
    }
}

/// Where from `from` to `end` something is stored that is not zeros.
fn first_in_use(
    writer: &dyn Writer,
    from: ByteLength,
    end: ByteLength,
) -> Result<Option<ByteOffset>, BlockError> {
    let mut at = from.get();
    let mut buffer = vec![0; usize::try_from(WINDOW_BYTES).unwrap_or_default()];
    while at < end.get() {
        let left = ByteLength::new(end.get().saturating_sub(at));
        let Some(range) = ByteRange::new(ByteOffset::new(at), left) else { break };
        let (allocation, length) = writer.allocation(range, Patience::Blocking)?;
        if allocation != Allocation::Data {
            at = at.saturating_add(length.get());
            continue;
        }
        let length = ByteLength::new(length.get().min(WINDOW_BYTES));
        let bytes = buffer.get_mut(..length.in_memory().unwrap_or_default()).unwrap_or_default();
        let window = ByteRange::new(range.start(), length).unwrap_or(range);
        writer.read(window, bytes, Patience::Blocking)?;
        if bytes.iter().any(|&byte| byte != 0) {
            return Ok(Some(range.start()));
        }
        at = at.saturating_add(length.get());
    }
    Ok(None)
}
