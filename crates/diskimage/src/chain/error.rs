//! Why a chain of images cannot be opened.
use std::fmt;
use std::io;
use std::path::PathBuf;

use block::LogicalBlockSize;

use super::MAX_LAYERS;
use crate::error::Refusal;
use crate::format::Format;
use crate::guid::Guid;

/// A differencing image could not be put together with its parents.
#[derive(Debug, thiserror::Error)]
pub enum ChainError {
    /// The image was opened without a path, and nothing else says where parents are.
    #[error("this is a differencing image, and nothing says where its parent is; open it by its path")]
    NoStore,
    /// The folder in which parents may lie cannot be opened.
    #[error("the folder {path:?}, in which parents are looked for, cannot be opened")]
    Store {
        /// The folder.
        path: PathBuf,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// A file of the chain lies outside the folder in which parents may lie.
    #[error("{child} does not lie in the store {store:?}, so no parent is looked for; move it there")]
    Outside {
        /// The file.
        child: FileName,
        /// The folder.
        store: PathBuf,
    },
    /// No file was found.
    #[error(
        "the parent of {child} is not found: {}; put the parent there, or name its new place with `headwater image \
         rebase`",
        list(tried)
    )]
    NotFound {
        /// The file whose parent it is.
        child: FileName,
        /// What was tried, in this order.
        tried: Vec<Tried>,
    },
    /// The file that was found is another one, or was changed since the child was made.
    #[error(
        "{parent:?} is not the parent that {child} was made from: the child wants {expected}{}, and the file is \
         {found}; it was replaced, or written to since; find the right file, or, if you know that the contents are the \
         same, run `headwater image rebase`",
        or_else(expected2)
    )]
    Linkage {
        /// The file whose parent was looked for.
        child: FileName,
        /// What was found.
        parent: PathBuf,
        /// What the child wants.
        expected: Guid,
        /// What else it would take.
        expected2: Option<Guid>,
        /// What the file that was found is recognised by.
        found: Guid,
    },
    /// A file is among its own parents.
    #[error("{child} names {parent:?} as its parent, which is one of its own children")]
    Cycle {
        /// The file.
        child: FileName,
        /// Its parent, which stands above it in the chain already.
        parent: PathBuf,
    },
    /// More files than a chain may have.
    #[error("the chain has more than {MAX_LAYERS} files; merge some of its versions")]
    TooDeep,
    /// Parent and child are of different formats.
    #[error(
        "{child} is a {} image, but its parent {parent:?} is in another format ({}); convert one of them",
        format.title(),
        found.title()
    )]
    Mixed {
        /// The child.
        child: FileName,
        /// Its format.
        format: Format,
        /// The parent.
        parent: PathBuf,
        /// Its format.
        found: Format,
    },
    /// A qcow2 image has a backing file, and the caller has not said that it may.
    #[error(
        "{child} has the backing file {name:?}, which is followed only where that is asked for (`headwater image \
         convert --allow-backing-file`): nothing in the image tells whether the file is still what it was"
    )]
    Backing {
        /// The image.
        child: FileName,
        /// What it says.
        name: String,
    },
    /// A qcow2 image does not say in which format its backing file is, or names one that is not read.
    #[error(
        "{child} says that its backing file {name:?} is of the format {format:?}, which is not one of raw, vpc, vhdx, \
         qcow2 and vmdk; formats of backing files are not guessed at: name it with `qemu-img rebase -u -F`"
    )]
    BackingFormat {
        /// The image.
        child: FileName,
        /// What it says of the file.
        name: String,
        /// The format, empty where it does not say one.
        format: String,
    },
    /// Parent and child are addressed in different units ([MS-VHDX] §2.6.2.4).
    #[error(
        "{child} has logical sectors of {} bytes, but its parent {parent:?} has {}; they must be the same ([MS-VHDX] \
         §2.6.2.4)", .sectors.bytes(), .found.bytes()
    )]
    SectorSize {
        /// The child.
        child: FileName,
        /// Its logical sectors.
        sectors: LogicalBlockSize,
        /// The parent.
        parent: PathBuf,
        /// Its logical sectors.
        found: LogicalBlockSize,
    },
    /// The parent was found, but cannot be opened.
    #[error("the parent {path:?} cannot be opened: {refusal}")]
    Parent {
        /// The parent.
        path: PathBuf,
        /// Why.
        refusal: Box<Refusal>,
    },
}

/// A file as a message names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileName(pub Option<PathBuf>);

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(path) => write!(f, "{path:?}"),
            None => f.write_str("the image in memory"),
        }
    }
}

/// A place that a child named for its parent, and why it is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tried {
    /// What the file says, shortened to what can be shown.
    pub said: String,
    /// What became of it.
    pub why: String,
}

fn list(tried: &[Tried]) -> String {
    let each = tried.iter().map(|tried| format!("{:?} {}", tried.said, tried.why));
    let all: Vec<String> = each.collect();
    if all.is_empty() { "it names no file".into() } else { all.join(", ") }
}

fn or_else(other: &Option<Guid>) -> String {
    other.map_or(String::new(), |other| format!(" or {other}"))
}
