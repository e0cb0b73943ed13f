//! Records: how a type of the model lies in its table. What a [`Table`] says about itself is all that reading, writing,
//! checking and listing need, so that each of them stands once for all types.
use serde::Serialize;

use super::cell::{BadRow, Cell, Row};
use crate::filter::Field;
use crate::model::ObjectKind;

/// A type of the model that has a table.
pub trait Record: Clone + PartialEq + Serialize + Sized + 'static {
    /// Its table.
    const TABLE: &'static Table;

    /// The cells of its row, one for each of [`Table::columns`].
    fn cells(&self) -> Vec<Cell>;

    /// The rows of its `child`th child table, without owner and place.
    fn child_rows(&self, child: usize) -> Vec<Vec<Cell>> {
        let _ = child;
        Vec::new()
    }

    /// Puts it together: its row, and the rows of each of its child tables.
    ///
    /// # Errors
    /// [`BadRow`] of rows that we do not write.
    fn from_rows(row: &mut Row, children: &mut [Vec<Row>]) -> Result<Self, BadRow>;

    /// What it is called, where it knows that itself; else [`Table::label`] is asked.
    fn label(&self) -> Option<String>;
}

/// A table of objects.
#[derive(Debug)]
pub struct Table {
    /// Of what.
    pub kind: ObjectKind,
    /// Its name.
    pub name: &'static str,
    /// Its columns, besides `id` and `revision`.
    pub columns: &'static [&'static str],
    /// What no two objects share.
    pub unique: &'static [Unique],
    /// Columns that name other objects.
    pub references: &'static [Reference],
    /// Tables of its lists.
    pub children: &'static [Child],
    /// What an object is called, as an expression over its row `t` and [`joins`](Self::joins).
    pub label: &'static str,
    /// What lists and labels need besides the row `t`.
    pub joins: &'static str,
    /// The fields that filters and orders can name.
    pub fields: &'static [Field],
}

/// Columns whose values no two objects share; where one of them is null, nothing is shared.
#[derive(Debug)]
pub struct Unique {
    /// What messages call it.
    pub what: &'static str,
    /// The columns; the last one's value is shown.
    pub columns: &'static [&'static str],
}

/// A column that names another object.
#[derive(Debug)]
pub struct Reference {
    /// The column.
    pub column: &'static str,
    /// What messages call it.
    pub what: &'static str,
    /// What it names.
    pub to: ObjectKind,
}

/// A table of the rows of one list of an object: `owner`, `place`, and these columns.
#[derive(Debug)]
pub struct Child {
    /// Its name.
    pub table: &'static str,
    /// Its columns, besides `owner` and `place`.
    pub columns: &'static [&'static str],
    /// A column whose values no two objects share, and what messages call it.
    pub unique: Option<(&'static str, &'static str)>,
    /// Columns that name other objects.
    pub references: &'static [Reference],
}

impl Table {
    /// `t.id, t.revision, t.column, ...`.
    pub(super) fn selected(&self) -> String {
        let columns = ["id", "revision"].iter().chain(self.columns);
        columns.map(|column| format!("t.{column}")).collect::<Vec<_>>().join(", ")
    }
}
