//! What real firmware's packets say to us.
use netboot::dhcp::client::{ClientMessage, MessageType};
use netboot::dhcp::options;
use netboot::dhcp::packet::{Op, Packet, PacketError};
use netboot::director::ClientKind;

use super::support::{GOLDEN, golden};

fn decode(name: &str) -> ClientMessage {
    ClientMessage::decode(&golden(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn firmware_of_each_kind_is_recognised() {
    let expected = [
        ("ipxe-bios-discover", MessageType::Discover, ClientKind::Ipxe, Some(0)),
        ("ipxe-bios-request", MessageType::Request, ClientKind::Ipxe, Some(0)),
        ("ipxe-efi-discover", MessageType::Discover, ClientKind::Ipxe, Some(7)),
        ("ovmf-pxe-discover", MessageType::Discover, ClientKind::UefiX64Pxe, Some(7)),
        ("ovmf-pxe-request", MessageType::Request, ClientKind::UefiX64Pxe, Some(7)),
        ("ovmf-http-discover", MessageType::Discover, ClientKind::UefiX64Http, Some(16)),
        ("bios-pxe-discover", MessageType::Discover, ClientKind::BiosPxe, Some(0)),
    ];
    for (name, kind, firmware, architecture) in expected {
        let message = decode(name);
        assert_eq!(
            (message.kind, message.firmware, message.architecture),
            (kind, firmware, architecture),
            "{name}"
        );
        assert!(message.uuid().is_some(), "{name}");
    }
}

#[test]
fn requests_name_their_server_and_address() {
    for (name, address) in [("ipxe-bios-request", "10.78.0.164"), ("ovmf-pxe-request", "10.78.0.172")] {
        let message = decode(name);
        assert_eq!(message.server_id.unwrap().to_string(), "10.78.0.1", "{name}");
        assert_eq!(message.requested.unwrap().to_string(), address, "{name}");
    }
}

#[test]
fn another_servers_offer_is_read_and_is_no_request() {
    let packet = Packet::decode(&golden("dnsmasq-offer")).unwrap();
    assert_eq!((packet.op, packet.options.byte(options::MESSAGE_TYPE)), (Op::Reply, Some(2)));
    assert_eq!(packet.options.u32(options::LEASE_TIME), Some(3600));
    assert_eq!(ClientMessage::decode(&golden("dnsmasq-offer")), Err(PacketError::NotARequest));
}

#[test]
fn golden_packets_survive_reading_and_writing() {
    for name in GOLDEN {
        let packet = Packet::decode(&golden(name)).unwrap();
        assert_eq!(Packet::decode(&packet.encode()).unwrap(), packet, "{name}");
    }
}
