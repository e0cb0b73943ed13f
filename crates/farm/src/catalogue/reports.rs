//! What servers say of themselves: written every few seconds, and so neither audited nor a change that snapshots follow.
use std::collections::HashMap;

use super::cell::{BadRow, Cell, Row};
use super::change::Change;
use super::error::CatalogueError;
use super::reader::Reader;
use crate::model::{BadValue, MAX_LOAD_BYTES, ServerId, ServerReport};

impl Reader<'_> {
    /// What each server said of itself last; those that were never heard of are left out.
    ///
    /// # Errors
    /// The database's.
    pub fn server_reports(&mut self) -> Result<HashMap<ServerId, ServerReport>, CatalogueError> {
        let rows = self.tx.query("SELECT server_id, at, load FROM server_report", &[])?;
        let reports: Result<_, BadRow> = rows.into_iter().map(|mut row| report(&mut row)).collect();
        reports.map_err(|bad| self.damaged_at("server_report", &bad))
    }
}

impl Change<'_> {
    /// Says in the name of a server that it runs, and what it carries, as JSON; `None`: that it stops.
    ///
    /// # Errors
    /// [`CatalogueError::NotFound`] of a server that was taken away, [`CatalogueError::BadValue`] of a load of more than
    /// [`MAX_LOAD_BYTES`], or the database's.
    pub fn report_server(&mut self, server: ServerId, load: Option<&str>) -> Result<(), CatalogueError> {
        if let Some(long) = load.filter(|load| load.len() > MAX_LOAD_BYTES) {
            return Err(BadValue::new("the load of a server", long, "at most 16 KiB").into());
        }
        self.get(server)?;
        let sql = "INSERT INTO server_report (server_id, at, load) VALUES (?, ?, ?) \
            ON CONFLICT (server_id) DO UPDATE SET at = excluded.at, load = excluded.load";
        self.reader.tx.execute(sql, &[server.into(), self.at.into(), Cell::from(load)])?;
        Ok(())
    }
}

fn report(row: &mut Row) -> Result<(ServerId, ServerReport), BadRow> {
    Ok((row.id()?, ServerReport { at: row.time()?, load: row.optional_text()? }))
}
