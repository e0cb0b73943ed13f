//! Filling one payload block of a new image with the pieces that it is made of.
//!
//! Few pieces are moved one by one. A block of many small ones, as a differencing image leaves them after years of
//! small writes, is worked through in windows. Where extents can be shared, most of a window comes as a rule from one
//! file, with small pieces of another in it: the whole window is shared from the first, and the small ones are
//! written over it. Where they cannot, or where so many are small that sharing would only leave a file in splinters,
//! the window is put together in memory and written once.
use std::sync::Arc;

use block::{BlockDevice, ByteOffset, Patience};

use super::mover::{MoveError, Mover};
use super::run::{MIN_SHARED_BYTES, Run};
use super::view::{Content, Piece};
use crate::extent::LayerIndex;
use crate::format::Format;
use crate::image::Image;

/// How much of a block is put together at once.
const WINDOW_BYTES: u64 = 2 << 20;
/// Up to so many small pieces of a window are moved one by one, or written over what is shared.
const FEW: usize = 8;
const SOME: usize = 64;

/// Fills blocks.
#[derive(Debug)]
pub(super) struct Filler<'a> {
    image: &'a Image,
    mover: Mover<'a>,
    window: Vec<u8>,
    /// The layers whose blocks may have what ours have before them: those of VHD. Elsewhere it is not looked for.
    led: Vec<LayerIndex>,
}

/// What a window is laid on: one run of a file, from the disk's `start` to `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Underlay {
    layer: LayerIndex,
    start: u64,
    end: u64,
    /// Where `start` lies in the file.
    from: u64,
}

impl<'a> Filler<'a> {
    pub(super) fn new(image: &'a Image, mover: Mover<'a>) -> Self {
        let layers = image.layers().into_iter();
        let led = layers.filter(|file| file.info.format == Format::Vhd).map(|file| file.layer).collect();
        Self { image, mover, window: Vec::new(), led }
    }

    pub(super) fn mover(&mut self) -> &mut Mover<'a> {
        &mut self.mover
    }

    /// Moves the data of `pieces` to the block that begins at `start` of the disk and has its place at `to` of the
    /// target, behind `lead`. What is not data is left as the new file is: zeros.
    pub(super) fn block(
        &mut self,
        pieces: &[Piece],
        start: u64,
        to: u64,
        lead: &Arc<[u8]>,
    ) -> Result<(), MoveError> {
        let place = Place { start, to };
        if let &[Piece { start: first, length, content: Content::File { layer, at } }] = pieces
            && first == start
            && self.led.contains(&layer)
            && !lead.is_empty()
        {
            return self.mover.run_led(Run { layer, from: at, to, length }, lead);
        }
        self.mover.lead(to, lead)?;
        if count_small(pieces) <= FEW {
            return self.one_by_one(pieces, place);
        }
        let mut pieces = pieces.iter().copied().peekable();
        let mut at = start;
        let mut window = Vec::new();
        while let Some(first) = pieces.peek() {
            // Windows without pieces are skipped; pieces reach into the next window.
            let skipped = first.start.saturating_sub(at).checked_div(WINDOW_BYTES).unwrap_or_default();
            at = at.saturating_add(skipped.saturating_mul(WINDOW_BYTES));
            let end = at.saturating_add(WINDOW_BYTES);
            window.clear();
            while let Some(piece) = pieces.peek() {
                window.extend(piece.clip(at, end));
                if piece.end() > end {
                    break;
                }
                pieces.next();
            }
            self.window(&window, place)?;
            at = end;
        }
        Ok(())
    }

    fn window(&mut self, pieces: &[Piece], place: Place) -> Result<(), MoveError> {
        let small = count_small(pieces);
        if small <= FEW {
            return self.one_by_one(pieces, place);
        }
        let mover = &self.mover;
        let underlay = (small <= SOME)
            .then(|| Underlay::of(pieces, |layer| mover.shares(layer)))
            .flatten()
            .filter(|underlay| underlay.is_shared(place, mover.shares(underlay.layer)));
        match underlay {
            Some(underlay) => self.over(underlay, pieces, place),
            None => self.in_memory(pieces, place),
        }
    }

    fn one_by_one(&mut self, pieces: &[Piece], place: Place) -> Result<(), MoveError> {
        for piece in pieces {
            let to = place.of(piece.start);
            match piece.content {
                Content::Parent | Content::Zero => {}
                Content::File { layer, at } => {
                    self.mover.run(Run { layer, from: at, to, length: piece.length })?;
                }
                Content::Read => self.mover.run_by_image(piece.start, to, piece.length)?,
            }
        }
        Ok(())
    }

    /// Shares the underlay and writes the other pieces over it.
    fn over(&mut self, underlay: Underlay, pieces: &[Piece], place: Place) -> Result<(), MoveError> {
        let length = underlay.end.saturating_sub(underlay.start);
        let to = place.of(underlay.start);
        let extra = pieces.iter().filter(|piece| piece.is_data() && !underlay.holds(piece));
        let extra = extra.filter_map(|piece| piece.clip(underlay.start, underlay.end));
        self.mover.expect(extra.map(|piece| piece.length).sum());
        self.mover.run(Run { layer: underlay.layer, from: underlay.from, to, length })?;
        self.mover.settle()?;
        for piece in pieces.iter().filter(|piece| !underlay.holds(piece)) {
            let to = place.of(piece.start);
            match piece.content {
                Content::File { layer, at } => {
                    self.mover.run_over(Run { layer, from: at, to, length: piece.length })?;
                }
                Content::Read => {
                    let buffer = resized(&mut self.window, piece.length);
                    read(self.image, piece.start, buffer)?;
                    self.mover.write_over(to, buffer)?;
                }
                Content::Parent | Content::Zero => {}
            }
        }
        Ok(())
    }

    /// Puts the window together in memory and writes it.
    fn in_memory(&mut self, pieces: &[Piece], place: Place) -> Result<(), MoveError> {
        if !pieces.iter().any(|piece| piece.content == Content::Parent) {
            return self.by_image(pieces, place);
        }
        let (Some(first), Some(last)) = (pieces.first(), pieces.last()) else { return Ok(()) };
        let (start, length) = (first.start, last.end().saturating_sub(first.start));
        let buffer = resized(&mut self.window, length);
        buffer.fill(0);
        let mut data = 0_u64;
        for piece in pieces.iter().filter(|piece| piece.is_data()) {
            let from = usize::try_from(piece.start.saturating_sub(start)).unwrap_or(usize::MAX);
            let length = usize::try_from(piece.length).unwrap_or(usize::MAX);
            let target = buffer.get_mut(from..).and_then(|rest| rest.get_mut(..length));
            read(self.image, piece.start, target.unwrap_or_default())?;
            data = data.saturating_add(piece.length);
        }
        self.mover.expect(length.saturating_sub(data));
        self.mover.write_new(place.of(start), buffer)
    }

    /// As [`in_memory`](Self::in_memory), of a window of which the new image holds all that the source has there: whoever
    /// copies next reads it as one.
    fn by_image(&mut self, pieces: &[Piece], place: Place) -> Result<(), MoveError> {
        let mut data = pieces.iter().filter(|piece| piece.is_data());
        let Some(first) = data.next() else { return Ok(()) };
        let last = data.next_back().unwrap_or(first);
        let length = last.end().saturating_sub(first.start);
        let stored = pieces.iter().filter(|piece| piece.is_data()).map(|piece| piece.length).sum();
        self.mover.expect(length.saturating_sub(stored));
        self.mover.run_by_image(first.start, place.of(first.start), length)
    }
}

/// Where a block begins on the disk, and where in the target.
#[derive(Clone, Copy, Debug)]
struct Place {
    start: u64,
    to: u64,
}

impl Place {
    /// Where the disk's `at` goes.
    fn of(self, at: u64) -> u64 {
        self.to.saturating_add(at.saturating_sub(self.start))
    }
}

impl Underlay {
    /// The run of the file that has most of the pieces, from its first piece to its last; `None` where something that
    /// is not data lies between, which would have to be zeroed again.
    fn of(pieces: &[Piece], shares: impl Fn(LayerIndex) -> Option<u64>) -> Option<Self> {
        let mut best: Option<(u64, Self)> = None;
        let mut runs: Vec<(u64, Self)> = Vec::new();
        for piece in pieces {
            let Content::File { layer, at } = piece.content else {
                if !piece.is_data() {
                    // What comes behind begins anew.
                    runs.clear();
                }
                continue;
            };
            if shares(layer).is_none() {
                continue;
            }
            let one = Self { layer, start: piece.start, end: piece.end(), from: at };
            let known = runs.iter_mut().find(|(_, run)| run.continues_to(one));
            let (bytes, run) = match known {
                Some((bytes, run)) => {
                    run.end = one.end;
                    *bytes = bytes.saturating_add(piece.length);
                    (*bytes, *run)
                }
                None => {
                    runs.push((piece.length, one));
                    (piece.length, one)
                }
            };
            if best.is_none_or(|(most, _)| bytes > most) {
                best = Some((bytes, run));
            }
        }
        best.map(|(_, run)| run)
    }

    /// Whether `other` lies in the same file, as far from where this begins as on the disk.
    fn continues_to(self, other: Self) -> bool {
        let distance = other.start.checked_sub(self.start);
        self.layer == other.layer && distance.is_some() && distance == other.from.checked_sub(self.from)
    }

    /// Whether the piece is part of it.
    fn holds(self, piece: &Piece) -> bool {
        let Content::File { layer, at } = piece.content else { return false };
        let one = Self { layer, start: piece.start, end: piece.end(), from: at };
        piece.end() <= self.end && self.continues_to(one)
    }

    /// Whether it can be shared with where it goes, and is long enough.
    fn is_shared(self, place: Place, unit: Option<u64>) -> bool {
        let within = |at: u64| unit.and_then(|unit| at.checked_rem(unit));
        let alike = within(self.from).is_some() && within(self.from) == within(place.of(self.start));
        alike && self.end.saturating_sub(self.start) >= MIN_SHARED_BYTES.saturating_mul(2)
    }
}

fn count_small(pieces: &[Piece]) -> usize {
    pieces.iter().filter(|piece| piece.is_data() && piece.length < MIN_SHARED_BYTES).count()
}

fn resized(buffer: &mut Vec<u8>, length: u64) -> &mut [u8] {
    buffer.resize(usize::try_from(length.min(WINDOW_BYTES)).unwrap_or_default(), 0);
    buffer
}

fn read(image: &Image, at: u64, buffer: &mut [u8]) -> Result<(), MoveError> {
    image.read(ByteOffset::new(at), buffer, Patience::Blocking).map_err(MoveError::Image)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: LayerIndex = LayerIndex::BASE;
    const CHILD: LayerIndex = LayerIndex::new(1);

    fn piece(start: u64, length: u64, content: Content) -> Piece {
        Piece { start, length, content }
    }

    fn file(layer: LayerIndex, at: u64) -> Content {
        Content::File { layer, at }
    }

    #[test]
    fn underlay_is_the_file_with_most_of_the_bytes() {
        let pieces = [
            piece(0, 100, file(BASE, 1000)),
            piece(100, 10, file(CHILD, 5000)),
            piece(110, 90, file(BASE, 1110)),
            piece(200, 50, file(CHILD, 5100)),
            piece(250, 10, file(BASE, 9000)),
        ];
        let underlay = Underlay::of(&pieces, |_| Some(4096)).unwrap();
        assert_eq!(underlay, Underlay { layer: BASE, start: 0, end: 200, from: 1000 });
        let held: Vec<_> = pieces.iter().map(|piece| underlay.holds(piece)).collect();
        assert_eq!(held, [true, false, true, false, false]);
        // A file that cannot be shared is none, however much it has.
        let underlay = Underlay::of(&pieces, |layer| (layer == CHILD).then_some(4096)).unwrap();
        assert_eq!(underlay, Underlay { layer: CHILD, start: 100, end: 250, from: 5000 });
    }

    #[test]
    fn underlay_does_not_reach_over_zeros_or_what_the_parent_has() {
        for gap in [Content::Zero, Content::Parent] {
            let pieces =
                [piece(0, 100, file(BASE, 1000)), piece(100, 10, gap), piece(110, 90, file(BASE, 1110))];
            let underlay = Underlay::of(&pieces, |_| Some(4096)).unwrap();
            assert_eq!((underlay.start, underlay.end), (0, 100));
        }
    }
}
