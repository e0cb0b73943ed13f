//! What a connection has to send: bytes, and between them pieces of files that go out without passing through here.
//!
//! The protocol core writes PDUs into the byte queue. Where the data of a Data-In PDU lies in a file, only its header
//! is written there, and the piece of the file is noted to follow what the queue then holds. The kernel moves it from
//! the page cache to the socket (`sendfile`), which spares both copies of a read into the queue and a write out of it.
//! Small pieces are not worth the further system call: they are copied, and a whole batch of replies leaves at once.
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::sync::Arc;

use block::FileSpan;
use mio::net::TcpStream;
use rustix::net::SendFlags;

use connections::ByteQueue;

/// The output of a connection.
#[derive(Default)]
pub(super) struct Outbox {
    /// What the protocol core writes to.
    pub(super) queue: ByteQueue,
    /// Bytes that have left the queue, ever.
    sent: u64,
    pieces: VecDeque<Piece>,
    piece_bytes: u64,
}

/// A piece of a file.
struct Piece {
    /// How many bytes of the queue, of all that ever pass through it, go before.
    behind: u64,
    file: Arc<File>,
    at: u64,
    left: u64,
    unit: Arc<scsi::LogicalUnit>,
}

/// Why nothing more was sent.
pub(super) enum Stuck {
    /// The socket: it is full, or the connection is lost.
    Socket(io::Error),
    /// A file gave less than it had promised. The header that is out cannot be taken back: the connection must end.
    File(io::Error),
}

impl Outbox {
    /// Bytes to be sent.
    pub(super) fn len(&self) -> usize {
        self.queue.len().saturating_add(usize::try_from(self.piece_bytes).unwrap_or(usize::MAX))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.pieces.is_empty()
    }

    /// Has `span`, a piece of what `unit` holds, follow what is in the queue now.
    pub(super) fn put_span(&mut self, span: FileSpan, unit: &Arc<scsi::LogicalUnit>) {
        let behind = self.sent.saturating_add(self.queue.len() as u64);
        let left = span.length.get();
        self.piece_bytes = self.piece_bytes.saturating_add(left);
        self.pieces.push_back(Piece {
            behind,
            file: span.file,
            at: span.at.get(),
            left,
            unit: Arc::clone(unit),
        });
    }

    /// Sends something; how many bytes.
    ///
    /// # Errors
    /// [`Stuck`].
    pub(super) fn send(&mut self, stream: &TcpStream) -> Result<usize, Stuck> {
        let before_piece = self.pieces.front().map(|piece| piece.behind.saturating_sub(self.sent));
        match before_piece {
            Some(0) => self.send_piece(stream),
            Some(bytes) => {
                let filled = self.queue.filled();
                let until = usize::try_from(bytes).unwrap_or(usize::MAX).min(filled.len());
                // The data follows at once: the header should not leave in a packet of its own.
                let sent = rustix::net::send(stream, filled.get(..until).unwrap_or(filled), SendFlags::MORE);
                self.consume(sent.map_err(|error| Stuck::Socket(error.into()))?)
            }
            None => {
                let sent = rustix::net::send(stream, self.queue.filled(), SendFlags::empty());
                self.consume(sent.map_err(|error| Stuck::Socket(error.into()))?)
            }
        }
    }

    fn consume(&mut self, count: usize) -> Result<usize, Stuck> {
        self.queue.consume(count);
        self.sent = self.sent.saturating_add(count as u64);
        Ok(count)
    }

    fn send_piece(&mut self, stream: &TcpStream) -> Result<usize, Stuck> {
        let Some(piece) = self.pieces.front_mut() else { return Ok(0) };
        let wanted = usize::try_from(piece.left).unwrap_or(usize::MAX);
        let count = match rustix::fs::sendfile(stream, &piece.file, Some(&mut piece.at), wanted) {
            Ok(0) => return Err(self.file_failed(io::ErrorKind::UnexpectedEof.into())),
            Ok(count) => count,
            // What storage says; everything else is about the socket.
            Err(error @ (rustix::io::Errno::IO | rustix::io::Errno::NODATA | rustix::io::Errno::STALE)) => {
                return Err(self.file_failed(error.into()));
            }
            Err(error) => return Err(Stuck::Socket(error.into())),
        };
        piece.left = piece.left.saturating_sub(count as u64);
        self.piece_bytes = self.piece_bytes.saturating_sub(count as u64);
        if piece.left == 0 {
            self.pieces.pop_front();
        }
        Ok(count)
    }

    /// From now on the unit is read: then the initiator that asks again hears of the fault in sense data, instead of
    /// losing its connection each time.
    fn file_failed(&mut self, error: io::Error) -> Stuck {
        if let Some(piece) = self.pieces.front() {
            piece.unit.forgo_spans();
        }
        Stuck::File(error)
    }
}
