//! Reading one table of the file: typed values, and a report of every key that nobody asked for.
use std::net::Ipv4Addr;
use std::ops::{Range, RangeInclusive};
use std::path::PathBuf;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::problem::{Position, Problems};

/// The most tables in one array of tables (`[[device]]`).
const MAX_TABLES: usize = 20_000;

/// How alike two keys must be (Jaro-Winkler, 0 to 1) for one to be proposed for the other.
const LIKENESS: f64 = 0.75;

/// A table being read. Every key that is asked for is known; [`finish`](Self::finish) reports the others.
pub(super) struct Section<'a> {
    /// `iscsi`, `device`: as in the file's headers; empty for the root.
    name: &'static str,
    table: &'a DeTable<'a>,
    span: Range<usize>,
    known: Vec<&'static str>,
    problems: &'a Problems,
}

impl<'a> Section<'a> {
    pub(super) fn new(
        name: &'static str,
        table: &'a DeTable<'a>,
        span: Range<usize>,
        problems: &'a Problems,
    ) -> Self {
        Self { name, table, span, known: Vec::new(), problems }
    }

    /// Where the table stands.
    pub(super) fn position(&self) -> Position {
        self.problems.position(self.span.start)
    }

    /// Where a key's value stands, or else the table.
    pub(super) fn position_of(&self, key: &str) -> Position {
        let span = self.table.get(key).map_or_else(|| self.span.clone(), Spanned::span);
        self.problems.position(span.start)
    }

    /// Whether the key is there, with whatever value.
    pub(super) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// Reports a mistake in a key's value, or in the table where there is none.
    pub(super) fn report(&self, key: &str, message: impl Into<String>) {
        self.problems.report_at(self.position_of(key), message);
    }

    /// `iscsi.listen`: the key with its table, for messages.
    pub(super) fn label(&self, key: &str) -> String {
        if self.name.is_empty() { key.to_owned() } else { format!("{}.{key}", self.name) }
    }

    /// A value of any type.
    pub(super) fn value(&mut self, key: &'static str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.known.push(key);
        self.table.get(key)
    }

    /// A string.
    pub(super) fn string(&mut self, key: &'static str) -> Option<String> {
        self.string_as(key, |text| Ok(text.to_owned()))
    }

    /// A string that must be there.
    pub(super) fn required<T>(
        &mut self,
        key: &'static str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        if !self.table.contains_key(key) {
            self.known.push(key);
            self.problems.report(Some(self.span.clone()), format!("{} is missing", self.label(key)));
            return None;
        }
        self.string_as(key, parse)
    }

    /// A string that is turned into something else.
    pub(super) fn string_as<T>(
        &mut self,
        key: &'static str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        let value = self.value(key)?;
        self.one_string(key, value, parse)
    }

    /// An array of strings, or one string for an array of one.
    pub(super) fn strings<T>(
        &mut self,
        key: &'static str,
        limit: usize,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<Vec<T>> {
        let value = self.value(key)?;
        let Some(items) = value.get_ref().as_array() else {
            return Some(vec![self.one_string(key, value, parse)?]);
        };
        if items.is_empty() || items.len() > limit {
            let label = self.label(key);
            self.problems.report(
                Some(value.span()),
                format!("{label} needs 1 to {limit} entries, not {}", items.len()),
            );
            return None;
        }
        items.iter().map(|item| self.one_string(key, item, &parse)).collect()
    }

    /// A whole number in a range.
    pub(super) fn integer(&mut self, key: &'static str, range: RangeInclusive<u64>) -> Option<u64> {
        let value = self.value(key)?;
        let number = value
            .get_ref()
            .as_integer()
            .and_then(|integer| u64::from_str_radix(integer.as_str(), integer.radix()).ok())
            .filter(|number| range.contains(number));
        if number.is_none() {
            let (label, low, high) = (self.label(key), range.start(), range.end());
            self.problems
                .report(Some(value.span()), format!("{label} must be a whole number from {low} to {high}"));
        }
        number
    }

    /// An array of whole numbers in a range, none twice.
    pub(super) fn integers(
        &mut self,
        key: &'static str,
        limit: usize,
        range: RangeInclusive<u64>,
    ) -> Option<Vec<u64>> {
        let value = self.value(key)?;
        let number = |item: &Spanned<DeValue<'_>>| {
            let integer = item.get_ref().as_integer()?;
            let number = u64::from_str_radix(integer.as_str(), integer.radix()).ok()?;
            range.contains(&number).then_some(number)
        };
        let items = value.get_ref().as_array().filter(|items| (1..=limit).contains(&items.len()));
        let numbers: Option<Vec<u64>> = items.and_then(|items| items.iter().map(number).collect());
        let distinct = |numbers: &Vec<u64>| {
            numbers.iter().enumerate().all(|(at, one)| !numbers.iter().take(at).any(|other| other == one))
        };
        let numbers = numbers.filter(distinct);
        if numbers.is_none() {
            let (label, low, high) = (self.label(key), range.start(), range.end());
            let message =
                format!("{label} must be 1 to {limit} different whole numbers from {low} to {high}: [1, 2]");
            self.problems.report(Some(value.span()), message);
        }
        numbers
    }

    /// True or false.
    pub(super) fn boolean(&mut self, key: &'static str) -> Option<bool> {
        let value = self.value(key)?;
        let truth = value.get_ref().as_bool();
        if truth.is_none() {
            self.wrong_type(key, value, "true or false");
        }
        truth
    }

    /// An absolute path.
    pub(super) fn path(&mut self, key: &'static str) -> Option<PathBuf> {
        self.string_as(key, |text| {
            let path = PathBuf::from(text);
            if path.is_absolute() { Ok(path) } else { Err(format!("\"{text}\" is not an absolute path")) }
        })
    }

    /// An IPv4 address.
    pub(super) fn ipv4(&mut self, key: &'static str) -> Option<Ipv4Addr> {
        self.string_as(key, |text| text.parse().map_err(|_| format!("\"{text}\" is not an IPv4 address")))
    }

    /// A table below this one.
    pub(super) fn section(&mut self, key: &'static str) -> Option<Section<'a>> {
        let value = self.value(key)?;
        let Some(table) = value.get_ref().as_table() else {
            self.wrong_type(key, value, &format!("a table: [{key}]"));
            return None;
        };
        Some(Section::new(key, table, value.span(), self.problems))
    }

    /// The tables of an array of tables.
    pub(super) fn sections(&mut self, key: &'static str) -> Vec<Section<'a>> {
        let Some(value) = self.value(key) else { return Vec::new() };
        let Some(items) = value.get_ref().as_array() else {
            self.wrong_type(key, value, &format!("an array of tables: [[{key}]], with double brackets"));
            return Vec::new();
        };
        if items.len() > MAX_TABLES {
            self.problems.report(Some(value.span()), format!("more than {MAX_TABLES} [[{key}]] tables"));
            return Vec::new();
        }
        let mut sections = Vec::new();
        for item in items {
            match item.get_ref().as_table() {
                Some(table) => sections.push(Section::new(key, table, item.span(), self.problems)),
                None => self.wrong_type(key, item, &format!("a table: [[{key}]]")),
            }
        }
        sections
    }

    /// The keys of a table whose keys are free, with their positions.
    pub(super) fn free_keys(&mut self) -> Vec<(String, &'a Spanned<DeValue<'a>>)> {
        self.table.iter().map(|(key, value)| (key.get_ref().to_string(), value)).collect()
    }

    /// One string value, as [`string_as`](Self::string_as) reads it.
    pub(super) fn one_string<T>(
        &self,
        key: &str,
        value: &Spanned<DeValue<'_>>,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        let Some(text) = value.get_ref().as_str() else {
            self.wrong_type(key, value, "a string");
            return None;
        };
        match parse(text) {
            Ok(parsed) => Some(parsed),
            Err(why) => {
                self.problems.report(Some(value.span()), format!("{}: {why}", self.label(key)));
                None
            }
        }
    }

    /// Reports a value of the wrong type.
    pub(super) fn wrong_type(&self, key: &str, value: &Spanned<DeValue<'_>>, expected: &str) {
        let found = value.get_ref().type_str();
        let label = self.label(key);
        self.problems.report(Some(value.span()), format!("{label} must be {expected}, not {found}"));
    }

    /// Reports the keys that nobody asked for.
    pub(super) fn finish(&self) {
        for key in self.table.keys() {
            let name: &str = key.get_ref();
            if self.known.contains(&name) {
                continue;
            }
            let place = match self.name {
                "" => "at the top level".to_owned(),
                section => format!("in [{section}]"),
            };
            let hint = match nearest(name, self.known.iter().copied()) {
                Some(known) => format!("did you mean \"{known}\"?"),
                None => format!("known keys: {}", self.known.join(", ")),
            };
            self.problems.report(Some(key.span()), format!("unknown key \"{name}\" {place}; {hint}"));
        }
    }

    /// The keys that were asked for, for the tests of the documentation.
    #[cfg(test)]
    pub(super) fn known(&self) -> &[&'static str] {
        &self.known
    }
}

/// The candidate most like `word`, if one is like it at all.
pub(super) fn nearest<'c>(word: &str, candidates: impl Iterator<Item = &'c str>) -> Option<&'c str> {
    candidates
        .map(|candidate| (strsim::jaro_winkler(word, candidate), candidate))
        .filter(|(likeness, _)| *likeness >= LIKENESS)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}
