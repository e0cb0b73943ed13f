//! A chain into a folder.
use std::fs::{File, create_dir_all};
use std::io::Write;
use std::path::{Path, PathBuf};

use farm::model::{
    Access, AccessMode, Purpose, Sharing, Stored, Subject, TaskId, Vdisk, VdiskId, Version, VersionId,
    VersionNumber, VersionState,
};
use farm::rules::Refusal;
use farm::rules::entitlement::{chain, find};
use farm::rules::files::compare;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::copy::copy;
use super::manifest::{MANIFEST, Manifest, ManifestVersion};
use super::{own_folder, remove_folder, rename_new, sync_folder};
use crate::error::{Code, ControlError};
use crate::marks;
use crate::places::{called, folder, has_room, reachable};
use crate::tasks::{Finish, Running};

/// An export, as it stands in its task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Export {
    pub(crate) vdisk: VdiskId,
    pub(crate) versions: Vec<VersionId>,
    /// What is made.
    pub(crate) folder: PathBuf,
}

/// The versions that are exported: the named one with what it stands on, or all that are published. Parents first.
pub(super) fn chosen(
    vdisk: &Vdisk,
    versions: &[Stored<Version>],
    version: Option<VersionNumber>,
) -> Result<Vec<Stored<Version>>, ControlError> {
    if vdisk.mode == AccessMode::Private {
        let why = format!("vDisk \"{}\" is private: a device may write to it at any moment", vdisk.name);
        return Err(ControlError::new(Code::Refused, why).hint("make it standard first"));
    }
    let mut chosen: Vec<Stored<Version>> = match version {
        Some(number) => chain(versions, find(versions, number)?)?.into_iter().cloned().collect(),
        None => {
            let published = |version: &&Stored<Version>| {
                version.access != Access::Maintenance
                    && version.state != VersionState::Making
                    && version.state != VersionState::Leaving
            };
            versions.iter().filter(published).cloned().collect()
        }
    };
    chosen.sort_by_key(|version| version.number);
    for version in &chosen {
        if version.state != VersionState::Ready {
            return Err(Refusal::NotReady { number: version.number, state: version.state }.into());
        }
        if version.access == Access::Maintenance {
            return Err(Refusal::NotPublished(version.number).into());
        }
    }
    if chosen.is_empty() { Err(Refusal::NothingPublished.into()) } else { Ok(chosen) }
}

impl Export {
    pub(crate) fn run(&self, running: &Running<'_>) -> Result<Finish, ControlError> {
        let task = running.task.id;
        if Manifest::read(&self.folder).is_ok_and(|made| made.task == task.get()) {
            running.log("the folder was made before the server ended");
            return Ok(self.finish(0));
        }
        for version in &self.versions {
            running.lease(Subject::Contents(*version), Sharing::Shared, Purpose::Copy)?;
        }
        let (vdisk, versions, store) = running.control.read(|reader| {
            let vdisk: Stored<Vdisk> = reader.get(self.vdisk)?;
            let versions: Result<Vec<Stored<Version>>, _> =
                self.versions.iter().map(|version| reader.get(*version)).collect();
            let folder = folder(reader, running.control.server(), &vdisk)?;
            Ok((vdisk, versions?, folder))
        })?;
        reachable(&store)?;
        let parent = self.parent();
        create_dir_all(parent).map_err(|error| ControlError::file(parent, "made", &error))?;
        let total = versions
            .iter()
            .filter_map(|version| version.mark)
            .fold(0_u64, |sum, mark| sum.saturating_add(mark.length.bytes()));
        has_room(parent, total)?;
        running.watch().expect(total);
        let own = own_folder(parent, task);
        remove_folder(&own)?;
        std::fs::create_dir(&own).map_err(|error| ControlError::file(&own, "made", &error))?;
        let mut listed = Vec::new();
        for version in versions {
            listed.push(one(running, &vdisk, &version, &store, &own)?);
        }
        write_manifest(&own, &Manifest::of(&vdisk, task.get(), running.control.now(), listed))?;
        rename_new(&own, &self.folder)?;
        sync_folder(parent)?;
        Ok(self.finish(total))
    }

    fn finish(&self, bytes: u64) -> Finish {
        let result = json!({ "folder": self.folder, "versions": self.versions.len(), "bytes": bytes });
        Box::new(move |_| Ok(result.clone()))
    }

    fn parent(&self) -> &Path {
        self.folder.parent().unwrap_or(Path::new("/"))
    }

    pub(crate) fn clean(&self, task: TaskId) -> Result<(), ControlError> {
        remove_folder(&own_folder(self.parent(), task))
    }
}

/// Copies one version's file.
fn one(
    running: &Running<'_>,
    vdisk: &Vdisk,
    version: &Version,
    store: &Path,
    own: &Path,
) -> Result<ManifestVersion, ControlError> {
    let (from, to) = (store.join(version.file.as_str()), own.join(version.file.as_str()));
    let mark = marks::of_file(&from)?;
    if let Some((VersionState::Changed, differences)) =
        version.mark.map(|mark_then| compare(&mark_then, Some(&mark)))
    {
        let why = format!("somebody wrote to its file: {}", differences.join(", "));
        return Err(ControlError::new(Code::FileChanged, why).about(called(vdisk, version)));
    }
    let copied = copy(&from, &to, running.watch())?;
    running.log(&format!("{}: {} bytes, SHA-256 {}", version.file, copied.bytes, copied.sha256));
    Ok(ManifestVersion {
        number: version.number,
        lineage: version.lineage,
        access: version.access,
        file: version.file.clone(),
        mark,
        sha256: copied.sha256,
        comment: version.comment.clone(),
        made_at: version.made_at,
    })
}

fn write_manifest(own: &Path, manifest: &Manifest) -> Result<(), ControlError> {
    let path = own.join(MANIFEST);
    let write = || {
        let mut file = File::create(&path)?;
        serde_json::to_writer_pretty(&mut file, manifest)?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        File::open(own)?.sync_all()
    };
    write().map_err(|error| ControlError::file(&path, "written", &error))
}
