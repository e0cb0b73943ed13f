//! Large buffers that the connections of a thread share: a connection has one only while bytes are on their way.
use std::cell::RefCell;

use crate::limits::{KEPT_BUFFERS, LARGE_BUFFER_BYTES, PIECE_BYTES, SMALL_REST_BYTES};
use connections::ByteQueue;

/// Memory for pieces of writes that go to a worker and come back. Taken anew for each, a piece would cost a page fault and
/// a cleared page for every 4 KiB of it.
#[derive(Default)]
pub(super) struct Pieces {
    kept: RefCell<Vec<Vec<u8>>>,
}

impl Pieces {
    /// A copy of `data`.
    pub(super) fn copy_of(&self, data: &[u8]) -> Vec<u8> {
        if data.len() <= SMALL_REST_BYTES {
            return data.to_vec();
        }
        let kept = self.kept.try_borrow_mut().ok().and_then(|mut kept| kept.pop());
        let mut piece = kept.unwrap_or_else(|| Vec::with_capacity(PIECE_BYTES));
        piece.clear();
        piece.extend_from_slice(data);
        piece
    }

    /// Takes memory back.
    pub(super) fn keep(&self, piece: Vec<u8>) {
        let usual = piece.capacity() == PIECE_BYTES;
        if usual
            && let Ok(mut kept) = self.kept.try_borrow_mut()
            && kept.len() < KEPT_BUFFERS
        {
            kept.push(piece);
        }
    }
}

/// The spare buffers of a thread.
#[derive(Default)]
pub(super) struct Buffers {
    kept: Vec<ByteQueue>,
}

impl Buffers {
    /// Gives `queue` a large buffer, if it has none.
    pub(super) fn enlarge(&mut self, queue: &mut ByteQueue) {
        if queue.room() >= LARGE_BUFFER_BYTES {
            return;
        }
        let mut large = self.kept.pop().unwrap_or_else(|| ByteQueue::with_room(LARGE_BUFFER_BYTES));
        large.append(queue.filled());
        *queue = large;
    }

    /// Takes the buffer of `queue` back, unless more is in it than a small one should hold.
    pub(super) fn reclaim(&mut self, queue: &mut ByteQueue) {
        if queue.len() > SMALL_REST_BYTES || queue.room() <= SMALL_REST_BYTES {
            return;
        }
        let mut large = std::mem::take(queue);
        if !large.is_empty() {
            queue.append(large.filled());
        }
        let usual = (LARGE_BUFFER_BYTES..=LARGE_BUFFER_BYTES.saturating_mul(2)).contains(&large.room());
        if usual && self.kept.len() < KEPT_BUFFERS {
            large.consume(large.len());
            self.kept.push(large);
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
        let place = first.as_ptr();
        pieces.keep(first);
        pieces.keep(vec![9; 100]);
        let again = pieces.copy_of(&[2; 17_000]);
        assert_eq!((again.as_ptr(), again.len(), again.iter().all(|byte| *byte == 2)), (place, 17_000, true));
        assert_eq!(pieces.copy_of(&[3; 100]), [3; 100]);
        (0..2 * KEPT_BUFFERS).for_each(|_| pieces.keep(Vec::with_capacity(PIECE_BYTES)));
        assert_eq!(pieces.kept.borrow().len(), KEPT_BUFFERS);
    }
}
