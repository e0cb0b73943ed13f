//! The decisions that the target leaves to its owner: who may see and log in to what, and what they find there.
//!
//! The owner (the server program) implements [`Directory`]; the target asks it during login and tells it through
//! a [`SessionObserver`] what each session does.
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use block::ByteRange;

/// The most bytes an iSCSI name may have (RFC 7143 §4.2.7.1).
pub const MAX_NAME_BYTES: usize = 223;

/// An iSCSI name (`iqn.`, `eui.` or `naa.` form), checked and folded to lower case (RFC 7143 §4.2.7, RFC 3722).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IscsiName(String);

impl IscsiName {
    /// The name in `text`; `None` where it is not a legal iSCSI name.
    #[must_use]
    pub fn parse(text: impl Into<String>) -> Option<Self> {
        let mut name = text.into();
        name.make_ascii_lowercase();
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | ':') || !c.is_ascii();
        let typed = ["iqn.", "eui.", "naa."].iter().any(|prefix| name.starts_with(prefix));
        (typed && name.len() > 4 && name.len() <= MAX_NAME_BYTES && name.chars().all(legal))
            .then_some(Self(name))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<IscsiName> for String {
    fn from(name: IscsiName) -> Self {
        name.0
    }
}

impl std::fmt::Display for IscsiName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Initiator session id: tells apart the sessions of one initiator (RFC 7143 §11.12.5). Firmware and operating
/// system of one machine use different ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Isid(pub [u8; 6]);

impl Isid {
    /// Whether it is of Linux's own initiator (open-iscsi), whose ISIDs all begin so: type 0, OUI 00-02-3D. Its kernel part
    /// answers pings at any time, also between an initramfs's `iscsistart` and `iscsid`, when it sends none itself.
    pub(crate) fn is_of_open_iscsi(self) -> bool {
        let [a, b, c, ..] = self.0;
        [a, b, c] == [0x00, 0x02, 0x3D]
    }
}

/// Who is logging in.
#[derive(Clone, Debug)]
pub struct LoginAttempt {
    /// The initiator's name, as it says.
    pub initiator: IscsiName,
    /// Its session id.
    pub isid: Isid,
    /// Where it connects from.
    pub peer: SocketAddr,
    /// The target that it wants; `None` in a discovery session.
    pub target: Option<IscsiName>,
}

impl LoginAttempt {
    /// The initiator port that it comes from.
    pub(crate) fn port(&self) -> scsi::InitiatorPort {
        scsi::InitiatorPort::iscsi(self.initiator.as_str(), self.isid.0)
    }
}

/// What the initiator has to prove before it gets in.
#[derive(Clone)]
pub enum Authentication {
    /// Nothing.
    None,
    /// That it knows a secret (CHAP, RFC 7143 §12.1.3).
    Chap(ChapCredentials),
}

/// A CHAP user and secret, as the initiator must use them, and how the target proves itself in turn.
#[derive(Clone)]
pub struct ChapCredentials {
    /// What the initiator must send.
    pub initiator: ChapSecret,
    /// What the target answers with where the initiator asks it to prove itself too; without it such logins fail.
    /// Its secret must not be the initiator's (RFC 7143 §9.2.1): every login fails while it is.
    pub target: Option<ChapSecret>,
    /// Whether MD5 will do where the initiator prefers it to SHA-256 and SHA3-256 or knows nothing else, as most
    /// firmware does.
    pub allows_md5: bool,
}

/// A CHAP user and its secret.
#[derive(Clone)]
pub struct ChapSecret {
    /// CHAP_N.
    pub user: String,
    /// The shared secret; 12 bytes or more (RFC 7143 §9.2.1).
    pub secret: Vec<u8>,
}

impl ChapCredentials {
    /// The initiator alone proves itself, with any algorithm.
    #[must_use]
    pub fn one_way(user: impl Into<String>, secret: impl Into<Vec<u8>>) -> Self {
        let initiator = ChapSecret { user: user.into(), secret: secret.into() };
        Self { initiator, target: None, allows_md5: true }
    }
}

/// A place where the target can be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Portal {
    /// As initiators should connect to it.
    pub address: SocketAddr,
    /// Its portal group (RFC 7143 §4.1). This server's own portals are all of group 1; those of another server that
    /// serves the same disk must be of others.
    pub group: u16,
}

/// Why a login is refused. Each becomes one status of the Login Response (RFC 7143 §11.13.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// 0x0201: the proof was wrong or missing.
    AuthenticationFailed,
    /// 0x0202: this initiator may not use this target.
    NotAuthorized(String),
    /// 0x0101: another server has it for now; the initiator tries there.
    MovedTemporarily(SocketAddr),
    /// 0x0102: another server has it for good.
    MovedPermanently(SocketAddr),
    /// 0x0203: there is no such target, or none that this initiator may know of.
    NotFound(String),
    /// 0x0204: there was one, and it is gone for good (a boot that another one has replaced).
    Removed(String),
    /// 0x0301: the target exists and cannot be served now (image damaged, write cache lost, shutting down).
    Unavailable(String),
    /// 0x0302: a limit was met.
    OutOfResources(String),
}

/// What happens to the sessions that the target has already when another one logs in. The same initiator name
/// *and* ISID always reinstates (RFC 7143 §6.3.5), whatever stands here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coexistence {
    /// They stay.
    Shared,
    /// They are ended first, their tasks finished or aborted, before the new session does anything: one machine,
    /// one disk. It is what a hand-over from firmware to operating system needs.
    Exclusive,
}

/// What a successful login opens.
pub struct Grant {
    /// LUN and disk, in rising order. Nothing else is visible in the session.
    pub units: Vec<(u16, Arc<scsi::LogicalUnit>)>,
    /// What happens to the target's other sessions.
    pub coexistence: Coexistence,
    /// Is told what the session does.
    pub observer: Arc<dyn SessionObserver>,
    /// Where its requests are counted, and how fast they may come.
    pub account: meter::Account,
}

/// A kind of request, for the observer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestKind {
    /// READ of any size.
    Read,
    /// WRITE of any size.
    Write,
    /// SYNCHRONIZE CACHE.
    Flush,
    /// UNMAP, WRITE SAME with UNMAP.
    Discard,
}

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionEnd {
    /// The initiator logged out.
    Logout,
    /// The connection was lost or broke the protocol.
    ConnectionLost,
    /// Another session took its place.
    Replaced,
    /// The server is shutting down.
    Shutdown,
}

/// Is told what one session does. Calls come from the connection's thread: they must be quick and never block.
pub trait SessionObserver: Send + Sync {
    /// A request was answered. `latency` runs from the arrival of its last byte to the answer's being queued for the socket.
    fn request_done(&self, kind: RequestKind, range: ByteRange, latency: Duration, ok: bool);
    /// One TCP segment to the initiator carries so many bytes of data: told when the session begins, and whenever the two ends have
    /// found another size since.
    fn segments(&self, _bytes: u32) {}
    /// The session is over; nothing is called after this. Called once for every [`Grant`], also where the session
    /// never began, and only when none of its requests runs any more.
    fn ended(&self, how: SessionEnd);
}

/// The owner's decisions. They are asked on a worker thread and may take their time (open files, say).
pub trait Directory: Send + Sync {
    /// Which targets SendTargets shows to this initiator.
    fn discover(&self, attempt: &LoginAttempt) -> Vec<IscsiName>;

    /// Where the targets that [`discover`](Self::discover) shows can be reached. None (which is what most say): where
    /// the initiator has reached this server, and there alone.
    fn portals(&self, _attempt: &LoginAttempt) -> Vec<Portal> {
        Vec::new()
    }

    /// What this initiator must prove. Asked once a login, before [`open`](Self::open).
    ///
    /// # Errors
    /// The refusal to send.
    fn authentication(&self, attempt: &LoginAttempt) -> Result<Authentication, Refusal>;

    /// Opens what the target offers, after the proof was right. Asked once a login.
    ///
    /// # Errors
    /// The refusal to send.
    fn open(&self, attempt: &LoginAttempt) -> Result<Grant, Refusal>;
}
