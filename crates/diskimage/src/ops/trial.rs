//! What can be done between two files, found out by doing it.
//!
//! Whether extents of a source can be shared with a target depends on the file system, on how it was made, on mount
//! points and subvolumes, on attributes of either file. The type of the file system tells little of that, so each
//! pair is tried once, with a scratch file without a name beside the target.
//!
//! Sharing has a system call of its own (`FICLONERANGE`), and is also the first thing that `copy_file_range` tries,
//! on every kernel that has it (4.5 and newer), wherever both places and the length are whole blocks of the file
//! system. Here the latter is used: it is the one that can be called without unsafe code. What it does not tell is
//! *whether* it shared; the trial does, by cloning one scratch file (`FICLONE`).
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

/// The unit of the trial where the file system does not name a larger one: the smallest in which any shares.
const SMALLEST_UNIT_BYTES: u64 = 4096;
/// File systems name block sizes up to 64 KiB; what lies above is a preferred transfer size (NFS), and no trial is
/// worth copying more.
const LARGEST_UNIT_BYTES: u64 = 1 << 20;

/// The way that payload takes from one file to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// Whole units at multiples of `unit_bytes` can be shared, all else be copied by the kernel.
    Share {
        /// A power of two.
        unit_bytes: u64,
    },
    /// The kernel copies.
    Kernel,
    /// Bytes are read and written.
    ReadWrite,
}

/// Tries sources against one target.
#[derive(Debug)]
pub(super) struct Trials {
    scratch: Option<Scratch>,
}

#[derive(Debug)]
struct Scratch {
    first: File,
    second: File,
    unit_bytes: u64,
}

impl Trials {
    /// Of targets in `directory`. Without one, nothing can be tried and all is read and written.
    pub(super) fn new(directory: Option<&Path>) -> Self {
        Self { scratch: directory.and_then(Scratch::create) }
    }

    /// The way from `source`.
    pub(super) fn route(&self, source: &File) -> Route {
        let Some(scratch) = &self.scratch else { return Route::ReadWrite };
        let unit = usize::try_from(scratch.unit_bytes).unwrap_or_default();
        let (mut from, mut to) = (0, 0);
        let copied =
            rustix::fs::copy_file_range(source, Some(&mut from), &scratch.first, Some(&mut to), unit);
        match copied {
            Err(_) => Route::ReadWrite,
            // Too short a file to share a unit of it.
            Ok(count) if count < unit => Route::Kernel,
            Ok(_) if scratch.shares_with(source) => Route::Share { unit_bytes: scratch.unit_bytes },
            Ok(_) => Route::Kernel,
        }
    }
}

impl Scratch {
    fn create(directory: &Path) -> Option<Self> {
        let create = || {
            let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
            rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR).ok().map(File::from)
        };
        let (first, second) = (create()?, create()?);
        let named = rustix::fs::fstatvfs(&first).ok()?.f_bsize;
        let unit_bytes = match named.is_power_of_two() && named <= LARGEST_UNIT_BYTES {
            true => named.max(SMALLEST_UNIT_BYTES),
            false => SMALLEST_UNIT_BYTES,
        };
        Some(Self { first, second, unit_bytes })
    }

    /// Whether extents of `source`, of which a unit was copied to the first scratch file, can be shared.
    fn shares_with(&self, source: &File) -> bool {
        let device = |file: &File| file.metadata().map(|metadata| metadata.dev()).ok();
        // On one device a clone of the scratch file stands for one of the source, which may be long. Two device
        // numbers may still be one file system (subvolumes); then the source itself is cloned.
        let same = device(source).is_some_and(|number| Some(number) == device(&self.first));
        let cloned = if same { &self.first } else { source };
        rustix::fs::ioctl_ficlone(&self.second, cloned).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_on_another_file_system_is_read_and_written_or_copied_but_never_shared() {
        let directory = tempfile::tempdir().unwrap();
        let trials = Trials::new(Some(directory.path()));
        let source = File::open("/proc/self/exe").unwrap();
        let null = File::open("/dev/null").unwrap();
        assert_eq!(trials.route(&null), Route::ReadWrite);
        let proc = File::open("/proc/self/maps").unwrap();
        assert!(!matches!(trials.route(&proc), Route::Share { .. }));
        assert_eq!(Trials::new(None).route(&source), Route::ReadWrite);
    }

    #[test]
    fn short_source_is_not_shared() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("short");
        std::fs::write(&path, b"short").unwrap();
        let route = Trials::new(Some(directory.path())).route(&File::open(&path).unwrap());
        assert!(!matches!(route, Route::Share { .. }), "{route:?}");
    }
}
