//! What is wrong with a configuration file, and where.
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The most mistakes that are reported at once.
const MAX_PROBLEMS: usize = 50;

/// A place in the configuration file. Lines and columns count from one, columns in characters.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where, if that can be said.
    pub position: Option<Position>,
    /// What, and what to do.
    pub message: String,
}

/// All mistakes of one file. As an error it prints one line for each: `file:line:column: message`.
#[derive(Debug)]
pub struct Problems {
    path: PathBuf,
    /// The byte offset at which each line starts.
    line_starts: Vec<usize>,
    text: String,
    list: Mutex<Vec<Problem>>,
}

impl Problems {
    /// No mistakes yet, in `text`.
    #[must_use]
    pub fn new(text: &str, path: &Path) -> Self {
        let breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let line_starts = std::iter::once(0).chain(breaks.map(|(at, _)| at.saturating_add(1))).collect();
        Self { path: path.to_owned(), line_starts, text: text.to_owned(), list: Mutex::default() }
    }

    /// The file cannot be read at all.
    #[must_use]
    pub fn whole_file(path: &Path, why: String) -> Self {
        let problems = Self::new("", path);
        problems.add(Problem { position: None, message: why });
        problems
    }

    /// The line and column of a byte.
    #[must_use]
    pub fn position(&self, offset: usize) -> Position {
        let line = self.line_starts.partition_point(|start| *start <= offset);
        let start = self.line_starts.get(line.saturating_sub(1)).copied().unwrap_or(0);
        let before = self.text.get(start..offset).unwrap_or("");
        Position { line, column: before.chars().count().saturating_add(1) }
    }

    /// Adds a mistake at a span of bytes.
    pub fn report(&self, span: Option<Range<usize>>, message: impl Into<String>) {
        let position = span.map(|span| self.position(span.start));
        self.add(Problem { position, message: message.into() });
    }

    /// Adds a mistake at a position.
    pub fn report_at(&self, position: Position, message: impl Into<String>) {
        self.add(Problem { position: Some(position), message: message.into() });
    }

    /// Forgets all but the first `count`.
    pub fn keep_first(&self, count: usize) {
        self.locked().truncate(count);
    }

    /// The mistakes, in the order of the file.
    #[must_use]
    pub fn list(&self) -> Vec<Problem> {
        let mut list = self.locked().clone();
        list.sort_by(|a, b| a.position.cmp(&b.position));
        list
    }

    /// `value`, if there were no mistakes.
    ///
    /// # Errors
    /// The mistakes.
    pub fn into_result<T>(self, value: T) -> Result<T, Self> {
        let sound = self.locked().is_empty();
        if sound { Ok(value) } else { Err(self) }
    }

    fn locked(&self) -> MutexGuard<'_, Vec<Problem>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, problem: Problem) {
        let mut list = self.locked();
        if list.len() < MAX_PROBLEMS && !list.contains(&problem) {
            list.push(problem);
        }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.list().iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{}", self.path.display())?;
            if let Some(Position { line, column }) = problem.position {
                write!(f, ":{line}:{column}")?;
            }
            write!(f, ": {}", problem.message)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}
