//! The decisions that the server leaves to its owner: which exports there are, who may use them, and what they hold.
//!
//! The owner (the server program) implements [`Exports`]; the server asks it during the handshake, and tells it through
//! an [`ExportObserver`] what each connection does.
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use block::{BlockDevice, ByteRange};

use crate::wire::Errno;

/// Where a client connects from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PeerAddress {
    /// Over TCP.
    Ip(SocketAddr),
    /// Through a socket in the file system of this machine.
    Unix,
}

/// Who is connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its address.
    pub address: PeerAddress,
    /// What TLS says of it; `None` without TLS.
    pub tls: Option<TlsPeer>,
}

/// What TLS says of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsPeer {
    /// Its certificate in DER, checked against the server's authority; `None` where it showed none.
    pub certificate: Option<Vec<u8>>,
    /// The DNS names in that certificate (subjectAltName).
    pub names: Vec<String>,
}

/// An export in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its name, as a client asks for it: at most 4096 bytes.
    pub name: String,
    /// A line for humans; empty for none.
    pub description: String,
}

/// What a client gets to use.
#[derive(Clone)]
pub struct Export {
    /// Its contents. Its logical block is the minimum block size that the client is told and held to.
    pub device: Arc<dyn BlockDevice>,
    /// A line for humans; empty for none.
    pub description: String,
    /// Refuses changes, whatever the device would take.
    pub read_only: bool,
    /// A flush or FUA on one connection is good for the writes of all (proto.md, `NBD_FLAG_CAN_MULTI_CONN`): true where
    /// all connections share the device, and its writes are seen by all once they are answered.
    pub multi_conn: bool,
    /// `write_zeroes` stores no zeros: it is faster than a write (proto.md, `NBD_FLAG_SEND_FAST_ZERO`).
    pub fast_zero: bool,
    /// Is told what the connection does.
    pub observer: Arc<dyn ExportObserver>,
    /// Where its requests are counted, and how fast they may come.
    pub account: meter::Account,
}

/// What for an export is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To tell what it is like (`NBD_OPT_INFO`, `NBD_OPT_LIST_META_CONTEXT`, `NBD_OPT_SET_META_CONTEXT`): its size, its
    /// flags and its block sizes. Nothing is read or written, so nothing may begin, end or change by it.
    Look,
    /// To be used (`NBD_OPT_GO`, `NBD_OPT_EXPORT_NAME`).
    Use,
}

/// Why an export is not opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such export, or none that this client may know of (`NBD_REP_ERR_UNKNOWN`).
    Unknown(String),
    /// This client may not use it (`NBD_REP_ERR_POLICY`).
    NotAllowed(String),
    /// It is there for clients with TLS only (`NBD_REP_ERR_TLS_REQD`; `NBD_REP_ERR_POLICY` to one that has TLS).
    TlsRequired,
    /// It exists and cannot be had now: image damaged, in use by another, a limit met (`NBD_REP_ERR_POLICY`; the
    /// protocol has no better one).
    Unavailable(String),
    /// The owner is about to end (`NBD_REP_ERR_SHUTDOWN`).
    ShuttingDown,
}

/// A kind of request, for the observer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestKind {
    /// READ.
    Read,
    /// WRITE.
    Write,
    /// FLUSH.
    Flush,
    /// TRIM.
    Trim,
    /// WRITE_ZEROES.
    WriteZeroes,
    /// CACHE.
    Cache,
    /// BLOCK_STATUS.
    BlockStatus,
}

/// A request that was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestDone {
    /// Which.
    pub kind: RequestKind,
    /// On which part of the export; empty for a flush.
    pub range: ByteRange,
    /// From the arrival of its last byte until its answer was queued for the socket.
    pub latency: Duration,
    /// What it was answered.
    pub result: Result<(), Errno>,
}

/// How the use of an export ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionEnd {
    /// The client said so (`NBD_CMD_DISC`, or no more than a look at the export).
    Disconnected,
    /// The connection was lost or broke the protocol.
    Lost,
    /// The server is shutting down, or has ended the use.
    Shutdown,
}

/// Is told what one connection does with an export. Calls come from the connection's thread, the last one from any of the
/// server's: they must be quick and never block.
pub trait ExportObserver: Send + Sync {
    /// A legal request was answered.
    fn request_done(&self, done: &RequestDone);
    /// One TCP segment to the client carries so many bytes of data: told soon after the use has begun, and whenever the two ends
    /// have found another size since. Of a socket file nothing is told.
    fn segments(&self, _bytes: u32) {}
    /// The use is over; nothing is called after this. Called once for every [`Export`] that was opened, also where the
    /// client only looked at it, and only when none of its requests runs any more.
    fn ended(&self, how: ConnectionEnd);
}

/// The owner's decisions. They are asked on a worker thread and may take their time (open files, say).
pub trait Exports: Send + Sync {
    /// Which exports this client sees. The empty name, the default export, can be opened without being listed.
    fn list(&self, peer: &Peer) -> Vec<Listed>;

    /// Opens the export that this client calls `name`: at most 4096 bytes without a NUL. A client that looked at it
    /// first is told nothing else when it comes to use it (proto.md, `NBD_OPT_INFO`): both must be alike.
    ///
    /// # Errors
    /// The refusal to send.
    fn open(&self, name: &str, purpose: Purpose, peer: &Peer) -> Result<Export, Refusal>;
}

impl PeerAddress {
    /// What connections are counted by; all of this machine's sockets count as loopback.
    pub(crate) fn ip(self) -> IpAddr {
        match self {
            Self::Ip(address) => address.ip(),
            Self::Unix => IpAddr::from([127, 0, 0, 1]),
        }
    }
}

impl std::fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Unix => f.write_str("a socket of this machine"),
        }
    }
}

impl std::fmt::Debug for Export {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Export").field("device", &self.device).finish_non_exhaustive()
    }
}
