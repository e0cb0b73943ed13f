//! Large buffers that the connections of a thread share: a connection has one only while bytes are on their way.
use crate::limits::{KEPT_BUFFERS, LARGE_BUFFER_BYTES, SMALL_REST_BYTES};
use connections::ByteQueue;

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
