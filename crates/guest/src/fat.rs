//! FAT12, FAT16 and FAT32 with long names, read-only: the file system of EFI system partitions.
//!
//! The shape is Microsoft's "FAT32 File System Specification" (fatgen103), quoted by its headings: reserved sectors with the
//! BPB, the FATs, the root directory (FAT12 and FAT16 only), then clusters counted from 2 on. A file is a chain of clusters;
//! it is followed once, when the file is opened, into runs. No chain is longer than the volume has clusters, so a cycle ends.
use std::cell::RefCell;

use crate::error::GuestError;
use crate::filesystem::{FileSystem, Kind, MAX_NAMES, Name, OpenFile, parts};
use crate::window::{Window, little};

/// "FAT Directory Structure": an entry has 32 bytes, a directory at most 65,536 entries.
const ENTRY_BYTES: usize = 32;
const MAX_DIRECTORY_BYTES: u64 = 65_536 * 32;
/// How much of a FAT is read at once.
const PAGE_BYTES: u64 = 4096;
/// "Sector Size": the values that are allowed.
const SECTOR_BYTES: [u64; 4] = [512, 1024, 2048, 4096];
/// "FAT Type Determination": fewer clusters than these.
const FAT12_CLUSTERS: u64 = 4085;
const FAT16_CLUSTERS: u64 = 65_525;
/// The deepest directory that is looked into.
const MAX_DEPTH: usize = 32;
/// A file has at most 4 GiB less a byte, so this many runs of clusters only where it is broken up beyond use.
const MAX_RUNS: usize = 1 << 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Width {
    Fat12,
    Fat16,
    Fat32,
}

/// A mounted FAT.
#[derive(Debug)]
pub(crate) struct Fat {
    window: Window,
    place: String,
    width: Width,
    cluster_bytes: u64,
    clusters: u64,
    fat_at: u64,
    fat_bytes: u64,
    data_at: u64,
    root: Start,
    serial: u64,
    label: String,
    /// The page of the FAT that was read last, and where it begins.
    page: RefCell<Option<(u64, Vec<u8>)>>,
}

/// Where a file or directory begins.
#[derive(Clone, Copy, Debug)]
enum Start {
    /// The root directory of FAT12 and FAT16: a fixed run.
    Fixed { at: u64, length: u64 },
    /// A chain of clusters; 0 is an empty file.
    Cluster(u64),
}

/// A run of the volume's bytes.
#[derive(Clone, Copy, Debug)]
struct Run {
    at: u64,
    length: u64,
}

/// An entry of a directory.
struct Entry {
    name: String,
    short: String,
    directory: bool,
    start: u64,
    length: u64,
}

impl Fat {
    /// Mounts it, or says that it is none.
    pub(crate) fn mount(window: &Window, place: &str) -> Result<Option<Self>, GuestError> {
        let mut sector = [0; 512];
        if window.length() < 512 {
            return Ok(None);
        }
        window.read_at(0, &mut sector)?;
        let Some(mut fat) = Self::parse(&sector, window, place) else { return Ok(None) };
        if let Some(label) = fat.volume_label()? {
            fat.label = label;
        }
        Ok(Some(fat))
    }

    /// "Boot Sector and BPB". What no formatter writes is no FAT.
    fn parse(sector: &[u8; 512], window: &Window, place: &str) -> Option<Self> {
        let jump = matches!((sector.first()?, sector.get(2)?), (0xEB, 0x90) | (0xE9, _));
        let sector_bytes = little::<2>(sector, 11);
        let per_cluster = little::<1>(sector, 13);
        let reserved = little::<2>(sector, 14);
        let fats = little::<1>(sector, 16);
        let signature = sector.get(510..) == Some(&[0x55, 0xAA]);
        if !jump
            || !signature
            || !SECTOR_BYTES.contains(&sector_bytes)
            || !per_cluster.is_power_of_two()
            || reserved == 0
            || !matches!(fats, 1 | 2)
        {
            return None;
        }
        let either = |small: u64, large: u64| if small == 0 { large } else { small };
        let fat_sectors = either(little::<2>(sector, 22), little::<4>(sector, 36));
        let sectors = either(little::<2>(sector, 19), little::<4>(sector, 32));
        let root_bytes = little::<2>(sector, 17).checked_mul(32)?;
        let root_at = fats.checked_mul(fat_sectors)?.checked_add(reserved)?;
        let data = root_at.checked_add(root_bytes.div_ceil(sector_bytes))?;
        let clusters = sectors.checked_sub(data)?.checked_div(per_cluster)?;
        let width = match clusters {
            _ if little::<2>(sector, 22) == 0 => Width::Fat32,
            0..FAT12_CLUSTERS => Width::Fat12,
            FAT12_CLUSTERS..FAT16_CLUSTERS => Width::Fat16,
            _ => Width::Fat32,
        };
        let (root, extended): (_, usize) = match width {
            Width::Fat32 => (Start::Cluster(little::<4>(sector, 44)), 67),
            _ => (Start::Fixed { at: root_at.checked_mul(sector_bytes)?, length: root_bytes }, 39),
        };
        let label = sector.get(extended.checked_add(4)?..extended.checked_add(15)?)?;
        let label = oem_text(label);
        Some(Self {
            window: window.clone(),
            place: place.to_owned(),
            width,
            cluster_bytes: per_cluster.checked_mul(sector_bytes)?,
            clusters,
            fat_at: reserved.checked_mul(sector_bytes)?,
            fat_bytes: fat_sectors.checked_mul(sector_bytes)?,
            data_at: data.checked_mul(sector_bytes)?,
            root,
            serial: little::<4>(sector, extended),
            label: if label == "NO NAME" { String::new() } else { label },
            page: RefCell::new(None),
        })
    }

    fn damaged(&self, what: String) -> GuestError {
        GuestError::Damaged { kind: "FAT", place: self.place.clone(), what }
    }

    /// What the FAT says of a cluster: the next one, or nothing at the end of a chain.
    fn next(&self, cluster: u64) -> Result<Option<u64>, GuestError> {
        let (at, bytes, mask) = match self.width {
            Width::Fat12 => (cluster.saturating_add(cluster >> 1), 2, 0xFFF),
            Width::Fat16 => (cluster.saturating_mul(2), 2, 0xFFFF),
            Width::Fat32 => (cluster.saturating_mul(4), 4, 0x0FFF_FFFF),
        };
        let mut entry = 0;
        for (index, shift) in (0..bytes).zip([0_u32, 8, 16, 24]) {
            entry |= u64::from(self.fat_byte(at.saturating_add(index))?) << shift;
        }
        if self.width == Width::Fat12 && cluster & 1 == 1 {
            entry >>= 4;
        }
        let entry = entry & mask;
        // "FAT Data Structure": the last eight values end a chain, the one before marks a bad cluster, and clusters count
        // from 2 on.
        if entry >= mask & !7 {
            return Ok(None);
        }
        if entry < 2 || entry >= self.clusters.saturating_add(2) {
            return Err(
                self.damaged(format!("cluster {cluster} goes on at {entry}, which is no cluster of it"))
            );
        }
        Ok(Some(entry))
    }

    fn fat_byte(&self, at: u64) -> Result<u8, GuestError> {
        if at >= self.fat_bytes {
            return Err(
                self.damaged(format!("byte {at} of the FAT is asked for, which has {}", self.fat_bytes))
            );
        }
        let begin = at & !PAGE_BYTES.saturating_sub(1);
        let mut page = self.page.borrow_mut();
        if page.as_ref().is_none_or(|(there, _)| *there != begin) {
            let length = PAGE_BYTES.min(self.fat_bytes.saturating_sub(begin));
            let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
            self.window.read_at(self.fat_at.saturating_add(begin), &mut bytes)?;
            *page = Some((begin, bytes));
        }
        let within = usize::try_from(at.saturating_sub(begin)).unwrap_or(usize::MAX);
        Ok(page.as_ref().and_then(|(_, bytes)| bytes.get(within)).copied().unwrap_or(0))
    }

    /// The runs of a chain, `length` bytes of it at most.
    fn runs(&self, start: Start, length: u64) -> Result<Vec<Run>, GuestError> {
        let mut cluster = match start {
            Start::Fixed { at, length: fixed } => return Ok(vec![Run { at, length: fixed.min(length) }]),
            Start::Cluster(0) => return Ok(Vec::new()),
            Start::Cluster(first) if first < 2 || first >= self.clusters.saturating_add(2) => {
                return Err(self.damaged(format!("a file begins at {first}, which is no cluster of it")));
            }
            Start::Cluster(first) => first,
        };
        let mut runs: Vec<Run> = Vec::new();
        let mut rest = length;
        for _ in 0..self.clusters {
            let index = cluster.saturating_sub(2);
            let at = index.saturating_mul(self.cluster_bytes).saturating_add(self.data_at);
            let here = self.cluster_bytes.min(rest);
            match runs.last_mut().filter(|run| run.at.saturating_add(run.length) == at) {
                Some(run) => run.length = run.length.saturating_add(here),
                None => runs.push(Run { at, length: here }),
            }
            if runs.len() > MAX_RUNS {
                return Err(self.damaged(format!("a file lies in more than {MAX_RUNS} pieces")));
            }
            rest = rest.saturating_sub(here);
            match self.next(cluster)? {
                Some(next) if rest > 0 => cluster = next,
                _ => break,
            }
        }
        Ok(runs)
    }

    /// All bytes of a directory.
    fn directory_bytes(&self, start: Start) -> Result<Vec<u8>, GuestError> {
        let runs = self.runs(start, MAX_DIRECTORY_BYTES)?;
        let length = runs.iter().fold(0_u64, |sum, run| sum.saturating_add(run.length));
        let mut bytes = vec![0; usize::try_from(length.min(MAX_DIRECTORY_BYTES)).unwrap_or(0)];
        read_runs(&self.window, &runs, 0, &mut bytes)?;
        Ok(bytes)
    }

    fn entries(&self, start: Start) -> Result<Vec<Entry>, GuestError> {
        let bytes = self.directory_bytes(start)?;
        let mut entries = Vec::new();
        let mut long = LongName::default();
        for row in bytes.chunks_exact(ENTRY_BYTES).take_while(|row| row.first() != Some(&0)) {
            let attributes = row.get(11).copied().unwrap_or(0);
            match (row.first().copied().unwrap_or(0), attributes) {
                // "FAT Long Directory Entries": all of read-only, hidden, system and volume label.
                (0xE5, _) => long.forget(),
                (_, attributes) if attributes & 0x3F == 0x0F => long.add(row),
                // The volume's label.
                (_, attributes) if attributes & 0x08 != 0 => long.forget(),
                _ => {
                    let short = short_name(row);
                    let name = long.take(row).unwrap_or_else(|| short.clone());
                    if name != "." && name != ".." && entries.len() < MAX_NAMES {
                        entries.push(Entry {
                            name,
                            short,
                            directory: attributes & 0x10 != 0,
                            start: little::<2>(row, 20) << 16 | little::<2>(row, 26),
                            length: little::<4>(row, 28),
                        });
                    }
                }
            }
        }
        Ok(entries)
    }

    /// The label in the root directory, which is the one that tools change.
    fn volume_label(&self) -> Result<Option<String>, GuestError> {
        let bytes = self.directory_bytes(self.root)?;
        let rows = bytes.chunks_exact(ENTRY_BYTES).take_while(|row| row.first() != Some(&0));
        let label = rows.into_iter().find(|row| {
            row.first() != Some(&0xE5) && row.get(11).is_some_and(|attributes| attributes & 0x3F == 0x08)
        });
        Ok(label.and_then(|row| row.get(..11)).map(oem_text))
    }

    /// Finds what a path leads to; `None` is the root directory. Names are the same in either case of their letters.
    fn find(&self, path: &str) -> Result<Option<Entry>, GuestError> {
        let (place, path) = (|| self.place.clone(), || path.to_owned());
        let mut at: Option<Entry> = None;
        let text = path();
        for (depth, part) in parts(&text).enumerate() {
            let start = match &at {
                None => self.root,
                Some(entry) if entry.directory && depth < MAX_DEPTH => Start::Cluster(entry.start),
                Some(_) => return Err(GuestError::NotFound { place: place(), path: path() }),
            };
            let wanted = part.to_lowercase();
            let found = self
                .entries(start)?
                .into_iter()
                .find(|entry| entry.name.to_lowercase() == wanted || entry.short.to_lowercase() == wanted);
            at = Some(found.ok_or_else(|| GuestError::NotFound { place: place(), path: path() })?);
        }
        Ok(at)
    }
}

impl FileSystem for Fat {
    fn kind(&self) -> &'static str {
        "FAT"
    }

    fn uuid(&self) -> String {
        format!("{:04X}-{:04X}", self.serial >> 16, self.serial & 0xFFFF)
    }

    fn label(&self) -> String {
        self.label.clone()
    }

    fn list(&self, path: &str) -> Result<Vec<Name>, GuestError> {
        let start = match self.find(path)? {
            None => self.root,
            Some(entry) if entry.directory => Start::Cluster(entry.start),
            Some(_) => {
                let (place, path) = (self.place.clone(), path.to_owned());
                return Err(GuestError::WrongKind { place, path, wanted: "directory" });
            }
        };
        let name = |entry: Entry| Name {
            kind: if entry.directory { Kind::Directory } else { Kind::File(entry.length) },
            name: entry.name,
        };
        Ok(self.entries(start)?.into_iter().map(name).collect())
    }

    fn open(&self, path: &str) -> Result<Box<dyn OpenFile>, GuestError> {
        let Some(entry) = self.find(path)?.filter(|entry| !entry.directory) else {
            let (place, path) = (self.place.clone(), path.to_owned());
            return Err(GuestError::WrongKind { place, path, wanted: "file" });
        };
        let runs = self.runs(Start::Cluster(entry.start), entry.length)?;
        let there = runs.iter().fold(0_u64, |sum, run| sum.saturating_add(run.length));
        if there < entry.length {
            return Err(self.damaged(format!("{path} has {} bytes, and clusters for {there}", entry.length)));
        }
        Ok(Box::new(FatFile { window: self.window.clone(), runs, length: entry.length }))
    }
}

#[derive(Debug)]
struct FatFile {
    window: Window,
    runs: Vec<Run>,
    length: u64,
}

impl OpenFile for FatFile {
    fn length(&self) -> u64 {
        self.length
    }

    fn read_at(&mut self, at: u64, buffer: &mut [u8]) -> Result<(), GuestError> {
        let end = at.saturating_add(u64::try_from(buffer.len()).unwrap_or(u64::MAX));
        if end > self.length {
            return Err(GuestError::Outside { at, end, what: "file", size: self.length });
        }
        read_runs(&self.window, &self.runs, at, buffer)
    }
}

/// Fills `buffer` from `at` on of what the runs hold together.
fn read_runs(window: &Window, runs: &[Run], at: u64, buffer: &mut [u8]) -> Result<(), GuestError> {
    let mut skip = at;
    let mut rest = buffer;
    for run in runs {
        if skip >= run.length {
            skip = skip.saturating_sub(run.length);
            continue;
        }
        let there = usize::try_from(run.length.saturating_sub(skip)).unwrap_or(usize::MAX);
        let (here, later) = rest.split_at_mut(there.min(rest.len()));
        window.read_at(run.at.saturating_add(skip), here)?;
        rest = later;
        skip = 0;
        if rest.is_empty() {
            break;
        }
    }
    Ok(())
}

/// A name of eleven characters, or a label, without the spaces behind it.
fn oem_text(bytes: &[u8]) -> String {
    // The characters above 127 depend on a code page that the volume does not name.
    let text: String = bytes.iter().map(|&b| if b.is_ascii() { char::from(b) } else { '\u{FFFD}' }).collect();
    text.trim_end_matches([' ', '\0']).to_owned()
}

/// "FAT Directory Structure", `DIR_Name`. Byte 12 tells which halves are written small (as Windows NT and Linux do).
fn short_name(row: &[u8]) -> String {
    let case = row.get(12).copied().unwrap_or(0);
    let half = |bytes: Option<&[u8]>, small: bool| {
        let text = oem_text(bytes.unwrap_or_default());
        if small { text.to_lowercase() } else { text }
    };
    let stem = half(row.get(..8), case & 0x08 != 0);
    let ending = half(row.get(8..11), case & 0x10 != 0);
    if ending.is_empty() { stem } else { format!("{stem}.{ending}") }
}

/// A long name while its pieces are gathered: they stand before the short entry, the last piece first.
#[derive(Default)]
struct LongName {
    units: Vec<u16>,
    expected: u8,
    checksum: u8,
}

impl LongName {
    fn forget(&mut self) {
        *self = Self::default();
    }

    fn add(&mut self, row: &[u8]) {
        let order = row.first().copied().unwrap_or(0);
        let checksum = row.get(13).copied().unwrap_or(0);
        let (last, number) = (order & 0x40 != 0, order & 0x3F);
        if last && (1..=20).contains(&number) {
            *self = Self { units: Vec::new(), expected: number, checksum };
        }
        if self.expected == 0 || number != self.expected || checksum != self.checksum {
            return self.forget();
        }
        self.expected = number.saturating_sub(1);
        let piece = [1..11, 14..26, 28..32].into_iter().filter_map(|range| row.get(range)).flatten();
        let bytes: Vec<u8> = piece.copied().collect();
        let mut units: Vec<u16> =
            bytes.chunks_exact(2).filter_map(|unit| u16::try_from(little::<2>(unit, 0)).ok()).collect();
        units.append(&mut self.units);
        self.units = units;
    }

    /// The name, if its pieces are complete and belong to this short entry.
    fn take(&mut self, row: &[u8]) -> Option<String> {
        let name = std::mem::take(self);
        let sum = row.get(..11)?.iter().fold(0_u8, |sum, &byte| sum.rotate_right(1).wrapping_add(byte));
        if name.expected != 0 || name.units.is_empty() || sum != name.checksum {
            return None;
        }
        let units: Vec<u16> = name.units.into_iter().take_while(|&unit| unit != 0).collect();
        Some(String::from_utf16_lossy(&units))
    }
}
