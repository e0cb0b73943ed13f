//! What can go wrong when a disk is looked into.
use block::BlockError;

/// Why something on a disk could not be found or read.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// The disk itself could not be read.
    #[error("the disk cannot be read at byte {at}")]
    Device {
        /// Where, in bytes from the start of the disk.
        at: u64,
        /// Why.
        #[source]
        source: BlockError,
    },
    /// Something points outside what it lies in.
    #[error("bytes {at} to {end} lie outside the {what} of {size} bytes")]
    Outside {
        /// The first byte.
        at: u64,
        /// The byte behind the last.
        end: u64,
        /// What it ought to lie in.
        what: &'static str,
        /// How large that is, in bytes.
        size: u64,
    },
    /// A file system contradicts itself.
    #[error("the {kind} file system of {place} is damaged: {what}")]
    Damaged {
        /// `FAT` or `ext4`.
        kind: &'static str,
        /// Which partition.
        place: String,
        /// The rule that is broken.
        what: String,
    },
    /// There is no such partition, or no file system in it that can be read.
    #[error("{place} holds no file system that can be read (FAT, ext2, ext3 and ext4 can)")]
    NoFileSystem {
        /// Which partition.
        place: String,
    },
    /// There is no such file or directory.
    #[error("there is no {path} in {place}")]
    NotFound {
        /// Which partition.
        place: String,
        /// What was looked for.
        path: String,
    },
    /// It is there, and not a file, or not a directory.
    #[error("{path} in {place} is not a {wanted}")]
    WrongKind {
        /// Which partition.
        place: String,
        /// What was looked for.
        path: String,
        /// `file` or `directory`.
        wanted: &'static str,
    },
    /// A file that is read whole is larger than such files are.
    #[error("{path} in {place} has {length} bytes, more than the {limit} that are read of such a file")]
    TooLong {
        /// Which partition.
        place: String,
        /// The file.
        path: String,
        /// Its length in bytes.
        length: u64,
        /// The limit in bytes.
        limit: u64,
    },
}
