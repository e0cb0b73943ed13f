//! Log replay: which entries of the log count, and what the file is after them ([MS-VHDX] §2.3.2 and §2.3.3).
//!
//! The log is a ring. An entry counts for the sequence that it ends if its sequence number is one more than that of
//! the entry before. A sequence is valid only if the tail that its last entry (its head) names is one of its own
//! entries; of all valid sequences the one whose head has the greatest sequence number is active. Only the entries
//! from that tail to the head are replayed: older ones have been applied and their places may have been used again.
use block::{ByteOffset, Patience};

use super::header::Header;
use super::log::{DESCRIPTOR_BYTES, Descriptor, EntryHeader, HEADER_BYTES, SECTOR_BYTES, data_sector};
use super::overlay::Overlay;
use super::region;
use crate::error::{Damage, Refusal};
use crate::guid::Guid;
use crate::storage::Storage;

/// The log is read into memory. Windows makes logs of 1 MiB, and more only for very large disks.
const MAX_LOG_BYTES: u64 = 64 << 20;
/// How often over a log may be read by checksums while its entries are looked for. Entries that overlap, which nobody
/// writes, could otherwise cost the square of its size.
const MAX_CHECKSUM_PASSES: u64 = 16;
/// The most changes that a replay makes: what bounds the overlay's memory where they are runs of zeros.
const MAX_DESCRIPTORS: u64 = 1 << 20;
/// Where the file type identifier and the headers end. They are never written through the log; the region tables behind
/// them may be ([MS-VHDX] §2.2).
const HEADERS_END: u64 = region::PLACES[0];
const RULE: &str = "[MS-VHDX] §2.3.3";

/// The log of a file, in memory.
struct Ring {
    bytes: Vec<u8>,
    /// Where in the file it begins.
    at: u64,
    guid: Guid,
}

/// Where an entry begins in the log, and its header.
#[derive(Clone, Copy, Debug)]
struct Entry {
    place: u64,
    header: EntryHeader,
}

/// Reads the log that `header` names and replays it in memory.
pub(super) fn replay(storage: &dyn Storage, header: &Header) -> Result<Overlay, Refusal> {
    let ring = Ring::read(storage, header)?;
    let entries = ring.find_entries()?;
    let Some(active) = active_sequence(&entries, ring.len()) else {
        let problem =
            format!("it should be replayed, but holds no valid sequence of entries of {}", ring.guid);
        return Err(ring.damage(RULE, problem).into());
    };
    let Some(head) = active.last() else { return Err(ring.damage(RULE, "it is empty".into()).into()) };
    let file_bytes = storage.len().get();
    // A file that is shorter than it was when the entry was written has been cut off.
    if file_bytes < head.header.flushed_file_offset {
        let problem = format!(
            "the file has {file_bytes} bytes, but had {} when entry {} was written: it has been cut short",
            head.header.flushed_file_offset, head.header.sequence_number
        );
        return Err(ring.damage(RULE, problem).into());
    }
    ring.apply(&active, file_bytes, head.header.last_file_offset)
}

/// How many entries of the log's present session are newer than all that count and not intact.
pub(super) fn torn_entries(storage: &dyn Storage, header: &Header) -> Result<u64, Refusal> {
    let ring = Ring::read(storage, header)?;
    let entries = ring.find_entries()?;
    let active = active_sequence(&entries, ring.len()).unwrap_or_default();
    let newest = active.last().map_or(0, |head| head.header.sequence_number);
    let places = (0..ring.len()).step_by(SECTOR_BYTES as usize);
    let torn = places.zip(&entries).filter(|(place, entry)| {
        let header = || EntryHeader::parse(ring.sector(*place), ring.guid, ring.len());
        entry.is_none() && header().is_some_and(|header| header.sequence_number > newest)
    });
    Ok(torn.fold(0, |count, _| count.saturating_add(1)))
}

impl Ring {
    fn read(storage: &dyn Storage, header: &Header) -> Result<Self, Refusal> {
        let length = u64::from(header.log_length);
        if length > MAX_LOG_BYTES {
            let what = format!("the replay of a log of {length} bytes (the limit is {MAX_LOG_BYTES})");
            return Err(Refusal::unsupported(RULE, what));
        }
        let end = header.log_offset.saturating_add(length);
        let ring = Self { bytes: Vec::new(), at: header.log_offset, guid: header.log_guid };
        if end > storage.len().get() {
            let problem = format!("it ends at {end:#x}, behind the end of the file");
            return Err(ring.damage("[MS-VHDX] §2.1", problem).into());
        }
        let mut bytes = vec![0; usize::try_from(length).unwrap_or_default()];
        storage.read_at(ByteOffset::new(header.log_offset), &mut bytes, Patience::Blocking)?;
        Ok(Self { bytes, ..ring })
    }

    fn len(&self) -> u64 {
        u64::try_from(self.bytes.len()).unwrap_or_default()
    }

    /// The place in the log `distance` bytes behind `place`, round its end.
    fn behind(&self, place: u64, distance: u64) -> u64 {
        place.saturating_add(distance).checked_rem(self.len()).unwrap_or_default()
    }

    /// The sector at `place`, or nothing.
    fn sector(&self, place: u64) -> &[u8] {
        let start = usize::try_from(place).unwrap_or(usize::MAX);
        let rest = self.bytes.get(start..).unwrap_or_default();
        rest.get(..SECTOR_BYTES as usize).unwrap_or_default()
    }

    /// The `length` bytes from `place` on, in two parts where they go round the end.
    fn parts(&self, place: u64, length: u64) -> (&[u8], &[u8]) {
        let start = usize::try_from(place).unwrap_or(usize::MAX);
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let to_end = self.bytes.get(start..).unwrap_or_default();
        match to_end.get(..length) {
            Some(all) => (all, &[]),
            None => {
                let round = length.saturating_sub(to_end.len());
                (to_end, self.bytes.get(..round).unwrap_or_default())
            }
        }
    }

    /// What is an intact entry at each sector of the log.
    fn find_entries(&self) -> Result<Vec<Option<EntryHeader>>, Refusal> {
        let mut budget = self.len().saturating_mul(MAX_CHECKSUM_PASSES);
        let mut entries = Vec::new();
        for place in (0..self.len()).step_by(SECTOR_BYTES as usize) {
            let header = EntryHeader::parse(self.sector(place), self.guid, self.len());
            let Some(header) = header else {
                entries.push(None);
                continue;
            };
            budget = budget.checked_sub(header.length).ok_or_else(|| {
                let problem = "too many of its entries lie over each other".into();
                Refusal::from(self.damage(RULE, problem))
            })?;
            let (first, second) = self.parts(place, header.length);
            entries.push(header.is_intact(first, second).then_some(header));
        }
        Ok(entries)
    }

    fn apply(&self, active: &[Entry], file_bytes: u64, last_file_offset: u64) -> Result<Overlay, Refusal> {
        let count = active.iter().fold(0_u64, |sum, entry| sum.saturating_add(entry.header.descriptors));
        if count > MAX_DESCRIPTORS {
            let what = format!("the replay of {count} changes (the limit is {MAX_DESCRIPTORS})");
            return Err(Refusal::unsupported(RULE, what));
        }
        let mut len = last_file_offset.max(file_bytes);
        for entry in active {
            for index in 0..entry.header.descriptors {
                let descriptor = self.descriptor(*entry, index)?;
                self.check_target(descriptor)?;
                len = len.max(descriptor.end());
            }
        }
        let mut overlay = Overlay::new(file_bytes, len);
        for entry in active {
            self.apply_entry(*entry, &mut overlay)?;
        }
        Ok(overlay)
    }

    /// Refuses a change of what a replay stands on: it would leave a file that nobody can open any more.
    fn check_target(&self, descriptor: Descriptor) -> Result<(), Damage> {
        let (start, end) = (descriptor.start(), descriptor.end());
        let protected =
            [("the headers", 0, HEADERS_END), ("the log", self.at, self.at.saturating_add(self.len()))];
        match protected.into_iter().find(|(_, from, to)| start < *to && end > *from && start < end) {
            None => Ok(()),
            Some((what, from, _)) => {
                let problem =
                    format!("it changes {start:#x} to {end:#x}, in the place of {what} at {from:#x}");
                Err(self.damage("[MS-VHDX] §2.2", problem))
            }
        }
    }

    fn apply_entry(&self, entry: Entry, overlay: &mut Overlay) -> Result<(), Damage> {
        let mut sector = entry.header.descriptor_sectors();
        for index in 0..entry.header.descriptors {
            match self.descriptor(entry, index)? {
                Descriptor::Zero { at, length } => overlay.zero(at, at.saturating_add(length)),
                Descriptor::Data { at, leading, trailing } => {
                    let distance = sector.saturating_mul(SECTOR_BYTES);
                    let place = self.behind(entry.place, distance);
                    let damage =
                        |problem| self.damage_at(place, "log data sector", "[MS-VHDX] §2.3.1.4", problem);
                    if distance >= entry.header.length {
                        return Err(damage("its entry ends before it".into()));
                    }
                    let bytes =
                        data_sector(self.sector(place), leading, trailing, entry.header.sequence_number);
                    overlay.sector(at, bytes.map_err(damage)?);
                    sector = sector.saturating_add(1);
                }
            }
        }
        Ok(())
    }

    fn descriptor(&self, entry: Entry, index: u64) -> Result<Descriptor, Damage> {
        let distance = index.saturating_mul(DESCRIPTOR_BYTES).saturating_add(HEADER_BYTES);
        let place = self.behind(entry.place, distance);
        // The size divides that of a sector and so that of the log: a descriptor never goes round the end.
        let start = usize::try_from(place).unwrap_or(usize::MAX);
        let bytes = self.bytes.get(start..).and_then(|rest| rest.first_chunk());
        let descriptor = match bytes {
            Some(bytes) => Descriptor::parse(bytes, entry.header.sequence_number),
            None => Err("it is cut short".into()),
        };
        descriptor.map_err(|problem| self.damage_at(place, "log descriptor", "[MS-VHDX] §2.3.1", problem))
    }

    fn damage(&self, rule: &'static str, problem: String) -> Damage {
        Damage::new("log", self.at, rule, problem)
    }

    fn damage_at(&self, place: u64, what: &'static str, rule: &'static str, problem: String) -> Damage {
        Damage::new(what, self.at.saturating_add(place), rule, problem)
    }
}

/// The entries of the active sequence that must be replayed, from tail to head, by the steps of [MS-VHDX] §2.3.3.
/// `entries` holds what is an intact entry at each sector of the log.
fn active_sequence(entries: &[Option<EntryHeader>], log_bytes: u64) -> Option<Vec<Entry>> {
    let mut active: Vec<Entry> = Vec::new();
    let mut tail = 0;
    loop {
        let (sequence, head) = grow_sequence(entries, tail, log_bytes);
        let valid = from_tail_to_head(&sequence);
        let number = |sequence: &[Entry]| sequence.last().map_or(0, |entry| entry.header.sequence_number);
        if let Some(valid) = &valid
            && number(valid) > number(&active)
        {
            active = valid.to_vec();
        }
        // Behind a valid sequence the search goes on; otherwise one sector further.
        let next = if valid.is_some() { head } else { behind(tail, SECTOR_BYTES, log_bytes) };
        if next <= tail {
            break;
        }
        tail = next;
    }
    (!active.is_empty()).then_some(active)
}

/// The longest sequence whose first entry is at `tail`, and the place behind it.
fn grow_sequence(entries: &[Option<EntryHeader>], tail: u64, log_bytes: u64) -> (Vec<Entry>, u64) {
    let mut sequence: Vec<Entry> = Vec::new();
    let mut head = tail;
    while let Some(header) = usize::try_from(head / SECTOR_BYTES).ok().and_then(|n| *entries.get(n)?) {
        let follows = sequence
            .last()
            .is_none_or(|last| last.header.sequence_number.checked_add(1) == Some(header.sequence_number));
        if !follows {
            break;
        }
        sequence.push(Entry { place: head, header });
        head = behind(head, header.length, log_bytes);
    }
    (sequence, head)
}

/// The part of a sequence that its head wants replayed, if the sequence is valid.
fn from_tail_to_head(sequence: &[Entry]) -> Option<&[Entry]> {
    let head = sequence.last()?;
    let tail = sequence.iter().position(|entry| entry.place == head.header.tail)?;
    sequence.get(tail..)
}

fn behind(place: u64, distance: u64, log_bytes: u64) -> u64 {
    place.saturating_add(distance).checked_rem(log_bytes).unwrap_or_default()
}
