//! Opening the catalogue: the database, this server's place in the farm, and the last known state in its stead.
use std::path::PathBuf;

use anyhow::Context;
use control::Caller;
use farm::catalogue::{Catalogue, CatalogueError, Change, Postgres};
use farm::model::{Description, Farm, Name, Server, ServerId, ServerName, Site, Stored, Weight};
use farm::snapshot::{Snapshot, stored};

use super::survey::FileVdisk;
use super::{import, last_known_path, now};
use crate::config::{CatalogueAt, Config};

/// What a farm is called that nobody has named.
const FARM: &str = "Headwater";

/// What the site of a farm is called that nobody has set up.
const SITE: &str = "site";

/// Opens the database, sees to this server's place in it, and imports what the configuration names.
///
/// # Errors
/// The database cannot be had; or what the configuration names does not fit it.
pub(super) fn open(config: &Config, found: &[FileVdisk]) -> anyhow::Result<(Catalogue, ServerId)> {
    let catalogue = database(config)?;
    let name = server_name(config)?;
    let mut skipped = Vec::new();
    let server = catalogue.change(Caller::system(name.as_str(), now()).actor(), now(), |change| {
        let server = place(change, &name, config.server.site.as_ref())?;
        skipped = import::import(config, found, &server, change)?;
        Ok(server.id)
    });
    let server = server.context("what headwater.toml names cannot be imported into the catalogue")?;
    for why in skipped {
        tracing::warn!("headwater.toml: {why}");
    }
    tracing::info!(database = catalogue.name(), server = name.as_str(), "catalogue opened");
    Ok((catalogue, server))
}

/// The last known state, and which server of it this is.
///
/// # Errors
/// There is none; `why` the database cannot be had is then told too.
pub(super) fn last_known(config: &Config, why: &anyhow::Error) -> anyhow::Result<(Snapshot, ServerId)> {
    let path = last_known_path(config);
    if !path.exists() {
        anyhow::bail!("{why:#}");
    }
    let snapshot = stored::load(&path).with_context(|| format!("{why:#}; and without it"))?;
    let name = server_name(config)?;
    let server = snapshot.servers().find(|server| server.name == name).map(|server| server.id);
    let server = server.with_context(|| {
        format!("{why:#}; and the last known state {} does not know the server {name}", path.display())
    })?;
    Ok((snapshot, server))
}

fn database(config: &Config) -> anyhow::Result<Catalogue> {
    match &config.catalogue {
        CatalogueAt::Postgres(address) => Ok(Catalogue::open(Postgres::connect(address)?)?),
        CatalogueAt::StateDirectory => {
            let path = config.state_dir.join("farm.db");
            let last_known = last_known_path(config);
            // An empty farm in place of one that was lost would be worse than none.
            anyhow::ensure!(
                path.exists() || !last_known.exists(),
                "the database {} is gone: bring it back from a backup; to begin with an empty farm, remove {} too",
                path.display(),
                last_known.display()
            );
            Ok(Catalogue::open_file(&path)?)
        }
    }
}

/// What this server is called.
///
/// # Errors
/// The configuration does not say so, and the host's name cannot name a server.
pub fn server_name(config: &Config) -> anyhow::Result<ServerName> {
    if let Some(name) = &config.server.name {
        return Ok(name.clone());
    }
    let path = PathBuf::from("/proc/sys/kernel/hostname");
    let host = std::fs::read_to_string(&path).context("the name of this host cannot be read")?;
    ServerName::new(&host.trim().to_ascii_lowercase())
        .context("the name of this host cannot name a server: set name in [server]")
}

/// This server's record, which is made if there is none; of an empty catalogue with a farm and a site around it.
fn place(
    change: &mut Change<'_>,
    name: &ServerName,
    site: Option<&Name>,
) -> Result<Stored<Server>, CatalogueError> {
    match change.server(name) {
        Err(CatalogueError::NotFound { .. }) => {}
        other => return other,
    }
    let description = Description::new("")?;
    if change.farm()?.is_none() {
        change.create(Farm { name: Name::new(FARM)?, description: description.clone(), auto_merge: None })?;
    }
    let first = change.all::<Site>()?.into_iter().next();
    let site = match (site, first) {
        (Some(name), _) => match change.site(name) {
            Err(CatalogueError::NotFound { .. }) => None,
            other => Some(other?),
        },
        (None, first) => first,
    }
    .map_or_else(
        || {
            let name = site.cloned().map_or_else(|| Name::new(SITE), Ok)?;
            change.create(Site { name, description: description.clone(), disabled: false })
        },
        Ok,
    )?;
    change.create(Server {
        name: name.clone(),
        site: site.id,
        description,
        addresses: Vec::new(),
        weight: Weight::DEFAULT,
        max_devices: None,
        disabled: false,
    })
}
