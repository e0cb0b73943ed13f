//! The file as it would be after its log was replayed, without writing to it: the log's changes in memory, laid over
//! the file ([MS-VHDX] note <5>: what a reader does that may not write).
//!
//! Memory holds one sector for each data descriptor that still counts; runs of zeros take none.
use std::collections::BTreeMap;
use std::sync::Arc;

use block::{ByteLength, ByteOffset, Patience};

use crate::storage::{Storage, StorageError, check_inside};

/// The changes, as runs that do not lie over each other.
#[derive(Debug, Default)]
pub(super) struct Overlay {
    runs: BTreeMap<u64, Run>,
    /// How long the file is after the replay.
    len: u64,
}

#[derive(Debug)]
struct Run {
    end: u64,
    piece: Piece,
}

/// What a run holds.
#[derive(Clone, Debug)]
pub(super) enum Piece {
    Zero,
    /// One whole sector of the log.
    Sector(Arc<[u8]>),
}

impl Overlay {
    /// An overlay over a file of `file_bytes` that has `len` bytes after the replay. What it gains is zeros.
    pub(super) fn new(file_bytes: u64, len: u64) -> Self {
        let mut overlay = Self { runs: BTreeMap::new(), len: len.max(file_bytes) };
        overlay.zero(file_bytes, overlay.len);
        overlay
    }

    /// Lays zeros from `start` to `end`.
    pub(super) fn zero(&mut self, start: u64, end: u64) {
        self.lay(start, end, Piece::Zero);
    }

    /// Lays the bytes of a sector at `at`.
    pub(super) fn sector(&mut self, at: u64, bytes: Box<[u8]>) {
        let end = at.saturating_add(u64::try_from(bytes.len()).unwrap_or_default());
        self.lay(at, end, Piece::Sector(bytes.into()));
    }

    /// Later changes hide earlier ones. Sectors and zeros both begin and end at whole sectors, so that a sector is
    /// hidden wholly or not at all; only zeros are ever cut.
    fn lay(&mut self, start: u64, end: u64, piece: Piece) {
        if start >= end {
            return;
        }
        let hidden: Vec<u64> = {
            let before = self.runs.range(..end).rev();
            before.take_while(|(_, run)| run.end > start).map(|(&at, _)| at).collect()
        };
        for at in hidden {
            let Some(run) = self.runs.remove(&at) else { continue };
            if at < start {
                self.runs.insert(at, Run { end: start, piece: run.piece.clone() });
            }
            if run.end > end {
                self.runs.insert(end, Run { end: run.end, piece: run.piece });
            }
        }
        self.runs.insert(start, Run { end, piece });
    }

    /// What lies over the file at `at`, if anything does, and where that ends.
    pub(super) fn at(&self, at: u64) -> (Option<&Piece>, u64) {
        match self.runs.range(..=at).next_back() {
            Some((_, run)) if run.end > at => (Some(&run.piece), run.end),
            _ => {
                let next = self.runs.range(at..).next();
                (None, next.map_or(u64::MAX, |(&start, _)| start))
            }
        }
    }

    /// How long the file is after the replay.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// All changes, by their first and behind-last byte.
    pub(super) fn runs(&self) -> impl Iterator<Item = (u64, u64, &Piece)> {
        self.runs.iter().map(|(&start, run)| (start, run.end, &run.piece))
    }

    fn sector_start(&self, at: u64) -> u64 {
        self.runs.range(..=at).next_back().map_or(at, |(&start, _)| start)
    }
}

/// A file with an overlay.
#[derive(Debug)]
pub(super) struct Overlaid {
    under: Box<dyn Storage>,
    overlay: Arc<Overlay>,
}

/// A file that is looked at, with an overlay or without.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    pub(super) under: &'a dyn Storage,
    pub(super) overlay: Option<&'a Overlay>,
}

impl Overlaid {
    pub(super) fn new(under: Box<dyn Storage>, overlay: Arc<Overlay>) -> Self {
        Self { under, overlay }
    }

    fn view(&self) -> View<'_> {
        View { under: &*self.under, overlay: Some(&self.overlay) }
    }
}

impl Storage for Overlaid {
    fn len(&self) -> ByteLength {
        self.view().len()
    }

    fn read_at(&self, at: ByteOffset, buffer: &mut [u8], patience: Patience) -> Result<(), StorageError> {
        self.view().read_at(at, buffer, patience)
    }

    fn allocated(&self) -> Option<ByteLength> {
        self.under.allocated()
    }
}

impl Storage for View<'_> {
    fn len(&self) -> ByteLength {
        self.overlay.map_or_else(|| self.under.len(), |overlay| ByteLength::new(overlay.len))
    }

    fn read_at(&self, at: ByteOffset, buffer: &mut [u8], patience: Patience) -> Result<(), StorageError> {
        let Some(overlay) = self.overlay else { return self.under.read_at(at, buffer, patience) };
        check_inside(at, buffer.len(), self.len())?;
        let (mut place, mut rest) = (at.get(), buffer);
        while !rest.is_empty() {
            let (piece, end) = overlay.at(place);
            let count = usize::try_from(end.saturating_sub(place)).unwrap_or(usize::MAX).min(rest.len());
            let (target, tail) = rest.split_at_mut(count);
            match piece {
                None => self.under.read_at(ByteOffset::new(place), target, patience)?,
                Some(Piece::Zero) => target.fill(0),
                Some(Piece::Sector(bytes)) => {
                    let within = place.saturating_sub(overlay.sector_start(place));
                    let from = usize::try_from(within).unwrap_or(usize::MAX);
                    for (target, byte) in target.iter_mut().zip(bytes.iter().skip(from)) {
                        *target = *byte;
                    }
                }
            }
            place = place.saturating_add(u64::try_from(count).unwrap_or_default());
            rest = tail;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::MemoryStorage;

    fn sector(fill: u8) -> Box<[u8]> {
        vec![fill; 4096].into()
    }

    #[test]
    fn overlay_agrees_with_a_flat_model() {
        let under = block::conformance::pattern(64 << 10);
        let mut model = under.clone();
        model.resize(80 << 10, 0);
        let mut overlay = Overlay::new(64 << 10, 80 << 10);
        let mut rng = mutate::Rng::new(3);
        for step in 0..500 {
            let start = rng.below(20);
            if rng.below(3) == 0 {
                let end = start + rng.below(20 - start) + 1;
                overlay.zero(start * 4096, end * 4096);
                model[start as usize * 4096..end as usize * 4096].fill(0);
            } else {
                overlay.sector(start * 4096, sector(step as u8));
                model[start as usize * 4096..][..4096].fill(step as u8);
            }
            if step % 10 == 0 {
                overlay = check(overlay, &under, &model, &mut rng);
            }
        }
    }

    fn check(overlay: Overlay, under: &[u8], model: &[u8], rng: &mut mutate::Rng) -> Overlay {
        let overlay = Arc::new(overlay);
        let file = Overlaid::new(Box::new(MemoryStorage::new(under)), Arc::clone(&overlay));
        for _ in 0..20 {
            let at = rng.below(model.len() as u64) as usize;
            let length = rng.below((model.len() - at) as u64 + 1) as usize;
            let mut buffer = vec![0xAA; length];
            file.read_at(ByteOffset::new(at as u64), &mut buffer, Patience::Now).unwrap();
            assert!(buffer == model[at..at + length], "{length} bytes at {at}");
        }
        let result = file.read_at(file.len().get().into_offset(), &mut [0], Patience::Now);
        assert!(matches!(result, Err(StorageError::EndOfFile { .. })));
        drop(file);
        Arc::into_inner(overlay).unwrap()
    }

    trait IntoOffset {
        fn into_offset(self) -> ByteOffset;
    }

    impl IntoOffset for u64 {
        fn into_offset(self) -> ByteOffset {
            ByteOffset::new(self)
        }
    }

    #[test]
    fn file_that_is_not_a_whole_number_of_sectors_grows_with_zeros() {
        let mut overlay = Overlay::new(5000, 9000);
        overlay.sector(4096, sector(7));
        let file = Overlaid::new(Box::new(MemoryStorage::new(&[1; 5000])), Arc::new(overlay));
        let mut buffer = [9; 9000];
        file.read_at(ByteOffset::ZERO, &mut buffer, Patience::Now).unwrap();
        assert_eq!(buffer[..4096], [1; 4096]);
        assert_eq!(buffer[4096..8192], [7; 4096]);
        assert_eq!(buffer[8192..], [0; 808]);
    }
}
