//! Boot entries: what the loaders on a disk would offer, read from the files that they read.
//!
//! Three sources, in the order in which their entries are given: unified kernel images and entry files of the Boot Loader
//! Specification (`uki`, `bls`), then GRUB's menu (`grub`). Where a disk has none of them, kernels that lie in `/boot` with
//! their initramfs are entries too (`kernels`).
mod bls;
mod grub;
mod kernels;
mod uki;
mod version;

use std::fmt;

use crate::error::GuestError;
use crate::filesystem::{FileSystem, Kind, Name};
use crate::partitions::{PartitionNumber, Purpose};

/// The largest text file that is read: menus of GRUB have some ten KiB.
const MAX_TEXT_BYTES: u64 = 1 << 20;
/// The most entries of one disk.
const MAX_ENTRIES: usize = 256;

/// A file of a disk, or a piece of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileOnDisk {
    /// The partition.
    pub partition: PartitionNumber,
    /// The path in its file system.
    pub path: String,
    /// The piece: where it begins in the file, and how long it is, in bytes. The whole file where there is none.
    pub piece: Option<(u64, u64)>,
}

/// Where an entry was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A unified kernel image (Boot Loader Specification, type 2).
    UnifiedKernelImage,
    /// An entry file (Boot Loader Specification, type 1).
    EntryFile,
    /// GRUB's `grub.cfg`.
    Grub,
    /// A kernel in `/boot` that no menu names.
    Kernel,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnifiedKernelImage => "unified kernel image",
            Self::EntryFile => "boot entry file",
            Self::Grub => "grub.cfg",
            Self::Kernel => "kernel in /boot",
        })
    }
}

/// A kernel, what it needs and what it is told: all that a direct kernel boot takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootEntry {
    /// What the loader calls it: the file's name, GRUB's id or, without one, its title. One disk may have several alike.
    pub id: String,
    /// What a menu shows.
    pub title: String,
    /// Where it was found.
    pub source: Source,
    /// The kernel.
    pub kernel: FileOnDisk,
    /// What is loaded with it, in order: microcode, then the initramfs.
    pub initrds: Vec<FileOnDisk>,
    /// The kernel's command line, as the loader would give it.
    pub options: String,
    /// Whether the loader would take it without being asked.
    pub default: bool,
}

/// A partition with a file system, as entries are looked for.
#[derive(Debug)]
pub(crate) struct Volume {
    pub(crate) number: PartitionNumber,
    pub(crate) purpose: Purpose,
    pub(crate) system: Box<dyn FileSystem>,
}

impl Volume {
    fn place(&self) -> String {
        self.number.to_string()
    }

    /// A text file; `None` where there is no such file.
    fn text(&self, path: &str) -> Result<Option<String>, GuestError> {
        match crate::filesystem::read_whole(self.system.as_ref(), &self.place(), path, MAX_TEXT_BYTES) {
            Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
            Err(GuestError::NotFound { .. } | GuestError::WrongKind { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The files of a directory whose names end so, in the order of their names; none where there is no such directory.
    fn files(&self, directory: &str, suffix: &str) -> Result<Vec<Name>, GuestError> {
        let mut names = match self.system.list(directory) {
            Ok(names) => names,
            Err(GuestError::NotFound { .. } | GuestError::WrongKind { .. }) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        names.retain(|name| matches!(name.kind, Kind::File(_)) && name.name.to_lowercase().ends_with(suffix));
        names.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(names)
    }

    fn holds(&self, path: &str) -> bool {
        self.system.open(path).is_ok()
    }

    fn file(&self, path: &str) -> FileOnDisk {
        FileOnDisk { partition: self.number, path: absolute(path), piece: None }
    }
}

/// A path from the root, without empty parts.
fn absolute(path: &str) -> String {
    crate::filesystem::parts(path).fold(String::new(), |whole, part| whole + "/" + part)
}

fn is_there(volumes: &[Volume], file: &FileOnDisk) -> bool {
    volumes.iter().any(|volume| volume.number == file.partition && volume.holds(&file.path))
}

/// The entries of a disk; what could not be read is said in `notes`.
pub(crate) fn find(volumes: &[Volume], notes: &mut Vec<String>) -> Vec<BootEntry> {
    let mut entries = Vec::new();
    let mut take = |found: Result<Vec<BootEntry>, GuestError>| match found {
        Ok(found) => entries.extend(found),
        Err(error) => notes.push(error.to_string()),
    };
    let loader: Vec<&Volume> =
        volumes.iter().filter(|volume| volume.purpose != Purpose::Other || volumes.len() == 1).collect();
    for volume in &loader {
        take(bls::find(volume));
    }
    for volume in volumes {
        if loader.iter().all(|other| other.number != volume.number) {
            take(bls::find(volume));
        }
    }
    for volume in volumes {
        take(grub::find(volume, volumes));
    }
    if entries.is_empty() {
        for volume in volumes {
            match kernels::find(volume) {
                Ok(found) => entries.extend(found),
                Err(error) => notes.push(error.to_string()),
            }
        }
    }
    entries.retain(|entry| {
        let missing =
            std::iter::once(&entry.kernel).chain(&entry.initrds).find(|file| !is_there(volumes, file));
        if let Some(file) = missing {
            let FileOnDisk { partition, path, .. } = file;
            notes.push(format!(
                "{} {:?} names {path} of {partition}, which is not there",
                entry.source, entry.title
            ));
        }
        missing.is_none()
    });
    entries.truncate(MAX_ENTRIES);
    // One default: the first source that names one has it, as its loader comes first.
    let chosen = entries.iter().position(|entry| entry.default).unwrap_or(0);
    for (index, entry) in entries.iter_mut().enumerate() {
        entry.default = index == chosen;
    }
    entries
}
