//! The memory of what is written: pieces that lie well, and are used again.
//!
//! Where a piece begins decides what the kernel's copy of it into the page cache costs. Allocators put large blocks 16
//! bytes behind the start of a page; processors copy from there up to a fifth slower than from a multiple of 32, and some
//! of them at a third of the speed from just before the end of a page. So a piece begins on a cache line.
//!
//! And a piece that was taken anew each time would cost a page fault and a cleared page for every 4 KiB of it.
use std::cell::RefCell;

use crate::limits::{KEPT_BUFFERS, PIECE_BYTES, SMALL_REST_BYTES};

/// What the start of a piece is aligned to.
const LINE_BYTES: usize = 64;

/// Some bytes, with room for more up to a length.
#[derive(Debug, Default)]
pub(super) struct Piece {
    // Initialised throughout; the bytes are `start..end`.
    memory: Vec<u8>,
    start: usize,
    end: usize,
}

impl Piece {
    /// An empty one for so many bytes.
    fn with_capacity(bytes: usize) -> Self {
        let mut memory: Vec<u8> = Vec::with_capacity(bytes.saturating_add(LINE_BYTES));
        // "Never" is an answer that the documentation allows; then it lies as it may.
        let start = memory.as_ptr().align_offset(LINE_BYTES).min(LINE_BYTES);
        memory.resize(start, 0);
        Self { memory, start, end: start }
    }

    /// The bytes.
    pub(super) fn filled(&self) -> &[u8] {
        self.memory.get(self.start..self.end).unwrap_or_default()
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.end.saturating_sub(self.start)
    }

    /// Room for as many more as make it `whole` bytes long. They hold anything.
    pub(super) fn room(&mut self, whole: usize) -> &mut [u8] {
        let until = self.start.saturating_add(whole);
        if until > self.memory.len() {
            self.memory.resize(until, 0);
        }
        self.memory.get_mut(self.end..until).unwrap_or_default()
    }

    /// The first `count` bytes of the room have been filled.
    pub(super) fn advance(&mut self, count: usize) {
        self.end = self.end.saturating_add(count).min(self.memory.len());
    }

    /// Adds a copy of `data`.
    pub(super) fn append(&mut self, data: &[u8]) {
        let until = self.end.saturating_add(data.len());
        if let Some(room) = self.memory.get_mut(self.end..until) {
            room.copy_from_slice(data);
        } else {
            self.memory.truncate(self.end);
            self.memory.extend_from_slice(data);
        }
        self.end = until;
    }
}

/// The pieces of a thread that are used again.
#[derive(Default)]
pub(super) struct Pieces {
    kept: RefCell<Vec<Piece>>,
}

impl Pieces {
    /// An empty piece with room for [`PIECE_BYTES`].
    pub(super) fn empty(&self) -> Piece {
        let kept = self.kept.try_borrow_mut().ok().and_then(|mut kept| kept.pop());
        kept.unwrap_or_else(|| Piece::with_capacity(PIECE_BYTES))
    }

    /// A copy of `data`.
    pub(super) fn copy_of(&self, data: &[u8]) -> Piece {
        let small = data.len() <= SMALL_REST_BYTES;
        let mut piece = if small { Piece::with_capacity(data.len()) } else { self.empty() };
        piece.append(data);
        piece
    }

    /// Takes memory back.
    pub(super) fn keep(&self, mut piece: Piece) {
        let usual = piece.memory.capacity() == PIECE_BYTES.saturating_add(LINE_BYTES);
        if usual
            && let Ok(mut kept) = self.kept.try_borrow_mut()
            && kept.len() < KEPT_BUFFERS
        {
            piece.end = piece.start;
            kept.push(piece);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn piece_that_came_back_is_used_again_and_small_ones_are_not_kept() {
        let pieces = Pieces::default();
        let first = pieces.copy_of(&[1; 20_000]);
        let place = first.filled().as_ptr();
        pieces.keep(first);
        pieces.keep(pieces.copy_of(&[9; 100]));
        let again = pieces.copy_of(&[2; 17_000]);
        assert_eq!((again.filled().as_ptr(), again.filled()), (place, &[2; 17_000][..]));
        assert_eq!(pieces.copy_of(&[3; 100]).filled(), [3; 100]);
        (0..2 * KEPT_BUFFERS).for_each(|_| pieces.keep(Piece::with_capacity(PIECE_BYTES)));
        assert_eq!(pieces.kept.borrow().len(), KEPT_BUFFERS);
    }

    #[test]
    fn pieces_begin_on_a_cache_line_and_hold_what_came_in_either_way() {
        let pieces = Pieces::default();
        for bytes in [1, 100, 4096, 20_000, PIECE_BYTES] {
            let data: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
            let (copied, received) = data.split_at(bytes / 3);
            for mut piece in [pieces.copy_of(&[7; 50_000]), pieces.empty()] {
                piece.end = piece.start;
                piece.append(copied);
                assert_eq!(piece.room(bytes).len(), received.len());
                for part in received.chunks(9_000) {
                    piece.room(bytes)[..part.len()].copy_from_slice(part);
                    piece.advance(part.len());
                }
                assert!(piece.room(bytes).is_empty());
                assert_eq!((piece.len(), piece.filled()), (bytes, data.as_slice()));
                assert_eq!(piece.filled().as_ptr().addr() % LINE_BYTES, 0);
                pieces.keep(piece);
            }
        }
    }
}
