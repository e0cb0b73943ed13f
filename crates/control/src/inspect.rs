//! Whether stores and files are what the catalogue says they are.
//!
//! Published versions never change. Each has a mark of what its file looked like; where a file differs, somebody wrote to
//! it, and it is not booted any more until the file is restored or an administrator accepts it. A store whose folder
//! vanished is another matter: that is this server's view alone, and no version of it is touched. A folder that is there
//! and empty, while the catalogue lists files in it, is taken for one whose file system is not mounted.
use std::collections::HashSet;
use std::path::{Path, PathBuf};

use diskimage::Format;
use farm::model::{
    Access, AccessMode, ObjectKind, Revision, Store, StoreId, Stored, Version, VersionId, VersionState,
};
use farm::rules::Refusal;
use farm::rules::entitlement::children;
use farm::rules::files::compare;
use farm::rules::permission::{Action, Place};
use serde::Serialize;

use crate::caller::Caller;
use crate::error::{Code, ControlError};
use crate::marks;
use crate::places::{called, changeable, folder, room, store_folder};
use crate::whole::Control;

/// The most files that belong to nobody and are named.
const MAX_STRANGERS: usize = 1000;

/// A store as this server finds it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StoreReport {
    /// Which.
    pub store: StoreId,
    /// Its folder on this server.
    pub folder: PathBuf,
    /// Why it cannot be used; `None`: it can.
    pub unreachable: Option<String>,
    /// The bytes that are free in its file system.
    pub free_bytes: u64,
    /// The bytes of its file system.
    pub size_bytes: u64,
    /// The versions whose files are not what they should be.
    pub findings: Vec<FileFinding>,
    /// How many versions' files are.
    pub sound: usize,
    /// Images in it that belong to no version: of other programs, or to be adopted.
    pub strangers: Vec<String>,
}

/// A version whose file is not what it should be, or is again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileFinding {
    /// Which.
    pub version: VersionId,
    /// `vDisk "win11", version 3`.
    pub name: String,
    /// Its file.
    pub file: String,
    /// What it is now.
    pub state: VersionState,
    /// What differs, in words.
    pub differences: Vec<String>,
}

/// Compares the files of a store with what the catalogue says of them, and writes down what is missing, changed, or
/// back again.
///
/// # Errors
/// [`Code::StoreUnreachable`] where this server has no path to it, [`Code::Denied`], or the database's. A folder that
/// cannot be used is no error but told in the report.
pub fn store(control: &Control, by: &Caller, store: StoreId) -> Result<StoreReport, ControlError> {
    let (folder, versions) = control.read(|reader| {
        let store: Stored<Store> = reader.get(store)?;
        by.may(Action::See, ObjectKind::Store, Place::of_site(store.site))?;
        Ok((store_folder(reader, control.server(), &store)?, versions_of(control, store.id)))
    })?;
    let mut report = StoreReport {
        store,
        unreachable: None,
        free_bytes: 0,
        size_bytes: 0,
        findings: Vec::new(),
        sound: 0,
        strangers: Vec::new(),
        folder,
    };
    let names = match names_in(&report.folder) {
        Ok(names) => names,
        Err(error) => {
            report.unreachable = Some(error.to_string());
            return Ok(report);
        }
    };
    (report.free_bytes, report.size_bytes) = room(&report.folder)?;
    let expected: Vec<_> = versions.iter().filter(|named| is_expected(&named.version)).collect();
    if names.is_empty() && !expected.is_empty() {
        let why =
            format!("it is empty, and {} files belong in it: is its file system mounted?", expected.len());
        report.unreachable = Some(why);
        return Ok(report);
    }
    for named in expected {
        let (state, differences) = judge(named, &report.folder.join(named.version.file.as_str()));
        if state == VersionState::Ready && named.version.state == VersionState::Ready {
            report.sound = report.sound.saturating_add(1);
            continue;
        }
        set_state(control, &named.version, state)?;
        let (version, file) = (named.version.id, named.version.file.to_string());
        report.findings.push(FileFinding { version, name: named.name.clone(), file, state, differences });
    }
    let ours: HashSet<&str> = versions.iter().map(|named| named.version.file.as_str()).collect();
    let strangers = names.into_iter().filter(|name| is_image(name) && !ours.contains(name.as_str()));
    report.strangers = strangers.take(MAX_STRANGERS).collect();
    Ok(report)
}

/// All stores that this server has a path to. What cannot be looked at is logged.
pub(crate) fn all(control: &Control) {
    let stores = control.read(|reader| Ok(reader.all::<Store>()?));
    let stores = stores.inspect_err(|error| tracing::warn!(%error, "stores cannot be inspected"));
    for of in stores.unwrap_or_default() {
        if !of.paths.contains_key(&control.server()) {
            continue;
        }
        match store(control, &control.system(), of.id) {
            Ok(report) => {
                if let Some(why) = report.unreachable {
                    tracing::warn!(store = of.name.as_str(), folder = ?report.folder, why, "a store cannot be used");
                }
                for finding in report.findings {
                    let differences = finding.differences.join(", ");
                    tracing::warn!(version = finding.name, file = finding.file, state = ?finding.state, differences, "a version's file");
                }
            }
            Err(error) => tracing::warn!(store = of.name.as_str(), %error, "a store cannot be inspected"),
        }
    }
}

/// Takes a version's file for what it is: from now on this is what it should look like.
///
/// # Errors
/// [`Code::Refused`] of a version that was not changed, or that others stand on: what they hold means something on what it
/// was, and they recognise it by that; [`Code::FileChanged`] of one whose file is not there,
/// [`Code::FileDamaged`] of one that is no image any more.
pub fn accept(
    control: &Control,
    by: &Caller,
    version: VersionId,
    expected: Revision,
) -> Result<Stored<Version>, ControlError> {
    control.change(by, |change| {
        let old = change.expect(version, expected)?;
        let vdisk = changeable(change, by, old.vdisk)?;
        if old.state != VersionState::Changed {
            return Err(Refusal::AlreadySo(old.number).into());
        }
        let stand = children(&change.versions(old.vdisk)?, old.number);
        if !stand.is_empty() {
            let names: Vec<String> = stand.iter().map(|number| format!("version {number}")).collect();
            let why = format!(
                "{} stands on {} as that was published, and would mean something else on what it is now",
                names.join(", "),
                called(&vdisk, &old)
            );
            let hint = "bring the file back as it was, or delete first what stands on it";
            return Err(ControlError::new(Code::Refused, why).hint(hint));
        }
        let folder = folder(change, control.server(), &vdisk)?;
        let mark = marks::of_file(&folder.join(old.file.as_str()))?;
        Ok(change.set_version_state(version, expected, VersionState::Ready, Some(mark))?)
    })
}

/// A version with what it is called.
struct Named {
    name: String,
    version: Stored<Version>,
    /// Whether devices write to its file.
    writable: bool,
}

fn versions_of(control: &Control, store: StoreId) -> Vec<Named> {
    let snapshot = control.snapshot();
    let mut all = Vec::new();
    for facts in snapshot.vdisks().filter(|facts| facts.vdisk.store == store) {
        let private = facts.vdisk.mode == AccessMode::Private;
        all.extend(facts.versions.iter().map(|version| Named {
            name: called(&facts.vdisk, version),
            version: version.clone(),
            writable: private || version.access == Access::Maintenance,
        }));
    }
    all.sort_by_key(|named| (named.version.vdisk, named.version.number));
    all
}

/// Whether a version's file should be there.
fn is_expected(version: &Version) -> bool {
    matches!(version.state, VersionState::Ready | VersionState::Missing | VersionState::Changed)
}

fn judge(named: &Named, path: &Path) -> (VersionState, Vec<String>) {
    let missing = || (VersionState::Missing, vec!["the file is not there".to_owned()]);
    let mark = named.version.mark.filter(|_| !named.writable);
    let Some(mark) = mark else {
        // In a file that a device writes to at this moment, nothing can be read for certain.
        return if path.is_file() { (VersionState::Ready, Vec::new()) } else { missing() };
    };
    match marks::look(path) {
        Ok(found) => compare(&mark, found.as_ref()),
        // Of other formats, what is in a file may have to be told by who opens it.
        Err(error) if error.code == Code::FileDamaged && is_image(named.version.file.as_str()) => {
            (VersionState::Changed, vec![error.to_string()])
        }
        // What cannot be read now may be read again: nothing is known of it.
        Err(error) => (named.version.state, vec![error.to_string()]),
    }
}

fn set_state(control: &Control, version: &Stored<Version>, state: VersionState) -> Result<(), ControlError> {
    if version.state == state {
        return Ok(());
    }
    let set = control.change(&control.system(), |change| {
        Ok(change.set_version_state(version.id, version.revision, state, None)?)
    });
    match set {
        // Somebody is at it: the next look tells.
        Err(error) if !matches!(error.code, Code::Stale | Code::NotFound) => Err(error),
        _ => Ok(()),
    }
}

/// The names of what is in a folder.
fn names_in(folder: &Path) -> std::io::Result<Vec<String>> {
    let names: std::io::Result<Vec<_>> = folder.read_dir()?.map(|entry| Ok(entry?.file_name())).collect();
    let mut names: Vec<_> = names?.into_iter().map(|name| name.to_string_lossy().into_owned()).collect();
    // What a file system has of itself is no content.
    names.retain(|name| name != "lost+found");
    names.sort();
    Ok(names)
}

/// Whether a file is called like an image that versions are made of.
fn is_image(name: &str) -> bool {
    matches!(Format::of_ending(Path::new(name)), Some(Format::Vhd | Format::Vhdx))
}
