//! Mutated packets: nothing panics, tables stay bounded, answers stay decodable.
use std::collections::HashMap;
use std::net::Ipv4Addr;

use mutate::{Mutator, Rng};
use netboot::dhcp::client::{ClientMessage, MessageType};
use netboot::dhcp::leases::UnixSeconds;
use netboot::dhcp::options;
use netboot::dhcp::packet::{MAX_PACKET_BYTES, Packet};
use netboot::dhcp::proxy::{handle_boot_request, handle_broadcast};
use netboot::dhcp::server::Server;
use netboot::director::MacAddress;

use super::support::{GOLDEN, SERVE, boot_server, golden, subnet};

fn mutator() -> Mutator {
    Mutator::new(GOLDEN.map(golden).to_vec(), MAX_PACKET_BYTES + 10)
}

#[test]
fn mutated_packets_are_read_or_refused_and_survive_rewriting() {
    let mut read = 0;
    mutator().run(20_000, |bytes| {
        let Ok(mut packet) = Packet::decode(bytes) else { return };
        read += 1;
        // Overloaded fields come back as plain options.
        packet.options.set(options::OVERLOAD, [0]);
        let wire = packet.encode();
        if wire.len() <= MAX_PACKET_BYTES {
            assert_eq!(Packet::decode(&wire).unwrap(), packet);
        }
    });
    assert!(read > 2_000, "only {read} were packets");
}

/// Who may use which address, as the server's answers say: the model that the server is held against.
#[derive(Default)]
struct Given(HashMap<Ipv4Addr, (MacAddress, UnixSeconds)>);

impl Given {
    /// The machine may have given up what it had.
    fn forget(&mut self, mac: MacAddress) {
        self.0.retain(|_, (holder, _)| *holder != mac);
    }

    fn acknowledge(&mut self, address: Ipv4Addr, mac: MacAddress, now: UnixSeconds, end: UnixSeconds) {
        if let Some((holder, until)) = self.0.get(&address) {
            assert!(*holder == mac || *until <= now, "{address} of {holder} was given to {mac}, too");
        }
        self.forget(mac);
        self.0.insert(address, (mac, end));
    }
}

/// Conversations of the recorded packets, each behind its length, as the fuzz target `netboot_dhcp` reads them.
fn conversations() -> Vec<Vec<u8>> {
    let framed = GOLDEN.map(|name| {
        let packet = golden(name);
        [&(packet.len() as u16).to_be_bytes()[..], &packet].concat()
    });
    vec![
        framed.concat(),
        [framed[0].clone(), framed[1].clone()].concat(),
        [framed[3].clone(), framed[4].clone()].concat(),
    ]
}

#[test]
fn mutated_conversations_leave_server_and_proxy_sound() {
    let mut server = Server::new(boot_server(), subnet(), vec![]).unwrap();
    mutate::leave_seeds("netboot_dhcp", &conversations());
    let (mut now, mut answered, mut given) = (UnixSeconds(1_700_000_000), 0, Given::default());
    mutator().run(20_000, |bytes| {
        now = now.after(1);
        let Ok(message) = ClientMessage::decode(bytes) else { return };
        if matches!(message.kind, MessageType::Release | MessageType::Decline) {
            given.forget(message.mac);
        }
        let served = server.handle(&message, &SERVE, now);
        let proxied = [handle_broadcast, handle_boot_request].map(|f| f(&boot_server(), &message, &SERVE));
        for reply in [served].into_iter().chain(proxied).filter_map(|outcome| outcome.reply) {
            answered += 1;
            let reply = Packet::decode(&reply.bytes).unwrap();
            assert_eq!((reply.xid, reply.mac), (message.xid, message.mac));
            if reply.options.byte(options::MESSAGE_TYPE) == Some(5) && !reply.yiaddr.is_unspecified() {
                assert!(subnet().in_pool(reply.yiaddr), "{}", reply.yiaddr);
                let lease_s = reply.options.u32(options::LEASE_TIME).unwrap();
                given.acknowledge(reply.yiaddr, reply.mac, now, now.after(lease_s.into()));
            }
        }
        assert!(server.lease_count() <= 101, "{} leases in a pool of 101", server.lease_count());
    });
    assert!(answered > 2_000, "only {answered} answers");
}

/// Well-formed messages of 150 machines to a pool of 101 addresses, in any order, with any address that is near it.
#[test]
fn random_conversations_never_give_one_address_to_two_machines() {
    let template = Packet::decode(&golden("ovmf-pxe-discover")).unwrap();
    let mut acknowledged = 0;
    for seed in 0..20 {
        let mut rng = Rng::new(seed);
        let mut server = Server::new(boot_server(), subnet(), vec![]).unwrap();
        let (mut now, mut given) = (UnixSeconds(1_700_000_000), Given::default());
        let mut offers: HashMap<MacAddress, Ipv4Addr> = HashMap::new();
        for _ in 0..3_000 {
            now = now.after(rng.below(60));
            let mac = MacAddress([2, 0, 0, 0, 0, rng.below(150) as u8]);
            let near = Ipv4Addr::new(10, 78, 0, 98 + rng.below(106) as u8);
            let wanted = if rng.below(3) > 0 { *offers.get(&mac).unwrap_or(&near) } else { near };
            let kind = [1, 1, 3, 3, 3, 3, 4, 7][rng.below(8) as usize];
            let renews = rng.below(4) == 0;
            let mut packet = Packet { mac, ..template.clone() };
            packet.options.set(options::MESSAGE_TYPE, [kind]);
            if renews || kind == 7 {
                packet.ciaddr = wanted;
            } else {
                packet.options.set(options::REQUESTED_ADDRESS, wanted.octets());
            }
            if rng.below(8) == 0 {
                packet.options.set(options::SERVER_ID, [10, 78, 0, 1 + rng.below(2) as u8]);
            }
            let sent = ClientMessage::decode(&packet.encode()).unwrap();
            if matches!(sent.kind, MessageType::Release | MessageType::Decline) {
                given.forget(mac);
            }
            let Some(reply) = server.handle(&sent, &SERVE, now).reply else { continue };
            let reply = Packet::decode(&reply.bytes).unwrap();
            match reply.options.byte(options::MESSAGE_TYPE) {
                Some(2) => drop(offers.insert(mac, reply.yiaddr)),
                Some(5) => {
                    acknowledged += 1;
                    assert_ne!(reply.yiaddr, boot_server().address);
                    given.acknowledge(reply.yiaddr, mac, now, now.after(3600));
                }
                _ => {}
            }
        }
        assert!(server.lease_count() <= 101);
    }
    assert!(acknowledged > 5_000, "only {acknowledged} acknowledgements");
}
