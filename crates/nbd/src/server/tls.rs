//! TLS as the server speaks it: certificates from files, and one session (RFC 8446, RFC 5246).
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;

use rustls::ServerConnection;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;

use super::channel::Socket;
use crate::exports::TlsPeer;

/// The server's side of TLS: its certificate, and whom it believes.
#[derive(Clone)]
pub struct TlsServer {
    config: Arc<rustls::ServerConfig>,
}

/// Whether clients have to show a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificates {
    /// They must, and it must come from the authority.
    Required,
    /// They may; one that is shown must come from the authority.
    Optional,
}

/// Why TLS cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file does not hold what it should.
    #[error("cannot read {what} from {}", path.display())]
    File {
        /// What should be in it.
        what: &'static str,
        /// Which file.
        path: std::path::PathBuf,
        /// What is wrong.
        #[source]
        source: rustls::pki_types::pem::Error,
    },
    /// The certificates do not fit together.
    #[error("certificates and key cannot be used: {0}")]
    Unusable(String),
}

/// Plain text that waits for encryption in one session.
const PLAIN_BUFFER_BYTES: usize = 128 * 1024;

impl TlsServer {
    /// From PEM files: the authority that signs clients' certificates (it may be several), the server's certificate with
    /// its chain, and its key. Revocation lists may stand behind the authority's certificate in its file.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn from_pem_files(
        authority: &Path,
        certificate: &Path,
        key: &Path,
        clients: ClientCertificates,
    ) -> Result<Self, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = rustls::RootCertStore::empty();
        for root in certificates("the authority's certificate", authority)? {
            roots.add(root).map_err(unusable)?;
        }
        let revoked = CertificateRevocationListDer::pem_file_iter(authority)
            .and_then(Iterator::collect)
            .map_err(in_file("revocation lists", authority))?;
        let revoked: Vec<_> = revoked;
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .with_crls(revoked);
        let verifier = match clients {
            ClientCertificates::Required => verifier,
            ClientCertificates::Optional => verifier.allow_unauthenticated(),
        };
        let verifier = verifier.build().map_err(unusable)?;
        let chain = certificates("the server's certificate", certificate)?;
        let key = PrivateKeyDer::from_pem_file(key).map_err(in_file("the server's key", key))?;
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(unusable)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .map_err(unusable)?;
        Ok(Self { config: Arc::new(config) })
    }

    pub(super) fn session(&self) -> io::Result<TlsSession> {
        let mut connection = ServerConnection::new(Arc::clone(&self.config)).map_err(io::Error::other)?;
        connection.set_buffer_limit(Some(PLAIN_BUFFER_BYTES));
        Ok(TlsSession { connection })
    }
}

impl std::fmt::Debug for TlsServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsServer").finish_non_exhaustive()
    }
}

/// TLS on one connection.
pub(super) struct TlsSession {
    connection: ServerConnection,
}

impl TlsSession {
    pub(super) fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    pub(super) fn wants_write(&self) -> bool {
        self.connection.wants_write()
    }

    pub(super) fn write_tls(&mut self, socket: &mut Socket) -> io::Result<usize> {
        self.connection.write_tls(socket)
    }

    /// Reads what the socket holds, and takes it in.
    pub(super) fn read_tls(&mut self, socket: &mut Socket) -> io::Result<usize> {
        let count = self.connection.read_tls(socket)?;
        if let Err(error) = self.connection.process_new_packets() {
            // The alert that says why; the connection ends in any case.
            let _ = self.connection.write_tls(socket);
            return Err(io::Error::new(io::ErrorKind::InvalidData, error));
        }
        Ok(count)
    }

    /// Plain text into `room`, and more from the socket when there is none; 0 at its end.
    pub(super) fn read(
        &mut self,
        socket: &mut Socket,
        room: &mut [u8],
        readable: &mut bool,
    ) -> io::Result<usize> {
        loop {
            match self.connection.reader().read(room) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && *readable => {
                    if self.read_tls(socket)? == 0 {
                        // The end without a close_notify.
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                read => return read,
            }
        }
    }

    /// Takes plain text to be encrypted, as much as its buffer holds.
    pub(super) fn accept(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.connection.writer().write(bytes)
    }

    /// Says goodbye, as far as the socket takes it.
    pub(super) fn close(&mut self, socket: &mut Socket) {
        self.connection.send_close_notify();
        let _ = self.connection.write_tls(socket);
    }

    pub(super) fn peer(&self) -> TlsPeer {
        let certificate = self.connection.peer_certificates().and_then(<[_]>::first);
        let Some(certificate) = certificate else { return TlsPeer::default() };
        let names = webpki::EndEntityCert::try_from(certificate)
            .map(|end_entity| end_entity.valid_dns_names().map(str::to_owned).collect());
        TlsPeer { certificate: Some(certificate.to_vec()), names: names.unwrap_or_default() }
    }
}

pub(crate) fn certificates(
    what: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    CertificateDer::pem_file_iter(path).and_then(Iterator::collect).map_err(in_file(what, path))
}

pub(crate) fn in_file(
    what: &'static str,
    path: &Path,
) -> impl FnOnce(rustls::pki_types::pem::Error) -> TlsError {
    let path = path.to_owned();
    move |source| TlsError::File { what, path, source }
}

pub(crate) fn unusable(error: impl std::fmt::Display) -> TlsError {
    TlsError::Unusable(error.to_string())
}
