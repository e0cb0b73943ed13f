//! Sockets that are bound to one interface, and what can be wrong with it.
use std::io::{Error, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;

use crate::router_advertisement::ALL_ROUTERS;
use crate::service::StartError;

/// The longest name of an interface (IFNAMSIZ less its NUL).
const MAX_INTERFACE_NAME_BYTES: usize = 15;
const ROUTES: &str = "/proc/net/route";

/// The number of an interface.
pub(crate) fn interface_index(name: &str) -> Result<u32, StartError> {
    let absent = || StartError::InterfaceAbsent { interface: name.to_owned() };
    if name.is_empty() || name.len() > MAX_INTERFACE_NAME_BYTES {
        return Err(absent());
    }
    let socket = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))
        .map_err(|source| StartError::Socket { what: "a socket", interface: name.to_owned(), source })?;
    rustix::net::netdevice::name_to_index(&socket, name).map_err(|_| absent())
}

/// The IPv4 address of an interface: the one that the kernel would send a broadcast from.
pub(crate) fn interface_address(name: &str) -> Result<Ipv4Addr, StartError> {
    let failed = |source| socket_error("a socket", 0, "CAP_NET_RAW", name, source);
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)).map_err(failed)?;
    socket.bind_device(Some(name.as_bytes())).map_err(failed)?;
    socket.set_broadcast(true).map_err(failed)?;
    let no_address = || StartError::NoAddress { interface: name.to_owned() };
    socket.connect(&SocketAddrV4::new(Ipv4Addr::BROADCAST, 9).into()).map_err(|_| no_address())?;
    let local = socket.local_addr().ok().and_then(|address| address.as_socket_ipv4());
    let address =
        local.map(|local| *local.ip()).filter(|address| !address.is_unspecified()).ok_or_else(no_address)?;
    // The kernel lends an interface without an address that of another one; only a real one comes with a route.
    let routes = std::fs::read_to_string(ROUTES).map_err(failed)?;
    if has_connected_route(&routes, name, address) { Ok(address) } else { Err(no_address()) }
}

/// Whether `/proc/net/route` has a network on `interface`, without a gateway, that `address` is in.
fn has_connected_route(routes: &str, interface: &str, address: Ipv4Addr) -> bool {
    routes.lines().skip(1).any(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().take(8).collect();
        let [name, destination, gateway, _, _, _, _, mask] = words.as_slice() else { return false };
        // The file prints network byte order as the machine's integers.
        let number = |text: &str| u32::from_str_radix(text, 16).ok().map(|n| Ipv4Addr::from(n.to_ne_bytes()));
        let (Some(destination), Some(mask)) = (number(destination), number(mask)) else { return false };
        *name == interface
            && number(gateway) == Some(Ipv4Addr::UNSPECIFIED)
            && !mask.is_unspecified()
            && u32::from(address) & u32::from(mask) == u32::from(destination)
    })
}

/// A UDP socket that hears and sends on one interface only; broadcasts, too.
pub(crate) fn udp(
    service: &'static str,
    interface: &str,
    address: Ipv4Addr,
    port: u16,
) -> Result<UdpSocket, StartError> {
    let failed = |source| socket_error(service, port, "CAP_NET_BIND_SERVICE", interface, source);
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)).map_err(failed)?;
    // No SO_REUSEADDR: two servers on one port would take each other's packets. Sockets of ours on other interfaces are no
    // obstacle, since they are bound to those.
    socket.bind_device(Some(interface.as_bytes())).map_err(failed)?;
    socket.set_broadcast(true).map_err(failed)?;
    socket.bind(&SocketAddr::from((address, port)).into()).map_err(failed)?;
    into_tokio(socket).map_err(failed)
}

/// A raw socket for the router solicitations on one interface.
pub(crate) fn router_solicitations(interface: &str, index: u32) -> Result<UdpSocket, StartError> {
    let failed = |source| socket_error("IPv6 router advertisements", 0, "CAP_NET_RAW", interface, source);
    let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6)).map_err(failed)?;
    socket.bind_device(Some(interface.as_bytes())).map_err(failed)?;
    // RFC 4861 §4.2: advertisements have hop limit 255, or hosts drop them.
    socket.set_unicast_hops_v6(255).map_err(failed)?;
    socket.set_multicast_hops_v6(255).map_err(failed)?;
    socket.set_multicast_if_v6(index).map_err(failed)?;
    socket.set_multicast_loop_v6(false).map_err(failed)?;
    socket.join_multicast_v6(&ALL_ROUTERS, index).map_err(failed)?;
    into_tokio(socket).map_err(failed)
}

fn into_tokio(socket: Socket) -> std::io::Result<UdpSocket> {
    socket.set_nonblocking(true)?;
    UdpSocket::from_std(socket.into())
}

fn socket_error(
    service: &'static str,
    port: u16,
    capability: &'static str,
    interface: &str,
    source: Error,
) -> StartError {
    let interface = interface.to_owned();
    match source.kind() {
        ErrorKind::AddrInUse => StartError::PortInUse { service, port, interface },
        ErrorKind::PermissionDenied => StartError::Privilege { service, port, interface, capability },
        _ => StartError::Socket { what: service, interface, source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_counts_only_with_a_route_of_its_interface() {
        let routes = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
                      eth0\t00000000\t0100A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
                      br0\t00004D0A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
        let address = Ipv4Addr::new(10, 77, 0, 1);
        assert_eq!(has_connected_route(routes, "br0", address), cfg!(target_endian = "little"));
        assert!(!has_connected_route(routes, "eth0", address));
        assert!(!has_connected_route(routes, "br0", Ipv4Addr::new(10, 78, 0, 1)));
        assert!(!has_connected_route("", "br0", address));
    }

    #[test]
    fn absent_interface_is_named() {
        for name in ["hw-absent0", "", "a-name-that-is-longer-than-any-interface", "../lo"] {
            let error = interface_index(name).unwrap_err();
            assert!(
                matches!(&error, StartError::InterfaceAbsent { interface } if interface == name),
                "{error}"
            );
        }
        assert!(interface_index("lo").is_ok());
    }
}
