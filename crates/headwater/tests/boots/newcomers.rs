//! A machine that nobody knows: it waits on its screen, is approved, and boots by itself.
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::time::Duration;

use lab::{Firmware, Guest, MICRO_READY_WITHIN};
use serde_json::Value;

use crate::site::{Device, Site};

/// How long a machine may take from power-on to its script.
const SCRIPT_WITHIN: Duration = Duration::from_secs(120);

/// Tells of the first packet that comes to the port that magic packets are sent to.
const LISTENER: &str = "import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(60)
s.bind(('', 9))
print('listening', flush=True)
print(s.recv(2048).hex(), flush=True)";

#[test]
fn unknown_machine_waits_for_approval_and_then_boots() {
    let devices = [Device::new("template", 0x2a)];
    let mut site = Site::micro("newcomers", &devices);
    site.headwater(&[
        "collection",
        "set",
        "imported",
        "newcomers=pc-###",
        "approves_newcomers=true",
        "template=template",
    ]);
    let stranger = Device::new("stranger", 0x2b);
    let mac = stranger.spec(Firmware::BiosIpxeRom).mac;
    let mut guest = Guest::start(&site.network, &stranger.spec(Firmware::BiosIpxeRom)).unwrap();
    let screen = format!("waiting for approval: name pc-001, MAC {mac}");
    guest.wait_for_screen(&screen, SCRIPT_WITHIN).unwrap();

    let listed = site.headwater(&["device", "newcomers", "--output", "json"]);
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!((&listed["items"][0]["name"], &listed["items"][0]["mac"]), (&"pc-001".into(), &mac.into()));
    let mac = listed["items"][0]["mac"].as_str().unwrap();
    site.headwater(&["device", "approve", mac]);
    // It asks again by itself; a key asks now.
    guest.press(" ").unwrap();
    guest.wait_for("GRUB: loading kernel", SCRIPT_WITHIN).unwrap();
    assert_eq!(presence(&site), "booting");
    guest.wait_for(lab::micro::READY, MICRO_READY_WITHIN).unwrap();
    site.server.service().wait_for_log("device ready", Duration::from_secs(60)).unwrap();
    assert_eq!(presence(&site), "online");
    magic_packet_reaches_every_card(&site, mac);
}

/// What a card would look for that is switched off: here, a socket in another namespace of the network.
fn magic_packet_reaches_every_card(site: &Site, mac: &str) {
    let neighbour = site.network.neighbour("asleep", "10.77.0.9").unwrap();
    let mut card = site.network.command_at(&neighbour, "python3");
    let mut card = card.args(["-c", LISTENER]).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(card.stdout.take().unwrap()).lines();
    assert_eq!(said.next().unwrap().unwrap(), "listening");
    let woken = site.headwater(&["device", "wake", "pc-001"]);
    assert!(woken.contains(lab::INTERFACE), "{woken}");
    // AMD's publication 20213: six bytes of ones, and the address sixteen times.
    let pattern = format!("{}{}", "ff".repeat(6), mac.replace(':', "").repeat(16));
    assert_eq!(said.next().unwrap().unwrap(), pattern);
    assert!(card.wait().unwrap().success());
}

fn presence(site: &Site) -> String {
    let answer = site.headwater(&["device", "status", "pc-001", "--output", "json"]);
    let answer: Value = serde_json::from_str(&answer).unwrap();
    answer["presence"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}
