//! Merges and conversions: a new version with the contents of the newest one, in one file instead of many, or in VHDX
//! instead of VHD.
//!
//! Devices boot and run from the sources all the while, which are only read. The new file lies beside them under a name
//! that the catalogue has given to a version that nothing boots; one transaction makes that version ready, and devices
//! boot it from their next boot on. The sources stay until somebody deletes them.
use std::path::Path;

use diskimage::ops::{ConvertOptions, Job as ImageJob, MergeOptions, convert, merge_base, merge_updates};
use diskimage::{Format, Image, LayerIndex};
use farm::catalogue::Change;
use farm::model::{
    Access, AccessKind, Description, MergeResult, Purpose, Sharing, Stored, Subject, Task, VdiskId, Version,
    VersionId, VersionNumber, VersionState,
};
use farm::rules::entitlement::find;
use farm::rules::lifecycle::{MergeKind, MergePlan};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::caller::Caller;
use crate::error::ControlError;
use crate::making::Making;
use crate::marks;
use crate::places::{changeable, folder, has_room, is_free, reachable, reading};
use crate::tasks::{Begun, Finish, Job, Running, record};
use crate::versions::lease_chain;
use crate::whole::Control;

/// What is asked of a merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Which versions are merged.
    pub kind: MergeKind,
    /// Who boots the result; `None`: who boots the newest version now.
    pub result: Option<MergeResult>,
    /// Whether the result is read back and compared before it counts.
    pub verify: bool,
    /// What is written about the result.
    pub comment: Description,
}

/// A merge of updates for those who boot the newest version now.
impl Default for Request {
    fn default() -> Self {
        Self { kind: MergeKind::Updates, result: None, verify: false, comment: no_comment() }
    }
}

#[allow(clippy::expect_used, reason = "an empty description is one")]
fn no_comment() -> Description {
    Description::new("").expect("a description")
}

/// Begins to merge a vDisk's newest version and what it stands on, in the background.
///
/// # Errors
/// What the rules say: among them that there is nothing to merge, and the task that is at the chain already.
pub fn begin(
    control: &Control,
    by: &Caller,
    vdisk: VdiskId,
    request: &Request,
) -> Result<Stored<Task>, ControlError> {
    let kind = match request.kind {
        MergeKind::Updates => Kind::Updates,
        MergeKind::Base => Kind::Base,
    };
    begin_with(control, by, vdisk, kind, request.verify, &mut |change| {
        let result = match request.result {
            Some(result) => result,
            None => as_newest(&change.versions(vdisk)?),
        };
        Ok(change.begin_merge(vdisk, request.kind, result, request.comment.clone())?)
    })
}

/// Begins to convert a vDisk's newest version from VHD to a whole image in VHDX, in the background.
///
/// # Errors
/// What the rules say: among them that it is in VHDX already.
pub fn begin_conversion(
    control: &Control,
    by: &Caller,
    vdisk: VdiskId,
    verify: bool,
    comment: &Description,
) -> Result<Stored<Task>, ControlError> {
    begin_with(control, by, vdisk, Kind::Convert, verify, &mut |change| {
        Ok(change.begin_conversion(vdisk, comment.clone())?)
    })
}

/// What makes the version in the catalogue.
type MakeVersion<'a> =
    &'a mut dyn FnMut(&mut Change<'_>) -> Result<(MergePlan, Stored<Version>), ControlError>;

fn begin_with(
    control: &Control,
    by: &Caller,
    vdisk: VdiskId,
    kind: Kind,
    verify: bool,
    make: MakeVersion<'_>,
) -> Result<Stored<Task>, ControlError> {
    let task = control.change(by, |change| {
        let of = changeable(change, by, vdisk)?;
        let (plan, made) = make(change)?;
        let folder = folder(change, control.server(), &of)?;
        reachable(&folder)?;
        is_free(&folder.join(made.file.as_str()))?;
        let source = plan.sources.first().copied().unwrap_or(VersionNumber::BASE);
        let versions = change.versions(vdisk)?;
        let source = find(&versions, source)?.id;
        let job = Job::Merge(Merge { version: made.id, source, kind, verify });
        let task = record(change, control, by, job, Some(vdisk), Begun::Later)?;
        lease_chain(change, control, &task, vdisk, Purpose::Merge)?;
        Ok(task)
    })?;
    control.board().wake();
    Ok(task)
}

/// Who boots the newest published version.
fn as_newest(versions: &[Stored<Version>]) -> MergeResult {
    let whole = |version: &&Stored<Version>| version.state == VersionState::Ready;
    match versions
        .iter()
        .filter(whole)
        .max_by_key(|version| version.number)
        .map(|newest| newest.access.kind())
    {
        Some(AccessKind::Production) => MergeResult::Production,
        Some(AccessKind::Test | AccessKind::Maintenance) | None => MergeResult::Test,
    }
}

/// Which file is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// One difference of several.
    Updates,
    /// A whole image of a chain.
    Base,
    /// A whole image in VHDX of one in VHD.
    Convert,
}

impl Kind {
    /// The kind of the task.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Updates | Self::Base => "merge",
            Self::Convert => "convert",
        }
    }
}

/// A merge, as it stands in its task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Merge {
    /// What is made.
    pub(crate) version: VersionId,
    /// The newest of what it is made of.
    pub(crate) source: VersionId,
    pub(crate) kind: Kind,
    pub(crate) verify: bool,
}

impl Merge {
    pub(crate) fn run(&self, running: &Running<'_>) -> Result<Finish, ControlError> {
        let making = Making::read(running.control, self.version)?;
        running.lease(Subject::Chain(making.vdisk.id), Sharing::Exclusive, Purpose::Merge)?;
        // The newest source has no child that would keep it from being deleted.
        running.lease(Subject::Contents(self.source), Sharing::Shared, Purpose::Merge)?;
        let source = running.control.read(|reader| Ok(reader.get(self.source)?.value))?;
        let chain = making.chain_of(source.number)?;
        let image = Image::open(&making.path_of(&source), reading(&making.folder))?;
        marks::verify(&image, &chain)?;
        let target = making.target();
        let mut result = json!({ "version": making.version.number, "file": making.version.file });
        if target.symlink_metadata().is_err() {
            let job = self.job(&image, &target, &making.folder)?;
            let plan = job.plan()?;
            has_room(&making.folder, plan.totals.copy.bytes)?;
            running.log(&format!(
                "{} files into {:?}: {} bytes are shared with them, {} copied",
                chain.len(),
                making.version.file.as_str(),
                plan.totals.clone.bytes,
                plan.totals.copy.bytes
            ));
            let summary = job.run(running.watch())?;
            if let Some(result) = result.as_object_mut() {
                result.insert(
                    "blocks".to_owned(),
                    json!(summary.blocks.whole.saturating_add(summary.blocks.partly)),
                );
            }
        } else {
            // Whole files alone get their names, and this one was the version's since the catalogue lists it.
            running.log("the file was made before the server ended");
        }
        let mark = marks::of_file(&target)?;
        let version = self.version;
        Ok(Box::new(move |change| {
            let made: Stored<Version> = change.get(version)?;
            let mark = Some(mark).filter(|_| made.access != Access::Maintenance);
            change.set_version_state(version, made.revision, VersionState::Ready, mark)?;
            Ok(result.clone())
        }))
    }

    fn job<'a>(&self, image: &'a Image, target: &Path, folder: &Path) -> Result<ImageJob<'a>, ControlError> {
        let options =
            MergeOptions { verify: self.verify, reopen: reading(folder), ..MergeOptions::default() };
        Ok(match self.kind {
            // The rule has taken all differences on the newest base.
            Kind::Updates => merge_updates(image, LayerIndex::new(1), target, &options)?,
            Kind::Base => merge_base(image, target, &options)?,
            Kind::Convert => {
                // To the operating system it stays the disk that it knows.
                let identity = image.identity();
                let verify = self.verify;
                convert(
                    image,
                    target,
                    &ConvertOptions { identity, verify, ..ConvertOptions::to(Format::Vhdx) },
                )?
            }
        })
    }
}
