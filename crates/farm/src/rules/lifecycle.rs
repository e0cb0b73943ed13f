//! The life of versions: what may be made, promoted, reverted, held, deleted and merged.
//!
//! ```text
//!            new                    promote                 promote, at once or scheduled
//! published ------> maintenance ------------------> test --------------------------------> production
//!   ^                   ^  \_______________________________________________________________/ |
//!   |                   |________________________ revert (the newest alone) ________________|
//!   |                                                                                        |
//!   '--- override: production devices are held at an older one          merge: a new version with the same contents
//! ```
//!
//! Functions take all versions of the vDisk in the order of their numbers, and give the new value of what changes. They
//! change nothing themselves; whoever writes it down does so in one transaction with having read what they were given.
use super::entitlement::{MAX_CHAIN, chain, children, find, is_whole, ready};
use super::files::{ImageFormat, file_name};
use super::leases::Conflict;
use super::refusal::Refusal;
use crate::model::{
    Access, AccessMode, AutoMerge, Description, FileMark, Lease, Lineage, MergeResult, Stored, Timestamp,
    Vdisk, Version, VersionNumber, VersionState,
};

/// A new version under maintenance: differences from `parent`, or where none is named from the newest published version.
/// Its file is to be made.
///
/// # Errors
/// [`Refusal`]: the vDisk is private, another version is under maintenance, or the parent is not published and whole.
pub fn new_maintenance(
    vdisk: &Stored<Vdisk>,
    versions: &[Stored<Version>],
    parent: Option<VersionNumber>,
    comment: Description,
    now: Timestamp,
) -> Result<Version, Refusal> {
    standard(vdisk)?;
    no_maintenance(versions)?;
    let parent = match parent {
        Some(number) => find(versions, number)?,
        None => newest_published(versions)?,
    };
    published(ready(parent)?)?;
    let length = chain(versions, parent)?.len().saturating_add(1);
    if length > MAX_CHAIN {
        return Err(Refusal::ChainTooLong { number: parent.number, length, limit: MAX_CHAIN });
    }
    let lineage = Lineage::Difference { parent: parent.number };
    new_version(vdisk, versions, parent, lineage, Access::Maintenance, (comment, now))
}

/// What a version is promoted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promotion {
    /// To test devices.
    Test,
    /// To production devices from this moment on.
    Production(Timestamp),
}

/// The version, promoted. `mark` is what its file looks like now; it never changes from here on. `in_use` are the leases
/// on its contents.
///
/// # Errors
/// [`Refusal`]: it is that already, is not whole, or a maintenance device still writes to it.
pub fn promote(
    versions: &[Stored<Version>],
    number: VersionNumber,
    to: Promotion,
    mark: FileMark,
    in_use: &[Lease],
    now: Timestamp,
) -> Result<Version, Refusal> {
    let version = ready(find(versions, number)?)?;
    let access = match (version.access, to) {
        (Access::Maintenance, Promotion::Test) => Access::Test,
        (Access::Maintenance | Access::Test, Promotion::Production(released)) => {
            Access::Production { released }
        }
        (Access::Production { released }, Promotion::Production(_)) if released <= now => {
            return Err(Refusal::AlreadyReleased { number, released });
        }
        // A release that is to come can be moved.
        (Access::Production { .. }, Promotion::Production(released)) => Access::Production { released },
        (Access::Test | Access::Production { .. }, Promotion::Test) => {
            return Err(Refusal::AlreadySo(number));
        }
    };
    if version.access == Access::Maintenance {
        unused(in_use)?;
    }
    Ok(Version { access, mark: Some(mark), ..version.value.clone() })
}

/// What a version goes back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reversion {
    /// Under maintenance: it can be changed again.
    Maintenance,
    /// To test devices alone.
    Test,
}

/// The version, gone back. Devices that run on it go on until their next boot when it goes back to test; before it is
/// changed again, they must have ended.
///
/// # Errors
/// [`Refusal`]: it is not the newest, others stand on it, the vDisk is held at it, or somebody uses what would be
/// changed.
pub fn revert(
    vdisk: &Vdisk,
    versions: &[Stored<Version>],
    number: VersionNumber,
    to: Reversion,
    in_use: &[Lease],
) -> Result<Version, Refusal> {
    let version = ready(find(versions, number)?)?;
    let newest = versions.iter().map(|version| version.number).max().unwrap_or(number);
    if newest != number {
        return Err(Refusal::NotNewest { number, newest });
    }
    if vdisk.override_version == Some(number) {
        return Err(Refusal::Held(number));
    }
    let reverted = |access, mark| Version { access, mark, ..version.value.clone() };
    match (version.access, to) {
        (Access::Maintenance, _) | (Access::Test, Reversion::Test) => Err(Refusal::AlreadySo(number)),
        (Access::Production { .. }, Reversion::Test) => Ok(reverted(Access::Test, version.mark)),
        (Access::Test | Access::Production { .. }, Reversion::Maintenance) => {
            if is_whole(version) {
                return Err(Refusal::WholeImage(number));
            }
            unused(in_use)?;
            Ok(reverted(Access::Maintenance, None))
        }
    }
}

/// The vDisk, held at a version (`None`: not held any more). Production devices boot that one from their next boot on.
///
/// # Errors
/// [`Refusal`]: the version is not in production or not whole.
pub fn hold(
    vdisk: &Vdisk,
    versions: &[Stored<Version>],
    at: Option<VersionNumber>,
) -> Result<Vdisk, Refusal> {
    if let Some(number) = at {
        let version = ready(find(versions, number)?)?;
        if !matches!(version.access, Access::Production { .. }) {
            return Err(Refusal::NotProduction(number));
        }
    }
    Ok(Vdisk { override_version: at, ..vdisk.clone() })
}

/// How a version goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// At once: nobody uses it.
    Now,
    /// When those who use it have ended; nobody boots it any more from now on.
    WhenFree(Conflict),
}

/// Whether a version may be deleted, and when. `devices` is how many devices have the vDisk.
///
/// # Errors
/// [`Refusal`]: others stand on it, the vDisk is held at it, or production devices would have nothing to boot.
pub fn delete(
    vdisk: &Vdisk,
    versions: &[Stored<Version>],
    number: VersionNumber,
    in_use: &[Lease],
    devices: u64,
) -> Result<Deletion, Refusal> {
    let version = find(versions, number)?;
    let children = children(versions, number);
    if !children.is_empty() {
        return Err(Refusal::HasChildren { number, children });
    }
    if vdisk.override_version == Some(number) {
        return Err(Refusal::Held(number));
    }
    let others = versions.iter().filter(|other| other.number != number && other.state == VersionState::Ready);
    let another = others.into_iter().any(|other| matches!(other.access, Access::Production { .. }));
    if matches!(version.access, Access::Production { .. }) && !another && devices > 0 {
        return Err(Refusal::LastOne { number, devices });
    }
    Ok(match unused(in_use) {
        Err(Refusal::InUse(conflict)) => Deletion::WhenFree(conflict),
        _ => Deletion::Now,
    })
}

/// What is merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeKind {
    /// The differences since the last whole image, into one.
    Updates,
    /// The last whole image and all differences, into a new whole image.
    Base,
}

/// A merge to be carried out.
#[derive(Clone, Debug, PartialEq)]
pub struct MergePlan {
    /// The versions whose contents go into it, newest first.
    pub sources: Vec<VersionNumber>,
    /// What comes of it; its file is to be made.
    pub result: Version,
}

/// What a merge of the newest published version's chain takes and gives.
///
/// # Errors
/// [`Refusal`]: the vDisk is private, a version is under maintenance, there is nothing to merge, or it would release
/// what is in test.
pub fn merge(
    vdisk: &Stored<Vdisk>,
    versions: &[Stored<Version>],
    kind: MergeKind,
    result: MergeResult,
    comment: Description,
    now: Timestamp,
) -> Result<MergePlan, Refusal> {
    standard(vdisk)?;
    no_maintenance(versions)?;
    let newest = newest_published(versions)?;
    let all = chain(versions, newest)?;
    let differences = all.len().saturating_sub(1);
    let (taken, lineage) = match (kind, all.last()) {
        (MergeKind::Updates, Some(base)) if differences >= 2 => {
            (differences, Lineage::MergedUpdates { parent: base.number, contents_of: newest.number })
        }
        (MergeKind::Base, _) if differences >= 1 => {
            (all.len(), Lineage::MergedBase { contents_of: newest.number })
        }
        (MergeKind::Updates, _) => {
            return Err(Refusal::NothingToMerge("there are not two updates on the newest base"));
        }
        (MergeKind::Base, _) => return Err(Refusal::NothingToMerge("the newest version is a whole image")),
    };
    for version in &all {
        ready(version)?;
    }
    let access = match result {
        MergeResult::Maintenance => Access::Maintenance,
        MergeResult::Test => Access::Test,
        MergeResult::Production if newest.access == Access::Test => {
            return Err(Refusal::WouldRelease(newest.number));
        }
        // What is scheduled stays scheduled.
        MergeResult::Production => match newest.access {
            Access::Production { released } if released > now => Access::Production { released },
            _ => Access::Production { released: now },
        },
    };
    let sources = all.iter().take(taken).map(|version| version.number).collect();
    let result = new_version(vdisk, versions, newest, lineage, access, (comment, now))?;
    Ok(MergePlan { sources, result })
}

/// What a conversion of the newest published version to VHDX takes and gives: a whole image with the same contents, for
/// the same devices.
///
/// # Errors
/// [`Refusal`]: the vDisk is private, a version is under maintenance, or the newest is VHDX already.
pub fn conversion(
    vdisk: &Stored<Vdisk>,
    versions: &[Stored<Version>],
    comment: Description,
    now: Timestamp,
) -> Result<MergePlan, Refusal> {
    standard(vdisk)?;
    no_maintenance(versions)?;
    let newest = newest_published(versions)?;
    if ImageFormat::of(&newest.file) == Some(ImageFormat::Vhdx) {
        return Err(Refusal::NothingToMerge("the newest version is in VHDX already"));
    }
    let all = chain(versions, newest)?;
    for version in &all {
        ready(version)?;
    }
    let lineage = Lineage::MergedBase { contents_of: newest.number };
    let result = new_version(vdisk, versions, newest, lineage, newest.access, (comment, now))?;
    // No rule forbids the name: it is as long as the other format's and one letter.
    let file = file_name(&vdisk.name, result.number, lineage, ImageFormat::Vhdx)
        .map_err(|_| Refusal::NumbersUsedUp)?;
    let sources = all.iter().map(|version| version.number).collect();
    Ok(MergePlan { sources, result: Version { file, ..result } })
}

/// Whether a chain has become so long that it is to be merged without being asked to.
#[must_use]
pub fn merge_is_due(auto: Option<AutoMerge>, vdisk: &Vdisk, versions: &[Stored<Version>]) -> bool {
    let length =
        newest_published(versions).and_then(|newest| chain(versions, newest)).map_or(0, |chain| chain.len());
    let limit = auto.and_then(|auto| usize::try_from(auto.above.get()).ok()).unwrap_or(usize::MAX);
    let quiet = versions.iter().all(|version| version.state != VersionState::Making)
        && no_maintenance(versions).is_ok();
    length > limit && quiet && vdisk.mode != AccessMode::Private
}

/// Versions that nothing needs any more: not another's parent, not what the vDisk is held at, and older than one that
/// was merged out of it.
#[must_use]
pub fn obsolete(vdisk: &Vdisk, versions: &[Stored<Version>], now: Timestamp) -> Vec<VersionNumber> {
    let replaced = versions.iter().filter(|version| {
        version.state == VersionState::Ready && super::entitlement::is_released(version, now)
    });
    let up_to = replaced.filter_map(|version| version.lineage.contents_of()).max();
    let numbers = versions.iter().map(|version| version.number);
    let old = numbers.filter(|number| up_to.is_some_and(|up_to| *number <= up_to));
    old.filter(|number| vdisk.override_version != Some(*number) && children(versions, *number).is_empty())
        .collect()
}

fn standard(vdisk: &Vdisk) -> Result<(), Refusal> {
    if vdisk.mode == AccessMode::Private { Err(Refusal::Private) } else { Ok(()) }
}

fn no_maintenance(versions: &[Stored<Version>]) -> Result<(), Refusal> {
    let leaving = |version: &&Stored<Version>| version.state != VersionState::Leaving;
    let found = versions.iter().filter(leaving).find(|version| version.access == Access::Maintenance);
    found.map_or(Ok(()), |version| Err(Refusal::UnderMaintenance(version.number)))
}

fn published(version: &Stored<Version>) -> Result<(), Refusal> {
    if version.access == Access::Maintenance { Err(Refusal::NotPublished(version.number)) } else { Ok(()) }
}

fn newest_published(versions: &[Stored<Version>]) -> Result<&Stored<Version>, Refusal> {
    let whole = |version: &&Stored<Version>| {
        version.access != Access::Maintenance
            && !matches!(version.state, VersionState::Making | VersionState::Leaving)
    };
    versions.iter().filter(whole).max_by_key(|version| version.number).ok_or(Refusal::NothingPublished)
}

fn unused(in_use: &[Lease]) -> Result<(), Refusal> {
    match in_use {
        [] => Ok(()),
        held => Err(Conflict { held: held.to_vec(), names: Vec::new() }.into()),
    }
}

fn new_version(
    vdisk: &Stored<Vdisk>,
    versions: &[Stored<Version>],
    like: &Version,
    lineage: Lineage,
    access: Access,
    (comment, now): (Description, Timestamp),
) -> Result<Version, Refusal> {
    let highest = versions.iter().map(|version| version.number).max();
    let number =
        highest.map_or(Some(VersionNumber::BASE), VersionNumber::next).ok_or(Refusal::NumbersUsedUp)?;
    let format = ImageFormat::of(&like.file).unwrap_or(ImageFormat::Vhdx);
    // A vDisk's name of 52 bytes, a number of 6 and an extension are far below a file name's 255.
    let file = file_name(&vdisk.name, number, lineage, format).map_err(|_| Refusal::NumbersUsedUp)?;
    let state = VersionState::Making;
    Ok(Version { vdisk: vdisk.id, number, lineage, access, file, mark: None, state, comment, made_at: now })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ChainLimit, Fence, Id, Owner, Purpose, Revision, Sharing, Subject};
    use crate::rules::sample::{at, base, difference, mark, n, text, vdisk, version};

    const RELEASED: Access = Access::Production { released: Timestamp::from_ms(0) };

    fn stored() -> Stored<Vdisk> {
        Stored { id: Id::new(1).unwrap(), revision: Revision::FIRST, value: vdisk() }
    }

    fn lease() -> Lease {
        Lease {
            fence: Fence::new(1).unwrap(),
            subject: Subject::Contents(Id::new(1).unwrap()),
            sharing: Sharing::Shared,
            purpose: Purpose::Boot,
            owner: Owner::Device(Id::new(1).unwrap()),
            server: Id::new(1).unwrap(),
            since: at(0),
            until: at(1),
        }
    }

    fn new(versions: &[Stored<Version>], parent: Option<u32>) -> Result<Version, Refusal> {
        new_maintenance(&stored(), versions, parent.map(n), text("x"), at(5))
    }

    #[test]
    fn maintenance_version_stands_on_the_newest_published_one() {
        let made = new(&[base(0), difference(1, 0, Access::Test)], None).unwrap();
        assert_eq!((made.number, made.lineage), (n(2), Lineage::Difference { parent: n(1) }));
        assert_eq!((made.file.as_str(), made.access), ("golden.2.avhdx", Access::Maintenance));
        assert_eq!((made.state, made.mark), (VersionState::Making, None));
        // From an older one: what came after it is left aside.
        let made = new(&[base(0), difference(1, 0, RELEASED)], Some(0)).unwrap();
        assert_eq!((made.number, made.lineage), (n(2), Lineage::Difference { parent: n(0) }));
    }

    #[test]
    fn second_maintenance_version_is_refused() {
        let versions = [base(0), difference(1, 0, Access::Maintenance)];
        assert_eq!(new(&versions, None), Err(Refusal::UnderMaintenance(n(1))));
        assert_eq!(new(&[], None), Err(Refusal::NothingPublished));
        assert_eq!(new(&[base(0)], Some(3)), Err(Refusal::NoSuchVersion(n(3))));
        let mut private = stored();
        private.value.mode = AccessMode::Private;
        assert_eq!(new_maintenance(&private, &[base(0)], None, text(""), at(0)), Err(Refusal::Private));
    }

    #[test]
    fn chain_that_could_not_be_opened_is_not_made() {
        let mut versions = vec![base(0)];
        for number in 1..u32::try_from(MAX_CHAIN).unwrap() {
            versions.push(difference(number, number - 1, RELEASED));
        }
        assert!(matches!(new(&versions, None), Err(Refusal::ChainTooLong { length: 65, .. })));
        assert!(new(&versions[..63], None).is_ok());
    }

    #[test]
    fn version_is_promoted_step_by_step_or_at_once() {
        let go = |access, to, in_use: &[Lease]| {
            promote(&[base(0), difference(1, 0, access)], n(1), to, mark(), in_use, at(100))
                .map(|version| version.access)
        };
        let later = Promotion::Production(at(500));
        let scheduled = Access::Production { released: at(500) };
        assert_eq!(go(Access::Maintenance, Promotion::Test, &[]), Ok(Access::Test));
        assert_eq!(go(Access::Maintenance, later, &[]), Ok(scheduled));
        assert_eq!(go(Access::Test, later, &[lease()]), Ok(scheduled));
        assert_eq!(
            go(scheduled, Promotion::Production(at(300)), &[]),
            Ok(Access::Production { released: at(300) })
        );
        assert_eq!(go(RELEASED, later, &[]), Err(Refusal::AlreadyReleased { number: n(1), released: at(0) }));
        assert_eq!(go(Access::Test, Promotion::Test, &[]), Err(Refusal::AlreadySo(n(1))));
        assert!(matches!(go(Access::Maintenance, Promotion::Test, &[lease()]), Err(Refusal::InUse(_))));
    }

    #[test]
    fn version_that_is_not_whole_is_not_promoted() {
        let mut versions = [base(0), difference(1, 0, Access::Maintenance)];
        versions[1].value.state = VersionState::Making;
        let refused = promote(&versions, n(1), Promotion::Test, mark(), &[], at(0));
        assert_eq!(refused, Err(Refusal::NotReady { number: n(1), state: VersionState::Making }));
    }

    #[test]
    fn newest_version_alone_goes_back() {
        let versions = [base(0), difference(1, 0, RELEASED), difference(2, 1, RELEASED)];
        let go = |number, to, in_use: &[Lease]| revert(&vdisk(), &versions, n(number), to, in_use);
        assert_eq!(go(1, Reversion::Test, &[]), Err(Refusal::NotNewest { number: n(1), newest: n(2) }));
        assert_eq!(go(2, Reversion::Test, &[lease()]).unwrap().access, Access::Test);
        let back = go(2, Reversion::Maintenance, &[]).unwrap();
        assert_eq!((back.access, back.mark), (Access::Maintenance, None));
        assert!(matches!(go(2, Reversion::Maintenance, &[lease()]), Err(Refusal::InUse(_))));
        let mut held = vdisk();
        held.override_version = Some(n(2));
        assert_eq!(revert(&held, &versions, n(2), Reversion::Test, &[]), Err(Refusal::Held(n(2))));
        let whole = revert(&vdisk(), &versions[..1], n(0), Reversion::Maintenance, &[]);
        assert_eq!(whole, Err(Refusal::WholeImage(n(0))));
    }

    #[test]
    fn vdisk_is_held_at_production_versions_alone() {
        let versions = [base(0), difference(1, 0, Access::Test)];
        assert_eq!(hold(&vdisk(), &versions, Some(n(0))).unwrap().override_version, Some(n(0)));
        assert_eq!(hold(&vdisk(), &versions, Some(n(1))), Err(Refusal::NotProduction(n(1))));
        assert_eq!(hold(&vdisk(), &versions, None).unwrap().override_version, None);
    }

    #[test]
    fn version_that_something_needs_is_not_deleted() {
        let versions = [base(0), difference(1, 0, RELEASED)];
        let go = |vdisk: &Vdisk, versions: &[Stored<Version>], number, in_use: &[Lease]| {
            delete(vdisk, versions, n(number), in_use, 3)
        };
        assert_eq!(
            go(&vdisk(), &versions, 0, &[]),
            Err(Refusal::HasChildren { number: n(0), children: vec![n(1)] })
        );
        assert_eq!(go(&vdisk(), &versions, 1, &[]), Ok(Deletion::Now));
        assert!(matches!(go(&vdisk(), &versions, 1, &[lease()]), Ok(Deletion::WhenFree(_))));
        assert_eq!(go(&vdisk(), &versions[..1], 0, &[]), Err(Refusal::LastOne { number: n(0), devices: 3 }));
        assert_eq!(delete(&vdisk(), &versions[..1], n(0), &[], 0), Ok(Deletion::Now));
        let mut held = vdisk();
        held.override_version = Some(n(1));
        assert_eq!(go(&held, &versions, 1, &[]), Err(Refusal::Held(n(1))));
    }

    #[test]
    fn conversion_gives_a_whole_vhdx_to_the_same_devices() {
        let mut old = [base(0), difference(1, 0, RELEASED)];
        let plan = |versions: &[Stored<Version>]| conversion(&stored(), versions, text(""), at(10));
        assert!(matches!(plan(&old), Err(Refusal::NothingToMerge(_))));
        for (version, file) in old.iter_mut().zip(["golden.vhd", "golden.1.avhd"]) {
            version.value.file = text(file);
        }
        let MergePlan { sources, result } = plan(&old).unwrap();
        assert_eq!(sources, [n(1), n(0)]);
        assert_eq!((result.number, result.file.as_str()), (n(2), "golden.2.vhdx"));
        assert_eq!((result.access, result.state), (RELEASED, VersionState::Making));
        assert_eq!(result.lineage, Lineage::MergedBase { contents_of: n(1) });
    }

    #[test]
    fn merge_takes_the_chain_of_the_newest_published_version() {
        let versions =
            [base(0), difference(1, 0, RELEASED), difference(2, 1, RELEASED), difference(3, 2, RELEASED)];
        let go = |kind, result| merge(&stored(), &versions, kind, result, text(""), at(9)).unwrap();
        let updates = go(MergeKind::Updates, MergeResult::Production);
        assert_eq!(updates.sources, [n(3), n(2), n(1)]);
        assert_eq!(updates.result.lineage, Lineage::MergedUpdates { parent: n(0), contents_of: n(3) });
        assert_eq!(updates.result.file.as_str(), "golden.4.avhdx");
        assert_eq!(updates.result.access, Access::Production { released: at(9) });
        let whole = go(MergeKind::Base, MergeResult::Test);
        assert_eq!(whole.sources, [n(3), n(2), n(1), n(0)]);
        assert_eq!((whole.result.file.as_str(), whole.result.access), ("golden.4.vhdx", Access::Test));
    }

    #[test]
    fn merge_that_makes_no_sense_is_refused() {
        let go = |versions: &[Stored<Version>], kind, result| {
            merge(&stored(), versions, kind, result, text(""), at(9))
        };
        let production = MergeResult::Production;
        let two = [base(0), difference(1, 0, RELEASED)];
        assert!(matches!(go(&two, MergeKind::Updates, production), Err(Refusal::NothingToMerge(_))));
        assert!(matches!(go(&two[..1], MergeKind::Base, production), Err(Refusal::NothingToMerge(_))));
        let test = [base(0), difference(1, 0, Access::Test)];
        assert_eq!(go(&test, MergeKind::Base, production), Err(Refusal::WouldRelease(n(1))));
        assert!(go(&test, MergeKind::Base, MergeResult::Test).is_ok());
        let maintained = [base(0), difference(1, 0, RELEASED), difference(2, 1, Access::Maintenance)];
        assert_eq!(go(&maintained, MergeKind::Base, production), Err(Refusal::UnderMaintenance(n(2))));
        let scheduled = [base(0), difference(1, 0, Access::Production { released: at(50) })];
        let merged = go(&scheduled, MergeKind::Base, production).unwrap().result;
        assert_eq!(merged.access, Access::Production { released: at(50) });
    }

    #[test]
    fn long_chain_is_due_for_merging_and_what_was_merged_is_obsolete() {
        let auto = Some(AutoMerge { above: ChainLimit::new(3).unwrap(), result: MergeResult::Production });
        let mut versions = vec![base(0), difference(1, 0, RELEASED), difference(2, 1, RELEASED)];
        assert!(!merge_is_due(auto, &vdisk(), &versions));
        versions.push(difference(3, 2, RELEASED));
        assert!(merge_is_due(auto, &vdisk(), &versions) && !merge_is_due(None, &vdisk(), &versions));
        assert_eq!(obsolete(&vdisk(), &versions, at(9)), []);
        versions.push(version(4, Lineage::MergedBase { contents_of: n(3) }, RELEASED));
        assert!(!merge_is_due(auto, &vdisk(), &versions));
        // From the leaf downwards: 2 is 3's parent as long as 3 is there.
        assert_eq!(obsolete(&vdisk(), &versions, at(9)), [n(3)]);
        versions.remove(3);
        assert_eq!(obsolete(&vdisk(), &versions, at(9)), [n(2)]);
    }
}
