//! The client's socket, plain or inside TLS. It never blocks by itself: waits are explicit, and have an end.
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::ClientConnection;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{PrivateKeyDer, ServerName};

use super::error::ConnectError;
use crate::server::{TlsError, certificates, in_file, unusable};

/// The client's side of TLS.
#[derive(Clone)]
pub struct TlsClient {
    config: Arc<rustls::ClientConfig>,
    server: ServerName<'static>,
}

/// A connected socket.
pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A socket with what it carries.
pub(super) struct Stream {
    socket: Socket,
    tls: Option<Box<ClientConnection>>,
    patience: Duration,
}

impl TlsClient {
    /// Believes servers that carry the name `server` (a DNS name or an address) in a certificate by `authority`, and shows
    /// `identity`, a certificate with its key, where a server asks for one. All are PEM files.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn from_pem_files(
        authority: &std::path::Path,
        identity: Option<(&std::path::Path, &std::path::Path)>,
        server: &str,
    ) -> Result<Self, TlsError> {
        let mut roots = rustls::RootCertStore::empty();
        for root in certificates("the authority's certificate", authority)? {
            roots.add(root).map_err(unusable)?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(unusable)?
            .with_root_certificates(roots);
        let config = match identity {
            None => config.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = certificates("the client's certificate", certificate)?;
                let key = PrivateKeyDer::from_pem_file(key).map_err(in_file("the client's key", key))?;
                config.with_client_auth_cert(chain, key).map_err(unusable)?
            }
        };
        let server = ServerName::try_from(server.to_owned()).map_err(unusable)?;
        Ok(Self { config: Arc::new(config), server })
    }
}

impl std::fmt::Debug for TlsClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsClient").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Stream {
    pub(super) fn new(socket: Socket, patience: Duration) -> io::Result<Self> {
        match &socket {
            Socket::Tcp(stream) => {
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
            }
            Socket::Unix(stream) => stream.set_nonblocking(true)?,
        }
        Ok(Self { socket, tls: None, patience })
    }

    /// Everything from here on goes inside TLS.
    pub(super) fn start_tls(&mut self, client: &TlsClient) -> Result<(), ConnectError> {
        let connection = ClientConnection::new(Arc::clone(&client.config), client.server.clone())
            .map_err(|error| ConnectError::Tls(error.to_string()))?;
        self.tls = Some(Box::new(connection));
        while self.tls.as_ref().is_some_and(|tls| tls.is_handshaking()) {
            if self.write_tls()? {
                continue;
            }
            match self.read_tls() {
                Ok(0) => return Err(ConnectError::Connection(io::ErrorKind::UnexpectedEof.into())),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wait(true, self.wants_write())?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Waits until something can be read or, where that is wished, written.
    pub(super) fn wait(&self, read: bool, write: bool) -> io::Result<()> {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, read);
        flags.set(PollFlags::OUT, write);
        let mut fds = [PollFd::new(&self.socket, flags)];
        let timeout = Timespec::try_from(self.patience).ok();
        loop {
            match poll(&mut fds, timeout.as_ref()) {
                Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
                Ok(_) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Reads what is there; 0 at the end.
    pub(super) fn try_read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(tls) = &mut self.tls else { return self.socket.read(room) };
            match tls.reader().read(room) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.read_tls()? == 0 {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                read => return read,
            }
        }
    }

    /// Writes what there is room for.
    pub(super) fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.tls.is_none() {
            return self.socket.write(bytes);
        }
        // Room first: what TLS has taken must not pile up.
        while self.write_tls()? {}
        let count = match &mut self.tls {
            Some(tls) if !tls.wants_write() => tls.writer().write(bytes)?,
            _ => return Err(io::ErrorKind::WouldBlock.into()),
        };
        while self.write_tls()? {}
        Ok(count)
    }

    /// Whether TLS still holds something for the socket.
    pub(super) fn wants_write(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// Hands on what TLS holds; whether something moved.
    pub(super) fn write_tls(&mut self) -> io::Result<bool> {
        let Some(tls) = self.tls.as_mut().filter(|tls| tls.wants_write()) else { return Ok(false) };
        match tls.write_tls(&mut self.socket) {
            Ok(count) => Ok(count > 0),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn read_tls(&mut self) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return Ok(0) };
        let count = tls.read_tls(&mut self.socket)?;
        tls.process_new_packets().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        Ok(count)
    }
}

/// For the handshake: waits as long as it takes, within the stream's patience.
impl Read for Stream {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.try_read(room) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wait(true, self.wants_write())?;
                }
                read => return read,
            }
            self.write_tls()?;
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait(false, true)?,
                written => return written,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        while self.wants_write() {
            if !self.write_tls()? {
                self.wait(false, true)?;
            }
        }
        Ok(())
    }
}

impl Read for Socket {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(room),
            Self::Unix(stream) => stream.read(room),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
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
