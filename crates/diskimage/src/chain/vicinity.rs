//! Whom an image that is to be changed may be the parent of, where nobody says which store it lies in.
//!
//! Children lie as a rule beside their parent or below its folder: that is the store that is taken to be around it. But
//! a child may also lie in a folder beside (`golden/base.vhdx`, `versions/1.avhdx`), and then the whole store is the
//! folder above. So that is looked through, too, with what lies right in the folders beside. Up there are other people's
//! files: copies of the store, whose children carry the same identifiers; what may not be read; anything in any number.
//! Hence only a child counts there that leads to *this very file*, and what cannot be read is passed over. Children that
//! lie elsewhere cannot be found.
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::scan::relations;
use super::{ChainError, ParentReference, Store};
use crate::format::Format;
use crate::guid::Guid;
use crate::mutable::Children;

/// How many entries the folder above and those beside may have together; the others are not looked at.
const MAX_ENTRIES: usize = 4096;

/// The store around an image, and what lies near it.
#[derive(Debug)]
pub struct Vicinity {
    store: Store,
}

impl Vicinity {
    /// Of the file at `path`, its symlinks followed.
    ///
    /// # Errors
    /// [`ChainError::Store`].
    pub fn of(path: &Path) -> Result<Self, ChainError> {
        Ok(Self { store: Store::around(path)? })
    }

    /// The files in the folder above the store, and in those beside it, that may be images in a chain.
    fn files_near(&self) -> impl Iterator<Item = PathBuf> {
        let above = self.store.root().parent().map(Path::to_owned);
        let store = self.store.root().to_owned();
        let beside = above.clone().into_iter().flat_map(|above| entries(&above));
        let beside = beside.filter(|(_, is_folder)| *is_folder).map(|(folder, _)| folder);
        let folders = beside.filter(move |folder| *folder != store);
        let all = above.into_iter().chain(folders).flat_map(|folder| entries(&folder));
        let all = all.take(MAX_ENTRIES).filter(|(_, is_folder)| !is_folder).map(|(file, _)| file);
        all.filter(|file| matches!(Format::of_ending(file), Some(Format::Vhd | Format::Vhdx)))
    }
}

impl Children for Vicinity {
    fn child_of(&self, path: &Path, linkage: Option<Guid>) -> io::Result<Option<PathBuf>> {
        if let Some(child) = self.store.child_of(path, linkage)? {
            return Ok(Some(child));
        }
        let Some(linkage) = linkage else { return Ok(None) };
        let itself = path.canonicalize()?;
        let is_child = |file: &PathBuf| match relations(file) {
            Ok(Some((_, _, Some(parent)))) => parent.accepts(linkage) && leads_to(file, &parent, &itself),
            _ => false,
        };
        Ok(self.files_near().find(is_child))
    }
}

/// Whether the relative path that the image at `child` has for its parent leads to the file `itself`.
fn leads_to(child: &Path, parent: &ParentReference, itself: &Path) -> bool {
    let (Some(folder), Some(said)) = (child.parent(), &parent.relative_path) else { return false };
    folder.join(said.replace('\\', "/")).canonicalize().is_ok_and(|found| found == itself)
}

/// What lies in a folder, and whether it is one itself. Symlinks, and what cannot be read, are left out.
fn entries(folder: &Path) -> Vec<(PathBuf, bool)> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let entries = entries.take(MAX_ENTRIES).filter_map(|entry| {
        let entry = entry.ok()?;
        let kind = entry.file_type().ok()?;
        (kind.is_dir() || kind.is_file()).then(|| (entry.path(), kind.is_dir()))
    });
    entries.collect()
}
