//! The commands that touch the medium, carried out on the block device.
//!
//! Every range here was held against the disk when the command was decoded. With [`Patience::Now`] work that takes
//! longer than a moment even in memory is answered with [`Failure::WouldBlock`] before it begins; so is everything
//! for which the device has to wait. The caller then does the same call again, which repeats what was already done:
//! all of these operations have the same effect done twice as once.
//!
//! COMPARE AND WRITE and ORWRITE first look at the medium and then change it. No other change of the unit, by whatever
//! session, falls between the two: see [`Shared::change_medium`].
use std::sync::Arc;

use block::{Allocation, BlockDevice, BlockError, ByteLength, ByteOffset, ByteRange, FileSpan, Patience};

use crate::capacity;
use crate::disk::Disk;
use crate::sense::{AdditionalSense, CheckCondition, SenseKey};
use crate::shared::Shared;
use crate::task::Failure;
use crate::unmap;

/// The largest logical block.
const MAX_BLOCK_BYTES: usize = 4096;
/// What is read, compared or repeated in one go.
const CHUNK_BYTES: usize = 256 << 10;
/// The most bytes that are read, compared or repeated on the thread that received the command.
const MAX_INLINE_BYTES: u64 = 256 << 10;

/// How many runs of one kind GET LBA STATUS joins into its descriptor.
const MAX_JOINED_RUNS: u32 = 256;

/// What to do on the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Read(ByteRange),
    /// WRITE AND VERIFY where it is verified: it must last then, and read back.
    Write {
        range: ByteRange,
        verify: bool,
    },
    /// VERIFY without Data-Out: the medium can be read.
    VerifyMedium(ByteRange),
    /// VERIFY with Data-Out: the medium holds these bytes.
    VerifyData(ByteRange),
    Flush(ByteRange),
    Unmap {
        list_bytes: usize,
    },
    /// `data` says whether the block to repeat comes as Data-Out.
    WriteSame {
        range: ByteRange,
        unmap: bool,
        data: bool,
    },
    /// Writes the second half of the Data-Out where the medium holds the first.
    CompareAndWrite(ByteRange),
    /// ORWRITE: sets the bits that are set in the Data-Out.
    Or(ByteRange),
    /// GET LBA STATUS of the start of this range, which is not empty.
    LbaStatus {
        range: ByteRange,
        reply_bytes: usize,
    },
}

/// A device and what to do on it.
#[derive(Debug)]
pub(crate) struct Medium {
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) disk: Disk,
    pub(crate) shared: Arc<Shared>,
    pub(crate) operation: Operation,
    /// A change must last before it is answered: FUA, or the write cache is switched off.
    pub(crate) lasting: bool,
}

/// Which way a failed operation went, for the sense code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Reading,
    Writing,
}

impl Medium {
    /// Fills `buffer` with the bytes of `range` from `offset` on, and with zeros behind its end.
    pub(crate) fn read_in(
        &self,
        range: ByteRange,
        offset: u64,
        buffer: &mut [u8],
        patience: Patience,
    ) -> Result<(), Failure> {
        let available = range.length().get().saturating_sub(offset);
        let wanted = usize::try_from(available).unwrap_or(usize::MAX).min(buffer.len());
        let Some((wanted, behind)) = buffer.split_at_mut_checked(wanted) else { return Ok(()) };
        behind.fill(0);
        if wanted.is_empty() {
            return Ok(());
        }
        let at = range.start().get().saturating_add(offset);
        self.read(at, wanted, patience)
    }

    /// Reads whatever lies at `at`: whole blocks straight into `buffer`, cut ones by way of a buffer of their own.
    fn read(&self, at: u64, buffer: &mut [u8], patience: Patience) -> Result<(), Failure> {
        let unit = self.disk.block_bytes();
        let head_skip = at.checked_rem(unit).unwrap_or(0);
        let (mut at, mut buffer) = (at, buffer);
        if head_skip != 0 {
            let in_block = usize::try_from(unit.saturating_sub(head_skip)).unwrap_or(0);
            let (head, rest) = buffer.split_at_mut(in_block.min(buffer.len()));
            self.read_part(at, head, patience)?;
            at = at.saturating_add(ByteLength::of(head).get());
            buffer = rest;
        }
        let tail_bytes = ByteLength::of(buffer).get().checked_rem(unit).unwrap_or(0);
        let whole_bytes = buffer.len().saturating_sub(usize::try_from(tail_bytes).unwrap_or(0));
        let (whole, tail) = buffer.split_at_mut(whole_bytes);
        if !whole.is_empty() {
            self.device
                .read(ByteOffset::new(at), whole, patience)
                .map_err(|cause| self.failure(cause, Way::Reading))?;
        }
        if tail.is_empty() {
            return Ok(());
        }
        self.read_part(at.saturating_add(ByteLength::of(whole).get()), tail, patience)
    }

    /// Reads a part of one logical block.
    fn read_part(&self, at: u64, part: &mut [u8], patience: Patience) -> Result<(), Failure> {
        let mut bounce = [0; MAX_BLOCK_BYTES];
        let unit = self.disk.block_bytes();
        let skip = at.checked_rem(unit).unwrap_or(0);
        let block = bounce.iter_mut().into_slice().get_mut(..usize::try_from(unit).unwrap_or(0));
        let Some(block) = block else { return Err(internal()) };
        self.device
            .read(ByteOffset::new(at.saturating_sub(skip)), block, patience)
            .map_err(|cause| self.failure(cause, Way::Reading))?;
        let source = block.iter().skip(usize::try_from(skip).unwrap_or(0));
        part.iter_mut().zip(source).for_each(|(target, byte)| *target = *byte);
        Ok(())
    }

    /// Where the bytes of `range` from `offset` on, at most `bytes` of them, lie in a file.
    pub(crate) fn file_span(
        &self,
        range: ByteRange,
        offset: u64,
        bytes: u64,
        patience: Patience,
    ) -> Option<FileSpan> {
        let unit = self.disk.block_bytes();
        let available = range.length().get().saturating_sub(offset).min(bytes);
        let at = ByteOffset::new(range.start().get().saturating_add(offset));
        let range = ByteRange::new(at, ByteLength::new(available))?;
        if range.is_empty() || !range.is_aligned(unit) || !self.shared.has_spans() {
            return None; // A small MaxRecvDataSegmentLength cuts blocks: not worth the trouble.
        }
        self.device.file_span(range, patience)
    }

    /// The answer to GET LBA STATUS: how the start of `range` is stored, in one descriptor.
    pub(crate) fn lba_status(&self, range: ByteRange, patience: Patience) -> Result<Vec<u8>, Failure> {
        let ask = |at: ByteOffset| {
            let rest = range.end().checked_distance(at).and_then(|rest| ByteRange::new(at, rest));
            let Some(rest) = rest else { return Err(internal()) };
            self.device.allocation(rest, patience).map_err(|cause| self.failure(cause, Way::Reading))
        };
        let (first, mut length) = ask(range.start())?;
        for _ in 0..MAX_JOINED_RUNS {
            let Some(next) = range.start().checked_add(length).filter(|next| *next < range.end()) else {
                break;
            };
            let (kind, more) = ask(next)?;
            if (kind == Allocation::Hole) != (first == Allocation::Hole) {
                break;
            }
            length = ByteLength::new(length.get().saturating_add(more.get()));
        }
        // A disk without logical block provisioning has all of its blocks mapped (SBC-3 §4.7.2).
        let hole = first == Allocation::Hole && self.disk.unmap_granularity().is_some();
        Ok(capacity::lba_status(&self.disk, range.start(), length, hole))
    }

    /// Carries out everything but what has Data-In.
    pub(crate) fn run(&self, data_out: &[u8], patience: Patience) -> Result<(), Failure> {
        match self.operation {
            // Their work is done by `read_in`.
            Operation::Read(_) | Operation::LbaStatus { .. } => return Ok(()),
            Operation::VerifyMedium(range) => return self.verify_medium(range, patience),
            Operation::VerifyData(range) => {
                return self.compare(range.start(), part_of(range, data_out), patience);
            }
            Operation::Flush(_) => return self.flush(patience),
            Operation::Write { range, verify } => self.write(range, verify, data_out, patience)?,
            Operation::Unmap { list_bytes } => self.unmap(list_bytes, data_out, patience)?,
            Operation::WriteSame { range, data, .. } => {
                self.write_same(range, data.then_some(data_out), patience)?;
            }
            Operation::CompareAndWrite(range) => self.compare_and_write(range, data_out, patience)?,
            Operation::Or(range) => self.or(range, part_of(range, data_out), patience)?,
        }
        if self.lasting { self.flush(patience) } else { Ok(()) }
    }

    /// Judges an amount of Data-Out. An initiator may announce less than its CDB asks for: then only that much is
    /// moved, as long as it is made of whole blocks (RFC 7143 §11.4.5.1 leaves the rest to SCSI).
    pub(crate) fn check_announced(&self, bytes: u64) -> Result<(), CheckCondition> {
        let block_bytes = self.disk.block_bytes();
        let fits = match self.operation {
            // The number of blocks alone says where the second half begins.
            Operation::CompareAndWrite(range) if bytes != range.length().get().saturating_mul(2) => {
                return Err(CheckCondition::cdb_field(13));
            }
            Operation::Write { range, .. } | Operation::VerifyData(range) | Operation::Or(range) => {
                bytes >= range.length().get() || bytes.is_multiple_of(block_bytes)
            }
            Operation::WriteSame { data, .. } => !data || bytes == block_bytes,
            Operation::CompareAndWrite(_)
            | Operation::Read(_)
            | Operation::LbaStatus { .. }
            | Operation::VerifyMedium(_)
            | Operation::Flush(_)
            | Operation::Unmap { .. } => true,
        };
        // SPC-4 annex D.2, 0Eh/03h: the transport's field says something else than the CDB.
        let wrong = CheckCondition::illegal(AdditionalSense::INVALID_FIELD_IN_INFORMATION_UNIT);
        if fits { Ok(()) } else { Err(wrong) }
    }

    fn write(
        &self,
        range: ByteRange,
        verify: bool,
        data_out: &[u8],
        patience: Patience,
    ) -> Result<(), Failure> {
        let data = part_of(range, data_out);
        if data.is_empty() {
            return Ok(());
        }
        let guard = self.shared.change_medium(false, patience)?;
        self.store(range.start(), data, patience)?;
        drop(guard);
        if !verify {
            return Ok(());
        }
        self.flush(patience)?;
        self.compare(range.start(), data, patience)
    }

    fn store(&self, at: ByteOffset, data: &[u8], patience: Patience) -> Result<(), Failure> {
        self.device.write(at, data, patience).map_err(|cause| self.failure(cause, Way::Writing))
    }

    /// SBC-3 §5.2.
    fn compare_and_write(&self, range: ByteRange, data: &[u8], patience: Patience) -> Result<(), Failure> {
        let bytes = range.length().in_memory().unwrap_or(0);
        let Some((expected, new)) = data.split_at_checked(bytes) else { return Err(internal()) };
        if expected.is_empty() {
            return Ok(());
        }
        let _alone = self.shared.change_medium(true, patience)?;
        self.compare(range.start(), expected, patience)?;
        self.store(range.start(), part_of(range, new), patience)
    }

    /// SBC-3 §5.9.
    fn or(&self, range: ByteRange, data: &[u8], patience: Patience) -> Result<(), Failure> {
        inline(ByteLength::of(data).get(), patience)?;
        if data.is_empty() {
            return Ok(());
        }
        let _alone = self.shared.change_medium(true, patience)?;
        let mut mixed = vec![0; data.len()];
        self.device
            .read(range.start(), &mut mixed, patience)
            .map_err(|cause| self.failure(cause, Way::Reading))?;
        mixed.iter_mut().zip(data).for_each(|(byte, set)| *byte |= set);
        self.store(range.start(), &mixed, patience)
    }

    fn flush(&self, patience: Patience) -> Result<(), Failure> {
        self.device.flush(patience).map_err(|cause| self.failure(cause, Way::Writing))
    }

    fn verify_medium(&self, range: ByteRange, patience: Patience) -> Result<(), Failure> {
        inline(range.length().get(), patience)?;
        let mut scratch = scratch(range.length().get());
        self.for_chunks(range, scratch.len(), |at, bytes| {
            let Some(part) = scratch.get_mut(..bytes) else { return Err(internal()) };
            self.device.read(at, part, patience).map_err(|cause| self.failure(cause, Way::Reading))
        })
    }

    /// Compares the medium from `start` on with `expected`, which is made of whole blocks.
    fn compare(&self, start: ByteOffset, expected: &[u8], patience: Patience) -> Result<(), Failure> {
        inline(ByteLength::of(expected).get(), patience)?;
        let mut scratch = scratch(ByteLength::of(expected).get());
        let mut done = 0_u64;
        for chunk in expected.chunks(scratch.len().max(1)) {
            let Some(found) = scratch.get_mut(..chunk.len()) else { return Err(internal()) };
            let at = ByteOffset::new(start.get().saturating_add(done));
            self.device.read(at, found, patience).map_err(|cause| self.failure(cause, Way::Reading))?;
            if found != chunk {
                let equal = found.iter().zip(chunk).take_while(|(a, b)| a == b).count();
                // SBC-3 §5.29: INFORMATION is the offset of the first byte that differs.
                let offset = done.saturating_add(u64::try_from(equal).unwrap_or(0));
                let check = CheckCondition::new(SenseKey::Miscompare, AdditionalSense::MISCOMPARE);
                return Err(Failure::Check(check.about(offset)));
            }
            done = done.saturating_add(ByteLength::of(chunk).get());
        }
        Ok(())
    }

    fn unmap(&self, list_bytes: usize, list: &[u8], patience: Patience) -> Result<(), Failure> {
        let ranges = unmap::parse(&self.disk, list_bytes, list).map_err(Failure::Check)?;
        let _guard = self.shared.change_medium(false, patience)?;
        for range in ranges {
            self.device.discard(range, patience).map_err(|cause| self.failure(cause, Way::Writing))?;
        }
        Ok(())
    }

    /// `data` is the block to repeat; `None` stands for zeros (NDOB).
    ///
    /// UNMAP only allows the device to unmap instead of writing, where that reads the same: with zeros (SBC-3
    /// §5.40). Zeroing is what the device does without storing them where it can, so zeros are always zeroed.
    fn write_same(&self, range: ByteRange, data: Option<&[u8]>, patience: Patience) -> Result<(), Failure> {
        let writing = |cause| self.failure(cause, Way::Writing);
        let zeros = data.is_none_or(|block| block.iter().all(|byte| *byte == 0));
        let _guard = self.shared.change_medium(false, patience)?;
        let Some(block) = data.filter(|_| !zeros) else {
            return self.device.write_zeroes(range, patience).map_err(writing);
        };
        inline(range.length().get(), patience)?;
        let chunk_bytes = usize::try_from(range.length().get()).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
        let repeated = block.repeat(chunk_bytes.checked_div(block.len()).unwrap_or(1));
        self.for_chunks(range, repeated.len(), |at, bytes| {
            let Some(part) = repeated.get(..bytes) else { return Err(internal()) };
            self.store(at, part, patience)
        })
    }

    /// Calls `each` with place and length of every piece of `range`, none longer than `chunk_bytes`.
    fn for_chunks(
        &self,
        range: ByteRange,
        chunk_bytes: usize,
        mut each: impl FnMut(ByteOffset, usize) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let end = range.end().get();
        let mut at = range.start().get();
        while at < end {
            let rest = usize::try_from(end.saturating_sub(at)).unwrap_or(usize::MAX);
            let bytes = rest.min(chunk_bytes.max(1));
            each(ByteOffset::new(at), bytes)?;
            at = at.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
        }
        Ok(())
    }

    /// What the initiator is told when the device fails: the one place where that is decided.
    fn failure(&self, cause: BlockError, way: Way) -> Failure {
        let protect = |code| CheckCondition::new(SenseKey::DataProtect, code);
        let medium = |code| CheckCondition::new(SenseKey::MediumError, code);
        let at = |range: &ByteRange| self.disk.lba_of(range.start());
        let check = match &cause {
            BlockError::WouldBlock => return Failure::WouldBlock,
            BlockError::OutOfRange { range, .. } => {
                CheckCondition::illegal(AdditionalSense::LBA_OUT_OF_RANGE).about(at(range))
            }
            // We only ask for whole blocks, so this is our own fault.
            BlockError::Unaligned { range, .. } => {
                CheckCondition::new(SenseKey::HardwareError, AdditionalSense::INTERNAL_FAILURE)
                    .about(at(range))
            }
            BlockError::ReadOnly => protect(AdditionalSense::WRITE_PROTECTED),
            BlockError::NoSpace { .. } => protect(AdditionalSense::SPACE_ALLOCATION_FAILED),
            BlockError::Corrupt { .. } => medium(way.error()),
            BlockError::Closed => {
                CheckCondition::new(SenseKey::NotReady, AdditionalSense::NOT_READY_MANUAL_INTERVENTION)
            }
            BlockError::Storage { range, .. } => medium(way.error()).about(at(range)),
        };
        Failure::Device { check, cause }
    }
}

impl Way {
    const fn error(self) -> AdditionalSense {
        match self {
            Self::Reading => AdditionalSense::UNRECOVERED_READ_ERROR,
            Self::Writing => AdditionalSense::WRITE_ERROR,
        }
    }
}

/// Whether this much work may be done with this patience.
fn inline(bytes: u64, patience: Patience) -> Result<(), Failure> {
    match patience {
        Patience::Now if bytes > MAX_INLINE_BYTES => Err(Failure::WouldBlock),
        Patience::Now | Patience::Blocking => Ok(()),
    }
}

fn scratch(bytes: u64) -> Vec<u8> {
    vec![0; usize::try_from(bytes).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES)]
}

/// As much of `data_out` as belongs to `range`.
fn part_of(range: ByteRange, data_out: &[u8]) -> &[u8] {
    range.length().in_memory().and_then(|bytes| data_out.get(..bytes)).unwrap_or(data_out)
}

/// An invariant of this crate does not hold.
fn internal() -> Failure {
    Failure::Check(CheckCondition::new(SenseKey::HardwareError, AdditionalSense::INTERNAL_FAILURE))
}
