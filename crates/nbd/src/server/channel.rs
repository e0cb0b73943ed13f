//! The socket of a connection, plain or inside TLS, and how output gets there.
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};

use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};
use rustix::net::SendFlags;

use super::output::{Next, Output};
use super::tls::{TlsServer, TlsSession};
use crate::exports::TlsPeer;

/// Bytes that one connection may write before others get their turn: what takes some 0.3 ms, and so is longer than all
/// that a turn costs beside it, and shorter than what a small read of another connection may have to wait.
pub(super) const WRITE_AT_ONCE_BYTES: usize = 1024 * 1024;

/// A connected socket.
pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A socket with what it carries.
pub(super) struct Channel {
    socket: Socket,
    tls: Option<Box<TlsSession>>,
    /// The socket may have bytes, or room for some, as far as the last attempts have shown.
    readable: bool,
    writable: bool,
}

/// What came of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filled {
    /// So many bytes.
    Some(usize),
    /// Nothing more for now.
    Nothing,
    /// The peer has ended its side.
    End,
}

impl Channel {
    pub(super) fn new(socket: Socket) -> Self {
        Self { socket, tls: None, readable: true, writable: true }
    }

    /// The socket can be read or written again.
    pub(super) fn is_ready(&mut self, readable: bool, writable: bool) {
        self.readable |= readable;
        self.writable |= writable;
    }

    /// The data that one TCP segment carries; none: it is a socket file's, or has ended.
    pub(super) fn segment_bytes(&self) -> Option<u32> {
        match &self.socket {
            Socket::Tcp(stream) => connections::segment_bytes(stream),
            Socket::Unix(_) => None,
        }
    }

    /// Whether files can go to the socket without passing through memory of ours.
    pub(super) fn takes_files(&self) -> bool {
        self.tls.is_none()
    }

    /// Begins TLS as its server, or goes on with its handshake; whom it has found when it is through.
    pub(super) fn tls_handshake(&mut self, server: &TlsServer) -> io::Result<Option<TlsPeer>> {
        let tls = match &mut self.tls {
            Some(tls) => tls,
            None => self.tls.insert(Box::new(server.session()?)),
        };
        loop {
            while tls.wants_write() && self.writable {
                match tls.write_tls(&mut self.socket) {
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable = false,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            if !tls.is_handshaking() {
                return Ok(Some(tls.peer()));
            }
            if !self.readable {
                return Ok(None);
            }
            match tls.read_tls(&mut self.socket) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.readable = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads into `room`, once.
    pub(super) fn fill(&mut self, room: &mut [u8]) -> io::Result<Filled> {
        let room_bytes = room.len();
        if room_bytes == 0 {
            return Ok(Filled::Nothing);
        }
        let read = match &mut self.tls {
            Some(tls) => tls.read(&mut self.socket, room, &mut self.readable),
            None if !self.readable => return Ok(Filled::Nothing),
            None => self.socket.read(room),
        };
        match read {
            Ok(0) => Ok(Filled::End),
            Ok(count) => {
                // Fewer than asked for: the socket is empty, and says so when it is not any more. The end of the
                // stream sets `readable` again.
                if self.tls.is_none() {
                    self.readable = count == room_bytes;
                }
                Ok(Filled::Some(count))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.readable = false;
                Ok(Filled::Nothing)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Filled::Some(0)),
            Err(error) => Err(error),
        }
    }

    /// Writes what is queued, as far as the socket takes it; how many bytes went.
    pub(super) fn flush(&mut self, output: &mut Output) -> io::Result<usize> {
        let mut moved = 0_usize;
        while self.writable && moved < WRITE_AT_ONCE_BYTES {
            match self.write_next(output) {
                Ok(0) => break,
                Ok(count) => moved = moved.saturating_add(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(moved)
    }

    /// Whether everything that was handed over has reached the socket.
    pub(super) fn is_flushed(&self) -> bool {
        self.tls.as_ref().is_none_or(|tls| !tls.wants_write())
    }

    /// Says that nothing more will be sent.
    pub(super) fn finish(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.close(&mut self.socket);
        }
        let _ = match &self.socket {
            Socket::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Socket::Unix(stream) => stream.shutdown(Shutdown::Write),
        };
    }

    /// Reads and forgets; `true` where the peer has ended its side. A socket that is closed with bytes unread takes
    /// back what the peer has not read yet.
    pub(super) fn drain(&mut self) -> bool {
        let mut scrap = [0; 4096];
        for _ in 0..64 {
            match self.socket.read(&mut scrap) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return error.kind() != io::ErrorKind::WouldBlock,
            }
        }
        false
    }

    fn write_next(&mut self, output: &mut Output) -> io::Result<usize> {
        if let Some(tls) = &mut self.tls {
            if let Next::Bytes { bytes, .. } = output.next() {
                let count = tls.accept(bytes)?;
                output.sent(count);
            }
            return if tls.wants_write() { tls.write_tls(&mut self.socket) } else { Ok(0) };
        }
        match output.next() {
            Next::Nothing => Ok(0),
            Next::Bytes { bytes, more } => {
                let flags = if more { SendFlags::NOSIGNAL | SendFlags::MORE } else { SendFlags::NOSIGNAL };
                let count = rustix::net::send(&self.socket, bytes, flags)?;
                output.sent(count);
                Ok(count)
            }
            Next::Span { file, at, bytes } => {
                let mut offset = at;
                let wanted = bytes.min(WRITE_AT_ONCE_BYTES);
                let count = rustix::fs::sendfile(&self.socket, file, Some(&mut offset), wanted)?;
                if count == 0 {
                    // The file was made shorter under us; what is missing cannot be had, and the header is out.
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                output.sent(count);
                Ok(count)
            }
        }
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(&*self, bytes, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}

impl Source for Channel {
    fn register(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        match &mut self.socket {
            Socket::Tcp(stream) => stream.register(registry, token, interests),
            Socket::Unix(stream) => stream.register(registry, token, interests),
        }
    }

    fn reregister(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        match &mut self.socket {
            Socket::Tcp(stream) => stream.reregister(registry, token, interests),
            Socket::Unix(stream) => stream.reregister(registry, token, interests),
        }
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        match &mut self.socket {
            Socket::Tcp(stream) => stream.deregister(registry),
            Socket::Unix(stream) => stream.deregister(registry),
        }
    }
}
