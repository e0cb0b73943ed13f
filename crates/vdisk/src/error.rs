//! Why a write cache could not be opened, read or closed.
use std::io;
use std::path::PathBuf;

use crate::config::BadConfig;
use crate::identity::{BootId, ImageIdentity};

/// An operation of the operating system on a path failed.
#[derive(Debug, thiserror::Error)]
#[error("{action} {} failed", path.display())]
pub struct FileError {
    /// What was tried.
    pub action: &'static str,
    /// On which file or directory.
    pub path: PathBuf,
    /// What the operating system said.
    #[source]
    pub source: io::Error,
}

/// Another opening has the write cache: as a rule another server process.
#[derive(Debug, thiserror::Error)]
#[error("the write cache {} is in use{}", path.display(), holder(*pid))]
pub struct InUse {
    /// The file.
    pub path: PathBuf,
    /// The process that has it (which may be this one), where the file says so.
    pub pid: Option<u32>,
}

fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| {
        format!(" by process {pid}: end that server, or close the volume, first")
    })
}

/// Why a boot could not begin.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] BadConfig),
    /// Another opening has the write cache.
    #[error(transparent)]
    InUse(#[from] InUse),
    /// The device is larger than a write cache can be.
    #[error("a device of {size_bytes} bytes is too large for a write cache")]
    TooLarge {
        /// The size of the device.
        size_bytes: u64,
    },
    /// Of a persistent write cache: it was made on another image, and means nothing on this one.
    #[error(
        "the persistent write cache was made on an image of {stored}, and this one is of {found}: boot the device from \
         that one, or discard the write cache"
    )]
    ImageChanged {
        /// What it was made on.
        stored: ImageIdentity,
        /// What it was opened with.
        found: ImageIdentity,
    },
    /// Of a persistent write cache: the file contradicts itself.
    #[error("the write cache {} is damaged: {what}. Discard it to boot the device with an empty one", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The rule that is broken.
        what: String,
    },
    /// The operating system refused something.
    #[error(transparent)]
    Io(#[from] FileError),
}

/// Why a running boot cannot go on with its write cache. But for [`Config`](Self::Config), [`InUse`](Self::InUse) and
/// [`Io`](Self::Io) the answer stays the same however often it is asked: the device must boot anew.
#[derive(Debug, thiserror::Error)]
pub enum ResumeError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] BadConfig),
    /// There is no write cache.
    #[error("there is no write cache {}", path.display())]
    NoCache {
        /// Where it would be.
        path: PathBuf,
    },
    /// The write cache lay in the memory of a server that has ended.
    #[error(
        "the write cache of device \"{device}\" lay in the memory of the server, which has ended. The device must boot anew"
    )]
    NotKept {
        /// The device.
        device: String,
    },
    /// The write cache belongs to another boot of the device.
    #[error("the write cache is that of boot \"{0}\"")]
    OtherBoot(BootId),
    /// The host crashed or lost power while the write cache was in use: what it holds is not all that was
    /// acknowledged.
    #[error(
        "the write cache {} lost writes: the host went down while it was in use. The device must boot anew",
        path.display()
    )]
    Lost {
        /// The file.
        path: PathBuf,
        /// The boot whose writes are lost.
        boot: BootId,
    },
    /// The image below is not the one that the write cache was made for.
    #[error("the write cache was made for an image of {stored}, and this one is of {found}")]
    ImageChanged {
        /// What it was made for.
        stored: ImageIdentity,
        /// What it was opened with.
        found: ImageIdentity,
    },
    /// The file contradicts itself.
    #[error("the write cache {} is damaged: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The rule that is broken.
        what: String,
    },
    /// Another opening has the write cache.
    #[error(transparent)]
    InUse(#[from] InUse),
    /// The operating system refused something.
    #[error(transparent)]
    Io(#[from] FileError),
}

/// Why the boot that a write cache belongs to cannot be told.
#[derive(Debug, thiserror::Error)]
pub enum StoredBootError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] BadConfig),
    /// The file contradicts itself.
    #[error("the write cache {} is damaged: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The rule that is broken.
        what: String,
    },
    /// The operating system refused something.
    #[error(transparent)]
    Io(#[from] FileError),
}
