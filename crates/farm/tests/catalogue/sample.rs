//! Objects to test with.
use std::collections::BTreeMap;

use farm::catalogue::{Catalogue, CatalogueError, Change};
use farm::model::{
    Access, AccessMode, Actor, ByteSize, Collection, CollectionId, Device, Disks, Lineage, Mac, Macs,
    Percent, Server, ServerId, Site, SiteId, Store, StoreId, SubnetAffinity, Text, TextRule, Timestamp,
    Vdisk, VdiskId, Version, VersionNumber, VersionState, Weight, WriteCache, WriteCacheKind,
};

pub(crate) fn text<R: TextRule>(text: &str) -> Text<R> {
    Text::new(text).unwrap()
}

pub(crate) fn at(ms: i64) -> Timestamp {
    Timestamp::from_ms(1_795_000_000_000 + ms)
}

pub(crate) fn actor() -> Actor {
    Actor { user: text("ann"), token: None, origin: "10.0.0.7".to_owned(), request: Some("r-1".to_owned()) }
}

/// A change by [`actor`] at moment 0.
pub(crate) fn change<R>(
    catalogue: &Catalogue,
    work: impl FnMut(&mut Change<'_>) -> Result<R, CatalogueError>,
) -> Result<R, CatalogueError> {
    catalogue.change(&actor(), at(0), work)
}

pub(crate) fn site(name: &str) -> Site {
    Site { name: text(name), description: text(""), disabled: false }
}

pub(crate) fn server(name: &str, site: SiteId) -> Server {
    Server {
        name: text(name),
        site,
        description: text(""),
        addresses: vec!["10.0.0.1".parse().unwrap()],
        weight: Weight::DEFAULT,
        max_devices: None,
        disabled: false,
    }
}

pub(crate) fn store(name: &str, server: ServerId) -> Store {
    let paths = BTreeMap::from([(server, text("/srv/vdisks"))]);
    Store { name: text(name), description: text(""), site: None, disabled: false, paths }
}

pub(crate) fn vdisk(name: &str, store: StoreId) -> Vdisk {
    let limit = ByteSize::new(10 << 30).unwrap();
    let warn_at = Percent::new(80).unwrap();
    Vdisk {
        name: text(name),
        store,
        description: text(""),
        menu_text: None,
        asks_login: false,
        mode: AccessMode::Standard(WriteCache { kind: WriteCacheKind::ServerDisk, limit, warn_at }),
        override_version: None,
        server: None,
        affinity: SubnetAffinity::None,
        disabled: false,
    }
}

pub(crate) fn base(vdisk: VdiskId, name: &str) -> Version {
    Version {
        vdisk,
        number: VersionNumber::BASE,
        lineage: Lineage::Base,
        access: Access::Production { released: at(-1000) },
        file: text(&format!("{name}.vhdx")),
        mark: None,
        state: VersionState::Ready,
        comment: text(""),
        made_at: at(-2000),
    }
}

pub(crate) fn collection(name: &str, site: SiteId) -> Collection {
    Collection::plain(text(name), site, text(""))
}

pub(crate) fn mac(number: u32) -> Mac {
    let [a, b, c, d] = number.to_be_bytes();
    Mac::new([0x52, 0x54, a, b, c, d]).unwrap()
}

pub(crate) fn device(number: u32, collection: CollectionId) -> Device {
    Device {
        macs: Macs::new(vec![mac(number)]).unwrap(),
        ..Device::plain(text(&format!("lab-{number:05}")), collection, text(""))
    }
}

/// A farm with one of each.
pub(crate) struct Small {
    pub(crate) site: SiteId,
    pub(crate) server: ServerId,
    pub(crate) store: StoreId,
    pub(crate) vdisk: VdiskId,
    pub(crate) collection: CollectionId,
}

pub(crate) fn small(catalogue: &Catalogue) -> Small {
    change(catalogue, |change| {
        let site = change.create(site("Berlin"))?.id;
        let server = change.create(server("one", site))?.id;
        let store = change.create(store("local", server))?.id;
        let vdisk = change.create(vdisk("golden", store))?.id;
        change.create(base(vdisk, "golden"))?;
        let collection = change.create(collection("Lab", site))?.id;
        Ok(Small { site, server, store, vdisk, collection })
    })
    .unwrap()
}

/// A device of the small farm with its vDisk.
pub(crate) fn booting(number: u32, small: &Small) -> Device {
    let mut device = device(number, small.collection);
    device.profile.disks = Disks::one(small.vdisk);
    device
}
