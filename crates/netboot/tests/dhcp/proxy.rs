//! ProxyDHCP, message by message.
use std::net::Ipv4Addr;

use netboot::dhcp::boot::read_encapsulated;
use netboot::dhcp::options;
use netboot::dhcp::packet::Packet;
use netboot::dhcp::proxy::{handle_boot_request, handle_broadcast, heard_address};
use netboot::director::{BootStep, ClientKind};

use super::support::{IGNORE, SERVE, SERVER, boot_server, message, reply, request, steps};

#[test]
fn pxe_clients_are_offered_a_boot_file_and_no_address() {
    let url = "http://10.78.0.1:8080/v1/boot/script?mac=52:54:00:78:00:11&platform=efi\
               &uuid=00112233-4455-6677-8899-aabbccddeeff";
    let expected = [
        ("bios-pxe-discover", "undionly.kpxe"),
        ("ovmf-pxe-discover", "ipxe.efi"),
        ("ipxe-efi-discover", url),
    ];
    for (name, file) in expected {
        let outcome = handle_broadcast(&boot_server(), &message(name, |_| {}), &SERVE);
        let offer = reply(&outcome);
        assert_eq!((offer.yiaddr, offer.siaddr), (Ipv4Addr::UNSPECIFIED, SERVER), "{name}");
        assert_eq!(String::from_utf8(offer.file).unwrap(), file, "{name}");
        assert_eq!(offer.options.byte(options::MESSAGE_TYPE), Some(2), "{name}");
        assert_eq!(offer.options.get(options::VENDOR_CLASS), Some(&b"PXEClient"[..]), "{name}");
        assert_eq!(offer.options.get(options::LEASE_TIME), None, "{name}");
        assert_eq!(offer.options.get(options::SUBNET_MASK), None, "{name}");
        let pxe = read_encapsulated(offer.options.get(options::VENDOR_SPECIFIC).unwrap()).unwrap();
        assert_eq!(pxe.byte(options::PXE_DISCOVERY_CONTROL), Some(options::PXE_USE_BOOT_FILE), "{name}");
        assert_eq!(steps(&outcome).last(), Some(&BootStep::Offer(None)), "{name}");
    }
}

#[test]
fn http_boot_client_is_offered_a_url_as_an_http_client() {
    let offer = reply(&handle_broadcast(&boot_server(), &message("ovmf-http-discover", |_| {}), &SERVE));
    assert_eq!(offer.options.get(options::VENDOR_CLASS), Some(&b"HTTPClient"[..]));
    assert_eq!(offer.options.get(options::VENDOR_SPECIFIC), None);
    assert_eq!(offer.options.get(options::BOOT_FILE), Some(&b"http://10.78.0.1:8080/boot/ipxe.efi"[..]));
}

#[test]
fn plain_dhcp_client_and_one_that_is_not_ours_hear_nothing() {
    let plain =
        message("ovmf-pxe-discover", |packet| packet.options.set(options::VENDOR_CLASS, *b"MSFT 5.0"));
    assert_eq!(handle_broadcast(&boot_server(), &plain, &SERVE), netboot::dhcp::Outcome::default());
    let ours = message("ovmf-pxe-discover", |_| {});
    for handle in [handle_broadcast, handle_boot_request] {
        assert_eq!(handle(&boot_server(), &ours, &IGNORE), netboot::dhcp::Outcome::default());
    }
}

#[test]
fn pxe_client_of_an_unknown_architecture_is_noted() {
    let arm32 = message("ovmf-pxe-discover", |packet| packet.options.set(options::ARCHITECTURE, [0, 10]));
    for handle in [handle_broadcast, handle_boot_request] {
        let outcome = handle(&boot_server(), &arm32, &SERVE);
        assert!(outcome.reply.is_none() && outcome.note.unwrap().contains("architecture 10"));
    }
    let arm = message("ovmf-pxe-discover", |packet| packet.options.set(options::ARCHITECTURE, [0, 11]));
    let outcome = handle_broadcast(&boot_server(), &arm, &SERVE);
    assert!(outcome.reply.is_none() && outcome.note.unwrap().contains("no boot file"), "none is configured");
}

#[test]
fn request_to_the_sites_server_is_left_to_it_but_heard() {
    let sent = message("ipxe-bios-request", |_| {});
    let outcome = handle_broadcast(&boot_server(), &sent, &SERVE);
    assert_eq!((outcome.reply, heard_address(&sent)), (None, Some(Ipv4Addr::new(10, 78, 0, 164))));
    let elsewhere = BootStep::Elsewhere(Ipv4Addr::new(10, 78, 0, 1));
    assert_eq!(outcome.steps, [BootStep::Request(ClientKind::Ipxe), elsewhere].map(|step| (sent.mac, step)));
    assert_eq!(heard_address(&message("ipxe-bios-discover", |_| {})), None);
}

#[test]
fn boot_server_request_is_acknowledged_with_the_item_that_it_picked() {
    let sent = request("bios-pxe-discover", |packet: &mut Packet| {
        packet.ciaddr = Ipv4Addr::new(10, 78, 0, 164);
        packet.broadcast = false;
        packet.options.set(options::VENDOR_SPECIFIC, [options::PXE_BOOT_ITEM, 4, 0, 0, 0, 0, 255]);
    });
    let outcome = handle_boot_request(&boot_server(), &sent, &SERVE);
    let ack = reply(&outcome);
    assert_eq!(ack.options.byte(options::MESSAGE_TYPE), Some(5));
    assert_eq!((ack.yiaddr, ack.ciaddr), (Ipv4Addr::UNSPECIFIED, Ipv4Addr::new(10, 78, 0, 164)));
    assert_eq!(ack.file, b"undionly.kpxe");
    let pxe = read_encapsulated(ack.options.get(options::VENDOR_SPECIFIC).unwrap()).unwrap();
    assert_eq!(pxe.get(options::PXE_BOOT_ITEM), Some(&[0, 0, 0, 0][..]));
    assert_eq!(steps(&outcome).last(), Some(&BootStep::Ack(None)));
}
