//! Why an operation on whole images failed.
use std::io;
use std::path::PathBuf;

use block::{BlockError, ByteOffset};

use super::mover::MoveError;
use crate::error::OpenError;
use crate::image::Image;
use crate::mutable::EditError;
use crate::new_image::NewImageError;
use crate::storage::StorageError;
use crate::watch::Cancelled;

/// An operation on whole images failed. Its sources are as they were, and of its target nothing is left.
#[derive(Debug, thiserror::Error)]
pub enum OpError {
    /// It was asked to stop.
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
    /// An image cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A source cannot be read.
    #[error("image {path:?} cannot be read")]
    Source {
        /// Its file.
        path: PathBuf,
        /// What reading it said.
        #[source]
        source: BlockError,
    },
    /// A file of a source cannot be read.
    #[error("file {path:?} cannot be read")]
    SourceFile {
        /// The file.
        path: PathBuf,
        /// What reading it said.
        #[source]
        source: StorageError,
    },
    /// The new image cannot be written.
    #[error("image {path:?} cannot be written; nothing is left of it")]
    Target {
        /// What it would have been called.
        path: PathBuf,
        /// What writing it said.
        #[source]
        source: NewImageError,
    },
    /// The new file cannot be made, or not be given its name.
    #[error("file {path:?} cannot be {action}")]
    File {
        /// The file.
        path: PathBuf,
        /// What was tried with it.
        action: &'static str,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// There is something with the target's name, and it is not to be replaced.
    #[error("{path:?} is there already; choose another name, or say that it is to be replaced")]
    Exists {
        /// The target.
        path: PathBuf,
    },
    /// The target is one of the files that are read.
    #[error("{path:?} is a file of the image that is read; choose another name for the new one")]
    IsSource {
        /// The target.
        path: PathBuf,
    },
    /// Another process is making the same target.
    #[error("{path:?} is being made by another process, which holds {partial:?}; wait for it, or end it")]
    Busy {
        /// The target.
        path: PathBuf,
        /// The unfinished file.
        partial: PathBuf,
    },
    /// An image cannot be changed.
    #[error("image {path:?} cannot be changed")]
    Edit {
        /// Its file.
        path: PathBuf,
        /// What changing it said.
        #[source]
        source: EditError,
    },
    /// What was asked for makes no sense with these images.
    #[error("{problem}")]
    Unfit {
        /// Why, and what would.
        problem: String,
    },
    /// The new image does not read as its source. It was thrown away.
    #[error("image {path:?} was written, but reads differently from its source at {at}; it was thrown away")]
    Differs {
        /// What it would have been called.
        path: PathBuf,
        /// The first byte that differs.
        at: ByteOffset,
    },
}

impl OpError {
    pub(super) fn file(path: impl Into<PathBuf>, action: &'static str, source: impl Into<io::Error>) -> Self {
        Self::File { path: path.into(), action, source: source.into() }
    }

    pub(super) fn unfit(problem: impl Into<String>) -> Self {
        Self::Unfit { problem: problem.into() }
    }

    /// Of reading `image`.
    pub(super) fn reading(image: &Image, source: BlockError) -> Self {
        let leaf = image.layers().pop().and_then(|leaf| leaf.path);
        Self::Source { path: leaf.unwrap_or_default(), source }
    }

    /// Of moving payload of `image` to the new image `target`.
    pub(super) fn moving(image: &Image, target: &std::path::Path, error: MoveError) -> Self {
        match error {
            MoveError::Cancelled(cancelled) => Self::Cancelled(cancelled),
            MoveError::Source { layer, source } => {
                let file = image.layers().into_iter().find(|file| file.layer == layer);
                Self::SourceFile { path: file.and_then(|file| file.path).unwrap_or_default(), source }
            }
            MoveError::Image(source) => Self::reading(image, source),
            MoveError::Target(error) => Self::Target { path: target.into(), source: error.into() },
        }
    }
}
