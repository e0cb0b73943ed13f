//! The check of a VHDX file.
//!
//! It follows the file as a reader does: headers, log, region tables, metadata, block allocation table. Where a reader
//! stops at the first broken rule, the check notes it and goes on with what can still be believed. A log that must be
//! replayed is replayed in memory first, and all behind it is checked as it then is.
//!
//! A repair is the same check, after which [`Mending`] does what the findings allow: it restores what the file holds
//! twice, brings the log's changes to their places, and cuts off or fills up an end that no object has. It never makes
//! up a disk's bytes.
//!
//! What is checked of blocks is where they lie, not what they hold: the format has no checksums over payload.
use super::header::{self, Header};
use super::metadata;
use super::overlay::View;
use super::region::{self, RegionTable};
use super::{MIB, Metadata, Owned, file_type, read_bytes, replay};
use crate::check::{Finding, Report, Severity};
use crate::error::{Damage, Refusal};
use crate::storage::{Storage, StorageError, WritableStorage};

mod mending;
mod space;
mod table;

use mending::Mending;
use table::TableCheck;

const LAYOUT_RULE: &str = "[MS-VHDX] §2.1";
const HEADER_RULE: &str = "[MS-VHDX] §2.2.2";
const REGION_RULE: &str = "[MS-VHDX] §2.2.3";

/// See [`crate::check::check`].
pub(crate) fn check(storage: &dyn Storage) -> Result<Report, Refusal> {
    let mut report = Report::default();
    Examination { storage, repaired: false, mending: Mending::default() }.run(&mut report)?;
    Ok(report)
}

/// See [`crate::check::repair`].
pub(crate) fn repair(storage: &dyn WritableStorage) -> Result<Report, Refusal> {
    let mut report = Report::default();
    let examination = Examination { storage, repaired: true, mending: Mending::default() };
    examination.run(&mut report)?.apply(storage)?;
    Ok(report)
}

/// A check in progress.
struct Examination<'a> {
    storage: &'a dyn Storage,
    /// Whether what can be repaired will have been when the report is read.
    repaired: bool,
    mending: Mending,
}

impl Examination<'_> {
    fn run(mut self, report: &mut Report) -> Result<Mending, Refusal> {
        let storage = self.storage;
        file_type::read(storage)?;
        let Some(Headers { header, at, lost }) = check_headers(storage, report)? else {
            return Ok(self.mending);
        };
        let replayed = match header.log_guid.non_nil() {
            None => Ok(None),
            Some(_) => replay::replay(storage, &header).map(Some),
        };
        if let Some(at) = lost {
            let problem = "it has no signature or no matching checksum; the other one counts";
            let damage = Damage::new("header", at, HEADER_RULE, problem);
            let finding = Finding::new("vhdx-header-damaged", Severity::Warning, damage);
            report.add(if replayed.is_ok() { finding.repairable(self.repaired) } else { finding });
        }
        let overlay = match replayed {
            Ok(overlay) => {
                self.mending.begin(header.clone(), at, lost.is_some());
                overlay
            }
            Err(refusal) => {
                // Without the log's changes nobody knows what the file is: nothing in it is touched.
                report.add(finding_of(refusal, "vhdx-log-broken", ("log", header.log_offset))?);
                None
            }
        };
        if overlay.is_some() {
            let problem = "it must be replayed: the file was not closed";
            let damage = Damage::new("log", header.log_offset, "[MS-VHDX] §2.3.3", problem);
            let finding = Finding::new("vhdx-log-dirty", Severity::Warning, damage);
            report.add(finding.repairable(self.repaired));
            check_torn(storage, &header, report)?;
        }
        let view = View { under: storage, overlay: overlay.as_ref() };
        self.check_behind_log(&view, &header, report)?;
        self.mending.overlay = overlay;
        Ok(self.mending)
    }

    fn check_behind_log(
        &mut self,
        view: &View<'_>,
        header: &Header,
        report: &mut Report,
    ) -> Result<(), Refusal> {
        let Some(regions) = self.check_region_tables(view, report)? else { return Ok(()) };
        let mut owned = vec![Owned { what: "the header section", start: 0, end: MIB }];
        owned.extend(header.log());
        owned.extend(regions.owned());
        check_layout(&owned, view.len().get(), report);
        let metadata = match check_metadata(view, &regions, report)? {
            Some(Described::Whole(metadata)) => metadata,
            Some(Described::Incomplete) => {
                self.mending = Mending::default();
                return Ok(());
            }
            None => return Ok(()),
        };
        let end = TableCheck::new(view, &metadata, regions.bat, owned)?.run(report)?;
        check_end(view.len().get(), end, report, self.repaired);
        // Where a place is in doubt, so is whether nobody needs the end.
        if report.count(Severity::Error) == 0 && end != view.len().get() {
            self.mending.end = Some(end);
        }
        Ok(())
    }

    /// The regions, if a copy of the table can be believed.
    fn check_region_tables(
        &mut self,
        view: &dyn Storage,
        report: &mut Report,
    ) -> Result<Option<RegionTable>, Refusal> {
        let mut sound = Vec::new();
        let mut damaged = None;
        for at in region::PLACES {
            let bytes = read_structure::<{ region::TABLE_BYTES }>(view, at)?;
            match bytes.filter(|bytes| region::is_sound(&bytes[..])) {
                Some(bytes) => sound.push((at, bytes)),
                None => damaged = Some(at),
            }
        }
        let Some((at, bytes)) = sound.first() else {
            let [at, _] = region::PLACES;
            let problem = "neither of the two copies has a signature and a matching checksum";
            let damage = Damage::new("region table", at, REGION_RULE, problem);
            report.add(Finding::new("vhdx-region-tables-lost", Severity::Error, damage));
            return Ok(None);
        };
        if let Some(at) = damaged {
            let problem = "it has no signature or no matching checksum; the other copy counts";
            let damage = Damage::new("region table", at, REGION_RULE, problem);
            let finding = Finding::new("vhdx-region-table-damaged", Severity::Warning, damage);
            report.add(if self.mending.is_begun() { finding.repairable(self.repaired) } else { finding });
            self.mending.region_table = Some((at, bytes.to_vec()));
        }
        if let Some((other_at, _)) = sound.iter().find(|(_, other)| other != bytes) {
            let problem = format!("it differs from the copy at {at:#x}, which readers take");
            let damage = Damage::new("region table", *other_at, REGION_RULE, problem);
            report.add(Finding::new("vhdx-region-tables-differ", Severity::Warning, damage));
        }
        match RegionTable::parse(&bytes[..], *at) {
            Ok(regions) => Ok(Some(regions)),
            Err(refusal) => {
                report.add(finding_of(refusal, "vhdx-region-table-broken", ("region table", *at))?);
                Ok(None)
            }
        }
    }
}

/// The end of the file, where the last object ends at `end`.
fn check_end(file_bytes: u64, end: u64, report: &mut Report, repaired: bool) {
    let is_sure = report.count(Severity::Error) == 0;
    let mut add = |code, at, problem| {
        let finding = Finding::new(code, Severity::Note, Damage::new("file", at, LAYOUT_RULE, problem));
        report.add(if is_sure { finding.repairable(repaired) } else { finding });
    };
    if !file_bytes.is_multiple_of(MIB) {
        let problem = format!("its length, {file_bytes} bytes, is no number of whole MiB");
        add("vhdx-length-unaligned", file_bytes, problem);
    }
    if end < file_bytes {
        let tail = file_bytes.saturating_sub(end);
        add("vhdx-tail-unused", end, format!("the last {tail} bytes belong to no object"));
    }
}

/// What a reader would refuse the file for, as a finding; what is no finding stays a refusal.
fn finding_of(
    refusal: Refusal,
    code: &'static str,
    (structure, at): (&'static str, u64),
) -> Result<Finding, Refusal> {
    let damage = match refusal {
        Refusal::Damaged(damage) => damage,
        Refusal::Storage(error @ StorageError::EndOfFile { .. }) => {
            Damage::new(structure, at, LAYOUT_RULE, error.to_string())
        }
        other => return Err(other),
    };
    Ok(Finding::new(code, Severity::Error, damage))
}

/// The structure of `N` bytes at `at`; none in a file that ends before.
fn read_structure<const N: usize>(storage: &dyn Storage, at: u64) -> Result<Option<Box<[u8; N]>>, Refusal> {
    match read_bytes::<N>(storage, at) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(Refusal::Storage(StorageError::EndOfFile { .. })) => Ok(None),
        Err(refusal) => Err(refusal),
    }
}

/// Entries that are newer than those that count, and not intact. A crash leaves such, before anything relies on them;
/// but so would damage, and then what they say is lost.
fn check_torn(storage: &dyn Storage, header: &Header, report: &mut Report) -> Result<(), Refusal> {
    let torn = replay::torn_entries(storage, header)?;
    if torn > 0 {
        let problem = format!(
            "{torn} entries that are newer than the last one to be replayed are not intact, as a crash leaves them \
             that came while they were written"
        );
        let damage = Damage::new("log", header.log_offset, "[MS-VHDX] §2.3.2", problem);
        report.add(Finding::new("vhdx-log-torn", Severity::Note, damage));
    }
    Ok(())
}

/// What the two headers come to.
struct Headers {
    /// The one that counts.
    header: Header,
    /// Its place.
    at: u64,
    /// The place of the other, if that is damaged.
    lost: Option<u64>,
}

/// The headers, if one of them counts.
fn check_headers(storage: &dyn Storage, report: &mut Report) -> Result<Option<Headers>, Refusal> {
    let [first_at, second_at] = header::PLACES;
    let read = |at| Ok::<_, Refusal>(read_structure(storage, at)?.and_then(|bytes| Header::parse(&bytes)));
    let (first, second) = (read(first_at)?, read(second_at)?);
    let lost = match (&first, &second) {
        (None, _) => Some(first_at),
        (_, None) => Some(second_at),
        (Some(_), Some(_)) => None,
    };
    let (header, at) = match header::current_of(first, second) {
        Ok(current) => current,
        Err(damage) => {
            let code = if lost.is_none() { "vhdx-headers-ambiguous" } else { "vhdx-headers-lost" };
            report.add(Finding::new(code, Severity::Error, damage));
            return Ok(None);
        }
    };
    match header.check(at) {
        Ok(()) => Ok(Some(Headers { header, at, lost })),
        Err(refusal) => {
            report.add(finding_of(refusal, "vhdx-header-broken", ("header", at))?);
            Ok(None)
        }
    }
}

/// [MS-VHDX] §2.1: the log and the regions lie in the file, behind the header section, and not over each other.
fn check_layout(owned: &[Owned], file_bytes: u64, report: &mut Report) {
    let mut sorted = owned.to_vec();
    sorted.sort_unstable_by_key(|owned| (owned.start, owned.end));
    let mut reach: Option<Owned> = None;
    for owned in sorted {
        if let Some(before) = reach.filter(|before| owned.start < before.end) {
            let problem = format!("it begins inside {}, which ends at {:#x}", before.what, before.end);
            let damage = Damage::new(owned.what, owned.start, LAYOUT_RULE, problem);
            report.add(Finding::new("vhdx-regions-overlap", Severity::Error, damage));
        }
        if owned.end > file_bytes {
            let problem =
                format!("it ends at {:#x}, behind the end of the file at {file_bytes:#x}", owned.end);
            let damage = Damage::new(owned.what, owned.start, LAYOUT_RULE, problem);
            report.add(Finding::new("vhdx-region-cut", Severity::Error, damage));
        }
        if reach.is_none_or(|before| owned.end > before.end) {
            reach = Some(owned);
        }
    }
}

/// What the metadata says.
enum Described {
    Whole(Metadata),
    Incomplete,
}

/// What the disk is like, if that can be read.
fn check_metadata(
    view: &dyn Storage,
    regions: &RegionTable,
    report: &mut Report,
) -> Result<Option<Described>, Refusal> {
    let region = regions.metadata;
    let place = ("metadata table", region.at);
    let metadata = match Metadata::read(view, region) {
        Ok(metadata) => metadata,
        Err(refusal @ (Refusal::Incomplete | Refusal::Empty)) => {
            let is_empty = matches!(refusal, Refusal::Empty);
            let code = if is_empty { "vhdx-disk-empty" } else { "vhdx-incomplete" };
            let damage = Damage::new("metadata table", region.at, "[MS-VHDX] §2.6", refusal.to_string());
            report.add(Finding::new(code, Severity::Error, damage));
            return Ok((!is_empty).then_some(Described::Incomplete));
        }
        Err(refusal) => {
            report.add(finding_of(refusal, "vhdx-metadata-broken", place)?);
            return Ok(None);
        }
    };
    for (code, problem) in metadata::oddities(view, region)? {
        let damage = Damage::new("metadata table", region.at, "[MS-VHDX] §2.6.1.2", problem);
        report.add(Finding::new(code, Severity::Warning, damage));
    }
    Ok(Some(Described::Whole(metadata)))
}
