//! What a connection has to send: bytes, and between them runs of files that never come into our memory.
//!
//! A simple reply to a read that goes out in pieces must not be interrupted by another reply: while one is open
//! ([`Output::hold`]), the others wait aside.
use std::collections::VecDeque;
use std::fs::File;
use std::sync::Arc;

use block::FileSpan;

use crate::limits::{MAX_QUEUED_SPANS, OUTPUT_MARK_BYTES, PORTION_BYTES};
use connections::ByteQueue;

/// The output of one connection.
#[derive(Debug, Default)]
pub(super) struct Output {
    /// The bytes before, between and behind the spans.
    bytes: ByteQueue,
    spans: VecDeque<QueuedSpan>,
    /// How many of the bytes stand before the last span.
    before_spans: usize,
    aside: ByteQueue,
    held: bool,
}

#[derive(Debug)]
struct QueuedSpan {
    /// How many bytes stand between the span before and this one.
    bytes_before: usize,
    file: Arc<File>,
    at: u64,
    left: u64,
}

/// What is to be sent next.
pub(super) enum Next<'a> {
    Nothing,
    Bytes {
        bytes: &'a [u8],
        /// A span follows.
        more: bool,
    },
    Span {
        file: &'a File,
        at: u64,
        bytes: usize,
    },
}

impl Output {
    /// Where replies are written that are complete in themselves.
    pub(super) fn replies(&mut self) -> &mut ByteQueue {
        if self.held { &mut self.aside } else { &mut self.bytes }
    }

    /// Where the reply is written that holds the output, or any where none does.
    pub(super) fn open_reply(&mut self) -> &mut ByteQueue {
        &mut self.bytes
    }

    /// Adds a run of a file to the reply that is being written.
    pub(super) fn push_span(&mut self, span: FileSpan) {
        let bytes_before = self.bytes.len().saturating_sub(self.before_spans);
        self.before_spans = self.bytes.len();
        let (at, left) = (span.at.get(), span.length.get());
        self.spans.push_back(QueuedSpan { bytes_before, file: span.file, at, left });
    }

    /// A reply goes out in pieces: others wait until [`release`](Self::release).
    pub(super) fn hold(&mut self) {
        self.held = true;
    }

    /// The reply that held the output is complete.
    pub(super) fn release(&mut self) {
        if std::mem::take(&mut self.held) {
            let aside = std::mem::take(&mut self.aside);
            self.bytes.append(aside.filled());
        }
    }

    /// Whether more may be added; only when it is empty where memory is `scarce`.
    pub(super) fn has_room(&self, scarce: bool) -> bool {
        let mark = if scarce { 1 } else { OUTPUT_MARK_BYTES };
        self.bytes.len() < mark && self.spans.len() < MAX_QUEUED_SPANS
    }

    /// Enough is there to be sent before more is made.
    pub(super) fn holds_portion(&self) -> bool {
        self.bytes.len() >= PORTION_BYTES
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.spans.is_empty() && self.aside.is_empty()
    }

    /// The bytes that wait in memory.
    pub(super) fn len(&self) -> usize {
        self.bytes.len().saturating_add(self.aside.len())
    }

    /// The buffer, to be made larger or given back.
    pub(super) fn buffer(&mut self) -> &mut ByteQueue {
        &mut self.bytes
    }

    pub(super) fn next(&self) -> Next<'_> {
        match self.spans.front() {
            None if self.bytes.is_empty() => Next::Nothing,
            None => Next::Bytes { bytes: self.bytes.filled(), more: false },
            Some(span) if span.bytes_before > 0 => {
                let bytes = self.bytes.filled().get(..span.bytes_before).unwrap_or_default();
                Next::Bytes { bytes, more: true }
            }
            Some(span) => {
                let bytes = usize::try_from(span.left).unwrap_or(usize::MAX);
                Next::Span { file: &span.file, at: span.at, bytes }
            }
        }
    }

    /// So much of [`next`](Self::next) has been sent.
    pub(super) fn sent(&mut self, count: usize) {
        match self.spans.front_mut() {
            Some(span) if span.bytes_before == 0 => {
                span.at = span.at.saturating_add(count as u64);
                span.left = span.left.saturating_sub(count as u64);
                if span.left == 0 {
                    self.spans.pop_front();
                }
            }
            Some(span) => {
                span.bytes_before = span.bytes_before.saturating_sub(count);
                self.before_spans = self.before_spans.saturating_sub(count);
                self.bytes.consume(count);
            }
            None => {
                self.before_spans = 0;
                self.bytes.consume(count);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::{ByteLength, ByteOffset};

    fn span(file: &Arc<File>, at: u64, length: u64) -> FileSpan {
        FileSpan { file: Arc::clone(file), at: ByteOffset::new(at), length: ByteLength::new(length) }
    }

    /// What goes out, in order: bytes as they are, spans as `<at+length>`; taken in steps of at most `step` bytes.
    fn sent(output: &mut Output, step: usize) -> String {
        let mut seen = String::new();
        loop {
            let count = match output.next() {
                Next::Nothing => return seen,
                Next::Bytes { bytes, .. } => {
                    let bytes = &bytes[..bytes.len().min(step)];
                    seen.push_str(std::str::from_utf8(bytes).unwrap());
                    bytes.len()
                }
                Next::Span { at, bytes, .. } => {
                    let bytes = bytes.min(step);
                    seen.push_str(&format!("<{at}+{bytes}>"));
                    bytes
                }
            };
            output.sent(count);
        }
    }

    #[test]
    fn bytes_and_spans_leave_in_the_order_in_which_they_came() {
        let file = Arc::new(tempfile::tempfile().unwrap());
        for step in [1, 2, 100] {
            let mut output = Output::default();
            output.replies().append(b"ab");
            output.push_span(span(&file, 0, 2));
            output.push_span(span(&file, 50, 1));
            output.replies().append(b"cde");
            output.push_span(span(&file, 7, 1));
            output.replies().append(b"f");
            let expected = match step {
                1 => "ab<0+1><1+1><50+1>cde<7+1>f",
                _ => "ab<0+2><50+1>cde<7+1>f",
            };
            assert_eq!(sent(&mut output, step), expected);
            assert!(output.is_empty());
        }
    }

    #[test]
    fn replies_wait_aside_while_one_is_open() {
        let mut output = Output::default();
        output.hold();
        output.open_reply().append(b"head ");
        output.replies().append(b"other");
        assert_eq!(sent(&mut output, 100), "head ");
        output.open_reply().append(b"tail ");
        output.release();
        assert_eq!(sent(&mut output, 100), "tail other");
    }
}
