//! Text for people: figures in units, and cells as aligned columns.
use std::borrow::Cow;
use std::fmt::Write as _;

use block::ByteLength;

/// Bytes in binary units with three digits: `24.3 MiB`.
#[must_use]
pub fn bytes(bytes: u64) -> String {
    ByteLength::new(bytes).approximate()
}

/// Rows of cells as aligned columns; `right` lists the columns of figures.
#[must_use]
pub fn align(rows: &[Vec<String>], right: &[usize]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..count).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            if column > 0 {
                line.push_str("  ");
            }
            if right.contains(&column) {
                let _ = write!(line, "{cell:>width$}");
            } else {
                let _ = write!(line, "{cell:<width$}");
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// A name as it can be shown: as it is, or in quotes and escaped where it holds what moves a terminal's cursor or begins
/// another line.
#[must_use]
pub fn name(name: &str) -> Cow<'_, str> {
    let is_plain = |c: char| matches!(c, '"' | '\'' | '\\') || c.escape_debug().len() == 1;
    if name.chars().all(is_plain) { Cow::Borrowed(name) } else { Cow::Owned(format!("{name:?}")) }
}

/// Cells of a row.
#[must_use]
pub fn columns<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.into_iter().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_pass_for_something_else_are_quoted() {
        for plain in ["win 11.vhdx", "grün-日本.raw", "it's \"new\"\\.vhd"] {
            assert_eq!(name(plain), plain);
        }
        assert_eq!(name("a\nsound"), r#""a\nsound""#);
        assert_eq!(name("a\u{1b}[2J"), r#""a\u{1b}[2J""#);
        assert_eq!(name("a\u{202e}b\u{7f}"), r#""a\u{202e}b\u{7f}""#);
    }
}
