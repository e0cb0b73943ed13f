//! Views: filters that somebody gave a name, and what fits them now.
use control::ControlError;
use farm::catalogue::Reader;
use farm::filter::Filter;
use farm::model::{Description, Device, Name, ObjectKind, Site, Stored, Vdisk, Version, View, ViewOf};
use farm::rules::permission::{Action, Place};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::devices::Devices;
use super::object::{Nothing, PageOf, Resource, Which, operations, page, seen};
use super::places::Servers;
use super::text;
use super::vdisks::Vdisks;
use super::versions::Versions;
use crate::asked::Asked;
use crate::operation::Operation;
use crate::problem::Problem;
use crate::reply::Reply;
use crate::wire::{Names, Plain, Ref, Word, find, resolve};

pub(super) fn all() -> Vec<Operation> {
    let mut all = operations::<Views>(Which::ALL);
    let items = Operation::get(
        "/v1/views/{view}/items",
        "listViewItems",
        "views",
        "Lists the objects that fit a view now, as the list that it is of tells them.",
        items,
    );
    all.push(items.pages().gives::<PageOf<Value>>());
    all
}

/// A filter with a name.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ViewBody {
    /// Its name; no two views have the same.
    name: Plain<Name>,
    /// What somebody wrote about it.
    #[serde(default)]
    description: Option<Plain<Description>>,
    /// Of whose objects alone; null: the whole farm's.
    #[serde(default)]
    site: Option<Ref>,
    /// Of which list.
    of: Word<ViewOf>,
    /// Which of them.
    filter: Plain<Filter>,
}

pub(crate) enum Views {}

impl Resource for Views {
    type Record = View;
    type Body = ViewBody;
    type More = Nothing;
    const NAME: &'static str = "View";
    const ONE: &'static str = "a view";
    const PATH: &'static str = "/v1/views";
    const PARAMETER: &'static str = "view";

    fn place(_: &mut Reader<'_>, view: &View) -> Result<Place, ControlError> {
        Ok(Place::of_site(view.site))
    }

    fn body(names: &mut Names, reader: &mut Reader<'_>, view: &View) -> Result<ViewBody, ControlError> {
        let View { name, description, site, of, filter } = view.clone();
        Ok(ViewBody {
            name: Plain(name),
            description: Some(Plain(description)),
            site: site.map(|site| names.site(reader, site)).transpose()?,
            of: Word(of),
            filter: Plain(filter),
        })
    }

    fn more(_: &mut Names, _: &mut Reader<'_>, _: &Stored<View>) -> Result<Nothing, ControlError> {
        Ok(Nothing {})
    }

    fn record(reader: &mut Reader<'_>, body: ViewBody, _: Option<&View>) -> Result<View, ControlError> {
        let ViewBody { name, description, site, of, filter } = body;
        let site = site.map(|site| resolve::<Site>(reader, &site, "site")).transpose()?;
        check(reader, of.0, &filter.0)?;
        Ok(View {
            name: name.0,
            description: text(description)?,
            site: site.map(|site| site.id),
            of: of.0,
            filter: filter.0,
        })
    }
}

/// A filter that means nothing for its list is refused now, and not when the view is opened.
fn check(reader: &mut Reader<'_>, of: ViewOf, filter: &Filter) -> Result<(), ControlError> {
    let counted = match of {
        ViewOf::Devices => reader.count::<Device>(filter),
        ViewOf::Vdisks => reader.count::<Vdisk>(filter),
        ViewOf::Versions => reader.count::<Version>(filter),
        ViewOf::Servers => reader.count::<farm::model::Server>(filter),
    };
    counted.map(drop).map_err(ControlError::from)
}

fn items(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let mut query = asked.list()?;
    let (caller, wanted) = (asked.caller()?, asked.parameter("view")?);
    let page: PageOf<Value> = asked.control().read(|reader| {
        caller.may(Action::See, ObjectKind::View, Place::Farm)?;
        let view = find::<View>(reader, wanted)?;
        let mut filter = view.filter.clone().and(query.filter.clone());
        if let (Some(site), ViewOf::Devices | ViewOf::Servers) = (view.site, view.of) {
            let name = reader.get(site)?.value.name;
            filter = Filter::equal("site", name.folded()).and(filter);
        }
        match view.of {
            ViewOf::Devices => {
                query.filter = seen::<Devices>(reader, caller, filter)?;
                page::<Devices>(reader, &query)
            }
            ViewOf::Vdisks => {
                query.filter = seen::<Vdisks>(reader, caller, filter)?;
                page::<Vdisks>(reader, &query)
            }
            ViewOf::Versions => {
                query.filter = seen::<Versions>(reader, caller, filter)?;
                page::<Versions>(reader, &query)
            }
            ViewOf::Servers => {
                query.filter = seen::<Servers>(reader, caller, filter)?;
                page::<Servers>(reader, &query)
            }
        }
    })?;
    Reply::json(&page)
}
