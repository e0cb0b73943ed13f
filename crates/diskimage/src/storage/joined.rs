//! Several files as one, end to end: an image that is cut into extent files is read through one storage, and its
//! formats give places in that.
use block::{ByteLength, ByteOffset, Patience};

use super::{Storage, StorageError, check_inside};

/// Files that lie behind each other in one space of places.
#[derive(Debug, Default)]
pub(crate) struct JoinedStorage {
    parts: Vec<Part>,
    len: u64,
}

#[derive(Debug)]
struct Part {
    start: u64,
    end: u64,
    storage: Box<dyn Storage>,
}

impl JoinedStorage {
    /// Adds a file behind the others, and says where it begins; `None` where places end.
    pub(crate) fn push(&mut self, storage: Box<dyn Storage>) -> Option<u64> {
        let start = self.len;
        let end = start.checked_add(storage.len().get())?;
        self.parts.push(Part { start, end, storage });
        self.len = end;
        Some(start)
    }

    /// The only file, if there is just one: its places are these here.
    pub(crate) fn simplified(mut self) -> Box<dyn Storage> {
        match self.parts.pop() {
            Some(part) if self.parts.is_empty() => part.storage,
            Some(part) => {
                self.parts.push(part);
                Box::new(self)
            }
            None => Box::new(self),
        }
    }
}

impl Storage for JoinedStorage {
    fn len(&self) -> ByteLength {
        ByteLength::new(self.len)
    }

    fn read_at(&self, at: ByteOffset, buffer: &mut [u8], patience: Patience) -> Result<(), StorageError> {
        check_inside(at, buffer.len(), self.len())?;
        let first = self.parts.partition_point(|part| part.end <= at.get());
        let (mut place, mut rest) = (at.get(), buffer);
        for part in self.parts.iter().skip(first) {
            let room = usize::try_from(part.end.saturating_sub(place)).unwrap_or(usize::MAX);
            let (piece, tail) = rest.split_at_mut(room.min(rest.len()));
            let within = ByteOffset::new(place.saturating_sub(part.start));
            part.storage.read_at(within, piece, patience)?;
            place = part.end;
            rest = tail;
            if rest.is_empty() {
                break;
            }
        }
        Ok(())
    }

    fn allocated(&self) -> Option<ByteLength> {
        let mut parts = self.parts.iter().map(|part| part.storage.allocated().map(ByteLength::get));
        let bytes = parts.try_fold(0_u64, |sum, bytes| sum.checked_add(bytes?))?;
        Some(ByteLength::new(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::MemoryStorage;

    fn joined(parts: &[&[u8]]) -> JoinedStorage {
        let mut joined = JoinedStorage::default();
        for part in parts {
            joined.push(Box::new(MemoryStorage::new(part))).unwrap();
        }
        joined
    }

    #[test]
    fn reads_go_over_the_ends_of_files() {
        let file = joined(&[&[1, 2, 3], &[], &[4], &[5, 6, 7]]);
        assert_eq!(file.len().get(), 7);
        for start in 0..7 {
            for end in start..=7 {
                let mut buffer = vec![0; end - start];
                file.read_at(ByteOffset::new(start as u64), &mut buffer, Patience::Now).unwrap();
                assert_eq!(buffer, [1, 2, 3, 4, 5, 6, 7][start..end]);
            }
        }
        let result = file.read_at(ByteOffset::new(5), &mut [0; 3], Patience::Now);
        assert!(matches!(result, Err(StorageError::EndOfFile { len: 7, .. })), "{result:?}");
    }

    #[test]
    fn one_file_stays_itself() {
        assert_eq!(joined(&[&[1, 2]]).simplified().len().get(), 2);
        let shown = format!("{:?}", joined(&[&[1, 2]]).simplified());
        assert!(shown.starts_with("MemoryStorage"), "{shown}");
    }
}
