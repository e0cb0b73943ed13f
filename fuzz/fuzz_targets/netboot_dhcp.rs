//! A run of DHCP packets to one server and its proxy: each piece of the input, cut at its length prefix, is a packet. Whatever is
//! answered must be a packet again, and the lease table stays inside its pool.
#![no_main]
use std::net::Ipv4Addr;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use netboot::boot_files::BootFileNames;
use netboot::dhcp::boot::BootServer;
use netboot::dhcp::client::ClientMessage;
use netboot::dhcp::leases::UnixSeconds;
use netboot::dhcp::packet::Packet;
use netboot::dhcp::proxy::{handle_boot_request, handle_broadcast};
use netboot::dhcp::server::Server;
use netboot::dhcp::subnet::Subnet;
use netboot::director::{BootPlan, BootStep, DhcpClient, DhcpDecision, Director, MacAddress, ScriptRequest};

struct Serve;

impl Director for Serve {
    fn dhcp(&self, client: &DhcpClient) -> DhcpDecision {
        let address = (client.mac.0[5] & 1 == 1).then_some(Ipv4Addr::new(10, 0, 0, client.mac.0[4]));
        DhcpDecision::Serve { address, host_name: Some("fuzz".to_owned()) }
    }

    fn plan(&self, _: &ScriptRequest) -> BootPlan {
        BootPlan::Refuse(String::new())
    }

    fn step(&self, _: MacAddress, _: BootStep) {}
}

fuzz_target!(|input: &[u8]| {
    let server_address = Ipv4Addr::new(10, 0, 0, 1);
    let boot = BootServer { address: server_address, http_port: 8080, names: BootFileNames::default() };
    let subnet = Subnet {
        first: Ipv4Addr::new(10, 0, 0, 100),
        last: Ipv4Addr::new(10, 0, 0, 107),
        netmask: Ipv4Addr::new(255, 255, 255, 0),
        router: None,
        dns: vec![],
        lease: Duration::from_secs(60),
    };
    let mut server = Server::new(boot.clone(), subnet, vec![]).expect("a good subnet");
    let (mut rest, mut now) = (input, UnixSeconds(1_000_000));
    while let [high, low, tail @ ..] = rest {
        let length = usize::from(u16::from_be_bytes([*high, *low])).min(tail.len());
        let (packet, tail) = tail.split_at(length);
        rest = tail;
        now = now.after(7);
        let Ok(message) = ClientMessage::decode(packet) else { continue };
        let outcomes = [
            server.handle(&message, &Serve, now),
            handle_broadcast(&boot, &message, &Serve),
            handle_boot_request(&boot, &message, &Serve),
        ];
        for reply in outcomes.into_iter().filter_map(|outcome| outcome.reply) {
            Packet::decode(&reply.bytes).expect("an answer is a packet");
        }
        assert!(server.lease_count() <= 254);
    }
});
