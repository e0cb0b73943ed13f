//! Target devices: how a machine is recognised, and what it gets.
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use super::bad_value::BadValue;
use super::choice::Choice;
use super::guest::GuestSettings;
use super::hardware::{MAX_MACS, Mac, Uuid};
use super::id::Id;
use super::menu::MenuSettings;
use super::places::CollectionId;
use super::text::{
    ChapUser, Description, DeviceName, InitiatorName, MenuText, PersonalityKey, PersonalityValue, SecretName,
};
use super::values::ByteSize;
use super::vdisk::{VdiskId, WriteCache, WriteCacheKind};

/// Names a device.
pub type DeviceId = Id<Device>;

/// A machine that boots from the farm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Its name; no two devices of the farm have the same.
    pub name: DeviceName,
    /// The collection that it is in.
    pub collection: CollectionId,
    /// What somebody wrote about it.
    pub description: Description,
    /// The addresses of its network cards; no two devices share one.
    pub macs: Macs,
    /// Its SMBIOS UUID; no two devices share one.
    pub uuid: Option<Uuid>,
    /// The address that DHCP gives it; `None`: one of the pool.
    pub address: Option<Ipv4Addr>,
    /// The name that its initiator must use; `None`: one made of its own name.
    pub initiator: Option<InitiatorName>,
    /// What its initiator must prove.
    pub chap: Option<Chap>,
    /// A disabled device is not given anything to boot.
    pub disabled: bool,
    /// What it gets: what can be copied to other devices.
    pub profile: DeviceProfile,
}

impl Device {
    /// A device that says nothing but this.
    #[must_use]
    pub fn plain(name: DeviceName, collection: CollectionId, description: Description) -> Self {
        Self {
            name,
            collection,
            description,
            macs: Macs::default(),
            uuid: None,
            address: None,
            initiator: None,
            chap: None,
            disabled: false,
            profile: DeviceProfile::default(),
        }
    }
}

/// What a device gets, as far as it is not the machine's own: what a template gives, and what copying copies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceProfile {
    /// Which versions it is entitled to.
    pub kind: DeviceKind,
    /// Its vDisks, in the order of the boot menu. The first that is not disabled boots without a choice.
    pub disks: Disks,
    /// Whether the boot menu offers the device's own disk, and whether that comes first.
    pub local_disk: LocalDisk,
    /// What differs from what its collection says of boot menus.
    #[serde(default)]
    pub menu: MenuSettings,
    /// What differs from the write cache that the vDisk says.
    pub write_cache: WriteCacheOverride,
    /// Bounds on what it may take.
    pub limits: DeviceLimits,
    /// What is told to the system that runs on it.
    pub personality: Personality,
    /// Its user data and SSH keys.
    #[serde(default)]
    pub guest: GuestSettings,
}

/// Which versions a device is entitled to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceKind {
    /// The newest version that is released, or the one that the vDisk is held at.
    #[default]
    Production,
    /// The newest version in test or released.
    Test,
    /// The version under maintenance, read-write; where there is none, what a test device gets.
    Maintenance,
}

impl Choice for DeviceKind {
    const WHAT: &'static str = "a kind of device";
    const RULE: &'static str = "production, test or maintenance";
    const ALL: &'static [(Self, &'static str)] =
        &[(Self::Production, "production"), (Self::Test, "test"), (Self::Maintenance, "maintenance")];
}

/// Whether a device may boot from its own disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LocalDisk {
    /// No.
    #[default]
    No,
    /// By choice in the boot menu.
    Offered,
    /// Without being asked: vDisks are what the menu offers.
    First,
}

impl Choice for LocalDisk {
    const WHAT: &'static str = "a use of the local disk";
    const RULE: &'static str = "no, offered or first";
    const ALL: &'static [(Self, &'static str)] =
        &[(Self::No, "no"), (Self::Offered, "offered"), (Self::First, "first")];
}

/// The addresses of a device's network cards: at most [`MAX_MACS`], none twice. A device without any never boots; it
/// can be a template, or wait for its machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Mac>", into = "Vec<Mac>")]
pub struct Macs(Vec<Mac>);

impl Macs {
    /// Checks a list.
    ///
    /// # Errors
    /// [`BadValue`] of one too many or one that is there twice.
    pub fn new(macs: Vec<Mac>) -> Result<Self, BadValue> {
        let what = "a list of MAC addresses";
        if macs.len() > MAX_MACS {
            return Err(BadValue::number(what, macs.len(), "at most 8 addresses"));
        }
        let twice =
            macs.iter().enumerate().find(|(place, mac)| macs.iter().take(*place).any(|other| other == *mac));
        match twice {
            Some((_, mac)) => Err(BadValue::new(what, &mac.to_string(), "no address twice")),
            None => Ok(Self(macs)),
        }
    }

    /// The addresses.
    #[must_use]
    pub fn as_slice(&self) -> &[Mac] {
        &self.0
    }
}

impl TryFrom<Vec<Mac>> for Macs {
    type Error = BadValue;

    fn try_from(macs: Vec<Mac>) -> Result<Self, BadValue> {
        Self::new(macs)
    }
}

impl From<Macs> for Vec<Mac> {
    fn from(macs: Macs) -> Self {
        macs.0
    }
}

/// One vDisk of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceDisk {
    /// Which.
    pub vdisk: VdiskId,
    /// What the device's boot menu calls it; `None`: as the vDisk says.
    pub menu_text: Option<MenuText>,
    /// Not offered for the time being.
    pub disabled: bool,
}

/// The most vDisks of one device: what a boot menu can show.
pub const MAX_DEVICE_DISKS: usize = 9;

/// The vDisks of a device in boot order: at most [`MAX_DEVICE_DISKS`], none twice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<DeviceDisk>", into = "Vec<DeviceDisk>")]
pub struct Disks(Vec<DeviceDisk>);

impl Disks {
    /// Checks a list.
    ///
    /// # Errors
    /// [`BadValue`] of one too many or one that is there twice.
    pub fn new(disks: Vec<DeviceDisk>) -> Result<Self, BadValue> {
        let what = "a list of vDisks";
        if disks.len() > MAX_DEVICE_DISKS {
            return Err(BadValue::number(what, disks.len(), "at most 9 vDisks"));
        }
        let mut before = disks.iter().enumerate();
        let twice =
            before.find(|(place, disk)| disks.iter().take(*place).any(|other| other.vdisk == disk.vdisk));
        match twice {
            Some((_, disk)) => Err(BadValue::number(what, disk.vdisk, "no vDisk twice")),
            None => Ok(Self(disks)),
        }
    }

    /// One vDisk, without a menu text of its own.
    #[must_use]
    pub fn one(vdisk: VdiskId) -> Self {
        Self(vec![DeviceDisk { vdisk, menu_text: None, disabled: false }])
    }

    /// The vDisks, first to boot first.
    #[must_use]
    pub fn as_slice(&self) -> &[DeviceDisk] {
        &self.0
    }
}

impl TryFrom<Vec<DeviceDisk>> for Disks {
    type Error = BadValue;

    fn try_from(disks: Vec<DeviceDisk>) -> Result<Self, BadValue> {
        Self::new(disks)
    }
}

impl From<Disks> for Vec<DeviceDisk> {
    fn from(disks: Disks) -> Self {
        disks.0
    }
}

/// What differs, for one device, from the write cache that its vDisk says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteCacheOverride {
    /// Another kind.
    pub kind: Option<WriteCacheKind>,
    /// Another limit.
    pub limit: Option<ByteSize>,
}

impl WriteCacheOverride {
    /// The write cache of a device, of one that a vDisk says.
    #[must_use]
    pub fn of(self, cache: WriteCache) -> WriteCache {
        let (kind, limit) = (self.kind.unwrap_or(cache.kind), self.limit.unwrap_or(cache.limit));
        WriteCache { kind, limit, warn_at: cache.warn_at }
    }
}

/// Bounds on what a device may take; `None`: as much as there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceLimits {
    /// Bytes that it may read or write in a second.
    pub bytes_per_second: Option<ByteSize>,
    /// Requests that it may make in a second.
    pub requests_per_second: Option<u32>,
}

/// What its initiator must prove: the user, and where the secret is kept. The catalogue has no secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chap {
    /// The user.
    pub user: ChapUser,
    /// Names the secret.
    pub secret: SecretName,
}

/// The most bytes of all keys and values of a device's personality.
pub const MAX_PERSONALITY_BYTES: usize = 65_536;

/// Names and values that are told to the system that runs on a device: which printer, which room.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    try_from = "BTreeMap<PersonalityKey, PersonalityValue>",
    into = "BTreeMap<PersonalityKey, PersonalityValue>"
)]
pub struct Personality(BTreeMap<PersonalityKey, PersonalityValue>);

impl Personality {
    /// Checks the sum of the sizes.
    ///
    /// # Errors
    /// [`BadValue`] above [`MAX_PERSONALITY_BYTES`].
    pub fn new(values: BTreeMap<PersonalityKey, PersonalityValue>) -> Result<Self, BadValue> {
        let bytes: usize =
            values.iter().map(|(key, value)| key.as_str().len().saturating_add(value.as_str().len())).sum();
        if bytes > MAX_PERSONALITY_BYTES {
            return Err(BadValue::number("a personality", bytes, "at most 65536 bytes of names and values"));
        }
        Ok(Self(values))
    }

    /// The names and values.
    #[must_use]
    pub fn values(&self) -> &BTreeMap<PersonalityKey, PersonalityValue> {
        &self.0
    }
}

impl TryFrom<BTreeMap<PersonalityKey, PersonalityValue>> for Personality {
    type Error = BadValue;

    fn try_from(values: BTreeMap<PersonalityKey, PersonalityValue>) -> Result<Self, BadValue> {
        Self::new(values)
    }
}

impl From<Personality> for BTreeMap<PersonalityKey, PersonalityValue> {
    fn from(personality: Personality) -> Self {
        personality.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_with_one_twice_or_one_too_many_is_refused() {
        let mac = |last: u8| Mac::new([0x52, 0, 0, 0, 0, last]).unwrap();
        assert!(Macs::new(vec![mac(1), mac(2)]).is_ok());
        assert!(Macs::new(vec![mac(1), mac(2), mac(1)]).unwrap_err().to_string().contains("twice"));
        assert!(Macs::new((0..9).map(mac).collect()).is_err());
        let disk = |number| DeviceDisk { vdisk: Id::new(number).unwrap(), menu_text: None, disabled: false };
        assert!(Disks::new(vec![disk(1), disk(2)]).is_ok());
        assert!(Disks::new(vec![disk(1), disk(1)]).is_err());
        assert!(Disks::new((1..=10).map(disk).collect()).is_err());
    }

    #[test]
    fn personality_above_its_size_is_refused() {
        let value = PersonalityValue::new(&"x".repeat(2047)).unwrap();
        let key = |number: usize| PersonalityKey::new(&format!("{number:03}")).unwrap();
        let of = |count| Personality::new((0..count).map(|number| (key(number), value.clone())).collect());
        assert!(of(31).is_ok());
        assert!(of(32).is_err());
    }
}
