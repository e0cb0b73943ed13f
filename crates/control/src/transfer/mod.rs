//! Versions of a vDisk in a folder of their own, with a manifest: for another farm, another store, or the shelf.
//!
//! An export copies the files of a chain and writes down what each is and what it holds (SHA-256); its folder gets its
//! name when all of it is there. An import reads that, copies into the store under a name that nothing else has, compares
//! every byte with the manifest, and makes the vDisk in the transaction in which the files get their names. Files keep
//! their names all the way: a difference finds its parent by it. Where the vDisk is there already, it gets the versions
//! that it lacks (`addition`).
mod addition;
mod copy;
mod export;
mod import;
mod manifest;

use std::path::{Path, PathBuf};

use farm::catalogue::Reader;
use farm::model::{
    AccessMode, Description, FileName, ObjectKind, Store, StoreId, Stored, Task, Vdisk, VdiskId, VdiskName,
    VersionNumber,
};
use farm::rules::permission::{Action, Place};

pub(crate) use export::Export;
pub(crate) use import::Import;
pub use manifest::{MANIFEST, Manifest, ManifestVersion};

use addition::addition;

use crate::caller::Caller;
use crate::error::{Code, ControlError};
use crate::places::{called, changeable, is_free, reachable, store_folder};
use crate::tasks::{Begun, Job, record};
use crate::whole::Control;

/// Begins to export a version with what it stands on, or where none is named all published versions of a vDisk, into a
/// new folder: a name in the folder for exchange, or of root itself a whole path.
///
/// # Errors
/// What the rules say; [`Code::Conflict`] where the folder is there; [`Code::Denied`].
pub fn export(
    control: &Control,
    by: &Caller,
    vdisk: VdiskId,
    version: Option<VersionNumber>,
    folder: &str,
) -> Result<Stored<Task>, ControlError> {
    let folder = exchange(control, by, folder)?;
    if folder.symlink_metadata().is_ok() {
        let why = format!("{} is there already", folder.display());
        return Err(ControlError::new(Code::Conflict, why).hint("name a folder that is not"));
    }
    let task = control.change(by, |change| {
        let of = changeable(change, by, vdisk)?;
        let versions = export::chosen(&of, &change.versions(vdisk)?, version)?;
        let versions = versions.iter().map(|version| version.id).collect();
        let job = Job::Export(Export { vdisk, versions, folder: folder.clone() });
        record(change, control, by, job, Some(vdisk), Begun::Later)
    })?;
    control.board().wake();
    Ok(task)
}

/// What an import makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Importing {
    /// The vDisk's name; `None`: the one that it had.
    pub name: Option<VdiskName>,
    /// How devices use it.
    pub mode: AccessMode,
    /// What is written about it; `None`: what was.
    pub description: Option<Description>,
    /// Whether its versions are for test devices at first, whatever they were.
    pub in_test: bool,
}

/// Reads the manifest of an export.
///
/// # Errors
/// [`Code::BadValue`] with what is wrong in it, [`Code::FileFailed`] where there is none.
pub fn look(control: &Control, by: &Caller, folder: &str) -> Result<Manifest, ControlError> {
    by.may(Action::Change, ObjectKind::Vdisk, Place::Farm)?;
    Manifest::read(&exchange(control, by, folder)?)
}

/// Begins to import what [`export`] made into a store.
///
/// # Errors
/// [`Code::BadValue`] of a manifest that breaks a rule, [`Code::Conflict`] of a name or a file that is taken, and
/// [`Code::Denied`].
pub fn import(
    control: &Control,
    by: &Caller,
    store: StoreId,
    folder: &str,
    what: &Importing,
) -> Result<Stored<Task>, ControlError> {
    let from = exchange(control, by, folder)?;
    let manifest = Manifest::read(&from)?;
    let name = what.name.clone().unwrap_or_else(|| manifest.vdisk.clone());
    let description = what.description.clone().unwrap_or_else(|| manifest.description.clone());
    let task = control.change(by, |change| {
        let of: Stored<Store> = change.get(store)?;
        by.may(Action::Change, ObjectKind::Vdisk, Place::of_site(of.site))?;
        let folder = store_folder(change, control.server(), &of)?;
        reachable(&folder)?;
        let into = existing(change, store, &name)?;
        let new = match into {
            None => manifest.versions.iter().collect(),
            Some(vdisk) => {
                let vdisk = changeable(change, by, vdisk)?;
                let present = change.versions(vdisk.id)?;
                let added = addition(&manifest, &present);
                let there = format!("vDisk \"{}\" is there already", vdisk.name);
                let new = added.map_err(|error| error.about(there))?.new;
                if vdisk.mode == AccessMode::Private {
                    return Err(farm::rules::Refusal::Private.into());
                }
                new
            }
        };
        for version in new {
            let path = folder.join(version.file.as_str());
            is_free(&path).map_err(|error| owner(change, store, version).unwrap_or(error))?;
        }
        let (from, name, description, mode) = (from.clone(), name.clone(), description.clone(), what.mode);
        let job = Job::Import(Import { store, from, name, description, mode, into, in_test: what.in_test });
        record(change, control, by, job, into, Begun::Later)
    })?;
    control.board().wake();
    Ok(task)
}

/// The vDisk of this name, where the store has one.
fn existing(
    reader: &mut Reader<'_>,
    store: StoreId,
    name: &VdiskName,
) -> Result<Option<VdiskId>, ControlError> {
    match reader.vdisk(store, name) {
        Ok(vdisk) => Ok(Some(vdisk.id)),
        Err(farm::catalogue::CatalogueError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// That a file's name is taken by a version, where it is.
fn owner(reader: &mut Reader<'_>, store: StoreId, version: &ManifestVersion) -> Option<ControlError> {
    for vdisk in reader.all::<Vdisk>().ok()?.into_iter().filter(|vdisk| vdisk.store == store) {
        let versions = reader.versions(vdisk.id).ok()?;
        if let Some(own) = versions.iter().find(|own| own.file.folded() == version.file.folded()) {
            let why = format!("file {:?} is that of {} here", own.file.as_str(), called(&vdisk, own));
            let hint =
                "files keep their names, by which chains are put together: import it into another store";
            return Some(ControlError::new(Code::Conflict, why).hint(hint));
        }
    }
    None
}

/// The folder that a caller names.
fn exchange(control: &Control, by: &Caller, folder: &str) -> Result<PathBuf, ControlError> {
    if folder.starts_with('/') {
        if !by.is_local() {
            let why = "only root on the server itself may name whole paths";
            return Err(ControlError::new(Code::Denied, why).hint("give a name in the folder for exchange"));
        }
        return Ok(PathBuf::from(folder));
    }
    let name = FileName::new(folder).map_err(|bad| ControlError::bad_value("folder", bad))?;
    let Some(exchange) = &control.options().exchange else {
        let why = "this server has no folder for exchange";
        return Err(ControlError::new(Code::Unsupported, why).hint("set one in its configuration"));
    };
    Ok(exchange.join(name.as_str()))
}

/// A folder beside `path` that is a task's own, by its name.
fn own_folder(beside: &Path, task: farm::model::TaskId) -> PathBuf {
    beside.join(format!(".headwater-task-{task}"))
}

/// Removes a folder of ours with all that is in it.
fn remove_folder(folder: &Path) -> Result<(), ControlError> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(ControlError::file(folder, "removed", &error))
        }
        _ => Ok(()),
    }
}

/// Makes lasting what was done in a folder.
fn sync_folder(folder: &Path) -> Result<(), ControlError> {
    let synced = std::fs::File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|error| ControlError::file(folder, "made lasting", &error))
}

/// Renames to a name that nothing has.
fn rename_new(from: &Path, to: &Path) -> Result<(), ControlError> {
    let cwd = rustix::fs::CWD;
    let renamed = rustix::fs::renameat_with(cwd, from, cwd, to, rustix::fs::RenameFlags::NOREPLACE);
    match renamed.map_err(std::io::Error::from) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => is_free(to),
        Err(error) => Err(ControlError::file(to, "given its name", &error)),
        Ok(()) => Ok(()),
    }
}
