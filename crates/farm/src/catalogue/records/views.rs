//! Views in their table.
use super::super::cell::{BadRow, Cell, Row};
use super::super::record::{Record, Reference, Table, Unique};
use super::vdisks::words;
use crate::filter::{Field, FieldKind};
use crate::model::{Choice, ObjectKind, View, ViewOf};

impl Record for View {
    const TABLE: &'static Table = &Table {
        kind: ObjectKind::View,
        name: "saved_view",
        columns: &["name", "name_key", "description", "site_id", "list", "condition"],
        unique: &[Unique { what: "name", columns: &["name_key"] }],
        references: &[Reference { column: "site_id", what: "site", to: ObjectKind::Site }],
        children: &[],
        label: "t.name",
        joins: "LEFT JOIN site ON site.id = t.site_id",
        fields: &[
            Field::row("name", FieldKind::Folded, "t.name_key"),
            Field::row("id", FieldKind::Number, "t.id"),
            Field::row("site", FieldKind::Folded, "coalesce(site.name_key, '')"),
            Field::row("description", FieldKind::Text, "lower(t.description)"),
            Field::row("of", FieldKind::Word(words::<ViewOf>), "t.list"),
        ],
    };

    fn cells(&self) -> Vec<Cell> {
        vec![
            self.name.as_str().into(),
            self.name.folded().into(),
            self.description.as_str().into(),
            self.site.into(),
            self.of.word().into(),
            self.filter.to_string().into(),
        ]
    }

    fn from_rows(row: &mut Row, _: &mut [Vec<Row>]) -> Result<Self, BadRow> {
        let name = row.parsed()?;
        let _key = row.text()?;
        let (description, site, of) = (row.parsed()?, row.optional_id()?, row.choice()?);
        Ok(Self { name, description, site, of, filter: row.parsed()? })
    }

    fn label(&self) -> Option<String> {
        Some(self.name.as_str().to_owned())
    }
}
