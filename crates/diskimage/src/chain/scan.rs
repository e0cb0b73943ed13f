//! Which images a store holds, and which is whose parent.
//!
//! Only the structures are read that tell what an image is recognised by and what it says of its parent; no table, no
//! payload. A child is told by its linkage, not by its paths: it is one wherever its parent was moved to.
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{ChainError, ParentReference, Store};
use crate::error::{OpenError, Refusal};
use crate::format::{self, Format};
use crate::guid::Guid;
use crate::mutable::Children;
use crate::storage::{FileStorage, FileStorageError, Storage, StorageError};
use crate::{vhd, vhdx};

/// How many folders may lie in one another.
const MAX_DEPTH: usize = 16;
/// How many files and folders a store may hold.
const MAX_ENTRIES: usize = 100_000;

/// What a store held when it was looked through.
#[derive(Debug, Default)]
pub struct Scan {
    /// The images, by their paths. Raw images, which know of no others, are not among them.
    pub images: Vec<StoredImage>,
    /// Files that look like images and could not be read.
    pub refused: Vec<OpenError>,
}

/// An image of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredImage {
    /// Where it lies.
    pub path: PathBuf,
    /// The format.
    pub format: Format,
    /// What children recognise it by.
    pub linkage: Guid,
    /// Of a differencing image: what it says of its parent.
    pub parent: Option<ParentReference>,
}

impl Scan {
    /// The images whose parent is recognised by `linkage`.
    pub fn children_of(&self, linkage: Guid) -> impl Iterator<Item = &StoredImage> {
        let names = move |image: &&StoredImage| {
            let parent = image.parent.as_ref();
            parent.is_some_and(|parent| parent.accepts(linkage))
        };
        self.images.iter().filter(names)
    }

    /// The images above the one that is recognised by `linkage`, at any distance, that no image has as its parent: what
    /// a chain can be opened by when only its base is known.
    #[must_use]
    pub fn leaves_above(&self, linkage: Guid) -> Vec<&StoredImage> {
        let mut leaves = Vec::new();
        let mut seen = vec![linkage];
        let mut open = vec![linkage];
        while let Some(parent) = open.pop() {
            for child in self.children_of(parent) {
                if self.children_of(child.linkage).next().is_none() {
                    leaves.push(child);
                } else if !seen.contains(&child.linkage) {
                    seen.push(child.linkage);
                    open.push(child.linkage);
                }
            }
        }
        leaves.sort_by(|one, other| one.path.cmp(&other.path));
        leaves
    }
}

impl Store {
    /// Looks through the store, without following symlinks.
    ///
    /// # Errors
    /// [`ChainError::Store`], for a folder that cannot be read, or more of them than a store may have.
    pub fn scan(&self) -> Result<Scan, ChainError> {
        let mut scan = Scan::default();
        let mut entries = 0_usize;
        let mut folders = vec![(self.root().to_owned(), 0_usize)];
        while let Some((folder, depth)) = folders.pop() {
            let failed = |source| ChainError::Store { path: folder.clone(), source };
            for entry in fs::read_dir(&folder).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                let kind = entry.file_type().map_err(failed)?;
                entries = entries.saturating_add(1);
                if entries > MAX_ENTRIES || depth > MAX_DEPTH {
                    let problem = format!(
                        "a store holds up to {MAX_ENTRIES} files, in folders {MAX_DEPTH} deep; this has more"
                    );
                    return Err(failed(io::Error::other(problem)));
                }
                if kind.is_dir() {
                    folders.push((entry.path(), depth.saturating_add(1)));
                } else if kind.is_file() {
                    scan.look_at(&entry.path());
                }
            }
        }
        scan.images.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(scan)
    }
}

impl Scan {
    fn look_at(&mut self, path: &Path) {
        match relations(path) {
            Ok(Some((format, linkage, parent))) => {
                self.images.push(StoredImage { path: path.to_owned(), format, linkage, parent });
            }
            Ok(None) => {}
            Err(refusal) => self.refused.push(refusal.about(Some(path.to_owned()))),
        }
    }
}

/// Format, linkage and parent of an image that can be in a chain; `None` of other files.
pub(super) fn relations(path: &Path) -> Result<Option<(Format, Guid, Option<ParentReference>)>, Refusal> {
    let storage = FileStorage::open(path).map_err(|error| match error {
        FileStorageError::Access(source) => Refusal::Access(source),
        FileStorageError::NotAFile { found } => Refusal::NotAFile { found },
    })?;
    let storage: Box<dyn Storage> = Box::new(storage);
    match format::probe(&*storage, Format::of_ending(path)) {
        Ok(Format::Vhd) => {
            let (linkage, parent) = vhd::relations(&*storage)?;
            Ok(Some((Format::Vhd, linkage, parent.as_ref().map(ParentReference::of_vhd))))
        }
        Ok(Format::Vhdx) => {
            let (linkage, parent) = vhdx::relations(storage)?;
            Ok(Some((Format::Vhdx, linkage, parent.as_ref().map(ParentReference::of_vhdx))))
        }
        Ok(Format::Raw | Format::Qcow2 | Format::Vmdk) => Ok(None),
        // What could not be read may be anything.
        Err(Refusal::Storage(error)) => Err(Refusal::Storage(error)),
        Err(_) => Ok(None),
    }
}

impl Children for Store {
    /// A file of the store that cannot be read might be a child, and is an error; one that is damaged is none, because
    /// nobody can open it.
    fn child_of(&self, path: &Path, linkage: Option<Guid>) -> io::Result<Option<PathBuf>> {
        let Some(linkage) = linkage else { return Ok(None) };
        let scan = self.scan().map_err(io::Error::other)?;
        let itself = path.canonicalize()?;
        if let Some(child) = scan.children_of(linkage).find(|image| image.path != itself) {
            return Ok(Some(child.path.clone()));
        }
        let unreadable = scan.refused.into_iter().find(|error| {
            matches!(error.refusal, Refusal::Access(_) | Refusal::Storage(StorageError::Io { .. }))
        });
        unreadable.map_or(Ok(None), |error| Err(io::Error::other(error)))
    }
}
