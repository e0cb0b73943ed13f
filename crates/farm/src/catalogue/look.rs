//! Looking at a catalogue in a file without touching it: for programs beside the server.
use std::path::Path;

use rusqlite::{Connection, OpenFlags};

use super::error::DatabaseError;
use super::sqlite::{self, APPLICATION_ID, BUSY_TIMEOUT};

/// The most faults that are listed: one is enough to restore a backup.
const MAX_FAULTS: usize = 10;

/// What a file turns out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// Its schema; [`SCHEMA`](super::SCHEMA) is that of this program. 0: an empty one.
    pub schema: i64,
    /// What is wrong with it, in SQLite's words; empty where nothing is.
    pub faults: Vec<String>,
}

/// Looks at a catalogue in a file, whether a server has it open or not: whose it is, which schema it has, and whether its
/// pages and indices agree. It is neither made nor changed. Reads the whole file.
///
/// # Errors
/// [`DatabaseError`]: it cannot be opened, is locked, or is another program's.
pub fn look(path: &Path) -> Result<Look, DatabaseError> {
    let name = path.display().to_string();
    let failed = |error| sqlite::failure(&name, BUSY_TIMEOUT, &error);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = sqlite::connect(path, flags, BUSY_TIMEOUT).map_err(failed)?;
    let id: i64 = connection.pragma_query_value(None, "application_id", |row| row.get(0)).map_err(failed)?;
    if id != APPLICATION_ID {
        let why = format!("its application id is {id:#x} instead of {APPLICATION_ID:#x}");
        return Err(DatabaseError::NotOurs { database: name, why });
    }
    let schema = schema(&connection).map_err(failed)?;
    Ok(Look { schema, faults: faults(&connection).map_err(failed)? })
}

fn schema(connection: &Connection) -> rusqlite::Result<i64> {
    let sql = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'schema_step'";
    match connection.query_row(sql, [], |row| row.get::<_, i64>(0))? {
        0 => Ok(0),
        _ => connection.query_row("SELECT coalesce(max(step), 0) FROM schema_step", [], |row| row.get(0)),
    }
}

fn faults(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare(&format!("PRAGMA integrity_check({MAX_FAULTS})"))?;
    let lines: rusqlite::Result<Vec<String>> = statement.query_map([], |row| row.get(0))?.collect();
    Ok(lines?.into_iter().filter(|line| line != "ok").collect())
}
