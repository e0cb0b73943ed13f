//! Large buffers that the connections of a thread share: a connection has one only while bytes are on their way.
use crate::limits::{INPUT_BUFFER_BYTES, KEPT_BUFFERS};
use connections::ByteQueue;

/// The spare buffers of a thread.
#[derive(Default)]
pub(super) struct Buffers {
    kept: Vec<ByteQueue>,
}

impl Buffers {
    /// Gives `queue` a large buffer, if it has none.
    pub(super) fn enlarge(&mut self, queue: &mut ByteQueue) {
        if queue.room() >= INPUT_BUFFER_BYTES {
            return;
        }
        let mut large = self.kept.pop().unwrap_or_else(|| ByteQueue::with_room(INPUT_BUFFER_BYTES));
        large.append(queue.filled());
        *queue = large;
    }

    /// Takes a buffer back.
    pub(super) fn keep(&mut self, mut queue: ByteQueue) {
        let usual = (INPUT_BUFFER_BYTES..=INPUT_BUFFER_BYTES.saturating_mul(2)).contains(&queue.room());
        if usual && self.kept.len() < KEPT_BUFFERS {
            queue.consume(queue.len());
            self.kept.push(queue);
        }
    }
}
