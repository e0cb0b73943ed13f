//! Why an image is refused, and what is found broken in one that is open.
use std::io;
use std::path::PathBuf;

use block::{BlockError, ByteOffset, ByteRange};

use crate::chain::ChainError;
use crate::format::Format;
use crate::storage::StorageError;

/// A rule of the format that a file breaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{structure} at {at}: {problem} ({rule})")]
pub struct Damage {
    /// The structure that breaks it, as the specification calls it.
    pub structure: &'static str,
    /// Where in the file that structure begins.
    pub at: ByteOffset,
    /// What was found, and what should have been.
    pub problem: String,
    /// Where the rule is written.
    pub rule: &'static str,
}

impl Damage {
    pub(crate) fn new(
        structure: &'static str,
        at: u64,
        rule: &'static str,
        problem: impl Into<String>,
    ) -> Self {
        Self { structure, at: ByteOffset::new(at), problem: problem.into(), rule }
    }
}

/// An image could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("image {} cannot be opened", path.as_ref().map_or("in memory".into(), |path| format!("{path:?}")))]
pub struct OpenError {
    /// The file, where the image was opened by its path.
    pub path: Option<PathBuf>,
    /// Why.
    #[source]
    pub refusal: Refusal,
}

/// Why an image could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The operating system refused to open the file.
    #[error("the file cannot be opened")]
    Access(#[source] io::Error),
    /// Neither a regular file nor a block device.
    #[error("this is {found}, not a file or block device")]
    NotAFile {
        /// What it is.
        found: &'static str,
    },
    /// The file cannot be read, or ends too soon.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// No format was given, and neither contents nor ending say which it is.
    #[error(
        "the format is not recognised: the file has no signature of VHDX, VHD, qcow2 or VMDK, and its ending does \
         not say that it is raw; give the format if you know it"
    )]
    Unrecognised,
    /// The ending says raw, the contents say something else. Guessing either way could serve the wrong bytes.
    #[error(
        "the ending says that this is a raw image, but its contents look like {contents}; give the format"
    )]
    Ambiguous {
        /// What the contents look like.
        contents: &'static str,
    },
    /// The file begins as an image of one format and ends as a VHD, and its ending names neither. Guessing either way
    /// could serve the wrong bytes.
    #[error("the file begins as a {} image and ends with a VHD footer; give the format", signed.title())]
    TwoFormats {
        /// What it begins as.
        signed: Format,
    },
    /// A format that is known by name only.
    #[error("this is a {name} image, which is not read here; convert it to VHDX first")]
    Foreign {
        /// The format's name.
        name: &'static str,
    },
    /// The format was given, but the file does not carry its signature.
    #[error("this is not a {} image: {problem}", format.title())]
    NotThisFormat {
        /// The format that was given.
        format: Format,
        /// What is missing.
        problem: &'static str,
    },
    /// A sound image with a feature that is not read here.
    #[error("{what} is not supported ({rule})")]
    Unsupported {
        /// The feature, with its values.
        what: String,
        /// Where the feature is written.
        rule: &'static str,
    },
    /// An image that is to be changed, or to have a child, in a format that is only read here.
    #[error("{} images are read, not written; convert the image to VHDX", format.title())]
    OnlyRead {
        /// The format.
        format: Format,
    },
    /// The file breaks a rule of its format.
    #[error("the image is damaged: {0}")]
    Damaged(Damage),
    /// A differencing image and its parents do not make a whole.
    #[error(transparent)]
    Chain(Box<ChainError>),
    /// Another image has this one as its parent: a change would break that one.
    #[error("{child:?} has this image as its parent, so it must not change; write into a new child instead")]
    HasChild {
        /// The other image.
        child: PathBuf,
    },
    /// Somebody else is changing the file.
    #[error("another process is changing this image, or a server serves it; wait for it, or end it")]
    InUse,
    /// The file carries the mark of an image in the making.
    #[error(
        "the image is incomplete: its making was interrupted; delete the file, and make the image again from its source"
    )]
    Incomplete,
    /// The image names another file that is part of it, and that name is not followed.
    #[error("the image names the file {name:?}: {problem}")]
    Beside {
        /// The name, as far as it can be shown.
        name: String,
        /// Why not.
        problem: &'static str,
    },
    /// The operating system refused to open a file that is part of the image.
    #[error("the file {name:?}, which is part of the image and must lie beside it, cannot be opened")]
    BesideAccess {
        /// The name, as far as it can be shown.
        name: String,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// There is no block in it.
    #[error("the disk is empty: it has no block")]
    Empty,
}

impl Refusal {
    pub(crate) fn unsupported(rule: &'static str, what: impl Into<String>) -> Self {
        Self::Unsupported { what: what.into(), rule }
    }

    pub(crate) fn about(self, path: Option<PathBuf>) -> OpenError {
        OpenError { path, refusal: self }
    }
}

/// What can go wrong when a range of an open image is resolved.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResolveError {
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error(transparent)]
    Damaged(#[from] Damage),
}

impl From<Damage> for Refusal {
    fn from(damage: Damage) -> Self {
        Self::Damaged(damage)
    }
}

impl From<ChainError> for Refusal {
    fn from(error: ChainError) -> Self {
        Self::Chain(Box::new(error))
    }
}

impl From<ResolveError> for Refusal {
    fn from(error: ResolveError) -> Self {
        match error {
            ResolveError::Storage(error) => Self::Storage(error),
            ResolveError::Damaged(damage) => Self::Damaged(damage),
        }
    }
}

impl ResolveError {
    /// As the block contract says it, of an operation on `range` of the device.
    pub(crate) fn on(self, range: ByteRange) -> BlockError {
        match self {
            Self::Damaged(damage) => BlockError::Corrupt { what: damage.to_string() },
            Self::Storage(StorageError::WouldBlock) => BlockError::WouldBlock,
            Self::Storage(error @ StorageError::EndOfFile { .. }) => {
                BlockError::Corrupt { what: error.to_string() }
            }
            Self::Storage(StorageError::Write { at, source }) if is_no_space(&source) => {
                BlockError::NoSpace {
                    what: format!("the image file cannot grow or be filled at {at} ({source})"),
                }
            }
            Self::Storage(StorageError::Io { source, .. } | StorageError::Write { source, .. }) => {
                BlockError::Storage { range, source }
            }
        }
    }
}

/// Whether the file system has no room for a write: it is full, the quota is, or the file is as large as it can be.
fn is_no_space(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), FileTooLarge | QuotaExceeded | StorageFull)
}
