//! The check of a VHD file, and its repair from what the format keeps twice.
use block::{ByteOffset, Patience};

use super::{Footer, FooterPlace, SECTOR_BYTES};
use crate::check::{Finding, Report, Severity};
use crate::error::{Damage, Refusal};
use crate::storage::{Storage, WritableStorage};

const FOOTER_LOST: &str = "vhd-footer-lost";
const DAMAGED: &str = "vhd-damaged";

/// See [`crate::check::check`].
pub(crate) fn check(storage: &dyn Storage) -> Result<Report, Refusal> {
    examine(storage, None)
}

/// See [`crate::check::repair`].
pub(crate) fn repair(storage: &dyn WritableStorage) -> Result<Report, Refusal> {
    examine(storage, Some(storage))
}

fn examine(storage: &dyn Storage, target: Option<&dyn WritableStorage>) -> Result<Report, Refusal> {
    let mut report = Report::default();
    match Footer::read(storage) {
        Ok((_, FooterPlace::End(_))) => {}
        Ok((_, FooterPlace::Start)) => {
            let end = storage.len().get();
            if let Some(target) = target {
                let mut copy = [0; SECTOR_BYTES as usize];
                target.read_at(ByteOffset::ZERO, &mut copy, Patience::Blocking)?;
                target.write_at(ByteOffset::new(end.next_multiple_of(SECTOR_BYTES)), &copy)?;
                target.flush()?;
            }
            let problem = "there is no sound footer; its copy at the start of the file is sound";
            let damage = Damage::new("footer", end, "[VHD] Hard Disk Footer Format", problem);
            report.add(Finding::new(FOOTER_LOST, Severity::Warning, damage).repairable(target.is_some()));
        }
        Err(Refusal::Damaged(damage)) => report.add(Finding::new(DAMAGED, Severity::Error, damage)),
        Err(refusal) => return Err(refusal),
    }
    Ok(report)
}
