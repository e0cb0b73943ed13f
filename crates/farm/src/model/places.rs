//! Where things are: the farm, its sites, servers, stores and collections.
use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::bad_value::BadValue;
use super::choice::Choice;
use super::device::Device;
use super::guest::GuestSettings;
use super::id::Id;
use super::menu::MenuSettings;
use super::naming::NamingPattern;
use super::text::{Description, Name, ServerName, StorePath};
use super::values::Weight;

/// Names the farm.
pub type FarmId = Id<Farm>;
/// Names a site.
pub type SiteId = Id<Site>;
/// Names a server.
pub type ServerId = Id<Server>;
/// Names a store.
pub type StoreId = Id<Store>;
/// Names a collection.
pub type CollectionId = Id<Collection>;

/// Everything that one catalogue describes. There is exactly one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Farm {
    /// What people call it.
    pub name: Name,
    /// What somebody wrote about it.
    pub description: Description,
    /// When and how versions are merged without being asked to; `None`: never.
    pub auto_merge: Option<AutoMerge>,
}

/// Merging without being asked to: when a promotion leaves a chain of more than `above` versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AutoMerge {
    /// The longest chain, base included, that is left alone.
    pub above: ChainLimit,
    /// What a merged version is for at first.
    pub result: MergeResult,
}

/// A count of versions in a chain, 3 to 50.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct ChainLimit(u32);

impl ChainLimit {
    /// What a farm has where nothing is set.
    pub const DEFAULT: Self = Self(5);

    /// Checks a count.
    ///
    /// # Errors
    /// [`BadValue`] outside 3 to 50.
    pub fn new(count: u32) -> Result<Self, BadValue> {
        if (3..=50).contains(&count) {
            Ok(Self(count))
        } else {
            Err(BadValue::number("a length of version chains", count, "3 to 50"))
        }
    }

    /// The count.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl TryFrom<u32> for ChainLimit {
    type Error = BadValue;

    fn try_from(count: u32) -> Result<Self, BadValue> {
        Self::new(count)
    }
}

impl From<ChainLimit> for u32 {
    fn from(limit: ChainLimit) -> Self {
        limit.0
    }
}

/// What a merged version is for at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MergeResult {
    /// Maintenance devices alone may boot it.
    Maintenance,
    /// Test devices boot it.
    Test,
    /// Production devices boot it.
    Production,
}

impl Choice for MergeResult {
    const WHAT: &'static str = "an access";
    const RULE: &'static str = "maintenance, test or production";
    const ALL: &'static [(Self, &'static str)] =
        &[(Self::Maintenance, "maintenance"), (Self::Test, "test"), (Self::Production, "production")];
}

/// Servers and devices that are near each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Site {
    /// Its name; no two sites have the same.
    pub name: Name,
    /// What somebody wrote about it.
    pub description: Description,
    /// Devices of a disabled site are not given anything to boot.
    pub disabled: bool,
}

/// The most addresses of one server.
pub const MAX_SERVER_ADDRESSES: usize = 16;

/// A host that serves devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    /// Its host name; no two servers have the same.
    pub name: ServerName,
    /// Its site.
    pub site: SiteId,
    /// What somebody wrote about it.
    pub description: Description,
    /// Where devices reach it, best first.
    pub addresses: Vec<IpAddr>,
    /// How many devices it takes in comparison with the others.
    pub weight: Weight,
    /// The most devices that it serves at a time; `None`: as many as come.
    pub max_devices: Option<u32>,
    /// A disabled server is given no new devices.
    pub disabled: bool,
}

impl Server {
    /// The addresses as one text, with spaces between them.
    #[must_use]
    pub fn addresses_text(&self) -> String {
        self.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    }

    /// Reads addresses with spaces between them.
    ///
    /// # Errors
    /// [`BadValue`] of what is no address, and of too many.
    pub fn parse_addresses(text: &str) -> Result<Vec<IpAddr>, BadValue> {
        let bad =
            || BadValue::new("a list of addresses", text, "at most 16 IP addresses with spaces between them");
        let parsed: Result<Vec<IpAddr>, _> = text.split_ascii_whitespace().map(str::parse).collect();
        parsed.ok().filter(|addresses| addresses.len() <= MAX_SERVER_ADDRESSES).ok_or_else(bad)
    }
}

/// A place for vDisks, which servers reach by paths of their own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Store {
    /// Its name; no two stores have the same.
    pub name: Name,
    /// What somebody wrote about it.
    pub description: Description,
    /// Whose servers alone may use it; `None`: every site's.
    pub site: Option<SiteId>,
    /// Nothing boots from a disabled store.
    pub disabled: bool,
    /// Where it lies on each server that reaches it.
    pub paths: BTreeMap<ServerId, StorePath>,
}

/// Devices that are managed together. A device is in exactly one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Collection {
    /// Its name; no two collections of a site have the same.
    pub name: Name,
    /// Its site.
    pub site: SiteId,
    /// What somebody wrote about it.
    pub description: Description,
    /// Devices of a disabled collection are not given anything to boot.
    pub disabled: bool,
    /// The device whose [profile](super::device::DeviceProfile) new devices get where nothing else is said.
    pub template: Option<Id<Device>>,
    /// Machines that ask a server of this site and are not known join this collection, and are named so; `None`: they
    /// do not. At most one collection of a site takes newcomers.
    pub newcomers: Option<NamingPattern>,
    /// User data of its devices that have none of their own, and SSH keys for all of them.
    #[serde(default)]
    pub guest: GuestSettings,
    /// Whether a newcomer waits until somebody lets it in.
    #[serde(default)]
    pub approves_newcomers: bool,
    /// What is said of its devices' boot menus.
    #[serde(default)]
    pub menu: MenuSettings,
}

impl Collection {
    /// A collection that says nothing but this.
    #[must_use]
    pub fn plain(name: Name, site: SiteId, description: Description) -> Self {
        Self {
            name,
            site,
            description,
            disabled: false,
            template: None,
            newcomers: None,
            guest: GuestSettings::default(),
            approves_newcomers: false,
            menu: MenuSettings::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chain_limit_outside_its_range_is_refused() {
        assert_eq!(ChainLimit::new(3).map(ChainLimit::get), Ok(3));
        assert!(ChainLimit::new(2).is_err() && ChainLimit::new(51).is_err());
    }

    #[test]
    fn addresses_are_read_as_they_are_written() {
        let addresses = Server::parse_addresses(" 10.0.0.1  fd00::1 ").unwrap();
        assert_eq!(addresses.len(), 2);
        assert!(Server::parse_addresses("10.0.0.1,10.0.0.2").is_err());
        assert!(Server::parse_addresses(&"10.0.0.1 ".repeat(17)).is_err());
        assert_eq!(Server::parse_addresses(""), Ok(Vec::new()));
    }
}
