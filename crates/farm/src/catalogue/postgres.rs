//! The driver of PostgreSQL, for farms of several servers.
//!
//! Connections are kept and used again. One that turns out to be dead when a transaction begins is replaced; one that
//! dies in a transaction fails that transaction, and the next finds a new one: a database that went and came back needs
//! nobody's help. A write transaction takes an advisory lock first, which makes it alone, as the catalogue expects.
//!
//! Connections are not encrypted yet: use a socket, a trusted network or a tunnel.
use std::collections::HashMap;
use std::error::Error;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use postgres::error::SqlState;
use postgres::types::{FromSql, IsNull, ToSql, Type, private::BytesMut, to_sql_checked};
use postgres::{Client, Config, NoTls, Statement};

use super::cell::{Cell, Row};
use super::database::{Database, Transaction, Work};
use super::error::{CatalogueError, DatabaseError};

/// How long a connection may take to come about.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a write transaction waits for another one.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a statement may take: far more than any of ours does.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(60);
/// Idle connections that are kept.
const IDLE_SESSIONS: usize = 4;
/// Statements that each connection keeps prepared; above that, it forgets all of them.
const PREPARED_STATEMENTS: usize = 256;
/// Names the lock of write transactions: "HWfm".
const WRITE_LOCK: i64 = 0x4857_666D;

/// A database on a PostgreSQL server.
pub struct Postgres {
    config: Config,
    name: String,
    idle: Mutex<Vec<Session>>,
}

struct Session {
    client: Client,
    statements: HashMap<String, Statement>,
}

impl Postgres {
    /// The database at an address: `postgresql://user@host/name` or `host=... user=... dbname=...`.
    ///
    /// # Errors
    /// [`DatabaseError::Unavailable`]: the address cannot be read, or nobody answers there.
    pub fn connect(address: &str) -> Result<Self, DatabaseError> {
        let mut config: Config =
            address.parse().map_err(|error: postgres::Error| DatabaseError::Unavailable {
                // The address may hold a password: it is not repeated.
                database: "of the configured address".to_owned(),
                why: chain(&error),
            })?;
        let ms = |time: Duration| time.as_millis();
        let bounds = format!(
            "{} -c lock_timeout={} -c statement_timeout={}",
            config.get_options().unwrap_or_default(),
            ms(LOCK_TIMEOUT),
            ms(STATEMENT_TIMEOUT)
        );
        config.application_name("headwater").connect_timeout(CONNECT_TIMEOUT).options(bounds.trim_start());
        let postgres = Self { name: name_of(&config), config, idle: Mutex::new(Vec::new()) };
        let session = postgres.new_session()?;
        postgres.give_back(session);
        Ok(postgres)
    }

    fn new_session(&self) -> Result<Session, DatabaseError> {
        let client = self.config.connect(NoTls).map_err(|error| self.failure(&error))?;
        Ok(Session { client, statements: HashMap::new() })
    }

    fn give_back(&self, session: Session) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_SESSIONS {
            idle.push(session);
        }
    }

    /// A session in which a transaction was begun with `begin`. Whether an idle connection is alive shows only when it
    /// is used; nothing was done yet then, so that another one can take its place.
    fn begun(&self, begin: &str) -> Result<Session, DatabaseError> {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        while let Some(mut session) = idle() {
            match session.client.batch_execute(begin) {
                Ok(()) => return Ok(session),
                Err(error) if error.as_db_error().is_some() && !session.client.is_closed() => {
                    return Err(self.failure(&error));
                }
                Err(error) => {
                    tracing::warn!(database = self.name, error = chain(&error), "lost a connection");
                }
            }
        }
        let mut session = self.new_session()?;
        session.client.batch_execute(begin).map_err(|error| self.failure(&error))?;
        Ok(session)
    }

    fn run(&self, begin: &str, work: Work<'_>) -> Result<(), CatalogueError> {
        let mut session = self.begun(begin)?;
        let mut running = Running { session: &mut session, of: self, failed: None };
        let done = work(&mut running);
        // A statement that failed undoes the whole transaction here, even where `work` passed over it.
        if let Some(why) = running.failed.take() {
            done?;
            return Err(DatabaseError::Other { database: self.name.clone(), why }.into());
        }
        if done.is_ok() {
            session.client.batch_execute("COMMIT").map_err(|error| self.at_the_end(&error))?;
        } else if session.client.batch_execute("ROLLBACK").is_err() {
            // Dropped without a word, its transaction is undone by the server.
            return done;
        }
        self.give_back(session);
        done
    }

    fn at_the_end(&self, error: &postgres::Error) -> DatabaseError {
        match (error.as_db_error(), self.failure(error)) {
            (None, _) => DatabaseError::OutcomeUnknown { database: self.name.clone(), why: chain(error) },
            (Some(_), failure) => failure,
        }
    }

    fn failure(&self, error: &postgres::Error) -> DatabaseError {
        let (database, why) = (self.name.clone(), chain(error));
        let waited_ms = u64::try_from(LOCK_TIMEOUT.as_millis()).unwrap_or(u64::MAX);
        let Some(code) = error.code() else { return DatabaseError::Unavailable { database, why } };
        match code.code() {
            // Classes: 08 connections, 57P the operator's intervention (shutdown), 53 resources.
            code if code.starts_with("08") || code.starts_with("57P") => {
                DatabaseError::Unavailable { database, why }
            }
            _ if *code == SqlState::TOO_MANY_CONNECTIONS => DatabaseError::Unavailable { database, why },
            _ if *code == SqlState::INVALID_PASSWORD || *code == SqlState::INVALID_CATALOG_NAME => {
                DatabaseError::Unavailable { database, why }
            }
            _ if *code == SqlState::LOCK_NOT_AVAILABLE => DatabaseError::Busy { database, waited_ms },
            _ if *code == SqlState::DISK_FULL => DatabaseError::Full { database },
            _ if *code == SqlState::READ_ONLY_SQL_TRANSACTION
                || *code == SqlState::INSUFFICIENT_PRIVILEGE =>
            {
                DatabaseError::ReadOnly { database, why }
            }
            _ if *code == SqlState::DATA_CORRUPTED || *code == SqlState::INDEX_CORRUPTED => {
                DatabaseError::Damaged { database, why }
            }
            _ => DatabaseError::Other { database, why },
        }
    }
}

/// The client's errors say little themselves; their sources do.
fn chain(error: &postgres::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}

fn name_of(config: &Config) -> String {
    let host = config.get_hosts().first().map(|host| match host {
        postgres::config::Host::Tcp(name) => name.clone(),
        postgres::config::Host::Unix(path) => path.display().to_string(),
    });
    let user = config.get_user().unwrap_or_default();
    let name = config.get_dbname().unwrap_or(user);
    format!("postgresql://{user}@{}/{name}", host.unwrap_or_default())
}

impl Database for Postgres {
    fn name(&self) -> &str {
        &self.name
    }

    fn read(&self, work: Work<'_>) -> Result<(), CatalogueError> {
        self.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", work)
    }

    fn write(&self, work: Work<'_>) -> Result<(), CatalogueError> {
        // READ COMMITTED: what is read behind the lock is what the transaction before has left.
        self.run(&format!("BEGIN; SELECT pg_advisory_xact_lock({WRITE_LOCK})"), work)
    }

    fn backup(&self, _: &Path) -> Result<(), DatabaseError> {
        Err(DatabaseError::Unsupported {
            database: self.name.clone(),
            what: "a backup",
            instead: "use pg_dump, or the archive of the server's log",
        })
    }
}

struct Running<'a> {
    session: &'a mut Session,
    of: &'a Postgres,
    failed: Option<String>,
}

impl Running<'_> {
    fn run<R>(
        &mut self,
        sql: &str,
        values: &[Cell],
        run: impl FnOnce(&mut Client, &Statement, &[&(dyn ToSql + Sync)]) -> Result<R, postgres::Error>,
    ) -> Result<R, DatabaseError> {
        let Session { client, statements } = &mut *self.session;
        let all = || {
            let statement = match statements.get(sql) {
                Some(statement) => statement.clone(),
                None => client.prepare(&numbered(sql))?,
            };
            let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(|value| value as _).collect();
            let result = run(client, &statement, &values)?;
            if statements.len() >= PREPARED_STATEMENTS {
                statements.clear();
            }
            statements.insert(sql.to_owned(), statement);
            Ok(result)
        };
        let result: Result<R, postgres::Error> = all();
        result.map_err(|error| self.note(&error))
    }

    fn note(&mut self, error: &postgres::Error) -> DatabaseError {
        self.failed = Some(chain(error));
        self.of.failure(error)
    }
}

impl Transaction for Running<'_> {
    fn execute(&mut self, sql: &str, values: &[Cell]) -> Result<u64, DatabaseError> {
        self.run(sql, values, |client, statement, values| client.execute(statement, values))
    }

    fn query(&mut self, sql: &str, values: &[Cell]) -> Result<Vec<Row>, DatabaseError> {
        self.run(sql, values, |client, statement, values| {
            let rows = client.query(statement, values)?;
            let cells = |row: &postgres::Row| -> Result<Vec<Cell>, postgres::Error> {
                (0..row.len()).map(|column| row.try_get(column)).collect()
            };
            rows.iter().map(|row| Ok(Row::new(cells(row)?))).collect()
        })
    }

    fn define(&mut self, sql: &str) -> Result<(), DatabaseError> {
        let result = self.session.client.batch_execute(&translated(sql));
        result.map_err(|error| self.note(&error))
    }

    fn database(&self) -> &str {
        &self.of.name
    }
}

/// `?` as `$1`, `$2`, ...
fn numbered(sql: &str) -> String {
    let mut parts = sql.split('?');
    let mut numbered = parts.next().unwrap_or_default().to_owned();
    for (number, part) in (1..).zip(parts) {
        numbered.push_str(&format!("${number}"));
        numbered.push_str(part);
    }
    numbered
}

/// The types of SQLite under the names of PostgreSQL. Texts compare byte by byte, as they do there.
fn translated(sql: &str) -> String {
    let types =
        sql.replace("INTEGER", "BIGINT").replace("TEXT", "TEXT COLLATE \"C\"").replace("BLOB", "BYTEA");
    types.replace(") STRICT", ")")
}

impl ToSql for Cell {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            Self::Integer(number) if *ty == Type::INT4 => i32::try_from(*number)?.to_sql(ty, out),
            Self::Integer(number) if *ty == Type::INT8 => number.to_sql(ty, out),
            Self::Text(text) if <&str as ToSql>::accepts(ty) => text.as_str().to_sql(ty, out),
            Self::Bytes(bytes) if *ty == Type::BYTEA => bytes.as_slice().to_sql(ty, out),
            other => Err(format!("{other:?} where the database expects {ty}").into()),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Cell {
    fn from_sql(ty: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        match *ty {
            Type::INT4 => Ok(Self::Integer(i64::from(i32::from_sql(ty, raw)?))),
            Type::INT8 => Ok(Self::Integer(i64::from_sql(ty, raw)?)),
            Type::BYTEA => Ok(Self::Bytes(Vec::from_sql(ty, raw)?)),
            _ if <&str as FromSql<'_>>::accepts(ty) => Ok(Self::Text(String::from_sql(ty, raw)?)),
            _ => Err(format!("a column of type {ty}").into()),
        }
    }

    fn from_sql_null(_: &Type) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self::Null)
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

impl std::fmt::Debug for Postgres {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Postgres").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statement_is_translated() {
        assert_eq!(numbered("a = ? AND (b, c) > (?, ?)"), "a = $1 AND (b, c) > ($2, $3)");
        assert_eq!(numbered("a"), "a");
        let sql = translated("CREATE TABLE a (b INTEGER NOT NULL, c TEXT, d BLOB) STRICT");
        assert_eq!(sql, "CREATE TABLE a (b BIGINT NOT NULL, c TEXT COLLATE \"C\", d BYTEA)");
    }

    #[test]
    fn address_that_cannot_be_read_is_not_repeated() {
        let error = Postgres::connect("postgresql://u:secret@h:port/x").unwrap_err();
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}
