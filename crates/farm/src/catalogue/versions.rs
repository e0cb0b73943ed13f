//! The life of versions, written down: each function reads the vDisk as it is, asks the rule, and writes what it says, in
//! the same transaction. Files are made, moved and deleted by whoever calls, before or after, under a lease.
use super::change::Change;
use super::error::CatalogueError;
use crate::model::{
    Description, Device, FileMark, MergeResult, Revision, Stored, Subject, Timestamp, Vdisk, VdiskId,
    Version, VersionId, VersionNumber, VersionState,
};
use crate::rules::lifecycle::{self, Deletion, MergeKind, MergePlan, Promotion, Reversion};
use crate::rules::{Refusal, entitlement};

/// Of each: [`CatalogueError::Refused`] with the rule's reason, [`CatalogueError::Outdated`] where `expected` is not the
/// revision, or the database's error.
#[allow(clippy::missing_errors_doc, reason = "stated once for all of them")]
impl Change<'_> {
    /// Makes a version under maintenance, whose state is [`VersionState::Making`] until its file is there.
    pub fn new_maintenance(
        &mut self,
        vdisk: VdiskId,
        parent: Option<VersionNumber>,
        comment: Description,
    ) -> Result<Stored<Version>, CatalogueError> {
        let (vdisk, versions) = self.vdisk_and_versions(vdisk)?;
        let version = lifecycle::new_maintenance(&vdisk, &versions, parent, comment, self.at)?;
        self.create(version)
    }

    /// Promotes a version; `mark` is what its file looks like now.
    pub fn promote(
        &mut self,
        version: VersionId,
        expected: Revision,
        to: Promotion,
        mark: FileMark,
    ) -> Result<Stored<Version>, CatalogueError> {
        let old = self.expect(version, expected)?;
        let versions = self.versions(old.vdisk)?;
        let in_use = self.in_use(Subject::Contents(version))?;
        let promoted = lifecycle::promote(&versions, old.number, to, mark, &in_use, self.at);
        let promoted = self.with_names(promoted)?;
        self.update_as("promote", version, expected, promoted)
    }

    /// Lets the newest version go back to test or maintenance.
    pub fn revert(
        &mut self,
        version: VersionId,
        expected: Revision,
        to: Reversion,
    ) -> Result<Stored<Version>, CatalogueError> {
        let old = self.expect(version, expected)?;
        let (vdisk, versions) = self.vdisk_and_versions(old.vdisk)?;
        let in_use = self.in_use(Subject::Contents(version))?;
        let reverted = lifecycle::revert(&vdisk, &versions, old.number, to, &in_use);
        let reverted = self.with_names(reverted)?;
        self.update_as("revert", version, expected, reverted)
    }

    /// Holds a vDisk at a version, or with `None` lets it go again.
    pub fn hold(
        &mut self,
        vdisk: VdiskId,
        expected: Revision,
        at: Option<VersionNumber>,
    ) -> Result<Stored<Vdisk>, CatalogueError> {
        let old = self.expect(vdisk, expected)?;
        let versions = self.versions(vdisk)?;
        let held = lifecycle::hold(&old, &versions, at)?;
        self.update_as(if at.is_some() { "hold" } else { "unhold" }, vdisk, expected, held)
    }

    /// Says what became of a version's file: made, found missing or changed, or back again.
    pub fn set_version_state(
        &mut self,
        version: VersionId,
        expected: Revision,
        state: VersionState,
        mark: Option<FileMark>,
    ) -> Result<Stored<Version>, CatalogueError> {
        let old = self.expect(version, expected)?;
        let mark = mark.or(old.mark);
        self.update_as("state", version, expected, Version { state, mark, ..old.value })
    }

    /// Deletes a version that nobody uses; or marks it to be deleted when nobody uses it any more. The answer says which,
    /// and who uses it.
    pub fn delete_version(
        &mut self,
        version: VersionId,
        expected: Revision,
    ) -> Result<Deletion, CatalogueError> {
        let deletion = self.deletion(version, expected)?;
        match deletion {
            Deletion::Now => self.delete(version, expected)?,
            Deletion::WhenFree(_) => self.leave(version, expected, "delete-when-free")?,
        }
        Ok(deletion)
    }

    /// As [`delete_version`](Self::delete_version), but a version that nobody uses stays listed as
    /// [`VersionState::Leaving`], too: until its file is gone.
    pub fn retire_version(
        &mut self,
        version: VersionId,
        expected: Revision,
    ) -> Result<Deletion, CatalogueError> {
        let deletion = self.deletion(version, expected)?;
        let free = matches!(deletion, Deletion::Now);
        self.leave(version, expected, if free { "retire" } else { "delete-when-free" })?;
        Ok(deletion)
    }

    fn deletion(&mut self, version: VersionId, expected: Revision) -> Result<Deletion, CatalogueError> {
        let old = self.expect(version, expected)?;
        let (vdisk, versions) = self.vdisk_and_versions(old.vdisk)?;
        let in_use = self.in_use(Subject::Contents(version))?;
        let devices = self.count::<Device>(&crate::filter::Filter::equal("vdisk-id", vdisk.id))?;
        Ok(match lifecycle::delete(&vdisk, &versions, old.number, &in_use, devices)? {
            Deletion::Now => Deletion::Now,
            Deletion::WhenFree(conflict) => Deletion::WhenFree(self.name_owners(conflict)?),
        })
    }

    fn leave(
        &mut self,
        version: VersionId,
        expected: Revision,
        action: &'static str,
    ) -> Result<(), CatalogueError> {
        let old = self.expect(version, expected)?;
        let leaving = Version { state: VersionState::Leaving, ..old.value };
        self.update_as(action, version, expected, leaving).map(|_| ())
    }

    /// Makes the version that a conversion to VHDX gives, in state [`VersionState::Making`]; tells what goes into it.
    pub fn begin_conversion(
        &mut self,
        vdisk: VdiskId,
        comment: Description,
    ) -> Result<(MergePlan, Stored<Version>), CatalogueError> {
        let (vdisk, versions) = self.vdisk_and_versions(vdisk)?;
        let plan = lifecycle::conversion(&vdisk, &versions, comment, self.at)?;
        let made = self.create(plan.result.clone())?;
        Ok((plan, made))
    }

    /// Makes the version that a merge gives, in state [`VersionState::Making`]; tells what goes into it.
    pub fn begin_merge(
        &mut self,
        vdisk: VdiskId,
        kind: MergeKind,
        result: MergeResult,
        comment: Description,
    ) -> Result<(MergePlan, Stored<Version>), CatalogueError> {
        let (vdisk, versions) = self.vdisk_and_versions(vdisk)?;
        let plan = lifecycle::merge(&vdisk, &versions, kind, result, comment, self.at)?;
        let made = self.create(plan.result.clone())?;
        Ok((plan, made))
    }

    fn vdisk_and_versions(
        &mut self,
        vdisk: VdiskId,
    ) -> Result<(Stored<Vdisk>, Vec<Stored<Version>>), CatalogueError> {
        Ok((self.get(vdisk)?, self.versions(vdisk)?))
    }

    /// Puts names into a refusal that is about leases.
    fn with_names<T>(&mut self, result: Result<T, Refusal>) -> Result<T, CatalogueError> {
        match result {
            Err(Refusal::InUse(conflict)) => Err(Refusal::InUse(self.name_owners(conflict)?).into()),
            other => Ok(other?),
        }
    }

    /// The next moment at which a scheduled release changes what devices boot; `None`: nothing is scheduled.
    pub fn next_release(&mut self) -> Result<Option<Timestamp>, CatalogueError> {
        let now = self.at;
        let versions = self.select::<Version>("WHERE t.released_at > ?", &[now.into()])?;
        Ok(entitlement::next_release(&versions, now))
    }
}
