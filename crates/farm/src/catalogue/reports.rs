//! What servers say of themselves and of the devices that they serve: written every few seconds, and so neither audited nor a change that snapshots follow.
use std::collections::HashMap;

use super::cell::{BadRow, Cell, Row};
use super::change::Change;
use super::error::CatalogueError;
use super::reader::Reader;
use crate::model::{BadValue, DeviceId, DeviceReport, MAX_REPORT_BYTES, ServerId, ServerReport};

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

    /// What all servers but this one said of devices last, whether or not they still serve.
    ///
    /// # Errors
    /// The database's.
    pub fn device_reports_but(&mut self, server: ServerId) -> Result<Vec<DeviceReport>, CatalogueError> {
        let sql = "SELECT server_id, device_id, told FROM device_report WHERE server_id <> ?";
        let rows = self.tx.query(sql, &[server.into()])?;
        let reports: Result<_, BadRow> = rows.into_iter().map(|mut row| device_report(&mut row)).collect();
        reports.map_err(|bad| self.damaged_at("device_report", &bad))
    }
}

impl Change<'_> {
    /// Says in the name of a server that it runs, and what it carries, as JSON; `None`: that it stops.
    ///
    /// # Errors
    /// [`CatalogueError::NotFound`] of a server that was taken away, [`CatalogueError::BadValue`] of a load of more than
    /// [`MAX_REPORT_BYTES`], or the database's.
    pub fn report_server(&mut self, server: ServerId, load: Option<&str>) -> Result<(), CatalogueError> {
        load.map_or(Ok(()), |load| fits("the load of a server", load))?;
        self.get(server)?;
        let sql = "INSERT INTO server_report (server_id, at, load) VALUES (?, ?, ?) \
            ON CONFLICT (server_id) DO UPDATE SET at = excluded.at, load = excluded.load";
        self.reader.tx.execute(sql, &[server.into(), self.at.into(), Cell::from(load)])?;
        Ok(())
    }

    /// Says in the name of a server what devices do there, as JSON; `None`: nothing more. Devices that were taken away
    /// are passed over.
    ///
    /// # Errors
    /// [`CatalogueError::BadValue`] of a text of more than [`MAX_REPORT_BYTES`], or the database's.
    pub fn report_devices(
        &mut self,
        server: ServerId,
        told: &[(DeviceId, Option<String>)],
    ) -> Result<(), CatalogueError> {
        for (device, told) in told {
            let Some(told) = told else {
                let sql = "DELETE FROM device_report WHERE server_id = ? AND device_id = ?";
                self.reader.tx.execute(sql, &[server.into(), (*device).into()])?;
                continue;
            };
            fits("what a device does", told)?;
            let sql = "INSERT INTO device_report (server_id, device_id, told) \
                SELECT server.id, device.id, ? FROM server, device WHERE server.id = ? AND device.id = ? \
                ON CONFLICT (server_id, device_id) DO UPDATE SET told = excluded.told";
            self.reader.tx.execute(sql, &[told.as_str().into(), server.into(), (*device).into()])?;
        }
        Ok(())
    }

    /// Forgets what a server said of devices: it begins, or ends.
    ///
    /// # Errors
    /// The database's.
    pub fn forget_device_reports(&mut self, server: ServerId) -> Result<(), CatalogueError> {
        self.reader.tx.execute("DELETE FROM device_report WHERE server_id = ?", &[server.into()])?;
        Ok(())
    }
}

fn fits(what: &'static str, text: &str) -> Result<(), BadValue> {
    let fits = text.len() <= MAX_REPORT_BYTES;
    if fits { Ok(()) } else { Err(BadValue::new(what, text, "at most 16 KiB")) }
}

fn device_report(row: &mut Row) -> Result<DeviceReport, BadRow> {
    Ok(DeviceReport { server: row.id()?, device: row.id()?, told: row.text()? })
}

fn report(row: &mut Row) -> Result<(ServerId, ServerReport), BadRow> {
    Ok((row.id()?, ServerReport { at: row.time()?, load: row.optional_text()? }))
}
