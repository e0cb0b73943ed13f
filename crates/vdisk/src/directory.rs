//! The directory of the write caches: finding, making, replacing and sweeping files so that no moment of a server's
//! death leaves a half-made file under a final name, and no two openings share one.
//!
//! Every opening holds a lock (`flock`) on its file; the system lets go of it when a process dies. A new write cache is
//! made under a temporary name and renamed into place: it is a new file, so that requests still on their way in an
//! earlier volume of the device cannot touch it. Looking, locking and renaming happen under one short lock of the
//! whole directory, which makes each of these a single step for all servers.
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::config::{HALF_MADE_SUFFIX, WriteCacheConfig};
use crate::error::{FileError, InUse, StoredBootError};
use crate::file::CacheFile;
use crate::header::{Header, HeaderError};
use crate::identity::BootId;
use crate::kind::WriteCacheKind;
use crate::layout::{HEADER_BYTES, Layout};

/// The file whose lock is that of the directory.
const LOCK_NAME: &str = ".write-caches.lock";

/// Only the server may read what devices wrote.
const MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// Why a file's header could not be had.
#[derive(Debug)]
pub(crate) enum ReadHeaderError {
    Damaged(String),
    Io(io::Error),
}

/// Why an existing write cache could not be taken.
#[derive(Debug)]
pub(crate) enum TakeError {
    InUse(InUse),
    Io(FileError),
}

/// Which boot of the device its write cache belongs to; `None` where it has none. Says nothing about whether that
/// boot can be [resumed](crate::Volume::resume).
///
/// # Errors
/// [`StoredBootError`].
pub fn stored_boot(config: &WriteCacheConfig) -> Result<Option<BootId>, StoredBootError> {
    config.check()?;
    if let WriteCacheKind::Memory(_) = config.kind {
        return Ok(None);
    }
    let path = config.path();
    let Some(file) = open(&path, OFlags::RDONLY).map_err(failed("opening", &path))? else { return Ok(None) };
    match read_header(&CacheFile::new(file)) {
        Ok((header, _)) if header.device == config.device => Ok(Some(header.boot)),
        Ok((header, _)) => Err(StoredBootError::Damaged { path, what: other_device(&header) }),
        Err(ReadHeaderError::Damaged(what)) => Err(StoredBootError::Damaged { path, what }),
        Err(ReadHeaderError::Io(source)) => Err(failed("reading", &path)(source).into()),
    }
}

/// Removes what a server that died while it made write caches has left in `directory`, and says which files that
/// were. Write caches in use or resumable are not touched.
///
/// # Errors
/// [`FileError`].
pub fn sweep(directory: &Path) -> Result<Vec<PathBuf>, FileError> {
    let _lock = lock_directory(directory)?;
    let mut removed = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failed("listing", directory))? {
        let entry = entry.map_err(failed("listing", directory))?;
        // Files are made and renamed under the directory's lock: what has the temporary name now, nobody is making.
        let name = entry.file_name();
        let Some(whole) = name.as_encoded_bytes().strip_suffix(HALF_MADE_SUFFIX.as_bytes()) else { continue };
        if whole.ends_with(b".cache") || whole.ends_with(b".persistent") {
            let path = entry.path();
            std::fs::remove_file(&path).map_err(failed("removing", &path))?;
            removed.push(path);
        }
    }
    Ok(removed)
}

/// Opens and locks the device's write cache; `None` where there is none.
pub(crate) fn take(config: &WriteCacheConfig) -> Result<Option<CacheFile>, TakeError> {
    let _lock = lock_directory(&config.directory).map_err(TakeError::Io)?;
    let path = config.path();
    let io = |source| TakeError::Io(failed("opening", &path)(source));
    let Some(file) = open(&path, OFlags::RDWR).map_err(io)? else { return Ok(None) };
    let file = CacheFile::new(file);
    if file.lock().map_err(io)? { Ok(Some(file)) } else { Err(TakeError::InUse(in_use(path, &file))) }
}

/// Makes a fresh file with `header` and puts it in the place of `old`, the write cache that was taken before.
pub(crate) fn replace(
    config: &WriteCacheConfig,
    layout: Layout,
    header: &Header,
    old: Option<&CacheFile>,
) -> Result<CacheFile, TakeError> {
    let _lock = lock_directory(&config.directory).map_err(TakeError::Io)?;
    let (path, half_made) = (config.path(), config.half_made_path());
    let opening = |source| TakeError::Io(failed("opening", &path)(source));
    let making = |source| TakeError::Io(failed("making", &half_made)(source));
    if let Some(file) = open(&path, OFlags::RDONLY).map_err(opening)? {
        let file = CacheFile::new(file);
        let ours = match old {
            Some(old) => old.inode().map_err(opening)? == file.inode().map_err(opening)?,
            None => false,
        };
        if !ours {
            // Another server began a boot of this device since we looked.
            return Err(TakeError::InUse(in_use(path, &file)));
        }
    }
    remove_if_there(&half_made).map_err(making)?;
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::open(&half_made, flags, MODE).map_err(|errno| making(errno.into()))?;
    let file = CacheFile::new(File::from(file));
    let made = file.lock().and_then(|_| {
        file.set_length(layout.file_bytes())?;
        file.write(layout.header_start(), &header.encode())?;
        std::fs::rename(&half_made, &path)
    });
    if let Err(error) = made {
        // The error at hand is the one to tell; what stays behind, a sweep removes.
        let _ = remove_if_there(&half_made);
        return Err(making(error));
    }
    Ok(file)
}

/// Waits until the names in the directory lie on stable storage.
pub(crate) fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Reads the header, and the layout that it speaks of.
pub(crate) fn read_header(file: &CacheFile) -> Result<(Header, Layout), ReadHeaderError> {
    let length = file.length().map_err(ReadHeaderError::Io)?;
    let Some(at) = length.checked_sub(HEADER_BYTES) else {
        return Err(ReadHeaderError::Damaged(format!("the file is only {length} bytes long")));
    };
    let mut bytes = vec![0; usize::try_from(HEADER_BYTES).unwrap_or_default()];
    file.read(at, &mut bytes).map_err(ReadHeaderError::Io)?;
    let damaged = |error: HeaderError| ReadHeaderError::Damaged(error.to_string());
    let header = Header::decode(&bytes).map_err(damaged)?;
    match Layout::new(header.image.size_bytes, header.persistent) {
        Some(layout) if layout.file_bytes() == length => Ok((header, layout)),
        _ => Err(ReadHeaderError::Damaged(format!(
            "the file is {length} bytes long, which does not fit a device of {} bytes",
            header.image.size_bytes
        ))),
    }
}

/// What is wrong with a header that names another device than its file does.
pub(crate) fn other_device(header: &Header) -> String {
    format!("it is the write cache of device \"{}\"", header.device)
}

/// Makes an error of the operating system one that says what was tried where.
pub(crate) fn failed<'a>(action: &'static str, path: &'a Path) -> impl Fn(io::Error) -> FileError + 'a {
    move |source| FileError { action, path: path.to_owned(), source }
}

fn in_use(path: PathBuf, file: &CacheFile) -> InUse {
    InUse { path, pid: read_header(file).ok().map(|(header, _)| header.owner_pid) }
}

fn open(path: &Path, access: OFlags) -> io::Result<Option<File>> {
    match rustix::fs::open(path, access | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK, MODE) {
        Ok(file) => Ok(Some(File::from(file))),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Excludes all other servers from the directory until the file is dropped.
fn lock_directory(directory: &Path) -> Result<File, FileError> {
    let path = directory.join(LOCK_NAME);
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file =
        rustix::fs::open(&path, flags, MODE).map_err(|errno| failed("opening", &path)(errno.into()))?;
    loop {
        match rustix::fs::flock(&file, FlockOperation::LockExclusive) {
            Ok(()) => return Ok(File::from(file)),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(failed("locking", &path)(errno.into())),
        }
    }
}
