//! A file in memory that can lose power: every change is kept as an event, and from any moment of its history the
//! file can be had as a crash would have left it.
//!
//! What a flush has covered is there. Of the changes after the last flush each may have reached the disk or not, in
//! any order, and a write in part: in whole sectors, as disks promise no more. A test runs its workload once, then
//! goes through the moments of the history and through as many ways to crash at each as it likes. It notes in the
//! history with [`CrashStorage::mark`] what had been promised by then.
use std::sync::{Mutex, MutexGuard, PoisonError};

use block::{ByteLength, ByteOffset, ByteRange, Patience};

use super::{MemoryStorage, Storage, StorageError, WritableStorage, check_inside};

/// A write is torn at multiples of this.
const TEAR_BYTES: usize = 512;

/// What happened to the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Bytes were written.
    Write {
        /// Where.
        at: ByteOffset,
        /// Which.
        data: Vec<u8>,
    },
    /// The length was set.
    SetLen(ByteLength),
    /// A range was made zeros.
    Punch(ByteRange),
    /// All before was made lasting.
    Flush,
    /// What the test noted.
    Mark(u64),
}

/// What a crash leaves of one change that no flush has covered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survival {
    /// Nothing.
    Lost,
    /// All of it.
    Whole,
    /// Of a write, only this many sectors of 512 bytes at its start; of another change, nothing.
    Head(usize),
    /// Of a write, all but this many sectors of 512 bytes at its start; of another change, nothing.
    Tail(usize),
}

/// A file in memory with its history.
#[derive(Debug)]
pub struct CrashStorage {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    start: MemoryStorage,
    now: MemoryStorage,
    events: Vec<Event>,
}

impl CrashStorage {
    /// A file that holds `start`, all of it lasting.
    #[must_use]
    pub fn new(start: MemoryStorage) -> Self {
        let state = State { now: start.clone(), start, events: Vec::new() };
        Self { state: Mutex::new(state) }
    }

    /// Notes `value` in the history.
    pub fn mark(&self, value: u64) {
        self.state().events.push(Event::Mark(value));
    }

    /// How many events the history has.
    #[must_use]
    pub fn moments(&self) -> usize {
        self.state().events.len()
    }

    /// All that happened.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        self.state().events.clone()
    }

    /// The file as it is.
    #[must_use]
    pub fn now(&self) -> MemoryStorage {
        self.state().now.clone()
    }

    /// The file as a crash just after the first `moment` events leaves it. `survival` is asked for each change since
    /// the last flush before.
    #[must_use]
    pub fn crashed(&self, moment: usize, mut survival: impl FnMut(&Event) -> Survival) -> MemoryStorage {
        let state = self.state();
        let events = state.events.get(..moment).unwrap_or(&state.events);
        let flushed = events.iter().rposition(|event| *event == Event::Flush).unwrap_or(0);
        let mut file = state.start.clone();
        for (index, event) in events.iter().enumerate() {
            let survival = if index < flushed { Survival::Whole } else { survival(event) };
            apply(&mut file, event, survival);
        }
        file
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, event: Event) {
        let mut state = self.state();
        apply(&mut state.now, &event, Survival::Whole);
        state.events.push(event);
    }
}

fn apply(file: &mut MemoryStorage, event: &Event, survival: Survival) {
    match (event, survival) {
        (Event::Flush | Event::Mark(_), _) | (_, Survival::Lost) => {}
        (Event::Write { at, data }, survival) => {
            let cut = |sectors: usize| sectors.saturating_mul(TEAR_BYTES).min(data.len());
            let (skipped, kept) = match survival {
                Survival::Head(sectors) => (0, data.get(..cut(sectors))),
                Survival::Tail(sectors) => (cut(sectors), data.get(cut(sectors)..)),
                Survival::Whole | Survival::Lost => (0, Some(data.as_slice())),
            };
            let at = at.get().saturating_add(u64::try_from(skipped).unwrap_or(u64::MAX));
            // A write of nothing changes nothing, also not the length.
            if let Some(kept) = kept.filter(|kept| !kept.is_empty()) {
                file.put(ByteOffset::new(at), kept);
            }
        }
        (Event::SetLen(len), Survival::Whole) => file.set_len(*len),
        (Event::Punch(range), Survival::Whole) => file.zero(*range),
        (Event::SetLen(_) | Event::Punch(_), Survival::Head(_) | Survival::Tail(_)) => {}
    }
}

impl Storage for CrashStorage {
    fn len(&self) -> ByteLength {
        self.state().now.len()
    }

    fn read_at(&self, at: ByteOffset, buffer: &mut [u8], patience: Patience) -> Result<(), StorageError> {
        self.state().now.read_at(at, buffer, patience)
    }

    fn allocated(&self) -> Option<ByteLength> {
        self.state().now.allocated()
    }
}

impl WritableStorage for CrashStorage {
    fn write_at(&self, at: ByteOffset, data: &[u8]) -> Result<(), StorageError> {
        self.change(Event::Write { at, data: data.to_vec() });
        Ok(())
    }

    fn set_len(&self, len: ByteLength) -> Result<(), StorageError> {
        self.change(Event::SetLen(len));
        Ok(())
    }

    fn punch(&self, range: ByteRange) -> Result<(), StorageError> {
        let length = range.length().in_memory().unwrap_or(usize::MAX);
        check_inside(range.start(), length, self.len())?;
        self.change(Event::Punch(range));
        Ok(())
    }

    fn flush(&self) -> Result<(), StorageError> {
        self.change(Event::Flush);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(file: &MemoryStorage) -> Vec<u8> {
        let mut bytes = vec![0; file.len().in_memory().unwrap()];
        file.read_at(ByteOffset::ZERO, &mut bytes, Patience::Now).unwrap();
        bytes
    }

    #[test]
    fn crash_keeps_what_was_flushed_and_chooses_from_the_rest() {
        let file = CrashStorage::new(MemoryStorage::new(&[0; 2048]));
        file.write_at(ByteOffset::ZERO, &[1; 1024]).unwrap();
        file.flush().unwrap();
        file.mark(7);
        file.write_at(ByteOffset::new(512), &[2; 1024]).unwrap();
        file.set_len(ByteLength::new(4096)).unwrap();

        let end = file.moments();
        let lost = bytes(&file.crashed(end, |_| Survival::Lost));
        assert_eq!((lost.len(), &lost[..1024], &lost[1024..]), (2048, &[1; 1024][..], &[0; 1024][..]));
        let head = bytes(&file.crashed(end, |_| Survival::Head(1)));
        assert_eq!((head.len(), &head[512..1024], &head[1024..1536]), (2048, &[2; 512][..], &[0; 512][..]));
        let tail = bytes(&file.crashed(end, |_| Survival::Tail(1)));
        assert_eq!((&tail[512..1024], &tail[1024..1536]), (&[1; 512][..], &[2; 512][..]));
        assert_eq!(bytes(&file.crashed(end, |_| Survival::Whole)), bytes(&file.now()));
        assert_eq!(
            bytes(&file.crashed(1, |_| Survival::Lost)),
            [0; 2048],
            "before the flush nothing is sure"
        );
        assert_eq!(file.events()[2], Event::Mark(7));
    }

    #[test]
    fn punched_range_reads_as_zeros_and_must_lie_in_the_file() {
        let file = CrashStorage::new(MemoryStorage::new(&[1; 9000]));
        let range = |at, length| ByteRange::new(ByteOffset::new(at), ByteLength::new(length)).unwrap();
        file.punch(range(100, 8192)).unwrap();
        let now = bytes(&file.now());
        assert_eq!(
            (&now[..100], &now[100..8292], &now[8292..]),
            (&[1; 100][..], &[0; 8192][..], &[1; 708][..])
        );
        assert!(file.punch(range(8000, 1001)).is_err());
    }
}
