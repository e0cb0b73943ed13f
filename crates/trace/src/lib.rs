//! Traces of block requests: which reads, writes, flushes and discards a machine sent to its disk, when, and how long each took.
//!
//! A trace is a table with a line for each request, in a file that any program reads: CSV with comment lines before it, mostly
//! compressed with gzip. `docs/trace.md` describes it column by column; `pandas.read_csv(PATH, comment="#")` imports it.
//!
//! [`read`] and [`write()`] turn bytes into a [`Trace`] and back, [`Appender`] makes such bytes piece by piece while requests come,
//! and [`summary`] says what a trace shows: how sequential, how many at a time, what was read twice, and where. Recording
//! and replaying are left to programs. Traces come from anywhere, so they are parsed like anything foreign.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::arithmetic_side_effects,
        clippy::indexing_slicing,
        reason = "tests fail by panicking"
    )
)]

mod gzip;
pub mod picture;
pub mod schedule;
pub mod summary;
mod table;

use serde::{Deserialize, Serialize};

pub use table::{Appender, read, text, write};

/// The most requests that are read of one trace: days of a desktop.
pub const MAX_REQUESTS: usize = 10_000_000;

/// The longest table that a compressed trace may hold, in bytes: [`MAX_REQUESTS`] lines fit in.
pub const MAX_TABLE_BYTES: usize = 1 << 30;

/// The longest line of a table, in bytes.
pub const MAX_LINE_BYTES: usize = 4096;

/// The longest read or write, in bytes: block protocols carry no more at once.
pub const MAX_DATA_BYTES: u64 = 1 << 30;

/// A recorded trace: requests in the order of their arrival.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// What it is a trace of.
    pub header: Header,
    /// The requests, earliest first.
    pub requests: Vec<Request>,
}

/// What a trace says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// For people: device, vDisk, boot.
    pub title: String,
    /// The size of the disk in bytes; 0 where it was not told.
    pub disk_bytes: u64,
    /// When time 0 was: microseconds since 1970, UTC; 0 where it was not told.
    pub started_unix_us: u64,
}

/// One block request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// When its last byte had arrived, in microseconds from the start of the trace.
    pub at_us: u64,
    /// What it asked for.
    pub kind: Kind,
    /// Where on the disk, in bytes; 0 for a flush.
    pub offset: u64,
    /// How many bytes; 0 for a flush.
    pub length: u64,
    /// Who asked.
    pub stage: Stage,
    /// How long its answer took, in microseconds.
    pub latency_us: u64,
    /// Whether it succeeded.
    pub ok: bool,
}

impl Request {
    /// When it was answered, in microseconds from the start of the trace.
    #[must_use]
    pub fn done_us(&self) -> u64 {
        self.at_us.saturating_add(self.latency_us)
    }

    /// The first byte behind it.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.length)
    }
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Data.
    Read,
    /// To keep data.
    Write,
    /// That what was written lasts.
    Flush,
    /// To forget data, or to make zeros of it.
    Discard,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Flush, Self::Discard];

    /// Its word in a table.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Discard => "discard",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// The firmware.
    First,
    /// The operating system.
    Second,
}

/// Why bytes are no trace.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// The gzip frame is damaged.
    #[error("the gzip file is damaged at byte {at}: {why}")]
    Gzip {
        /// Where, in bytes from the start of the file.
        at: usize,
        /// What is wrong.
        why: &'static str,
    },
    /// More than a trace may hold.
    #[error("the trace is too large: more than {limit} {unit}")]
    TooLarge {
        /// What is allowed.
        limit: usize,
        /// Of what: `requests`.
        unit: &'static str,
    },
    /// It is not text.
    #[error("line {line} is no UTF-8 text of at most {MAX_LINE_BYTES} bytes: this is no trace")]
    NotText {
        /// Its number, from 1.
        line: usize,
    },
    /// A column is missing.
    #[error("the head of the table (line {line}) names no column \"{column}\": this is no trace")]
    NoColumn {
        /// The line of the head.
        line: usize,
        /// What is missing.
        column: &'static str,
    },
    /// There is no head.
    #[error("the file has no line that names its columns: this is no trace")]
    Empty,
    /// A cell is wrong.
    #[error("line {line}: \"{cell}\" in column \"{column}\" is not {expected}")]
    Cell {
        /// The line, from 1.
        line: usize,
        /// The column.
        column: &'static str,
        /// What stands there.
        cell: String,
        /// What should.
        expected: &'static str,
    },
}
