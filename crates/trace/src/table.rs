//! The table of a trace as text: comment lines with what it is a trace of, a line with the names of the columns, and a line
//! for each request.
//!
//! Columns are found by their names, so tables of other programs with more columns, or in another order, are read too.
use std::fmt::Write as _;

use crate::{
    Header, Kind, MAX_DATA_BYTES, MAX_LINE_BYTES, MAX_REQUESTS, MAX_TABLE_BYTES, Request, Stage, Trace,
    TraceError, gzip,
};

/// The first line of our tables.
const FIRST_LINE: &str = "# headwater block trace 1";

/// The columns, in our order.
const HEAD: &str = "time_us,operation,offset,length,stage,latency_us,ok";

/// Reads a trace: a table, or one that is compressed with gzip.
///
/// # Errors
/// What is wrong, and on which line.
pub fn read(bytes: &[u8]) -> Result<Trace, TraceError> {
    if gzip::is_gzip(bytes) {
        return read_table(&gzip::unpack(bytes, MAX_TABLE_BYTES)?);
    }
    read_table(bytes)
}

/// A trace's table as text, which is not looked into.
///
/// # Errors
/// The compression is damaged, or it is no text.
pub fn text(bytes: &[u8]) -> Result<String, TraceError> {
    let table = if gzip::is_gzip(bytes) { gzip::unpack(bytes, MAX_TABLE_BYTES)? } else { bytes.to_vec() };
    String::from_utf8(table).map_err(|_| TraceError::NotText { line: 1 })
}

/// A whole trace as a compressed file.
#[must_use]
pub fn write(trace: &Trace) -> Vec<u8> {
    let mut appender = Appender::new(&trace.header);
    for request in &trace.requests {
        appender.push(request);
    }
    appender.take()
}

/// Makes a trace's file piece by piece: what [`take`](Self::take) gives, in this order, is the file.
#[derive(Debug)]
pub struct Appender {
    text: String,
}

impl Appender {
    /// A file that begins with this header.
    #[must_use]
    pub fn new(header: &Header) -> Self {
        let mut text = format!("{FIRST_LINE}\n");
        let title: String = header.title.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        // Writing into a string cannot fail.
        let _ = writeln!(text, "# title: {title}");
        let _ = writeln!(text, "# disk_bytes: {}", header.disk_bytes);
        let _ = writeln!(text, "# started_unix_us: {}", header.started_unix_us);
        text.push_str(HEAD);
        text.push('\n');
        Self { text }
    }

    /// Appends a request. They come as they are answered; [`read`] sorts them by their arrival.
    pub fn push(&mut self, request: &Request) {
        let Request { at_us, kind, offset, length, stage, latency_us, ok } = *request;
        let stage = match stage {
            Stage::First => 1,
            Stage::Second => 2,
        };
        let (kind, ok) = (kind.as_str(), u8::from(ok));
        let _ = writeln!(self.text, "{at_us},{kind},{offset},{length},{stage},{latency_us},{ok}");
    }

    /// How much waits to be taken, in bytes before compression.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        self.text.len()
    }

    /// What was appended since the last time, compressed.
    #[must_use]
    pub fn take(&mut self) -> Vec<u8> {
        let bytes = gzip::member(self.text.as_bytes());
        self.text.clear();
        bytes
    }
}

/// Where each column stands.
struct Columns {
    time: usize,
    operation: usize,
    offset: usize,
    length: usize,
    stage: Option<usize>,
    latency: Option<usize>,
    ok: Option<usize>,
}

impl Columns {
    fn of(head: &str, line: usize) -> Result<Self, TraceError> {
        let find = |name: &str| head.split(',').position(|cell| cell.trim() == name);
        let need = |column: &'static str| find(column).ok_or(TraceError::NoColumn { line, column });
        Ok(Self {
            time: need("time_us")?,
            operation: need("operation")?,
            offset: need("offset")?,
            length: need("length")?,
            stage: find("stage"),
            latency: find("latency_us"),
            ok: find("ok"),
        })
    }
}

/// One line of the table, cell by cell.
struct Row<'a> {
    cells: Vec<&'a str>,
    line: usize,
}

impl Row<'_> {
    fn cell(&self, at: usize) -> &str {
        self.cells.get(at).map_or("", |cell| cell.trim())
    }

    fn wrong(&self, column: &'static str, at: usize, expected: &'static str) -> TraceError {
        TraceError::Cell { line: self.line, column, cell: self.cell(at).to_owned(), expected }
    }

    fn number(&self, column: &'static str, at: usize) -> Result<u64, TraceError> {
        self.cell(at).parse().map_err(|_| self.wrong(column, at, "a whole number"))
    }

    /// The request; absent columns count as second stage, no latency, success.
    fn request(&self, columns: &Columns) -> Result<Request, TraceError> {
        let kind = Kind::parse(self.cell(columns.operation)).ok_or_else(|| {
            self.wrong("operation", columns.operation, "\"read\", \"write\", \"flush\" or \"discard\"")
        })?;
        let stage = match columns.stage {
            None => Stage::Second,
            Some(at) => match self.cell(at) {
                "1" => Stage::First,
                "2" => Stage::Second,
                _ => return Err(self.wrong("stage", at, "1 or 2")),
            },
        };
        let ok = match columns.ok {
            None => true,
            Some(at) => match self.cell(at) {
                "1" => true,
                "0" => false,
                _ => return Err(self.wrong("ok", at, "0 or 1")),
            },
        };
        let offset = self.number("offset", columns.offset)?;
        let length = self.number("length", columns.length)?;
        let carries_data = matches!(kind, Kind::Read | Kind::Write);
        if carries_data && length > MAX_DATA_BYTES || offset.checked_add(length).is_none() {
            return Err(self.wrong("length", columns.length, "a length that a request can have"));
        }
        let latency_us = columns.latency.map_or(Ok(0), |at| self.number("latency_us", at))?;
        let at_us = self.number("time_us", columns.time)?;
        Ok(Request { at_us, kind, offset, length, stage, latency_us, ok })
    }
}

fn read_table(bytes: &[u8]) -> Result<Trace, TraceError> {
    let mut trace = Trace::default();
    let mut columns = None;
    for (index, bytes) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let line = index.saturating_add(1);
        let text = std::str::from_utf8(bytes).ok().filter(|text| text.len() <= MAX_LINE_BYTES);
        let text = text.ok_or(TraceError::NotText { line })?.trim_end_matches('\r');
        if let Some(comment) = text.strip_prefix('#') {
            header_line(&mut trace.header, comment);
            continue;
        }
        if text.is_empty() {
            continue;
        }
        let Some(columns) = &columns else {
            columns = Some(Columns::of(text, line)?);
            continue;
        };
        if trace.requests.len() >= MAX_REQUESTS {
            return Err(TraceError::TooLarge { limit: MAX_REQUESTS, unit: "requests" });
        }
        let row = Row { cells: text.split(',').collect(), line };
        trace.requests.push(row.request(columns)?);
    }
    if columns.is_none() {
        return Err(TraceError::Empty);
    }
    trace.requests.sort_by_key(|request| request.at_us);
    Ok(trace)
}

/// What one comment line says; of those that are not known nothing is kept.
fn header_line(header: &mut Header, comment: &str) {
    let Some((key, value)) = comment.split_once(':') else { return };
    let value = value.trim();
    match key.trim() {
        "title" => header.title = value.to_owned(),
        "disk_bytes" => header.disk_bytes = value.parse().unwrap_or(0),
        "started_unix_us" => header.started_unix_us = value.parse().unwrap_or(0),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(at_us: u64, kind: Kind, offset: u64, length: u64) -> Request {
        Request { at_us, kind, offset, length, stage: Stage::First, latency_us: 7, ok: true }
    }

    fn sample() -> Trace {
        let last = Request { stage: Stage::Second, ok: false, ..request(9, Kind::Discard, 1 << 40, 4096) };
        Trace {
            header: Header { title: "lab-01".into(), disk_bytes: 1 << 41, started_unix_us: 5 },
            requests: vec![request(0, Kind::Read, 0, 512), request(3, Kind::Flush, 0, 0), last],
        }
    }

    #[test]
    fn trace_survives_the_way_through_its_file() {
        assert_eq!(read(&write(&sample())).unwrap(), sample());
    }

    #[test]
    fn file_made_in_pieces_is_read_as_one_and_sorted_by_arrival() {
        let trace = sample();
        let mut appender = Appender::new(&trace.header);
        let mut file = appender.take();
        for request in trace.requests.iter().rev() {
            appender.push(request);
            assert!(appender.waiting_bytes() > 10);
            file.extend(appender.take());
        }
        assert_eq!(read(&file).unwrap(), trace);
    }

    #[test]
    fn table_reads_as_documented() {
        let text = "# headwater block trace 1\n# title: lab-01\n# disk_bytes: 2199023255552\n# started_unix_us: 5\n\
            time_us,operation,offset,length,stage,latency_us,ok\n0,read,0,512,1,7,1\n3,flush,0,0,1,7,1\n\
            9,discard,1099511627776,4096,2,7,0\n";
        assert_eq!(gzip::unpack(&write(&sample()), 1000).unwrap(), text.as_bytes());
        assert_eq!(read(text.as_bytes()).unwrap(), sample());
        assert_eq!(super::text(&write(&sample())).unwrap(), text);
    }

    #[test]
    fn tables_of_other_programs_need_four_columns_in_any_order() {
        let text = "offset,length,queue,operation,time_us\r\n4096,512,3,write,12\r\n";
        let found = read(text.as_bytes()).unwrap().requests;
        let expected = Request { stage: Stage::Second, latency_us: 0, ..request(12, Kind::Write, 4096, 512) };
        assert_eq!(found, [expected]);
    }

    #[test]
    fn title_cannot_begin_a_line_of_its_own() {
        let mut trace = sample();
        trace.header.title = "a\n0,read,0,1,1,1,1".into();
        assert_eq!(read(&write(&trace)).unwrap().requests.len(), 3);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let error = |text: &str| read(text.as_bytes()).unwrap_err().to_string();
        let head = "time_us,operation,offset,length,stage,ok\n";
        assert_eq!(error(""), "the file has no line that names its columns: this is no trace");
        assert!(error("time_us,operation,offset\n").contains("(line 1) names no column \"length\""));
        for (row, column) in [
            ("x,read,0,512,1,1", "time_us"),
            ("0,peek,0,512,1,1", "operation"),
            ("0,read,-1,512,1,1", "offset"),
            ("0,read,0,,1,1", "length"),
            ("0,discard,18446744073709551615,512,1,1", "length"),
            ("0,read,0,1073741825,1,1", "length"),
            ("0,read,0,512,3,1", "stage"),
            ("0,read,0,512,1,yes", "ok"),
        ] {
            let message = error(&format!("# c\n{head}{row}\n"));
            assert!(
                message.starts_with("line 3: ") && message.contains(&format!("\"{column}\"")),
                "{message}"
            );
        }
        assert_eq!(read(&[b'#', 0xff]), Err(TraceError::NotText { line: 1 }));
        assert_eq!(read(&[b'#'; MAX_LINE_BYTES + 1]), Err(TraceError::NotText { line: 1 }));
    }
}
