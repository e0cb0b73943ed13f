//! A folder in which parents may lie, and out of which nothing leads.
//!
//! A child names its parent in text that anyone may have written. It is taken apart here into names of folders and a
//! file, below the store; a path that is absolute, names a drive or a machine, or climbs out with `..`, leads nowhere.
//! The kernel then opens what is left *beneath* the store (`openat2` with `RESOLVE_BENEATH`), so that no symlink on the
//! way leads out either, whoever changes the folders meanwhile. Kernels and sandboxes without `openat2` get a walk from
//! folder to folder that follows no symlink at all.
//!
//! A parent that is not where `relative_path` says is looked for in the child's own folder, by the file names of the
//! other paths: they come from another machine as a rule, where a store was copied from.
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::error::{FileName, Tried};
use super::{ChainError, FoundParent, ParentReference, ParentResolver};
use crate::storage::{FileStorage, FileStorageError};

/// How much of a path out of a file is shown.
const MAX_SHOWN_CHARS: usize = 128;

/// A store of images: a folder, with the folders in it.
#[derive(Debug)]
pub struct Store {
    /// Without symlinks.
    root: PathBuf,
    folder: OwnedFd,
}

/// A path below the store's root: names that are neither empty nor `.` nor `..`.
type Names<'a> = Vec<&'a str>;

impl Store {
    /// The store in the folder `root`.
    ///
    /// # Errors
    /// [`ChainError::Store`].
    pub fn open(root: &Path) -> Result<Self, ChainError> {
        let open = || {
            let root = root.canonicalize()?;
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let folder = rustix::fs::openat(CWD, &root, flags, Mode::empty())?;
            Ok(Self { root, folder })
        };
        open().map_err(|source| ChainError::Store { path: root.to_owned(), source })
    }

    /// The store in the folder in which the file at `path` lies, its symlinks followed.
    ///
    /// # Errors
    /// [`ChainError::Store`].
    pub fn around(path: &Path) -> Result<Self, ChainError> {
        let real = path.canonicalize();
        let real = real.map_err(|source| ChainError::Store { path: path.to_owned(), source })?;
        Self::open(real.parent().unwrap_or(&real))
    }

    /// The folder, without symlinks.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder of `child`, as seen from the root.
    fn folder_of(&self, child: &Path) -> Result<PathBuf, ChainError> {
        let outside =
            || ChainError::Outside { child: FileName(Some(child.to_owned())), store: self.root.clone() };
        let real =
            child.canonicalize().map_err(|source| ChainError::Store { path: child.to_owned(), source })?;
        let within = real.strip_prefix(&self.root).map_err(|_| outside())?;
        within.parent().map(Path::to_owned).ok_or_else(outside)
    }

    /// Opens the file at `path`, which is relative, beneath the root.
    fn open_file(&self, path: &Path) -> Result<FileStorage, String> {
        let file = match open_beneath(&self.folder, path) {
            // A kernel before 5.6, or a sandbox that knows no better.
            Err(Errno::NOSYS | Errno::PERM) => open_step_by_step(&self.folder, path),
            result => result,
        };
        let file = file.map_err(|errno| match errno {
            Errno::NOENT | Errno::NOTDIR => String::from("is not there"),
            Errno::XDEV | Errno::LOOP => "leads out of the store through a symlink".into(),
            other => format!("cannot be opened: {}", io::Error::from(other)),
        })?;
        FileStorage::of_file(file).map_err(|error| match error {
            FileStorageError::Access(source) => format!("cannot be opened: {source}"),
            FileStorageError::NotAFile { found } => format!("is {found}, not a file"),
        })
    }
}

impl ParentResolver for Store {
    fn resolve(&self, child: Option<&Path>, reference: &ParentReference) -> Result<FoundParent, ChainError> {
        let child = child.ok_or(ChainError::NoStore)?;
        let folder = self.folder_of(child)?;
        let mut tried = Vec::new();
        let mut opened = Vec::new();
        let relative = reference.relative_path.iter().map(|said| (said, true));
        for (said, is_relative) in relative.chain(reference.absolute_paths.iter().map(|said| (said, false))) {
            let names = if is_relative { below(&folder, said) } else { beside(&folder, said) };
            let result = names.map_err(str::to_owned).and_then(|names| {
                let path: PathBuf = names.iter().collect();
                if opened.contains(&path) {
                    return Err("is not there".into());
                }
                opened.push(path.clone());
                self.open_file(&path).map(|storage| (path, storage))
            });
            match result {
                Ok((path, storage)) => {
                    let path = self.root.join(path);
                    // Its own parent is looked for from where it really lies.
                    let path = path.canonicalize().unwrap_or(path);
                    return Ok(FoundParent { path, storage: Box::new(storage) });
                }
                Err(why) => {
                    // Windows keeps the absolute path in two places.
                    let said = shown(said);
                    if !tried.iter().any(|before: &Tried| before.said == said) {
                        tried.push(Tried { said, why });
                    }
                }
            }
        }
        Err(ChainError::NotFound { child: FileName(Some(child.to_owned())), tried })
    }
}

/// The names of the path `said`, which begins in `folder`.
fn below<'a>(folder: &'a Path, said: &'a str) -> Result<Names<'a>, &'static str> {
    if said.starts_with(['/', '\\']) || has_drive(said) {
        return Err("is no relative path");
    }
    let mut names = names_of(folder)?;
    for name in said.split(['/', '\\']) {
        match name {
            "" | "." => {}
            ".." => {
                names.pop().ok_or("leads out of the store")?;
            }
            name => names.push(name),
        }
    }
    checked(names)
}

/// The last name of the path `said`, in `folder`.
fn beside<'a>(folder: &'a Path, said: &'a str) -> Result<Names<'a>, &'static str> {
    let last = said.rsplit(['/', '\\']).next().unwrap_or_default();
    let name = if has_drive(last) { last.get(2..).unwrap_or_default() } else { last };
    if matches!(name, "" | "." | "..") {
        return Err("names no file");
    }
    let mut names = names_of(folder)?;
    names.push(name);
    checked(names)
}

fn names_of(folder: &Path) -> Result<Names<'_>, &'static str> {
    let names = folder.components().map(|component| component.as_os_str().to_str());
    names.collect::<Option<_>>().ok_or("cannot be followed from a folder whose name is no UTF-8")
}

fn checked(names: Names<'_>) -> Result<Names<'_>, &'static str> {
    match names.iter().any(|name| name.contains('\0')) {
        true => Err("has a NUL in it"),
        false if names.is_empty() => Err("names no file"),
        false => Ok(names),
    }
}

fn has_drive(path: &str) -> bool {
    matches!(path.as_bytes(), [letter, b':', ..] if letter.is_ascii_alphabetic())
}

fn shown(said: &str) -> String {
    said.chars().filter(|c| !c.is_control()).take(MAX_SHOWN_CHARS).collect()
}

/// What any file is opened with. A named pipe does not make the opening wait.
const FLAGS: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC).union(OFlags::NOCTTY);

fn open_beneath(folder: &OwnedFd, path: &Path) -> Result<File, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(folder, path, FLAGS, Mode::empty(), resolve).map(File::from)
}

fn open_step_by_step(folder: &OwnedFd, path: &Path) -> Result<File, Errno> {
    let (parent, name) = (path.parent().unwrap_or(Path::new("")), path.file_name().ok_or(Errno::NOENT)?);
    let mut at = folder.try_clone().map_err(|_| Errno::MFILE)?;
    for step in parent.components() {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        at = rustix::fs::openat(at.as_fd(), step.as_os_str(), flags, Mode::empty())?;
    }
    rustix::fs::openat(at.as_fd(), name, FLAGS | OFlags::NOFOLLOW, Mode::empty()).map(File::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_paths_are_taken_apart_below_the_store() {
        let folder = Path::new("win11/versions");
        for (said, expected) in [
            (r".\base.vhdx", Ok("win11/versions/base.vhdx")),
            ("base.vhdx", Ok("win11/versions/base.vhdx")),
            (r"..\base.vhdx", Ok("win11/base.vhdx")),
            ("../../other/./base.vhdx", Ok("other/base.vhdx")),
            (r"a\\b\..\base.vhdx", Ok("win11/versions/a/base.vhdx")),
            (r"..\..\..\base.vhdx", Err("leads out of the store")),
            (r"..\..\..\store\base.vhdx", Err("leads out of the store")),
            (r"..\..", Err("names no file")),
            ("/etc/passwd", Err("is no relative path")),
            (r"\base.vhdx", Err("is no relative path")),
            (r"\\server\share\base.vhdx", Err("is no relative path")),
            (r"\\?\C:\base.vhdx", Err("is no relative path")),
            (r"C:\base.vhdx", Err("is no relative path")),
            ("c:base.vhdx", Err("is no relative path")),
            ("a\0b", Err("has a NUL in it")),
        ] {
            let found = below(folder, said).map(|names| names.join("/"));
            assert_eq!(found, expected.map(str::to_owned), "{said}");
        }
    }

    #[test]
    fn of_absolute_paths_only_the_file_name_counts() {
        for (said, expected) in [
            (r"\\?\Volume{26a21bda-a627-11d7-9931-806e6f6e6963}\x\base.vhdx", Ok("v/base.vhdx")),
            (r"C:\disks\base.vhdx", Ok("v/base.vhdx")),
            ("C:base.vhdx", Ok("v/base.vhdx")),
            ("/srv/base.vhdx", Ok("v/base.vhdx")),
            (r"\\server\share\..", Err("names no file")),
            ("C:", Err("names no file")),
            ("", Err("names no file")),
            (r"C:\a\", Err("names no file")),
        ] {
            let found = beside(Path::new("v"), said).map(|names| names.join("/"));
            assert_eq!(found, expected.map(str::to_owned), "{said}");
        }
    }

    #[test]
    fn no_symlink_leads_out_of_the_store_by_either_way_of_opening() {
        let around = tempfile::tempdir().unwrap();
        let store = around.path().join("store");
        std::fs::create_dir_all(store.join("inner")).unwrap();
        std::fs::write(around.path().join("secret"), b"outside").unwrap();
        std::fs::write(store.join("base"), b"inside").unwrap();
        std::fs::write(store.join("inner/base"), b"inside").unwrap();
        let link = |to: &Path, at: &str| std::os::unix::fs::symlink(to, store.join(at)).unwrap();
        link(&around.path().join("secret"), "absolute");
        link(Path::new("../secret"), "climbing");
        link(around.path(), "folder");
        link(Path::new("/proc/self/cwd"), "magic");
        link(Path::new("round"), "round");
        link(Path::new("inner"), "within");
        let store = Store::open(&store).unwrap();
        let folder = &store.folder;
        for path in ["absolute", "climbing", "folder/secret", "magic/secret", "round"] {
            assert!(open_beneath(folder, Path::new(path)).is_err(), "{path}");
            assert!(open_step_by_step(folder, Path::new(path)).is_err(), "{path}");
            let why = store.open_file(Path::new(path)).unwrap_err();
            assert_eq!(why, "leads out of the store through a symlink", "{path}");
        }
        for path in ["base", "inner/base"] {
            open_step_by_step(folder, Path::new(path)).unwrap();
            store.open_file(Path::new(path)).unwrap();
        }
        // A symlink that stays inside is followed, where the kernel sees to that.
        store.open_file(Path::new("within/base")).unwrap();
        assert!(open_step_by_step(folder, Path::new("within/base")).is_err());
        assert_eq!(store.open_file(Path::new("inner")).unwrap_err(), "is a directory, not a file");
        assert_eq!(store.open_file(Path::new("none")).unwrap_err(), "is not there");
    }
}
