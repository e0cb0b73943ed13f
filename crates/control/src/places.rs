//! Where the files of versions lie on this server, and who may change them.
use std::path::{Path, PathBuf};

use diskimage::OpenOptions;
use diskimage::chain;
use farm::catalogue::Reader;
use farm::model::{ObjectKind, ServerId, Store, StoreId, Stored, Vdisk, VdiskId, Version};
use farm::rules::permission::{Action, Place};

use crate::caller::Caller;
use crate::error::{Code, ControlError};
use crate::whole::Control;

/// The folder of a store on this server.
pub(crate) fn store_folder(
    reader: &mut Reader<'_>,
    server: ServerId,
    store: &Store,
) -> Result<PathBuf, ControlError> {
    if let Some(path) = store.paths.get(&server) {
        return Ok(PathBuf::from(path.as_str()));
    }
    let server = reader.name_of(server)?;
    let why = format!("store \"{}\" has no path on server \"{server}\"", store.name);
    Err(ControlError::new(Code::StoreUnreachable, why)
        .hint("ask a server that reaches the store, or give the store a path on this one"))
}

/// The folder of a vDisk's store on this server.
pub(crate) fn folder(
    reader: &mut Reader<'_>,
    server: ServerId,
    vdisk: &Vdisk,
) -> Result<PathBuf, ControlError> {
    let store: Stored<Store> = reader.get(vdisk.store)?;
    store_folder(reader, server, &store)
}

/// The folder of a store on this server, for somebody who may put images there.
///
/// # Errors
/// [`Code::StoreUnreachable`], [`Code::Denied`], or the database's.
pub(crate) fn folder_for_images(
    control: &Control,
    by: &Caller,
    store: StoreId,
) -> Result<PathBuf, ControlError> {
    let folder = control.read(|reader| {
        let store: Stored<Store> = reader.get(store)?;
        by.may(Action::Change, ObjectKind::Vdisk, Place::of_site(store.site))?;
        store_folder(reader, control.server(), &store)
    })?;
    reachable(&folder)?;
    Ok(folder)
}

/// Refuses a store whose folder is not there.
pub(crate) fn reachable(folder: &Path) -> Result<(), ControlError> {
    match folder.metadata() {
        Ok(there) if there.is_dir() => Ok(()),
        Ok(_) => Err(unreachable(folder, "it is no folder")),
        Err(error) => Err(unreachable(folder, &error.to_string())),
    }
}

fn unreachable(folder: &Path, why: &str) -> ControlError {
    let what = format!("the store's folder {folder:?} cannot be used: {why}");
    ControlError::new(Code::StoreUnreachable, what).hint("is its file system mounted?")
}

/// Where a vDisk is, as far as rights go.
pub(crate) fn place(reader: &mut Reader<'_>, vdisk: &Vdisk) -> Result<Place, ControlError> {
    let store: Stored<Store> = reader.get(vdisk.store)?;
    Ok(Place::of_site(store.site))
}

/// The vDisk, where the caller may change it and its versions.
pub(crate) fn changeable(
    reader: &mut Reader<'_>,
    by: &Caller,
    vdisk: VdiskId,
) -> Result<Stored<Vdisk>, ControlError> {
    let vdisk = reader.get(vdisk)?;
    by.may(Action::Change, ObjectKind::Version, place(reader, &vdisk)?)?;
    Ok(vdisk)
}

/// How images of a store are opened: parents are found in the store alone.
pub(crate) fn reading(folder: &Path) -> OpenOptions {
    OpenOptions { parents: chain::Parents::In(folder.to_owned()), ..OpenOptions::default() }
}

/// How much room there is in a folder's file system for files of ours, in bytes: free and all.
pub(crate) fn room(folder: &Path) -> Result<(u64, u64), ControlError> {
    let stat = rustix::fs::statvfs(folder).map_err(|error| unreachable(folder, &error.to_string()))?;
    Ok((stat.f_bavail.saturating_mul(stat.f_frsize), stat.f_blocks.saturating_mul(stat.f_frsize)))
}

/// Refuses what needs more room than there is.
pub(crate) fn has_room(folder: &Path, needed: u64) -> Result<(), ControlError> {
    let (free, _) = room(folder)?;
    if needed <= free {
        return Ok(());
    }
    let why = format!("{folder:?} has {free} bytes free, and {needed} are needed");
    Err(ControlError::new(Code::NoSpace, why)
        .hint("delete versions that nothing needs any more, or make room"))
}

/// Refuses a name that a file has already.
pub(crate) fn is_free(path: &Path) -> Result<(), ControlError> {
    if path.symlink_metadata().is_err() {
        return Ok(());
    }
    let why = format!("file {path:?} is there already and belongs to no version");
    Err(ControlError::new(Code::Conflict, why).hint("move it away, or adopt it"))
}

/// How messages call a version.
pub(crate) fn called(vdisk: &Vdisk, version: &Version) -> String {
    format!("vDisk \"{}\", version {}", vdisk.name, version.number)
}
