//! Relates a filter to the fields of a list: finds the fields, and reads the values as what the fields hold.
use super::{Filter, Operator, Term};
use crate::model::{ByteSize, Mac, Timestamp, Uuid};

/// A field of a list that filters and orders can name.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// How it is named.
    pub name: &'static str,
    /// What it holds.
    pub kind: FieldKind,
    /// Where it is.
    pub place: FieldPlace,
    /// Whether it is a number, size or time that some rows lack: the column may be null. Orders take them for -1, which no
    /// index knows; of a column that is never null, an index serves the order.
    pub optional: bool,
}

/// What a field holds, and so how it is compared.
#[derive(Clone, Copy, Debug)]
pub enum FieldKind {
    /// A name, which the tables hold in lower case already.
    Folded,
    /// Any text; compared without regard to the case of ASCII letters.
    Text,
    /// One of these words.
    Word(fn() -> Vec<&'static str>),
    /// A number.
    Number,
    /// A number of bytes.
    Size,
    /// Yes or no.
    YesNo,
    /// A moment.
    Time,
    /// A MAC address.
    Mac,
    /// A UUID.
    Uuid,
}

/// Where the tables have a field.
#[derive(Clone, Copy, Debug)]
pub enum FieldPlace {
    /// An expression over the row of the list.
    Row(&'static str),
    /// A column of rows of a table that belong to the row of the list: `{rows} AND column = ...` in `EXISTS`.
    Rows {
        /// `SELECT 1 FROM ... WHERE ...`.
        rows: &'static str,
        /// The column.
        column: &'static str,
    },
}

impl Field {
    /// A field that is an expression over the row of the list.
    #[must_use]
    pub const fn row(name: &'static str, kind: FieldKind, sql: &'static str) -> Self {
        Self { name, kind, place: FieldPlace::Row(sql), optional: false }
    }

    /// A number, size or time that some rows lack. Texts that may be null stand as `coalesce(..., '')` instead.
    #[must_use]
    pub const fn optional(name: &'static str, kind: FieldKind, sql: &'static str) -> Self {
        Self { optional: true, ..Self::row(name, kind, sql) }
    }

    /// A field with several values.
    #[must_use]
    pub const fn rows(name: &'static str, kind: FieldKind, rows: &'static str, column: &'static str) -> Self {
        Self { name, kind, place: FieldPlace::Rows { rows, column }, optional: false }
    }
}

/// A value to compare with, as the tables hold it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number, a moment in milliseconds, yes (1) or no (0).
    Number(i64),
    /// A text, in lower case.
    Text(String),
}

/// A filter whose fields are found and whose values are read.
#[derive(Clone, Debug)]
pub(crate) enum Condition {
    All(Vec<Condition>),
    Any(Vec<Condition>),
    Not(Box<Condition>),
    Compare(&'static Field, Operator, Value),
}

/// A comparison that means nothing for this list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the filter \"{term}\" means nothing: {why}")]
pub struct BadTerm {
    /// The comparison.
    pub term: String,
    /// Why, and what would be right.
    pub why: String,
}

/// Whether a filter means something for a list with these fields.
///
/// # Errors
/// [`BadTerm`] of the first comparison that does not.
pub fn resolve(filter: &Filter, fields: &'static [Field]) -> Result<(), BadTerm> {
    condition(filter, fields).map(|_| ())
}

/// Relates a filter to a list's fields; `None`: everything fits.
pub(crate) fn condition(filter: &Filter, fields: &'static [Field]) -> Result<Option<Condition>, BadTerm> {
    Ok(match filter {
        Filter::Everything => None,
        Filter::All(parts) => Some(Condition::All(conditions(parts, fields)?)),
        Filter::Any(parts) => Some(Condition::Any(conditions(parts, fields)?)),
        // Not everything is nothing.
        Filter::Not(part) => match condition(part, fields)? {
            Some(condition) => Some(Condition::Not(Box::new(condition))),
            None => Some(Condition::Any(Vec::new())),
        },
        Filter::Term(term) => Some(compare(term, fields)?),
    })
}

fn conditions(parts: &[Filter], fields: &'static [Field]) -> Result<Vec<Condition>, BadTerm> {
    let parts = parts.iter().map(|part| condition(part, fields));
    parts.map(|part| Ok(part?.unwrap_or_else(|| Condition::All(Vec::new())))).collect()
}

fn compare(term: &Term, fields: &'static [Field]) -> Result<Condition, BadTerm> {
    let bad = |why: String| BadTerm { term: term.to_string(), why };
    let field = fields.iter().find(|field| field.name == term.field).ok_or_else(|| {
        let known: Vec<_> = fields.iter().map(|field| field.name).collect();
        bad(format!("there is no field {:?}; there are: {}", term.field, known.join(", ")))
    })?;
    let Some((operator, text)) = &term.compared else {
        return match field.kind {
            FieldKind::YesNo => Ok(Condition::Compare(field, Operator::Equal, Value::Number(1))),
            _ => Err(bad("only a yes/no field can stand alone; compare this one with a value".to_owned())),
        };
    };
    let value = value(field.kind, *operator, text).map_err(bad)?;
    Ok(Condition::Compare(field, *operator, value))
}

fn value(kind: FieldKind, operator: Operator, text: &str) -> Result<Value, String> {
    let orders = !matches!(operator, Operator::Equal | Operator::NotEqual | Operator::Like);
    let pattern = operator == Operator::Like;
    match kind {
        FieldKind::Folded => Ok(Value::Text(text.to_lowercase())),
        FieldKind::Text => Ok(Value::Text(text.to_ascii_lowercase())),
        FieldKind::Mac | FieldKind::Uuid if pattern => Ok(Value::Text(text.to_ascii_lowercase())),
        _ if pattern => Err("\"~\" compares texts; this field has none".to_owned()),
        FieldKind::Mac => {
            text.parse::<Mac>().map(|mac| Value::Text(mac.to_string())).map_err(|e| e.to_string())
        }
        FieldKind::Uuid => {
            text.parse::<Uuid>().map(|uuid| Value::Text(uuid.to_string())).map_err(|e| e.to_string())
        }
        FieldKind::Word(words) => {
            let word = text.to_ascii_lowercase();
            let known = words();
            match (orders, known.contains(&word.as_str())) {
                (true, _) => Err("words have no order; use \"=\" or \"!=\"".to_owned()),
                (false, true) => Ok(Value::Text(word)),
                (false, false) => Err(format!("{text:?} is none of: {}", known.join(", "))),
            }
        }
        FieldKind::Number => text.parse().map(Value::Number).map_err(|_| format!("{text:?} is not a number")),
        FieldKind::Size => text
            .parse::<ByteSize>()
            .map(|size| Value::Number(size.signed()))
            .map_err(|error| error.to_string()),
        FieldKind::Time => {
            text.parse::<Timestamp>().map(|time| Value::Number(time.ms())).map_err(|error| error.to_string())
        }
        FieldKind::YesNo => match text.to_ascii_lowercase().as_str() {
            _ if orders => Err("yes and no have no order".to_owned()),
            "yes" | "true" => Ok(Value::Number(1)),
            "no" | "false" => Ok(Value::Number(0)),
            _ => Err(format!("{text:?} is neither yes nor no")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static FIELDS: &[Field] = &[
        Field::row("name", FieldKind::Folded, "t.name_key"),
        Field::row("kind", FieldKind::Word(|| vec!["production", "test"]), "t.kind"),
        Field::row("disabled", FieldKind::YesNo, "t.disabled"),
        Field::row("size", FieldKind::Size, "t.size"),
        Field::row("since", FieldKind::Time, "t.since"),
        Field::rows("mac", FieldKind::Mac, "SELECT 1", "m.mac"),
    ];

    fn refusal(text: &str) -> String {
        resolve(&text.parse().unwrap(), FIELDS).unwrap_err().to_string()
    }

    #[test]
    fn value_is_read_as_what_the_field_holds() {
        for text in [
            "name ~ Lab*",
            "kind = TEST",
            "disabled",
            "disabled = no",
            "size > \"1 GiB\"",
            "mac = 5254.0012.3456",
            "since >= 2026-11-21",
            "mac ~ 52:54:*",
            "not disabled and (name < m or size = 1K)",
            "",
        ] {
            assert_eq!(resolve(&text.parse().unwrap(), FIELDS), Ok(()), "{text}");
        }
    }

    #[test]
    fn comparison_without_meaning_is_refused_with_what_would_be_right() {
        assert!(refusal("colour = red").contains("there are: name, kind"));
        assert!(refusal("kind = red").contains("production, test"));
        assert!(refusal("kind < test").contains("no order"));
        assert!(refusal("name").contains("stand alone"));
        assert!(refusal("size ~ 1*").contains("compares texts"));
        assert!(refusal("disabled = maybe").contains("neither"));
        assert!(refusal("since = soon").contains("moment"));
        assert!(refusal("not (mac = x)").contains("MAC address"));
    }
}
