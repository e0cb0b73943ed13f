//! Changing: every change checks, writes and is written down, in one transaction.
use std::ops::{Deref, DerefMut};

use serde_json::{Map, Value};

use super::cell::Cell;
use super::error::{CatalogueError, Holders};
use super::reader::{Reader, missing, not_found};
use super::record::{Child, Record, Reference, Table};
use super::records::{TABLES, table_of};
use crate::model::{Actor, ChangeNumber, Id, ObjectKind, Revision, Stored, Timestamp};

/// The longest text of an actor's origin and request that is kept, in characters.
const MAX_ACTOR_CHARS: usize = 100;

/// How many of those that need an object are named.
const NAMED_HOLDERS: i64 = 5;

/// A change that is under way: it becomes true as a whole, or not at all.
pub struct Change<'a> {
    pub(super) reader: Reader<'a>,
    pub(super) by: &'a Actor,
    pub(super) at: Timestamp,
    pub(super) head: Head,
}

/// What is counted over the whole farm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) last_id: i64,
    pub(super) last_change: ChangeNumber,
    pub(super) last_fence: i64,
}

impl<'a> Deref for Change<'a> {
    type Target = Reader<'a>;

    fn deref(&self) -> &Reader<'a> {
        &self.reader
    }
}

impl DerefMut for Change<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.reader
    }
}

impl Change<'_> {
    /// When it happens.
    #[must_use]
    pub const fn now(&self) -> Timestamp {
        self.at
    }

    /// Makes an object.
    ///
    /// # Errors
    /// [`CatalogueError::Taken`], [`CatalogueError::DanglingReference`], or the database's.
    pub fn create<T: Record>(&mut self, value: T) -> Result<Stored<T>, CatalogueError> {
        let table = T::TABLE;
        let cells = value.cells();
        let number = self.head.last_id.saturating_add(1);
        let called = value.label();
        self.check(table, number, &value, &cells, called.as_deref().unwrap_or("(new)"))?;
        self.head.last_id = number;
        let columns = ["id", "revision"].iter().chain(table.columns).copied().collect::<Vec<_>>();
        let mut values = vec![Cell::Integer(number), Cell::Integer(Revision::FIRST.get())];
        values.extend(cells);
        self.insert(table.name, &columns, &values)?;
        self.insert_children(table, number, &value)?;
        let stored = Stored { id: Id::new(number)?, revision: Revision::FIRST, value };
        self.note("create", stored.id, None, Some(json(&stored.value)))?;
        Ok(stored)
    }

    /// Gives an object other properties. Where they are those that it has, nothing changes, its revision included.
    ///
    /// # Errors
    /// [`CatalogueError::NotFound`], [`CatalogueError::Outdated`] where `expected` is not its revision, and those of
    /// [`create`](Self::create).
    pub fn update<T: Record>(
        &mut self,
        id: Id<T>,
        expected: Revision,
        value: T,
    ) -> Result<Stored<T>, CatalogueError> {
        self.update_as("update", id, expected, value)
    }

    /// As [`update`](Self::update), under another name in the audit: `promote`, `disable`.
    ///
    /// # Errors
    /// As [`update`](Self::update).
    pub fn update_as<T: Record>(
        &mut self,
        action: &str,
        id: Id<T>,
        expected: Revision,
        value: T,
    ) -> Result<Stored<T>, CatalogueError> {
        let table = T::TABLE;
        let old = self.expect(id, expected)?;
        if old.value == value {
            return Ok(old);
        }
        let cells = value.cells();
        let called = self.called(&old)?;
        self.check(table, id.get(), &value, &cells, &called)?;
        let revision = expected.next();
        let assigned: Vec<String> = table.columns.iter().map(|column| format!("{column} = ?")).collect();
        let sql = format!("UPDATE {} SET revision = ?, {} WHERE id = ?", table.name, assigned.join(", "));
        let mut values = vec![Cell::Integer(revision.get())];
        values.extend(cells);
        values.push(id.into());
        self.reader.tx.execute(&sql, &values)?;
        if (0..table.children.len()).any(|child| old.value.child_rows(child) != value.child_rows(child)) {
            self.delete_children(table, id.get())?;
            self.insert_children(table, id.get(), &value)?;
        }
        let (before, after) = difference(json(&old.value), json(&value));
        self.note(action, id, Some(before), Some(after))?;
        Ok(Stored { id, revision, value })
    }

    /// Takes an object away.
    ///
    /// # Errors
    /// [`CatalogueError::NotFound`], [`CatalogueError::Outdated`], [`CatalogueError::InUse`] where others name it, or
    /// the database's.
    pub fn delete<T: Record>(&mut self, id: Id<T>, expected: Revision) -> Result<(), CatalogueError> {
        let table = T::TABLE;
        let old = self.expect(id, expected)?;
        let name = self.called(&old)?;
        let by = self.holders(table.kind, id.get())?;
        if !by.kinds.is_empty() {
            return Err(CatalogueError::InUse { kind: table.kind, name, by });
        }
        // While its row is there to be named.
        self.note("delete", id, Some(json(&old.value)), None)?;
        self.delete_children(table, id.get())?;
        self.reader.tx.execute(&format!("DELETE FROM {} WHERE id = ?", table.name), &[id.into()])?;
        Ok(())
    }

    /// The object, where this is its revision.
    ///
    /// # Errors
    /// [`CatalogueError::NotFound`], [`CatalogueError::Outdated`], or the database's.
    pub fn expect<T: Record>(&mut self, id: Id<T>, expected: Revision) -> Result<Stored<T>, CatalogueError> {
        let old = self.find(id)?.ok_or_else(|| not_found::<T>(id))?;
        if old.revision == expected {
            return Ok(old);
        }
        let (kind, name) = (T::TABLE.kind, self.called(&old)?);
        Err(CatalogueError::Outdated { kind, name, expected, found: old.revision })
    }

    fn called<T: Record>(&mut self, object: &Stored<T>) -> Result<String, CatalogueError> {
        match object.value.label() {
            Some(label) => Ok(label),
            None => self.label(T::TABLE, object.id.get()),
        }
    }

    /// Finds what the database would refuse without saying whom it is about. No other change comes between this and the
    /// writing: a write transaction is alone.
    fn check<T: Record>(
        &mut self,
        table: &'static Table,
        own: i64,
        value: &T,
        cells: &[Cell],
        called: &str,
    ) -> Result<(), CatalogueError> {
        let cell_of = |column: &str| {
            table.columns.iter().position(|known| *known == column).and_then(|at| cells.get(at))
        };
        for unique in table.unique {
            let Some(values) =
                unique.columns.iter().map(|column| cell_of(column)).collect::<Option<Vec<_>>>()
            else {
                continue;
            };
            if values.contains(&&Cell::Null) {
                continue;
            }
            let conditions: Vec<String> =
                unique.columns.iter().map(|column| format!("{column} = ?")).collect();
            let sql = format!("SELECT id FROM {} WHERE id <> ? AND {}", table.name, conditions.join(" AND "));
            let shown = values.last().map(|cell| shown(cell)).unwrap_or_default();
            let values =
                std::iter::once(Cell::Integer(own)).chain(values.into_iter().cloned()).collect::<Vec<_>>();
            self.refuse_taken(table, &sql, &values, unique.what, shown)?;
        }
        self.check_references(table.kind, called, table.references, table.columns, cells)?;
        for (place, child) in table.children.iter().enumerate() {
            for row in value.child_rows(place) {
                self.check_references(table.kind, called, child.references, child.columns, &row)?;
                self.check_child(table, child, own, &row)?;
            }
        }
        Ok(())
    }

    fn check_child(
        &mut self,
        table: &'static Table,
        child: &Child,
        own: i64,
        row: &[Cell],
    ) -> Result<(), CatalogueError> {
        let Some((column, what)) = child.unique else { return Ok(()) };
        let cell = child.columns.iter().position(|known| *known == column).and_then(|at| row.get(at));
        let Some(cell) = cell else { return Ok(()) };
        let sql = format!("SELECT owner FROM {} WHERE owner <> ? AND {column} = ?", child.table);
        self.refuse_taken(table, &sql, &[Cell::Integer(own), cell.clone()], what, shown(cell))
    }

    fn refuse_taken(
        &mut self,
        table: &'static Table,
        sql: &str,
        values: &[Cell],
        what: &'static str,
        value: String,
    ) -> Result<(), CatalogueError> {
        let Some(mut row) = self.reader.tx.query(sql, values)?.pop() else { return Ok(()) };
        let holder = row.integer().map_err(|bad| self.damaged(table, &bad))?;
        let by = self.label(table, holder)?;
        Err(CatalogueError::Taken { kind: table.kind, what, value, by })
    }

    fn check_references(
        &mut self,
        kind: ObjectKind,
        called: &str,
        references: &[Reference],
        columns: &[&str],
        cells: &[Cell],
    ) -> Result<(), CatalogueError> {
        for reference in references {
            let at = columns.iter().position(|column| *column == reference.column);
            let Some(Cell::Integer(id)) = at.and_then(|at| cells.get(at)) else { continue };
            let Some(target) = table_of(reference.to) else { continue };
            let found = self
                .reader
                .tx
                .query(&format!("SELECT 1 FROM {} WHERE id = ?", target.name), &[(*id).into()])?;
            if found.is_empty() {
                let (name, field, to) = (called.to_owned(), reference.what, reference.to);
                return Err(CatalogueError::DanglingReference { kind, name, field, to, id: *id });
            }
        }
        Ok(())
    }

    /// Who names an object: found by what the tables say of themselves.
    fn holders(&mut self, kind: ObjectKind, id: i64) -> Result<Holders, CatalogueError> {
        let mut kinds = Vec::new();
        for table in TABLES {
            let own =
                table.references.iter().map(|reference| (reference, format!("t.{} = ?", reference.column)));
            let listed = table.children.iter().flat_map(|child| {
                let rows = move |reference: &'static Reference| {
                    let sql =
                        format!("t.id IN (SELECT owner FROM {} WHERE {} = ?)", child.table, reference.column);
                    (reference, sql)
                };
                child.references.iter().map(rows)
            });
            // A template among its own collection's devices, a device in its own lists: not somebody else.
            let others = if table.kind == kind { " AND t.id <> ?" } else { "" };
            for (_, condition) in own.chain(listed).filter(|(reference, _)| reference.to == kind) {
                let from = format!("FROM {} t {} WHERE {condition}{others}", table.name, table.joins);
                let mut values = vec![Cell::Integer(id)];
                if !others.is_empty() {
                    values.push(Cell::Integer(id));
                }
                let count = self.number(&format!("SELECT count(*) {from}"), &values)?.unsigned_abs();
                if count == 0 {
                    continue;
                }
                values.push(Cell::Integer(NAMED_HOLDERS));
                let rows = self
                    .reader
                    .tx
                    .query(&format!("SELECT {} {from} ORDER BY t.id LIMIT ?", table.label), &values)?;
                let names: Result<Vec<_>, _> = rows.into_iter().map(|mut row| row.text()).collect();
                kinds.push((table.kind, count, names.map_err(|bad| self.damaged(table, &bad))?));
            }
        }
        Ok(Holders { kinds })
    }

    fn insert(&mut self, table: &str, columns: &[&str], values: &[Cell]) -> Result<(), CatalogueError> {
        let places = vec!["?"; columns.len()].join(", ");
        let sql = format!("INSERT INTO {table} ({}) VALUES ({places})", columns.join(", "));
        self.reader.tx.execute(&sql, values)?;
        Ok(())
    }

    fn insert_children<T: Record>(
        &mut self,
        table: &Table,
        owner: i64,
        value: &T,
    ) -> Result<(), CatalogueError> {
        for (number, child) in table.children.iter().enumerate() {
            let columns = ["owner", "place"].iter().chain(child.columns).copied().collect::<Vec<_>>();
            for (place, row) in (0i64..).zip(value.child_rows(number)) {
                let mut values = vec![Cell::Integer(owner), Cell::Integer(place)];
                values.extend(row);
                self.insert(child.table, &columns, &values)?;
            }
        }
        Ok(())
    }

    fn delete_children(&mut self, table: &Table, owner: i64) -> Result<(), CatalogueError> {
        for child in table.children {
            self.reader
                .tx
                .execute(&format!("DELETE FROM {} WHERE owner = ?", child.table), &[owner.into()])?;
        }
        Ok(())
    }

    /// Writes an audit entry about an object that is there.
    fn note<T: Record>(
        &mut self,
        action: &str,
        id: Id<T>,
        before: Option<Value>,
        after: Option<Value>,
    ) -> Result<(), CatalogueError> {
        let name = self.label(T::TABLE, id.get())?;
        self.write_down(action, T::TABLE.kind, id.get(), &name, before, after)
    }

    /// Writes an audit entry.
    pub(super) fn write_down(
        &mut self,
        action: &str,
        kind: ObjectKind,
        object: i64,
        name: &str,
        before: Option<Value>,
        after: Option<Value>,
    ) -> Result<(), CatalogueError> {
        self.head.last_change = self.head.last_change.next();
        let kept = |text: &str| text.chars().take(MAX_ACTOR_CHARS).collect::<String>();
        let values = [
            self.head.last_change.0.into(),
            self.at.into(),
            self.by.user.as_str().into(),
            self.by.token.into(),
            kept(&self.by.origin).into(),
            self.by.request.as_deref().map(kept).into(),
            action.into(),
            crate::model::Choice::word(kind).into(),
            object.into(),
            name.into(),
            before.map(|value| value.to_string()).into(),
            after.map(|value| value.to_string()).into(),
        ];
        let columns = [
            "number", "at", "actor", "token_id", "origin", "request", "action", "kind", "object", "name",
            "before", "after",
        ];
        self.insert("audit", &columns, &values)
    }

    pub(super) fn read_head(reader: &mut Reader<'_>) -> Result<Head, CatalogueError> {
        let row = reader.tx.query("SELECT last_id, last_change, last_fence FROM head", &[])?.pop();
        let mut row = row.ok_or_else(|| missing(ObjectKind::Farm, 0))?;
        let mut read = || Ok((row.integer()?, row.integer()?, row.integer()?));
        let (last_id, last_change, last_fence) = read().map_err(|bad| reader.damaged_at("head", &bad))?;
        Ok(Head { last_id, last_change: ChangeNumber(last_change), last_fence })
    }

    pub(super) fn write_head(&mut self) -> Result<(), CatalogueError> {
        let Head { last_id, last_change, last_fence } = self.head;
        let values = [last_id.into(), last_change.0.into(), last_fence.into()];
        self.reader.tx.execute("UPDATE head SET last_id = ?, last_change = ?, last_fence = ?", &values)?;
        Ok(())
    }
}

fn shown(cell: &Cell) -> String {
    match cell {
        Cell::Null => String::new(),
        Cell::Integer(number) => format!("#{number}"),
        Cell::Text(text) => format!("\"{text}\""),
        Cell::Bytes(_) => "(bytes)".to_owned(),
    }
}

fn json<T: serde::Serialize>(value: &T) -> Value {
    // The model's types are structs of texts, numbers and lists, whose keys are texts: there is nothing that JSON lacks.
    serde_json::to_value(value).unwrap_or(Value::Null)
}

/// What of two values differs: of objects, property by property.
fn difference(before: Value, after: Value) -> (Value, Value) {
    match (before, after) {
        (Value::Object(before), Value::Object(mut after)) => {
            let (mut old, mut new) = (Map::new(), Map::new());
            for (key, was) in before {
                let is = after.remove(&key).unwrap_or(Value::Null);
                if was != is {
                    let (was, is) = difference(was, is);
                    old.insert(key.clone(), was);
                    new.insert(key, is);
                }
            }
            for (key, is) in after {
                old.insert(key.clone(), Value::Null);
                new.insert(key, is);
            }
            (Value::Object(old), Value::Object(new))
        }
        both => both,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn difference_names_only_what_changed() {
        let before = json!({"a": 1, "b": {"c": 2, "d": 3}, "e": [1]});
        let after = json!({"a": 1, "b": {"c": 4, "d": 3}, "e": [1, 2], "f": true});
        let (old, new) = difference(before, after);
        assert_eq!(old, json!({"b": {"c": 2}, "e": [1], "f": null}));
        assert_eq!(new, json!({"b": {"c": 4}, "e": [1, 2], "f": true}));
    }
}
