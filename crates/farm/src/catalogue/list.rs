//! Lists in pages: filtered and ordered by the database.
//!
//! A page ends with a cursor that says behind which row the next one begins: by the value that the list is ordered by,
//! and by the id, which no two rows share. Rows that come or go meanwhile shift nothing, and a page in the middle costs
//! no more than the first.
//!
//! A page is found first and read then: which rows stand on it, by what orders them and their ids alone, and then those rows
//! with all that they hold. Audit entries hold what objects were and are; sorting all of them with that takes four times as long.
//! Orders by what an index has sort nothing at all.
use std::fmt;
use std::str::FromStr;

use super::cell::{BadRow, Cell, Row};
use super::error::CatalogueError;
use super::reader::Reader;
use super::record::Record;
use crate::filter::{Condition, Field, FieldKind, FieldPlace, Filter, Operator, Value, condition};
use crate::model::{BadValue, Stored};

/// The most objects of a page.
pub const MAX_PAGE: usize = 1000;

/// Which part of which list.
#[derive(Clone, Debug)]
pub struct ListQuery {
    /// Which objects.
    pub filter: Filter,
    /// The field that they are ordered by; `None`: the list's first.
    pub order: Option<String>,
    /// Whether the largest come first.
    pub descending: bool,
    /// Behind which one the page begins; `None`: the first page.
    pub after: Option<Cursor>,
    /// The most objects of the page: 1 to [`MAX_PAGE`]; more or less is taken for the nearest of them.
    pub limit: usize,
}

impl Default for ListQuery {
    fn default() -> Self {
        Self { filter: Filter::Everything, order: None, descending: false, after: None, limit: MAX_PAGE }
    }
}

/// A part of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// The objects.
    pub items: Vec<T>,
    /// Where the next page begins; `None`: this is the last one.
    pub next: Option<Cursor>,
    /// How many objects the filter leaves, on all pages together.
    pub total: u64,
}

/// A place between two rows of a list. As text, it is for handing back, and for nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    order: String,
    descending: bool,
    value: CursorValue,
    id: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum CursorValue {
    Number(i64),
    Text(String),
}

/// `name+t6c61622d3031.17`: letters, digits and `+-.` alone, which need no escapes in a URL.
impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.order, if self.descending { "~" } else { "." })?;
        match &self.value {
            CursorValue::Number(number) => write!(f, "n{number}")?,
            CursorValue::Text(text) => {
                f.write_str("t")?;
                text.bytes().try_for_each(|byte| write!(f, "{byte:02x}"))?;
            }
        }
        write!(f, ".{}", self.id)
    }
}

impl FromStr for Cursor {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let bad = || BadValue::new("a cursor", text, "what the page before it ended with");
        read_cursor(text).ok_or_else(bad)
    }
}

fn read_cursor(text: &str) -> Option<Cursor> {
    let place = text.find(['.', '~'])?;
    let (order, rest) = text.split_at_checked(place)?;
    let descending = rest.starts_with('~');
    let (value, id) = rest.get(1..)?.rsplit_once('.')?;
    let value = match (value.strip_prefix('n'), value.strip_prefix('t')) {
        (Some(number), _) => CursorValue::Number(number.parse().ok()?),
        (_, Some(hex)) => {
            let digits: Option<Vec<u8>> =
                hex.chars().map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok())).collect();
            let digits = digits.filter(|digits| digits.len().is_multiple_of(2))?;
            let bytes =
                digits.chunks_exact(2).map(|pair| pair.iter().fold(0u8, |byte, digit| byte << 4 | digit));
            CursorValue::Text(String::from_utf8(bytes.collect()).ok()?)
        }
        _ => return None,
    };
    Some(Cursor { order: order.to_owned(), descending, value, id: id.parse().ok()? })
}

impl Reader<'_> {
    /// A page of the objects of a kind.
    ///
    /// # Errors
    /// [`CatalogueError::BadFilter`], [`BadOrder`](CatalogueError::BadOrder) and
    /// [`BadCursor`](CatalogueError::BadCursor) of a query that means nothing, or the database's.
    pub fn list<T: Record>(&mut self, query: &ListQuery) -> Result<Page<Stored<T>>, CatalogueError> {
        let table = T::TABLE;
        let listed = Listed { table: table.name, joins: table.joins, fields: table.fields, id: "t.id" };
        let (rows, next, total) = self.page(&listed, &table.selected(), query)?;
        Ok(Page { items: self.with_lists(rows)?, next, total })
    }

    /// How many objects of a kind fit a filter.
    ///
    /// # Errors
    /// [`CatalogueError::BadFilter`], or the database's.
    pub fn count<T: Record>(&mut self, filter: &Filter) -> Result<u64, CatalogueError> {
        let mut clause = Clause::default();
        if let Some(condition) = condition(filter, T::TABLE.fields)? {
            clause.condition(&condition);
        }
        self.total(T::TABLE.name, T::TABLE.joins, &clause)
    }

    fn total(&mut self, table: &str, joins: &str, clause: &Clause) -> Result<u64, CatalogueError> {
        let sql = format!("SELECT count(*) FROM {table} t {joins}{}", clause.after(" WHERE "));
        Ok(self.number(&sql, &clause.values)?.unsigned_abs())
    }

    /// The rows of a page, where the next one begins, and how many rows there are in all; `selected` are columns of `t`.
    pub(super) fn page(
        &mut self,
        listed: &Listed,
        selected: &str,
        query: &ListQuery,
    ) -> Result<(Vec<Row>, Option<Cursor>, u64), CatalogueError> {
        let field = listed.order(query.order.as_deref())?;
        let by = listed.order_sql(field);
        let mut clause = Clause::default();
        if let Some(condition) = condition(&query.filter, listed.fields)? {
            clause.condition(&condition);
        }
        let total = self.total(listed.table, listed.joins, &clause)?;
        let (sign, direction) = if query.descending { ("<", "DESC") } else { (">", "ASC") };
        if let Some(cursor) = &query.after {
            let value = cursor.fits(field, query.descending).ok_or(CatalogueError::BadCursor)?;
            clause.and(&format!("({by}, {}) {sign} (?, ?)", listed.id));
            clause.values.extend([value, Cell::Integer(cursor.id)]);
        }
        let limit = query.limit.clamp(1, MAX_PAGE);
        // One more than asked for tells whether there is a next page.
        clause.values.push(Cell::Integer(i64::try_from(limit.saturating_add(1)).unwrap_or(i64::MAX)));
        let sql = format!(
            "SELECT p.by_value, p.by_id, {selected} FROM ({places}) p JOIN {table} t ON {id} = p.by_id \
             ORDER BY p.by_value {direction}, p.by_id {direction}",
            places = listed.places(&by, direction, &clause),
            table = listed.table,
            id = listed.id,
        );
        let mut rows = self.tx.query(&sql, &clause.values)?;
        let more = rows.len() > limit;
        rows.truncate(limit);
        let mut last = None;
        for row in &mut rows {
            let read = (|| Ok((row.cell()?, row.integer()?)))();
            last = Some(read.map_err(|bad: BadRow| self.damaged_at(listed.table, &bad))?);
        }
        let next =
            last.filter(|_| more).and_then(|(value, id)| Cursor::new(field, query.descending, value, id));
        Ok((rows, next, total))
    }
}

/// What a list is taken from.
pub(super) struct Listed {
    pub(super) table: &'static str,
    pub(super) joins: &'static str,
    pub(super) fields: &'static [Field],
    pub(super) id: &'static str,
}

impl Listed {
    fn order(&self, name: Option<&str>) -> Result<&'static Field, CatalogueError> {
        let orders = |field: &&Field| matches!(field.place, FieldPlace::Row(_));
        let mut known = self.fields.iter().filter(orders);
        let found = match name {
            None => known.next(),
            Some(name) => known.find(|field| field.name == name),
        };
        found.ok_or_else(|| {
            let known: Vec<_> = self.fields.iter().filter(orders).map(|field| field.name).collect();
            CatalogueError::BadOrder { field: name.unwrap_or_default().to_owned(), known: known.join(", ") }
        })
    }

    /// The statement that finds which rows stand on a page; its last parameter is how many at most.
    fn places(&self, by: &str, direction: &str, clause: &Clause) -> String {
        let Self { table, joins, id, .. } = self;
        let fitting = clause.after(" WHERE ");
        format!(
            "SELECT {by} AS by_value, {id} AS by_id FROM {table} t {joins}{fitting} \
             ORDER BY {by} {direction}, {id} {direction} LIMIT ?"
        )
    }

    fn order_sql(&self, field: &Field) -> String {
        match field.place {
            // Rows without a number come first, whatever the database thinks of nulls.
            FieldPlace::Row(sql) if field.optional => format!("coalesce({sql}, -1)"),
            FieldPlace::Row(sql) => sql.to_owned(),
            FieldPlace::Rows { .. } => self.id.to_owned(),
        }
    }
}

fn is_number(kind: FieldKind) -> bool {
    matches!(kind, FieldKind::Number | FieldKind::Size | FieldKind::Time | FieldKind::YesNo)
}

impl Cursor {
    fn new(field: &Field, descending: bool, value: Cell, id: i64) -> Option<Self> {
        let value = match value {
            Cell::Integer(number) => CursorValue::Number(number),
            Cell::Text(text) => CursorValue::Text(text),
            Cell::Null | Cell::Bytes(_) => return None,
        };
        Some(Self { order: field.name.to_owned(), descending, value, id })
    }

    /// The value, where the cursor is of this order.
    fn fits(&self, field: &Field, descending: bool) -> Option<Cell> {
        let same = self.order == field.name && self.descending == descending;
        match &self.value {
            CursorValue::Number(number) if same && is_number(field.kind) => Some(Cell::Integer(*number)),
            CursorValue::Text(text) if same && !is_number(field.kind) => Some(Cell::Text(text.clone())),
            _ => None,
        }
    }
}

/// A condition in SQL, with the values of its parameters.
#[derive(Default)]
struct Clause {
    sql: String,
    values: Vec<Cell>,
}

impl Clause {
    fn after(&self, word: &str) -> String {
        if self.sql.is_empty() { String::new() } else { format!("{word}{}", self.sql) }
    }

    fn and(&mut self, sql: &str) {
        if !self.sql.is_empty() {
            self.sql.push_str(" AND ");
        }
        self.sql.push_str(sql);
    }

    fn condition(&mut self, condition: &Condition) {
        match condition {
            Condition::All(parts) => self.several(parts, " AND ", "(1 = 1)"),
            Condition::Any(parts) => self.several(parts, " OR ", "(1 = 0)"),
            Condition::Not(part) => {
                self.sql.push_str("(NOT ");
                self.condition(part);
                self.sql.push(')');
            }
            Condition::Compare(field, operator, value) => self.compare(field, *operator, value),
        }
    }

    fn several(&mut self, parts: &[Condition], between: &str, none: &str) {
        if parts.is_empty() {
            return self.sql.push_str(none);
        }
        self.sql.push('(');
        for (place, part) in parts.iter().enumerate() {
            if place > 0 {
                self.sql.push_str(between);
            }
            self.condition(part);
        }
        self.sql.push(')');
    }

    fn compare(&mut self, field: &Field, operator: Operator, value: &Value) {
        // What differs is what is not the same: of a field without a value, and of one with several, too.
        if operator == Operator::NotEqual {
            self.sql.push_str("(NOT ");
            self.compare(field, Operator::Equal, value);
            return self.sql.push(')');
        }
        match field.place {
            // A comparison with null is neither true nor false; this makes it false.
            FieldPlace::Row(sql) => {
                self.sql.push_str(&format!("({sql} IS NOT NULL AND {sql} {})", comparison(operator)));
            }
            FieldPlace::Rows { rows, column } => {
                self.sql.push_str(&format!("EXISTS ({rows} AND {column} {})", comparison(operator)));
            }
        }
        self.values.push(match value {
            Value::Number(number) => Cell::Integer(*number),
            Value::Text(text) if operator == Operator::Like => Cell::Text(pattern(text)),
            Value::Text(text) => Cell::Text(text.clone()),
        });
    }
}

fn comparison(operator: Operator) -> &'static str {
    match operator {
        Operator::Equal | Operator::NotEqual => "= ?",
        Operator::Less => "< ?",
        Operator::AtMost => "<= ?",
        Operator::Greater => "> ?",
        Operator::AtLeast => ">= ?",
        Operator::Like => "LIKE ? ESCAPE '\\'",
    }
}

/// `*` and `?` in the words of SQL.
fn pattern(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '*' => pattern.push('%'),
            '?' => pattern.push('_'),
            '%' | '_' | '\\' => pattern.extend(['\\', c]),
            c => pattern.push(c),
        }
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::records::TABLES;
    use crate::catalogue::{AUDIT_FIELDS, Catalogue, LEASE_FIELDS};

    fn every_list() -> Vec<Listed> {
        let of = |table: &&'static super::super::record::Table| Listed {
            table: table.name,
            joins: table.joins,
            fields: table.fields,
            id: "t.id",
        };
        let mut all: Vec<Listed> = TABLES.iter().map(of).collect();
        all.push(Listed { table: "audit", joins: "", fields: AUDIT_FIELDS, id: "t.number" });
        all.push(Listed { table: "lease", joins: "", fields: LEASE_FIELDS, id: "t.fence" });
        all
    }

    fn ask(sql: &str, values: &[Cell]) -> Vec<Row> {
        let folder = tempfile::tempdir().unwrap();
        let catalogue = Catalogue::open_file(&folder.path().join("farm.db")).unwrap();
        catalogue.read(|reader| Ok(reader.tx.query(sql, values)?)).unwrap()
    }

    #[test]
    fn fields_are_marked_optional_exactly_where_their_column_may_be_null() {
        let columns =
            "SELECT m.name || '.' || c.name, c.\"notnull\" FROM sqlite_schema m, pragma_table_info(m.name) c";
        let never_null: std::collections::HashMap<String, bool> = ask(columns, &[])
            .into_iter()
            .map(|mut row| (row.text().unwrap(), row.integer().unwrap() == 1))
            .collect();
        let mut checked = 0;
        for list in every_list() {
            for field in list.fields.iter().filter(|field| is_number(field.kind)) {
                let FieldPlace::Row(sql) = field.place else { continue };
                let (alias, column) = sql.split_once('.').unwrap();
                let table = if alias == "t" { list.table } else { alias };
                let never_null = never_null[&format!("{table}.{column}")];
                assert_eq!(field.optional, !never_null, "{} of {}", field.name, list.table);
                checked += 1;
            }
        }
        assert!(checked > 40, "{checked}");
    }

    #[test]
    fn pages_of_long_lists_are_found_without_sorting() {
        for (table, order) in
            [("audit", "number"), ("audit", "at"), ("device", "name"), ("device", "id"), ("lease", "fence")]
        {
            let list = every_list().into_iter().find(|list| list.table == table).unwrap();
            let by = list.order_sql(list.order(Some(order)).unwrap());
            for direction in ["ASC", "DESC"] {
                let places = list.places(&by, direction, &Clause::default());
                let plan = ask(&format!("EXPLAIN QUERY PLAN {places}"), &[Cell::Integer(50)]);
                let steps = plan.into_iter().map(|mut row| {
                    (0..3).for_each(|_| assert!(row.integer().is_ok()));
                    row.text().unwrap()
                });
                let steps: Vec<String> = steps.collect();
                assert!(
                    !steps.is_empty() && !steps.iter().any(|step| step.contains("TEMP B-TREE")),
                    "{table} by {order} {direction}: {steps:?}"
                );
            }
        }
    }

    #[test]
    fn cursor_is_read_as_it_is_written() {
        for (value, descending) in [
            (CursorValue::Number(-1), false),
            (CursorValue::Text("büro.~3".to_owned()), true),
            (CursorValue::Text(String::new()), false),
        ] {
            let cursor = Cursor { order: "made".to_owned(), descending, value, id: 17 };
            assert_eq!(cursor.to_string().parse(), Ok(cursor));
        }
    }

    #[test]
    fn cursor_of_nobody_is_refused() {
        for text in [
            "",
            "name",
            "name.",
            "name.x1.2",
            "name.t6.2",
            "name.tff.2",
            "name.n1",
            "name.t+1.2",
            "name.n1.x",
            "ä~",
        ] {
            assert!(text.parse::<Cursor>().is_err(), "{text}");
        }
    }

    #[test]
    fn characters_that_like_knows_stand_for_themselves() {
        assert_eq!(pattern("a*b?c%d_e\\"), "a%b_c\\%d\\_e\\\\");
    }
}
