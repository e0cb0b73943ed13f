//! What can go wrong on a block device.
use crate::units::{ByteLength, ByteRange, LogicalBlockSize};

/// Why an operation on a block device failed. Front ends map each kind to their protocol's own (SCSI sense, NBD
/// errno, HTTP status) in one exhaustive `match`.
#[derive(Debug, thiserror::Error)]
pub enum BlockError {
    /// Only with [`Patience::Now`](crate::Patience::Now): this would have to wait. Nothing was changed; the same
    /// call with [`Patience::Blocking`](crate::Patience::Blocking) will do it.
    #[error("this would have to wait for storage")]
    WouldBlock,
    /// The range does not lie inside the device.
    #[error("{range} lies outside the device of {size}")]
    OutOfRange {
        /// What was asked for.
        range: ByteRange,
        /// The size of the device.
        size: ByteLength,
    },
    /// The range is not made of whole logical blocks.
    #[error("{range} is not made of whole blocks of {} bytes", block_size.bytes())]
    Unaligned {
        /// What was asked for.
        range: ByteRange,
        /// The unit of the device.
        block_size: LogicalBlockSize,
    },
    /// The device takes no writes.
    #[error("the device is read-only")]
    ReadOnly,
    /// There is no room for a write: the write cache has reached its limit, or the disk under it is full.
    #[error("no space left: {what}")]
    NoSpace {
        /// Which limit was met, with its size.
        what: String,
    },
    /// What is stored contradicts itself: an image file is damaged.
    #[error("damaged: {what}")]
    Corrupt {
        /// The rule that is broken, with file and offset.
        what: String,
    },
    /// The device has been closed while the operation was waiting or before it began.
    #[error("the device has been closed")]
    Closed,
    /// The storage below answered with an error.
    #[error("storage failed on {range}")]
    Storage {
        /// The part of the device that was asked for.
        range: ByteRange,
        /// What the operating system said.
        #[source]
        source: std::io::Error,
    },
}
