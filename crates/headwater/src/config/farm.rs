//! `[server]` and `[catalogue]`: who this server is in the farm, and where the farm is written down.
use ::farm::model::{Name, ServerName};

use super::reader::Section;

/// `[server]`: what this server is called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerIdentity {
    /// Its name; `None`: that of the host.
    pub name: Option<ServerName>,
    /// The site that it joins at its first start; `None`: the farm's first.
    pub site: Option<Name>,
}

/// `[catalogue]`: where the farm's catalogue is.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum CatalogueAt {
    /// In a file of SQLite below the state directory.
    #[default]
    StateDirectory,
    /// In a PostgreSQL database, which servers share: its address.
    Postgres(String),
}

// An address may hold a password.
impl std::fmt::Debug for CatalogueAt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::StateDirectory => "StateDirectory",
            Self::Postgres(_) => "Postgres(..)",
        })
    }
}

pub(super) fn read_server(root: &mut Section<'_>) -> ServerIdentity {
    let Some(mut section) = root.section("server") else { return ServerIdentity::default() };
    let name = section.string_as("name", |text| ServerName::new(text).map_err(|bad| bad.to_string()));
    let site = section.string_as("site", |text| Name::new(text).map_err(|bad| bad.to_string()));
    section.finish();
    ServerIdentity { name, site }
}

pub(super) fn read_catalogue(root: &mut Section<'_>) -> CatalogueAt {
    let Some(mut section) = root.section("catalogue") else { return CatalogueAt::default() };
    let postgres = section.string("postgres");
    section.finish();
    postgres.map_or(CatalogueAt::StateDirectory, CatalogueAt::Postgres)
}
