//! Ports of this machine for servers that tests and benches start.
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener};
use std::ops::Range;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::{LazyLock, Mutex, PoisonError};

/// Below the ports that Linux gives to connections that go out (`net.ipv4.ip_local_port_range`: from 32768).
const PORTS: Range<u16> = 20_000..32_000;

/// The ports that this program has, each with the name that keeps it.
static OURS: Mutex<BTreeMap<u16, UnixDatagram>> = Mutex::new(BTreeMap::new());

/// A port of TCP on which nobody listens, and which nobody else who asks here is given, in this program or another, until
/// this program ends.
///
/// To ask the system for a free port, let go of it and have a server take it later is a race: between the two, the
/// system gives it to any connection that goes out. These ports it gives to nobody, and a name in the abstract namespace
/// of sockets, which lives in the network namespace as ports do and goes when its program ends, keeps each for who has it.
///
/// # Panics
/// Where none is left.
pub fn free_port() -> u16 {
    // Programs that begin together look at different places.
    static FIRST: LazyLock<u16> = LazyLock::new(|| {
        let spread = std::process::id().wrapping_mul(331) % u32::from(PORTS.end - PORTS.start);
        u16::try_from(spread).unwrap_or(0)
    });
    let mut ours = OURS.lock().unwrap_or_else(PoisonError::into_inner);
    let first = PORTS.start + *FIRST;
    for port in (first..PORTS.end).chain(PORTS.start..first) {
        if ours.contains_key(&port) || !is_silent(port) {
            continue;
        }
        let name = SocketAddr::from_abstract_name(format!("headwater-lab-port-{port}"));
        if let Ok(kept) = name.and_then(|name| UnixDatagram::bind_addr(&name)) {
            ours.insert(port, kept);
            return port;
        }
    }
    panic!("no port from {} to {} is free", PORTS.start, PORTS.end);
}

/// Whether nobody listens there, on IPv4 or, where there is one, IPv6.
fn is_silent(port: u16) -> bool {
    let taken = |listener: std::io::Result<TcpListener>| {
        listener.is_err_and(|error| error.kind() == ErrorKind::AddrInUse)
    };
    !taken(TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)))
        && !taken(TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_is_given_once_and_is_none_that_connections_go_out_from() {
        let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap();
        let lowest: u16 = range.split_whitespace().next().unwrap().parse().unwrap();
        let mut given: Vec<u16> = (0..50).map(|_| free_port()).collect();
        assert!(given.iter().all(|&port| port < lowest), "{given:?} of {lowest}");
        given.sort_unstable();
        given.dedup();
        assert_eq!(given.len(), 50);
        let listeners: Vec<_> = given.iter().map(|&port| TcpListener::bind(("127.0.0.1", port))).collect();
        assert!(listeners.iter().all(Result::is_ok));
    }

    #[test]
    fn port_that_somebody_listens_on_or_keeps_is_passed_over() {
        let ours = free_port();
        let name = |port: u16| SocketAddr::from_abstract_name(format!("headwater-lab-port-{port}")).unwrap();
        assert!(UnixDatagram::bind_addr(&name(ours)).is_err());
        let listener = TcpListener::bind(("127.0.0.1", ours)).unwrap();
        assert!(!is_silent(ours));
        drop(listener);
        assert!(is_silent(ours));
    }
}
