//! Reading what was written down: audit entries in pages, and which objects changed.
use super::cell::{BadRow, Cell, Row};
use super::change::Change;
use super::error::CatalogueError;
use super::list::{ListQuery, Listed, Page};
use super::reader::Reader;
use crate::filter::{Field, FieldKind};
use crate::model::{Actor, AuditEntry, ChangeNumber, Choice, Id, ObjectKind, Timestamp};
use crate::snapshot::Changed;

const COLUMNS: &str = "t.number, t.at, t.actor, t.token_id, t.origin, t.request, t.action, t.kind, t.object, t.name, t.before, t.after";

/// The fields that filters and orders of audit entries can name.
pub const AUDIT_FIELDS: &[Field] = &[
    Field::row("number", FieldKind::Number, "t.number"),
    Field::row("at", FieldKind::Time, "t.at"),
    Field::row("actor", FieldKind::Folded, "t.actor"),
    Field::row("origin", FieldKind::Text, "lower(t.origin)"),
    Field::row("request", FieldKind::Text, "lower(coalesce(t.request, ''))"),
    Field::row("action", FieldKind::Text, "t.action"),
    Field::row("kind", FieldKind::Word(kinds), "t.kind"),
    Field::row("object", FieldKind::Number, "t.object"),
    Field::row("name", FieldKind::Text, "lower(t.name)"),
];

fn kinds() -> Vec<&'static str> {
    ObjectKind::ALL.iter().map(|(_, word)| *word).collect()
}

impl Reader<'_> {
    /// The number of the latest change.
    ///
    /// # Errors
    /// The database's.
    pub fn latest_change(&mut self) -> Result<ChangeNumber, CatalogueError> {
        Ok(Change::read_head(self)?.last_change)
    }

    /// A page of audit entries.
    ///
    /// # Errors
    /// As of [`list`](Reader::list).
    pub fn audit(&mut self, query: &ListQuery) -> Result<Page<AuditEntry>, CatalogueError> {
        let listed = Listed { table: "audit", joins: "", fields: AUDIT_FIELDS, id: "t.number" };
        let (rows, next, total) = self.page(&listed, COLUMNS, query)?;
        let items: Result<Vec<_>, BadRow> = rows.into_iter().map(|mut row| entry(&mut row)).collect();
        Ok(Page { items: items.map_err(|bad| self.damaged_at("audit", &bad))?, next, total })
    }

    /// The objects that changed after change `since`; `None`: the entries since then were archived in part.
    pub(crate) fn changed_since(&mut self, since: ChangeNumber) -> Result<Option<Changed>, CatalogueError> {
        let sql = "SELECT number, kind, object FROM audit WHERE number > ? ORDER BY number";
        let rows = self.tx.query(sql, &[Cell::Integer(since.0)])?;
        let mut changed = Changed::new();
        let mut expected = since;
        for mut row in rows {
            expected = expected.next();
            let read = (|| Ok((row.integer()?, row.choice::<ObjectKind>()?, row.integer()?)))();
            let (number, kind, object) = read.map_err(|bad: BadRow| self.damaged_at("audit", &bad))?;
            if number != expected.0 {
                return Ok(None);
            }
            changed.insert((kind, object));
        }
        Ok(Some(changed).filter(|_| self.latest_change().is_ok_and(|latest| latest == expected)))
    }
}

impl Change<'_> {
    /// Writes down what happened to an object and changed nothing of it: that somebody logged in. `object` is 0 where it
    /// happened to none that there is.
    ///
    /// # Errors
    /// The database's.
    pub fn witness(
        &mut self,
        action: &str,
        kind: ObjectKind,
        object: i64,
        name: &str,
    ) -> Result<(), CatalogueError> {
        self.witness_with(action, kind, object, name, None)
    }

    /// The same, with what is to be known of it besides.
    ///
    /// # Errors
    /// The database's.
    pub fn witness_with(
        &mut self,
        action: &str,
        kind: ObjectKind,
        object: i64,
        name: &str,
        details: Option<serde_json::Value>,
    ) -> Result<(), CatalogueError> {
        self.write_down(action, kind, object, name, None, details)
    }

    /// Takes away audit entries from before `until`, which were exported. The latest entry stays, and one is added that
    /// says what was done. Gives how many went.
    ///
    /// # Errors
    /// The database's.
    pub fn archive_audit(&mut self, until: Timestamp) -> Result<u64, CatalogueError> {
        let values = [until.into(), self.head.last_change.0.into()];
        let gone = self.reader.tx.execute("DELETE FROM audit WHERE at < ? AND number < ?", &values)?;
        let after = serde_json::json!({ "until": until.to_string(), "entries": gone });
        self.write_down("archive-audit", ObjectKind::Farm, 0, "audit", None, Some(after))?;
        Ok(gone)
    }
}

fn entry(row: &mut Row) -> Result<AuditEntry, BadRow> {
    let json = |text: Option<String>| text.map(|text| serde_json::from_str(&text)).transpose();
    let bad = |error: serde_json::Error| BadRow { why: error.to_string() };
    Ok(AuditEntry {
        number: ChangeNumber(row.integer()?),
        at: row.time()?,
        actor: Actor {
            user: row.parsed()?,
            token: row.optional_integer()?.map(Id::new).transpose()?,
            origin: row.text()?,
            request: row.optional_text()?,
        },
        action: row.text()?,
        kind: row.choice()?,
        object: row.integer()?,
        name: row.text()?,
        before: json(row.optional_text()?).map_err(bad)?,
        after: json(row.optional_text()?).map_err(bad)?,
    })
}
