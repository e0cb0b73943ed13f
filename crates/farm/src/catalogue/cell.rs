//! Cells: the four kinds of values that both databases hold alike, and how they become the model's types again.
use std::str::FromStr;

use crate::model::{BadValue, Choice, Id, Timestamp};

/// A value in a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell {
    /// None.
    Null,
    /// `INTEGER`: a number, a moment in milliseconds, yes (1) or no (0), an id.
    Integer(i64),
    /// `TEXT`.
    Text(String),
    /// `BLOB`.
    Bytes(Vec<u8>),
}

impl From<i64> for Cell {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

impl From<bool> for Cell {
    fn from(yes: bool) -> Self {
        Self::Integer(i64::from(yes))
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Timestamp> for Cell {
    fn from(time: Timestamp) -> Self {
        Self::Integer(time.ms())
    }
}

impl<K> From<Id<K>> for Cell {
    fn from(id: Id<K>) -> Self {
        Self::Integer(id.get())
    }
}

impl<T: Into<Self>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// What is wrong with a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRow {
    /// What is wrong.
    pub why: String,
}

impl From<BadValue> for BadRow {
    fn from(error: BadValue) -> Self {
        Self { why: error.to_string() }
    }
}

/// A row, whose cells are read one after the other.
#[derive(Debug)]
pub struct Row {
    cells: std::vec::IntoIter<Cell>,
}

impl Row {
    /// A row of these cells.
    #[must_use]
    pub fn new(cells: Vec<Cell>) -> Self {
        Self { cells: cells.into_iter() }
    }

    /// The next cell.
    ///
    /// # Errors
    /// [`BadRow`] behind the last.
    pub fn cell(&mut self) -> Result<Cell, BadRow> {
        self.cells.next().ok_or_else(|| BadRow { why: "the row has too few cells".to_owned() })
    }

    /// A number.
    ///
    /// # Errors
    /// [`BadRow`] of anything else.
    pub fn integer(&mut self) -> Result<i64, BadRow> {
        self.optional_integer()?.ok_or_else(|| expected("a number", &Cell::Null))
    }

    /// A number or none.
    ///
    /// # Errors
    /// [`BadRow`] of anything else.
    pub fn optional_integer(&mut self) -> Result<Option<i64>, BadRow> {
        match self.cell()? {
            Cell::Null => Ok(None),
            Cell::Integer(number) => Ok(Some(number)),
            other => Err(expected("a number", &other)),
        }
    }

    /// A text.
    ///
    /// # Errors
    /// [`BadRow`] of anything else.
    pub fn text(&mut self) -> Result<String, BadRow> {
        self.optional_text()?.ok_or_else(|| expected("a text", &Cell::Null))
    }

    /// A text or none.
    ///
    /// # Errors
    /// [`BadRow`] of anything else.
    pub fn optional_text(&mut self) -> Result<Option<String>, BadRow> {
        match self.cell()? {
            Cell::Null => Ok(None),
            Cell::Text(text) => Ok(Some(text)),
            other => Err(expected("a text", &other)),
        }
    }

    /// Bytes.
    ///
    /// # Errors
    /// [`BadRow`] of anything else.
    pub fn bytes(&mut self) -> Result<Vec<u8>, BadRow> {
        match self.cell()? {
            Cell::Bytes(bytes) => Ok(bytes),
            other => Err(expected("bytes", &other)),
        }
    }

    /// A text that is read as a type of the model.
    ///
    /// # Errors
    /// [`BadRow`] of anything else.
    pub fn parsed<T: FromStr>(&mut self) -> Result<T, BadRow>
    where
        T::Err: std::fmt::Display,
    {
        self.optional_parsed()?.ok_or_else(|| expected("a text", &Cell::Null))
    }

    /// A text, or none, that is read as a type of the model.
    ///
    /// # Errors
    /// [`BadRow`] of anything else.
    pub fn optional_parsed<T: FromStr>(&mut self) -> Result<Option<T>, BadRow>
    where
        T::Err: std::fmt::Display,
    {
        let parse = |text: String| text.parse().map_err(|error: T::Err| BadRow { why: error.to_string() });
        self.optional_text()?.map(parse).transpose()
    }

    /// A word that is read as a choice.
    ///
    /// # Errors
    /// [`BadRow`] of anything else.
    pub fn choice<T: Choice>(&mut self) -> Result<T, BadRow> {
        Ok(T::from_word(&self.text()?)?)
    }

    /// A word, or none, that is read as a choice.
    ///
    /// # Errors
    /// [`BadRow`] of anything else.
    pub fn optional_choice<T: Choice>(&mut self) -> Result<Option<T>, BadRow> {
        Ok(self.optional_text()?.map(|word| T::from_word(&word)).transpose()?)
    }

    /// An id.
    ///
    /// # Errors
    /// [`BadRow`] of anything else.
    pub fn id<K>(&mut self) -> Result<Id<K>, BadRow> {
        Ok(Id::new(self.integer()?)?)
    }

    /// An id or none.
    ///
    /// # Errors
    /// [`BadRow`] of anything else.
    pub fn optional_id<K>(&mut self) -> Result<Option<Id<K>>, BadRow> {
        Ok(self.optional_integer()?.map(Id::new).transpose()?)
    }

    /// A number of a smaller type.
    ///
    /// # Errors
    /// [`BadRow`] of anything else.
    pub fn small<T: TryFrom<i64>>(&mut self) -> Result<T, BadRow> {
        self.optional_small()?.ok_or_else(|| expected("a number", &Cell::Null))
    }

    /// A number of a smaller type, or none.
    ///
    /// # Errors
    /// [`BadRow`] of anything else.
    pub fn optional_small<T: TryFrom<i64>>(&mut self) -> Result<Option<T>, BadRow> {
        let Some(number) = self.optional_integer()? else { return Ok(None) };
        T::try_from(number).map(Some).map_err(|_| BadRow { why: format!("{number} is out of range") })
    }

    /// Yes or no.
    ///
    /// # Errors
    /// [`BadRow`] of anything else.
    pub fn yes_no(&mut self) -> Result<bool, BadRow> {
        match self.integer()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(BadRow { why: format!("{other} is neither yes (1) nor no (0)") }),
        }
    }

    /// A moment.
    ///
    /// # Errors
    /// [`BadRow`] of anything else.
    pub fn time(&mut self) -> Result<Timestamp, BadRow> {
        Ok(Timestamp::from_ms(self.integer()?))
    }

    /// A moment or none.
    ///
    /// # Errors
    /// [`BadRow`] of anything else.
    pub fn optional_time(&mut self) -> Result<Option<Timestamp>, BadRow> {
        Ok(self.optional_integer()?.map(Timestamp::from_ms))
    }
}

fn expected(what: &str, found: &Cell) -> BadRow {
    BadRow { why: format!("expected {what}, found {found:?}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cell_of_another_kind_is_refused() {
        let row = || Row::new(vec![Cell::Text("x".to_owned())]);
        assert!(row().integer().is_err());
        assert!(row().yes_no().is_err());
        assert!(row().bytes().is_err());
        assert_eq!(row().text().unwrap(), "x");
        assert!(Row::new(vec![Cell::Null]).text().is_err());
        assert!(Row::new(vec![Cell::Integer(2)]).yes_no().is_err());
        assert!(Row::new(vec![Cell::Integer(300)]).small::<u8>().is_err());
        assert!(Row::new(Vec::new()).integer().is_err());
    }
}
