//! The driver of SQLite: the embedded default.
//!
//! One connection writes, behind a mutex; others read. The log is a write-ahead log, so that readers and the writer do
//! not wait for each other. Commits are synced: an administrator's change that was acknowledged is on the disk.
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode, OpenFlags, ToSql, TransactionBehavior};

use super::cell::{Cell, Row};
use super::database::{Database, Transaction, Work};
use super::error::{CatalogueError, DatabaseError};

/// How long a statement waits for another program that has the database locked.
pub const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Marks a file as a catalogue of ours (`PRAGMA application_id`): "HWfm".
pub(super) const APPLICATION_ID: i64 = 0x4857_666D;

/// Statements that each connection keeps prepared.
const PREPARED_STATEMENTS: usize = 128;

/// Idle reading connections that are kept.
const IDLE_READERS: usize = 4;

/// A database in a file.
#[derive(Debug)]
pub struct Sqlite {
    path: PathBuf,
    name: String,
    busy_timeout: Duration,
    writer: Mutex<Connection>,
    readers: Mutex<Vec<Connection>>,
}

impl Sqlite {
    /// Opens the database in the file `path`, or makes it.
    ///
    /// # Errors
    /// [`DatabaseError`]: the file cannot be opened, is another program's, or is locked.
    pub fn open(path: &Path) -> Result<Self, DatabaseError> {
        Self::open_with(path, BUSY_TIMEOUT)
    }

    /// As [`open`](Self::open), with another time to wait for other programs.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(path: &Path, busy_timeout: Duration) -> Result<Self, DatabaseError> {
        let name = path.display().to_string();
        own(path);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let failed = |error| failure(&name, busy_timeout, &error);
        let writer = connect(path, flags, busy_timeout).map_err(failed)?;
        claim(&writer, &name, busy_timeout)?;
        let mode: String =
            writer.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0)).map_err(failed)?;
        if mode != "wal" {
            let why = format!("its file system lets it keep no write-ahead log (journal mode {mode})");
            return Err(DatabaseError::Other { database: name, why });
        }
        // In a write-ahead log, NORMAL would give back a change that was acknowledged just before a power failure.
        writer.pragma_update(None, "synchronous", "full").map_err(failed)?;
        let (writer, readers) = (Mutex::new(writer), Mutex::new(Vec::new()));
        Ok(Self { path: path.to_owned(), name, busy_timeout, writer, readers })
    }

    /// Opens the database in the file `path` for reading alone: it is neither made nor changed.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_read_only(path: &Path) -> Result<Self, DatabaseError> {
        let name = path.display().to_string();
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let writer =
            connect(path, flags, BUSY_TIMEOUT).map_err(|error| failure(&name, BUSY_TIMEOUT, &error))?;
        let (writer, readers) = (Mutex::new(writer), Mutex::new(Vec::new()));
        Ok(Self { path: path.to_owned(), name, busy_timeout: BUSY_TIMEOUT, writer, readers })
    }

    /// Bounds the file to this many pages of 4 KiB, as a full disk would.
    ///
    /// # Errors
    /// [`DatabaseError`].
    pub fn limit_pages(&self, pages: u32) -> Result<(), DatabaseError> {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        writer.pragma_update(None, "max_page_count", pages).map_err(|error| self.failure(&error))
    }

    fn failure(&self, error: &rusqlite::Error) -> DatabaseError {
        failure(&self.name, self.busy_timeout, error)
    }

    fn reader(&self) -> Result<Connection, DatabaseError> {
        let idle = self.readers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(connection) = idle {
            return Ok(connection);
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        connect(&self.path, flags, self.busy_timeout).map_err(|error| self.failure(&error))
    }

    fn give_back(&self, reader: Connection) {
        let mut idle = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_READERS {
            idle.push(reader);
        }
    }

    fn run(
        &self,
        connection: &mut Connection,
        behavior: TransactionBehavior,
        work: Work<'_>,
    ) -> Result<(), CatalogueError> {
        // Dropped without a commit, a transaction is undone.
        let transaction =
            connection.transaction_with_behavior(behavior).map_err(|error| self.failure(&error))?;
        work(&mut Running { connection: &transaction, of: self })?;
        Ok(transaction.commit().map_err(|error| self.failure(&error))?)
    }
}

pub(super) fn connect(path: &Path, flags: OpenFlags, busy_timeout: Duration) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(busy_timeout)?;
    connection.set_prepared_statement_cache_capacity(PREPARED_STATEMENTS);
    connection.pragma_update(None, "foreign_keys", true)?;
    // Nothing in the file may call functions: it may come from a backup of unknown origin.
    connection.pragma_update(None, "trusted_schema", false)?;
    Ok(connection)
}

/// Makes a new database one that its owner alone may read: it holds what passwords and tokens are compared with. SQLite
/// gives the files beside it the same permissions. What cannot be made here, cannot be opened next, and is told there.
fn own(path: &Path) {
    use std::os::unix::fs::OpenOptionsExt;
    let _ = std::fs::File::options().write(true).create_new(true).mode(0o600).open(path);
}

/// A file without tables becomes ours; one with tables must say that it is.
fn claim(connection: &Connection, name: &str, busy_timeout: Duration) -> Result<(), DatabaseError> {
    let failed = |error| failure(name, busy_timeout, &error);
    let id: i64 = connection.pragma_query_value(None, "application_id", |row| row.get(0)).map_err(failed)?;
    if id == APPLICATION_ID {
        return Ok(());
    }
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(failed)?;
    if tables > 0 {
        let why = format!("it has tables, and the application id {id:#x} instead of {APPLICATION_ID:#x}");
        return Err(DatabaseError::NotOurs { database: name.to_owned(), why });
    }
    connection.pragma_update(None, "application_id", APPLICATION_ID).map_err(failed)
}

impl Database for Sqlite {
    fn name(&self) -> &str {
        &self.name
    }

    fn read(&self, work: Work<'_>) -> Result<(), CatalogueError> {
        let mut reader = self.reader()?;
        let result = self.run(&mut reader, TransactionBehavior::Deferred, work);
        self.give_back(reader);
        result
    }

    fn write(&self, work: Work<'_>) -> Result<(), CatalogueError> {
        // A panic in another write undid its transaction when the guard was dropped: the connection is good.
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        self.run(&mut writer, TransactionBehavior::Immediate, work)
    }

    fn backup(&self, to: &Path) -> Result<(), DatabaseError> {
        let other = |why: String| DatabaseError::Other { database: to.display().to_string(), why };
        if to.exists() {
            return Err(other("a backup needs a new file, and this one exists".to_owned()));
        }
        let half = PathBuf::from(format!("{}.part", to.display()));
        // A leftover of a backup that was interrupted.
        if half.exists() {
            std::fs::remove_file(&half).map_err(|error| other(error.to_string()))?;
        }
        let reader = self.reader()?;
        let copied =
            copy(&reader, &half).map_err(|error| failure(&half.display().to_string(), BUSY_TIMEOUT, &error));
        self.give_back(reader);
        copied
            .and_then(|()| crate::durable::publish(&half, to).map_err(|error| other(error.to_string())))
            .inspect_err(|_| {
                // Best effort: what is left of it is named so that nobody takes it for a backup.
                let _ = std::fs::remove_file(&half);
            })
    }
}

fn copy(from: &Connection, to: &Path) -> rusqlite::Result<()> {
    own(to);
    let mut target = Connection::open(to)?;
    let backup = rusqlite::backup::Backup::new(from, &mut target)?;
    // All pages in one step: a step is one read transaction, so that what others write meanwhile waits for nothing and
    // is not in the copy.
    backup.step(-1)?;
    drop(backup);
    // The copy is one file: a log beside it would be forgotten when it is moved.
    target.pragma_update_and_check(None, "journal_mode", "delete", |row| row.get::<_, String>(0))?;
    Ok(())
}

struct Running<'a> {
    connection: &'a Connection,
    of: &'a Sqlite,
}

impl Transaction for Running<'_> {
    fn execute(&mut self, sql: &str, values: &[Cell]) -> Result<u64, DatabaseError> {
        let run = || {
            let changed = self.connection.prepare_cached(sql)?.execute(rusqlite::params_from_iter(values))?;
            Ok(u64::try_from(changed).unwrap_or(u64::MAX))
        };
        run().map_err(|error| self.of.failure(&error))
    }

    fn query(&mut self, sql: &str, values: &[Cell]) -> Result<Vec<Row>, DatabaseError> {
        let run = || {
            let mut statement = self.connection.prepare_cached(sql)?;
            let width = statement.column_count();
            let mut rows = statement.query(rusqlite::params_from_iter(values))?;
            let mut read = Vec::new();
            while let Some(row) = rows.next()? {
                let cells: rusqlite::Result<_> =
                    (0..width).map(|column| Ok(cell(row.get_ref(column)?))).collect();
                read.push(Row::new(cells?));
            }
            Ok(read)
        };
        run().map_err(|error| self.of.failure(&error))
    }

    fn define(&mut self, sql: &str) -> Result<(), DatabaseError> {
        self.connection.execute_batch(sql).map_err(|error| self.of.failure(&error))
    }

    fn database(&self) -> &str {
        &self.of.name
    }
}

impl ToSql for Cell {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Integer(number) => ValueRef::Integer(*number),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Bytes(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

fn cell(value: ValueRef<'_>) -> Cell {
    match value {
        ValueRef::Null => Cell::Null,
        ValueRef::Integer(number) => Cell::Integer(number),
        // Tables are STRICT: a number with a fraction has no column to stand in.
        ValueRef::Real(number) => Cell::Text(number.to_string()),
        ValueRef::Text(bytes) => Cell::Text(String::from_utf8_lossy(bytes).into_owned()),
        ValueRef::Blob(bytes) => Cell::Bytes(bytes.to_vec()),
    }
}

pub(super) fn failure(database: &str, waited: Duration, error: &rusqlite::Error) -> DatabaseError {
    let (database, why) = (database.to_owned(), error.to_string());
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
            DatabaseError::Busy { database, waited_ms }
        }
        Some(ErrorCode::DiskFull) => DatabaseError::Full { database },
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => DatabaseError::ReadOnly { database, why },
        Some(ErrorCode::DatabaseCorrupt) => DatabaseError::Damaged { database, why },
        Some(ErrorCode::NotADatabase) => DatabaseError::NotOurs { database, why },
        Some(ErrorCode::CannotOpen | ErrorCode::SystemIoFailure) => {
            DatabaseError::Unavailable { database, why }
        }
        _ => DatabaseError::Other { database, why },
    }
}
