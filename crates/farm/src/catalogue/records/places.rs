//! Farm, sites, servers, stores and collections in their tables.
use std::collections::BTreeMap;

use super::super::cell::{BadRow, Cell, Row};
use super::super::record::{Child, Record, Reference, Table, Unique};
use super::menus::menu;
use crate::filter::{Field, FieldKind};
use crate::model::{
    AutoMerge, ChainLimit, Choice, Collection, Farm, ObjectKind, Server, Site, Store, StorePath, UserData,
    Weight,
};

const SITE: Reference = Reference { column: "site_id", what: "site", to: ObjectKind::Site };
const NAME: Unique = Unique { what: "name", columns: &["name_key"] };

impl Record for Farm {
    const TABLE: &'static Table = &Table {
        kind: ObjectKind::Farm,
        name: "farm",
        columns: &["one", "name", "description", "merge_above", "merge_result"],
        unique: &[Unique { what: "place of the one farm", columns: &["one"] }],
        references: &[],
        children: &[],
        label: "t.name",
        joins: "",
        fields: &[],
    };

    fn cells(&self) -> Vec<Cell> {
        vec![
            1.into(),
            self.name.as_str().into(),
            self.description.as_str().into(),
            self.auto_merge.map(|merge| i64::from(merge.above.get())).into(),
            self.auto_merge.map(|merge| merge.result.word()).into(),
        ]
    }

    fn from_rows(row: &mut Row, _: &mut [Vec<Row>]) -> Result<Self, BadRow> {
        let _one = row.integer()?;
        let (name, description) = (row.parsed()?, row.parsed()?);
        let auto_merge = match (row.optional_small()?, row.optional_choice()?) {
            (Some(above), Some(result)) => Some(AutoMerge { above: ChainLimit::new(above)?, result }),
            _ => None,
        };
        Ok(Self { name, description, auto_merge })
    }

    fn label(&self) -> Option<String> {
        Some(self.name.as_str().to_owned())
    }
}

impl Record for Site {
    const TABLE: &'static Table = &Table {
        kind: ObjectKind::Site,
        name: "site",
        columns: &["name", "name_key", "description", "disabled"],
        unique: &[NAME],
        references: &[],
        children: &[],
        label: "t.name",
        joins: "",
        fields: &[
            Field::row("name", FieldKind::Folded, "t.name_key"),
            Field::row("id", FieldKind::Number, "t.id"),
            Field::row("description", FieldKind::Text, "lower(t.description)"),
            Field::row("disabled", FieldKind::YesNo, "t.disabled"),
        ],
    };

    fn cells(&self) -> Vec<Cell> {
        vec![
            self.name.as_str().into(),
            self.name.folded().into(),
            self.description.as_str().into(),
            self.disabled.into(),
        ]
    }

    fn from_rows(row: &mut Row, _: &mut [Vec<Row>]) -> Result<Self, BadRow> {
        let name = row.parsed()?;
        let _key = row.text()?;
        Ok(Self { name, description: row.parsed()?, disabled: row.yes_no()? })
    }

    fn label(&self) -> Option<String> {
        Some(self.name.as_str().to_owned())
    }
}

impl Record for Server {
    const TABLE: &'static Table = &Table {
        kind: ObjectKind::Server,
        name: "server",
        columns: &["name", "site_id", "description", "addresses", "weight", "max_devices", "disabled"],
        unique: &[Unique { what: "name", columns: &["name"] }],
        references: &[SITE],
        children: &[],
        label: "t.name",
        joins: "JOIN site ON site.id = t.site_id",
        fields: &[
            Field::row("name", FieldKind::Folded, "t.name"),
            Field::row("id", FieldKind::Number, "t.id"),
            Field::row("site", FieldKind::Folded, "site.name_key"),
            Field::row("description", FieldKind::Text, "lower(t.description)"),
            Field::row("address", FieldKind::Text, "t.addresses"),
            Field::row("weight", FieldKind::Number, "t.weight"),
            Field::row("disabled", FieldKind::YesNo, "t.disabled"),
        ],
    };

    fn cells(&self) -> Vec<Cell> {
        vec![
            self.name.as_str().into(),
            self.site.into(),
            self.description.as_str().into(),
            self.addresses_text().into(),
            i64::from(self.weight.get()).into(),
            self.max_devices.map(i64::from).into(),
            self.disabled.into(),
        ]
    }

    fn from_rows(row: &mut Row, _: &mut [Vec<Row>]) -> Result<Self, BadRow> {
        Ok(Self {
            name: row.parsed()?,
            site: row.id()?,
            description: row.parsed()?,
            addresses: Self::parse_addresses(&row.text()?)?,
            weight: Weight::new(row.small()?)?,
            max_devices: row.optional_small()?,
            disabled: row.yes_no()?,
        })
    }

    fn label(&self) -> Option<String> {
        Some(self.name.as_str().to_owned())
    }
}

impl Record for Store {
    const TABLE: &'static Table = &Table {
        kind: ObjectKind::Store,
        name: "store",
        columns: &["name", "name_key", "description", "site_id", "disabled"],
        unique: &[NAME],
        references: &[SITE],
        children: &[Child {
            table: "store_path",
            columns: &["server_id", "path"],
            unique: None,
            references: &[Reference { column: "server_id", what: "path's server", to: ObjectKind::Server }],
        }],
        label: "t.name",
        joins: "LEFT JOIN site ON site.id = t.site_id",
        fields: &[
            Field::row("name", FieldKind::Folded, "t.name_key"),
            Field::row("id", FieldKind::Number, "t.id"),
            Field::row("site", FieldKind::Folded, "coalesce(site.name_key, '')"),
            Field::row("description", FieldKind::Text, "lower(t.description)"),
            Field::row("disabled", FieldKind::YesNo, "t.disabled"),
            Field::rows(
                "server",
                FieldKind::Folded,
                "SELECT 1 FROM store_path JOIN server ON server.id = store_path.server_id WHERE store_path.owner = t.id",
                "server.name",
            ),
        ],
    };

    fn cells(&self) -> Vec<Cell> {
        vec![
            self.name.as_str().into(),
            self.name.folded().into(),
            self.description.as_str().into(),
            self.site.into(),
            self.disabled.into(),
        ]
    }

    fn child_rows(&self, _: usize) -> Vec<Vec<Cell>> {
        self.paths.iter().map(|(server, path)| vec![(*server).into(), path.as_str().into()]).collect()
    }

    fn from_rows(row: &mut Row, children: &mut [Vec<Row>]) -> Result<Self, BadRow> {
        let name = row.parsed()?;
        let _key = row.text()?;
        let (description, site, disabled) = (row.parsed()?, row.optional_id()?, row.yes_no()?);
        let rows = children.iter_mut().flatten();
        let paths: Result<BTreeMap<_, StorePath>, BadRow> =
            rows.map(|path| Ok((path.id()?, path.parsed()?))).collect();
        Ok(Self { name, description, site, disabled, paths: paths? })
    }

    fn label(&self) -> Option<String> {
        Some(self.name.as_str().to_owned())
    }
}

impl Record for Collection {
    const TABLE: &'static Table = &Table {
        kind: ObjectKind::Collection,
        name: "collection",
        columns: &[
            "name",
            "name_key",
            "site_id",
            "description",
            "disabled",
            "newcomers",
            "newcomers_of",
            "user_data",
            "ssh_keys",
            "approves_newcomers",
            "menu_show",
            "menu_wait",
        ],
        unique: &[
            Unique { what: "name", columns: &["site_id", "name_key"] },
            Unique { what: "taking of newcomers of site", columns: &["newcomers_of"] },
        ],
        references: &[SITE],
        children: &[Child {
            table: "collection_template",
            columns: &["device_id"],
            unique: None,
            references: &[Reference { column: "device_id", what: "template", to: ObjectKind::Device }],
        }],
        label: "t.name",
        joins: "JOIN site ON site.id = t.site_id",
        fields: &[
            Field::row("name", FieldKind::Folded, "t.name_key"),
            Field::row("id", FieldKind::Number, "t.id"),
            Field::row("site", FieldKind::Folded, "site.name_key"),
            Field::row("description", FieldKind::Text, "lower(t.description)"),
            Field::row("disabled", FieldKind::YesNo, "t.disabled"),
        ],
    };

    fn cells(&self) -> Vec<Cell> {
        vec![
            self.name.as_str().into(),
            self.name.folded().into(),
            self.site.into(),
            self.description.as_str().into(),
            self.disabled.into(),
            self.newcomers.as_ref().map(ToString::to_string).into(),
            self.newcomers.as_ref().map(|_| self.site).into(),
            self.guest.user_data.as_ref().map(UserData::as_str).into(),
            self.guest.ssh_keys.lines().into(),
            self.approves_newcomers.into(),
            self.menu.show.map(Choice::word).into(),
            self.menu.wait.map(|wait| i64::from(wait.seconds())).into(),
        ]
    }

    fn child_rows(&self, _: usize) -> Vec<Vec<Cell>> {
        self.template.iter().map(|device| vec![(*device).into()]).collect()
    }

    fn from_rows(row: &mut Row, children: &mut [Vec<Row>]) -> Result<Self, BadRow> {
        let name = row.parsed()?;
        let _key = row.text()?;
        let (site, description, disabled) = (row.id()?, row.parsed()?, row.yes_no()?);
        let newcomers = row.optional_parsed()?;
        let _newcomers_of = row.optional_integer()?;
        let guest = super::devices::guest(row)?;
        let (approves_newcomers, menu) = (row.yes_no()?, menu(row)?);
        let template = children.iter_mut().flatten().next().map(Row::id).transpose()?;
        Ok(Self { name, site, description, disabled, template, newcomers, guest, approves_newcomers, menu })
    }

    fn label(&self) -> Option<String> {
        Some(self.name.as_str().to_owned())
    }
}
