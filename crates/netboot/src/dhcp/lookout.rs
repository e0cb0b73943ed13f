//! What is odd about the clients' messages: other DHCP servers, and two machines with one MAC address.
//!
//! A client that has chosen among offers broadcasts whose it takes (RFC 2131 §3.1, step 3: option 54). So a server hears
//! of every other server that wins a client, without asking anybody anything. And firmware sends its machine's UUID
//! (RFC 4578 §2.3): a MAC address that comes with two of them belongs to two machines, or its machine was replaced.
//! Nothing is decided by either. What is seen is told once, and again after [`TELL_AGAIN`].
use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use super::client::{ClientMessage, MessageType};
use crate::director::MacAddress;

/// How long a thing that goes on is not told again.
pub const TELL_AGAIN: Duration = Duration::from_secs(3600);
/// How many other servers are told apart. A network has one or two; more are made up by somebody.
const MAX_SERVERS: usize = 16;
/// How many machines' UUIDs are remembered; a farm has thousands. Beyond, all are forgotten at once.
const MAX_MACHINES: usize = 16_384;

/// The DHCP servers that a network is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Us, with this address.
    Ours(Ipv4Addr),
    /// One, which is not us: we are a proxy.
    OneOther,
}

/// What was heard on one interface.
#[derive(Debug)]
pub struct Lookout {
    expected: Expected,
    /// When each other server was last told of.
    servers: HashMap<Ipv4Addr, Instant>,
    machines: HashMap<MacAddress, [u8; 16]>,
}

/// Something that an administrator should know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Oddity {
    /// A DHCP server that is not to be there.
    #[error(
        "another DHCP server, {server}, is on this network: {mac} took its offer, so it may boot nothing; stop that server, or let \
         this one be a proxy (mode = \"proxy\")"
    )]
    OtherServer {
        /// Its address.
        server: Ipv4Addr,
        /// The client that took its offer.
        mac: MacAddress,
    },
    /// Beside us as proxy there are two DHCP servers.
    #[error(
        "two DHCP servers give addresses on this network: {first}, and {server}, whose offer {mac} took; stop the one that does not \
         belong there"
    )]
    TwoServers {
        /// The one that was heard of first.
        first: Ipv4Addr,
        /// The other one.
        server: Ipv4Addr,
        /// The client that took its offer.
        mac: MacAddress,
    },
    /// One MAC address, two machines.
    #[error(
        "two machines have the MAC address {mac}: the one with UUID {now} asks now, the one with {before} did before; the device's disk \
         goes to whichever boots last (harmless if its mainboard was replaced)"
    )]
    TwoMachines {
        /// The address.
        mac: MacAddress,
        /// The machine that was seen before.
        before: String,
        /// The machine that asks now.
        now: String,
    },
}

impl Lookout {
    /// Watches a network with these servers.
    #[must_use]
    pub fn new(expected: Expected) -> Self {
        Self { expected, servers: HashMap::new(), machines: HashMap::new() }
    }

    /// Takes a client's message; what is odd about it, if that was not told lately.
    pub fn hear(&mut self, message: &ClientMessage, now: Instant) -> Option<Oddity> {
        self.machine(message).or_else(|| self.server(message, now))
    }

    fn server(&mut self, message: &ClientMessage, now: Instant) -> Option<Oddity> {
        let (mac, server) =
            (message.mac, message.server_id.filter(|_| message.kind == MessageType::Request)?);
        let first = match self.expected {
            Expected::Ours(own) if own == server => return None,
            Expected::Ours(_) => None,
            // The one that is to be there is the one that was there first.
            Expected::OneOther if self.servers.is_empty() => {
                self.servers.insert(server, now);
                return None;
            }
            Expected::OneOther => {
                Some(self.servers.iter().min_by_key(|(_, told)| **told).map(|(own, _)| *own)?)
            }
        };
        if first == Some(server) {
            return None;
        }
        match self.servers.get(&server) {
            Some(&told) if now.saturating_duration_since(told) < TELL_AGAIN => return None,
            None if self.servers.len() >= MAX_SERVERS => return None,
            _ => {}
        }
        self.servers.insert(server, now);
        Some(match first {
            Some(first) => Oddity::TwoServers { first, server, mac },
            None => Oddity::OtherServer { server, mac },
        })
    }

    fn machine(&mut self, message: &ClientMessage) -> Option<Oddity> {
        // No UUID, and those that mainboards come with whose maker gave them none, tell nothing.
        let uuid = message.uuid().filter(|uuid| uuid.iter().any(|byte| !matches!(byte, 0 | 0xff)))?;
        let mac = message.mac;
        if self.machines.len() >= MAX_MACHINES && !self.machines.contains_key(&mac) {
            self.machines.clear();
        }
        let before = self.machines.insert(mac, uuid)?;
        (before != uuid && before != other_byte_order(uuid)).then(|| Oddity::TwoMachines {
            mac,
            before: crate::script_url::smbios_uuid_text(&before),
            now: crate::script_url::smbios_uuid_text(&uuid),
        })
    }
}

/// The UUID with its first three fields turned round: some firmware sends them as SMBIOS keeps them, little-endian, and some as
/// RFC 4122 has them, and one machine's firmware and iPXE need not agree.
fn other_byte_order(uuid: [u8; 16]) -> [u8; 16] {
    let [a, b, c, d, e, f, g, h, rest @ ..] = uuid;
    let [i, j, k, l, m, n, o, p] = rest;
    [d, c, b, a, f, e, h, g, i, j, k, l, m, n, o, p]
}
