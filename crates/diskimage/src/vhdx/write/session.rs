//! The headers and the log of a file that is written ([MS-VHDX] §2.2.2, §2.3).
//!
//! # Order
//! A file that is opened for writing is not touched before its first change. Then the header gets a new
//! `FileWriteGuid`, and before the first change of the disk's contents a new `DataWriteGuid`. The log is off
//! (`LogGuid` is zero) until the first commit needs it. Its entries then follow each other from the ring's start:
//!
//! 1. what was written so far is flushed: payload, growth of the file, and the pages of the commit before;
//! 2. the entries are written and flushed: from here on the commit counts;
//! 3. the pages are written to their places, and flushed by the next commit's first step.
//!
//! Because of step 1 an entry never needs those of earlier commits: its tail is the first entry of its own commit. When
//! the ring has no more room, or a write of entries has failed, the log is turned off by a header and begins anew at
//! the ring's start under a new identifier, so that a sequence never goes round the ring's end. The specification
//! allows both; qemu 7.2 replays only sequences like these as it says, and our files are to mean the same to everyone.
use std::io;

use block::ByteOffset;

use super::super::header::{Header, PLACES};
use super::super::log::SECTOR_BYTES;
use super::entry::{EntryFrame, MAX_PAGES, encode, entry_bytes};
use super::pages::Page;
use crate::error::{Damage, Refusal};
use crate::guid::Guid;
use crate::storage::{StorageError, WritableStorage};

/// A header's sequence number behind which nothing is written any more: no honest file comes near.
const MAX_SEQUENCE: u64 = u64::MAX >> 1;
const RULE: &str = "[MS-VHDX] §2.2.2";

/// How far a file that was opened for writing has been changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) enum Touched {
    Nothing,
    /// Only what the disk's contents do not show.
    File,
    /// The disk's contents.
    Data,
}

/// Headers and log.
#[derive(Debug)]
pub(in super::super) struct Session {
    header: Header,
    /// Where the header that counts stands.
    at: u64,
    touched: Touched,
    /// Where in the log the next entry goes. Only while the log is on.
    next: u64,
    sequence_number: u64,
    /// Whether the log must begin anew before it is written again.
    is_spoilt: bool,
}

impl Session {
    /// The session on a file whose header that counts is this one, at `at`.
    pub(in super::super) fn new(header: &Header, at: u64) -> Result<Self, Refusal> {
        if header.log_length == 0 {
            return Err(Refusal::unsupported(RULE, "writing into a file without a log"));
        }
        if header.sequence_number >= MAX_SEQUENCE {
            let problem = format!("sequence number {} leaves no room for more", header.sequence_number);
            return Err(Damage::new("header", at, RULE, problem).into());
        }
        let current = header;
        let mut header = Header::new(
            current.sequence_number,
            current.file_write_guid,
            current.data_write_guid,
            current.log_offset,
            current.log_length,
        );
        header.log_guid = current.log_guid;
        Ok(Self { header, at, touched: Touched::Nothing, next: 0, sequence_number: 0, is_spoilt: false })
    }

    /// Before a change of the file: the headers say that there will have been one.
    pub(in super::super) fn touch(
        &mut self,
        wanted: Touched,
        storage: &dyn WritableStorage,
    ) -> Result<(), StorageError> {
        if self.touched >= wanted {
            return Ok(());
        }
        let (file, data) = (self.new_guid()?, self.new_guid()?);
        let is_first = self.touched == Touched::Nothing;
        self.put_headers(storage, |header| {
            // [MS-VHDX] §2.2.2: each changes once in a session, before what it stands for changes.
            if is_first {
                header.file_write_guid = file;
            }
            if wanted == Touched::Data {
                header.data_write_guid = data;
            }
        })?;
        self.touched = wanted;
        Ok(())
    }

    /// Whether the headers name a log that a reader has to replay.
    pub(super) fn is_log_on(&self) -> bool {
        self.header.log_guid != Guid::NIL
    }

    /// Turns the log off. All that it holds must be in the file, and flushed.
    pub(super) fn turn_log_off(&mut self, storage: &dyn WritableStorage) -> Result<(), StorageError> {
        if self.is_log_on() {
            self.put_headers(storage, |header| header.log_guid = Guid::NIL)?;
        }
        self.is_spoilt = false;
        Ok(())
    }

    /// Brings as many of `pages` into the log as one turn of the ring holds, and says how many those are. All that the
    /// log held before must be in the file, and all that the pages rely on, of the file's `file_bytes`, flushed. When
    /// this returns, a crash keeps the change.
    pub(super) fn log(
        &mut self,
        pages: &[(u64, Box<Page>)],
        file_bytes: u64,
        storage: &dyn WritableStorage,
    ) -> Result<usize, StorageError> {
        let log_bytes = u64::from(self.header.log_length);
        let whole: u64 = pages.chunks(MAX_PAGES).map(|pages| entry_bytes(pages.len())).sum();
        let fits = self.next.saturating_add(whole.min(log_bytes)) <= log_bytes;
        if self.is_log_on() && (!fits || self.is_spoilt) {
            self.turn_log_off(storage)?;
        }
        let was_on = self.is_log_on();
        let guid = if was_on { self.header.log_guid } else { self.new_guid()? };
        if !was_on {
            self.next = 0;
        }
        let (bytes, logged, entries) = self.entries(pages, guid, file_bytes);
        self.is_spoilt = true;
        storage.write_at(ByteOffset::new(self.header.log_offset.saturating_add(self.next)), &bytes)?;
        storage.flush()?;
        if !was_on {
            self.put_headers(storage, |header| header.log_guid = guid)?;
        }
        self.is_spoilt = false;
        self.next = self.next.saturating_add(u64::try_from(bytes.len()).unwrap_or_default());
        self.sequence_number = self.sequence_number.saturating_add(entries);
        Ok(logged)
    }

    /// The entries from the ring's next place up to its end, how many of the pages they hold, and how many they are.
    fn entries(&self, pages: &[(u64, Box<Page>)], guid: Guid, file_bytes: u64) -> (Vec<u8>, usize, u64) {
        let room = u64::from(self.header.log_length).saturating_sub(self.next);
        let tail = u32::try_from(self.next).unwrap_or(u32::MAX);
        let (mut bytes, mut logged, mut entries) = (Vec::new(), 0_usize, 0_u64);
        for chunk in pages.chunks(MAX_PAGES) {
            let left = room.saturating_sub(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
            let sectors = usize::try_from(left / SECTOR_BYTES).unwrap_or(usize::MAX);
            let chunk = chunk.get(..sectors.saturating_sub(1).min(chunk.len())).unwrap_or_default();
            if chunk.is_empty() {
                break;
            }
            entries = entries.saturating_add(1);
            let sequence_number = self.sequence_number.saturating_add(entries);
            bytes.extend(encode(EntryFrame { guid, sequence_number, tail, file_bytes }, chunk));
            logged = logged.saturating_add(chunk.len());
        }
        (bytes, logged, entries)
    }

    /// Writes a changed header, over the one that does not count; then over the other, so that both are current
    /// ([MS-VHDX] §2.2.2).
    fn put_headers(
        &mut self,
        storage: &dyn WritableStorage,
        change: impl Fn(&mut Header),
    ) -> Result<(), StorageError> {
        for _ in PLACES {
            let mut next = self.header.clone();
            change(&mut next);
            next.sequence_number = next.sequence_number.saturating_add(1);
            let at = PLACES.into_iter().find(|&place| place != self.at).unwrap_or_default();
            storage.write_at(ByteOffset::new(at), &next.encode())?;
            storage.flush()?;
            (self.header, self.at) = (next, at);
        }
        Ok(())
    }

    fn new_guid(&self) -> Result<Guid, StorageError> {
        Guid::random().map_err(|error| {
            let source = io::Error::other(format!("there are no random numbers for its header: {error}"));
            StorageError::Write { at: ByteOffset::new(self.at), source }
        })
    }
}

#[cfg(test)]
mod tests {
    use block::ByteLength;

    use super::super::super::{MIB, header, replay};
    use super::*;
    use crate::storage::{CrashStorage, MemoryStorage};

    fn pages(count: u64) -> Vec<(u64, Box<Page>)> {
        (0..count).map(|n| (3 * MIB + n * SECTOR_BYTES, Box::new([n as u8 | 1; 4096]))).collect()
    }

    #[test]
    fn more_pages_than_the_ring_holds_take_several_turns() {
        let storage = CrashStorage::new(MemoryStorage::sparse(ByteLength::new(8 * MIB)));
        let first = Header::new(5, Guid::NIL, Guid::NIL, MIB, 1 << 20);
        storage.write_at(ByteOffset::new(PLACES[0]), &first.encode()).unwrap();
        let mut session = Session::new(&first, PLACES[0]).unwrap();
        let pages = pages(600);
        let (mut rest, mut turns) = (pages.as_slice(), 0);
        while !rest.is_empty() {
            let logged = session.log(rest, 8 * MIB, &storage).unwrap();
            // Two entries of 126 pages fill 254 sectors of 256, and one page more the rest.
            assert_eq!(logged, rest.len().min(253));
            let (now, _) = header::read_current_with_place(&storage).unwrap();
            let overlay = replay::replay(&storage, &now).unwrap();
            for (at, page) in &rest[..logged] {
                let (piece, _) = overlay.at(*at);
                let Some(super::super::super::overlay::Piece::Sector(bytes)) = piece else { panic!() };
                assert_eq!(**bytes, **page);
            }
            rest = &rest[logged..];
            turns += 1;
            session.turn_log_off(&storage).unwrap();
        }
        assert_eq!(turns, 3);
        assert!(!session.is_log_on());
    }

    #[test]
    fn ring_without_room_begins_anew_under_another_identifier() {
        let storage = CrashStorage::new(MemoryStorage::sparse(ByteLength::new(8 * MIB)));
        let first = Header::new(5, Guid::NIL, Guid::NIL, MIB, 1 << 20);
        let mut session = Session::new(&first, PLACES[0]).unwrap();
        let mut guids = Vec::new();
        for turn in 0..6 {
            session.log(&pages(100), 8 * MIB, &storage).unwrap();
            let (now, _) = header::read_current_with_place(&storage).unwrap();
            assert!(replay::replay(&storage, &now).is_ok(), "turn {turn}");
            guids.push(now.log_guid);
        }
        assert!(guids[0] == guids[1] && guids[1] != guids[2] && guids[2] == guids[3] && guids[3] != guids[4]);
    }
}
