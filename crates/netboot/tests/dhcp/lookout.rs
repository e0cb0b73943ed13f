//! What is told of other DHCP servers, and of machines that share a MAC address.
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use netboot::dhcp::client::ClientMessage;
use netboot::dhcp::lookout::{Expected, Lookout, Oddity, TELL_AGAIN};
use netboot::dhcp::options;

use super::support::{SERVER, message, request};

const STRANGER: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 66);

/// A client takes the offer of this server.
fn takes(server: Ipv4Addr) -> ClientMessage {
    request("ovmf-pxe-discover", |packet| packet.options.set(options::SERVER_ID, server.octets()))
}

/// A machine with this UUID asks.
fn machine(uuid: [u8; 16]) -> ClientMessage {
    message("ovmf-pxe-discover", |packet| {
        packet.options.set(options::MACHINE_ID, [&[0][..], &uuid].concat());
    })
}

#[test]
fn other_server_that_a_client_chose_is_told_once_an_hour() {
    let (mut lookout, now) = (Lookout::new(Expected::Ours(SERVER)), Instant::now());
    assert_eq!(lookout.hear(&takes(SERVER), now), None, "ours");
    let mac = takes(STRANGER).mac;
    let oddity = Oddity::OtherServer { server: STRANGER, mac };
    let text = oddity.to_string();
    assert!(text.contains("10.78.0.66") && text.contains("mode = \"proxy\""), "{text}");
    let told = Some(oddity);
    assert_eq!(lookout.hear(&takes(STRANGER), now), told);
    assert_eq!(lookout.hear(&takes(STRANGER), now + Duration::from_secs(60)), None);
    assert_eq!(lookout.hear(&takes(STRANGER), now + TELL_AGAIN), told);
}

#[test]
fn proxy_expects_one_server_and_tells_of_a_second() {
    let (mut lookout, now) = (Lookout::new(Expected::OneOther), Instant::now());
    let site = Ipv4Addr::new(10, 78, 0, 2);
    let later = now + Duration::from_secs(5);
    assert_eq!(lookout.hear(&takes(site), now), None);
    assert_eq!(lookout.hear(&takes(site), later), None);
    let mac = takes(STRANGER).mac;
    assert_eq!(
        lookout.hear(&takes(STRANGER), later),
        Some(Oddity::TwoServers { first: site, server: STRANGER, mac })
    );
    assert_eq!(lookout.hear(&takes(site), later), None, "it was there first");
}

#[test]
fn servers_that_somebody_makes_up_are_told_of_sixteen_times() {
    let (mut lookout, now) = (Lookout::new(Expected::Ours(SERVER)), Instant::now());
    let heard = (0..=255).filter(|n| lookout.hear(&takes(Ipv4Addr::new(192, 168, 1, *n)), now).is_some());
    assert_eq!(heard.count(), 16);
}

#[test]
fn two_uuids_of_one_address_are_two_machines_and_two_byte_orders_are_one() {
    let (mut lookout, now) = (Lookout::new(Expected::Ours(SERVER)), Instant::now());
    let one = [0x33, 0x22, 0x11, 0x00, 0x55, 0x44, 0x77, 0x66, 8, 9, 10, 11, 12, 13, 14, 15];
    let turned = [0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 8, 9, 10, 11, 12, 13, 14, 15];
    let other = [7; 16];
    for uuid in [one, one, turned, one, [0; 16], [0xff; 16], one] {
        assert_eq!(lookout.hear(&machine(uuid), now), None);
    }
    let told = lookout.hear(&machine(other), now).unwrap();
    assert!(
        matches!(&told, Oddity::TwoMachines { before, .. } if before == "00112233-4455-6677-0809-0a0b0c0d0e0f")
    );
    assert!(lookout.hear(&machine(one), now).is_some(), "each time the machine changes");
}

#[test]
fn flood_of_machines_with_uuids_is_forgotten_and_told_of_nowhere() {
    let (mut lookout, now) = (Lookout::new(Expected::Ours(SERVER)), Instant::now());
    let mut sent = machine([7; 16]);
    for n in 0..40_000_u32 {
        let [a, b, c, d] = n.to_be_bytes();
        sent.mac = netboot::director::MacAddress([2, 0, a, b, c, d]);
        assert_eq!(lookout.hear(&sent, now), None);
    }
}
