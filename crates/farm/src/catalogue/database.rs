//! What the catalogue needs of a database: transactions, and statements in the part of SQL that both understand.
//!
//! # The dialect
//! Statements stand once, for both databases. They keep to this: parameters are `?`, in the order of the values, and no
//! `?` stands anywhere else; types are `INTEGER` (64 bits), `TEXT` and `BLOB`; texts compare byte by byte; rows of
//! values compare (`(a, b) > (?, ?)`); `LIKE` is given texts in lower case alone, with `ESCAPE '\'`;
//! what is to be there once and may be there already is `INSERT ... ON CONFLICT (key) DO UPDATE SET ... = excluded...`.
//!
//! # Transactions
//! A write transaction is alone: no other one begins before it has ended. That makes "look, decide by the rules, write"
//! safe without a retry, and gives changes one order. Catalogues are changed by people and at boots' pace, which one
//! writer at a time carries with ease. Read transactions see one state of everything and wait for nobody.
use std::path::Path;

use super::cell::{Cell, Row};
use super::error::{CatalogueError, DatabaseError};

/// What a transaction does.
pub type Work<'a> = &'a mut dyn FnMut(&mut dyn Transaction) -> Result<(), CatalogueError>;

/// A database: SQLite or PostgreSQL.
pub trait Database: Send + Sync {
    /// What messages call it: a path, or an address without password.
    fn name(&self) -> &str;

    /// Does `work` on one state of everything, without changing it.
    ///
    /// # Errors
    /// What `work` says, or [`DatabaseError`].
    fn read(&self, work: Work<'_>) -> Result<(), CatalogueError>;

    /// Does `work`, alone, and makes it lasting; or, where that fails, undoes all of it.
    ///
    /// # Errors
    /// What `work` says, or [`DatabaseError`].
    fn write(&self, work: Work<'_>) -> Result<(), CatalogueError>;

    /// Copies the present state to a new file, while others go on reading and writing.
    ///
    /// # Errors
    /// [`DatabaseError`].
    fn backup(&self, to: &Path) -> Result<(), DatabaseError>;
}

/// A transaction that is under way.
pub trait Transaction {
    /// Changes rows; gives how many.
    ///
    /// # Errors
    /// [`DatabaseError`].
    fn execute(&mut self, sql: &str, values: &[Cell]) -> Result<u64, DatabaseError>;

    /// Reads rows.
    ///
    /// # Errors
    /// [`DatabaseError`].
    fn query(&mut self, sql: &str, values: &[Cell]) -> Result<Vec<Row>, DatabaseError>;

    /// Runs a statement that makes or alters tables.
    ///
    /// # Errors
    /// [`DatabaseError`].
    fn define(&mut self, sql: &str) -> Result<(), DatabaseError>;

    /// What messages call the database.
    fn database(&self) -> &str;
}
