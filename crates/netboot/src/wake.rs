//! Wake-on-LAN: the magic packet, six bytes of ones and the card's address sixteen times (AMD, "Magic Packet Technology",
//! publication 20213).
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};

use socket2::{Domain, Protocol, Socket, Type};

use crate::director::MacAddress;

/// The length of a magic packet.
pub const MAGIC_BYTES: usize = 102;
/// The discard port: cards look for the pattern in any frame, and nobody answers there.
const PORT: u16 = 9;
/// How often it is sent: a frame may be lost, and waking twice does nothing.
const TIMES: usize = 3;

/// The packet that wakes a card.
#[must_use]
pub fn magic_packet(mac: MacAddress) -> Vec<u8> {
    let mut packet = vec![0xFF; 6];
    (0..16).for_each(|_| packet.extend(mac.0));
    packet
}

/// Broadcasts the packet on an interface.
///
/// # Errors
/// What the operating system said: the interface is absent or down, or may not be bound to (CAP_NET_RAW).
pub fn wake(mac: MacAddress, interface: &str) -> io::Result<()> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.bind_device(Some(interface.as_bytes()))?;
    socket.set_broadcast(true)?;
    let packet = magic_packet(mac);
    for _ in 0..TIMES {
        socket.send_to(&packet, &SocketAddrV4::new(Ipv4Addr::BROADCAST, PORT).into())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn magic_packet_is_the_pattern_that_cards_look_for() {
        let packet = magic_packet(MacAddress([1, 2, 3, 4, 5, 6]));
        assert_eq!(packet.len(), MAGIC_BYTES);
        assert_eq!(packet[..12], [255, 255, 255, 255, 255, 255, 1, 2, 3, 4, 5, 6]);
        assert!(packet[6..].chunks(6).all(|part| part == [1, 2, 3, 4, 5, 6]));
    }

    #[test]
    fn interface_that_is_absent_is_an_error() {
        assert!(wake(MacAddress([1, 2, 3, 4, 5, 6]), "no-such-if").is_err());
    }
}
