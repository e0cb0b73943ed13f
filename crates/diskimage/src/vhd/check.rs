//! The check of a VHD file, and its repair from what the format keeps twice.
//!
//! Read are the footers, the header, the parent's paths and the table: all that says where bytes are. Mended are the
//! footer and its copy, each from the other, and the file's tail, which a crash may have left behind the last block.
//! Blocks that lie over each other or outside the file are for whoever knows what they should hold.
use block::{ByteLength, ByteOffset};

use super::file_map::{FileMap, Misplaced};
use super::footer::{DiskType, FooterBytes, FooterPlace, RULE as FOOTER_RULE};
use super::geometry::DiskGeometry;
use super::shape::{ALIGNMENT, footer_behind};
use super::{Footer, SECTOR_BYTES, create};
use crate::check::{Finding, Report, Severity};
use crate::error::{Damage, Refusal};
use crate::storage::{Storage, StorageError, WritableStorage};

const FOOTER_LOST: &str = "vhd-footer-lost";
const FOOTER_DAMAGED: &str = "vhd-footer-damaged";
const FOOTER_SHORT: &str = "vhd-footer-short";
const COPY_LOST: &str = "vhd-copy-lost";
const COPY_DIFFERS: &str = "vhd-copy-differs";
const SIZE: &str = "vhd-size";
const GEOMETRY: &str = "vhd-geometry";
const FIXED_SHORT: &str = "vhd-fixed-short";
const HEADER_DAMAGED: &str = "vhd-header-damaged";
const LOCATOR_DAMAGED: &str = "vhd-locator-damaged";
const NO_PARENT_PATH: &str = "vhd-no-parent-path";
const OUTSIDE: &str = "vhd-outside";
const OVERLAP: &str = "vhd-overlap";
const MISALIGNED: &str = "vhd-misaligned";
const TAIL_UNUSED: &str = "vhd-tail-unused";

const FOOTER: &str = "footer";
const COPY_RULE: &str = "[VHD] Dynamic Hard Disk Image: a copy of the footer at the start";
const BLOCKS_RULE: &str = "[VHD] Block Allocation Table and Data Blocks";

/// See [`crate::check::check`].
pub(crate) fn check(storage: &dyn Storage) -> Result<Report, Refusal> {
    Examination { storage, target: None, report: Report::default() }.examine()
}

/// See [`crate::check::repair`].
pub(crate) fn repair(storage: &dyn WritableStorage) -> Result<Report, Refusal> {
    Examination { storage, target: Some(storage), report: Report::default() }.examine()
}

/// A check on its way.
struct Examination<'a> {
    storage: &'a dyn Storage,
    /// Where repairs go, if there shall be any.
    target: Option<&'a dyn WritableStorage>,
    report: Report,
}

impl Examination<'_> {
    fn examine(mut self) -> Result<Report, Refusal> {
        let (footer, place, bytes) = match Footer::read_with_bytes(self.storage) {
            Ok(found) => found,
            Err(Refusal::Damaged(damage)) => {
                self.error(FOOTER_DAMAGED, damage);
                return Ok(self.report);
            }
            Err(refusal) => return Err(refusal),
        };
        if let Err(refusal) = footer.virtual_bytes(place) {
            let damage = damage_of(refusal, SIZE, place.at())?;
            self.error(SIZE, damage);
            return Ok(self.report);
        }
        self.examine_size(&footer, place);
        if footer.disk_type == DiskType::Fixed {
            self.examine_fixed(&footer, place)?;
            return Ok(self.report);
        }
        let is_copy_right = self.examine_footers(place, &bytes)?;
        let map = match FileMap::read(self.storage, footer, place) {
            Ok(map) => Some(map),
            Err(refusal) => {
                let damage = damage_of(refusal, "dynamic disk header", place.at())?;
                let is_locator = damage.structure == "parent locator";
                self.error(if is_locator { LOCATOR_DAMAGED } else { HEADER_DAMAGED }, damage);
                None
            }
        };
        // The end of what is used, where that can be told.
        let used_end = map.and_then(|map| self.examine_map(&map, place));
        self.mend(place, &bytes, is_copy_right, used_end)?;
        Ok(self.report)
    }

    fn error(&mut self, code: &'static str, damage: Damage) {
        self.report.add(Finding::new(code, Severity::Error, damage));
    }

    fn note(&mut self, code: &'static str, damage: Damage) {
        self.report.add(Finding::new(code, Severity::Note, damage));
    }

    fn mendable(&mut self, code: &'static str, severity: Severity, damage: Damage) {
        self.report.add(Finding::new(code, severity, damage).repairable(self.target.is_some()));
    }

    /// Footer and copy; whether the copy is the footer.
    fn examine_footers(&mut self, place: FooterPlace, footer: &FooterBytes) -> Result<bool, StorageError> {
        let FooterPlace::End(at) = place else {
            let at_end = Footer::find_at_end(self.storage)?;
            let (code, at, problem) = match at_end {
                Some((at, _)) => {
                    (FOOTER_DAMAGED, at, "its checksum is wrong; the copy at the start is sound")
                }
                None => {
                    (FOOTER_LOST, self.storage.len().get(), "it is missing; the copy at the start is sound")
                }
            };
            self.mendable(code, Severity::Warning, Damage::new(FOOTER, at, FOOTER_RULE, problem));
            return Ok(true);
        };
        if self.storage.len().get().saturating_sub(at) < SECTOR_BYTES {
            let problem = "it has 511 bytes, as Virtual PC wrote it before 2004";
            self.note(FOOTER_SHORT, Damage::new(FOOTER, at, FOOTER_RULE, problem));
        }
        let copy = Footer::copy_at_start(self.storage)?;
        match &copy {
            Some(copy) if copy == footer => return Ok(true),
            Some(_) => {
                let damage = Damage::new(FOOTER, 0, COPY_RULE, "the copy differs from the footer at the end");
                self.mendable(COPY_DIFFERS, Severity::Warning, damage);
            }
            None => {
                let damage =
                    Damage::new(FOOTER, 0, COPY_RULE, "the copy is missing; the footer at the end is sound");
                self.mendable(COPY_LOST, Severity::Warning, damage);
            }
        }
        Ok(false)
    }

    fn examine_size(&mut self, footer: &Footer, place: FooterPlace) {
        let bytes = footer.current_bytes;
        if bytes > create::MAX_NEW_BYTES {
            let problem = format!("the disk has {bytes} bytes; Microsoft's programs take up to 2040 GiB");
            let damage = Damage::new(FOOTER, place.at(), create::SIZE_RULE, problem);
            self.report.add(Finding::new(SIZE, Severity::Warning, damage));
        }
        let geometry = footer.geometry;
        if geometry != DiskGeometry::MAX && geometry.sectors() > bytes / SECTOR_BYTES {
            let problem =
                format!("the geometry has {} sectors, the disk {}", geometry.sectors(), bytes / SECTOR_BYTES);
            self.note(GEOMETRY, Damage::new(FOOTER, place.at(), "[VHD] Disk Geometry", problem));
        }
    }

    fn examine_fixed(&mut self, footer: &Footer, place: FooterPlace) -> Result<(), Refusal> {
        let bytes = footer.virtual_bytes(place)?;
        if bytes > place.at() {
            let problem =
                format!("the disk has {bytes} bytes, but only {} lie before the footer", place.at());
            self.error(FIXED_SHORT, Damage::new(FOOTER, place.at(), "[VHD] Fixed Hard Disk Image", problem));
        } else if bytes < place.at() {
            let unused = place.at().saturating_sub(bytes);
            let problem = format!("{unused} bytes before the footer belong to nothing");
            self.note(TAIL_UNUSED, Damage::new(FOOTER, bytes, "[VHD] Fixed Hard Disk Image", problem));
        }
        Ok(())
    }

    /// What lies where. The end of what is used, if nothing lies where it must not.
    fn examine_map(&mut self, map: &FileMap, place: FooterPlace) -> Option<u64> {
        let mut is_sound = true;
        map.misplaced(&mut |kind, damage| {
            is_sound = false;
            let code = match kind {
                Misplaced::Outside => OUTSIDE,
                Misplaced::Overlap => OVERLAP,
            };
            self.error(code, damage);
        });
        let header_at = map.footer.data_offset;
        if let Some(parent) = &map.header.parent
            && parent.relative_path.is_none()
            && parent.absolute_path.is_none()
        {
            let problem = format!("no locator says where the parent is; its name is {:?}", parent.name);
            let damage = Damage::new("parent locator", header_at, super::locator::RULE, problem);
            self.report.add(Finding::new(NO_PARENT_PATH, Severity::Warning, damage));
        }
        if !is_sound {
            return None;
        }
        let unaligned = map
            .table
            .placed()
            .filter(|&(_, sector)| !map.shape.at_sector(sector).data_at.is_multiple_of(ALIGNMENT));
        let unaligned = unaligned.count();
        if unaligned > 0 {
            let problem = format!(
                "the data of {unaligned} blocks does not lie at a multiple of 4 KiB: it cannot be cloned, only copied"
            );
            self.note(MISALIGNED, Damage::new("data block", map.header.table_offset, BLOCKS_RULE, problem));
        }
        let used_end = map.used_end();
        if let FooterPlace::End(at) = place
            && at > footer_behind(used_end)
        {
            let unused = at.saturating_sub(used_end);
            let problem = format!("{unused} bytes behind the last block belong to nothing");
            self.mendable(TAIL_UNUSED, Severity::Note, Damage::new(FOOTER, at, BLOCKS_RULE, problem));
        }
        Some(used_end)
    }

    /// Puts footer and copy where they belong, and cuts off the tail.
    fn mend(
        &self,
        place: FooterPlace,
        footer: &FooterBytes,
        is_copy_right: bool,
        used_end: Option<u64>,
    ) -> Result<(), StorageError> {
        let Some(target) = self.target else { return Ok(()) };
        if !is_copy_right {
            target.write_at(ByteOffset::ZERO, footer)?;
            target.flush()?;
        }
        // Where nobody knows what the file's tail is, it stays.
        let at = match (place, used_end) {
            (_, Some(used_end)) => footer_behind(used_end),
            (FooterPlace::Start, None) => footer_behind(self.storage.len().get()),
            (FooterPlace::End(_), None) => return Ok(()),
        };
        if matches!(place, FooterPlace::End(now) if now <= at) {
            return Ok(());
        }
        target.write_at(ByteOffset::new(at), footer)?;
        target.flush()?;
        target.set_len(ByteLength::new(at.saturating_add(SECTOR_BYTES)))?;
        target.flush()
    }
}

/// What a refusal says is broken; the refusal itself, where nothing is.
fn damage_of(refusal: Refusal, structure: &'static str, at: u64) -> Result<Damage, Refusal> {
    match refusal {
        Refusal::Damaged(damage) => Ok(damage),
        Refusal::Empty => Ok(Damage::new(structure, at, FOOTER_RULE, "the disk is empty: it has no block")),
        Refusal::Storage(StorageError::EndOfFile { at, wanted, len }) => {
            let problem = format!("{wanted} bytes at {at} are meant, but the file has only {len}");
            Ok(Damage::new(structure, at.get(), FOOTER_RULE, problem))
        }
        other => Err(other),
    }
}
