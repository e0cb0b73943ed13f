//! Neighbours that mean harm, and two machines that claim to be one.
use std::time::Duration;

use lab::{Firmware, Guest, GuestSpec};

use crate::site::{Device, Site, read_proof, write_proof};

const SEEN_WITHIN: Duration = Duration::from_secs(120);
/// Emulated machines among floods, and with a twin, are slower still.
const READY_WITHIN: Duration = Duration::from_secs(300);
/// Far more than a server of one device takes, far less than an hour of flood would.
const MEMORY_LIMIT_KIB: u64 = 512 << 10;
/// Ten lines in ten seconds for each service, and the boot's own.
const LOG_LIMIT_LINES: usize = 1000;

/// Until it is killed: DHCPDISCOVERs of made-up machines, mangled and cut packets to ports 67, 69 and 4011, TFTP requests whose client
/// vanishes at once, HTTP connections with nonsense, and with half a request that is never ended.
const ATTACK: &str = r#"
import os, random, socket, time
server = "10.77.0.1"
random.seed(6)
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
udp.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"eth0")
held = []
def discover():
    mac = bytes([2]) + os.urandom(5)
    packet = bytes([1, 1, 6, 0]) + os.urandom(4) + bytes(20) + mac + bytes(10 + 192) + bytes([99, 130, 83, 99, 53, 1, 1])
    return packet + bytes([60, 9]) + b"PXEClient" + bytes([93, 2, 0, 7, 97, 17, 0]) + os.urandom(16) + bytes([255])
def mangled():
    packet = bytearray(discover())
    for _ in range(8):
        packet[random.randrange(len(packet))] = random.randrange(256)
    return bytes(packet[:random.randrange(len(packet))])
def vanishing():
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.sendto(b"\0\1ipxe.efi\0octet\0blksize\x001468\0windowsize\x0016\0", (server, 69))
    client.close()
def http(text):
    try:
        client = socket.create_connection((server, 8080), 1)
        client.sendall(text)
        held.append(client)
        if len(held) > 200:
            held.pop(0).close()
    except OSError:
        pass
print("ATTACKING", flush=True)
while True:
    for _ in range(10):
        udp.sendto(discover(), ("255.255.255.255", 67))
        for port in (67, 69, 4011):
            udp.sendto(mangled(), (server if port != 67 else "255.255.255.255", port))
    vanishing()
    http(b"GET /v1/boot/script?mac=" + os.urandom(40) + b" HTTP/1.1\r\nHost: x\r\n\r\n")
    http(b"GET /boot/ipxe.efi HTTP/1.1\r\nHost:")
    time.sleep(0.02)
"#;

#[test]
fn machine_boots_among_hostile_neighbours_and_the_server_stays_small() {
    let device = Device::new("besieged", 0);
    let mut site = Site::micro("hostile", std::slice::from_ref(&device));
    let attacker = site.network.neighbour("attacker", "10.77.0.66").unwrap();
    let mut command = site.network.command_at(&attacker, "python3");
    command.args(["-c", ATTACK]);
    let mut attack = site.network.service("attack", command).unwrap();
    attack.wait_for_log("ATTACKING", SEEN_WITHIN).unwrap();
    let mut guest = site.start(&device, Firmware::UefiPxe);
    guest.wait_for(lab::micro::READY, READY_WITHIN).unwrap();
    write_proof(&mut guest, "undisturbed");
    for told in ["DHCP packet dropped", "malformed TFTP request dropped", "fell silent in a TFTP transfer"] {
        site.server.service().wait_for_log(told, SEEN_WITHIN).unwrap();
    }
    assert!(attack.is_running().unwrap(), "the attack ended before the boot did");
    let status = std::fs::read_to_string(format!("/proc/{}/status", site.server.service().pid())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak_kib: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak_kib < MEMORY_LIMIT_KIB, "the server took {peak_kib} KiB");
    let lines = site.server.service().log().lines().count();
    assert!(lines < LOG_LIMIT_LINES, "the log has {lines} lines");
}

#[test]
fn second_machine_with_the_same_mac_takes_the_disk_and_the_first_writes_no_more() {
    let device = Device::new("twice", 1);
    let mut site = Site::micro("twice", std::slice::from_ref(&device));
    let spec = device.spec(Firmware::BiosIpxeRom);
    let twin = GuestSpec { name: "twin".to_owned(), ..spec.clone() };
    let first = spec.with_uuid("00112233-4455-6677-8899-aabbccddeef1");
    let mut first = Guest::start(&site.network, &first).unwrap();
    first.wait_for(lab::micro::READY, READY_WITHIN).unwrap();
    write_proof(&mut first, "of the first");
    // Two with one address cannot talk at once in any network; each in its turn.
    first.connect_network(false).unwrap();
    let second = twin.with_uuid("00112233-4455-6677-8899-aabbccddeef2");
    let mut second = Guest::start(&site.network, &second).unwrap();
    second.wait_for(lab::micro::READY, READY_WITHIN).unwrap();
    let told = site.server.service().wait_for_log("two machines have the MAC address", SEEN_WITHIN).unwrap();
    assert!(told.contains("aabbccddeef1") && told.contains("aabbccddeef2"), "{told}");
    assert_eq!(read_proof(&mut second), "none");
    write_proof(&mut second, "of the second");
    second.connect_network(false).unwrap();
    first.connect_network(true).unwrap();
    first.start_in_shell("echo stolen >/data/proof; sync").unwrap();
    site.server.service().wait_for_log("initiator refused or disconnected", SEEN_WITHIN).unwrap();
    first.kill().unwrap();
    second.connect_network(true).unwrap();
    let command = "echo 3 >/proc/sys/vm/drop_caches; cat /data/proof";
    assert_eq!(second.run_within(command, SEEN_WITHIN).unwrap().trim(), "of the second");
}
