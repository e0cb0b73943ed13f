//! A queue of bytes in one piece of memory: filled at the end, consumed at the start.
//!
//! Input and output of a connection are such queues. The room behind the end is already initialised, so data can be
//! read straight into it (from a socket, or from a block device between two PDU headers) without clearing it first.

/// Bytes in, bytes out, first in, first out.
#[derive(Debug, Default)]
pub struct ByteQueue {
    // Initialised throughout; the queue's contents are `start..end`.
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

/// The least a queue grows by.
const GROWTH_BYTES: usize = 4096;

impl ByteQueue {
    /// An empty queue with room for `bytes`.
    #[must_use]
    pub fn with_room(bytes: usize) -> Self {
        Self { bytes: vec![0; bytes], start: 0, end: 0 }
    }

    /// What is in it.
    #[must_use]
    pub fn filled(&self) -> &[u8] {
        self.bytes.get(self.start..self.end).unwrap_or_default()
    }

    /// How many bytes are in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.end.saturating_sub(self.start)
    }

    /// Whether nothing is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// The memory it holds.
    #[must_use]
    pub fn room(&self) -> usize {
        self.bytes.len()
    }

    /// Room for `wanted` bytes behind the end: exactly that many. They hold anything.
    pub fn spare(&mut self, wanted: usize) -> &mut [u8] {
        self.make_room(wanted);
        let until = self.end.saturating_add(wanted);
        self.bytes.get_mut(self.end..until).unwrap_or_default()
    }

    /// All the room there is behind the end without growing.
    pub fn rest(&mut self) -> &mut [u8] {
        if self.end > self.bytes.len().saturating_div(2) {
            self.compact();
        }
        self.bytes.get_mut(self.end..).unwrap_or_default()
    }

    /// Takes the first `count` bytes of the room behind the end into the queue.
    pub fn advance(&mut self, count: usize) {
        self.end = self.end.saturating_add(count).min(self.bytes.len());
    }

    /// Adds a copy of `bytes`.
    pub fn append(&mut self, bytes: &[u8]) {
        self.spare(bytes.len()).copy_from_slice(bytes);
        self.advance(bytes.len());
    }

    /// Drops the first `count` bytes.
    pub fn consume(&mut self, count: usize) {
        self.start = self.start.saturating_add(count).min(self.end);
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
    }

    fn compact(&mut self) {
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end = self.end.saturating_sub(self.start);
            self.start = 0;
        }
    }

    fn make_room(&mut self, wanted: usize) {
        let free = self.bytes.len().saturating_sub(self.end);
        if free >= wanted {
            return;
        }
        self.compact();
        let needed = self.end.saturating_add(wanted);
        if needed > self.bytes.len() {
            let doubled = self.bytes.len().saturating_mul(2);
            self.bytes.resize(needed.max(doubled.min(needed.saturating_add(1 << 20))).max(GROWTH_BYTES), 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_gives_back_what_it_took_in_order() {
        let mut queue = ByteQueue::default();
        let mut rng = mutate::Rng::new(1);
        let (mut put, mut got) = (0_u8, 0_u8);
        for _ in 0..5000 {
            let piece: Vec<u8> = (0..rng.below(900))
                .map(|_| {
                    put = put.wrapping_add(1);
                    put
                })
                .collect();
            queue.append(&piece);
            let take = rng.below(1000).min(queue.len() as u64) as usize;
            for byte in &queue.filled()[..take] {
                got = got.wrapping_add(1);
                assert_eq!(*byte, got);
            }
            queue.consume(take);
        }
        assert!(queue.room() < 1 << 20);
    }
}
