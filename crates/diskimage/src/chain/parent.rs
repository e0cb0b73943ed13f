//! What a differencing image says of its parent, and who may find it.
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::ChainError;
use crate::guid::Guid;
use crate::storage::Storage;
use crate::{vhd, vhdx};

/// What a differencing image says of its parent, in the words of the file: text of a stranger, in which nothing has
/// been checked but that it is text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParentReference {
    /// What the parent is recognised by: its `DataWriteGuid` ([MS-VHDX] §2.6.2.6.3), its unique identifier (VHD).
    pub linkage: Guid,
    /// Another one that it may have instead, while a merge changes it in place (VHDX).
    pub linkage2: Option<Guid>,
    /// Where the parent lies, seen from the child's folder.
    pub relative_path: Option<String>,
    /// Where it lay on the machine that made the child, in the order in which they are to be tried. Of these only the
    /// file's name is of use here.
    pub absolute_paths: Vec<String>,
}

impl ParentReference {
    pub(crate) fn of_vhdx(locator: &vhdx::Locator) -> Self {
        // [MS-VHDX] §2.6.2.6.3: the order in which paths are tried.
        let absolute = [&locator.volume_path, &locator.absolute_win32_path];
        Self {
            linkage: locator.parent_linkage,
            linkage2: locator.parent_linkage2,
            relative_path: locator.relative_path.clone(),
            absolute_paths: absolute.into_iter().flatten().cloned().collect(),
        }
    }

    pub(crate) fn of_vhd(reference: &vhd::ParentReference) -> Self {
        let name = Some(reference.name.clone()).filter(|name| !name.is_empty());
        Self {
            linkage: reference.unique_id,
            linkage2: None,
            relative_path: reference.relative_path.clone(),
            absolute_paths: reference.absolute_path.clone().into_iter().chain(name).collect(),
        }
    }

    /// Whether a file that is recognised by `linkage` is the parent.
    #[must_use]
    pub fn accepts(&self, linkage: Guid) -> bool {
        self.linkage == linkage || self.linkage2 == Some(linkage)
    }
}

/// Where the parents of a differencing image may lie.
#[derive(Clone, Debug, Default)]
pub enum Parents {
    /// In the folder of the image that is opened, and the folders in it.
    #[default]
    Beside,
    /// In this folder, and the folders in it: the store. The image that is opened must lie there, too.
    In(PathBuf),
    /// Wherever this finds them.
    By(Arc<dyn ParentResolver>),
}

/// Finds parents: the one place where what a file says of another file is followed. Whoever implements it decides how
/// far that may lead; the chain checks that what is found *is* the parent.
pub trait ParentResolver: fmt::Debug + Send + Sync {
    /// Opens the parent of the image at `child` (the path with which the leaf was opened, or that this gave for a
    /// parent; `None` where the leaf was opened without one).
    ///
    /// # Errors
    /// [`ChainError`], as a rule [`ChainError::NotFound`].
    fn resolve(&self, child: Option<&Path>, reference: &ParentReference) -> Result<FoundParent, ChainError>;
}

/// A file that may be a parent.
#[derive(Debug)]
pub struct FoundParent {
    /// Where it lies.
    pub path: PathBuf,
    /// Its bytes.
    pub storage: Box<dyn Storage>,
}
