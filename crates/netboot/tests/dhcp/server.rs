//! The DHCP server, message by message.
use std::net::Ipv4Addr;

use netboot::boot_files::BootFileNames;
use netboot::dhcp::boot::{BootServer, read_encapsulated};
use netboot::dhcp::leases::UnixSeconds;
use netboot::dhcp::options;
use netboot::dhcp::packet::Packet;
use netboot::dhcp::proxy::{handle_boot_request, handle_broadcast};
use netboot::dhcp::server::Server;
use netboot::dhcp::subnet::Subnet;
use netboot::director::{BootStep, ClientKind, DhcpDecision, MacAddress};

use super::support::{Decide, IGNORE, SERVE, SERVER, boot_server, message, reply, request, steps, subnet};

const NOW: UnixSeconds = UnixSeconds(1_700_000_000);
const OURS: [u8; 4] = SERVER.octets();

fn server() -> Server {
    Server::new(boot_server(), subnet(), vec![]).unwrap()
}

/// Discover, offer, request, acknowledgement. Returns the address.
fn bind(server: &mut Server, name: &str, now: UnixSeconds) -> Ipv4Addr {
    let offer = reply(&server.handle(&message(name, |_| {}), &SERVE, now));
    let ask = request(name, |packet| {
        packet.options.set(options::SERVER_ID, OURS);
        packet.options.set(options::REQUESTED_ADDRESS, offer.yiaddr.octets());
    });
    let ack = reply(&server.handle(&ask, &SERVE, now));
    assert_eq!(ack.options.byte(options::MESSAGE_TYPE), Some(5));
    assert_eq!(ack.yiaddr, offer.yiaddr);
    ack.yiaddr
}

#[test]
fn ipxe_gets_its_script_and_need_not_wait_for_a_proxy() {
    let outcome = server().handle(&message("ipxe-bios-discover", |_| {}), &SERVE, NOW);
    let offer = reply(&outcome);
    let url = "http://10.78.0.1:8080/v1/boot/script?mac=52:54:00:78:00:10&platform=pcbios\
               &uuid=00112233-4455-6677-8899-aabbccddeeff";
    assert_eq!(String::from_utf8(offer.file).unwrap(), url);
    assert_eq!(offer.options.get(options::BOOT_FILE), Some(url.as_bytes()));
    let ipxe = read_encapsulated(offer.options.get(options::IPXE).unwrap()).unwrap();
    assert_eq!(ipxe.byte(options::IPXE_NO_PROXY_DHCP), Some(1));
    assert_eq!(steps(&outcome), [BootStep::Discover(ClientKind::Ipxe), BootStep::Offer(Some(offer.yiaddr))]);
    assert_eq!(outcome.reply.unwrap().to.to_string(), "255.255.255.255:68");
}

#[test]
fn each_firmware_gets_its_boot_file() {
    let expected = [
        ("bios-pxe-discover", "undionly.kpxe", None),
        ("ovmf-pxe-discover", "ipxe.efi", None),
        ("ovmf-http-discover", "http://10.78.0.1:8080/boot/ipxe.efi", Some(&b"HTTPClient"[..])),
    ];
    for (name, file, class) in expected {
        let offer = reply(&server().handle(&message(name, |_| {}), &SERVE, NOW));
        assert_eq!(String::from_utf8(offer.file).unwrap(), file, "{name}");
        assert_eq!(offer.siaddr, SERVER, "{name}");
        assert_eq!(offer.options.get(options::VENDOR_CLASS), class, "{name}");
        assert_eq!(offer.options.get(options::IPXE), None, "{name}");
    }
}

#[test]
fn firmware_of_every_architecture_gets_the_file_that_is_named_for_it() {
    let names = BootFileNames {
        bios: "mine.kpxe".to_owned(),
        uefi_x64: "snponly.efi".to_owned(),
        uefi_ia32: Some("ipxe-i386.efi".to_owned()),
        uefi_arm64: Some("ipxe-arm64.efi".to_owned()),
    };
    let boot = BootServer { names, ..boot_server() };
    let url = |name: &str| format!("http://10.78.0.1:8080/boot/{name}");
    let (pxe, http) = ("PXEClient:Arch:00000:UNDI:003016", "HTTPClient:Arch:00000:UNDI:003001");
    let expected = [
        (pxe, 0, "mine.kpxe".to_owned()),
        (pxe, 6, "ipxe-i386.efi".to_owned()),
        (pxe, 7, "snponly.efi".to_owned()),
        (pxe, 9, "snponly.efi".to_owned()),
        (pxe, 11, "ipxe-arm64.efi".to_owned()),
        (http, 15, url("ipxe-i386.efi")),
        (http, 16, url("snponly.efi")),
        (http, 19, url("ipxe-arm64.efi")),
    ];
    for (class, architecture, file) in expected {
        let sent = message("ovmf-pxe-discover", |packet| {
            packet.options.set(options::VENDOR_CLASS, class);
            packet.options.set(options::ARCHITECTURE, [0, architecture]);
        });
        let outcomes = [
            Server::new(boot.clone(), subnet(), Vec::new()).unwrap().handle(&sent, &SERVE, NOW),
            handle_broadcast(&boot, &sent, &SERVE),
            handle_boot_request(&boot, &sent, &SERVE),
        ];
        for outcome in &outcomes {
            let offered = reply(outcome);
            assert_eq!(offered.options.get(options::BOOT_FILE), Some(file.as_bytes()), "{architecture}");
        }
    }
}

#[test]
fn offer_carries_the_network_and_what_the_client_sent() {
    let sent = message("ovmf-pxe-discover", |packet| {
        packet.options.set(options::RELAY_AGENT, [1, 2, 3, 4]);
        packet.options.set(options::CLIENT_ID, [1, 2, 3]);
    });
    let offer = reply(&server().handle(&sent, &SERVE, NOW));
    let options = &offer.options;
    assert_eq!(options.address(options::SUBNET_MASK), Some(Ipv4Addr::new(255, 255, 255, 0)));
    assert_eq!(options.address(options::ROUTERS), Some(SERVER));
    assert_eq!(options.address(options::DNS_SERVERS), Some(Ipv4Addr::new(10, 78, 0, 53)));
    assert_eq!(options.address(options::SERVER_ID), Some(SERVER));
    assert_eq!(
        [options::LEASE_TIME, options::RENEWAL_TIME, options::REBINDING_TIME].map(|code| options.u32(code)),
        [Some(3600), Some(1800), Some(3150)]
    );
    assert_eq!(options.get(options::RELAY_AGENT), Some(&[1, 2, 3, 4][..]));
    assert_eq!(options.get(options::CLIENT_ID), Some(&[1, 2, 3][..]));
    assert_eq!(options.get(options::MACHINE_ID), sent.machine_id.as_deref());
    assert_eq!((offer.xid, offer.mac), (sent.xid, sent.mac));
}

#[test]
fn machine_keeps_its_address_from_firmware_to_ipxe_to_system() {
    let mut server = server();
    let same_mac = |packet: &mut Packet| packet.mac = MacAddress([2, 0, 0, 0, 0, 1]);
    let first = reply(&server.handle(&message("ovmf-pxe-discover", same_mac), &SERVE, NOW)).yiaddr;
    let ask = |name| {
        request(name, |packet| {
            same_mac(packet);
            packet.options.set(options::SERVER_ID, OURS);
            packet.options.set(options::REQUESTED_ADDRESS, first.octets());
        })
    };
    server.handle(&ask("ovmf-pxe-discover"), &SERVE, NOW);
    for (name, id) in [("ipxe-efi-discover", 1), ("bios-pxe-discover", 2)] {
        let other_id = message(name, |packet| {
            same_mac(packet);
            packet.options.set(options::CLIENT_ID, [255, id, id]);
        });
        assert_eq!(reply(&server.handle(&other_id, &SERVE, NOW)).yiaddr, first, "{name}");
    }
}

#[test]
fn two_machines_get_two_addresses() {
    let mut server = server();
    let one = bind(&mut server, "ipxe-bios-discover", NOW);
    let two = bind(&mut server, "ovmf-pxe-discover", NOW);
    assert_ne!(one, two);
}

#[test]
fn address_and_name_that_the_director_sets_are_given() {
    let fixed = Ipv4Addr::new(10, 78, 0, 42);
    let decide = |address| {
        Decide(DhcpDecision::Serve { address: Some(address), host_name: Some("lab-07".to_owned()) })
    };
    let mut server = server();
    let offer = reply(&server.handle(&message("ovmf-pxe-discover", |_| {}), &decide(fixed), NOW));
    assert_eq!(offer.yiaddr, fixed);
    assert_eq!(offer.options.get(options::HOST_NAME), Some(&b"lab-07"[..]));
    let wrong = request("ovmf-pxe-discover", |packet| {
        packet.options.set(options::REQUESTED_ADDRESS, [10, 78, 0, 150]);
    });
    let outcome = server.handle(&wrong, &decide(fixed), NOW);
    assert_eq!(reply(&outcome).options.byte(options::MESSAGE_TYPE), Some(6), "another address is refused");
    for impossible in [Ipv4Addr::new(10, 79, 0, 1), SERVER, Ipv4Addr::new(10, 78, 0, 255)] {
        let outcome = server.handle(&message("ipxe-efi-discover", |_| {}), &decide(impossible), NOW);
        assert!(subnet().in_pool(reply(&outcome).yiaddr), "{impossible}");
        assert!(outcome.note.unwrap().contains(&impossible.to_string()), "{impossible}");
    }
}

#[test]
fn fixed_address_that_another_machine_holds_is_not_given_twice() {
    let mut server = server();
    let held = bind(&mut server, "ipxe-bios-discover", NOW);
    let decide = Decide(DhcpDecision::Serve { address: Some(held), host_name: None });
    let outcome = server.handle(&message("ovmf-pxe-discover", |_| {}), &decide, NOW);
    assert_ne!(reply(&outcome).yiaddr, held);
    let note = outcome.note.unwrap();
    assert!(note.contains(&held.to_string()) && note.contains("lent to 52:54:00:78:00:10"), "{note}");
}

#[test]
fn machine_that_is_not_ours_hears_nothing() {
    for kind in 1..=8 {
        let message = |packet: &mut Packet| packet.options.set(options::MESSAGE_TYPE, [kind]);
        if ![1, 3, 4, 7, 8].contains(&kind) {
            continue;
        }
        let outcome = server().handle(&super::support::message("ovmf-pxe-discover", message), &IGNORE, NOW);
        assert_eq!(outcome, netboot::dhcp::Outcome::default(), "message type {kind}");
    }
}

#[test]
fn request_to_another_server_withdraws_our_offer() {
    let mut server = server();
    let offered = reply(&server.handle(&message("ovmf-pxe-discover", |_| {}), &SERVE, NOW)).yiaddr;
    assert_eq!(server.lease_count(), 1);
    let theirs = request("ovmf-pxe-discover", |packet| {
        packet.options.set(options::SERVER_ID, [10, 78, 0, 2]);
        packet.options.set(options::REQUESTED_ADDRESS, [10, 78, 0, 9]);
    });
    let outcome = server.handle(&theirs, &SERVE, NOW);
    assert_eq!((outcome.reply, server.lease_count()), (None, 0), "{offered} is free again");
    assert_eq!(outcome.steps, [(theirs.mac, BootStep::Elsewhere(Ipv4Addr::new(10, 78, 0, 2)))]);
}

#[test]
fn renewal_is_answered_to_the_client_and_lengthens_the_lease() {
    let mut server = server();
    let address = bind(&mut server, "ovmf-pxe-discover", NOW);
    let renew = request("ovmf-pxe-discover", |packet| {
        packet.ciaddr = address;
        packet.broadcast = false;
    });
    let outcome = server.handle(&renew, &SERVE, NOW.after(1800));
    assert_eq!(reply(&outcome).yiaddr, address);
    assert_eq!(outcome.reply.unwrap().to.to_string(), format!("{address}:68"));
    // The first lease would have ended now; the renewed one has not.
    let other = request("ipxe-bios-discover", |packet| {
        packet.options.set(options::REQUESTED_ADDRESS, address.octets());
    });
    let outcome = server.handle(&other, &SERVE, NOW.after(4000));
    assert_eq!(reply(&outcome).options.byte(options::MESSAGE_TYPE), Some(6));
}

#[test]
fn address_of_another_network_is_refused_at_once() {
    let stale = request("ovmf-pxe-discover", |packet| {
        packet.options.set(options::REQUESTED_ADDRESS, [192, 168, 1, 7]);
    });
    let outcome = server().handle(&stale, &SERVE, NOW);
    let nak = reply(&outcome);
    assert_eq!(nak.options.byte(options::MESSAGE_TYPE), Some(6));
    assert_eq!(nak.options.get(options::LEASE_TIME), None);
    assert_eq!(outcome.reply.unwrap().to.to_string(), "255.255.255.255:68");
}

#[test]
fn declined_address_is_replaced_by_another() {
    let mut server = server();
    let address = bind(&mut server, "ovmf-pxe-discover", NOW);
    let decline = message("ovmf-pxe-discover", |packet| {
        packet.options.set(options::MESSAGE_TYPE, [4]);
        packet.options.set(options::REQUESTED_ADDRESS, address.octets());
    });
    let outcome = server.handle(&decline, &SERVE, NOW);
    assert!(outcome.reply.is_none() && outcome.note.unwrap().contains("in use by another machine"));
    assert_ne!(bind(&mut server, "ovmf-pxe-discover", NOW), address);
}

#[test]
fn released_address_leaves_the_table() {
    let mut server = server();
    let address = bind(&mut server, "ovmf-pxe-discover", NOW);
    let release = message("ovmf-pxe-discover", |packet| {
        packet.options.set(options::MESSAGE_TYPE, [7]);
        packet.ciaddr = address;
    });
    assert_eq!(server.handle(&release, &SERVE, NOW).reply, None);
    assert_eq!(server.lease_count(), 0);
}

#[test]
fn inform_is_answered_without_an_address_and_only_in_the_network() {
    let inform = |ciaddr| {
        message("ipxe-efi-discover", |packet| {
            packet.options.set(options::MESSAGE_TYPE, [8]);
            packet.ciaddr = ciaddr;
        })
    };
    let outcome = server().handle(&inform(Ipv4Addr::new(10, 78, 0, 9)), &SERVE, NOW);
    let ack = reply(&outcome);
    assert_eq!((ack.yiaddr, ack.options.get(options::LEASE_TIME)), (Ipv4Addr::UNSPECIFIED, None));
    assert_eq!(server().handle(&inform(Ipv4Addr::new(8, 8, 8, 8)), &SERVE, NOW).reply, None);
}

#[test]
fn relayed_client_gets_an_address_of_its_own_network_through_its_relay() {
    let far = Subnet {
        first: Ipv4Addr::new(10, 99, 0, 10),
        last: Ipv4Addr::new(10, 99, 0, 20),
        router: Some(Ipv4Addr::new(10, 99, 0, 1)),
        ..subnet()
    };
    let mut server = Server::new(boot_server(), subnet(), vec![far.clone()]).unwrap();
    let relayed = |giaddr| message("ovmf-pxe-discover", |packet| packet.giaddr = giaddr);
    let outcome = server.handle(&relayed(Ipv4Addr::new(10, 99, 0, 1)), &SERVE, NOW);
    let offer = reply(&outcome);
    assert!(far.in_pool(offer.yiaddr), "{}", offer.yiaddr);
    assert_eq!((offer.giaddr, offer.siaddr), (Ipv4Addr::new(10, 99, 0, 1), SERVER));
    assert_eq!(outcome.reply.unwrap().to.to_string(), "10.99.0.1:67");
    let unknown = server.handle(&relayed(Ipv4Addr::new(10, 66, 0, 1)), &SERVE, NOW);
    assert!(unknown.reply.is_none() && unknown.note.unwrap().contains("10.66.0.1"));
}

#[test]
fn leases_survive_a_restart_of_the_server() {
    let mut first = server();
    let address = bind(&mut first, "ovmf-pxe-discover", NOW);
    let text = first.changed_leases().unwrap();
    assert_eq!(first.changed_leases(), None, "written once");
    let mut second = server();
    second.restore_leases(&text);
    let thief = request("ipxe-bios-discover", |packet| {
        packet.options.set(options::REQUESTED_ADDRESS, address.octets());
    });
    let outcome = second.handle(&thief, &SERVE, NOW.after(10));
    assert_eq!(reply(&outcome).options.byte(options::MESSAGE_TYPE), Some(6));
    assert_eq!(bind(&mut second, "ovmf-pxe-discover", NOW.after(10)), address);
}

#[test]
fn pool_without_a_free_address_is_noted_and_silent() {
    let one = Subnet { last: subnet().first, ..subnet() };
    let mut server = Server::new(boot_server(), one, vec![]).unwrap();
    bind(&mut server, "ovmf-pxe-discover", NOW);
    let outcome = server.handle(&message("ipxe-bios-discover", |_| {}), &SERVE, NOW);
    assert!(outcome.reply.is_none() && outcome.note.unwrap().contains("no free address"));
}

#[test]
fn answer_that_the_client_could_not_take_is_not_sent() {
    let small = message("ipxe-bios-discover", |packet| {
        packet.options.set(options::MAX_MESSAGE_SIZE, [0, 1]);
        packet.options.set(options::RELAY_AGENT, vec![7; 255]);
    });
    let outcome = server().handle(&small, &SERVE, NOW);
    assert!(outcome.reply.is_none() && outcome.note.unwrap().contains("548"));
}
