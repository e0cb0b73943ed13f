//! The cache file: positioned reads and writes, at once or with waiting, and holes.
//!
//! Linux can read from the page cache without waiting on every usual local file system (`preadv2` with
//! `RWF_NOWAIT`). Writing so is known to some (XFS, btrfs) and refused by others (ext4); what a file system refuses
//! once is not asked of it again.
use std::fmt;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;
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
    bytes: Arc<dyn Bytes>,
    /// The same as a file of the operating system, for what only those have: answers at once, locks. A simulated one
    /// has none of that.
    system: Option<Arc<File>>,
    /// Whether it lies in memory, so that nothing waits for storage.
    in_memory: bool,
    reads_at_once: AtomicBool,
    writes_at_once: AtomicBool,
    punches: AtomicBool,
}

/// The operations of a file that a write cache is built on. All of them wait.
pub(crate) trait Bytes: fmt::Debug + Send + Sync {
    /// Fills `buffer` from `at` on. A file that ends before is an error.
    fn read(&self, at: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// Stores `data` from `at` on.
    fn write(&self, at: u64, data: &[u8]) -> io::Result<()>;

    /// Makes the bytes read as zeros and gives their space back; `false` where that is not to be had, and nothing was
    /// changed.
    fn punch(&self, at: u64, length: u64) -> io::Result<bool>;

    /// The next stretch from `at` on that may hold anything but zeros, as start and end; `None` where none comes.
    fn next_data(&self, at: u64) -> io::Result<Option<(u64, u64)>>;

    /// How long it is.
    fn length(&self) -> io::Result<u64>;

    /// Makes it `bytes` long.
    fn set_length(&self, bytes: u64) -> io::Result<()>;

    /// Waits until the contents, and what it takes to read them, lie on stable storage.
    fn sync_data(&self) -> io::Result<()>;
}

impl CacheFile {
    pub(crate) fn new(file: File) -> Self {
        let file = Arc::new(file);
        Self { system: Some(Arc::clone(&file)), ..Self::simulated(file) }
    }

    /// A file that is none of the operating system's.
    pub(crate) fn simulated(bytes: Arc<dyn Bytes>) -> Self {
        let yes = || AtomicBool::new(true);
        Self {
            bytes,
            system: None,
            in_memory: false,
            reads_at_once: yes(),
            writes_at_once: yes(),
            punches: yes(),
        }
    }

    /// A file of memory, without a name; gone with the process.
    pub(crate) fn in_memory() -> io::Result<Self> {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let file = File::from(rustix::fs::memfd_create("headwater-write-cache", flags)?);
        Ok(Self { in_memory: true, ..Self::new(file) })
    }

    /// Whether reads and writes never wait for storage.
    pub(crate) fn is_in_memory(&self) -> bool {
        self.in_memory
    }

    /// Fills `buffer` from `at` on. A file that ends before is an error: its length is set when it is made.
    pub(crate) fn read(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.bytes.read(at, buffer)
    }

    /// As [`read`](Self::read), if all of it is in memory.
    pub(crate) fn read_at_once(&self, at: u64, buffer: &mut [u8]) -> io::Result<AtOnce> {
        if self.in_memory {
            return self.read(at, buffer).map(|()| AtOnce::Done);
        }
        let Some(file) = self.system.as_ref().filter(|_| self.reads_at_once.load(Ordering::Relaxed)) else {
            return Ok(AtOnce::WouldWait);
        };
        let wanted = buffer.len();
        match rustix::io::preadv2(file, &mut [IoSliceMut::new(buffer)], at, ReadWriteFlags::NOWAIT) {
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
        self.bytes.write(at, data)
    }

    /// As [`write`](Self::write), if that goes without waiting.
    pub(crate) fn write_at_once(&self, at: u64, data: &[u8]) -> io::Result<AtOnce> {
        if self.in_memory {
            return self.write(at, data).map(|()| AtOnce::Done);
        }
        let Some(file) = self.system.as_ref().filter(|_| self.writes_at_once.load(Ordering::Relaxed)) else {
            return Ok(AtOnce::WouldWait);
        };
        match rustix::io::pwritev2(file, &[IoSlice::new(data)], at, ReadWriteFlags::NOWAIT) {
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
        let mut written = match self.system.as_ref().map(|file| rustix::io::pwritev(file, &slices, at)) {
            Some(Ok(count)) => count,
            None | Some(Err(Errno::INTR)) => 0,
            Some(Err(error)) => return Err(error.into()),
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
        let punched = self.bytes.punch(at, length)?;
        if !punched {
            self.punches.store(false, Ordering::Relaxed);
        }
        Ok(punched)
    }

    /// The next stretch from `at` on that may hold anything but zeros, as start and end; `None` where none comes.
    pub(crate) fn next_data(&self, at: u64) -> io::Result<Option<(u64, u64)>> {
        self.bytes.next_data(at)
    }

    pub(crate) fn length(&self) -> io::Result<u64> {
        self.bytes.length()
    }

    pub(crate) fn set_length(&self, bytes: u64) -> io::Result<()> {
        self.bytes.set_length(bytes)
    }

    /// Device and inode: what tells files apart.
    pub(crate) fn inode(&self) -> io::Result<Option<(u64, u64)>> {
        let metadata = self.system.as_ref().map(|file| file.metadata()).transpose()?;
        Ok(metadata.map(|metadata| (metadata.dev(), metadata.ino())))
    }

    /// Waits until the contents, and what it takes to read them, lie on stable storage.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.bytes.sync_data()
    }

    /// Has what was written and is in memory alone read from the disk when it is needed again. What has still to be written
    /// stays.
    pub(crate) fn forget_pages(&self) {
        if let Some(file) = &self.system {
            // Advice: where it is not taken, there is nothing else to do.
            let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed);
        }
    }

    /// Takes the file for this opening of it alone; `false` where another one has it. The system lets go of it when
    /// the file is closed, so also when the process dies.
    pub(crate) fn lock(&self) -> io::Result<bool> {
        let lock = |file| rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive);
        match self.system.as_ref().map(lock) {
            None | Some(Ok(())) => Ok(true),
            Some(Err(Errno::WOULDBLOCK)) => Ok(false),
            Some(Err(error)) => Err(error.into()),
        }
    }

    /// Lets go of the file.
    pub(crate) fn unlock(&self) -> io::Result<()> {
        match &self.system {
            Some(file) => Ok(rustix::fs::flock(file, FlockOperation::Unlock)?),
            None => Ok(()),
        }
    }
}

impl Bytes for File {
    fn read(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(buffer, at)
    }

    fn write(&self, at: u64, data: &[u8]) -> io::Result<()> {
        self.write_all_at(data, at)
    }

    fn punch(&self, at: u64, length: u64) -> io::Result<bool> {
        loop {
            let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            match rustix::fs::fallocate(self, how, at, length) {
                Ok(()) => return Ok(true),
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn next_data(&self, at: u64) -> io::Result<Option<(u64, u64)>> {
        let start = match rustix::fs::seek(self, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(None),
            // A file system that keeps no account of holes: all is data.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => {
                return Ok(Some((at, self.length()?)).filter(|d| d.0 < d.1));
            }
            Err(error) => return Err(error.into()),
        };
        Ok(Some((start, rustix::fs::seek(self, SeekFrom::Hole(start))?)))
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn set_length(&self, bytes: u64) -> io::Result<()> {
        self.set_len(bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        File::sync_data(self)
    }
}

/// Whether an error says that there is no room left.
pub(crate) fn is_out_of_space(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
