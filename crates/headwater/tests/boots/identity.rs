//! Two machines from one golden image are two machines: names, ids and keys of their own, told by the server.
use std::time::{Duration, Instant};

use lab::{Firmware, GOLDEN_READY_WITHIN, Guest};
use serde_json::Value;

use crate::site::{Device, Dhcp, Site};

const LOOK_EVERY: Duration = Duration::from_millis(200);
const ENDS_WITHIN: Duration = Duration::from_secs(120);

/// What makes a machine itself.
#[derive(Debug)]
struct Identity {
    host_name: String,
    machine_id: String,
    host_key: String,
}

#[test]
fn two_machines_from_one_image_differ_in_host_name_machine_id_and_host_key() {
    let devices = [Device::new("first-lab", 0), Device::new("second-lab", 1)];
    let image = lab::golden::golden().unwrap();
    let site = Site::begin("identity", Dhcp::Ours, image, &devices);
    let before = site.image_hash();
    let key = site.network.folder().join("key");
    let key_text = key.display().to_string();
    site.run("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f", &key_text]);
    let public = std::fs::read_to_string(key.with_extension("pub")).unwrap();
    for device in &devices {
        site.headwater(&["device", "set", device.name, &format!("ssh_keys={}", public.trim())]);
    }
    let mut guests = devices.each_ref().map(|device| site.start(device, Firmware::BiosIpxeRom));
    let identities = guests.each_mut().map(|guest| {
        guest.wait_for(lab::golden::READY, GOLDEN_READY_WITHIN).unwrap();
        identity(&site, guest, &key_text)
    });
    let [first, second] = &identities;
    assert_eq!([&first.host_name, &second.host_name], devices.each_ref().map(|device| device.name));
    assert_ne!(first.machine_id, second.machine_id);
    assert_ne!(first.host_key, second.host_key);

    // The service in the image does what administrators tell.
    let [mut guest, second] = guests;
    let (device, other) = (devices[0].name, devices[1].name);
    let told = site.headwater(&["device", "message", "We close at six.", device, "--wait"]);
    assert!(told.contains("taken"), "{told}");
    guest.wait_for("We close at six.", ENDS_WITHIN).unwrap();
    let boot = status(&site, device)["boot"].clone();
    site.headwater(&["device", "reboot", device, "--wait", "--yes"]);
    assert_eq!(status(&site, device)["presence"], "booting");
    // The machine id is the device's, not the boot's; a volatile write cache has lost everything else.
    guest.wait_for(lab::golden::READY, GOLDEN_READY_WITHIN).unwrap();
    assert_eq!(guest.run("cat /etc/machine-id").unwrap().trim(), first.machine_id);
    wait_for(&site, device, "online");
    assert_ne!(status(&site, device)["boot"], boot, "it was restarted");
    site.headwater(&["device", "shutdown", "--filter", "name != nobody", "--wait", "--yes"]);
    for (mut guest, device) in [(guest, device), (second, other)] {
        guest.wait_for("Power down", ENDS_WITHIN).unwrap();
        wait_for(&site, device, "off");
    }
    assert_eq!(site.image_hash(), before, "the golden image changed");
}

fn status(site: &Site, device: &str) -> Value {
    let answer = site.headwater(&["device", "status", device, "--output", "json"]);
    serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

/// Waits until the server says this of the device.
fn wait_for(site: &Site, device: &str, presence: &str) {
    let began = Instant::now();
    while status(site, device)["presence"] != presence {
        assert!(began.elapsed() < ENDS_WITHIN, "not {presence}: {}", status(site, device));
        std::thread::sleep(LOOK_EVERY);
    }
}

/// What the machine says of itself, and what it shows to others.
fn identity(site: &Site, guest: &mut Guest, key: &str) -> Identity {
    let host_name = guest.run("hostname").unwrap().trim().to_owned();
    let machine_id = guest.run("cat /etc/machine-id").unwrap().trim().to_owned();
    // The init that runs took it from there, and made none itself.
    let running = guest.run("cat /run/machine-id 2>/dev/null || echo none").unwrap();
    assert_eq!(running.trim(), "none");
    let address = guest.run("ip -4 -o address show dev eth0 | sed 's/.*inet //; s,/.*,,'").unwrap();
    let address = address.trim();
    let host_key = site.run("ssh-keyscan", &["-T", "60", "-t", "ed25519", address]);
    let host_key = host_key.lines().find(|line| !line.starts_with('#')).unwrap();
    let login = format!("root@{address}");
    let options =
        ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "BatchMode=yes"];
    let words = [&["-i", key][..], &options, &[&login, "hostname"]].concat();
    assert_eq!(site.run("ssh", &words).trim(), host_name, "the key of the catalogue lets in");
    let key = host_key.split(' ').next_back().unwrap().to_owned();
    guest.run_within("sync", ENDS_WITHIN).unwrap();
    Identity { host_name, machine_id, host_key: key }
}
