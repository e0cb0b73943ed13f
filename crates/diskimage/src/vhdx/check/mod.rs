//! The check of a VHDX file.
//!
//! It follows the file as a reader does: headers, log, region tables, metadata, block allocation table. Where a reader
//! stops at the first broken rule, the check notes it and goes on with what can still be believed. A log that must be
//! replayed is replayed in memory first, and all behind it is checked as it then is.
//!
//! What is checked of blocks is where they lie, not what they hold: the format has no checksums over payload.
use super::header::{self, Header};
use super::metadata;
use super::overlay::View;
use super::region::{self, RegionTable};
use super::{MIB, Metadata, Owned, file_type, read_bytes, replay};
use crate::check::{Finding, Report, Severity};
use crate::error::{Damage, Refusal};
use crate::storage::{Storage, StorageError};

mod space;
mod table;

use table::TableCheck;

const LAYOUT_RULE: &str = "[MS-VHDX] §2.1";
const HEADER_RULE: &str = "[MS-VHDX] §2.2.2";
const REGION_RULE: &str = "[MS-VHDX] §2.2.3";

/// See [`crate::check::check`].
pub(crate) fn check(storage: &dyn Storage) -> Result<Report, Refusal> {
    let mut report = Report::default();
    file_type::read(storage)?;
    let Some(header) = check_headers(storage, &mut report)? else { return Ok(report) };
    let overlay = match header.log_guid.non_nil() {
        None => None,
        Some(_) => match replay::replay(storage, &header) {
            Ok(overlay) => {
                let problem = "it must be replayed: the file was not closed";
                let damage = Damage::new("log", header.log_offset, "[MS-VHDX] §2.3.3", problem);
                report.add(Finding::new("vhdx-log-dirty", Severity::Warning, damage));
                Some(overlay)
            }
            Err(refusal) => {
                report.add(finding_of(refusal, "vhdx-log-broken", ("log", header.log_offset))?);
                None
            }
        },
    };
    let view = View { under: storage, overlay: overlay.as_ref() };
    let Some(regions) = check_region_tables(&view, &mut report)? else { return Ok(report) };
    let mut owned = vec![Owned { what: "the header section", start: 0, end: MIB }];
    owned.extend(header.log());
    owned.extend(regions.owned());
    check_layout(&owned, view.len().get(), &mut report);
    let Some(metadata) = check_metadata(&view, &regions, &mut report)? else { return Ok(report) };
    TableCheck::new(&view, &metadata, regions.bat, owned)?.run(&mut report)?;
    Ok(report)
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

/// The header that counts, if one does.
fn check_headers(storage: &dyn Storage, report: &mut Report) -> Result<Option<Header>, Refusal> {
    let [first_at, second_at] = header::PLACES;
    let read = |at| Ok::<_, Refusal>(read_structure(storage, at)?.and_then(|bytes| Header::parse(&bytes)));
    let (first, second) = (read(first_at)?, read(second_at)?);
    let lost =
        [(first.is_none(), first_at), (second.is_none(), second_at)].into_iter().filter(|(lost, _)| *lost);
    let lost: Vec<u64> = lost.map(|(_, at)| at).collect();
    let (header, at) = match header::current_of(first, second) {
        Ok(current) => current,
        Err(damage) => {
            let code = if lost.is_empty() { "vhdx-headers-ambiguous" } else { "vhdx-headers-lost" };
            report.add(Finding::new(code, Severity::Error, damage));
            return Ok(None);
        }
    };
    for at in lost {
        let problem = "it has no signature or no matching checksum; the other one counts";
        let damage = Damage::new("header", at, HEADER_RULE, problem);
        report.add(Finding::new("vhdx-header-damaged", Severity::Warning, damage));
    }
    match header.check(at) {
        Ok(()) => Ok(Some(header)),
        Err(refusal) => {
            report.add(finding_of(refusal, "vhdx-header-broken", ("header", at))?);
            Ok(None)
        }
    }
}

/// The regions, if a copy of the table can be believed.
fn check_region_tables(view: &dyn Storage, report: &mut Report) -> Result<Option<RegionTable>, Refusal> {
    let mut sound = Vec::new();
    let mut damaged = Vec::new();
    for at in region::PLACES {
        match read_structure::<{ region::TABLE_BYTES }>(view, at)?
            .filter(|bytes| region::is_sound(&bytes[..]))
        {
            Some(bytes) => sound.push((at, bytes)),
            None => damaged.push(at),
        }
    }
    let Some((at, bytes)) = sound.first() else {
        let [at, _] = region::PLACES;
        let problem = "neither of the two copies has a signature and a matching checksum";
        let damage = Damage::new("region table", at, REGION_RULE, problem);
        report.add(Finding::new("vhdx-region-tables-lost", Severity::Error, damage));
        return Ok(None);
    };
    for at in damaged {
        let problem = "it has no signature or no matching checksum; the other copy counts";
        let damage = Damage::new("region table", at, REGION_RULE, problem);
        report.add(Finding::new("vhdx-region-table-damaged", Severity::Warning, damage));
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

/// What the disk is like, if that can be read.
fn check_metadata(
    view: &dyn Storage,
    regions: &RegionTable,
    report: &mut Report,
) -> Result<Option<Metadata>, Refusal> {
    let region = regions.metadata;
    let place = ("metadata table", region.at);
    let metadata = match Metadata::read(view, region) {
        Ok(metadata) => metadata,
        Err(refusal @ (Refusal::Incomplete | Refusal::Empty)) => {
            let is_empty = matches!(refusal, Refusal::Empty);
            let code = if is_empty { "vhdx-disk-empty" } else { "vhdx-incomplete" };
            let damage = Damage::new("metadata table", region.at, "[MS-VHDX] §2.6", refusal.to_string());
            report.add(Finding::new(code, Severity::Error, damage));
            return Ok(None);
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
    Ok(Some(metadata))
}
