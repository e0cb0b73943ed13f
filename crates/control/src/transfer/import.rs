//! A chain out of a folder.
use std::collections::HashSet;
use std::path::{Path, PathBuf};

use diskimage::Image;
use farm::catalogue::{Change, Reader};
use farm::model::{
    Access, AccessMode, Description, StoreId, Stored, SubnetAffinity, TaskId, Vdisk, VdiskId, VdiskName,
    Version, VersionState,
};
use farm::rules::files::compare;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::addition::addition;
use super::copy::copy;
use super::manifest::{Manifest, ManifestVersion};
use super::{own_folder, remove_folder, rename_new, sync_folder};
use crate::error::{Code, ControlError};
use crate::marks;
use crate::places::{has_room, reachable, reading, store_folder};
use crate::tasks::{Finish, Running};
use crate::whole::Control;

/// An import, as it stands in its task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Import {
    pub(crate) store: StoreId,
    pub(crate) from: PathBuf,
    pub(crate) name: VdiskName,
    pub(crate) description: Description,
    pub(crate) mode: AccessMode,
    /// The vDisk that gets the versions that it lacks; `None`: a new one is made.
    #[serde(default)]
    pub(crate) into: Option<VdiskId>,
    /// Whether the versions are for test devices at first.
    #[serde(default)]
    pub(crate) in_test: bool,
}

impl Import {
    pub(crate) fn run(&self, running: &Running<'_>) -> Result<Finish, ControlError> {
        let whole = Manifest::read(&self.from)?;
        let folder = self.folder(running.control)?;
        reachable(&folder)?;
        let (manifest, known) = running.control.read(|reader| self.part(reader, &whole))?;
        let total = manifest
            .versions
            .iter()
            .fold(0_u64, |sum, version| sum.saturating_add(version.mark.length.bytes()));
        has_room(&folder, total)?;
        running.watch().expect(total);
        running.control.read(|reader| self.unlisted(reader, &manifest))?;
        let own = own_folder(&folder, running.task.id);
        std::fs::create_dir_all(&own).map_err(|error| ControlError::file(&own, "made", &error))?;
        let mut placed = false;
        for version in &manifest.versions {
            // Of a start that got as far as giving files their names.
            if is_placed(version, &folder) {
                placed = true;
                running.watch().expect(0);
            } else {
                self.one(running, version, &own)?;
            }
        }
        if !placed {
            // Beside what they stand on, which is here already.
            for version in &known {
                let (from, to) = (folder.join(version.file.as_str()), own.join(version.file.as_str()));
                if !to.exists() {
                    std::fs::hard_link(&from, &to)
                        .map_err(|error| ControlError::file(&to, "linked", &error))?;
                }
            }
            for version in &manifest.versions {
                Image::open(&own.join(version.file.as_str()), reading(&own))?;
            }
        }
        let import = self.clone();
        Ok(Box::new(move |change| {
            // What was found to be the same must be so still.
            let (manifest, _) = import.part(change, &whole)?;
            import.unlisted(change, &manifest)?;
            // What the catalogue has against it, it says before a file is touched.
            let made = import.make(change, &manifest)?;
            for version in &manifest.versions {
                let file = version.file.as_str();
                if !is_placed(version, &folder) || own.join(file).exists() {
                    rename_new(&own.join(file), &folder.join(file))?;
                }
            }
            remove_folder(&own)?;
            sync_folder(&folder)?;
            Ok(made)
        }))
    }

    /// What is imported of a manifest, as one of its own, and the versions of it that are here.
    fn part(
        &self,
        reader: &mut Reader<'_>,
        whole: &Manifest,
    ) -> Result<(Manifest, Vec<ManifestVersion>), ControlError> {
        let Some(vdisk) = self.into else { return Ok((whole.clone(), Vec::new())) };
        let present = reader.versions(vdisk)?;
        let addition = addition(whole, &present)?;
        let versions = addition.new.into_iter().cloned().collect();
        let known = addition.known.into_iter().cloned().collect();
        Ok((Manifest { versions, ..whole.clone() }, known))
    }

    /// Copies one file and compares it with what the manifest says.
    fn one(&self, running: &Running<'_>, version: &ManifestVersion, own: &Path) -> Result<(), ControlError> {
        let file = version.file.as_str();
        let to = own.join(file);
        let copied = copy(&self.from.join(file), &to, running.watch())?;
        let damaged = |why: String| {
            let hint = "the export was damaged on its way: copy it again";
            Err(ControlError::new(Code::FileDamaged, format!("file {file:?} {why}")).hint(hint))
        };
        if copied.sha256 != version.sha256 {
            return damaged(format!(
                "has SHA-256 {}, and the manifest says {}",
                copied.sha256, version.sha256
            ));
        }
        match compare(&version.mark, Some(&marks::of_file(&to)?)) {
            (VersionState::Changed, differences) => {
                damaged(format!("is not what it was: {}", differences.join(", ")))
            }
            _ => Ok(()),
        }
    }

    /// The vDisk and its versions, in the transaction that ends the task.
    fn make(&self, change: &mut Change<'_>, manifest: &Manifest) -> Result<Value, ControlError> {
        let vdisk = match self.into {
            Some(vdisk) => change.get(vdisk)?,
            None => change.create(self.vdisk())?,
        };
        for version in &manifest.versions {
            let access = match version.access {
                _ if self.in_test => Access::Test,
                // What was released elsewhere is released here now; what was scheduled stays so.
                Access::Production { released } if released < change.now() => {
                    Access::Production { released: change.now() }
                }
                access => access,
            };
            change.create(Version {
                vdisk: vdisk.id,
                number: version.number,
                lineage: version.lineage,
                access,
                file: version.file.clone(),
                mark: Some(version.mark),
                state: VersionState::Ready,
                comment: version.comment.clone(),
                made_at: version.made_at,
            })?;
        }
        Ok(json!({ "vdisk": vdisk.id, "name": vdisk.name, "versions": manifest.versions.len() }))
    }

    /// The vDisk, where it is a new one.
    fn vdisk(&self) -> Vdisk {
        Vdisk {
            name: self.name.clone(),
            store: self.store,
            description: self.description.clone(),
            menu_text: None,
            asks_login: false,
            mode: self.mode,
            override_version: None,
            server: None,
            affinity: SubnetAffinity::None,
            disabled: false,
        }
    }

    /// Refuses files that belong to versions by now: another import was faster.
    fn unlisted(&self, reader: &mut Reader<'_>, manifest: &Manifest) -> Result<(), ControlError> {
        let listed = files_of(reader, self.store)?;
        match manifest.versions.iter().find(|version| listed.contains(&version.file.folded())) {
            None => Ok(()),
            Some(version) => {
                let why =
                    format!("file {:?} belongs to a version of the store by now", version.file.as_str());
                Err(ControlError::new(Code::Conflict, why))
            }
        }
    }

    fn folder(&self, control: &Control) -> Result<PathBuf, ControlError> {
        control.read(|reader| {
            let store: Stored<farm::model::Store> = reader.get(self.store)?;
            store_folder(reader, control.server(), &store)
        })
    }

    /// Removes what an import that did not succeed has left, also files that it has given their names.
    pub(crate) fn clean(&self, control: &Control, task: TaskId) -> Result<(), ControlError> {
        let folder = self.folder(control)?;
        let own = own_folder(&folder, task);
        // Without its folder it has not begun.
        if own.is_dir()
            && let Ok(manifest) = Manifest::read(&self.from)
        {
            let listed = control.read(|reader| files_of(reader, self.store))?;
            for version in manifest.versions.iter().filter(|version| !listed.contains(&version.file.folded()))
            {
                let file = folder.join(version.file.as_str());
                if !own.join(version.file.as_str()).exists() && is_placed(version, &folder) {
                    std::fs::remove_file(&file)
                        .map_err(|error| ControlError::file(&file, "removed", &error))?;
                }
            }
        }
        remove_folder(&own)
    }
}

/// The files that versions of a store have, in lower case.
fn files_of(reader: &mut Reader<'_>, store: StoreId) -> Result<HashSet<String>, ControlError> {
    let mut files = HashSet::new();
    for vdisk in reader.all::<Vdisk>()?.into_iter().filter(|vdisk| vdisk.store == store) {
        files.extend(reader.versions(vdisk.id)?.iter().map(|version| version.file.folded()));
    }
    Ok(files)
}

/// Whether a version's file is in the store: when the import began, no file had its name.
fn is_placed(version: &ManifestVersion, folder: &Path) -> bool {
    let found = marks::look(&folder.join(version.file.as_str())).ok().flatten();
    found.is_some_and(|found| compare(&version.mark, Some(&found)).0 == VersionState::Ready)
}
