//! vDisks as a whole: made with an empty disk, and taken away with all their files.
use block::{ByteLength, LogicalBlockSize};
use diskimage::storage::FileStorage;
use diskimage::{Format, NewImageSpec, Subtype, create};
use farm::catalogue::Change;
use farm::model::{
    Access, ByteSize, Description, Lineage, ObjectKind, Purpose, Revision, Sharing, Store, Stored, Subject,
    Vdisk, VdiskId, Version, VersionId, VersionNumber, VersionState,
};
use farm::rules::Refusal;
use farm::rules::files::{ImageFormat, file_name};
use farm::rules::leases::{Conflict, stands};
use farm::rules::permission::{Action, Place};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::caller::Caller;
use crate::error::{Code, ControlError};
use crate::making::Making;
use crate::marks;
use crate::places::{changeable, is_free, reachable, store_folder};
use crate::tasks::{Begun, Finish, Job, Running, begin_now, execute, record};
use crate::versions;
use crate::whole::Control;

/// The smallest disk that is made.
const MIN_DISK_BYTES: u64 = 3 << 20;
/// The largest ([MS-VHDX] §2.6.2.4: 64 TiB).
const MAX_DISK_BYTES: u64 = 64 << 40;
/// What is written at once, as most operating systems and disks have it.
const PHYSICAL_BLOCK_BYTES: u32 = 4096;

/// An empty disk that is to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NewDisk {
    pub(crate) version: VersionId,
    pub(crate) size: ByteSize,
}

/// Makes a vDisk with an empty disk of `size` in VHDX, to be installed on: by the device of a private vDisk, or under
/// maintenance.
///
/// # Errors
/// [`Code::BadValue`] of a size that no disk has, [`Code::Conflict`] of a name that is taken, [`Code::NoSpace`] and other
/// failures of the store. There is no vDisk then.
pub fn create_blank(
    control: &Control,
    by: &Caller,
    vdisk: &Vdisk,
    size: ByteSize,
) -> Result<Stored<Vdisk>, ControlError> {
    let bytes = size.bytes();
    if !(MIN_DISK_BYTES..=MAX_DISK_BYTES).contains(&bytes)
        || !bytes.is_multiple_of(PHYSICAL_BLOCK_BYTES.into())
    {
        return Err(ControlError::bad_value(
            "size",
            format!("{size} is not 3 MiB to 64 TiB in whole units of 4 KiB"),
        ));
    }
    let (task, made) = begin_now(control, by, |change| {
        let store: Stored<Store> = change.get(vdisk.store)?;
        by.may(Action::Change, ObjectKind::Vdisk, Place::of_site(store.site))?;
        let folder = store_folder(change, control.server(), &store)?;
        reachable(&folder)?;
        let made = change.create(vdisk.clone())?;
        let file = file_name(&made.name, VersionNumber::BASE, Lineage::Base, ImageFormat::Vhdx)?;
        is_free(&folder.join(file.as_str()))?;
        let version = change.create(Version {
            vdisk: made.id,
            number: VersionNumber::BASE,
            lineage: Lineage::Base,
            access: Access::Production { released: change.now() },
            file,
            mark: None,
            state: VersionState::Making,
            comment: Description::new("an empty disk")?,
            made_at: change.now(),
        })?;
        let job = Job::NewDisk(NewDisk { version: version.id, size });
        Ok((record(change, control, by, job, Some(made.id), Begun::Now)?, made))
    })?;
    if let Err(error) = execute(control, &task) {
        // Its version went with the task.
        let undone = control.change(by, |change| Ok(change.delete(made.id, made.revision)?));
        if let Err(undone) = undone {
            tracing::warn!(vdisk = made.name.as_str(), error = %undone, "a vDisk without a disk stays for now");
        }
        return Err(error);
    }
    Ok(made)
}

impl NewDisk {
    pub(crate) fn run(&self, running: &Running<'_>) -> Result<Finish, ControlError> {
        let making = Making::read(running.control, self.version)?;
        running.lease(Subject::Chain(making.vdisk.id), Sharing::Exclusive, Purpose::Change)?;
        let target = making.target();
        // Of a start that was ended before it was done; the name is this version's alone.
        let _there = std::fs::remove_file(&target);
        let spec = NewImageSpec {
            format: Format::Vhdx,
            subtype: Subtype::Dynamic,
            virtual_size: ByteLength::new(self.size.bytes()),
            logical_block: LogicalBlockSize::B512,
            physical_block: PHYSICAL_BLOCK_BYTES,
            payload_block: None,
            identity: None,
            linkage: None,
            parent: None,
            carried: Vec::new(),
        };
        let storage = FileStorage::create_new(&target).map_err(|error| {
            ControlError::new(Code::FileFailed, format!("{target:?} cannot be made: {error}"))
        })?;
        create(Box::new(storage), &spec)
            .and_then(diskimage::NewImage::finish)
            .map_err(|source| diskimage::ops::OpError::Target { path: target.clone(), source })?;
        let mark = marks::of_file(&target)?;
        let version = self.version;
        Ok(Box::new(move |change| {
            let made: Stored<Version> = change.get(version)?;
            change.set_version_state(version, made.revision, VersionState::Ready, Some(mark))?;
            Ok(json!({ "vdisk": made.vdisk }))
        }))
    }
}

/// What becomes of a vDisk's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Files {
    /// They stay in the store, and can be adopted again.
    Keep,
    /// They go, too.
    Remove,
}

/// Takes away a vDisk with all its versions.
///
/// # Errors
/// [`Code::InUse`] naming the devices that have it or run on it, or the task that is at it. Where a file cannot be
/// removed, the vDisk stays, disabled, with what is left of it.
pub fn delete(
    control: &Control,
    by: &Caller,
    vdisk: VdiskId,
    expected: Revision,
    files: Files,
) -> Result<(), ControlError> {
    let (revision, versions) = control.change(by, |change| {
        changeable(change, by, vdisk)?;
        let old = change.expect(vdisk, expected)?;
        unused(change, &old)?;
        let versions = change.versions(vdisk)?;
        if files == Files::Keep {
            for version in &versions {
                change.delete(version.id, version.revision)?;
            }
            change.delete(vdisk, expected)?;
            return Ok((None, Vec::new()));
        }
        let disabled = Vdisk { disabled: true, override_version: None, ..old.value.clone() };
        let disabled = change.update_as("disable", vdisk, expected, disabled)?;
        for version in &versions {
            change.set_version_state(version.id, version.revision, VersionState::Leaving, None)?;
        }
        Ok((Some(disabled.revision), versions))
    })?;
    let Some(revision) = revision else { return Ok(()) };
    // A child before what it stands on.
    for version in versions.iter().rev() {
        versions::sweep(control, version.id)?;
    }
    control.change(by, |change| Ok(change.delete(vdisk, revision)?))
}

fn unused(change: &mut Change<'_>, vdisk: &Stored<Vdisk>) -> Result<(), ControlError> {
    const NAMED: usize = 5;
    let devices = change.devices_with(vdisk.id)?;
    if !devices.is_empty() {
        let names: Vec<_> = devices.iter().take(NAMED).map(|device| device.name.as_str()).collect();
        let more = if devices.len() > NAMED { ", ..." } else { "" };
        let (count, names) = (devices.len(), names.join(", "));
        let why = format!("vDisk \"{}\" is what {count} device(s) boot ({names}{more})", vdisk.name);
        return Err(ControlError::new(Code::InUse, why).hint("give them another vDisk first"));
    }
    let mut subjects = vec![Subject::Chain(vdisk.id)];
    subjects.extend(change.versions(vdisk.id)?.iter().map(|version| Subject::Contents(version.id)));
    let now = change.now();
    let mut held = Vec::new();
    for subject in subjects {
        held.extend(change.leases_on(subject)?.into_iter().filter(|lease| stands(lease, now)));
    }
    if held.is_empty() { Ok(()) } else { Err(Refusal::InUse(Conflict { held, names: Vec::new() }).into()) }
}
