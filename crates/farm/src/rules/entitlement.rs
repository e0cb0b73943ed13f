//! Which version of a vDisk a device boots.
//!
//! | device | boots |
//! |---|---|
//! | production | the version that the vDisk is held at; else the newest released one |
//! | test | the newest one in test or in production, released or not |
//! | maintenance | the one under maintenance, and writes to it; else what a test device boots |
//! | any, of a private vDisk | the newest one, and writes to it |
//!
//! *Newest* is the one with the highest number. A version that is being made or is about to go is passed over. One whose
//! file is missing or was changed is not: falling back to an older system without a word would be worse than an error
//! that names the file.
use super::refusal::Refusal;
use serde::{Deserialize, Serialize};

use crate::model::{
    Access, AccessMode, DeviceKind, Lineage, Stored, Timestamp, Vdisk, Version, VersionNumber, VersionState,
    WriteCache, WriteCacheKind, WriteCacheOverride,
};

/// The longest chain that is made: half of what `diskimage` opens, so that what others made longer still runs.
pub const MAX_CHAIN: usize = 64;

/// What a device boots of a vDisk, and where it writes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entitlement<'a> {
    /// Which version.
    pub version: &'a Stored<Version>,
    /// Where the device's writes go.
    pub writes: Writes,
}

/// Where a device's writes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Writes {
    /// To a write cache of its own.
    Cache(WriteCache),
    /// Into the version under maintenance itself.
    Maintenance,
    /// Into the private vDisk itself.
    Private,
}

/// Which version of `versions`, which are all of the vDisk's in the order of their numbers, a device boots.
///
/// # Errors
/// [`Refusal::NothingPublished`], or [`Refusal::NotReady`] of the version that it would be.
pub fn entitled<'a>(
    kind: DeviceKind,
    own: WriteCacheOverride,
    vdisk: &Vdisk,
    versions: &'a [Stored<Version>],
    now: Timestamp,
) -> Result<Entitlement<'a>, Refusal> {
    let AccessMode::Standard(cache) = vdisk.mode else {
        let version = newest(versions, |_| true)?;
        return Ok(Entitlement { version, writes: Writes::Private });
    };
    let writes = Writes::Cache(own.of(cache));
    if kind == DeviceKind::Maintenance
        && let Ok(version) = newest(versions, |version| version.access == Access::Maintenance)
    {
        return Ok(Entitlement { version, writes: Writes::Maintenance });
    }
    let version = match (kind, vdisk.override_version) {
        (DeviceKind::Production, Some(held)) => ready(find(versions, held)?)?,
        (DeviceKind::Production, None) => newest(versions, |version| is_released(version, now))?,
        (DeviceKind::Test | DeviceKind::Maintenance, _) => {
            newest(versions, |version| version.access != Access::Maintenance)?
        }
    };
    Ok(Entitlement { version, writes })
}

/// The most versions of one vDisk that a boot menu offers besides the one that boots without a choice.
pub const MAX_OFFERED: usize = 8;

/// The versions, newest first, that a device may choose instead of the one that it [is entitled to](entitled): published
/// ones, on test and maintenance devices. Of a persistent write cache, which belongs to one version, and of a private vDisk
/// there is nothing to choose.
#[must_use]
pub fn others<'a>(
    kind: DeviceKind,
    own: WriteCacheOverride,
    vdisk: &Vdisk,
    versions: &'a [Stored<Version>],
    usual: VersionNumber,
) -> Vec<Entitlement<'a>> {
    let AccessMode::Standard(cache) = vdisk.mode else { return Vec::new() };
    let cache = own.of(cache);
    if kind == DeviceKind::Production || cache.kind == WriteCacheKind::ServerDiskPersistent {
        return Vec::new();
    }
    let fits = |version: &&Stored<Version>| {
        version.number != usual
            && version.access != Access::Maintenance
            && version.state == VersionState::Ready
    };
    let mut found: Vec<_> = versions.iter().filter(fits).collect();
    found.sort_by_key(|version| std::cmp::Reverse(version.number));
    found.truncate(MAX_OFFERED);
    found.into_iter().map(|version| Entitlement { version, writes: Writes::Cache(cache) }).collect()
}

/// Whether production devices may boot a version at this moment.
#[must_use]
pub fn is_released(version: &Version, now: Timestamp) -> bool {
    matches!(version.access, Access::Production { released } if released <= now)
}

/// The next moment after `now` at which a scheduled release changes what production devices boot.
#[must_use]
pub fn next_release(versions: &[Stored<Version>], now: Timestamp) -> Option<Timestamp> {
    let releases = versions.iter().filter_map(|version| match version.access {
        Access::Production { released } => Some(released),
        Access::Maintenance | Access::Test => None,
    });
    releases.filter(|released| *released > now).min()
}

/// The version with this number.
///
/// # Errors
/// [`Refusal::NoSuchVersion`].
pub fn find(versions: &[Stored<Version>], number: VersionNumber) -> Result<&Stored<Version>, Refusal> {
    versions.iter().find(|version| version.number == number).ok_or(Refusal::NoSuchVersion(number))
}

/// The version and its parents, down to the whole image that they stand on.
///
/// # Errors
/// [`Refusal::BrokenChain`] where a parent is missing, [`Refusal::ChainTooLong`] above [`MAX_CHAIN`].
pub fn chain<'a>(
    versions: &'a [Stored<Version>],
    leaf: &'a Stored<Version>,
) -> Result<Vec<&'a Stored<Version>>, Refusal> {
    let mut chain = vec![leaf];
    let mut version = leaf;
    while let Some(parent) = version.lineage.parent() {
        version = find(versions, parent).map_err(|_| Refusal::BrokenChain(leaf.number))?;
        chain.push(version);
        // Also what ends a circle, should the catalogue be damaged.
        if chain.len() > MAX_CHAIN {
            return Err(Refusal::ChainTooLong { number: leaf.number, length: chain.len(), limit: MAX_CHAIN });
        }
    }
    Ok(chain)
}

/// The versions that stand on this one.
#[must_use]
pub fn children(versions: &[Stored<Version>], number: VersionNumber) -> Vec<VersionNumber> {
    let stands = |version: &&Stored<Version>| version.lineage.parent() == Some(number);
    versions.iter().filter(stands).map(|version| version.number).collect()
}

fn newest(
    versions: &[Stored<Version>],
    fits: impl Fn(&Version) -> bool,
) -> Result<&Stored<Version>, Refusal> {
    let there =
        |version: &&Stored<Version>| !matches!(version.state, VersionState::Making | VersionState::Leaving);
    let found = versions
        .iter()
        .filter(there)
        .filter(|version| fits(&version.value))
        .max_by_key(|version| version.number);
    ready(found.ok_or(Refusal::NothingPublished)?)
}

pub(super) fn ready(version: &Stored<Version>) -> Result<&Stored<Version>, Refusal> {
    match version.state {
        VersionState::Ready => Ok(version),
        state => Err(Refusal::NotReady { number: version.number, state }),
    }
}

/// Whether a version is a whole image.
#[must_use]
pub const fn is_whole(version: &Version) -> bool {
    matches!(version.lineage, Lineage::Base | Lineage::MergedBase { .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ByteSize;
    use crate::rules::sample::{at, base, difference, n, vdisk};

    fn boots(kind: DeviceKind, versions: &[Stored<Version>]) -> Result<u32, Refusal> {
        entitled(kind, WriteCacheOverride::default(), &vdisk(), versions, at(100))
            .map(|it| it.version.number.get())
    }

    #[test]
    fn each_kind_of_device_boots_what_it_is_entitled_to() {
        let released = Access::Production { released: at(50) };
        let scheduled = Access::Production { released: at(101) };
        let chain = [
            base(0),
            difference(1, 0, released),
            difference(2, 1, scheduled),
            difference(3, 2, Access::Test),
        ];
        assert_eq!(boots(DeviceKind::Production, &chain), Ok(1));
        assert_eq!(boots(DeviceKind::Test, &chain), Ok(3));
        assert_eq!(boots(DeviceKind::Maintenance, &chain), Ok(3));
        assert_eq!(boots(DeviceKind::Test, &chain[..3]), Ok(2));
        assert_eq!(next_release(&chain, at(100)), Some(at(101)));
        assert_eq!(next_release(&chain, at(101)), None);
        let mut with_maintenance = chain.to_vec();
        with_maintenance.push(difference(4, 3, Access::Maintenance));
        assert_eq!(boots(DeviceKind::Maintenance, &with_maintenance), Ok(4));
        assert_eq!(boots(DeviceKind::Test, &with_maintenance), Ok(3));
        assert_eq!(boots(DeviceKind::Production, &with_maintenance), Ok(1));
    }

    #[test]
    fn choice_of_versions_is_for_test_and_maintenance_devices_and_for_published_ones() {
        let mut chain = vec![
            base(0),
            difference(1, 0, Access::Production { released: at(50) }),
            difference(2, 1, Access::Test),
            difference(3, 2, Access::Maintenance),
        ];
        let none = WriteCacheOverride::default();
        let numbers = |kind, own, chain: &[Stored<Version>], usual| {
            let found = others(kind, own, &vdisk(), chain, n(usual));
            assert!(found.iter().all(|it| matches!(it.writes, Writes::Cache(_))));
            found.iter().map(|it| it.version.number.get()).collect::<Vec<_>>()
        };
        assert_eq!(numbers(DeviceKind::Production, none, &chain, 1), [] as [u32; 0]);
        assert_eq!(numbers(DeviceKind::Test, none, &chain, 2), [1, 0]);
        assert_eq!(numbers(DeviceKind::Maintenance, none, &chain, 3), [2, 1, 0]);
        let persistent = WriteCacheOverride { kind: Some(WriteCacheKind::ServerDiskPersistent), limit: None };
        assert_eq!(numbers(DeviceKind::Test, persistent, &chain, 2), [] as [u32; 0]);
        chain[1].value.state = VersionState::Missing;
        assert_eq!(numbers(DeviceKind::Test, none, &chain, 2), [0]);
        let long: Vec<_> = (0..30).map(base).collect();
        assert_eq!(numbers(DeviceKind::Test, none, &long, 29).len(), MAX_OFFERED);
    }

    #[test]
    fn release_takes_effect_at_its_moment() {
        let chain = [base(0), difference(1, 0, Access::Production { released: at(100) })];
        let number = |now| {
            let none = WriteCacheOverride::default();
            entitled(DeviceKind::Production, none, &vdisk(), &chain, now).unwrap().version.number.get()
        };
        assert_eq!((number(at(99)), number(at(100))), (0, 1));
    }

    #[test]
    fn held_vdisk_gives_production_devices_the_version_it_is_held_at() {
        let chain = [base(0), difference(1, 0, Access::Production { released: at(50) })];
        let mut held = vdisk();
        held.override_version = Some(n(0));
        let number = |kind| {
            entitled(kind, WriteCacheOverride::default(), &held, &chain, at(100)).unwrap().version.number
        };
        assert_eq!(number(DeviceKind::Production), n(0));
        assert_eq!(number(DeviceKind::Test), n(1));
        held.override_version = Some(n(7));
        let gone = entitled(DeviceKind::Production, WriteCacheOverride::default(), &held, &chain, at(100));
        assert_eq!(gone, Err(Refusal::NoSuchVersion(n(7))));
    }

    #[test]
    fn version_whose_file_is_missing_is_an_error_and_no_fallback() {
        let mut chain = [base(0), difference(1, 0, Access::Production { released: at(50) })];
        for state in [VersionState::Missing, VersionState::Changed] {
            chain[1].value.state = state;
            assert_eq!(boots(DeviceKind::Production, &chain), Err(Refusal::NotReady { number: n(1), state }));
        }
        for state in [VersionState::Making, VersionState::Leaving] {
            chain[1].value.state = state;
            assert_eq!(boots(DeviceKind::Production, &chain), Ok(0));
        }
        assert_eq!(boots(DeviceKind::Production, &[]), Err(Refusal::NothingPublished));
    }

    #[test]
    fn writes_go_where_the_mode_and_the_device_say() {
        let chain = [base(0), difference(1, 0, Access::Maintenance)];
        let own = WriteCacheOverride {
            kind: Some(WriteCacheKind::ServerMemory),
            limit: Some(ByteSize::new(5).unwrap()),
        };
        let writes = |kind, vdisk: &Vdisk| entitled(kind, own, vdisk, &chain, at(100)).unwrap().writes;
        let Writes::Cache(cache) = writes(DeviceKind::Production, &vdisk()) else { panic!("no cache") };
        assert_eq!((cache.kind, cache.limit.bytes()), (WriteCacheKind::ServerMemory, 5));
        assert_eq!(writes(DeviceKind::Maintenance, &vdisk()), Writes::Maintenance);
        let mut private = vdisk();
        private.mode = AccessMode::Private;
        assert_eq!(writes(DeviceKind::Production, &private), Writes::Private);
    }

    #[test]
    fn chain_goes_down_to_the_nearest_whole_image() {
        let merged = Lineage::MergedBase { contents_of: n(1) };
        let mut versions =
            vec![base(0), difference(1, 0, Access::Test), base(2), difference(3, 2, Access::Test)];
        versions[2].value.lineage = merged;
        let numbers = |leaf: usize| {
            chain(&versions, &versions[leaf])
                .unwrap()
                .iter()
                .map(|version| version.number.get())
                .collect::<Vec<_>>()
        };
        assert_eq!((numbers(3), numbers(1)), (vec![3, 2], vec![1, 0]));
        let broken = [difference(3, 2, Access::Test)];
        assert_eq!(chain(&broken, &broken[0]), Err(Refusal::BrokenChain(n(3))));
        let circle = [difference(3, 3, Access::Test)];
        assert!(matches!(chain(&circle, &circle[0]), Err(Refusal::ChainTooLong { .. })));
    }
}
