//! The cache file: positioned reads and writes, at once or with waiting, and holes.
//!
//! Linux can read from the page cache without waiting on every usual local file system (`preadv2` with
//! `RWF_NOWAIT`). Writing so is known to some (XFS, btrfs) and refused by others (ext4); what a file system refuses
//! once is not asked of it again.
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FallocateFlags, FlockOperation, SeekFrom};
use rustix::io::{Errno, ReadWriteFlags};

/// What became of something that must not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtOnce {
    /// It is done.
    Done,
    /// It would have to wait, and nothing was changed.
    WouldWait,
}

/// A cache file that is open for reading and writing.
#[derive(Debug)]
pub(crate) struct CacheFile {
    file: File,
    reads_at_once: AtomicBool,
    writes_at_once: AtomicBool,
    punches: AtomicBool,
}

impl CacheFile {
    pub(crate) fn new(file: File) -> Self {
        let yes = || AtomicBool::new(true);
        Self { file, reads_at_once: yes(), writes_at_once: yes(), punches: yes() }
    }

    /// Fills `buffer` from `at` on. A file that ends before is an error: its length is set when it is made.
    pub(crate) fn read(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, at)
    }

    /// As [`read`](Self::read), if all of it is in memory.
    pub(crate) fn read_at_once(&self, at: u64, buffer: &mut [u8]) -> io::Result<AtOnce> {
        if !self.reads_at_once.load(Ordering::Relaxed) {
            return Ok(AtOnce::WouldWait);
        }
        let wanted = buffer.len();
        match rustix::io::preadv2(&self.file, &mut [IoSliceMut::new(buffer)], at, ReadWriteFlags::NOWAIT) {
            Ok(count) if count == wanted => Ok(AtOnce::Done),
            // The first pages only, or interrupted: the caller comes again with time.
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(AtOnce::WouldWait),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                self.reads_at_once.store(false, Ordering::Relaxed);
                Ok(AtOnce::WouldWait)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Stores `data` from `at` on.
    pub(crate) fn write(&self, at: u64, data: &[u8]) -> io::Result<()> {
        self.file.write_all_at(data, at)
    }

    /// As [`write`](Self::write), if that goes without waiting.
    pub(crate) fn write_at_once(&self, at: u64, data: &[u8]) -> io::Result<AtOnce> {
        if !self.writes_at_once.load(Ordering::Relaxed) {
            return Ok(AtOnce::WouldWait);
        }
        match rustix::io::pwritev2(&self.file, &[IoSlice::new(data)], at, ReadWriteFlags::NOWAIT) {
            Ok(0) | Err(Errno::AGAIN | Errno::INTR) => Ok(AtOnce::WouldWait),
            // Begun is begun: "would wait" means that nothing was changed, so the rest is written with waiting. This
            // is rare, and bounded by one write to the page cache.
            Ok(count) => {
                let rest = data.get(count..).unwrap_or_default();
                self.write(at.saturating_add(count as u64), rest).map(|()| AtOnce::Done)
            }
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                self.writes_at_once.store(false, Ordering::Relaxed);
                Ok(AtOnce::WouldWait)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Stores three pieces one behind the other, as a rule in one system call.
    pub(crate) fn write_pieces(&self, at: u64, pieces: [&[u8]; 3]) -> io::Result<()> {
        let slices = pieces.map(IoSlice::new);
        let mut written = match rustix::io::pwritev(&self.file, &slices, at) {
            Ok(count) => count,
            Err(Errno::INTR) => 0,
            Err(error) => return Err(error.into()),
        };
        let mut place = at;
        for piece in pieces {
            let done = written.min(piece.len());
            written = written.saturating_sub(done);
            self.write(place.saturating_add(done as u64), piece.get(done..).unwrap_or_default())?;
            place = place.saturating_add(piece.len() as u64);
        }
        Ok(())
    }

    /// Makes the bytes read as zeros and gives their space back; `false` where the file system cannot, and nothing
    /// was changed.
    pub(crate) fn punch(&self, at: u64, length: u64) -> io::Result<bool> {
        if length == 0 {
            return Ok(true);
        }
        if !self.punches.load(Ordering::Relaxed) {
            return Ok(false);
        }
        loop {
            let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            match rustix::fs::fallocate(&self.file, how, at, length) {
                Ok(()) => return Ok(true),
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                    self.punches.store(false, Ordering::Relaxed);
                    return Ok(false);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The next stretch from `at` on that may hold anything but zeros, as start and end; `None` where none comes.
    pub(crate) fn next_data(&self, at: u64) -> io::Result<Option<(u64, u64)>> {
        let start = match rustix::fs::seek(&self.file, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(None),
            // A file system that keeps no account of holes: all is data.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => {
                return Ok(Some((at, self.length()?)).filter(|d| d.0 < d.1));
            }
            Err(error) => return Err(error.into()),
        };
        Ok(Some((start, rustix::fs::seek(&self.file, SeekFrom::Hole(start))?)))
    }

    pub(crate) fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    pub(crate) fn set_length(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }

    /// Device and inode: what tells files apart.
    pub(crate) fn inode(&self) -> io::Result<(u64, u64)> {
        let metadata = self.file.metadata()?;
        Ok((std::os::unix::fs::MetadataExt::dev(&metadata), std::os::unix::fs::MetadataExt::ino(&metadata)))
    }

    /// Waits until all that was written lies on stable storage.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    /// Takes the file for this opening of it alone; `false` where another one has it. The system lets go of it when
    /// the file is closed, so also when the process dies.
    pub(crate) fn lock(&self) -> io::Result<bool> {
        match rustix::fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Lets go of the file.
    pub(crate) fn unlock(&self) -> io::Result<()> {
        Ok(rustix::fs::flock(&self.file, FlockOperation::Unlock)?)
    }
}

/// Whether an error says that there is no room left.
pub(crate) fn is_out_of_space(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
