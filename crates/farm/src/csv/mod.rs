//! Tables as text: RFC 4180, with a comma, a semicolon or a tab between cells, whichever the first line has.
//!
//! [`devices`] says what the columns of devices are. What cannot be read is told by line and column, all of it at once.
pub mod devices;

/// The largest table, in bytes: 10,000 devices take about one megabyte.
pub const MAX_BYTES: usize = 32 << 20;
/// The most lines of a table.
pub const MAX_LINES: usize = 100_000;
/// The most cells of a line.
pub const MAX_COLUMNS: usize = 100;

/// What is wrong with a place in a table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}{}: {why}", column.as_ref().map(|column| format!(", column {column}")).unwrap_or_default())]
pub struct BadCell {
    /// The line, the first being 1; of a row that spans several, its first.
    pub line: usize,
    /// The column's name; `None`: the whole line.
    pub column: Option<String>,
    /// What is wrong.
    pub why: String,
}

impl BadCell {
    /// Of a whole line.
    #[must_use]
    pub fn line(line: usize, why: impl Into<String>) -> Self {
        Self { line, column: None, why: why.into() }
    }
}

/// A row: the line that it begins on, and its cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The first being 1.
    pub number: usize,
    /// The cells, without their quotation marks.
    pub cells: Vec<String>,
}

/// Reads a table. Empty lines are left out; a byte order mark is, too.
///
/// # Errors
/// [`BadCell`]: it is too large, no UTF-8, or a quotation mark is not closed.
pub fn read(bytes: &[u8]) -> Result<Vec<Line>, BadCell> {
    if bytes.len() > MAX_BYTES {
        return Err(BadCell::line(
            1,
            format!("the table has {} bytes; {MAX_BYTES} is the most", bytes.len()),
        ));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let before = bytes.iter().take(error.valid_up_to()).filter(|byte| **byte == b'\n').count();
        BadCell::line(before.saturating_add(1), "this is not UTF-8: save the table with that encoding")
    })?;
    let text = text.strip_prefix('\u{FEFF}').unwrap_or(text);
    let first = text.lines().next().unwrap_or_default();
    let separator = [',', ';', '\t'].into_iter().find(|separator| first.contains(*separator)).unwrap_or(',');
    Reader { text: text.chars().peekable(), separator, line: 1 }.lines()
}

struct Reader<'a> {
    text: std::iter::Peekable<std::str::Chars<'a>>,
    separator: char,
    line: usize,
}

impl Reader<'_> {
    fn lines(mut self) -> Result<Vec<Line>, BadCell> {
        let mut lines = Vec::new();
        while self.text.peek().is_some() {
            let number = self.line;
            let cells = self.cells()?;
            if cells.len() > MAX_COLUMNS {
                return Err(BadCell::line(number, format!("it has more than {MAX_COLUMNS} cells")));
            }
            if cells.iter().any(|cell| !cell.is_empty()) {
                lines.push(Line { number, cells });
            }
            if lines.len() > MAX_LINES {
                return Err(BadCell::line(number, format!("the table has more than {MAX_LINES} lines")));
            }
        }
        Ok(lines)
    }

    /// The cells up to the end of the line.
    fn cells(&mut self) -> Result<Vec<String>, BadCell> {
        let mut cells = Vec::new();
        loop {
            let cell = if self.text.next_if_eq(&'"').is_some() { self.quoted()? } else { self.plain() };
            cells.push(cell);
            let end = match self.text.next() {
                Some('\r') => self.text.next(),
                other => other,
            };
            match end {
                Some(c) if c == self.separator => {}
                Some('\n') => {
                    self.line = self.line.saturating_add(1);
                    return Ok(cells);
                }
                None => return Ok(cells),
                Some(_) => {
                    return Err(BadCell::line(self.line, "there is text behind a closing quotation mark"));
                }
            }
        }
    }

    fn plain(&mut self) -> String {
        let mut cell = String::new();
        let separator = self.separator;
        while let Some(c) = self.text.next_if(|c| *c != separator && *c != '\n' && *c != '\r') {
            cell.push(c);
        }
        cell.trim().to_owned()
    }

    /// Behind the opening quotation mark.
    fn quoted(&mut self) -> Result<String, BadCell> {
        let opened = self.line;
        let mut cell = String::new();
        loop {
            match self.text.next() {
                // Two stand for one.
                Some('"') if self.text.next_if_eq(&'"').is_some() => cell.push('"'),
                Some('"') => return Ok(cell),
                Some(c) => {
                    self.line = self.line.saturating_add(usize::from(c == '\n'));
                    cell.push(c);
                }
                None => return Err(BadCell::line(opened, "a quotation mark that opens here is not closed")),
            }
        }
    }
}

/// Writes a line of a table.
pub fn write(to: &mut String, cells: &[String]) {
    for (place, cell) in cells.iter().enumerate() {
        if place > 0 {
            to.push(',');
        }
        let plain = !cell.contains([',', ';', '\t', '"', '\n', '\r']) && cell.trim() == cell;
        if plain {
            to.push_str(cell);
        } else {
            to.push('"');
            to.push_str(&cell.replace('"', "\"\""));
            to.push('"');
        }
    }
    // RFC 4180 §2.1: lines end with CR LF.
    to.push_str("\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(text: &str) -> Vec<Vec<String>> {
        read(text.as_bytes()).unwrap().into_iter().map(|line| line.cells).collect()
    }

    #[test]
    fn cells_are_read_whatever_stands_between_them() {
        let expected = vec![vec!["a", "b c", ""], vec!["1", "x,\n\"y\"", "3"]];
        for separator in [",", ";", "\t"] {
            let text = format!(
                "\u{FEFF}a{separator} b c {separator}\r\n\r\n1{separator}\"x,\n\"\"y\"\"\"{separator}3"
            );
            assert_eq!(cells(&text), expected, "{separator:?}");
        }
        assert_eq!(cells("a,b\n1,\n"), [["a", "b"], ["1", ""]]);
        assert_eq!(cells("a,\r\n\"1\",\"\"\r\n"), [["a", ""], ["1", ""]]);
        assert_eq!(cells(""), Vec::<Vec<String>>::new());
    }

    #[test]
    fn line_is_told_where_it_begins() {
        let lines = read(b"a,b\n\"x\ny\",2\n3,4\n").unwrap();
        assert_eq!(lines.iter().map(|line| line.number).collect::<Vec<_>>(), [1, 2, 4]);
        assert_eq!(read(b"a\n\"x\n\n").unwrap_err().line, 2);
        assert_eq!(read(b"a\n\"x\"y\n").unwrap_err().line, 2);
        assert_eq!(read(b"a\nb\n\xFF\n").unwrap_err().line, 3);
    }

    #[test]
    fn table_above_its_limits_is_refused() {
        assert!(read("a\n".repeat(MAX_LINES + 1).as_bytes()).is_err());
        assert!(read(",".repeat(MAX_COLUMNS).as_bytes()).is_err());
        assert!(read(&vec![b'a'; MAX_BYTES + 1]).is_err());
    }

    #[test]
    fn what_is_written_is_read_again() {
        let rows = [["a", "b;c", " d"], ["", "\"", "x\r\ny"]].map(|row| row.map(str::to_owned).to_vec());
        let mut text = String::new();
        rows.iter().for_each(|row| write(&mut text, row));
        assert_eq!(cells(&text), rows);
    }

    #[test]
    fn mutated_tables_never_panic() {
        let seeds =
            vec![b"name,mac\r\n\"a\"\"b\",52:54:00:12:34:56\n".to_vec(), b"a;b\n\"x\ny\";2\n".to_vec()];
        mutate::Mutator::new(seeds, 300).run(20_000, |bytes| {
            let _ = read(bytes);
            let _ = devices::parse(bytes);
        });
    }
}
