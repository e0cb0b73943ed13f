//! File systems, to read: what FAT and ext4 have in common for whoever looks for boot files.
use std::fmt;

use crate::error::GuestError;
use crate::ext4::Ext4;
use crate::fat::Fat;
use crate::window::Window;

/// The most names that a directory may hold to be listed: boot entries and kernels stand in directories of dozens.
pub(crate) const MAX_NAMES: usize = 1 << 14;

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A file, with its length in bytes.
    File(u64),
    /// A directory.
    Directory,
    /// Something else: a device, a socket.
    Other,
}

/// A name in a directory. Symbolic links stand for what they lead to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The last part of the path.
    pub name: String,
    /// What it stands for.
    pub kind: Kind,
}

/// A file that is open. Not shared between threads: each opens its own.
pub trait OpenFile: fmt::Debug {
    /// Its length in bytes.
    fn length(&self) -> u64;

    /// Fills `buffer` with the bytes from `at` on.
    ///
    /// # Errors
    /// [`GuestError::Outside`] past the end; [`GuestError::Device`] and [`GuestError::Damaged`].
    fn read_at(&mut self, at: u64, buffer: &mut [u8]) -> Result<(), GuestError>;
}

/// A file system, mounted to be read. Paths begin with `/`, and their parts are separated by it.
pub trait FileSystem: fmt::Debug {
    /// `FAT` or `ext4`.
    fn kind(&self) -> &'static str;

    /// The identity that `search --fs-uuid` and `root=UUID=` name: `1B2C-3D4E` for FAT, a UUID for ext4.
    fn uuid(&self) -> String;

    /// The label; empty where there is none.
    fn label(&self) -> String;

    /// What a directory holds.
    ///
    /// # Errors
    /// Any [`GuestError`].
    fn list(&self, path: &str) -> Result<Vec<Name>, GuestError>;

    /// Opens a file.
    ///
    /// # Errors
    /// Any [`GuestError`].
    fn open(&self, path: &str) -> Result<Box<dyn OpenFile>, GuestError>;
}

/// Mounts what lies in `window`, which messages call `place`; nothing where no file system is known there.
///
/// # Errors
/// [`GuestError::Device`], and [`GuestError::Damaged`] where there is one that contradicts itself.
pub fn mount(window: &Window, place: &str) -> Result<Option<Box<dyn FileSystem>>, GuestError> {
    if let Some(ext4) = Ext4::mount(window, place)? {
        return Ok(Some(Box::new(ext4)));
    }
    Ok(Fat::mount(window, place)?.map(|fat| Box::new(fat) as Box<dyn FileSystem>))
}

/// Reads a file of at most `limit` bytes whole.
///
/// # Errors
/// Those of [`FileSystem::open`], and [`GuestError::TooLong`].
pub fn read_whole(
    system: &dyn FileSystem,
    place: &str,
    path: &str,
    limit: u64,
) -> Result<Vec<u8>, GuestError> {
    let mut file = system.open(path)?;
    let length = file.length();
    let too_long = || GuestError::TooLong { place: place.to_owned(), path: path.to_owned(), length, limit };
    let mut bytes = vec![0; usize::try_from(length).ok().filter(|_| length <= limit).ok_or_else(too_long)?];
    file.read_at(0, &mut bytes)?;
    Ok(bytes)
}

/// The parts of a path; empty ones and `.` are left out.
pub(crate) fn parts(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !part.is_empty() && *part != ".")
}
