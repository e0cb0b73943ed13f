//! What can go wrong on the client's side.
use crate::wire::Errno;

/// Why a connection is not made.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The network, or the server's end of the connection.
    #[error("the connection to the NBD server failed")]
    Connection(#[source] std::io::Error),
    /// The server broke the protocol.
    #[error("the server breaks the NBD protocol: {0}")]
    Protocol(&'static str),
    /// The server does not speak fixed newstyle.
    #[error("the server speaks an NBD protocol from before 2009, without options")]
    TooOld,
    /// The server refused an option that is needed.
    #[error("the server refuses {wish}: {reason}{}{message}", if message.is_empty() { "" } else { ": " })]
    Refused {
        /// What was asked for.
        wish: &'static str,
        /// Which of the protocol's errors it was.
        reason: RefusalKind,
        /// What the server adds, for humans.
        message: String,
    },
    /// TLS could not be set up on our side.
    #[error("TLS cannot be set up: {0}")]
    Tls(String),
}

/// The errors with which servers refuse options (proto.md, "Option reply types").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum RefusalKind {
    /// `NBD_REP_ERR_UNSUP`.
    #[error("it does not know this option")]
    Unsupported,
    /// `NBD_REP_ERR_POLICY`.
    #[error("its policy forbids it")]
    Policy,
    /// `NBD_REP_ERR_INVALID`.
    #[error("it finds the option invalid")]
    Invalid,
    /// `NBD_REP_ERR_TLS_REQD`.
    #[error("it demands TLS first")]
    TlsRequired,
    /// `NBD_REP_ERR_UNKNOWN`.
    #[error("there is no such export")]
    Unknown,
    /// `NBD_REP_ERR_SHUTDOWN`.
    #[error("it is shutting down")]
    Shutdown,
    /// `NBD_REP_ERR_BLOCK_SIZE_REQD`, `NBD_REP_ERR_TOO_BIG`, `NBD_REP_ERR_EXT_HEADER_REQD` and what is unknown.
    #[error("error {0:#x}")]
    Other(u32),
}

/// Why a request has no answer, or a bad one.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The network, or the server's end of the connection. What was in flight may have been carried out or not.
    #[error("the connection to the NBD server failed")]
    Connection(#[source] std::io::Error),
    /// The server broke the protocol; the connection is of no use any more.
    #[error("the server breaks the NBD protocol: {0}")]
    Protocol(&'static str),
    /// The server answered with an error.
    #[error("the server refuses the request: {0}")]
    Errno(#[source] Errno),
    /// The request cannot be sent on this connection.
    #[error("the request is not sent: {0}")]
    NotSent(&'static str),
}

impl From<std::io::Error> for ConnectError {
    fn from(error: std::io::Error) -> Self {
        Self::Connection(error)
    }
}

impl From<std::io::Error> for ClientError {
    fn from(error: std::io::Error) -> Self {
        Self::Connection(error)
    }
}

impl RefusalKind {
    pub(super) fn from_wire(kind: u32) -> Self {
        use crate::wire::reply;
        match kind {
            reply::ERR_UNSUP => Self::Unsupported,
            reply::ERR_POLICY => Self::Policy,
            reply::ERR_INVALID => Self::Invalid,
            reply::ERR_TLS_REQD => Self::TlsRequired,
            reply::ERR_UNKNOWN => Self::Unknown,
            reply::ERR_SHUTDOWN => Self::Shutdown,
            other => Self::Other(other),
        }
    }
}
