//! What the path to a device carries: how large its packets may be, and who limits them.
//!
//! Three figures say it. The *link* is what the server's own interface sends at most. The *path* is what the kernel sends to this
//! device: the route's MTU, or less where a router on the way has said so (RFC 1191). The *segment* is what one TCP
//! segment of the device's own connection carries, which the device has limited by what it announced (RFC 9293 §3.7.1). The server
//! sends what all three allow; nothing is to be set.
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use rustix::net::sockopt;
use serde::{Deserialize, Serialize};

/// The headers of a segment: IPv4 20, TCP 20, and up to 20 of options that come and go.
const HEADERS_BYTES: u32 = 60;

/// The headers that a segment has at least.
const LEAST_HEADERS_BYTES: u32 = 40;

/// The largest packet that Ethernet carries without jumbo frames (RFC 894).
const ORDINARY_BYTES: u32 = 1500;

/// The longest IP packet: loopback sends one byte more, and no packet fills it.
const LONGEST_BYTES: u32 = 65_535;

/// Whether TCP looks for the size that arrives where larger segments are dropped without a word (RFC 4821): 0: never; 1: when some are.
const PROBING: &str = "/proc/sys/net/ipv4/tcp_mtu_probing";

/// Discard (RFC 863): a port to connect a socket to that sends nothing.
const DISCARD_PORT: u16 = 9;

/// What the path to a device carries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathMtu {
    /// The largest packet, in bytes with its IP header, that the kernel sends there.
    pub mtu_bytes: u32,
    /// The interface that it leaves by.
    pub interface: Option<String>,
    /// The largest packet that this interface sends.
    pub link_mtu_bytes: Option<u32>,
    /// The data of one TCP segment when the device's connection began, which is what its two ends had agreed on.
    #[serde(default)]
    pub agreed_segment_bytes: Option<u32>,
    /// The data of one TCP segment now. It shrinks where larger ones turn out not to arrive (RFC 1191, RFC 4821).
    pub segment_bytes: Option<u32>,
}

/// Who keeps packets from being larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LimitedBy {
    /// The server's own interface: everything behind it carries what it sends.
    Link,
    /// A route, or a router on the way.
    Network,
    /// The device: it announces that it takes no more.
    Device,
}

impl LimitedBy {
    /// As it is told: the word of the JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Link => "link",
            Self::Network => "network",
            Self::Device => "device",
        }
    }
}

impl PathMtu {
    /// Who keeps packets from being larger.
    #[must_use]
    pub fn limited_by(&self) -> LimitedBy {
        let agreed = self.agreed_segment_bytes.map(|segment| segment.saturating_add(HEADERS_BYTES));
        if self.segment_bytes < self.agreed_segment_bytes {
            LimitedBy::Network
        } else if agreed.is_some_and(|most| most < self.mtu_bytes) {
            LimitedBy::Device
        } else if self.link_mtu_bytes.is_some_and(|link| self.mtu_bytes < link) {
            LimitedBy::Network
        } else {
            LimitedBy::Link
        }
    }

    /// Whether packets larger than Ethernet's ordinary 1,500 bytes go all the way, as far as is known.
    #[must_use]
    pub fn is_jumbo(&self) -> bool {
        self.mtu_bytes > ORDINARY_BYTES
            && self
                .segment_bytes
                .is_none_or(|segment| segment > ORDINARY_BYTES.saturating_sub(LEAST_HEADERS_BYTES))
    }

    /// What the device's connection sends now; its first figure is what was agreed on.
    pub fn take_segment(&mut self, bytes: u32) {
        self.agreed_segment_bytes.get_or_insert(bytes);
        self.segment_bytes = Some(bytes);
    }

    /// In a line, for people.
    #[must_use]
    pub fn describe(&self) -> String {
        let interface = self.interface.as_deref().unwrap_or("an interface");
        let link = self.link_mtu_bytes.map_or_else(String::new, |link| format!(" (which sends {link})"));
        let segment = self.segment_bytes.map_or_else(String::new, |segment| {
            match self.agreed_segment_bytes.filter(|agreed| *agreed > segment) {
                Some(agreed) => format!(", TCP segments of {segment} after {agreed} did not arrive"),
                None => format!(", TCP segments of {segment}"),
            }
        });
        let limit = match self.limited_by() {
            LimitedBy::Link => "",
            LimitedBy::Network => "; something on the way limits it",
            LimitedBy::Device => "; the device takes no larger ones",
        };
        let jumbo = if self.is_jumbo() { "jumbo frames, " } else { "" };
        format!("{jumbo}packets of {} bytes by {interface}{link}{segment}{limit}", self.mtu_bytes)
    }
}

/// Whether this machine's TCP goes on where a switch drops large packets without a word; `None`: it cannot be told.
#[must_use]
pub fn survives_silent_drops() -> Option<bool> {
    Some(fs::read_to_string(PROBING).ok()?.trim() != "0")
}

/// Has this machine's TCP go on where a switch drops large packets without a word, if it does not yet; without that such a connection
/// hangs. It costs connections on good paths nothing. Whether it was changed.
///
/// # Errors
/// We may not, or cannot.
pub fn survive_silent_drops() -> io::Result<bool> {
    let is_off = survives_silent_drops() == Some(false);
    if is_off {
        fs::write(PROBING, "1")?;
    }
    Ok(is_off)
}

/// What the path to `peer` carries as the kernel knows it now. No packet is sent.
///
/// # Errors
/// There is no way there.
pub fn towards(peer: IpAddr) -> io::Result<PathMtu> {
    let peer = peer.to_canonical();
    let any: IpAddr =
        if peer.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(SocketAddr::new(peer, DISCARD_PORT))?;
    let mtu_bytes = match peer {
        IpAddr::V4(_) => sockopt::ip_mtu(&socket)?,
        IpAddr::V6(_) => sockopt::ipv6_mtu(&socket)?,
    };
    let interface = interface_towards(peer);
    let link =
        interface.as_ref().and_then(|name| fs::read_to_string(format!("/sys/class/net/{name}/mtu")).ok());
    let link_mtu_bytes =
        link.and_then(|text| text.trim().parse().ok()).map(|mtu: u32| mtu.min(LONGEST_BYTES));
    Ok(PathMtu { mtu_bytes, interface, link_mtu_bytes, agreed_segment_bytes: None, segment_bytes: None })
}

/// The interface that packets to `peer` leave by; `None`: it cannot be told.
fn interface_towards(peer: IpAddr) -> Option<String> {
    match peer {
        peer if peer.is_loopback() => Some("lo".to_owned()),
        IpAddr::V4(peer) => route(&fs::read_to_string("/proc/net/route").ok()?, peer),
        IpAddr::V6(_) => None,
    }
}

/// The interface of the longest prefix that holds `peer`, in the format of /proc/net/route.
fn route(table: &str, peer: Ipv4Addr) -> Option<String> {
    // Addresses stand there as the machine has them in memory.
    let number =
        |text: &str| u32::from_str_radix(text, 16).ok().map(|found| u32::from_be_bytes(found.to_ne_bytes()));
    let routes = table.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (name, destination, mask) = (fields.first()?, number(fields.get(1)?)?, number(fields.get(7)?)?);
        (u32::from(peer) & mask == destination).then(|| (mask, (*name).to_owned()))
    });
    routes.max_by_key(|(mask, _)| *mask).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(mtu_bytes: u32, link: u32, segment: Option<u32>) -> PathMtu {
        let interface = Some("eth0".to_owned());
        let link_mtu_bytes = Some(link);
        PathMtu {
            mtu_bytes,
            interface,
            link_mtu_bytes,
            agreed_segment_bytes: segment,
            segment_bytes: segment,
        }
    }

    #[test]
    fn who_limits_packets_is_told_by_the_smallest_figure() {
        assert_eq!(path(9000, 9000, Some(8948)).limited_by(), LimitedBy::Link);
        assert_eq!(path(9000, 9000, Some(1448)).limited_by(), LimitedBy::Device);
        assert_eq!(path(1500, 9000, Some(1448)).limited_by(), LimitedBy::Network);
        assert_eq!(path(1500, 1500, None).limited_by(), LimitedBy::Link);
        assert_eq!(
            path(9000, 9000, Some(1460)).describe(),
            "packets of 9000 bytes by eth0 (which sends 9000), TCP segments of 1460; the device takes no larger ones"
        );
    }

    #[test]
    fn segments_that_shrink_say_that_the_network_drops_larger_ones() {
        let mut path = path(9000, 9000, None);
        path.take_segment(8948);
        assert!(path.is_jumbo() && path.limited_by() == LimitedBy::Link);
        path.take_segment(1448);
        assert!(!path.is_jumbo());
        assert_eq!(path.limited_by(), LimitedBy::Network);
        assert!(
            path.describe().contains("TCP segments of 1448 after 8948 did not arrive"),
            "{}",
            path.describe()
        );
    }

    #[test]
    fn path_within_this_machine_carries_what_its_loopback_does() {
        let found = towards(IpAddr::from([127, 0, 0, 1])).unwrap();
        assert_eq!(found.interface.as_deref(), Some("lo"));
        assert_eq!(Some(found.mtu_bytes), found.link_mtu_bytes);
        assert_eq!(found.limited_by(), LimitedBy::Link);
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn route_with_the_longest_prefix_is_taken() {
        let table = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
            eth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
            eth1\t00004D0A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
        assert_eq!(route(table, Ipv4Addr::new(10, 77, 0, 9)).as_deref(), Some("eth1"));
        assert_eq!(route(table, Ipv4Addr::new(192, 0, 2, 1)).as_deref(), Some("eth0"));
    }
}
