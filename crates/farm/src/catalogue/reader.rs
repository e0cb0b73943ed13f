//! Reading: objects by id, by what else is unique about them, all of a kind, and in pages.
use std::collections::HashMap;

use super::cell::{BadRow, Cell, Row};
use super::database::Transaction;
use super::error::{CatalogueError, DatabaseError};
use super::record::{Child, Record, Table};
use crate::model::{Id, ObjectKind, Revision, Stored};

/// Owners whose lists are read with one statement. A shorter list repeats its last one, so that there is one statement
/// to prepare.
const OWNERS_AT_ONCE: usize = 100;

/// One state of everything.
pub struct Reader<'a> {
    pub(super) tx: &'a mut dyn Transaction,
}

impl Reader<'_> {
    /// The object with this id.
    ///
    /// # Errors
    /// [`CatalogueError::NotFound`], or the database's.
    pub fn get<T: Record>(&mut self, id: Id<T>) -> Result<Stored<T>, CatalogueError> {
        self.find(id)?.ok_or_else(|| not_found::<T>(id))
    }

    /// The object with this id, if it is there.
    ///
    /// # Errors
    /// The database's.
    pub fn find<T: Record>(&mut self, id: Id<T>) -> Result<Option<Stored<T>>, CatalogueError> {
        Ok(self.select("WHERE t.id = ?", &[id.into()])?.pop())
    }

    /// All objects of a kind, in the order of their ids.
    ///
    /// # Errors
    /// The database's.
    pub fn all<T: Record>(&mut self) -> Result<Vec<Stored<T>>, CatalogueError> {
        let table = T::TABLE;
        let rows = self
            .tx
            .query(&format!("SELECT {} FROM {} t ORDER BY t.id", table.selected(), table.name), &[])?;
        let mut lists = Vec::new();
        for child in table.children {
            let sql = format!("SELECT {} FROM {} ORDER BY owner, place", child_columns(child), child.table);
            lists.push(by_owner(self.tx.query(&sql, &[])?).map_err(|bad| self.damaged(table, &bad))?);
        }
        self.assemble(rows, lists)
    }

    /// The objects of the rows `t` that `clause` leaves.
    pub(super) fn select<T: Record>(
        &mut self,
        clause: &str,
        values: &[Cell],
    ) -> Result<Vec<Stored<T>>, CatalogueError> {
        let table = T::TABLE;
        let rows =
            self.tx.query(&format!("SELECT {} FROM {} t {clause}", table.selected(), table.name), values)?;
        self.with_lists(rows)
    }

    /// Puts objects together out of their rows and the rows of their lists, which are read now.
    pub(super) fn with_lists<T: Record>(&mut self, rows: Vec<Row>) -> Result<Vec<Stored<T>>, CatalogueError> {
        let table = T::TABLE;
        let mut peeked = Vec::with_capacity(rows.len());
        let mut ids = Vec::with_capacity(rows.len());
        for mut row in rows {
            let id = row.integer().map_err(|bad| self.damaged(table, &bad))?;
            ids.push(id);
            peeked.push((id, row));
        }
        let mut lists = Vec::new();
        for child in table.children {
            lists.push(self.rows_of(table, child, &ids)?);
        }
        self.assemble_known(peeked, lists)
    }

    fn rows_of(
        &mut self,
        table: &'static Table,
        child: &Child,
        owners: &[i64],
    ) -> Result<HashMap<i64, Vec<Row>>, CatalogueError> {
        let columns = child_columns(child);
        let mut found = HashMap::new();
        if let [only] = owners {
            let sql = format!("SELECT {columns} FROM {} WHERE owner = ? ORDER BY place", child.table);
            let rows = self.tx.query(&sql, &[Cell::Integer(*only)])?;
            return by_owner(rows).map_err(|bad| self.damaged(table, &bad));
        }
        let places = vec!["?"; OWNERS_AT_ONCE].join(", ");
        let sql =
            format!("SELECT {columns} FROM {} WHERE owner IN ({places}) ORDER BY owner, place", child.table);
        for some in owners.chunks(OWNERS_AT_ONCE) {
            let last = some.last().copied().unwrap_or(0);
            let padded = some.iter().copied().chain(std::iter::repeat(last)).take(OWNERS_AT_ONCE);
            let values: Vec<Cell> = padded.map(Cell::Integer).collect();
            let rows = self.tx.query(&sql, &values)?;
            found.extend(by_owner(rows).map_err(|bad| self.damaged(table, &bad))?);
        }
        Ok(found)
    }

    fn assemble<T: Record>(
        &self,
        rows: Vec<Row>,
        lists: Vec<HashMap<i64, Vec<Row>>>,
    ) -> Result<Vec<Stored<T>>, CatalogueError> {
        let with_id = |mut row: Row| Ok((row.integer()?, row));
        let rows: Result<Vec<_>, BadRow> = rows.into_iter().map(with_id).collect();
        self.assemble_known(rows.map_err(|bad| self.damaged(T::TABLE, &bad))?, lists)
    }

    fn assemble_known<T: Record>(
        &self,
        rows: Vec<(i64, Row)>,
        mut lists: Vec<HashMap<i64, Vec<Row>>>,
    ) -> Result<Vec<Stored<T>>, CatalogueError> {
        let mut objects = Vec::with_capacity(rows.len());
        for (number, mut row) in rows {
            let mut children: Vec<Vec<Row>> =
                lists.iter_mut().map(|list| list.remove(&number).unwrap_or_default()).collect();
            let mut read = || -> Result<Stored<T>, BadRow> {
                let id = Id::new(number)?;
                let revision = Revision::new(row.integer()?)?;
                Ok(Stored { id, revision, value: T::from_rows(&mut row, &mut children)? })
            };
            let in_row =
                |bad: BadRow| self.damaged(T::TABLE, &BadRow { why: format!("#{number}: {}", bad.why) });
            objects.push(read().map_err(in_row)?);
        }
        Ok(objects)
    }

    /// The object of the given id is called so in messages.
    pub(super) fn label(&mut self, table: &'static Table, id: i64) -> Result<String, CatalogueError> {
        let sql = format!("SELECT {} FROM {} t {} WHERE t.id = ?", table.label, table.name, table.joins);
        let row = self.tx.query(&sql, &[Cell::Integer(id)])?.pop();
        Ok(row.and_then(|mut row| row.text().ok()).unwrap_or_else(|| format!("#{id}")))
    }

    /// The one number that a query gives.
    pub(super) fn number(&mut self, sql: &str, values: &[Cell]) -> Result<i64, CatalogueError> {
        let row = self.tx.query(sql, values)?.pop();
        let number = row.ok_or_else(|| BadRow { why: "no row".to_owned() }).and_then(|mut row| row.integer());
        number.map_err(|bad| self.damaged_at("a count", &bad))
    }

    pub(super) fn damaged(&self, table: &Table, bad: &BadRow) -> CatalogueError {
        self.damaged_at(table.name, bad)
    }

    pub(super) fn damaged_at(&self, place: &str, bad: &BadRow) -> CatalogueError {
        let why = format!("table {place}: {}", bad.why);
        DatabaseError::Damaged { database: self.tx.database().to_owned(), why }.into()
    }
}

fn child_columns(child: &Child) -> String {
    std::iter::once(&"owner").chain(child.columns).copied().collect::<Vec<_>>().join(", ")
}

fn by_owner(rows: Vec<Row>) -> Result<HashMap<i64, Vec<Row>>, BadRow> {
    let mut owners: HashMap<i64, Vec<Row>> = HashMap::new();
    for mut row in rows {
        owners.entry(row.integer()?).or_default().push(row);
    }
    Ok(owners)
}

pub(super) fn not_found<T: Record>(id: Id<T>) -> CatalogueError {
    missing(T::TABLE.kind, id.get())
}

pub(super) fn missing(kind: ObjectKind, id: i64) -> CatalogueError {
    CatalogueError::NotFound { kind, name: format!("#{id}") }
}
