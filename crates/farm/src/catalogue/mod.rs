//! The catalogue: the whole farm in a database, SQLite or PostgreSQL.
//!
//! - [`Catalogue::read`] sees one state of everything. [`Catalogue::change`] is a transaction: everything that is done
//!   in it becomes true at once, with an audit entry for each object, or nothing does.
//! - Objects have revisions. Who changes one says which revision the change is meant for, and is refused where somebody
//!   else was faster.
//! - Both databases are behind one small trait ([`Database`]) and get the same SQL; one suite of tests holds both to
//!   the same behaviour.
//!
//! Calls wait for the disk or the network. They must not be made on a thread that drives asynchronous work.
mod audit;
mod cell;
mod change;
mod database;
mod error;
mod find;
mod import;
mod leases;
mod list;
mod look;
mod newcomers;
mod once;
mod postgres;
mod reader;
mod record;
mod records;
mod reports;
mod schema;
mod sqlite;
mod summaries;
mod tasks;
mod versions;

use std::path::Path;

pub use audit::AUDIT_FIELDS;
pub use cell::{BadRow, Cell, Row};
pub use change::Change;
pub use database::{Database, Transaction, Work};
pub use error::{CatalogueError, DatabaseError, Holders};
pub use import::{BadTable, ImportOptions, Imported, MayChange};
pub use leases::LEASE_FIELDS;
pub use list::{Cursor, ListQuery, MAX_PAGE, Page};
pub use look::{Look, look};
pub use postgres::{CONNECT_TIMEOUT, Postgres};
pub use reader::Reader;
pub use record::{Child, Record, Reference, Table, Unique};
pub use schema::SCHEMA;
pub use sqlite::{BUSY_TIMEOUT, Sqlite};
pub use summaries::VersionSummary;

use crate::model::{Actor, ChangeNumber, Timestamp};

/// The whole farm in a database.
pub struct Catalogue {
    database: Box<dyn Database>,
}

impl Catalogue {
    /// On a database, which is brought to the present schema.
    ///
    /// # Errors
    /// [`DatabaseError::Newer`] where a later version of this program has used it, or another of the database's.
    pub fn open(database: impl Database + 'static) -> Result<Self, CatalogueError> {
        schema::migrate(&database)?;
        Ok(Self { database: Box::new(database) })
    }

    /// In a file, which is made if it is not there.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_file(path: &Path) -> Result<Self, CatalogueError> {
        Self::open(Sqlite::open(path)?)
    }

    /// In a file, for reading alone: by programs beside the server. It is not brought to the present schema; where it has
    /// another one ([`look`] tells), reading fails.
    ///
    /// # Errors
    /// [`DatabaseError`] where it cannot be opened.
    pub fn open_read_only(path: &Path) -> Result<Self, CatalogueError> {
        Ok(Self { database: Box::new(Sqlite::open_read_only(path)?) })
    }

    /// What messages call the database.
    #[must_use]
    pub fn name(&self) -> &str {
        self.database.name()
    }

    /// Reads one state of everything.
    ///
    /// # Errors
    /// What `work` says, or the database's.
    pub fn read<R>(
        &self,
        mut work: impl FnMut(&mut Reader<'_>) -> Result<R, CatalogueError>,
    ) -> Result<R, CatalogueError> {
        let mut result = None;
        self.database.read(&mut |tx| {
            result = Some(work(&mut Reader { tx })?);
            Ok(())
        })?;
        result.ok_or_else(|| self.did_nothing())
    }

    /// Changes what `work` says, at the moment `at`, in the name of `by`. Where `work` fails, nothing was changed.
    ///
    /// # Errors
    /// What `work` says, or the database's.
    pub fn change<R>(
        &self,
        by: &Actor,
        at: Timestamp,
        mut work: impl FnMut(&mut Change<'_>) -> Result<R, CatalogueError>,
    ) -> Result<R, CatalogueError> {
        let mut result = None;
        self.database.write(&mut |tx| {
            let mut reader = Reader { tx };
            let head = Change::read_head(&mut reader)?;
            let mut change = Change { reader, by, at, head };
            let done = work(&mut change)?;
            if change.head != head {
                change.write_head()?;
            }
            result = Some(done);
            Ok(())
        })?;
        result.ok_or_else(|| self.did_nothing())
    }

    /// As [`change`](Self::change), but nothing becomes true: tells what a change would do, or why it would fail.
    ///
    /// # Errors
    /// As [`change`](Self::change).
    pub fn rehearse<R>(
        &self,
        by: &Actor,
        at: Timestamp,
        mut work: impl FnMut(&mut Change<'_>) -> Result<R, CatalogueError>,
    ) -> Result<R, CatalogueError> {
        let mut result = None;
        let undone = self.change(by, at, |change| {
            result = Some(work(change)?);
            // An error is what undoes a transaction.
            Err::<(), _>(CatalogueError::Rehearsed)
        });
        match (undone, result) {
            (Err(CatalogueError::Rehearsed), Some(result)) => Ok(result),
            (Err(error), _) => Err(error),
            (Ok(()), _) => Err(self.did_nothing()),
        }
    }

    /// The number of the latest change.
    ///
    /// # Errors
    /// The database's.
    pub fn latest_change(&self) -> Result<ChangeNumber, CatalogueError> {
        self.read(|reader| Change::read_head(reader).map(|head| head.last_change))
    }

    /// Copies the present state into a new file, while work goes on.
    ///
    /// # Errors
    /// [`DatabaseError`]: of PostgreSQL always, which has programs of its own for it.
    pub fn backup(&self, to: &Path) -> Result<(), CatalogueError> {
        Ok(self.database.backup(to)?)
    }

    /// A driver that says that all went well without having called us is wrong.
    fn did_nothing(&self) -> CatalogueError {
        let database = self.database.name().to_owned();
        DatabaseError::Other { database, why: "the transaction was not carried out".to_owned() }.into()
    }
}

impl std::fmt::Debug for Catalogue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Catalogue").field("database", &self.database.name()).finish()
    }
}
