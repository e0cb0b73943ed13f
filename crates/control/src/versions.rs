//! The life of versions, with their files.
//!
//! | step | in the catalogue | in the store |
//! |---|---|---|
//! | new | making, then ready | an empty difference of its parent |
//! | promote | test or production, with the file's mark | all of it on the disk, its log played back |
//! | revert, hold, schedule | as the rules say | nothing |
//! | delete | leaving, then gone | removed between the two, when nobody uses it any more |
//!
//! Files are looked at inside the transaction that publishes or removes them: no device can take a lease meanwhile.
use std::fs::{File, remove_file};
use std::io;
use std::path::Path;

use diskimage::ops::{SnapshotOptions, remove_leftover, snapshot};
use diskimage::{Image, LayerInfo};
use farm::catalogue::Change;
use farm::model::{
    Access, Description, FileMark, Owner, Purpose, Revision, Sharing, Stored, Subject, Task, Vdisk, VdiskId,
    Version, VersionId, VersionNumber, VersionState,
};
use farm::rules::Refusal;
use farm::rules::entitlement::children;
use farm::rules::files::compare;
use farm::rules::leases::Wanted;
use farm::rules::lifecycle::{self, Deletion, MergeKind, Promotion, Reversion, merge_is_due};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::caller::Caller;
use crate::error::{Code, ControlError};
use crate::making::Making;
use crate::marks;
use crate::merge;
use crate::places::{called, changeable, folder, is_free, reachable, reading};
use crate::tasks::{Begun, Finish, Job, Running, begin_now, execute, record};
use crate::whole::Control;

/// A version whose file is to be made: an empty difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NewVersion {
    pub(crate) version: VersionId,
}

/// Makes a version under maintenance: differences from `parent`, or where none is named from the newest published
/// version. When this returns, a maintenance device can boot it.
///
/// # Errors
/// What the rules say, [`Code::FileChanged`] of a parent that is not what it was, [`Code::NoSpace`] and other failures
/// of the store. There is no version then.
pub fn new_maintenance(
    control: &Control,
    by: &Caller,
    vdisk: VdiskId,
    parent: Option<VersionNumber>,
    comment: &Description,
) -> Result<Stored<Version>, ControlError> {
    let (task, version) = begin_now(control, by, |change| {
        let of = changeable(change, by, vdisk)?;
        let version = change.new_maintenance(vdisk, parent, comment.clone())?;
        let folder = folder(change, control.server(), &of)?;
        reachable(&folder)?;
        is_free(&folder.join(version.file.as_str()))?;
        let job = Job::NewVersion(NewVersion { version: version.id });
        let task = record(change, control, by, job, Some(vdisk), Begun::Now)?;
        lease_chain(change, control, &task, vdisk, Purpose::Change)?;
        Ok((task, version.id))
    })?;
    execute(control, &task)?;
    control.read(|reader| Ok(reader.get(version)?))
}

/// Takes the lease on the list of a vDisk's versions for a task, in the transaction that makes the task.
pub(crate) fn lease_chain(
    change: &mut Change<'_>,
    control: &Control,
    task: &Stored<Task>,
    vdisk: VdiskId,
    purpose: Purpose,
) -> Result<(), ControlError> {
    let (subject, sharing) = (Subject::Chain(vdisk), Sharing::Exclusive);
    change.lease(&Wanted { subject, sharing, purpose, owner: Owner::Task(task.id) }, control.server())?;
    Ok(())
}

impl NewVersion {
    pub(crate) fn run(&self, running: &Running<'_>) -> Result<Finish, ControlError> {
        let making = Making::read(running.control, self.version)?;
        running.lease(Subject::Chain(making.vdisk.id), Sharing::Exclusive, Purpose::Change)?;
        let parent = making.version.lineage.parent().unwrap_or(VersionNumber::BASE);
        let chain = making.chain_of(parent)?;
        let leaf = chain.first().map(|leaf| making.path_of(leaf)).unwrap_or_default();
        let image = Image::open(&leaf, reading(&making.folder))?;
        marks::verify(&image, &chain)?;
        let target = making.target();
        if target.symlink_metadata().is_ok() {
            // An earlier start got so far. The name is this version's alone since the catalogue lists it.
            let linkage = image.layers().pop().and_then(|leaf| leaf.linkage);
            let made = LayerInfo::of_file(&target, None)?;
            if !made.parent.is_some_and(|parent| linkage.is_some_and(|linkage| parent.accepts(linkage))) {
                let why = format!("file {target:?} is there, and is no difference of version {parent}");
                return Err(ControlError::new(Code::Conflict, why));
            }
        } else {
            let options = SnapshotOptions { open: reading(&making.folder), ..SnapshotOptions::default() };
            snapshot(&leaf, &target, &options)?;
        }
        let (version, number) = (self.version, making.version.number);
        Ok(Box::new(move |change| {
            let made: Stored<Version> = change.get(version)?;
            change.set_version_state(version, made.revision, VersionState::Ready, None)?;
            Ok(json!({ "version": number }))
        }))
    }
}

/// A version that was promoted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promoted {
    /// As it is now.
    pub version: Stored<Version>,
    /// The merge that was begun because the chain has become as long as the farm lets it.
    pub merge: Option<Stored<Task>>,
}

/// Promotes a version, or moves the time of a release that is to come. Its file never changes from here on.
///
/// # Errors
/// What the rules say, naming the device that still writes to it; [`Code::FileChanged`] where its file is not what it
/// should be.
pub fn promote(
    control: &Control,
    by: &Caller,
    version: VersionId,
    expected: Revision,
    to: Promotion,
) -> Result<Promoted, ControlError> {
    let version = control.change(by, |change| {
        let old = change.expect(version, expected)?;
        let vdisk = changeable(change, by, old.vdisk)?;
        if old.state != VersionState::Ready {
            return Err(Refusal::NotReady { number: old.number, state: old.state }.into());
        }
        let folder = folder(change, control.server(), &vdisk)?;
        reachable(&folder)?;
        let written_to = !change.in_use(Subject::Contents(version))?.is_empty();
        let mark = mark_of(&vdisk, &old, &folder, written_to)?;
        Ok(change.promote(version, expected, to, mark)?)
    })?;
    let merge = automatic_merge(control, version.vdisk);
    Ok(Promoted { version, merge })
}

/// What the file of a version that is promoted looks like.
fn mark_of(
    vdisk: &Vdisk,
    version: &Version,
    folder: &Path,
    written_to: bool,
) -> Result<FileMark, ControlError> {
    let path = folder.join(version.file.as_str());
    let about = |error: ControlError| error.about(called(vdisk, version));
    if version.access == Access::Maintenance && !written_to {
        return marks::settle(&path, folder).map_err(about);
    }
    let found = marks::of_file(&path).map_err(about)?;
    match version.mark.map(|mark| compare(&mark, Some(&found))) {
        Some((VersionState::Changed, differences)) => {
            let why = format!("somebody wrote to its file: {}", differences.join(", "));
            Err(about(ControlError::new(Code::FileChanged, why)).hint("restore it, or accept it as it is"))
        }
        _ => Ok(found),
    }
}

/// Begins a merge where the farm is set to merge by itself and the chain is long enough. What stands against it is no
/// failure of what led here.
fn automatic_merge(control: &Control, vdisk: VdiskId) -> Option<Stored<Task>> {
    let snapshot = control.snapshot();
    let auto = snapshot.farm().and_then(|farm| farm.auto_merge);
    let facts = snapshot.vdisk(vdisk)?;
    if !merge_is_due(auto, &facts.vdisk, &facts.versions) {
        return None;
    }
    let request = merge::Request {
        kind: MergeKind::Updates,
        result: auto.map(|auto| auto.result),
        ..merge::Request::default()
    };
    let begun = merge::begin(control, &control.system(), vdisk, &request);
    begun
        .inspect_err(|error| tracing::warn!(vdisk = facts.vdisk.name.as_str(), %error, "no automatic merge"))
        .ok()
}

/// Lets the newest version go back to test or maintenance.
///
/// # Errors
/// What the rules say, naming who uses it.
pub fn revert(
    control: &Control,
    by: &Caller,
    version: VersionId,
    expected: Revision,
    to: Reversion,
) -> Result<Stored<Version>, ControlError> {
    control.change(by, |change| {
        let old = change.expect(version, expected)?;
        changeable(change, by, old.vdisk)?;
        Ok(change.revert(version, expected, to)?)
    })
}

/// Holds the production devices of a vDisk at a version, or with `None` lets them go on.
///
/// # Errors
/// What the rules say.
pub fn hold(
    control: &Control,
    by: &Caller,
    vdisk: VdiskId,
    expected: Revision,
    at: Option<VersionNumber>,
) -> Result<Stored<Vdisk>, ControlError> {
    control.change(by, |change| {
        changeable(change, by, vdisk)?;
        Ok(change.hold(vdisk, expected, at)?)
    })
}

/// Deletes a version and its file: at once where nobody uses it, else when the last one has ended. Nobody boots it from
/// now on.
///
/// # Errors
/// What the rules say; [`Code::Refused`] of one that a task is making.
pub fn delete(
    control: &Control,
    by: &Caller,
    version: VersionId,
    expected: Revision,
) -> Result<Deletion, ControlError> {
    let deletion = control.change(by, |change| {
        let old = change.expect(version, expected)?;
        let vdisk = changeable(change, by, old.vdisk)?;
        if old.state == VersionState::Making {
            let why = format!("{} is being made", called(&vdisk, &old));
            return Err(ControlError::new(Code::Refused, why).hint("cancel the task that makes it"));
        }
        Ok(change.retire_version(version, expected)?)
    })?;
    if let Err(error) = sweep(control, version) {
        tracing::warn!(version = version.get(), %error, "the file of a deleted version stays for now");
    }
    Ok(deletion)
}

/// The versions that [`delete_obsolete`] would delete now, in its order.
///
/// # Errors
/// [`Code::Denied`], or the database's.
pub fn obsolete(control: &Control, by: &Caller, vdisk: VdiskId) -> Result<Vec<VersionNumber>, ControlError> {
    control.read(|reader| {
        let of = changeable(reader, by, vdisk)?;
        let mut versions = reader.versions(vdisk)?;
        let mut gone = Vec::new();
        // Each one that goes uncovers its parent.
        while let Some(next) = obsolete_now(control, &of, &versions).max() {
            versions.retain(|version| version.number != next);
            gone.push(next);
        }
        Ok(gone)
    })
}

/// Deletes all versions that nothing needs any more since they were merged. Gives their numbers.
///
/// # Errors
/// [`Code::Denied`], or the database's.
pub fn delete_obsolete(
    control: &Control,
    by: &Caller,
    vdisk: VdiskId,
) -> Result<Vec<VersionNumber>, ControlError> {
    let mut gone = Vec::new();
    loop {
        let next = control.read(|reader| {
            let of = changeable(reader, by, vdisk)?;
            let versions = reader.versions(vdisk)?;
            let next = obsolete_now(control, &of, &versions).max();
            Ok(versions.into_iter().find(|version| Some(version.number) == next))
        })?;
        // Each round deletes one, and uncovers its parent.
        let Some(version) = next else { return Ok(gone) };
        delete(control, by, version.id, version.revision)?;
        gone.push(version.number);
    }
}

/// The obsolete versions that nobody has deleted yet.
fn obsolete_now<'v>(
    control: &Control,
    of: &Stored<Vdisk>,
    versions: &'v [Stored<Version>],
) -> impl Iterator<Item = VersionNumber> + 'v {
    let leaves = |number: &VersionNumber| {
        let states = versions.iter().filter(|version| version.number == *number).map(|version| version.state);
        states.into_iter().any(|state| state == VersionState::Leaving)
    };
    lifecycle::obsolete(of, versions, control.now()).into_iter().filter(move |number| !leaves(number))
}

/// Takes away a version that is leaving, with its file, where nobody uses it any more.
pub(crate) fn sweep(control: &Control, version: VersionId) -> Result<(), ControlError> {
    control.change(&control.system(), |change| {
        let Some(leaving) = change.find::<Version>(version)? else { return Ok(()) };
        let versions = change.versions(leaving.vdisk)?;
        if leaving.state != VersionState::Leaving
            || !children(&versions, leaving.number).is_empty()
            || !change.in_use(Subject::Contents(version))?.is_empty()
        {
            return Ok(());
        }
        let vdisk = change.get(leaving.vdisk)?;
        // A server that reaches the store does it.
        let Ok(folder) = folder(change, control.server(), &vdisk) else { return Ok(()) };
        reachable(&folder)?;
        remove(&folder.join(leaving.file.as_str()), &folder)?;
        Ok(change.delete(version, leaving.revision)?)
    })
}

/// Removes a version's file, and what a merge that was killed left beside it.
fn remove(path: &Path, folder: &Path) -> Result<(), ControlError> {
    remove_leftover(path)?;
    match remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(ControlError::file(path, "removed", &error));
        }
        _ => {}
    }
    let lasting = File::open(folder).and_then(|folder| folder.sync_all());
    lasting.map_err(|error| ControlError::file(folder, "made lasting", &error))
}

/// Takes away all versions that are leaving and that nobody uses any more.
pub(crate) fn sweep_all(control: &Control) -> Result<(), ControlError> {
    let snapshot = control.snapshot();
    let all = snapshot.vdisks().flat_map(|facts| facts.versions.iter().rev());
    for version in all.filter(|version| version.state == VersionState::Leaving) {
        if let Err(error) = sweep(control, version.id) {
            tracing::warn!(version = version.id.get(), %error, "a version that is to go stays for now");
        }
    }
    Ok(())
}
