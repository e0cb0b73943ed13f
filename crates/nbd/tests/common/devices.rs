//! Devices that behave oddly.
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Condvar, Mutex};

use block::{
    Access, Allocation, BlockDevice, BlockError, ByteLength, ByteOffset, ByteRange, FileSpan, Geometry,
    LogicalBlockSize, Patience,
};

use super::PATIENCE;

/// A device whose operations wait for a gate: never with [`Patience::Now`].
#[derive(Debug)]
pub(crate) struct Gated {
    inner: Arc<dyn BlockDevice>,
    gate: Mutex<Gate>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Gate {
    open: bool,
    waiting: usize,
    /// Of those, writes.
    writes: usize,
}

impl Gated {
    pub(crate) fn closed(inner: Arc<dyn BlockDevice>) -> Arc<Self> {
        Arc::new(Self { inner, gate: Mutex::default(), changed: Condvar::new() })
    }

    pub(crate) fn open(&self) {
        self.gate.lock().unwrap().open = true;
        self.changed.notify_all();
    }

    /// Returns when `count` operations wait at the gate.
    pub(crate) fn wait_for(&self, count: usize) {
        let mut gate = self.gate.lock().unwrap();
        while gate.waiting < count {
            let (next, result) = self.changed.wait_timeout(gate, PATIENCE).unwrap();
            gate = next;
            assert!(!result.timed_out(), "only {} operations came to the gate", gate.waiting);
        }
    }

    /// How many of the operations that wait at the gate are writes.
    pub(crate) fn waiting_writes(&self) -> usize {
        self.gate.lock().unwrap().writes
    }

    fn pass(&self, patience: Patience, is_write: bool) -> Result<(), BlockError> {
        if patience == Patience::Now {
            return Err(BlockError::WouldBlock);
        }
        let mut gate = self.gate.lock().unwrap();
        gate.waiting += 1;
        gate.writes += usize::from(is_write);
        self.changed.notify_all();
        while !gate.open {
            gate = self.changed.wait(gate).unwrap();
        }
        gate.waiting -= 1;
        gate.writes -= usize::from(is_write);
        Ok(())
    }
}

impl BlockDevice for Gated {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn read(&self, at: ByteOffset, buffer: &mut [u8], patience: Patience) -> Result<(), BlockError> {
        self.pass(patience, false)?;
        self.inner.read(at, buffer, patience)
    }

    fn write(&self, at: ByteOffset, data: &[u8], patience: Patience) -> Result<(), BlockError> {
        self.pass(patience, true)?;
        self.inner.write(at, data, patience)
    }

    fn flush(&self, patience: Patience) -> Result<(), BlockError> {
        self.pass(patience, false)?;
        self.inner.flush(patience)
    }

    fn discard(&self, range: ByteRange, patience: Patience) -> Result<(), BlockError> {
        self.pass(patience, false)?;
        self.inner.discard(range, patience)
    }

    fn write_zeroes(&self, range: ByteRange, patience: Patience) -> Result<(), BlockError> {
        self.pass(patience, false)?;
        self.inner.write_zeroes(range, patience)
    }
}

/// A device that knows which of its 16 KiB clusters were ever written, and would block for every third operation
/// and every fiftieth question.
#[derive(Debug)]
pub(crate) struct Sparse {
    inner: Arc<dyn BlockDevice>,
    state: Mutex<SparseState>,
}

#[derive(Debug)]
struct SparseState {
    written: Vec<bool>,
    calls: u64,
    questions: u64,
}

/// The unit of [`Sparse`].
pub(crate) const CLUSTER: u64 = 16384;

impl Sparse {
    pub(crate) fn new(inner: Arc<dyn BlockDevice>) -> Arc<Self> {
        let clusters = inner.geometry().size.get().div_ceil(CLUSTER) as usize;
        Arc::new(Self {
            inner,
            state: Mutex::new(SparseState { written: vec![false; clusters], calls: 0, questions: 0 }),
        })
    }

    fn call(&self, patience: Patience) -> Result<(), BlockError> {
        let mut state = self.state.lock().unwrap();
        state.calls += 1;
        if patience == Patience::Now && state.calls.is_multiple_of(3) {
            Err(BlockError::WouldBlock)
        } else {
            Ok(())
        }
    }

    fn mark(&self, range: ByteRange, as_written: bool) {
        let mut state = self.state.lock().unwrap();
        let (first, last) = if as_written {
            (range.start().get() / CLUSTER, range.end().get().div_ceil(CLUSTER))
        } else {
            (range.start().get().div_ceil(CLUSTER), range.end().get() / CLUSTER)
        };
        for cluster in first..last {
            state.written[cluster as usize] = as_written;
        }
    }
}

impl BlockDevice for Sparse {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn read(&self, at: ByteOffset, buffer: &mut [u8], patience: Patience) -> Result<(), BlockError> {
        self.call(patience)?;
        self.inner.read(at, buffer, patience)
    }

    fn write(&self, at: ByteOffset, data: &[u8], patience: Patience) -> Result<(), BlockError> {
        self.call(patience)?;
        self.inner.write(at, data, patience)?;
        self.mark(ByteRange::new(at, ByteLength::of(data)).unwrap(), true);
        Ok(())
    }

    fn flush(&self, patience: Patience) -> Result<(), BlockError> {
        self.call(patience)?;
        self.inner.flush(patience)
    }

    fn discard(&self, range: ByteRange, patience: Patience) -> Result<(), BlockError> {
        self.write_zeroes(range, patience)
    }

    fn write_zeroes(&self, range: ByteRange, patience: Patience) -> Result<(), BlockError> {
        self.call(patience)?;
        self.inner.write_zeroes(range, patience)?;
        self.mark(range, false);
        Ok(())
    }

    fn allocation(
        &self,
        range: ByteRange,
        patience: Patience,
    ) -> Result<(Allocation, ByteLength), BlockError> {
        let mut state = self.state.lock().unwrap();
        state.questions += 1;
        if patience == Patience::Now && state.questions.is_multiple_of(50) {
            return Err(BlockError::WouldBlock);
        }
        let range = self.geometry().check(range.start(), range.length())?;
        let cluster = range.start().get() / CLUSTER;
        let end = ((cluster + 1) * CLUSTER).min(range.end().get());
        let allocation = if state.written[cluster as usize] { Allocation::Data } else { Allocation::Hole };
        Ok((allocation, ByteLength::new(end - range.start().get())))
    }
}

/// A read-only device that lies in a file backwards, in runs of 192 KiB, of which every third cannot be sent from the file.
#[derive(Debug)]
pub(crate) struct Scattered {
    file: Arc<File>,
    size: u64,
}

const RUN: u64 = 192 * 1024;

impl Scattered {
    /// `contents` is a whole number of runs.
    pub(crate) fn new(contents: &[u8]) -> Arc<Self> {
        let mut file = tempfile::tempfile().unwrap();
        for run in contents.chunks(RUN as usize).rev() {
            file.write_all(run).unwrap();
        }
        Arc::new(Self { file: Arc::new(file), size: contents.len() as u64 })
    }

    /// The place of `at` in the file, and how many bytes lie there in one run.
    fn resolve(&self, at: u64) -> (u64, u64) {
        let (run, within) = (at / RUN, at % RUN);
        (self.size - (run + 1) * RUN + within, RUN - within)
    }
}

impl BlockDevice for Scattered {
    fn geometry(&self) -> Geometry {
        Geometry {
            size: ByteLength::new(self.size),
            logical_block: LogicalBlockSize::B512,
            physical_block: 512,
            discard_granularity: None,
            access: Access::ReadOnly,
        }
    }

    fn read(&self, at: ByteOffset, buffer: &mut [u8], _: Patience) -> Result<(), BlockError> {
        let range = self.geometry().check(at, ByteLength::of(buffer))?;
        let mut rest = buffer;
        let mut place = at.get();
        while !rest.is_empty() {
            let (in_file, run) = self.resolve(place);
            let (piece, behind) = rest.split_at_mut((run as usize).min(rest.len()));
            self.file
                .read_exact_at(piece, in_file)
                .map_err(|source| BlockError::Storage { range, source })?;
            place += piece.len() as u64;
            rest = behind;
        }
        Ok(())
    }

    fn write(&self, _: ByteOffset, _: &[u8], _: Patience) -> Result<(), BlockError> {
        Err(BlockError::ReadOnly)
    }

    fn flush(&self, _: Patience) -> Result<(), BlockError> {
        Ok(())
    }

    fn discard(&self, _: ByteRange, _: Patience) -> Result<(), BlockError> {
        Err(BlockError::ReadOnly)
    }

    fn write_zeroes(&self, _: ByteRange, _: Patience) -> Result<(), BlockError> {
        Err(BlockError::ReadOnly)
    }

    fn file_span(&self, range: ByteRange, _: Patience) -> Option<FileSpan> {
        let (at, run) = self.resolve(range.start().get());
        let length = ByteLength::new(run.min(range.length().get()));
        (range.start().get() / RUN % 3 != 2).then(|| FileSpan {
            file: Arc::clone(&self.file),
            at: ByteOffset::new(at),
            length,
        })
    }
}

/// A read-only device of which nothing is in memory. What is read of it, by whoever may wait, is [`COPIED`]; its file holds
/// something else, so that it shows which way an answer went.
#[derive(Debug)]
pub(crate) struct Cold {
    file: Arc<File>,
    size: u64,
}

/// Every byte of a [`Cold`] device that went through memory.
pub(crate) const COPIED: u8 = 0xEE;

impl Cold {
    pub(crate) fn new(in_file: &[u8]) -> Arc<Self> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(in_file).unwrap();
        Arc::new(Self { file: Arc::new(file), size: in_file.len() as u64 })
    }
}

impl BlockDevice for Cold {
    fn geometry(&self) -> Geometry {
        Geometry {
            size: ByteLength::new(self.size),
            logical_block: LogicalBlockSize::B512,
            physical_block: 512,
            discard_granularity: None,
            access: Access::ReadOnly,
        }
    }

    fn read(&self, _: ByteOffset, buffer: &mut [u8], patience: Patience) -> Result<(), BlockError> {
        if patience == Patience::Now {
            return Err(BlockError::WouldBlock);
        }
        buffer.fill(COPIED);
        Ok(())
    }

    fn write(&self, _: ByteOffset, _: &[u8], _: Patience) -> Result<(), BlockError> {
        Err(BlockError::ReadOnly)
    }

    fn flush(&self, _: Patience) -> Result<(), BlockError> {
        Ok(())
    }

    fn discard(&self, _: ByteRange, _: Patience) -> Result<(), BlockError> {
        Err(BlockError::ReadOnly)
    }

    fn write_zeroes(&self, _: ByteRange, _: Patience) -> Result<(), BlockError> {
        Err(BlockError::ReadOnly)
    }

    fn file_span(&self, range: ByteRange, patience: Patience) -> Option<FileSpan> {
        (patience == Patience::Blocking).then(|| FileSpan {
            file: Arc::clone(&self.file),
            at: range.start(),
            length: range.length(),
        })
    }
}
