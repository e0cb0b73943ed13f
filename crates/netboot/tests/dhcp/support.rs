//! Golden packets, a director that serves everybody, and messages made from packets.
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use netboot::boot_files::BootFileNames;
use netboot::dhcp::Outcome;
use netboot::dhcp::boot::BootServer;
use netboot::dhcp::client::ClientMessage;
use netboot::dhcp::options;
use netboot::dhcp::packet::Packet;
use netboot::dhcp::subnet::Subnet;
use netboot::director::{BootPlan, BootStep, DhcpClient, DhcpDecision, Director, MacAddress, ScriptRequest};

pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 1);

pub(crate) const GOLDEN: [&str; 8] = [
    "ipxe-bios-discover",
    "ipxe-bios-request",
    "ipxe-efi-discover",
    "ovmf-pxe-discover",
    "ovmf-pxe-request",
    "ovmf-http-discover",
    "bios-pxe-discover",
    "dnsmasq-offer",
];

/// The bytes of a golden packet.
pub(crate) fn golden(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.hex"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let digits: Vec<u8> = text.lines().filter(|line| !line.starts_with('#')).flat_map(str::bytes).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// A golden packet, changed, as a message.
pub(crate) fn message(name: &str, change: impl FnOnce(&mut Packet)) -> ClientMessage {
    let mut packet = Packet::decode(&golden(name)).unwrap();
    change(&mut packet);
    ClientMessage::decode(&packet.encode()).unwrap()
}

/// A DHCPREQUEST as `name`'s sender would send it.
pub(crate) fn request(name: &str, change: impl FnOnce(&mut Packet)) -> ClientMessage {
    message(name, |packet| {
        packet.options.set(options::MESSAGE_TYPE, [3]);
        change(packet);
    })
}

/// The packet of an outcome's reply.
pub(crate) fn reply(outcome: &Outcome) -> Packet {
    Packet::decode(&outcome.reply.as_ref().expect("a reply").bytes).unwrap()
}

/// The steps of an outcome.
pub(crate) fn steps(outcome: &Outcome) -> Vec<BootStep> {
    outcome.steps.iter().map(|(_, step)| step.clone()).collect()
}

pub(crate) fn boot_server() -> BootServer {
    BootServer { address: SERVER, http_port: 8080, names: BootFileNames::default() }
}

pub(crate) fn subnet() -> Subnet {
    Subnet {
        first: Ipv4Addr::new(10, 78, 0, 100),
        last: Ipv4Addr::new(10, 78, 0, 200),
        netmask: Ipv4Addr::new(255, 255, 255, 0),
        router: Some(SERVER),
        dns: vec![Ipv4Addr::new(10, 78, 0, 53)],
        lease: Duration::from_secs(3600),
    }
}

/// Gives every machine the same decision.
pub(crate) struct Decide(pub(crate) DhcpDecision);

impl Director for Decide {
    fn dhcp(&self, _: &DhcpClient) -> DhcpDecision {
        self.0.clone()
    }

    fn plan(&self, _: &ScriptRequest) -> BootPlan {
        BootPlan::Refuse("not asked for here".to_owned())
    }

    fn step(&self, _: MacAddress, _: BootStep) {}
}

/// Serves everybody from the pool.
pub(crate) const SERVE: Decide = Decide(DhcpDecision::Serve { address: None, host_name: None });
/// Serves nobody.
pub(crate) const IGNORE: Decide = Decide(DhcpDecision::Ignore);
