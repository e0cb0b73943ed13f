//! Roles: what users may do, and where.
use control::ControlError;
use farm::catalogue::Reader;
use farm::model::{Collection, Grant, Role, Scope, Site, Stored, User};
use farm::rules::permission::Place;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::object::{Nothing, Resource, Which, operations};
use crate::operation::Operation;
use crate::wire::{Names, Ref, Word, resolve};

pub(super) fn all() -> Vec<Operation> {
    operations::<Grants>(Which::ALL)
}

/// That a user has a role somewhere: in the site or the collection that is named, or else in the whole farm.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GrantBody {
    /// Who.
    user: Ref,
    /// What.
    role: Word<Role>,
    /// In one site and all its collections.
    #[serde(default)]
    site: Option<Ref>,
    /// In one collection.
    #[serde(default)]
    collection: Option<Ref>,
}

pub(crate) enum Grants {}

impl Resource for Grants {
    type Record = Grant;
    type Body = GrantBody;
    type More = Nothing;
    const NAME: &'static str = "Grant";
    const ONE: &'static str = "a role of a user";
    const PATH: &'static str = "/v1/grants";
    const PARAMETER: &'static str = "grant";

    fn place(_: &mut Reader<'_>, _: &Grant) -> Result<Place, ControlError> {
        Ok(Place::Farm)
    }

    fn body(names: &mut Names, reader: &mut Reader<'_>, grant: &Grant) -> Result<GrantBody, ControlError> {
        let (site, collection) = told_scope(names, reader, grant.scope)?;
        Ok(GrantBody { user: names.user(reader, grant.user)?, role: Word(grant.role), site, collection })
    }

    fn more(_: &mut Names, _: &mut Reader<'_>, _: &Stored<Grant>) -> Result<Nothing, ControlError> {
        Ok(Nothing {})
    }

    fn record(reader: &mut Reader<'_>, body: GrantBody, _: Option<&Grant>) -> Result<Grant, ControlError> {
        let GrantBody { user, role, site, collection } = body;
        Ok(Grant {
            user: resolve::<User>(reader, &user, "user")?.id,
            role: role.0,
            scope: scope(reader, site.as_ref(), collection.as_ref())?,
        })
    }
}

/// The place that a body names.
pub(super) fn scope(
    reader: &mut Reader<'_>,
    site: Option<&Ref>,
    collection: Option<&Ref>,
) -> Result<Scope, ControlError> {
    Ok(match (site, collection) {
        (None, None) => Scope::Farm,
        (Some(site), None) => Scope::Site(resolve::<Site>(reader, site, "site")?.id),
        (None, Some(collection)) => {
            Scope::Collection(resolve::<Collection>(reader, collection, "collection")?.id)
        }
        (Some(_), Some(_)) => {
            return Err(ControlError::bad_value("collection", "name a site or a collection, not both"));
        }
    })
}

/// The site and the collection that a place is told by.
pub(super) fn told_scope(
    names: &mut Names,
    reader: &mut Reader<'_>,
    scope: Scope,
) -> Result<(Option<Ref>, Option<Ref>), ControlError> {
    Ok(match scope {
        Scope::Farm => (None, None),
        Scope::Site(site) => (Some(names.site(reader, site)?), None),
        Scope::Collection(collection) => (None, Some(names.collection(reader, collection)?)),
    })
}
