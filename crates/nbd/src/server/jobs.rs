//! What a connection asks of its device, on the spot or on a worker.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use block::{Allocation, BlockDevice, BlockError, ByteLength, ByteOffset, ByteRange, FileSpan, Patience};

use connections::{Pace, Share};

use super::piece::Piece;
use crate::limits::{MAX_ALLOCATION_CALLS, MAX_EXTENTS, PIECE_BYTES};
use crate::wire::{Errno, Extent};

/// One thing to do. All ranges have been checked.
#[derive(Debug)]
pub(super) enum Job {
    Read {
        at: ByteOffset,
        bytes: usize,
        /// The place of the bytes in a file is as good an answer, once they are in memory.
        takes_file: bool,
    },
    Write {
        at: ByteOffset,
        data: Piece,
    },
    Flush,
    Trim(ByteRange),
    /// As cheaply as can be.
    Zero(ByteRange),
    /// So that the range takes space.
    StoreZeroes(ByteRange),
    Cache(ByteRange),
    Status {
        range: ByteRange,
        one: bool,
    },
}

/// What came of a job.
#[derive(Debug)]
pub(super) enum Answer {
    Nothing,
    Bytes(Vec<u8>),
    Span(FileSpan),
    Extents(Vec<Extent>),
}

/// Whose job it was: a slot of the connection's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobFor {
    Read(usize),
    Change(usize),
}

/// A job that comes back from a worker.
pub(super) struct Done {
    pub(super) whose: JobFor,
    pub(super) bytes: u64,
    pub(super) result: Result<Answer, BlockError>,
    /// What was written, for use again; empty of other jobs.
    pub(super) written: Piece,
    /// The memory that it takes is the server's until here.
    pub(super) share: Share,
}

/// What zeros are stored from.
static ZEROES: [u8; PIECE_BYTES] = [0; PIECE_BYTES];

impl Job {
    /// The memory that it takes while it waits and when it comes back. What a worker needs while it is at it, there is
    /// once for each worker.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Read { bytes, .. } => *bytes as u64,
            Self::Write { data, .. } => data.len() as u64,
            Self::Cache(_)
            | Self::Flush
            | Self::Trim(_)
            | Self::Zero(_)
            | Self::StoreZeroes(_)
            | Self::Status { .. } => 0,
        }
    }

    /// What it has written; nothing where it writes nothing.
    pub(super) fn into_written(self) -> Piece {
        if let Self::Write { data, .. } = self { data } else { Piece::default() }
    }

    /// Whether others of its kind may go on beside it.
    pub(super) fn pace(&self) -> Pace {
        if matches!(self, Self::Write { .. }) { Pace::InTurn } else { Pace::Abreast }
    }

    /// Does it. With [`Patience::Now`] one that takes several steps may have done some of them when it would block, and
    /// does them again the next time.
    pub(super) fn run(
        &self,
        device: &Arc<dyn BlockDevice>,
        patience: Patience,
        cancelled: &AtomicBool,
    ) -> Result<Answer, BlockError> {
        match self {
            Self::Read { at, bytes, takes_file } => {
                let mut buffer = vec![0; *bytes];
                device.read(*at, &mut buffer, patience)?;
                let range = ByteRange::new(*at, ByteLength::of(&buffer)).filter(|_| *takes_file);
                // Read they are in memory, and go to the socket from there for less than a copy of them costs.
                let span = range.and_then(|range| device.file_span(range, patience));
                let whole = span.filter(|span| span.length == ByteLength::of(&buffer));
                return Ok(whole.map_or_else(|| Answer::Bytes(buffer), Answer::Span));
            }
            Self::Status { range, one } => {
                return extents(device, *range, *one, patience).map(Answer::Extents);
            }
            Self::Write { at, data } => device.write(*at, data.filled(), patience),
            Self::Flush => device.flush(patience),
            Self::Trim(range) => device.discard(*range, patience),
            Self::Zero(range) => device.write_zeroes(*range, patience),
            Self::StoreZeroes(range) => in_pieces(*range, |piece| {
                let bytes = usize::try_from(piece.length().get()).unwrap_or(PIECE_BYTES);
                device.write(piece.start(), ZEROES.get(..bytes).unwrap_or_default(), patience)
            }),
            Self::Cache(range) => {
                let mut buffer = vec![0; PIECE_BYTES];
                in_pieces(*range, |piece| {
                    if cancelled.load(Ordering::Relaxed) {
                        return Err(BlockError::Closed);
                    }
                    let bytes = usize::try_from(piece.length().get()).unwrap_or(PIECE_BYTES);
                    device.read(piece.start(), buffer.get_mut(..bytes).unwrap_or_default(), patience)
                })
            }
        }
        .map(|()| Answer::Nothing)
    }
}

/// Which errno a failure of the device is told as, and a line for humans.
pub(super) fn errno(error: &BlockError) -> (Errno, &'static str) {
    match error {
        // A device that would block although it may wait breaks its contract.
        BlockError::WouldBlock => (Errno::Io, "storage did not answer"),
        BlockError::OutOfRange { .. } | BlockError::Unaligned { .. } => (Errno::Invalid, "illegal range"),
        BlockError::ReadOnly => (Errno::Permission, "the device is read-only"),
        BlockError::NoSpace { .. } => (Errno::NoSpace, "the write cache is full"),
        BlockError::Corrupt { .. } => (Errno::Io, "the image is damaged"),
        BlockError::Closed => (Errno::Shutdown, "the device has been closed"),
        BlockError::Storage { source, .. } => match source.kind() {
            // proto.md, "Error values": EDQUOT and EFBIG are told as ENOSPC.
            std::io::ErrorKind::StorageFull
            | std::io::ErrorKind::QuotaExceeded
            | std::io::ErrorKind::FileTooLarge => (Errno::NoSpace, "no space left under the device"),
            std::io::ErrorKind::OutOfMemory => (Errno::OutOfMemory, "the server is out of memory"),
            std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
                (Errno::Permission, "the storage under the device takes no writes")
            }
            _ => (Errno::Io, "storage failed"),
        },
    }
}

/// The runs of `range`, neighbours of one kind joined; of one kind alone where `one` is wished. At least one, and fewer
/// than all where that takes long.
fn extents(
    device: &Arc<dyn BlockDevice>,
    range: ByteRange,
    one: bool,
    patience: Patience,
) -> Result<Vec<Extent>, BlockError> {
    let mut extents: Vec<Extent> = Vec::new();
    let mut rest = range;
    for _ in 0..MAX_ALLOCATION_CALLS {
        if rest.is_empty() {
            break;
        }
        let (allocation, length) = match device.allocation(rest, patience) {
            Ok(found) => found,
            // What is known is worth more than an error for the rest; whoever wants that asks again.
            Err(error) if !extents.is_empty() && !matches!(error, BlockError::WouldBlock) => break,
            Err(error) => return Err(error),
        };
        let length = length.get().min(rest.length().get());
        if length == 0 {
            return Err(BlockError::Corrupt { what: format!("a run without length at {}", rest.start()) });
        }
        let (hole, zero) = match allocation {
            Allocation::Data => (false, false),
            Allocation::Zero => (false, true),
            Allocation::Hole => (true, true),
        };
        let full = one || extents.len() >= MAX_EXTENTS;
        match extents.last_mut() {
            Some(last) if (last.hole, last.zero) == (hole, zero) => {
                last.length = last.length.saturating_add(length);
            }
            Some(_) if full => break,
            _ => extents.push(Extent { length, hole, zero }),
        }
        rest = behind(rest, length);
    }
    Ok(extents)
}

/// What is left of `range` behind its first `length` bytes.
fn behind(range: ByteRange, length: u64) -> ByteRange {
    let rest = range.length().get().saturating_sub(length);
    let start = range.start().checked_add(ByteLength::new(length)).unwrap_or(range.end());
    ByteRange::new(start, ByteLength::new(rest)).unwrap_or(range)
}

fn in_pieces(
    range: ByteRange,
    mut each: impl FnMut(ByteRange) -> Result<(), BlockError>,
) -> Result<(), BlockError> {
    let mut rest = range;
    while !rest.is_empty() {
        let length = rest.length().get().min(PIECE_BYTES as u64);
        let piece = ByteRange::new(rest.start(), ByteLength::new(length)).ok_or(BlockError::Closed)?;
        each(piece)?;
        rest = behind(rest, length);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::LogicalBlockSize;

    #[test]
    fn every_kind_of_failure_has_its_errno() {
        let range = ByteRange::new(ByteOffset::ZERO, ByteLength::new(512)).unwrap();
        let size = ByteLength::new(512);
        let storage = |kind: std::io::ErrorKind| BlockError::Storage { range, source: kind.into() };
        let cases = [
            (BlockError::WouldBlock, Errno::Io),
            (BlockError::OutOfRange { range, size }, Errno::Invalid),
            (BlockError::Unaligned { range, block_size: LogicalBlockSize::B512 }, Errno::Invalid),
            (BlockError::ReadOnly, Errno::Permission),
            (BlockError::NoSpace { what: String::new() }, Errno::NoSpace),
            (BlockError::Corrupt { what: String::new() }, Errno::Io),
            (BlockError::Closed, Errno::Shutdown),
            (storage(std::io::ErrorKind::StorageFull), Errno::NoSpace),
            (storage(std::io::ErrorKind::QuotaExceeded), Errno::NoSpace),
            (storage(std::io::ErrorKind::OutOfMemory), Errno::OutOfMemory),
            (storage(std::io::ErrorKind::ReadOnlyFilesystem), Errno::Permission),
            (storage(std::io::ErrorKind::TimedOut), Errno::Io),
        ];
        for (error, expected) in cases {
            assert_eq!(errno(&error).0, expected, "{error}");
        }
    }
}
