//! Sites, servers, stores and collections.
use std::collections::BTreeMap;
use std::net::IpAddr;

use control::ControlError;
use farm::catalogue::Reader;
use farm::filter::Filter;
use farm::model::{
    Collection, Description, Device, MAX_SERVER_ADDRESSES, Name, NamingPattern, Server, ServerName, Site,
    Store, StorePath, Stored, UserData, Weight,
};
use farm::rules::permission::Place;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::menu::MenuBody;
use super::object::{Nothing, Resource, Visible, Which, any, operations};
use super::text;
use crate::operation::Operation;
use crate::wire::{Names, Plain, Ref, resolve};

/// All of them.
pub(super) fn all() -> Vec<Operation> {
    let mut all = operations::<Sites>(Which::ALL);
    all.extend(operations::<Servers>(Which::ALL));
    all.extend(operations::<Stores>(Which::ALL));
    all.extend(operations::<Collections>(Which::ALL));
    all
}

/// Servers and devices that are near each other.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SiteBody {
    /// Its name; no two sites have the same.
    name: Plain<Name>,
    /// What somebody wrote about it.
    #[serde(default)]
    description: Option<Plain<Description>>,
    /// Devices of a disabled site are not given anything to boot.
    #[serde(default)]
    disabled: bool,
}

pub(crate) enum Sites {}

impl Resource for Sites {
    type Record = Site;
    type Body = SiteBody;
    type More = Nothing;
    const NAME: &'static str = "Site";
    const ONE: &'static str = "a site";
    const PATH: &'static str = "/v1/sites";
    const PARAMETER: &'static str = "site";

    fn place(_: &mut Reader<'_>, _: &Site) -> Result<Place, ControlError> {
        Ok(Place::Farm)
    }

    fn body(_: &mut Names, _: &mut Reader<'_>, site: &Site) -> Result<SiteBody, ControlError> {
        let Site { name, description, disabled } = site.clone();
        Ok(SiteBody { name: Plain(name), description: Some(Plain(description)), disabled })
    }

    fn more(_: &mut Names, _: &mut Reader<'_>, _: &Stored<Site>) -> Result<Nothing, ControlError> {
        Ok(Nothing {})
    }

    fn record(_: &mut Reader<'_>, body: SiteBody, _: Option<&Site>) -> Result<Site, ControlError> {
        let SiteBody { name, description, disabled } = body;
        Ok(Site { name: name.0, description: text(description)?, disabled })
    }
}

/// A host that serves devices.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServerBody {
    /// Its host name; no two servers have the same.
    name: Plain<ServerName>,
    /// Its site.
    site: Ref,
    /// What somebody wrote about it.
    #[serde(default)]
    description: Option<Plain<Description>>,
    /// Where devices reach it, best first.
    #[serde(default)]
    #[schemars(length(max = 16))]
    addresses: Vec<Plain<IpAddr>>,
    /// How many devices it takes in comparison with the others; 100 where nothing is said.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1000))]
    weight: Option<u16>,
    /// The most devices that it serves at a time; null: as many as come.
    #[serde(default)]
    max_devices: Option<u32>,
    /// A disabled server is given no new devices.
    #[serde(default)]
    disabled: bool,
}

pub(crate) enum Servers {}

impl Resource for Servers {
    type Record = Server;
    type Body = ServerBody;
    type More = Nothing;
    const NAME: &'static str = "Server";
    const ONE: &'static str = "a server";
    const PATH: &'static str = "/v1/servers";
    const PARAMETER: &'static str = "server";

    fn place(_: &mut Reader<'_>, server: &Server) -> Result<Place, ControlError> {
        Ok(Place::Site(server.site))
    }

    fn body(names: &mut Names, reader: &mut Reader<'_>, server: &Server) -> Result<ServerBody, ControlError> {
        let Server { name, site, description, addresses, weight, max_devices, disabled } = server.clone();
        Ok(ServerBody {
            name: Plain(name),
            site: names.site(reader, site)?,
            description: Some(Plain(description)),
            addresses: addresses.into_iter().map(Plain).collect(),
            weight: Some(weight.get()),
            max_devices,
            disabled,
        })
    }

    fn more(_: &mut Names, _: &mut Reader<'_>, _: &Stored<Server>) -> Result<Nothing, ControlError> {
        Ok(Nothing {})
    }

    fn record(reader: &mut Reader<'_>, body: ServerBody, _: Option<&Server>) -> Result<Server, ControlError> {
        let ServerBody { name, site, description, addresses, weight, max_devices, disabled } = body;
        if addresses.len() > MAX_SERVER_ADDRESSES {
            let why = format!("a server has at most {MAX_SERVER_ADDRESSES} addresses");
            return Err(ControlError::bad_value("addresses", why));
        }
        let weight = weight.map_or(Ok(Weight::DEFAULT), Weight::new);
        Ok(Server {
            name: name.0,
            site: resolve::<Site>(reader, &site, "site")?.id,
            description: text(description)?,
            addresses: addresses.into_iter().map(|address| address.0).collect(),
            weight: weight.map_err(|bad| ControlError::bad_value("weight", bad))?,
            max_devices,
            disabled,
        })
    }
}

/// A place for vDisks, which servers reach by paths of their own.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StoreBody {
    /// Its name; no two stores have the same.
    name: Plain<Name>,
    /// What somebody wrote about it.
    #[serde(default)]
    description: Option<Plain<Description>>,
    /// Whose servers alone may use it; null: every site's.
    #[serde(default)]
    site: Option<Ref>,
    /// Nothing boots from a disabled store.
    #[serde(default)]
    disabled: bool,
    /// Where it lies on each server that reaches it.
    #[serde(default)]
    paths: Vec<StorePathBody>,
}

/// Where a store lies on a server.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "StorePath")]
pub(crate) struct StorePathBody {
    /// The server.
    server: Ref,
    /// The folder.
    path: Plain<StorePath>,
}

pub(crate) enum Stores {}

impl Resource for Stores {
    type Record = Store;
    type Body = StoreBody;
    type More = Nothing;
    const NAME: &'static str = "Store";
    const ONE: &'static str = "a store";
    const PATH: &'static str = "/v1/stores";
    const PARAMETER: &'static str = "store";

    fn place(_: &mut Reader<'_>, store: &Store) -> Result<Place, ControlError> {
        Ok(Place::of_site(store.site))
    }

    fn body(names: &mut Names, reader: &mut Reader<'_>, store: &Store) -> Result<StoreBody, ControlError> {
        let Store { name, description, site, disabled, paths } = store.clone();
        let mut listed = Vec::new();
        for (server, path) in paths {
            listed.push(StorePathBody { server: names.server(reader, server)?, path: Plain(path) });
        }
        Ok(StoreBody {
            name: Plain(name),
            description: Some(Plain(description)),
            site: site.map(|site| names.site(reader, site)).transpose()?,
            disabled,
            paths: listed,
        })
    }

    fn more(_: &mut Names, _: &mut Reader<'_>, _: &Stored<Store>) -> Result<Nothing, ControlError> {
        Ok(Nothing {})
    }

    fn record(reader: &mut Reader<'_>, body: StoreBody, _: Option<&Store>) -> Result<Store, ControlError> {
        let StoreBody { name, description, site, disabled, paths: listed } = body;
        let mut paths = BTreeMap::new();
        for (place, StorePathBody { server, path }) in listed.into_iter().enumerate() {
            let field = format!("paths[{place}].server");
            let server = resolve::<Server>(reader, &server, &field)?;
            if paths.insert(server.id, path.0).is_some() {
                return Err(ControlError::bad_value(
                    &field,
                    format!("server {} is there twice", server.name),
                ));
            }
        }
        let site = site.map(|site| resolve::<Site>(reader, &site, "site")).transpose()?;
        Ok(Store {
            name: name.0,
            description: text(description)?,
            site: site.map(|site| site.id),
            disabled,
            paths,
        })
    }
}

/// Devices that are managed together.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CollectionBody {
    /// Its name; no two collections of a site have the same.
    name: Plain<Name>,
    /// Its site.
    site: Ref,
    /// What somebody wrote about it.
    #[serde(default)]
    description: Option<Plain<Description>>,
    /// Devices of a disabled collection are not given anything to boot.
    #[serde(default)]
    disabled: bool,
    /// The device whose properties new devices get where nothing else is said.
    #[serde(default)]
    template: Option<Ref>,
    /// Machines that ask a server of the site and are not known join this collection, and are named so; null: they do not.
    #[serde(default)]
    newcomers: Option<Plain<NamingPattern>>,
    /// User data for cloud-init, a template: `{{device}}`, `{{personality.Room|none}}`; null: none.
    #[serde(default)]
    user_data: Option<Plain<UserData>>,
    /// Public keys that may log in over SSH.
    #[serde(default)]
    #[schemars(length(max = 32))]
    ssh_keys: Vec<String>,
    /// Whether a machine that joins waits until somebody approves it.
    #[serde(default)]
    approves_newcomers: bool,
    /// What is said of its devices' boot menus.
    #[serde(default)]
    menu: Option<MenuBody>,
}

pub(crate) enum Collections {}

impl Resource for Collections {
    type Record = Collection;
    type Body = CollectionBody;
    type More = Nothing;
    const NAME: &'static str = "Collection";
    const ONE: &'static str = "a collection";
    const PATH: &'static str = "/v1/collections";
    const PARAMETER: &'static str = "collection";

    /// Whoever is administrator of the collection alone cannot take it to another site: that takes the site.
    fn place(reader: &mut Reader<'_>, collection: &Collection) -> Result<Place, ControlError> {
        let known = reader.collection(collection.site, &collection.name);
        Ok(known.map_or(Place::Site(collection.site), |known| Place::Collection(collection.site, known.id)))
    }

    fn body(
        names: &mut Names,
        reader: &mut Reader<'_>,
        collection: &Collection,
    ) -> Result<CollectionBody, ControlError> {
        let Collection {
            name,
            site,
            description,
            disabled,
            template,
            newcomers,
            guest,
            approves_newcomers,
            menu,
        } = collection.clone();
        Ok(CollectionBody {
            name: Plain(name),
            site: names.site(reader, site)?,
            description: Some(Plain(description)),
            disabled,
            template: template.map(|device| names.device(reader, device)).transpose()?,
            newcomers: newcomers.map(Plain),
            user_data: guest.user_data.map(Plain),
            ssh_keys: guest.ssh_keys.into(),
            approves_newcomers,
            menu: Some(MenuBody::of(menu)),
        })
    }

    fn more(_: &mut Names, _: &mut Reader<'_>, _: &Stored<Collection>) -> Result<Nothing, ControlError> {
        Ok(Nothing {})
    }

    fn record(
        reader: &mut Reader<'_>,
        body: CollectionBody,
        _: Option<&Collection>,
    ) -> Result<Collection, ControlError> {
        let CollectionBody {
            name,
            site,
            description,
            disabled,
            template,
            newcomers,
            user_data,
            ssh_keys,
            approves_newcomers,
            menu,
        } = body;
        let template = template.map(|device| resolve::<Device>(reader, &device, "template")).transpose()?;
        Ok(Collection {
            name: name.0,
            site: resolve::<Site>(reader, &site, "site")?.id,
            description: text(description)?,
            disabled,
            template: template.map(|device| device.id),
            newcomers: newcomers.map(|pattern| pattern.0),
            guest: super::devices::guest(user_data, ssh_keys)?,
            approves_newcomers,
            menu: MenuBody::read(menu.as_ref())?,
        })
    }

    fn inside(visible: &Visible) -> Option<Filter> {
        Some(any(visible.collections.iter().map(|one| Filter::equal("id", one.id)).collect()))
    }
}

/// Where vDisks of a store are.
pub(super) fn place_of_store(
    reader: &mut Reader<'_>,
    store: farm::model::StoreId,
) -> Result<Place, ControlError> {
    let store = reader.get(store)?;
    Stores::place(reader, &store.value)
}
