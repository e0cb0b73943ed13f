//! Who else answers DHCP on the interfaces that machines boot on?
//!
//! On each, a DHCPDISCOVER is broadcast as the firmware of a PXE client would (RFC 2131 §4.4.1, RFC 4578 §2), with the
//! interface's own address, and the offers are gathered. Nothing is requested: an offer alone lends no address.
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant};

use netboot::dhcp::options::{ARCHITECTURE, MESSAGE_TYPE, Options, PARAMETER_LIST, SERVER_ID, VENDOR_CLASS};
use netboot::dhcp::packet::{MAX_PACKET_BYTES, Op, Packet};
use netboot::director::MacAddress;
use socket2::{Domain, Protocol, Socket, Type};

use super::finding::{Finding, Subject};
use crate::config::{Interface, InterfaceMode};

/// How long offers are waited for. Some servers first look for three seconds whether somebody has the address.
const WAIT: Duration = Duration::from_secs(4);
/// The most offers that are read.
const MAX_OFFERS: usize = 32;
/// The port of DHCP clients (RFC 2131 §4.1).
const CLIENT_PORT: u16 = 68;
/// DHCPDISCOVER and DHCPOFFER (RFC 2132 §9.6).
const DISCOVER: u8 = 1;
const OFFER: u8 = 2;
/// The class by which a PXE client makes itself known (RFC 4578 §3): UEFI x64.
const PXE_CLASS: &[u8] = b"PXEClient:Arch:00007:UNDI:003001";

/// An answer to a DHCPDISCOVER.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Offer {
    /// The server's own word for who it is, else the sender's address.
    server: Ipv4Addr,
    /// The address that it offers; `None`: boot information alone, of a proxyDHCP server.
    address: Option<Ipv4Addr>,
    /// Whether this machine has the server's address.
    ours: bool,
}

/// Asks on all interfaces at once.
pub(super) fn examine(interfaces: &[Interface]) -> Vec<Finding> {
    let asked: Vec<&Interface> = interfaces
        .iter()
        .filter(|interface| interface.mode != InterfaceMode::None || interface.tftp)
        .collect();
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            asked.iter().map(|interface| scope.spawn(move || (*interface, ask(&interface.name)))).collect();
        let answers = threads.into_iter().filter_map(|thread| thread.join().ok());
        answers.map(|(interface, answer)| judge(interface, &answer)).collect()
    })
}

fn judge(interface: &Interface, answer: &io::Result<Vec<Offer>>) -> Finding {
    let name = &interface.name;
    let offers = match answer {
        Ok(offers) => offers,
        Err(error) => {
            return Finding::warning(
                Subject::Dhcp,
                format!("{name}: other DHCP servers cannot be looked for: {error}"),
                "Two DHCP servers on one network give machines now this, now that.",
                "run as root, while no DHCP client of this machine uses the interface",
            );
        }
    };
    let others = |proxies: bool| {
        let others = offers.iter().filter(|offer| !offer.ours && offer.address.is_none() == proxies);
        let mut servers: Vec<String> = others.map(|offer| offer.server.to_string()).collect();
        servers.sort_unstable();
        servers.dedup();
        servers
    };
    let (servers, proxies) = (others(false), others(true));
    if !proxies.is_empty() {
        return Finding::warning(
            Subject::Dhcp,
            format!("{name}: {} offers boot files, too (proxyDHCP)", proxies.join(", ")),
            "Machines take the boot file of whoever answers first.",
            "turn the other PXE service off, or have it leave these machines alone",
        );
    }
    match (&interface.mode, servers.is_empty()) {
        (InterfaceMode::Dhcp(_), false) => Finding::problem(
            Subject::Dhcp,
            format!(
                "{name}: the DHCP server {} answers there, and ours is to be the only one",
                servers.join(", ")
            ),
            "Machines take the address of whoever answers first, and boot nothing when it is the other.",
            format!("stop the other server, or set mode = \"proxy\" for interface \"{name}\""),
        ),
        (InterfaceMode::Proxy | InterfaceMode::None, true) => Finding::problem(
            Subject::Dhcp,
            format!("{name}: no DHCP server answers there, and ours only adds boot information"),
            "Machines get no address.",
            format!("start the network's DHCP server, or set mode = \"dhcp\" for interface \"{name}\""),
        ),
        (InterfaceMode::Dhcp(_), true) => {
            Finding::ok(Subject::Dhcp, format!("{name}: no other DHCP server answers"))
        }
        (InterfaceMode::Proxy | InterfaceMode::None, false) => Finding::ok(
            Subject::Dhcp,
            format!("{name}: the DHCP server {} gives machines their addresses", servers.join(", ")),
        ),
    }
}

fn ask(interface: &str) -> io::Result<Vec<Offer>> {
    let address = std::fs::read_to_string(format!("/sys/class/net/{interface}/address"))?;
    let mac = MacAddress::parse(address.trim()).ok_or_else(|| {
        io::Error::other(format!("the interface has no Ethernet address ({})", address.trim()))
    })?;
    let mut xid = [0; 4];
    getrandom::fill(&mut xid).map_err(io::Error::other)?;
    let xid = u32::from_ne_bytes(xid);
    let socket = open(interface)?;
    let everybody = SocketAddrV4::new(Ipv4Addr::BROADCAST, netboot::dhcp::SERVER_PORT);
    socket.send_to(&discover(mac, xid).encode(), everybody)?;
    gather(&socket, xid)
}

fn open(interface: &str) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    // Beside this machine's own DHCP client, where that allows it.
    socket.set_reuse_address(true)?;
    socket.bind_device(Some(interface.as_bytes()))?;
    socket.set_broadcast(true)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, CLIENT_PORT)).into())?;
    Ok(socket.into())
}

fn discover(mac: MacAddress, xid: u32) -> Packet {
    let mut options = Options::new();
    options.set(MESSAGE_TYPE, [DISCOVER]);
    options.set(VENDOR_CLASS, PXE_CLASS);
    options.set(ARCHITECTURE, [0, 7]);
    options.set(PARAMETER_LIST, [1, 3, 6, 43, 60, 66, 67]);
    let none = Ipv4Addr::UNSPECIFIED;
    Packet {
        op: Op::Request,
        hops: 0,
        xid,
        secs: 0,
        // Without an address, an answer to it would not reach this socket.
        broadcast: true,
        ciaddr: none,
        yiaddr: none,
        siaddr: none,
        giaddr: none,
        mac,
        sname: Vec::new(),
        file: Vec::new(),
        options,
    }
}

fn gather(socket: &UdpSocket, xid: u32) -> io::Result<Vec<Offer>> {
    let begun = Instant::now();
    let mut offers: Vec<Offer> = Vec::new();
    let mut packet = [0; MAX_PACKET_BYTES];
    while let Some(left) = WAIT.checked_sub(begun.elapsed()).filter(|left| !left.is_zero()) {
        socket.set_read_timeout(Some(left))?;
        match socket.recv_from(&mut packet) {
            Ok((length, from)) => {
                let offer = packet.get(..length).and_then(|bytes| read_offer(bytes, xid, from));
                offers.extend(offer.map(|offer| Offer { ours: is_ours(offer.server), ..offer }));
                if offers.len() >= MAX_OFFERS {
                    break;
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(offers)
}

/// An offer to us among what came in.
fn read_offer(bytes: &[u8], xid: u32, from: SocketAddr) -> Option<Offer> {
    let packet = Packet::decode(bytes).ok()?;
    let to_us =
        packet.op == Op::Reply && packet.xid == xid && packet.options.byte(MESSAGE_TYPE) == Some(OFFER);
    let sender = match from {
        SocketAddr::V4(from) => *from.ip(),
        SocketAddr::V6(_) => return None,
    };
    let server = packet.options.address(SERVER_ID).unwrap_or(sender);
    let address = Some(packet.yiaddr).filter(|address| !address.is_unspecified());
    to_us.then_some(Offer { server, address, ours: false })
}

/// Whether this machine has an address: only those that it has can be bound to.
fn is_ours(address: Ipv4Addr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    fn interface(mode: &str) -> Interface {
        let text = format!("[[interface]]\nname = \"eth1\"\n{mode}\n");
        crate::config::parse(&text, "x".as_ref()).unwrap().interfaces.remove(0)
    }

    fn offer(server: [u8; 4], address: Option<[u8; 4]>, ours: bool) -> Offer {
        Offer { server: server.into(), address: address.map(Ipv4Addr::from), ours }
    }

    #[test]
    fn second_dhcp_server_is_a_problem_beside_ours_and_needed_beside_a_proxy() {
        let own = interface("mode = \"dhcp\"\nrange = \"10.0.0.10-10.0.0.20\"");
        let proxy = interface("mode = \"proxy\"");
        let level = |interface: &Interface, offers: &[Offer]| judge(interface, &Ok(offers.to_vec())).level;
        let other = offer([10, 0, 0, 2], Some([10, 0, 0, 50]), false);
        let ourselves = offer([10, 0, 0, 1], Some([10, 0, 0, 51]), true);
        let pxe = offer([10, 0, 0, 3], None, false);
        assert_eq!(level(&own, &[]), Level::Ok);
        assert_eq!(level(&own, std::slice::from_ref(&ourselves)), Level::Ok);
        assert_eq!(level(&own, &[ourselves, other.clone()]), Level::Problem);
        assert_eq!(level(&proxy, std::slice::from_ref(&other)), Level::Ok);
        assert_eq!(level(&proxy, &[]), Level::Problem);
        assert_eq!(level(&proxy, &[other, pxe]), Level::Warning);
        let failed = Err(io::Error::from(ErrorKind::PermissionDenied));
        assert_eq!(judge(&own, &failed).level, Level::Warning);
    }

    #[test]
    fn offers_to_others_are_not_ours() {
        let mac = MacAddress([2, 0, 0, 0, 0, 1]);
        let from: SocketAddr = "10.0.0.2:67".parse().unwrap();
        let mut packet = discover(mac, 7);
        assert_eq!(read_offer(&packet.encode(), 7, from), None, "a request");
        packet.op = Op::Reply;
        packet.options.set(MESSAGE_TYPE, [OFFER]);
        packet.yiaddr = Ipv4Addr::new(10, 0, 0, 50);
        assert_eq!(
            read_offer(&packet.encode(), 7, from),
            Some(offer([10, 0, 0, 2], Some([10, 0, 0, 50]), false))
        );
        assert_eq!(read_offer(&packet.encode(), 8, from), None);
        packet.options.set(SERVER_ID, [10, 0, 0, 9]);
        packet.yiaddr = Ipv4Addr::UNSPECIFIED;
        assert_eq!(read_offer(&packet.encode(), 7, from), Some(offer([10, 0, 0, 9], None, false)));
        assert_eq!(read_offer(b"nonsense", 7, from), None);
    }
}
