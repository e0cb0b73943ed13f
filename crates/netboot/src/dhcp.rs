//! DHCP: the codec, the server, the proxy that stands beside somebody else's server, and the driver of both.
//!
//! `packet` and `options` know the wire; `client` turns a packet into a checked client message; `boot` decides what
//! a client boots; `reply` builds the answer and its destination. `server` (with `leases`) and `proxy` are state
//! machines without sockets or clocks: message in, outcome out. `lookout` hears what is odd. `driver` owns the sockets.
pub mod boot;
pub mod client;
pub(crate) mod driver;
pub mod leases;
pub mod lookout;
pub mod options;
pub mod packet;
pub mod proxy;
pub mod reply;
pub mod server;
pub mod subnet;

use crate::director::{BootStep, MacAddress};
use reply::Reply;

/// UDP port of servers and relay agents (RFC 2131 §4.1).
pub const SERVER_PORT: u16 = 67;
/// UDP port of clients (RFC 2131 §4.1).
pub const CLIENT_PORT: u16 = 68;
/// UDP port of PXE boot servers (PXE 2.1 §2.2.2).
pub const PXE_PORT: u16 = 4011;

/// What came of one client message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// What to send, and where to.
    pub reply: Option<Reply>,
    /// The steps to report.
    pub steps: Vec<(MacAddress, BootStep)>,
    /// Something an operator should know.
    pub note: Option<String>,
}

impl Outcome {
    fn silent() -> Self {
        Self::default()
    }

    fn noted(note: String) -> Self {
        Self { note: Some(note), ..Self::default() }
    }
}
