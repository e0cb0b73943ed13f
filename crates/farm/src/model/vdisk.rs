//! vDisks: images under a name, how devices may use them, and their versions.
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::bad_value::BadValue;
use super::choice::Choice;
use super::device::Device;
use super::hardware::Uuid;
use super::id::Id;
use super::places::{ServerId, StoreId};
use super::text::{Description, FileName, MenuText, VdiskName};
use super::values::{ByteSize, Percent, Timestamp};

/// Names a vDisk.
pub type VdiskId = Id<Vdisk>;
/// Names a version.
pub type VersionId = Id<Version>;

/// An image that devices boot, in all its versions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vdisk {
    /// Its name; no two vDisks of a store have the same.
    pub name: VdiskName,
    /// Where its files lie.
    pub store: StoreId,
    /// What somebody wrote about it.
    pub description: Description,
    /// What boot menus call it; `None`: its name.
    pub menu_text: Option<MenuText>,
    /// Whether a boot menu lets nobody boot it who does not log in.
    #[serde(default)]
    pub asks_login: bool,
    /// How devices use it.
    pub mode: AccessMode,
    /// The version that production devices boot instead of the newest released one.
    pub override_version: Option<VersionNumber>,
    /// The one server that may serve it; `None`: every server that reaches its store.
    pub server: Option<ServerId>,
    /// Whether servers in the device's subnet come first.
    pub affinity: SubnetAffinity,
    /// Nothing boots from a disabled vDisk.
    pub disabled: bool,
}

/// How devices use a vDisk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "mode", rename_all = "kebab-case")]
pub enum AccessMode {
    /// One device at a time, which writes into the vDisk itself.
    Private,
    /// Any number of devices, each with a write cache of its own.
    Standard(WriteCache),
}

/// Where what a device writes is kept, and how much of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteCache {
    /// Where, and for how long.
    pub kind: WriteCacheKind,
    /// The most that one device may write.
    pub limit: ByteSize,
    /// The part of the limit from which on there are warnings.
    pub warn_at: Percent,
}

/// Where what a device writes is kept, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WriteCacheKind {
    /// In the server's memory, until the device's next boot.
    ServerMemory,
    /// On the server's disk, until the device's next boot.
    ServerDisk,
    /// On the server's disk, over boots, bound to the version that it was made on.
    ServerDiskPersistent,
}

impl Choice for WriteCacheKind {
    const WHAT: &'static str = "a kind of write cache";
    const RULE: &'static str = "server-memory, server-disk or server-disk-persistent";
    const ALL: &'static [(Self, &'static str)] = &[
        (Self::ServerMemory, "server-memory"),
        (Self::ServerDisk, "server-disk"),
        (Self::ServerDiskPersistent, "server-disk-persistent"),
    ];
}

/// Whether servers in the device's own subnet come first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SubnetAffinity {
    /// All servers alike.
    #[default]
    None,
    /// Servers of the subnet first, then the others.
    BestEffort,
    /// Servers of the subnet or none.
    Fixed,
}

impl Choice for SubnetAffinity {
    const WHAT: &'static str = "a subnet affinity";
    const RULE: &'static str = "none, best-effort or fixed";
    const ALL: &'static [(Self, &'static str)] =
        &[(Self::None, "none"), (Self::BestEffort, "best-effort"), (Self::Fixed, "fixed")];
}

/// The number of a version in its vDisk: the first base is 0, each new version has one more than the highest before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct VersionNumber(u32);

impl VersionNumber {
    /// The first base.
    pub const BASE: Self = Self(0);
    /// The highest: far more than anybody makes, and few enough digits for a file name.
    pub const MAX: u32 = 999_999;

    /// Checks a number.
    ///
    /// # Errors
    /// [`BadValue`] above [`MAX`](Self::MAX).
    pub fn new(number: u32) -> Result<Self, BadValue> {
        if number <= Self::MAX {
            Ok(Self(number))
        } else {
            Err(BadValue::number("a version number", number, "0 to 999999"))
        }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The one after it; `None` after the highest.
    #[must_use]
    pub fn next(self) -> Option<Self> {
        Self::new(self.0.saturating_add(1)).ok()
    }
}

impl TryFrom<u32> for VersionNumber {
    type Error = BadValue;

    fn try_from(number: u32) -> Result<Self, BadValue> {
        Self::new(number)
    }
}

impl From<VersionNumber> for u32 {
    fn from(number: VersionNumber) -> Self {
        number.0
    }
}

impl FromStr for VersionNumber {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let bad = || BadValue::new("a version number", text, "0 to 999999");
        // A sign would be taken by the parser of numbers.
        let digits = text.bytes().all(|b| b.is_ascii_digit());
        text.parse().ok().filter(|_| digits).and_then(|number| Self::new(number).ok()).ok_or_else(bad)
    }
}

impl fmt::Display for VersionNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// One state of a vDisk: a file, alone or with the chain of its parents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// Of what.
    pub vdisk: VdiskId,
    /// Its number; no two versions of a vDisk have the same.
    pub number: VersionNumber,
    /// How it came to be, and on what it stands.
    pub lineage: Lineage,
    /// Who boots it.
    pub access: Access,
    /// Its file, in the vDisk's store.
    pub file: FileName,
    /// What its file looked like when it was last known to be good; `None` while it is being made or written to.
    pub mark: Option<FileMark>,
    /// Whether it can be used.
    pub state: VersionState,
    /// What somebody wrote about it.
    pub comment: Description,
    /// When it was made.
    pub made_at: Timestamp,
}

/// How a version came to be, and on what it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Lineage {
    /// A whole image that was made or imported as such.
    Base,
    /// The differences from `parent`.
    Difference {
        /// On what it stands.
        parent: VersionNumber,
    },
    /// All differences between `parent` and `contents_of`, merged into one.
    MergedUpdates {
        /// On what it stands: a base.
        parent: VersionNumber,
        /// The version whose contents it has.
        contents_of: VersionNumber,
    },
    /// A base and its differences up to `contents_of`, merged into a whole image.
    MergedBase {
        /// The version whose contents it has.
        contents_of: VersionNumber,
    },
}

impl Lineage {
    /// On what the version stands; `None`: on itself.
    #[must_use]
    pub const fn parent(self) -> Option<VersionNumber> {
        match self {
            Self::Base | Self::MergedBase { .. } => None,
            Self::Difference { parent } | Self::MergedUpdates { parent, .. } => Some(parent),
        }
    }

    /// The version whose contents a merged one has.
    #[must_use]
    pub const fn contents_of(self) -> Option<VersionNumber> {
        match self {
            Self::Base | Self::Difference { .. } => None,
            Self::MergedUpdates { contents_of, .. } | Self::MergedBase { contents_of } => Some(contents_of),
        }
    }

    /// Which of the four it is.
    #[must_use]
    pub const fn kind(self) -> VersionKind {
        match self {
            Self::Base => VersionKind::Base,
            Self::Difference { .. } => VersionKind::Difference,
            Self::MergedUpdates { .. } => VersionKind::MergedUpdates,
            Self::MergedBase { .. } => VersionKind::MergedBase,
        }
    }
}

/// The kinds of [`Lineage`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VersionKind {
    /// [`Lineage::Base`].
    Base,
    /// [`Lineage::Difference`].
    Difference,
    /// [`Lineage::MergedUpdates`].
    MergedUpdates,
    /// [`Lineage::MergedBase`].
    MergedBase,
}

impl Choice for VersionKind {
    const WHAT: &'static str = "a kind of version";
    const RULE: &'static str = "base, difference, merged-updates or merged-base";
    const ALL: &'static [(Self, &'static str)] = &[
        (Self::Base, "base"),
        (Self::Difference, "difference"),
        (Self::MergedUpdates, "merged-updates"),
        (Self::MergedBase, "merged-base"),
    ];
}

/// Who boots a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "access", rename_all = "kebab-case")]
pub enum Access {
    /// One maintenance device at a time, which writes to it.
    Maintenance,
    /// Test devices.
    Test,
    /// Test devices, and production devices from its release on.
    Production {
        /// From when on; a moment to come is a scheduled release.
        released: Timestamp,
    },
}

impl Access {
    /// Which of the three it is.
    #[must_use]
    pub const fn kind(self) -> AccessKind {
        match self {
            Self::Maintenance => AccessKind::Maintenance,
            Self::Test => AccessKind::Test,
            Self::Production { .. } => AccessKind::Production,
        }
    }
}

/// The kinds of [`Access`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AccessKind {
    /// [`Access::Maintenance`].
    Maintenance,
    /// [`Access::Test`].
    Test,
    /// [`Access::Production`].
    Production,
}

impl Choice for AccessKind {
    const WHAT: &'static str = "an access";
    const RULE: &'static str = "maintenance, test or production";
    const ALL: &'static [(Self, &'static str)] =
        &[(Self::Maintenance, "maintenance"), (Self::Test, "test"), (Self::Production, "production")];
}

/// Whether a version can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VersionState {
    /// Its file is being made.
    Making,
    /// Its file is as it should be.
    Ready,
    /// Its file is not where it should be.
    Missing,
    /// Its file is not what it was: somebody else wrote to it.
    Changed,
    /// It is to go as soon as nobody uses it; nobody boots it any more.
    Leaving,
}

impl Choice for VersionState {
    const WHAT: &'static str = "a state of a version";
    const RULE: &'static str = "making, ready, missing, changed or leaving";
    const ALL: &'static [(Self, &'static str)] = &[
        (Self::Making, "making"),
        (Self::Ready, "ready"),
        (Self::Missing, "missing"),
        (Self::Changed, "changed"),
        (Self::Leaving, "leaving"),
    ];
}

/// What a version's file looks like from outside. Published versions never change: where their mark does, somebody
/// wrote to the file behind the farm's back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileMark {
    /// The length of the file.
    pub length: ByteSize,
    /// The size of the disk in it.
    pub disk_size: ByteSize,
    /// The image's own id: VHDX `VirtualDiskId` ([MS-VHDX] §2.6.2.3), the unique id of a VHD's footer.
    pub image: Option<Uuid>,
    /// Changes with every first write after an opening: VHDX `DataWriteGuid` ([MS-VHDX] §2.2.2).
    pub data_write: Option<Uuid>,
}

/// A write cache that outlives boots: which device made it, on which version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PersistentCache {
    /// Whose.
    pub device: Id<Device>,
    /// Of what.
    pub vdisk: VdiskId,
    /// On which version it was made; it means nothing on any other.
    pub version: VersionNumber,
    /// The server that has it.
    pub server: ServerId,
    /// Whether the device stays on that version, as long as it has this write cache: the administrator's choice after
    /// a new version was released. Until it is made, the device is refused.
    pub stays: bool,
    /// When it was made.
    pub made_at: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_number_with_a_sign_or_too_high_is_refused() {
        assert_eq!("12".parse::<VersionNumber>().map(VersionNumber::get), Ok(12));
        for text in ["", "+1", "-1", "1000000", "1.0", "99999999999"] {
            assert!(text.parse::<VersionNumber>().is_err(), "{text}");
        }
        assert_eq!(VersionNumber::new(VersionNumber::MAX).unwrap().next(), None);
    }

    #[test]
    fn lineage_tells_its_parent_only_where_it_has_one() {
        let n = |number| VersionNumber::new(number).unwrap();
        assert_eq!(Lineage::Base.parent(), None);
        assert_eq!(Lineage::Difference { parent: n(1) }.parent(), Some(n(1)));
        assert_eq!(Lineage::MergedBase { contents_of: n(4) }.parent(), None);
        assert_eq!(Lineage::MergedUpdates { parent: n(0), contents_of: n(4) }.contents_of(), Some(n(4)));
    }
}
