//! Servers that die, machines that lose power, machines that reach for what is not theirs.
use std::time::Duration;

use lab::{Firmware, Guest};

use crate::site::{Device, Site, read_proof, write_proof};

/// An initiator tries again within seconds once the server is back; emulated machines are slow.
const RECOVERS_WITHIN: Duration = Duration::from_secs(90);

#[test]
fn machine_survives_a_killed_and_a_restarted_server() {
    let device = Device::new("survivor", 0);
    let mut site = Site::micro("server-restart", &[Device::new("survivor", 0)]);
    let mut guest = site.boot(&device, Firmware::BiosIpxeRom);
    write_proof(&mut guest, "before");
    // Killed: the machine's I/O stalls, then goes on, and nothing that it wrote is lost.
    site.server.kill().unwrap();
    guest.start_in_shell("echo during >/data/during && sync && echo STALLED-WRITE-IS-DONE").unwrap();
    site.server.restart().unwrap();
    guest.wait_for("STALLED-WRITE-IS-DONE", RECOVERS_WITHIN).unwrap();
    assert_eq!(read_proof(&mut guest), "before");
    assert_eq!(guest.run("cat /data/during").unwrap().trim(), "during");
    // Stopped in an orderly way: the same.
    assert!(site.server.terminate().unwrap().success());
    site.server.restart().unwrap();
    guest.run_within("echo 3 >/proc/sys/vm/drop_caches; cat /data/during", RECOVERS_WITHIN).unwrap();
    write_proof(&mut guest, "after");
}

#[test]
fn machine_killed_or_reset_in_mid_write_boots_with_a_clean_disk_and_one_session() {
    let device = Device::new("powerless", 0);
    let site = Site::micro("power-cut", &[Device::new("powerless", 0)]);
    let mut guest = site.boot(&device, Firmware::BiosIpxeRom);
    write_proof(&mut guest, "before the power cut");
    start_writing(&mut guest);
    guest.kill().unwrap();
    let mut guest = site.boot(&device, Firmware::BiosIpxeRom);
    assert_eq!(read_proof(&mut guest), "none");
    // A reset in the middle of writes: nobody closes the connection, and what is on its way must not come through.
    write_proof(&mut guest, "before the reset");
    start_writing(&mut guest);
    guest.reset().unwrap();
    guest.wait_for(lab::micro::READY, lab::MICRO_READY_WITHIN).unwrap();
    assert_eq!(read_proof(&mut guest), "none");
    assert_eq!(guest.run("ls /data | grep -c written-").unwrap_or_else(|_| "0".to_owned()).trim(), "0");
    let devices: serde_json::Value =
        serde_json::from_str(&site.headwater(&["device", "status", "--output", "json"])).unwrap();
    assert_eq!(devices["items"][0]["sessions"], 1, "a session of an earlier boot is left: {devices:#}");
}

/// Leaves the machine writing, and waits until it is in the middle of that.
fn start_writing(guest: &mut Guest) {
    let write = "dd if=/dev/urandom of=/data/written-$n bs=64k count=4 conv=fsync 2>/dev/null; n=$((n+1))";
    guest.start_in_shell(&format!("n=0; while true; do {write}; echo WRIT''TEN; done")).unwrap();
    for _ in 0..3 {
        guest.wait_for("WRITTEN", RECOVERS_WITHIN).unwrap();
    }
}

#[test]
fn machine_cut_off_from_the_network_and_one_that_is_frozen_go_on_and_hold_up_nobody() {
    let devices = [Device::new("cut-off", 0), Device::new("frozen", 1), Device::new("bystander", 2)];
    let site = Site::micro("half-open", &devices);
    let [cut_off, frozen, bystander] = &devices;
    let [mut cut_off, mut frozen] = [cut_off, frozen].map(|device| site.start(device, Firmware::BiosIpxeRom));
    for guest in [&mut cut_off, &mut frozen] {
        guest.wait_for(lab::micro::READY, lab::MICRO_READY_WITHIN).unwrap();
    }
    // One loses its cable in the middle of writes; its initiator gives the connection up (no answer to its pings), the
    // server hears nothing. The other freezes while it reads: a reader as slow as can be.
    let write =
        "dd if=/dev/urandom of=/data/big bs=64k count=200 conv=fsync 2>/dev/null; sha256sum </data/big";
    cut_off.start_in_shell(&format!("{write} >/sum; echo WRITE-EN''DED $?")).unwrap();
    cut_off.connect_network(false).unwrap();
    frozen
        .start_in_shell("dd if=/dev/sda bs=1M count=40 2>/dev/null | sha256sum; echo READ-EN''DED")
        .unwrap();
    frozen.pause().unwrap();
    // A whole boot beside them.
    let mut bystander = site.boot(bystander, Firmware::BiosIpxeRom);
    write_proof(&mut bystander, "not held up");
    let read = "dd if=/dev/sda bs=1M count=40 2>/dev/null | sha256sum";
    let sum = bystander.run(read).unwrap();
    frozen.resume().unwrap();
    cut_off.connect_network(true).unwrap();
    cut_off.wait_for("WRITE-ENDED 0", RECOVERS_WITHIN).unwrap();
    let check = "echo 3 >/proc/sys/vm/drop_caches; sha256sum </data/big | cmp - /sum";
    cut_off.run_within(check, RECOVERS_WITHIN).unwrap();
    frozen.wait_for("READ-ENDED", RECOVERS_WITHIN).unwrap();
    // Of the partitions that no machine writes to.
    assert_eq!(frozen.run_within(read, RECOVERS_WITHIN).unwrap(), sum);
}

#[test]
fn machine_cannot_log_in_to_another_devices_disk() {
    let devices = [Device::new("mine", 0), Device::new("theirs", 1)];
    let mut site = Site::micro("masking", &devices);
    let mut guest = site.boot(&devices[0], Firmware::BiosIpxeRom);
    // Under its own name, at the other's target: refused, and the administrator reads of it.
    let login = "iscsistart -i iqn.2026-11.org.headwater:mine:initiator -t iqn.2026-11.org.headwater:theirs \
                 -g 1 -a 10.77.0.1 -p 3260";
    let (said, status) = guest.run_for_status(login, Duration::from_secs(60)).unwrap();
    assert_ne!(status, 0, "the login succeeded: {said}");
    site.server.service().wait_for_log("theirs", Duration::from_secs(10)).unwrap();
    assert_eq!(guest.run("ls /sys/class/iscsi_session | wc -l").unwrap().trim(), "1");
    write_proof(&mut guest, "still at work");
}
