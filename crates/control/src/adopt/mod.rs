//! Adoption: images that lie in a store already, of another system or of ours, become vDisks with versions.
//!
//! A store's folder is looked through, without its subfolders. What belongs together is told by what the images say of
//! their parents, not by their names; names give vDisks theirs, and versions their numbers where all of them fit
//! (`golden.vhdx`, `golden.3.avhdx`). First a [`plan`] says what would become what, and of each other file why not;
//! then [`import`] makes all of it true in one transaction. No file is touched.
mod found;
mod grouping;

use std::collections::HashSet;
use std::path::PathBuf;

use farm::model::{
    Access, AccessMode, Description, FileMark, FileName, Lineage, StoreId, Stored, SubnetAffinity, Vdisk,
    VdiskName, Version, VersionNumber, VersionState,
};
use serde::Serialize;

use crate::caller::Caller;
use crate::error::{Code, ControlError};
use crate::places::folder_for_images;
use crate::whole::Control;

/// What a store's folder holds besides what the catalogue lists.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// Which store.
    pub store: StoreId,
    /// Its folder on this server.
    pub folder: PathBuf,
    /// What can become vDisks, by name.
    pub chains: Vec<FoundChain>,
    /// What cannot, and why, by file.
    pub findings: Vec<Finding>,
    /// How many files belong to versions that the catalogue lists.
    pub known: usize,
}

/// What can become a vDisk.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FoundChain {
    /// What it is called.
    pub name: VdiskName,
    /// Its versions, lowest number first.
    pub versions: Vec<FoundVersion>,
}

/// What can become a version.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FoundVersion {
    /// Its number.
    pub number: VersionNumber,
    /// On what it stands.
    pub lineage: Lineage,
    /// Its file.
    pub file: FileName,
    /// What its file looks like.
    pub mark: FileMark,
}

/// A file that cannot be adopted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Its name.
    pub file: String,
    /// What is the matter, for programs.
    pub kind: FindingKind,
    /// What is the matter, and what to do about it.
    pub why: String,
}

/// What is the matter with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingKind {
    /// Its parent, or a parent's parent, is not there.
    Orphan,
    /// It is damaged, or no image.
    Damaged,
    /// Its name cannot be a vDisk's or a version's, or is another's.
    Name,
    /// More than one file can be its parent, or it cannot be told which version it is.
    Ambiguous,
    /// It stands on a version that the catalogue lists.
    Extends,
    /// Somebody makes it at the moment, or died over it.
    Unfinished,
    /// It is no image, and stands beside one: another program's.
    Beside,
}

/// What adopted vDisks are like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// How devices use them.
    pub mode: AccessMode,
    /// What is written about them.
    pub description: Description,
    /// Whether the newest version of each is for test devices at first. All others go to production.
    pub newest_in_test: bool,
    /// The highest number that goes to production, where versions above it are for test devices at first; `None`: all.
    pub production_up_to: Option<VersionNumber>,
}

/// Looks through a store, and says what can be adopted.
///
/// # Errors
/// [`Code::StoreUnreachable`], [`Code::Denied`], or the database's.
pub fn plan(control: &Control, by: &Caller, store: StoreId) -> Result<Plan, ControlError> {
    let folder = folder_for_images(control, by, store)?;
    let (known, names) = known(control, store)?;
    let looked = found::look_through(&folder, &known)?;
    let mut plan = grouping::group(looked.files, &names);
    plan.findings.extend(looked.findings);
    found::open_all(&folder, &mut plan);
    plan.findings.sort_by(|one, other| one.file.cmp(&other.file));
    Ok(Plan { store, folder, chains: plan.chains, findings: plan.findings, known: looked.known })
}

/// Makes vDisks of what a [`plan`] finds, as the store is now: those that are named, or where none is, all. In one
/// transaction: all or nothing.
///
/// # Errors
/// [`Code::NotFound`] of a name that cannot be adopted, with the reason; [`Code::Refused`] where there is nothing to
/// adopt; those of [`plan`].
pub fn import(
    control: &Control,
    by: &Caller,
    store: StoreId,
    names: &[VdiskName],
    template: &Template,
) -> Result<Vec<Stored<Vdisk>>, ControlError> {
    let plan = plan(control, by, store)?;
    for name in names {
        if !plan.chains.iter().any(|chain| chain.name == *name) {
            return Err(not_adoptable(&plan, name));
        }
    }
    let wanted = |chain: &&FoundChain| names.is_empty() || names.contains(&chain.name);
    let chains: Vec<_> = plan.chains.iter().filter(wanted).collect();
    if chains.is_empty() {
        return Err(ControlError::new(
            Code::Refused,
            format!("there is nothing to adopt in {:?}", plan.folder),
        ));
    }
    control.change(by, |change| {
        let mut made = Vec::new();
        for chain in &chains {
            let vdisk = change.create(Vdisk {
                name: chain.name.clone(),
                store,
                description: template.description.clone(),
                menu_text: None,
                asks_login: false,
                mode: template.mode,
                override_version: None,
                server: None,
                affinity: SubnetAffinity::None,
                disabled: false,
            })?;
            let newest = chain.versions.last().map(|version| version.number);
            for version in &chain.versions {
                let above = template.production_up_to.is_some_and(|most| version.number > most);
                let in_test = above || (template.newest_in_test && Some(version.number) == newest);
                change.create(Version {
                    vdisk: vdisk.id,
                    number: version.number,
                    lineage: version.lineage,
                    access: if in_test {
                        Access::Test
                    } else {
                        Access::Production { released: change.now() }
                    },
                    file: version.file.clone(),
                    mark: Some(version.mark),
                    state: VersionState::Ready,
                    comment: Description::new("adopted")?,
                    made_at: change.now(),
                })?;
            }
            made.push(vdisk);
        }
        Ok(made)
    })
}

fn not_adoptable(plan: &Plan, name: &VdiskName) -> ControlError {
    let own = |finding: &&Finding| finding.file.to_lowercase().starts_with(&name.folded());
    let whys: Vec<_> = plan.findings.iter().filter(own).map(|finding| finding.why.as_str()).collect();
    let why = if whys.is_empty() { "there is no such file".to_owned() } else { whys.join("; ") };
    ControlError::new(
        Code::NotFound,
        format!("vDisk \"{name}\" cannot be adopted from {:?}: {why}", plan.folder),
    )
}

/// The files of a store that the catalogue lists, in lower case, and the names of its vDisks.
fn known(control: &Control, store: StoreId) -> Result<(HashSet<String>, HashSet<String>), ControlError> {
    control.read(|reader| {
        let (mut files, mut names) = (HashSet::new(), HashSet::new());
        for vdisk in reader.all::<Vdisk>()?.into_iter().filter(|vdisk| vdisk.store == store) {
            names.insert(vdisk.name.folded());
            files.extend(reader.versions(vdisk.id)?.iter().map(|version| version.file.folded()));
        }
        Ok((files, names))
    })
}
