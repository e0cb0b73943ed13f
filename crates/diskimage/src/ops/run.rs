//! A run: bytes of one file that are to become bytes of another.
use crate::extent::LayerIndex;

/// What is shared is at least this long.
pub(super) const MIN_SHARED_BYTES: u64 = 64 << 10;

/// A run to be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) layer: LayerIndex,
    /// Where it lies in the source.
    pub(super) from: u64,
    /// Where it goes in the target.
    pub(super) to: u64,
    pub(super) length: u64,
}

impl Run {
    pub(super) fn end(self) -> u64 {
        self.from.saturating_add(self.length)
    }

    /// Whether `next` goes on where this one ends, in both files.
    pub(super) fn is_continued_by(self, next: Self) -> bool {
        self.layer == next.layer && self.end() == next.from && self.to.saturating_add(self.length) == next.to
    }

    /// The run without its first `count` bytes.
    pub(super) fn after(self, count: u64) -> Self {
        Self {
            from: self.from.saturating_add(count),
            to: self.to.saturating_add(count),
            length: self.length.saturating_sub(count),
            ..self
        }
    }

    /// Its first `count` bytes, or all of it.
    pub(super) fn head(self, count: u64) -> Self {
        Self { length: self.length.min(count), ..self }
    }

    /// Its start, up to the first multiple of `bytes` in the target.
    pub(super) fn up_to_multiple(self, bytes: u64) -> Self {
        self.head(bytes.saturating_sub(self.to.checked_rem(bytes).unwrap_or_default()))
    }

    /// How much of the run's start must be copied, how much can then be shared in units; the rest is copied again.
    pub(super) fn shared_part(self, unit: u64) -> Option<(u64, u64)> {
        let within = |place: u64| place.checked_rem(unit).unwrap_or_default();
        if within(self.from) != within(self.to) {
            return None;
        }
        let start = self.from.checked_next_multiple_of(unit)?.checked_sub(self.from)?;
        let shared =
            self.end().saturating_sub(within(self.end())).checked_sub(self.from.checked_add(start)?)?;
        (shared >= MIN_SHARED_BYTES).then_some((start, shared))
    }

    /// The run in pieces that end at multiples of `bytes` in the target: a page cache takes what is written there in
    /// few large folios.
    pub(super) fn pieces(self, bytes: u64) -> impl Iterator<Item = Self> {
        let mut rest = self;
        std::iter::from_fn(move || {
            let piece = rest.up_to_multiple(bytes);
            rest = rest.after(piece.length);
            (piece.length > 0).then_some(piece)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: Run = Run { layer: LayerIndex::BASE, from: 1000, to: 5096, length: 200_000 };

    #[test]
    fn pieces_are_the_whole_run_in_order_cut_where_the_target_is_aligned() {
        let pieces: Vec<_> = RUN.pieces(65_536).collect();
        assert_eq!(pieces.len(), 4);
        assert_eq!((pieces[0].from, pieces[0].to, pieces[0].length), (1000, 5096, 60_440));
        assert!(pieces.windows(2).all(|pair| pair[0].is_continued_by(pair[1])));
        assert!(pieces[1..].iter().all(|piece| piece.to % 65_536 == 0));
        assert_eq!(pieces[3].end(), RUN.end());
        assert_eq!(RUN.pieces(u64::MAX).collect::<Vec<_>>(), [RUN]);
        assert_eq!(RUN.head(0).pieces(10).next(), None);
    }

    #[test]
    fn shared_part_is_whole_units_behind_a_start_that_is_copied() {
        assert_eq!(RUN.shared_part(4096), Some((3096, 196_608)));
        assert_eq!(Run { to: 0, ..RUN }.shared_part(4096), None, "they stand differently");
        assert_eq!(Run { length: 60_000, ..RUN }.shared_part(4096), None, "too short to pay");
    }
}
