//! What a disk holds to boot from: its partitions, the FAT and ext4 file systems in them, and the entries that its boot
//! loaders would offer; and the bytes of the files that those entries name.
//!
//! With this a server can hand a kernel and an initramfs out of a golden image over HTTP, and the first stage of a boot runs at
//! the network's rate, instead of through firmware that reads the disk piece by piece.
//!
//! ```text
//! survey -> partitions: gpt, mbr          -> filesystem: fat, ext4
//!        -> entries: uki, bls, grub, kernels (which file, which options, which is the default)
//! open   -> the bytes of one of those files, or of a section of one
//! ```
//!
//! Nothing is cached between calls: a survey describes the disk as it was then, which for a published version is for ever. All
//! of it is read-only, and waits for the disk: callers on an event loop give it to a thread of its own.
//!
//! The bytes of a disk are foreign: whoever wrote to the machine's disk chose them. Every count, length, depth and chain has a
//! limit; what is damaged is an error or a note, never a panic.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

mod entries;
mod error;
mod ext4;
mod fat;
mod filesystem;
#[doc(hidden)]
pub mod fuzzing;
mod partitions;
mod window;

use std::sync::Arc;

use block::BlockDevice;

pub use entries::{BootEntry, FileOnDisk, Source};
pub use error::GuestError;
pub use filesystem::{FileSystem, Kind, Name, OpenFile, mount, read_whole};
pub use partitions::{Partition, PartitionNumber, Purpose, Scheme};
pub use window::Window;

use entries::Volume;

/// A partition as a survey describes it.
#[derive(Clone, Debug)]
pub struct PartitionSurvey {
    /// Its number.
    pub number: PartitionNumber,
    /// What it is for.
    pub purpose: Purpose,
    /// Its name in the table; empty where it has none.
    pub name: String,
    /// Its size in bytes.
    pub size: u64,
    /// The kind, UUID and label of its file system; nothing where none is known.
    pub file_system: Option<(&'static str, String, String)>,
}

/// What a disk holds to boot from.
#[derive(Clone, Debug)]
pub struct Survey {
    /// How it is divided.
    pub scheme: Scheme,
    /// Its partitions.
    pub partitions: Vec<PartitionSurvey>,
    /// Its boot entries, at most one of them the default. Those whose files are not there are left out, with a note.
    pub entries: Vec<BootEntry>,
    /// What could not be read, and why.
    pub notes: Vec<String>,
}

/// Looks a disk over.
///
/// # Errors
/// [`GuestError::Device`] where its partition table cannot be read. What is wrong further in is a note.
pub fn survey(device: &Arc<dyn BlockDevice>) -> Result<Survey, GuestError> {
    let (scheme, partitions) = partitions::read(&Window::whole(Arc::clone(device)))?;
    let mut notes = Vec::new();
    let mut volumes = Vec::new();
    let mut described = Vec::new();
    for Partition { number, purpose, name, window } in partitions {
        let system = mount(&window, &number.to_string()).unwrap_or_else(|error| {
            notes.push(error.to_string());
            None
        });
        let file_system = system.as_ref().map(|system| (system.kind(), system.uuid(), system.label()));
        described.push(PartitionSurvey { number, purpose, name, size: window.length(), file_system });
        volumes.extend(system.map(|system| Volume { number, purpose, system }));
    }
    let entries = entries::find(&volumes, &mut notes);
    Ok(Survey { scheme, partitions: described, entries, notes })
}

/// Opens a file that a survey of the same disk named. What is given stays on this thread.
///
/// # Errors
/// Any [`GuestError`].
pub fn open(device: &Arc<dyn BlockDevice>, file: &FileOnDisk) -> Result<Box<dyn OpenFile>, GuestError> {
    let place = file.partition.to_string();
    let no_file_system = || GuestError::NoFileSystem { place: place.clone() };
    let (_, partitions) = partitions::read(&Window::whole(Arc::clone(device)))?;
    let partition = partitions.into_iter().find(|partition| partition.number == file.partition);
    let system = mount(&partition.ok_or_else(no_file_system)?.window, &place)?.ok_or_else(no_file_system)?;
    let whole = system.open(&file.path)?;
    let Some((at, length)) = file.piece else { return Ok(whole) };
    let end = at.saturating_add(length);
    if end > whole.length() {
        return Err(GuestError::Outside { at, end, what: "file", size: whole.length() });
    }
    Ok(Box::new(Piece { whole, at, length }))
}

/// A piece of a file, as a file.
#[derive(Debug)]
struct Piece {
    whole: Box<dyn OpenFile>,
    at: u64,
    length: u64,
}

impl OpenFile for Piece {
    fn length(&self) -> u64 {
        self.length
    }

    fn read_at(&mut self, at: u64, buffer: &mut [u8]) -> Result<(), GuestError> {
        let end = at.saturating_add(u64::try_from(buffer.len()).unwrap_or(u64::MAX));
        if end > self.length {
            return Err(GuestError::Outside { at, end, what: "piece of a file", size: self.length });
        }
        self.whole.read_at(self.at.saturating_add(at), buffer)
    }
}
