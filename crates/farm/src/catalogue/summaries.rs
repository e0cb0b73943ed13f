//! What the versions of vDisks come to, added up by the database: lists of vDisks show it, and a farm has many times as many
//! versions as vDisks.
use std::collections::HashMap;

use super::cell::{BadRow, Cell, Row};
use super::error::CatalogueError;
use super::reader::Reader;
use crate::model::{AccessKind, Choice as _, VdiskId, VersionNumber, VersionState};

/// vDisks that are asked about with one statement. A shorter list repeats its last one, so that there is one statement to
/// prepare.
const AT_ONCE: usize = 100;

/// All versions of a vDisk together; there is at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionSummary {
    /// How many there are.
    pub versions: u64,
    /// Those whose files are missing or changed.
    pub damaged: u64,
    /// The lengths of their files together, as far as they are known.
    pub files_bytes: u64,
    /// The one with the highest number.
    pub newest: VersionNumber,
    /// Who boots that one.
    pub newest_access: AccessKind,
    /// The size of the disk, in the newest version of which it is known.
    pub disk_bytes: Option<u64>,
}

impl Reader<'_> {
    /// What the versions of each of these vDisks come to; vDisks without a version are left out.
    ///
    /// # Errors
    /// The database's.
    pub fn version_summaries(
        &mut self,
        vdisks: &[VdiskId],
    ) -> Result<HashMap<VdiskId, VersionSummary>, CatalogueError> {
        let sql = statement();
        let mut found = HashMap::new();
        for some in vdisks.chunks(AT_ONCE) {
            let last = some.last().copied();
            let padded = some.iter().copied().map(Some).chain(std::iter::repeat(last)).take(AT_ONCE);
            let values: Vec<Cell> = padded.flatten().map(Cell::from).collect();
            for mut row in self.tx.query(&sql, &values)? {
                let (vdisk, summary) = summary(&mut row).map_err(|bad| self.damaged_at("version", &bad))?;
                found.insert(vdisk, summary);
            }
        }
        Ok(found)
    }
}

fn statement() -> String {
    let places = vec!["?"; AT_ONCE].join(", ");
    let (missing, changed) = (VersionState::Missing.word(), VersionState::Changed.word());
    // PostgreSQL adds 64-bit numbers up to one without a bound: the type says that it is to have one again.
    format!(
        "SELECT s.vdisk_id, s.versions, s.damaged, s.bytes, t.number, t.access, \
           (SELECT d.disk_size FROM version d WHERE d.vdisk_id = s.vdisk_id AND d.disk_size IS NOT NULL \
            ORDER BY d.number DESC LIMIT 1) \
         FROM (SELECT vdisk_id, count(*) AS versions, max(number) AS newest, \
                 count(CASE WHEN state IN ('{missing}', '{changed}') THEN 1 END) AS damaged, \
                 CAST(coalesce(sum(file_length), 0) AS BIGINT) AS bytes \
               FROM version WHERE vdisk_id IN ({places}) GROUP BY vdisk_id) s \
         JOIN version t ON t.vdisk_id = s.vdisk_id AND t.number = s.newest"
    )
}

fn summary(row: &mut Row) -> Result<(VdiskId, VersionSummary), BadRow> {
    let vdisk = row.id()?;
    let summary = VersionSummary {
        versions: row.small()?,
        damaged: row.small()?,
        files_bytes: row.small()?,
        newest: VersionNumber::new(row.small()?)?,
        newest_access: row.choice()?,
        disk_bytes: row.optional_small()?,
    };
    Ok((vdisk, summary))
}
